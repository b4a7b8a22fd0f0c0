//! What a peer is still owed: octets that its socket did not take yet, and the rest of a file behind them.

use crate::open_file::{Body, FileKey, Form, OpenFile};
use sanderling_http::ContentCoding;
use sanderling_os::tcp::{More, Stream};
use sanderling_table::Ref;
use std::io;

/// Octets of a file that are sent in one turn, so that a large one does not hold the other peers.
const FILE_BYTES_PER_TURN_MAX: u64 = 1024 * 1024;
/// A file of so many octets is sent behind a head that has left by itself: together with the head, its pages would be cut
/// at the ends of segments, which costs a response of 1 MiB 13 % (docs/performance/tuning-http.md).
const HEAD_APART_BYTES: u64 = 256 * 1024;
/// Octets of a long response that are held back until the file has been looked at once more.
const TAIL_BYTES: u64 = 16 * 1024;

/// The part of a file that is still to be sent.
#[derive(Debug)]
pub(crate) struct FileRest<'s> {
    /// A reference of its own: the response may outlive the turn, and the entry's lease with it.
    file: Ref<'s, FileKey, OpenFile>,
    /// Which of its forms is sent.
    coding: ContentCoding,
    offset: u64,
    left_bytes: u64,
    way: Way,
    /// Sending has had to wait, so that the file may have changed since its facts were told.
    has_waited: bool,
}

/// How a file gets into the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By its pages, without a copy.
    Passed,
    /// Read into memory first, since somebody may be writing it: what was read stays what it was.
    Copied,
}

impl<'s> FileRest<'s> {
    /// `length_bytes` of `file` in `coding` from `offset` on; `is_settled` when nobody is likely to be writing it.
    pub(crate) fn new(
        file: &Ref<'s, FileKey, OpenFile>,
        coding: ContentCoding,
        offset: u64,
        length_bytes: u64,
        is_settled: bool,
    ) -> FileRest<'s> {
        let way = if is_settled { Way::Passed } else { Way::Copied };
        FileRest { file: file.clone(), coding, offset, left_bytes: length_bytes, way, has_waited: false }
    }
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

    /// The file that is owed.
    pub(crate) fn file(&self) -> Option<&Ref<'s, FileKey, OpenFile>> {
        self.file.as_ref().map(|rest| &rest.file)
    }

    /// Sends `bytes` and then `file`, keeping what the socket does not take. Only for an empty outbox. `room` is lent for
    /// pieces of the file; `progress` is raised by what was sent.
    ///
    /// `behind` is [`More::Yes`] only from a caller who ends his side as soon as all is sent: the end then goes out in
    /// the segment of the last octets, which spares both sides a segment. What is left over for [`Outbox::resume`] leaves
    /// without delay: nobody knows when the socket takes it.
    #[inline]
    pub(crate) fn send(
        &mut self,
        stream: &Stream,
        bytes: &[u8],
        file: Option<FileRest<'s>>,
        behind: More,
        room: &mut [u8],
        progress: &mut u64,
    ) -> io::Result<Sent> {
        debug_assert!(self.is_empty());
        if let Some(rest) = &file
            && let Some(content) = rest.content_in_memory()
        {
            let sent = send_both(stream, bytes, content, behind)?;
            return self.keep_beyond(sent, bytes, file, progress);
        }
        let follows = file.as_ref().map_or(behind, FileRest::follows_head);
        let sent = send_bytes(stream, bytes, follows)?;
        *progress += sent as u64;
        if file.is_none() && sent == bytes.len() {
            return Ok(Sent::All);
        }
        self.file = file;
        if sent < bytes.len() {
            self.bytes.extend_from_slice(&bytes[sent..]);
            self.note_waiting();
            return Ok(Sent::Blocked);
        }
        self.send_file(stream, room, progress)
    }

    /// Keeps what is left of `bytes` and of the content behind them when `sent` octets of both have left.
    fn keep_beyond(
        &mut self,
        sent: usize,
        bytes: &[u8],
        file: Option<FileRest<'s>>,
        progress: &mut u64,
    ) -> io::Result<Sent> {
        *progress += sent as u64;
        let (of_head, of_content) = split(sent, bytes.len());
        self.file = file.and_then(|rest| rest.beyond(of_content as u64));
        if self.file.is_none() {
            return Ok(Sent::All);
        }
        self.bytes.extend_from_slice(&bytes[of_head..]);
        self.note_waiting();
        Ok(Sent::Blocked)
    }

    /// Goes on where the socket stopped.
    pub(crate) fn resume(&mut self, stream: &Stream, room: &mut [u8], progress: &mut u64) -> io::Result<Sent> {
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
        self.send_file(stream, room, progress)
    }

    fn note_waiting(&mut self) {
        if let Some(rest) = &mut self.file {
            rest.has_waited = true;
        }
    }

    fn follows(&self) -> More {
        if self.file.is_some() { More::Yes } else { More::No }
    }

    fn send_file(&mut self, stream: &Stream, room: &mut [u8], progress: &mut u64) -> io::Result<Sent> {
        let Some(rest) = &mut self.file else { return Ok(Sent::All) };
        let mut share = FILE_BYTES_PER_TURN_MAX;
        while rest.left_bytes > 0 {
            if share == 0 {
                rest.has_waited = true;
                return Ok(Sent::Share);
            }
            let sent = match rest.send_some(stream, share, room) {
                Ok(Some(sent)) => sent,
                Ok(None) => return Ok(Sent::Changed),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    rest.has_waited = true;
                    return Ok(Sent::Blocked);
                }
                Err(error) => return Err(error),
            };
            *progress += sent;
            share = share.saturating_sub(sent);
        }
        self.file = None;
        Ok(Sent::All)
    }
}

impl FileRest<'_> {
    fn form(&self) -> &Form {
        self.file.form(self.coding)
    }

    /// Sends a piece; `None` when the file is no longer what was promised in the head. The end of it leaves only when
    /// the whole is known to be one version.
    fn send_some(&mut self, stream: &Stream, share_bytes: u64, room: &mut [u8]) -> io::Result<Option<u64>> {
        let length = self.left_bytes.min(share_bytes);
        let sent = match &self.form().body {
            Body::Builtin(_) | Body::Memory(_) => {
                let content = self.content_in_memory().expect("both are");
                stream.send(&content[..length as usize], More::No)? as u64
            }
            Body::Descriptor(file) if self.way == Way::Copied => {
                let length = length.min(room.len() as u64) as usize;
                let wanted = &mut room[..length];
                let read = file.read_at(wanted, self.offset)?;
                let is_end = read as u64 == self.left_bytes;
                if read == 0 || (is_end && !self.form().is_unchanged()) {
                    return Ok(None);
                }
                let follows = if is_end { More::No } else { More::Yes };
                stream.send(&wanted[..read], follows)? as u64
            }
            Body::Descriptor(file) => {
                let mut length = length;
                if self.has_waited && self.left_bytes > TAIL_BYTES {
                    length = length.min(self.left_bytes - TAIL_BYTES);
                } else if self.file.is_invalidated() || self.has_waited {
                    // Told of a change, or too long under way to know of none.
                    if !self.form().is_unchanged() {
                        return Ok(None);
                    }
                }
                let mut offset = self.offset;
                match file.send_to(stream, &mut offset, length as usize)? as u64 {
                    // The file ends before it should: it was cut while it was sent.
                    0 => return Ok(None),
                    sent => sent,
                }
            }
        };
        self.offset += sent;
        self.left_bytes -= sent;
        Ok(Some(sent))
    }

    /// How the head before it is sent.
    fn follows_head(&self) -> More {
        if self.left_bytes < HEAD_APART_BYTES { More::Yes } else { More::No }
    }

    /// What is left of it, if it is in memory.
    fn content_in_memory(&self) -> Option<&[u8]> {
        let start = self.offset as usize;
        let part = start..start + self.left_bytes as usize;
        self.form().body.in_memory().map(|content| &content[part])
    }

    /// What is left behind `sent_bytes` more; `None` at the end.
    fn beyond(mut self, sent_bytes: u64) -> Option<Self> {
        self.offset += sent_bytes;
        self.left_bytes -= sent_bytes;
        (self.left_bytes > 0).then_some(self)
    }
}

/// Sends as much of `bytes` as the socket takes.
#[inline]
fn send_bytes(stream: &Stream, bytes: &[u8], follows: More) -> io::Result<usize> {
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

/// Sends as much of `head` and of `content` behind it as the socket takes; how much of both.
fn send_both(stream: &Stream, head: &[u8], content: &[u8], follows: More) -> io::Result<usize> {
    let mut sent = 0;
    while sent < head.len() + content.len() {
        let (of_head, of_content) = split(sent, head.len());
        match stream.send_vectored(&head[of_head..], &content[of_content..], follows) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// How much of a head and how much of what follows it are `sent_bytes` of both.
fn split(sent_bytes: usize, head_bytes: usize) -> (usize, usize) {
    (sent_bytes.min(head_bytes), sent_bytes.saturating_sub(head_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_first_of_the_head_and_then_of_the_content() {
        for (sent, expected) in [(0, (0, 0)), (1, (1, 0)), (9, (9, 0)), (10, (10, 0)), (11, (10, 1)), (17, (10, 7))] {
            assert_eq!(split(sent, 10), expected, "{sent}");
        }
    }
}
