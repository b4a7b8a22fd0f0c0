//! A UDP socket: receives batches of datagrams and sends their replies, by the way that was chosen.

use super::batch::{BATCH_COUNT_MAX, Batch};
use super::local_address::ask_for_local_addresses;
use super::{BATCH, SINGLE, UDP_RECEIVE};
use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::poll_set::poll_until;
use crate::tcp::{Listener, ReusePort, set_reuseport};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How often a port is chosen anew that is free for UDP and turns out to be taken for TCP.
const PORT_TRIES_MAX: usize = 16;

/// A UDP socket, never blocking.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    /// Bound to no address of its own: each datagram tells which it was sent to, and the reply leaves from there.
    is_wildcard: bool,
}

impl Socket {
    /// A socket bound to `address`, which nobody else has. Siblings may join it afterwards ([`Socket::bind_reuseport`]).
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        Socket::bind_as(address, ReusePort::First)
    }

    /// A socket bound to `address` beside those of this user that are already (`SO_REUSEPORT`).
    pub fn bind_reuseport(address: SocketAddr) -> io::Result<Socket> {
        Socket::bind_as(address, ReusePort::Additional)
    }

    /// A socket bound to `address`, and a TCP listener at the same port, also where the kernel chooses the port.
    pub fn bind_with_listener(address: SocketAddr) -> io::Result<(Socket, Listener)> {
        let mut tries_left = if address.port() == 0 { PORT_TRIES_MAX } else { 1 };
        loop {
            tries_left -= 1;
            let socket = Socket::bind(address)?;
            match Listener::bind(socket.local_address()?) {
                Ok(listener) => return Ok((socket, listener)),
                Err(error) if tries_left > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn bind_as(address: SocketAddr, rank: ReusePort) -> io::Result<Socket> {
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
        if rank == ReusePort::Additional {
            set_reuseport(&socket, address)?;
        }
        count(Syscall::Bind);
        bind(&socket, &address).map_err(|errno| with_context("bind", address, &errno.into()))?;
        if rank == ReusePort::First {
            set_reuseport(&socket, address)?;
        }
        Socket::from_fd(socket)
    }

    /// Takes over a socket that is bound already: one that was inherited.
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<Socket> {
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
        let received = if UDP_RECEIVE.selected() == BATCH { self.receive_many(batch) } else { self.receive_one(batch) };
        batch.received_count = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            result => result?,
        };
        Ok(batch.received_count)
    }

    /// Whether it is worth asking again at once, after a call that brought `received_count` datagrams; else wait.
    pub fn may_have_more(received_count: usize) -> bool {
        match UDP_RECEIVE.selected() {
            SINGLE => false,
            _ => received_count != 0,
        }
    }

    fn receive_many(&self, batch: &mut Batch) -> io::Result<usize> {
        loop {
            count(Syscall::Recvmmsg);
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
                Err(_) => give_up_unless_interrupted()?,
            }
        }
    }

    /// Sends the replies that were set, each to the peer of its query, from the address that the query was sent to.
    ///
    /// A reply that cannot be sent is given up and counted; those behind it still go.
    pub fn send(&self, batch: &mut Batch) -> SendReport {
        batch.address_replies(self.is_wildcard);
        let mut sent = SendReport::default();
        let mut has_waited = false;
        let mut next = 0;
        while next < batch.reply_count {
            match self.send_some(batch, next, &mut has_waited) {
                Ok(count) => {
                    sent.sent_count += count;
                    next += count;
                }
                Err(error) => {
                    sent.failed_count += 1;
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
            let sent = if UDP_RECEIVE.selected() == BATCH {
                count(Syscall::Sendmmsg);
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
pub struct SendReport {
    /// Replies that the kernel took.
    pub sent_count: usize,
    /// Replies that it refused.
    pub failed_count: usize,
    /// Why, of the last that was refused.
    pub last_error: Option<io::Error>,
}

fn give_up_unless_interrupted() -> io::Result<()> {
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}
