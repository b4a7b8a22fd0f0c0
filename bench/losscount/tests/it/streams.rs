//! Every way in which a server may treat a connection, and the count that it must lead to.

use crate::answers::{
    CONTENT, dns, dns_of_other_question, dns_with_code, dns_with_other_records, framed, http, http_with,
};
use crate::fake_streams::{Deed, FakeStreams, Framing, refusing_port};
use crate::loads::{COUNT, check_lost, load, run};
use losscount::{Cause, Counts, DnsContent, IdleNotice, Kind, Note};
use std::time::Duration;

const HTTP: [Kind; 2] = [Kind::HttpNew, Kind::HttpKept];
const DNS: [Kind; 2] = [Kind::DnsTcpNew, Kind::DnsTcpKept];
const KEPT: [Kind; 2] = [Kind::HttpKept, Kind::DnsTcpKept];
/// Of so many requests one is treated badly.
const BAD_EVERY: u64 = 6;
const BAD_COUNT: u64 = COUNT / BAD_EVERY;
/// Long enough for a busy machine, short enough to wait for.
const DEADLINE: Duration = Duration::from_secs(1);

/// A script that does `bad` upon one request of [`BAD_EVERY`], and upon the others what is right for the kind.
fn mostly_right(kind: Kind, bad: fn(&[u8]) -> Deed) -> impl Fn(u64, &[u8]) -> Deed + Send + Sync + 'static {
    move |number, request| if number % BAD_EVERY == 0 { bad(request) } else { right(kind, request) }
}

fn right(kind: Kind, request: &[u8]) -> Deed {
    match kind {
        Kind::HttpNew => Deed::SendAndClose(http_with("Connection: close\r\n", CONTENT)),
        Kind::HttpKept => Deed::Send(http(CONTENT)),
        _ => Deed::Send(framed(&dns(request))),
    }
}

fn framing(kind: Kind) -> Framing {
    if HTTP.contains(&kind) { Framing::Http } else { Framing::Dns }
}

/// Bad deeds lead to losses for this cause, as many as there were.
#[track_caller]
fn check(kinds: [Kind; 2], cause: Cause, bad: fn(&[u8]) -> Deed) {
    for kind in kinds {
        let server = FakeStreams::start(framing(kind), mostly_right(kind, bad));
        check_lost(&run(&load(kind, server.address), kind), cause, BAD_COUNT);
    }
}

/// Bad deeds that are no losses, and are noted.
#[track_caller]
fn check_noted(kind: Kind, note: Note, bad: fn(&[u8]) -> Deed) -> Counts {
    let server = FakeStreams::start(framing(kind), mostly_right(kind, bad));
    let counts = run(&load(kind, server.address), kind);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!(counts.noted(note), BAD_COUNT, "{note}");
    counts
}

#[test]
fn a_right_server_loses_nothing() {
    for kind in [Kind::HttpNew, Kind::HttpKept, Kind::DnsTcpNew, Kind::DnsTcpKept] {
        let server = FakeStreams::start(framing(kind), move |_, request| right(kind, request));
        let counts = run(&load(kind, server.address), kind);
        check_lost(&counts, Cause::Refused, 0);
        let opened = counts.noted(Note::Opened);
        if KEPT.contains(&kind) {
            assert!((16..COUNT).contains(&opened), "{opened} connections were opened, 16 are kept");
        } else {
            assert_eq!(opened, COUNT);
        }
        let others = Note::ALL.iter().filter(|note| **note != Note::Opened && counts.noted(**note) > 0);
        assert_eq!(others.count(), 0);
        assert!(counts.latency.max() > Duration::ZERO && counts.latency.quantile(0.5) <= counts.latency.max());
    }
}

#[test]
fn a_port_that_nobody_listens_on_refuses_all() {
    for kind in [HTTP, DNS].concat() {
        let (_reserved, address) = refusing_port();
        check_lost(&run(&load(kind, address), kind), Cause::Refused, COUNT);
    }
}

#[test]
fn an_address_without_a_way_is_unreachable() {
    // No stream leads to all machines at once (RFC 1122 §4.2.3.10).
    check_lost(&run(&load(Kind::HttpNew, ([255; 4], 9).into()), Kind::HttpNew), Cause::Unreachable, COUNT);
}

#[test]
fn resets_before_the_answer() {
    check(HTTP, Cause::ResetBefore, |_| Deed::SendAndReset(Vec::new()));
    check(DNS, Cause::ResetBefore, |_| Deed::SendAndReset(Vec::new()));
}

#[test]
fn resets_within_the_answer() {
    check(HTTP, Cause::ResetWithin, |_| Deed::SendAndReset(http(CONTENT)[..60].to_vec()));
    check(HTTP, Cause::ResetWithin, |_| Deed::SendAndReset(http(CONTENT)[..5].to_vec()));
    check(DNS, Cause::ResetWithin, |query| Deed::SendAndReset(framed(&dns(query))[..1].to_vec()));
}

#[test]
fn closes_before_the_answer() {
    check(HTTP, Cause::ClosedBefore, |_| Deed::SendAndClose(Vec::new()));
    check(DNS, Cause::ClosedBefore, |_| Deed::SendAndClose(Vec::new()));
}

#[test]
fn closes_within_the_answer() {
    check(HTTP, Cause::Short, |_| Deed::SendAndClose(http(CONTENT)[..http(CONTENT).len() - 1].to_vec()));
    check(HTTP, Cause::Short, |_| Deed::SendAndClose(b"H".to_vec()));
    check(DNS, Cause::Short, |query| Deed::SendAndClose(framed(&dns(query))[..20].to_vec()));
}

#[test]
fn wrong_statuses() {
    check(HTTP, Cause::WrongStatus, |_| {
        Deed::SendAndClose(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec())
    });
    check(DNS, Cause::WrongStatus, |query| Deed::Send(framed(&dns_with_code(query, 2))));
}

#[test]
fn wrong_contents() {
    check(HTTP, Cause::WrongContent, |_| Deed::SendAndClose(http(&CONTENT[1..])));
    check(HTTP, Cause::WrongContent, |_| Deed::SendAndClose(http(&CONTENT.to_ascii_uppercase())));
    check(HTTP, Cause::WrongContent, |_| Deed::SendAndClose([http(CONTENT), vec![0]].concat()));
    check(DNS, Cause::WrongContent, |query| Deed::Send([framed(&dns(query)), vec![0]].concat()));
}

#[test]
fn wrong_answers() {
    check(HTTP, Cause::WrongAnswer, |_| Deed::SendAndClose(b"SSH-2.0-x\r\n\r\n".to_vec()));
    check(DNS, Cause::WrongAnswer, |query| Deed::Send(framed(&dns_of_other_question(query))));
    check(DNS, Cause::WrongAnswer, |_| Deed::Send(framed(b"short")));
}

#[test]
fn silence_slows_nothing_down_and_ends_at_the_deadline() {
    for kind in [HTTP, DNS].concat() {
        let server = FakeStreams::start(framing(kind), mostly_right(kind, |_| Deed::Wait));
        let mut load = load(kind, server.address);
        load.tcp_deadline = DEADLINE;
        let counts = run(&load, kind);
        check_lost(&counts, Cause::Timeout, BAD_COUNT);
        assert!(counts.first_losses.iter().all(|loss| loss.lost_after - loss.due_after >= DEADLINE));
    }
}

#[test]
fn an_answer_that_never_ends_times_out() {
    let server = FakeStreams::start(Framing::Http, |_, _| Deed::Send(http(CONTENT)[..50].to_vec()));
    let mut load = load(Kind::HttpKept, server.address);
    load.tcp_deadline = DEADLINE;
    check_lost(&run(&load, Kind::HttpKept), Cause::Timeout, COUNT);
}

#[test]
fn a_polite_close_is_no_loss() {
    let counts = check_noted(Kind::HttpKept, Note::PoliteClose, |_| {
        Deed::SendAndClose(http_with("Connection: close\r\n", CONTENT))
    });
    assert_eq!((counts.noted(Note::IdleClose), counts.closed_by_server_count()), (0, BAD_COUNT));
}

#[test]
fn a_connection_that_stays_open_after_its_only_answer_is_noted() {
    let server = FakeStreams::start(Framing::Http, mostly_right(Kind::HttpNew, |_| Deed::Send(http(CONTENT))));
    let mut load = load(Kind::HttpNew, server.address);
    load.tcp_deadline = DEADLINE;
    let counts = run(&load, Kind::HttpNew);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!(counts.noted(Note::NotClosed), BAD_COUNT);
}

#[test]
fn a_reset_behind_the_whole_answer_is_noted() {
    check_noted(Kind::HttpNew, Note::ClosingReset, |_| Deed::SendAndReset(http(CONTENT)));
}

/// The first half of the connections end after their answer, with no request outstanding; each request has a connection
/// of its own, and the last answer comes when all have ended.
#[track_caller]
fn check_idle(kind: Kind, note: Note, end: fn(Vec<u8>) -> Deed) {
    const END_COUNT: u64 = COUNT / 2;
    let server = FakeStreams::start(framing(kind), move |number, request| {
        let answer = if kind == Kind::HttpKept { http(CONTENT) } else { framed(&dns(request)) };
        match number {
            0..END_COUNT => end(answer),
            _ if number == COUNT - 1 => Deed::SendAfterEnds(END_COUNT, answer),
            _ => Deed::Send(answer),
        }
    });
    let mut load = load(kind, server.address);
    load.http.iter_mut().for_each(|http| http.connection_count = COUNT as usize);
    load.dns.iter_mut().for_each(|dns| dns.connection_count = COUNT as usize);
    let counts = run(&load, kind);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!((counts.noted(note), counts.noted(Note::Opened)), (END_COUNT, COUNT));
    assert_eq!(counts.closed_by_server_count(), END_COUNT);
}

#[test]
fn the_end_of_an_idle_connection_is_no_loss() {
    KEPT.iter().for_each(|kind| check_idle(*kind, Note::IdleClose, Deed::SendAndClose));
    KEPT.iter().for_each(|kind| check_idle(*kind, Note::IdleReset, Deed::SendAndReset));
}

#[test]
fn a_connection_that_ended_while_idle_is_not_used_again() {
    let server = FakeStreams::start(Framing::Http, |number, _| match number % 3 {
        0 => Deed::SendAndClose(http(CONTENT)),
        _ => Deed::Send(http(CONTENT)),
    });
    let mut load = load(Kind::HttpKept, server.address);
    load.http.iter_mut().for_each(|http| http.connection_count = 2);
    let counts = run(&load, Kind::HttpKept);
    // On a busy machine a request may go out before the end of its connection is seen.
    let met_count = counts.lost(Cause::ClosedBefore) + counts.lost(Cause::ResetBefore);
    assert_eq!((counts.sent_count, counts.lost_count()), (COUNT, met_count));
    assert!(counts.noted(Note::IdleClose) > 0);
}

#[test]
fn from_far_away_the_end_of_an_idle_connection_is_a_loss() {
    for kind in KEPT {
        // On the only connection every answer is the last: the next request finds the end, and the one after it a new
        // connection.
        let server = FakeStreams::start(framing(kind), move |_, request| match kind {
            Kind::HttpKept => Deed::SendAndClose(http(CONTENT)),
            _ => Deed::SendAndClose(framed(&dns(request))),
        });
        let mut load = load(kind, server.address);
        if let Some(http) = &mut load.http {
            (http.connection_count, http.idle_notice) = (1, IdleNotice::AtNextRequest);
        }
        if let Some(dns) = &mut load.dns {
            (dns.connection_count, dns.idle_notice) = (1, IdleNotice::AtNextRequest);
        }
        let counts = run(&load, kind);
        // Whether the server's end or its reset is seen first is the kernel's to say.
        let lost_count = counts.lost(Cause::ClosedBefore) + counts.lost(Cause::ResetBefore);
        assert_eq!((counts.sent_count, counts.lost_count()), (COUNT, lost_count));
        assert_eq!(counts.noted(Note::Opened), counts.ok_count, "one answer to a connection");
        assert_eq!(counts.noted(Note::IdleClose), 0);
        assert!(lost_count > 0 && lost_count <= COUNT / 2, "{lost_count}");
    }
}

#[test]
fn octets_that_nobody_asked_for_are_strays() {
    // The second response comes with the first or behind it; behind it, it meets an idle connection.
    let server = FakeStreams::start(Framing::Http, |number, _| match number {
        0 => Deed::Send([http(CONTENT), http(CONTENT)].concat()),
        _ => Deed::Send(http(CONTENT)),
    });
    let counts = run(&load(Kind::HttpKept, server.address), Kind::HttpKept);
    assert_eq!(counts.lost(Cause::WrongContent) + counts.noted(Note::Stray), 1);
}

#[test]
fn a_file_that_is_replaced_may_have_either_content() {
    const OTHER: &[u8] = b"two sanderlings\n";
    let server =
        FakeStreams::start(Framing::Http, |number, _| Deed::Send(http(if number % 2 == 0 { CONTENT } else { OTHER })));
    let mut load = load(Kind::HttpKept, server.address);
    load.http.iter_mut().for_each(|http| http.contents.push(OTHER.to_vec()));
    check_lost(&run(&load, Kind::HttpKept), Cause::Refused, 0);
}

#[test]
fn records_must_be_those_of_before_the_load() {
    for kind in DNS {
        // The first two are asked before the load, one for each name.
        let server = FakeStreams::start(Framing::Dns, |number, query| {
            let is_bad = number >= 2 && number % BAD_EVERY == 2;
            Deed::Send(framed(&if is_bad { dns_with_other_records(query) } else { dns(query) }))
        });
        let mut load = load(kind, server.address);
        load.dns.iter_mut().for_each(|dns| dns.content = DnsContent::AsBefore);
        check_lost(&run(&load, kind), Cause::WrongContent, BAD_COUNT);
    }
}
