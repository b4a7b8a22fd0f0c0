//! Blocking Unix sockets for requests and answers between two local processes (`SOCK_SEQPACKET`, unix(7)).
//!
//! A message arrives whole or not at all. Descriptors that come with one are closed by the kernel. The peer is not
//! trusted.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::seqpacket::check_type;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Tries of a call that a signal interrupts.
const TRIES_MAX: usize = 4;

/// An end of the socket pair.
#[derive(Debug)]
pub struct RequestSocket(OwnedFd);

impl RequestSocket {
    /// Two sockets that are connected to each other. A call on the first end, for the requesting process, fails after
    /// `timeout` (`WouldBlock`); the other end waits without a limit. Both ends are close-on-exec.
    pub fn pair(timeout: Duration) -> io::Result<[OwnedFd; 2]> {
        count(Syscall::Socketpair);
        let (asking, answering) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|errno| with_context("socketpair", "SOCK_SEQPACKET", &errno.into()))?;
        for (direction, name) in [(Timeout::Recv, "SO_RCVTIMEO"), (Timeout::Send, "SO_SNDTIMEO")] {
            count(Syscall::Setsockopt);
            set_socket_timeout(&asking, direction, Some(timeout))
                .map_err(|errno| with_context("setsockopt", name, &errno.into()))?;
        }
        Ok([asking, answering])
    }

    /// Takes over a socket that was inherited or received; an error if it is not a Unix `SOCK_SEQPACKET` socket.
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<RequestSocket> {
        check_type(&descriptor)?;
        Ok(RequestSocket(descriptor))
    }

    /// Sends a message, which must not be empty. A peer that has closed its end is an error, never a signal.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        for _ in 0..TRIES_MAX {
            count(Syscall::Sendto);
            match send(&self.0, message, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::INTR.into())
    }

    /// Waits for a message; its bytes in `buffer`. `None` if the message is longer than the buffer. A peer that has
    /// closed its end is an error (`UnexpectedEof`).
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// Receives a message without waiting: an error (`WouldBlock`) if none has arrived.
    pub fn receive_arrived<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        self.receive_with(buffer, RecvFlags::DONTWAIT)
    }

    fn receive_with<'b>(&self, buffer: &'b mut [u8], flags: RecvFlags) -> io::Result<Option<&'b [u8]>> {
        for _ in 0..TRIES_MAX {
            count(Syscall::Recvfrom);
            match recv(&self.0, &mut *buffer, RecvFlags::TRUNC | flags) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, length_bytes)) => return Ok(buffer.get(..length_bytes)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::INTR.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(timeout: Duration) -> [RequestSocket; 2] {
        RequestSocket::pair(timeout).expect("created").map(|end| RequestSocket::from_fd(end).expect("its type"))
    }

    #[test]
    fn messages_arrive_whole_and_one_that_is_too_long_is_none() {
        let [asking, answering] = pair(Duration::from_secs(10));
        for message in [&b"a"[..], b"four", b"longer", b"4444"] {
            asking.send(message).expect("sent");
        }
        let mut buffer = [0; 4];
        for expected in [Some(&b"a"[..]), Some(b"four"), None, Some(b"4444")] {
            assert_eq!(answering.receive(&mut buffer).expect("received"), expected);
        }
        assert_eq!(asking.receive_arrived(&mut buffer).expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
        answering.send(b"ok").expect("sent");
        answering.send(b"ok").expect("sent");
        assert_eq!(asking.receive_arrived(&mut buffer).expect("received"), Some(&b"ok"[..]));
        assert_eq!(asking.receive(&mut buffer).expect("received"), Some(&b"ok"[..]));
    }

    #[test]
    fn process_that_asks_waits_no_longer_than_the_timeout() {
        let [asking, answering] = pair(Duration::from_millis(1));
        assert_eq!(asking.receive(&mut [0; 4]).expect_err("no answer").kind(), io::ErrorKind::WouldBlock);
        let full = loop {
            if let Err(error) = asking.send(&[0; 1000]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(answering);
        // The kernel reports once that messages were not read.
        for expected in [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe] {
            assert_eq!(asking.send(b"a").expect_err("closed").kind(), expected);
        }
    }

    #[test]
    fn end_of_the_peer_is_an_error() {
        let [asking, answering] = pair(Duration::from_secs(10));
        drop(asking);
        assert_eq!(answering.receive(&mut [0; 4]).expect_err("closed").kind(), io::ErrorKind::UnexpectedEof);
        assert!(RequestSocket::from_fd(std::fs::File::open("/dev/null").expect("opened").into()).is_err());
    }
}
