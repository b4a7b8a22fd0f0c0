//! A large zone, asked for every name it has.

use std::time::Duration;

use crate::dns_messages::{A, NXDOMAIN, Question, Reply};
use crate::domain::{Domain, Wanted};
use sanderling_testkit::clients::{Asker, RawConnection, framed};

const NAME_COUNT: usize = 100_000;
/// Queries on their way at once: their replies fit into the asker's socket.
const OUTSTANDING_MAX: usize = 100;
/// After this long without a reply, what is outstanding is asked again.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS_WITHOUT_REPLY_MAX: usize = 15;

fn name(index: usize) -> String {
    format!("host-{index}.group-{}.example.com", index % 997)
}

/// An address that tells the name, so that a reply to another's question shows.
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
fn a_hundred_thousand_names_are_answered() {
    let text = zone();
    let domain = Domain::serve(Wanted { zone: &text, ..Wanted::default() });
    ask_all(&Asker::new(domain.serving.dns()));
    ask_some_over_tcp(&mut RawConnection::open(domain.serving.dns()));
    for index in (0..NAME_COUNT).step_by(1_009) {
        let missing = format!("x{}", name(index));
        assert_eq!(Question::new(&missing, A).ask_udp(domain.serving.dns()).rcode, NXDOMAIN);
    }
}

/// Asks for every name, many at once; what is lost on the way is asked again.
#[track_caller]
fn ask_all(asker: &Asker) {
    let mut next = 0;
    let mut outstanding = std::collections::VecDeque::new();
    let mut answered_count = 0;
    let mut rounds_left = ROUNDS_WITHOUT_REPLY_MAX;
    while answered_count < NAME_COUNT {
        while outstanding.len() < OUTSTANDING_MAX && next < NAME_COUNT {
            asker.send(&message(next));
            outstanding.push_back(next);
            next += 1;
        }
        let Some(datagram) = asker.receive_within(PATIENCE) else {
            rounds_left = rounds_left.checked_sub(1).expect("the server has gone silent");
            outstanding.iter().for_each(|&index| asker.send(&message(index)));
            continue;
        };
        let reply = Reply::read(&datagram);
        // None: a query that was asked twice got two replies.
        let Some(place) = outstanding.iter().position(|&index| index as u16 == reply.id) else { continue };
        let index = outstanding.remove(place).expect("it was just found");
        check(&reply, index);
        answered_count += 1;
    }
}

/// Every tenth name, in pieces that hold many queries.
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
