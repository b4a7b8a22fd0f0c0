//! A thread that serves DNS over UDP: it receives a batch of datagrams, answers it and sends the replies, until its
//! sockets are empty; then it waits.
//!
//! Its sockets are in no poller: the thread receives before it waits, and does not wait under load.

use crate::dns::transfers::{self, Begun, Channel, TransferContext};
use crate::dns::updates::{self, Received as ReceivedUpdate, ReplyPlace, UpdateContext};
use crate::lifecycle::{AcceptGuard, DrainMode, State};
use crate::limits::rate_limit::{RateLimit, Verdict, is_answered};
use crate::log::query_log::ThreadQueryLog;
use crate::metrics::{Counter, ThreadMetrics};
use crate::snapshot::Snapshot;
use crate::threads::shared::Shared;
use sanderling_dns::notify::NotifyRequest;
use sanderling_dns::transfer::TransferRequest;
use sanderling_dns::{
    Answer, DnsTransport, Name, ParsedQuery, ReplyClass, RequestInfo, answer_parsed, answer_with_options,
};
use sanderling_os::clock::{unix_ms, unix_seconds};
use sanderling_os::event_fd::EventFd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::udp::{BATCH_COUNT_MAX, Batch, Queries, Socket};
use std::cell::Cell;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Batches of one socket per iteration, so that a flood on one address does not delay another.
const BATCHES_PER_ITERATION_MAX: usize = 8;
/// Errors of one socket in a row after which the thread waits before it receives again.
const ERRORS_PER_ITERATION_MAX: usize = 8;
/// Iterations after the server has stopped: more than a socket's buffer holds, with one datagram in each.
const FINAL_ITERATIONS_MAX: usize = 512;

/// The findings of an iteration in a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Received {
    Nothing,
    /// Datagrams, and the socket is empty now.
    Drained,
    /// Datagrams, and there may be more.
    MaybeMore,
}

/// The parameters of the thread.
pub(crate) struct DatagramParams<'s> {
    /// Several threads may serve one socket: a datagram wakes all that wait, and the first one receives it. That costs
    /// little, as no thread waits under load.
    pub(crate) sockets: Vec<&'s Arc<Socket>>,
    pub(crate) wakeup: Arc<EventFd>,
    pub(crate) metrics: Arc<ThreadMetrics>,
    pub(crate) accept_guard: AcceptGuard<'s>,
}

/// The thread's sockets, and the data from which it answers.
pub(crate) struct Datagrams<'s> {
    shared: &'s Shared,
    sockets: Vec<&'s Arc<Socket>>,
    wakeup: Arc<EventFd>,
    batch: Batch,
    snapshot: Snapshot,
    snapshot_version: u64,
    /// Whether every reply may be limited, have options, be counted in detail, or logged.
    concerns_all: bool,
    rate_limit: RateLimit,
    query_log: Option<ThreadQueryLog>,
    metrics: Arc<ThreadMetrics>,
    _accept_guard: AcceptGuard<'s>,
}

impl<'s> Datagrams<'s> {
    pub(crate) fn new(shared: &'s Shared, params: DatagramParams<'s>) -> Datagrams<'s> {
        let DatagramParams { sockets, wakeup, metrics, accept_guard } = params;
        let (snapshot, snapshot_version) = shared.snapshot();
        let rate_limit = RateLimit::new(&shared.options.dns, Arc::clone(&metrics));
        let mut datagrams = Datagrams {
            shared,
            sockets,
            wakeup,
            batch: Batch::new(),
            concerns_all: false,
            snapshot,
            snapshot_version,
            rate_limit,
            query_log: None,
            metrics,
            _accept_guard: accept_guard,
        };
        datagrams.follow_snapshot();
        datagrams
    }

    /// Serves until the server drains. Received datagrams are answered, and if the server stops, so are those that wait
    /// in the sockets.
    pub(crate) fn run(mut self) {
        let (sockets, wakeup) = (self.sockets.clone(), Arc::clone(&self.wakeup));
        let descriptors = sockets.iter().map(AsFd::as_fd).chain([wakeup.as_fd()]);
        let mut waiting = PollSet::new(descriptors);
        while self.shared.lifecycle.state() == State::Serving {
            self.metrics.heartbeat.begin_iteration();
            if self.shared.snapshot_version() != self.snapshot_version {
                (self.snapshot, self.snapshot_version) = self.shared.snapshot();
                self.follow_snapshot();
            }
            if self.run_once() != Received::MaybeMore {
                self.metrics.heartbeat.begin_waiting();
                // After an error and its pause the sockets are checked anyway.
                let _ = waiting.wait(None);
                if waiting.is_ready(sockets.len()) {
                    self.wakeup.drain();
                }
            }
        }
        if self.shared.lifecycle.state() == State::Draining(DrainMode::Stopping) {
            for _ in 0..FINAL_ITERATIONS_MAX {
                if self.run_once() == Received::Nothing {
                    break;
                }
            }
        }
    }

    /// Enables or disables the settings of the snapshot for all queries.
    fn follow_snapshot(&mut self) {
        self.shared.update_query_log(&mut self.query_log, &self.snapshot);
        self.concerns_all = self.rate_limit.limits_replies()
            || self.snapshot.reply_options.concern_all()
            || self.metrics.statistics.is_some()
            || self.query_log.is_some();
    }

    /// Serves each socket within its budget; the most that was found in one of them.
    #[inline]
    fn run_once(&mut self) -> Received {
        let found = (0..self.sockets.len()).map(|index| self.serve_socket(index)).max().unwrap_or(Received::Nothing);
        if let Some(log) = &self.query_log {
            log.pass_on();
        }
        found
    }

    fn serve_socket(&mut self, index: usize) -> Received {
        let shared = self.sockets[index];
        let socket: &Socket = shared;
        let mut error_count = 0;
        let mut found = Received::Nothing;
        for _ in 0..BATCHES_PER_ITERATION_MAX {
            let received = match socket.receive(&mut self.batch) {
                Ok(received) => received,
                Err(_) => {
                    // The error of an earlier send (an ICMP message) is reported only once.
                    self.metrics.add(Counter::UdpReceiveErrors, 1);
                    error_count += 1;
                    if error_count == ERRORS_PER_ITERATION_MAX {
                        return found;
                    }
                    continue;
                }
            };
            if received != 0 {
                found = Received::Drained;
                // One query that arrives alone must not pay for the slots of a whole batch.
                match received {
                    1 => self.answer_batch::<1>(shared, 1),
                    _ => self.answer_batch::<BATCH_COUNT_MAX>(shared, received),
                }
                let failed_count = socket.send(&mut self.batch);
                self.metrics.add(Counter::UdpRepliesLost, failed_count as u64);
            }
            if !Socket::may_have_more(received) {
                return found;
            }
        }
        Received::MaybeMore
    }

    /// Answers the datagrams of the batch step by step, each step for all of them, so that the memory that one would
    /// wait for is fetched for all at the same time.
    fn answer_batch<const COUNT_MAX: usize>(&mut self, socket: &Arc<Socket>, received_count: usize) {
        let transport = DnsTransport::Udp { reply_bytes_max: self.shared.options.dns.udp_reply_bytes_max };
        let zones = &*self.snapshot.zones;
        let now_unix_s = unix_seconds();
        let (queries, mut replies) = self.batch.queries_and_replies();
        let mut parsed = [ParsedQuery::EMPTY; COUNT_MAX];
        let parsed = &mut parsed[..received_count];
        let (mut dropped, late) = (Marks::default(), Cell::new(Marks::default()));
        let mut has_options = self.concerns_all;
        let parse_panics = each(parsed, |index, parsed| {
            let query = queries.get(index);
            if is_answered(query.peer_port) && !query.is_truncated {
                *parsed = ParsedQuery::parse(zones, query.bytes);
                if parsed.may_have_options() {
                    has_options = true;
                }
            }
        });
        let (snapshot, metrics, query_log) = (&self.snapshot, &*self.metrics, self.query_log.as_ref());
        let mut panic_count = 0;
        if COUNT_MAX > 1 {
            panic_count += each(parsed, |_, parsed| parsed.prefetch_slot()).count();
            panic_count += each(parsed, |_, parsed| parsed.prefetch_records()).count();
        }
        if has_options {
            let limiter = Limiter { rate_limit: &mut self.rate_limit, snapshot, queries, now_unix_s };
            panic_count += limiter.limit(parsed);
        }
        let answer_panics = each(parsed, |index, parsed| {
            let answer = if has_options {
                let late = &late;
                let batch = QueryBatch { socket, queries, transport, now_unix_s, snapshot, metrics, query_log, late };
                batch.answer_apart(index, parsed, replies.buffer())
            } else {
                let info = RequestInfo { client: queries.peer_address(index), transport, now_unix_s };
                answer_parsed(parsed, &info, replies.buffer())
            };
            match answer {
                Answer::Reply(length_bytes) => replies.push(index, length_bytes),
                Answer::NoReply => dropped.set(index),
            }
        });
        panic_count += parse_panics.count() + answer_panics.count();
        self.metrics.add(Counter::DnsUdpQueries, received_count as u64);
        if dropped != Marks::default() || panic_count != 0 {
            // A query whose parsing panicked has no reply either, but is counted as a panic.
            let dropped = dropped.without(parse_panics).without(late.get());
            self.metrics.add(Counter::DnsDropped, dropped.count());
            self.metrics.add(Counter::Panics, panic_count);
        }
    }
}

impl Drop for Datagrams<'_> {
    fn drop(&mut self) {
        self.metrics.heartbeat.begin_waiting();
    }
}

/// Applies the limits of replies to a batch.
struct Limiter<'a> {
    rate_limit: &'a mut RateLimit,
    snapshot: &'a Snapshot,
    queries: Queries<'a>,
    now_unix_s: u64,
}

impl Limiter<'_> {
    /// Drops the queries whose replies would be too many to one network, or has them answered with the flag TC. Returns
    /// the number of panics. Apart, so that other batches do not pay for it.
    #[cold]
    #[inline(never)]
    fn limit(mut self, parsed: &mut [ParsedQuery<'_, '_>]) -> u64 {
        each(parsed, |index, query| {
            if query.is_refused() || self.rate_limit.limits_replies() {
                match self.verdict(index, query) {
                    Verdict::Send => {}
                    Verdict::Truncate => query.truncate_reply(),
                    Verdict::Drop => *query = ParsedQuery::EMPTY,
                }
            }
        })
        .count()
    }

    fn verdict(&mut self, index: usize, query: &ParsedQuery<'_, '_>) -> Verdict {
        let Some(class) = query.reply_class() else { return Verdict::Send };
        let client = self.queries.peer_address(index).ip();
        let Snapshot { rate_limit_policy: policy, reply_options, .. } = self.snapshot;
        let is_exempt = policy.is_exempt(client)
            || query.has_valid_cookie(reply_options, client, self.now_unix_s)
            || self.is_signed(index, query);
        if is_exempt {
            return Verdict::Send;
        }
        let class = match class {
            ReplyClass::Error => self.class_of_allowed(query, client).unwrap_or(class),
            class => class,
        };
        self.rate_limit.take(policy, client, class, self.now_unix_s)
    }

    /// The class of a reply without zone data that is not an error: to NOTIFY, or to a query for a transfer, that a
    /// rule allows to the address of the client, as a primary sends many of them together, one for each of its zones;
    /// to a query for the name of this server, its version or a cookie.
    #[cold]
    fn class_of_allowed(&self, query: &ParsedQuery<'_, '_>, client: IpAddr) -> Option<ReplyClass> {
        let Snapshot { notify, transfers, zones, reply_options, .. } = self.snapshot;
        if query.is_answered_by(reply_options) {
            return Some(self.rate_limit.class_of(query.qname().unwrap_or(Name::ROOT)));
        }
        if let (Some(policy), Some(request)) = (notify, NotifyRequest::new(query)) {
            return policy
                .allows(request.apex(), client, None, zones)
                .then(|| self.rate_limit.class_of(request.apex()));
        }
        let request = TransferRequest::new(query)?;
        transfers.allows(request.apex(), client, None).then(|| self.rate_limit.class_of(request.apex()))
    }
}

impl Limiter<'_> {
    /// Whether a query, an update or NOTIFY has an accepted signature: only then its sender is the one that has the
    /// key.
    fn is_signed(&self, index: usize, query: &ParsedQuery<'_, '_>) -> bool {
        let (options, now_unix_s) = (&*self.snapshot.reply_options, self.now_unix_s);
        if options.tsig_keys.is_empty() {
            return false;
        }
        let message = self.queries.get(index).bytes;
        if let Some(updates) = updates::policy_for(self.snapshot.updates.as_ref(), message) {
            return updates.is_signed(message, options, now_unix_s);
        }
        match NotifyRequest::new(query) {
            Some(mut notify) => notify.verify(&options.tsig_keys, now_unix_s).is_ok() && notify.key().is_some(),
            None => query.has_valid_signature(options, now_unix_s),
        }
    }
}

/// The common state of the queries of a batch.
#[derive(Clone, Copy)]
struct QueryBatch<'b> {
    /// The socket that has received them.
    socket: &'b Arc<Socket>,
    queries: Queries<'b>,
    transport: DnsTransport,
    now_unix_s: u64,
    snapshot: &'b Snapshot,
    metrics: &'b ThreadMetrics,
    query_log: Option<&'b ThreadQueryLog>,
    /// Updates whose replies come later.
    late: &'b Cell<Marks>,
}

impl QueryBatch<'_> {
    /// Answers a query of a batch in which one or more replies may have options. Apart, so that other batches do not
    /// pay for it.
    #[cold]
    #[inline(never)]
    fn answer_apart(self, index: usize, query: &ParsedQuery<'_, '_>, out: &mut [u8]) -> Answer {
        let options = &*self.snapshot.reply_options;
        let client = self.queries.peer_address(index);
        let info = RequestInfo { client, transport: self.transport, now_unix_s: self.now_unix_s };
        let answer = if query.is_refused()
            && let Some(answer) = self.answer_other_server(index, &info, query, out)
        {
            answer
        } else if query.is_concerned_by(options) {
            answer_with_options(query, &info, options, out)
        } else {
            answer_parsed(query, &info, out)
        };
        match answer {
            Answer::Reply(length_bytes) => self.record(&info, query, &out[..length_bytes]),
            Answer::NoReply => {
                if let Some(log) = self.query_log {
                    log.log_query(&info, self.queries.get(index).bytes, unix_ms());
                }
            }
        }
        answer
    }

    /// Counts and logs a reply.
    fn record(self, info: &RequestInfo, query: &ParsedQuery<'_, '_>, reply: &[u8]) {
        if let Some(statistics) = &self.metrics.statistics {
            statistics.count_reply(self.transport, query, reply, &self.snapshot.slots);
        }
        if let Some(log) = self.query_log {
            log.log_reply(info, query, reply, unix_ms());
        }
    }
}

impl QueryBatch<'_> {
    /// The answer to a query for a transfer, to an update, to NOTIFY, or to a query for a restricted zone; `None` if
    /// `query` is not one of them.
    #[cold]
    #[inline(never)]
    fn answer_other_server(
        self,
        index: usize,
        info: &RequestInfo,
        query: &ParsedQuery<'_, '_>,
        out: &mut [u8],
    ) -> Option<Answer> {
        if let Some(request) = TransferRequest::new(query) {
            return Some(self.answer_transfer(info, request, out));
        }
        let message = self.queries.get(index).bytes;
        if let Some(policy) = updates::policy_for(self.snapshot.updates.as_ref(), message) {
            let context = UpdateContext {
                zones: &self.snapshot.zones,
                options: &self.snapshot.reply_options,
                info: *info,
                metrics: self.metrics,
            };
            let path = || Box::new(self.queries.reply_path(index));
            let place = || ReplyPlace::Datagram { socket: Arc::clone(self.socket), path: path() };
            return Some(match policy.receive(message, context, place, out) {
                ReceivedUpdate::Reply(Some(length_bytes)) => Answer::Reply(length_bytes),
                ReceivedUpdate::Reply(None) => Answer::NoReply,
                ReceivedUpdate::Queued => {
                    let mut late = self.late.get();
                    late.set(index);
                    self.late.set(late);
                    Answer::NoReply
                }
            });
        }
        let (zones, options) = (&*self.snapshot.zones, &*self.snapshot.reply_options);
        if let Some(policy) = &self.snapshot.notify
            && let Some(request) = NotifyRequest::new(query)
        {
            let length_bytes = policy.answer(request, info, zones, options, self.metrics, out);
            return Some(length_bytes.map_or(Answer::NoReply, Answer::Reply));
        }
        transfers::answer_restricted(query, info, zones, &self.snapshot.transfers, options, self.metrics, out)
    }

    /// Over UDP there is no transfer, only its first answer.
    fn answer_transfer(self, info: &RequestInfo, request: TransferRequest<'_, '_>, out: &mut [u8]) -> Answer {
        let context = TransferContext {
            zones: &self.snapshot.zones,
            policy: &self.snapshot.transfers,
            options: &self.snapshot.reply_options,
            client: info.client.ip(),
            channel: Channel::Datagram,
            now_unix_s: info.now_unix_s,
            metrics: self.metrics,
        };
        match transfers::begin(request, context, out) {
            Begun::Reply(Some(length_bytes)) => Answer::Reply(length_bytes),
            Begun::Reply(None) | Begun::Transfer(_) => Answer::NoReply,
        }
    }
}

/// Datagrams of a batch, by their indexes. The counts of a batch are the difference of such sets, so that no order of
/// panics and replies makes a count wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks(u32);

const _: () = assert!(BATCH_COUNT_MAX <= u32::BITS as usize);

impl Marks {
    fn set(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn without(self, others: Marks) -> Marks {
        Marks(self.0 & !others.0)
    }

    fn count(self) -> u64 {
        u64::from(self.0.count_ones())
    }
}

/// Does `step` with each of `items`; those that panic: a panic costs the one query that caused it.
fn each<T>(items: &mut [T], mut step: impl FnMut(usize, &mut T)) -> Marks {
    let mut panicked = Marks::default();
    let mut next = 0;
    while next < items.len() {
        let rest = catch_unwind(AssertUnwindSafe(|| {
            while let Some(item) = items.get_mut(next) {
                // Counted before the step: an item that panics is not retried.
                next += 1;
                step(next - 1, item);
            }
        }));
        if rest.is_err() {
            panicked.set(next - 1);
        }
    }
    panicked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_whose_parsing_and_answer_panic_or_whose_reply_comes_later_is_not_counted_as_dropped() {
        let mut items = [(); BATCH_COUNT_MAX];
        let parse_panics = each(&mut items, |index, ()| assert!(![0, 1, 31].contains(&index)));
        let (mut dropped, mut late) = (Marks::default(), Marks::default());
        // 0: the parsing panics, then the answer. 1: the parsing panics. 2: queued, then its log panics. 3: queued.
        // 4: dropped. 31: as 1.
        let answer_panics = each(&mut items, |index, ()| {
            if [2, 3].contains(&index) {
                late.set(index);
            }
            assert!(![0, 2].contains(&index));
            if [1, 3, 4, 31].contains(&index) {
                dropped.set(index);
            }
        });
        assert_eq!((parse_panics.count(), answer_panics.count()), (3, 2));
        assert_eq!(dropped.without(parse_panics).without(late).count(), 1);
    }
}
