//! The clients of the measurements, over loopback.

use rustix::net::sockopt;
use sanderling_os::tcp::{Listener, Stream};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// Time after which a missing answer of a stream is an error.
const TCP_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which outstanding datagrams are lost.
const UDP_TIMEOUT: Duration = Duration::from_millis(200);
/// The bytes of a request, as long as a browser's.
const REQUEST: [u8; 400] = [b'r'; 400];
/// Bytes of a query: a DNS query for a short name with EDNS.
pub(crate) const QUERY_BYTES: usize = 40;
/// Queries without a reply at a time: they fit into the default receive buffer.
const OUTSTANDING_MAX: usize = 128;

/// A free port of the loopback interface.
pub(crate) fn any_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Keeps pacing by timers (BBR) out of the measurement, where the kernel has another algorithm.
pub(crate) fn disable_pacing(socket: impl AsFd) {
    let _ = sockopt::set_tcp_congestion(socket, "cubic");
}

#[derive(Debug)]
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TCP_TIMEOUT))?;
        stream.set_write_timeout(Some(TCP_TIMEOUT))?;
        Ok(Client(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Receives until `into` is full.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(into)
    }

    /// Resets the connection, so that the port is not in TIME-WAIT for a minute.
    pub(crate) fn reset(self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.0, Some(Duration::ZERO))?)
    }
}

/// Connections with both ends.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) streams: Vec<Stream>,
    pub(crate) clients: Clients,
}

#[derive(Debug)]
pub(crate) struct Clients {
    clients: Vec<Client>,
    buffer: Vec<u8>,
}

impl Connections {
    pub(crate) fn open(count: usize) -> io::Result<Connections> {
        let listener = Listener::bind(any_address())?;
        disable_pacing(&listener);
        let address = listener.local_address()?;
        let (mut clients, mut streams) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            clients.push(Client::connect(address)?);
            let accepted = listener.accept()?;
            streams.push(accepted.ok_or_else(|| io::Error::other("an open connection cannot be accepted"))?.0);
        }
        Ok(Connections { streams, clients: Clients { clients, buffer: Vec::new() } })
    }
}

impl Clients {
    /// Sends `request_count` requests on each connection, and reads answers of `answer_bytes` each.
    pub(crate) fn request(&mut self, request_count: usize, answer_bytes: usize) -> io::Result<()> {
        self.buffer.resize(answer_bytes, 0);
        for _ in 0..request_count {
            self.clients.iter_mut().try_for_each(|client| client.send(&REQUEST))?;
            self.clients.iter_mut().try_for_each(|client| client.receive(&mut self.buffer))?;
        }
        Ok(())
    }

    pub(crate) fn reset(self) -> io::Result<()> {
        self.clients.into_iter().try_for_each(Client::reset)
    }
}

/// Sends `query_count` queries to `server`, up to [`OUTSTANDING_MAX`] at a time. Returns the numbers of replies and of
/// lost queries.
pub(crate) fn query(server: SocketAddr, query_count: usize) -> io::Result<(usize, usize)> {
    let socket = UdpSocket::bind(any_address())?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(UDP_TIMEOUT))?;
    let (mut answered, mut lost) = (0, 0);
    let mut buffer = [0; 512];
    while answered + lost < query_count {
        let batch = OUTSTANDING_MAX.min(query_count - answered - lost);
        for _ in 0..batch {
            // A refusal that the kernel reports late belongs to an earlier query.
            if let Err(error) = socket.send(&[0; QUERY_BYTES])
                && error.kind() != ErrorKind::ConnectionRefused
            {
                return Err(error);
            }
        }
        for received in 0..batch {
            match socket.recv(&mut buffer) {
                Ok(_) => answered += 1,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    lost += batch - received;
                    break;
                }
            }
        }
        if lost >= OUTSTANDING_MAX {
            lost = query_count - answered;
        }
    }
    Ok((answered, lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_without_a_server_are_lost() {
        let server = UdpSocket::bind(any_address()).and_then(|socket| socket.local_addr()).expect("bound");
        assert_eq!(query(server, 1_000).expect("sent"), (0, 1_000));
    }
}
