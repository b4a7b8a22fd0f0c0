//! Answers HTTP requests for `/metrics`, `/healthz` and `/readyz`, on the control thread: a worker has no time for so
//! much text. Few clients are served at a time, each for a limited time, and nothing waits for a client.

use super::text::TextFormat;
use sanderling_http::{HttpDate, Method, Parsed, Request, RequestLimits, parse_request};
use sanderling_os::poll_set::PollSet;
use sanderling_os::tcp::{Listener, More, Stream};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Connections at a time; further ones wait in the listener.
const CONNECTIONS_MAX: usize = 8;
/// Bytes of a request.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Maximum duration of a connection, from its accept to its end.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);
const TEXT: &str = "text/plain; charset=utf-8";
/// The pause after an accept has failed for lack of a descriptor or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A page of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// `/metrics`.
    Metrics(TextFormat),
    /// `/healthz`: whether the process works.
    Health,
    /// `/readyz`: whether it serves something, and all problems.
    Readiness,
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// With status 200.
    Good(String),
    /// With status 503.
    Bad(String),
}

/// The listening sockets for metrics with their connections.
#[derive(Debug)]
pub(crate) struct MetricsListener {
    listeners: Vec<Arc<Listener>>,
    connections: Vec<Connection>,
    paused_until: Option<Instant>,
    /// Whether no listener was shut down by another process with the same socket.
    is_listening: bool,
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    deadline: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    /// These bytes of a request have been received.
    Receiving(Vec<u8>),
    /// A response is being sent, of which this many bytes have been sent.
    Sending { response: Vec<u8>, sent: usize },
    /// The whole response was sent. The client closes the connection: otherwise the kernel would reset it because of
    /// unread data.
    Closing,
}

/// A connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Close,
}

impl MetricsListener {
    pub(crate) fn new(listeners: Vec<Arc<Listener>>) -> MetricsListener {
        MetricsListener { listeners, connections: Vec::new(), paused_until: None, is_listening: true }
    }

    /// Whether clients can connect.
    pub(crate) fn is_listening(&self) -> bool {
        self.is_listening
    }

    /// Adds the descriptors to wait for.
    pub(crate) fn add_to<'d>(&'d self, sources: &mut PollSet<'d>) {
        if self.connections.len() < CONNECTIONS_MAX && self.paused_until.is_none() {
            self.listeners.iter().for_each(|listener| sources.add_readable(listener.as_fd()));
        }
        for connection in &self.connections {
            match connection.state {
                State::Sending { .. } => sources.add_writable(connection.as_fd()),
                State::Receiving(_) | State::Closing => sources.add_readable(connection.as_fd()),
            }
        }
    }

    /// The time to act without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.connections.iter().map(|connection| connection.deadline).chain(self.paused_until).min()
    }

    /// Makes all progress that is possible now. `content` makes a page.
    pub(crate) fn serve(&mut self, content: impl Fn(Page) -> Content) {
        let now = Instant::now();
        self.paused_until.take_if(|until| *until <= now);
        self.accept(now);
        self.connections.retain_mut(|connection| {
            let advance = || connection.advance(&content);
            // A bug costs only this connection. An error means that the client has disconnected.
            let next = catch_unwind(AssertUnwindSafe(advance)).unwrap_or(Ok(Next::Close));
            matches!(next, Ok(Next::Wait)) && now < connection.deadline
        });
    }

    fn accept(&mut self, now: Instant) {
        for listener in &self.listeners {
            while self.connections.len() < CONNECTIONS_MAX && self.paused_until.is_none() {
                match listener.accept() {
                    Ok(Some((stream, _))) => self.connections.push(Connection {
                        stream,
                        deadline: now + CONNECTION_TIME_MAX,
                        state: State::Receiving(Vec::new()),
                    }),
                    Ok(None) => break,
                    Err(_) => {
                        self.is_listening &= listener.is_listening();
                        self.paused_until = Some(now + ACCEPT_PAUSE);
                    }
                }
            }
        }
    }
}

impl Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn advance(&mut self, content: impl Fn(Page) -> Content) -> io::Result<Next> {
        loop {
            match &mut self.state {
                State::Receiving(request) => {
                    let mut buffer = [0; 2048];
                    match self.stream.receive(&mut buffer) {
                        Ok(0) => return Ok(Next::Close),
                        Ok(count) => request.extend_from_slice(&buffer[..count]),
                        Err(error) => return wait_if_blocked(error),
                    }
                    if let Some(response) = response_to(request, &content) {
                        self.state = State::Sending { response, sent: 0 };
                    }
                }
                State::Sending { response, sent } => {
                    while *sent < response.len() {
                        match self.stream.send(&response[*sent..], More::No) {
                            Ok(count) => *sent += count,
                            Err(error) => return wait_if_blocked(error),
                        }
                    }
                    self.stream.shutdown_write()?;
                    self.state = State::Closing;
                }
                State::Closing => {
                    let mut buffer = [0; 2048];
                    match self.stream.receive(&mut buffer) {
                        // A client that continues to send is disconnected.
                        Ok(_) => return Ok(Next::Close),
                        Err(error) => return wait_if_blocked(error),
                    }
                }
            }
        }
    }
}

fn wait_if_blocked(error: io::Error) -> io::Result<Next> {
    if error.kind() == ErrorKind::WouldBlock { Ok(Next::Wait) } else { Err(error) }
}

/// The response to the start of a request; `None` while its head is incomplete.
fn response_to(received: &[u8], content: impl Fn(Page) -> Content) -> Option<Vec<u8>> {
    let limits = RequestLimits { head_bytes_max: REQUEST_BYTES_MAX, ..RequestLimits::default() };
    let request = match parse_request(received, 0, &limits) {
        Ok(Parsed::Partial) if received.len() <= REQUEST_BYTES_MAX => return None,
        Ok(Parsed::Partial) => return Some(error_response("431 Request Header Fields Too Large", "", true)),
        Ok(Parsed::Complete { request, .. }) => request,
        Err(_) => return Some(error_response("400 Bad Request", "", true)),
    };
    let has_content = request.method != Method::Head;
    if !matches!(request.method, Method::Get | Method::Head) {
        return Some(error_response("405 Method Not Allowed", "Allow: GET, HEAD\r\n", has_content));
    }
    let page = match request.path() {
        Some(b"/metrics") => Page::Metrics(TextFormat::of_accept(&accept_values(&request))),
        Some(b"/healthz") => Page::Health,
        Some(b"/readyz") => Page::Readiness,
        _ => return Some(error_response("404 Not Found", "", has_content)),
    };
    let (content_type, fields) = match page {
        Page::Metrics(format) => (format.content_type(), "Vary: Accept\r\n"),
        Page::Health | Page::Readiness => (TEXT, ""),
    };
    let (status, text) = match content(page) {
        Content::Good(text) => ("200 OK", text),
        Content::Bad(text) => ("503 Service Unavailable", text),
    };
    Some(response(status, content_type, fields, text.as_bytes(), has_content))
}

/// The values of all Accept fields, as one list.
fn accept_values(request: &Request<'_>) -> Vec<u8> {
    let (_, lines) = request.fields.lines();
    let lines = lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        name.eq_ignore_ascii_case(b"accept").then(|| value[1..].trim_ascii())
    });
    lines.collect::<Vec<_>>().join(&b',')
}

fn error_response(status: &str, fields: &str, has_content: bool) -> Vec<u8> {
    response(status, TEXT, fields, format!("{status}\n").as_bytes(), has_content)
}

fn response(status: &str, content_type: &str, fields: &str, content: &[u8], has_content: bool) -> Vec<u8> {
    let date = HttpDate::from_unix_s(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
    let head = format!(
        "HTTP/1.1 {status}\r\nDate: {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{fields}Cache-Control: no-store\r\n\
         Connection: close\r\n\r\n",
        String::from_utf8_lossy(date.as_bytes()),
        content.len()
    );
    let mut response = head.into_bytes();
    if has_content {
        response.extend_from_slice(content);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn content(page: Page) -> Content {
        match page {
            Page::Metrics(format) => Content::Good(format!("{format:?}\n")),
            Page::Health => Content::Good("ok\n".to_owned()),
            Page::Readiness => Content::Bad("1 zone unavailable\n".to_owned()),
        }
    }

    #[track_caller]
    fn check(request: &str, expected_start: &str, expected_end: &str) {
        let response = response_to(request.as_bytes(), content).expect("a whole request");
        let response = String::from_utf8(response).expect("text");
        assert!(response.starts_with(expected_start) && response.ends_with(expected_end), "{request}\n{response}");
        let (head, content) = response.split_once("\r\n\r\n").expect("a head");
        if !content.is_empty() {
            assert!(head.contains(&format!("Content-Length: {}\r\n", content.len())), "{head}");
        }
        assert!(head.ends_with("\r\nConnection: close"), "{head}");
    }

    #[test]
    fn only_get_and_head_of_metrics_have_them() {
        let request = |line: &str| format!("{line} HTTP/1.1\r\nHost: localhost:9180\r\n\r\n");
        check(&request("GET /metrics"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nOpenMetrics\n");
        check(&request("GET /metrics?name[]=x"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nOpenMetrics\n");
        check(&request("HEAD /metrics"), "HTTP/1.1 200 OK\r\n", "\r\n\r\n");
        check(&request("GET /"), "HTTP/1.1 404 Not Found\r\n", "\r\n\r\n404 Not Found\n");
        check(&request("GET /healthz"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nok\n");
        check(&request("GET /readyz"), "HTTP/1.1 503 Service Unavailable\r\n", "\r\n\r\n1 zone unavailable\n");
        check(&request("GET /metrics/"), "HTTP/1.1 404 Not Found\r\n", "404 Not Found\n");
        check(&request("HEAD /"), "HTTP/1.1 404 Not Found\r\n", "\r\n\r\n");
        check(&request("DELETE /metrics"), "HTTP/1.1 405 Method Not Allowed\r\n", "405 Method Not Allowed\n");
        check("GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "OpenMetrics\n");
        check("nonsense\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", "400 Bad Request\n");
        check(
            &format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(REQUEST_BYTES_MAX)),
            "HTTP/1.1 400 Bad Request\r\n",
            "400 Bad Request\n",
        );
    }

    #[test]
    fn format_is_that_of_all_accept_fields() {
        let check_fields = |fields: &str, expected: &str| {
            let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            check(&request, "HTTP/1.1 200 OK\r\n", &format!("\r\n\r\n{expected}\n"));
        };
        check_fields("Accept: text/plain\r\n", "Prometheus");
        check_fields("accept:text/plain;version=0.0.4\r\nUser-Agent: application/openmetrics-text\r\n", "Prometheus");
        check_fields("Accept: text/plain\r\nAccept: application/openmetrics-text; version=1.0.0\r\n", "OpenMetrics");
    }

    #[test]
    fn head_may_arrive_in_pieces() {
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        for length in 0..request.len() {
            assert_eq!(response_to(&request[..length], |_| Content::Good(String::new())), None);
        }
    }

    /// A listener, and a client of it.
    fn listener() -> (MetricsListener, std::net::SocketAddr) {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_address().expect("bound");
        (MetricsListener::new(vec![Arc::new(listener)]), address)
    }

    /// Serves as the control thread does until `is_done`.
    fn serve_until(listener: &mut MetricsListener, text: &str, is_done: impl Fn(&MetricsListener) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_done(listener) {
            assert!(Instant::now() < end, "{listener:?}");
            let mut sources = PollSet::new([]);
            listener.add_to(&mut sources);
            let rest = listener.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
            sources.wait(rest.or(Some(Duration::from_secs(1)))).expect("waited");
            listener.serve(|_| Content::Good(text.to_owned()));
        }
    }

    #[test]
    fn response_that_is_larger_than_the_buffers_of_the_kernel_is_sent_whole() {
        let (mut listener, address) = listener();
        let text = "x".repeat(10_000_000);
        let client = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("connected");
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
            let mut response = Vec::new();
            stream.read_to_end(&mut response).map(|_| response)
        });
        serve_until(&mut listener, &text, |listener| client.is_finished() && listener.connections.is_empty());
        let response = client.join().expect("no panic").expect("received");
        assert!(response.ends_with(text.as_bytes()));
    }

    #[test]
    fn connections_beyond_the_limit_wait_and_silent_ones_are_closed() {
        let (mut listener, address) = listener();
        let clients: Vec<TcpStream> =
            (0..=CONNECTIONS_MAX).map(|_| TcpStream::connect(address).expect("connected")).collect();
        serve_until(&mut listener, "", |listener| listener.connections.len() == CONNECTIONS_MAX);
        listener.serve(|_| Content::Good(String::new()));
        assert_eq!(listener.connections.len(), CONNECTIONS_MAX);
        for connection in &mut listener.connections {
            connection.deadline = Instant::now();
        }
        serve_until(&mut listener, "", |listener| listener.connections.is_empty());
        serve_until(&mut listener, "", |listener| listener.connections.len() == 1);
        drop(clients);
        serve_until(&mut listener, "", |listener| listener.connections.is_empty());
    }

    #[test]
    fn panic_ends_its_connection_alone() {
        let (mut listener, address) = listener();
        let mut client = TcpStream::connect(address).expect("connected");
        serve_until(&mut listener, "", |listener| listener.connections.len() == 1);
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        let end = Instant::now() + Duration::from_secs(20);
        while !listener.connections.is_empty() {
            assert!(Instant::now() < end);
            listener.serve(|_| panic!("a bug"));
        }
        let mut received = Vec::new();
        let _ = client.read_to_end(&mut received);
        assert!(received.is_empty());
    }
}
