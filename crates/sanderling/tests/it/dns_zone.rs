//! A large zone, queried for all of its names.

use std::time::Duration;

use crate::dns_messages::{A, NXDOMAIN, Question, Reply};
use crate::domain::{Domain, Setup};
use sanderling_testkit::{RawConnection, UdpClient, framed};

const NAME_COUNT: usize = 100_000;
/// Outstanding queries: their replies fit into the receive buffer of the client.
const OUTSTANDING_MAX: usize = 100;
/// Time after which outstanding queries are sent again.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS_WITHOUT_REPLY_MAX: usize = 15;

fn name(index: usize) -> String {
    format!("host-{index}.group-{}.example.com", index % 997)
}

/// An address that identifies the name.
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
fn hundred_thousand_names_are_answered() {
    let text = zone();
    let domain = Domain::serve(Setup { zone: &text, ..Setup::default() });
    ask_all(&UdpClient::new(domain.server.dns()));
    ask_some_over_tcp(&mut RawConnection::open(domain.server.dns()));
    for index in (0..NAME_COUNT).step_by(1_009) {
        let missing = format!("x{}", name(index));
        assert_eq!(Question::new(&missing, A).ask_udp(domain.server.dns()).rcode, NXDOMAIN);
    }
}

/// Queries all names, many at a time; lost queries are sent again.
#[track_caller]
fn ask_all(client: &UdpClient) {
    let mut next = 0;
    let mut outstanding = std::collections::VecDeque::new();
    let mut answered_count = 0;
    let mut rounds_left = ROUNDS_WITHOUT_REPLY_MAX;
    while answered_count < NAME_COUNT {
        while outstanding.len() < OUTSTANDING_MAX && next < NAME_COUNT {
            client.send(&message(next));
            outstanding.push_back(next);
            next += 1;
        }
        let Some(datagram) = client.receive_within(PATIENCE) else {
            rounds_left = rounds_left.checked_sub(1).expect("the server has gone silent");
            outstanding.iter().for_each(|&index| client.send(&message(index)));
            continue;
        };
        let reply = Reply::read(&datagram);
        // `None`: a query that was sent twice got two replies.
        let Some(place) = outstanding.iter().position(|&index| index as u16 == reply.id) else { continue };
        let index = outstanding.remove(place).expect("it was just found");
        check(&reply, index);
        answered_count += 1;
    }
}

/// Every tenth name, in writes of many queries.
#[track_caller]
fn ask_some_over_tcp(raw: &mut RawConnection) {
    let indices: Vec<usize> = (0..NAME_COUNT).step_by(10).collect();
    for piece in indices.chunks(500) {
        raw.send(&piece.iter().flat_map(|&index| framed(&message(index))).collect::<Vec<u8>>());
        for &index in piece {
            check(&Reply::read(&raw.read_message()), index);
        }
    }
}
