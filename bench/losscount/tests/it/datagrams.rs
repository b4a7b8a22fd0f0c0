//! Every way in which a server may treat a query over UDP, and the count that it must lead to.

use crate::answers::{dns, dns_of_other_question, dns_with_code};
use crate::fake_datagrams::{FakeDatagrams, refusing_port};
use crate::loads::{COUNT, check_lost, load, run};
use losscount::{Cause, Counts, Kind, Note};
use std::time::Duration;

const UDP: Kind = Kind::DnsUdp;
const BAD_EVERY: u64 = 6;
const BAD_COUNT: u64 = COUNT / BAD_EVERY;
/// Long enough for a busy machine, short enough to wait for.
const DEADLINE: Duration = Duration::from_secs(1);

/// One query of [`BAD_EVERY`] gets what `bad` makes of it, and the others their right answer.
#[track_caller]
fn run_bad(bad: fn(&[u8]) -> Vec<Vec<u8>>) -> Counts {
    let server = FakeDatagrams::start(move |number, client, query| {
        let answers = if number % BAD_EVERY == 0 { bad(query) } else { vec![dns(query)] };
        answers.into_iter().map(|answer| (client, answer)).collect()
    });
    let mut load = load(UDP, server.address);
    load.udp_deadline = DEADLINE;
    run(&load, UDP)
}

#[track_caller]
fn check(cause: Cause, stray_count: u64, bad: fn(&[u8]) -> Vec<Vec<u8>>) {
    let counts = run_bad(bad);
    check_lost(&counts, cause, BAD_COUNT);
    assert_eq!(counts.noted(Note::Stray), stray_count, "strays");
}

#[test]
fn a_right_server_loses_nothing() {
    let counts = run_bad(|query| vec![dns(query)]);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!(Note::ALL.iter().map(|note| counts.noted(*note)).sum::<u64>(), 0);
}

#[test]
fn each_datagram_that_comes_back_is_a_query_refused() {
    let (_reserved, address) = refusing_port();
    check_lost(&run(&load(UDP, address), UDP), Cause::Refused, COUNT);
}

#[test]
fn a_burst_of_datagrams_that_come_back_is_counted_one_by_one() {
    let (_reserved, address) = refusing_port();
    let mut load = load(UDP, address);
    if let Some(dns) = &mut load.dns {
        (dns.udp_per_s, dns.udp_port_count) = (20_000, 1);
    }
    let counts = run(&load, UDP);
    assert_eq!((counts.sent_count, counts.lost(Cause::Refused)), (6_000, 6_000));
}

#[test]
fn silence_is_a_query_unanswered() {
    check(Cause::Timeout, 0, |_| Vec::new());
}

#[test]
fn an_answer_under_another_id_is_a_stray_and_its_query_unanswered() {
    check(Cause::Timeout, BAD_COUNT, |query| {
        let mut answer = dns(query);
        answer[0] ^= 0x80;
        vec![answer]
    });
}

#[test]
fn an_answer_to_another_question() {
    check(Cause::WrongAnswer, 0, |query| vec![dns_of_other_question(query)]);
}

#[test]
fn an_answer_with_another_response_code() {
    check(Cause::WrongStatus, 0, |query| vec![dns_with_code(query, 5)]);
}

#[test]
fn an_answer_cut_short_without_saying_so() {
    check(Cause::WrongAnswer, 0, |query| {
        let answer = dns(query);
        vec![answer[..answer.len() - 1].to_vec()]
    });
}

#[test]
fn less_than_a_header_is_a_stray() {
    check(Cause::Timeout, BAD_COUNT, |query| vec![query[..11].to_vec()]);
}

#[test]
fn an_answer_that_comes_twice_is_right_and_a_stray() {
    let counts = run_bad(|query| vec![dns(query), dns(query)]);
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!(counts.noted(Note::Stray), BAD_COUNT);
}

#[test]
fn an_answer_that_says_it_is_cut_is_right_and_noted() {
    let counts = run_bad(|query| {
        let mut answer = dns(query);
        answer[2] |= 0x02;
        vec![answer]
    });
    check_lost(&counts, Cause::Refused, 0);
    assert_eq!(counts.noted(Note::Truncated), BAD_COUNT);
}

#[test]
fn an_answer_behind_the_deadline_is_a_stray_and_its_query_lost() {
    let mut held = Vec::new();
    let server = FakeDatagrams::start(move |number, client, query| {
        if number == 0 {
            held.push((client, dns(query)));
            return Vec::new();
        }
        // The query of this number is due when the deadline of the first has passed.
        let released = if number == 250 { std::mem::take(&mut held) } else { Vec::new() };
        released.into_iter().chain([(client, dns(query))]).collect()
    });
    let mut load = load(UDP, server.address);
    (load.udp_deadline, load.length) = (DEADLINE, Duration::from_millis(1_500));
    let counts = run(&load, UDP);
    assert_eq!((counts.sent_count, counts.lost(Cause::Timeout), counts.lost_count()), (300, 1, 1));
    assert_eq!(counts.noted(Note::Stray), 1);
}
