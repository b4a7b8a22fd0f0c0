//! An end of a connection between two processes.
//!
//! No call blocks: a message for which the peer has no room is kept and sent later.

use crate::message::{FdKind, Message, decode, encode};
use sanderling_os::poll_set::PollSet;
use sanderling_os::seqpacket::{self, MESSAGE_BYTES_MAX, Sender, SeqpacketSocket};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of failed calls in a row, for example for lack of memory, after which the connection is closed.
const FAILURES_MAX: u32 = 500;
/// Unsent messages after which [`Connection::is_full`].
const UNSENT_MAX: usize = 4_096;
/// Descriptors of unsent messages after which [`Connection::is_full`].
const UNSENT_DESCRIPTORS_MAX: usize = 256;
/// Time after which unsent messages are retried.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Descriptors to send, with their kinds.
pub type OutgoingFds<'d> = Vec<(FdKind, BorrowedFd<'d>)>;
/// Received descriptors with their kinds.
pub type IncomingFds = Vec<(FdKind, OwnedFd)>;

/// An end of a connection.
#[derive(Debug)]
pub struct Connection {
    socket: SeqpacketSocket,
    unsent: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    failure_count: u32,
    last_sender: Option<Sender>,
}

/// The result of receiving.
#[derive(Debug)]
pub enum Received {
    /// A message with its descriptors.
    Message(Message, IncomingFds),
    /// There is no message now.
    WouldBlock,
    /// The peer has closed the connection.
    Closed,
}

impl Connection {
    /// Both ends of a new connection.
    pub fn pair() -> io::Result<(Connection, Connection)> {
        let (one, other) = SeqpacketSocket::pair()?;
        Ok((Connection::new(one), Connection::new(other)))
    }

    /// Connects to the control socket at `path`.
    pub fn connect(path: &Path) -> io::Result<Connection> {
        SeqpacketSocket::connect(path).map(Connection::new)
    }

    /// The connection of an inherited or received descriptor.
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<Connection> {
        SeqpacketSocket::from_fd(descriptor).map(Connection::new)
    }

    /// The descriptor, without messages that are still unsent.
    pub fn into_fd(self) -> OwnedFd {
        self.socket.into_fd()
    }

    pub(crate) fn new(socket: SeqpacketSocket) -> Connection {
        Connection { socket, unsent: VecDeque::new(), failure_count: 0, last_sender: None }
    }

    /// Sends a message, after those that are still unsent.
    ///
    /// # Errors
    /// Returns an error if the peer has closed the connection.
    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        self.send_with(message, Vec::new())
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// Returns an error if the peer has closed the connection, or the message does not fit into a packet.
    pub fn send_with(&mut self, message: &Message, descriptors: IncomingFds) -> io::Result<()> {
        let (kinds, descriptors): (Vec<FdKind>, Vec<OwnedFd>) = descriptors.into_iter().unzip();
        let packet = encode(message, &kinds);
        if packet.len() > MESSAGE_BYTES_MAX {
            return Err(io::Error::other(format!("the message has {} bytes", packet.len())));
        }
        self.unsent.push_back((packet, descriptors));
        self.flush()
    }

    /// Sends the unsent messages for which the peer has room.
    ///
    /// # Errors
    /// Returns an error if the peer has closed the connection.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some((packet, descriptors)) = self.unsent.front() {
            let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            let result = self.socket.send(packet, &descriptors);
            match result {
                Ok(true) => {
                    self.unsent.pop_front();
                    self.failure_count = 0;
                }
                Ok(false) => return Ok(()),
                Err(error) => return self.fail_if_persistent(error),
            }
        }
        Ok(())
    }

    /// Sends all unsent messages, and waits for room until `deadline`.
    ///
    /// # Errors
    /// Returns an error if the peer has closed the connection or does not read.
    pub fn flush_until(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            self.flush()?;
            if self.unsent.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the other process does not read messages"));
            }
            PollSet::new([]).wait(Some(RETRY_INTERVAL))?;
        }
    }

    /// Sends a message, and waits up to `timeout` until the peer has room for it.
    ///
    /// # Errors
    /// Returns an error if the peer has closed the connection or does not read.
    pub fn send_and_wait(&mut self, message: &Message, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        self.send(message)?;
        while !self.unsent.is_empty() {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the other process does not read messages"));
            }
            PollSet::for_writing([self.as_fd()]).wait(Some(rest))?;
            self.flush()?;
        }
        Ok(())
    }

    /// The number of messages for which the peer had no room. While it is not 0, call [`Connection::flush`] every
    /// [`RETRY_INTERVAL`].
    pub fn unsent_count(&self) -> usize {
        self.unsent.len()
    }

    /// Whether the queue is so long that its source must pause.
    pub fn is_full(&self) -> bool {
        let descriptors =
            || self.unsent.iter().map(|(_, descriptors)| descriptors.len()).fold(0, usize::saturating_add);
        self.unsent.len() >= UNSENT_MAX || (!self.unsent.is_empty() && descriptors() >= UNSENT_DESCRIPTORS_MAX)
    }

    /// From now on the kernel names the senders of messages.
    pub fn identify_senders(&self) -> io::Result<()> {
        self.socket.identify_senders()
    }

    /// The process that has sent the last message, as the kernel names it; `None` without
    /// [`Connection::identify_senders`].
    pub fn last_sender(&self) -> Option<Sender> {
        self.last_sender
    }

    /// Receives the next message.
    ///
    /// # Errors
    /// Returns an error if the packet is not a message (`InvalidData`, with a [`DecodeError`](crate::DecodeError)), has
    /// more descriptors than this process may open (`InvalidData`), or if the connection is broken.
    pub fn recv(&mut self) -> io::Result<Received> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let (length_bytes, descriptors) = match self.socket.receive(&mut buffer) {
            Ok(seqpacket::Received::Message { length_bytes, descriptors, sender }) => {
                self.last_sender = sender;
                (length_bytes, descriptors)
            }
            Ok(seqpacket::Received::WouldBlock) => return Ok(Received::WouldBlock),
            Ok(seqpacket::Received::Closed) => return Ok(Received::Closed),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(error) => return self.fail_if_persistent(error).map(|()| Received::WouldBlock),
        };
        self.failure_count = 0;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let (message, kinds) = decode(&buffer[..length_bytes]).map_err(invalid)?;
        if kinds.len() != descriptors.len() {
            let message = format!("a message names {} descriptors and has {}", kinds.len(), descriptors.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Received::Message(message, kinds.into_iter().zip(descriptors).collect()))
    }

    /// Ignores an error that may be temporary, up to `FAILURES_MAX` in a row.
    fn fail_if_persistent(&mut self, error: io::Error) -> io::Result<()> {
        self.failure_count = self.failure_count.saturating_add(1);
        if is_closed(&error) || self.failure_count > FAILURES_MAX { Err(error) } else { Ok(()) }
    }
}

/// Whether an error of sending means that the other process has closed the connection.
pub fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected)
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::{kinds, messages};
    use crate::message::{Event, Text};

    #[test]
    fn messages_arrive_in_order_with_their_descriptors() {
        let (mut sender, mut receiver) = Connection::pair().expect("a pair");
        assert!(matches!(receiver.recv(), Ok(Received::WouldBlock)));
        for message in messages() {
            let copy = |kind| (kind, sender.as_fd().try_clone_to_owned().expect("a copy"));
            let descriptors = kinds().into_iter().map(copy).collect();
            sender.send_with(&message, descriptors).expect("sent");
            match receiver.recv() {
                Ok(Received::Message(received, descriptors)) => {
                    assert_eq!(received, message);
                    assert_eq!(descriptors.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>(), kinds());
                }
                other => panic!("{other:?}"),
            }
        }
        drop(sender);
        assert!(matches!(receiver.recv(), Ok(Received::Closed)));
        receiver.send(&Message::Event(Event::Ready { problem_count: 0 })).expect_err("closed");
    }

    #[test]
    fn message_without_room_is_sent_later() {
        const COUNT: usize = 10_000;
        let (mut sender, mut receiver) = Connection::pair().expect("a pair");
        for _ in 0..COUNT {
            sender.send(&Message::Event(Event::Stdout(Text::new(&"x".repeat(1_000))))).expect("kept");
        }
        assert!(sender.unsent_count() > 0 && sender.is_full());
        sender.flush_until(Instant::now()).expect_err("the peer does not read");
        let mut received = 0;
        while received < COUNT {
            match receiver.recv().expect("received") {
                Received::Message(..) => received += 1,
                Received::WouldBlock => sender.flush().expect("sent"),
                Received::Closed => panic!("closed"),
            }
        }
        assert_eq!(sender.unsent_count(), 0);
        assert!(!sender.is_full());
    }

    #[test]
    fn connection_with_many_unsent_descriptors_is_full() {
        let (mut sender, _receiver) = Connection::pair().expect("a pair");
        let copy = || (FdKind::Requester, memfd());
        let mut count = 0;
        while !sender.is_full() {
            sender.send_with(&Message::Event(Event::Heartbeat), vec![copy(), copy()]).expect("kept");
            count += 1;
        }
        assert!(sender.unsent_count() <= UNSENT_DESCRIPTORS_MAX / 2, "{count}");
    }

    fn memfd() -> OwnedFd {
        sanderling_os::memfd::create("test", b"").expect("created")
    }

    #[test]
    fn packet_with_other_descriptors_than_it_names_is_refused() {
        let (sender, receiver) = SeqpacketSocket::pair().expect("a pair");
        let mut receiver = Connection::new(receiver);
        for (named, sent) in [(&kinds()[..1], &[][..]), (&[], &[sender.as_fd()])] {
            assert!(sender.send(&encode(&Message::Event(Event::Heartbeat), named), sent).expect("sent"));
            assert_eq!(receiver.recv().expect_err("another number").kind(), io::ErrorKind::InvalidData);
        }
    }
}
