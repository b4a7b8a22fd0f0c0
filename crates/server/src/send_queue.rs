//! What a connection still has to send: bytes that the transport did not take yet, and parts of files.

use crate::open_file::{FileContent, FileKey, FileVariant, OpenFile};
use crate::transport::{Transport, split};
use sanderling_http::ContentCoding;
use sanderling_os::tcp::More;
use sanderling_table::Ref;
use std::collections::VecDeque;
use std::io;

/// Bytes of a file that are sent in one iteration, so that a large one does not delay other connections.
const FILE_BYTES_PER_ITERATION_MAX: u64 = 1024 * 1024;
/// From this content length on, the head is sent without `MSG_MORE`: in a segment with the head, the first page of the
/// file would be split at the end of the segment, and all following ones.
const SEPARATE_HEAD_BYTES: u64 = 256 * 1024;
/// Bytes that are held back until `fstat` has shown that the file has not changed: a response that is not complete can
/// still be aborted.
const TAIL_BYTES: u64 = 16 * 1024;

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
    /// The file has changed, so that the rest of the response cannot be sent.
    FileChanged,
}

impl<'s> SendQueue<'s> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Sends `bytes` and then `file`, and queues what the transport does not take. Only for an empty queue. `scratch` is
    /// used for pieces of the file; the bytes sent are added to `progress`.
    ///
    /// The caller passes [`More::Yes`] only if it shuts down sending right after everything is sent: the FIN then
    /// leaves in the segment of the last bytes.
    #[inline]
    pub(crate) fn send(
        &mut self,
        transport: &mut Transport,
        bytes: &[u8],
        file: Option<FileChunk<'s>>,
        more: More,
        scratch: &mut [u8],
        progress: &mut u64,
    ) -> io::Result<Sent> {
        debug_assert!(self.is_empty());
        let Some(file) = file else {
            let sent = transport.send(bytes, more)?;
            *progress += sent as u64;
            if sent == bytes.len() {
                return Ok(Sent::All);
            }
            return Ok(self.queue_rest(&bytes[sent..], None));
        };
        if let Some(content) = file.in_memory() {
            let sent = transport.send_both(bytes, content, more)?;
            *progress += sent as u64;
            let (of_head, of_content) = split(sent, bytes.len());
            let rest = file.after(of_content as u64);
            return Ok(self.queue_rest(&bytes[of_head..], rest));
        }
        let sent = transport.send(bytes, file.more_after_head())?;
        *progress += sent as u64;
        if sent < bytes.len() {
            return Ok(self.queue_rest(&bytes[sent..], Some(file)));
        }
        self.chunks.push_back(Chunk::File(file));
        self.resume(transport, scratch, progress)
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
    pub(crate) fn resume(
        &mut self,
        transport: &mut Transport,
        scratch: &mut [u8],
        progress: &mut u64,
    ) -> io::Result<Sent> {
        while let Some(chunk) = self.chunks.front_mut() {
            match chunk {
                Chunk::Bytes { bytes, sent } => {
                    let count = transport.send(&bytes[*sent..], More::No)?;
                    *progress += count as u64;
                    *sent += count;
                    if *sent < bytes.len() {
                        return Ok(Sent::Blocked);
                    }
                }
                Chunk::File(file) => match file.send(transport, scratch, progress)? {
                    Sent::All => {}
                    unfinished => return Ok(unfinished),
                },
            }
            self.chunks.pop_front();
        }
        // An idle connection holds no buffer.
        self.chunks = VecDeque::new();
        Ok(Sent::All)
    }

    /// The files that are queued.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Ref<'s, FileKey, OpenFile>> {
        self.chunks.iter().filter_map(|chunk| match chunk {
            Chunk::File(file) => Some(&file.file),
            Chunk::Bytes { .. } => None,
        })
    }
}

/// A part of a file.
#[derive(Debug)]
pub(crate) struct FileChunk<'s> {
    /// A counted reference: the response may outlive the iteration, and the worker's cached reference with it.
    file: Ref<'s, FileKey, OpenFile>,
    coding: ContentCoding,
    offset: u64,
    remaining_bytes: u64,
    method: SendMethod,
    /// Sending has waited since the head was written, so that the file may have changed and must be checked.
    must_recheck: bool,
}

/// How a file gets into the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMethod {
    /// By reference to its pages, without a copy (`sendfile(2)`).
    Sendfile,
    /// By a copy, since another process may be writing the file: what was read does not change any more.
    ReadAndSend,
}

impl<'s> FileChunk<'s> {
    /// `length_bytes` of `file` in `coding`, from `offset` on. `may_use_sendfile`: probably no process is writing the file.
    pub(crate) fn new(
        file: &Ref<'s, FileKey, OpenFile>,
        coding: ContentCoding,
        offset: u64,
        length_bytes: u64,
        may_use_sendfile: bool,
    ) -> FileChunk<'s> {
        let method = if may_use_sendfile { SendMethod::Sendfile } else { SendMethod::ReadAndSend };
        FileChunk { file: file.clone(), coding, offset, remaining_bytes: length_bytes, method, must_recheck: false }
    }

    fn variant(&self) -> &FileVariant {
        self.file.variant(self.coding)
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
    }

    fn more_after_head(&self) -> More {
        if self.remaining_bytes < SEPARATE_HEAD_BYTES { More::Yes } else { More::No }
    }

    fn send(&mut self, transport: &mut Transport, scratch: &mut [u8], progress: &mut u64) -> io::Result<Sent> {
        let mut budget = FILE_BYTES_PER_ITERATION_MAX;
        while self.remaining_bytes > 0 {
            if budget == 0 {
                self.must_recheck = true;
                return Ok(Sent::BudgetUsed);
            }
            let Some(sent) = self.send_some(transport, budget, scratch)? else { return Ok(Sent::FileChanged) };
            self.advance(sent as u64);
            *progress += sent as u64;
            budget = budget.saturating_sub(sent as u64);
            if !transport.is_writable() {
                self.must_recheck = true;
                return Ok(Sent::Blocked);
            }
        }
        Ok(Sent::All)
    }

    /// Sends a piece, and nothing if the transport is full; `None` if the file has changed. The last piece leaves only when
    /// the whole is known to be one version of the file.
    fn send_some(&self, transport: &mut Transport, budget_bytes: u64, scratch: &mut [u8]) -> io::Result<Option<usize>> {
        let length = self.remaining_bytes.min(budget_bytes);
        let variant = self.variant();
        let file = match &variant.content {
            FileContent::Memory(_) | FileContent::Builtin(_) => {
                let content = self.in_memory().expect("both are in memory");
                return transport.send(&content[..length as usize], More::No).map(Some);
            }
            FileContent::Descriptor(file) => file,
        };
        match self.method {
            SendMethod::ReadAndSend => {
                let length = scratch.len().min(length as usize);
                let count = file.read_at(&mut scratch[..length], self.offset)?;
                let is_end = count as u64 == self.remaining_bytes;
                if count == 0 || (is_end && !variant.is_unchanged()) {
                    return Ok(None);
                }
                let more = if is_end { More::No } else { More::Yes };
                transport.send(&scratch[..count], more).map(Some)
            }
            SendMethod::Sendfile => {
                let mut length = length;
                if self.must_recheck && self.remaining_bytes > TAIL_BYTES {
                    length = length.min(self.remaining_bytes - TAIL_BYTES);
                } else if (self.file.is_invalidated() || self.must_recheck) && !variant.is_unchanged() {
                    return Ok(None);
                }
                match transport.send_file(file, self.offset, length as usize)? {
                    // The file was truncated while it was sent.
                    Some(0) => Ok(None),
                    sent => Ok(Some(sent.unwrap_or(0))),
                }
            }
        }
    }
}
