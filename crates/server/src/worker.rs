//! One thread with its own poller: HTTP connections and DNS streams, each given its share of every turn.
//!
//! The poller is edge-triggered: it tells once that a source is ready. Whoever stops before its source is empty stands
//! in the list of the unfinished and goes on in the next turn, which then does not wait.

use crate::clock::{Clock, Milliseconds, ms};
use crate::connection::Connection;
use crate::content::Content;
use crate::deadlines::Deadlines;
use crate::dns_stream::DnsStream;
use crate::files::Files;
use crate::fills::Inbox;
use crate::gate::{Gate, GateState, Protocol};
use crate::peer::{Buffers, Context, Next, Schedule};
use crate::permits::Permit;
use crate::shared::Shared;
use crate::slab::{Key, Slab};
use crate::stage::{Drain, Stage, Taker};
use crate::tally::{Counter, Tally};
use sanderling_os::error::{ErrorClass, classify};
use sanderling_os::poll::{Events, Interest, Poller, Readiness, Token};
use sanderling_os::tcp::{BACKLOG, Stream};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Sources that one wait tells of.
const EVENTS_PER_WAIT_MAX: usize = 256;
/// Connections that one listener hands over in one turn.
const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Connections of a shared listener after which its other workers are woken before this one.
const ACCEPTS_PER_PLACE: usize = 16;
/// How long nobody is accepted when there is no permit, no descriptor or no memory for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection of either protocol.
#[derive(Debug)]
enum Peer<'s> {
    Http(Connection<'s>),
    Dns(DnsStream<'s>),
}

/// What a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Peer(Key),
    Listener(usize),
    /// Somebody wants the worker to look at what the server says.
    Wakeup,
}

/// Who is left in a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Nobody.
    None,
    /// Others, perhaps, who come in the next turn.
    Some,
    /// Others, perhaps, for whom there is nothing now.
    Later,
}

/// What a worker is given.
pub(crate) struct Post<'s> {
    pub(crate) poller: Poller,
    pub(crate) gates: Vec<Gate<'s>>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) taker: Taker<'s>,
}

/// A worker.
pub(crate) struct Worker<'s> {
    shared: &'s Shared,
    poller: Poller,
    gates: Vec<Gate<'s>>,
    peers: Slab<Peer<'s>>,
    /// Sources that had more than their share, each once.
    unfinished: Vec<Source>,
    /// DNS streams that were accepted at the bound, and wait for another one to make room.
    at_the_bound: Vec<Stream>,
    deadlines: Deadlines,
    turns_given: u64,
    clock: Clock,
    buffers: Buffers,
    files: Files<'s>,
    content: Arc<Content>,
    content_version: u64,
    tally: Arc<Tally>,
    inbox: Arc<Inbox>,
    /// How far the server was at the last turn.
    stage: Stage,
    /// When those who still have not finished are cut off, once the server drains.
    drained_by_ms: Option<Milliseconds>,
    /// Until when others are let in all the same, where nobody serves on: who has connected and not asked may be with the
    /// kernel still ([`Listener::set_defer_accept`](sanderling_os::tcp::Listener::set_defer_accept)).
    last_call_until_ms: Option<Milliseconds>,
    /// Given back when nobody is let in any more.
    taker: Option<Taker<'s>>,
}

/// The token of whatever wakes a worker.
pub(crate) const WAKEUP: Token = KIND_WAKEUP << Key::BITS;
const KIND_PEER: usize = 0;
const KIND_LISTENER: usize = 1;
const KIND_WAKEUP: usize = 2;

impl Source {
    fn token(self) -> Token {
        match self {
            Source::Peer(key) => KIND_PEER << Key::BITS | key.packed() as usize,
            Source::Listener(index) => KIND_LISTENER << Key::BITS | index,
            Source::Wakeup => WAKEUP,
        }
    }

    fn of(token: Token) -> Source {
        let rest = token & ((1 << Key::BITS) - 1);
        match token >> Key::BITS {
            KIND_PEER => Source::Peer(Key::unpacked(rest as u64)),
            KIND_LISTENER => Source::Listener(rest),
            _ => Source::Wakeup,
        }
    }
}

impl<'s> Worker<'s> {
    /// The worker `index`.
    pub(crate) fn new(shared: &'s Shared, index: usize, post: Post<'s>) -> io::Result<Worker<'s>> {
        let Post { poller, mut gates, inbox, tally, taker } = post;
        for (index, gate) in gates.iter_mut().enumerate() {
            gate.register(Source::Listener(index).token(), &poller)?;
        }
        let (content, content_version) = shared.content();
        Ok(Worker {
            shared,
            poller,
            gates,
            peers: Slab::new(),
            unfinished: Vec::new(),
            at_the_bound: Vec::new(),
            deadlines: Deadlines::default(),
            turns_given: 0,
            clock: shared.clock(),
            buffers: Buffers::new(&shared.options),
            files: Files::new(&shared.open_files, index),
            content,
            content_version,
            tally,
            inbox,
            stage: Stage::Serving,
            drained_by_ms: None,
            last_call_until_ms: None,
            taker: Some(taker),
        })
    }

    /// Serves until the server drains and all peers have left or were cut off.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_WAIT_MAX);
        while !self.is_drained() {
            self.turn(&mut events)?;
        }
        Ok(())
    }

    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        self.tally.beat.begin_waiting();
        self.poller.wait(events, self.timeout())?;
        self.tally.beat.begin_turn();
        self.clock.tick();
        self.take_up_content();
        self.take_up_stage()?;
        let unfinished = std::mem::take(&mut self.unfinished);
        for (token, readiness) in events.iter() {
            self.dispatch(Source::of(token), Some(readiness));
        }
        for source in unfinished {
            self.dispatch(source, None);
        }
        self.expire();
        self.make_room();
        // Behind all that lets peers go: others have their room at once.
        self.accept_again();
        self.end_last_call()?;
        self.files.sweep();
        Ok(())
    }

    /// How long to wait: not at all while somebody has more to do.
    fn timeout(&self) -> Option<Duration> {
        if !self.unfinished.is_empty() {
            return Some(Duration::ZERO);
        }
        let paused = self.gates.iter().filter_map(Gate::paused_until_ms);
        let drain = self.drained_by_ms.into_iter().chain(self.last_call_until_ms);
        let next_ms = paused.chain(self.deadlines.next_ms()).chain(drain).min()?;
        // One more than the difference: a clock of milliseconds that is short of the deadline would wait for nothing.
        Some(Duration::from_millis(next_ms.saturating_sub(self.clock.now_ms()) + 1))
    }

    fn take_up_content(&mut self) {
        if self.shared.content_version() != self.content_version {
            (self.content, self.content_version) = self.shared.content();
        }
    }

    /// When the server has begun to drain: lets nobody in any more, at once or behind a last call, and lets those know who
    /// are there.
    fn take_up_stage(&mut self) -> io::Result<()> {
        let stage = self.shared.course.stage();
        if stage == self.stage {
            return Ok(());
        }
        self.stage = stage;
        let now_ms = self.clock.now_ms();
        self.drained_by_ms.get_or_insert(now_ms + ms(self.shared.drain_timeout));
        match stage {
            Stage::Draining(Drain::ForGood) => {
                self.last_call_until_ms = Some(now_ms + ms(self.shared.options.last_grace()));
            }
            _ => self.close_gates()?,
        }
        let peers: Vec<Key> = self.peers.iter().map(|(key, _)| key).collect();
        for key in peers {
            // The unfinished have their turn anyway.
            if self.peers.at(key).is_some_and(|peer| !peer.schedule().is_unfinished) {
                self.advance(key, None);
            }
        }
        Ok(())
    }

    fn end_last_call(&mut self) -> io::Result<()> {
        match self.last_call_until_ms {
            Some(until_ms) if until_ms <= self.clock.now_ms() => self.close_gates(),
            _ => Ok(()),
        }
    }

    fn close_gates(&mut self) -> io::Result<()> {
        self.last_call_until_ms = None;
        for index in 0..self.gates.len() {
            self.gates[index].deregister(&self.poller)?;
            // One whose streams wait for room is closed behind them.
            if self.gates[index].protocol == Protocol::Http || self.gates[index].paused_until_ms().is_none() {
                self.close_gate(index);
            }
        }
        self.taker = None;
        Ok(())
    }

    /// Lets in who must not be left waiting in the listener, and then nobody.
    fn close_gate(&mut self, index: usize) {
        self.gates[index].state = GateState::Closed;
        // One that waits in a shared listener may have woken this worker and nobody else: whoever serves on would not hear
        // of him before another one comes.
        if self.gates[index].is_shared || self.stage != Stage::Draining(Drain::ForAnother) {
            self.let_in(index, BACKLOG as usize);
        }
    }

    fn is_drained(&self) -> bool {
        let is_empty = || {
            self.peers.is_empty()
                && self.at_the_bound.is_empty()
                && self.gates.iter().all(|gate| gate.state == GateState::Closed)
        };
        self.drained_by_ms.is_some_and(|by_ms| is_empty() || self.clock.now_ms() >= by_ms)
    }

    /// Does what is to be done for one source. What goes wrong with a peer ends that peer alone.
    fn dispatch(&mut self, source: Source, readiness: Option<Readiness>) {
        match source {
            Source::Peer(key) => self.advance(key, readiness),
            Source::Listener(index) => self.accept(index),
            Source::Wakeup => {
                for done in self.inbox.take() {
                    self.with_peer(done.peer, |peer, context| {
                        if let Peer::Http(connection) = peer {
                            connection.note_file(done.trouble);
                        }
                        peer.advance(context)
                    });
                }
            }
        }
    }

    fn advance(&mut self, key: Key, readiness: Option<Readiness>) {
        let Some(peer) = self.peers.at(key) else { return };
        if let Some(readiness) = readiness {
            peer.note(readiness);
            if peer.schedule().is_unfinished {
                // Its turn comes when the unfinished have theirs: nobody has two.
                return;
            }
        }
        self.turns_given += 1;
        peer.schedule().is_unfinished = false;
        self.with_peer(key, Peer::advance);
    }

    /// Lets in who waits: until nobody does, since that is told once, and a share of them in each turn. On a shared
    /// listener that is no less fair than one at a time: each who comes wakes another worker that waits.
    fn accept(&mut self, index: usize) {
        if self.gates.get(index).is_none_or(|gate| gate.state != GateState::Open) {
            return;
        }
        if self.let_in(index, ACCEPTS_PER_TURN_MAX) == Rest::Some {
            self.unfinished.push(Source::Listener(index));
        }
        if self.gates[index].is_shared && self.gates[index].place_accept_count >= ACCEPTS_PER_PLACE {
            self.step_behind(index);
        }
    }

    /// Lets up to `count_max` in.
    fn let_in(&mut self, index: usize, count_max: usize) -> Rest {
        let Gate { protocol, listener, .. } = self.gates[index];
        for _ in 0..count_max {
            // Who finds no permit for HTTP waits in the listener's queue; for DNS somebody else makes room.
            let mut permit = None;
            if protocol == Protocol::Http {
                permit = self.shared.http_permits.take();
                if permit.is_none() {
                    return self.pause(index);
                }
            }
            match listener.accept() {
                Ok(Some((stream, _))) => match permit.or_else(|| self.dns_permit()) {
                    Some(permit) => self.enter(protocol, stream, permit),
                    None => {
                        self.at_the_bound.push(stream);
                        self.shared.ask_for_room();
                        return self.pause(index);
                    }
                },
                Ok(None) => return Rest::None,
                Err(error) => {
                    self.tally.add(Counter::AcceptErrors, 1);
                    if classify(&error) == ErrorClass::Exhausted {
                        // Descriptors that are leased only are the ones that can be spared.
                        self.files.clear();
                    } else if self.gates[index].state == GateState::Closed {
                        // Its owner has shut it down.
                        return Rest::None;
                    }
                    return self.pause(index);
                }
            }
            self.gates[index].place_accept_count += 1;
        }
        Rest::Some
    }

    /// Lets the other workers of a shared listener be woken before this one: the kernel wakes the first of those who
    /// wait, in the order in which they registered, and would give nearly all connections to one.
    fn step_behind(&mut self, index: usize) {
        let gate = &mut self.gates[index];
        gate.place_accept_count = 0;
        let deregistered = gate.deregister(&self.poller);
        if deregistered.and_then(|()| gate.register(Source::Listener(index).token(), &self.poller)).is_err() {
            // No memory for it now: the listener is asked without it.
            self.pause(index);
        }
    }

    /// The right to one more DNS stream. At the bound, the stream that has been idle for longest makes room (RFC 7766
    /// §6.2.3): whoever holds a stream open without asking must not keep others from asking.
    fn dns_permit(&mut self) -> Option<Permit<'s>> {
        let shared = self.shared;
        shared.dns_permits.take().or_else(|| {
            self.close_longest_idle_stream();
            shared.dns_permits.take()
        })
    }

    /// Whether there was one.
    fn close_longest_idle_stream(&mut self) -> bool {
        let streams = self.peers.iter().filter_map(|(key, peer)| match peer {
            Peer::Dns(stream) => Some((stream.schedule.at_ms, stream.schedule.last_turn, key)),
            Peer::Http(_) => None,
        });
        streams.min().is_some_and(|(_, _, longest_idle)| self.leave(longest_idle))
    }

    /// Makes room for a stream that another worker has accepted and found none for.
    fn make_room(&mut self) {
        if self.shared.is_room_wanted() && self.close_longest_idle_stream() {
            self.shared.note_room();
        }
    }

    /// The listener is asked again later, ready or not: edge-triggered readiness will not be told twice. The others go
    /// on: who has used up the connections of one protocol must not silence the other.
    fn pause(&mut self, index: usize) -> Rest {
        self.gates[index].state = GateState::Paused { until_ms: self.clock.now_ms() + ms(ACCEPT_PAUSE) };
        Rest::Later
    }

    fn accept_again(&mut self) {
        let now_ms = self.clock.now_ms();
        for index in 0..self.gates.len() {
            if self.gates[index].paused_until_ms().is_none_or(|until_ms| now_ms < until_ms) {
                continue;
            }
            if self.gates[index].protocol == Protocol::Dns && !self.let_in_who_waits() {
                self.shared.ask_for_room();
                self.pause(index);
            } else if self.drained_by_ms.is_some() && self.last_call_until_ms.is_none() {
                self.close_gate(index);
            } else if self.register_again(index).is_err() {
                self.pause(index);
            } else {
                self.gates[index].state = GateState::Open;
                self.accept(index);
            }
        }
    }

    fn register_again(&mut self, index: usize) -> io::Result<()> {
        match self.gates[index].is_registered {
            true => Ok(()),
            false => self.gates[index].register(Source::Listener(index).token(), &self.poller),
        }
    }

    /// Whether all DNS streams that were accepted at the bound have found room.
    fn let_in_who_waits(&mut self) -> bool {
        while let Some(stream) = self.at_the_bound.pop() {
            match self.dns_permit() {
                Some(permit) => self.enter(Protocol::Dns, stream, permit),
                None => {
                    self.at_the_bound.push(stream);
                    return false;
                }
            }
        }
        true
    }

    /// Lets a new connection in. It is asked at once: its first request has mostly come with it.
    fn enter(&mut self, protocol: Protocol, stream: Stream, permit: Permit<'s>) {
        let now_ms = self.clock.now_ms();
        let options = &self.shared.options;
        let (counter, peer) = match protocol {
            Protocol::Http => {
                let deadline_ms = now_ms + ms(options.http.header_deadline);
                (Counter::HttpConnections, Peer::Http(Connection::new(stream, permit, deadline_ms)))
            }
            Protocol::Dns => {
                let deadline_ms = now_ms + ms(options.dns.tcp_idle_timeout);
                (Counter::DnsStreams, Peer::Dns(DnsStream::new(stream, permit, deadline_ms)))
            }
        };
        self.tally.add(counter, 1);
        let key = self.peers.insert(peer);
        self.advance(key, None);
        // Who came with a single request has left already, and is never waited for.
        let Some(peer) = self.peers.at(key) else { return };
        let token = Source::Peer(key).token();
        if self.poller.register(peer.stream(), token, Interest::ReadableAndWritable).is_err() {
            // No memory for one more: the connection is closed, as if it could not have been accepted.
            self.tally.add(Counter::AcceptErrors, 1);
            self.peers.remove(key);
        }
    }

    /// Lets `act` work on the peer, and does what it then wants.
    fn with_peer(&mut self, key: Key, act: impl FnOnce(&mut Peer<'s>, &mut Context<'_, 's>) -> io::Result<Next>) {
        let Some(peer) = self.peers.at(key) else { return };
        let mut context = Context {
            content: &self.content,
            files: &mut self.files,
            options: &self.shared.options,
            clock: &self.clock,
            buffers: &mut self.buffers,
            tally: &self.tally,
            key,
            turn: self.turns_given,
            is_draining: self.drained_by_ms.is_some(),
            drain_grace: match self.stage {
                Stage::Draining(Drain::ForGood) => self.shared.options.last_grace(),
                _ => self.shared.options.drain_grace,
            },
        };
        let next = match catch_unwind(AssertUnwindSafe(|| act(peer, &mut context))) {
            // An error of the kernel means that the peer is gone.
            Ok(next) => next.unwrap_or(Next::Close),
            Err(_) => {
                self.tally.add(Counter::Panics, 1);
                // Whatever state the room was left in, the next peer gets a fresh one.
                self.buffers = Buffers::new(&self.shared.options);
                Next::Close
            }
        };
        match next {
            Next::Close => {
                self.leave(key);
                return;
            }
            Next::Again => {
                peer.schedule().is_unfinished = true;
                self.unfinished.push(Source::Peer(key));
            }
            Next::Wait => {}
        }
        let schedule = peer.schedule();
        if schedule.at_ms < schedule.queued_ms {
            schedule.queued_ms = schedule.at_ms;
            self.deadlines.push(schedule.at_ms, key);
        }
    }

    /// Lets a peer go; whether it was there.
    fn leave(&mut self, key: Key) -> bool {
        match self.peers.remove(key) {
            Some(Peer::Http(_)) => {
                self.tally.add(Counter::HttpClosed, 1);
                self.gates.iter_mut().for_each(Gate::end_pause_of_http);
            }
            Some(Peer::Dns(_)) => self.tally.add(Counter::DnsStreamsClosed, 1),
            None => return false,
        }
        true
    }

    /// Looks at the peers whose deadline has passed, or would have if it had not moved.
    fn expire(&mut self) {
        let now_ms = self.clock.now_ms();
        while let Some((due_ms, key)) = self.deadlines.pop_due(now_ms) {
            let Some(peer) = self.peers.at(key) else { continue };
            let schedule = peer.schedule();
            if schedule.queued_ms != due_ms {
                // An earlier entry of the queue has been told since.
                continue;
            }
            if schedule.at_ms > now_ms {
                schedule.queued_ms = schedule.at_ms;
                self.deadlines.push(schedule.at_ms, key);
                continue;
            }
            schedule.queued_ms = Milliseconds::MAX;
            schedule.at_ms = Milliseconds::MAX;
            self.with_peer(key, Peer::expire);
        }
    }
}

impl<'s> Peer<'s> {
    fn stream(&self) -> &Stream {
        match self {
            Peer::Http(connection) => connection.stream(),
            Peer::Dns(stream) => stream.stream(),
        }
    }

    fn note(&mut self, readiness: Readiness) {
        match self {
            Peer::Http(connection) => connection.note(readiness),
            Peer::Dns(stream) => stream.note(readiness),
        }
    }

    fn advance(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        match self {
            Peer::Http(connection) => connection.advance(context),
            Peer::Dns(stream) => stream.advance(context),
        }
    }

    fn expire(&mut self, context: &mut Context<'_, 's>) -> io::Result<Next> {
        match self {
            Peer::Http(connection) => connection.expire(context),
            Peer::Dns(stream) => stream.expire(context),
        }
    }

    fn schedule(&mut self) -> &mut Schedule {
        match self {
            Peer::Http(connection) => &mut connection.schedule,
            Peer::Dns(stream) => &mut stream.schedule,
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.tally.beat.begin_waiting();
    }
}
