//! The source of the content of a response that is sent after the head.

use crate::clock::Milliseconds;
use crate::files::file_reads::FileReads;
use crate::files::open_file::{FileKey, OpenFile};
use crate::log::access_log::PendingLine;
use crate::net::backend_content::{BackendContent, Filled};
use crate::net::file_chunk::{FileChunk, Piece, SendContext, Sent, copy_start};
use crate::net::transport::Transport;
use crate::waiter::Waiter;
use sanderling_os::tcp::More;
use sanderling_table::Ref;
use std::io;

/// The content of a response.
pub(crate) enum Content<'c, 's> {
    Empty,
    /// These bytes, which are written with the head.
    Bytes(&'c [u8]),
    /// `length_bytes` of this source, at least one, or all that it has.
    Later {
        source: BodySource<'s>,
        length_bytes: Option<u64>,
    },
}

/// The content sent after the head, if there is room.
#[derive(Debug)]
pub(crate) enum BodySource<'s> {
    /// The rest of a page.
    Page(&'static [u8]),
    Bytes {
        bytes: Vec<u8>,
        sent: usize,
    },
    File(FileChunk<'s>),
    /// Of a backend, as it arrives.
    Backend(Box<BackendContent>),
}

impl<'s> BodySource<'s> {
    pub(crate) fn bytes(bytes: &[u8]) -> BodySource<'s> {
        BodySource::Bytes { bytes: bytes.to_vec(), sent: 0 }
    }

    /// The rest of bytes in memory, other than those of a file.
    fn rest(&self) -> &[u8] {
        match self {
            BodySource::Page(page) => page,
            BodySource::Bytes { bytes, sent } => &bytes[*sent..],
            BodySource::File(_) | BodySource::Backend(_) => &[],
        }
    }

    /// The content, if it is in memory as a whole.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        match self {
            BodySource::File(file) => file.whole(),
            BodySource::Backend(_) => None,
            source => Some(source.rest()),
        }
    }

    /// The rest of such a source after `sent_bytes` more; `None` at the end.
    pub(crate) fn after(mut self, sent_bytes: usize) -> Option<Self> {
        if let BodySource::File(file) = self {
            return file.after(sent_bytes as u64).map(BodySource::File);
        }
        self.advance(sent_bytes);
        (!self.rest().is_empty()).then_some(self)
    }

    /// Sends as much as the transport takes.
    pub(crate) fn send(&mut self, transport: &mut Transport, context: &mut SendContext<'_>) -> io::Result<Sent> {
        match self {
            BodySource::File(file) => return file.send(transport, context),
            BodySource::Backend(content) => return content.send(transport, &mut context.sent_bytes),
            BodySource::Page(_) | BodySource::Bytes { .. } => {}
        }
        let rest = self.rest();
        let (count, rest_bytes) = (transport.send(rest, More::No)?, rest.len());
        context.sent_bytes += count as u64;
        self.advance(count);
        Ok(if count == rest_bytes { Sent::All } else { Sent::Blocked })
    }

    /// Copies the next bytes into `room`, which is no longer than the rest.
    pub(crate) fn fill(
        &mut self,
        room: &mut [u8],
        reads: &FileReads,
        waiter: Waiter,
        now_ms: Milliseconds,
    ) -> io::Result<Filled> {
        match self {
            BodySource::File(file) => {
                return Ok(match file.fill(room, reads, waiter, now_ms)? {
                    Piece::Sent(count) => Filled::Bytes(count),
                    Piece::WaitsForRead => Filled::Awaited,
                    Piece::CutOff => Filled::CutOff,
                });
            }
            BodySource::Backend(content) => return Ok(content.fill(room)),
            BodySource::Page(_) | BodySource::Bytes { .. } => {}
        }
        let count = copy_start(self.rest(), room);
        self.advance(count);
        Ok(Filled::Bytes(count))
    }

    /// Takes the trailers that follow its last bytes, perhaps none.
    pub(crate) fn take_trailers(&self) -> Vec<u8> {
        match self {
            BodySource::Backend(content) => content.call().take_trailers(),
            BodySource::Page(_) | BodySource::Bytes { .. } | BodySource::File(_) => Vec::new(),
        }
    }

    /// Bytes of text before the first part of a file.
    fn text_bytes(&self) -> usize {
        match self {
            BodySource::File(chunk) => chunk.text_bytes(),
            _ => 0,
        }
    }

    /// Counts its bytes in this line as they are sent.
    pub(crate) fn set_line(&mut self, line: PendingLine) {
        match self {
            BodySource::File(chunk) => chunk.set_line(line),
            BodySource::Backend(content) => content.set_line(line),
            BodySource::Page(_) | BodySource::Bytes { .. } => {}
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            BodySource::Page(page) => *page = &page[count..],
            BodySource::Bytes { sent, .. } => *sent += count,
            BodySource::File(_) | BodySource::Backend(_) => {}
        }
    }

    /// Bytes that it has left of its part; those of a backend are not known.
    pub(crate) fn remaining_bytes(&self) -> u64 {
        match self {
            BodySource::File(file) => file.remaining_bytes(),
            BodySource::Backend(_) => u64::MAX,
            source => source.rest().len() as u64,
        }
    }

    pub(crate) fn file(&self) -> Option<&Ref<'s, FileKey, OpenFile>> {
        match self {
            BodySource::File(chunk) => Some(chunk.file()),
            BodySource::Page(_) | BodySource::Bytes { .. } | BodySource::Backend(_) => None,
        }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            BodySource::Page(_) => 0,
            BodySource::Bytes { bytes, .. } => bytes.capacity(),
            BodySource::File(chunk) => chunk.held_bytes(),
            BodySource::Backend(content) => content.held_bytes(),
        }
    }
}

impl<'s> Content<'_, 's> {
    /// The bytes that are counted immediately, and the source that counts its bytes as they are sent.
    pub(crate) fn counted(&mut self) -> (usize, Option<&mut BodySource<'s>>) {
        match self {
            Content::Empty => (0, None),
            Content::Bytes(bytes) => (bytes.len(), None),
            Content::Later { source: source @ BodySource::Backend(_), .. } => (0, Some(source)),
            Content::Later { source: source @ BodySource::File(_), .. } => (source.text_bytes(), Some(source)),
            Content::Later { source, .. } => (source.rest().len(), None),
        }
    }
}
