//! A zone transfer from a primary server, over TCP: from the connection to the zone, which was built as the server process builds
//! it, so that what the server would refuse is refused here.

use crate::clock::unix_s;
use crate::dns_exchange::random_id;
use sanderling_config::Limits;
use sanderling_dns::client::{QueryKind, ReplyError, SoaTimers, query};
use sanderling_dns::transfer_in::{Progress, TransferError, TransferReceiver};
use sanderling_dns::zonefile::{Position, Severity};
use sanderling_dns::{HashSeed, NameBuf, TsigKey, Zone, ZoneBuilder, ZoneLimits, ZoneTextWriter};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time for a connection, and between two messages.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a server has not given what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection to it, or it was lost.
    Network(io::Error),
    /// It does not answer in time.
    TimedOut(Duration),
    /// A reply is not accepted.
    Reply(TransferError),
    /// The zone has errors; the first one.
    Zone(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Network(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(out, "it closes the connection before the end")
            }
            Failure::Network(error) => write!(out, "{error}"),
            Failure::TimedOut(time) => write!(out, "it has not sent all in {} s", time.as_secs()),
            Failure::Reply(error) => write!(out, "{error}"),
            Failure::Zone(problem) => write!(out, "its zone has an error: {problem}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Network(error)
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Failure {
        Failure::Reply(error)
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Failure {
        Failure::Reply(error.into())
    }
}

/// A zone that was transferred.
#[derive(Debug)]
pub(crate) struct TransferredZone {
    pub(crate) soa: SoaTimers,
    /// The text of its zone file.
    pub(crate) text: String,
}

/// A primary server, and what to ask it for.
#[derive(Clone, Debug)]
pub(crate) struct TransferSource {
    pub(crate) server: SocketAddr,
    pub(crate) apex: NameBuf,
    pub(crate) key: Option<TsigKey>,
}

impl TransferSource {
    /// Asks for the SOA over TCP.
    pub(crate) async fn soa(&self) -> Result<SoaTimers, Failure> {
        let ask = async {
            let apex = self.apex.as_name();
            let (message, mut reader) = query(QueryKind::Soa, apex, random_id(), self.key.as_ref(), unix_s());
            let mut stream = Stream::open(self.server).await?;
            stream.send(&message).await?;
            Ok(reader.read(stream.receive().await?, unix_s())?.soa(apex)?)
        };
        timeout(IDLE_TIMEOUT, ask).await.unwrap_or(Err(Failure::TimedOut(IDLE_TIMEOUT)))
    }

    /// Transfers the zone.
    pub(crate) async fn transfer(&self, limits: &Limits) -> Result<TransferredZone, Failure> {
        let time_max = Duration::from_millis(limits.zone_transfer_in_timeout_ms);
        let (builder, soa) =
            timeout(time_max, self.receive(limits)).await.unwrap_or(Err(Failure::TimedOut(time_max)))?;
        // A large zone takes seconds, in which other zones are not to wait.
        let zone = spawn_blocking(|| build(builder));
        let text = zone.await.map_err(|error| Failure::Zone(error.to_string()))??;
        if text.len() as u64 > limits.zone_file_bytes_max {
            // The server process would not read it: text may be longer than messages.
            return Err(TransferError::TooLarge(limits.zone_file_bytes_max).into());
        }
        Ok(TransferredZone { soa, text })
    }

    async fn receive(&self, limits: &Limits) -> Result<(ZoneBuilder, SoaTimers), Failure> {
        let bytes_max = limits.zone_file_bytes_max;
        let (message, mut receiver) =
            TransferReceiver::new(self.apex.as_name(), random_id(), self.key.as_ref(), unix_s(), bytes_max);
        let seed = HashSeed(RandomState::new().build_hasher().finish());
        let zone_limits = ZoneLimits { records_per_rrset_max: limits.zone_records_per_rrset_max };
        let mut builder = ZoneBuilder::new(self.apex.as_name(), seed, zone_limits);
        let mut stream = Stream::open(self.server).await?;
        stream.send(&message).await?;
        loop {
            let message = stream.receive().await?;
            let progress = receiver.receive(message, unix_s(), |record| builder.add(record))?;
            if let (Progress::Complete, Some(soa)) = (progress, receiver.soa()) {
                return Ok((builder, soa));
            }
        }
    }
}

/// The text of the zone of all records.
fn build(builder: ZoneBuilder) -> Result<String, Failure> {
    let built = builder.finish(Position { file_index: 0, line: 0, column: 1 });
    let first_error = built.diagnostics.iter().find(|one| one.severity != Severity::Warning);
    let zone = built
        .zone
        .ok_or_else(|| Failure::Zone(first_error.map_or(String::new(), |diagnostic| diagnostic.problem.clone())))?;
    Ok(text_of(&zone))
}

fn text_of(zone: &Zone) -> String {
    let (mut writer, mut text) = (ZoneTextWriter::default(), String::new());
    while writer.write(zone, None, &mut text, usize::MAX) {}
    text
}

/// Messages over TCP, each with its length before it (RFC 1035 §4.2.2).
struct Stream {
    tcp: TcpStream,
    message: Vec<u8>,
}

impl Stream {
    async fn open(server: SocketAddr) -> Result<Stream, Failure> {
        let connected = timeout(IDLE_TIMEOUT, TcpStream::connect(server)).await;
        let tcp = connected.map_err(|_| Failure::TimedOut(IDLE_TIMEOUT))??;
        Ok(Stream { tcp, message: Vec::new() })
    }

    async fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        let length = u16::try_from(message.len()).expect("a query is short");
        let packet = [&length.to_be_bytes(), message].concat();
        timeout(IDLE_TIMEOUT, self.tcp.write_all(&packet)).await.map_err(|_| Failure::TimedOut(IDLE_TIMEOUT))??;
        Ok(())
    }

    async fn receive(&mut self) -> Result<&[u8], Failure> {
        let read = async {
            let length = self.tcp.read_u16().await?;
            self.message.resize(usize::from(length), 0);
            self.tcp.read_exact(&mut self.message).await
        };
        timeout(IDLE_TIMEOUT, read).await.map_err(|_| Failure::TimedOut(IDLE_TIMEOUT))??;
        Ok(&self.message)
    }
}
