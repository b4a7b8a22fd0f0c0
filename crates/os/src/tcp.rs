//! TCP listeners, the streams they accept, and streams to other servers; all non-blocking.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::fallback::{Feature, Variant};
use crate::socket::{self, ReusePort, get_option, set_option, set_reuseport};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType,
    acceptfrom_with, bind, connect, ipproto, listen, socket_with, sockopt,
};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Whether a listener may return only connections with data to read (`TCP_DEFER_ACCEPT`, Linux 2.4).
pub static DEFER_ACCEPT: Feature = Feature::new(
    "defer-accept",
    &[Variant { name: "on", is_supported: defer_accept_is_supported }, Variant { name: "off", is_supported: || true }],
);

const DEFER_ACCEPT_ON: usize = 0;

/// The time in seconds for which the kernel holds back a silent connection: until then it ignores the client's final
/// ACK, and afterwards asks for it again.
const DEFER_ACCEPT_S: libc::c_int = 1;

/// Connections that may wait in a listener to be accepted; the kernel lowers it to `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// Connections in a row that failed before they were accepted, after which the caller gets the error.
const FAILED_ACCEPTS_MAX: usize = 64;

const CREATION_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A listening socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens on `address`, which no other socket may have. [`Listener::bind_reuseport`] adds further sockets to it.
    ///
    /// Streams inherit `TCP_NODELAY` from here, which saves a call per connection.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        Listener::bind_as(address, ReusePort::AfterBind)
    }

    /// Listens on `address` together with other sockets of this user (`SO_REUSEPORT`): the kernel distributes the
    /// connections over them.
    pub fn bind_reuseport(address: SocketAddr) -> io::Result<Listener> {
        Listener::bind_as(address, ReusePort::BeforeBind)
    }

    fn bind_as(address: SocketAddr, reuseport: ReusePort) -> io::Result<Listener> {
        let socket = socket_for(address)?;
        let option = |name: &str, result: Result<(), Errno>| {
            count(Syscall::Setsockopt);
            result.map_err(|errno| with_context(name, address, &errno.into()))
        };
        if address.port() != 0 {
            // Connections in TIME-WAIT must not block the port. This excludes port 0, for which the kernel might then
            // choose a port that another socket is bound to without listening yet.
            option("setsockopt(SO_REUSEADDR)", sockopt::set_socket_reuseaddr(&socket, true))?;
        }
        option("setsockopt(TCP_NODELAY)", sockopt::set_tcp_nodelay(&socket, true))?;
        if address.is_ipv6() {
            // [::] and 0.0.0.0 are separate addresses, whatever the system's default.
            option("setsockopt(IPV6_V6ONLY)", sockopt::set_ipv6_v6only(&socket, true))?;
        }
        if reuseport == ReusePort::BeforeBind {
            set_reuseport(&socket, address)?;
        }
        count(Syscall::Bind);
        bind(&socket, &address).map_err(|errno| with_context("bind", address, &errno.into()))?;
        count(Syscall::Listen);
        listen(&socket, BACKLOG).map_err(|errno| with_context("listen", address, &errno.into()))?;
        if reuseport == ReusePort::AfterBind {
            // This follows `listen`, since two sockets that do not listen yet may be bound to the same port.
            set_reuseport(&socket, address)?;
        }
        Ok(Listener(socket))
    }

    /// Stops listening, for every process that has the socket: new connections are refused, waiting ones reset.
    pub fn shutdown(&self) -> io::Result<()> {
        count(Syscall::Shutdown);
        Ok(rustix::net::shutdown(&self.0, Shutdown::Both)?)
    }

    /// Whether it listens; not after [`Listener::shutdown`] by any process that has the socket. If the socket cannot be
    /// examined, it counts as listening.
    pub fn is_listening(&self) -> bool {
        count(Syscall::Getsockopt);
        sockopt::socket_acceptconn(&self.0).unwrap_or(true)
    }

    /// Sets the options that streams inherit as they were when the socket was created: any process that has the socket
    /// may have changed them.
    ///
    /// # Errors
    /// Returns the errors of `setsockopt(2)`.
    pub fn restore_options(&self) -> io::Result<()> {
        count(Syscall::Setsockopt);
        sockopt::set_tcp_nodelay(&self.0, true)
            .map_err(|errno| with_context("setsockopt(TCP_NODELAY)", "a listener", &errno.into()))?;
        count(Syscall::Setsockopt);
        sockopt::set_socket_linger(&self.0, None)
            .map_err(|errno| with_context("setsockopt(SO_LINGER)", "a listener", &errno.into()))
    }

    /// The address it listens on; its port is the one chosen by the kernel if port 0 was asked for.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        socket::local_address(&self.0)
    }

    /// Returns connections from [`Listener::accept`] only when they have data to read, or after about a second
    /// (`TCP_DEFER_ACCEPT`, tcp(7)): for a protocol whose client sends first, so that the first read finds the request.
    /// Where the feature is off or missing, connections are returned immediately.
    ///
    /// The option applies to every process that has the socket. A connection that is still with the kernel when the
    /// socket is shut down, or closed by the last process, is reset when the client sends.
    pub fn set_defer_accept(&self) {
        // A failure does no harm: connections are then returned immediately.
        let _ =
            set_defer_accept_s(&self.0, if DEFER_ACCEPT.selected() == DEFER_ACCEPT_ON { DEFER_ACCEPT_S } else { 0 });
    }

    /// Limits the unsent data that the kernel buffers for a connection (`TCP_NOTSENT_LOWAT`, tcp(7)); connections
    /// inherit it from here. Without a limit that may be megabytes.
    pub fn set_unsent_limit(&self) {
        // A failure does no harm: the kernel then takes more.
        let _ = set_option(&self.0, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX);
    }

    /// Accepts the next connection; `Ok(None)` if none waits. The peer's address has the form of [`socket::canonical`].
    ///
    /// A connection that failed before it was accepted is skipped. The rest are local errors: no descriptor is left
    /// (`EMFILE`, `ENFILE`), no memory (`ENOBUFS`, `ENOMEM`).
    pub fn accept(&self) -> io::Result<Option<(Stream, SocketAddr)>> {
        let mut last = Errno::CONNABORTED;
        for _ in 0..FAILED_ACCEPTS_MAX {
            match self.accept_one() {
                Ok((stream, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    return Ok(Some((Stream(stream), peer.map_or(UNKNOWN_PEER, socket::canonical))));
                }
                Err(Errno::AGAIN) => return Ok(None),
                // accept(2): network errors pending on the new connection are reported here.
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

    fn accept_one(&self) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
        count(Syscall::Accept4);
        acceptfrom_with(&self.0, CREATION_FLAGS)
    }
}

/// A socket of the family of `address`.
fn socket_for(address: SocketAddr) -> io::Result<OwnedFd> {
    count(Syscall::Socket);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::STREAM, CREATION_FLAGS, Some(ipproto::TCP))
        .map_err(|errno| with_context("socket", address, &errno.into()))
}

/// Sets the option on a socket that is not bound.
fn defer_accept_is_supported() -> bool {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, CREATION_FLAGS, Some(ipproto::TCP));
    socket.is_ok_and(|socket| set_defer_accept_s(&socket, DEFER_ACCEPT_S).is_ok())
}

fn set_defer_accept_s(socket: &OwnedFd, seconds: libc::c_int) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Bytes that the kernel takes of a connection before they are sent: enough for a client to receive without a pause.
const UNSENT_BYTES_MAX: libc::c_int = 1024 * 1024;

/// The address of a peer that the kernel did not report.
const UNKNOWN_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Listener {
    /// Takes over a listening socket that was inherited.
    fn from(descriptor: OwnedFd) -> Listener {
        Listener(descriptor)
    }
}

/// Whether more data follows immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// No: the kernel sends the data now.
    No,
    /// Yes (`MSG_MORE`): the kernel may wait for it, to fill a segment.
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

/// A connection: accepted, or made.
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl Stream {
    /// Begins a connection to `address`, with `TCP_NODELAY`. The stream is writable when the connection is made or has
    /// failed, which [`Stream::connect_error`] tells.
    ///
    /// # Errors
    /// The connection failed at once, or the sandbox does not allow it (`EACCES`, `EPERM`).
    pub fn connect(address: SocketAddr) -> io::Result<Stream> {
        let stream = Stream(socket_for(address)?);
        count(Syscall::Setsockopt);
        sockopt::set_tcp_nodelay(&stream.0, true)
            .map_err(|errno| with_context("setsockopt(TCP_NODELAY)", address, &errno.into()))?;
        count(Syscall::Connect);
        match connect(&stream.0, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
            Err(errno) => Err(with_context("connect", address, &errno.into())),
        }
    }

    /// Why the connection that [`Stream::connect`] began has failed (`SO_ERROR`, socket(7)); `Ok` if it has not, which
    /// is also the case while it is being made. The error is reported once.
    ///
    /// # Errors
    /// That of the connection.
    pub fn connect_error(&self) -> io::Result<()> {
        count(Syscall::Getsockopt);
        Ok(sockopt::socket_error(&self.0)??)
    }

    /// Receives up to the length of `into`; 0 if the peer has shut down its side.
    ///
    /// Fewer bytes than asked for prove the socket empty, so that no further call is needed (epoll(7)).
    #[inline]
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        retry(Syscall::Recvfrom, || {
            rustix::net::recv(&self.0, &mut *into, RecvFlags::empty()).map(|(received, _)| received)
        })
    }

    /// Peeks at the arrived data, up to the length of `into`.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        retry(Syscall::Recvfrom, || {
            rustix::net::recv(&self.0, &mut *into, RecvFlags::PEEK).map(|(received, _)| received)
        })
    }

    /// Sends the start of `bytes`, as much as the kernel takes.
    #[inline]
    pub fn send(&self, bytes: &[u8], more: More) -> io::Result<usize> {
        retry(Syscall::Sendto, || rustix::net::send(&self.0, bytes, more.flags()))
    }

    /// Sends `first` and then `second`, as much as the kernel takes, without copying them together.
    pub fn send_vectored(&self, first: &[u8], second: &[u8], more: More) -> io::Result<usize> {
        self.send_slices(&[IoSlice::new(first), IoSlice::new(second)], more)
    }

    /// Sends `slices` one after another, as much as the kernel takes; at most 1024 of them (`IOV_MAX`).
    #[inline]
    pub fn send_slices(&self, slices: &[IoSlice<'_>], more: More) -> io::Result<usize> {
        retry(Syscall::Sendmsg, || {
            rustix::net::sendmsg(&self.0, slices, &mut SendAncillaryBuffer::default(), more.flags())
        })
    }

    /// Bytes that the peer has acknowledged since the connection began (`tcpi_bytes_acked` of `TCP_INFO`, Linux 4.1);
    /// `None` if the kernel does not report it.
    pub fn acked_bytes(&self) -> Option<u64> {
        // linux/tcp.h: the counter follows 8 fields of 1 byte, 24 of 4, and 2 of 8.
        const INDEX: usize = (8 + 24 * 4 + 2 * 8) / 8;
        let mut info = [0; INDEX + 1];
        let length = get_option(&self.0, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).ok()?;
        (length == size_of_val(&info)).then_some(info[INDEX])
    }

    /// Shuts down our side, so that the peer reads an end of file after the data sent.
    pub fn shutdown_write(&self) -> io::Result<()> {
        count(Syscall::Shutdown);
        Ok(rustix::net::shutdown(&self.0, Shutdown::Write)?)
    }

    /// Makes the close that follows a reset (`SO_LINGER` of 0), so that the peer does not take an incomplete response
    /// for a complete one.
    pub fn reset_on_close(&self) -> io::Result<()> {
        count(Syscall::Setsockopt);
        Ok(sockopt::set_socket_linger(&self.0, Some(std::time::Duration::ZERO))?)
    }
}

/// Makes `call`, again whenever a signal interrupts it.
#[inline]
fn retry<T>(name: Syscall, mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        count(name);
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

impl From<OwnedFd> for Stream {
    /// Takes over a connected, non-blocking stream socket; one of a UNIX socket too.
    fn from(descriptor: OwnedFd) -> Stream {
        Stream(descriptor)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll_set::PollSet;
    use std::io::Write as _;
    use std::net::TcpStream;
    use std::time::Duration;

    fn listener() -> (Listener, SocketAddr) {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_address().expect("bound");
        (listener, address)
    }

    #[test]
    fn reuseport_listeners_share_the_connections_and_exclude_other_sockets() {
        let (first, address) = listener();
        let second = Listener::bind_reuseport(address).expect("bound beside the first");
        let refused = Listener::bind(address).expect_err("address in use");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
        let clients: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(address).expect("connected")).collect();
        let accept_all = |listener: &Listener| std::iter::from_fn(|| listener.accept().expect("no error")).count();
        let (to_first, to_second) = (accept_all(&first), accept_all(&second));
        assert_eq!(to_first + to_second, clients.len());
        // With a fair distribution one of them gets none in 1 of 2^63 runs.
        assert!(to_first > 0 && to_second > 0, "{to_first} and {to_second}");
    }

    #[test]
    fn accepted_connection_has_the_address_of_its_peer() {
        let (listener, address) = listener();
        let client = TcpStream::connect(address).expect("connected");
        let (_, peer) = listener.accept().expect("no error").expect("a connection");
        assert_eq!(peer, client.local_addr().expect("bound"));
    }

    /// Waits until `stream` is connected, or has failed.
    fn connected(stream: &Stream) -> io::Result<()> {
        PollSet::for_writing([stream.as_fd()]).wait(Some(Duration::from_secs(20))).expect("no error");
        stream.connect_error()
    }

    #[test]
    fn made_connection_carries_data_without_delay() {
        let (listener, address) = listener();
        let client = Stream::connect(address).expect("begun");
        connected(&client).expect("connected");
        assert_eq!(sockopt::tcp_nodelay(&client.0), Ok(true));
        assert_eq!(client.receive(&mut [0; 1]).expect_err("non-blocking").kind(), io::ErrorKind::WouldBlock);
        let (server, _) = listener.accept().expect("no error").expect("a connection");
        assert_eq!(server.send(b"a", More::No).expect("sent"), 1);
        PollSet::new([client.as_fd()]).wait(Some(Duration::from_secs(20))).expect("no error");
        assert_eq!(client.receive(&mut [0; 2]).expect("received"), 1);
    }

    #[test]
    fn refused_connection_is_reported_when_it_is_made() {
        let (listener, address) = listener();
        drop(listener);
        let refused = Stream::connect(address).and_then(|stream| connected(&stream)).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
    }

    #[test]
    fn stream_of_a_unix_socket_is_taken_over() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let stream = Stream::from(OwnedFd::from(theirs));
        assert_eq!(stream.send(b"ab", More::Yes).expect("sent"), 2);
        let mut received = [0; 2];
        io::Read::read_exact(&mut ours, &mut received).expect("received");
        assert_eq!(&received, b"ab");
    }

    #[test]
    fn deferred_accept_returns_a_silent_connection_later_and_one_with_data_at_once() {
        let (listener, address) = listener();
        listener.set_defer_accept();
        let mut clients = [(); 2].map(|()| TcpStream::connect(address).expect("connected"));
        let accepts = || listener.accept().expect("no error").is_some();
        if DEFER_ACCEPT.selected() != DEFER_ACCEPT_ON {
            assert!(clients.iter().all(|_| accepts()));
            return;
        }
        assert!(!accepts());
        clients[0].write_all(b"a").expect("sent");
        assert!(accepts() && !accepts());
        PollSet::new([listener.as_fd()]).wait(Some(Duration::from_secs(20))).expect("no error");
        assert!(accepts());
    }

    #[test]
    fn options_that_another_process_has_changed_are_restored() {
        let (listener, _) = listener();
        sockopt::set_socket_linger(&listener.0, Some(Duration::ZERO)).expect("set");
        sockopt::set_tcp_nodelay(&listener.0, false).expect("set");
        listener.restore_options().expect("set");
        assert_eq!(sockopt::socket_linger(&listener.0), Ok(None));
        assert_eq!(sockopt::tcp_nodelay(&listener.0), Ok(true));
    }

    #[test]
    fn listener_that_is_shut_down_refuses_connections() {
        let (listener, address) = listener();
        assert!(listener.is_listening());
        listener.shutdown().expect("shut down");
        assert!(!listener.is_listening());
        let refused = TcpStream::connect(address).expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
