//! The unsent output of a connection: bytes that the transport did not take yet, and parts of files.

use crate::files::open_file::{FileKey, OpenFile};
use crate::net::body_source::BodySource;
use crate::net::file_chunk::{SendContext, Sent};
use crate::net::transport::{Transport, split};
use sanderling_os::tcp::More;
use sanderling_table::Ref;
use std::collections::VecDeque;
use std::io;

/// From this content length on, the head is sent without `MSG_MORE`: in a segment with the head, the first page of the
/// file would be split at the end of the segment, and all following ones.
const SEPARATE_HEAD_BYTES: u64 = 256 * 1024;

/// Sources in the order in which they are sent. Empty while the transport takes everything.
#[derive(Debug, Default)]
pub(crate) struct SendQueue<'s> {
    sources: VecDeque<BodySource<'s>>,
}

impl<'s> SendQueue<'s> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
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

    /// As [`SendQueue::send`], with `source` after `bytes`.
    pub(crate) fn send_with_source(
        &mut self,
        transport: &mut Transport,
        bytes: &[u8],
        source: BodySource<'s>,
        more: More,
        context: &mut SendContext<'_>,
    ) -> io::Result<Sent> {
        debug_assert!(self.is_empty());
        if let Some(content) = source.whole() {
            let sent = transport.send_both(bytes, content, more)?;
            context.sent_bytes += sent as u64;
            let (of_head, of_content) = split(sent, bytes.len());
            let rest = source.after(of_content);
            return Ok(self.queue_rest(&bytes[of_head..], rest));
        }
        let more = if source.remaining_bytes() < SEPARATE_HEAD_BYTES { More::Yes } else { More::No };
        let sent = transport.send(bytes, more)?;
        context.sent_bytes += sent as u64;
        if sent < bytes.len() {
            return Ok(self.queue_rest(&bytes[sent..], Some(source)));
        }
        self.sources.push_back(source);
        self.resume(transport, context)
    }

    /// Adds a source after all others.
    pub(crate) fn push(&mut self, source: BodySource<'s>) {
        self.sources.push_back(source);
    }

    fn queue_rest(&mut self, bytes: &[u8], source: Option<BodySource<'s>>) -> Sent {
        if !bytes.is_empty() {
            self.sources.push_back(BodySource::bytes(bytes));
        }
        if let Some(mut source) = source {
            if let BodySource::File(file) = &mut source {
                file.set_recheck();
            }
            self.sources.push_back(source);
        }
        if self.sources.is_empty() { Sent::All } else { Sent::Blocked }
    }

    /// Sends as much of the queue as the transport takes.
    pub(crate) fn resume(&mut self, transport: &mut Transport, context: &mut SendContext<'_>) -> io::Result<Sent> {
        while let Some(source) = self.sources.front_mut() {
            match source.send(transport, context)? {
                Sent::All => drop(self.sources.pop_front()),
                unfinished => return Ok(unfinished),
            }
        }
        // An idle connection holds no buffer.
        self.sources = VecDeque::new();
        Ok(Sent::All)
    }

    /// Bytes of memory that wait to be sent.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        if self.sources.is_empty() {
            return 0;
        }
        let of_sources = self.sources.iter().map(BodySource::held_bytes).sum::<usize>();
        self.sources.capacity() * size_of::<BodySource<'_>>() + of_sources
    }

    /// The queued files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Ref<'s, FileKey, OpenFile>> {
        self.sources.iter().filter_map(BodySource::file)
    }
}
