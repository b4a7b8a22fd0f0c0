//! A DNS stream (RFC 7766): queries with their lengths before them, answered in order, many with one call.

use crate::clock::ms;
use crate::outbox::{Outbox, Sent};
use crate::peer::{Buffers, Context, Next, OUTPUT_BYTES_USUAL, Schedule, Socket};
use crate::permits::Permit;
use crate::tally::Counter;
use dns::{Reply, Transport};
use os::tcp::Stream;
use std::io;

/// Octets of the length that stands before each message (RFC 1035 §4.2.2).
const LENGTH_BYTES: usize = 2;
/// Queries of one stream that are answered in one turn.
const QUERIES_PER_TURN_MAX: usize = 512;

/// A stream.
#[derive(Debug)]
pub(crate) struct DnsStream<'s> {
    stream: Stream,
    _permit: Permit<'s>,
    pub(crate) schedule: Schedule,
    socket: Socket,
    /// The start of a query, as far as it came, or queries that the turn's share left over.
    kept: Vec<u8>,
    outbox: Outbox<'s>,
}

/// What became of the input.
enum Outcome {
    /// What is left is the start of a query, or nothing.
    NeedsMore,
    /// Enough is written to be sent first.
    SendFirst,
    /// The turn's share is used.
    Share,
    /// A message without octets: whoever sends that speaks something else.
    Nonsense,
}

impl<'s> DnsStream<'s> {
    pub(crate) fn new(stream: Stream, permit: Permit<'s>, deadline_ms: u64) -> DnsStream<'s> {
        DnsStream {
            stream,
            _permit: permit,
            schedule: Schedule::new(deadline_ms),
            socket: Socket::FRESH,
            kept: Vec::new(),
            outbox: Outbox::default(),
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The socket has become ready.
    pub(crate) fn note(&mut self, readiness: os::poll::Readiness) {
        self.socket.note(readiness);
    }

    /// Does what can be done now, up to the share of a turn. An error is the peer's: it is gone.
    pub(crate) fn advance(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if !self.outbox.is_empty() {
            if !self.socket.is_writable {
                return Ok(Next::Wait);
            }
            let mut progress = 0;
            let sent = self.outbox.resume(&self.stream, &mut context.buffers.scratch, &mut progress)?;
            if let Some(next) = self.after_sending(sent, progress, context) {
                return Ok(next);
            }
        }
        let mut left_count = QUERIES_PER_TURN_MAX;
        loop {
            let received = self.fill(context)?;
            let mut consumed = 0;
            context.buffers.output.clear();
            let outcome = self.answer_input(received, &mut consumed, &mut left_count, context);
            self.kept = context.buffers.input[consumed..received].to_vec();
            if consumed != 0 {
                // A query that has begun to come gets no more time with each octet; a whole one gives the next its own.
                self.schedule.at_ms = context.clock.now_ms() + ms(context.options.dns.tcp_idle_timeout);
            }
            if !context.buffers.output.is_empty() {
                let mut progress = 0;
                let Buffers { output, scratch, .. } = &mut *context.buffers;
                let sent = self.outbox.send(&self.stream, output, None, scratch, &mut progress)?;
                if let Some(next) = self.after_sending(sent, progress, context) {
                    return Ok(next);
                }
            }
            match outcome {
                Outcome::Nonsense => return Ok(Next::Close),
                Outcome::Share => return Ok(Next::Again),
                Outcome::SendFirst => {}
                Outcome::NeedsMore if self.socket.has_ended => return Ok(Next::Close),
                Outcome::NeedsMore if self.socket.is_readable => {}
                Outcome::NeedsMore if context.is_draining && self.kept.is_empty() => return Ok(Next::Close),
                Outcome::NeedsMore => return Ok(Next::Wait),
            }
        }
    }

    /// Whether it waits for a query, of which nothing has come.
    pub(crate) fn is_idle(&self) -> bool {
        self.kept.is_empty() && self.outbox.is_empty()
    }

    /// Puts what was kept and what the socket has into the input; octets in all.
    fn fill(&mut self, context: &mut Context<'_, 's>) -> io::Result<usize> {
        let input = &mut context.buffers.input;
        let kept = self.kept.len();
        input[..kept].copy_from_slice(&self.kept);
        let mut received = 0;
        if self.socket.is_readable && kept < input.len() {
            received = self.socket.receive(&self.stream, &mut input[kept..])?;
        }
        Ok(kept + received)
    }

    /// Answers the queries that are whole.
    fn answer_input(
        &mut self,
        received: usize,
        consumed: &mut usize,
        left_count: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> Outcome {
        let mut in_flight = 0;
        loop {
            let input = &context.buffers.input[*consumed..received];
            let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else { return Outcome::NeedsMore };
            let length = usize::from(u16::from_be_bytes(*length));
            if length == 0 {
                return Outcome::Nonsense;
            }
            let Some(query) = rest.get(..length) else { return Outcome::NeedsMore };
            if *left_count == 0 {
                return Outcome::Share;
            }
            let output = &mut context.buffers.output;
            if output.len() >= OUTPUT_BYTES_USUAL || in_flight == context.options.dns.tcp_queries_in_flight_max {
                return Outcome::SendFirst;
            }
            *left_count -= 1;
            in_flight += 1;
            context.tally.add(Counter::DnsTcpQueries, 1);
            *consumed += LENGTH_BYTES + length;
            let reply = &mut context.buffers.scratch;
            match dns::answer(context.content.zones(), query, Transport::Tcp, reply) {
                Reply::Send { length_bytes, .. } => {
                    output.extend_from_slice(&(length_bytes as u16).to_be_bytes());
                    output.extend_from_slice(&reply[..length_bytes]);
                }
                Reply::Silence => context.tally.add(Counter::DnsSilences, 1),
            }
        }
    }

    /// What to do when sending stopped; `None` when all was sent.
    fn after_sending(&mut self, sent: Sent, progress: u64, context: &Context<'_, 's>) -> Option<Next> {
        if sent == Sent::All {
            return None;
        }
        if progress != 0 {
            self.schedule.at_ms = context.clock.now_ms() + ms(context.options.dns.tcp_idle_timeout);
        }
        self.socket.is_writable = false;
        Some(Next::Wait)
    }
}
