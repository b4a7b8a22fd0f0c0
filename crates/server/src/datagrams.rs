//! A thread that serves UDP: receive a batch, answer it, send the answers, until the sockets are empty; then wait.
//!
//! Its sockets stand in no poller: a datagram is asked for before it is waited for, and under load nobody waits.

use crate::content::Content;
use crate::shared::Shared;
use crate::stage::{Drain, Stage, Taker};
use crate::tally::{Counter, Tally};
use sanderling_dns::{Answered, ParsedQuery, RequestInfo, Transport};
use sanderling_os::event_fd::EventFd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::udp::{BATCH_COUNT_MAX, Batch, Socket};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Stands for the client's address until datagrams bring it.
const UNKNOWN_CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Batches of one socket in one turn, so that a flood on one address does not silence another.
const BATCHES_PER_TURN_MAX: usize = 8;
/// Errors of one socket in a row after which the thread waits before it asks again.
const ERRORS_PER_TURN_MAX: usize = 8;

/// What a turn found in a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Nothing,
    /// Datagrams, behind which it is waited for others.
    Something,
    /// Datagrams, and there may be more of them already.
    More,
}

/// Turns of the last look, when nobody serves on: more than a socket's buffer holds, one datagram in each.
const LAST_TURNS_MAX: usize = 512;

/// What the thread is given.
pub(crate) struct Post<'s> {
    /// Its own, or such that several threads wait for: then a datagram wakes all of them, and the first to ask gets it.
    /// That costs little, as nobody waits for a socket under load.
    pub(crate) sockets: Vec<&'s Socket>,
    pub(crate) wakeup: Arc<EventFd>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) taker: Taker<'s>,
}

/// The thread's sockets, and what it answers from.
pub(crate) struct Datagrams<'s> {
    shared: &'s Shared,
    sockets: Vec<&'s Socket>,
    wakeup: Arc<EventFd>,
    batch: Batch,
    content: Arc<Content>,
    content_version: u64,
    tally: Arc<Tally>,
    _taker: Taker<'s>,
}

impl<'s> Datagrams<'s> {
    pub(crate) fn new(shared: &'s Shared, post: Post<'s>) -> Datagrams<'s> {
        let Post { sockets, wakeup, tally, taker } = post;
        let (content, content_version) = shared.content();
        let batch = Batch::new();
        Datagrams { shared, sockets, wakeup, batch, content, content_version, tally, _taker: taker }
    }

    /// Serves until the server drains: what was received is answered, and what waits in the sockets too if nobody serves
    /// on.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let (sockets, wakeup) = (self.sockets.clone(), Arc::clone(&self.wakeup));
        let descriptors = sockets.iter().map(AsFd::as_fd).chain([wakeup.as_fd()]);
        let mut waiting = PollSet::new(descriptors);
        while self.shared.course.stage() == Stage::Serving {
            self.tally.beat.begin_turn();
            self.take_up_content();
            if self.turn() != Found::More {
                self.tally.beat.begin_waiting();
                waiting.wait(None)?;
                if waiting.is_last_ready() {
                    self.wakeup.drain();
                }
            }
        }
        if self.shared.course.stage() == Stage::Draining(Drain::ForGood) {
            for _ in 0..LAST_TURNS_MAX {
                if self.turn() == Found::Nothing {
                    break;
                }
            }
        }
        Ok(())
    }

    fn take_up_content(&mut self) {
        if self.shared.content_version() != self.content_version {
            (self.content, self.content_version) = self.shared.content();
        }
    }

    /// Drains each socket within a bound; the most that was found in one of them.
    fn turn(&mut self) -> Found {
        (0..self.sockets.len()).map(|index| self.drain(index)).max().unwrap_or(Found::Nothing)
    }

    fn drain(&mut self, index: usize) -> Found {
        let socket = self.sockets[index];
        let mut error_count = 0;
        let mut found = Found::Nothing;
        for _ in 0..BATCHES_PER_TURN_MAX {
            let received = match socket.receive(&mut self.batch) {
                Ok(received) => received,
                Err(_) => {
                    // An error that is pending on the socket (an ICMP message that came back) is told once and is gone.
                    self.tally.add(Counter::UdpReceiveErrors, 1);
                    error_count += 1;
                    if error_count == ERRORS_PER_TURN_MAX {
                        return found;
                    }
                    continue;
                }
            };
            if received != 0 {
                found = Found::Something;
                self.answer(received);
                let sent = socket.send(&mut self.batch);
                self.tally.add(Counter::UdpRepliesLost, sent.failed_count as u64);
            }
            if !Socket::may_have_more(received) {
                return found;
            }
        }
        Found::More
    }

    /// Answers the datagrams of the batch in steps of all of them, so that what one would wait for, from main memory, is
    /// on its way for all at the same time (`sanderling_dns::ParsedQuery`).
    fn answer(&mut self, received_count: usize) {
        let transport = Transport::Udp { reply_bytes_max: self.shared.options.dns.udp_reply_bytes_max };
        let info = RequestInfo { client: UNKNOWN_CLIENT, transport, now_unix_s: 0 };
        let zones = self.content.zones();
        let (queries, mut replies) = self.batch.queries_and_replies();
        let mut asked = [ParsedQuery::EMPTY; BATCH_COUNT_MAX];
        let asked = &mut asked[..received_count];
        let mut silence_count = 0;
        let unread_count = each(asked, |index, asked| {
            let query = queries.get(index);
            if query.peer_port != 0 && !query.is_truncated {
                *asked = ParsedQuery::parse(zones, query.bytes);
            }
        });
        let mut broken_count = each(asked, |_, asked| asked.prefetch_slot());
        broken_count += each(asked, |_, asked| asked.prefetch_records());
        broken_count +=
            each(asked, |index, asked| match sanderling_dns::answer_parsed(asked, &info, replies.buffer()) {
                Answered::Reply(length_bytes) => replies.push(index, length_bytes),
                Answered::Drop => silence_count += 1,
            });
        self.tally.add(Counter::DnsUdpQueries, received_count as u64);
        // What broke while it was read is silent too, but for another reason.
        self.tally.add(Counter::DnsSilences, silence_count - unread_count);
        self.tally.add(Counter::Panics, unread_count + broken_count);
    }
}

impl Drop for Datagrams<'_> {
    fn drop(&mut self) {
        self.tally.beat.begin_waiting();
    }
}

/// Does `step` with each of `items`, and counts those that break: a query of ours that breaks costs that query, and no
/// more.
fn each<T>(items: &mut [T], mut step: impl FnMut(usize, &mut T)) -> u64 {
    let mut panic_count = 0;
    let mut next = 0;
    while next < items.len() {
        let rest = catch_unwind(AssertUnwindSafe(|| {
            while let Some(item) = items.get_mut(next) {
                // Counted before: the one that breaks is not tried again.
                next += 1;
                step(next - 1, item);
            }
        }));
        panic_count += u64::from(rest.is_err());
    }
    panic_count
}
