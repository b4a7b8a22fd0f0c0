//! One request turned into its answer: to see that a change has been taken up, and when a server serves again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer is waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// Octets of the longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The content of a page, asked for on a connection of its own.
///
/// # Errors
/// There was no answer, or its status is not 200.
pub(super) fn get(address: SocketAddr, host: &str, path: &str) -> Result<Vec<u8>, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = ask(address, request.as_bytes())?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or("the answer has no head")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status_line = head.lines().next().unwrap_or_default();
    if status_line.split(' ').nth(1) != Some("200") {
        return Err(format!("GET {path} of {host}: {status_line}"));
    }
    Ok(answer[end + 4..].to_vec())
}

/// Whether the answer to a question for the TXT records of a name holds this text (RFC 1035 §4.2.2, over TCP).
///
/// # Errors
/// There was no answer.
pub(super) fn txt_holds(address: SocketAddr, name: &str, text: &str) -> Result<bool, String> {
    const TXT: [u8; 2] = [0, 16];
    const IN: [u8; 2] = [0, 1];
    let mut query = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).map_err(|_| format!("{name} is no name"))?);
        query.extend_from_slice(label.as_bytes());
    }
    query.push(0);
    query.extend([TXT, IN].concat());
    let length = u16::try_from(query.len()).map_err(|_| format!("{name} is no name"))?;
    let mut connection = connect(address)?;
    connection.write_all(&[length.to_be_bytes().as_slice(), &query].concat()).map_err(failed(address))?;
    let mut length = [0; 2];
    connection.read_exact(&mut length).map_err(failed(address))?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    connection.read_exact(&mut reply).map_err(failed(address))?;
    Ok(reply.windows(text.len()).any(|window| window == text.as_bytes()))
}

/// Everything that comes until the server closes.
fn ask(address: SocketAddr, request: &[u8]) -> Result<Vec<u8>, String> {
    let mut connection = connect(address)?;
    connection.write_all(request).map_err(failed(address))?;
    let mut answer = Vec::new();
    connection.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed(address))?;
    Ok(answer)
}

fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let connection = TcpStream::connect_timeout(&address, ANSWER_LIMIT).map_err(failed(address))?;
    connection.set_read_timeout(Some(ANSWER_LIMIT)).map_err(failed(address))?;
    connection.set_write_timeout(Some(ANSWER_LIMIT)).map_err(failed(address))?;
    Ok(connection)
}

fn failed(address: SocketAddr) -> impl Fn(std::io::Error) -> String {
    move |error| format!("asking {address}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that reads one request and gives this answer to it.
    fn answering(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("the listener is bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the test connects");
            let length_bytes = stream.read(&mut [0; 512]).expect("the test sends");
            assert!(length_bytes > 0);
            stream.write_all(answer).expect("the test reads");
        });
        address
    }

    #[test]
    fn a_page_is_its_content() {
        let address = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(get(address, "h", "/"), Ok(b"hi".to_vec()));
        let error = get(answering(b"HTTP/1.1 404 Not Found\r\n\r\n"), "h", "/x").expect_err("it is not there");
        assert_eq!(error, "GET /x of h: HTTP/1.1 404 Not Found");
    }

    #[test]
    fn a_text_record_is_found_in_its_reply() {
        assert_eq!(txt_holds(answering(b"\x00\x06\x05turn1"), "turn.example.com", "turn1"), Ok(true));
        assert_eq!(txt_holds(answering(b"\x00\x06\x05turn1"), "turn.example.com", "turn2"), Ok(false));
    }
}
