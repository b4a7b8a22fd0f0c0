//! Room for any number of datagrams that one call receives or sends.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Datagrams of one call, each with its octets and its peer.
pub(super) struct Many {
    // The headers point into the boxes below, which are neither moved nor grown while this lives.
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    peers: Box<[libc::sockaddr_in]>,
    bytes: Box<[u8]>,
    bytes_each: usize,
}

// SAFETY: the pointers lead into boxes that the value owns and that nobody else knows.
unsafe impl Send for Many {}

impl Many {
    /// Room for `count` datagrams of `bytes_each` octets.
    pub(super) fn new(count: usize, bytes_each: usize) -> Many {
        // SAFETY: all-zero octets are a value of each of these C structures: null pointers and zero lengths.
        let (header, peer) = unsafe { (std::mem::zeroed::<libc::mmsghdr>(), std::mem::zeroed::<libc::sockaddr_in>()) };
        let vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut many = Many {
            headers: vec![header; count].into(),
            vectors: vec![vector; count].into(),
            peers: vec![peer; count].into(),
            bytes: vec![0; count * bytes_each].into(),
            bytes_each,
        };
        for (index, header) in many.headers.iter_mut().enumerate() {
            many.vectors[index].iov_base = many.bytes[index * bytes_each..].as_mut_ptr().cast();
            header.msg_hdr.msg_iov = &raw mut many.vectors[index];
            header.msg_hdr.msg_iovlen = 1;
        }
        many
    }

    /// Receives what is there; 0 when nothing came before the socket's patience ended.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<usize> {
        for (index, header) in self.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_name = (&raw mut self.peers[index]).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            self.vectors[index].iov_len = self.bytes_each;
        }
        let (headers, count) = (self.headers.as_mut_ptr(), self.headers.len() as libc::c_uint);
        // SAFETY: each header points to a name and a vector of this value, set just now; the count is theirs.
        let received = unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, count, flags, std::ptr::null_mut()) };
        match usize::try_from(received) {
            Ok(received) => Ok(received),
            Err(_) => none_if_empty(),
        }
    }

    /// Answers the first `count` datagrams received, each with the first `length_bytes` octets of its room.
    pub(super) fn answer(&mut self, socket: BorrowedFd<'_>, count: usize, length_bytes: usize) -> io::Result<usize> {
        self.send_first(socket, count, length_bytes)
    }

    /// Sends `count` datagrams, at most as many as there is room for, to the peer that the socket is connected to.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, count: usize, length_bytes: usize) -> io::Result<usize> {
        let count = count.min(self.headers.len());
        for header in &mut self.headers[..count] {
            header.msg_hdr.msg_name = std::ptr::null_mut();
            header.msg_hdr.msg_namelen = 0;
        }
        self.send_first(socket, count, length_bytes)
    }

    fn send_first(&mut self, socket: BorrowedFd<'_>, count: usize, length_bytes: usize) -> io::Result<usize> {
        for vector in &mut self.vectors[..count] {
            vector.iov_len = length_bytes.min(self.bytes_each);
        }
        let headers = &mut self.headers[..count];
        // SAFETY: each header points to a vector, and to a name or none, of this value; the count is the slice's.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl std::fmt::Debug for Many {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Many({} of {} octets)", self.headers.len(), self.bytes_each)
    }
}

fn none_if_empty() -> io::Result<usize> {
    match io::Error::last_os_error() {
        error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        error => Err(error),
    }
}
