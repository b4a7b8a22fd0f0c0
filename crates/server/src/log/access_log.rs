//! The records of a worker for each response: a line of the access log, and detailed counts.
//!
//! The line of a response that is written whole into the output is written with it. A response with a part of a file
//! takes a [`PendingLine`] along, which is written when the part has been sent, or however else the response ends.

use crate::clock::{Clock, Milliseconds};
use crate::log::log_lines::{LogLines, RequestLog};
use crate::log::log_queue::LogQueue;
use crate::metrics::ThreadMetrics;
use crate::statistics::{CountedResponse, Slots};
use sanderling_http::{Request, Version};
use sanderling_log_format::{FieldLines, HttpRecord, HttpVariable, HttpVersion, Outcome, Upstream};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The log of HTTP requests. Responses with an error are always logged.
pub type AccessLog = RequestLog<HttpVariable>;
/// The lines of a worker.
type Lines = LogLines<HttpVariable>;

/// The records of a worker for its responses: lines of the access log, and detailed counts.
#[derive(Debug)]
pub(crate) struct WorkerLog {
    metrics: Arc<ThreadMetrics>,
    state: RefCell<WorkerLogState>,
}

#[derive(Debug)]
struct WorkerLogState {
    /// `None` without an access log.
    lines: Option<Lines>,
    /// Where sites are counted.
    slots: Arc<Slots>,
    now_ms: Milliseconds,
    now_unix_ms: u64,
    /// The server to which the request of the next response was passed on.
    upstream: Option<LoggedUpstream>,
}

/// The server of a backend that got a request.
#[derive(Clone, Debug)]
pub(crate) struct LoggedUpstream {
    pub(crate) address: Arc<str>,
    /// Time until the head of its response arrived; `None` if it did not.
    pub(crate) header_ms: Option<Milliseconds>,
}

/// The connection of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) client: SocketAddr,
    pub(crate) version: HttpVersion,
    pub(crate) is_encrypted: bool,
}

/// Where a request belongs, and when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The index of its site; `None` if there is none.
    pub(crate) site_index: Option<usize>,
    /// When its first bytes were received.
    pub(crate) since_ms: Milliseconds,
}

/// A request whose response was written, and the amount of content written.
#[derive(Clone, Copy, Debug)]
struct LoggedRequest<'r> {
    peer: Peer,
    line: &'r [u8],
    fields: &'r [u8],
    status: u16,
    content_bytes: u64,
    /// Of [`HTTP_VERSIONS`](crate::statistics::HTTP_VERSIONS).
    version: u8,
    site_slot: u16,
    since_ms: Milliseconds,
    upstream: Option<&'r LoggedUpstream>,
}

impl WorkerLog {
    pub(crate) fn new(metrics: Arc<ThreadMetrics>) -> WorkerLog {
        let state = WorkerLogState { lines: None, slots: Arc::default(), now_ms: 0, now_unix_ms: 0, upstream: None };
        WorkerLog { metrics, state: RefCell::new(state) }
    }

    /// From now on writes lines as `log` says, and counts sites in `slots`.
    pub(crate) fn set(&self, log: Option<&AccessLog>, queue: &Arc<LogQueue>, slots: &Arc<Slots>) {
        let mut state = self.state.borrow_mut();
        state.slots = Arc::clone(slots);
        match (&mut state.lines, log) {
            (Some(lines), Some(log)) => lines.set(log),
            (lines, log) => *lines = log.map(|log| Lines::new(log, queue)),
        }
    }

    /// Sets the time of the iteration that begins.
    pub(crate) fn set_time(&self, clock: &Clock) {
        let mut state = self.state.borrow_mut();
        (state.now_ms, state.now_unix_ms) = (clock.now_ms(), clock.unix_ms());
    }

    /// The request of the next response was passed on to this server.
    pub(crate) fn set_upstream(&self, upstream: Option<LoggedUpstream>) {
        self.state.borrow_mut().upstream = upstream;
    }

    /// Passes the lines of an iteration on.
    pub(crate) fn pass_on(&self) {
        if let Some(lines) = &mut self.state.borrow_mut().lines {
            lines.pass_on();
        }
    }

    /// Logs and counts the response to `request`, of whose content `content_bytes` were written. If it has a rest,
    /// which is sent later, the line is returned instead.
    // Separate, so that the path of a request without a log stays short.
    #[inline(never)]
    pub(crate) fn log_response(
        self: &Rc<Self>,
        peer: Peer,
        origin: Origin,
        request: &Request<'_>,
        status: u16,
        content_bytes: usize,
        has_rest: bool,
    ) -> Option<PendingLine> {
        let version = match (peer.version, request.version) {
            (HttpVersion::Http1, Version::Http10) => 0,
            (HttpVersion::Http1, Version::Http11) => 1,
            (HttpVersion::Http2, _) => 2,
        };
        let content_bytes = content_bytes as u64;
        let Origin { site_index, since_ms } = origin;
        let mut state = self.state.borrow_mut();
        let site_slot = state.slots.of_site(site_index);
        let (line, fields) = if state.lines.is_some() { request.fields.lines() } else { Default::default() };
        let upstream = state.upstream.take();
        drop(state);
        let upstream = upstream.as_ref();
        let request =
            LoggedRequest { peer, line, fields, status, content_bytes, version, site_slot, since_ms, upstream };
        self.log(&request, has_rest)
    }

    /// Logs and counts a request that was refused before it was understood.
    #[cold]
    pub(crate) fn log_refused(
        self: &Rc<Self>,
        peer: Peer,
        since_ms: Milliseconds,
        received: &[u8],
        status: u16,
        content_bytes: usize,
    ) {
        let received = received.trim_ascii_start();
        let line = &received[..memchr::memchr(b'\n', received).unwrap_or(received.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let version = match peer.version {
            HttpVersion::Http1 => 1,
            HttpVersion::Http2 => 2,
        };
        let content_bytes = content_bytes as u64;
        let site_slot = self.state.borrow().slots.of_site(None);
        let (fields, upstream): (&[u8], _) = (&[], None);
        let refused =
            LoggedRequest { peer, line, fields, status, content_bytes, version, site_slot, since_ms, upstream };
        self.log(&refused, false);
    }

    /// The action at the end, if there is a rest.
    fn log(self: &Rc<Self>, request: &LoggedRequest<'_>, has_rest: bool) -> Option<PendingLine> {
        let mut state = self.state.borrow_mut();
        let is_logged = state.lines.as_mut().is_some_and(|lines| request.status >= 400 || lines.takes_next());
        if !has_rest {
            state.count(request, &self.metrics);
            if is_logged {
                state.write(request, 0);
            }
            return None;
        }
        let (line, fields) = match &state.lines {
            Some(lines) if is_logged => {
                (request.line, lines.needed_fields(&state.record(request, 0)).into_boxed_slice())
            }
            _ if self.metrics.statistics.is_none() => return None,
            _ => Default::default(),
        };
        Some(PendingLine {
            log: Rc::clone(self),
            is_logged,
            line: line.into(),
            fields,
            peer: request.peer,
            status: request.status,
            content_bytes: request.content_bytes,
            version: request.version,
            site_slot: request.site_slot,
            since_ms: request.since_ms,
            upstream: request.upstream.cloned(),
            written_ms: state.now_ms,
        })
    }
}

impl WorkerLogState {
    fn record<'r>(&self, request: &LoggedRequest<'r>, duration_ms: u64) -> HttpRecord<'r> {
        let LoggedRequest { peer, line, fields, status, content_bytes, .. } = *request;
        let Peer { client, version, is_encrypted } = peer;
        let outcome = Outcome { status, content_bytes, duration_ms };
        let (fields, time_unix_ms) = (FieldLines::new(fields), self.now_unix_ms);
        let upstream =
            request.upstream.map(|upstream| Upstream { address: &upstream.address, header_ms: upstream.header_ms });
        HttpRecord { client, line, fields, version, is_encrypted, outcome, upstream, time_unix_ms }
    }

    fn write(&mut self, request: &LoggedRequest<'_>, duration_ms: u64) {
        let record = self.record(request, duration_ms);
        if let Some(lines) = &mut self.lines {
            lines.write(&record);
        }
    }

    fn count(&self, request: &LoggedRequest<'_>, metrics: &ThreadMetrics) {
        let Some(statistics) = &metrics.statistics else { return };
        let LoggedRequest { peer, status, content_bytes, version, site_slot, since_ms, .. } = *request;
        statistics.count_response(&CountedResponse {
            version,
            is_encrypted: peer.is_encrypted,
            status,
            site_slot,
            content_bytes,
            duration_ms: self.now_ms.saturating_sub(since_ms),
        });
    }
}

/// The line of a response of which a part is still to be sent. When this is dropped, the line is written and the
/// response counted.
#[derive(Debug)]
pub(crate) struct PendingLine {
    log: Rc<WorkerLog>,
    /// Otherwise it is only counted.
    is_logged: bool,
    line: Box<[u8]>,
    fields: Box<[u8]>,
    peer: Peer,
    status: u16,
    content_bytes: u64,
    version: u8,
    site_slot: u16,
    since_ms: Milliseconds,
    upstream: Option<LoggedUpstream>,
    /// When the head was written.
    written_ms: Milliseconds,
}

impl PendingLine {
    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.line.len() + self.fields.len()
    }

    /// Counts content that was sent.
    pub(crate) fn add_content(&mut self, length_bytes: u64) {
        self.content_bytes += length_bytes;
    }
}

impl Drop for PendingLine {
    fn drop(&mut self) {
        let request = LoggedRequest {
            peer: self.peer,
            line: &self.line,
            fields: &self.fields,
            status: self.status,
            content_bytes: self.content_bytes,
            version: self.version,
            site_slot: self.site_slot,
            since_ms: self.since_ms,
            upstream: self.upstream.as_ref(),
        };
        let mut state = self.log.state.borrow_mut();
        state.count(&request, &self.log.metrics);
        if self.is_logged {
            let duration_ms = state.now_ms.saturating_sub(self.written_ms);
            state.write(&request, duration_ms);
        }
    }
}
