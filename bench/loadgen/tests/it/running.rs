//! A load with all kinds, its progress and end, and loads that do not start.

use crate::fake::{Action, CONTENT, QUESTIONS, dns, dns_tcp, http, http_with, load, tcp_server, udp_server};
use loadgen::{DnsTarget, HttpTarget, Kind, Load, parse_questions};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3_600);

#[test]
fn all_kinds_run_at_once_and_lose_nothing() {
    let web = tcp_server(|_, request| {
        let closes = request.windows(17).any(|part| part == b"Connection: close");
        let response = http_with(if closes { "Connection: close\r\n" } else { "" }, CONTENT);
        if closes { Action::SendAndClose(response) } else { Action::Send(response) }
    });
    let udp = udp_server(|_, client, query| vec![(client, dns(query))]);
    let tcp = tcp_server(|_, query| Action::Send(dns_tcp(query)));
    let target = |server| {
        let questions = parse_questions(QUESTIONS).expect("the questions are valid");
        Some(DnsTarget { checks_records: false, ..DnsTarget::new(server, questions) })
    };

    let mut load = Load::new(Duration::from_millis(500), 3);
    load.rates[..3].copy_from_slice(&[100, 200, 400]);
    (load.http, load.dns) = (Some(HttpTarget::new(web, "/", CONTENT.to_vec())), target(udp));
    let mut over_tcp = Load::new(load.length, 3);
    over_tcp.rates[3..5].copy_from_slice(&[60, 80]);
    over_tcp.dns = target(tcp);

    let running = load.start().expect("the load is valid");
    let over_tcp = over_tcp.start().expect("the load is valid").finish().expect("resources suffice");
    let report = running.finish().expect("resources suffice");
    println!("{report}\n{over_tcp}");
    assert_eq!((report.sent_count(), report.lost_count()), (350, 0));
    assert_eq!((over_tcp.sent_count(), over_tcp.lost_count()), (70, 0));
    let ok_count = |kind| report.counts(kind).map(|counts| counts.ok_count);
    assert_eq!(ok_count(Kind::HttpNew), Some(50));
    assert_eq!(ok_count(Kind::HttpKept), Some(100));
    assert_eq!(ok_count(Kind::DnsUdp), Some(200));
    assert_eq!(ok_count(Kind::DnsTcpNew), None);
}

#[test]
fn stopped_load_ends_with_its_last_response() {
    // The server signals the hundredth request.
    let (hundred, reached) = channel();
    let server = tcp_server(move |number, _| {
        if number == 99 {
            hundred.send(()).expect("the test waits");
        }
        Action::Send(http(CONTENT))
    });
    let mut load = load(Kind::HttpKept, server);
    load.length = LONG;
    let running = load.start().expect("the load is valid");
    reached.recv().expect("the server runs");
    assert!(running.ok_count() >= 90);
    let report = running.finish_now().expect("resources suffice");
    assert!(report.sent_count() >= 100);
    assert_eq!(report.lost_count(), 0);
}

#[test]
fn load_does_not_start_without_answers_to_its_questions() {
    let server = tcp_server(|_, _| Action::SendAndClose(Vec::new()));
    let mut load = load(Kind::DnsTcpNew, server);
    load.dns.iter_mut().for_each(|dns| dns.checks_records = true);
    let error = load.start().expect_err("there is no answer");
    assert!(error.to_string().starts_with("question before the load: "), "{error}");
}
