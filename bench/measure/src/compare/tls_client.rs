//! A client of TLS: single requests, and the load of the handshakes.
//!
//! The client offers X25519MLKEM768 before X25519, with a key share of each, so that every server can select its own
//! group without a second round trip.

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use domain::base::Message;
use domain::base::iana::Rtype;
use loadgen::client;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(15);
/// Concurrent connections of the load.
const THREAD_COUNT: usize = 8;
const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// Frames of HTTP/2 (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The application protocol (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    Dns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tickets {
    Ignored,
    /// Each handshake resumes the session of an earlier one.
    Used,
}

impl Tickets {
    /// The argument of the command.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tickets::Ignored => "ignored",
            Tickets::Used => "used",
        }
    }
}

pub(crate) struct Client {
    server: SocketAddr,
    protocol: Protocol,
    config: Arc<ClientConfig>,
}

/// A connection on which a response was received.
pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Client {
    pub(crate) fn new(server: SocketAddr, protocol: Protocol, tickets: Tickets) -> anyhow::Result<Client> {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
        provider.kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519];
        let alpn: &[u8] = match protocol {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
            Protocol::Dns => b"dot",
        };
        let mut config = loadgen::tls_config_with(provider, alpn);
        if tickets == Tickets::Ignored {
            config.resumption = Resumption::disabled();
        }
        Ok(Client { server, protocol, config: Arc::new(config) })
    }

    /// Sends a request for a file, or for a name with an address, and receives the response.
    pub(crate) fn request(&self, path: &str, content_bytes: usize) -> anyhow::Result<Stream> {
        let mut stream = self.connect()?;
        match self.protocol {
            Protocol::Http1 => get(&mut stream, self.server, path, "", content_bytes)?,
            Protocol::Http2 => get_http2(&mut stream, self.server, path, content_bytes)?,
            Protocol::Dns => query(&mut stream, path)?,
        }
        Ok(stream)
    }

    /// A connection for one request, until the server closes it; whether its handshake has resumed a session.
    pub(crate) fn request_once(&self, path: &str, content_bytes: usize) -> anyhow::Result<bool> {
        let mut stream = self.connect()?;
        get(&mut stream, self.server, path, "Connection: close\r\n", content_bytes)?;
        ensure!(stream.read(&mut [0])? == 0, "more than the response");
        Ok(stream.conn.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    fn connect(&self) -> anyhow::Result<Stream> {
        let stream = TcpStream::connect_timeout(&self.server, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        // An address, as the other loads: a server that is asked for a name refuses requests for its address.
        let name = ServerName::from(self.server.ip());
        Ok(StreamOwned::new(ClientConnection::new(Arc::clone(&self.config), name)?, stream))
    }
}

/// The group of the key exchange.
pub(crate) fn group(stream: &Stream) -> String {
    let group = stream.conn.negotiated_key_exchange_group();
    group.map_or_else(String::new, |group| format!("{:?}", group.name()))
}

fn get(stream: &mut Stream, server: SocketAddr, path: &str, fields: &str, content_bytes: usize) -> anyhow::Result<()> {
    // By one write, as each is a record.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n{fields}\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut received, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let head_bytes = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|end| end + 4);
        if let Some(head_bytes) = head_bytes {
            ensure!(received.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&received));
            if received.len() >= head_bytes + content_bytes {
                ensure!(received.len() == head_bytes + content_bytes, "content is not of {content_bytes} bytes");
                return Ok(());
            }
        }
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "the response ends after {} bytes", received.len());
        received.extend_from_slice(&buffer[..count]);
    }
}

fn get_http2(stream: &mut Stream, server: SocketAddr, path: &str, content_bytes: usize) -> anyhow::Result<()> {
    let authority = server.to_string();
    // `:method: GET` and `:scheme: https` of the static table, then literals with its names `:path` and `:authority`
    // (RFC 7541 Appendix A).
    let mut block = vec![0x82, 0x87, 0x04, u8::try_from(path.len())?];
    block.extend(path.bytes());
    block.extend([0x01, u8::try_from(authority.len())?]);
    block.extend(authority.bytes());
    let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // Windows that hold the response: SETTINGS_INITIAL_WINDOW_SIZE, and WINDOW_UPDATE for the connection.
    request.extend([0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]);
    request.extend([0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0, 0x40, 0, 0, 0]);
    request.extend([0, 0, u8::try_from(block.len())?, HEADERS, END_STREAM | END_HEADERS, 0, 0, 0, 1]);
    request.extend(block);
    stream.write_all(&request)?;
    let mut data_bytes = 0;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [high, middle, low, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        stream.read_exact(&mut payload)?;
        match kind {
            DATA => data_bytes += payload.len(),
            // `:status: 200` of the static table, perhaps after a change of the size of the dynamic one.
            HEADERS => ensure!(payload.contains(&0x88), "the status is not 200"),
            SETTINGS if flags & ACK == 0 => stream.write_all(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0])?,
            GOAWAY | RST_STREAM => bail!("the server refuses the request"),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            ensure!(data_bytes == content_bytes, "content of {data_bytes} bytes");
            return Ok(());
        }
    }
}

fn query(stream: &mut Stream, name: &str) -> anyhow::Result<()> {
    stream.write_all(&client::framed_query(name, Rtype::A)?)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply)?;
    let reply = Message::from_octets(reply)?;
    ensure!(reply.header_counts().ancount() == 1, "the reply has no answer");
    Ok(())
}

/// Requests on connections of their own, for the handshakes
#[derive(Args)]
pub(crate) struct Handshakes {
    server: SocketAddr,
    path: String,
    content_bytes: usize,
    tickets: Tickets,
    seconds: f64,
}

impl Handshakes {
    pub(crate) fn run(&self) -> anyhow::Result<bool> {
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        let (response_count, error_count) = (AtomicU64::new(0), AtomicU64::new(0));
        let requests = || -> anyhow::Result<()> {
            let client = Client::new(self.server, Protocol::Http1, self.tickets)?;
            // The first connection gets the first tickets.
            let mut is_first = true;
            while Instant::now() < end {
                match client.request_once(&self.path, self.content_bytes) {
                    Ok(is_resumed) if is_resumed == (self.tickets == Tickets::Used) || is_first => {
                        response_count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(_) | Err(_) => {
                        error_count.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(ERROR_PAUSE);
                    }
                }
                is_first = false;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREAD_COUNT).map(|_| scope.spawn(requests)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a request does not panic"))
        })?;
        println!("{} responses, {} errors", response_count.into_inner(), error_count.into_inner());
        Ok(true)
    }
}
