//! Malformed messages: each gets an error or no reply, and the next query gets its answer.

use crate::dns_messages::{A, FORMERR, NOTIMP, Question, Reply, TXT, name_bytes};
use crate::domain::{Domain, Setup, ZONE};
use sanderling_testkit::{RawConnection, UdpClient, framed, random_bytes, tcp_exchange, udp_reply};

/// The reply to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Rcode(u16),
    Silence,
}

use Outcome::{Rcode, Silence};

/// Sends `message`, then a good query: the first reply shows whether `message` got one.
#[track_caller]
fn outcome(client: &UdpClient, message: &[u8]) -> Outcome {
    const MARK: u16 = 0xfeed;
    client.send(message);
    client.send(&Question { id: MARK, ..Question::new("example.com", A) }.message());
    let mut outcome = Silence;
    loop {
        let reply = Reply::read(&client.receive());
        if reply.id == MARK {
            assert_eq!(reply.answer.len(), 1);
            return outcome;
        }
        assert_eq!(outcome, Silence, "two replies to one message");
        assert_eq!(reply.id.to_be_bytes(), message[..2], "the id is the query's");
        assert!(reply.length_bytes <= 1232);
        outcome = Rcode(reply.rcode);
    }
}

fn good() -> Vec<u8> {
    Question::new("example.com", A).message()
}

/// A good query with one byte changed.
fn with(at: usize, byte: u8) -> Vec<u8> {
    let mut message = good();
    message[at] = byte;
    message
}

fn header(counts: [u8; 4], rest: &[u8]) -> Vec<u8> {
    let [questions, answers, authorities, additionals] = counts;
    let fixed = [0x12, 0x34, 1, 0, 0, questions, 0, answers, 0, authorities, 0, additionals];
    [&fixed, rest].concat()
}

#[test]
fn malformed_messages_get_formerr_or_no_reply() {
    let domain = Domain::with_zone(ZONE);
    let client = UdpClient::new(domain.server.dns());
    let question = &good()[12..];
    let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    let long_label = [&[64][..], &[b'a'; 64], &[0, 0, 1, 0, 1]].concat();
    let long_name = [name_bytes(&["a".repeat(63).as_str(); 4].join(".")), vec![0, 1, 0, 1]].concat();
    let longest_name = name_bytes(&format!("{}.{}", ["a".repeat(63).as_str(); 3].join("."), "b".repeat(61)));
    assert_eq!(longest_name.len(), 255);
    for (what, message, expected) in [
        ("one byte", vec![0], Silence),
        ("eleven bytes", good()[..11].to_vec(), Silence),
        ("a header alone", good()[..12].to_vec(), Rcode(FORMERR)),
        ("a response", with(2, 0x81), Silence),
        ("a response with every flag", with(2, 0xff), Silence),
        ("no question", header([0; 4], &[]), Rcode(FORMERR)),
        ("two questions", header([2, 0, 0, 0], &[question, question].concat()), Rcode(FORMERR)),
        ("a question without its type", good()[..good().len() - 4].to_vec(), Rcode(FORMERR)),
        ("a question cut short", good()[..good().len() - 1].to_vec(), Rcode(FORMERR)),
        ("an answer in a query", header([1, 1, 0, 0], &[question, &[0; 11]].concat()), Rcode(FORMERR)),
        ("an authority in a query", header([1, 0, 1, 0], &[question, &[0; 11]].concat()), Rcode(FORMERR)),
        ("a pointer to itself", header([1, 0, 0, 0], &[0xc0, 12, 0, 1, 0, 1]), Rcode(FORMERR)),
        ("a pointer forward", header([1, 0, 0, 0], &[0xc0, 14, 0xc0, 12, 0, 1, 0, 1]), Rcode(FORMERR)),
        ("a pointer into the header", header([1, 0, 0, 0], &[0xc0, 4, 0, 1, 0, 1]), Rcode(FORMERR)),
        ("half a pointer", header([1, 0, 0, 0], &[0xc0]), Rcode(FORMERR)),
        ("a label of a kind that is none", header([1, 0, 0, 0], &[0x41, 0, 0, 0, 1, 0, 1]), Rcode(FORMERR)),
        ("a label of 64 bytes", header([1, 0, 0, 0], &long_label), Rcode(FORMERR)),
        ("a name of 257 bytes", header([1, 0, 0, 0], &long_name), Rcode(FORMERR)),
        ("a name of 255 bytes", header([1, 0, 0, 0], &[&longest_name[..], &[0, 1, 0, 1]].concat()), Rcode(5)),
        ("a name without end", header([1, 0, 0, 0], &[1; 300]), Rcode(FORMERR)),
        ("an OPT that is not there", header([1, 0, 0, 1], question), Rcode(FORMERR)),
        ("two OPTs", header([1, 0, 0, 2], &[question, &opt, &opt].concat()), Rcode(FORMERR)),
        ("an OPT owned by a name", header([1, 0, 0, 1], &[question, &[1, b'a'], &opt].concat()), Rcode(FORMERR)),
        ("an OPT cut short", header([1, 0, 0, 1], &[question, &opt[..9]].concat()), Rcode(FORMERR)),
        (
            "an option beyond its OPT",
            {
                let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 4, 0, 10, 0, 9];
                header([1, 0, 0, 1], &[question, &opt].concat())
            },
            Rcode(FORMERR),
        ),
        ("bytes after the end", [good(), vec![7; 100]].concat(), Rcode(0)),
        ("a hundred records more", header([1, 0, 0, 100], &[question, &opt.repeat(100)].concat()), Rcode(FORMERR)),
    ] {
        assert_eq!(outcome(&client, &message), expected, "{what}");
    }
}

#[test]
fn other_opcodes_get_notimp() {
    let domain = Domain::with_zone(ZONE);
    let client = UdpClient::new(domain.server.dns());
    for opcode in 0..16 {
        let message = Question { opcode, ..Question::new("example.com", A) }.message();
        let expected = if opcode == 0 { Rcode(0) } else { Rcode(NOTIMP) };
        assert_eq!(outcome(&client, &message), expected, "opcode {opcode}");
        let mut response = message;
        response[2] |= 0x80;
        assert_eq!(outcome(&client, &response), Silence, "opcode {opcode} as a response");
    }
}

/// All opcodes with many types, classes and kinds of names.
#[test]
fn every_combination_gets_one_well_formed_reply() {
    let domain = Domain::with_zone(ZONE);
    let client = UdpClient::new(domain.server.dns());
    let types = [
        0, 1, 2, 5, 6, 12, 15, 16, 28, 33, 39, 41, 43, 46, 47, 48, 50, 64, 65, 99, 128, 249, 250, 251, 252, 253, 254,
        255, 256, 32_769, 65_280, 65_535,
    ];
    let names =
        ["example.com", "www.example.com", "x.wild.example.com", "a.child.example.com", "none.example.com", "org"];
    for opcode in 0..16 {
        for class in [0, 1, 3, 254, 255, 65_535] {
            for (index, rtype) in types.iter().enumerate() {
                let name = names[(index + usize::from(opcode)) % names.len()];
                let edns = [None, Some((1232, 0)), Some((0, 7))][index % 3];
                let question = Question { id: 0x100, name, rtype: *rtype, class, opcode, edns };
                client.send(&question.message());
                let reply = Reply::read(&client.receive());
                assert_eq!(reply.id, question.id, "{question:?}");
                assert_eq!(reply.flags >> 11 & 15, u16::from(opcode), "{question:?}");
            }
        }
    }
}

#[test]
fn random_datagrams_leave_the_server_running() {
    const SEED: u64 = 53;
    println!("seed {SEED}");
    let domain = Domain::with_zone(ZONE);
    let client = UdpClient::new(domain.server.dns());
    let mut random = fastrand::Rng::with_seed(SEED);
    let seeds = [
        good(),
        Question { edns: Some((1232, 0)), ..Question::new("a.b.wild.example.com", TXT) }.message(),
        Question::new("x.tree.example.com", A).message(),
        Question::new("chain.example.com", A).message(),
    ];
    for round in 0..10_000 {
        let message = match round % 3 {
            0 => {
                let count = random.usize(..600);
                random_bytes(&mut random, count)
            }
            _ => {
                let mut message = seeds[random.usize(..seeds.len())].clone();
                for _ in 0..1 + random.usize(..4) {
                    let at = random.usize(..message.len());
                    message[at] = random.u64(..) as u8;
                }
                let count = 1 + random.usize(..message.len() + 3);
                message.truncate(count);
                message
            }
        };
        client.send(&message);
        if round % 50 == 49 {
            // Keeps the receive buffer from overflowing, and checks that the server is running.
            client.send(&Question { id: round, ..Question::new("example.com", A) }.message());
            loop {
                let reply = client.receive();
                Reply::read(&reply);
                if reply[..2] == round.to_be_bytes() && reply[3] & 15 == 0 && reply.len() == good().len() + 16 {
                    break;
                }
            }
        }
    }
}

#[test]
fn oversized_datagrams_leave_the_server_running() {
    let domain = Domain::with_zone(ZONE);
    let client = UdpClient::new(domain.server.dns());
    for count in [1_000, 1_500, 2_047, 2_048, 2_049, 4_096, 9_000, 65_507] {
        let mut message = good();
        message.resize(count, 0);
        // A query that is truncated on arrival may get no answer.
        let found = outcome(&client, &message);
        assert!(found == Rcode(0) || (count > 2_048 && found == Silence), "{count} bytes: {found:?}");
    }
    client.send(&[]);
    assert_eq!(Reply::read(&udp_reply(domain.server.dns(), &good())).answer.len(), 1);
}

#[test]
fn longest_message_over_tcp_is_answered() {
    let domain = Domain::with_zone(ZONE);
    let mut message = good();
    message.resize(65_535, 0);
    let mut raw = RawConnection::open(domain.server.dns());
    for _ in 0..3 {
        raw.send(&framed(&message));
    }
    for _ in 0..3 {
        assert_eq!(Reply::read(&raw.read_message()).answer.len(), 1);
    }
}

#[test]
fn malformed_tcp_stream_is_closed() {
    let domain = Domain::with_zone(ZONE);
    let server = domain.server.dns();
    assert_eq!(tcp_exchange(server, &[0, 0]), b"");
    // Another protocol: its first bytes are read as a length, and the message is never complete.
    let mut raw = RawConnection::open(server);
    raw.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    raw.finish_sending();
    assert_eq!(raw.read_to_close(), b"");
    let mut raw = RawConnection::open(server);
    raw.send(&[0, 3, 1, 2, 3]);
    raw.finish_sending();
    assert_eq!(raw.read_to_close(), b"", "a message too short for a header gets silence");
    assert_eq!(Question::new("example.com", A).ask_tcp(server).answer.len(), 1);
}

#[test]
fn random_streams_leave_the_server_running() {
    const SEED: u64 = 5_353;
    println!("seed {SEED}");
    // An incomplete query is given up soon.
    let limits = "dns_tcp_idle_timeout_ms = 100";
    let domain = Domain::serve(Setup { zone: ZONE, limits, ..Setup::default() });
    let mut random = fastrand::Rng::with_seed(SEED);
    for _ in 0..200 {
        let mut stream = Vec::new();
        for _ in 0..random.usize(..20) {
            let mut message = good();
            let at = random.usize(..message.len());
            message[at] = random.u64(..) as u8;
            stream.extend(framed(&message));
        }
        let count = random.usize(..stream.len() + 1);
        let mut raw = RawConnection::open(domain.server.dns());
        raw.send(&stream[..count]);
        raw.finish_sending();
        let mut received = &raw.read_to_close()[..];
        while let [high, low, rest @ ..] = received {
            let (reply, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            Reply::read(reply);
            received = rest;
        }
    }
    assert_eq!(Question::new("example.com", A).ask_tcp(domain.server.dns()).answer.len(), 1);
}
