//! A zone with many names, all of which are queried.

use crate::domain::Domain;
use sanderling_testkit::dns::{A, NXDOMAIN, Question, Reply};
use sanderling_testkit::{RawConnection, framed};

const NAME_COUNT: usize = 100_000;

fn name(index: usize) -> String {
    format!("host-{index}.group-{}.example.com", index % 997)
}

/// Different for each name.
fn address(index: usize) -> [u8; 4] {
    let [_, high, middle, low] = (index as u32).to_be_bytes();
    [10, high, middle, low]
}

fn zone() -> String {
    let mut text = String::from("$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n");
    for index in 0..NAME_COUNT {
        let [a, b, c, d] = address(index);
        text += &format!("{}. A {a}.{b}.{c}.{d}\n", name(index));
    }
    text
}

fn message(index: usize) -> Vec<u8> {
    Question { id: index as u16, ..Question::new(&name(index), A) }.message()
}

#[track_caller]
fn check(reply: &Reply, index: usize) {
    assert_eq!((reply.rcode, reply.is_authoritative(), reply.answer.len()), (0, true, 1), "{index}");
    let record = &reply.answer[0];
    assert_eq!((record.owner.as_str(), record.ttl_s), (format!("{}.", name(index)).as_str(), 60));
    assert_eq!(record.rdata, address(index));
}

#[test]
fn every_name_of_a_large_zone_is_answered() {
    let domain = Domain::with_zone(&zone());
    let mut tcp = RawConnection::open(domain.server.dns());
    let indices: Vec<usize> = (0..NAME_COUNT).collect();
    for pipelined in indices.chunks(500) {
        tcp.send(&pipelined.iter().flat_map(|&index| framed(&message(index))).collect::<Vec<u8>>());
        for &index in pipelined {
            check(&Reply::parse(&tcp.read_message()), index);
        }
    }
    for index in (0..NAME_COUNT).step_by(1_009) {
        check(&Question::new(&name(index), A).query_udp(domain.server.dns()), index);
        let missing = format!("x{}", name(index));
        assert_eq!(Question::new(&missing, A).query_udp(domain.server.dns()).rcode, NXDOMAIN);
    }
}
