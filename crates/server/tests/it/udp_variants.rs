//! The variants of receiving datagrams: the same answers, and fewer system calls by the better ones.
//!
//! `SANDERLING_QUERIES=100000 cargo test --release -p sanderling-server --test it udp_variants -- --nocapture` checks
//! strict limits, on a quiet machine.

use crate::support::{command_alone, is_alone, this_program};

use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{HashSeed, Name, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap};
use sanderling_os::counters::{self, Syscall};
use sanderling_os::udp::Socket;
use sanderling_server::{DefaultSite, Options, Role, Server, Sites, Snapshot, SocketSet};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The number of queries.
const QUERIES: &str = "SANDERLING_QUERIES";
const QUERY_COUNT: usize = 20_000;
/// Queries without a reply: as many as the buffer of a socket holds.
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

/// Runs for each variant in a process of its own, and prints the number of calls and a hash of all answers.
fn measure(query_count: usize) {
    let socket = Socket::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let address = socket.local_address().expect("bound");
    let sockets = SocketSet { streams: Vec::new(), datagrams: vec![(Role::DNS, Arc::new(socket))] };
    let snapshot = Snapshot::new(Sites::new(Vec::new(), DefaultSite::None), zones());
    let server = Server::new(snapshot, Options::default(), Duration::ZERO);
    let run = server.run(&[sockets], 1, |_| {
        let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
        client.connect(address).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        let mut hash_sum = 0_u64;
        for burst in 0..query_count / BURST {
            let mut queried = HashMap::new();
            for number in 0..BURST {
                let index = (burst * BURST + number) % NAME_COUNT;
                let id = number as u16;
                client.send(&query(id, index)).expect("sent");
                queried.insert(id, index);
            }
            while !queried.is_empty() {
                let mut reply = [0; 512];
                let length = client.recv(&mut reply).expect("answered");
                let id = u16::from_be_bytes([reply[0], reply[1]]);
                let index = queried.remove(&id).expect("answered once");
                assert_eq!(reply[length - 4..length], [198, 51, (index / 256) as u8, (index % 256) as u8]);
                // The sum does not depend on the order of the answers.
                let mut hasher = DefaultHasher::new();
                (index, &reply[2..length]).hash(&mut hasher);
                hash_sum = hash_sum.wrapping_add(hasher.finish());
            }
        }
        let threads = counters::all_thread_counts();
        let counts = threads.iter().find(|counts| counts.thread == "datagrams 0").expect("the thread has made calls");
        let calls = [Syscall::Recvmmsg, Syscall::Recvmsg, Syscall::Sendmmsg, Syscall::Sendmsg, Syscall::Ppoll];
        println!("\nANSWERS {hash_sum}");
        println!("\nCALLS {}", calls.iter().map(|&call| counts.get(call)).sum::<u64>());
    });
    run.expect("served");
}

#[test]
fn all_variants_give_the_same_answers_with_different_numbers_of_calls() {
    let given = std::env::var(QUERIES).ok().and_then(|text| text.parse::<usize>().ok());
    let query_count = given.unwrap_or(QUERY_COUNT);
    if is_alone() {
        return measure(query_count);
    }
    // On a busy machine the server receives a burst in parts.
    let tolerance = if given.is_some() { 0.0 } else { 0.9 };
    let mut answers = Vec::new();
    for (variant, calls_per_query_max) in [("recvmmsg", 0.1), ("recvmsg", 2.1), ("poll-recvmsg", 3.1)] {
        // On one processor, and without preemption by a thread that wakes up, a burst is sent before the server
        // replies.
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "chrt", "--batch", "0"]).arg(this_program());
        let test = "udp_variants::all_variants_give_the_same_answers_with_different_numbers_of_calls";
        let output = command_alone(command, test)
            .env(sanderling_os::fallback::FORCE_VARIABLE, format!("udp-io={variant}"))
            .output()
            .expect("taskset and chrt run (the Debian package util-linux)");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{variant}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let number = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("printed");
            line.trim().parse().expect("a number")
        };
        let calls_per_query = number("CALLS") as f64 / query_count as f64;
        println!("{variant}: {query_count} queries, {calls_per_query:.3} calls for a query");
        assert!(
            calls_per_query <= calls_per_query_max + tolerance,
            "{variant}: {calls_per_query:.3} calls for a query"
        );
        answers.push(number("ANSWERS"));
    }
    assert!(answers.iter().all(|hash_sum| *hash_sum == answers[0]), "{answers:?}");
}
