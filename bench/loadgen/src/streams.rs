//! The client for HTTP and DNS over TCP: connections that carry one request each, or that persist.

use crate::outcome::{Cause, Note};
use crate::runner::{Client, Context, Interest, Poller, Request};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Open connections of one kind. A server that does not respond leaves rate × deadline of them open.
const CONNECTION_COUNT_MAX: usize = 16 * 1024;
/// Bytes of one receive.
const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// A protocol with one outstanding request per connection.
pub(crate) trait Protocol {
    /// A response that is being received.
    type Response;
    /// Whether the server closes the connection after the only response on it; otherwise the client does.
    const SERVER_CLOSES: bool;

    /// Appends the next request to `out` and returns the response to be received.
    fn request(&mut self, out: &mut Vec<u8>) -> Self::Response;
    /// Checks the next bytes of the response.
    fn receive(&mut self, response: &mut Self::Response, bytes: &[u8]) -> Verdict;
}

/// The state of a response after some more bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Correct so far, and incomplete.
    Incomplete,
    /// Complete and correct.
    Correct {
        /// Whether the server has announced that it closes the connection.
        closes: bool,
    },
    /// Lost, with the details.
    Lost(Cause, String),
}

/// When the client notices that the server has closed an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleClose {
    /// Immediately, at the latest before the connection is used again: on loopback hardly any request is lost.
    Immediately,
    /// After the next request was sent, which is then lost: the worst case of a distant client, whose requests are
    /// on their way while the server closes.
    AtNextRequest,
}

/// What happens to a connection after a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reuse {
    /// It ends.
    Never,
    /// It persists while there are no more than this many. More are opened when all are busy, and end with their
    /// response.
    Kept { connection_count: usize, idle_close: IdleClose },
}

/// The connections of one kind of request.
pub(crate) struct Streams<P: Protocol> {
    server: SocketAddr,
    protocol: P,
    reuse: Reuse,
    deadline: Duration,
    connections: SlotMap<DefaultKey, Connection<P::Response>>,
    /// The connections in [`State::Idle`], the longest idle first.
    idle: VecDeque<DefaultKey>,
    /// In the order of time, as all requests have the same deadline.
    deadlines: VecDeque<(Instant, DefaultKey, u64)>,
    buffer: Box<[u8]>,
}

struct Connection<R> {
    stream: OwnedFd,
    state: State<R>,
    /// The events that the poller reports; `None` when the connection is not registered.
    interest: Option<Interest>,
    /// The latest request.
    request: Request,
    request_count: u64,
    unsent: Vec<u8>,
    /// Bytes of the latest response.
    received_bytes: usize,
}

enum State<R> {
    /// A request or its response is in transit.
    Busy(R),
    /// Persistent, without an outstanding request.
    Idle,
    /// The response is complete, and the server is expected to close.
    Closing,
}

impl<P: Protocol> Streams<P> {
    pub(crate) fn new(server: SocketAddr, protocol: P, reuse: Reuse, deadline: Duration) -> Streams<P> {
        Streams {
            server,
            protocol,
            reuse,
            deadline,
            connections: SlotMap::new(),
            idle: VecDeque::new(),
            deadlines: VecDeque::new(),
            buffer: vec![0; RECEIVE_BYTES_MAX].into_boxed_slice(),
        }
    }

    /// An idle connection for the next request, when as many connections as wanted are open.
    fn take_idle(&mut self, cx: &mut Context<'_>) -> Option<DefaultKey> {
        let Reuse::Kept { connection_count, idle_close } = self.reuse else { return None };
        // Each iteration closes one connection.
        while self.connections.len() >= connection_count {
            let key = *self.idle.front()?;
            if idle_close == IdleClose::AtNextRequest || self.connections[key].has_nothing_to_receive() {
                return self.idle.pop_front();
            }
            // The poller has not reported it yet.
            self.receive(key, cx);
        }
        None
    }

    fn connect(&mut self, request: Request, cx: &mut Context<'_>) -> Option<DefaultKey> {
        if self.connections.len() >= CONNECTION_COUNT_MAX {
            let detail = || format!("{CONNECTION_COUNT_MAX} connections are open");
            cx.recorder.count_lost(request, Cause::NotSent, cx.now, detail);
            return None;
        }
        match connect(self.server) {
            Ok(stream) => {
                cx.recorder.note(Note::Opened);
                let (state, unsent) = (State::Idle, Vec::new());
                let connection =
                    Connection { stream, state, interest: None, request, request_count: 0, unsent, received_bytes: 0 };
                Some(self.connections.insert(connection))
            }
            Err(errno) => {
                cx.recorder.count_lost(request, Cause::of(errno, 0), cx.now, || format!("connect: {errno}"));
                None
            }
        }
    }

    fn send_more(&mut self, key: DefaultKey, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let interest = match connection.send_unsent() {
            Ok(()) if connection.unsent.is_empty() => Interest::IN,
            Ok(()) => Interest::IN | Interest::OUT,
            Err(errno) => return self.fail(key, errno, cx),
        };
        if let Err(error) = connection.watch(cx.poller, key, interest) {
            self.lose(key, Cause::NotSent, &format!("epoll_ctl: {error}"), cx);
        }
    }

    /// Receives once; the poller reports the connection again when there is more.
    fn receive(&mut self, key: DefaultKey, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let length_bytes = match rustix::net::recv(&connection.stream, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((length_bytes, _)) => length_bytes,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(errno) => return self.fail(key, errno, cx),
        };
        cx.now = Instant::now();
        if length_bytes == 0 {
            return self.handle_end(key, cx);
        }
        let State::Busy(response) = &mut connection.state else {
            cx.recorder.note(Note::Unexpected);
            return self.close(key);
        };
        connection.received_bytes += length_bytes;
        match self.protocol.receive(response, &self.buffer[..length_bytes]) {
            Verdict::Incomplete => {}
            Verdict::Lost(cause, detail) => self.lose(key, cause, &detail, cx),
            Verdict::Correct { closes } => self.handle_correct(key, closes, cx),
        }
    }

    fn handle_correct(&mut self, key: DefaultKey, closes: bool, cx: &mut Context<'_>) {
        let open_count = self.connections.len();
        let connection = &mut self.connections[key];
        cx.recorder.count_ok(connection.request, cx.now);
        match self.reuse {
            Reuse::Never if P::SERVER_CLOSES => connection.state = State::Closing,
            Reuse::Never => self.close(key),
            Reuse::Kept { .. } if closes => {
                cx.recorder.note(Note::ConnectionClose);
                self.close(key);
            }
            // It was opened while all others were busy.
            Reuse::Kept { connection_count, .. } if open_count > connection_count => self.close(key),
            Reuse::Kept { idle_close, .. } => {
                connection.state = State::Idle;
                self.idle.push_back(key);
                if idle_close == IdleClose::AtNextRequest {
                    connection.interest = None;
                    cx.poller.remove(&connection.stream).expect("the poller has just reported it");
                }
            }
        }
    }

    /// The server has closed its side.
    fn handle_end(&mut self, key: DefaultKey, cx: &mut Context<'_>) {
        let connection = &self.connections[key];
        let received_bytes = connection.received_bytes;
        match connection.state {
            State::Busy(_) if received_bytes == 0 => self.lose(key, Cause::ClosedBefore, "end of stream", cx),
            State::Busy(_) => {
                self.lose(key, Cause::ClosedDuring, &format!("end of stream after {received_bytes} bytes"), cx);
            }
            State::Idle => {
                cx.recorder.note(Note::IdleClose);
                self.close(key);
            }
            State::Closing => self.close(key),
        }
    }

    /// A call has failed: the connection is gone, or was never established.
    fn fail(&mut self, key: DefaultKey, errno: Errno, cx: &mut Context<'_>) {
        let connection = &self.connections[key];
        let received_bytes = connection.received_bytes;
        match connection.state {
            State::Busy(_) => {
                let detail = format!("{errno} after {received_bytes} bytes");
                return self.lose(key, Cause::of(errno, received_bytes), &detail, cx);
            }
            State::Idle => cx.recorder.note(Note::IdleReset),
            State::Closing => cx.recorder.note(Note::ResetAfter),
        }
        self.close(key);
    }

    fn lose(&mut self, key: DefaultKey, cause: Cause, what: &str, cx: &mut Context<'_>) {
        let Connection { stream, request, request_count, .. } = &self.connections[key];
        cx.recorder.count_lost(*request, cause, cx.now, || {
            let address = rustix::net::getsockname(stream.as_fd()).ok().and_then(|any| SocketAddr::try_from(any).ok());
            let from = address.map_or_else(|| "an unknown port".to_owned(), |address| address.to_string());
            format!("{what}; request {request_count} on the connection from {from}")
        });
        self.close(key);
    }

    fn close(&mut self, key: DefaultKey) {
        if let Some(Connection { state: State::Idle, .. }) = self.connections.remove(key) {
            self.idle.retain(|idle| *idle != key);
        }
    }
}

impl<P: Protocol> Client for Streams<P> {
    fn send(&mut self, request: Request, cx: &mut Context<'_>) {
        let Some(key) = self.take_idle(cx).or_else(|| self.connect(request, cx)) else { return };
        let connection = &mut self.connections[key];
        connection.request = request;
        connection.request_count += 1;
        connection.received_bytes = 0;
        connection.state = State::Busy(self.protocol.request(&mut connection.unsent));
        self.deadlines.push_back((request.due + self.deadline, key, request.number));
        // On loopback the handshake ends within `connect`, so the first attempt succeeds.
        self.send_more(key, cx);
    }

    fn handle_event(&mut self, token: u64, ready: Interest, cx: &mut Context<'_>) {
        let key = DefaultKey::from(KeyData::from_ffi(token));
        if self.connections.get(key).is_some_and(|connection| !connection.unsent.is_empty()) {
            self.send_more(key, cx);
        }
        if ready.intersects(Interest::IN | Interest::HUP | Interest::ERR) {
            self.receive(key, cx);
        }
    }

    fn expire(&mut self, cx: &mut Context<'_>) {
        while let Some(&(at, key, number)) = self.deadlines.front()
            && at <= cx.now
        {
            self.deadlines.pop_front();
            let Some(connection) = self.connections.get(key) else { continue };
            if connection.request.number != number {
                continue;
            }
            match connection.state {
                State::Busy(_) => {
                    let detail = format!("deadline after {} bytes", connection.received_bytes);
                    self.lose(key, Cause::Timeout, &detail, cx);
                }
                State::Closing => {
                    cx.recorder.note(Note::NotClosed);
                    self.close(key);
                }
                State::Idle => {}
            }
        }
    }

    fn outstanding_count(&self) -> usize {
        self.connections.len() - self.idle.len()
    }
}

impl<R> Connection<R> {
    /// Whether neither bytes nor an end nor an error has arrived.
    fn has_nothing_to_receive(&self) -> bool {
        matches!(rustix::net::recv(&self.stream, &mut [0], RecvFlags::PEEK), Err(Errno::AGAIN))
    }

    fn send_unsent(&mut self) -> Result<(), Errno> {
        // NOSIGNAL makes a reset an error of the call instead of a signal.
        match rustix::net::send(&self.stream, &self.unsent, SendFlags::NOSIGNAL) {
            Ok(length_bytes) => drop(self.unsent.drain(..length_bytes)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn watch(&mut self, poller: &Poller, key: DefaultKey, interest: Interest) -> std::io::Result<()> {
        let token = key.data().as_ffi();
        match self.interest.replace(interest) {
            None => poller.add(&self.stream, token, interest),
            Some(current) if current != interest => poller.modify(&self.stream, token, interest),
            Some(_) => Ok(()),
        }
    }
}

fn connect(server: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&stream, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(errno) => Err(errno),
    }
}
