//! Datagrams by each of the three ways: the same answers, and fewer calls by the better ones.
//!
//! `SANDERLING_QUERIES=100000 cargo test --release -p sanderling-server --test datagrams -- --nocapture` on a quiet
//! machine prints the calls and holds them against strict bounds.

use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{HashSeed, Name, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap};
use sanderling_os::counters::{self, Syscall};
use sanderling_os::udp::Socket;
use sanderling_server::{DefaultSite, Options, Server, Sites, Snapshot, SocketSet};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Set in the processes that are asked, to the number of queries.
const ASKED: &str = "SANDERLING_DATAGRAMS_ASKED";
/// Queries under way at once: as many as a socket's buffer holds.
const BURST: usize = 200;
const NAME_COUNT: usize = 1_000;
const APEX: &[u8] = b"\x04test\0";

fn zones() -> ZoneMap {
    let mut text = String::from("@ 60 IN SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n");
    for index in 0..NAME_COUNT {
        text.push_str(&format!("host{index} 60 A 198.51.{}.{}\n", index / 256, index % 256));
    }
    let apex = Name::parse(APEX).expect("a name");
    let mut parser = Parser::new("test.zone".into(), text.into_bytes(), apex, ParserLimits::default());
    let mut builder = ZoneBuilder::new(apex, HashSeed(3), ZoneLimits::default());
    let mut end = sanderling_dns::zonefile::Position { file_index: 0, line: 1, column: 1 };
    while let Some(event) = parser.next() {
        if let Entry::Record(record) = event.expect("a good zone") {
            end = record.position;
            builder.add(&record);
        }
    }
    let zone = builder.finish(end).zone.expect("a good zone");
    ZoneMap::new(HashSeed(3), [ZoneEntry::Served(Arc::new(zone))])
}

fn query(id: u16, index: usize) -> Vec<u8> {
    let label = format!("host{index}");
    let mut query = vec![0; 12];
    query[..2].copy_from_slice(&id.to_be_bytes());
    query[5] = 1;
    query.push(label.len() as u8);
    query.extend_from_slice(label.as_bytes());
    query.extend_from_slice(APEX);
    query.extend_from_slice(&[0, 1, 0, 1]);
    query
}

/// What is run three times, each with another way forced: asks, and tells the calls and a mark of all answers.
#[test]
fn serve_datagrams_for_another_process() {
    let Some(query_count) = std::env::var(ASKED).ok().and_then(|count| count.parse::<usize>().ok()) else { return };
    let socket = Socket::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let address = socket.local_address().expect("bound");
    let sockets = SocketSet { dns_datagrams: vec![socket], ..SocketSet::default() };
    let snapshot = Snapshot::new(Sites::new(Vec::new(), DefaultSite::None), zones());
    let server = Server::new(snapshot, Options::default(), Duration::ZERO);
    let run = server.run(&[sockets], 1, |_| {
        let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
        client.connect(address).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        let mut mark = 0_u64;
        for burst in 0..query_count / BURST {
            let mut asked = HashMap::new();
            for number in 0..BURST {
                let index = (burst * BURST + number) % NAME_COUNT;
                let id = number as u16;
                client.send(&query(id, index)).expect("sent");
                asked.insert(id, index);
            }
            while !asked.is_empty() {
                let mut reply = [0; 512];
                let length = client.recv(&mut reply).expect("answered");
                let id = u16::from_be_bytes([reply[0], reply[1]]);
                let index = asked.remove(&id).expect("asked, and answered once");
                assert_eq!(reply[length - 4..length], [198, 51, (index / 256) as u8, (index % 256) as u8]);
                // The sum does not depend on the order in which answers come.
                let bytes = reply[2..length]
                    .iter()
                    .fold(index as u64, |mark, &byte| (mark ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
                mark = mark.wrapping_add(bytes);
            }
        }
        let threads = counters::all_thread_counts();
        let counts = threads.iter().find(|counts| counts.thread == "datagrams 0").expect("it has made calls");
        let calls = [Syscall::Recvmmsg, Syscall::Recvmsg, Syscall::Sendmmsg, Syscall::Sendmsg, Syscall::Ppoll];
        println!("\nANSWERS {mark}");
        println!("\nCALLS {}", calls.iter().map(|&call| counts.get(call)).sum::<u64>());
    });
    run.expect("served");
}

#[test]
fn every_way_gives_the_same_answers_and_the_better_ones_make_fewer_calls() {
    let asked_for = std::env::var("SANDERLING_QUERIES").ok().and_then(|text| text.parse::<u64>().ok());
    let query_count = asked_for.unwrap_or(20_000);
    // Where others use the processor too, a burst is cut into pieces; on a quiet machine the bounds are those below.
    let slack = if asked_for.is_some() { 0.0 } else { 0.9 };
    let mut answers = Vec::new();
    for (way, calls_per_query_max) in [("recvmmsg", 0.1), ("recvmsg", 2.1), ("poll-recvmsg", 3.1)] {
        // On one processor, and without being preempted by whoever wakes, a burst is sent before anybody answers it: so
        // the counts do not depend on who is quicker.
        let output = Command::new("taskset")
            .args(["-c", "0", "chrt", "--batch", "0"])
            .arg(std::env::current_exe().expect("this program"))
            .args(["--exact", "serve_datagrams_for_another_process", "--nocapture"])
            .env(ASKED, query_count.to_string())
            .env(sanderling_os::fallback::FORCE_VARIABLE, format!("udp-receive={way}"))
            .output()
            .expect("taskset and chrt run (the Debian package util-linux)");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{way}: {told}{}", String::from_utf8_lossy(&output.stderr));
        let number = |name: &str| -> u64 {
            let line = told.lines().find_map(|line| line.strip_prefix(name)).expect("told");
            line.trim().parse().expect("a number")
        };
        let calls_per_query = number("CALLS") as f64 / query_count as f64;
        println!("{way}: {query_count} queries, {calls_per_query:.3} calls a query");
        assert!(calls_per_query <= calls_per_query_max + slack, "{way}: {calls_per_query:.3} calls a query");
        answers.push(number("ANSWERS"));
    }
    assert!(answers.iter().all(|mark| *mark == answers[0]), "{answers:?}");
}
