//! Decodes the records of a response, in pieces of any size.

use core::fmt;

use crate::record::{HEADER_BYTES, Header, REQUEST_ID, VERSION, kind};

/// Bytes of the content of the record that ends a request (§5.5).
const END_BYTES: usize = 8;

/// A part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// Output of the script: the head and the content of the response. Never empty.
    Stdout(&'b [u8]),
    /// Text for the log. Never empty; a line may arrive in several parts.
    Stderr(&'b [u8]),
    /// The response has ended. The connection can carry the next request if the application leaves it open, the content
    /// of this request was sent whole, and no byte follows.
    End {
        /// The exit status of the script.
        app_status: u32,
        /// Whether the application has accepted the request.
        protocol_status: ProtocolStatus,
    },
}

/// Whether an application has accepted a request (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolStatus {
    /// The request is complete.
    Complete,
    /// The application does not handle several requests at a time on a connection.
    CannotMultiplex,
    /// The application is out of some resource: another server may answer.
    Overloaded,
    /// The application is not a responder.
    UnknownRole,
    /// A status that the protocol does not have.
    Unknown(u8),
}

/// Why received bytes are not a response. The connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeError {
    /// The version of a record is not 1: the server speaks another protocol.
    UnsupportedVersion,
    /// A record is for a request that the connection does not have.
    UnknownRequest,
    /// The record that ends the request has another length than eight bytes.
    InvalidEnd,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            DecodeError::UnsupportedVersion => "a record does not have version 1 of FastCGI",
            DecodeError::UnknownRequest => "a record is for another request",
            DecodeError::InvalidEnd => "the record that ends the request has an invalid length",
        })
    }
}

impl core::error::Error for DecodeError {}

/// Decodes one response. It keeps nothing but the header of the current record.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
}

/// The position of the next byte.
#[derive(Clone, Copy, Debug)]
enum State {
    Header(Partial),
    Content {
        kind: Content,
        /// Bytes that remain; at least one.
        left_bytes: u16,
        padding_bytes: u8,
    },
    End {
        bytes: Partial,
        padding_bytes: u8,
    },
    /// In the padding of a record; of the last one if its content is here.
    Padding {
        left_bytes: u8,
        end: Option<[u8; END_BYTES]>,
    },
    Done,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Stdout,
    Stderr,
    Ignored,
}

/// The first bytes of a header, or of the content of the last record, which have the same length.
#[derive(Clone, Copy, Debug)]
struct Partial {
    bytes: [u8; HEADER_BYTES],
    count: usize,
}

impl Partial {
    const EMPTY: Partial = Partial { bytes: [0; HEADER_BYTES], count: 0 };

    /// Takes bytes until it is full, and returns how many.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(HEADER_BYTES - self.count);
        self.bytes[self.count..self.count + taken].copy_from_slice(&bytes[..taken]);
        self.count += taken;
        taken
    }

    fn full(&self) -> Option<[u8; HEADER_BYTES]> {
        (self.count == HEADER_BYTES).then_some(self.bytes)
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    /// For the response to a request that was begun on a connection without another one.
    pub fn new() -> Decoder {
        Decoder { state: State::Header(Partial::EMPTY) }
    }

    /// Whether the response has ended.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Takes bytes off the start of `bytes`, up to the next event. Returns how many, and the event; `None` if all bytes
    /// are taken and the next event needs more. After [`Event::End`] no byte is taken.
    pub fn advance<'b>(&mut self, bytes: &'b [u8]) -> Result<(usize, Option<Event<'b>>), DecodeError> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            // These two states end without another byte.
            match self.state {
                State::Done => return Ok((at, None)),
                State::Padding { left_bytes: 0, end } => {
                    self.state = if end.is_some() { State::Done } else { State::Header(Partial::EMPTY) };
                    match end {
                        Some(end) => return Ok((at, Some(end_event(end)))),
                        None => continue,
                    }
                }
                _ if rest.is_empty() => return Ok((at, None)),
                _ => {}
            }
            match &mut self.state {
                State::Header(header) => {
                    at += header.take(rest);
                    if let Some(header) = header.full() {
                        self.state = after_header(Header::from_bytes(header))?;
                    }
                }
                State::Content { kind, left_bytes, padding_bytes } => {
                    let piece = &rest[..rest.len().min(usize::from(*left_bytes))];
                    at += piece.len();
                    *left_bytes -= piece.len() as u16;
                    let kind = *kind;
                    if *left_bytes == 0 {
                        self.state = State::Padding { left_bytes: *padding_bytes, end: None };
                    }
                    match kind {
                        Content::Stdout => return Ok((at, Some(Event::Stdout(piece)))),
                        Content::Stderr => return Ok((at, Some(Event::Stderr(piece)))),
                        Content::Ignored => {}
                    }
                }
                State::End { bytes, padding_bytes } => {
                    at += bytes.take(rest);
                    if let Some(end) = bytes.full() {
                        self.state = State::Padding { left_bytes: *padding_bytes, end: Some(end) };
                    }
                }
                State::Padding { left_bytes, .. } => {
                    let taken = rest.len().min(usize::from(*left_bytes));
                    at += taken;
                    *left_bytes -= taken as u8;
                }
                State::Done => {}
            }
        }
    }
}

fn after_header(header: Header) -> Result<State, DecodeError> {
    let Header { version, kind, request_id, content_bytes, padding_bytes } = header;
    if version != VERSION {
        return Err(DecodeError::UnsupportedVersion);
    }
    let kind = match (request_id, kind) {
        // A management record (§4): none was asked for.
        (0, _) => Content::Ignored,
        (REQUEST_ID, kind::STDOUT) => Content::Stdout,
        (REQUEST_ID, kind::STDERR) => Content::Stderr,
        (REQUEST_ID, kind::END_REQUEST) if usize::from(content_bytes) == END_BYTES => {
            return Ok(State::End { bytes: Partial::EMPTY, padding_bytes });
        }
        (REQUEST_ID, kind::END_REQUEST) => return Err(DecodeError::InvalidEnd),
        // §3.3: records of unknown types are ignored.
        (REQUEST_ID, _) => Content::Ignored,
        _ => return Err(DecodeError::UnknownRequest),
    };
    Ok(match content_bytes {
        0 => State::Padding { left_bytes: padding_bytes, end: None },
        left_bytes => State::Content { kind, left_bytes, padding_bytes },
    })
}

fn end_event(content: [u8; END_BYTES]) -> Event<'static> {
    let [a, b, c, d, protocol_status, ..] = content;
    let protocol_status = match protocol_status {
        0 => ProtocolStatus::Complete,
        1 => ProtocolStatus::CannotMultiplex,
        2 => ProtocolStatus::Overloaded,
        3 => ProtocolStatus::UnknownRole,
        other => ProtocolStatus::Unknown(other),
    };
    Event::End { app_status: u32::from_be_bytes([a, b, c, d]), protocol_status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn record(kind: u8, request_id: u16, content: &[u8], padding_bytes: u8) -> Vec<u8> {
        let content_bytes = content.len() as u16;
        let header = Header { version: VERSION, kind, request_id, content_bytes, padding_bytes };
        [&header.to_bytes()[..], content, &vec![0xaa; usize::from(padding_bytes)]].concat()
    }

    /// The output and the log text, and the end with the number of bytes after it.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Decoded {
        out: Vec<u8>,
        log: Vec<u8>,
        end: Option<(Event<'static>, usize)>,
    }

    fn decoded(out: &str, log: &str, end: Option<(Event<'static>, usize)>) -> Result<Decoded, DecodeError> {
        Ok(Decoded { out: out.into(), log: log.into(), end })
    }

    /// These records are decoded as `expected`, whatever the pieces.
    #[track_caller]
    fn check(records: &[Vec<u8>], expected: &Result<Decoded, DecodeError>) {
        let bytes = records.concat();
        for piece_bytes in [1, 2, 3, 7, 8, 9, 100, usize::MAX] {
            assert_eq!(decode(&bytes, piece_bytes), *expected, "pieces of {piece_bytes}");
        }
    }

    fn decode(bytes: &[u8], piece_bytes: usize) -> Result<Decoded, DecodeError> {
        let (mut decoder, mut decoded, mut taken_bytes) = (Decoder::new(), Decoded::default(), 0);
        for piece in bytes.chunks(piece_bytes) {
            let mut rest = piece;
            loop {
                let (taken, event) = decoder.advance(rest)?;
                rest = &rest[taken..];
                taken_bytes += taken;
                match event {
                    Some(Event::Stdout(text)) => decoded.out.extend_from_slice(text),
                    Some(Event::Stderr(text)) => decoded.log.extend_from_slice(text),
                    Some(Event::End { app_status, protocol_status }) => {
                        assert!(decoder.is_done());
                        assert_eq!(decoder.advance(rest), Ok((0, None)));
                        let end = Event::End { app_status, protocol_status };
                        decoded.end = Some((end, bytes.len() - taken_bytes));
                        return Ok(decoded);
                    }
                    None => break,
                }
            }
            assert!(rest.is_empty() && !decoder.is_done());
        }
        Ok(decoded)
    }

    fn end(app_status: u8, protocol_status: u8, padding_bytes: u8) -> Vec<u8> {
        record(kind::END_REQUEST, 1, &[0, 0, 0, app_status, protocol_status, 9, 9, 9], padding_bytes)
    }

    const COMPLETE: Event<'static> = Event::End { app_status: 0, protocol_status: ProtocolStatus::Complete };

    #[test]
    fn output_and_log_are_separate() {
        let (stdout, stderr) = (kind::STDOUT, kind::STDERR);
        check(
            &[
                record(stdout, 1, b"ab", 6),
                record(stderr, 1, b"x", 0),
                record(stdout, 1, b"cdefgh", 255),
                record(stderr, 1, b"yz", 1),
                record(stdout, 1, b"", 0),
                record(stderr, 1, b"", 3),
                end(0, 0, 0),
            ],
            &decoded("abcdefgh", "xyz", Some((COMPLETE, 0))),
        );
    }

    #[test]
    fn response_ends_after_the_padding_of_its_last_record() {
        check(&[end(0, 0, 0), b"next".to_vec()], &decoded("", "", Some((COMPLETE, 4))));
        check(&[end(0, 0, 200), b"next".to_vec()], &decoded("", "", Some((COMPLETE, 4))));
        check(&[end(0, 0, 2)[..17].to_vec()], &decoded("", "", None));
        check(&[record(kind::STDOUT, 1, b"ab", 0)[..9].to_vec()], &decoded("a", "", None));
        check(&[], &decoded("", "", None));
    }

    #[test]
    fn end_says_whether_the_request_was_accepted() {
        for (byte, protocol_status) in [
            (1, ProtocolStatus::CannotMultiplex),
            (2, ProtocolStatus::Overloaded),
            (3, ProtocolStatus::UnknownRole),
            (4, ProtocolStatus::Unknown(4)),
        ] {
            check(&[end(7, byte, 0)], &decoded("", "", Some((Event::End { app_status: 7, protocol_status }, 0))));
        }
    }

    #[test]
    fn unknown_types_and_management_records_are_ignored() {
        const GET_VALUES_RESULT: u8 = 10;
        const UNKNOWN_TYPE: u8 = 11;
        check(
            &[
                record(GET_VALUES_RESULT, 0, b"\x0f\x01FCGI_MPXS_CONNS0", 0),
                record(UNKNOWN_TYPE, 0, &[99, 0, 0, 0, 0, 0, 0, 0], 0),
                record(kind::STDOUT, 0, b"x", 0),
                record(99, 1, b"abc", 5),
                record(99, 1, b"", 1),
                record(kind::STDOUT, 1, b"a", 0),
                end(0, 0, 0),
            ],
            &decoded("a", "", Some((COMPLETE, 0))),
        );
    }

    #[test]
    fn what_is_not_a_response_is_refused() {
        check(&[b"HTTP/1.1 200 OK\r\n\r\n".to_vec()], &Err(DecodeError::UnsupportedVersion));
        check(&[record(kind::STDOUT, 2, b"a", 0)], &Err(DecodeError::UnknownRequest));
        check(&[record(kind::END_REQUEST, 2, &[0; 8], 0)], &Err(DecodeError::UnknownRequest));
        check(&[record(kind::END_REQUEST, 1, &[0; 7], 0)], &Err(DecodeError::InvalidEnd));
        check(&[record(kind::END_REQUEST, 1, &[0; 16], 0)], &Err(DecodeError::InvalidEnd));
        check(&[record(kind::END_REQUEST, 1, &[], 0)], &Err(DecodeError::InvalidEnd));
    }

    #[test]
    fn longest_record_is_decoded() {
        let content = vec![b'x'; 65_535];
        let text = core::str::from_utf8(&content).expect("UTF-8");
        check(&[record(kind::STDOUT, 1, &content, 1), end(0, 0, 0)], &decoded(text, "", Some((COMPLETE, 0))));
    }

    proptest! {
        /// Records of any kind, of which one byte may be changed.
        #[test]
        fn pieces_do_not_matter(
            records in prop::collection::vec((0..12u8, 0..3u16, prop::collection::vec(any::<u8>(), 0..20), 0..10u8), 0..8),
            change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            piece_bytes in 1..40usize,
        ) {
            let record = |(kind, id, content, padding): &(u8, u16, Vec<u8>, u8)| record(*kind, *id, content, *padding);
            let mut bytes: Vec<u8> = records.iter().flat_map(record).collect();
            if let Some((index, byte)) = change.filter(|_| !bytes.is_empty()) {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
            prop_assert_eq!(decode(&bytes, piece_bytes), decode(&bytes, usize::MAX));
        }
    }
}
