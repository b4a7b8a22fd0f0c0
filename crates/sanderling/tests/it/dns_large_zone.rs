//! A zone with many names, all of which are queried.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::Domain;
use sanderling_testkit::dns::{A, NXDOMAIN, Question, Reply};
use sanderling_testkit::{RawConnection, UdpClient, framed};

const NAME_COUNT: usize = 100_000;
/// Queries without a reply: the replies to all of them fit into the client's socket.
const OUTSTANDING_MAX: usize = 100;
/// After this long without a reply, all outstanding queries are sent again.
const RETRY_AFTER: Duration = Duration::from_secs(2);
const RETRIES_MAX: usize = 15;

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
    query_all(&UdpClient::new(domain.server.dns()));
    query_some_over_tcp(&mut RawConnection::open(domain.server.dns()));
    for index in (0..NAME_COUNT).step_by(1_009) {
        let missing = format!("x{}", name(index));
        assert_eq!(Question::new(&missing, A).query_udp(domain.server.dns()).rcode, NXDOMAIN);
    }
}

#[track_caller]
fn query_all(client: &UdpClient) {
    let mut next = 0;
    let mut outstanding = VecDeque::new();
    let mut answered_count = 0;
    let mut retries_left = RETRIES_MAX;
    while answered_count < NAME_COUNT {
        while outstanding.len() < OUTSTANDING_MAX && next < NAME_COUNT {
            client.send(&message(next));
            outstanding.push_back(next);
            next += 1;
        }
        let Some(datagram) = client.receive_within(RETRY_AFTER) else {
            retries_left = retries_left.checked_sub(1).expect("the server does not reply");
            outstanding.iter().for_each(|&index| client.send(&message(index)));
            continue;
        };
        let reply = Reply::parse(&datagram);
        // None: a query that was sent twice has two replies.
        let Some(position) = outstanding.iter().position(|&index| index as u16 == reply.id) else { continue };
        let index = outstanding.remove(position).expect("just found");
        check(&reply, index);
        answered_count += 1;
    }
}

/// Every tenth name.
#[track_caller]
fn query_some_over_tcp(tcp: &mut RawConnection) {
    let indices: Vec<usize> = (0..NAME_COUNT).step_by(10).collect();
    for pipelined in indices.chunks(500) {
        tcp.send(&pipelined.iter().flat_map(|&index| framed(&message(index))).collect::<Vec<u8>>());
        for &index in pipelined {
            check(&Reply::parse(&tcp.read_message()), index);
        }
    }
}
