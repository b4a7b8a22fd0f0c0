//! A connection of either protocol: it receives, lets its application answer, and sends, within the budget of an
//! iteration. It makes no call but through its transport, and takes the time from the context.
//!
//! An idle connection holds a few hundred bytes: received bytes lie in the worker's buffer until the iteration ends, and
//! only what is left then, the start of a request, is copied into the connection.

use crate::clock::{Milliseconds, ms};
use crate::context::{Buffers, Context, Input, OUTPUT_BYTES_USUAL};
use crate::dns_stream::DnsStream;
use crate::http1::Http1;
use crate::jobs::JobResult;
use crate::metrics::Counter;
use crate::options::Options;
use crate::permits::Permit;
use crate::send_queue::{FileChunk, SendQueue, Sent};
use crate::step::{CloseMode, Peer, Step};
use crate::timers::Timer;
use crate::transport::Transport;
use sanderling_os::poll::Readiness;
use sanderling_os::tcp::More;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes that are discarded from a client after the last response.
const LINGER_BYTES_MAX: usize = 256 * 1024;
/// How long they are.
const LINGER_MS: Milliseconds = 2_000;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection<'s> {
    transport: Transport,
    client: SocketAddr,
    _permit: Permit<'s>,
    pub(crate) timer: Timer,
    /// The connection is in the worker's ready list.
    pub(crate) is_listed: bool,
    /// The [`Context::sequence`] of the last answer.
    last_used: u64,
    answered_count: u64,
    state: State,
    /// Received bytes that are not processed yet.
    unprocessed: Vec<u8>,
    queue: SendQueue<'s>,
    app: App,
}

/// The protocol above the transport.
#[derive(Debug)]
pub(crate) enum App {
    Http1(Http1),
    Dns(DnsStream),
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Dns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No part of a request has been received that is not answered.
    Idle,
    /// Part of a request has been received.
    Receiving,
    /// A request waits for a job.
    Waiting,
    /// The transport does not take all that is to be sent.
    Sending,
    /// The same, and the connection closes after it.
    Closing(CloseMode),
    /// All is sent, our side is closed, and what the client still sends is discarded, so that it can read to the end of the
    /// last response before the connection is reset (RFC 9112 §9.6).
    Lingering { left_bytes: usize },
}

/// What a connection asks of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// To be called when the transport is ready, a job completes, or the deadline passes.
    Wait,
    /// To be called again in the next iteration: the budget of this one is used up.
    Again,
    /// To be closed.
    Close,
}

impl<'s> Connection<'s> {
    pub(crate) fn new(
        protocol: Protocol,
        transport: Transport,
        client: SocketAddr,
        permit: Permit<'s>,
        options: &Options,
        now_ms: Milliseconds,
    ) -> Connection<'s> {
        let (app, timeout) = match protocol {
            Protocol::Http => (App::Http1(Http1::default()), options.http.header_deadline),
            Protocol::Dns => (App::Dns(DnsStream), options.dns.tcp_idle_timeout),
        };
        Connection {
            transport,
            client,
            _permit: permit,
            timer: Timer::new(now_ms + ms(timeout)),
            is_listed: false,
            last_used: 0,
            answered_count: 0,
            state: State::Idle,
            unprocessed: Vec::new(),
            queue: SendQueue::default(),
            app,
        }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self.app {
            App::Http1(_) => Protocol::Http,
            App::Dns(_) => Protocol::Dns,
        }
    }

    /// When the connection was last used, if it may be closed for a new one: an HTTP connection between two requests, and
    /// any DNS connection (RFC 7766 §6.2.3).
    #[inline]
    pub(crate) fn idle_since(&self) -> Option<u64> {
        let is_idle = match self.app {
            App::Http1(_) => self.state == State::Idle && self.unprocessed.is_empty() && self.queue.is_empty(),
            App::Dns(_) => true,
        };
        is_idle.then_some(self.last_used)
    }

    /// Whether something is queued that the client has not received.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes note of what the poller reports.
    pub(crate) fn note(&mut self, readiness: Readiness) {
        self.transport.note(readiness);
    }

    /// Takes the result of the job that the connection waits for.
    pub(crate) fn complete(&mut self, result: JobResult) {
        if let (State::Waiting, App::Http1(http)) = (self.state, &mut self.app) {
            self.state = State::Idle;
            http.complete(result);
        }
    }

    /// Does what can be done now, within the budget of an iteration. An error means that the client is gone.
    pub(crate) fn advance(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if !self.queue.is_empty() {
            if !self.transport.is_writable() {
                return Ok(Next::Wait);
            }
            let mut progress = 0;
            let sent = self.queue.resume(&mut self.transport, &mut context.buffers.scratch, &mut progress)?;
            if let Some(next) = self.after_sending(sent, progress, context)? {
                return Ok(next);
            }
        }
        match self.state {
            State::Lingering { .. } => self.linger(context),
            State::Waiting => Ok(Next::Wait),
            _ => self.serve(context),
        }
    }

    /// Receives, answers and sends until nothing more has arrived or the budget is used up.
    fn serve(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        let mut budget = self.app.requests_per_iteration_max();
        loop {
            let Some(received) = self.receive(context)? else { return Ok(self.rest(context)) };
            let next = if self.unprocessed.is_empty() {
                // Taken out of the context while answers are written there, which costs two words.
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
                    bytes.drain(..consumed);
                    self.unprocessed = bytes;
                }
                next
            };
            match next? {
                Some(next) => return Ok(next),
                None if self.transport.has_ended() => return Ok(Next::Close),
                None if !self.transport.is_readable() => return Ok(self.rest(context)),
                None => {}
            }
        }
    }

    /// Receives what has arrived into the worker's buffer; the count, or `None` if there is nothing new to process.
    fn receive(&mut self, context: &mut Context<'_, 's>) -> io::Result<Option<usize>> {
        let may_hold_request = self.may_hold_request();
        let buffer = &mut context.buffers.input;
        let room = buffer.len().saturating_sub(self.unprocessed.len());
        let mut received = 0;
        // While the server drains, all that was sent must be known, in order to tell which answer is the last.
        while self.transport.is_readable()
            && received < room
            && (context.drain_grace.is_some() || (!may_hold_request && received == 0))
        {
            received += self.transport.receive(&mut buffer[received..room])?;
        }
        if received == 0 && !may_hold_request && !self.transport.has_ended() {
            return Ok(None);
        }
        Ok(Some(received))
    }

    /// Whether a whole request may have been received that was not processed: the budget was used up before it.
    fn may_hold_request(&self) -> bool {
        self.state != State::Receiving && (!self.unprocessed.is_empty() || self.app.has_partial_request())
    }

    /// Lets the application answer what the input holds, and sends; what to do next, or `None` to receive more.
    #[inline]
    fn process(
        &mut self,
        input: &mut Input<'_>,
        budget: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        let (state_before, answered_before) = (self.state, self.answered_count);
        let next = self.answer(input, budget, context);
        let has_answered = self.answered_count != answered_before;
        let timeout = match self.state {
            State::Idle if has_answered => Some(self.app.idle_timeout(context.options)),
            State::Receiving if has_answered || state_before != State::Receiving => {
                self.app.receive_timeout(self.answered_count, has_answered, context.options)
            }
            // The others have set the deadline where they began.
            _ => None,
        };
        if let Some(timeout) = timeout {
            self.timer.deadline_ms = context.clock.now_ms() + ms(timeout);
        }
        if has_answered {
            self.last_used = context.sequence;
        }
        next
    }

    fn answer(
        &mut self,
        input: &mut Input<'_>,
        budget: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        context.buffers.output.clear();
        let mut unsent_count = 0;
        loop {
            if input.is_empty() && !self.app.has_partial_request() {
                self.state = State::Idle;
                return self.flush(None, context);
            }
            if *budget == 0 {
                self.state = State::Idle;
                return Ok(self.flush(None, context)?.or(Some(Next::Again)));
            }
            *budget -= 1;
            let peer = Peer {
                client: &self.client,
                answered_count: self.answered_count,
                may_have_sent_more: self.transport.is_readable(),
            };
            match self.app.step(input, &peer, context) {
                Step::Partial => {
                    self.state = State::Receiving;
                    return self.flush(None, context);
                }
                Step::Answered(file) => {
                    self.answered_count += 1;
                    self.state = State::Idle;
                    unsent_count += 1;
                    let is_full = context.buffers.output.len() >= OUTPUT_BYTES_USUAL
                        || unsent_count == self.app.unsent_answers_max(context.options);
                    if file.is_some() || is_full {
                        unsent_count = 0;
                        if let Some(next) = self.flush(file, context)? {
                            return Ok(Some(next));
                        }
                    }
                }
                Step::WaitForJob => {
                    let sent = self.flush(None, context)?;
                    if matches!(sent, None | Some(Next::Wait)) {
                        self.state = State::Waiting;
                        self.set_send_deadline(context);
                    }
                    return Ok(Some(sent.unwrap_or(Next::Wait)));
                }
                Step::Last(mode, file) => {
                    self.answered_count += 1;
                    let mode = if input.is_empty() { mode } else { CloseMode::Linger };
                    input.consume_all();
                    self.state = State::Closing(mode);
                    return Ok(Some(self.flush(file, context)?.unwrap_or(Next::Close)));
                }
                Step::Invalid => {
                    self.flush(None, context)?;
                    return Ok(Some(Next::Close));
                }
            }
        }
    }

    /// Sends what was written; `None` if all is sent and the connection goes on.
    #[inline]
    fn flush(&mut self, file: Option<FileChunk<'s>>, context: &mut Context<'_, 's>) -> io::Result<Option<Next>> {
        if context.buffers.output.is_empty() && file.is_none() {
            return Ok(None);
        }
        let mut progress = 0;
        let Buffers { output, scratch, .. } = &mut *context.buffers;
        let follows = if matches!(self.state, State::Closing(_)) { More::Yes } else { More::No };
        let sent = self.queue.send(&mut self.transport, output, file, follows, scratch, &mut progress)?;
        context.buffers.output.clear();
        if sent == Sent::All && self.state == State::Idle {
            return Ok(None);
        }
        self.after_sending(sent, progress, context)
    }

    fn after_sending(&mut self, sent: Sent, progress: u64, context: &mut Context<'_, 's>) -> io::Result<Option<Next>> {
        match sent {
            Sent::All => match self.state {
                State::Closing(CloseMode::AtOnce) if !self.transport.is_readable() => Ok(Some(Next::Close)),
                State::Closing(_) => {
                    self.transport.shutdown_write()?;
                    self.state = State::Lingering { left_bytes: LINGER_BYTES_MAX };
                    self.timer.deadline_ms = context.clock.now_ms() + LINGER_MS;
                    self.linger(context).map(Some)
                }
                State::Sending => {
                    self.state = State::Idle;
                    self.last_used = context.sequence;
                    self.timer.deadline_ms = context.clock.now_ms() + ms(self.app.idle_timeout(context.options));
                    Ok(None)
                }
                _ => Ok(None),
            },
            Sent::FileChanged => {
                context.metrics.add(Counter::HttpAborted, 1);
                self.queue.files().for_each(|file| context.files.invalidate(file));
                self.transport.reset_on_close()?;
                Ok(Some(Next::Close))
            }
            Sent::Blocked | Sent::BudgetUsed => {
                if progress != 0 || !matches!(self.state, State::Sending | State::Closing(_)) {
                    self.set_send_deadline(context);
                }
                if !matches!(self.state, State::Closing(_)) {
                    self.state = State::Sending;
                }
                Ok(Some(if sent == Sent::BudgetUsed { Next::Again } else { Next::Wait }))
            }
        }
    }

    fn set_send_deadline(&mut self, context: &Context<'_, 's>) {
        self.timer.deadline_ms = context.clock.now_ms() + ms(self.app.send_timeout(context.options));
    }

    /// There is nothing to do until something happens.
    fn rest(&mut self, context: &Context<'_, 's>) -> Next {
        if self.state == State::Idle {
            self.timer.deadline_ms = self.timer.deadline_ms.min(context.drain_deadline_ms());
        }
        Next::Wait
    }

    fn linger(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        let State::Lingering { left_bytes } = &mut self.state else { return Ok(Next::Close) };
        while self.transport.is_readable() {
            let count = self.transport.receive(&mut context.buffers.scratch)?;
            if count >= *left_bytes {
                return Ok(Next::Close);
            }
            *left_bytes -= count;
        }
        Ok(if self.transport.has_ended() { Next::Close } else { Next::Wait })
    }

    /// The deadline has passed.
    pub(crate) fn expire(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if context.is_draining() && self.state == State::Idle {
            // The drain's grace has passed. A request that arrived in the last moment is answered.
            self.transport.assume_readable();
            return match self.serve(context)? {
                Next::Wait if self.state == State::Idle => Ok(Next::Close),
                next => Ok(next),
            };
        }
        context.buffers.output.clear();
        if !self.app.write_timeout_response(self.state == State::Receiving, context) {
            return Ok(Next::Close);
        }
        self.set_send_deadline(context);
        self.state = State::Closing(CloseMode::Linger);
        Ok(self.flush(None, context)?.unwrap_or(Next::Close))
    }
}

impl App {
    fn step<'s>(&mut self, input: &mut Input<'_>, peer: &Peer<'_>, context: &mut Context<'_, 's>) -> Step<'s> {
        match self {
            App::Http1(http) => http.step(input, peer, context),
            App::Dns(dns) => dns.step(input, peer, context),
        }
    }

    /// Whether part of a request has left the input already.
    fn has_partial_request(&self) -> bool {
        match self {
            App::Http1(http) => http.has_partial_request(),
            App::Dns(_) => false,
        }
    }

    /// Requests that are answered in one iteration.
    fn requests_per_iteration_max(&self) -> usize {
        match self {
            App::Http1(_) => crate::http1::REQUESTS_PER_ITERATION_MAX,
            App::Dns(_) => crate::dns_stream::QUERIES_PER_ITERATION_MAX,
        }
    }

    /// Answers after which the output is sent, however short it is.
    fn unsent_answers_max(&self, options: &Options) -> usize {
        match self {
            App::Http1(_) => usize::MAX,
            App::Dns(_) => options.dns.tcp_queries_in_flight_max,
        }
    }

    /// Between two requests.
    fn idle_timeout(&self, options: &Options) -> Duration {
        match self {
            App::Http1(_) => options.http.idle_timeout,
            App::Dns(_) => options.dns.tcp_idle_timeout,
        }
    }

    /// From the first bytes of a request to its last; `None` keeps the deadline as it is. The first request of an HTTP
    /// connection has its deadline from the accept, and a DNS query that of the idle connection before it.
    fn receive_timeout(&self, answered_count: u64, has_answered: bool, options: &Options) -> Option<Duration> {
        match self {
            App::Http1(_) => (answered_count != 0).then_some(options.http.header_deadline),
            App::Dns(_) => has_answered.then_some(options.dns.tcp_idle_timeout),
        }
    }

    /// While the client takes nothing of an answer.
    fn send_timeout(&self, options: &Options) -> Duration {
        match self {
            App::Http1(_) => options.http.send_timeout,
            App::Dns(_) => options.dns.tcp_idle_timeout,
        }
    }

    /// Writes what a client is told whose deadline has passed; `false` if that is nothing.
    fn write_timeout_response(&mut self, is_receiving: bool, context: &mut Context<'_, '_>) -> bool {
        match self {
            App::Http1(http) => http.write_timeout_response(is_receiving, context),
            App::Dns(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of an idle connection, all of them: it holds nothing else.
    const CONNECTION_BYTES_MAX: usize = 320;

    #[test]
    fn an_idle_connection_is_small() {
        println!("Connection: {} bytes, Step: {}", size_of::<Connection<'_>>(), size_of::<Step<'_>>());
        assert!(size_of::<Connection<'_>>() <= CONNECTION_BYTES_MAX);
    }
}
