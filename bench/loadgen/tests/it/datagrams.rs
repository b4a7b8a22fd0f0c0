//! Each way in which a server can treat a query over UDP, and the count that results.

use crate::fake::{
    BAD_COUNT, BAD_EVERY, COUNT, DEADLINE, check_lost, dns, dns_changed, load, refusing_udp_port, run, udp_server,
};
use loadgen::{Cause, Counts, Kind, Note};
use std::time::Duration;

const UDP: Kind = Kind::DnsUdp;

/// One query in [`BAD_EVERY`] is answered by `bad`, the others correctly.
#[track_caller]
fn run_bad(bad: fn(&[u8]) -> Vec<Vec<u8>>) -> Counts {
    let server = udp_server(move |number, client, query| {
        let replies = if number % BAD_EVERY == 0 { bad(query) } else { vec![dns(query)] };
        replies.into_iter().map(|reply| (client, reply)).collect()
    });
    let mut load = load(UDP, server);
    load.udp_deadline = DEADLINE;
    run(&load, UDP)
}

#[track_caller]
fn check(cause: Cause, unexpected_count: u64, bad: fn(&[u8]) -> Vec<Vec<u8>>) {
    let counts = run_bad(bad);
    check_lost(&counts, cause, BAD_COUNT);
    assert_eq!(counts.noted(Note::Unexpected), unexpected_count);
}

#[test]
fn correct_server_loses_nothing() {
    let counts = run_bad(|query| vec![dns(query)]);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!(Note::ALL.iter().map(|note| counts.noted(*note)).sum::<u64>(), 0);
}

#[test]
fn each_unreachable_port_is_one_refused_query() {
    let (_reserved, address) = refusing_udp_port();
    check_lost(&run(&load(UDP, address), UDP), Cause::Refused, COUNT);
    let mut burst = load(UDP, address);
    (burst.rates[UDP as usize], burst.udp_port_count) = (20_000, 1);
    let counts = run(&burst, UDP);
    assert_eq!((counts.sent_count, counts.lost(Cause::Refused)), (6_000, 6_000));
}

#[test]
fn unanswered_query_times_out() {
    check(Cause::Timeout, 0, |_| Vec::new());
}

#[test]
fn reply_with_another_id_or_without_header_is_unexpected() {
    check(Cause::Timeout, BAD_COUNT, |query| vec![dns_changed(query, 0, 0x80)]);
    check(Cause::Timeout, BAD_COUNT, |query| vec![query[..11].to_vec()]);
}

#[test]
fn wrong_and_bad_replies_are_losses() {
    check(Cause::WrongStatus, 0, |query| vec![dns_changed(query, 3, 4)]);
    check(Cause::BadResponse, 0, |query| vec![dns_changed(query, 13, 1)]);
    check(Cause::BadResponse, 0, |query| vec![dns(query)[..dns(query).len() - 1].to_vec()]);
}

#[test]
fn truncated_reply_is_correct_and_noted() {
    let counts = run_bad(|query| vec![dns_changed(query, 2, 0x02)]);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!(counts.noted(Note::Truncated), BAD_COUNT);
}

#[test]
fn reply_after_the_deadline_is_unexpected() {
    let mut held = Vec::new();
    let server = udp_server(move |number, client, query| {
        if number == 0 {
            held.push((client, dns(query)));
            return Vec::new();
        }
        // This query is due after the deadline of the first.
        let released = if number == 250 { std::mem::take(&mut held) } else { Vec::new() };
        released.into_iter().chain([(client, dns(query))]).collect()
    });
    let mut load = load(UDP, server);
    (load.udp_deadline, load.length) = (DEADLINE, Duration::from_millis(1_500));
    let counts = run(&load, UDP);
    assert_eq!((counts.sent_count, counts.lost(Cause::Timeout), counts.lost_count()), (300, 1, 1));
    assert_eq!(counts.noted(Note::Unexpected), 1);
}
