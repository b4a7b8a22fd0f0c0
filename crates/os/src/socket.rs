//! Options and addresses of sockets, whether created here or inherited.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, connect, getsockname, socket_with, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// A socket's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// `SOCK_STREAM`: TCP.
    Stream,
    /// `SOCK_DGRAM`: UDP.
    Datagram,
    /// Any other.
    Other,
}

/// The type of `socket`; an error if it is not a socket.
pub fn socket_type(socket: impl AsFd) -> io::Result<SocketType> {
    count(Syscall::Getsockopt);
    Ok(match sockopt::socket_type(socket)? {
        rustix::net::SocketType::STREAM => SocketType::Stream,
        rustix::net::SocketType::DGRAM => SocketType::Datagram,
        _ => SocketType::Other,
    })
}

/// The address that `socket` is bound to; an error if it is not an Internet socket.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    count(Syscall::Getsockname);
    SocketAddr::try_from(getsockname(socket)?).map_err(io::Error::from)
}

/// An IPv4 address in place of an IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2), which a socket of both families
/// reports for an IPv4 peer.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => v6.ip().to_ipv4_mapped().map_or(address, |ip| SocketAddr::new(ip.into(), v6.port())),
        SocketAddr::V4(_) => address,
    }
}

/// A stream that is connected to the listener at the Unix socket `path`: close-on-exec, and non-blocking, also for the
/// processes that it is passed to. `WouldBlock` means that the backlog of the listener is full.
///
/// # Errors
/// The bare error of socket(2) or connect(2).
pub fn connect_to_path(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    count(Syscall::Socket);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, rustix::net::SocketType::STREAM, flags, None)?;
    count(Syscall::Connect);
    connect(&socket, &address)?;
    Ok(socket)
}

/// Makes `socket` non-blocking, for every process that has it.
pub fn set_nonblocking(socket: impl AsFd) -> io::Result<()> {
    count(Syscall::Fionbio);
    Ok(rustix::io::ioctl_fionbio(socket, true)?)
}

/// Sets the number of connections that may wait to be accepted. The kernel lowers it to `net.core.somaxconn`. Works on
/// a socket that listens already.
pub fn set_backlog(listener: impl AsFd, count_max: u16) -> io::Result<()> {
    count(Syscall::Listen);
    rustix::net::listen(listener, i32::from(count_max))
        .map_err(|errno| with_context("listen", count_max, &errno.into()))
}

/// Sets the size of the receive buffer. The kernel doubles it for its own overhead and lowers it to
/// `net.core.rmem_max` (socket(7)).
pub fn set_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    count(Syscall::Setsockopt);
    sockopt::set_socket_recv_buffer_size(socket, bytes)
        .map_err(|errno| with_context("setsockopt(SO_RCVBUF)", bytes, &errno.into()))
}

/// The moment when a socket sets `SO_REUSEPORT`, which lets other sockets of this user bind to the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReusePort {
    /// The first socket of an address, after it has the address: before, it would share the address with a foreign
    /// socket, and the kernel might choose a port in use for port 0.
    AfterBind,
    /// A further socket, before it is bound.
    BeforeBind,
}

pub(crate) fn set_reuseport(socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
    count(Syscall::Setsockopt);
    sockopt::set_socket_reuseport(socket, true)
        .map_err(|errno| with_context("setsockopt(SO_REUSEPORT)", address, &errno.into()))
}

/// Sets an integer option that `rustix` does not have.
pub(crate) fn set_option(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    count(Syscall::Setsockopt);
    let (descriptor, length) = (socket.as_fd().as_raw_fd(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of `value`, which outlives the call.
    let status = unsafe { libc::setsockopt(descriptor, level, option, (&raw const value).cast(), length) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that `rustix` does not have; the bytes that the kernel wrote.
pub(crate) fn get_option(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut [u64],
) -> io::Result<usize> {
    count(Syscall::Getsockopt);
    let (descriptor, mut length) = (socket.as_fd().as_raw_fd(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to `value`, of which any are valid numbers.
    let status = unsafe { libc::getsockopt(descriptor, level, option, value.as_mut_ptr().cast(), &raw mut length) };
    if status == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    #[test]
    fn type_address_and_buffer_of_a_socket_are_reported() {
        let any = "127.0.0.1:0";
        assert_eq!(socket_type(TcpListener::bind(any).expect("bound")).expect("a socket"), SocketType::Stream);
        let datagrams = UdpSocket::bind(any).expect("bound");
        assert_eq!(socket_type(&datagrams).expect("a socket"), SocketType::Datagram);
        assert_eq!(local_address(&datagrams).expect("bound"), datagrams.local_addr().expect("bound"));
        set_receive_buffer(&datagrams, 65_536).expect("set");
        assert_eq!(sockopt::socket_recv_buffer_size(&datagrams).expect("read"), 2 * 65_536);
        assert!(socket_type(std::io::stdin()).is_err() || local_address(std::io::stdin()).is_err());
        assert!(local_address(UnixStream::pair().expect("pair").0).is_err(), "not an Internet socket");
    }

    #[test]
    fn only_an_ipv4_mapped_address_is_changed_to_canonical_form() {
        for (address, expected) in [
            ("[::ffff:192.0.2.1]:53", "192.0.2.1:53"),
            ("[fe80::1%2]:53", "[fe80::1%2]:53"),
            ("192.0.2.1:53", "192.0.2.1:53"),
        ] {
            assert_eq!(canonical(address.parse().expect("an address")), expected.parse().expect("an address"));
        }
    }

    #[test]
    fn backlog_changes_while_the_socket_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        set_nonblocking(&listener).expect("set");
        set_backlog(&listener, 1).expect("set");
        set_backlog(&listener, 4096).expect("set");
        assert_eq!(listener.accept().expect_err("no client").kind(), io::ErrorKind::WouldBlock);
        let address = listener.local_addr().expect("bound");
        std::net::TcpStream::connect(address).expect("still listens");
    }
}
