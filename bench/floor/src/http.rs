//! A prepared response, sent for each empty line.

use crate::stream::Protocol;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// Up to here one send of head and content costs less than `sendfile`, measured on the loopback.
const MEMORY_BYTES_MAX: usize = 64 * 1024;
/// Responses to pipelined requests in one send.
const RESPONSES_PER_SEND_MAX: usize = 16;
/// The end of a request head.
const END: &[u8; 4] = b"\r\n\r\n";

pub(crate) struct Response {
    /// Copies of the whole response, or the head alone if there is a file.
    bytes: Vec<u8>,
    /// Bytes of the whole response.
    length_bytes: usize,
    content: Option<File>,
    closes: bool,
}

impl Response {
    pub(crate) fn new(body_bytes: usize, status: u16, closes: bool) -> io::Result<Response> {
        let connection = if closes { "Connection: close\r\n" } else { "" };
        let content = format!("Content-Length: {body_bytes}\r\nContent-Type: application/octet-stream\r\n");
        let content = if status == 304 { "" } else { &content };
        // As long as the heads of real servers.
        let head = format!(
            "HTTP/1.1 {status} Floor\r\nServer: floor\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n{content}\
             Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"0000000000000000\"\r\nAccept-Ranges: bytes\r\n\
             {connection}\r\n"
        );
        let (head, body) = (head.into_bytes(), vec![b'x'; body_bytes]);
        let length_bytes = head.len() + body_bytes;
        if body_bytes <= MEMORY_BYTES_MAX {
            let bytes = [head, body].concat().repeat(RESPONSES_PER_SEND_MAX);
            return Ok(Response { bytes, length_bytes, content: None, closes });
        }
        let mut file = tempfile::tempfile()?;
        file.write_all(&body)?;
        Ok(Response { bytes: head, length_bytes, content: Some(file), closes })
    }
}

pub(crate) struct Connection<'r> {
    response: &'r Response,
    /// Bytes of [`END`] at the end of the last receive.
    matched_bytes: usize,
    /// Responses that are not sent completely.
    owed_count: usize,
    /// Number of bytes of the first response that were sent.
    sent_bytes: usize,
    response_count: usize,
}

impl<'r> Connection<'r> {
    pub(crate) fn new(response: &'r Response) -> Connection<'r> {
        Connection { response, matched_bytes: 0, owed_count: 0, sent_bytes: 0, response_count: 0 }
    }
}

impl Protocol for Connection<'_> {
    fn receive(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.matched_bytes = match self.matched_bytes {
                matched if byte == END[matched] => matched + 1,
                _ => usize::from(byte == END[0]),
            };
            if self.matched_bytes == END.len() {
                self.matched_bytes = 0;
                self.owed_count += 1;
                self.response_count += 1;
            }
        }
    }

    fn send(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        let Response { bytes, length_bytes, content, .. } = self.response;
        while self.owed_count > 0 {
            self.sent_bytes += match content {
                None => {
                    let end = length_bytes * self.owed_count.min(RESPONSES_PER_SEND_MAX);
                    send(socket, &bytes[self.sent_bytes..end], SendFlags::NOSIGNAL)?
                }
                Some(_) if self.sent_bytes < bytes.len() => {
                    send(socket, &bytes[self.sent_bytes..], SendFlags::NOSIGNAL | SendFlags::MORE)?
                }
                Some(file) => {
                    let mut offset = (self.sent_bytes - bytes.len()) as u64;
                    sendfile(socket, file, Some(&mut offset), length_bytes - self.sent_bytes)?
                }
            };
            self.owed_count -= self.sent_bytes / length_bytes;
            self.sent_bytes %= length_bytes;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.response.closes && self.response_count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_in_any_parts() {
        let response = Response::new(1, 200, false).expect("a response in memory");
        let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        for cut in 0..requests.len() {
            let mut connection = Connection::new(&response);
            connection.receive(&requests[..cut]);
            connection.receive(&requests[cut..]);
            assert_eq!(connection.owed_count, 2, "cut at {cut}");
        }
    }
}
