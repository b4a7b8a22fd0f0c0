//! Clients that send 100,000 frames of one kind: the connection ends within the budget for them.

use crate::support::*;
use sanderling_http2::{ExceededLimit, Limits};

const FRAME_COUNT: usize = 100_000;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Sends the frames until the connection ends with `code`; how many frames that took.
fn flood(server: &mut Server, code: u32, mut frame: impl FnMut(usize) -> Vec<u8>) -> usize {
    for index in 0..FRAME_COUNT {
        let sent = server.take(&frame(index));
        if server.is_closed {
            let goaway = sent.iter().find(|frame| frame.kind == GOAWAY).expect("the client learns why");
            assert_eq!(goaway.code(), code);
            return index + 1;
        }
    }
    panic!("{FRAME_COUNT} frames are allowed");
}

/// Floods a new connection; `count_max` frames at most are allowed, because of `limit`.
#[track_caller]
fn check(content_bytes: usize, count_max: usize, limit: ExceededLimit, frame: impl FnMut(usize) -> Vec<u8>) {
    let mut server = Server::opened(content_bytes);
    let count = flood(&mut server, ENHANCE_YOUR_CALM, frame);
    assert!(count <= count_max, "{count} frames");
    assert_eq!(server.exceeded.last(), Some(&limit));
}

fn stream(index: usize) -> u32 {
    index as u32 * 2 + 1
}

/// A header block on stream 1 that does not end, and whose stream has content.
fn post() -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, b"\x83\x86\x84\x41\x07example")
}

#[test]
fn requests_that_the_client_resets_are_bounded() {
    let limits = Limits::default();
    // CVE-2023-44487. Content of 1 MiB does not fit into the window, so that the streams are open when they are reset.
    check(1 << 20, limits.reset_budget as usize + 1, ExceededLimit::Resets, |index| {
        [get(stream(index)), frame(RST_STREAM, 0, stream(index), &[0, 0, 0, 8])].concat()
    });
}

#[test]
fn requests_that_are_reset_after_the_answer_are_bounded_by_those_of_a_connection() {
    let mut server = Server::opened(0);
    let count = flood(&mut server, 0, |index| {
        [get(stream(index)), frame(RST_STREAM, 0, stream(index), &[0, 0, 0, 8])].concat()
    });
    assert_eq!(count as u64, Limits::default().requests_max);
}

#[test]
fn streams_that_the_server_must_reset_are_bounded() {
    let budget = Limits::default().reset_budget as usize;
    // CVE-2025-8671: overflow of a stream's window, and content that contradicts Content-Length.
    check(1 << 20, budget + 1, ExceededLimit::Resets, |index| {
        let overflow = frame(WINDOW_UPDATE, 0, stream(index), &[0x7f, 0xff, 0xff, 0xff]);
        [get(stream(index)), overflow].concat()
    });
    check(10, budget + 1, ExceededLimit::Resets, |index| {
        let block = b"\x83\x86\x84\x41\x07example\x0f\x0d\x011";
        frame(HEADERS, END_STREAM | END_HEADERS, stream(index), block)
    });
    check(10, budget + 1, ExceededLimit::Resets, |index| {
        frame(HEADERS, END_STREAM | END_HEADERS, stream(index), b"\x82\x86")
    });
    // RFC 9113 §5.1.2.
    check(1 << 20, Limits::default().streams_max as usize + budget + 1, ExceededLimit::Resets, |index| {
        get(stream(index))
    });
}

#[test]
fn header_blocks_without_end_are_bounded() {
    let limits = Limits::default();
    // CVE-2024-27316 and its relatives, with and without content.
    let start = frame(HEADERS, END_STREAM, 1, GET);
    for (payload, limit) in [(&b""[..], ExceededLimit::Continuations), (&[0; 16_384], ExceededLimit::HeaderBlockBytes)]
    {
        check(10, 1 + usize::from(limits.continuations_max) + 1, limit, |index| {
            if index == 0 { start.clone() } else { frame(CONTINUATION, 0, 1, payload) }
        });
    }
}

#[test]
fn a_header_block_in_one_frame_is_bounded() {
    let limits = Limits { header_block_bytes_max: 1_024, ..Limits::default() };
    let field = [&b"\x00\x01a\x7f\xd9\x07"[..], &[b'x'; 1_112]].concat();
    for (block, is_closed) in [(GET.to_vec(), false), ([GET, &field].concat(), true)] {
        let mut server = Server::with_limits(10, limits);
        server.take(&[opening(), frame(HEADERS, END_STREAM | END_HEADERS, 1, &block)].concat());
        assert_eq!(server.is_closed, is_closed);
        assert_eq!(server.exceeded.last(), is_closed.then_some(&ExceededLimit::HeaderBlockBytes));
    }
}

#[test]
fn frames_that_are_no_requests_are_bounded() {
    // Two frames of the opening count as well.
    let budget = Limits::default().control_budget as usize;
    let limit = ExceededLimit::ControlFrames;
    // CVE-2019-9512, 9515 and 9518, and the rest of their kind.
    check(10, budget, limit, |_| frame(PING, 0, 0, &[0; 8]));
    check(10, budget, limit, |_| frame(PING, ACK, 0, &[0; 8]));
    check(10, budget, limit, |_| frame(SETTINGS, 0, 0, &[]));
    check(10, budget, limit, |_| frame(SETTINGS, 0, 0, &setting(4, 70_000)));
    check(10, budget, limit, |_| frame(SETTINGS, ACK, 0, &[]));
    check(10, budget, limit, |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 5, 0]));
    check(10, budget, limit, |_| frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"));
    check(10, budget, limit, |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    check(10, budget, limit, |_| frame(0xfa, 0, 0, &[]));
    // The response restores the budget that the opening used.
    check(10, budget + 2, limit, |index| if index == 0 { get(1) } else { frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]) });
    for content in [&b""[..], b"x"] {
        check(10, budget + 2, limit, |index| if index == 0 { post() } else { frame(DATA, 0, 1, content) });
    }
    check(10, budget + 2, limit, |index| if index == 0 { post() } else { frame(DATA, PADDED, 1, &[200; 201]) });
}

#[test]
fn frames_for_streams_that_were_reset_are_bounded() {
    let budget = Limits::default().control_budget as usize;
    let reset = [get(1), frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])].concat();
    for late in [frame(DATA, END_STREAM, 1, &[]), frame(DATA, 0, 1, &[0; 16_384]), frame(HEADERS, 5, 1, &[])] {
        check(
            1 << 20,
            budget + 1,
            ExceededLimit::ControlFrames,
            |index| {
                if index == 0 { reset.clone() } else { late.clone() }
            },
        );
    }
    // Streams that are ignored, since the client was asked to open no more.
    let mut server = Server::opened(1 << 20);
    server.take(&get(1));
    server.session.finish_shutdown(&mut vec![]);
    let count = flood(&mut server, ENHANCE_YOUR_CALM, |index| get(stream(index + 1)));
    assert!(count <= budget + 1, "{count} frames");
}

#[test]
fn content_in_tiny_windows_is_bounded() {
    // CVE-2019-9511: each byte of content is asked for by itself.
    let mut server = Server::opened(1 << 20);
    server.take(&frame(SETTINGS, 0, 0, &setting(4, 0)));
    let count = flood(&mut server, ENHANCE_YOUR_CALM, |index| {
        if index == 0 { get(1) } else { frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]) }
    });
    assert!(count <= Limits::default().control_budget as usize + 1, "{count} frames");
}

#[test]
fn long_frames_without_use_are_bounded() {
    let limits = Limits { control_budget: u32::MAX, ..Limits::default() };
    let mut server = Server::with_limits(10, limits);
    server.take(&opening());
    let count = flood(&mut server, ENHANCE_YOUR_CALM, |_| frame(0xfa, 0, 0, &[0; 16_384]));
    assert_eq!(server.exceeded, [ExceededLimit::OverheadBytes]);
    assert!(count as u64 * 16_384 <= 9 * limits.overhead_bytes_max, "{count} frames");
}

#[test]
fn a_stream_counts_until_the_work_on_it_ends() {
    let mut server = Server::opened(10);
    server.is_slow = true;
    let streams_max = Limits::default().streams_max;
    for index in 0..streams_max as usize {
        let sent = server.take(&[get(stream(index)), frame(RST_STREAM, 0, stream(index), &[0, 0, 0, 8])].concat());
        assert_eq!(sent, []);
    }
    // RFC 9113 §7: REFUSED_STREAM.
    let refused = server.take(&get(stream(streams_max as usize)));
    assert_eq!((refused[0].kind, refused[0].code()), (RST_STREAM, 7));
    assert_eq!(server.resume(), []);
    assert_eq!(server.take(&get(stream(streams_max as usize + 1))).len(), 2);
}

#[test]
fn an_honest_client_uses_no_budget_up() {
    // A download with a window of 64 KiB, opened by steps of 4 KiB on both levels.
    let mut server = Server::opened(64 << 20);
    let mut received = 0;
    let mut sent = server.take(&get(1));
    while received < 64 << 20 {
        received += sent.iter().filter(|frame| frame.kind == DATA).map(|frame| frame.payload.len()).sum::<usize>();
        let step = [0, 0, 0x10, 0];
        sent = server.take(&[frame(WINDOW_UPDATE, 0, 0, &step), frame(WINDOW_UPDATE, 0, 1, &step)].concat());
        assert!(!server.is_closed);
    }
    // Requests that are cancelled now and then.
    for index in 1..5_000 {
        server.content_bytes = if index % 3 == 0 { 1 << 20 } else { 0 };
        let cancel = frame(RST_STREAM, 0, stream(index), &[0, 0, 0, 8]);
        server.take(&[get(stream(index)), if index % 3 == 0 { cancel } else { vec![] }].concat());
        assert!(!server.is_closed, "{index}");
    }
}

/// A name of 4,000 bytes, inserted into the table, and then `count` references to it.
fn references(count: usize) -> Vec<u8> {
    [&b"\x40\x7f\xa1\x1e"[..], &[b'x'; 4_000], b"\x00", &vec![0xbe; count]].concat()
}

#[test]
fn late_header_blocks_that_decode_to_much_end_the_connection() {
    let trailers = |stream: u32| {
        let block = references(12_000);
        frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
    };
    // On a stream that was reset, as trailers, as a request, and above the last stream that is served.
    let reset = [get(1), frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])].concat();
    for (first, stream, is_leaving) in [(reset, 1, false), (post(), 1, false), (vec![], 1, false), (get(1), 3, true)] {
        let mut server = Server::opened(1 << 20);
        server.take(&first);
        if is_leaving {
            server.session.finish_shutdown(&mut vec![]);
        }
        let sent = server.take(&trailers(stream));
        assert_eq!(sent.last().map(|frame| (frame.kind, frame.code())), Some((GOAWAY, ENHANCE_YOUR_CALM)), "{stream}");
        assert_eq!(server.exceeded, [ExceededLimit::HeaderBlockBytes]);
    }
}

#[test]
fn trailers_beyond_the_limit_of_a_head_leave_the_table_right() {
    // 16 KiB of fields are read; the rest is decoded, and the connection goes on.
    let mut server = Server::opened(1 << 20);
    let reset = [get(1), frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])].concat();
    server.take(&reset);
    let block = [&references(10)[..], b"\x40\x01b\x01c"].concat();
    server.take(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
    server.content_bytes = 0;
    server.take(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &[GET, b"\xbf"].concat()));
    assert_eq!(server.heads.last().map(String::as_str), Some("GET / HTTP/1.1\r\nhost: example\r\nb: c\r\n\r\n"));
}

#[test]
fn responses_without_content_give_control_frames_back() {
    let mut server = Server::opened(0);
    for index in 0..5_000 {
        let update = frame(PRIORITY_UPDATE, 0, 0, &[&stream(index).to_be_bytes()[..], b"u=1"].concat());
        server.take(&[update, get(stream(index)), frame(PING, 0, 0, &[0; 8])].concat());
        assert!(!server.is_closed, "{index}");
    }
}

#[test]
fn a_client_with_small_windows_uses_no_budget_up() {
    // As `nghttp -w 10 -W 10`: windows of 1,023 bytes, which are opened when half is used.
    const WINDOW_BYTES: u32 = 1_023;
    let mut server = Server::opened(10 << 20);
    server.take(&frame(SETTINGS, 0, 0, &setting(4, WINDOW_BYTES)));
    let mut sent = server.take(&get(1));
    let mut left = 10 << 20;
    while left > 0 {
        let received = sent.iter().filter(|frame| frame.kind == DATA).map(|frame| frame.payload.len()).sum::<usize>();
        assert!(received > 0 && !server.is_closed, "{left}");
        left -= received;
        sent = vec![];
        for half in [received / 2, received - received / 2] {
            let step = (half as u32).to_be_bytes();
            sent.extend(server.take(&[frame(WINDOW_UPDATE, 0, 0, &step), frame(WINDOW_UPDATE, 0, 1, &step)].concat()));
        }
    }
}

#[test]
fn content_beyond_the_window_of_a_stream_is_refused() {
    const FLOW_CONTROL_ERROR: u32 = 3;
    let window_bytes = Limits::default().request.body_bytes_max as usize + 1;
    // The request is answered, awaited, or parked; padding counts.
    for (is_slow, awaits_content, padding) in
        [(false, false, 0), (true, false, 0), (false, true, 0), (false, false, 200_usize)]
    {
        let mut server = Server::opened(0);
        (server.is_slow, server.awaits_content) = (is_slow, awaits_content);
        server.take(&post());
        let payload = [&[padding as u8][..], &vec![0; 16_000 + padding]].concat();
        let content = frame(DATA, if padding > 0 { PADDED } else { 0 }, 1, &payload);
        let mut taken_bytes = 0;
        let reset = loop {
            let sent = server.take(&content);
            taken_bytes += 16_000;
            assert!(taken_bytes <= window_bytes + 16_000 && !server.is_closed, "{taken_bytes} bytes");
            if let Some(reset) = sent.into_iter().find(|frame| frame.kind == RST_STREAM) {
                break reset;
            }
        };
        assert_eq!((reset.stream, reset.code()), (1, FLOW_CONTROL_ERROR));
        assert!(taken_bytes >= window_bytes - 16_000, "{taken_bytes} bytes");
        // Frames that were sent before the client learns of the reset count as control frames, and the connection
        // continues.
        server.take(&content);
        assert!(!server.is_closed);
    }
}

/// Downloads with a window of 1 KiB, for each of which the client sends two updates.
fn download(server: &mut Server, stream: u32, content_bytes: usize) {
    server.content_bytes = content_bytes;
    let mut sent = server.take(&[frame(SETTINGS, 0, 0, &setting(4, 1_024)), get(stream)].concat());
    let mut left = content_bytes;
    while left > 0 {
        let received = sent.iter().filter(|frame| frame.kind == DATA).map(|frame| frame.payload.len()).sum::<usize>();
        assert!(received > 0 && !server.is_closed, "{left} bytes are left: {:?}", server.exceeded);
        left -= received;
        let step = (received as u32).to_be_bytes();
        sent = server.take(&[frame(WINDOW_UPDATE, 0, 0, &step), frame(WINDOW_UPDATE, 0, stream, &step)].concat());
    }
}

#[test]
fn a_long_download_uses_no_budget_up_and_makes_none_larger() {
    // The updates of 4 MiB are 104 KiB, several times what is allowed without content.
    let limits = Limits { overhead_bytes_max: 4 * 1_024, control_budget: 100, ..Limits::default() };
    for frame_bytes in [0, 16_000] {
        let mut server = Server::with_limits(0, limits);
        server.take(&opening());
        download(&mut server, 1, 4 << 20);
        let count = flood(&mut server, ENHANCE_YOUR_CALM, |_| frame(0xfa, 0, 0, &vec![0; frame_bytes]));
        let count_max = match frame_bytes {
            0 => limits.control_budget as usize + 1,
            _ => limits.overhead_bytes_max as usize * 8 / frame_bytes + 1,
        };
        assert!(count <= count_max, "{count} frames of {frame_bytes} bytes");
    }
}

#[test]
fn downloads_that_the_client_cancels_halfway_use_no_budget_up() {
    // A video player that seeks behaves like this.
    let mut server = Server::opened(1 << 20);
    for index in 0..2_000 {
        let sent = server.take(&get(stream(index)));
        let received = sent.iter().filter(|frame| frame.kind == DATA).map(|frame| frame.payload.len()).sum::<usize>();
        assert!(received >= 60_000 && !server.is_closed, "{index}: {received} bytes, {:?}", server.exceeded);
        let step = (received as u32).to_be_bytes();
        let cancel = frame(RST_STREAM, 0, stream(index), &[0, 0, 0, 8]);
        server.take(&[cancel, frame(WINDOW_UPDATE, 0, 0, &step)].concat());
    }
}
