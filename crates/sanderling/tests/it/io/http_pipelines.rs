//! Pipelined requests in segments of any length, with responses that sockets take in parts.

use std::thread;

use crate::domain::Domain;
use fastrand::Rng;
use sanderling_testkit::http::{HttpClient, get};

/// Larger than what is kept in memory, so that the file is sent from its descriptor.
const LARGE_BYTES: usize = 300_000;

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|index| (index % 251) as u8).collect()
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Body { start: usize, end: usize },
    HeadOnly,
    Status(u16),
}

/// One thread sends and another reads, at different speeds.
#[test]
fn random_requests_in_random_segments_are_answered_in_order() {
    const CONNECTION_COUNT: u64 = 6;
    let seed = sanderling_testkit::seed();
    let large = &large();
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("large.bin", large)]);
    let server = domain.server.http();
    thread::scope(|scope| {
        for index in 0..CONNECTION_COUNT {
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed.wrapping_add(index));
                let (bytes, expected) = random_requests(&mut random);
                let mut client = HttpClient::connect(server);
                let mut sending = client.tcp().second_end();
                let sender = scope.spawn(move || {
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        let longest = [3, 60, 5_000, 100_000][random.usize(..4)];
                        let (segment, after) = rest.split_at(random.usize(1..=longest).min(rest.len()));
                        sending.send(segment);
                        rest = after;
                    }
                });
                for (index, expected) in expected.iter().enumerate() {
                    check_response(&mut client, *expected, large, index);
                }
                sender.join().expect("all was sent");
                assert_eq!(client.get("/").status, 200, "nothing is left over");
            });
        }
    });
}

fn random_requests(random: &mut Rng) -> (Vec<u8>, Vec<Expected>) {
    const REQUEST_COUNT: usize = 400;
    let mut bytes = Vec::new();
    let mut all_expected = Vec::new();
    for _ in 0..REQUEST_COUNT {
        let start = random.usize(..LARGE_BYTES);
        let end = start + random.usize(1..=(LARGE_BYTES - start).min(40_000));
        let length = 1 + start % 20_000;
        let content = sanderling_testkit::random_bytes(random, length);
        let (head, content, expected) = match random.u8(..7) {
            0 => (get("/large.bin"), vec![], Expected::Body { start: 0, end: LARGE_BYTES }),
            1 | 2 => {
                let range = format!("Range: bytes={start}-{}", end - 1);
                let head = format!("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n{range}\r\n\r\n");
                (head, vec![], Expected::Body { start, end })
            }
            3 => ("HEAD /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), vec![], Expected::HeadOnly),
            4 => (get("/missing"), vec![], Expected::Status(404)),
            5 => {
                let head = format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
                (head, content, Expected::Status(405))
            }
            _ => {
                let head = "PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
                let (first, second) = content.split_at(length / 2);
                let chunk = |part: &[u8]| match part {
                    [] => vec![],
                    _ => [format!("{:x};x=y\r\n", part.len()).as_bytes(), part, b"\r\n"].concat(),
                };
                (head, [&chunk(first)[..], &chunk(second), b"0\r\nT: t\r\n\r\n"].concat(), Expected::Status(405))
            }
        };
        bytes.extend(head.bytes());
        bytes.extend(content);
        all_expected.push(expected);
    }
    (bytes, all_expected)
}

#[track_caller]
fn check_response(client: &mut HttpClient, expected: Expected, large: &[u8], index: usize) {
    match expected {
        Expected::Body { start, end } => {
            let response = client.response();
            assert!(matches!(response.status, 200 | 206), "response {index}\n{}", response.head);
            assert!(response.body == large[start..end], "response {index} is not {start}..{end}\n{}", response.head);
        }
        Expected::HeadOnly => {
            let response = client.response_to_head();
            assert_eq!(response.field("Content-Length"), Some("300000"), "response {index}");
        }
        Expected::Status(status) => assert_eq!(client.response().status, status, "response {index}"),
    }
}
