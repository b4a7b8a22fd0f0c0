//! Queries and replies for a program that reads dnstap: the messages that one thread passes on.

use crate::log::log_lines::Unsent;
use crate::log::log_queue::LogQueue;
use sanderling_dns::{DnsTransport, RequestInfo};
use sanderling_log_format::{DnstapMessage, DnstapTransport, DnstapWriter};
use std::sync::Arc;

/// Bytes that a thread passes on before the end of an iteration, so that it holds no more with replies of 64 KiB.
const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// The dnstap messages to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dnstap {
    /// Whether queries are.
    pub queries: bool,
    /// Whether replies are.
    pub replies: bool,
    /// The name of the server that each message has, if it has one.
    pub identity: Option<String>,
    /// The version that each message has.
    pub version: String,
}

/// The messages of one thread.
#[derive(Debug)]
pub(crate) struct ThreadDnstap {
    queries: bool,
    replies: bool,
    writer: DnstapWriter,
    unsent: Unsent,
}

impl ThreadDnstap {
    pub(crate) fn new(dnstap: &Dnstap, queue: &Arc<LogQueue>) -> ThreadDnstap {
        let &Dnstap { queries, replies, ref identity, ref version } = dnstap;
        let writer = DnstapWriter::new(identity.as_deref(), version);
        ThreadDnstap { queries, replies, writer, unsent: Unsent::new(queue) }
    }

    /// From now on does what `dnstap` says.
    pub(crate) fn set(&mut self, dnstap: &Dnstap) {
        (self.queries, self.replies) = (dnstap.queries, dnstap.replies);
        self.writer = DnstapWriter::new(dnstap.identity.as_deref(), &dnstap.version);
    }

    pub(crate) fn write_query(&mut self, info: &RequestInfo, query: &[u8], time_unix_ms: u64) {
        if self.queries {
            self.write(false, info, query, time_unix_ms);
        }
    }

    pub(crate) fn write_reply(&mut self, info: &RequestInfo, reply: &[u8], time_unix_ms: u64) {
        if self.replies {
            self.write(true, info, reply, time_unix_ms);
        }
    }

    fn write(&mut self, is_reply: bool, info: &RequestInfo, message: &[u8], time_unix_ms: u64) {
        let transport = match info.transport {
            DnsTransport::Udp { .. } => DnstapTransport::Udp,
            DnsTransport::Tcp => DnstapTransport::Tcp,
            DnsTransport::Tls => DnstapTransport::Tls,
            DnsTransport::Https => DnstapTransport::Https,
        };
        let record = DnstapMessage { is_reply, client: info.client, transport, time_unix_ms, message };
        self.writer.write(&record, &mut self.unsent.bytes);
        if self.unsent.bytes.len() >= UNSENT_BYTES_MAX {
            self.unsent.pass_on();
        }
    }

    pub(crate) fn pass_on(&mut self) {
        self.unsent.pass_on();
    }
}
