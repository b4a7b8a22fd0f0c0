//! What a connection of HTTP/2 does otherwise than one whose requests are answered one after another, and what an encrypted
//! one does besides.

use super::{Connection, Next, OtherProtocol, ProtocolState, State};
use crate::clock::ms;
use crate::context::{CloseMode, ConnectionInfo, Context, Input};
use crate::http2::{Http2, StreamStep};
use crate::metrics::Counter;
use crate::options::HttpOptions;
use sanderling_http2::Activity;
use std::io;

impl<'s> Connection<'s> {
    fn http2(&self) -> Option<&Http2<'s>> {
        match &self.protocol_state {
            ProtocolState::Other(OtherProtocol::Http2(http)) => Some(http),
            _ => None,
        }
    }

    fn http2_mut(&mut self) -> Option<&mut Http2<'s>> {
        match &mut self.protocol_state {
            ProtocolState::Other(OtherProtocol::Http2(http)) => Some(http),
            _ => None,
        }
    }

    /// The connection speaks HTTP/2 from here on.
    #[cold]
    pub(super) fn begin_http2(&mut self, context: &Context<'_, 's>) {
        context.metrics.add(Counter::Http2Connections, 1);
        self.is_plain = false;
        self.protocol_state =
            ProtocolState::Other(OtherProtocol::Http2(Box::new(Http2::new(&context.options.http.http2))));
    }

    /// The state of the connection when the input is used up.
    pub(super) fn resting_state(&self) -> State {
        match self.http2().map_or(Activity::Idle, Http2::activity) {
            Activity::Idle => State::Idle,
            Activity::Receiving => State::Receiving,
            Activity::Answering => State::InProgress,
        }
    }

    /// Answers what the input holds, and sends; what to do next, or `None` to receive more.
    #[inline(never)]
    pub(super) fn process_streams(
        &mut self,
        input: &mut Input<'_>,
        budget: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        let (state_before, answered_before) = (self.state, self.answered_count);
        let next = self.answer_streams(input, budget, context);
        let has_answered = self.answered_count != answered_before;
        let options = &context.options.http;
        let state = self.state;
        let timeout = match state {
            State::Idle if has_answered || state_before == State::InProgress => Some(options.idle_timeout),
            State::InProgress if state_before != State::InProgress || self.take_progress(options) => {
                Some(options.send_timeout)
            }
            State::Receiving if has_answered || state_before != State::Receiving => {
                self.begin_receiving(has_answered, context);
                None
            }
            // The others have set the deadline where they began.
            _ => None,
        };
        if let Some(timeout) = timeout {
            self.timer.deadline_ms = context.clock.now_ms() + ms(timeout);
        }
        if has_answered {
            self.last_used = context.use_number;
        }
        next
    }

    /// Whether the client has opened its windows for so much content that it is not too slow. What the transport does not
    /// take is measured elsewhere.
    fn take_progress(&mut self, options: &HttpOptions) -> bool {
        let bytes_min = (options.send_rate_min.saturating_mul(options.send_timeout.as_secs()) as usize).max(1);
        self.http2_mut().is_some_and(|http| http.take_progress(bytes_min))
    }

    fn answer_streams(
        &mut self,
        input: &mut Input<'_>,
        budget: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        context.buffers.output.clear();
        loop {
            if input.is_empty() && !self.protocol_state.has_work() {
                self.state = self.resting_state();
                return self.flush(None, context);
            }
            if *budget == 0 {
                self.state = State::Idle;
                return Ok(self.flush(None, context)?.or(Some(Next::Again)));
            }
            *budget -= 1;
            let info = ConnectionInfo {
                client: self.permit.client(),
                answered_count: self.answered_count,
                transport: &self.transport,
            };
            let step = match &mut self.protocol_state {
                ProtocolState::Other(OtherProtocol::Http2(http)) => http.step(input, &info, context),
                _ => StreamStep::Closed,
            };
            match step {
                StreamStep::Partial => {
                    self.state = match self.resting_state() {
                        State::InProgress => State::InProgress,
                        _ => State::Receiving,
                    };
                    return self.flush(None, context);
                }
                StreamStep::Progress { has_answered } => {
                    self.answered_count += u64::from(has_answered);
                    self.state = State::Idle;
                    if context.buffers.output.len() >= context.buffers.limits.written_bytes_max
                        && let Some(next) = self.flush(None, context)?
                    {
                        return Ok(Some(next));
                    }
                }
                StreamStep::Closed => {
                    input.consume_all();
                    self.state = State::Closing(CloseMode::Linger);
                    return Ok(Some(self.flush(None, context)?.unwrap_or(Next::Close)));
                }
            }
        }
    }

    /// Releases memory that an idle connection does not need, and sends the end of a handshake to which there was no response.
    #[inline(never)]
    pub(super) fn rest(&mut self) -> io::Result<Next> {
        if let (State::Idle, Some(http)) = (self.state, self.http2_mut()) {
            http.shrink();
        }
        self.transport.flush(&mut 0)?;
        Ok(Next::Wait)
    }

    /// Writes that the client is to send no further requests, if it does not know yet; whether something was written.
    #[inline(never)]
    pub(super) fn begin_shutdown(&mut self, context: &mut Context<'_, 's>) -> bool {
        let is_lingering = matches!(self.state, State::Lingering { .. });
        !is_lingering && self.http2_mut().is_some_and(|http| http.begin_shutdown(context))
    }

    /// Writes the last frame to an idle client, when the connection closes because the server drains.
    pub(super) fn end_shutdown(&mut self, context: &mut Context<'_, 's>) {
        if let Some(http) = self.http2_mut() {
            http.end_shutdown(context);
        }
    }
}
