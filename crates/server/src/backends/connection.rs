//! A connection to a server of a backend: it sends one request at a time, and reads its response.
//!
//! It makes no call but through its transport, and does not choose what follows: its owner does
//! ([`Backends`](crate::backends::Backends)).

mod http2_link;

use crate::clock::{Milliseconds, ms};
use crate::net::backend_stream::BackendStream;
use crate::net::call::{Call, CallError, CallResponse, CallState};
use crate::timers::Timer;
use crate::waiter::Waiter;
use http2_link::Http2Link;
use sanderling_fastcgi::{Decoder, Event, ProtocolStatus};
use sanderling_http::{
    BackendResponse, BodySkipper, ParsedResponse, RequestError, ResponseError, ResponseFraming, ResponseLimits,
    parse_cgi_response, parse_response,
};
use sanderling_os::poll::Readiness;
use sanderling_site_rules::BackendProtocol;
use std::io;
use std::time::Duration;

/// How long both sides of a tunnel may be silent, at least: a WebSocket may have nothing to say for longer than an
/// application takes to respond.
const TUNNEL_TIMEOUT_MIN: Duration = Duration::from_secs(3600);
/// The interim response that clients get (RFC 8297).
const EARLY_HINTS: u16 = 103;
/// Time by which a connection is given up before the backend closes it, if it says when.
const CLOSED_EARLIER: Duration = Duration::from_secs(1);

/// A connection to a server of a backend.
#[derive(Debug)]
pub(crate) struct BackendConnection {
    transport: BackendStream,
    pub(super) timer: Timer,
    /// The backend and its server, as its owner numbers them.
    pub(super) server: (usize, usize),
    state: State,
    /// The protocol of the server.
    protocol: Protocol,
    /// Received bytes of a head that has not arrived whole; those of records without their framing.
    unprocessed: Vec<u8>,
    /// Trailers that have arrived, in chunked content.
    trailers: Vec<u8>,
    /// Bytes that were sent for earlier requests.
    sent_before: u64,
    /// Bytes that were sent for the current one.
    sent_now: u64,
    /// Whether it had an earlier request.
    pub(super) is_reused: bool,
    /// How long the backend keeps it unused, if it says so.
    kept_for: Option<Duration>,
    /// The client has closed its side of a tunnel.
    has_shut_down: bool,
}

/// The protocol of a connection.
#[derive(Debug)]
enum Protocol {
    Http1,
    Http2(Box<Http2Link>),
    FastCgi(Decoder),
}

#[derive(Debug)]
enum State {
    /// No request.
    Idle,
    /// The head of the response, or of one before it (1xx), has not arrived whole.
    Head(Call),
    /// Content of the response arrives.
    Content { call: Call, end: ContentEnd, persists: bool },
    /// Both sides send until they close.
    Tunnel(Call),
}

/// How the end of the content is found.
#[derive(Debug)]
enum ContentEnd {
    /// By its length, or the last chunk.
    Framed(BodySkipper),
    /// The backend closes the connection.
    Close,
    /// The frames of HTTP/2 say it.
    Stream,
}

/// The result of sending and receiving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It waits for the backend, or for the client's side.
    Waits,
    /// The response is complete; the connection can have another request.
    Free,
    /// The response is complete, or nobody waits for it; the connection closes.
    Over,
    /// There is no whole response.
    Failed(CallError),
}

/// The tools of a connection in one iteration.
pub(super) struct Tools<'t> {
    /// For received bytes.
    pub(super) room: &'t mut [u8],
    pub(super) now_ms: Milliseconds,
    /// The waiters that get an event.
    pub(super) awakened: &'t mut Vec<Waiter>,
}

impl BackendConnection {
    pub(super) fn new(
        transport: BackendStream,
        protocol: &BackendProtocol,
        server: (usize, usize),
    ) -> BackendConnection {
        BackendConnection {
            transport,
            protocol: match protocol {
                BackendProtocol::Http1 => Protocol::Http1,
                BackendProtocol::Http2 => Protocol::Http2(Box::default()),
                BackendProtocol::FastCgi(_) => Protocol::FastCgi(Decoder::new()),
            },
            timer: Timer::new(Milliseconds::MAX),
            server,
            state: State::Idle,
            unprocessed: Vec::new(),
            trailers: Vec::new(),
            sent_before: 0,
            sent_now: 0,
            is_reused: false,
            kept_for: None,
            has_shut_down: false,
        }
    }

    pub(super) fn transport(&self) -> &BackendStream {
        &self.transport
    }

    pub(super) fn set_readiness(&mut self, readiness: Readiness) {
        self.transport.set_readiness(readiness);
    }

    /// The current call.
    pub(super) fn call(&self) -> Option<&Call> {
        match &self.state {
            State::Idle => None,
            State::Head(call) | State::Content { call, .. } | State::Tunnel(call) => Some(call),
        }
    }

    /// Begins a request.
    pub(super) fn begin(&mut self, call: Call) {
        self.sent_before += std::mem::take(&mut self.sent_now);
        if let Some(sent_bytes) = self.transport.encrypted_bytes() {
            self.sent_before = sent_bytes;
        }
        match &mut self.protocol {
            Protocol::Http1 => {}
            Protocol::Http2(link) => link.begin(),
            Protocol::FastCgi(decoder) => *decoder = Decoder::new(),
        }
        self.state = State::Head(call);
    }

    /// Ends the current request, and returns its call, which then has no connection.
    pub(super) fn end(&mut self) -> Option<Call> {
        self.is_reused = true;
        self.unprocessed = Vec::new();
        self.trailers = Vec::new();
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => None,
            State::Head(call) | State::Content { call, .. } | State::Tunnel(call) => {
                call.state().connection = None;
                Some(call)
            }
        }
    }

    /// How long the connection is kept without a request.
    pub(super) fn kept_for(&self, idle_timeout: Duration) -> Duration {
        self.kept_for.map_or(idle_timeout, |kept_for| kept_for.min(idle_timeout))
    }

    /// Whether the backend has received nothing of the current request, as far as the kernel knows: it closed the
    /// connection before.
    pub(super) fn has_sent_nothing(&self) -> bool {
        // The kernel counts the SYN as well.
        self.sent_now == 0 || self.transport.acked_bytes().is_some_and(|acked| acked <= self.sent_before + 1)
    }

    /// Whether a part of the response has arrived.
    pub(super) fn has_received(&self) -> bool {
        !matches!(self.state, State::Idle | State::Head(_)) || !self.unprocessed.is_empty()
    }

    /// Whether the connection has been made.
    fn is_connected(&self) -> bool {
        self.sent_before + self.sent_now > 0
    }

    /// The deadline has passed. `awakened`: the waiters that get an event.
    pub(super) fn expire(&mut self, connect_timeout: Duration, awakened: &mut Vec<Waiter>) -> Progress {
        let Some(call) = self.call() else { return Progress::Over };
        if let State::Tunnel(call) = &self.state {
            // Nothing is missing: both sides have had time to say more.
            let mut state = call.state();
            state.complete();
            awakened.extend(state.take_waiter());
            return Progress::Over;
        }
        Progress::Failed(match self.is_connected() {
            false => CallError::ConnectTimeout(connect_timeout),
            true => CallError::Timeout(call.state().backend_route().timeout),
        })
    }

    /// Sends and receives what is possible, and sets the next deadline.
    pub(super) fn advance(&mut self, connect_timeout: Duration, tools: &mut Tools<'_>) -> Progress {
        let Some(call) = self.call().cloned() else { return self.advance_idle(tools) };
        let mut state = call.state();
        if state.is_over() {
            return Progress::Over;
        }
        let progress = self.exchange(&mut state, tools);
        tools.awakened.extend(state.take_waiter());
        match progress {
            Err(error) => Progress::Failed(error),
            Ok(_) if matches!(state.response, CallResponse::Complete(_)) => self.completed(&state),
            Ok(has_progress) => {
                self.move_deadline(&state, has_progress, connect_timeout, tools.now_ms);
                Progress::Waits
            }
        }
    }

    /// Sends and receives what is possible; whether that was something.
    fn exchange(&mut self, state: &mut CallState, tools: &mut Tools<'_>) -> Result<bool, CallError> {
        self.transport.handshake(tools.room)?;
        if self.transport.is_handshaking() {
            return Ok(false);
        }
        let has_sent = self.send(state)?;
        let has_received = self.receive(state, tools)?;
        Ok(has_sent | has_received)
    }

    /// An unused connection: a backend that sends something, or closes, does not expect a request.
    fn advance_idle(&mut self, tools: &mut Tools<'_>) -> Progress {
        if let Protocol::Http2(_) = self.protocol {
            return self.advance_idle_link(tools);
        }
        if !self.transport.is_readable() {
            return Progress::Waits;
        }
        match self.transport.receive(tools.room) {
            Ok(0) if !self.transport.has_ended() => Progress::Waits,
            _ => Progress::Over,
        }
    }

    /// The response is complete. If the request is not, its rest can no longer be sent on this connection.
    fn completed(&self, state: &CallState) -> Progress {
        // What is still to be received belongs to no request: bytes, or the end, which is not reported again.
        let takes_another = match &self.protocol {
            Protocol::Http2(link) => link.is_reusable(),
            Protocol::Http1 | Protocol::FastCgi(_) => true,
        };
        let is_clean =
            takes_another && state.request.is_sent() && !self.transport.has_unsent() && !self.transport.is_readable();
        match &self.state {
            State::Content { persists: true, .. } if is_clean => Progress::Free,
            _ => Progress::Over,
        }
    }

    fn move_deadline(
        &mut self,
        state: &CallState,
        has_progress: bool,
        connect_timeout: Duration,
        now_ms: Milliseconds,
    ) {
        let deadline_ms = if !self.is_connected() {
            // It began when the connection did.
            self.timer.deadline_ms.min(now_ms + ms(connect_timeout))
        } else if !matches!(self.state, State::Tunnel(_)) && self.waits_for_client(state) {
            Milliseconds::MAX
        } else if has_progress || self.timer.deadline_ms == Milliseconds::MAX {
            now_ms + ms(self.timeout(state))
        } else {
            self.timer.deadline_ms
        };
        self.timer.deadline_ms = deadline_ms;
    }

    /// Time within which the next byte has to come; of a tunnel, in either direction.
    fn timeout(&self, state: &CallState) -> Duration {
        let timeout = state.backend_route().timeout;
        if matches!(self.state, State::Tunnel(_)) { timeout.max(TUNNEL_TIMEOUT_MIN) } else { timeout }
    }

    /// Whether the backend has nothing to do before the client's side does something.
    fn waits_for_client(&self, state: &CallState) -> bool {
        let is_taken = match &self.protocol {
            Protocol::Http2(link) => link.unsent().is_empty(),
            Protocol::Http1 | Protocol::FastCgi(_) => true,
        };
        let is_taken = is_taken && !self.transport.has_unsent();
        let is_request_awaited = state.request.is_open() && is_taken && state.request.unsent().1.is_empty();
        state.is_full || (is_request_awaited && matches!(self.state, State::Head(_)))
    }

    /// Sends what the client's side has given; whether something was sent.
    fn send(&mut self, state: &mut CallState) -> Result<bool, CallError> {
        let mut has_sent = false;
        let encrypted_bytes = self.transport.encrypted_bytes();
        while self.transport.is_writable() {
            let (head, content) = match &mut self.protocol {
                Protocol::Http2(link) => (link.frames(state, self.transport.scheme()), &[][..]),
                Protocol::Http1 | Protocol::FastCgi(_) => state.request.unsent(),
            };
            if head.is_empty() && content.is_empty() {
                break;
            }
            match self.transport.send_both(head, content) {
                Ok(0) => break,
                Ok(count) => {
                    self.sent_now += count as u64;
                    match &mut self.protocol {
                        Protocol::Http2(link) => link.advance(count),
                        Protocol::Http1 | Protocol::FastCgi(_) => state.request.advance(count),
                    }
                    has_sent = true;
                }
                Err(error) => {
                    self.note_send_error(&error, state)?;
                    break;
                }
            }
        }
        if let Err(error) = self.transport.flush() {
            self.note_send_error(&error, state)?;
        }
        has_sent |= self.transport.encrypted_bytes() > encrypted_bytes;
        if matches!(self.state, State::Tunnel(_)) && state.request.is_sent() && !self.has_shut_down {
            self.has_shut_down = true;
            self.transport.shutdown_write().map_err(|_| CallError::Closed)?;
        }
        Ok(has_sent)
    }

    /// A backend may answer without reading the request: what it has sent counts, unless that was before the request.
    fn note_send_error(&mut self, error: &io::Error, state: &mut CallState) -> Result<(), CallError> {
        if !self.is_connected() {
            return Err(CallError::Connect(error.kind()));
        }
        if matches!(self.state, State::Tunnel(_)) || self.sent_now == 0 {
            return Err(CallError::Closed);
        }
        self.transport.assume_readable();
        state.request.stop();
        Ok(())
    }

    /// Receives as much as the client's side has room for; whether something was received.
    fn receive(&mut self, state: &mut CallState, tools: &mut Tools<'_>) -> Result<bool, CallError> {
        if tools.room.is_empty() {
            return Ok(false);
        }
        if let Protocol::Http2(_) = self.protocol {
            return self.receive_frames(state, tools);
        }
        let mut has_received = false;
        while self.transport.is_readable() && !matches!(state.response, CallResponse::Complete(_)) {
            if state.is_response_full(tools.room.len()) {
                break;
            }
            let count = self.receive_bytes(tools)?;
            if count == 0 && self.transport.has_ended() {
                self.take_end(state)?;
                return Ok(true);
            }
            if count > 0 {
                has_received = true;
                match self.protocol {
                    Protocol::FastCgi(_) => self.take_records(&tools.room[..count], state)?,
                    Protocol::Http1 | Protocol::Http2(_) => self.take_bytes(&tools.room[..count], state)?,
                }
            }
        }
        Ok(has_received)
    }

    fn receive_bytes(&mut self, tools: &mut Tools<'_>) -> Result<usize, CallError> {
        self.transport.receive(tools.room).map_err(|error| match self.transport.take_error() {
            Some(error) => CallError::Tls(error),
            None if self.is_connected() => CallError::Closed,
            None => CallError::Connect(error.kind()),
        })
    }

    /// The backend has closed its side.
    fn take_end(&mut self, state: &mut CallState) -> Result<(), CallError> {
        match &self.state {
            State::Content { end: ContentEnd::Close, .. }
                if matches!(self.protocol, Protocol::Http1) && self.transport.is_end_certain() =>
            {
                state.complete();
                Ok(())
            }
            State::Tunnel(_) => {
                state.complete();
                Ok(())
            }
            _ => Err(CallError::Closed),
        }
    }

    /// Takes a part of the response of a FastCGI application.
    fn take_records(&mut self, mut bytes: &[u8], state: &mut CallState) -> Result<(), CallError> {
        loop {
            let Protocol::FastCgi(decoder) = &mut self.protocol else { return Ok(()) };
            let (taken_bytes, event) = decoder.advance(bytes).map_err(CallError::InvalidRecord)?;
            bytes = &bytes[taken_bytes..];
            match event {
                None => return Ok(()),
                Some(Event::Stdout(output)) => self.take_bytes(output, state)?,
                Some(Event::Stderr(text)) => state.put_error_text(text),
                Some(Event::End { protocol_status: ProtocolStatus::Complete, .. }) => {
                    return self.take_end_of_script(bytes.is_empty(), state);
                }
                Some(Event::End { protocol_status, .. }) => return Err(CallError::Refused(protocol_status)),
            }
        }
    }

    /// The output of a script has ended, and no byte follows if `is_last`.
    fn take_end_of_script(&mut self, is_last: bool, state: &mut CallState) -> Result<(), CallError> {
        let State::Content { end, persists, .. } = &mut self.state else { return Err(CallError::Closed) };
        if matches!(end, ContentEnd::Framed(skipper) if !skipper.is_done()) {
            return Err(CallError::Closed);
        }
        *persists = is_last;
        state.complete();
        Ok(())
    }

    /// Takes a part of the response.
    fn take_bytes(&mut self, bytes: &[u8], state: &mut CallState) -> Result<(), CallError> {
        match &mut self.state {
            State::Idle => Ok(()),
            State::Head(_) if self.unprocessed.is_empty() => self.take_heads(bytes, state),
            State::Head(_) => {
                let mut all = std::mem::take(&mut self.unprocessed);
                all.extend_from_slice(bytes);
                self.take_heads(&all, state)
            }
            State::Content { .. } | State::Tunnel(_) => self.take_content(bytes, state),
        }
    }

    /// Takes heads of interim responses, that of the response, and the start of its content.
    fn take_heads(&mut self, mut bytes: &[u8], state: &mut CallState) -> Result<(), CallError> {
        if let Protocol::FastCgi(_) = self.protocol {
            return self.take_head_of_script(bytes, state);
        }
        loop {
            let parsed = parse_response(bytes, state.request.is_head, &ResponseLimits::default());
            match parsed.map_err(CallError::Invalid)? {
                ParsedResponse::Partial => {
                    self.unprocessed = bytes.to_vec();
                    return Ok(());
                }
                ParsedResponse::Complete { response, head_bytes } => {
                    let (head, rest) = bytes.split_at(head_bytes);
                    if matches!(response.status(), 100 | 102..200) {
                        state.note_interim((response.status() == EARLY_HINTS).then_some(head))?;
                        bytes = rest;
                        continue;
                    }
                    self.take_response(&response, state)?;
                    state.response = CallResponse::Head(head.to_vec());
                    return self.take_content(rest, state);
                }
            }
        }
    }

    /// Takes the head of the output of a script, and the start of its content.
    fn take_head_of_script(&mut self, bytes: &[u8], state: &mut CallState) -> Result<(), CallError> {
        let mut head = Vec::new();
        let parsed = parse_cgi_response(bytes, state.request.is_head, &ResponseLimits::default(), &mut head);
        let head_bytes = match parsed.map_err(CallError::Invalid)? {
            ParsedResponse::Partial => {
                self.unprocessed = bytes.to_vec();
                return Ok(());
            }
            ParsedResponse::Complete { response, head_bytes } => {
                self.take_response(&response, state)?;
                head_bytes
            }
        };
        state.response = CallResponse::Head(head);
        self.take_content(&bytes[head_bytes..], state)
    }

    /// Takes the head of the final response.
    fn take_response(&mut self, response: &BackendResponse<'_>, state: &mut CallState) -> Result<(), CallError> {
        let is_switch = response.status() == 101;
        if is_switch && !state.request.is_upgrade {
            return Err(CallError::Invalid(ResponseError::UnexpectedUpgrade));
        }
        let State::Head(call) = std::mem::replace(&mut self.state, State::Idle) else { return Ok(()) };
        if is_switch {
            state.request.begin_tunnel();
            self.state = State::Tunnel(call);
            return Ok(());
        }
        let keep_alive = response.keep_alive_timeout_s().map(|seconds| Duration::from_secs(seconds.into()));
        self.kept_for = keep_alive.map(|time| time.saturating_sub(CLOSED_EARLIER));
        let end = match response.framing() {
            _ if matches!(self.protocol, Protocol::Http2(_)) => ContentEnd::Stream,
            ResponseFraming::UntilClose => ContentEnd::Close,
            framing => ContentEnd::Framed(BodySkipper::of_response(framing)),
        };
        let persists = match end {
            ContentEnd::Stream => true,
            ContentEnd::Close => false,
            ContentEnd::Framed(_) => response.persists(),
        };
        self.state = State::Content { call, end, persists };
        Ok(())
    }

    /// Takes content of the response, or bytes that go through a tunnel.
    fn take_content(&mut self, bytes: &[u8], state: &mut CallState) -> Result<(), CallError> {
        let is_http = matches!(self.protocol, Protocol::Http1);
        let State::Content { end, persists, .. } = &mut self.state else {
            state.put_content(bytes);
            return Ok(());
        };
        match end {
            ContentEnd::Close | ContentEnd::Stream => state.put_content(bytes),
            ContentEnd::Framed(skipper) => {
                let trailers = &mut self.trailers;
                let keep_trailer = |byte| trailers.push(byte);
                let taken = skipper.advance_with_trailers(bytes, |content| state.put_content(content), keep_trailer);
                let taken = taken.map_err(|error: RequestError| CallError::Invalid(error.into()))?;
                // A script ends with its last record.
                if skipper.is_done() && is_http {
                    if !self.trailers.is_empty() {
                        state.set_trailers(&self.trailers);
                    }
                    // Bytes after the response belong to nothing: they could be taken for the next one.
                    *persists &= taken.consumed_bytes == bytes.len();
                    state.complete();
                }
            }
        }
        Ok(())
    }
}
