//! Many requests on one connection, in segments of any length.

use std::thread;

use sanderling_testkit::random_bytes;

use crate::domain::{Domain, Setup};
use crate::http_answers::{HttpConnection, get};

const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
/// Larger than the files kept in memory: it is sent from its descriptor.
const LARGE_BYTES: usize = 300_000;

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|index| (index % 251) as u8).collect()
}

fn site() -> Domain {
    let large = large();
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("alphabet.txt", ALPHABET), ("large.bin", &large)];
    Domain::serve(Setup { site, ..Setup::default() })
}

const PIPELINE_COUNT: usize = 16;

/// Sixteen requests with different responses.
fn pipeline() -> String {
    (0..PIPELINE_COUNT)
        .map(|index| match index % 4 {
            0 => format!("GET /alphabet.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes={index}-{index}\r\n\r\n"),
            1 => get("/missing"),
            2 => "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
                .to_owned(),
            _ => get("/large.bin"),
        })
        .collect()
}

#[track_caller]
fn check_pipeline(connection: &mut HttpConnection) {
    for index in 0..PIPELINE_COUNT {
        let answer = connection.answer();
        let status = [206, 404, 405, 200][index % 4];
        assert_eq!(answer.status, status, "answer {index}\n{}", answer.head);
        match status {
            206 => assert_eq!(answer.content, [ALPHABET[index]]),
            200 => assert!(answer.content == large()),
            _ => {}
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let domain = site();
    let mut connection = HttpConnection::open(domain.server.http());
    connection.send(pipeline());
    check_pipeline(&mut connection);
    assert_eq!(connection.get("/").status, 200);
}

#[test]
fn requests_may_arrive_byte_by_byte() {
    let domain = site();
    let mut connection = HttpConnection::open(domain.server.http());
    for byte in pipeline().bytes() {
        connection.send([byte]);
    }
    check_pipeline(&mut connection);
}

/// More requests than one iteration answers; the client reads after it has sent all.
#[test]
fn thousand_requests_may_wait_in_one_connection() {
    const COUNT: usize = 1_000;
    let domain = site();
    let mut connection = HttpConnection::open(domain.server.http());
    let request = |index: usize| {
        format!("GET /alphabet.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes={0}-{0}\r\n\r\n", index % 26)
    };
    connection.send((0..COUNT).map(request).collect::<String>());
    for index in 0..COUNT {
        assert_eq!(connection.answer().content, [ALPHABET[index % 26]], "answer {index}");
    }
}

/// The expected response.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Content { start: usize, end: usize },
    HeadOnly,
    Status(u16),
}

/// Requests of all kinds in any order, sent in segments of any length by one thread and read by another, which is sometimes
/// ahead and sometimes late.
#[test]
fn random_requests_in_random_segments_are_answered_in_order() {
    const SEED: u64 = 9_112;
    const CONNECTION_COUNT: u64 = 6;
    println!("seed {SEED}");
    let domain = site();
    let server = domain.server.http();
    let large = &large();
    thread::scope(|scope| {
        for index in 0..CONNECTION_COUNT {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(SEED + index);
                let (bytes, expected) = random_requests(&mut random);
                let mut connection = HttpConnection::open(server);
                let mut sending = connection.raw().second_end();
                let sender = scope.spawn(move || {
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        let piece;
                        let longest = [3, 60, 5_000, 100_000][random.usize(..4)];
                        (piece, rest) = rest.split_at((1 + random.usize(..longest)).min(rest.len()));
                        sending.send(piece);
                    }
                });
                for (place, expected) in expected.iter().enumerate() {
                    check_expected(&mut connection, *expected, large, place);
                }
                sender.join().expect("all was sent");
                assert_eq!(connection.get("/").status, 200, "nothing was left over");
            });
        }
    });
}

fn random_requests(random: &mut fastrand::Rng) -> (Vec<u8>, Vec<Expected>) {
    const REQUEST_COUNT: usize = 400;
    let mut bytes = Vec::new();
    let mut all_expected = Vec::new();
    for _ in 0..REQUEST_COUNT {
        let start = random.usize(..LARGE_BYTES);
        let end = start + 1 + random.usize(..(LARGE_BYTES - start).min(40_000));
        let content = random_bytes(random, 1 + start % 20_000);
        let length = content.len();
        let (head, content, expected) = match random.usize(..7) {
            0 => (get("/large.bin"), vec![], Expected::Content { start: 0, end: LARGE_BYTES }),
            1 | 2 => {
                let range = format!("Range: bytes={start}-{}", end - 1);
                let head = format!("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n{range}\r\n\r\n");
                (head, vec![], Expected::Content { start, end })
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
fn check_expected(connection: &mut HttpConnection, expected: Expected, large: &[u8], place: usize) {
    match expected {
        Expected::Content { start, end } => {
            let answer = connection.answer();
            assert!(matches!(answer.status, 200 | 206), "answer {place}\n{}", answer.head);
            assert!(answer.content == large[start..end], "answer {place} is not {start}..{end}\n{}", answer.head);
        }
        Expected::HeadOnly => {
            let answer = connection.answer_to_head();
            assert_eq!(answer.field("Content-Length"), Some("300000"), "answer {place}");
        }
        Expected::Status(status) => assert_eq!(connection.answer().status, status, "answer {place}"),
    }
}

/// One call sends head and content from two buffers, and the socket may take any part.
#[test]
fn file_in_memory_arrives_completely_after_partial_writes() {
    const LENGTH: usize = 32 * 1024;
    const COUNT: usize = 400;
    let content = &large()[..LENGTH];
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("medium.bin", content)];
    let domain = Domain::serve(Setup { site, ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    // Twelve megabytes exceed the socket buffers: the client reads after it has sent all requests.
    connection.send(get("/medium.bin").repeat(COUNT));
    for index in 0..COUNT {
        let answer = connection.answer();
        assert!(answer.status == 200 && answer.content == content, "answer {index}: {}", answer.head);
    }
    assert_eq!(connection.get("/").content, b"hi\n");
}
