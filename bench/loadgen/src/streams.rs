//! The client for HTTP and DNS over TCP: connections that carry one request each, or that persist.

use crate::outcome::{Cause, Note};
use crate::report::{Recorder, Request};
use crate::tls::{Stream, Tls};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Open connections of one kind. A server that does not respond leaves rate × deadline of them open.
const CONNECTION_COUNT_MAX: usize = 16 * 1024;
const RECEIVE_BYTES_MAX: usize = 16 * 1024;

/// A protocol with one outstanding request per connection.
pub(crate) trait Protocol {
    type Response;
    /// Whether the server closes the connection after the only response on it; otherwise the client does.
    const SERVER_CLOSES: bool;

    /// The next request, and the response to be received.
    fn request(&self) -> (Vec<u8>, Self::Response);
    fn receive(&self, response: &mut Self::Response, bytes: &[u8]) -> Verdict;
}

/// The state of a response after some more bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Incomplete,
    /// Complete and correct; `closes` is whether the server has announced that it closes the connection.
    Correct {
        closes: bool,
    },
    Lost(Cause, String),
}

/// When the client notices that the server has closed an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleClose {
    /// The client notices at the latest before it reuses the connection: on loopback, hardly any request is lost.
    Immediately,
    /// The client notices after it has sent the next request, which is then lost: the worst case of a distant client,
    /// whose requests are in flight while the server closes.
    AtNextRequest,
}

/// The fate of a connection after a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reuse {
    Never,
    /// The connection persists while there are no more than this many. Further connections are opened when all are
    /// busy, and close after their response.
    Kept {
        connection_count: usize,
        idle_close: IdleClose,
    },
}

pub(crate) struct Streams<P> {
    pub(crate) server: SocketAddr,
    pub(crate) tls: Option<Tls>,
    pub(crate) protocol: P,
    pub(crate) reuse: Reuse,
    pub(crate) deadline: Duration,
    pub(crate) recorder: Rc<Recorder>,
    /// The longest idle first.
    idle: RefCell<VecDeque<Connection>>,
    open_count: Rc<Cell<usize>>,
}

struct Connection {
    stream: Stream,
    request_count: u64,
    open_count: Rc<Cell<usize>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open_count.set(self.open_count.get() - 1);
    }
}

impl<P: Protocol> Streams<P> {
    pub(crate) fn new(
        server: SocketAddr,
        tls: Option<Tls>,
        protocol: P,
        reuse: Reuse,
        deadline: Duration,
        recorder: &Rc<Recorder>,
    ) -> Rc<Streams<P>> {
        let (idle, open_count, recorder) = (RefCell::default(), Rc::default(), Rc::clone(recorder));
        Rc::new(Streams { server, tls, protocol, reuse, deadline, recorder, idle, open_count })
    }

    pub(crate) async fn exchange(self: Rc<Self>, request: Request) {
        let deadline = request.due + self.deadline;
        let lose = |cause, detail: String| self.recorder.count_lost(request, cause, || detail);
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None if self.open_count.get() >= CONNECTION_COUNT_MAX => {
                return lose(Cause::NotSent, format!("{CONNECTION_COUNT_MAX} connections are open"));
            }
            None => match timeout_at(deadline, self.connect()).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => return lose(cause_of(&error, 0), format!("connect: {error}")),
                Err(_) => return lose(Cause::Timeout, "deadline while connecting".to_owned()),
            },
        };
        connection.request_count += 1;
        let mut received_bytes = 0;
        let response = self.exchange_on(&mut connection.stream, &mut received_bytes);
        let verdict = timeout_at(deadline, response).await;
        let timeout = |_| Verdict::Lost(Cause::Timeout, format!("deadline after {received_bytes} bytes"));
        match verdict.unwrap_or_else(timeout) {
            Verdict::Correct { closes } => {
                self.recorder.count_ok(request);
                self.after_response(connection, closes, deadline).await;
            }
            Verdict::Lost(cause, detail) => {
                let address = connection.stream.tcp().local_addr();
                let from = address.map_or_else(|_| "an unknown port".to_owned(), |address| address.to_string());
                lose(cause, format!("{detail}; request {} on the connection from {from}", connection.request_count));
            }
            Verdict::Incomplete => unreachable!("an exchange ends with the response, or with a loss"),
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        self.open_count.set(self.open_count.get() + 1);
        let open_count = Rc::clone(&self.open_count);
        let stream = match Stream::connect(self.server, self.tls.as_ref()).await {
            Ok(stream) => stream,
            Err(error) => {
                open_count.set(open_count.get() - 1);
                return Err(error);
            }
        };
        self.recorder.note(Note::Opened);
        Ok(Connection { stream, request_count: 0, open_count })
    }

    async fn exchange_on(&self, stream: &mut Stream, received_bytes: &mut usize) -> Verdict {
        let (request, mut response) = self.protocol.request();
        let mut buffer = vec![0; RECEIVE_BYTES_MAX];
        let failed = |error: io::Error, received_bytes: usize| {
            Verdict::Lost(cause_of(&error, received_bytes), format!("{error} after {received_bytes} bytes"))
        };
        if let Err(error) = stream.write_all(&request).await {
            return failed(error, 0);
        }
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) if *received_bytes == 0 => return Verdict::Lost(Cause::ClosedBefore, "end of stream".to_owned()),
                Ok(0) => {
                    let detail = format!("end of stream after {received_bytes} bytes");
                    return Verdict::Lost(Cause::ClosedDuring, detail);
                }
                Ok(length) => {
                    *received_bytes += length;
                    match self.protocol.receive(&mut response, &buffer[..length]) {
                        Verdict::Incomplete => {}
                        verdict => return verdict,
                    }
                }
                Err(error) => return failed(error, *received_bytes),
            }
        }
    }

    /// Keeps the connection, or waits until the server closes it.
    async fn after_response(&self, mut connection: Connection, closes: bool, deadline: Instant) {
        match self.reuse {
            Reuse::Never if P::SERVER_CLOSES => match timeout_at(deadline, connection.stream.read(&mut [0])).await {
                Ok(Ok(0)) => {}
                Ok(Ok(_)) => self.recorder.note(Note::Unexpected),
                Ok(Err(_)) => self.recorder.note(Note::ResetAfter),
                Err(_) => self.recorder.note(Note::NotClosed),
            },
            Reuse::Never => {}
            Reuse::Kept { .. } if closes => self.recorder.note(Note::ConnectionClose),
            // The connection was opened while all others were busy.
            Reuse::Kept { connection_count, .. } if self.open_count.get() > connection_count => {}
            Reuse::Kept { .. } => self.idle.borrow_mut().push_back(connection),
        }
    }

    /// An idle connection for the next request, when as many connections as wanted are open.
    fn take_idle(&self) -> Option<Connection> {
        let Reuse::Kept { connection_count, idle_close } = self.reuse else { return None };
        // Each iteration closes one connection.
        while self.open_count.get() >= connection_count {
            let connection = self.idle.borrow_mut().pop_front()?;
            if idle_close == IdleClose::AtNextRequest || self.is_usable(&connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Whether nothing has arrived on an idle connection; otherwise this is noted.
    fn is_usable(&self, connection: &Connection) -> bool {
        match rustix::net::recv(connection.stream.tcp(), &mut [0], RecvFlags::PEEK) {
            Err(Errno::AGAIN) => return true,
            Ok((0, _)) => self.recorder.note(Note::IdleClose),
            // `close_notify`, as all other records come before a response or with it.
            Ok(_) if self.tls.is_some() => self.recorder.note(Note::IdleClose),
            Ok(_) => self.recorder.note(Note::Unexpected),
            Err(_) => self.recorder.note(Note::IdleReset),
        }
        false
    }

    /// Notes the connections that the server has closed while idle.
    pub(crate) fn check_idle(&self) {
        self.idle.borrow_mut().retain(|connection| self.is_usable(connection));
    }
}

/// Errors of TLS and HTTP/2 have a kind, but no number.
pub(crate) fn cause_of(error: &io::Error, received_bytes: usize) -> Cause {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, InvalidData, UnexpectedEof};
    let errno = Errno::from_io_error(error);
    match (errno, error.kind()) {
        (Some(errno), _) => Cause::of(errno, received_bytes),
        (None, ConnectionReset) => Cause::of(Errno::CONNRESET, received_bytes),
        (None, UnexpectedEof | BrokenPipe) if received_bytes == 0 => Cause::ClosedBefore,
        (None, UnexpectedEof | BrokenPipe) => Cause::ClosedDuring,
        (None, InvalidData) => Cause::BadResponse,
        (None, _) => Cause::NotSent,
    }
}
