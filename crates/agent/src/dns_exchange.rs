//! A query to another DNS server, and its reply: over UDP and, if the reply does not fit, over TCP.

use crate::clock::{random_between, unix_s};
use sanderling_dns::client::{QueryKind, Reply, ReplyError, query};
use sanderling_dns::{Name, TsigKey};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

pub(crate) const DNS_PORT: u16 = 53;
pub(crate) const RCODE_NXDOMAIN: u8 = 3;
/// Time for the reply to a question about records.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time to connect, and between two messages over the connection, except during a transfer.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a connection without a query.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of the longest datagram that is read.
const REPLY_BYTES_MAX: usize = 4096;
/// Maximum replies to other queries, or forged replies, that are read before the correct reply.
const UNRELATED_REPLIES_MAX: usize = 100;

/// The reason why a server has not given a usable answer.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The network has reported an error.
    Network(io::Error),
    /// The server has not answered in time.
    NoAnswer,
    /// The server's reply is not accepted.
    Reply(ReplyError),
}

impl ExchangeError {
    /// Whether no way leads from this machine to the server.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, ExchangeError::Network(error) if error.kind() == io::ErrorKind::NetworkUnreachable)
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeError::Network(error) => write!(out, "{error}"),
            ExchangeError::NoAnswer => write!(out, "it does not answer"),
            ExchangeError::Reply(error) => write!(out, "{error}"),
        }
    }
}

/// Queries `server` once, also over TCP if the reply over UDP is truncated, and reads its reply with `read`.
pub(crate) async fn exchange<T>(
    server: SocketAddr,
    (kind, apex): (QueryKind, Name<'_>),
    key: Option<&TsigKey>,
    time_max: Duration,
    read: impl FnMut(&Reply<'_>) -> Result<T, ReplyError>,
) -> Result<T, ExchangeError> {
    timeout(time_max, try_exchange(server, (kind, apex), key, read)).await.unwrap_or(Err(ExchangeError::NoAnswer))
}

async fn try_exchange<T>(
    server: SocketAddr,
    (kind, apex): (QueryKind, Name<'_>),
    key: Option<&TsigKey>,
    mut read: impl FnMut(&Reply<'_>) -> Result<T, ReplyError>,
) -> Result<T, ExchangeError> {
    let socket = sanderling_os::udp::connect(server).and_then(UdpSocket::from_std).map_err(ExchangeError::Network)?;
    let (message, mut reader) = query(kind, apex, random_id(), key, unix_s());
    socket.send(&message).await.map_err(ExchangeError::Network)?;
    let mut reply = vec![0; REPLY_BYTES_MAX];
    for _ in 0..UNRELATED_REPLIES_MAX {
        let length_bytes = socket.recv(&mut reply).await.map_err(ExchangeError::Network)?;
        let reply = reader.read(&reply[..length_bytes], unix_s());
        if reply.as_ref().is_ok_and(Reply::is_truncated) {
            return exchange_over_tcp(server, (kind, apex), key, read).await;
        }
        match reply.and_then(|reply| read(&reply)) {
            Err(ReplyError::Unrelated) => {}
            result => return result.map_err(ExchangeError::Reply),
        }
    }
    Err(ExchangeError::Reply(ReplyError::Unrelated))
}

async fn exchange_over_tcp<T>(
    server: SocketAddr,
    (kind, apex): (QueryKind, Name<'_>),
    key: Option<&TsigKey>,
    mut read: impl FnMut(&Reply<'_>) -> Result<T, ReplyError>,
) -> Result<T, ExchangeError> {
    let (message, mut reader) = query(kind, apex, random_id(), key, unix_s());
    let mut stream = DnsStream::open(server, IDLE_TIMEOUT).await.map_err(ExchangeError::Network)?;
    stream.send(&message).await.map_err(ExchangeError::Network)?;
    let reply = stream.receive().await.map_err(ExchangeError::Network)?;
    let read_complete = |reply: Reply<'_>| match reply.is_truncated() {
        true => Err(ReplyError::Malformed("its reply over TCP is truncated")),
        false => read(&reply),
    };
    reader.read(reply, unix_s()).and_then(read_complete).map_err(ExchangeError::Reply)
}

/// Messages over TCP, each preceded by its length (RFC 1035 §4.2.2).
pub(crate) struct DnsStream {
    tcp: TcpStream,
    message: Vec<u8>,
    idle_timeout: Duration,
}

impl DnsStream {
    /// Connects to `server`. This takes at most `idle_timeout`, and so does each message later.
    pub(crate) async fn open(server: SocketAddr, idle_timeout: Duration) -> io::Result<DnsStream> {
        let tcp = in_time(idle_timeout, TcpStream::connect(server)).await?;
        Ok(DnsStream { tcp, message: Vec::new(), idle_timeout })
    }

    pub(crate) async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u16::try_from(message.len()).expect("a query is short");
        in_time(self.idle_timeout, self.tcp.write_all(&[&length.to_be_bytes(), message].concat())).await
    }

    pub(crate) async fn receive(&mut self) -> io::Result<&[u8]> {
        let read = async {
            let length = self.tcp.read_u16().await?;
            self.message.resize(usize::from(length), 0);
            self.tcp.read_exact(&mut self.message).await
        };
        in_time(self.idle_timeout, read).await?;
        Ok(&self.message)
    }
}

/// Whether `server` accepts a connection over TCP.
///
/// # Errors
/// Why it does not.
pub(crate) async fn can_connect(server: SocketAddr) -> io::Result<()> {
    in_time(CONNECT_TIMEOUT, TcpStream::connect(server)).await.map(drop)
}

async fn in_time<T>(time_max: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(time_max, step).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// A query's ID, which others cannot predict.
pub(crate) fn random_id() -> u16 {
    random_between(0, u64::from(u16::MAX)) as u16
}
