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
/// The head of a response with so much content is sent by itself: sent together with the head, the file's pages would be
/// cut at the ends of segments.
const SEPARATE_HEAD_BYTES: u64 = 256 * 1024;
/// Bytes of a long response that are held back until the file was checked once more.
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
    /// used for pieces of the file; `progress` is raised by the bytes sent.
    ///
    /// The caller passes [`More::Yes`] only if it shuts down sending right after everything is sent: the FIN then
    /// leaves in the segment of the last bytes.
    #[inline]
    pub(crate) fn send(
        &mut self,
        transport: &mut Transport,
        bytes: &[u8],
        file: Option<FileChunk<'s>>,
        follows: More,
        scratch: &mut [u8],
        progress: &mut u64,
    ) -> io::Result<Sent> {
        debug_assert!(self.is_empty());
        let Some(file) = file else {
            let sent = transport.send(bytes, follows)?;
            *progress += sent as u64;
            if sent == bytes.len() {
                return Ok(Sent::All);
            }
            return Ok(self.queue_rest(&bytes[sent..], None));
        };
        if let Some(content) = file.in_memory() {
            let sent = transport.send_both(bytes, content, follows)?;
            *progress += sent as u64;
            let (of_head, of_content) = split(sent, bytes.len());
            let rest = file.after(of_content as u64);
            return Ok(self.queue_rest(&bytes[of_head..], rest));
        }
        let sent = transport.send(bytes, file.head_follows())?;
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
            file.has_waited = true;
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
    left_bytes: u64,
    method: SendMethod,
    /// Sending has waited, so that the file may have changed since its head was written.
    has_waited: bool,
}

/// How a file gets into the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMethod {
    /// By reference to its pages, without a copy (`sendfile(2)`).
    Pages,
    /// By a copy, since another process may be writing the file: what was read does not change any more.
    Copy,
}

impl<'s> FileChunk<'s> {
    /// `length_bytes` of `file` in `coding`, from `offset` on. `is_settled`: no process is likely to be writing the file.
    pub(crate) fn new(
        file: &Ref<'s, FileKey, OpenFile>,
        coding: ContentCoding,
        offset: u64,
        length_bytes: u64,
        is_settled: bool,
    ) -> FileChunk<'s> {
        let method = if is_settled { SendMethod::Pages } else { SendMethod::Copy };
        FileChunk { file: file.clone(), coding, offset, left_bytes: length_bytes, method, has_waited: false }
    }

    fn variant(&self) -> &FileVariant {
        self.file.variant(self.coding)
    }

    /// What is left, if the file is in memory.
    fn in_memory(&self) -> Option<&[u8]> {
        let start = self.offset as usize;
        let part = start..start + self.left_bytes as usize;
        self.variant().content.in_memory().map(|content| &content[part])
    }

    /// What is left after `sent_bytes` more; `None` at the end.
    fn after(mut self, sent_bytes: u64) -> Option<Self> {
        self.advance(sent_bytes);
        (self.left_bytes > 0).then_some(self)
    }

    fn advance(&mut self, sent_bytes: u64) {
        self.offset += sent_bytes;
        self.left_bytes -= sent_bytes;
    }

    fn head_follows(&self) -> More {
        if self.left_bytes < SEPARATE_HEAD_BYTES { More::Yes } else { More::No }
    }

    fn send(&mut self, transport: &mut Transport, scratch: &mut [u8], progress: &mut u64) -> io::Result<Sent> {
        let mut budget = FILE_BYTES_PER_ITERATION_MAX;
        while self.left_bytes > 0 {
            if budget == 0 {
                self.has_waited = true;
                return Ok(Sent::BudgetUsed);
            }
            let Some(sent) = self.send_some(transport, budget, scratch)? else { return Ok(Sent::FileChanged) };
            self.advance(sent as u64);
            *progress += sent as u64;
            budget = budget.saturating_sub(sent as u64);
            if !transport.is_writable() {
                self.has_waited = true;
                return Ok(Sent::Blocked);
            }
        }
        Ok(Sent::All)
    }

    /// Sends a piece, and nothing if the transport is full; `None` if the file has changed. The last piece leaves only when
    /// the whole is known to be one version of the file.
    fn send_some(&self, transport: &mut Transport, budget_bytes: u64, scratch: &mut [u8]) -> io::Result<Option<usize>> {
        let length = self.left_bytes.min(budget_bytes);
        let variant = self.variant();
        match (&variant.content, self.method) {
            (FileContent::Memory(_) | FileContent::Builtin(_), _) => {
                let content = self.in_memory().expect("both are in memory");
                transport.send(&content[..length as usize], More::No).map(Some)
            }
            (FileContent::Descriptor(_), SendMethod::Copy) => {
                let length = scratch.len().min(length as usize);
                let Some(count) = self.fill(&mut scratch[..length])? else { return Ok(None) };
                let follows = if count as u64 == self.left_bytes { More::No } else { More::Yes };
                transport.send(&scratch[..count], follows).map(Some)
            }
            (FileContent::Descriptor(file), SendMethod::Pages) => {
                let mut length = length;
                if self.has_waited && self.left_bytes > TAIL_BYTES {
                    length = length.min(self.left_bytes - TAIL_BYTES);
                } else if (self.file.is_invalidated() || self.has_waited) && !variant.is_unchanged() {
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

    /// Copies the next bytes into `out`, as many as fit; `None` if the file has changed. The last bytes are copied only if
    /// the whole is known to be one version of the file.
    fn fill(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        let variant = self.variant();
        let file = match &variant.content {
            FileContent::Descriptor(file) => file,
            FileContent::Memory(_) | FileContent::Builtin(_) => {
                let content = self.in_memory().expect("both are in memory");
                let count = out.len().min(content.len());
                out[..count].copy_from_slice(&content[..count]);
                return Ok(Some(count));
            }
        };
        let read = file.read_at(out, self.offset)?;
        let is_end = read as u64 == self.left_bytes;
        let has_changed = read == 0 || (is_end && !variant.is_unchanged());
        Ok((!has_changed).then_some(read))
    }
}
