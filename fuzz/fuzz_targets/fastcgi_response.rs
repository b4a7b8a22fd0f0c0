//! Any records of an application in any pieces: the decoder keeps its place, and what it yields does not depend on the
//! pieces.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use sanderling_fastcgi::{DecodeError, Decoder, Event};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    parts: Vec<Part<'a>>,
    piece_bytes: u8,
}

#[derive(Arbitrary, Debug)]
enum Part<'a> {
    Record { kind: u8, request_id: u8, content: &'a [u8], padding_bytes: u8 },
    End { app_status: u8, protocol_status: u8, padding_bytes: u8 },
    Bytes(&'a [u8]),
}

const KINDS: u8 = 12;
const REQUEST_IDS: u8 = 3;

fuzz_target!(|input: Input<'_>| {
    let mut bytes = Vec::new();
    for part in &input.parts {
        match part {
            Part::Record { kind, request_id, content, padding_bytes } => {
                put_record(kind % KINDS, request_id % REQUEST_IDS, content, *padding_bytes, &mut bytes);
            }
            Part::End { app_status, protocol_status, padding_bytes } => {
                let content = [0, 0, 0, *app_status, *protocol_status, 0, 0, 0];
                put_record(3, 1, &content, *padding_bytes, &mut bytes);
            }
            Part::Bytes(other) => bytes.extend_from_slice(other),
        }
    }
    let whole = decode(&bytes, usize::MAX);
    assert_eq!(decode(&bytes, usize::from(input.piece_bytes).max(1)), whole);
    assert!(whole.out.len() + whole.log.len() <= bytes.len());
});

fn put_record(kind: u8, request_id: u8, content: &[u8], padding_bytes: u8, out: &mut Vec<u8>) {
    let [high, low] = (content.len() as u16).to_be_bytes();
    out.extend_from_slice(&[1, kind, 0, request_id, high, low, padding_bytes, 0]);
    out.extend_from_slice(content);
    out.resize(out.len() + usize::from(padding_bytes), 0);
}

#[derive(Debug, PartialEq)]
struct Decoded {
    out: Vec<u8>,
    log: Vec<u8>,
    /// The bytes before the end of the response, or the error.
    end: Result<Option<usize>, DecodeError>,
}

fn decode(bytes: &[u8], piece_bytes: usize) -> Decoded {
    let (mut decoder, mut taken_bytes) = (Decoder::new(), 0);
    let mut decoded = Decoded { out: Vec::new(), log: Vec::new(), end: Ok(None) };
    for piece in bytes.chunks(piece_bytes) {
        let mut rest = piece;
        loop {
            let (taken, event) = match decoder.advance(rest) {
                Ok(advanced) => advanced,
                Err(error) => return Decoded { end: Err(error), ..decoded },
            };
            rest = &rest[taken..];
            taken_bytes += taken;
            match event {
                Some(Event::Stdout(text)) => decoded.out.extend_from_slice(text),
                Some(Event::Stderr(text)) => decoded.log.extend_from_slice(text),
                Some(Event::End { .. }) => return Decoded { end: Ok(Some(taken_bytes)), ..decoded },
                None => break,
            }
        }
        assert!(rest.is_empty(), "all bytes are taken");
    }
    decoded
}
