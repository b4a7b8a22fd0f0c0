//! Connections of HTTP/2 as a client sees them: many requests at once, jobs, stalled clients and graceful shutdown.

use super::*;
use crate::options::HttpOptions;
use crate::site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, SiteRules, Sites};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::directory::Directory;

const ITERATIONS_MAX: usize = 1_000;
const UNLIMITED: usize = usize::MAX;
const LARGE_BYTES: usize = 200_000;
const FILES: &[BuiltinFile] =
    &[BuiltinFile { path: "file", bytes: b"content" }, BuiltinFile { path: "large", bytes: &[b'x'; LARGE_BYTES] }];
const IDLE: Duration = Duration::from_secs(60);
const STALLED: Duration = Duration::from_secs(30);
const ALMOST: Duration = Duration::from_millis(1);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

fn options() -> Options {
    Options {
        http: HttpOptions { accepts_http2: true, idle_timeout: IDLE, send_timeout: STALLED, ..HttpOptions::default() },
        ..Options::default()
    }
}

fn site(root: Root) -> Sites {
    let rules = SiteRules { doh_path: Some("/dns".to_owned()), ..SiteRules::default() };
    let options = SiteOptions { rules: Some(Box::new(rules)), ..SiteOptions::default() };
    let site = Site { id: 0, hosts: Vec::new(), root, options };
    Sites::new(vec![site], DefaultSite::EveryHost(0))
}

fn builtin_site() -> Sites {
    site(Root::Builtin(FILES))
}

fn with_root(root: Root, act: impl FnOnce(&mut Simulation<'_>)) {
    simulate(Snapshot::new(site(root), ZoneMap::new(HashSeed(1), [])), options(), act);
}

fn with_files(act: impl FnOnce(&mut Simulation<'_>)) {
    with_root(Root::Builtin(FILES), act);
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request for a path of less than 128 bytes.
fn get(stream: u32, path: &str) -> Vec<u8> {
    let block = [b"\x82\x86\x41\x01a\x04", &[path.len() as u8][..], path.as_bytes()].concat();
    frame(HEADERS, 5, stream, &block)
}

pub(super) fn opening() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, &[])[..]].concat()
}

/// Opens the windows of the connection and of a stream.
fn windows(stream: u32, bytes: u32) -> Vec<u8> {
    let increment = bytes.to_be_bytes();
    [frame(WINDOW_UPDATE, 0, 0, &increment), frame(WINDOW_UPDATE, 0, stream, &increment)].concat()
}

/// A frame as (kind, flags, stream, payload).
pub(super) type Frame = (u8, u8, u32, Vec<u8>);

pub(super) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = vec![];
    while let Some((header, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let stream = u32::from_be_bytes(header[5..].try_into().expect("four bytes"));
        frames.push((header[3], header[4], stream, rest[..length].to_vec()));
        bytes = &rest[length..];
    }
    frames
}

/// The first byte of a header block, which is the status in the static table.
fn status(frames: &[Frame], stream: u32) -> u8 {
    let head = frames.iter().find(|(kind, _, on, _)| (*kind, *on) == (HEADERS, stream));
    let block = &head.expect("a response").3;
    // The first one of a connection has a change of the table's size before it.
    if block[0] == 0x20 { block[1] } else { block[0] }
}
const OK: u8 = 0x88;
const NOT_FOUND: u8 = 0x8d;

fn content_bytes(frames: &[Frame], stream: u32) -> usize {
    frames.iter().filter(|(kind, _, on, _)| (*kind, *on) == (DATA, stream)).map(|(.., payload)| payload.len()).sum()
}

fn is_ended(frames: &[Frame], stream: u32) -> bool {
    frames.iter().any(|(kind, flags, on, _)| (*kind, *on) == (DATA, stream) && flags & 1 != 0)
}

/// The last stream and the code of each GOAWAY.
fn goaways(frames: &[Frame]) -> Vec<(u32, u32)> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    let goaways = frames.iter().filter(|(kind, ..)| *kind == GOAWAY);
    goaways.map(|(.., payload)| (number(&payload[..4]), number(&payload[4..8]))).collect()
}

impl Simulation<'_> {
    fn http2(&mut self, bytes: &[u8]) -> usize {
        self.connect(Protocol::Http, &[&opening(), bytes].concat(), UNLIMITED).expect("accepted")
    }

    fn frames_for(&mut self, client: usize, bytes: &[u8]) -> Vec<Frame> {
        if !bytes.is_empty() {
            self.send(client, bytes);
        }
        self.run(ITERATIONS_MAX);
        frames(&self.take_received(client))
    }

    /// Runs until `count` requests are answered, whose new files are left to settle first.
    fn answers(&mut self, client: usize, count: usize) -> Vec<Frame> {
        let mut answers: Vec<Frame> = vec![];
        while answers.iter().filter(|(kind, ..)| *kind == HEADERS).count() < count {
            answers.extend(self.frames_for(client, b""));
        }
        answers
    }
}

#[test]
fn many_requests_are_answered_at_once() {
    with_files(|server| {
        let requests: Vec<u8> = (0..100).flat_map(|index| get(index * 2 + 1, "/file")).collect();
        let client = server.http2(&requests);
        let frames = server.frames_for(client, &get(201, "/missing"));
        assert!((0..100).all(|index| content_bytes(&frames, index * 2 + 1) == 7));
        assert_eq!((status(&frames, 1), status(&frames, 201)), (OK, NOT_FOUND));
        assert_eq!(server.count(Counter::HttpRequests), 101);
    });
}

#[test]
fn streams_wait_for_jobs_while_others_are_answered() {
    let folder = tempfile::tempdir().expect("created");
    for name in ["one/a", "two/b", "three/c"] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        std::fs::write(path, name).expect("written");
    }
    let directory = Directory::open(folder.path()).expect("opened");
    with_root(Root::Directory(directory.into()), |server| {
        let cancel = frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]);
        let requests = [get(1, "/one/a"), get(3, "/two/b"), cancel, get(5, "/three/c"), get(7, "/one/a"), get(9, "/%")];
        let client = server.http2(&requests.concat());
        // The path of the last one is invalid, so that it waits for nothing.
        let first = frames(&server.take_received(client));
        let heads: Vec<u32> =
            first.iter().filter(|(kind, ..)| *kind == HEADERS).map(|(.., stream, _)| *stream).collect();
        assert_eq!(heads, [9]);
        let rest = server.answers(client, 3);
        assert_eq!([1, 3, 5, 7].map(|stream| content_bytes(&rest, stream)), [5, 0, 7, 5]);
        // The file is known now.
        assert_eq!(status(&server.frames_for(client, &get(11, "/one/a")), 11), OK);
    });
}

#[test]
fn content_waits_for_the_client_and_for_the_transport() {
    with_files(|server| {
        let requests = [opening(), get(1, "/large"), windows(1, 1_000_000), get(3, "/large")].concat();
        let client = server.connect(Protocol::Http, &requests, 100).expect("accepted");
        let mut received = vec![];
        loop {
            server.run(ITERATIONS_MAX);
            let piece = server.take_received(client);
            if piece.is_empty() {
                break;
            }
            received.extend(piece);
            server.open_window(client, 10_000);
        }
        // The second stream has the window of the beginning.
        let whole = frames(&received);
        assert_eq!((content_bytes(&whole, 1), content_bytes(&whole, 3)), (LARGE_BYTES, 65_535));
        assert!(is_ended(&whole, 1) && !is_ended(&whole, 3));
        server.open_window(client, LARGE_BYTES);
        let rest = server.frames_for(client, &windows(3, 1_000_000));
        assert!(is_ended(&rest, 3));
    });
}

#[test]
fn a_stalled_client_is_disconnected() {
    with_files(|server| {
        let client = server.http2(&get(1, "/large"));
        server.run(ITERATIONS_MAX);
        server.advance(STALLED - ALMOST);
        // Progress moves the deadline; a window of one byte does not.
        assert!(content_bytes(&server.frames_for(client, &windows(1, 5_000)), 1) >= 5_000);
        server.advance(STALLED - ALMOST);
        assert_eq!(content_bytes(&server.frames_for(client, &windows(1, 1)), 1), 1);
        assert!(server.is_open(client));
        server.advance(ALMOST);
        assert_eq!(goaways(&server.frames_for(client, b"")), [(1, 0)]);
        assert_eq!(server.ending(client), Ending::ShutDown);
    });
}

#[test]
fn requests_without_content_do_not_keep_a_stalled_client() {
    with_files(|server| {
        let client = server.http2(&[frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]), get(1, "/large")].concat());
        server.frames_for(client, b"");
        // More requests than one iteration answers, so that the connection is ready for the next one in between.
        let heads = |first: u32| -> Vec<u8> {
            let head = |index: u32| frame(HEADERS, 5, first + index * 2, b"\x86\x41\x01a\x04\x05/file\x02\x04HEAD");
            (0..33).flat_map(head).collect()
        };
        for round in 0..2 {
            server.advance(STALLED / 2 - ALMOST);
            let answers = server.frames_for(client, &heads(3 + round * 66));
            assert_eq!(answers.iter().filter(|(kind, ..)| *kind == HEADERS).count(), 33);
        }
        server.advance(ALMOST * 2);
        assert_eq!(goaways(&server.frames_for(client, b"")).len(), 1);
        assert_eq!(server.ending(client), Ending::ShutDown);
    });
}

#[test]
fn an_idle_connection_is_closed_after_timeout_whatever_pings_it_sends() {
    with_files(|server| {
        let client = server.http2(&get(1, "/file"));
        server.run(ITERATIONS_MAX);
        server.take_received(client);
        server.advance(IDLE - ALMOST);
        assert_eq!(server.frames_for(client, &frame(6, 0, 0, &[0; 8])).len(), 1);
        server.advance(ALMOST);
        assert_eq!(goaways(&server.frames_for(client, b"")), [(1, 0)]);
        server.close(client);
        server.run(ITERATIONS_MAX);
        assert!(!server.is_open(client));
    });
}

#[test]
fn a_half_sent_request_has_a_deadline() {
    with_files(|server| {
        let request = get(3, "/file");
        let client = server.http2(&get(1, "/file"));
        assert_eq!(content_bytes(&server.frames_for(client, &request[..12]), 1), 7);
        server.advance(options().http.request_timeout);
        assert_eq!(goaways(&server.frames_for(client, b"")), [(1, 0)]);
    });
}

/// A request whose content does not follow at once, and whose response does not depend on it.
fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, 4, stream, b"\x83\x86\x41\x01a\x04\x05/file")
}

/// A DNS query at `path`, whose content does not follow at once.
fn post_dns(stream: u32, path: &str) -> Vec<u8> {
    let media_type = b"application/dns-message";
    let start = [b"\x83\x86\x41\x01a\x04", &[path.len() as u8][..], path.as_bytes()].concat();
    // The field `content-type` by its number in the static table.
    frame(HEADERS, 4, stream, &[&start, &b"\x0f\x10"[..], &[media_type.len() as u8], media_type].concat())
}

/// The status 405, 408 or 413 in a header block.
fn has_status(frames: &[Frame], stream: u32, code: &[u8; 3]) -> bool {
    let head = frames.iter().find(|(kind, _, on, _)| (*kind, *on) == (HEADERS, stream));
    head.is_some_and(|(.., block)| block.windows(5).any(|bytes| bytes == [&b"\x08\x03"[..], code].concat()))
}

fn resets(frames: &[Frame]) -> Vec<(u32, u8)> {
    let resets = frames.iter().filter(|(kind, ..)| *kind == RST_STREAM);
    resets.map(|(.., stream, payload)| (*stream, payload[3])).collect()
}

#[test]
fn content_that_trickles_in_gets_408_whatever_else_is_answered() {
    let timeout = options().http.request_timeout;
    with_files(|server| {
        // Alone, beside requests that are answered, and beside one whose content the client does not take.
        for beside in [vec![], get(5, "/file"), [get(5, "/large"), windows(5, 1_000)].concat()] {
            let window = frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]);
            let client = server.http2(&[get(1, "/file"), post_dns(3, "/dns"), window].concat());
            server.frames_for(client, b"");
            server.advance(timeout - ALMOST * 2);
            server.frames_for(client, &beside);
            server.advance(ALMOST);
            let trickle = server.frames_for(client, &frame(DATA, 0, 3, b"x"));
            assert!(!has_status(&trickle, 3, b"408"));
            server.advance(ALMOST);
            let refused = server.frames_for(client, &frame(DATA, 0, 3, b"x"));
            assert!(has_status(&refused, 3, b"408") && goaways(&refused).is_empty(), "{refused:?}");
            // The client does not end the stream, and is asked to. The others go on.
            server.advance(timeout);
            assert_eq!(resets(&server.frames_for(client, &get(9, "/file"))), [(3, 0)], "{beside:?}");
            assert!(server.is_open(client));
        }
        assert_eq!(server.count(Counter::HttpTimeouts), 3);
    });
}

#[test]
fn request_is_answered_before_its_content_unless_it_is_a_dns_query() {
    with_files(|server| {
        // CONNECT, a request for a file, and a DNS message where no DNS queries are answered.
        let connect = |stream| frame(HEADERS, 4, stream, b"\x02\x07CONNECT\x41\x03a:1");
        let requests = [get(1, "/file"), connect(3), post(5), post_dns(7, "/file")].concat();
        let client = server.http2(&requests);
        let mut answers = server.frames_for(client, b"");
        let held_bytes = server.held_bytes();
        answers.extend(server.frames_for(client, &frame(DATA, 0, 7, &[0; 10_000])));
        for stream in [3, 5, 7] {
            assert!(has_status(&answers, stream, b"405") && is_ended(&answers, stream), "{stream}: {answers:?}");
        }
        assert_eq!(server.held_bytes(), held_bytes, "the content is not needed");
        // The client is asked to end the streams (RFC 9113 §8.1).
        assert!(server.frames_for(client, &frame(DATA, 1, 7, b"")).is_empty());
        server.advance(options().http.request_timeout);
        assert_eq!(resets(&server.frames_for(client, b"")), [(3, 0)]);
        server.advance(options().http.request_timeout);
        assert_eq!(resets(&server.frames_for(client, b"")), [(5, 0)]);
        assert!(server.is_open(client));
        assert_eq!((server.count(Counter::HttpTimeouts), server.count(Counter::Http2Requests)), (0, 4));

        // A query of any length is answered when it has arrived: `example` has no zone here.
        let query = b"\0\0\0\x07\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";
        for (stream, length_bytes) in [(9, query.len()), (11, 65_535)] {
            let mut message = query.to_vec();
            message.resize(length_bytes, 0);
            assert!(server.frames_for(client, &post_dns(stream, "/dns")).is_empty());
            let mut pieces = message.chunks(16_000).peekable();
            let mut answer = vec![];
            while let Some(piece) = pieces.next() {
                let flags = u8::from(pieces.peek().is_none());
                answer.extend(server.frames_for(client, &frame(DATA, flags, stream, piece)));
            }
            assert_eq!(status(&answer, stream), OK, "{length_bytes}");
            assert!(content_bytes(&answer, stream) >= 12 && is_ended(&answer, stream));
        }
        assert_eq!(server.count(Counter::DnsHttpsQueries), 2);
        assert_eq!(server.count(Counter::Http2Requests), 6);
    });
}

#[test]
fn a_header_block_that_trickles_in_ends_the_connection() {
    with_files(|server| {
        // In one frame that is not whole, and in several.
        for start in [get(3, "/file")[..12].to_vec(), frame(HEADERS, 1, 3, b"\x82\x86")] {
            let client = server.http2(&[get(1, "/file"), start].concat());
            server.frames_for(client, b"");
            server.advance(options().http.request_timeout - ALMOST);
            server.frames_for(client, if server.count(Counter::HttpTimeouts) == 0 { b"a" } else { b"\0" });
            assert!(server.is_open(client));
            server.advance(ALMOST);
            assert_eq!(goaways(&server.frames_for(client, b"")), [(1, 0)]);
        }
    });
}

#[test]
fn halves_of_frames_do_not_keep_an_idle_connection() {
    with_files(|server| {
        let client = server.http2(&get(1, "/file"));
        server.frames_for(client, b"");
        let ping = frame(6, 0, 0, &[0; 8]);
        for _ in 0..5 {
            server.frames_for(client, &ping[..5]);
            server.advance(options().http.request_timeout - ALMOST);
            assert_eq!(server.frames_for(client, &ping[5..]).len(), 1);
        }
        server.frames_for(client, &ping[..5]);
        server.advance(options().http.request_timeout - ALMOST);
        assert_eq!(server.frames_for(client, &ping[5..]).len(), 1);
        server.advance(ALMOST * 6);
        assert_eq!(goaways(&server.frames_for(client, b"")), [(1, 0)]);
    });
}

#[test]
fn content_below_the_least_rate_is_refused() {
    let mut options = options();
    options.http.request_timeout = Duration::from_secs(600);
    let second = Duration::from_secs(1);
    simulate(Snapshot::new(builtin_site(), ZoneMap::new(HashSeed(1), [])), options, |server| {
        // 500 bytes per second, measured over 20 seconds.
        for (bytes, is_refused) in [(600, false), (400, true)] {
            let client = server.http2(&[get(1, "/file"), post_dns(3, "/dns")].concat());
            let mut answers = vec![];
            for _ in 0..25 {
                answers.extend(server.frames_for(client, &frame(DATA, 0, 3, &vec![0; bytes])));
                server.advance(second);
            }
            answers.extend(server.frames_for(client, b""));
            assert_eq!(has_status(&answers, 3, b"408"), is_refused, "{bytes}");
            server.break_off(client);
        }
        assert_eq!(server.count(Counter::HttpSlowRequests), 1);
    });
}

#[test]
fn a_client_that_sends_too_much_gets_its_response_before_a_reset() {
    with_files(|server| {
        let length = b"\x0f\x0d\x07";
        let block = [b"\x83\x86\x41\x01a\x04\x05/file", &length[..], b"9999999"].concat();
        let client = server.http2(&[frame(HEADERS, 4, 1, &block), frame(DATA, 0, 1, &[0; 16_384])].concat());
        let answer = server.frames_for(client, b"");
        assert!(has_status(&answer, 1, b"413") && is_ended(&answer, 1) && resets(&answer).is_empty(), "{answer:?}");
        server.advance(options().http.request_timeout);
        assert_eq!(resets(&server.frames_for(client, b"")), [(1, 0)]);
        assert!(server.is_open(client));
    });
}

#[test]
fn an_iteration_of_a_connection_is_bounded_by_bytes_in_both_directions() {
    /// 128 KiB, and what is received at once or written for one step.
    const BYTES_MAX: usize = 128 * 1024 + 100_000;
    with_files(|server| {
        let client = server.http2(b"");
        let window = (1_u32 << 30).to_be_bytes();
        server.frames_for(client, &frame(WINDOW_UPDATE, 0, 0, &window));
        let request =
            |index: u32| [get(index * 2 + 1, "/large"), frame(WINDOW_UPDATE, 0, index * 2 + 1, &window)].concat();
        server.send(client, &(0..20).flat_map(request).collect::<Vec<u8>>());
        let mut counts = vec![];
        while counts.iter().sum::<usize>() < 20 * LARGE_BYTES {
            server.run_once();
            counts.push(server.take_received(client).len());
        }
        assert!(counts.iter().all(|count| (1..=BYTES_MAX).contains(count)), "{counts:?}");

        // Content that is discarded costs no budget of the client, and time of the server.
        let request = |stream: u32| [post(stream), frame(DATA, 0, stream, &[0; 16_000]).repeat(4)].concat();
        server.send(client, &(0..25).flat_map(|index| request(101 + 2 * index)).collect::<Vec<u8>>());
        let mut iterations = 0;
        while server.unreceived_bytes(client) > 0 {
            let before = server.unreceived_bytes(client);
            server.run_once();
            iterations += 1;
            assert!(before - server.unreceived_bytes(client) <= BYTES_MAX);
        }
        assert!(iterations >= 1_600_000 / BYTES_MAX, "{iterations}");
    });
}

#[test]
fn requests_of_an_iteration_cost_as_much_as_those_of_http_1_1() {
    with_files(|server| {
        let client = server.http2(b"");
        server.frames_for(client, b"");
        // A request whose window overflows costs as much as any other.
        let request = |index: u32| {
            let overflow = frame(WINDOW_UPDATE, 0, index * 2 + 1, &[0x7f, 0xff, 0xff, 0xff]);
            [get(index * 2 + 1, "/large"), overflow].concat()
        };
        server.send(client, &(0..100).flat_map(request).collect::<Vec<u8>>());
        let mut counts = vec![];
        while counts.iter().sum::<usize>() < 100 {
            server.run_once();
            let answers = frames(&server.take_received(client));
            counts.push(answers.iter().filter(|(kind, ..)| *kind == HEADERS).count());
        }
        assert_eq!(counts[0], 32, "{counts:?}");
    });
}

#[test]
fn refusals_are_counted_by_their_limit() {
    with_files(|server| {
        let ping = frame(6, 0, 0, &[0; 8]);
        for (bytes, counter) in [
            (ping.repeat(1_100), Counter::Http2OverControlFrames),
            ([frame(HEADERS, 1, 1, &[]), frame(9, 0, 1, &[]).repeat(10)].concat(), Counter::Http2OverContinuations),
            ((0..102).flat_map(|index| get(index * 2 + 1, "/large")).collect(), Counter::Http2OverStreams),
            (frame(6, 0, 0, b""), Counter::Http2Errors),
        ] {
            let before = server.count(counter);
            let client = server.http2(&bytes);
            server.frames_for(client, b"");
            assert!(server.count(counter) > before, "{counter:?}");
        }
        assert_eq!(server.count(Counter::Http2OverStreams), 2);
        assert_eq!(server.count(Counter::Http2Refused), 3);
    });
}

#[test]
fn draining_finishes_streams_in_progress() {
    const GRACE: Duration = Duration::from_secs(2);
    with_files(|server| {
        let busy = server.http2(&get(1, "/large"));
        let idle = server.http2(&get(1, "/file"));
        for client in [busy, idle] {
            server.frames_for(client, b"");
        }
        server.drain(GRACE);
        for client in [busy, idle] {
            assert_eq!(goaways(&server.frames_for(client, b"")), [(0x7fff_ffff, 0)]);
        }
        // What the client sends before it knows is answered.
        assert_eq!(content_bytes(&server.frames_for(idle, &get(3, "/file")), 3), 7);
        server.advance(GRACE);
        assert_eq!(goaways(&server.frames_for(idle, b"")), [(3, 0)]);
        assert!(!server.is_open(idle) && server.is_open(busy));
        assert!(is_ended(&server.frames_for(busy, &windows(1, 1_000_000)), 1));
        server.advance(GRACE);
        assert_eq!(goaways(&server.frames_for(busy, b"")), [(1, 0)]);
        assert!(!server.is_open(busy));
    });
}

#[test]
fn responses_that_wait_for_their_client_are_counted_when_all_connections_close() {
    with_files(|server| {
        // Two streams wait for a window, one connection for its transport, and one for nothing.
        let waiting = server.http2(&[get(1, "/large"), get(3, "/large"), get(5, "/file")].concat());
        let idle = server.http2(&get(1, "/file"));
        let blocked = server.connect(Protocol::Http, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", 10).expect("accepted");
        server.run(ITERATIONS_MAX);
        assert!([waiting, idle, blocked].into_iter().all(|client| server.is_open(client)));
        server.connections.count_aborted();
        assert_eq!(server.count(Counter::CutOff), 3);
    });
}

#[test]
fn an_idle_connection_that_is_closed_for_a_new_one_gets_goaway() {
    let mut options = options();
    options.http.connections_max = 2;
    simulate(Snapshot::new(builtin_site(), ZoneMap::new(HashSeed(1), [])), options, |server| {
        let preface = server.connect(Protocol::Http, &opening()[..24], UNLIMITED).expect("accepted");
        server.frames_for(preface, b"");
        server.close(preface);
        server.run(ITERATIONS_MAX);
        assert!(goaways(&frames(&server.take_received(preface))).is_empty(), "the client has left");
        let evicted = server.http2(&get(1, "/file"));
        server.frames_for(evicted, b"");
        let partial = server.http2(&[get(1, "/file"), get(3, "/file")[..12].to_vec()].concat());
        server.frames_for(partial, b"");
        for client in [evicted, partial] {
            let next = server.connect(Protocol::Http, b"GET", UNLIMITED).expect("accepted");
            assert!(!server.is_open(client) && server.is_open(next));
            assert_eq!(goaways(&frames(&server.take_received(client))), [(1, 0)]);
        }
    });
}

#[test]
fn a_connection_that_has_used_up_its_budget_is_not_idle() {
    let mut options = options();
    options.http.connections_max = 1;
    simulate(Snapshot::new(builtin_site(), ZoneMap::new(HashSeed(1), [])), options, |server| {
        let window = [frame(WINDOW_UPDATE, 0, 0, &[0x40, 0, 0, 0]), frame(4, 0, 0, &[0, 4, 0x40, 0, 0, 0])].concat();
        let requests: Vec<u8> = (0..20).flat_map(|index| get(index * 2 + 1, "/large")).collect();
        let client = server.http2(&[window, requests].concat());
        server.run_once();
        assert!(server.connect(Protocol::Http, b"GET", UNLIMITED).is_none() && server.is_open(client));
        assert!(is_ended(&server.frames_for(client, b""), 39));
    });
}

#[test]
fn a_file_that_changes_resets_its_stream_only() {
    let folder = tempfile::tempdir().expect("created");
    let path = folder.path().join("large");
    std::fs::write(&path, vec![b'x'; LARGE_BYTES]).expect("written");
    let directory = Directory::open(folder.path()).expect("opened");
    with_root(Root::Directory(directory.into()), |server| {
        let client = server.http2(&get(1, "/large"));
        assert_eq!(content_bytes(&server.answers(client, 1), 1), 65_535);
        std::fs::write(&path, vec![b'y'; LARGE_BYTES - 1]).expect("written");
        let rest = server.frames_for(client, &windows(1, 1_000_000));
        assert!(rest.iter().any(|(kind, _, stream, payload)| (*kind, *stream, payload[3]) == (RST_STREAM, 1, 2)));
        assert!(!is_ended(&rest, 1));
        assert_eq!(status(&server.frames_for(client, &get(3, "/missing")), 3), NOT_FOUND);
        assert_eq!(server.count(Counter::HttpAborted), 1);
    });
}

#[test]
fn clients_speak_the_version_that_they_begin_with() {
    const REQUEST: &[u8] = b"GET /file HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
        Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n";
    with_files(|server| {
        // RFC 9113 §3.1: the upgrade from HTTP/1.1 is obsolete. After a request, the preface is none.
        let client = server.connect(Protocol::Http, REQUEST, UNLIMITED).expect("accepted");
        server.send(client, &opening());
        server.run(ITERATIONS_MAX);
        let responses = String::from_utf8(server.take_received(client)).expect("text");
        assert!(responses.starts_with("HTTP/1.1 200 ") && responses.contains("HTTP/1.1 505 "), "{responses}");

        // The preface in two parts, and then something else.
        let preface = opening();
        for first_bytes in 1..preface.len() {
            let client = server.connect(Protocol::Http, &preface[..first_bytes], UNLIMITED).expect("accepted");
            server.run(ITERATIONS_MAX);
            let answer = server.frames_for(client, &[&preface[first_bytes..], &get(1, "/file")].concat());
            assert_eq!(content_bytes(&answer, 1), 7, "{first_bytes}");
        }
        let client = server.connect(Protocol::Http, b"PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\n\r\n", UNLIMITED);
        let client = client.expect("accepted");
        assert_eq!(goaways(&server.frames_for(client, b"")), [(0, 1)]);
        assert_eq!(server.ending(client), Ending::ShutDown);
        assert_eq!(server.count(Counter::Http2Connections), preface.len() as u64);
        // What is none of both gets no answer, and a malformed request one.
        for (bytes, answer) in
            [(&b"INVALID CONNECTION PREFACE\r\n\r\n"[..], &b""[..]), (b"GET HTTP/1.1\r\n\r\n", b"HTTP/1.1 400")]
        {
            let client = server.connect(Protocol::Http, bytes, UNLIMITED).expect("accepted");
            server.run(ITERATIONS_MAX);
            let received = server.take_received(client);
            assert!(received.starts_with(answer) && received.is_empty() == answer.is_empty());
        }
    });
}

#[test]
fn the_preface_is_refused_unless_the_option_is_set() {
    let mut options = options();
    options.http.accepts_http2 = false;
    simulate(Snapshot::new(builtin_site(), ZoneMap::new(HashSeed(1), [])), options, |server| {
        let client = server.http2(&get(1, "/file"));
        server.run(ITERATIONS_MAX);
        assert!(server.take_received(client).starts_with(b"HTTP/1.1 505 "));
    });
}

#[test]
fn what_a_connection_holds_counts_against_the_budget_of_all_buffers() {
    with_files(|server| {
        let client = server.http2(&get(1, "/file"));
        server.answers(client, 1);
        let idle_bytes = server.held_bytes();
        assert!((1..2_000).contains(&idle_bytes), "{idle_bytes} bytes: the names that the client can refer to");
        // A header block whose rest is missing, and a frame.
        server.frames_for(client, &frame(HEADERS, 1, 3, &[0; 5_000]));
        assert!(server.held_bytes() > idle_bytes + 4_900);
        server.close(client);
        server.run(ITERATIONS_MAX);
        assert_eq!(server.held_bytes(), 0);
    });
}

#[test]
fn while_buffers_are_scarce_content_is_sent_in_small_frames() {
    let options = Options { connection_buffers_bytes_max: 0, ..options() };
    simulate(Snapshot::new(builtin_site(), ZoneMap::new(HashSeed(1), [])), options, |server| {
        // It holds the names that the client can refer to.
        let client = server.http2(&get(1, "/file"));
        server.answers(client, 1);
        let frames = server.frames_for(client, &[get(3, "/large"), windows(3, 1_000_000)].concat());
        assert_eq!(content_bytes(&frames, 3), LARGE_BYTES);
        let longest = frames.iter().filter(|frame| frame.0 == DATA).map(|frame| frame.3.len()).max();
        assert!(longest.is_some_and(|bytes| bytes <= 2_048), "{longest:?}");
    });
}

#[test]
fn several_ranges_of_a_file_are_sent_in_parts() {
    with_files(|server| {
        let ranges = "bytes=0-9,100000-199990";
        // The field `range` by its number in the static table.
        let field = [b"\x0f\x23", &[ranges.len() as u8][..], ranges.as_bytes()].concat();
        let block = [b"\x82\x86\x41\x01a\x04\x06/large", &field[..]].concat();
        let client = server.http2(&[frame(HEADERS, 5, 1, &block), windows(1, 1_000_000)].concat());
        let frames = server.frames_for(client, b"");
        assert!(is_ended(&frames, 1), "{frames:?}");
        let content: Vec<u8> = frames.into_iter().filter(|frame| frame.0 == DATA).flat_map(|frame| frame.3).collect();
        let text = String::from_utf8(content).expect("the file is text");
        assert_eq!(text.matches('x').count(), 10 + 99_991);
        let heads = ["bytes 0-9/200000", "bytes 100000-199990/200000"];
        assert!(heads.iter().all(|head| text.contains(head)) && text.ends_with("--\r\n"), "{}", text.replace('x', ""));
    });
}

/// A request with the field Priority.
fn get_by(priority: &str, stream: u32, path: &str) -> Vec<u8> {
    let field = [b"\0\x08priority", &[priority.len() as u8][..], priority.as_bytes()].concat();
    frame(HEADERS, 5, stream, &[b"\x82\x86\x41\x01a\x04", &[path.len() as u8][..], path.as_bytes(), &field].concat())
}

/// The streams of all content that a client receives which takes 10,000 bytes at a time, each as often as it has
/// frames. At first it sends `requests`, and `later` when it has received some content.
fn order_of_content(requests: &[u8], later: &[u8]) -> Vec<u32> {
    let mut order = vec![];
    with_files(|server| {
        // Windows of 1 GiB.
        let settings = frame(4, 0, 0, &[0, 4, 0x40, 0, 0, 0]);
        let start = [&opening(), &settings, &frame(WINDOW_UPDATE, 0, 0, &[0x40, 0, 0, 0])[..], requests].concat();
        let client = server.connect(Protocol::Http, &start, 10_000).expect("accepted");
        let mut received = vec![];
        loop {
            let piece = server.take_received(client);
            if piece.is_empty() {
                break;
            }
            if received.len() < 50_000 && received.len() + piece.len() >= 50_000 {
                server.send(client, later);
            }
            received.extend(piece);
            server.open_window(client, 10_000);
            server.run(ITERATIONS_MAX);
        }
        let data = frames(&received).into_iter().filter(|(kind, .., payload)| *kind == DATA && !payload.is_empty());
        order = data.map(|(_, _, stream, _)| stream).collect();
    });
    order
}

#[test]
fn an_urgent_response_overtakes_a_large_one() {
    // Content that is in one frame is written with its head, and the other at the next opportunity: of 13 frames, those
    // of 64 KiB were written already.
    for path in ["/file", "/large"] {
        let order = order_of_content(&get_by("u=6", 1, "/large"), &get_by("u=1", 3, path));
        let first = order.iter().position(|stream| *stream == 3);
        assert!(first.is_some_and(|index| index <= 8) && order.last() == Some(&1), "{order:?}");
    }
    // By itself, a response waits for those that were requested before.
    let order = order_of_content(&get(1, "/large"), &get(3, "/large"));
    assert!(order.is_sorted(), "{order:?}");
    // The client changes its mind (RFC 9218 §7.1).
    let update = frame(16, 0, 0, b"\0\0\0\x03u=0");
    let order = order_of_content(&[get_by("u=5", 1, "/large"), get_by("u=6", 3, "/large")].concat(), &update);
    let first_end = order.iter().rposition(|stream| *stream == 1);
    assert!(order.iter().rposition(|stream| *stream == 3) < first_end, "{order:?}");
}

#[test]
fn a_response_that_the_client_resets_ends_whatever_its_windows_are() {
    let order = order_of_content(&get(1, "/large"), &frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    assert!(order.len() <= 9, "{order:?}");
}

#[test]
fn incremental_responses_take_turns_and_others_are_sent_one_after_another() {
    let both = |priority: &str| [get_by(priority, 1, "/large"), get_by(priority, 3, "/large")].concat();
    let order = order_of_content(&both("u=3, i"), b"");
    let turns = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns >= order.len() - 3, "{order:?}");
    let order = order_of_content(&both("u=3"), b"");
    assert!(order.is_sorted(), "{order:?}");
}

/// A frame of any kind, mostly valid.
fn random_frame(random: &mut fastrand::Rng) -> Vec<u8> {
    let stream = random.u32(0..4) * 2 + 1;
    let number = random.u32(..).to_be_bytes();
    match random.u8(..12) {
        0..3 => get(stream, random.choice(["/file", "/large", "/missing"]).expect("a path")),
        3 => post(stream),
        4 => frame(HEADERS, random.u8(..) & 0x2d, stream, b"\x82\x86\x41\x01a\x84"),
        5 => frame(9, random.u8(..) & 4, stream, b"\x84"),
        6 => frame(DATA, random.u8(..) & 9, stream, &vec![3; random.usize(..40)]),
        7 => frame(RST_STREAM, 0, stream, &number),
        8 => frame(4, 0, 0, &[&[0, 4][..], &number].concat()),
        9 => windows(stream, random.u32(..1 << 20)),
        10 => frame(16, 0, 0, b"\0\0\0\x01u=1, i"),
        _ => frame(random.u8(..), random.u8(..), stream, &vec![random.u8(..); random.usize(..40)]),
    }
}

#[test]
fn mutated_frames_leave_nothing_behind() {
    const SIMULATIONS: usize = 20;
    const CLIENTS: usize = 500;
    let mut random = fastrand::Rng::with_seed(sanderling_testkit::seed());
    for _ in 0..SIMULATIONS {
        let mut options = options();
        // A permit that is not given back is noticed.
        options.http.connections_max = 1;
        simulate(Snapshot::new(builtin_site(), ZoneMap::new(HashSeed(1), [])), options, |server| {
            for _ in 0..CLIENTS {
                let mut bytes: Vec<u8> = (0..random.usize(1..20)).flat_map(|_| random_frame(&mut random)).collect();
                for _ in 0..random.usize(..4) {
                    let at = random.usize(..bytes.len());
                    match random.u8(..3) {
                        0 => bytes[at] = random.u8(..),
                        1 => drop(bytes.drain(at..)),
                        _ => bytes.insert(at, random.u8(..)),
                    }
                    bytes.resize(bytes.len().max(1), 0);
                }
                let window = [100, UNLIMITED][random.usize(..2)];
                let client = server.connect(Protocol::Http, &opening(), window).expect("a permit is free");
                for piece in bytes.chunks(random.usize(1..=bytes.len())) {
                    server.send(client, piece);
                    server.run_once();
                }
                server.run(ITERATIONS_MAX);
                if random.bool() {
                    server.break_off(client);
                } else {
                    server.close(client);
                }
                server.run(ITERATIONS_MAX);
                if server.is_open(client) {
                    // It waits for the client to take the rest.
                    server.break_off(client);
                    server.run(ITERATIONS_MAX);
                }
                assert!(!server.is_open(client));
            }
            assert_eq!(server.held_bytes(), 0);
            assert_eq!((server.count(Counter::HttpClosed), server.count(Counter::Panics)), (CLIENTS as u64, 0));
        });
    }
}
