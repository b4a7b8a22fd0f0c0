//! Skips the body of a request or a response, or takes its content, to find where the next message starts (RFC 9112
//! §6, §7.1).

use crate::backend_response::ResponseFraming;
use crate::grammar::is_token_byte;
use crate::request::{Framing, RequestLimits};
use crate::request_error::RequestError;

/// Digits of the longest chunk size, which has 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;
/// Bytes of all chunk extensions and trailer fields of one body. RFC 9112 §7.1.1 requires such a bound, since the limit
/// of the body does not count them.
const EXTRA_BYTES_MAX: u16 = 4096;

/// The result of [`BodySkipper::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// How many of the bytes belong to the body: all, unless it has ended.
    pub consumed_bytes: usize,
    /// Whether the body has ended: the next request follows.
    pub is_done: bool,
}

/// Consumes a body as it arrives and stores none of it.
#[derive(Clone, Debug)]
pub struct BodySkipper {
    state: State,
    /// Bytes of content that may still follow.
    left_content_bytes_max: u64,
    /// Bytes of extensions and trailer fields that may still follow.
    left_extra_bytes_max: u16,
}

/// The position of the next byte in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In content that has a Content-Length; this many bytes remain, at least one.
    Length(u64),
    /// In the size of a chunk.
    Size {
        value: u64,
        digit_count: u8,
    },
    /// In the extensions of a chunk.
    Extension {
        size_bytes: u64,
        part: ExtensionPart,
    },
    /// At the LF after a size and its extensions.
    SizeLineFeed {
        size_bytes: u64,
    },
    /// In a chunk; this many bytes remain, at least one.
    Chunk(u64),
    /// At the CR after a chunk.
    ChunkReturn,
    /// At the LF after a chunk.
    ChunkLineFeed,
    /// At the start of a line of the trailer section.
    TrailerStart,
    /// In the name of a trailer field.
    TrailerName,
    /// In the value of a trailer field.
    TrailerValue,
    /// At the LF after a trailer field.
    TrailerLineFeed,
    /// At the last LF.
    LastLineFeed,
    Done,
}

/// The last part seen of `*( BWS ";" BWS name [ BWS "=" BWS value ] )` (RFC 9112 §7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtensionPart {
    Semicolon,
    Name,
    /// White space after a name.
    NameSpace,
    Equals,
    /// A value that is a token.
    Token,
    /// A value that is a quoted string, before its closing quote.
    Quoted,
    /// A backslash in a quoted string.
    Backslash,
    ClosingQuote,
    /// White space after a size or a value.
    ValueSpace,
}

impl BodySkipper {
    /// For a body with this framing.
    pub fn new(framing: Framing, limits: &RequestLimits) -> BodySkipper {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length_bytes) => State::Length(length_bytes),
            Framing::Chunked => State::Size { value: 0, digit_count: 0 },
        };
        BodySkipper { state, left_content_bytes_max: limits.body_bytes_max, left_extra_bytes_max: EXTRA_BYTES_MAX }
    }

    /// Whether the length of the body is known, and exceeds its limit.
    pub fn is_too_long(&self) -> bool {
        matches!(self.state, State::Length(left_bytes) if left_bytes > self.left_content_bytes_max)
    }

    /// For the content of a response, of any length. Content that ends with the connection never ends here.
    pub fn of_response(framing: ResponseFraming) -> BodySkipper {
        let state = match framing {
            ResponseFraming::None | ResponseFraming::Length(0) => State::Done,
            ResponseFraming::Length(length_bytes) => State::Length(length_bytes),
            ResponseFraming::Chunked => State::Size { value: 0, digit_count: 0 },
            ResponseFraming::UntilClose => State::Length(u64::MAX),
        };
        BodySkipper { state, left_content_bytes_max: u64::MAX, left_extra_bytes_max: EXTRA_BYTES_MAX }
    }

    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Consumes the next bytes of the connection, up to the end of the body.
    ///
    /// After an error the end of the body is unknown: the connection must close.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Skipped, RequestError> {
        self.advance_with(bytes, |_| ())
    }

    /// The same, and gives the content to `keep`, piece by piece.
    pub fn advance_with(&mut self, bytes: &[u8], keep: impl FnMut(&[u8])) -> Result<Skipped, RequestError> {
        self.advance_with_trailers(bytes, keep, |_| ())
    }

    /// The same, and gives each byte of the trailer section, without the empty line at its end, to `keep_trailer`.
    pub fn advance_with_trailers(
        &mut self,
        bytes: &[u8],
        mut keep: impl FnMut(&[u8]),
        mut keep_trailer: impl FnMut(u8),
    ) -> Result<Skipped, RequestError> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            let content_bytes = match self.state {
                State::Length(left_bytes) => {
                    self.skip_content(left_bytes, bytes.len() - at, State::Done, State::Length)?
                }
                State::Chunk(left_bytes) => {
                    self.skip_content(left_bytes, bytes.len() - at, State::ChunkReturn, State::Chunk)?
                }
                state => {
                    self.take_framing_byte(state, bytes[at])?;
                    if self.is_in_trailers(state) {
                        keep_trailer(bytes[at]);
                    }
                    at += 1;
                    continue;
                }
            };
            keep(&bytes[at..at + content_bytes]);
            at += content_bytes;
        }
        Ok(Skipped { consumed_bytes: at, is_done: self.is_done() })
    }

    /// Skips as many of `left_bytes` of content as are available, and returns how many. The next state is `at_end`, or
    /// `within` with the bytes that remain.
    fn skip_content(
        &mut self,
        left_bytes: u64,
        available_bytes: usize,
        at_end: State,
        within: fn(u64) -> State,
    ) -> Result<usize, RequestError> {
        // Refused as soon as the size is known, before the content is read.
        if left_bytes > self.left_content_bytes_max {
            return Err(RequestError::BodyTooLarge);
        }
        let skipped_bytes = left_bytes.min(available_bytes as u64);
        self.left_content_bytes_max -= skipped_bytes;
        self.state = if skipped_bytes == left_bytes { at_end } else { within(left_bytes - skipped_bytes) };
        Ok(skipped_bytes as usize)
    }

    /// Whether the byte after `before` belongs to a trailer field.
    fn is_in_trailers(&self, before: State) -> bool {
        matches!(self.state, State::TrailerName | State::TrailerValue | State::TrailerLineFeed)
            || before == State::TrailerLineFeed
    }

    fn take_framing_byte(&mut self, state: State, byte: u8) -> Result<(), RequestError> {
        self.state = next_state(state, byte).ok_or(RequestError::InvalidChunk)?;
        if matches!(self.state, State::Extension { .. } | State::TrailerName | State::TrailerValue) {
            self.left_extra_bytes_max = self.left_extra_bytes_max.checked_sub(1).ok_or(RequestError::InvalidChunk)?;
        }
        match self.state {
            State::Chunk(left_bytes) if left_bytes > self.left_content_bytes_max => Err(RequestError::BodyTooLarge),
            _ => Ok(()),
        }
    }
}

/// The state after one byte of chunked framing (RFC 9112 §7.1); `None` if the byte is invalid in this state.
fn next_state(state: State, byte: u8) -> Option<State> {
    Some(match (state, byte) {
        // Sixteen digits of four bits each: the shift loses none.
        (State::Size { value, digit_count }, _) if byte.is_ascii_hexdigit() && digit_count < SIZE_DIGITS_MAX => {
            State::Size { value: value << 4 | u64::from(hex_value(byte)), digit_count: digit_count + 1 }
        }
        (State::Size { digit_count: 0, .. }, _) => return None,
        (State::Size { value: size_bytes, .. }, b'\r') => State::SizeLineFeed { size_bytes },
        (State::Size { value: size_bytes, .. }, _) => {
            State::Extension { size_bytes, part: next_extension_part(ExtensionPart::ValueSpace, byte)? }
        }
        (
            State::Extension {
                size_bytes,
                part: ExtensionPart::Name | ExtensionPart::Token | ExtensionPart::ClosingQuote,
            },
            b'\r',
        ) => State::SizeLineFeed { size_bytes },
        (State::Extension { size_bytes, part }, _) => {
            State::Extension { size_bytes, part: next_extension_part(part, byte)? }
        }
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

/// The part after one more byte of chunk extensions; `None` if the byte is invalid there.
fn next_extension_part(part: ExtensionPart, byte: u8) -> Option<ExtensionPart> {
    use ExtensionPart::*;
    Some(match (part, byte) {
        (Quoted, b'"') => ClosingQuote,
        (Quoted, b'\\') => Backslash,
        (Quoted | Backslash, _) if is_text_byte(byte) => Quoted,
        (Semicolon | NameSpace | Equals | ValueSpace, b' ' | b'\t') => part,
        (Name, b' ' | b'\t') => NameSpace,
        (Token | ClosingQuote, b' ' | b'\t') => ValueSpace,
        (Name | NameSpace | Token | ClosingQuote | ValueSpace, b';') => Semicolon,
        (Name | NameSpace, b'=') => Equals,
        (Equals, b'"') => Quoted,
        (Semicolon | Name, _) if is_token_byte(byte) => Name,
        (Equals | Token, _) if is_token_byte(byte) => Token,
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
