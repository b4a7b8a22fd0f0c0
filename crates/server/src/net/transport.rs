//! The byte stream below a connection, perhaps encrypted, with its readiness.
//!
//! Readiness is edge-triggered: the poller reports it once, so a transport remembers it until a call returns EAGAIN or
//! less than asked.

mod tls;

use crate::net::proxy_protocol::{self, Parsed};
use sanderling_http::Scheme;
use sanderling_os::file::File;
use sanderling_os::poll::Readiness;
use sanderling_os::socket::{canonical, local_address};
use sanderling_os::tcp::{More, Stream};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// A byte stream in both directions.
#[derive(Debug)]
pub(crate) struct Transport {
    stream: ByteStream,
    /// The session, if the stream is encrypted.
    tls: Option<Box<tls::Layer>>,
    read_state: ReadState,
    /// The socket may have room for more.
    is_writable: bool,
    proxy_header: ProxyHeaderState,
}

/// Whether the stream begins with a header of the PROXY protocol, as those of trusted proxies do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyHeaderState {
    NotExpected,
    Awaited,
    /// The client is known, and so many bytes of the header are missing.
    Skipped(usize),
    Received,
}

#[derive(Debug)]
enum ByteStream {
    /// TCP.
    Plain(Stream),
    /// A stream in memory, whose other end is a test.
    #[cfg(any(test, feature = "simulation"))]
    Memory(crate::net::memory_stream::MemoryStream),
}

/// The received part of a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyHeader {
    /// The client, if the header names it and this was not known before.
    pub(crate) client: Option<SocketAddr>,
}

/// The readiness of the receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    /// All that has arrived was received.
    Drained,
    /// There may be something to receive.
    Readable,
    /// The client has closed its side; an empty receive shows that all was received.
    ReadableToEnd,
    /// The client has closed its side, and all was received.
    Ended,
}

impl Transport {
    /// A connection just accepted: the first call finds out whether anything has arrived.
    pub(crate) fn plain(stream: Stream) -> Transport {
        Transport::new(ByteStream::Plain(stream))
    }

    /// A connection in memory.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn memory(stream: crate::net::memory_stream::MemoryStream) -> Transport {
        Transport::new(ByteStream::Memory(stream))
    }

    fn new(stream: ByteStream) -> Transport {
        Transport {
            stream,
            tls: None,
            read_state: ReadState::Readable,
            is_writable: true,
            proxy_header: ProxyHeaderState::NotExpected,
        }
    }

    /// The stream, which begins with a header of the PROXY protocol, before anything else.
    pub(crate) fn with_proxy_header(self) -> Transport {
        Transport { proxy_header: ProxyHeaderState::Awaited, ..self }
    }

    /// Whether the header of the PROXY protocol was not received yet.
    pub(crate) fn awaits_proxy_header(&self) -> bool {
        matches!(self.proxy_header, ProxyHeaderState::Awaited | ProxyHeaderState::Skipped(_))
    }

    /// Whether a header of the PROXY protocol was received.
    pub(crate) fn has_proxy_header(&self) -> bool {
        self.proxy_header == ProxyHeaderState::Received
    }

    /// Receives the arrived part of the PROXY header by means of `room`. [`Transport::awaits_proxy_header`]: whether
    /// some of it is missing.
    pub(crate) fn receive_proxy_header(&mut self, room: &mut [u8]) -> io::Result<ProxyHeader> {
        if let ProxyHeaderState::Skipped(missing_bytes) = self.proxy_header {
            self.skip_proxy_header(missing_bytes, room)?;
            return Ok(ProxyHeader { client: None });
        }
        let start = &mut room[..proxy_protocol::PARSED_BYTES_MAX];
        let peeked = match &self.stream {
            ByteStream::Plain(stream) => stream.peek(start),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(stream) => stream.peek(start),
        };
        let count = match peeked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.read_state = ReadState::Drained;
                return Ok(ProxyHeader { client: None });
            }
            peeked => peeked?,
        };
        match proxy_protocol::parse(&start[..count]) {
            // The arrived data is not received yet, so a further event means that there is more.
            Parsed::Partial if count > 0 && self.read_state != ReadState::ReadableToEnd => {
                self.read_state = ReadState::Drained;
                Ok(ProxyHeader { client: None })
            }
            Parsed::Partial => Err(io::ErrorKind::UnexpectedEof.into()),
            Parsed::Invalid => Err(io::Error::new(io::ErrorKind::InvalidData, "no header of the PROXY protocol")),
            Parsed::Client { client, header_bytes } => {
                self.skip_proxy_header(header_bytes, room)?;
                Ok(ProxyHeader { client })
            }
        }
    }

    /// Discards the received part of the rest of the header.
    fn skip_proxy_header(&mut self, mut missing_bytes: usize, room: &mut [u8]) -> io::Result<()> {
        while missing_bytes > 0 && self.is_readable() {
            let length = room.len().min(missing_bytes);
            missing_bytes -= self.receive_bytes(&mut room[..length])?;
        }
        self.proxy_header = match missing_bytes {
            0 => ProxyHeaderState::Received,
            _ if self.has_ended() => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => ProxyHeaderState::Skipped(missing_bytes),
        };
        Ok(())
    }

    /// The descriptor to register with a poller; streams in memory have none.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.stream {
            ByteStream::Plain(stream) => Some(stream.as_fd()),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(_) => None,
        }
    }

    /// The address of our side; unspecified if the kernel does not say it.
    pub(crate) fn local_address(&self) -> SocketAddr {
        let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        match &self.stream {
            ByteStream::Plain(stream) => local_address(stream).map_or(unspecified, canonical),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(_) => unspecified,
        }
    }

    /// Records what the poller reports.
    pub(crate) fn set_readiness(&mut self, readiness: Readiness) {
        if self.read_state != ReadState::Ended {
            if readiness.read_closed {
                self.read_state = ReadState::ReadableToEnd;
            } else if readiness.readable && self.read_state == ReadState::Drained {
                self.read_state = ReadState::Readable;
            }
        }
        self.is_writable |= readiness.writable;
    }

    /// Lets the next receive ask the kernel, whatever was reported.
    pub(crate) fn assume_readable(&mut self) {
        if self.read_state == ReadState::Drained {
            self.read_state = ReadState::Readable;
        }
    }

    /// Whether there may be something to receive.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        matches!(self.read_state, ReadState::Readable | ReadState::ReadableToEnd) || self.has_plaintext()
    }

    /// Whether the client has closed its side and all was received.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.read_state == ReadState::Ended && !self.has_plaintext()
    }

    /// Whether there may be room to send.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Receives the arrived data, up to the length of `into`. Returns 0 if nothing has, or at the end
    /// ([`Transport::has_ended`]).
    #[inline]
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.tls.is_some() {
            return self.receive_encrypted(into);
        }
        self.receive_bytes(into)
    }

    /// Receives the arrived data, up to the length of `room`, and discards it; returns its amount, including the
    /// encryption.
    pub(crate) fn discard(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.tls.is_some() {
            return self.discard_encrypted(room);
        }
        self.receive_bytes(room)
    }

    #[inline]
    fn receive_bytes(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let received = match &self.stream {
            ByteStream::Plain(stream) => stream.receive(into),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(stream) => stream.receive(into),
        };
        match received {
            Ok(0) => {
                self.read_state = ReadState::Ended;
                Ok(0)
            }
            Ok(count) => {
                // A receive that leaves room shows that the socket is empty (epoll(7)): no further call is needed.
                if self.read_state != ReadState::ReadableToEnd && count < into.len() {
                    self.read_state = ReadState::Drained;
                }
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.read_state = ReadState::Drained;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends as much of `bytes` as there is room for.
    ///
    /// An encrypted stream counts what was encrypted, and keeps it up to a limit; [`Transport::flush`] sends it.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8], more: More) -> io::Result<usize> {
        if self.tls.is_some() {
            return self.send_encrypted(bytes, &[]);
        }
        let mut sent = 0;
        while sent < bytes.len() {
            let result = match &self.stream {
                ByteStream::Plain(stream) => stream.send(&bytes[sent..], more),
                #[cfg(any(test, feature = "simulation"))]
                ByteStream::Memory(stream) => stream.send(&bytes[sent..]),
            };
            match self.record_sent(result)? {
                Some(count) => sent += count,
                None => break,
            }
        }
        Ok(sent)
    }

    /// Sends as much of `head` and then of `body` as there is room for, by one call where possible; how much of both.
    #[inline]
    pub(crate) fn send_both(&mut self, head: &[u8], body: &[u8], more: More) -> io::Result<usize> {
        if self.tls.is_some() {
            return self.send_encrypted(head, body);
        }
        let mut sent = 0;
        while sent < head.len() + body.len() {
            let (of_head, of_body) = split(sent, head.len());
            let (head, body) = (&head[of_head..], &body[of_body..]);
            let result = match &self.stream {
                ByteStream::Plain(stream) => stream.send_vectored(head, body, more),
                #[cfg(any(test, feature = "simulation"))]
                ByteStream::Memory(stream) => stream.send(if head.is_empty() { body } else { head }),
            };
            match self.record_sent(result)? {
                Some(count) => sent += count,
                None => break,
            }
        }
        Ok(sent)
    }

    /// Sends up to `length` bytes of `file` from `offset` on, without a copy where the stream allows it. `None`: there
    /// is no room. 0: the file ends before `offset`. Not for an encrypted stream.
    pub(crate) fn send_file(&mut self, file: &File, offset: u64, length: usize) -> io::Result<Option<usize>> {
        let result = match &self.stream {
            ByteStream::Plain(stream) => {
                let mut end = offset;
                file.send_to(stream, &mut end, length)
            }
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(stream) => {
                let mut piece = vec![0; length.min(64 * 1024)];
                let count = file.read_at(&mut piece, offset)?;
                stream.send(&piece[..count])
            }
        };
        self.record_sent(result)
    }

    /// Sends as much of `slices` as there is room for, by one call.
    pub(crate) fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let result = match &self.stream {
            ByteStream::Plain(stream) => stream.send_slices(slices, More::No),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(stream) => stream.send_slices(slices),
        };
        self.record_sent(result)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Bytes that the client has received since the connection began; `None` if the kernel does not know.
    pub(crate) fn acked_bytes(&self) -> Option<u64> {
        match &self.stream {
            ByteStream::Plain(stream) => stream.acked_bytes(),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(stream) => Some(stream.acked_bytes()),
        }
    }

    /// Whether the output is encrypted, so that a file must be copied.
    #[inline]
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The scheme of the requests that the stream is for.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.is_encrypted() { Scheme::Https } else { Scheme::Http }
    }

    /// How much of a file to read before it is sent: the room of an encrypted stream, and 0 if it is full.
    #[inline]
    pub(crate) fn room_bytes(&mut self) -> io::Result<usize> {
        if self.tls.is_some() {
            return self.encryptable_bytes();
        }
        Ok(usize::MAX)
    }

    /// Bytes of memory that the encryption holds: incomplete records and unsent output.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.held_bytes())
    }

    /// The bytes of incomplete records.
    pub(crate) fn partial_bytes(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.partial_bytes())
    }

    /// Whether something was encrypted that the stream has not taken.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unsent())
    }

    /// Sends what is encrypted; `false` if there is no room. `progress` is raised by the bytes sent.
    #[inline]
    pub(crate) fn flush(&mut self, progress: &mut u64) -> io::Result<bool> {
        if self.tls.is_some() {
            return self.flush_encrypted(More::No, progress);
        }
        Ok(true)
    }

    /// As [`Transport::flush`], with the end of the encryption: the caller closes, or shuts down sending, right after
    /// it.
    #[inline]
    pub(crate) fn flush_to_end(&mut self, progress: &mut u64) -> io::Result<bool> {
        if self.tls.is_some() {
            return self.flush_with_close_notify(progress);
        }
        Ok(true)
    }

    /// Closes the sending side.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        self.send_close_notify();
        match &self.stream {
            ByteStream::Plain(stream) => stream.shutdown_write(),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(stream) => stream.shutdown_write(),
        }
    }

    /// Makes the close that follows a reset, so that the client notices that the response is incomplete.
    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        match &self.stream {
            ByteStream::Plain(stream) => stream.reset_on_close(),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(stream) => stream.reset_on_close(),
        }
    }

    /// `None` for no room.
    #[inline]
    fn record_sent(&mut self, result: io::Result<usize>) -> io::Result<Option<usize>> {
        match result {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_writable = false;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Splits `sent_bytes` into bytes of the head and of the body after it.
pub(crate) fn split(sent_bytes: usize, head_bytes: usize) -> (usize, usize) {
    (sent_bytes.min(head_bytes), sent_bytes.saturating_sub(head_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_are_first_of_the_head_and_then_of_the_body() {
        for (sent, expected) in [(0, (0, 0)), (1, (1, 0)), (9, (9, 0)), (10, (10, 0)), (11, (10, 1)), (17, (10, 7))] {
            assert_eq!(split(sent, 10), expected, "{sent}");
        }
    }
}
