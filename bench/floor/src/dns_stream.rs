//! The messages of a TCP connection (RFC 1035 §4.2.2), answered together: one receive, one send.

use crate::calls::{Rest, receive, send};
use crate::dns::{ANSWER, answer};
use crate::stream::{Advance, Fate};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

/// Octets of the length before each message.
const PREFIX_BYTES: usize = 2;

/// What a connection keeps between two of its moves.
#[derive(Default)]
pub struct Connection {
    /// The start of a message whose rest has not come.
    begun: Vec<u8>,
    /// Replies that the socket has not taken.
    replies: Vec<u8>,
}

impl Connection {
    pub fn new() -> Connection {
        Connection::default()
    }

    /// Appends the replies to the whole messages in `begun`, and leaves there what is not whole.
    fn answer_whole_messages(&mut self) {
        let mut at = 0;
        while let Some(&[high, low]) = self.begun.get(at..at + PREFIX_BYTES) {
            let length_bytes = usize::from(u16::from_be_bytes([high, low]));
            let start = at + PREFIX_BYTES;
            let Some(query) = self.begun.get(start..start + length_bytes) else { break };
            let reply_bytes = (length_bytes + ANSWER.len()) as u16;
            self.replies.extend(reply_bytes.to_be_bytes());
            let reply_start = self.replies.len();
            self.replies.extend(query);
            self.replies.resize(reply_start + usize::from(reply_bytes), 0);
            answer(&mut self.replies[reply_start..], length_bytes);
            at = start + length_bytes;
        }
        self.begun.drain(..at);
    }

    fn pay(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while !self.replies.is_empty() {
            let sent_bytes = send(socket, &self.replies, Rest::None)?;
            self.replies.drain(..sent_bytes);
        }
        Ok(())
    }

    fn exchange(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Fate> {
        self.pay(socket)?;
        loop {
            let received_bytes = receive(socket, buffer)?;
            if received_bytes == 0 {
                return Ok(Fate::Close);
            }
            self.begun.extend(&buffer[..received_bytes]);
            self.answer_whole_messages();
            self.pay(socket)?;
            // A short read proves an edge-triggered socket empty (epoll(7), question 9).
            if received_bytes < buffer.len() {
                return Ok(Fate::Keep);
            }
        }
    }
}

impl Advance for Connection {
    fn advance(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Fate> {
        match self.exchange(socket, buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Fate::Keep),
            exchanged => exchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_answered_wherever_they_are_cut() {
        let query = b"\x00\x11\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01";
        let both = [&query[..], query].concat();
        for cut in 0..both.len() {
            let mut connection = Connection::new();
            for part in [&both[..cut], &both[cut..]] {
                connection.begun.extend(part);
                connection.answer_whole_messages();
            }
            assert!(connection.begun.is_empty(), "cut at {cut}");
            assert_eq!(connection.replies.len(), 2 * (query.len() + ANSWER.len()), "cut at {cut}");
            assert_eq!(connection.replies[..2], [0, 0x11 + 16]);
            assert_eq!(connection.replies[4] & 0x84, 0x84);
        }
    }
}
