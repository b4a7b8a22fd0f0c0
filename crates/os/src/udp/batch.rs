//! Datagrams received together, and the buffers of their replies: filled by one call, sent by another.

use super::local_address::set_reply_source;
use crate::socket::canonical;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Datagrams of one batch.
pub const BATCH_COUNT_MAX: usize = 32;
/// Bytes of the longest datagram that is received whole; a longer one is truncated and marked so.
pub const QUERY_BYTES_MAX: usize = 2048;
/// Bytes of the longest reply.
pub const REPLY_BYTES_MAX: usize = 4096;
/// Space for one control message with a local address, of either family.
const CONTROL_BYTES: usize = 64;

/// Distance between two datagrams. The size is not a multiple of 4096, so that the buffers do not all map to the same
/// sets of the processor's first-level cache.
const QUERY_STRIDE_BYTES: usize = QUERY_BYTES_MAX + 64;
/// Replies are stored one after another, each at the start of a cache line. Most replies are short, so a batch takes
/// two or three pages instead of a page each.
const REPLY_ALIGNMENT: usize = 64;

/// Datagrams received together, with buffers for their replies.
pub struct Batch {
    // The headers point into the boxes below, which are neither moved nor grown while the batch lives.
    pub(super) queries: Box<[libc::mmsghdr]>,
    pub(super) replies: Box<[libc::mmsghdr]>,
    pub(super) peers: Box<[libc::sockaddr_in6]>,
    query_vectors: Box<[libc::iovec]>,
    reply_vectors: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    query_bytes: Box<[u8]>,
    reply_bytes: Box<[u8]>,
    pub(super) received_count: usize,
    pub(super) reply_count: usize,
    /// The offset of the next reply. [`REPLY_BYTES_MAX`] bytes are left from there, since each earlier reply took at
    /// most that many.
    reply_start: usize,
    /// The index of the datagram that each reply answers.
    answered: [u8; BATCH_COUNT_MAX],
}

/// Space for a control message, aligned as its header must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [u8; CONTROL_BYTES]);

impl Batch {
    /// An empty batch with all its buffers; a thread that serves datagrams needs one.
    pub fn new() -> Batch {
        // SAFETY: all-zero bytes are a value of each of these C structures: null pointers and zero lengths.
        let empty_header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let empty_peer: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        let empty_vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut batch = Batch {
            queries: vec![empty_header; BATCH_COUNT_MAX].into(),
            replies: vec![empty_header; BATCH_COUNT_MAX].into(),
            peers: vec![empty_peer; BATCH_COUNT_MAX].into(),
            query_vectors: vec![empty_vector; BATCH_COUNT_MAX].into(),
            reply_vectors: vec![empty_vector; BATCH_COUNT_MAX].into(),
            controls: vec![Control([0; CONTROL_BYTES]); BATCH_COUNT_MAX].into(),
            query_bytes: vec![0; QUERY_STRIDE_BYTES * BATCH_COUNT_MAX].into(),
            reply_bytes: vec![0; REPLY_BYTES_MAX * BATCH_COUNT_MAX].into(),
            // So that the first `prepare` prepares all headers.
            received_count: BATCH_COUNT_MAX,
            reply_count: 0,
            reply_start: 0,
            answered: [0; BATCH_COUNT_MAX],
        };
        for (index, header) in batch.queries.iter_mut().enumerate() {
            let vector = &mut batch.query_vectors[index];
            vector.iov_base = batch.query_bytes[index * QUERY_STRIDE_BYTES..].as_mut_ptr().cast();
            vector.iov_len = QUERY_BYTES_MAX;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut batch.peers[index]).cast();
            header.msg_hdr.msg_control = (&raw mut batch.controls[index]).cast();
        }
        for (header, vector) in batch.replies.iter_mut().zip(&mut batch.reply_vectors) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        batch
    }

    /// Restores the headers that the last receive changed.
    pub(super) fn prepare(&mut self) {
        for header in &mut self.queries[..self.received_count] {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            // For every socket, since a batch may serve several; one that did not ask for control messages gets none.
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
            header.msg_hdr.msg_flags = 0;
        }
        self.reply_count = 0;
        self.reply_start = 0;
    }

    /// The datagrams and the reply buffers: all datagrams can be read before the first one is answered.
    #[inline]
    pub fn queries_and_replies(&mut self) -> (Queries<'_>, Replies<'_>) {
        let queries = Queries { headers: &self.queries, peers: &self.peers, bytes: &self.query_bytes };
        let replies = Replies {
            vectors: &mut self.reply_vectors,
            bytes: &mut self.reply_bytes,
            count: &mut self.reply_count,
            start: &mut self.reply_start,
            answered: &mut self.answered,
        };
        (queries, replies)
    }

    /// Writes the headers of the replies: to the query's sender, from the address that the query was sent to.
    pub(super) fn address_replies(&mut self, with_control: bool) {
        let answered = &self.answered[..self.reply_count];
        for (reply, &answered) in self.replies.iter_mut().zip(answered) {
            let index = usize::from(answered);
            let query = &self.queries[index].msg_hdr;
            let header = &mut reply.msg_hdr;
            header.msg_name = (&raw mut self.peers[index]).cast();
            header.msg_namelen = query.msg_namelen;
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
            if with_control && set_reply_source(query) {
                header.msg_control = query.msg_control;
                header.msg_controllen = query.msg_controllen;
            }
        }
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

/// The datagrams of a batch.
#[derive(Clone, Copy)]
pub struct Queries<'b> {
    headers: &'b [libc::mmsghdr],
    peers: &'b [libc::sockaddr_in6],
    bytes: &'b [u8],
}

impl<'b> Queries<'b> {
    /// The datagram at `index`, which must be below the number received.
    #[inline]
    pub fn get(&self, index: usize) -> Datagram<'b> {
        let header = &self.headers[index];
        let start = index * QUERY_STRIDE_BYTES;
        let length = (header.msg_len as usize).min(QUERY_BYTES_MAX);
        Datagram {
            bytes: &self.bytes[start..start + length],
            is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            peer_port: u16::from_be(self.peers[index].sin6_port),
        }
    }

    /// The destination of a later reply to the datagram at `index`: see
    /// [`Socket::send_later`](super::Socket::send_later).
    pub fn reply_path(&self, index: usize) -> ReplyPath {
        let header = &self.headers[index].msg_hdr;
        let mut control = Control([0; CONTROL_BYTES]);
        let control_bytes = header.msg_controllen.min(CONTROL_BYTES);
        // SAFETY: the header points to the control bytes of its batch, which the borrow keeps, and has their number.
        unsafe {
            std::ptr::copy_nonoverlapping(header.msg_control.cast::<u8>(), control.0.as_mut_ptr(), control_bytes);
        }
        ReplyPath { peer: self.peers[index], peer_bytes: header.msg_namelen, control, control_bytes }
    }

    /// The sender of the datagram at `index`, as [`canonical`] has it. Decoded when asked for, and not before.
    #[inline]
    pub fn peer_address(&self, index: usize) -> SocketAddr {
        socket_address(&self.peers[index])
    }
}

/// Where the reply to a datagram goes: to its sender, from the address that it was sent to.
#[derive(Clone)]
pub struct ReplyPath {
    pub(super) peer: libc::sockaddr_in6,
    pub(super) peer_bytes: libc::socklen_t,
    pub(super) control: Control,
    pub(super) control_bytes: usize,
}

impl std::fmt::Debug for ReplyPath {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ReplyPath({})", socket_address(&self.peer))
    }
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'b> {
    /// The datagram's content, at most [`QUERY_BYTES_MAX`] bytes.
    pub bytes: &'b [u8],
    /// Whether the datagram was longer; the rest is lost.
    pub is_truncated: bool,
    /// The port of its sender; 0 cannot be replied to.
    pub peer_port: u16,
}

/// The replies of a batch, stored one after another.
pub struct Replies<'b> {
    vectors: &'b mut [libc::iovec],
    bytes: &'b mut [u8],
    count: &'b mut usize,
    start: &'b mut usize,
    answered: &'b mut [u8; BATCH_COUNT_MAX],
}

impl<'b> Replies<'b> {
    /// The next reply's buffer.
    #[inline]
    pub fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes[*self.start..*self.start + REPLY_BYTES_MAX]
    }

    /// Answers the datagram at `index` with the first `length_bytes` bytes of the buffer.
    #[inline]
    pub fn push(&mut self, index: usize, length_bytes: usize) {
        let reply = &mut self.bytes[*self.start..*self.start + length_bytes];
        self.vectors[*self.count] = libc::iovec { iov_base: reply.as_mut_ptr().cast(), iov_len: reply.len() };
        self.answered[*self.count] = index as u8;
        *self.count += 1;
        *self.start += length_bytes.next_multiple_of(REPLY_ALIGNMENT);
    }
}

/// Decodes the address that the kernel wrote: a `sockaddr_in6`, or a `sockaddr_in`, whose port is in the same place and
/// whose IP address is in place of the flow information.
fn socket_address(raw: &libc::sockaddr_in6) -> SocketAddr {
    let port = u16::from_be(raw.sin6_port);
    if libc::c_int::from(raw.sin6_family) == libc::AF_INET {
        return SocketAddr::new(Ipv4Addr::from(raw.sin6_flowinfo.to_ne_bytes()).into(), port);
    }
    let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
    canonical(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
}
