//! Any frames in any pieces: an HTTP/2 session does not panic, keeps its limits, and sends whole frames.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use sanderling_http::{Scheme, parse_request};
use sanderling_http2::{Content, DATA_BYTES_MAX, Exchange, Limits, Received, Scratch, Session};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    pieces: Vec<Piece<'a>>,
    content_bytes: u32,
    is_parking: bool,
}

#[derive(Arbitrary, Debug)]
enum Piece<'a> {
    Frame { kind: u8, flags: u8, stream: u8, payload: &'a [u8] },
    Get { stream: u8 },
    Bytes(&'a [u8]),
    Resume,
    BeginShutdown,
    FinishShutdown,
}

const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const GET: &[u8] = b"\x82\x86\x84\x41\x07example";
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\n";
const CONTENT: &[u8] = &[b'x'; 20_000];
const KINDS: u8 = 18;

fuzz_target!(|input: Input<'_>| {
    let limits = Limits::default();
    let mut session: Session<()> = Session::new(&limits, Scheme::Http);
    let (mut scratch, mut out, mut pending, mut parked) = (Scratch::default(), vec![], OPENING.to_vec(), vec![]);
    for piece in &input.pieces {
        match piece {
            Piece::Frame { kind, flags, stream, payload } => {
                put_frame(kind % KINDS, *flags, *stream, payload, &mut pending)
            }
            Piece::Get { stream } => put_frame(1, 5, *stream | 1, GET, &mut pending),
            Piece::Bytes(bytes) => pending.extend_from_slice(bytes),
            Piece::Resume => {
                for stream in parked.drain(..) {
                    if let Some(request) = session.resume(stream, &mut scratch) {
                        session.answer(request, HEAD, Content::Empty, &limits, &mut out);
                    }
                }
            }
            Piece::BeginShutdown => session.begin_shutdown(&mut out),
            Piece::FinishShutdown => session.finish_shutdown(&mut out),
        }
        loop {
            let mut exchange = Exchange { limits: &limits, scratch: &mut scratch, out: &mut out };
            let (consumed, received) = session.receive(&pending, &mut exchange);
            pending.drain(..consumed);
            let request = match received {
                Received::Request(request) | Received::Content(request) => request,
                Received::Refused(_) => continue,
                Received::Passed(stream) => {
                    let _ = session.take_passed(stream, 100, &mut out);
                    continue;
                }
                Received::Partial | Received::Closed(_) => break,
            };
            if request.error().is_none() {
                // The parser may refuse it, but sees a whole head.
                let _ = parse_request(&scratch.head, 0, &limits.request);
            }
            let length_bytes = u64::from(input.content_bytes);
            if input.is_parking {
                parked.push(request.stream());
                if request.has_content() && length_bytes % 2 == 1 {
                    session.pass_content(request, &scratch.head, &mut out);
                } else {
                    session.park(request, &scratch.head);
                }
                continue;
            }
            let content = match length_bytes {
                0 => Content::Empty,
                _ if session.has_room_for(&request, length_bytes) => Content::Bytes(&CONTENT[..length_bytes as usize]),
                _ => Content::Later { body: (), length_bytes: Some(length_bytes) },
            };
            session.answer(request, HEAD, content, &limits, &mut out);
        }
        for _ in 0..10 {
            let Some(mut frame) = session.next_data(DATA_BYTES_MAX, &limits, &mut out) else { break };
            let length_bytes = frame.parts().1.len();
            frame.finish(length_bytes);
        }
    }
    let mut rest = &out[..];
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
