//! The deadlines of a connection: for receiving, for sending, and the effect when one passes.

use super::{Connection, Next, Protocol, State};
use crate::clock::{Milliseconds, ms};
use crate::context::{CloseMode, ConnectionInfo, Context};
use crate::file_error::FileError;
use crate::limits::rate_window::{Expiry, RECEIVE_WINDOW_MS, RateWindow};
use crate::metrics::Counter;
use crate::net::file_chunk::Sent;
use crate::waiter::Event;
use std::io;
use std::time::Duration;

impl<'s> Connection<'s> {
    /// The input was processed. `timeout`: of the new deadline, if there is one.
    #[inline]
    pub(super) fn end_processing(&mut self, timeout: Option<Duration>, has_answered: bool, context: &Context<'_, 's>) {
        if let Some(timeout) = timeout {
            self.timer.deadline_ms = context.clock.now_ms() + ms(timeout);
        }
        if has_answered {
            self.last_used = context.use_number;
        }
    }

    pub(super) fn begin_receiving(&mut self, has_answered: bool, context: &Context<'_, 's>) {
        let now_ms = context.clock.now_ms();
        let timeout = self.protocol_state.receive_timeout(self.answered_count, has_answered, context.options);
        let deadline_ms = match timeout {
            // A backend gets a body of any length as it arrives, for which the least rate holds.
            _ if self.protocol_state.passes_body_on() => Milliseconds::MAX,
            Some(timeout) => now_ms + ms(timeout),
            None => self.timer.deadline_ms,
        };
        self.timer.deadline_ms = self.rate_window.begin_receiving(now_ms, deadline_ms);
        // Part of a DNS query does not count as use of a connection (RFC 7766 §6.2.3).
        if has_answered || self.protocol() == Protocol::Http {
            self.last_used = context.use_number;
        }
    }

    /// Whether a backend gets the body that arrives, which still has the deadline of its head.
    pub(super) fn begins_to_pass_body_on(&self) -> bool {
        self.protocol_state.passes_body_on() && !self.rate_window.is_unbounded()
    }

    /// Something is still to be sent. The deadline is a new one if the transport `has_progress`; the rate is measured
    /// while the transport, and not a disk, delays the response.
    pub(super) fn move_send_deadline(&mut self, sent: Sent, has_progress: bool, context: &Context<'_, 's>) {
        let (now_ms, timeout_ms) = (context.clock.now_ms(), ms(self.protocol_state.send_timeout(context.options)));
        let begins = self.timer.deadline_ms == Milliseconds::MAX;
        let deadline_ms = match has_progress || begins {
            true => now_ms + timeout_ms,
            false => self.rate_window.send_deadline_ms().unwrap_or(self.timer.deadline_ms),
        };
        self.timer.deadline_ms = match sent {
            Sent::WaitsForRead | Sent::WaitsForBackend => {
                self.rate_window = RateWindow::None;
                // A backend has its own deadline.
                if sent == Sent::WaitsForBackend { Milliseconds::MAX } else { deadline_ms }
            }
            _ => self.rate_window.continue_sending(now_ms, timeout_ms, deadline_ms),
        };
    }

    pub(super) fn set_send_deadline(&mut self, context: &Context<'_, 's>) {
        self.timer.deadline_ms = context.clock.now_ms() + ms(self.protocol_state.send_timeout(context.options));
    }

    /// The deadline has passed.
    pub(crate) fn expire(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        self.transport.begin(context.clock.now_ms(), &context.buffers.limits);
        if self.state == State::Handshaking {
            let is_encrypted = self.transport.is_encrypted();
            context.metrics.add(if is_encrypted { Counter::TlsTimeouts } else { Counter::HttpTimeouts }, 1);
            return Ok(Next::Close);
        }
        if context.is_draining() && self.state == State::Idle {
            // The drain's grace has passed. A request that arrived in the last moment is answered.
            self.transport.assume_readable();
            return match self.receive_and_answer(context)? {
                Next::Wait if self.state == State::Idle => {
                    context.buffers.output.clear();
                    self.finish_shutdown(context);
                    self.state = State::Closing(CloseMode::AtOnce);
                    Ok(self.flush(None, context)?.unwrap_or(Next::Close))
                }
                next => Ok(next),
            };
        }
        match self.expire_rate_window(context) {
            Expiry::DeadlinePassed => {}
            Expiry::Continues(deadline_ms) => {
                self.timer.deadline_ms = deadline_ms;
                return Ok(Next::Wait);
            }
            Expiry::TooSlow if self.state == State::Receiving => context.metrics.add(Counter::HttpSlowRequests, 1),
            Expiry::TooSlow => {
                context.metrics.add(Counter::HttpSlowResponses, 1);
                // The kernel would continue to send the data that it has taken.
                self.transport.reset_on_close()?;
            }
        }
        if self.state == State::Waiting && !self.has_unsent() {
            // The awaited work continues without this request, which gets 503.
            self.note_event(0, Event::LookedUp(Err(FileError::Unavailable)));
            return self.receive_and_answer(context);
        }
        if self.state == State::Receiving && self.end_incoming_request() {
            self.state = State::Ready;
            return self.receive_and_answer(context);
        }
        context.buffers.output.clear();
        let (is_receiving, is_sent) = (self.state == State::Receiving, self.queue.is_empty());
        let info = ConnectionInfo {
            client: self.permit.client(),
            answered_count: self.answered_count,
            transport: &self.transport,
        };
        if !self.protocol_state.write_timeout_response(is_receiving, is_sent, &self.unprocessed, &info, context) {
            return Ok(Next::Close);
        }
        self.set_send_deadline(context);
        self.state = State::Closing(CloseMode::Linger);
        Ok(self.flush(None, context)?.unwrap_or(Next::Close))
    }

    /// Measures the rate, if a deadline is the end of a window.
    fn expire_rate_window(&mut self, context: &Context<'_, 's>) -> Expiry {
        let now_ms = context.clock.now_ms();
        let (receive_rate_min, send_rate_min) = self.protocol_state.rates_min(context.options);
        match self.state {
            State::Receiving => {
                let bytes = self.protocol_state.received_bytes().map(|bytes| bytes + self.unprocessed.len() as u64);
                self.rate_window.expire(now_ms, RECEIVE_WINDOW_MS, bytes, receive_rate_min)
            }
            State::Sending | State::Closing(_) => {
                let length_ms = ms(self.protocol_state.send_timeout(context.options));
                self.rate_window.expire(now_ms, length_ms, self.transport.acked_bytes(), send_rate_min)
            }
            State::Handshaking
            | State::Idle
            | State::Ready
            | State::Waiting
            | State::InProgress
            | State::Tunnel
            | State::Lingering { .. } => Expiry::DeadlinePassed,
        }
    }
}
