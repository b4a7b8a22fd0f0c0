//! A connection of either protocol: it receives, lets its protocol answer, and sends, within the budget of an
//! iteration. It makes no call but through its transport, and takes the time from the context.
//!
//! An idle connection holds a few hundred bytes: received bytes lie in the worker's buffer until the iteration ends,
//! and only what remains then, the start of a request, is copied into the connection.

mod deadlines;
mod streams;
mod sending;
mod tunnel;
mod protocol_state;

use crate::clock::{Milliseconds, ms};
use crate::context::{CloseMode, ConnectionInfo, Context, Input, Step};
use crate::limits::buffer_budget::{BufferBudget, SCARCE_BYTES_MAX};
use crate::limits::permits::{ClientPrefix, Permit};
use crate::limits::rate_window::RateWindow;
use crate::metrics::Counter;
use crate::net::body_source::BodySource;
use crate::net::send_queue::SendQueue;
use crate::net::transport::{ProxyHeader, Transport};
use crate::options::Options;
use crate::protocols::dns_stream::DnsStream;
use crate::protocols::http1::Http1;
use crate::timers::Timer;
use crate::waiter::Event;
use protocol_state::{OtherProtocol, ProtocolState};
use sanderling_os::poll::Readiness;
use sanderling_tls::{Alpn, SessionError};
use std::io;

/// Bytes that are discarded from a client after the last response: more than its send buffer and our receive buffer
/// usually hold, so that a client that sends content before it reads gets the response, and not a reset.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many of them in one iteration.
const LINGER_BYTES_PER_ITERATION: usize = 128 * 1024;
/// How long the client may send them.
const LINGER_MS: Milliseconds = 2_000;

/// Receives of one call while the server drains: records without content do not use up the room.
const DRAIN_RECEIVES_MAX: usize = 16;

/// Bytes of responses, and over HTTP/2 of input, that use up as much of the budget of an iteration as one request: 128
/// requests or 128 KiB.
const BYTES_PER_REQUEST: u64 = 1_024;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection<'s> {
    transport: Transport,
    permit: Permit<'s>,
    pub(crate) timer: Timer,
    rate_window: RateWindow,
    /// It speaks HTTP/1.1 or DNS, without encryption: the path of its requests leaves out what the others need.
    is_plain: bool,
    /// The connection is in the worker's ready list.
    pub(crate) is_in_ready_list: bool,
    /// The [`Context::use_number`] of the last answer or, of HTTP, the first bytes of a request after it.
    last_used: u64,
    answered_count: u64,
    state: State,
    /// Received bytes that are not processed yet.
    unprocessed: Vec<u8>,
    queue: SendQueue<'s>,
    protocol_state: ProtocolState<'s>,
    /// The bytes charged to the budget of all buffers for this connection.
    charged_bytes: usize,
}

/// The protocol of a listener or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 or HTTP/2.
    Http,
    /// DNS over TCP, with or without TLS.
    Dns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client is not known yet, or client and server have not agreed on the keys of an encrypted stream.
    Handshaking,
    /// No part of a request has been received that is not answered.
    Idle,
    /// There is work without a further event: the budget is used up, or an event has come.
    Ready,
    /// Part of a request has been received.
    Receiving,
    /// A request waits for an event.
    Waiting,
    /// Streams wait for events, or for the client to take content, while others may be opened.
    InProgress,
    /// Something is still to be sent: the transport does not take it, or a part of a file is being read.
    Sending,
    /// The same, and the connection closes after it.
    Closing(CloseMode),
    /// A backend and the client send to each other.
    Tunnel,
    /// All is sent, our side is closed, and further data from the client is discarded, so that it can read to the end
    /// of the last response before the connection is reset (RFC 9112 §9.6).
    Lingering { remaining_bytes: usize },
}

/// The next step that a connection requests from its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Call this when the transport is ready, an event comes, or the deadline passes.
    Wait,
    /// Call this again in the next iteration: the budget of this one is used up.
    Again,
    /// To be closed.
    Close,
}

impl<'s> Connection<'s> {
    pub(crate) fn new(
        protocol: Protocol,
        transport: Transport,
        permit: Permit<'s>,
        options: &Options,
        now_ms: Milliseconds,
    ) -> Connection<'s> {
        let (protocol_state, timeout) = match protocol {
            Protocol::Http => (ProtocolState::Http1(Http1::default()), options.http.request_timeout),
            Protocol::Dns => {
                (ProtocolState::Other(OtherProtocol::Dns(DnsStream::default())), options.dns.tcp_idle_timeout)
            }
        };
        let begins_with_handshake = transport.awaits_proxy_header() || transport.is_handshaking();
        let (state, timeout) = match begins_with_handshake {
            true => (State::Handshaking, options.tls_handshake_timeout),
            false => (State::Idle, timeout),
        };
        Connection {
            is_plain: !begins_with_handshake,
            transport,
            permit,
            timer: Timer::new(now_ms + ms(timeout)),
            rate_window: RateWindow::None,
            is_in_ready_list: false,
            last_used: 0,
            answered_count: 0,
            state,
            unprocessed: Vec::new(),
            queue: SendQueue::default(),
            protocol_state,
            charged_bytes: 0,
        }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self.protocol_state {
            ProtocolState::Http1(_) | ProtocolState::Other(OtherProtocol::Http2(_) | OtherProtocol::Tunnel(_)) => {
                Protocol::Http
            }
            ProtocolState::Other(OtherProtocol::Dns(_)) => Protocol::Dns,
        }
    }

    /// The number of the last use, if the connection may be closed for a new one: an HTTP connection between two
    /// requests, and any DNS connection (RFC 7766 §6.2.3) without a zone transfer or an update.
    #[inline]
    pub(crate) fn idle_use_number(&self) -> Option<u64> {
        let is_idle = match &self.protocol_state {
            ProtocolState::Http1(_) | ProtocolState::Other(OtherProtocol::Http2(_)) => {
                self.state == State::Idle && self.unprocessed.is_empty() && !self.has_unsent()
            }
            ProtocolState::Other(OtherProtocol::Dns(dns)) => !dns.is_busy(),
            ProtocolState::Other(OtherProtocol::Tunnel(_)) => false,
        };
        is_idle.then_some(self.last_used)
    }

    /// As [`Connection::idle_use_number`], of a connection that may be closed if no other one is idle: part of an HTTP
    /// request, or of a handshake, has been received since then.
    pub(crate) fn partial_use_number(&self) -> Option<u64> {
        let is_partial = matches!(self.state, State::Receiving | State::Handshaking);
        (is_partial && self.protocol() == Protocol::Http).then_some(self.last_used)
    }

    /// Whether the connection has been answered and only waits for the client to stop sending.
    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.state, State::Lingering { .. })
    }

    /// The client of the connection.
    pub(crate) fn client(&self) -> ClientPrefix {
        ClientPrefix::of(self.permit.client().ip())
    }

    /// Whether something is queued that the client has not received.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        !self.queue.is_empty() || self.transport.has_unsent()
    }

    /// Responses that have begun and are not completely sent: the queue counts as one, if no stream waits for the
    /// client.
    pub(crate) fn unsent_response_count(&self) -> usize {
        self.unsent_response_count_of_streams().max(usize::from(self.has_unsent()))
    }

    /// Ends the stream in an orderly way, if all was sent; the connection is dropped after it.
    pub(crate) fn end(&mut self) {
        if self.queue.is_empty() {
            self.send_last_frame();
            self.transport.send_close_notify();
        }
    }

    /// Charges `budget` with the memory that the connection holds; whether that has changed, or is too much while
    /// buffers are scarce.
    #[inline]
    pub(crate) fn charge(&mut self, budget: &BufferBudget) -> bool {
        let holds_nothing = self.unprocessed.capacity() == 0
            && self.queue.is_empty()
            && self.is_plain
            && !self.protocol_state.has_work();
        // Between two requests a connection holds nothing: that is known without a sum.
        if holds_nothing && self.charged_bytes == 0 {
            return false;
        }
        let held_bytes = self.held_bytes();
        if held_bytes == self.charged_bytes {
            return held_bytes > SCARCE_BYTES_MAX;
        }
        budget.change(self.charged_bytes, held_bytes);
        self.charged_bytes = held_bytes;
        true
    }

    /// Returns its charge to `budget`.
    pub(crate) fn release(&mut self, budget: &BufferBudget) {
        budget.change(std::mem::take(&mut self.charged_bytes), 0);
    }

    /// Whether the connection cannot continue while buffers are scarce: the received part of a request takes too much
    /// memory.
    pub(crate) fn holds_too_much_of_a_request(&self) -> bool {
        // The rest of a record that has arrived is received in the next iteration.
        let of_record = if self.transport.is_readable() { 0 } else { self.transport.partial_bytes() };
        let partial_bytes = match self.state {
            State::Idle | State::Ready => of_record,
            State::Receiving | State::InProgress => {
                of_record + self.unprocessed.capacity() + self.protocol_state.partial_bytes()
            }
            _ => 0,
        };
        partial_bytes > SCARCE_BYTES_MAX
    }

    #[cold]
    fn held_bytes(&self) -> usize {
        self.unprocessed.capacity()
            + self.queue.held_bytes()
            + self.protocol_state.held_bytes()
            + self.transport.held_bytes()
    }

    /// Records what the poller reports.
    pub(crate) fn set_readiness(&mut self, readiness: Readiness) {
        self.transport.set_readiness(readiness);
    }

    /// Takes the event that the connection, or a stream of it, waits for.
    pub(crate) fn note_event(&mut self, stream: u32, event: Event) {
        match (self.state, &mut self.protocol_state) {
            (State::Waiting, ProtocolState::Http1(http)) => {
                self.state = State::Ready;
                http.note_event(event);
            }
            // A backend has responded before it has the whole request.
            (State::Receiving, ProtocolState::Http1(http)) if http.passes_body_on() => self.state = State::Ready,
            (State::Waiting, ProtocolState::Other(OtherProtocol::Dns(_))) => self.state = State::Ready,
            (_, ProtocolState::Other(OtherProtocol::Http2(http))) => http.note_event(stream, event),
            _ => {}
        }
    }

    /// Does what can be done now, within the budget of an iteration. An error means that the client has disconnected.
    #[inline(always)]
    pub(crate) fn advance(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if (!self.is_plain || !self.queue.is_empty())
            && self.state != State::Tunnel
            && let Some(next) = self.resume(context)?
        {
            return Ok(next);
        }
        match self.state {
            State::Lingering { .. } => self.linger(context),
            State::Tunnel => self.advance_tunnel(context),
            State::Waiting => Ok(Next::Wait),
            _ => self.receive_and_answer(context),
        }
    }

    /// Continues a handshake, or sending; `None` if more input must be received.
    #[inline(never)]
    fn resume(&mut self, context: &mut Context<'_, 's>) -> io::Result<Option<Next>> {
        self.transport.begin(context.clock.now_ms(), &context.buffers.limits);
        if self.state == State::Handshaking {
            // Its last message is unsent, and leaves with the response to a request that has arrived already.
            if !self.handshake(context)? {
                return Ok(Some(Next::Wait));
            }
        } else if self.has_unsent() {
            if !self.transport.is_writable() {
                return Ok(Some(Next::Wait));
            }
            let metrics = context.metrics;
            let (_, mut send_context) = context.for_sending();
            let sent =
                metrics.heartbeat.during_file_call(|| self.queue.resume(&mut self.transport, &mut send_context))?;
            let (sent, sent_bytes) = self.encrypted(sent, send_context.sent_bytes)?;
            if let Some(next) = self.after_sending(sent, sent_bytes, context)? {
                return Ok(Some(next));
            }
        }
        if context.is_draining() && self.announce_shutdown(context) { self.flush(None, context) } else { Ok(None) }
    }

    /// Whether the stream is encrypted, and its keys are not agreed on yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.state == State::Handshaking
    }

    /// Whether the handshake waits until its key can sign; [`Connection::advance`] tries again.
    pub(crate) fn awaits_key(&self) -> bool {
        self.state == State::Handshaking && self.transport.awaits_key()
    }

    /// Takes the client from the header of the PROXY protocol; whether that has arrived.
    #[cold]
    fn receive_proxy_header(&mut self, context: &mut Context<'_, 's>) -> io::Result<bool> {
        let header = self.transport.receive_proxy_header(&mut context.buffers.input);
        let header = header.inspect_err(|_| context.metrics.add(Counter::ProxyHeadersRefused, 1))?;
        if let ProxyHeader { client: Some(client) } = header
            && self.permit.pass_to(client).is_err()
        {
            context.metrics.add(Counter::HttpOverClientLimit, 1);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        Ok(!self.transport.awaits_proxy_header())
    }

    /// Does what can be done of the handshake; whether it is complete. The deadline of the first request begins then.
    fn handshake(&mut self, context: &mut Context<'_, 's>) -> io::Result<bool> {
        if self.transport.awaits_proxy_header() && !self.receive_proxy_header(context)? {
            return Ok(false);
        }
        let is_complete = self.transport.handshake(&mut context.buffers.input).inspect_err(|error| {
            context.metrics.add(Counter::TlsFailed, 1);
            context.metrics.add(cause_of_failed_handshake(error), 1);
        })?;
        if is_complete {
            self.state = State::Idle;
            let timeout = match self.protocol() {
                Protocol::Http => context.options.http.request_timeout,
                Protocol::Dns => context.options.dns.tcp_idle_timeout,
            };
            self.timer.deadline_ms = context.clock.now_ms() + ms(timeout);
            self.is_plain = !self.transport.is_encrypted();
            if self.is_plain {
                return Ok(true);
            }
            context.metrics.add(Counter::TlsHandshakes, 1);
            if self.transport.is_resumed() {
                context.metrics.add(Counter::TlsResumed, 1);
            }
            if self.transport.is_tls_1_2() {
                context.metrics.add(Counter::TlsVersion12, 1);
            }
            if self.transport.alpn() == Some(Alpn::H2) {
                self.begin_http2(context);
            }
        }
        Ok(is_complete)
    }

    /// Receives, answers and sends until nothing more has arrived or the budget is used up.
    fn receive_and_answer(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        let mut budget = self.protocol_state.requests_per_iteration_max();
        loop {
            let Some(received) = self.receive(context)? else { return self.wait_for_event(context) };
            let next = if self.unprocessed.is_empty() {
                // `input` borrows the buffer while `process` needs all of `context`: it is moved out and back, two
                // words.
                let buffer = std::mem::take(&mut context.buffers.input);
                let mut input = Input::new(&buffer[..received]);
                let next = self.process(&mut input, &mut budget, context);
                self.unprocessed.extend_from_slice(input.rest());
                context.buffers.input = buffer;
                next
            } else {
                self.unprocessed.extend_from_slice(&context.buffers.input[..received]);
                let mut bytes = std::mem::take(&mut self.unprocessed);
                let mut input = Input::new(&bytes);
                let next = self.process(&mut input, &mut budget, context);
                let consumed = input.consumed();
                if consumed < bytes.len() {
                    if consumed > 0 {
                        bytes.drain(..consumed);
                        bytes.shrink_to_fit();
                    }
                    self.unprocessed = bytes;
                }
                next
            };
            match next? {
                Some(next) => return Ok(next),
                None if self.transport.has_ended() => return Ok(Next::Close),
                None if !self.transport.is_readable() => return self.wait_for_event(context),
                None if budget == 0 => return Ok(Next::Again),
                None => {}
            }
        }
    }

    /// Receives the arrived data into the worker's buffer; the count, or `None` if there is nothing new to process.
    fn receive(&mut self, context: &mut Context<'_, 's>) -> io::Result<Option<usize>> {
        let (has_unprocessed_request, is_draining) = (self.has_unprocessed_request(), context.is_draining());
        let buffer = &mut context.buffers.input;
        // A request that is longer than a piece is received in pieces that grow with it.
        let piece = context.buffers.limits.received_bytes_max.max(self.unprocessed.len());
        let room = buffer.len().saturating_sub(self.unprocessed.len()).min(piece);
        let mut received = 0;
        // One call fills the buffer; an unprocessed request comes first. While the server drains, all that the client
        // has sent is received while there is room, so that the last answer can say that the connection closes.
        let mut wants_more = is_draining || !has_unprocessed_request || self.receives_while_sending();
        let mut receive_count = 0;
        while wants_more && self.transport.is_readable() && received < room {
            let count = self.transport.receive(&mut buffer[received..room])?;
            received += count;
            receive_count += 1;
            wants_more = is_draining && count > 0 && receive_count < DRAIN_RECEIVES_MAX;
        }
        if received == 0 && !has_unprocessed_request && !self.transport.has_ended() {
            return Ok(None);
        }
        Ok(Some(received))
    }

    /// Whether a whole request may have been received and not processed, because the budget was used up.
    fn has_unprocessed_request(&self) -> bool {
        self.state != State::Receiving
            && (self.protocol_state.has_work() || (!self.unprocessed.is_empty() && self.state != State::InProgress))
    }

    /// Lets the protocol answer what the input holds, and sends; what to do next, or `None` to receive more.
    #[inline(always)]
    fn process(
        &mut self,
        input: &mut Input<'_>,
        budget: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        match self.protocol_state {
            ProtocolState::Other(OtherProtocol::Http2(_)) => self.process_streams(input, budget, context),
            _ => self.process_requests(input, budget, context),
        }
    }

    #[inline(never)]
    fn process_requests(
        &mut self,
        input: &mut Input<'_>,
        budget: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        let (state_before, answered_before) = (self.state, self.answered_count);
        let next = self.answer_all(input, budget, context);
        let has_answered = self.answered_count != answered_before;
        let timeout = match self.state {
            // The body of a request that was answered before may have been skipped to its end.
            State::Idle | State::Ready if has_answered || state_before == State::Receiving => {
                Some(self.protocol_state.idle_timeout(context.options))
            }
            State::Receiving if has_answered || state_before != State::Receiving || self.begins_to_pass_body_on() => {
                self.begin_receiving(has_answered, context);
                return next;
            }
            // The others have set the deadline where they began.
            _ => None,
        };
        self.end_processing(timeout, has_answered, context);
        next
    }

    fn answer_all(
        &mut self,
        input: &mut Input<'_>,
        budget: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        context.buffers.output.clear();
        let mut unsent_count = 0;
        loop {
            if input.is_empty() && !self.protocol_state.has_work() {
                self.state = State::Idle;
                return self.flush(None, context);
            }
            if *budget == 0 {
                self.state = State::Ready;
                return Ok(self.flush(None, context)?.or(Some(Next::Again)));
            }
            *budget -= 1;
            let info = ConnectionInfo {
                client: self.permit.client(),
                answered_count: self.answered_count,
                transport: &self.transport,
            };
            match self.protocol_state.step(input, &info, context) {
                Step::Partial => {
                    self.state = State::Receiving;
                    return self.flush(None, context);
                }
                Step::Answered(source) => {
                    self.answered_count += 1;
                    self.state = State::Idle;
                    unsent_count += 1;
                    let is_full = context.buffers.output.len() >= context.buffers.limits.written_bytes_max
                        || unsent_count == self.protocol_state.unsent_answers_max(context.options);
                    if source.is_some() || is_full {
                        unsent_count = 0;
                        let of_source = source.as_ref().map_or(0, BodySource::remaining_bytes);
                        let bytes = (context.buffers.output.len() as u64).saturating_add(of_source);
                        if let Some(next) = self.flush(source, context)? {
                            return Ok(Some(next));
                        }
                        // A new connection leaves the rest for later: others wait in the listener.
                        *budget = match self.last_used {
                            0 => 0,
                            _ => budget.saturating_sub((bytes / BYTES_PER_REQUEST) as usize),
                        };
                    }
                }
                Step::Skipped => self.state = State::Idle,
                Step::WaitForEvent => {
                    let sent = self.flush(None, context)?;
                    if matches!(sent, None | Some(Next::Wait)) {
                        self.state = State::Waiting;
                        match self.protocol_state.has_call() {
                            // A backend has its own deadline.
                            true => self.timer.deadline_ms = Milliseconds::MAX,
                            // An event has the same time as a client that receives nothing.
                            false => self.set_send_deadline(context),
                        }
                    }
                    return Ok(Some(sent.unwrap_or(Next::Wait)));
                }
                Step::Last(mode, source) => {
                    self.answered_count += 1;
                    let mode = if input.is_empty() { mode } else { CloseMode::Linger };
                    input.consume_all();
                    self.state = State::Closing(mode);
                    return Ok(Some(self.flush(source, context)?.unwrap_or(Next::Close)));
                }
                Step::Tunnel(call) => {
                    self.answered_count += 1;
                    return self.begin_tunnel(call, input, context).map(Some);
                }
                Step::Http2 => {
                    self.begin_http2(context);
                    return self.process_streams(input, budget, context);
                }
                Step::Invalid => {
                    self.flush(None, context)?;
                    return Ok(Some(Next::Close));
                }
            }
        }
    }

    /// The next event or deadline continues; an idle connection of a draining server has a nearer deadline.
    #[inline(always)]
    fn wait_for_event(&mut self, context: &Context<'_, 's>) -> io::Result<Next> {
        if self.state == State::Idle {
            self.timer.deadline_ms = self.timer.deadline_ms.min(context.drain_deadline_ms());
        }
        if self.is_plain { Ok(Next::Wait) } else { self.prepare_to_wait() }
    }
}

#[cold]
fn cause_of_failed_handshake(error: &io::Error) -> Counter {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(SessionError::Incompatible(_)) => Counter::TlsIncompatible,
        Some(SessionError::NoCommonProtocol) => Counter::TlsNoCommonProtocol,
        Some(SessionError::UnknownName) => Counter::TlsUnknownName,
        Some(SessionError::Invalid(_)) => Counter::TlsInvalid,
        Some(SessionError::ClientAlert(_)) => Counter::TlsClientAlert,
        Some(SessionError::Internal(_)) => Counter::TlsInternal,
        // Of the transport.
        None => Counter::TlsClientClosed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of an idle connection, which holds no other memory.
    const CONNECTION_BYTES_MAX: usize = 320;

    #[test]
    fn an_idle_connection_is_small() {
        println!("Connection: {} bytes, Step: {}", size_of::<Connection<'_>>(), size_of::<Step<'_>>());
        assert!(size_of::<Connection<'_>>() <= CONNECTION_BYTES_MAX);
    }
}
