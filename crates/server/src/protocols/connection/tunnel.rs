//! A connection whose client and a backend send to each other, after the protocol was switched (RFC 9110 §7.8).
//!
//! Each direction stops while the other side does not take what was received: neither is received into a full buffer.

use super::protocol_state::{OtherProtocol, ProtocolState};
use super::{Connection, Next, State};
use crate::clock::Milliseconds;
use crate::context::{Context, Input};
use crate::net::backend_content::BackendContent;
use crate::net::body_source::BodySource;
use crate::net::call::CallHandle;
use crate::net::file_chunk::Sent;
use std::io;

impl<'s> Connection<'s> {
    /// The head of the response is in the output, and the rest of the input is for the backend.
    #[cold]
    pub(super) fn begin_tunnel(
        &mut self,
        call: CallHandle,
        input: &mut Input<'_>,
        context: &mut Context<'_, 's>,
    ) -> io::Result<Next> {
        // It may have sent the first bytes with its request.
        call.put_content(input.rest());
        input.consume_all();
        let output = std::mem::take(&mut context.buffers.output);
        let content = BackendContent::of_tunnel(call.clone(), output);
        self.queue.push(BodySource::Backend(Box::new(content)));
        self.protocol_state = ProtocolState::Other(OtherProtocol::Tunnel(call));
        self.state = State::Tunnel;
        self.timer.deadline_ms = Milliseconds::MAX;
        self.advance_tunnel(context)
    }

    /// Passes on what has arrived, in both directions.
    #[cold]
    pub(super) fn advance_tunnel(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        self.transport.begin(context.clock.now_ms(), &context.buffers.limits);
        let sent = self.send_of_backend(context)?;
        let ProtocolState::Other(OtherProtocol::Tunnel(call)) = &self.protocol_state else { return Ok(Next::Close) };
        while self.transport.is_readable() {
            let room = call.request_room().min(context.buffers.input.len());
            if room == 0 {
                break;
            }
            let count = self.transport.receive(&mut context.buffers.input[..room])?;
            call.put_content(&context.buffers.input[..count]);
        }
        if self.transport.has_ended() {
            call.finish_request();
        }
        Ok(match sent {
            Sent::All | Sent::CutOff => Next::Close,
            Sent::BudgetUsed => Next::Again,
            Sent::Blocked | Sent::WaitsForRead | Sent::WaitsForBackend => Next::Wait,
        })
    }

    fn send_of_backend(&mut self, context: &mut Context<'_, 's>) -> io::Result<Sent> {
        let (_, mut send_context) = context.for_sending();
        let sent = self.queue.resume(&mut self.transport, &mut send_context)?;
        let is_flushed = match sent {
            Sent::All => self.transport.flush_to_end(&mut 0)?,
            _ => self.transport.flush(&mut 0)?,
        };
        Ok(if is_flushed { sent } else { Sent::Blocked })
    }
}
