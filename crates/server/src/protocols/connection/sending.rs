//! Sends the written output, and continues with the next request, a wait, or the end of the connection.

use super::{Connection, LINGER_BYTES_MAX, LINGER_BYTES_PER_ITERATION, LINGER_MS, Next, State};
use crate::clock::ms;
use crate::context::{CloseMode, Context};
use crate::limits::rate_window::RateWindow;
use crate::metrics::Counter;
use crate::net::body_source::BodySource;
use crate::net::file_chunk::Sent;

use sanderling_os::tcp::More;
use std::io;

impl<'s> Connection<'s> {
    /// Sends what was written; `None` if all is sent and the connection continues.
    #[inline]
    pub(super) fn flush(
        &mut self,
        source: Option<BodySource<'s>>,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        if context.buffers.output.is_empty() && source.is_none() {
            return Ok(None);
        }
        let more = if matches!(self.state, State::Closing(_)) { More::Yes } else { More::No };
        let (sent, sent_bytes) = match source {
            None => self.queue.send(&mut self.transport, &context.buffers.output, more)?,
            Some(source) => {
                let metrics = context.metrics;
                let (output, mut send_context) = context.for_sending();
                let (queue, transport) = (&mut self.queue, &mut self.transport);
                let sent = metrics
                    .heartbeat
                    .during_file_call(|| queue.send_with_source(transport, output, source, more, &mut send_context))?;
                (sent, send_context.sent_bytes)
            }
        };
        let (sent, sent_bytes) = self.encrypted(sent, sent_bytes)?;
        context.buffers.output.clear();
        if sent == Sent::All && self.state == State::Idle {
            return Ok(None);
        }
        self.after_sending(sent, sent_bytes, context)
    }

    /// The result of sending `sent_bytes`, combined with that of sending the encrypted data.
    #[inline]
    pub(super) fn encrypted(&mut self, sent: Sent, mut sent_bytes: u64) -> io::Result<(Sent, u64)> {
        // The connection is reset.
        if self.is_plain || sent == Sent::CutOff {
            return Ok((sent, sent_bytes));
        }
        let is_flushed = match (sent, self.state) {
            (Sent::All, State::Closing(_)) => self.transport.flush_to_end(&mut sent_bytes)?,
            _ => self.transport.flush(&mut sent_bytes)?,
        };
        Ok((if is_flushed { sent } else { Sent::Blocked }, sent_bytes))
    }

    pub(super) fn after_sending(
        &mut self,
        sent: Sent,
        sent_bytes: u64,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Option<Next>> {
        match sent {
            Sent::All => match self.state {
                State::Closing(CloseMode::AtOnce) if !self.transport.is_readable() => Ok(Some(Next::Close)),
                State::Closing(_) => {
                    self.transport.shutdown_write()?;
                    self.state = State::Lingering { remaining_bytes: LINGER_BYTES_MAX };
                    self.timer.deadline_ms = context.clock.now_ms() + LINGER_MS;
                    self.linger(context).map(Some)
                }
                State::Sending => {
                    self.state = self.resting_state();
                    self.rate_window = RateWindow::None;
                    self.last_used = context.use_number;
                    let timeout = match self.state {
                        State::InProgress => self.protocol_state.send_timeout(context.options),
                        _ => self.protocol_state.idle_timeout(context.options),
                    };
                    self.timer.deadline_ms = context.clock.now_ms() + ms(timeout);
                    if !self.is_plain {
                        self.resume_streams(context);
                    }
                    Ok(None)
                }
                _ => Ok(None),
            },
            Sent::CutOff => {
                context.metrics.add(Counter::HttpAborted, 1);
                self.queue.files().for_each(|file| context.files.invalidate(file));
                self.transport.reset_on_close()?;
                Ok(Some(Next::Close))
            }
            Sent::Blocked | Sent::BudgetUsed | Sent::WaitsForRead | Sent::WaitsForBackend => {
                let has_begun = !matches!(self.state, State::Sending | State::Closing(_));
                self.move_send_deadline(sent, sent_bytes != 0 || has_begun, context);
                if !matches!(self.state, State::Closing(_)) {
                    self.state = State::Sending;
                }
                Ok(Some(if sent == Sent::BudgetUsed { Next::Again } else { Next::Wait }))
            }
        }
    }

    pub(super) fn linger(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        let State::Lingering { remaining_bytes } = &mut self.state else { return Ok(Next::Close) };
        let stop_at = remaining_bytes.saturating_sub(LINGER_BYTES_PER_ITERATION);
        while self.transport.is_readable() {
            let count = self.transport.discard(&mut context.buffers.scratch)?;
            if count >= *remaining_bytes {
                return Ok(Next::Close);
            }
            *remaining_bytes -= count;
            if *remaining_bytes <= stop_at {
                return Ok(Next::Again);
            }
        }
        Ok(if self.transport.has_ended() { Next::Close } else { Next::Wait })
    }
}
