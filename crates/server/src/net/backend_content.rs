//! The content of a response that comes from a backend, as the client gets it.

use crate::log::access_log::PendingLine;
use crate::net::call::{CallHandle, TakenContent, put_chunk, put_last_chunk};
use crate::net::content_encoder::{ContentEncoder, ENCODER_BYTES};
use crate::net::file_chunk::Sent;
use crate::net::transport::Transport;
use sanderling_os::tcp::More;
use std::io;

/// Bytes that are taken of the call in one step.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Bytes that are sent in one iteration, so that a fast backend and a fast client do not delay other connections.
const BYTES_PER_ITERATION_MAX: usize = 1024 * 1024;

/// The result of copying content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// So many bytes, at least one; more follow.
    Bytes(usize),
    /// The last ones, perhaps none.
    Last(usize),
    /// None yet; the waiter receives an event.
    Awaited,
    /// None: the rest of the response is missing.
    CutOff,
}

/// Content of a backend.
#[derive(Debug)]
pub(crate) struct BackendContent {
    call: CallHandle,
    framing: ContentFraming,
    /// Taken and framed bytes, of which `sent` were sent.
    taken: Vec<u8>,
    sent: usize,
    end: End,
    /// Compresses the content; `None` if it is sent as it is.
    encoder: Option<Box<ContentEncoder>>,
    /// The line of the access log for the response.
    line: Option<PendingLine>,
}

/// How the client of HTTP/1.1 finds the end of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentFraming {
    /// By its length, or by the end of the connection. HTTP/2 frames it itself.
    Plain,
    /// By the chunked transfer coding (RFC 9112 §7.1).
    Chunked,
    /// The same, with the trailers of the backend.
    ChunkedWithTrailers,
}

/// How much of the content was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    More,
    /// All of it.
    Reached,
    /// The rest is missing.
    CutOff,
}

impl BackendContent {
    /// The content of the response of `call`.
    pub(crate) fn new(call: CallHandle, framing: ContentFraming) -> BackendContent {
        BackendContent { call, framing, taken: Vec::new(), sent: 0, end: End::More, encoder: None, line: None }
    }

    /// The same, compressed by this encoder, if there is one.
    pub(crate) fn encoded(self, encoder: Option<Box<ContentEncoder>>) -> BackendContent {
        BackendContent { encoder, ..self }
    }

    /// The content of a tunnel, after the `head` of the response.
    pub(crate) fn of_tunnel(call: CallHandle, head: Vec<u8>) -> BackendContent {
        BackendContent { taken: head, ..BackendContent::new(call, ContentFraming::Plain) }
    }

    /// Its call.
    pub(crate) fn call(&self) -> &CallHandle {
        &self.call
    }

    /// Adds its bytes to those of this line.
    pub(crate) fn set_line(&mut self, line: PendingLine) {
        self.line = Some(line);
    }

    /// Bytes of memory that it holds, without those of the call.
    pub(crate) fn held_bytes(&self) -> usize {
        let of_encoder = self.encoder.as_ref().map_or(0, |_| ENCODER_BYTES);
        self.taken.capacity() + self.call.held_bytes() + of_encoder
    }

    /// Appends what has arrived to `out`; whether that is all.
    pub(crate) fn take_arrived(&mut self, out: &mut Vec<u8>) -> bool {
        if self.taken.is_empty() {
            self.take();
        }
        out.extend_from_slice(&self.taken[self.sent..]);
        (self.taken, self.sent) = (Vec::new(), 0);
        self.end == End::Reached
    }

    /// Sends what has arrived, as much as the transport takes.
    pub(crate) fn send(&mut self, transport: &mut Transport, sent_bytes: &mut u64) -> io::Result<Sent> {
        let mut left_bytes = BYTES_PER_ITERATION_MAX;
        loop {
            let rest = &self.taken[self.sent..];
            if !rest.is_empty() {
                let count = transport.send(rest, More::No)?;
                *sent_bytes += count as u64;
                self.sent += count;
                left_bytes = left_bytes.saturating_sub(count);
                if self.sent < self.taken.len() {
                    return Ok(Sent::Blocked);
                }
                (self.taken, self.sent) = (Vec::new(), 0);
                if left_bytes == 0 {
                    return Ok(Sent::BudgetUsed);
                }
            }
            match self.end {
                End::Reached => return Ok(Sent::All),
                End::CutOff => return Ok(Sent::CutOff),
                End::More => {
                    if !self.take() {
                        return Ok(Sent::WaitsForBackend);
                    }
                }
            }
        }
    }

    /// Copies the next bytes into `room`.
    pub(crate) fn fill(&mut self, room: &mut [u8]) -> Filled {
        let mut filled = 0;
        while filled < room.len() {
            let rest = &self.taken[self.sent..];
            if rest.is_empty() {
                (self.taken, self.sent) = (Vec::new(), 0);
                if self.end != End::More || !self.take() {
                    break;
                }
                continue;
            }
            let count = rest.len().min(room.len() - filled);
            room[filled..filled + count].copy_from_slice(&rest[..count]);
            self.sent += count;
            filled += count;
        }
        let is_taken = self.sent == self.taken.len();
        match self.end {
            End::Reached if is_taken => Filled::Last(filled),
            End::CutOff if is_taken && filled == 0 => Filled::CutOff,
            End::More if filled == 0 => Filled::Awaited,
            _ => Filled::Bytes(filled),
        }
    }

    /// Frames bytes that are sent next.
    fn put(&mut self, content: Vec<u8>) {
        if let Some(line) = &mut self.line {
            line.add_content(content.len() as u64);
        }
        match self.framing {
            ContentFraming::Plain => self.taken = content,
            // A chunk without content would be the last one.
            _ if content.is_empty() => {}
            _ => put_chunk(&content, &mut self.taken),
        }
    }

    /// Takes the next bytes of the call; `false` if there are none yet.
    fn take(&mut self) -> bool {
        match self.call.take_content(PIECE_BYTES_MAX) {
            TakenContent::Bytes(content) => match self.encoder.as_mut().map(|encoder| encoder.put(&content)) {
                None => self.put(content),
                Some(Ok(encoded)) => self.put(encoded),
                Some(Err(_)) => self.end = End::CutOff,
            },
            TakenContent::Awaited => return false,
            TakenContent::End => {
                self.end = End::Reached;
                match self.encoder.take().map(|encoder| encoder.finish()) {
                    None => {}
                    Some(Ok(encoded)) => self.put(encoded),
                    Some(Err(_)) => {
                        self.end = End::CutOff;
                        return true;
                    }
                }
                match self.framing {
                    ContentFraming::Plain => {}
                    ContentFraming::Chunked => put_last_chunk(&[], &mut self.taken),
                    ContentFraming::ChunkedWithTrailers => {
                        put_last_chunk(&self.call.take_trailers(), &mut self.taken);
                    }
                }
            }
            TakenContent::CutOff => self.end = End::CutOff,
        }
        true
    }
}
