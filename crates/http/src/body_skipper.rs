//! The content of a request, read only to find where the next request starts (RFC 9112 §6, §7.1).

use crate::grammar::is_token_byte;
use crate::request::{Framing, RequestLimits};
use crate::request_error::RequestError;

/// Digits of the longest chunk size: all that 64 bits can hold.
const SIZE_DIGITS_MAX: u8 = 16;
/// Bytes of all chunk extensions and trailer fields of one content together. RFC 9112 §7.1.1 asks for such a bound:
/// they are framing, and so no limit of the content itself would stop them.
const ANNEX_BYTES_MAX: u16 = 4096;

/// What one step of [`BodySkipper::advance`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// How many of the bytes belong to the content; all of them, unless it is at its end.
    pub consumed_bytes: usize,
    /// Whether the content is at its end, and the next request may follow.
    pub is_done: bool,
}

/// Content on its way out: takes bytes as they come and keeps none.
#[derive(Clone, Debug)]
pub struct BodySkipper {
    state: State,
    /// Bytes of content that may still come.
    left_bytes_max: u64,
    /// Bytes of extensions and trailer fields that may still come.
    left_annex_bytes: u16,
}

/// Where in the content the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In content of which this many bytes are left, more than none.
    Length(u64),
    /// In the size of a chunk.
    Size {
        value: u64,
        digit_count: u8,
    },
    /// In the extensions of a chunk.
    Extension {
        size_bytes: u64,
    },
    /// At the LF behind a size and its extensions.
    SizeLineFeed {
        size_bytes: u64,
    },
    /// In a chunk of which this many bytes are left, more than none.
    Chunk(u64),
    /// At the CR behind a chunk.
    ChunkReturn,
    /// At the LF behind a chunk.
    ChunkLineFeed,
    /// At the start of a line of the trailer section.
    TrailerStart,
    /// In the name of a trailer field.
    TrailerName,
    /// In the value of a trailer field.
    TrailerValue,
    /// At the LF behind a trailer field.
    TrailerLineFeed,
    /// At the last LF.
    LastLineFeed,
    Done,
}

impl BodySkipper {
    /// For the content that a request announces.
    pub fn new(framing: Framing, limits: &RequestLimits) -> BodySkipper {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length_bytes) => State::Length(length_bytes),
            Framing::Chunked => State::Size { value: 0, digit_count: 0 },
        };
        BodySkipper { state, left_bytes_max: limits.body_bytes_max, left_annex_bytes: ANNEX_BYTES_MAX }
    }

    /// Whether nothing of the content is still to come.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes the next bytes of the connection, up to the end of the content.
    ///
    /// After an error the state is of no more use: the end of the content is unknown, and the connection must close.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Skipped, RequestError> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            at += match self.state {
                State::Length(left_bytes) => self.pass(left_bytes, bytes.len() - at, State::Done, State::Length)?,
                State::Chunk(left_bytes) => {
                    self.pass(left_bytes, bytes.len() - at, State::ChunkReturn, State::Chunk)?
                }
                state => {
                    self.take_framing(state, bytes[at])?;
                    1
                }
            };
        }
        Ok(Skipped { consumed_bytes: at, is_done: self.is_done() })
    }

    /// Passes over as much as is there of a run of `left_bytes`; how much that was.
    fn pass(
        &mut self,
        left_bytes: u64,
        available_bytes: usize,
        behind: State,
        within: fn(u64) -> State,
    ) -> Result<usize, RequestError> {
        // Refused before it is read: the size alone says that it is too much.
        if left_bytes > self.left_bytes_max {
            return Err(RequestError::BodyTooLarge);
        }
        let passed_bytes = left_bytes.min(available_bytes as u64);
        self.left_bytes_max -= passed_bytes;
        self.state = if passed_bytes == left_bytes { behind } else { within(left_bytes - passed_bytes) };
        Ok(passed_bytes as usize)
    }

    fn take_framing(&mut self, state: State, byte: u8) -> Result<(), RequestError> {
        self.state = after(state, byte).ok_or(RequestError::InvalidChunk)?;
        if matches!(self.state, State::Extension { .. } | State::TrailerName | State::TrailerValue) {
            self.left_annex_bytes = self.left_annex_bytes.checked_sub(1).ok_or(RequestError::InvalidChunk)?;
        }
        match self.state {
            // As above: the size alone says that it is too much.
            State::Chunk(left_bytes) if left_bytes > self.left_bytes_max => Err(RequestError::BodyTooLarge),
            _ => Ok(()),
        }
    }
}

/// The state behind one byte of chunked framing (RFC 9112 §7.1); `None` when the byte may not stand there.
fn after(state: State, byte: u8) -> Option<State> {
    Some(match (state, byte) {
        // Sixteen digits of four bits fit: nothing is shifted out.
        (State::Size { value, digit_count }, _) if byte.is_ascii_hexdigit() && digit_count < SIZE_DIGITS_MAX => {
            State::Size { value: value << 4 | u64::from(hex_value(byte)), digit_count: digit_count + 1 }
        }
        (State::Size { digit_count: 0, .. }, _) => return None,
        (State::Size { value: size_bytes, .. }, b'\r') => State::SizeLineFeed { size_bytes },
        (State::Size { value: size_bytes, .. }, b';') => State::Extension { size_bytes },
        (State::Extension { size_bytes }, b'\r') => State::SizeLineFeed { size_bytes },
        (State::Extension { size_bytes }, _) if is_text_byte(byte) => State::Extension { size_bytes },
        (State::SizeLineFeed { size_bytes: 0 }, b'\n') => State::TrailerStart,
        (State::SizeLineFeed { size_bytes }, b'\n') => State::Chunk(size_bytes),
        (State::ChunkReturn, b'\r') => State::ChunkLineFeed,
        (State::ChunkLineFeed, b'\n') => State::Size { value: 0, digit_count: 0 },
        (State::TrailerStart, b'\r') => State::LastLineFeed,
        (State::TrailerName, b':') => State::TrailerValue,
        (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => State::TrailerName,
        (State::TrailerValue, b'\r') => State::TrailerLineFeed,
        (State::TrailerValue, _) if is_text_byte(byte) => State::TrailerValue,
        (State::TrailerLineFeed, b'\n') => State::TrailerStart,
        (State::LastLineFeed, b'\n') => State::Done,
        _ => return None,
    })
}

fn is_text_byte(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
