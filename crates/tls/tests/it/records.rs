//! Lengths of records, the bound of what is unsent, and the end of a session.

use crate::pair::{Pair, VERSIONS, http_client, server_tls};
use sanderling_testkit::{random_bytes, seed};
use sanderling_tls::{RECORD_BYTES_MAX, State, UNSENT_BYTES_MAX};
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

/// The overhead of a TLS 1.3 record: header, type and tag.
const OVERHEAD_BYTES: usize = 5 + 1 + 16;

fn open(version: usize) -> Pair {
    let mut pair = Pair::new(&Arc::new(http_client(VERSIONS[version])), "example.com", &server_tls());
    pair.run().unwrap();
    pair
}

/// The plaintext lengths of records of TLS 1.3.
fn record_lengths(mut records: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let [_, _, _, high, low, rest @ ..] = records {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        lengths.push(5 + length - OVERHEAD_BYTES);
        records = &rest[length..];
    }
    lengths
}

#[test]
fn first_record_after_the_handshake_or_an_idle_second_is_short() {
    let mut pair = open(1);
    let content = [7; 40_000];
    let mut lengths = |now_ms, parts: &[&[u8]]| {
        pair.session.write(parts, now_ms);
        record_lengths(&pair.session_bytes())
    };
    assert_eq!(lengths(0, &[&content]), [1300, 16_384, 16_384, 5_932]);
    assert_eq!(lengths(999, &[&content]), [16_384, 16_384, 7_232]);
    assert_eq!(lengths(1_998, &[&content[..20_000]]), [16_384, 3_616]);
    assert_eq!(lengths(2_998, &[&content[..20_000]]), [1300, 16_384, 2_316]);
    assert_eq!(lengths(3_998, &[&content[..1300]]), [1300]);
    assert_eq!(lengths(4_998, &[&content[..300], &content[..1000], &content[..1]]), [1300, 1]);
    assert_eq!(lengths(4_998, &[&content[..300], &content[..1000], &content[..1]]), [1301]);
    assert_eq!(lengths(9_000, &[]), []);
}

#[test]
fn session_takes_a_bounded_amount_and_sends_it_by_one_call() {
    #[derive(Default)]
    struct Calls(Vec<usize>, Vec<u8>);
    impl Write for Calls {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }
        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.0.push(slices.len());
            self.1.write_vectored(slices)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for version in [0, 1] {
        let mut pair = open(version);
        let content = random_bytes(&mut fastrand::Rng::with_seed(seed()), 3 * UNSENT_BYTES_MAX);
        assert_eq!(pair.session.writable_bytes(), UNSENT_BYTES_MAX);
        assert_eq!(pair.session.write(&[&content[..1000], &content[1000..]], 0), UNSENT_BYTES_MAX);
        assert_eq!(pair.session.writable_bytes(), 0);
        assert_eq!(pair.session.write(&[&content], 0), 0);
        let mut calls = Calls::default();
        pair.session.send(&mut calls).unwrap();
        assert_eq!(calls.0, [UNSENT_BYTES_MAX / RECORD_BYTES_MAX + 1]);
        assert!(!pair.session.has_unsent());
        assert_eq!(pair.session.writable_bytes(), UNSENT_BYTES_MAX);
        pair.feed_client(&calls.1);
        assert!(pair.to_client == content[..UNSENT_BYTES_MAX]);
    }
}

#[test]
fn long_bodies_pass_in_both_directions_in_pieces() {
    let mut random = fastrand::Rng::with_seed(seed());
    for version in [0, 1] {
        let mut pair = open(version);
        let content = random_bytes(&mut random, 1_000_000);
        for piece_bytes in [1 + random.usize(..100), 1 + random.usize(..20_000), usize::MAX] {
            pair.piece_bytes = piece_bytes;
            pair.exchange(&content, &content);
        }
    }
}

#[test]
fn what_is_decrypted_in_place_is_what_was_sent() {
    let mut random = fastrand::Rng::with_seed(seed());
    let content = random_bytes(&mut random, 300_000);
    for version in [0, 1] {
        let mut pair = open(version);
        let mut arriving = Vec::new();
        for part in content.chunks(50_000) {
            pair.client.writer().write_all(part).unwrap();
            arriving.extend(pair.client_bytes());
        }
        let (mut arriving, mut decrypted) = (&arriving[..], Vec::new());
        let mut buffer = vec![0; 70_000];
        while decrypted.len() < content.len() {
            let room = &mut buffer[..1 + random.usize(..70_000)];
            let length = if pair.session.is_readable() {
                pair.session.take(room)
            } else {
                let (arrived, rest) = arriving.split_at(room.len().min(arriving.len()));
                arriving = rest;
                room[..arrived.len()].copy_from_slice(arrived);
                pair.session.decrypt_in_place(room, arrived.len()).unwrap()
            };
            decrypted.extend_from_slice(&room[..length]);
        }
        assert!(decrypted == content && arriving.is_empty());
    }
}

#[test]
fn client_that_has_closed_its_side_still_receives() {
    for version in [0, 1] {
        let mut pair = open(version);
        pair.client.writer().write_all(b"the last request").unwrap();
        pair.client.send_close_notify();
        pair.run().unwrap();
        assert_eq!((pair.session.state(), &pair.to_server[..]), (State::ClientClosed, &b"the last request"[..]));
        assert_eq!(pair.feed(b"what follows is ignored").ok(), Some(()));
        assert_eq!(pair.session.write(&[b"the last response"], 0), 17);
        pair.session.close();
        let bytes = pair.session_bytes();
        pair.feed_client(&bytes);
        assert_eq!(pair.to_client, b"the last response");
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    }
}

#[test]
fn nothing_is_written_before_the_handshake_is_complete() {
    let mut pair = Pair::new(&Arc::new(http_client(VERSIONS[1])), "example.com", &server_tls());
    assert_eq!((pair.session.write(&[b"early"], 0), pair.session.has_unsent()), (0, false));
    pair.session.close();
    assert!(!pair.session.has_unsent());
}

#[test]
fn what_has_arrived_of_a_record_is_known_also_after_a_whole_one() {
    let mut pair = open(1);
    let mut record = |length: usize| {
        pair.client.writer().write_all(&vec![7; length]).unwrap();
        pair.client_bytes()
    };
    let (first, second) = (record(3_000), record(10_000));
    let bytes = [&first[..], &second].concat();
    // The session reads 4,096 bytes at once, in which the first record ends and the second begins.
    pair.feed(&bytes[..4_096]).unwrap();
    assert_eq!(pair.session.partial_bytes(), 4_096 - first.len());
    pair.feed(&bytes[4_096..5_000]).unwrap();
    assert_eq!(pair.session.partial_bytes(), 5_000 - first.len());
    pair.feed(&bytes[5_000..]).unwrap();
    assert_eq!((pair.session.partial_bytes(), pair.to_server.len()), (0, 13_000));
    pair.to_server.clear();
    // A key update counts until there is plaintext.
    pair.client.refresh_traffic_keys().unwrap();
    let update = pair.client_bytes();
    pair.feed(&update).unwrap();
    assert_eq!(pair.session.partial_bytes(), update.len());
    pair.exchange(b"request", b"response");
    assert_eq!(pair.session.partial_bytes(), 0);
}
