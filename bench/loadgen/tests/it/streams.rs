//! Each way in which a server can treat a connection, and the count that results.

use crate::fake::{
    Action, BAD_COUNT, BAD_EVERY, CONTENT, COUNT, DEADLINE, check_lost, dns, dns_tcp, framed, http, http_with, load,
    refusing_tcp_port, run, tcp_server,
};
use loadgen::{Cause, Counts, IdleClose, Kind, Note};
use std::time::Duration;

const HTTP: [Kind; 2] = [Kind::HttpNew, Kind::HttpKept];
const DNS: [Kind; 2] = [Kind::DnsTcpNew, Kind::DnsTcpKept];
const KEPT: [Kind; 2] = [Kind::HttpKept, Kind::DnsTcpKept];

/// A script that does `bad` for one request in [`BAD_EVERY`], and answers the others correctly.
fn mostly_correct(kind: Kind, bad: fn(&[u8]) -> Action) -> impl Fn(u64, &[u8]) -> Action + Send + Sync + 'static {
    move |number, request| if number % BAD_EVERY == 0 { bad(request) } else { correct(kind, request) }
}

fn correct(kind: Kind, request: &[u8]) -> Action {
    match kind {
        Kind::HttpNew => Action::SendAndClose(http_with("Connection: close\r\n", CONTENT)),
        Kind::HttpKept => Action::Send(http(CONTENT)),
        _ => Action::Send(dns_tcp(request)),
    }
}

/// Each bad action is a loss for this cause.
#[track_caller]
fn check(kinds: [Kind; 2], cause: Cause, bad: fn(&[u8]) -> Action) {
    for kind in kinds {
        let server = tcp_server(mostly_correct(kind, bad));
        check_lost(&run(&load(kind, server), kind), cause, BAD_COUNT);
    }
}

/// Each bad action is noted, and is no loss.
#[track_caller]
fn check_noted(kind: Kind, note: Note, bad: fn(&[u8]) -> Action) -> Counts {
    let server = tcp_server(mostly_correct(kind, bad));
    let mut load = load(kind, server);
    load.tcp_deadline = DEADLINE;
    let counts = run(&load, kind);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!(counts.noted(note), BAD_COUNT, "{note}");
    counts
}

#[test]
fn correct_server_loses_nothing() {
    for kind in [HTTP, DNS].concat() {
        let server = tcp_server(move |_, request| correct(kind, request));
        let counts = run(&load(kind, server), kind);
        check_lost(&counts, Cause::Refused, 0);
        let opened_count = counts.noted(Note::Opened);
        if KEPT.contains(&kind) {
            assert!((16..COUNT).contains(&opened_count), "{opened_count} connections were opened, 16 are kept");
        } else {
            assert_eq!(opened_count, COUNT);
        }
        let others = Note::ALL.iter().filter(|note| **note != Note::Opened && counts.noted(**note) > 0);
        assert_eq!(others.count(), 0);
        assert!(counts.latency(0.5) > Duration::from_micros(1) && counts.latency(0.5) <= counts.latency(1.0));
    }
}

#[test]
fn port_without_listener_refuses_all() {
    for kind in [HTTP, DNS].concat() {
        let (_reserved, address) = refusing_tcp_port();
        check_lost(&run(&load(kind, address), kind), Cause::Refused, COUNT);
    }
}

#[test]
fn broadcast_address_is_unreachable() {
    // RFC 1122 §4.2.3.10: TCP does not connect to a broadcast address.
    check_lost(&run(&load(Kind::HttpNew, ([255; 4], 9).into()), Kind::HttpNew), Cause::Unreachable, COUNT);
}

#[test]
fn wrong_responses_are_losses() {
    check(HTTP, Cause::WrongStatus, |_| {
        Action::SendAndClose(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec())
    });
    check(HTTP, Cause::WrongContent, |_| Action::SendAndClose([http(CONTENT), vec![0]].concat()));
    check(DNS, Cause::WrongContent, |query| Action::Send([dns_tcp(query), vec![0]].concat()));
    check(DNS, Cause::BadResponse, |_| Action::Send(framed(b"short")));
}

#[test]
fn resets_are_losses_before_and_during_the_response() {
    check(HTTP, Cause::ResetBefore, |_| Action::SendAndReset(Vec::new()));
    check(DNS, Cause::ResetBefore, |_| Action::SendAndReset(Vec::new()));
    check(HTTP, Cause::ResetDuring, |_| Action::SendAndReset(http(CONTENT)[..60].to_vec()));
    check(HTTP, Cause::ResetDuring, |_| Action::SendAndReset(http(CONTENT)[..5].to_vec()));
    check(DNS, Cause::ResetDuring, |query| Action::SendAndReset(dns_tcp(query)[..1].to_vec()));
}

#[test]
fn closes_are_losses_before_and_during_the_response() {
    check(HTTP, Cause::ClosedBefore, |_| Action::SendAndClose(Vec::new()));
    check(DNS, Cause::ClosedBefore, |_| Action::SendAndClose(Vec::new()));
    check(HTTP, Cause::ClosedDuring, |_| Action::SendAndClose(http(CONTENT)[..http(CONTENT).len() - 1].to_vec()));
    check(HTTP, Cause::ClosedDuring, |_| Action::SendAndClose(b"H".to_vec()));
    check(DNS, Cause::ClosedDuring, |query| Action::SendAndClose(dns_tcp(query)[..20].to_vec()));
}

#[test]
fn silent_server_delays_no_other_request_and_times_out() {
    for kind in [HTTP, DNS].concat() {
        let server = tcp_server(mostly_correct(kind, |_| Action::Wait));
        let mut load = load(kind, server);
        load.tcp_deadline = DEADLINE;
        let counts = run(&load, kind);
        check_lost(&counts, Cause::Timeout, BAD_COUNT);
    }
}

#[test]
fn announced_close_is_no_loss() {
    let counts = check_noted(Kind::HttpKept, Note::ConnectionClose, |_| {
        Action::SendAndClose(http_with("Connection: close\r\n", CONTENT))
    });
    assert_eq!((counts.noted(Note::IdleClose), counts.closed_by_server_count()), (0, BAD_COUNT));
}

#[test]
fn end_of_a_connection_after_its_only_response_is_noted() {
    check_noted(Kind::HttpNew, Note::NotClosed, |_| Action::Send(http(CONTENT)));
    check_noted(Kind::HttpNew, Note::ResetAfter, |_| Action::SendAndReset(http(CONTENT)));
}

/// Half of the connections end after their response, without an outstanding request. Each request has a connection of
/// its own.
#[track_caller]
fn check_idle(kind: Kind, note: Note, end: fn(Vec<u8>) -> Action) {
    const END_COUNT: u64 = COUNT / 2;
    let server = tcp_server(move |number, request| {
        let response = if kind == Kind::HttpKept { http(CONTENT) } else { dns_tcp(request) };
        if number < END_COUNT { end(response) } else { Action::Send(response) }
    });
    let mut load = load(kind, server);
    load.connection_count = COUNT as usize;
    let counts = run(&load, kind);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!((counts.noted(note), counts.noted(Note::Opened)), (END_COUNT, COUNT));
    assert_eq!(counts.closed_by_server_count(), END_COUNT);
}

#[test]
fn end_of_an_idle_connection_is_no_loss() {
    KEPT.iter().for_each(|kind| check_idle(*kind, Note::IdleClose, Action::SendAndClose));
    KEPT.iter().for_each(|kind| check_idle(*kind, Note::IdleReset, Action::SendAndReset));
}

#[test]
fn connection_closed_while_idle_is_not_reused() {
    let server = tcp_server(|number, _| match number % 3 {
        0 => Action::SendAndClose(http(CONTENT)),
        _ => Action::Send(http(CONTENT)),
    });
    let mut load = load(Kind::HttpKept, server);
    load.connection_count = 2;
    let counts = run(&load, Kind::HttpKept);
    // On a busy machine a request may be sent before the end of its connection arrives.
    let race_count = counts.lost(Cause::ClosedBefore) + counts.lost(Cause::ResetBefore);
    assert_eq!((counts.sent_count, counts.lost_count()), (COUNT, race_count));
    assert!(counts.noted(Note::IdleClose) > 0);
}

#[test]
fn distant_client_loses_the_request_on_a_closed_idle_connection() {
    // Each response on the only connection is the last: the next request is lost, and the one after it opens a new one.
    let server = tcp_server(|_, _| Action::SendAndClose(http(CONTENT)));
    let mut load = load(Kind::HttpKept, server);
    load.connection_count = 1;
    load.http.iter_mut().for_each(|http| http.idle_close = IdleClose::AtNextRequest);
    let counts = run(&load, Kind::HttpKept);
    // The kernel reports either the end of the stream or the reset.
    let lost_count = counts.lost(Cause::ClosedBefore) + counts.lost(Cause::ResetBefore);
    assert_eq!((counts.sent_count, counts.lost_count()), (COUNT, lost_count));
    assert_eq!(counts.noted(Note::Opened), counts.ok_count, "one response per connection");
    // The last connection is checked at the end of the load.
    assert!(counts.noted(Note::IdleClose) <= 1);
    assert!(lost_count > 0 && lost_count <= COUNT / 2, "{lost_count}");
}

#[test]
fn unrequested_bytes_are_counted() {
    // The second response arrives with the first, or later, on an idle connection.
    let server = tcp_server(|number, _| match number {
        0 => Action::Send([http(CONTENT), http(CONTENT)].concat()),
        _ => Action::Send(http(CONTENT)),
    });
    let counts = run(&load(Kind::HttpKept, server), Kind::HttpKept);
    assert_eq!(counts.lost(Cause::WrongContent) + counts.noted(Note::Unexpected), 1);
}

#[test]
fn records_must_be_those_before_the_load() {
    for kind in DNS {
        // The first two queries come before the load, one for each name.
        let server = tcp_server(|number, query| {
            let mut reply = dns(&query[2..]);
            if number >= 2 && number % BAD_EVERY == 2 {
                reply[7] += 1;
                reply.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x02");
            }
            Action::Send(framed(&reply))
        });
        let mut load = load(kind, server);
        load.dns.iter_mut().for_each(|dns| dns.checks_records = true);
        check_lost(&run(&load, kind), Cause::WrongContent, BAD_COUNT);
    }
}
