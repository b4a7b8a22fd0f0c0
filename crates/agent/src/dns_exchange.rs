//! One query to another DNS server over UDP, and its reply.

use crate::clock::{random_between, unix_s};
use sanderling_dns::client::{QueryKind, Reply, ReplyError, query};
use sanderling_dns::{Name, TsigKey};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// Time for the reply to a question about records.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of the longest datagram that is read.
const REPLY_BYTES_MAX: usize = 4096;
/// Replies to other queries, or forged ones, that are read before the right one.
const UNRELATED_REPLIES_MAX: usize = 100;

/// Why a server has not answered as it should.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The network has reported an error.
    Network(io::Error),
    /// It has not answered in time.
    NoAnswer,
    /// Its reply is not accepted.
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

/// Asks `server` once, and reads its reply with `read`.
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
        match reader.read(&reply[..length_bytes], unix_s()).and_then(|reply| read(&reply)) {
            Err(ReplyError::Unrelated) => {}
            result => return result.map_err(ExchangeError::Reply),
        }
    }
    Err(ExchangeError::Reply(ReplyError::Unrelated))
}

/// The ID of a query, which others cannot predict.
pub(crate) fn random_id() -> u16 {
    random_between(0, u64::from(u16::MAX)) as u16
}
