//! What a supervisor and its server process say to each other: one message a packet, over a pair of sockets that the
//! server process inherits.

use sanderling_os::seqpacket::{MESSAGE_BYTES_MAX, Received, SeqpacketSocket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the supervisor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Go on with the configuration whose text comes along as a descriptor.
    TakeUp,
    /// Say how you stand, in words.
    Tell,
    /// Say how you stand, as a JSON object.
    TellJson,
    /// Another server process serves from now on: finish what you have.
    GiveWay,
    /// Nobody serves from now on: finish what you have.
    Stop,
}

impl Order {
    const ALL: [Order; 5] = [Order::TakeUp, Order::Tell, Order::TellJson, Order::GiveWay, Order::Stop];

    fn of(number: u8) -> Option<Order> {
        Order::ALL.get(usize::from(number)).copied()
    }
}

/// What the server process says. Each stands for itself but [`Word::Out`] and [`Word::Err`], which are parts of the answer
/// to an order that one of the others ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// It serves.
    Ready,
    /// All its threads move.
    Beat,
    /// This thread of it does not.
    Hung(String),
    /// A line of its answer.
    Out(String),
    /// A line of what is wrong.
    Err(String),
    /// It goes on with the new configuration.
    TakenUp,
    /// It goes on with the old one, and why has been said.
    Refused,
    /// It cannot take the new configuration up, but another process could.
    Unable(String),
    /// It has said how it stands.
    Told,
    /// It has to end, by a failure of its own: another one is to serve.
    Leaving,
    /// It lets nobody in any more, as it was told to stop: whoever comes now can be refused.
    Shut,
}

impl Word {
    fn parts(&self) -> (u8, &str) {
        match self {
            Word::Ready => (0, ""),
            Word::Beat => (1, ""),
            Word::Hung(thread) => (2, thread),
            Word::Out(text) => (3, text),
            Word::Err(text) => (4, text),
            Word::TakenUp => (5, ""),
            Word::Refused => (6, ""),
            Word::Unable(reason) => (7, reason),
            Word::Told => (8, ""),
            Word::Leaving => (9, ""),
            Word::Shut => (10, ""),
        }
    }

    fn of(number: u8, text: String) -> Option<Word> {
        Some(match number {
            0 => Word::Ready,
            1 => Word::Beat,
            2 => Word::Hung(text),
            3 => Word::Out(text),
            4 => Word::Err(text),
            5 => Word::TakenUp,
            6 => Word::Refused,
            7 => Word::Unable(text),
            8 => Word::Told,
            9 => Word::Leaving,
            10 => Word::Shut,
            _ => return None,
        })
    }
}

/// One end of it.
#[derive(Debug)]
pub struct Channel(SeqpacketSocket);

impl Channel {
    /// Both ends of a new one.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (one, other) = SeqpacketSocket::pair()?;
        Ok((Channel(one), Channel(other)))
    }

    /// Takes over an end that was inherited.
    pub fn adopt(descriptor: OwnedFd) -> io::Result<Channel> {
        SeqpacketSocket::from_fd(descriptor).map(Channel)
    }

    /// Goes on as a channel on a connection that was something else before.
    pub fn on(endpoint: SeqpacketSocket) -> Channel {
        Channel(endpoint)
    }

    /// Gives an order, with a descriptor if it needs one.
    ///
    /// # Errors
    /// The server process is gone, or has left so many orders unread that it will not read this one either.
    pub fn order(&self, order: Order, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        match self.0.send(&[order as u8], descriptor.as_slice()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error),
        }
    }

    /// Says a word; `false` while the supervisor has so many unread that there is no room for this one. Text that does not
    /// fit into one message is cut.
    ///
    /// # Errors
    /// The supervisor is gone.
    pub fn say(&self, word: &Word) -> io::Result<bool> {
        let (number, text) = word.parts();
        let text = &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX - 1)];
        let mut message = Vec::with_capacity(1 + text.len());
        message.push(number);
        message.extend_from_slice(text.as_bytes());
        self.0.send(&message, &[])
    }

    /// The next order, with the descriptors that came along.
    pub fn next_order(&self) -> io::Result<Heard<(Order, Vec<OwnedFd>)>> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        Ok(match self.0.receive(&mut buffer)? {
            Received::WouldBlock => Heard::Nothing,
            Received::Closed => Heard::Ended,
            Received::Message { descriptors, .. } => match Order::of(buffer[0]) {
                Some(order) => Heard::Message((order, descriptors)),
                None => return Err(not_understood()),
            },
        })
    }

    /// The next word.
    pub fn next_word(&self) -> io::Result<Heard<Word>> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        Ok(match self.0.receive(&mut buffer)? {
            Received::WouldBlock => Heard::Nothing,
            Received::Closed => Heard::Ended,
            Received::Message { length_bytes, .. } => {
                let text = String::from_utf8_lossy(buffer[..length_bytes].get(1..).unwrap_or_default()).into_owned();
                Heard::Message(Word::of(buffer[0], text).ok_or_else(not_understood)?)
            }
        })
    }
}

/// What was there to hear.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<M> {
    /// A message.
    Message(M),
    /// Nothing now.
    Nothing,
    /// The other side is gone.
    Ended,
}

fn not_understood() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message between supervisor and server process is of no known kind")
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_arrives() {
        let (supervisor, server) = Channel::pair().expect("made");
        assert_eq!(supervisor.next_word().expect("no error"), Heard::Nothing);
        let words = [
            Word::Ready,
            Word::Beat,
            Word::Hung("worker 1".into()),
            Word::Out("a\n".into()),
            Word::Err("b\n".into()),
            Word::TakenUp,
            Word::Refused,
            Word::Unable("a root".into()),
            Word::Told,
            Word::Leaving,
            Word::Shut,
        ];
        for word in words {
            server.say(&word).expect("said");
            assert_eq!(supervisor.next_word().expect("heard"), Heard::Message(word));
        }
        for order in Order::ALL {
            supervisor.order(order, Some(supervisor.as_fd())).expect("given");
            let Heard::Message((heard, descriptors)) = server.next_order().expect("heard") else { panic!("an order") };
            assert_eq!((heard, descriptors.len()), (order, 1));
        }
        drop(server);
        assert_eq!(supervisor.next_word().expect("no error"), Heard::Ended);
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let (supervisor, server) = Channel::pair().expect("made");
        server.say(&Word::Out("é".repeat(MESSAGE_BYTES_MAX))).expect("said");
        let Heard::Message(Word::Out(text)) = supervisor.next_word().expect("heard") else { panic!("text") };
        assert!(text.len() > MESSAGE_BYTES_MAX - 4 && text.chars().all(|char| char == 'é'));
    }
}
