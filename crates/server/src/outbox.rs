//! What a peer is still owed: octets that its socket did not take yet, and the rest of a file behind them.

use crate::open_file::{Body, FileKey, OpenFile};
use os::tcp::{Follows, Stream};
use std::io;
use table::Held;

/// Octets of a file that are sent in one turn, so that a large one does not hold the other peers.
const FILE_BYTES_PER_TURN_MAX: u64 = 1024 * 1024;

/// The part of a file that is still to be sent.
#[derive(Debug)]
pub(crate) struct FileRest<'s> {
    /// A reference of its own: the response may outlive the turn, and the entry's lease with it.
    pub(crate) file: Held<'s, FileKey, OpenFile>,
    pub(crate) offset: u64,
    pub(crate) left_bytes: u64,
}

/// Octets first, then the file.
#[derive(Debug, Default)]
pub(crate) struct Outbox<'s> {
    bytes: Vec<u8>,
    sent_bytes: usize,
    file: Option<FileRest<'s>>,
}

/// How far sending came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing is owed any more.
    All,
    /// The socket takes no more; it will say when it does.
    Blocked,
    /// The turn's share is used.
    Share,
    /// The file has changed, so that what is owed can no longer be sent.
    Changed,
}

impl<'s> Outbox<'s> {
    /// Whether nothing is owed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.file.is_none()
    }

    /// Sends `bytes` and then `file`, keeping what the socket does not take. Only for an empty outbox. `progress` is
    /// raised by what was sent.
    pub(crate) fn send(
        &mut self,
        stream: &Stream,
        bytes: &[u8],
        file: Option<FileRest<'s>>,
        progress: &mut u64,
    ) -> io::Result<Sent> {
        debug_assert!(self.is_empty());
        self.file = file;
        let sent = send_bytes(stream, bytes, self.follows())?;
        *progress += sent as u64;
        if sent < bytes.len() {
            self.bytes.extend_from_slice(&bytes[sent..]);
            return Ok(Sent::Blocked);
        }
        self.send_file(stream, progress)
    }

    /// Goes on where the socket stopped.
    pub(crate) fn resume(&mut self, stream: &Stream, progress: &mut u64) -> io::Result<Sent> {
        if !self.bytes.is_empty() {
            let sent = send_bytes(stream, &self.bytes[self.sent_bytes..], self.follows())?;
            *progress += sent as u64;
            self.sent_bytes += sent;
            if self.sent_bytes < self.bytes.len() {
                return Ok(Sent::Blocked);
            }
            // Given back rather than kept: an idle connection holds no buffer.
            self.bytes = Vec::new();
            self.sent_bytes = 0;
        }
        self.send_file(stream, progress)
    }

    fn follows(&self) -> Follows {
        if self.file.is_some() { Follows::More } else { Follows::Nothing }
    }

    fn send_file(&mut self, stream: &Stream, progress: &mut u64) -> io::Result<Sent> {
        let Some(rest) = &mut self.file else { return Ok(Sent::All) };
        let mut share = FILE_BYTES_PER_TURN_MAX;
        while rest.left_bytes > 0 {
            if share == 0 {
                return Ok(Sent::Share);
            }
            let sent = match rest.send_some(stream, share) {
                // The file ends before it should: it was cut while it was sent.
                Ok(0) => return Ok(Sent::Changed),
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Blocked),
                Err(error) => return Err(error),
            };
            *progress += sent;
            share = share.saturating_sub(sent);
        }
        let is_unchanged = rest.file.is_unchanged();
        self.file = None;
        Ok(if is_unchanged { Sent::All } else { Sent::Changed })
    }
}

impl FileRest<'_> {
    fn send_some(&mut self, stream: &Stream, share_bytes: u64) -> io::Result<u64> {
        let length = self.left_bytes.min(share_bytes);
        let sent = match &self.file.body {
            Body::Descriptor(file) => file.send_to(stream, &mut self.offset, length as usize)? as u64,
            Body::Builtin(content) => self.send_from(stream, content, length)?,
            Body::Memory(content) => self.send_from(stream, content, length)?,
        };
        self.left_bytes -= sent;
        Ok(sent)
    }

    fn send_from(&self, stream: &Stream, content: &[u8], length_bytes: u64) -> io::Result<u64> {
        let start = (content.len() as u64 - self.left_bytes) as usize;
        stream.send(&content[start..start + length_bytes as usize], Follows::Nothing).map(|sent| sent as u64)
    }
}

/// Sends as much of `bytes` as the socket takes.
fn send_bytes(stream: &Stream, bytes: &[u8], follows: Follows) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.send(&bytes[sent..], follows) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
