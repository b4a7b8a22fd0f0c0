//! One request and its answer, to see that a server answers, and rightly, before it is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one is waited for while a server is still starting; a datagram to a closed port gets none.
const PATIENCE_AT_START: Duration = Duration::from_millis(20);
/// Octets of a response head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Octets of a reply over UDP without EDNS (RFC 1035 §4.2.1), and some.
pub(super) const REPLY_BYTES_MAX: usize = 1500;
/// Octets before the question (RFC 1035 §4.1.1).
const HEADER_BYTES: usize = 12;

/// A response as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) entity_tag: Option<String>,
    pub(super) content_bytes: usize,
}

/// Asks for `path` with further `fields` (each a line with its end) and reads the whole response.
///
/// # Errors
/// The call that failed, or a response that is none.
pub(super) fn fetch(server: SocketAddr, path: &str, fields: &str) -> Result<Response, String> {
    exchange(server, path, &format!("{fields}Connection: close\r\n")).map(|(response, _)| response)
}

/// Asks for `path` and keeps the connection open.
///
/// # Errors
/// As [`fetch`], or an answer other than 200.
pub(super) fn fetch_and_keep(server: SocketAddr, path: &str) -> Result<TcpStream, String> {
    match exchange(server, path, "")? {
        (Response { status: 200, .. }, stream) => Ok(stream),
        (response, _) => Err(format!("{server} answers {} to {path}", response.status)),
    }
}

fn exchange(server: SocketAddr, path: &str, fields: &str) -> Result<(Response, TcpStream), String> {
    let failed = |error: std::io::Error| format!("{server}: {error}");
    let mut stream = TcpStream::connect(server).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut received = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        // A server of one fixed answer does not close; the length in its head says when to stop.
        if let Some(response) = whole(&received) {
            return Ok((response, stream));
        }
        match stream.read(&mut buffer).map_err(failed)? {
            0 => return Err(format!("{server}: the response to {path} ends early")),
            length => received.extend_from_slice(&buffer[..length]),
        }
    }
}

/// The response in `received`, once all of it is there.
fn whole(received: &[u8]) -> Option<Response> {
    let head_bytes = received.windows(4).take(HEAD_BYTES_MAX).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&received[..head_bytes]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let field = |name: &str| {
        let line =
            head.lines().find(|line| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)));
        line.map(|line| line[name.len()..].trim().to_owned())
    };
    let content_bytes: usize = match status {
        304 => 0,
        _ => field("content-length:").and_then(|length| length.parse().ok()).unwrap_or(0),
    };
    let is_whole = received.len() >= head_bytes + content_bytes;
    is_whole.then(|| Response { status, entity_tag: field("etag:"), content_bytes })
}

/// Whether anything listens there.
pub(super) fn answers_http(server: SocketAddr) -> bool {
    fetch(server, "/small/512", "").is_ok_and(|response| response.status == 200)
}

/// What a reply says in its header (RFC 1035 §4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) rcode: u8,
    pub(super) is_authoritative: bool,
    pub(super) answer_count: u16,
    pub(super) authority_count: u16,
    pub(super) bytes: usize,
}

/// Asks for a name and a type over UDP; `None` when no reply comes.
pub(super) fn ask(server: SocketAddr, name: &str, type_number: u16, patience: Duration) -> Option<Reply> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.connect(server).ok()?;
    socket.set_read_timeout(Some(patience)).ok()?;
    socket.send(&query(name, type_number)).ok()?;
    let mut reply = [0; REPLY_BYTES_MAX];
    let length = socket.recv(&mut reply).ok()?;
    read_reply(&reply[..length])
}

/// Asks with the patience of a running server.
pub(super) fn ask_running(server: SocketAddr, name: &str, type_number: u16) -> Option<Reply> {
    ask(server, name, type_number, PATIENCE)
}

/// Whether the server answers for the zone `apex`.
pub(super) fn answers_dns(server: SocketAddr, apex: &str) -> bool {
    const SOA: u16 = 6;
    ask(server, apex, SOA, PATIENCE_AT_START)
        .is_some_and(|reply| reply.rcode == 0 && reply.is_authoritative && reply.answer_count == 1)
}

/// A message that asks one question over UDP.
pub(super) fn query(name: &str, type_number: u16) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(type_number.to_be_bytes());
    message.extend([0, 1]);
    message
}

/// The header of a message, if there is one.
pub(super) fn read_reply(message: &[u8]) -> Option<Reply> {
    let header = message.first_chunk::<HEADER_BYTES>()?;
    Some(Reply {
        rcode: header[3] & 0x0f,
        is_authoritative: header[2] & 0x04 != 0,
        answer_count: u16::from_be_bytes([header[6], header[7]]),
        authority_count: u16::from_be_bytes([header[8], header[9]]),
        bytes: message.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_whole_with_its_last_octet() {
        let bytes = b"HTTP/1.1 200 OK\r\nETag: \"a-1\"\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(whole(&bytes[..bytes.len() - 1]), None);
        let entity_tag = Some("\"a-1\"".to_owned());
        assert_eq!(whole(bytes), Some(Response { status: 200, entity_tag, content_bytes: 3 }));
        let unmodified = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(whole(unmodified), Some(Response { status: 304, entity_tag: None, content_bytes: 0 }));
    }

    #[test]
    fn a_query_asks_one_question() {
        assert_eq!(query("a.b.", 28)[12..], *b"\x01a\x01b\0\0\x1c\0\x01");
        let reply = read_reply(b"\x12\x34\x84\x03\0\x01\0\0\0\x01\0\0").unwrap();
        let expected = Reply { rcode: 3, is_authoritative: true, answer_count: 0, authority_count: 1, bytes: 12 };
        assert_eq!(reply, expected);
        assert_eq!(read_reply(b"short"), None);
    }
}
