//! Malformed and hostile DNS messages: the server replies with an error or not at all, and answers the next query. The
//! tests of the dns crate have further cases.

use crate::domain::{Domain, Setup, ZONE};
use fastrand::Rng;
use sanderling_testkit::dns::{A, FORMERR, NOERROR, NXDOMAIN, Question, REFUSED, Reply, TXT};
use sanderling_testkit::{RawConnection, UdpClient, framed, tcp_exchange, tcp_reply, udp_reply};

/// The RCODE of the reply to `message`, or `None` if there is no reply before that to a valid query after it.
#[track_caller]
fn rcode(client: &UdpClient, message: &[u8]) -> Option<u16> {
    const LAST_ID: u16 = 0xfeed;
    client.send(message);
    client.send(&Question { id: LAST_ID, ..Question::new("example.com", A) }.message());
    let mut rcode = None;
    loop {
        let reply = Reply::parse(&client.receive());
        if reply.id == LAST_ID {
            assert_eq!(reply.answer.len(), 1);
            return rcode;
        }
        assert_eq!(rcode, None, "two replies to one message");
        assert_eq!(reply.id.to_be_bytes(), message[..2], "the id is that of the query");
        assert!(reply.length_bytes <= 1232);
        rcode = Some(reply.rcode);
    }
}

fn valid() -> Vec<u8> {
    Question::new("example.com", A).message()
}

#[test]
fn malformed_datagram_is_answered_with_formerr_or_dropped() {
    let domain = Domain::with_zone(ZONE);
    let client = UdpClient::new(domain.server.dns());
    let header = &[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let with_question = |question: &[u8]| [header, question].concat();
    for (case, message, expected) in [
        ("one byte", vec![0], None),
        ("a header alone", valid()[..12].to_vec(), Some(FORMERR)),
        ("a pointer to itself", with_question(&[0xc0, 12, 0, 1, 0, 1]), Some(FORMERR)),
        ("bytes after the message", [valid(), vec![7; 100]].concat(), Some(NOERROR)),
    ] {
        assert_eq!(rcode(&client, &message), expected, "{case}");
    }
}

#[test]
fn errors_to_one_network_are_limited_and_answers_are_not() {
    let limits = "dns_udp_errors_per_second_max = 0";
    let domain = Domain::serve(Setup { zone: ZONE, limits, ..Setup::default() });
    let client = UdpClient::new(domain.server.dns());
    let no_zone = Question::new("example.org", A).message();
    for error in [&no_zone, &valid()[..12]] {
        assert_eq!(rcode(&client, error), None);
    }
    assert_eq!(rcode(&client, &Question::new("none.example.com", A).message()), Some(NXDOMAIN));
    assert_eq!(Reply::parse(&tcp_reply(domain.server.dns(), &no_zone)).rcode, REFUSED, "over TCP");
    domain.server.wait_for_error("dns_udp_errors_per_second_max is reached");
    let status = domain.directory.control("status").text();
    assert!(status.contains("dns_errors_limited 2"), "{status}");
}

#[test]
fn random_datagrams_do_no_harm() {
    let seed = sanderling_testkit::seed();
    let mut random = Rng::with_seed(seed);
    let domain = Domain::with_zone(ZONE);
    let client = UdpClient::new(domain.server.dns());
    let queries = [
        valid(),
        Question { edns: Some((1232, 0)), ..Question::new("a.b.wild.example.com", TXT) }.message(),
        Question::new("x.tree.example.com", A).message(),
        Question::new("chain.example.com", A).message(),
    ];
    for round in 0..10_000 {
        let message = match round % 3 {
            0 => {
                let count = random.usize(..600);
                sanderling_testkit::random_bytes(&mut random, count)
            }
            _ => {
                let mut message = random.choice(&queries).expect("queries").clone();
                for _ in 0..random.usize(1..5) {
                    let at = random.usize(..message.len());
                    message[at] = random.u8(..);
                }
                message.truncate(random.usize(1..message.len() + 4));
                message
            }
        };
        client.send(&message);
        if round % 50 == 49 {
            // Keeps the socket's buffer from overflowing, and proves that the server answers.
            client.send(&Question { id: round, ..Question::new("example.com", A) }.message());
            loop {
                let reply = client.receive();
                Reply::parse(&reply);
                if reply[..2] == round.to_be_bytes() && reply[3] & 15 == 0 && reply.len() == valid().len() + 16 {
                    break;
                }
            }
        }
    }
}

#[test]
fn long_datagram_is_answered_or_dropped() {
    let domain = Domain::with_zone(ZONE);
    let client = UdpClient::new(domain.server.dns());
    for count in [1_000, 1_500, 2_047, 2_048, 2_049, 4_096, 9_000, 65_507] {
        let mut message = valid();
        message.resize(count, 0);
        // The server may receive a part of it.
        let found = rcode(&client, &message);
        assert!(found == Some(NOERROR) || (count > 2_048 && found.is_none()), "{count} bytes: {found:?}");
    }
    client.send(&[]);
    assert_eq!(Reply::parse(&udp_reply(domain.server.dns(), &valid())).answer.len(), 1);
}

#[test]
fn longest_message_over_tcp_is_answered() {
    let domain = Domain::with_zone(ZONE);
    let mut message = valid();
    message.resize(65_535, 0);
    let mut tcp = RawConnection::open(domain.server.dns());
    for _ in 0..3 {
        tcp.send(&framed(&message));
    }
    for _ in 0..3 {
        assert_eq!(Reply::parse(&tcp.read_message()).answer.len(), 1);
    }
}

#[test]
fn invalid_bytes_over_tcp_close_the_connection() {
    let domain = Domain::with_zone(ZONE);
    let server = domain.server.dns();
    assert_eq!(tcp_exchange(server, &[0, 0]), b"");
    // Of another protocol, the first bytes are the length of a message that never arrives whole.
    for bytes in [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], &[0, 3, 1, 2, 3]] {
        let mut tcp = RawConnection::open(server);
        tcp.send(bytes);
        tcp.finish_sending();
        assert_eq!(tcp.read_to_close(), b"", "{bytes:?}");
    }
    assert_eq!(Question::new("example.com", A).query_tcp(server).answer.len(), 1);
}
