//! Questions turned into queries over TCP, and the octets that come back into right or wrong (RFC 7766 §8).

use crate::outcome::Cause;
use crate::protocol::{Protocol, Taken};
use crate::question::Question;
use crate::random::Random;
use crate::reply::{Transport, check_reply};
use std::sync::Arc;

/// Octets of the length before each message.
const LENGTH_BYTES: usize = 2;

/// Questions in a random order, over TCP.
#[derive(Debug)]
pub(crate) struct DnsStream {
    questions: Arc<[Question]>,
    random: Random,
}

impl DnsStream {
    pub(crate) fn new(questions: Arc<[Question]>, random: Random) -> DnsStream {
        DnsStream { questions, random }
    }

    /// Asks this question, which is among those given.
    pub(crate) fn ask_question(&mut self, question_index: usize, out: &mut Vec<u8>) -> DnsAnswer {
        let id = self.random.next_u16();
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        self.questions[question_index].put_query(id, out);
        let length_bytes = out.len() - start - LENGTH_BYTES;
        let length_bytes = u16::try_from(length_bytes).expect("a query has one name, of at most 255 octets");
        out[start..start + LENGTH_BYTES].copy_from_slice(&length_bytes.to_be_bytes());
        DnsAnswer { question_index, id, received: Vec::new() }
    }
}

/// An answer so far, with the length before it.
#[derive(Debug)]
pub(crate) struct DnsAnswer {
    question_index: usize,
    id: u16,
    received: Vec<u8>,
}

impl DnsAnswer {
    /// The message without the length before it, when it is whole.
    pub(crate) fn message(&self) -> Option<&[u8]> {
        let (length, message) = self.received.split_first_chunk::<LENGTH_BYTES>()?;
        message.get(..usize::from(u16::from_be_bytes(*length)))
    }
}

impl Protocol for DnsStream {
    type Answer = DnsAnswer;
    // The client closes when it has no more to ask (RFC 7766 §6.2.1).
    const SERVER_CLOSES: bool = false;

    fn ask(&mut self, out: &mut Vec<u8>) -> DnsAnswer {
        let question_index = self.random.index(self.questions.len());
        self.ask_question(question_index, out)
    }

    fn take(&mut self, answer: &mut DnsAnswer, bytes: &[u8]) -> Taken {
        answer.received.extend_from_slice(bytes);
        let Some(message) = answer.message() else { return Taken::More };
        if LENGTH_BYTES + message.len() < answer.received.len() {
            return Taken::Wrong(Cause::WrongContent, "octets behind the end of the message".to_owned());
        }
        match check_reply(message, answer.id, &self.questions[answer.question_index], Transport::Tcp) {
            Ok(_) => Taken::Whole { closes: false },
            Err((cause, what)) => Taken::Wrong(cause, what),
        }
    }
}
