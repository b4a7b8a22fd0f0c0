//! An HTTP/1.1 client for one connection (RFC 9112), for any bytes that a test wants to send.
#![allow(missing_docs, reason = "names and signatures say it")]

use std::net::SocketAddr;

use crate::RawConnection;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Status line and fields, with the empty line after them.
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a field that occurs at most once.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} occurs twice:\n{}", self.head);
        value
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection. Bytes after a response are kept for the next one.
pub struct HttpClient {
    tcp: RawConnection,
    unread: Vec<u8>,
}

impl HttpClient {
    #[track_caller]
    pub fn connect(server: SocketAddr) -> HttpClient {
        HttpClient { tcp: RawConnection::open(server), unread: Vec::new() }
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.tcp.send(bytes.as_ref());
    }

    /// The TCP connection, for what is not HTTP.
    pub fn tcp(&mut self) -> &mut RawConnection {
        &mut self.tcp
    }

    /// Sends a GET request without further fields, and reads the response.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.send(get(target));
        self.response()
    }

    /// Reads the next response.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.read(true)
    }

    /// Reads the next response, which answers a HEAD request.
    #[track_caller]
    pub fn response_to_head(&mut self) -> Response {
        self.read(false)
    }

    /// Checks that the server closes the connection without sending more.
    #[track_caller]
    pub fn check_closed(&mut self) {
        let rest = [std::mem::take(&mut self.unread), self.tcp.read_to_close()].concat();
        assert!(rest.is_empty(), "sent before the close: {}", rest.escape_ascii());
    }

    /// A response to HEAD, and one with certain statuses, has no body (RFC 9112 §6.3).
    #[track_caller]
    fn read(&mut self, may_have_body: bool) -> Response {
        const END: &[u8] = b"\r\n\r\n";
        let head_bytes = loop {
            if let Some(at) = self.unread.windows(END.len()).position(|window| window == END) {
                break at + END.len();
            }
            self.unread.extend(self.tcp.read_piece());
        };
        let head = String::from_utf8(self.unread.drain(..head_bytes).collect()).expect("a head is ASCII");
        let mut response = Response { status: status(&head), head, body: Vec::new() };
        if may_have_body && !matches!(response.status, 100..=199 | 204 | 304) {
            let length = response.field("Content-Length").and_then(|value| value.parse().ok());
            let length: usize = length.unwrap_or_else(|| panic!("no Content-Length:\n{}", response.head));
            while self.unread.len() < length {
                self.unread.extend(self.tcp.read_piece());
            }
            response.body = self.unread.drain(..length).collect();
        }
        response
    }
}

/// A GET request for the host `localhost`.
pub fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// The response to `request` on a connection of its own.
#[track_caller]
pub fn response_to(server: SocketAddr, request: impl AsRef<[u8]>) -> Response {
    let mut client = HttpClient::connect(server);
    client.send(request.as_ref());
    if request.as_ref().starts_with(b"HEAD ") { client.response_to_head() } else { client.response() }
}

/// Checks that the server answers a request on a new connection.
#[track_caller]
pub fn check_serves(server: SocketAddr) {
    assert_eq!(HttpClient::connect(server).get("/").status, 200);
}

#[track_caller]
fn status(head: &str) -> u16 {
    let code = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    code.unwrap_or_else(|| panic!("no status line: {head:?}"))
}
