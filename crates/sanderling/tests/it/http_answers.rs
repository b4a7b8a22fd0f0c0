//! HTTP responses on one connection (RFC 9112).

use std::net::SocketAddr;

use sanderling_testkit::RawConnection;

/// A response of HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and fields as received.
    pub(crate) head: String,
    pub(crate) content: Vec<u8>,
}

impl Answer {
    /// The value of a field that occurs at most once.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} occurs twice:\n{}", self.head);
        value
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}

/// A connection with the received bytes of the next response.
pub(crate) struct HttpConnection {
    raw: RawConnection,
    unread: Vec<u8>,
}

/// The method of the request: it determines whether the response has content (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseTo {
    Get,
    Head,
}

impl HttpConnection {
    #[track_caller]
    pub(crate) fn open(server: SocketAddr) -> HttpConnection {
        HttpConnection { raw: RawConnection::open(server), unread: Vec::new() }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, text: impl AsRef<[u8]>) {
        self.raw.send(text.as_ref());
    }

    /// The connection itself, for other bytes than HTTP.
    pub(crate) fn raw(&mut self) -> &mut RawConnection {
        &mut self.raw
    }

    /// Sends a GET without further fields, and reads the response.
    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.send(get(target));
        self.answer()
    }

    /// The next response.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        self.read(ResponseTo::Get)
    }

    /// The next response, to a HEAD request.
    #[track_caller]
    pub(crate) fn answer_to_head(&mut self) -> Answer {
        self.read(ResponseTo::Head)
    }

    /// The server closes the connection and sends nothing before.
    #[track_caller]
    pub(crate) fn check_closed(&mut self) {
        let rest = [std::mem::take(&mut self.unread), self.raw.read_to_close()].concat();
        assert!(rest.is_empty(), "bytes before the close: {}", rest.escape_ascii());
    }

    #[track_caller]
    fn read(&mut self, method: ResponseTo) -> Answer {
        const END: &[u8] = b"\r\n\r\n";
        let head_bytes = loop {
            if let Some(at) = self.unread.windows(END.len()).position(|window| window == END) {
                break at + END.len();
            }
            self.unread.extend(self.raw.read_piece());
        };
        let head = String::from_utf8(self.unread.drain(..head_bytes).collect()).expect("a head is ASCII");
        let status = status(&head);
        let mut answer = Answer { status, head, content: Vec::new() };
        let length: Option<usize> = answer.field("Content-Length").map(|value| value.parse().expect("a number"));
        let has_content = method == ResponseTo::Get && !matches!(status, 100..=199 | 204 | 304);
        if has_content {
            let length = length.unwrap_or_else(|| panic!("no Content-Length:\n{}", answer.head));
            while self.unread.len() < length {
                self.unread.extend(self.raw.read_piece());
            }
            answer.content = self.unread.drain(..length).collect();
        }
        answer
    }
}

/// A GET of HTTP/1.1 for the host `localhost`.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// The response to `request`, on a connection of its own.
#[track_caller]
pub(crate) fn answer_to(server: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    let mut connection = HttpConnection::open(server);
    connection.send(request.as_ref());
    if request.as_ref().starts_with(b"HEAD ") { connection.answer_to_head() } else { connection.answer() }
}

/// Checks that the server answers a new connection.
#[track_caller]
pub(crate) fn check_serves(server: SocketAddr) {
    assert_eq!(HttpConnection::open(server).get("/").status, 200);
}

#[track_caller]
fn status(head: &str) -> u16 {
    let code = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    code.unwrap_or_else(|| panic!("no status line: {head:?}"))
}
