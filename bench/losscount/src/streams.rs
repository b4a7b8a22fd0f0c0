//! Due requests turned into connections that carry them: HTTP and DNS over TCP, new for each request or kept.

use crate::lane::{Exchange, Turn};
use crate::outcome::{Cause, Note};
use crate::poller::{Interest, Ready};
use crate::protocol::{Protocol, Taken};
use crate::schedule::Request;
use crate::slots::{Slots, Token};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Connections of one kind at a time. A silent server reaches it at a rate times deadline above it.
const CONNECTION_COUNT_MAX: usize = 16 * 1024;
/// Octets of one receive.
const RECEIVE_BYTES: usize = 64 * 1024;

/// When the server's closing of an idle connection is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleNotice {
    /// As soon as it arrives, at latest when the connection is about to be used again: on loopback hardly a request meets
    /// it.
    AtOnce,
    /// Only when the next request has been sent, which is then lost: the worst case of a distant client, whose requests
    /// are on their way while the server closes.
    AtNextRequest,
}

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reuse {
    /// It ends.
    Never,
    /// It is kept for later requests while there are no more than this many. Others are opened when all of them are busy,
    /// and end with their answer.
    Kept { connection_count: usize, idle_notice: IdleNotice },
}

/// The connections of one kind of request.
pub(crate) struct Streams<P: Protocol> {
    peer: SocketAddr,
    protocol: P,
    reuse: Reuse,
    deadline: Duration,
    connections: Slots<Connection<P::Answer>>,
    /// Exactly those at [`Stage::Idle`], the longest idle first: each has its turn.
    idle: VecDeque<Token>,
    /// In the order of time, for all requests have one deadline.
    deadlines: VecDeque<(Instant, Token, u64)>,
    /// Connections that are not idle.
    busy_count: usize,
    buffer: Box<[u8]>,
}

struct Connection<A> {
    stream: OwnedFd,
    stage: Stage<A>,
    /// The latest request on it.
    request: Request,
    request_count: u64,
    unsent: Vec<u8>,
    /// Of the latest answer.
    received_bytes: usize,
}

enum Stage<A> {
    /// The request is on its way, or its answer is.
    Asked(A),
    /// Kept, with no request outstanding.
    Idle,
    /// The answer is whole, and the server is to close.
    Closing,
}

/// Whether all octets have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    All,
    Part,
}

impl<P: Protocol> Streams<P> {
    pub(crate) fn new(peer: SocketAddr, protocol: P, reuse: Reuse, deadline: Duration) -> Streams<P> {
        Streams {
            peer,
            protocol,
            reuse,
            deadline,
            connections: Slots::new(),
            idle: VecDeque::new(),
            deadlines: VecDeque::new(),
            busy_count: 0,
            buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
        }
    }

    /// A kept connection for the next request, when there are as many as are to be kept.
    fn take_idle(&mut self, turn: &mut Turn<'_>) -> Option<Token> {
        let Reuse::Kept { connection_count, idle_notice } = self.reuse else { return None };
        // Each time round one connection ends.
        while self.connections.count() >= connection_count {
            let token = *self.idle.front()?;
            let connection = self.connections.find(token).expect("what ends is idle no more");
            if idle_notice == IdleNotice::AtNextRequest || connection.is_silent() {
                return self.idle.pop_front();
            }
            // The poller has not told of it yet.
            self.receive(token, turn);
        }
        None
    }

    fn send_on_new(&mut self, request: Request, turn: &mut Turn<'_>) {
        if self.connections.count() >= CONNECTION_COUNT_MAX {
            let detail = || format!("{CONNECTION_COUNT_MAX} connections wait for their answers");
            return turn.tally.count_lost(request, Cause::Unsent, turn.now, detail);
        }
        let stream = match connect(self.peer) {
            Ok(stream) => stream,
            Err(errno) => {
                let (cause, detail) = (Cause::of(errno, 0), || format!("no connection: {errno}"));
                return turn.tally.count_lost(request, cause, turn.now, detail);
            }
        };
        turn.tally.note(Note::Opened);
        let mut unsent = Vec::new();
        let stage = Stage::Asked(self.protocol.ask(&mut unsent));
        let connection = Connection { stream, stage, request, request_count: 1, unsent, received_bytes: 0 };
        let token = self.connections.insert(connection);
        self.send_on(token, IsWatched::No, turn);
    }

    fn send_on_idle(&mut self, token: Token, request: Request, turn: &mut Turn<'_>) {
        let connection = self.connections.find(token).expect("what ends is idle no more");
        connection.request = request;
        connection.request_count += 1;
        connection.received_bytes = 0;
        connection.stage = Stage::Asked(self.protocol.ask(&mut connection.unsent));
        let is_watched = match self.reuse {
            Reuse::Kept { idle_notice: IdleNotice::AtNextRequest, .. } => IsWatched::No,
            _ => IsWatched::Yes,
        };
        self.send_on(token, is_watched, turn);
    }

    /// Sends the request that the connection has, and sees to it that what comes back is waited for.
    fn send_on(&mut self, token: Token, is_watched: IsWatched, turn: &mut Turn<'_>) {
        self.busy_count += 1;
        let connection = self.connections.find(token).expect("the caller has it");
        self.deadlines.push_back((connection.request.due + self.deadline, token, connection.request.number));
        // On loopback the handshake ends within `connect`, so that the first try succeeds.
        let sent = match connection.send_rest() {
            Ok(sent) => sent,
            Err(errno) => return self.fail(token, errno, turn),
        };
        let interest = match sent {
            Sent::All => Interest::IN,
            Sent::Part => Interest::IN | Interest::OUT,
        };
        let watched = match (is_watched, sent) {
            (IsWatched::No, _) => turn.poller.add(&connection.stream, token.to_bits(), interest),
            (IsWatched::Yes, Sent::Part) => turn.poller.modify(&connection.stream, token.to_bits(), interest),
            (IsWatched::Yes, Sent::All) => Ok(()),
        };
        if let Err(error) = watched {
            self.lose(token, Cause::Unsent, &format!("epoll: {error}"), turn);
        }
    }

    fn send_more(&mut self, token: Token, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.find(token) else { return };
        if connection.unsent.is_empty() {
            return;
        }
        match connection.send_rest() {
            Ok(Sent::Part) => {}
            Ok(Sent::All) => {
                if let Err(error) = turn.poller.modify(&connection.stream, token.to_bits(), Interest::IN) {
                    self.lose(token, Cause::Unsent, &format!("epoll: {error}"), turn);
                }
            }
            Err(errno) => self.fail(token, errno, turn),
        }
    }

    /// One receive: the poller tells again when there is more.
    fn receive(&mut self, token: Token, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.find(token) else { return };
        let length_bytes = match rustix::net::recv(&connection.stream, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((length_bytes, _)) => length_bytes,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(errno) => return self.fail(token, errno, turn),
        };
        turn.now = Instant::now();
        if length_bytes == 0 {
            return self.handle_end(token, turn);
        }
        let Stage::Asked(answer) = &mut connection.stage else {
            turn.tally.note(Note::Stray);
            return self.close(token);
        };
        connection.received_bytes += length_bytes;
        match self.protocol.take(answer, &self.buffer[..length_bytes]) {
            Taken::More => {}
            Taken::Wrong(cause, what) => self.lose(token, cause, &what, turn),
            Taken::Whole { closes } => self.handle_whole(token, closes, turn),
        }
    }

    fn handle_whole(&mut self, token: Token, closes: bool, turn: &mut Turn<'_>) {
        let open_count = self.connections.count();
        let connection = self.connections.find(token).expect("it has just received");
        turn.tally.count_ok(connection.request, turn.now);
        match self.reuse {
            Reuse::Never if P::SERVER_CLOSES => connection.stage = Stage::Closing,
            Reuse::Never => self.close(token),
            Reuse::Kept { .. } if closes => {
                turn.tally.note(Note::PoliteClose);
                self.close(token);
            }
            // It was opened when all others were busy, and is one too many now.
            Reuse::Kept { connection_count, .. } if open_count > connection_count => self.close(token),
            Reuse::Kept { idle_notice, .. } => {
                connection.stage = Stage::Idle;
                self.busy_count -= 1;
                self.idle.push_back(token);
                if idle_notice == IdleNotice::AtNextRequest {
                    turn.poller.remove(&connection.stream).expect("it has just been ready");
                }
            }
        }
    }

    /// The server has closed its side.
    fn handle_end(&mut self, token: Token, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.find(token) else { return };
        let received_bytes = connection.received_bytes;
        match connection.stage {
            Stage::Asked(_) if received_bytes == 0 => {
                self.lose(token, Cause::ClosedBefore, "the end instead of an answer", turn);
            }
            Stage::Asked(_) => self.lose(token, Cause::Short, &format!("the end after {received_bytes} octets"), turn),
            Stage::Idle => {
                turn.tally.note(Note::IdleClose);
                self.close(token);
            }
            Stage::Closing => self.close(token),
        }
    }

    /// The kernel has said that the connection is no more, or never was.
    fn fail(&mut self, token: Token, errno: Errno, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.find(token) else { return };
        let received_bytes = connection.received_bytes;
        match connection.stage {
            Stage::Asked(_) => {
                let what = format!("{errno} after {received_bytes} octets");
                self.lose(token, Cause::of(errno, received_bytes), &what, turn);
            }
            Stage::Idle => {
                turn.tally.note(Note::IdleReset);
                self.close(token);
            }
            Stage::Closing => {
                turn.tally.note(Note::ClosingReset);
                self.close(token);
            }
        }
    }

    fn lose(&mut self, token: Token, cause: Cause, what: &str, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.find(token) else { return };
        let (stream, request_count) = (connection.stream.as_fd(), connection.request_count);
        turn.tally.count_lost(connection.request, cause, turn.now, || {
            let from = rustix::net::getsockname(stream).ok().and_then(|address| SocketAddr::try_from(address).ok());
            let from = from.map_or_else(|| "an unknown port".to_owned(), |address| address.to_string());
            format!("{what}; request {request_count} on the connection from {from}")
        });
        self.close(token);
    }

    fn close(&mut self, token: Token) {
        match self.connections.remove(token) {
            None => {}
            Some(Connection { stage: Stage::Idle, .. }) => self.idle.retain(|idle| *idle != token),
            Some(_) => self.busy_count -= 1,
        }
    }
}

/// Whether the poller has the connection already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsWatched {
    Yes,
    No,
}

impl<P: Protocol> Exchange for Streams<P> {
    fn send(&mut self, request: Request, turn: &mut Turn<'_>) {
        match self.take_idle(turn) {
            Some(token) => self.send_on_idle(token, request, turn),
            None => self.send_on_new(request, turn),
        }
    }

    fn handle_ready(&mut self, ready: Ready, turn: &mut Turn<'_>) {
        let token = Token::from_bits(ready.token_bits);
        self.send_more(token, turn);
        if ready.can_receive() {
            self.receive(token, turn);
        }
    }

    fn expire(&mut self, turn: &mut Turn<'_>) {
        while let Some(&(at, token, number)) = self.deadlines.front()
            && at <= turn.now
        {
            self.deadlines.pop_front();
            let Some(connection) = self.connections.find(token) else { continue };
            if connection.request.number != number {
                continue;
            }
            match connection.stage {
                Stage::Asked(_) => {
                    let received_bytes = connection.received_bytes;
                    self.lose(token, Cause::Timeout, &format!("the deadline after {received_bytes} octets"), turn);
                }
                Stage::Closing => {
                    turn.tally.note(Note::NotClosed);
                    self.close(token);
                }
                Stage::Idle => {}
            }
        }
    }

    fn outstanding_count(&self) -> usize {
        self.busy_count
    }
}

impl<A> Connection<A> {
    /// Whether neither octets have come, nor an end, nor an error.
    fn is_silent(&self) -> bool {
        let peeked = rustix::net::recv(&self.stream, &mut [0], RecvFlags::PEEK);
        matches!(peeked, Err(Errno::AGAIN))
    }

    fn send_rest(&mut self) -> Result<Sent, Errno> {
        // A peer's reset is an error of the call, and no signal.
        match rustix::net::send(&self.stream, &self.unsent, SendFlags::NOSIGNAL) {
            Ok(length_bytes) => drop(self.unsent.drain(..length_bytes)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(if self.unsent.is_empty() { Sent::All } else { Sent::Part })
    }
}

fn connect(peer: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&stream, &peer) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(errno) => Err(errno),
    }
}
