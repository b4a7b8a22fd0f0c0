//! The behaviour of HTTP/2 connections that differs from connections with sequential requests, and the additional steps
//! of encrypted ones.

use super::protocol_state::{OtherProtocol, ProtocolState};
use super::{BYTES_PER_REQUEST, Connection, Next, State};
use crate::clock::{Milliseconds, ms};
use crate::context::{CloseMode, ConnectionInfo, Context, Input};
use crate::metrics::Counter;
use crate::options::HttpOptions;
use crate::protocols::http2::{Http2, StreamStep};
use sanderling_http2::{Activity, DATA_BYTES_MAX};
use sanderling_os::tcp::More;
use std::io;
use std::time::Duration;

/// The cost of a step with a request, or with other frames, in the budget of an iteration: a request over HTTP/2 takes
/// three to four times the instructions of one over HTTP/1.1 (`cargo xtask guard`).
const INPUT_STEP_COST: usize = 4;

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
        let http = Http2::new(&context.options.http.http2, self.transport.scheme(), self.timer.deadline_ms);
        self.protocol_state = ProtocolState::Other(OtherProtocol::Http2(Box::new(http)));
    }

    /// The state of the connection when the input is used up.
    pub(super) fn resting_state(&self) -> State {
        match self.http2().map_or(Activity::Idle, Http2::activity) {
            Activity::Idle => State::Idle,
            Activity::Receiving => State::Receiving,
            Activity::Answering => State::InProgress,
        }
    }

    /// Whether more is received although streams can continue: a request may be more urgent, and a frame may end a
    /// stream. Not if whole frames are left, because the budget was used up.
    pub(super) fn receives_while_sending(&self) -> bool {
        self.http2().is_some() && self.unprocessed.len() < DATA_BYTES_MAX
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
        let now_ms = context.clock.now_ms();
        // While others are answered, the timer has their deadline.
        if let Some(http) = self.http2_mut()
            && http.incoming_deadline_ms <= now_ms
        {
            http.end_incoming();
        }
        let next = self.answer_streams(input, budget, context);
        let has_answered = self.answered_count != answered_before;
        let timeout = self.timeout_of_streams(state_before, has_answered, context);
        self.end_processing(timeout, has_answered, context);
        next
    }

    /// The timeout that begins; `None` if the deadline is set.
    fn timeout_of_streams(
        &mut self,
        state_before: State,
        has_answered: bool,
        context: &Context<'_, 's>,
    ) -> Option<Duration> {
        let (options, now_ms, state) = (&context.options.http, context.clock.now_ms(), self.state);
        let is_first = self.answered_count == 0;
        let http = self.http2_mut()?;
        let is_new = http.note_incoming(state == State::Receiving);
        if is_new && !is_first {
            http.incoming_deadline_ms = now_ms + ms(options.request_timeout);
        }
        // Without an answer, content may have been sent until the budget was used up.
        if has_answered || state_before == State::InProgress || state == State::Ready {
            http.idle_deadline_ms = now_ms + ms(options.idle_timeout);
        }
        if matches!(state, State::Idle | State::Receiving) {
            http.send_deadline_ms = None;
        }
        match state {
            State::Idle | State::Ready => {
                self.timer.deadline_ms = http.idle_deadline_ms;
                None
            }
            State::Receiving if is_new || state_before != State::Receiving => {
                self.resume_receiving(context);
                None
            }
            State::InProgress => {
                self.move_deadline_of_streams(has_answered, context);
                None
            }
            // The others have set the deadline where they began.
            _ => None,
        }
    }

    /// The connection waits for incoming data, with its deadline.
    fn resume_receiving(&mut self, context: &Context<'_, 's>) {
        let Some(deadline_ms) = self.http2().map(|http| http.incoming_deadline_ms) else { return };
        self.timer.deadline_ms = self.rate_window.begin_receiving(context.clock.now_ms(), deadline_ms);
        self.last_used = context.use_number;
    }

    /// Responses wait, with the deadline that they have: it is a new one if no response waited before, or if content
    /// was sent. A request that is answered immediately does not count as progress of those that wait for a window.
    fn move_deadline_of_streams(&mut self, has_answered: bool, context: &Context<'_, 's>) {
        let options = &context.options.http;
        let kept_deadline_ms = self.http2().and_then(|http| http.send_deadline_ms).filter(|_| {
            let is_answering = has_answered && self.unsent_response_count_of_streams() == 0;
            !is_answering && !self.take_progress(options)
        });
        let new_deadline_ms = context.clock.now_ms() + ms(options.send_timeout);
        let Some(http) = self.http2_mut() else { return };
        let deadline_ms = match http.has_deadline() {
            true => kept_deadline_ms.unwrap_or(new_deadline_ms),
            false => Milliseconds::MAX,
        };
        http.send_deadline_ms = Some(deadline_ms);
        self.timer.deadline_ms = deadline_ms;
    }

    /// All output that the transport did not take immediately is sent.
    #[inline(never)]
    pub(super) fn resume_streams(&mut self, context: &Context<'_, 's>) {
        let idle_deadline_ms = context.clock.now_ms() + ms(context.options.http.idle_timeout);
        let send_deadline_ms = (self.state == State::InProgress).then_some(self.timer.deadline_ms);
        let Some(http) = self.http2_mut() else { return };
        http.idle_deadline_ms = idle_deadline_ms;
        http.send_deadline_ms = send_deadline_ms;
        if self.state == State::Receiving {
            self.resume_receiving(context);
        }
    }

    /// Refuses the request that is being received; `false` if there is none that can be refused separately.
    pub(super) fn end_incoming_request(&mut self) -> bool {
        self.http2_mut().is_some_and(Http2::end_incoming)
    }

    /// Whether the client has opened its windows for so much content that it is not too slow. Output that the transport
    /// does not take is measured elsewhere.
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
                self.state = State::Ready;
                return Ok(self.flush(None, context)?.or(Some(Next::Again)));
            }
            let (input_before, output_before) = (input.consumed(), context.buffers.output.len());
            let info = ConnectionInfo {
                client: self.permit.client(),
                answered_count: self.answered_count,
                transport: &self.transport,
            };
            let step = match &mut self.protocol_state {
                ProtocolState::Other(OtherProtocol::Http2(http)) => http.step(input, &info, context),
                _ => StreamStep::Closed,
            };
            let taken_bytes = input.consumed() - input_before;
            let bytes = taken_bytes + (context.buffers.output.len() - output_before);
            let step_cost = if taken_bytes > 0 { INPUT_STEP_COST } else { 1 };
            *budget = budget.saturating_sub(step_cost + bytes / BYTES_PER_REQUEST as usize);
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
                    self.state = State::Ready;
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

    /// Releases memory that an idle connection does not need, and sends the end of a handshake to which there was no
    /// response.
    #[inline(never)]
    pub(super) fn prepare_to_wait(&mut self) -> io::Result<Next> {
        if let (State::Idle, Some(http)) = (self.state, self.http2_mut()) {
            http.shrink();
        }
        self.transport.flush(&mut 0)?;
        // A piece that is shorter than a record has no content, and no event reports the rest, which has arrived
        // already.
        Ok(if self.transport.is_readable() { Next::Again } else { Next::Wait })
    }

    /// Writes that the client is to send no further requests, if it does not know yet; whether something was written.
    #[inline(never)]
    pub(super) fn announce_shutdown(&mut self, context: &mut Context<'_, 's>) -> bool {
        let is_lingering = matches!(self.state, State::Lingering { .. });
        !is_lingering && self.http2_mut().is_some_and(|http| http.announce_shutdown(context))
    }

    /// Sends the last frame to a client that does not know that the connection closes, if there is room for it.
    pub(super) fn send_last_frame(&mut self) {
        if self.transport.has_ended() {
            return;
        }
        let frame = self.http2_mut().map_or(Vec::new(), Http2::last_frame);
        if !frame.is_empty() {
            // Without room, or without a client, it is not sent.
            let _ = self.transport.send(&frame, More::No);
        }
    }

    pub(super) fn unsent_response_count_of_streams(&self) -> usize {
        self.http2().map_or(0, Http2::unsent_response_count)
    }

    /// Writes the last frame to an idle client, when the connection closes because the server drains.
    pub(super) fn finish_shutdown(&mut self, context: &mut Context<'_, 's>) {
        if let Some(http) = self.http2_mut() {
            http.finish_shutdown(context);
        }
    }
}
