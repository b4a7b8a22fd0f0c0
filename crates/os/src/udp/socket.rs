//! UDP sockets: receive batches of datagrams and send their replies, by the selected variant.

// `recvmmsg` and `sendmmsg` are made by `syscall`: the C library's functions are cancellation points, which cost 130
// instructions for a query that arrives alone.

use super::batch::{BATCH_COUNT_MAX, Batch, ReplyPath};
use super::local_address::{request_local_addresses, set_reply_source};
use super::{BY_POLL_RECVMSG, BY_RECVMMSG, UDP_IO};
use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::poll_set::poll_until;
use crate::socket::{ReusePort, local_address, set_reuseport};
use crate::tcp::Listener;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, ipproto, sendto, socket_with, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Tries to find a port that is free for both UDP and TCP.
const PORT_TRIES_MAX: usize = 16;

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    /// Bound to a wildcard address: a reply leaves from the address that its query was sent to.
    is_wildcard: bool,
}

impl Socket {
    /// Binds to `address`, which no other socket may have. [`Socket::bind_reuseport`] adds further sockets to it.
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        Socket::bind_as(address, ReusePort::AfterBind)
    }

    /// Binds to `address` together with other sockets of this user (`SO_REUSEPORT`).
    pub fn bind_reuseport(address: SocketAddr) -> io::Result<Socket> {
        Socket::bind_as(address, ReusePort::BeforeBind)
    }

    /// A UDP socket and a TCP listener with the same address and port, even if the kernel chooses the port.
    pub fn bind_with_listener(address: SocketAddr) -> io::Result<(Socket, Listener)> {
        let mut remaining_tries = if address.port() == 0 { PORT_TRIES_MAX } else { 1 };
        loop {
            remaining_tries -= 1;
            let socket = Socket::bind(address)?;
            match Listener::bind(socket.local_address()?) {
                Ok(listener) => return Ok((socket, listener)),
                Err(error) if remaining_tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn bind_as(address: SocketAddr, reuseport: ReusePort) -> io::Result<Socket> {
        count(Syscall::Socket);
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))
            .map_err(|errno| with_context("socket", address, &errno.into()))?;
        if address.is_ipv6() {
            count(Syscall::Setsockopt);
            sockopt::set_ipv6_v6only(&socket, true)
                .map_err(|errno| with_context("setsockopt(IPV6_V6ONLY)", address, &errno.into()))?;
        }
        if reuseport == ReusePort::BeforeBind {
            set_reuseport(&socket, address)?;
        }
        count(Syscall::Bind);
        bind(&socket, &address).map_err(|errno| with_context("bind", address, &errno.into()))?;
        if reuseport == ReusePort::AfterBind {
            set_reuseport(&socket, address)?;
        }
        Socket::from_fd(socket)
    }

    /// Takes over a bound socket that was inherited.
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<Socket> {
        let address = local_address(&descriptor)?;
        let is_wildcard = address.ip().is_unspecified();
        if is_wildcard {
            request_local_addresses(&descriptor, address)?;
        }
        Ok(Socket { descriptor, is_wildcard })
    }

    /// The address it is bound to; its port is the one chosen by the kernel if port 0 was asked for.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        local_address(&self.descriptor)
    }

    /// Whether a process with the socket has shut it down for receiving or sending (`shutdown(2)`), which cannot be
    /// undone. An empty datagram that is sent to the port "discard" of this machine tells.
    pub fn is_shut_down(&self) -> bool {
        const DISCARD: u16 = 9;
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::RDHUP)];
        if poll_until(&mut polled, Some(Duration::ZERO)).is_ok() && polled[0].revents().contains(PollFlags::RDHUP) {
            return true;
        }
        let Ok(own) = self.local_address() else { return false };
        let ip = match own.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let mut target = own;
        target.set_ip(ip);
        target.set_port(DISCARD);
        count(Syscall::Sendto);
        matches!(sendto(&self.descriptor, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &target), Err(Errno::PIPE))
    }

    /// Receives the datagrams that wait, as many as fit into `batch`, and returns their number.
    pub fn receive(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.prepare();
        let received =
            if UDP_IO.selected() == BY_RECVMMSG { self.receive_many(batch) } else { self.receive_one(batch) };
        batch.received_count = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            result => result?,
        };
        Ok(batch.received_count)
    }

    /// Whether to receive again immediately after a call that returned `received_count` datagrams; otherwise wait
    /// first.
    pub fn may_have_more(received_count: usize) -> bool {
        match UDP_IO.selected() {
            BY_POLL_RECVMSG => false,
            _ => received_count != 0,
        }
    }

    fn receive_many(&self, batch: &mut Batch) -> io::Result<usize> {
        loop {
            count(Syscall::Recvmmsg);
            // SAFETY: each header points to an address, a vector and a control buffer of the same batch, restored by
            // `prepare` just now; the count is the number of headers.
            let received = unsafe {
                libc::syscall(
                    libc::SYS_recvmmsg,
                    self.descriptor.as_raw_fd(),
                    batch.queries.as_mut_ptr(),
                    BATCH_COUNT_MAX as libc::c_uint,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut::<libc::timespec>(),
                )
            };
            match usize::try_from(received) {
                Ok(received) => return Ok(received),
                Err(_) => fail_unless_interrupted()?,
            }
        }
    }

    fn receive_one(&self, batch: &mut Batch) -> io::Result<usize> {
        loop {
            count(Syscall::Recvmsg);
            let header = &mut batch.queries[0];
            // SAFETY: as in `receive_many`, for the first header.
            let received =
                unsafe { libc::recvmsg(self.descriptor.as_raw_fd(), &raw mut header.msg_hdr, libc::MSG_DONTWAIT) };
            match u32::try_from(received) {
                Ok(length) => {
                    header.msg_len = length;
                    return Ok(1);
                }
                Err(_) => fail_unless_interrupted()?,
            }
        }
    }

    /// Sends the replies of `batch`, each to its query's sender, from the address that the query was sent to.
    ///
    /// A reply that cannot be sent is dropped; the ones after it are still sent. Returns the number of those dropped.
    pub fn send(&self, batch: &mut Batch) -> usize {
        batch.address_replies(self.is_wildcard);
        let mut failed_count = 0;
        let mut has_waited = false;
        let mut next = 0;
        while next < batch.reply_count {
            next += self.send_some(batch, next, &mut has_waited).unwrap_or_else(|_| {
                failed_count += 1;
                1
            });
        }
        failed_count
    }

    /// Sends a reply to a datagram that this socket, or another one of its address, has received before.
    ///
    /// # Errors
    /// Returns an error if the send buffer is full, or the client cannot be reached.
    pub fn send_later(&self, mut path: ReplyPath, reply: &[u8]) -> io::Result<()> {
        let mut vector = libc::iovec { iov_base: reply.as_ptr().cast_mut().cast(), iov_len: reply.len() };
        // SAFETY: all-zero bytes are a value of this C structure: null pointers and zero lengths.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw mut path.peer).cast();
        header.msg_namelen = path.peer_bytes;
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = path.control.0.as_mut_ptr().cast();
        header.msg_controllen = path.control_bytes;
        if !(self.is_wildcard && set_reply_source(&header)) {
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
        }
        count(Syscall::Sendmsg);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the header points to an address, a vector of bytes that are only read, and control bytes, all of
        // which outlive the call.
        match unsafe { libc::sendmsg(self.descriptor.as_raw_fd(), &raw const header, flags) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends replies from `first` on and returns their number; an error concerns the first reply. Waits for space in
    /// the send buffer at most once per batch.
    fn send_some(&self, batch: &mut Batch, first: usize, has_waited: &mut bool) -> io::Result<usize> {
        loop {
            let replies = &mut batch.replies[first..batch.reply_count];
            let sent = if UDP_IO.selected() == BY_RECVMMSG {
                count(Syscall::Sendmmsg);
                // SAFETY: each header points to an address, a vector and control bytes of the same batch, set by
                // `address_replies`; the count is the length of the slice.
                unsafe {
                    libc::syscall(
                        libc::SYS_sendmmsg,
                        self.descriptor.as_raw_fd(),
                        replies.as_mut_ptr(),
                        replies.len() as libc::c_uint,
                        libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                    )
                }
            } else {
                count(Syscall::Sendmsg);
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

/// Maximum wait for space in the send buffer: a few times what a 1 Gbit/s interface needs to send it.
const SEND_WAIT: Duration = Duration::from_millis(5);

fn fail_unless_interrupted() -> io::Result<()> {
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}
