//! Sequences of frames with random changes: no panic, and each byte that the server sends belongs to a frame.

use crate::support::*;
use fastrand::Rng;

const ROUND_COUNT: u64 = 10_000;

#[test]
fn mutated_frame_sequences_never_break_the_session() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut closed_count = 0;
    for round in 0..ROUND_COUNT {
        let rng = &mut Rng::with_seed(seed.wrapping_add(round));
        let mut bytes = opening();
        (0..rng.usize(1..20)).for_each(|_| bytes.extend(random_frame(rng)));
        for _ in 0..rng.usize(0..4) {
            mutate(&mut bytes, rng);
        }
        let mut server = Server::new([0, 10, 100_000][rng.usize(..3)]);
        server.is_slow = rng.bool();
        let mut sent = vec![];
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rng.usize(1..=rest.len()));
            sent.extend(server.take_bytes(piece));
            rest = after;
        }
        server.resume();
        frames(&sent);
        closed_count += u64::from(server.is_closed);
    }
    // Both ends occur.
    assert!((1..ROUND_COUNT).contains(&closed_count), "{closed_count}");
}

fn random_frame(rng: &mut Rng) -> Vec<u8> {
    let stream = rng.u32(0..6) * 2 + 1;
    match rng.u8(..16) {
        0..4 => get(stream),
        4 => frame(HEADERS, END_HEADERS, stream, b"\x83\x86\x84\x41\x07example\x0f\x0d\x0210"),
        5 => frame(HEADERS, rng.u8(..) & 0x2d, stream, GET),
        6 => frame(CONTINUATION, rng.u8(..) & END_HEADERS, stream, GET),
        7..9 => frame(DATA, rng.u8(..) & (PADDED | END_STREAM), stream, &vec![3; rng.usize(..40)]),
        9 => frame(RST_STREAM, 0, stream, &[0; 4]),
        10 => frame(SETTINGS, rng.u8(..2), 0, &setting(rng.u16(..10), rng.u32(..))),
        11 => frame(WINDOW_UPDATE, 0, rng.u32(..4), &rng.u32(..).to_be_bytes()),
        12 => frame(PING, rng.u8(..2), 0, &[0; 8]),
        13 => frame(GOAWAY, 0, 0, &[0; 8]),
        14 => frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1, i"),
        _ => frame(rng.u8(..), rng.u8(..), stream, &vec![rng.u8(..); rng.usize(..40)]),
    }
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(PREFACE.len()..bytes.len());
    match rng.u8(..3) {
        0 => bytes[at] = rng.u8(..),
        1 => drop(bytes.remove(at)),
        _ => bytes.insert(at, rng.u8(..)),
    }
}
