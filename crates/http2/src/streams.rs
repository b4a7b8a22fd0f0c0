//! A connection's open streams, and the choice of the stream that sends next.

use alloc::vec::Vec;

use crate::priority::Priority;

/// A stream from its header block until its work ends.
#[derive(Debug)]
pub(crate) struct Stream<B> {
    pub(crate) id: u32,
    /// Content that the client takes. A change of its settings can make it negative (RFC 9113 §6.9.2).
    pub(crate) window: i64,
    pub(crate) priority: Priority,
    pub(crate) client_side: ClientSide,
    pub(crate) work: Work<B>,
    /// Content of the request that the caller has not taken; `None` if it does not take it as it arrives.
    pub(crate) passed: Option<Vec<u8>>,
}

/// The part that the client still sends on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientSide {
    /// Content, or trailers. `left_bytes`: those that are left of the Content-Length, if there is one. `window_bytes`:
    /// the bytes for which the client has a window.
    Open { left_bytes: Option<u64>, window_bytes: u32 },
    /// Nothing.
    Ended,
}

impl ClientSide {
    /// Records that the client sends `bytes` of content, perhaps the last; `None` if the length differs from the
    /// announced length (RFC 9113 §8.1.1).
    pub(crate) fn after(self, bytes: u64, is_end: bool) -> Option<ClientSide> {
        let ClientSide::Open { left_bytes, window_bytes } = self else { return Some(self) };
        let left_bytes = match left_bytes {
            Some(left_bytes) => Some(left_bytes.checked_sub(bytes)?),
            None => None,
        };
        match (left_bytes, is_end) {
            (None | Some(0), true) => Some(ClientSide::Ended),
            (Some(_), true) => None,
            (left_bytes, false) => {
                let window_bytes = u64::from(window_bytes).saturating_sub(bytes) as u32;
                Some(ClientSide::Open { left_bytes, window_bytes })
            }
        }
    }
}

#[derive(Debug)]
pub(crate) enum Work<B> {
    /// The content of the request, on which the response depends, has not arrived whole. The content follows the head.
    Receiving { head: Vec<u8>, head_bytes: usize },
    /// The caller cannot answer yet. The client may wait for 100 (Continue), and may have asked for a WebSocket.
    Parked { head: Vec<u8>, awaits_continue: bool, is_connect: bool },
    /// The caller cannot answer yet, and the client has reset the stream. The stream counts until the caller's work has
    /// ended.
    Abandoned,
    /// Content of the response is left. `turn`: when the stream last sent.
    Sending { body: B, left_bytes: u64, turn: u64 },
    /// The response is being sent, and the caller cannot supply the next content yet.
    Stalled { body: B, left_bytes: u64 },
    /// The response is sent whole, and the rest of the request is discarded.
    Discarding,
}

#[derive(Debug)]
pub(crate) struct Streams<B> {
    list: Vec<Stream<B>>,
    turn: u64,
}

/// Streams for which an idle connection keeps memory.
const KEPT_CAPACITY: usize = 4;

impl<B> Streams<B> {
    pub(crate) fn new() -> Streams<B> {
        Streams { list: Vec::new(), turn: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The memory of the list.
    pub(crate) fn list_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Stream<B>>()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream<B>> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream<B>> {
        self.list.iter_mut()
    }

    /// Whether the responses to all requests are sent whole.
    pub(crate) fn are_answered(&self) -> bool {
        self.list.iter().all(|stream| matches!(stream.work, Work::Discarding))
    }

    /// The first stream whose request is discarded.
    pub(crate) fn first_discarded(&self) -> Option<usize> {
        self.list.iter().position(|stream| matches!(stream.work, Work::Discarding))
    }

    pub(crate) fn position(&self, id: u32) -> Option<usize> {
        self.list.iter().position(|stream| stream.id == id)
    }

    pub(crate) fn find_mut(&mut self, id: u32) -> Option<&mut Stream<B>> {
        self.list.iter_mut().find(|stream| stream.id == id)
    }

    pub(crate) fn at(&self, index: usize) -> &Stream<B> {
        &self.list[index]
    }

    pub(crate) fn at_mut(&mut self, index: usize) -> &mut Stream<B> {
        &mut self.list[index]
    }

    pub(crate) fn push(&mut self, stream: Stream<B>) {
        self.list.push(stream);
    }

    pub(crate) fn remove(&mut self, index: usize) -> Stream<B> {
        self.list.swap_remove(index)
    }

    pub(crate) fn clear(&mut self) {
        self.list = Vec::new();
    }

    pub(crate) fn shrink(&mut self) {
        self.list.shrink_to(KEPT_CAPACITY);
    }

    /// The stream that sends next, of those with content and a window.
    ///
    /// RFC 9218 §10: the most urgent stream; among equally urgent streams the first that is not incremental, or if all
    /// are, the stream that has waited longest.
    pub(crate) fn next_to_send(&self) -> Option<usize> {
        let candidates = self.list.iter().enumerate().filter_map(|(index, stream)| match stream.work {
            Work::Sending { turn, .. } if stream.window > 0 => {
                let Priority { urgency, is_incremental } = stream.priority;
                let turn = if is_incremental { turn } else { 0 };
                Some(((urgency, is_incremental, turn, stream.id), index))
            }
            _ => None,
        });
        candidates.min().map(|(_, index)| index)
    }

    /// The number of the next piece of content.
    pub(crate) fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn stream(id: u32, urgency: u8, is_incremental: bool) -> Stream<()> {
        let work = Work::Sending { body: (), left_bytes: 1, turn: 0 };
        let priority = Priority { urgency, is_incremental };
        Stream { id, window: 1, priority, client_side: ClientSide::Ended, work, passed: None }
    }

    /// The order in which the streams send pieces, each stream at most twice.
    fn order(list: Vec<Stream<()>>) -> Vec<u32> {
        let mut streams = Streams { list, turn: 0 };
        let mut order = vec![];
        while let Some(index) = streams.next_to_send() {
            let now = streams.next_turn();
            let stream = streams.at_mut(index);
            order.push(stream.id);
            if order.iter().filter(|id| **id == stream.id).count() == 2 {
                stream.window = 0;
            }
            if let Work::Sending { turn, .. } = &mut stream.work {
                *turn = now;
            }
        }
        order
    }

    #[test]
    fn urgent_streams_are_first_and_incremental_ones_take_turns() {
        assert_eq!(order(vec![stream(5, 3, false), stream(3, 3, false), stream(7, 1, false)]), [7, 7, 3, 3, 5, 5]);
        assert_eq!(order(vec![stream(3, 3, true), stream(5, 3, true), stream(1, 3, true)]), [1, 3, 5, 1, 3, 5]);
        assert_eq!(order(vec![stream(1, 3, true), stream(3, 3, false), stream(5, 0, true)]), [5, 5, 3, 3, 1, 1]);
    }
}
