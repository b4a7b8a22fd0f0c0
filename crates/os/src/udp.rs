//! UDP: a socket, and a batch of datagrams received and answered with one call each.
//!
//! Three ways, from the cheapest: `batch` asks for many datagrams at once and waits only after a call that brought
//! none; `drain` does the same one datagram at a time; `single` waits before each. The socket stands in no epoll set: a
//! registered one costs each datagram 130 to 155 ns more, watched or not (docs/decisions/0001-event-loop.md).

mod socket;
mod batch;
mod local_address;

use crate::fallback::{Feature, Variant};
use std::io;

pub use batch::{BATCH_COUNT_MAX, Batch, Datagram, QUERY_BYTES_MAX, Queries, REPLY_BYTES_MAX, Replies};
pub use socket::{SendReport, Socket};

/// How datagrams are received and sent.
pub static UDP_RECEIVE: Feature = Feature::new(
    "udp-receive",
    &[
        Variant { name: "recvmmsg", is_supported: recvmmsg_is_there },
        Variant { name: "recvmsg", is_supported: || true },
        Variant { name: "poll-recvmsg", is_supported: || true },
    ],
);

const BATCH: usize = 0;
const SINGLE: usize = 2;

/// Asks for no datagram of no socket: ENOSYS tells that the call is missing, EBADF that it is there.
fn recvmmsg_is_there() -> bool {
    // SAFETY: a count of 0 lets the kernel touch no memory.
    unsafe { libc::recvmmsg(-1, std::ptr::null_mut(), 0, 0, std::ptr::null_mut()) };
    io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll_set::PollSet;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::Duration;

    const SECOND: Option<Duration> = Some(Duration::from_secs(5));

    fn client(server: &Socket) -> UdpSocket {
        let port = server.local_address().expect("bound").port();
        let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
        client.connect(("127.0.0.1", port)).expect("connected");
        client.set_read_timeout(SECOND).expect("set");
        client
    }

    /// Receives until `expected_count` datagrams have come, echoing each with a mark before it.
    fn echo(server: &Socket, expected_count: usize) {
        let mut batch = Batch::new();
        let mut waiting = PollSet::new([server.as_fd()]);
        let mut echoed = 0;
        while echoed < expected_count {
            let received = server.receive(&mut batch).expect("received");
            for index in 0..received {
                let (query, reply) = batch.query_and_reply(index);
                assert!(!query.is_truncated);
                assert_ne!(query.peer_port, 0);
                let length = query.bytes.len();
                reply[0] = b'!';
                reply[1..=length].copy_from_slice(query.bytes);
                batch.set_reply(index, length + 1);
            }
            let sent = server.send(&mut batch);
            assert_eq!((sent.sent_count, sent.failed_count), (received, 0));
            echoed += received;
            if echoed < expected_count && !Socket::may_have_more(received) {
                waiting.wait(SECOND).expect("waited");
            }
        }
    }

    #[test]
    fn each_datagram_gets_its_own_reply() {
        let server = Socket::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let clients: Vec<_> = (0..50).map(|_| client(&server)).collect();
        for (index, client) in clients.iter().enumerate() {
            client.send(format!("query {index}").as_bytes()).expect("sent");
        }
        echo(&server, clients.len());
        for (index, client) in clients.iter().enumerate() {
            let mut reply = [0; 64];
            let length = client.recv(&mut reply).expect("answered");
            assert_eq!(&reply[..length], format!("!query {index}").as_bytes());
        }
    }

    #[test]
    fn a_wildcard_socket_answers_from_the_address_that_was_asked() {
        for (wildcard, asked) in [("0.0.0.0:0", "127.0.0.7"), ("[::]:0", "::1")] {
            let server = Socket::bind(wildcard.parse().expect("an address")).expect("bound");
            let port = server.local_address().expect("bound").port();
            let client = UdpSocket::bind(if asked == "::1" { "[::1]:0" } else { "127.0.0.1:0" }).expect("bound");
            client.set_read_timeout(SECOND).expect("set");
            let asked = SocketAddr::new(asked.parse().expect("an address"), port);
            client.send_to(b"who?", asked).expect("sent");
            echo(&server, 1);
            let (_, from) = client.recv_from(&mut [0; 64]).expect("answered");
            assert_eq!(from, asked);
        }
    }

    #[test]
    fn what_is_too_long_is_told_to_be_cut_off() {
        let server = Socket::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let client = client(&server);
        client.send(&[7; QUERY_BYTES_MAX + 1]).expect("sent");
        PollSet::new([server.as_fd()]).wait(SECOND).expect("waited");
        let mut batch = Batch::new();
        assert_eq!(server.receive(&mut batch).expect("received"), 1);
        let (query, _) = batch.query_and_reply(0);
        assert!(query.is_truncated);
        assert_eq!(query.bytes.len(), QUERY_BYTES_MAX);
    }

    #[test]
    fn a_reply_that_cannot_be_sent_does_not_hold_the_others() {
        let server = Socket::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let clients: Vec<_> = (0..3).map(|_| client(&server)).collect();
        let mut batch = Batch::new();
        let mut received = 0;
        for client in &clients {
            client.send(b"query").expect("sent");
        }
        while received < clients.len() {
            PollSet::new([server.as_fd()]).wait(SECOND).expect("waited");
            let count = server.receive(&mut batch).expect("received");
            for index in 0..count {
                // Port 0 cannot be sent to (EINVAL), as when a forged query came from there.
                if received + index == 1 {
                    batch.peers[index].sin6_port = 0;
                }
                batch.set_reply(index, 5);
            }
            let sent = server.send(&mut batch);
            assert_eq!(sent.sent_count + sent.failed_count, count);
            received += count;
        }
        assert_eq!(clients[0].recv(&mut [0; 64]).expect("answered"), 5);
        assert_eq!(clients[2].recv(&mut [0; 64]).expect("answered"), 5);
    }
}
