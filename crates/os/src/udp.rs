//! UDP: a socket, and a batch of datagrams received and answered with one call each.
//!
//! Three ways, from the cheapest: `batch` asks for many datagrams at once and waits only after a call that brought
//! none; `drain` does the same one datagram at a time; `single` waits before each. The socket stands in no epoll set: a
//! registered one costs each datagram 130 to 155 ns more, watched or not (docs/decisions/0001-event-loop.md).

use crate::counters::{Call, count};
use crate::failure::named;
use crate::tcp::{Rank, let_siblings_join};
use crate::ways::{Job, Way};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How datagrams are received and sent.
pub static JOB: Job = Job::new(
    "datagrams",
    &[
        Way { name: "batch", is_there: recvmmsg_is_there },
        Way { name: "drain", is_there: || true },
        Way { name: "single", is_there: || true },
    ],
);

const BATCH: usize = 0;
const SINGLE: usize = 2;

/// Datagrams of one batch.
pub const BATCH_COUNT_MAX: usize = 32;
/// Octets of the longest datagram that is received whole; of a longer one the rest is cut off, and that is told.
pub const QUERY_BYTES_MAX: usize = 2048;
/// Octets of the longest reply.
pub const REPLY_BYTES_MAX: usize = 4096;
/// Room for one control message that tells or sets a local address, of either family.
const CONTROL_BYTES: usize = 64;

/// A UDP socket, never blocking.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    /// Bound to no address of its own: each datagram tells which it was sent to, and the reply leaves from there.
    is_wildcard: bool,
}

impl Socket {
    /// A socket bound to `address`, which nobody else has. Siblings may join it afterwards ([`Socket::bind_sibling`]).
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        Socket::bind_as(address, Rank::First)
    }

    /// A socket bound to `address` beside those of this user that are already (`SO_REUSEPORT`).
    pub fn bind_sibling(address: SocketAddr) -> io::Result<Socket> {
        Socket::bind_as(address, Rank::Sibling)
    }

    fn bind_as(address: SocketAddr, rank: Rank) -> io::Result<Socket> {
        count(Call::Socket);
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))
            .map_err(|errno| named("socket", address, &errno.into()))?;
        if address.is_ipv6() {
            count(Call::Setsockopt);
            sockopt::set_ipv6_v6only(&socket, true)
                .map_err(|errno| named("setsockopt(IPV6_V6ONLY)", address, &errno.into()))?;
        }
        if rank == Rank::Sibling {
            let_siblings_join(&socket, address)?;
        }
        count(Call::Bind);
        bind(&socket, &address).map_err(|errno| named("bind", address, &errno.into()))?;
        if rank == Rank::First {
            let_siblings_join(&socket, address)?;
        }
        Socket::adopt(socket)
    }

    /// Takes over a socket that is bound already: one that was inherited.
    pub fn adopt(descriptor: OwnedFd) -> io::Result<Socket> {
        let address = crate::tcp::local_address(&descriptor)?;
        let is_wildcard = address.ip().is_unspecified();
        if is_wildcard {
            ask_for_local_addresses(&descriptor, address)?;
        }
        Ok(Socket { descriptor, is_wildcard })
    }

    /// The address it is bound to, its port chosen by the kernel where 0 was asked for.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        crate::tcp::local_address(&self.descriptor)
    }

    /// Receives the datagrams that wait, as many as `batch` has room for; 0 when none does.
    pub fn receive(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.prepare();
        let received = if JOB.chosen() == BATCH { self.receive_many(batch) } else { self.receive_one(batch) };
        batch.received_count = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            result => result?,
        };
        Ok(batch.received_count)
    }

    /// Whether it is worth asking again at once, after a call that brought `received_count` datagrams; else wait.
    pub fn may_have_more(received_count: usize) -> bool {
        match JOB.chosen() {
            SINGLE => false,
            _ => received_count != 0,
        }
    }

    fn receive_many(&self, batch: &mut Batch) -> io::Result<usize> {
        loop {
            count(Call::ReceiveBatch);
            // SAFETY: each header of the batch points to a name, a vector and control room that live in the same
            // batch, set up by `prepare` just now, and the count is that of the headers.
            let received = unsafe {
                libc::recvmmsg(
                    self.descriptor.as_raw_fd(),
                    batch.queries.as_mut_ptr(),
                    BATCH_COUNT_MAX as libc::c_uint,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            };
            match usize::try_from(received) {
                Ok(received) => return Ok(received),
                Err(_) => give_up_unless_interrupted()?,
            }
        }
    }

    fn receive_one(&self, batch: &mut Batch) -> io::Result<usize> {
        loop {
            count(Call::ReceiveMessage);
            let header = &mut batch.queries[0];
            // SAFETY: as in `receive_many`, for the first header.
            let received =
                unsafe { libc::recvmsg(self.descriptor.as_raw_fd(), &raw mut header.msg_hdr, libc::MSG_DONTWAIT) };
            match u32::try_from(received) {
                Ok(length) => {
                    header.msg_len = length;
                    return Ok(1);
                }
                Err(_) => give_up_unless_interrupted()?,
            }
        }
    }

    /// Sends the replies that were set, each to the peer of its query, from the address that the query was sent to.
    ///
    /// A reply that cannot be sent is given up and counted; those behind it still go.
    pub fn send(&self, batch: &mut Batch) -> Sent {
        batch.address_replies(self.is_wildcard);
        let mut sent = Sent::default();
        let mut has_waited = false;
        let mut next = 0;
        while next < batch.reply_count {
            match self.send_some(batch, next, &mut has_waited) {
                Ok(count) => {
                    sent.reply_count += count;
                    next += count;
                }
                Err(error) => {
                    sent.lost_count += 1;
                    sent.last_error = Some(error);
                    next += 1;
                }
            }
        }
        sent
    }

    /// Sends replies from `first` on; the error is that of the first alone. A full buffer is waited for once a batch.
    fn send_some(&self, batch: &mut Batch, first: usize, has_waited: &mut bool) -> io::Result<usize> {
        loop {
            let replies = &mut batch.replies[first..batch.reply_count];
            let sent = if JOB.chosen() == BATCH {
                count(Call::SendBatch);
                // SAFETY: each header points to a name, a vector and control octets of the same batch, set up by
                // `address_replies`; the count is that of the slice.
                unsafe {
                    libc::sendmmsg(
                        self.descriptor.as_raw_fd(),
                        replies.as_mut_ptr(),
                        replies.len() as libc::c_uint,
                        libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                    )
                }
            } else {
                count(Call::SendMessage);
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                // SAFETY: as above, for one header.
                let sent = unsafe { libc::sendmsg(self.descriptor.as_raw_fd(), &raw const replies[0].msg_hdr, flags) };
                if sent < 0 { -1 } else { 1 }
            };
            if let Ok(sent) = usize::try_from(sent) {
                return Ok(sent);
            }
            match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::INTR) => {}
                // The send buffer is full: wait for it once, shortly, rather than lose what is ready.
                Some(Errno::AGAIN) if !*has_waited => {
                    *has_waited = true;
                    poll_until(&mut [PollFd::new(&self.descriptor, PollFlags::OUT)], Some(SEND_WAIT))?;
                }
                errno => return Err(errno.unwrap_or(Errno::IO).into()),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// How long a full send buffer is waited for: a few times what a card of 1 Gbit/s needs to send it.
const SEND_WAIT: Duration = Duration::from_millis(5);

/// What became of the replies of a batch.
#[derive(Debug, Default)]
pub struct Sent {
    /// Replies that the kernel took.
    pub reply_count: usize,
    /// Replies that it refused.
    pub lost_count: usize,
    /// Why, of the last that was refused.
    pub last_error: Option<io::Error>,
}

/// Descriptors to wait for outside a poller, until one of them can be read.
#[derive(Debug)]
pub struct Waiting<'d>(Vec<PollFd<'d>>);

impl<'d> Waiting<'d> {
    /// Waits for these.
    pub fn for_any_of(descriptors: impl IntoIterator<Item = BorrowedFd<'d>>) -> Waiting<'d> {
        Waiting(descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect())
    }

    /// Until one can be read, or for `timeout`; `None` waits for ever. A signal ends it early.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        poll_until(&mut self.0, timeout)
    }

    /// Whether the last wait was ended by the last of the descriptors, perhaps among others.
    pub fn is_last_ready(&self) -> bool {
        self.0.last().is_some_and(|last| !last.revents().is_empty())
    }
}

fn poll_until(targets: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    count(Call::Poll);
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(targets, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Datagrams received together, each with room for its reply.
pub struct Batch {
    // The headers point into the boxes below, which are neither moved nor grown while the batch lives.
    queries: Box<[libc::mmsghdr]>,
    replies: Box<[libc::mmsghdr]>,
    peers: Box<[libc::sockaddr_in6]>,
    query_vectors: Box<[libc::iovec]>,
    reply_vectors: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    query_bytes: Box<[u8]>,
    reply_bytes: Box<[u8]>,
    received_count: usize,
    reply_count: usize,
    /// The datagram that each reply answers.
    answered: [u8; BATCH_COUNT_MAX],
}

/// Room for a control message, aligned as its header must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

impl Batch {
    /// A batch with all its room; made once for each thread that serves datagrams.
    pub fn new() -> Batch {
        // SAFETY: all-zero octets are a value of each of these C structures: null pointers and zero lengths.
        let empty_header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let empty_peer: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        let empty_vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut batch = Batch {
            queries: vec![empty_header; BATCH_COUNT_MAX].into(),
            replies: vec![empty_header; BATCH_COUNT_MAX].into(),
            peers: vec![empty_peer; BATCH_COUNT_MAX].into(),
            query_vectors: vec![empty_vector; BATCH_COUNT_MAX].into(),
            reply_vectors: vec![empty_vector; BATCH_COUNT_MAX].into(),
            controls: vec![Control([0; CONTROL_BYTES]); BATCH_COUNT_MAX].into(),
            query_bytes: vec![0; QUERY_STRIDE_BYTES * BATCH_COUNT_MAX].into(),
            reply_bytes: vec![0; REPLY_STRIDE_BYTES * BATCH_COUNT_MAX].into(),
            // All are unprepared: as if all had been used.
            received_count: BATCH_COUNT_MAX,
            reply_count: 0,
            answered: [0; BATCH_COUNT_MAX],
        };
        for (index, header) in batch.queries.iter_mut().enumerate() {
            let vector = &mut batch.query_vectors[index];
            vector.iov_base = batch.query_bytes[index * QUERY_STRIDE_BYTES..].as_mut_ptr().cast();
            vector.iov_len = QUERY_BYTES_MAX;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut batch.peers[index]).cast();
            header.msg_hdr.msg_control = (&raw mut batch.controls[index]).cast();
        }
        batch
    }

    /// Makes the headers that the last call wrote to ready for the next.
    fn prepare(&mut self) {
        for header in &mut self.queries[..self.received_count] {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            // Room for a control message whatever the socket: the batch serves others as well, and a socket that was not
            // asked to tell addresses writes none.
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
            header.msg_hdr.msg_flags = 0;
        }
        self.reply_count = 0;
    }

    /// The datagram at `index`, and room for its reply.
    #[inline]
    pub fn exchange(&mut self, index: usize) -> (Datagram<'_>, &mut [u8]) {
        let header = &self.queries[index];
        let start = index * QUERY_STRIDE_BYTES;
        let length = (header.msg_len as usize).min(QUERY_BYTES_MAX);
        let query = Datagram {
            bytes: &self.query_bytes[start..start + length],
            is_cut_off: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            peer_port: u16::from_be(self.peers[index].sin6_port),
        };
        let start = index * REPLY_STRIDE_BYTES;
        (query, &mut self.reply_bytes[start..start + REPLY_BYTES_MAX])
    }

    /// Answers the datagram at `index` with the first `length_bytes` octets of its room.
    #[inline]
    pub fn set_reply(&mut self, index: usize, length_bytes: usize) {
        let start = index * REPLY_STRIDE_BYTES;
        let vector = &mut self.reply_vectors[self.reply_count];
        vector.iov_base = self.reply_bytes[start..start + length_bytes].as_mut_ptr().cast();
        vector.iov_len = length_bytes;
        self.answered[self.reply_count] = index as u8;
        self.reply_count += 1;
    }

    /// Writes the headers of the replies: to the peer that asked, from the address that it asked.
    fn address_replies(&mut self, with_control: bool) {
        for (reply, &answered) in self.answered[..self.reply_count].iter().enumerate() {
            let index = usize::from(answered);
            let query = &self.queries[index].msg_hdr;
            let header = &mut self.replies[reply].msg_hdr;
            header.msg_name = (&raw mut self.peers[index]).cast();
            header.msg_namelen = query.msg_namelen;
            header.msg_iov = &raw mut self.reply_vectors[reply];
            header.msg_iovlen = 1;
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
            if with_control && answer_from_where_it_was_asked(query) {
                header.msg_control = query.msg_control;
                header.msg_controllen = query.msg_controllen;
            }
        }
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Batch({} received, {} replies)", self.received_count, self.reply_count)
    }
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'b> {
    /// Its octets, at most [`QUERY_BYTES_MAX`].
    pub bytes: &'b [u8],
    /// It was longer; the rest is lost.
    pub is_cut_off: bool,
    /// The port that it came from; 0 cannot be answered.
    pub peer_port: u16,
}

/// Distances between the octets of two datagrams: no multiple of 4096, so that they do not all fall into the same few
/// places of the processor's first cache.
const QUERY_STRIDE_BYTES: usize = QUERY_BYTES_MAX + 64;
const REPLY_STRIDE_BYTES: usize = REPLY_BYTES_MAX + 64;

/// Turns the control message that told a datagram's destination into one that sets the reply's source, in place: it is
/// the same structure (ip(7), ipv6(7)). The interface is cleared, since the way back is the routing table's to choose,
/// but for link-local addresses, which mean nothing without theirs. False when no destination was told.
fn answer_from_where_it_was_asked(query: &libc::msghdr) -> bool {
    // SAFETY: the header describes control octets that the kernel wrote into this batch's own aligned room.
    let message = unsafe { libc::CMSG_FIRSTHDR(query).as_mut() };
    let Some(message) = message else { return false };
    match (message.cmsg_level, message.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // SAFETY: a message of this type carries an `in_pktinfo`; the room is aligned and ours alone.
            let info = unsafe { &mut *libc::CMSG_DATA(message).cast::<libc::in_pktinfo>() };
            info.ipi_ifindex = 0;
            true
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // SAFETY: a message of this type carries an `in6_pktinfo`; the room is aligned and ours alone.
            let info = unsafe { &mut *libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>() };
            let [first, second, ..] = info.ipi6_addr.s6_addr;
            let is_link_local = first == 0xfe && second & 0xc0 == 0x80;
            if !is_link_local {
                info.ipi6_ifindex = 0;
            }
            true
        }
        _ => false,
    }
}

fn ask_for_local_addresses(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let (level, option, name) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO, "setsockopt(IP_PKTINFO)"),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "setsockopt(IPV6_RECVPKTINFO)"),
    };
    let on: libc::c_int = 1;
    count(Call::Setsockopt);
    // SAFETY: the option's value is an int that outlives the call, with its length.
    let done = unsafe {
        let value = (&raw const on).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, size_of_val(&on) as libc::socklen_t)
    };
    if done == 0 { Ok(()) } else { Err(named(name, address, &io::Error::last_os_error())) }
}

fn give_up_unless_interrupted() -> io::Result<()> {
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}

/// Asks for no datagram of no socket: ENOSYS tells that the call is missing, EBADF that it is there.
fn recvmmsg_is_there() -> bool {
    // SAFETY: a count of 0 lets the kernel touch no memory.
    unsafe { libc::recvmmsg(-1, std::ptr::null_mut(), 0, 0, std::ptr::null_mut()) };
    io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

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
        let mut waiting = Waiting::for_any_of([server.as_fd()]);
        let mut echoed = 0;
        while echoed < expected_count {
            let received = server.receive(&mut batch).expect("received");
            for index in 0..received {
                let (query, reply) = batch.exchange(index);
                assert!(!query.is_cut_off);
                assert_ne!(query.peer_port, 0);
                let length = query.bytes.len();
                reply[0] = b'!';
                reply[1..=length].copy_from_slice(query.bytes);
                batch.set_reply(index, length + 1);
            }
            let sent = server.send(&mut batch);
            assert_eq!((sent.reply_count, sent.lost_count), (received, 0));
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
        Waiting::for_any_of([server.as_fd()]).wait(SECOND).expect("waited");
        let mut batch = Batch::new();
        assert_eq!(server.receive(&mut batch).expect("received"), 1);
        let (query, _) = batch.exchange(0);
        assert!(query.is_cut_off);
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
            Waiting::for_any_of([server.as_fd()]).wait(SECOND).expect("waited");
            let count = server.receive(&mut batch).expect("received");
            for index in 0..count {
                // Port 0 cannot be sent to (EINVAL), as when a forged query came from there.
                if received + index == 1 {
                    batch.peers[index].sin6_port = 0;
                }
                batch.set_reply(index, 5);
            }
            let sent = server.send(&mut batch);
            assert_eq!(sent.reply_count + sent.lost_count, count);
            received += count;
        }
        assert_eq!(clients[0].recv(&mut [0; 64]).expect("answered"), 5);
        assert_eq!(clients[2].recv(&mut [0; 64]).expect("answered"), 5);
    }
}
