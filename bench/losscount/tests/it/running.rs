//! A load under way: seen, stopped, refused.

use crate::answers::{CONTENT, NAMES, dns, framed, http, http_with};
use crate::fake_datagrams::FakeDatagrams;
use crate::fake_streams::{Deed, FakeStreams, Framing};
use crate::loads::load;
use losscount::{DnsContent, DnsLoad, HttpLoad, Kind, Load, LoadError, parse_questions};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The load never ends by itself within a test.
const LONG: Duration = Duration::from_secs(3_600);

#[test]
fn all_kinds_run_at_once_and_lose_nothing() {
    let web = FakeStreams::start(Framing::Http, |_, request| {
        let closes = request.windows(17).any(|part| part == b"Connection: close");
        if closes { Deed::SendAndClose(http_with("Connection: close\r\n", CONTENT)) } else { Deed::Send(http(CONTENT)) }
    });
    let udp = FakeDatagrams::start(|_, client, query| vec![(client, dns(query))]);
    let tcp = FakeStreams::start(Framing::Dns, |_, query| Deed::Send(framed(&dns(query))));
    let questions = parse_questions(NAMES).expect("the names are right");

    let mut load = Load::new(Duration::from_millis(500), 3);
    load.http = Some(HttpLoad { new_per_s: 100, kept_per_s: 200, ..HttpLoad::new(web.address, "/", CONTENT.to_vec()) });
    load.dns =
        Some(DnsLoad { udp_per_s: 400, content: DnsContent::Any, ..DnsLoad::new(udp.address, questions.clone()) });
    let mut over_tcp = Load::new(load.length, 3);
    over_tcp.dns = Some(DnsLoad { tcp_new_per_s: 60, tcp_kept_per_s: 80, ..DnsLoad::new(tcp.address, questions) });

    let running = load.start().expect("the load is complete");
    let over_tcp = over_tcp.start().expect("the load is complete").finish().expect("this machine has what it takes");
    let report = running.finish().expect("this machine has what it takes");
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
fn a_stopped_load_ends_with_its_last_answer() {
    // The server tells of the hundredth request: that is the moment to stop.
    let (hundred, reached) = channel();
    let server = FakeStreams::start(Framing::Http, move |number, _| {
        if number == 99 {
            hundred.send(()).expect("the test waits");
        }
        Deed::Send(http(CONTENT))
    });
    let mut load = load(Kind::HttpKept, server.address);
    load.length = LONG;
    let running = load.start().expect("the load is complete");
    reached.recv().expect("the server runs");
    assert!(!running.wait_end(Duration::ZERO));
    running.stop();
    assert!(running.wait_end(LONG));
    let standing = running.standing();
    assert_eq!((standing.sent_count, standing.lost_count), (standing.ok_count, 0));
    assert_eq!(standing, running.standing_of(Kind::HttpKept));
    let report = running.finish().expect("this machine has what it takes");
    assert!(report.sent_count() >= 100);
    assert_eq!(report.sent_count(), standing.sent_count);
}

#[test]
fn loads_that_cannot_be() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut HttpLoad, &mut DnsLoad)) {
        let (mut http, mut dns) = (HttpLoad::new(([127, 0, 0, 1], 9).into(), "/", Vec::new()), {
            let questions = parse_questions(NAMES).expect("the names are right");
            DnsLoad { content: DnsContent::Any, ..DnsLoad::new(([127, 0, 0, 1], 9).into(), questions) }
        });
        change(&mut http, &mut dns);
        let mut load = Load::new(LONG, 1);
        (load.http, load.dns) = (Some(http), Some(dns));
        assert!(matches!(load.start(), Err(LoadError::Wrong(_))));
    }
    check(|_, _| {});
    check(|http, _| http.contents.clear());
    check(|http, _| http.contents = vec![Vec::new(); 65]);
    check(|http, _| http.path = "page".to_owned());
    check(|http, _| http.path = "/a b".to_owned());
    check(|_, dns| dns.questions.clear());
    check(|_, dns| dns.udp_port_count = 0);
}

#[test]
fn a_server_that_is_wrong_before_the_load_gets_none() {
    let server = FakeStreams::start(Framing::Dns, |_, _| Deed::SendAndClose(Vec::new()));
    let mut load = load(Kind::DnsTcpNew, server.address);
    load.dns.iter_mut().for_each(|dns| dns.content = DnsContent::AsBefore);
    assert!(matches!(load.start(), Err(LoadError::Probe(_))));
}
