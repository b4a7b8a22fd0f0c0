//! The kernel's calls as safe functions, one call each.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

/// Octets of one datagram.
pub const DATAGRAM_BYTES_MAX: usize = 1500;

fn checked(result: i64) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Room for `COUNT` datagrams of a connected socket.
pub struct Batch<const COUNT: usize> {
    buffers: Box<[[u8; DATAGRAM_BYTES_MAX]; COUNT]>,
    parts: Box<[libc::iovec; COUNT]>,
    messages: Box<[libc::mmsghdr; COUNT]>,
}

impl<const COUNT: usize> Batch<COUNT> {
    pub fn new() -> Batch<COUNT> {
        // SAFETY: plain integers and pointers, for which zero is a value; the pointers are set below.
        let mut batch = unsafe {
            Batch {
                buffers: Box::new([[0; DATAGRAM_BYTES_MAX]; COUNT]),
                parts: Box::new(std::mem::zeroed()),
                messages: Box::new(std::mem::zeroed()),
            }
        };
        for index in 0..COUNT {
            // The boxes never move, so that these pointers stay true as long as the batch lives.
            batch.parts[index] =
                libc::iovec { iov_base: batch.buffers[index].as_mut_ptr().cast(), iov_len: DATAGRAM_BYTES_MAX };
            batch.messages[index].msg_hdr.msg_iov = &raw mut batch.parts[index];
            batch.messages[index].msg_hdr.msg_iovlen = 1;
        }
        batch
    }

    /// What has come, without waiting; an error of the kind `WouldBlock` when nothing has.
    pub fn receive(&mut self, socket: &impl AsRawFd) -> io::Result<usize> {
        for part in self.parts.iter_mut() {
            part.iov_len = DATAGRAM_BYTES_MAX;
        }
        let (messages, count) = (self.messages.as_mut_ptr(), COUNT as u32);
        // SAFETY: `new` has pointed each message at a buffer of the length above, which lives as long as the batch.
        let result =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), messages, count, libc::MSG_DONTWAIT, ptr::null_mut()) };
        checked(i64::from(result))
    }

    /// The datagram `index` of those just received.
    pub fn received(&self, index: usize) -> &[u8] {
        &self.buffers[index][..self.messages[index].msg_len as usize]
    }

    /// Makes `bytes` the datagram `index` to send, and returns where it lies.
    pub fn put(&mut self, index: usize, bytes: &[u8]) -> &mut [u8] {
        self.parts[index].iov_len = bytes.len();
        let buffer = &mut self.buffers[index][..bytes.len()];
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Sends the first `count`; how many went.
    pub fn send(&mut self, socket: &impl AsRawFd, count: usize) -> io::Result<usize> {
        assert!(count <= COUNT, "a batch holds no more than it has room for");
        // SAFETY: as in `receive`; `put` keeps the lengths inside the buffers.
        let result = unsafe { libc::sendmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), count as u32, 0) };
        checked(i64::from(result))
    }
}

/// Sleeps until one of the descriptors can be read, or `limit` has passed; whether one can be.
pub fn wait_readable(descriptors: &[RawFd], limit: Duration) -> io::Result<bool> {
    let entry = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<libc::pollfd> = descriptors.iter().map(entry).collect();
    let (pointer, count) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
    // SAFETY: the pointer and the length are those of one exclusive vector.
    checked(i64::from(unsafe { libc::poll(pointer, count, limit.as_millis() as i32) })).map(|count| count > 0)
}
