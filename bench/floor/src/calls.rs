//! The kernel's calls as safe functions, one call each.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Datagrams of one batch.
pub const BATCH_COUNT: usize = 32;
/// Octets of one datagram and of the answer that is put behind it.
pub const DATAGRAM_BYTES_MAX: usize = 1500;
/// Sources that one wait tells of.
pub const EVENT_COUNT_MAX: usize = 512;

fn checked(result: i64) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Gives a listener the longest queue that is usual; the standard library's is so short that a thousand clients at once
/// overrun it.
pub fn lengthen_queue(listener: &impl AsRawFd) -> io::Result<()> {
    const CONNECTION_COUNT_MAX: i32 = 4096;
    // SAFETY: no pointers.
    checked(i64::from(unsafe { libc::listen(listener.as_raw_fd(), CONNECTION_COUNT_MAX) })).map(drop)
}

/// Leaves connections in the kernel until their first octets have come, for about a second.
pub fn defer_silent(listener: &impl AsRawFd) -> io::Result<()> {
    let seconds: libc::c_int = 1;
    let length = size_of_val(&seconds) as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of `seconds`, which outlives the call.
    checked(i64::from(unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            length,
        )
    }))
    .map(drop)
}

/// A connection from the queue of `listener`, non-blocking and closed on exec from its birth.
pub fn accept(listener: &impl AsRawFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the peer's address is not asked for, so that null is right for it and for its length.
    let result = unsafe { libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) };
    let descriptor = checked(i64::from(result))?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

pub fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of one exclusive slice.
    checked(unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) } as i64)
}

/// Whether more of the same answer follows at once.
#[derive(Clone, Copy)]
pub enum Rest {
    None,
    Follows,
}

pub fn send(socket: &OwnedFd, bytes: &[u8], rest: Rest) -> io::Result<usize> {
    let flags = match rest {
        Rest::None => libc::MSG_NOSIGNAL,
        Rest::Follows => libc::MSG_NOSIGNAL | libc::MSG_MORE,
    };
    // SAFETY: the pointer and the length are those of one slice.
    checked(unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) } as i64)
}

/// Sends `length_bytes` of `file` from `offset_bytes` on, as far as the socket takes them.
pub fn send_file(socket: &OwnedFd, file: &impl AsRawFd, offset_bytes: u64, length_bytes: usize) -> io::Result<usize> {
    let mut offset = offset_bytes as libc::off_t;
    // SAFETY: the offset lives across the call.
    checked(unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, length_bytes) } as i64)
}

/// Descriptors that are waited for, each told of by the number it was added with.
pub struct Poller(OwnedFd);

/// What a wait brought.
pub struct Events([libc::epoll_event; EVENT_COUNT_MAX], usize);

impl Poller {
    pub fn new() -> io::Result<Poller> {
        // SAFETY: no pointers.
        let result = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let descriptor = checked(i64::from(result))?;
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        Ok(Poller(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }))
    }

    /// Edge-triggered, both directions: one call for the whole life of a connection.
    pub fn add(&self, source: &impl AsRawFd, number: u64) -> io::Result<()> {
        let events = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
        let mut event = libc::epoll_event { events, u64: number };
        // SAFETY: the event lives across the call.
        let result =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, source.as_raw_fd(), &raw mut event) };
        checked(i64::from(result)).map(drop)
    }

    pub fn wait(&self, events: &mut Events) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of one exclusive array.
        let result = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.0.as_mut_ptr(), EVENT_COUNT_MAX as i32, -1) };
        events.1 = checked(i64::from(result))?;
        Ok(())
    }
}

impl Events {
    pub fn new() -> Events {
        Events([libc::epoll_event { events: 0, u64: 0 }; EVENT_COUNT_MAX], 0)
    }

    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0[..self.1].iter().map(|event| event.u64)
    }
}

/// Room for a batch of datagrams, each with its sender.
pub struct Batch {
    buffers: Box<[[u8; DATAGRAM_BYTES_MAX]; BATCH_COUNT]>,
    peers: Box<[libc::sockaddr_in; BATCH_COUNT]>,
    parts: Box<[libc::iovec; BATCH_COUNT]>,
    messages: Box<[libc::mmsghdr; BATCH_COUNT]>,
}

impl Batch {
    /// Room for datagrams from IPv4 peers of at most `DATAGRAM_BYTES_MAX - answer_bytes` octets.
    pub fn new(answer_bytes: usize) -> Batch {
        // SAFETY: plain integers and pointers, for which zero is a value; the pointers are set below.
        let mut batch = unsafe {
            Batch {
                buffers: Box::new([[0; DATAGRAM_BYTES_MAX]; BATCH_COUNT]),
                peers: Box::new(std::mem::zeroed()),
                parts: Box::new(std::mem::zeroed()),
                messages: Box::new(std::mem::zeroed()),
            }
        };
        for index in 0..BATCH_COUNT {
            // The boxes never move, so that these pointers stay true as long as the batch lives.
            batch.parts[index] = libc::iovec {
                iov_base: batch.buffers[index].as_mut_ptr().cast(),
                iov_len: DATAGRAM_BYTES_MAX - answer_bytes,
            };
            let header = &mut batch.messages[index].msg_hdr;
            header.msg_name = (&raw mut batch.peers[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = &raw mut batch.parts[index];
            header.msg_iovlen = 1;
        }
        batch
    }

    /// What has come, without waiting; an error of the kind `WouldBlock` when nothing has.
    pub fn receive(&mut self, socket: &impl AsRawFd) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: `new` has pointed each message at a buffer and an address that live as long as the batch.
        let result = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), BATCH_COUNT as u32, flags, ptr::null_mut())
        };
        checked(i64::from(result))
    }

    /// The datagram `index` of those just received: its buffer and its length.
    pub fn datagram(&mut self, index: usize) -> (&mut [u8; DATAGRAM_BYTES_MAX], usize) {
        (&mut self.buffers[index], self.messages[index].msg_len as usize)
    }

    /// Sends the first `count` buffers back, `answer_bytes` longer than each came, and makes room again.
    pub fn send_back(&mut self, socket: &impl AsRawFd, count: usize, answer_bytes: usize) -> io::Result<()> {
        for index in 0..count {
            self.parts[index].iov_len = self.messages[index].msg_len as usize + answer_bytes;
        }
        // SAFETY: as in `receive`; `count` is what the kernel filled, and the lengths end inside the buffers.
        let result = unsafe { libc::sendmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), count as u32, 0) };
        for part in &mut self.parts[..count] {
            part.iov_len = DATAGRAM_BYTES_MAX - answer_bytes;
        }
        checked(i64::from(result)).map(drop)
    }
}

/// Sleeps until `source` can be read.
pub fn wait_readable(source: &impl AsRawFd) -> io::Result<()> {
    let mut entry = libc::pollfd { fd: source.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives across the call.
    checked(i64::from(unsafe { libc::poll(&raw mut entry, 1, -1) })).map(drop)
}
