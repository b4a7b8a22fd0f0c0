//! What a connection still has to send: bytes that the transport did not take yet, and parts of files.

use crate::access_log::PendingLine;
use crate::clock::Milliseconds;
use crate::disk_file::{DiskFile, ReadResult};
use crate::file_reads::{FileRead, FileReads};
use crate::file_variant::{FileContent, FileVariant};
use crate::open_file::{FileKey, OpenFile, VariantId};
use crate::transport::{Transport, split};
use crate::waiter::Waiter;
use sanderling_os::tcp::More;
use sanderling_table::Ref;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Bytes of a file that are sent in one iteration, so that a large one does not delay other connections.
const FILE_BYTES_PER_ITERATION_MAX: u64 = 1024 * 1024;
/// From this content length on, the head is sent without `MSG_MORE`: in a segment with the head, the first page of the
/// file would be split at the end of the segment, and all following ones.
const SEPARATE_HEAD_BYTES: u64 = 256 * 1024;
/// Bytes that are held back until `fstat` has shown that the file has not changed: a response that is not complete can
/// still be aborted.
const TAIL_BYTES: u64 = 16 * 1024;
/// How long a transport may take nothing until the rest of the file is copied: pages that wait in the socket of a slow
/// client may be changed after the last comparison of the file's version.
const SLOW_CLIENT_MS: Milliseconds = 100;
/// Bytes of a file that are read at once where the page cache does not prevent a wait.
const READ_BYTES_MAX: u64 = 64 * 1024;

/// Chunks in the order in which they are sent. Empty while the transport takes everything.
#[derive(Debug, Default)]
pub(crate) struct SendQueue<'s> {
    chunks: VecDeque<Chunk<'s>>,
}

#[derive(Debug)]
enum Chunk<'s> {
    Bytes { bytes: Vec<u8>, sent: usize },
    File(FileChunk<'s>),
}

/// How far sending came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything was sent.
    All,
    /// The transport takes no more until it becomes writable again.
    Blocked,
    /// The budget of this iteration is used up.
    BudgetUsed,
    /// The next part of a file is being read, and the connection receives a completion.
    WaitsForRead,
    /// The file has changed, so that the rest of the response cannot be sent.
    FileChanged,
}

/// What sending a file needs.
pub(crate) struct SendContext<'c> {
    /// For pieces of the file.
    pub(crate) scratch: &'c mut [u8],
    pub(crate) reads: &'c FileReads,
    /// Where the completion of a read goes.
    pub(crate) waiter: Waiter,
    pub(crate) now_ms: Milliseconds,
    /// The bytes sent are added to this.
    pub(crate) sent_bytes: u64,
}

impl<'s> SendQueue<'s> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Sends `bytes`, and queues what the transport does not take; how far it came, and the bytes sent. Only for an
    /// empty queue.
    ///
    /// The caller passes [`More::Yes`] only if it shuts down sending right after everything is sent: the FIN then
    /// leaves in the segment of the last bytes.
    #[inline]
    pub(crate) fn send(&mut self, transport: &mut Transport, bytes: &[u8], more: More) -> io::Result<(Sent, u64)> {
        debug_assert!(self.is_empty());
        let sent = transport.send(bytes, more)?;
        let result = if sent == bytes.len() { Sent::All } else { self.queue_rest(&bytes[sent..], None) };
        Ok((result, sent as u64))
    }

    /// As [`SendQueue::send`], with `file` after `bytes`.
    pub(crate) fn send_with_file(
        &mut self,
        transport: &mut Transport,
        bytes: &[u8],
        file: FileChunk<'s>,
        more: More,
        context: &mut SendContext<'_>,
    ) -> io::Result<Sent> {
        debug_assert!(self.is_empty());
        if let Some(content) = file.in_memory().filter(|_| file.next_parts().is_empty()) {
            let sent = transport.send_both(bytes, content, more)?;
            context.sent_bytes += sent as u64;
            let (of_head, of_content) = split(sent, bytes.len());
            let rest = file.after(of_content as u64);
            return Ok(self.queue_rest(&bytes[of_head..], rest));
        }
        let sent = transport.send(bytes, file.more_after_head())?;
        context.sent_bytes += sent as u64;
        if sent < bytes.len() {
            return Ok(self.queue_rest(&bytes[sent..], Some(file)));
        }
        self.chunks.push_back(Chunk::File(file));
        self.resume(transport, context)
    }

    fn queue_rest(&mut self, bytes: &[u8], file: Option<FileChunk<'s>>) -> Sent {
        if !bytes.is_empty() {
            self.chunks.push_back(Chunk::Bytes { bytes: bytes.to_vec(), sent: 0 });
        }
        if let Some(mut file) = file {
            file.must_recheck = true;
            self.chunks.push_back(Chunk::File(file));
        }
        if self.chunks.is_empty() { Sent::All } else { Sent::Blocked }
    }

    /// Sends what is queued, as far as the transport takes it.
    pub(crate) fn resume(&mut self, transport: &mut Transport, context: &mut SendContext<'_>) -> io::Result<Sent> {
        while let Some(chunk) = self.chunks.front_mut() {
            match chunk {
                Chunk::Bytes { bytes, sent } => {
                    let count = transport.send(&bytes[*sent..], More::No)?;
                    context.sent_bytes += count as u64;
                    *sent += count;
                    if *sent < bytes.len() {
                        return Ok(Sent::Blocked);
                    }
                }
                Chunk::File(file) => match file.send(transport, context)? {
                    Sent::All => {}
                    unfinished => return Ok(unfinished),
                },
            }
            if let Some(Chunk::File(file)) = self.chunks.pop_front() {
                self.queue_next_part(file);
            }
        }
        // An idle connection holds no buffer.
        self.chunks = VecDeque::new();
        Ok(Sent::All)
    }

    /// Queues what follows a part of a file in its response.
    fn queue_next_part(&mut self, mut file: FileChunk<'s>) {
        let Some(text) = file.next_part() else { return };
        if file.remaining_bytes > 0 {
            self.chunks.push_front(Chunk::File(file));
        }
        self.chunks.push_front(Chunk::Bytes { bytes: text, sent: 0 });
    }

    /// Bytes of memory that wait to be sent.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        if self.chunks.is_empty() {
            return 0;
        }
        let of_chunk = |chunk: &Chunk<'_>| match chunk {
            Chunk::Bytes { bytes, .. } => bytes.capacity(),
            Chunk::File(file) => file.held_bytes(),
        };
        self.chunks.capacity() * size_of::<Chunk<'_>>() + self.chunks.iter().map(of_chunk).sum::<usize>()
    }

    /// The files that are queued.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Ref<'s, FileKey, OpenFile>> {
        self.chunks.iter().filter_map(|chunk| match chunk {
            Chunk::File(file) => Some(&file.file),
            Chunk::Bytes { .. } => None,
        })
    }
}

/// A part of a file, or several parts of it with text between them.
#[derive(Debug)]
pub(crate) struct FileChunk<'s> {
    /// A counted reference: the response may outlive the iteration, and the worker's cached reference with it.
    file: Ref<'s, FileKey, OpenFile>,
    variant_id: VariantId,
    offset: u64,
    remaining_bytes: u64,
    method: SendMethod,
    /// Sending has waited since the head was written, so that the file may have changed and must be checked.
    must_recheck: bool,
    /// Since when the transport has taken nothing.
    blocked_since_ms: Option<Milliseconds>,
    read: PieceRead,
    /// By itself, since few responses have it and each moves the chunk.
    extras: Option<Box<Extras>>,
}

/// What few responses have.
#[derive(Debug, Default)]
struct Extras {
    /// Further parts of the file in the same response, the next one last.
    next_parts: Vec<NextPart>,
    /// The line of the access log for the response.
    line: Option<PendingLine>,
}

/// A further part of a file in a response with several ranges.
#[derive(Debug)]
pub(crate) struct NextPart {
    /// What precedes it.
    pub(crate) text: Vec<u8>,
    pub(crate) offset: u64,
    /// 0 after the last part, where the text is all.
    pub(crate) length_bytes: u64,
}

/// The part of a file that comes next, if it was not in the page cache.
#[derive(Debug)]
enum PieceRead {
    None,
    /// It is being read.
    InProgress(Arc<FileRead>),
    /// It was read, and `sent` bytes of it were sent.
    Bytes {
        bytes: Vec<u8>,
        sent: usize,
    },
}

/// How a file gets into the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMethod {
    /// By reference to its pages, without a copy (`sendfile(2)`), unless it must be encrypted.
    Sendfile,
    /// By a copy, since another process may be writing the file, or the client is slow: what was read does not change
    /// any more.
    ReadAndSend,
}

impl<'s> FileChunk<'s> {
    /// `length_bytes` of a variant of `file`, from `offset` on. `may_use_sendfile`: probably no process is writing the
    /// file.
    pub(crate) fn new(
        file: &Ref<'s, FileKey, OpenFile>,
        variant_id: VariantId,
        offset: u64,
        length_bytes: u64,
        may_use_sendfile: bool,
    ) -> FileChunk<'s> {
        let method = if may_use_sendfile { SendMethod::Sendfile } else { SendMethod::ReadAndSend };
        FileChunk {
            file: file.clone(),
            variant_id,
            offset,
            remaining_bytes: length_bytes,
            method,
            must_recheck: false,
            blocked_since_ms: None,
            read: PieceRead::None,
            extras: None,
        }
    }

    /// Writes `line` to the access log when the chunk has been sent, or is dropped.
    pub(crate) fn set_line(&mut self, line: PendingLine) {
        self.extras.get_or_insert_default().line = Some(line);
    }

    /// The same, with further parts of the file after it.
    pub(crate) fn with_next_parts(mut self, parts: impl DoubleEndedIterator<Item = NextPart>) -> FileChunk<'s> {
        self.extras.get_or_insert_default().next_parts = parts.rev().collect();
        self
    }

    /// Goes on to the next part of the file, and returns what precedes it; `None` after the last one.
    pub(crate) fn next_part(&mut self) -> Option<Vec<u8>> {
        let extras = self.extras.as_mut()?;
        let NextPart { text, offset, length_bytes } = extras.next_parts.pop()?;
        if let Some(line) = &mut extras.line {
            line.add_content(text.len() as u64);
        }
        self.offset = offset;
        self.remaining_bytes = length_bytes;
        self.must_recheck = true;
        Some(text)
    }

    /// Bytes of memory that wait to be sent.
    pub(crate) fn held_bytes(&self) -> usize {
        let read = if let PieceRead::Bytes { bytes, .. } = &self.read { bytes.capacity() } else { 0 };
        let of_part = |part: &NextPart| size_of::<NextPart>() + part.text.capacity();
        let line = self.extras.as_ref().and_then(|extras| extras.line.as_ref()).map_or(0, PendingLine::held_bytes);
        read + self.next_parts().iter().map(of_part).sum::<usize>() + line
    }

    fn next_parts(&self) -> &[NextPart] {
        self.extras.as_ref().map_or(&[], |extras| &extras.next_parts)
    }

    /// Bytes of the file until the end of the part.
    pub(crate) fn remaining_bytes(&self) -> u64 {
        self.remaining_bytes
    }

    pub(crate) fn file(&self) -> &Ref<'s, FileKey, OpenFile> {
        &self.file
    }

    fn variant(&self) -> &FileVariant {
        self.file.variant(self.variant_id)
    }

    /// What remains, if the file is in memory.
    fn in_memory(&self) -> Option<&[u8]> {
        let start = self.offset as usize;
        let part = start..start + self.remaining_bytes as usize;
        self.variant().content.in_memory().map(|content| &content[part])
    }

    /// What remains after `sent_bytes` more; `None` at the end.
    fn after(mut self, sent_bytes: u64) -> Option<Self> {
        self.advance(sent_bytes);
        (self.remaining_bytes > 0).then_some(self)
    }

    fn advance(&mut self, sent_bytes: u64) {
        self.offset += sent_bytes;
        self.remaining_bytes -= sent_bytes;
        if let Some(line) = self.extras.as_mut().and_then(|extras| extras.line.as_mut()) {
            line.add_content(sent_bytes);
        }
    }

    fn more_after_head(&self) -> More {
        if self.remaining_bytes < SEPARATE_HEAD_BYTES { More::Yes } else { More::No }
    }

    fn send(&mut self, transport: &mut Transport, context: &mut SendContext<'_>) -> io::Result<Sent> {
        if let Some(since_ms) = self.blocked_since_ms.take()
            && context.now_ms - since_ms >= SLOW_CLIENT_MS
        {
            self.method = SendMethod::ReadAndSend;
        }
        let mut budget = FILE_BYTES_PER_ITERATION_MAX;
        while self.remaining_bytes > 0 {
            if budget == 0 {
                self.must_recheck = true;
                return Ok(Sent::BudgetUsed);
            }
            let sent = match self.send_some(transport, budget, context)? {
                Piece::Sent(sent) => sent as u64,
                Piece::WaitsForRead => {
                    self.must_recheck = true;
                    return Ok(Sent::WaitsForRead);
                }
                Piece::FileChanged => return Ok(Sent::FileChanged),
            };
            self.advance(sent);
            context.sent_bytes += sent;
            budget = budget.saturating_sub(sent);
            if !transport.is_writable() {
                self.must_recheck = true;
                self.blocked_since_ms = Some(context.now_ms);
                return Ok(Sent::Blocked);
            }
        }
        Ok(Sent::All)
    }

    /// Sends a piece, and nothing if the transport is full. The last piece leaves only when the whole is known to be
    /// one version of the file.
    fn send_some(
        &mut self,
        transport: &mut Transport,
        budget_bytes: u64,
        context: &mut SendContext<'_>,
    ) -> io::Result<Piece> {
        let length = self.remaining_bytes.min(budget_bytes);
        let FileContent::Descriptor(file) = &self.file.variant(self.variant_id).content else {
            let content = self.in_memory().expect("content without a descriptor is in memory");
            return transport.send(&content[..length as usize], More::No).map(Piece::Sent);
        };
        if let Some(piece) = self.read.send(transport, file, self.offset, context.now_ms)? {
            return Ok(piece);
        }
        let length = file.cached_bytes(self.offset, length, context.now_ms);
        if length == 0 {
            let length = self.remaining_bytes.min(READ_BYTES_MAX);
            let is_end = length == self.remaining_bytes;
            let read = context.reads.enqueue(file, self.offset, length as usize, is_end, context.waiter)?;
            self.read = PieceRead::InProgress(read);
            return Ok(Piece::WaitsForRead);
        }
        match self.method {
            SendMethod::Sendfile if !transport.is_encrypted() => self.sendfile(transport, file, length),
            _ => self.read_and_send(transport, file, length, context.scratch),
        }
    }

    fn may_have_changed(&self) -> bool {
        self.file.is_invalidated() || self.must_recheck
    }

    fn read_and_send(
        &self,
        transport: &mut Transport,
        file: &DiskFile,
        length_bytes: u64,
        scratch: &mut [u8],
    ) -> io::Result<Piece> {
        let length = scratch.len().min(length_bytes as usize).min(transport.room_bytes()?);
        if length == 0 {
            return Ok(Piece::Sent(0));
        }
        let count = file.file().read_at(&mut scratch[..length], self.offset)?;
        let is_end = count as u64 == self.remaining_bytes;
        let must_check = is_end && (self.method == SendMethod::ReadAndSend || self.may_have_changed());
        if count == 0 || (must_check && !file.is_unchanged()) {
            return Ok(Piece::FileChanged);
        }
        let more = if is_end { More::No } else { More::Yes };
        transport.send(&scratch[..count], more).map(Piece::Sent)
    }

    fn sendfile(&self, transport: &mut Transport, file: &DiskFile, mut length_bytes: u64) -> io::Result<Piece> {
        if self.must_recheck && self.remaining_bytes > TAIL_BYTES {
            length_bytes = length_bytes.min(self.remaining_bytes - TAIL_BYTES);
        } else if self.may_have_changed() && !file.is_unchanged() {
            return Ok(Piece::FileChanged);
        }
        match transport.send_file(file.file(), self.offset, length_bytes as usize)? {
            // The file was truncated while it was sent.
            Some(0) => Ok(Piece::FileChanged),
            sent => Ok(Piece::Sent(sent.unwrap_or(0))),
        }
    }

    /// Copies the next bytes into `out`, which has no more room than there are bytes left. The last ones are copied
    /// only if the whole is known to be one version of the file.
    pub(crate) fn fill(
        &mut self,
        out: &mut [u8],
        reads: &FileReads,
        waiter: Waiter,
        now_ms: Milliseconds,
    ) -> io::Result<Piece> {
        let count = match &self.file.variant(self.variant_id).content {
            FileContent::Descriptor(file) => {
                if let Some(piece) = self.read.poll(file, self.offset, now_ms)? {
                    return Ok(piece);
                }
                if let PieceRead::Bytes { bytes, sent } = &mut self.read {
                    let count = out.len().min(bytes.len() - *sent);
                    out[..count].copy_from_slice(&bytes[*sent..*sent + count]);
                    *sent += count;
                    if *sent == bytes.len() {
                        self.read = PieceRead::None;
                    }
                    count
                } else {
                    let length = file.cached_bytes(self.offset, out.len() as u64, now_ms) as usize;
                    if length == 0 {
                        // No more than fits: many streams of a connection may wait.
                        let is_end = out.len() as u64 == self.remaining_bytes;
                        let read = reads.enqueue(file, self.offset, out.len(), is_end, waiter)?;
                        self.read = PieceRead::InProgress(read);
                        return Ok(Piece::WaitsForRead);
                    }
                    let count = file.file().read_at(&mut out[..length], self.offset)?;
                    let is_end = count as u64 == self.remaining_bytes;
                    if count == 0 || (is_end && !file.is_unchanged()) {
                        return Ok(Piece::FileChanged);
                    }
                    count
                }
            }
            _ => {
                let content = self.in_memory().expect("content without a descriptor is in memory");
                let count = out.len().min(content.len());
                out[..count].copy_from_slice(&content[..count]);
                count
            }
        };
        self.advance(count as u64);
        Ok(Piece::Sent(count))
    }
}

/// What became of one piece of a file.
pub(crate) enum Piece {
    /// So many bytes were sent or copied; none if the transport is full.
    Sent(usize),
    WaitsForRead,
    FileChanged,
}

impl PieceRead {
    /// Takes the result of a read in progress; `None` if what was read, or the file itself, comes next.
    #[inline]
    fn poll(&mut self, file: &DiskFile, offset: u64, now_ms: Milliseconds) -> io::Result<Option<Piece>> {
        let PieceRead::InProgress(read) = self else { return Ok(None) };
        *self = match read.take_result() {
            None => return Ok(Some(Piece::WaitsForRead)),
            Some(result) => match result? {
                ReadResult::Cached => {
                    file.set_cached(offset, now_ms);
                    PieceRead::None
                }
                ReadResult::Bytes(bytes) => PieceRead::Bytes { bytes, sent: 0 },
                ReadResult::FileChanged => return Ok(Some(Piece::FileChanged)),
            },
        };
        Ok(None)
    }

    /// Sends what was read; `None` if the file itself comes next.
    #[inline]
    fn send(
        &mut self,
        transport: &mut Transport,
        file: &DiskFile,
        offset: u64,
        now_ms: Milliseconds,
    ) -> io::Result<Option<Piece>> {
        if let Some(piece) = self.poll(file, offset, now_ms)? {
            return Ok(Some(piece));
        }
        let PieceRead::Bytes { bytes, sent } = self else { return Ok(None) };
        let count = transport.send(&bytes[*sent..], More::No)?;
        *sent += count;
        if *sent == bytes.len() {
            *self = PieceRead::None;
        }
        Ok(Some(Piece::Sent(count)))
    }
}
