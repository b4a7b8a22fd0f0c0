//! TCP: a socket that listens, one of several siblings of its address, and the streams it accepts.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::fallback::{Feature, Variant};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType,
    acceptfrom_with, bind, getsockname, ipproto, listen, socket_with, sockopt,
};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// How a connection is accepted: with its flags at once (Linux 2.6.28), or with a call for each of them behind it.
pub static ACCEPT: Feature = Feature::new(
    "accept",
    &[Variant { name: "accept4", is_supported: accept4_is_there }, Variant { name: "accept", is_supported: || true }],
);

/// Whom a listener hands over: who has sent something (`TCP_DEFER_ACCEPT`, Linux 2.4), or anybody who is connected.
pub static DEFER_ACCEPT: Feature = Feature::new(
    "defer-accept",
    &[Variant { name: "on", is_supported: defer_accept_is_there }, Variant { name: "off", is_supported: || true }],
);

const BY_ACCEPT4: usize = 0;
const BY_DEFER_ACCEPT: usize = 0;

/// How long who has connected and is silent is kept by the kernel, in seconds: until then it takes him for one whose part
/// of the handshake was lost, and then asks him again.
const DEFERRED_S: libc::c_int = 1;

/// Connections that wait in a listener until they are accepted; the kernel lowers it to `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

const CREATION_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A socket that listens.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens on `address`, which nobody else has. Siblings may join it afterwards ([`Listener::bind_reuseport`]).
    ///
    /// Streams inherit `TCP_NODELAY` from here, which spares a call for each connection.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        Listener::bind_as(address, ReusePort::First)
    }

    /// Listens on `address` beside those of this user who do already (`SO_REUSEPORT`): the kernel spreads the
    /// connections over them.
    pub fn bind_reuseport(address: SocketAddr) -> io::Result<Listener> {
        Listener::bind_as(address, ReusePort::Additional)
    }

    fn bind_as(address: SocketAddr, rank: ReusePort) -> io::Result<Listener> {
        count(Syscall::Socket);
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, CREATION_FLAGS, Some(ipproto::TCP))
            .map_err(|errno| with_context("socket", address, &errno.into()))?;
        let option = |name: &str, done: Result<(), Errno>| {
            count(Syscall::Setsockopt);
            done.map_err(|errno| with_context(name, address, &errno.into()))
        };
        if address.port() != 0 {
            // For a port that old connections still linger on. With it the kernel might choose, for port 0, one that
            // another socket is bound to and does not listen on yet.
            option("setsockopt(SO_REUSEADDR)", sockopt::set_socket_reuseaddr(&socket, true))?;
        }
        option("setsockopt(TCP_NODELAY)", sockopt::set_tcp_nodelay(&socket, true))?;
        if address.is_ipv6() {
            // [::] and 0.0.0.0 are two addresses: each is listened on by itself, whatever the system's default.
            option("setsockopt(IPV6_V6ONLY)", sockopt::set_ipv6_v6only(&socket, true))?;
        }
        if rank == ReusePort::Additional {
            set_reuseport(&socket, address)?;
        }
        count(Syscall::Bind);
        bind(&socket, &address).map_err(|errno| with_context("bind", address, &errno.into()))?;
        count(Syscall::Listen);
        listen(&socket, BACKLOG).map_err(|errno| with_context("listen", address, &errno.into()))?;
        if rank == ReusePort::First {
            // Not before it listens: two that are bound and do not listen yet may have the same port, and only the first
            // to listen must keep it.
            set_reuseport(&socket, address)?;
        }
        Ok(Listener(socket))
    }

    /// Listens no longer: whoever comes is refused, and who waits is reset. For every process that has the socket.
    pub fn shutdown(&self) -> io::Result<()> {
        count(Syscall::Shutdown);
        Ok(rustix::net::shutdown(&self.0, Shutdown::Both)?)
    }

    /// The address it listens on, its port chosen by the kernel where 0 was asked for.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        local_address(&self.0)
    }

    /// Leaves who has connected and is silent to the kernel, for about a second (`TCP_DEFER_ACCEPT`, tcp(7)): for a
    /// protocol whose client speaks first. Whoever is handed over has mostly asked already, and need not be waited for.
    /// Where that is not the way, or the kernel cannot, everybody is handed over at once.
    ///
    /// It holds for every process that has the socket. Who is still with the kernel when the socket is shut down, or
    /// closed by the last of them, hears of it only when he speaks, by a reset.
    pub fn set_defer_accept(&self) {
        // A failure leaves it as it was: who is handed over at once is served as well.
        let _ =
            set_defer_accept_option(&self.0, if DEFER_ACCEPT.selected() == BY_DEFER_ACCEPT { DEFERRED_S } else { 0 });
    }

    /// The next connection that waits; `Ok(None)` when none does.
    ///
    /// A connection that was given up before it could be accepted is passed over. What remains are errors of this
    /// machine: too many descriptors (`EMFILE`, `ENFILE`), no memory (`ENOBUFS`, `ENOMEM`).
    pub fn accept(&self) -> io::Result<Option<(Stream, SocketAddr)>> {
        let mut last = Errno::CONNABORTED;
        for _ in 0..GIVEN_UP_MAX {
            match self.accept_one() {
                Ok((stream, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    return Ok(Some((Stream(stream), peer.unwrap_or(UNKNOWN_PEER))));
                }
                Err(Errno::AGAIN) => return Ok(None),
                // accept(2): errors of the network that are pending on the new connection are reported here.
                Err(
                    errno @ (Errno::INTR
                    | Errno::CONNABORTED
                    | Errno::PROTO
                    | Errno::NETDOWN
                    | Errno::NOPROTOOPT
                    | Errno::HOSTDOWN
                    | Errno::NONET
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH),
                ) => last = errno,
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(last.into())
    }
}

/// Connections in a row that were given up before they could be accepted, after which the caller looks at others first.
const GIVEN_UP_MAX: usize = 64;

impl Listener {
    fn accept_one(&self) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
        if ACCEPT.selected() == BY_ACCEPT4 {
            count(Syscall::Accept4);
            return acceptfrom_with(&self.0, CREATION_FLAGS);
        }
        count(Syscall::Accept);
        let (stream, peer) = rustix::net::acceptfrom(&self.0)?;
        count(Syscall::Fionbio);
        rustix::io::ioctl_fionbio(&stream, true)?;
        crate::cloexec::set(&stream, "an accepted connection").map_err(|_| Errno::MFILE)?;
        Ok((stream, peer))
    }
}

/// Asks a descriptor that is no socket: ENOSYS tells that the call is missing.
fn accept4_is_there() -> bool {
    let no_socket = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    no_socket.is_ok_and(|no_socket| !matches!(acceptfrom_with(&no_socket, CREATION_FLAGS), Err(Errno::NOSYS)))
}

/// Asks a socket that is nowhere yet, and stays so.
fn defer_accept_is_there() -> bool {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, CREATION_FLAGS, Some(ipproto::TCP));
    socket.is_ok_and(|socket| set_defer_accept_option(&socket, DEFERRED_S).is_ok())
}

fn set_defer_accept_option(socket: &OwnedFd, seconds: libc::c_int) -> io::Result<()> {
    count(Syscall::Setsockopt);
    let length = size_of_val(&seconds) as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of `seconds`, which outlives the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            length,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Stands for the peer of a connection whose address the kernel did not tell.
const UNKNOWN_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Listener {
    /// Takes over a socket that listens already: one that was inherited.
    fn from(descriptor: OwnedFd) -> Listener {
        Listener(descriptor)
    }
}

/// Whether more more what is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// Nothing: send what is there.
    No,
    /// More comes at once (`MSG_MORE`): the kernel may wait and fill its segment.
    Yes,
}

impl More {
    fn flags(self) -> SendFlags {
        match self {
            More::No => SendFlags::NOSIGNAL,
            More::Yes => SendFlags::NOSIGNAL | SendFlags::MORE,
        }
    }
}

/// One end of a connection, never blocking.
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl Stream {
    /// Receives what is there, up to the length of `into`; 0 when the peer has ended its side.
    ///
    /// Less than the whole of `into` proves the socket empty for now, so that no further call needs to ask (epoll(7)).
    #[inline]
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            count(Syscall::Recvfrom);
            match rustix::net::recv(&self.0, &mut *into, RecvFlags::empty()) {
                Ok((received, _)) => return Ok(received),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends the start of `bytes`, as much as the kernel takes.
    #[inline]
    pub fn send(&self, bytes: &[u8], more: More) -> io::Result<usize> {
        loop {
            count(Syscall::Sendto);
            match rustix::net::send(&self.0, bytes, more.flags()) {
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    /// Sends the start of `head` and of `content` behind it, as much as the kernel takes, from where they stand.
    pub fn send_vectored(&self, head: &[u8], content: &[u8], more: More) -> io::Result<usize> {
        let parts = [IoSlice::new(head), IoSlice::new(content)];
        loop {
            count(Syscall::Sendmsg);
            match rustix::net::sendmsg(&self.0, &parts, &mut SendAncillaryBuffer::default(), more.flags()) {
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    /// Ends our side, so that the peer reads to the end of what was sent.
    pub fn shutdown_write(&self) -> io::Result<()> {
        count(Syscall::Shutdown);
        Ok(rustix::net::shutdown(&self.0, Shutdown::Write)?)
    }

    /// Makes the close that more a reset: the peer must not take what it has for the whole.
    pub fn reset_on_close(&self) -> io::Result<()> {
        count(Syscall::Setsockopt);
        Ok(sockopt::set_socket_linger(&self.0, Some(std::time::Duration::ZERO))?)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        count(Syscall::Close);
    }
}

pub(crate) fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    count(Syscall::Getsockname);
    let address = getsockname(socket)?;
    SocketAddr::try_from(address).map_err(io::Error::from)
}

/// Which of the sockets of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReusePort {
    /// The first, which must not find anybody there.
    First,
    /// One more.
    Additional,
}

/// Lets others of this user bind to the same address (`SO_REUSEPORT`). The first of them does so only when it has the
/// address: with it from the start it would silently share it with whoever is there, and the kernel might choose such a
/// port for port 0.
pub(crate) fn set_reuseport(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    count(Syscall::Setsockopt);
    let done = sockopt::set_socket_reuseport(socket, true);
    done.map_err(|errno| with_context("setsockopt(SO_REUSEPORT)", address, &errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpStream;

    #[test]
    fn siblings_share_the_connections_and_nobody_else_gets_any() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let first = Listener::bind(any).expect("bound");
        let address = first.local_address().expect("bound");
        let second = Listener::bind_reuseport(address).expect("bound beside the first");
        let stranger = Listener::bind(address).expect_err("taken");
        assert_eq!(stranger.kind(), io::ErrorKind::AddrInUse, "{stranger}");
        let clients: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(address).expect("connected")).collect();
        let accept_all = |listener: &Listener| {
            let mut count = 0;
            while listener.accept().expect("accepted").is_some() {
                count += 1;
            }
            count
        };
        let (to_first, to_second) = (accept_all(&first), accept_all(&second));
        assert_eq!(to_first + to_second, clients.len());
        // One in 2^63 that a fair share leaves one of them without any.
        assert!(to_first > 0 && to_second > 0, "{to_first} and {to_second}");
    }

    #[test]
    fn who_is_silent_is_handed_over_later_and_who_speaks_at_once() {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_address().expect("bound");
        listener.set_defer_accept();
        let mut clients = [(); 2].map(|()| TcpStream::connect(address).expect("connected"));
        let has_one = || listener.accept().expect("asked").is_some();
        if DEFER_ACCEPT.selected() != BY_DEFER_ACCEPT {
            assert!(clients.iter().all(|_| has_one()));
            return;
        }
        assert!(!has_one());
        clients[0].write_all(b"a").expect("sent");
        assert!(has_one() && !has_one());
        let mut waiting = crate::poll_set::PollSet::new([listener.as_fd()]);
        waiting.wait(Some(std::time::Duration::from_secs(20))).expect("waited");
        assert!(has_one());
    }

    #[test]
    fn a_listener_that_is_shut_down_refuses() {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_address().expect("bound");
        listener.shutdown().expect("shut down");
        let refused = TcpStream::connect(address).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
