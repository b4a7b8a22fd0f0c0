//! The local address that a datagram was sent to, used as the source address of its reply (control messages).
//!
//! Only sockets bound to a wildcard address ask for it, since the kernel then writes and reads a control message per
//! datagram.

use crate::error::with_context;
use crate::socket::set_option;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Asks the kernel for the local address of each datagram of `socket`, which is bound to `address`.
pub(super) fn request_local_addresses(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let (level, option, name) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO, "setsockopt(IP_PKTINFO)"),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "setsockopt(IPV6_RECVPKTINFO)"),
    };
    set_option(socket, level, option, 1).map_err(|error| with_context(name, address, &error))
}

/// Turns the control message with a query's local address into one that sets the reply's source address, in place: it
/// is the same structure (ip(7), ipv6(7)). Clears the interface, so that the routing table chooses it, except for
/// link-local addresses, which are valid on one interface only. Returns false if there is no such message.
pub(super) fn set_reply_source(query: &libc::msghdr) -> bool {
    // SAFETY: the header describes control bytes that the kernel wrote into this batch's own aligned buffer.
    let message = unsafe { libc::CMSG_FIRSTHDR(query).as_mut() };
    let Some(message) = message else { return false };
    match (message.cmsg_level, message.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // SAFETY: a message of this type holds an `in_pktinfo`; the buffer is aligned and not shared.
            let info = unsafe { &mut *libc::CMSG_DATA(message).cast::<libc::in_pktinfo>() };
            info.ipi_ifindex = 0;
            true
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // SAFETY: a message of this type holds an `in6_pktinfo`; the buffer is aligned and not shared.
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
