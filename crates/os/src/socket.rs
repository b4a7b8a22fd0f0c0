//! What is asked of a socket that somebody else made, and what is set on one that listens already.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// Streams: TCP.
    Stream,
    /// Datagrams: UDP.
    Datagram,
    /// Messages between processes of this machine, or anything else.
    Other,
}

/// What `socket` carries; an error when it is no socket.
pub fn socket_type(socket: impl AsFd) -> io::Result<SocketType> {
    count(Syscall::Getsockopt);
    Ok(match sockopt::socket_type(socket)? {
        rustix::net::SocketType::STREAM => SocketType::Stream,
        rustix::net::SocketType::DGRAM => SocketType::Datagram,
        _ => SocketType::Other,
    })
}

/// Where `socket` is bound; an error for what is not of the Internet.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    crate::tcp::local_address(socket)
}

/// No call on `socket` waits from now on. For all processes that have it.
pub fn set_nonblocking(socket: impl AsFd) -> io::Result<()> {
    count(Syscall::Fionbio);
    Ok(rustix::io::ioctl_fionbio(socket, true)?)
}

/// Lets `count_max` connections wait in a listener until they are accepted; the kernel lowers it to
/// `net.core.somaxconn`. It may be told again while the listener listens.
pub fn set_backlog(listener: impl AsFd, count_max: u16) -> io::Result<()> {
    count(Syscall::Listen);
    rustix::net::listen(listener, i32::from(count_max))
        .map_err(|errno| with_context("listen", count_max, &errno.into()))
}

/// Gives datagrams that wait so much room; the kernel doubles it for its own book-keeping, and lowers it to
/// `net.core.rmem_max` (socket(7)).
pub fn set_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    count(Syscall::Setsockopt);
    sockopt::set_socket_recv_buffer_size(socket, bytes)
        .map_err(|errno| with_context("setsockopt(SO_RCVBUF)", bytes, &errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    #[test]
    fn sockets_tell_what_they_carry() {
        let any = "127.0.0.1:0";
        assert_eq!(socket_type(TcpListener::bind(any).expect("bound")).expect("a socket"), SocketType::Stream);
        let datagrams = UdpSocket::bind(any).expect("bound");
        assert_eq!(socket_type(&datagrams).expect("a socket"), SocketType::Datagram);
        assert_eq!(local_address(&datagrams).expect("bound"), datagrams.local_addr().expect("bound"));
        assert!(socket_type(std::io::stdin()).is_err() || local_address(std::io::stdin()).is_err());
        assert!(local_address(UnixStream::pair().expect("made").0).is_err(), "of no address of the Internet");
    }

    #[test]
    fn a_listener_takes_another_backlog_while_it_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        set_nonblocking(&listener).expect("set");
        set_backlog(&listener, 1).expect("set");
        set_backlog(&listener, 4096).expect("set");
        assert_eq!(listener.accept().expect_err("nobody").kind(), io::ErrorKind::WouldBlock);
        let address = listener.local_addr().expect("bound");
        std::net::TcpStream::connect(address).expect("still listens");
    }

    #[test]
    fn the_room_for_datagrams_is_what_was_asked_for() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        set_receive_buffer(&socket, 65_536).expect("set");
        assert_eq!(sockopt::socket_recv_buffer_size(&socket).expect("asked"), 2 * 65_536);
    }
}
