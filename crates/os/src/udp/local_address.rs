//! The address that a datagram was sent to, told and used as the source of its reply by control messages.
//!
//! Only sockets that are bound to no address of their own ask for it: the kernel writes and reads a control message for
//! each datagram of theirs.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Makes each datagram of `socket`, which is bound to `address`, tell where it was sent to.
pub(super) fn ask_for_local_addresses(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let (level, option, name) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO, "setsockopt(IP_PKTINFO)"),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "setsockopt(IPV6_RECVPKTINFO)"),
    };
    let on: libc::c_int = 1;
    count(Syscall::Setsockopt);
    // SAFETY: the option's value is an int that outlives the call, with its length.
    let done = unsafe {
        let value = (&raw const on).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, size_of_val(&on) as libc::socklen_t)
    };
    if done == 0 { Ok(()) } else { Err(with_context(name, address, &io::Error::last_os_error())) }
}

/// Turns the control message that told a datagram's destination into one that sets the reply's source, in place: it is
/// the same structure (ip(7), ipv6(7)). The interface is cleared, since the way back is the routing table's to choose,
/// but for link-local addresses, which mean nothing without theirs. False when no destination was told.
pub(super) fn answer_from_where_it_was_asked(query: &libc::msghdr) -> bool {
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
