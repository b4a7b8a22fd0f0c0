//! Messages that are sent back with one address appended, over UDP in batches and over TCP.

use crate::stream::Protocol;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io::{self, ErrorKind};
use std::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// An A record with the name of the question (RFC 1035 §4.1.3, §4.1.4): 192.0.2.1, one hour.
const ANSWER: [u8; 16] = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4, 192, 0, 2, 1];
/// Bytes of the header of a message (RFC 1035 §4.1.1).
const HEADER_BYTES: usize = 12;
/// Bytes of the length before a message over TCP (RFC 1035 §4.2.2).
const LENGTH_BYTES: usize = 2;
const BATCH_COUNT: usize = 32;
pub(crate) const DATAGRAM_BYTES_MAX: usize = 1500;

/// Turns the query in the first `length_bytes` of `message` into its reply, which is longer by [`ANSWER`]. Queries must
/// end with the question.
fn answer(message: &mut [u8], length_bytes: usize) {
    if length_bytes >= HEADER_BYTES {
        // QR and AA; ANCOUNT is 1.
        message[2] |= 0x84;
        message[7] = 1;
        message[length_bytes..length_bytes + ANSWER.len()].copy_from_slice(&ANSWER);
    }
}

/// Receives and sends batches, and waits only when there is nothing to receive. A reply has `reply_bytes` at least.
pub(crate) fn serve(socket: &UdpSocket, reply_bytes: usize) -> io::Result<()> {
    let mut buffers = vec![[0_u8; DATAGRAM_BYTES_MAX]; BATCH_COUNT];
    // SAFETY: these structs consist of integers and pointers, for which zero is valid.
    let (mut peers, mut parts, mut messages): (
        [libc::sockaddr_in; BATCH_COUNT],
        [libc::iovec; BATCH_COUNT],
        [libc::mmsghdr; BATCH_COUNT],
    ) = unsafe { (zeroed(), zeroed(), zeroed()) };
    for index in 0..BATCH_COUNT {
        parts[index].iov_base = buffers[index].as_mut_ptr().cast();
        parts[index].iov_len = DATAGRAM_BYTES_MAX - ANSWER.len();
        let header = &mut messages[index].msg_hdr;
        header.msg_name = (&raw mut peers[index]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        header.msg_iov = &raw mut parts[index];
        header.msg_iovlen = 1;
    }
    let fd = socket.as_raw_fd();
    loop {
        let vector = messages.as_mut_ptr();
        // SAFETY: each message points to a buffer and an address that live as long as this function.
        let count = unsafe { libc::recvmmsg(fd, vector, BATCH_COUNT as u32, libc::MSG_DONTWAIT, ptr::null_mut()) };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            match error.kind() {
                ErrorKind::WouldBlock => drop(poll(&mut [PollFd::new(socket, PollFlags::IN)], None)?),
                ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {}
                _ => return Err(error),
            }
            continue;
        };
        for (part, message) in parts.iter_mut().zip(&messages).take(count) {
            let length_bytes = message.msg_len as usize;
            // SAFETY: the buffer lives, and nothing else uses it between the system calls.
            answer(unsafe { &mut *part.iov_base.cast::<[u8; DATAGRAM_BYTES_MAX]>() }, length_bytes);
            part.iov_len = (length_bytes + ANSWER.len()).max(reply_bytes);
        }
        // SAFETY: as for `recvmmsg`; the lengths end within the buffers. A reply that does not fit into the client's
        // queue is lost, as datagrams may be.
        unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count as u32, 0) };
        parts[..count].iter_mut().for_each(|part| part.iov_len = DATAGRAM_BYTES_MAX - ANSWER.len());
    }
}

#[derive(Default)]
pub(crate) struct Connection {
    /// The beginning of an incomplete message.
    received: Vec<u8>,
    /// Replies that are not sent.
    replies: Vec<u8>,
}

impl Protocol for Connection {
    fn receive(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
        let mut at = 0;
        while let Some(&[high, low]) = self.received.get(at..at + LENGTH_BYTES) {
            let length_bytes = usize::from(u16::from_be_bytes([high, low]));
            let start = at + LENGTH_BYTES;
            let Some(query) = self.received.get(start..start + length_bytes) else { break };
            let reply_bytes = length_bytes + ANSWER.len();
            self.replies.extend((reply_bytes as u16).to_be_bytes());
            let reply_start = self.replies.len();
            self.replies.extend(query);
            self.replies.resize(reply_start + reply_bytes, 0);
            answer(&mut self.replies[reply_start..], length_bytes);
            at = start + length_bytes;
        }
        self.received.drain(..at);
    }

    fn send(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        while !self.replies.is_empty() {
            let sent_bytes = send(socket, &self.replies, SendFlags::NOSIGNAL)?;
            self.replies.drain(..sent_bytes);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_answered_in_any_parts() {
        let query = b"\x00\x11\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01";
        let both = [&query[..], query].concat();
        for cut in 0..both.len() {
            let mut connection = Connection::default();
            connection.receive(&both[..cut]);
            connection.receive(&both[cut..]);
            assert!(connection.received.is_empty(), "cut at {cut}");
            assert_eq!(connection.replies.len(), 2 * (query.len() + ANSWER.len()), "cut at {cut}");
            assert_eq!(connection.replies[4] & 0x84, 0x84);
        }
    }
}
