//! Any frames of a server in any pieces: the client's side of HTTP/2 does not panic, keeps its windows, and sends whole
//! frames.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use sanderling_http::{ResponseLimits, Scheme, parse_response};
use sanderling_http2::{Arrived, ClientSession, RESPONSE_WINDOW_BYTES, Scratch};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    pieces: Vec<Piece<'a>>,
    has_content: bool,
}

#[derive(Arbitrary, Debug)]
enum Piece<'a> {
    Frame { kind: u8, flags: u8, stream: u8, payload: &'a [u8] },
    Ok { stream: u8, flags: u8 },
    Bytes(&'a [u8]),
    Content { bytes: u16, is_last: bool },
    Take,
    Begin,
}

const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const HEAD: &[u8] = b"POST /a HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n";
const CONTENT: &[u8] = &[b'x'; 1 << 16];
const PREFACE_BYTES: usize = 24;
const KINDS: u8 = 12;

fuzz_target!(|input: Input<'_>| {
    let mut session = ClientSession::new();
    let (mut scratch, mut out, mut pending, mut held) = (Scratch::default(), vec![], SETTINGS.to_vec(), 0);
    session.begin(HEAD, Scheme::Http, !input.has_content, &mut out);
    'pieces: for piece in &input.pieces {
        match piece {
            Piece::Frame { kind, flags, stream, payload } => {
                put_frame(kind % KINDS, *flags, *stream, payload, &mut pending)
            }
            Piece::Ok { stream, flags } => put_frame(1, *flags, *stream, b"\x88", &mut pending),
            Piece::Bytes(bytes) => pending.extend_from_slice(bytes),
            Piece::Content { bytes, is_last } => {
                let sendable = session.sendable_bytes();
                let taken = session.put_content(&CONTENT[..usize::from(*bytes)], *is_last, &mut out);
                assert!(taken <= sendable);
            }
            Piece::Take => {
                held = 0;
                session.open_window(held, &mut out);
            }
            Piece::Begin if session.can_begin() => {
                held = 0;
                session.begin(HEAD, Scheme::Https, !input.has_content, &mut out);
            }
            Piece::Begin => {}
        }
        loop {
            let received = session.receive(&pending, &mut scratch, &mut out);
            let Ok((consumed, arrived)) = received else { break 'pieces };
            match arrived {
                Arrived::Head { .. } => {
                    let _ = parse_response(&scratch.head, false, &ResponseLimits::default());
                }
                Arrived::Content { content, .. } => {
                    held += content.len();
                    assert!(held <= RESPONSE_WINDOW_BYTES as usize);
                }
                Arrived::Trailers | Arrived::Partial => {}
            }
            let is_partial = arrived == Arrived::Partial;
            pending.drain(..consumed);
            if is_partial {
                break;
            }
        }
    }
    let mut rest = &out[PREFACE_BYTES..];
    while let Some((header, after)) = rest.split_at_checked(9) {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        rest = &after[length..];
    }
    assert!(rest.is_empty());
});

fn put_frame(kind: u8, flags: u8, stream: u8, payload: &[u8], out: &mut Vec<u8>) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
    out.extend_from_slice(payload);
}
