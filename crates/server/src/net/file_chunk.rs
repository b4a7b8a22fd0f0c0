//! A part of a file that is being sent, or several parts of it with text between them: into a transport without a copy,
//! or into the room that a frame has.

use crate::clock::Milliseconds;
use crate::files::disk_file::{DiskFile, ReadResult};
use crate::files::file_reads::{FileRead, FileReads};
use crate::files::file_variant::{FileContent, FileVariant};
use crate::files::open_file::{FileKey, OpenFile, VariantId};
use crate::log::access_log::PendingLine;
use crate::net::transport::Transport;
use crate::waiter::Waiter;
use sanderling_os::tcp::More;
use sanderling_table::Ref;
use std::io;
use std::sync::Arc;

/// Bytes of a file that are sent in one iteration, so that a large one does not delay other connections.
const FILE_BYTES_PER_ITERATION_MAX: u64 = 1024 * 1024;
/// Bytes that are held back until `fstat` has shown that the file has not changed: a response that is not complete can
/// still be aborted.
const TAIL_BYTES: u64 = 16 * 1024;
/// How long a transport may take nothing until the rest of the file is copied: pages that wait in the socket of a slow
/// client may be changed after the last comparison of the file's version.
const SLOW_CLIENT_MS: Milliseconds = 100;
/// Bytes of a file that are read in one step where the page cache does not prevent a wait.
const READ_BYTES_MAX: u64 = 64 * 1024;

/// How much was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything was sent.
    All,
    /// The transport takes no more until it becomes writable again.
    Blocked,
    /// The budget of this iteration is used up.
    BudgetUsed,
    /// The next part of a file is being read, and the connection receives an event.
    WaitsForRead,
    /// The same by a backend, which may take as long as it is given.
    WaitsForBackend,
    /// The rest of the response cannot be sent: a file has changed, or a backend has failed.
    CutOff,
}

/// The result of sending or copying one piece of content.
pub(crate) enum Piece {
    /// So many bytes were sent or copied; none if the transport is full.
    Sent(usize),
    WaitsForRead,
    CutOff,
}

/// The state for sending a file.
pub(crate) struct SendContext<'c> {
    /// For pieces of the file.
    pub(crate) scratch: &'c mut [u8],
    pub(crate) reads: &'c FileReads,
    /// Where the event of a read goes.
    pub(crate) waiter: Waiter,
    pub(crate) now_ms: Milliseconds,
    /// The bytes sent are added to this.
    pub(crate) sent_bytes: u64,
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
    /// Separate, because few responses have it and each moves the chunk.
    extras: Option<Box<Extras>>,
}

/// The parts that few responses have.
#[derive(Debug, Default)]
struct Extras {
    /// The text before the part, and how much of it was sent.
    text: Vec<u8>,
    text_sent: usize,
    /// Further parts of the file in the same response, the next one last.
    next_parts: Vec<NextPart>,
    /// The line of the access log for the response.
    line: Option<PendingLine>,
}

/// A further part of a file in a response with several ranges.
#[derive(Debug)]
pub(crate) struct NextPart {
    /// The text before it.
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
    /// By a copy, because another process may be writing the file, or the client is slow: the copied data does not
    /// change.
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

    /// The same, with `text` before it and further parts of the file after it.
    pub(crate) fn with_parts(mut self, text: Vec<u8>, parts: impl DoubleEndedIterator<Item = NextPart>) -> Self {
        let extras = self.extras.get_or_insert_default();
        extras.text = text;
        extras.next_parts = parts.rev().collect();
        self
    }

    /// The text before the part, which is sent separately.
    pub(crate) fn take_text(&mut self) -> Vec<u8> {
        self.extras.as_mut().map(|extras| std::mem::take(&mut extras.text)).unwrap_or_default()
    }

    /// Bytes of the text before the part.
    pub(crate) fn text_bytes(&self) -> usize {
        self.extras.as_ref().map_or(0, |extras| extras.text.len())
    }

    /// The rest of the text before the part.
    fn unsent_text(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| &extras.text[extras.text_sent..])
    }

    fn advance_text(&mut self, sent_bytes: usize) {
        let Some(extras) = &mut self.extras else { return };
        extras.text_sent += sent_bytes;
        if extras.text_sent == extras.text.len() {
            (extras.text, extras.text_sent) = (Vec::new(), 0);
        }
    }

    /// Continues with the next part of the file; whether there is one.
    fn begin_next_part(&mut self) -> bool {
        let Some(extras) = &mut self.extras else { return false };
        let Some(NextPart { text, offset, length_bytes }) = extras.next_parts.pop() else { return false };
        if let Some(line) = &mut extras.line {
            line.add_content(text.len() as u64);
        }
        (extras.text, extras.text_sent) = (text, 0);
        self.offset = offset;
        self.remaining_bytes = length_bytes;
        self.must_recheck = true;
        true
    }

    /// Bytes of memory that wait to be sent.
    pub(crate) fn held_bytes(&self) -> usize {
        let read = if let PieceRead::Bytes { bytes, .. } = &self.read { bytes.capacity() } else { 0 };
        let of_part = |part: &NextPart| size_of::<NextPart>() + part.text.capacity();
        let of_extras = |extras: &Extras| {
            let line = extras.line.as_ref().map_or(0, PendingLine::held_bytes);
            extras.text.capacity() + extras.next_parts.iter().map(of_part).sum::<usize>() + line
        };
        read + self.extras.as_deref().map_or(0, of_extras)
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

    /// The content, if it is one part of a file in memory.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        let is_single =
            self.extras.as_ref().is_none_or(|extras| extras.next_parts.is_empty() && extras.text.is_empty());
        self.in_memory().filter(|_| is_single)
    }

    /// The rest of the part, if the file is in memory.
    fn in_memory(&self) -> Option<&[u8]> {
        let start = self.offset as usize;
        let part = start..start + self.remaining_bytes as usize;
        self.variant().content.in_memory().map(|content| &content[part])
    }

    /// The rest after `sent_bytes` more; `None` at the end.
    pub(crate) fn after(mut self, sent_bytes: u64) -> Option<Self> {
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

    /// Sending waits before the rest, so that the file may change meanwhile.
    pub(crate) fn set_recheck(&mut self) {
        self.must_recheck = true;
    }

    /// Sends as much as the transport takes, within the budget of an iteration.
    pub(crate) fn send(&mut self, transport: &mut Transport, context: &mut SendContext<'_>) -> io::Result<Sent> {
        if let Some(since_ms) = self.blocked_since_ms.take()
            && context.now_ms - since_ms >= SLOW_CLIENT_MS
        {
            self.method = SendMethod::ReadAndSend;
        }
        let mut budget = FILE_BYTES_PER_ITERATION_MAX;
        loop {
            if !self.send_text(transport, context)? {
                return Ok(Sent::Blocked);
            }
            match self.send_part(transport, &mut budget, context)? {
                Sent::All if self.begin_next_part() => {}
                sent => return Ok(sent),
            }
        }
    }

    /// Sends what precedes the part; whether all of it was sent.
    fn send_text(&mut self, transport: &mut Transport, context: &mut SendContext<'_>) -> io::Result<bool> {
        let text = self.unsent_text();
        if text.is_empty() {
            return Ok(true);
        }
        let count = transport.send(text, More::No)?;
        context.sent_bytes += count as u64;
        self.advance_text(count);
        Ok(self.unsent_text().is_empty())
    }

    fn send_part(
        &mut self,
        transport: &mut Transport,
        budget_bytes: &mut u64,
        context: &mut SendContext<'_>,
    ) -> io::Result<Sent> {
        while self.remaining_bytes > 0 {
            if *budget_bytes == 0 {
                self.must_recheck = true;
                return Ok(Sent::BudgetUsed);
            }
            let sent = match self.send_some(transport, *budget_bytes, context)? {
                Piece::Sent(sent) => sent as u64,
                Piece::WaitsForRead => {
                    self.must_recheck = true;
                    return Ok(Sent::WaitsForRead);
                }
                Piece::CutOff => return Ok(Sent::CutOff),
            };
            self.advance(sent);
            context.sent_bytes += sent;
            *budget_bytes = budget_bytes.saturating_sub(sent);
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
            return Ok(Piece::CutOff);
        }
        let more = if is_end { More::No } else { More::Yes };
        transport.send(&scratch[..count], more).map(Piece::Sent)
    }

    fn sendfile(&self, transport: &mut Transport, file: &DiskFile, mut length_bytes: u64) -> io::Result<Piece> {
        if self.must_recheck && self.remaining_bytes > TAIL_BYTES {
            length_bytes = length_bytes.min(self.remaining_bytes - TAIL_BYTES);
        } else if self.may_have_changed() && !file.is_unchanged() {
            return Ok(Piece::CutOff);
        }
        match transport.send_file(file.file(), self.offset, length_bytes as usize)? {
            // The file was truncated while it was sent.
            Some(0) => Ok(Piece::CutOff),
            sent => Ok(Piece::Sent(sent.unwrap_or(0))),
        }
    }

    /// Copies the next bytes into `out`, which has no more room than there are bytes left of the response. The last
    /// ones are copied only if the whole is known to be one version of the file.
    pub(crate) fn fill(
        &mut self,
        out: &mut [u8],
        reads: &FileReads,
        waiter: Waiter,
        now_ms: Milliseconds,
    ) -> io::Result<Piece> {
        if self.remaining_bytes == 0 {
            self.begin_next_part();
        }
        let text = self.unsent_text();
        if !text.is_empty() {
            let count = copy_start(text, out);
            self.advance_text(count);
            return Ok(Piece::Sent(count));
        }
        let length = out.len().min(usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX));
        let piece = self.fill_part(&mut out[..length], reads, waiter, now_ms)?;
        if let Piece::Sent(count) = piece {
            self.advance(count as u64);
        }
        Ok(piece)
    }

    fn fill_part(
        &mut self,
        out: &mut [u8],
        reads: &FileReads,
        waiter: Waiter,
        now_ms: Milliseconds,
    ) -> io::Result<Piece> {
        let FileContent::Descriptor(file) = &self.file.variant(self.variant_id).content else {
            let content = self.in_memory().expect("content without a descriptor is in memory");
            return Ok(Piece::Sent(copy_start(content, out)));
        };
        if let Some(piece) = self.read.poll(file, self.offset, now_ms)? {
            return Ok(piece);
        }
        if let PieceRead::Bytes { bytes, sent } = &mut self.read {
            let count = copy_start(&bytes[*sent..], out);
            *sent += count;
            if *sent == bytes.len() {
                self.read = PieceRead::None;
            }
            return Ok(Piece::Sent(count));
        }
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
            return Ok(Piece::CutOff);
        }
        Ok(Piece::Sent(count))
    }
}

/// Copies as many bytes of `from` as fit into `room`; their number.
pub(crate) fn copy_start(from: &[u8], room: &mut [u8]) -> usize {
    let count = from.len().min(room.len());
    room[..count].copy_from_slice(&from[..count]);
    count
}

impl PieceRead {
    /// Takes the result of a read in progress; `None` if the read data, or the file itself, comes next.
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
                ReadResult::FileChanged => return Ok(Some(Piece::CutOff)),
            },
        };
        Ok(None)
    }

    /// Sends the read data; `None` if the file itself comes next.
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
