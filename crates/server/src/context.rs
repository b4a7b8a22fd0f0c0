//! The data that a connection and its protocol share with the worker and with each other: buffers, input, and the
//! result of a step.

use crate::backends::Backends;
use crate::clock::{Clock, Milliseconds, ms};
use crate::files::file_reads::FileReads;
use crate::files::local_files::LocalFiles;
use crate::limits::buffer_budget::PieceLimits;
use crate::limits::http_clients::HttpClients;
use crate::limits::request_budget::RequestBudget;
use crate::log::access_log::{Peer, WorkerLog};
use crate::log::query_log::ThreadQueryLog;
use crate::logins::authenticator::Authenticator;
use crate::metrics::ThreadMetrics;
use crate::net::body_source::BodySource;
use crate::net::call::CallHandle;
use crate::net::file_chunk::SendContext;
use crate::net::transport::Transport;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::waiter::Waiter;
use sanderling_dns::answer::TCP_REPLY_BYTES_MAX;
use sanderling_http2::Scratch;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Buffers that all connections of a worker use one after another, so that an idle connection holds none.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// The received bytes.
    pub(crate) input: Box<[u8]>,
    /// The bytes to send.
    pub(crate) output: Vec<u8>,
    /// The pieces in which input and output are processed.
    pub(crate) limits: PieceLimits,
    /// A DNS reply before it is appended to `output`, or a piece of a file.
    pub(crate) scratch: Box<[u8]>,
    /// A request of HTTP/2.
    pub(crate) http2: Scratch,
    /// The head of its response.
    pub(crate) http2_head: Vec<u8>,
}

/// The least bytes that are received in one step.
const RECEIVE_BYTES_MIN: usize = 16 * 1024;
/// The longest DNS message, with its length before it.
const DNS_MESSAGE_BYTES_MAX: usize = 2 + TCP_REPLY_BYTES_MAX;

impl Buffers {
    pub(crate) fn new(options: &Options) -> Buffers {
        let message_bytes_max = options.http.request.head_bytes_max.max(DNS_MESSAGE_BYTES_MAX);
        Buffers {
            input: vec![0; message_bytes_max + RECEIVE_BYTES_MIN].into_boxed_slice(),
            output: Vec::with_capacity(options.connection_buffer_bytes_max),
            limits: PieceLimits::new(false, options.connection_buffer_bytes_max),
            scratch: vec![0; TCP_REPLY_BYTES_MAX].into_boxed_slice(),
            http2: Scratch::default(),
            http2_head: Vec::new(),
        }
    }
}

impl Buffers {
    /// The room for what is received in one step.
    pub(crate) fn received_room(&mut self) -> &mut [u8] {
        let length = self.limits.received_bytes_max.min(self.input.len());
        &mut self.input[..length]
    }
}

/// The records kept of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inspection {
    /// Nothing.
    None,
    /// It is logged or counted.
    Log,
    /// It may be limited, or be of another client than the peer.
    Rules,
}

/// The tools of a connection in one iteration of the event loop.
pub(crate) struct Context<'w, 's> {
    pub(crate) snapshot: &'w Snapshot,
    pub(crate) files: &'w mut LocalFiles<'s>,
    pub(crate) reads: &'s FileReads,
    /// Connections to backends; `None` if no site has a route.
    pub(crate) backends: Option<&'w mut Backends>,
    pub(crate) authenticator: &'s Arc<Authenticator>,
    pub(crate) options: &'w Options,
    pub(crate) clock: &'w Clock,
    pub(crate) buffers: &'w mut Buffers,
    pub(crate) metrics: &'w ThreadMetrics,
    /// Where an event for this connection goes.
    pub(crate) waiter: Waiter,
    /// Counts the times that a connection of the worker was served.
    pub(crate) use_number: u64,
    pub(crate) inspection: Inspection,
    /// The requests that clients have made, and may make.
    pub(crate) request_budget: &'w RequestBudget,
    /// Logs and counts responses; `None` if there is no access log and no detailed counts.
    pub(crate) log: Option<&'w Rc<WorkerLog>>,
    /// Logs DNS queries; `None` if there is no query log.
    pub(crate) query_log: Option<&'w ThreadQueryLog>,
    /// How long idle connections stay open while the server drains; `None` while it does not.
    pub(crate) drain_grace: Option<Duration>,
}

impl Context<'_, '_> {
    /// The output, and the other state for sending.
    #[inline]
    pub(crate) fn for_sending(&mut self) -> (&[u8], SendContext<'_>) {
        let Buffers { output, scratch, .. } = &mut *self.buffers;
        let context =
            SendContext { scratch, reads: self.reads, waiter: self.waiter, now_ms: self.clock.now_ms(), sent_bytes: 0 };
        (output, context)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drain_grace.is_some()
    }

    /// When an idle connection is closed because the server drains.
    pub(crate) fn drain_deadline_ms(&self) -> Milliseconds {
        self.drain_grace.map_or(Milliseconds::MAX, |grace| self.clock.now_ms() + ms(grace))
    }
}

/// Received bytes, and how far they have been processed.
#[derive(Debug)]
pub(crate) struct Input<'i> {
    bytes: &'i [u8],
    consumed: usize,
}

impl<'i> Input<'i> {
    pub(crate) fn new(bytes: &'i [u8]) -> Input<'i> {
        Input { bytes, consumed: 0 }
    }

    /// The unprocessed input.
    #[inline]
    pub(crate) fn rest(&self) -> &'i [u8] {
        &self.bytes[self.consumed..]
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.consumed == self.bytes.len()
    }

    /// Bytes that have been processed.
    pub(crate) fn consumed(&self) -> usize {
        self.consumed
    }

    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.consumed += count;
    }

    /// Discards the rest.
    pub(crate) fn consume_all(&mut self) {
        self.consumed = self.bytes.len();
    }

    /// Goes back to where `consumed` bytes had been processed.
    pub(crate) fn rewind(&mut self, consumed: usize) {
        debug_assert!(consumed <= self.consumed);
        self.consumed = consumed;
    }
}

/// How a connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// Immediately, if everything that the client sent was received.
    AtOnce,
    /// After a wait for the client: something may still be arriving, for which the kernel would reset the connection.
    Linger,
}

/// The result of processing the input.
#[derive(Debug)]
pub(crate) enum Step<'s> {
    /// The rest of a request is missing.
    Partial,
    /// A request was answered: output was written, and this content follows it, if any.
    Answered(Option<BodySource<'s>>),
    /// The same, and it is the last answer.
    Last(CloseMode, Option<BodySource<'s>>),
    /// The rest of a request that is answered already was skipped.
    Skipped,
    /// The request waits for an event. It is still in the input, unless its body is being received.
    WaitForEvent,
    /// The head of a response was written, after which the call carries both directions.
    Tunnel(CallHandle),
    /// The input, of which nothing was taken, begins with the preface of HTTP/2.
    Http2,
    /// The input is not of this protocol: the connection closes without an answer.
    Invalid,
}

impl ConnectionInfo<'_> {
    /// The data of the connection for the access log.
    pub(crate) fn peer(&self, version: sanderling_log_format::HttpVersion) -> Peer {
        Peer { client: *self.client, version, is_encrypted: self.transport.is_encrypted() }
    }

    /// Whether the requests come from a trusted proxy, which counts as the client if it names its clients in each
    /// request.
    pub(crate) fn is_from_trusted_proxy(&self, clients: &HttpClients) -> bool {
        self.transport.has_proxy_header() || clients.is_trusted(self.client.ip())
    }
}

/// The facts about the connection that the protocol needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionInfo<'c> {
    pub(crate) client: &'c SocketAddr,
    /// Requests answered before.
    pub(crate) answered_count: u64,
    /// If it is readable, more bytes may have arrived than the input holds.
    pub(crate) transport: &'c Transport,
}
