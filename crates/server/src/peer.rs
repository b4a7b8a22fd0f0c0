//! What a connection of either protocol shares with its worker: the room it works in, and what it says when it stops.

use crate::clock::{Clock, Milliseconds, ms};
use crate::content::Content;
use crate::files::Files;
use crate::options::Options;
use crate::slab::Key;
use crate::tally::Tally;
use sanderling_dns::answer::TCP_REPLY_BYTES_MAX;
use sanderling_os::tcp::Stream;
use std::io;
use std::time::Duration;

/// Room that all peers of a worker use one after another: a peer that waits for nothing holds none of its own.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// What has been received: first what the peer had kept, then what its socket gives.
    pub(crate) input: Box<[u8]>,
    /// What is to be sent.
    pub(crate) output: Vec<u8>,
    /// One reply of DNS in the making, or a piece of a file on its way.
    pub(crate) scratch: Box<[u8]>,
}

/// Octets of the output after which it is sent before more is written.
pub(crate) const OUTPUT_BYTES_USUAL: usize = 64 * 1024;
/// Octets that are asked of a socket at once, at least.
const RECEIVE_BYTES_MIN: usize = 16 * 1024;
/// The longest message of DNS, with its length.
const DNS_MESSAGE_BYTES_MAX: usize = 2 + TCP_REPLY_BYTES_MAX;

impl Buffers {
    pub(crate) fn new(options: &Options) -> Buffers {
        let kept_bytes_max = options.http.request.head_bytes_max.max(DNS_MESSAGE_BYTES_MAX);
        Buffers {
            input: vec![0; kept_bytes_max + RECEIVE_BYTES_MIN].into_boxed_slice(),
            output: Vec::with_capacity(OUTPUT_BYTES_USUAL),
            scratch: vec![0; TCP_REPLY_BYTES_MAX].into_boxed_slice(),
        }
    }
}

/// What a peer works with during its turn.
pub(crate) struct Context<'w, 's> {
    pub(crate) content: &'w Content,
    pub(crate) files: &'w mut Files<'s>,
    pub(crate) options: &'w Options,
    pub(crate) clock: &'w Clock,
    pub(crate) buffers: &'w mut Buffers,
    pub(crate) tally: &'w Tally,
    /// Who works: the name by which the worker can be asked to come back to it.
    pub(crate) key: Key,
    /// The number of the turn, of all that the worker has given to peers.
    pub(crate) turn: u64,
    /// The server stops: whoever is answered is told to leave, and whoever waits for nothing is let go.
    pub(crate) is_draining: bool,
    /// How much later.
    pub(crate) drain_grace: Duration,
}

impl Context<'_, '_> {
    /// When a peer that waits for nothing is let go at the latest.
    pub(crate) fn leave_by_ms(&self) -> Milliseconds {
        if self.is_draining { self.clock.now_ms() + ms(self.drain_grace) } else { Milliseconds::MAX }
    }
}

/// What was received from a peer, and how far it has been answered.
#[derive(Debug)]
pub(crate) struct Input<'i> {
    bytes: &'i [u8],
    consumed: usize,
}

impl<'i> Input<'i> {
    pub(crate) fn new(bytes: &'i [u8]) -> Input<'i> {
        Input { bytes, consumed: 0 }
    }

    /// What is still to be answered.
    #[inline]
    pub(crate) fn rest(&self) -> &'i [u8] {
        &self.bytes[self.consumed..]
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.consumed == self.bytes.len()
    }

    /// Octets that have been answered.
    pub(crate) fn consumed(&self) -> usize {
        self.consumed
    }

    /// The next `count` octets have been answered.
    #[inline]
    pub(crate) fn skip(&mut self, count: usize) {
        self.consumed += count;
    }

    /// Nobody will answer the rest.
    pub(crate) fn skip_all(&mut self) {
        self.consumed = self.bytes.len();
    }

    /// What was skipped since `consumed` octets had been answered is to be answered all the same.
    pub(crate) fn return_to(&mut self, consumed: usize) {
        debug_assert!(consumed <= self.consumed);
        self.consumed = consumed;
    }
}

/// What a peer wants of its worker next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// To be told when its socket is ready, or when its deadline passes.
    Wait,
    /// To go on in the next turn: it has used its share of this one.
    Again,
    /// To be closed.
    Close,
}

/// What a peer knows of its socket, as edge-triggered readiness has to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// There may be something to receive.
    pub(crate) is_readable: bool,
    /// The peer has ended its side: what there is to receive ends with that, and nothing less proves the socket empty.
    pub(crate) is_ending: bool,
    /// There may be room to send.
    pub(crate) is_writable: bool,
    /// The peer has ended its side.
    pub(crate) has_ended: bool,
}

impl Socket {
    /// A socket that nothing is known of: the first call will tell.
    pub(crate) const FRESH: Socket =
        Socket { is_readable: true, is_ending: false, is_writable: true, has_ended: false };

    /// It has become ready.
    pub(crate) fn note(&mut self, readiness: sanderling_os::poll::Readiness) {
        self.is_readable |= readiness.readable;
        self.is_ending |= readiness.read_closed;
        self.is_writable |= readiness.writable;
    }

    /// Receives what there is, up to the length of `into`; 0 for nothing, or for the end, which is then noted.
    pub(crate) fn receive(&mut self, stream: &Stream, into: &mut [u8]) -> io::Result<usize> {
        match stream.receive(into) {
            Ok(count) => {
                self.has_ended = count == 0;
                // Less than there was room for proves the socket empty (epoll(7)): no call is spent to hear it.
                self.is_readable = !self.has_ended && (count == into.len() || self.is_ending);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

/// What a peer may still send when our side has ended: it is thrown away, so that the peer can read to the end of what it
/// was sent before the connection is reset (RFC 9112 §9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Linger {
    left_bytes: usize,
}

/// Octets that are thrown away of one peer.
const LINGER_BYTES_MAX: usize = 256 * 1024;
/// How long that is done.
const LINGER_MS: Milliseconds = 2_000;

impl Linger {
    /// Ends our side of `stream`. The peer has a time to end its own.
    pub(crate) fn begin(stream: &Stream, schedule: &mut Schedule, clock: &Clock) -> io::Result<Linger> {
        stream.shutdown_write()?;
        schedule.at_ms = clock.now_ms() + LINGER_MS;
        Ok(Linger { left_bytes: LINGER_BYTES_MAX })
    }

    /// Throws away what has come. `room` is lent for it.
    pub(crate) fn go_on(&mut self, stream: &Stream, socket: &mut Socket, room: &mut [u8]) -> io::Result<Next> {
        while socket.is_readable {
            let count = socket.receive(stream, room)?;
            if count >= self.left_bytes {
                return Ok(Next::Close);
            }
            self.left_bytes -= count;
        }
        Ok(if socket.has_ended { Next::Close } else { Next::Wait })
    }
}

/// When a peer has its turn without its socket asking for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// When the peer's patience ends: a deadline that moves with what the peer does.
    pub(crate) at_ms: Milliseconds,
    /// The earliest time that the queue of deadlines has for this peer.
    pub(crate) queued_ms: Milliseconds,
    /// It stands in the list of the unfinished.
    pub(crate) is_unfinished: bool,
    /// The number of its last turn among all that its worker has given: tells which of two was idle for longer when a
    /// millisecond is too coarse to.
    pub(crate) last_turn: u64,
}

impl Schedule {
    pub(crate) fn new(at_ms: Milliseconds) -> Schedule {
        Schedule { at_ms, queued_ms: Milliseconds::MAX, is_unfinished: false, last_turn: 0 }
    }
}
