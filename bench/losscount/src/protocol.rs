//! What a protocol over a stream must supply: octets to send, and a judge of those that come back.

use crate::outcome::Cause;

/// A protocol with one outstanding request to a connection.
pub trait Protocol {
    /// An answer so far.
    type Answer;
    /// Whether the server is to close the connection after the only answer on it; else we do.
    const SERVER_CLOSES: bool;

    /// The octets of the next request, put behind those in `out`, and the beginning of its answer.
    fn ask(&mut self, out: &mut Vec<u8>) -> Self::Answer;
    /// The next octets that came.
    fn take(&mut self, answer: &mut Self::Answer, bytes: &[u8]) -> Taken;
}

/// How an answer stands after some octets more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Right so far, and not whole.
    More,
    /// Whole and right.
    Whole {
        /// Whether the server has said that it closes the connection.
        closes: bool,
    },
    /// Not the right answer, and what is wrong with it.
    Wrong(Cause, String),
}
