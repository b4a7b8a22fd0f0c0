//! A DNS stream (RFC 7766): queries with their lengths before them, answered in order, many with one call.

use crate::clock::ms;
use crate::outbox::{Outbox, Sent};
use crate::peer::{Buffers, Context, Input, Linger, Next, OUTPUT_BYTES_USUAL, Schedule, Socket};
use crate::permits::Permit;
use crate::tally::Counter;
use sanderling_dns::{Answered, RequestInfo, Transport};
use sanderling_os::tcp::{More, Stream};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

/// Stands for the client's address until connections keep it.
const UNKNOWN_CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
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
    phase: Phase,
    /// The start of a query, as far as it came, or queries that the turn's share left over.
    kept: Vec<u8>,
    outbox: Outbox<'s>,
}

/// What a stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It answers what comes.
    Open,
    /// It has answered since the server drains: when nothing more is there to be answered it closes.
    Ending,
    /// It has said all.
    Lingering(Linger),
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
            phase: Phase::Open,
            kept: Vec::new(),
            outbox: Outbox::default(),
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The socket has become ready.
    pub(crate) fn note(&mut self, readiness: sanderling_os::poll::Readiness) {
        self.socket.note(readiness);
    }

    /// Does what can be done now, up to the share of a turn. An error is the peer's: it is gone.
    pub(crate) fn advance(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if let Phase::Lingering(linger) = &mut self.phase {
            return linger.go_on(&self.stream, &mut self.socket, &mut context.buffers.scratch);
        }
        if !self.outbox.is_empty() {
            if context.is_draining {
                self.phase = Phase::Ending;
            }
            if !self.socket.is_writable {
                return Ok(Next::Wait);
            }
            let mut progress = 0;
            let sent = self.outbox.resume(&self.stream, &mut context.buffers.scratch, &mut progress)?;
            if let Some(next) = self.after_sending(sent, progress, context) {
                return Ok(next);
            }
        }
        self.serve(context)
    }

    /// Receives, answers, sends, until nothing more is there or the turn's share is used.
    fn serve(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        let mut left_count = QUERIES_PER_TURN_MAX;
        loop {
            let received = self.fill(context)?;
            // Lent out of the buffers while answers are written there; taking it out costs two words.
            let room = std::mem::take(&mut context.buffers.input);
            let mut input = Input::new(&room[..received]);
            context.buffers.output.clear();
            let outcome = self.answer_input(&mut input, &mut left_count, context);
            self.kept = input.rest().to_vec();
            let has_answered = input.consumed() != 0;
            context.buffers.input = room;
            if has_answered {
                // A query that has begun to come gets no more time with each octet; a whole one gives the next its own.
                self.schedule.at_ms = context.clock.now_ms() + ms(context.options.dns.tcp_idle_timeout);
                self.schedule.last_turn = context.turn;
                if context.is_draining {
                    self.phase = Phase::Ending;
                }
            }
            if !context.buffers.output.is_empty() {
                let is_end = matches!(outcome, Outcome::NeedsMore) && self.is_at_its_end();
                let sent_bytes = if is_end { self.send_before_end(&context.buffers.output)? } else { 0 };
                let mut progress = 0;
                let Buffers { output, scratch, .. } = &mut *context.buffers;
                let unsent = &output[sent_bytes..];
                let sent = self.outbox.send(&self.stream, unsent, None, More::No, scratch, &mut progress)?;
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
                Outcome::NeedsMore => return self.rest(context),
            }
        }
    }

    /// Whether our side ends behind what is to be sent now.
    fn is_at_its_end(&self) -> bool {
        self.phase == Phase::Ending && self.kept.is_empty() && !self.socket.is_readable
    }

    /// Sends the start of the last answers. The kernel holds back what it may until the end of our side follows, and both
    /// leave together: who asks one query after another sees the end before he asks the next.
    fn send_before_end(&self, output: &[u8]) -> io::Result<usize> {
        match self.stream.send(output, More::Yes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Nothing more is there for now.
    fn rest(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if !self.kept.is_empty() {
            return Ok(Next::Wait);
        }
        if self.phase == Phase::Ending {
            let mut linger = Linger::begin(&self.stream, &mut self.schedule, context.clock)?;
            let next = linger.go_on(&self.stream, &mut self.socket, &mut context.buffers.scratch);
            self.phase = Phase::Lingering(linger);
            return next;
        }
        self.schedule.at_ms = self.schedule.at_ms.min(context.leave_by_ms());
        Ok(Next::Wait)
    }

    /// The deadline has passed. When the server drains, a query that came at the last moment is answered all the same.
    pub(crate) fn expire(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        if !context.is_draining || self.phase != Phase::Open || !self.kept.is_empty() {
            return Ok(Next::Close);
        }
        self.socket.is_readable = !self.socket.has_ended;
        match self.serve(context)? {
            Next::Wait if self.phase == Phase::Open && self.kept.is_empty() => Ok(Next::Close),
            next => Ok(next),
        }
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
        input: &mut Input<'_>,
        left_count: &mut usize,
        context: &mut Context<'_, 's>,
    ) -> Outcome {
        let mut in_flight = 0;
        loop {
            let Some((length, rest)) = input.rest().split_first_chunk::<LENGTH_BYTES>() else {
                return Outcome::NeedsMore;
            };
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
            input.skip(LENGTH_BYTES + length);
            let reply = &mut context.buffers.scratch;
            let now_unix_s = context.clock.unix_s();
            let info = RequestInfo { client: UNKNOWN_CLIENT, transport: Transport::Tcp, now_unix_s };
            match sanderling_dns::answer(context.content.zones(), &info, query, reply) {
                Answered::Reply(length_bytes) => {
                    output.extend_from_slice(&(length_bytes as u16).to_be_bytes());
                    output.extend_from_slice(&reply[..length_bytes]);
                }
                Answered::Drop => context.tally.add(Counter::DnsSilences, 1),
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
            self.schedule.last_turn = context.turn;
        }
        self.socket.is_writable = false;
        Some(Next::Wait)
    }
}
