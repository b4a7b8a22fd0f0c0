//! Single requests, to check whether a server answers, and with what content.

use crate::http::{Head, parse_head};
use crate::tls;
use domain::base::iana::Rtype;
use domain::base::{Message, MessageBuilder, Name, ParsedName, Ttl};
use domain::rdata::Soa;
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio_rustls::rustls::ClientConnection;
use tokio_rustls::rustls::pki_types::ServerName;

/// Maximum wait for an answer over TCP.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Ports that are tried until one is free for both TCP and UDP.
const PORT_TRIES_MAX: usize = 16;

/// A response over HTTP.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The `ETag` field.
    pub entity_tag: Option<String>,
    /// The content.
    pub content: Vec<u8>,
}

/// Sends a GET with additional `fields`, each with its line end, and receives the response. The connection is returned
/// as well.
///
/// # Errors
/// Returns an error if a call fails or the response is malformed.
pub fn get(server: SocketAddr, host: &str, path: &str, fields: &str) -> io::Result<(Response, TcpStream)> {
    let mut stream = connect(server)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").as_bytes())?;
    let (mut received, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        if let Some(head) = parse_head(&received).map_err(io::Error::other)? {
            let Head { head_bytes, status, length_bytes, entity_tag, .. } = head;
            let length_bytes = if status == 304 { 0 } else { length_bytes };
            if received.len() >= head_bytes + length_bytes {
                let content = received[head_bytes..head_bytes + length_bytes].to_vec();
                return Ok((Response { status, entity_tag, content }, stream));
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => received.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The certificate of an encrypted listener for a host, in its encoded form.
///
/// # Errors
/// Returns an error if a call or the handshake fails.
pub fn certificate(server: SocketAddr, host: &str) -> io::Result<Vec<u8>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = Arc::new(tls::config(b"http/1.1"));
    let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = connect(server)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    let chain = session.peer_certificates().unwrap_or_default();
    Ok(chain.first().map(|certificate| certificate.to_vec()).unwrap_or_default())
}

/// Asks a question over TCP.
///
/// # Errors
/// Returns an error if a call fails, the name is invalid, or the reply is malformed.
pub fn query_tcp(server: SocketAddr, name: &str, rtype: Rtype) -> io::Result<Message<Vec<u8>>> {
    Message::from_octets(exchange_tcp(server, &query(name, rtype)?)?).map_err(io::Error::other)
}

/// A query in the form for TCP.
///
/// # Errors
/// Returns an error if the name is invalid.
pub fn framed_query(name: &str, rtype: Rtype) -> io::Result<Vec<u8>> {
    Ok(framed(&query(name, rtype)?))
}

pub(crate) fn exchange_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = connect(server)?;
    stream.write_all(&framed(query))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

/// Transfers a zone by AXFR or, with the serial of the previous version, by IXFR. Returns the number of records in the
/// answer.
///
/// # Errors
/// Returns an error if a call fails, the name is invalid, or the reply does not belong to a transfer.
pub fn transfer(server: SocketAddr, apex: &str, from_serial: Option<u32>) -> io::Result<usize> {
    let name: Name<Vec<u8>> = apex.parse().map_err(io::Error::other)?;
    let query = match from_serial {
        None => query(apex, Rtype::AXFR)?,
        Some(serial) => {
            let mut question = MessageBuilder::new_vec().question();
            question.push((&name, Rtype::IXFR)).map_err(io::Error::other)?;
            let mut authority = question.authority();
            let soa = Soa::new(&name, &name, serial.into(), Ttl::ZERO, Ttl::ZERO, Ttl::ZERO, Ttl::ZERO);
            authority.push((&name, Ttl::ZERO, soa)).map_err(io::Error::other)?;
            authority.finish()
        }
    };
    let mut stream = BufReader::with_capacity(1 << 17, connect(server)?);
    stream.get_mut().write_all(&framed(&query))?;
    let (mut record_count, mut first_serial) = (0, None);
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply)?;
        let reply = Message::from_octets(reply).map_err(io::Error::other)?;
        let mut last_serial = None;
        for record in reply.answer().map_err(io::Error::other)? {
            let record = record.map_err(io::Error::other)?;
            let soa = record.to_record::<Soa<ParsedName<_>>>().map_err(io::Error::other)?;
            last_serial = soa.map(|soa| soa.data().serial());
            record_count += 1;
            if record_count == 1 {
                first_serial = last_serial;
            }
        }
        if first_serial.is_none() {
            return Err(io::Error::other(format!("a reply with {} is no transfer", reply.header().rcode())));
        }
        // The SOA that begins the transfer ends it.
        if record_count > 1 && last_serial == first_serial {
            return Ok(record_count);
        }
    }
}

/// A query preceded by its length (RFC 1035 §4.2.2).
pub(crate) fn framed(query: &[u8]) -> Vec<u8> {
    let length = u16::try_from(query.len()).expect("a query has one name, of at most 255 bytes");
    [length.to_be_bytes().as_slice(), query].concat()
}

/// Asks a question over UDP and waits for the reply.
///
/// # Errors
/// Returns an error if a call fails, the name is invalid, or the reply is malformed.
pub fn query_udp(server: SocketAddr, name: &str, rtype: Rtype, timeout: Duration) -> io::Result<Message<Vec<u8>>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.send(&query(name, rtype)?)?;
    let mut reply = vec![0; 1500];
    let length = socket.recv(&mut reply)?;
    reply.truncate(length);
    Message::from_octets(reply).map_err(io::Error::other)
}

fn query(name: &str, rtype: Rtype) -> io::Result<Vec<u8>> {
    let name: Name<Vec<u8>> = name.parse().map_err(io::Error::other)?;
    let mut builder = MessageBuilder::new_vec().question();
    builder.push((name, rtype)).map_err(io::Error::other)?;
    Ok(builder.finish())
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// An address whose port is free for TCP and UDP. Each call returns another address of the loopback network 127.0.0.0/8
/// (RFC 1122 §3.2.1.3), so that no other program takes the port before the server does.
///
/// # Errors
/// Returns an error if no such port is found.
pub fn free_address() -> io::Result<SocketAddr> {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    free_port(Ipv4Addr::new(127, high | 1 << 7, low, COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// A port of `ip` that is free for TCP and UDP at the moment.
///
/// # Errors
/// Returns an error if no such port is found.
pub fn free_port(ip: Ipv4Addr) -> io::Result<SocketAddr> {
    for _ in 0..PORT_TRIES_MAX {
        let address = TcpListener::bind((ip, 0))?.local_addr()?;
        if UdpSocket::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(io::Error::other(format!("no port is free for both TCP and UDP in {PORT_TRIES_MAX} tries")))
}
