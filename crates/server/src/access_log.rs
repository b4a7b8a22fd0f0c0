//! The lines that a worker writes to the access log, one for each response.
//!
//! The line of a response that is written whole into the output is written with it. A response with a part of a file takes a
//! [`PendingLine`] along, which is written when the part has been sent, or however else the response ends.

use crate::clock::{Clock, Milliseconds};
use crate::log_queue::{LogQueue, LogSlot};
use sanderling_http::{Request, Status};
use sanderling_log_format::{Format, LineWriter, Outcome, Protocol, Record};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Which requests are logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The format of the lines.
    pub format: Arc<Format>,
    /// Of how many successful requests one is logged; 1 for all of them. Responses with an error are always logged.
    pub one_of: u32,
}

/// The access log of one worker.
#[derive(Debug)]
pub(crate) struct WorkerLog {
    queue: Arc<LogQueue>,
    slot: Arc<LogSlot>,
    state: RefCell<WorkerLogState>,
}

#[derive(Debug)]
struct WorkerLogState {
    writer: LineWriter,
    one_of: u32,
    /// Successful requests since the last one that was logged.
    skipped_count: u32,
    /// Lines that have not been passed on.
    lines: Vec<u8>,
    now_ms: Milliseconds,
    now_unix_ms: u64,
}

/// The connection of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) client: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) is_encrypted: bool,
}

/// A request whose response was written, and what was written of its content.
#[derive(Clone, Copy, Debug)]
struct LoggedRequest<'r> {
    peer: Peer,
    line: &'r [u8],
    fields: &'r [u8],
    status: u16,
    content_bytes: u64,
}

impl WorkerLog {
    pub(crate) fn new(log: &AccessLog, queue: &Arc<LogQueue>) -> WorkerLog {
        let state = WorkerLogState {
            writer: LineWriter::new(Arc::clone(&log.format)),
            one_of: log.one_of,
            skipped_count: 0,
            lines: Vec::new(),
            now_ms: 0,
            now_unix_ms: 0,
        };
        WorkerLog { queue: Arc::clone(queue), slot: queue.add_slot(), state: RefCell::new(state) }
    }

    /// Uses another format from now on.
    pub(crate) fn set(&self, log: &AccessLog) {
        let mut state = self.state.borrow_mut();
        state.writer = LineWriter::new(Arc::clone(&log.format));
        state.one_of = log.one_of;
    }

    /// Sets the time of the iteration that begins.
    pub(crate) fn set_time(&self, clock: &Clock) {
        let mut state = self.state.borrow_mut();
        (state.now_ms, state.now_unix_ms) = (clock.now_ms(), clock.unix_ms());
    }

    /// Passes the lines of an iteration on.
    pub(crate) fn pass_on(&self) {
        let lines = &mut self.state.borrow_mut().lines;
        if !lines.is_empty() {
            self.queue.pass_on(&self.slot, lines);
        }
    }

    /// Logs the response to `request`, of whose content `content_bytes` were written. If it has a rest, which is sent later, the
    /// line is returned instead, unless the request is not logged.
    // By itself, so that the path of a request without a log stays short.
    #[inline(never)]
    pub(crate) fn log_response(
        self: &Rc<Self>,
        peer: Peer,
        request: &Request<'_>,
        status: Status,
        content_bytes: usize,
        has_rest: bool,
    ) -> Option<PendingLine> {
        let (line, fields) = request.fields.lines();
        let logged = LoggedRequest { peer, line, fields, status: status.code(), content_bytes: content_bytes as u64 };
        self.log(&logged, has_rest)
    }

    /// Logs a request that was refused before it was understood.
    #[cold]
    pub(crate) fn log_refused(self: &Rc<Self>, peer: Peer, received: &[u8], status: Status, content_bytes: usize) {
        let received = received.trim_ascii_start();
        let line = &received[..memchr::memchr(b'\n', received).unwrap_or(received.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let status = status.code();
        let refused = LoggedRequest { peer, line, fields: &[], status, content_bytes: content_bytes as u64 };
        self.log(&refused, false);
    }

    /// The line to be written at the end, if there is a rest and the request is logged.
    fn log(self: &Rc<Self>, request: &LoggedRequest<'_>, has_rest: bool) -> Option<PendingLine> {
        let mut state = self.state.borrow_mut();
        if request.status < 400 && state.one_of > 1 {
            state.skipped_count += 1;
            if state.skipped_count < state.one_of {
                return None;
            }
            state.skipped_count = 0;
        }
        if !has_rest {
            state.write(request, 0);
            return None;
        }
        let fields = state.writer.needed_fields(&state.record(request, 0));
        Some(PendingLine {
            log: Rc::clone(self),
            line: request.line.into(),
            fields: fields.into(),
            peer: request.peer,
            status: request.status,
            content_bytes: request.content_bytes,
            since_ms: state.now_ms,
        })
    }
}

/// The last lines are passed on, also those of responses that end after the log.
impl Drop for WorkerLog {
    fn drop(&mut self) {
        self.pass_on();
    }
}

impl WorkerLogState {
    fn record<'r>(&self, request: &LoggedRequest<'r>, duration_ms: u64) -> Record<'r> {
        let LoggedRequest { peer, line, fields, status, content_bytes } = *request;
        let Peer { client, protocol, is_encrypted } = peer;
        let outcome = Outcome { status, content_bytes, duration_ms };
        Record { client, line, fields, protocol, is_encrypted, outcome, time_unix_ms: self.now_unix_ms }
    }

    fn write(&mut self, request: &LoggedRequest<'_>, duration_ms: u64) {
        let record = self.record(request, duration_ms);
        self.writer.write(&record, &mut self.lines);
    }
}

/// The line of a response of which a part is still to be sent. It is written when this is dropped.
#[derive(Debug)]
pub(crate) struct PendingLine {
    log: Rc<WorkerLog>,
    line: Box<[u8]>,
    fields: Box<[u8]>,
    peer: Peer,
    status: u16,
    content_bytes: u64,
    since_ms: Milliseconds,
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
        };
        let mut state = self.log.state.borrow_mut();
        let duration_ms = state.now_ms.saturating_sub(self.since_ms);
        state.write(&request, duration_ms);
    }
}
