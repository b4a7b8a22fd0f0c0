//! A thread that serves UDP: receive a batch, answer it, send the answers, until the sockets are empty; then wait.
//!
//! Its sockets stand in no poller: a datagram is asked for before it is waited for, and under load nobody waits.

use crate::content::Content;
use crate::shared::{Shared, Stage};
use crate::tally::{Counter, Tally};
use dns::{Reply, Transport};
use os::udp::{Batch, Socket, Waiting};
use os::wake::Wakeup;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Batches of one socket in one turn, so that a flood on one address does not silence another.
const BATCHES_PER_TURN_MAX: usize = 8;
/// Errors of one socket in a row after which the thread waits before it asks again.
const ERRORS_PER_TURN_MAX: usize = 8;

/// The thread's sockets, and what it answers from.
pub(crate) struct Datagrams<'s> {
    shared: &'s Shared,
    sockets: &'s [Socket],
    wakeup: &'s Wakeup,
    batch: Batch,
    content: Arc<Content>,
    content_version: u64,
    tally: Arc<Tally>,
}

impl<'s> Datagrams<'s> {
    pub(crate) fn new(shared: &'s Shared, sockets: &'s [Socket], wakeup: &'s Wakeup) -> Datagrams<'s> {
        let (content, content_version) = shared.content();
        Datagrams {
            shared,
            sockets,
            wakeup,
            batch: Batch::new(),
            content,
            content_version,
            tally: shared.tallies.enter(),
        }
    }

    /// Serves until the server drains: a query that was received is answered before.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let descriptors = self.sockets.iter().map(AsFd::as_fd).chain([self.wakeup.as_fd()]);
        let mut waiting = Waiting::for_any_of(descriptors);
        while self.shared.stage() == Stage::Serving {
            if self.shared.content_version() != self.content_version {
                (self.content, self.content_version) = self.shared.content();
            }
            if !self.turn() {
                waiting.wait(None)?;
                if waiting.is_last_ready() {
                    self.wakeup.take();
                }
            }
        }
        Ok(())
    }

    /// Drains each socket within a bound; whether one of them may have more.
    fn turn(&mut self) -> bool {
        let mut may_have_more = false;
        for index in 0..self.sockets.len() {
            may_have_more |= self.drain(index);
        }
        may_have_more
    }

    fn drain(&mut self, index: usize) -> bool {
        let socket = &self.sockets[index];
        let mut error_count = 0;
        for _ in 0..BATCHES_PER_TURN_MAX {
            let received = match socket.receive(&mut self.batch) {
                Ok(received) => received,
                Err(_) => {
                    // An error that is pending on the socket (an ICMP message that came back) is told once and is gone.
                    self.tally.add(Counter::UdpReceiveErrors, 1);
                    error_count += 1;
                    if error_count == ERRORS_PER_TURN_MAX {
                        return false;
                    }
                    continue;
                }
            };
            if received != 0 {
                self.answer(received);
                let sent = socket.send(&mut self.batch);
                self.tally.add(Counter::UdpRepliesLost, sent.lost_count as u64);
            }
            if !Socket::may_have_more(received) {
                return false;
            }
        }
        true
    }

    fn answer(&mut self, received_count: usize) {
        self.tally.add(Counter::DnsUdpQueries, received_count as u64);
        let transport = Transport::Udp { reply_bytes_max: self.shared.options.dns.udp_reply_bytes_max };
        for index in 0..received_count {
            let (query, reply) = self.batch.exchange(index);
            // A query of ours that breaks costs that query, and no more.
            let answered = catch_unwind(AssertUnwindSafe(|| {
                if query.peer_port == 0 || query.is_cut_off {
                    return Reply::Silence;
                }
                dns::answer(self.content.zones(), query.bytes, transport, reply)
            }));
            match answered {
                Ok(Reply::Send { length_bytes, .. }) => self.batch.set_reply(index, length_bytes),
                Ok(Reply::Silence) => self.tally.add(Counter::DnsSilences, 1),
                Err(_) => self.tally.add(Counter::Panics, 1),
            }
        }
    }
}
