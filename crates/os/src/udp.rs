//! UDP sockets, and batches of datagrams that are received and answered with one call each.
//!
//! Three variants, the cheapest first: `recvmmsg` receives many datagrams per call and waits only after a call that
//! returned none; `recvmsg` does the same with one datagram per call; `poll-recvmsg` waits before each datagram. The
//! socket is in no epoll set, whose callback makes each datagram more expensive (docs/decisions/0001-event-loop.md).

mod socket;
mod batch;
mod local_address;

use crate::error::with_context;
use crate::fallback::{Feature, Variant};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::net::{SocketAddr, UdpSocket};

pub use batch::{BATCH_COUNT_MAX, Batch, Datagram, QUERY_BYTES_MAX, Queries, REPLY_BYTES_MAX, Replies, ReplyPath};
pub use socket::Socket;

/// The calls that receive and send datagrams.
pub static UDP_IO: Feature = Feature::new(
    "udp-io",
    &[
        Variant { name: "recvmmsg", is_supported: recvmmsg_is_supported },
        Variant { name: "recvmsg", is_supported: || true },
        Variant { name: "poll-recvmsg", is_supported: || true },
    ],
);

const BY_RECVMMSG: usize = 0;
const BY_POLL_RECVMSG: usize = 2;

/// A socket that exchanges datagrams only with `address`. The socket is not bound, so that a process that may not bind
/// can open it.
pub fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)
        .map_err(|errno| with_context("socket", address, &errno.into()))?;
    rustix::net::connect(&socket, &address).map_err(|errno| with_context("connect", address, &errno.into()))?;
    Ok(socket.into())
}

/// Calls `recvmmsg` without a socket: EBADF means that the call exists, ENOSYS that it is missing.
fn recvmmsg_is_supported() -> bool {
    // SAFETY: with a count of 0 the kernel touches no memory.
    unsafe { libc::recvmmsg(-1, std::ptr::null_mut(), 0, 0, std::ptr::null_mut()) };
    io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll_set::PollSet;
    use std::os::fd::AsFd;
    use std::time::Duration;

    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(5));

    fn server() -> Socket {
        Socket::bind("127.0.0.1:0".parse().expect("an address")).expect("bound")
    }

    fn client(server: &Socket) -> UdpSocket {
        let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
        client.connect(server.local_address().expect("bound")).expect("connected");
        client.set_read_timeout(TIMEOUT).expect("set");
        client
    }

    /// Waits for datagrams and receives them; their number.
    fn receive(server: &Socket, batch: &mut Batch) -> usize {
        PollSet::new([server.as_fd()]).wait(TIMEOUT).expect("no error");
        server.receive(batch).expect("received")
    }

    /// Answers `expected_count` datagrams, each with itself after a mark.
    fn echo(server: &Socket, expected_count: usize) {
        let mut batch = Batch::new();
        let mut echoed_count = 0;
        while echoed_count < expected_count {
            let received_count = receive(server, &mut batch);
            for index in 0..received_count {
                let (queries, mut replies) = batch.queries_and_replies();
                let query = queries.get(index);
                assert!(!query.is_truncated);
                let length = query.bytes.len();
                replies.buffer()[0] = b'!';
                replies.buffer()[1..=length].copy_from_slice(query.bytes);
                replies.push(index, length + 1);
            }
            assert_eq!(server.send(&mut batch), 0);
            echoed_count += received_count;
        }
    }

    #[test]
    fn each_datagram_gets_its_own_reply() {
        let server = server();
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
    fn wildcard_socket_replies_from_the_address_that_was_asked() {
        for (wildcard, asked) in [("0.0.0.0:0", "127.0.0.7"), ("[::]:0", "::1")] {
            let server = Socket::bind(wildcard.parse().expect("an address")).expect("bound");
            let port = server.local_address().expect("bound").port();
            let client = UdpSocket::bind(if asked == "::1" { "[::1]:0" } else { "127.0.0.1:0" }).expect("bound");
            client.set_read_timeout(TIMEOUT).expect("set");
            let asked = SocketAddr::new(asked.parse().expect("an address"), port);
            client.send_to(b"query", asked).expect("sent");
            echo(&server, 1);
            let (_, from) = client.recv_from(&mut [0; 64]).expect("answered");
            assert_eq!(from, asked);
        }
    }

    #[test]
    fn late_reply_leaves_from_the_address_that_was_asked() {
        for (address, asked) in [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.7"), ("[::]:0", "::1")] {
            let server = Socket::bind(address.parse().expect("an address")).expect("bound");
            let port = server.local_address().expect("bound").port();
            let client = UdpSocket::bind(if asked == "::1" { "[::1]:0" } else { "127.0.0.1:0" }).expect("bound");
            client.set_read_timeout(TIMEOUT).expect("set");
            let asked = SocketAddr::new(asked.parse().expect("an address"), port);
            let mut batch = Batch::new();
            client.send_to(b"first", asked).expect("sent");
            assert_eq!(receive(&server, &mut batch), 1);
            let path = batch.queries_and_replies().0.reply_path(0);
            // The next datagram takes its place in the batch.
            let other = UdpSocket::bind((client.local_addr().expect("bound").ip(), 0)).expect("bound");
            other.send_to(b"second", asked).expect("sent");
            assert_eq!(receive(&server, &mut batch), 1);
            server.send_later(path, b"reply").expect("sent");
            let mut reply = [0; 64];
            let (length, from) = client.recv_from(&mut reply).expect("answered");
            assert_eq!((&reply[..length], from), (&b"reply"[..], asked));
        }
    }

    #[test]
    fn peer_address_of_a_datagram_is_that_of_its_sender() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let server = Socket::bind(address.parse().expect("an address")).expect("bound");
            let client = UdpSocket::bind(address).expect("bound");
            client.send_to(b"query", server.local_address().expect("bound")).expect("sent");
            let mut batch = Batch::new();
            assert_eq!(receive(&server, &mut batch), 1);
            let sender = client.local_addr().expect("bound");
            let (queries, _) = batch.queries_and_replies();
            assert_eq!((queries.peer_address(0), queries.get(0).peer_port), (sender, sender.port()));
        }
    }

    #[test]
    fn too_long_datagram_is_marked_as_truncated() {
        let server = server();
        client(&server).send(&[7; QUERY_BYTES_MAX + 1]).expect("sent");
        let mut batch = Batch::new();
        assert_eq!(receive(&server, &mut batch), 1);
        let query = batch.queries_and_replies().0.get(0);
        assert!(query.is_truncated);
        assert_eq!(query.bytes.len(), QUERY_BYTES_MAX);
    }

    #[test]
    fn reply_that_cannot_be_sent_does_not_stop_the_others() {
        let server = server();
        let clients: Vec<_> = (0..3).map(|_| client(&server)).collect();
        for client in &clients {
            client.send(b"query").expect("sent");
        }
        let mut batch = Batch::new();
        let (mut received_count, mut failed_count) = (0, 0);
        while received_count < clients.len() {
            let count = receive(&server, &mut batch);
            for index in 0..count {
                // The kernel refuses to send to port 0 (EINVAL), which a forged query may come from.
                if received_count + index == 1 {
                    batch.peers[index].sin6_port = 0;
                }
                batch.queries_and_replies().1.push(index, 5);
            }
            failed_count += server.send(&mut batch);
            received_count += count;
        }
        assert_eq!(failed_count, 1);
        assert_eq!(clients[0].recv(&mut [0; 64]).expect("answered"), 5);
        assert_eq!(clients[2].recv(&mut [0; 64]).expect("answered"), 5);
    }
}
