//! "Port unreachable" turned into the datagram that it is about (ip(7), IP_RECVERR).
#![allow(unsafe_code, reason = "no crate that we use sets this option")]

use rustix::net::RecvFlags;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// From now on the kernel keeps the errors of each datagram, where it otherwise tells only that there was one.
pub(crate) fn keep_errors(socket: &UdpSocket) -> io::Result<()> {
    let (level, option) = match socket.local_addr()? {
        std::net::SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
        std::net::SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    let on: libc::c_int = 1;
    let length_bytes = size_of_val(&on) as libc::socklen_t;
    // SAFETY: `on` lives through the call, which reads `length_bytes` octets of it and keeps nothing; the descriptor is
    // open for as long as `socket` is borrowed.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length_bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The beginning of the next datagram that came back: as much as the network quotes, or as `buffer` holds.
pub(crate) fn take_returned<'a>(socket: &UdpSocket, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let (length_bytes, _) = rustix::net::recv(socket, &mut *buffer, RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT).ok()?;
    Some(&buffer[..length_bytes])
}
