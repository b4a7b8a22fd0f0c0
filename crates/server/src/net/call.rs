//! An exchange with a backend, which the connection of the client and the connection to the backend share.
//!
//! The client's side adds content of the request and takes content of the response, each up to a bound, and then waits
//! for [`Event::Backend`](crate::waiter::Event); the backend's side waits for a [`Wakeups`] entry. Nobody copies into a
//! full buffer: a side that is slow stops the other one.

use crate::backend_servers::ServerState;
use crate::clock::Milliseconds;
use crate::slab::Key;
use crate::waiter::Waiter;
use sanderling_fastcgi::{DecodeError, ProtocolStatus, put_stdin, put_stdin_end};
use sanderling_http::{ResponseError, put_passed_trailers};
use sanderling_http2::ClientFault;
use sanderling_site_rules::{BackendRoute, Route, RouteAction};
use sanderling_tls::ClientError;
use std::cell::{RefCell, RefMut};
use std::fmt::Write as _;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the content of one request that wait for the backend.
const CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of content of a request that are kept after they were sent, so that it can be repeated.
const REPEATED_BYTES_MAX: usize = 16 * 1024;

/// Interim responses (1xx) before one final response. More are those of a backend that never ends.
const INTERIM_RESPONSES_MAX: u8 = 16;
/// Bytes of the text that one response has for the log.
const ERROR_TEXT_BYTES_MAX: usize = 4 * 1024;

/// The exchange, from either side.
#[derive(Clone, Debug)]
pub(crate) struct Call(Rc<RefCell<CallState>>);

/// The client's side of a call. To drop the last clone is to give the call up.
#[derive(Clone, Debug)]
pub(crate) struct CallHandle(Rc<ClientSide>);

#[derive(Debug)]
struct ClientSide {
    call: Call,
    wakeups: Wakeups,
}

/// The calls whose client's side has changed since the backend's side looked last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakeups(Rc<RefCell<Vec<Call>>>);

/// The state of a call.
#[derive(Debug)]
pub(crate) struct CallState {
    /// Its route, whose action is [`RouteAction::Pass`].
    route: Arc<Route>,
    /// Receives [`Event::Backend`](crate::waiter::Event).
    pub(crate) waiter: Waiter,
    pub(crate) request: CallRequest,
    pub(crate) response: CallResponse,
    /// The heads of interim responses for the client that its side has not taken.
    interim: Vec<Vec<u8>>,
    interim_count: u8,
    /// The waiter has not heard of the last one.
    has_new_interim: bool,
    /// Content of the response that the client's side has not taken.
    content: Vec<u8>,
    /// Trailers of the response: field lines, which are passed on after its content.
    trailers: Vec<u8>,
    /// No more is received before the client's side takes some.
    pub(crate) is_full: bool,
    /// Text for the log.
    error_text: Vec<u8>,
    /// The connection to the backend; `None` while there is none.
    pub(crate) connection: Option<Key>,
    /// Connections on which it was tried before.
    pub(crate) failed_count: u8,
    /// Until when it waits for a connection; `None` if it has not waited.
    pub(crate) waits_until_ms: Option<Milliseconds>,
    /// The server that was chosen last.
    pub(crate) chosen: Option<Chosen>,
    is_given_up: bool,
    is_in_wakeups: bool,
    /// The client's side waits for room in the request.
    awaits_room: bool,
    /// It waits for the response, or for more of it.
    awaits_response: bool,
}

/// The server that a request was given to.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) server: Arc<ServerState>,
    /// Its place in the configuration.
    pub(crate) place: u32,
    pub(crate) time: ResponseTime,
}

/// The time from a request to the head of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseTime {
    /// It is running since then.
    Since(Milliseconds),
    /// The head has arrived after so long.
    After(Milliseconds),
}

/// The server that a request prefers, whatever the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Affinity {
    /// Nothing.
    #[default]
    None,
    /// The hash of the client.
    Client(u64),
    /// The place of a server in the configuration, which a cookie has named.
    Place(u32),
}

/// The request to the backend.
#[derive(Debug)]
pub(crate) struct CallRequest {
    /// Whether the response has no content, whatever its head says.
    pub(crate) is_head: bool,
    /// Whether it may be carried out twice (RFC 9110 §9.2.2).
    pub(crate) is_idempotent: bool,
    /// Whether the connection becomes a tunnel if the backend agrees.
    pub(crate) is_upgrade: bool,
    /// Which server it prefers.
    pub(crate) affinity: Affinity,
    /// The head.
    head: Vec<u8>,
    framing: ContentFraming,
    /// Framed content, of which [`CallRequest::sent_bytes`] were sent.
    content: Vec<u8>,
    /// Bytes of content that may still be added.
    left_bytes: u64,
    /// Of head and content.
    sent_bytes: usize,
    /// Sent content was discarded.
    is_cut: bool,
    end: RequestEnd,
}

/// How the content of a request is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentFraming {
    /// Not at all: its length is known, or it goes through a tunnel.
    Plain,
    /// By the chunked transfer coding (RFC 9112 §7.1).
    Chunked,
    /// By records of FastCGI.
    Records,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestEnd {
    /// More content follows.
    Open,
    /// It is complete.
    Ended,
}

/// The response of the backend.
#[derive(Debug)]
pub(crate) enum CallResponse {
    /// Its head has not arrived.
    Awaited,
    /// Its head, which the client's side has not taken; content follows.
    Head(Vec<u8>),
    /// Content follows.
    Content,
    /// All of it has arrived. The head, if the client's side has not taken it.
    Complete(Option<Vec<u8>>),
    /// There will be no more. The head, if the client's side has not taken it, is not passed on.
    Failed(CallError),
}

/// Why a call has no response, or no whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The connection could not be made.
    Connect(io::ErrorKind),
    /// Nor within this time.
    ConnectTimeout(Duration),
    /// As many connections as allowed are in use, and none became free within this time.
    Busy(Duration),
    /// The name of its host was not found.
    NameNotFound(String),
    /// The backend has closed the connection before the end of the response.
    Closed,
    /// It has not begun its response, or not continued, within this time.
    Timeout(Duration),
    /// The content of the request is longer than the route allows.
    ContentTooLarge,
    /// It has sent what is not a response.
    Invalid(ResponseError),
    /// It has sent what is not FastCGI.
    InvalidRecord(DecodeError),
    /// The FastCGI application has not accepted the request.
    Refused(ProtocolStatus),
    /// It has ended the request, or its response breaks HTTP/2.
    Http2(ClientFault),
    /// There is no encryption with it.
    Tls(ClientError),
}

/// A part of a response that can be taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TakenContent {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing now; the waiter receives an event.
    Awaited,
    /// Nothing more: it is complete.
    End,
    /// Nothing more, although it is not complete.
    CutOff,
}

impl Call {
    pub(crate) fn new(route: Arc<Route>, waiter: Waiter, request: CallRequest) -> Call {
        Call(Rc::new(RefCell::new(CallState {
            route,
            waiter,
            request,
            response: CallResponse::Awaited,
            interim: Vec::new(),
            interim_count: 0,
            has_new_interim: false,
            content: Vec::new(),
            trailers: Vec::new(),
            is_full: false,
            error_text: Vec::new(),
            connection: None,
            failed_count: 0,
            waits_until_ms: None,
            chosen: None,
            is_given_up: false,
            is_in_wakeups: false,
            awaits_room: false,
            awaits_response: true,
        })))
    }

    /// The state. No other borrow is alive.
    pub(crate) fn state(&self) -> RefMut<'_, CallState> {
        self.0.borrow_mut()
    }

    /// The client's side of the call.
    pub(crate) fn handle(&self, wakeups: &Wakeups) -> CallHandle {
        CallHandle(Rc::new(ClientSide { call: self.clone(), wakeups: wakeups.clone() }))
    }
}

impl CallState {
    /// How its route passes requests on.
    pub(crate) fn backend_route(&self) -> &BackendRoute {
        match &self.route.action {
            RouteAction::Pass(route) => route,
            RouteAction::Respond { .. } | RouteAction::File => unreachable!("a call has a route to a backend"),
        }
    }

    /// The pattern of its route.
    pub(crate) fn route_name(&self) -> &str {
        &self.route.name
    }

    /// The backend, as messages name it: by its addresses.
    pub(crate) fn backend_name(&self) -> String {
        let servers = &self.backend_route().backend.servers;
        servers.iter().map(|server| server.address.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// A failure of the call: "backend 127.0.0.1:3000 refuses connections".
    pub(crate) fn describe(&self, error: &CallError) -> String {
        match error {
            CallError::NameNotFound(name) => format!("name {name} of the backend was not found"),
            error => format!("backend {} {error}", self.backend_name()),
        }
    }

    /// Takes the text for the log; `None` if there is none.
    pub(crate) fn take_error_text(&mut self) -> Option<String> {
        let text = std::mem::take(&mut self.error_text);
        let text = String::from_utf8_lossy(text.trim_ascii()).into_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Whether nobody waits for the response.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Whether its client's side has ended the call.
    pub(crate) fn is_over(&self) -> bool {
        self.is_given_up || matches!(self.response, CallResponse::Failed(_))
    }

    /// Whether the client's side has to take content of the response before more is received: there are `bytes_max`.
    pub(crate) fn is_response_full(&mut self, bytes_max: usize) -> bool {
        let is_full = self.content.len() >= bytes_max;
        // The client's side accounts for the memory, whether it can take something or not.
        self.awaits_response |= is_full && !self.is_full;
        self.is_full = is_full;
        is_full
    }

    /// Counts an interim response, whose `head` the client may get.
    pub(crate) fn note_interim(&mut self, head: Option<&[u8]>) -> Result<(), CallError> {
        if self.interim_count == INTERIM_RESPONSES_MAX {
            return Err(CallError::Invalid(ResponseError::TooManyInterimResponses));
        }
        self.interim_count += 1;
        self.has_new_interim |= head.is_some();
        self.interim.extend(head.map(<[u8]>::to_vec));
        Ok(())
    }

    /// Adds content of the response.
    pub(crate) fn put_content(&mut self, content: &[u8]) {
        self.content.extend_from_slice(content);
    }

    /// Bytes of such content.
    pub(crate) fn content_bytes(&self) -> usize {
        self.content.len()
    }

    /// The trailers of the response, of which those are kept that may be passed on.
    pub(crate) fn set_trailers(&mut self, lines: &[u8]) {
        let mut trailers = Vec::new();
        put_passed_trailers(lines, &self.backend_route().response_fields, &mut trailers);
        self.trailers = trailers;
    }

    /// Adds text that a FastCGI application has for its log; what is too long is left out.
    pub(crate) fn put_error_text(&mut self, text: &[u8]) {
        let left_bytes = ERROR_TEXT_BYTES_MAX.saturating_sub(self.error_text.len());
        self.error_text.extend_from_slice(&text[..text.len().min(left_bytes)]);
    }

    /// The response is complete.
    pub(crate) fn complete(&mut self) {
        let head = match std::mem::replace(&mut self.response, CallResponse::Content) {
            CallResponse::Head(head) => Some(head),
            _ => None,
        };
        self.response = CallResponse::Complete(head);
    }

    /// The status of the response whose head the client's side has not taken.
    pub(crate) fn response_status(&self) -> Option<u16> {
        let (CallResponse::Head(head) | CallResponse::Complete(Some(head))) = &self.response else { return None };
        str::from_utf8(head.get(9..12)?).ok()?.parse().ok()
    }

    /// The waiter, if what it waits for is there.
    pub(crate) fn take_waiter(&mut self) -> Option<Waiter> {
        let has_room = self.awaits_room && self.request.room() > 0;
        let has_response = !matches!(self.response, CallResponse::Awaited | CallResponse::Content);
        let has_part = self.awaits_response && (has_response || !self.content.is_empty());
        // The response itself is still awaited then.
        let has_hints = self.awaits_response && std::mem::take(&mut self.has_new_interim);
        self.awaits_room &= !has_room;
        self.awaits_response &= !has_part;
        ((has_room || has_part || has_hints) && !self.is_given_up).then_some(self.waiter)
    }
}

impl CallRequest {
    /// A request with this head, and perhaps with content of up to `content_bytes_max`.
    pub(crate) fn new(
        head: Vec<u8>,
        framing: ContentFraming,
        has_content: bool,
        content_bytes_max: u64,
    ) -> CallRequest {
        let end = if has_content { RequestEnd::Open } else { RequestEnd::Ended };
        CallRequest {
            is_head: false,
            is_idempotent: false,
            is_upgrade: false,
            affinity: Affinity::None,
            head,
            framing,
            content: Vec::new(),
            left_bytes: content_bytes_max,
            sent_bytes: 0,
            is_cut: false,
            end,
        }
    }

    /// Whether all of it was sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.end == RequestEnd::Ended && self.sent_bytes == self.head.len() + self.content.len()
    }

    /// Whether its content is not complete.
    pub(crate) fn is_open(&self) -> bool {
        self.end == RequestEnd::Open
    }

    /// The unsent part of its head, and of the content that has arrived.
    pub(crate) fn unsent(&self) -> (&[u8], &[u8]) {
        let of_head = self.sent_bytes.min(self.head.len());
        (&self.head[of_head..], &self.content[self.sent_bytes - of_head..])
    }

    /// So many bytes of [`CallRequest::unsent`] were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent_bytes += count;
        let sent_content_bytes = self.sent_bytes.saturating_sub(self.head.len());
        if sent_content_bytes > REPEATED_BYTES_MAX || (self.is_cut && sent_content_bytes > 0) {
            self.is_cut = true;
            self.content.drain(..sent_content_bytes);
            self.sent_bytes -= sent_content_bytes;
        }
    }

    /// The backend takes no more of it.
    pub(crate) fn stop(&mut self) {
        self.is_cut = true;
        self.content = Vec::new();
        self.sent_bytes = self.head.len();
    }

    /// Begins it again on another connection; `false` if that is not possible.
    pub(crate) fn rewind(&mut self) -> bool {
        if !self.is_cut {
            self.sent_bytes = 0;
        }
        !self.is_cut
    }

    fn room(&self) -> usize {
        let unsent_bytes = self.unsent().1.len();
        match self.end {
            RequestEnd::Open => CONTENT_BYTES_MAX.saturating_sub(unsent_bytes),
            RequestEnd::Ended => 0,
        }
    }

    /// Its bytes go on to both sides after the response: it is never complete before the client closes.
    pub(crate) fn begin_tunnel(&mut self) {
        (self.framing, self.end, self.left_bytes) = (ContentFraming::Plain, RequestEnd::Open, u64::MAX);
    }

    fn put(&mut self, content: &[u8]) -> Result<(), CallError> {
        let left_bytes = self.left_bytes.checked_sub(content.len() as u64);
        self.left_bytes = left_bytes.ok_or(CallError::ContentTooLarge)?;
        match self.framing {
            ContentFraming::Plain => self.content.extend_from_slice(content),
            ContentFraming::Chunked => put_chunk(content, &mut self.content),
            ContentFraming::Records => put_stdin(content, &mut self.content),
        }
        Ok(())
    }

    fn finish(&mut self) {
        if std::mem::replace(&mut self.end, RequestEnd::Ended) == RequestEnd::Ended {
            return;
        }
        match self.framing {
            ContentFraming::Plain => {}
            ContentFraming::Chunked => put_last_chunk(&[], &mut self.content),
            ContentFraming::Records => put_stdin_end(&mut self.content),
        }
    }
}

/// Appends the end of content in chunks, with trailers: field lines (RFC 9112 §7.1).
pub(crate) fn put_last_chunk(trailers: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers);
    out.extend_from_slice(b"\r\n");
}

/// Appends one chunk of content, which is not empty (RFC 9112 §7.1).
pub(crate) fn put_chunk(content: &[u8], out: &mut Vec<u8>) {
    let mut size = String::new();
    write!(size, "{:x}\r\n", content.len()).expect("writing to a string cannot fail");
    out.extend_from_slice(size.as_bytes());
    out.extend_from_slice(content);
    out.extend_from_slice(b"\r\n");
}

impl CallHandle {
    /// The state. No other borrow is alive.
    pub(crate) fn state(&self) -> RefMut<'_, CallState> {
        self.0.call.state()
    }

    /// Whether the head of the response has arrived, or there is none.
    pub(crate) fn has_response(&self) -> bool {
        !matches!(self.state().response, CallResponse::Awaited)
    }

    /// Whether the client's side has something to do.
    pub(crate) fn has_news(&self) -> bool {
        self.has_response() || !self.state().interim.is_empty()
    }

    /// Takes the heads of interim responses.
    pub(crate) fn take_interim(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.state().interim)
    }

    /// Takes the head of the response, and whether all of its content has arrived; or the reason why there is none.
    pub(crate) fn take_head(&self) -> Result<(Vec<u8>, bool), CallError> {
        let mut state = self.state();
        match std::mem::replace(&mut state.response, CallResponse::Content) {
            CallResponse::Head(head) => Ok((head, false)),
            CallResponse::Complete(head) => {
                state.response = CallResponse::Complete(None);
                Ok((head.unwrap_or_default(), true))
            }
            CallResponse::Failed(error) => {
                state.response = CallResponse::Failed(error.clone());
                Err(error)
            }
            CallResponse::Awaited | CallResponse::Content => Err(CallError::Closed),
        }
    }

    /// Takes up to `bytes_max` of the content of the response, at least one.
    pub(crate) fn take_content(&self, bytes_max: usize) -> TakenContent {
        let mut state = self.state();
        if state.content.is_empty() {
            return match state.response {
                CallResponse::Complete(_) => TakenContent::End,
                CallResponse::Failed(_) => TakenContent::CutOff,
                _ => {
                    state.awaits_response = true;
                    TakenContent::Awaited
                }
            };
        }
        let was_full = std::mem::take(&mut state.is_full);
        let content = match state.content.len() <= bytes_max {
            true => std::mem::take(&mut state.content),
            false => state.content.drain(..bytes_max).collect(),
        };
        drop(state);
        if was_full {
            self.wake();
        }
        TakenContent::Bytes(content)
    }

    /// Whether the response is complete and has trailers.
    pub(crate) fn has_trailers(&self) -> bool {
        !self.state().trailers.is_empty()
    }

    /// Takes the trailers of a complete response, perhaps none.
    pub(crate) fn take_trailers(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().trailers)
    }

    /// Bytes of content that the request takes now. If it is 0, the waiter receives an event once there is room.
    pub(crate) fn request_room(&self) -> usize {
        let mut state = self.state();
        let room = state.request.room();
        state.awaits_room = room == 0;
        room
    }

    /// Adds content of the request, for which there is room. If that is more than its route allows, the call fails,
    /// unless its response is complete.
    pub(crate) fn put_content(&self, content: &[u8]) {
        if content.is_empty() {
            return;
        }
        let mut state = self.state();
        if let Err(error) = state.request.put(content)
            && !matches!(state.response, CallResponse::Complete(_))
        {
            state.response = CallResponse::Failed(error);
        }
        drop(state);
        self.wake();
    }

    /// The request is complete.
    pub(crate) fn finish_request(&self) {
        self.state().request.finish();
        self.wake();
    }

    /// The waiter receives an event when there is a response.
    pub(crate) fn await_response(&self) {
        self.state().awaits_response = true;
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let state = self.state();
        let of_response = match &state.response {
            CallResponse::Head(head) | CallResponse::Complete(Some(head)) => head.capacity(),
            _ => 0,
        };
        let of_interim: usize = state.interim.iter().map(Vec::capacity).sum();
        let CallRequest { head, content, .. } = &state.request;
        size_of::<CallState>()
            + head.capacity()
            + content.capacity()
            + state.content.capacity()
            + of_response
            + of_interim
    }

    fn wake(&self) {
        self.0.wakeups.push(&self.0.call);
    }
}

impl Drop for ClientSide {
    fn drop(&mut self) {
        let mut state = self.call.state();
        state.is_given_up = true;
        let is_over = state.connection.is_none() && !matches!(state.response, CallResponse::Awaited);
        drop(state);
        if !is_over {
            self.wakeups.push(&self.call);
        }
    }
}

impl Wakeups {
    fn push(&self, call: &Call) {
        if !std::mem::replace(&mut call.state().is_in_wakeups, true) {
            self.0.borrow_mut().push(call.clone());
        }
    }

    /// Takes all entries.
    pub(crate) fn take(&self) -> Vec<Call> {
        let calls = std::mem::take(&mut *self.0.borrow_mut());
        for call in &calls {
            call.state().is_in_wakeups = false;
        }
        calls
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallError::Connect(io::ErrorKind::ConnectionRefused) => f.write_str("refuses connections"),
            CallError::Connect(io::ErrorKind::NotFound) => f.write_str("cannot be reached: its socket does not exist"),
            CallError::Connect(kind) => write!(f, "cannot be reached: {kind}"),
            CallError::ConnectTimeout(time) => write!(f, "did not accept a connection within {} s", time.as_secs_f64()),
            CallError::Busy(time) => write!(f, "had no free connection within {} s", time.as_secs_f64()),
            CallError::NameNotFound(_) => f.write_str("has a name that was not found"),
            CallError::Closed => f.write_str("closed the connection before the end of its response"),
            CallError::Timeout(time) => write!(f, "did not respond within {} s", time.as_secs_f64()),
            CallError::ContentTooLarge => f.write_str("takes no content of this length"),
            CallError::Invalid(error) => write!(f, "sent an invalid response: {error}"),
            CallError::InvalidRecord(error) => write!(f, "sent an invalid response: {error}"),
            CallError::Refused(ProtocolStatus::Overloaded) => f.write_str("is overloaded"),
            CallError::Http2(fault) => fault.fmt(f),
            CallError::Tls(error) => error.fmt(f),
            CallError::Refused(_) => f.write_str("does not accept the request: it is no FastCGI responder"),
        }
    }
}
