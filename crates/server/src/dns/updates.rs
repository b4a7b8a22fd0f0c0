//! Dynamic updates (RFC 2136): which of them are accepted, where the control thread finds them, and how they are
//! answered when they have been applied.

use crate::dns::received_updates::{ReceivedUpdates, State};
use crate::metrics::{Counter, ThreadMetrics};
use crate::waiter::Waiter;
use sanderling_dns::update::{UpdateMessage, UpdateRefusal, UpdateResult, is_update, reply_to_malformed};
use sanderling_dns::{Name, NameBuf, ReplyOptions, RequestInfo, ZoneMap};
use sanderling_os::event_fd::EventFd;
use sanderling_os::udp::{ReplyPath, Socket};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Bytes of the longest reply: header, zone, OPT and TSIG with the longest names.
pub(crate) const REPLY_BYTES_MAX: usize = 1_024;

/// The zones that may be changed, and the keys that may do so.
#[derive(Debug)]
pub struct UpdatePolicy {
    /// The keys, by the wire form of the names of the zones, in lower case.
    zones: HashMap<Vec<u8>, Vec<NameBuf>>,
    inbox: Arc<UpdateInbox>,
}

/// The received updates that wait for the control thread.
#[derive(Debug)]
pub struct UpdateInbox {
    waiting: Mutex<Waiting>,
    wakeup: Arc<EventFd>,
    count_max: usize,
}

#[derive(Debug)]
struct Waiting {
    updates: VecDeque<ReceivedUpdate>,
    /// Those that wait, and those that were answered.
    received: ReceivedUpdates,
    /// The number of unanswered updates: those that wait, and those that were taken.
    unanswered_count: usize,
    /// The control thread takes no more.
    is_closed: bool,
}

/// Why an update is not put into the inbox.
enum NotAdded {
    /// There is no room for it.
    Full(Box<ReceivedUpdate>),
    /// It was received before.
    Repeated(Box<ReceivedUpdate>, State),
}

/// An update that some rule may allow.
#[derive(Debug)]
pub struct ReceivedUpdate {
    /// The message, whose signature was checked.
    pub message: UpdateMessage<'static>,
    /// The sender and the transport.
    pub(crate) info: RequestInfo,
    /// When it came.
    pub received_at: Instant,
    pub(crate) place: ReplyPlace,
}

impl ReceivedUpdate {
    /// The sender.
    pub fn client(&self) -> IpAddr {
        self.info.client.ip()
    }
}

/// Where the reply goes.
#[derive(Debug)]
pub(crate) enum ReplyPlace {
    /// The socket that has received the update.
    Datagram { socket: Arc<Socket>, path: Box<ReplyPath> },
    /// The connection that waits for it.
    Stream { waiter: Waiter, reply: Arc<LateReply> },
}

/// A reply that a connection waits for.
#[derive(Debug, Default)]
pub(crate) struct LateReply(OnceLock<Vec<u8>>);

impl LateReply {
    pub(crate) fn set(&self, reply: &[u8]) {
        // It is answered once.
        let _ = self.0.set(reply.to_vec());
    }

    pub(crate) fn get(&self) -> Option<&[u8]> {
        self.0.get().map(Vec::as_slice)
    }
}

impl UpdateInbox {
    /// An inbox for `count_max` updates, which signals `wakeup` when it is no longer empty. It knows the signatures of
    /// the last updates, at most `signatures_max`.
    pub fn new(wakeup: Arc<EventFd>, count_max: usize, signatures_max: usize) -> UpdateInbox {
        let received = ReceivedUpdates::new(signatures_max);
        let waiting = Mutex::new(Waiting { updates: VecDeque::new(), received, unanswered_count: 0, is_closed: false });
        UpdateInbox { waiting, wakeup, count_max }
    }

    /// Notes how an update that was taken is answered.
    pub fn note_answer(&self, update: &ReceivedUpdate, result: UpdateResult) {
        let mut waiting = self.lock();
        waiting.unanswered_count = waiting.unanswered_count.saturating_sub(1);
        if let Some(signature) = update.message.signature() {
            waiting.received.answer(&signature, result);
        }
    }

    /// The number of unanswered updates.
    pub fn unanswered_count(&self) -> usize {
        self.lock().unanswered_count
    }

    /// The arrival of the update that has waited longest.
    pub fn oldest(&self) -> Option<Instant> {
        self.lock().updates.front().map(|update| update.received_at)
    }

    /// Takes the first update and further ones of its zone, at most `count_max`, in the order in which they have come.
    pub fn take_of_one_zone(&self, count_max: usize) -> Vec<ReceivedUpdate> {
        let mut waiting = self.lock();
        let Some(apex) = waiting.updates.front().map(|update| update.message.apex().to_lowercase()) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        for update in std::mem::take(&mut waiting.updates) {
            if taken.len() < count_max && update.message.apex().eq_ignore_case(apex.as_name()) {
                taken.push(update);
            } else {
                waiting.updates.push_back(update);
            }
        }
        taken
    }

    /// Takes the updates that have come before `time`.
    pub fn take_older_than(&self, time: Instant) -> Vec<ReceivedUpdate> {
        let mut waiting = self.lock();
        let count = waiting.updates.iter().take_while(|update| update.received_at < time).count();
        waiting.updates.drain(..count).collect()
    }

    /// Puts updates back that were taken, before the others.
    pub fn put_back(&self, updates: Vec<ReceivedUpdate>) {
        let mut waiting = self.lock();
        updates.into_iter().rev().for_each(|update| waiting.updates.push_front(update));
    }

    /// Takes all, and accepts no more.
    pub fn close(&self) -> Vec<ReceivedUpdate> {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.updates.drain(..).collect()
    }

    fn add(&self, update: ReceivedUpdate) -> Result<(), NotAdded> {
        let mut waiting = self.lock();
        if waiting.is_closed || waiting.updates.len() >= self.count_max {
            return Err(NotAdded::Full(Box::new(update)));
        }
        if let Some(signature) = update.message.signature()
            && let Some(state) = waiting.received.receive(&signature, update.info.now_unix_s)
        {
            return Err(NotAdded::Repeated(Box::new(update), state));
        }
        let was_empty = waiting.updates.is_empty();
        waiting.updates.push_back(update);
        waiting.unanswered_count += 1;
        drop(waiting);
        if was_empty {
            // Without a wakeup, the control thread finds it at its next heartbeat.
            let _ = self.wakeup.signal();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inputs of the decision about an update.
#[derive(Clone, Copy)]
pub(crate) struct UpdateContext<'c> {
    pub(crate) zones: &'c ZoneMap,
    pub(crate) options: &'c ReplyOptions,
    pub(crate) info: RequestInfo,
    pub(crate) metrics: &'c ThreadMetrics,
}

/// The consequence of an update.
pub(crate) enum Received {
    /// A reply of this length, or none if it does not fit.
    Reply(Option<usize>),
    /// The reply comes later.
    Queued,
}

impl UpdatePolicy {
    /// A policy of these zones, each with the keys of its rules. Accepted messages are put into `inbox`.
    pub fn new(zones: impl IntoIterator<Item = (NameBuf, Vec<NameBuf>)>, inbox: Arc<UpdateInbox>) -> UpdatePolicy {
        let by_name = |(apex, keys): (NameBuf, _)| (lowercase(apex.as_name()), keys);
        UpdatePolicy { zones: zones.into_iter().map(by_name).collect(), inbox }
    }

    /// Whether `message` is an update that is signed with a key that may change its zone. The limit of error replies is
    /// not for it.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_signed(&self, message: &[u8], options: &ReplyOptions, now_unix_s: u64) -> bool {
        UpdateMessage::parse(message).is_some_and(|mut update| {
            update.verify(&options.tsig_keys, now_unix_s).is_ok() && self.is_allowed_key(&update)
        })
    }

    /// Whether a rule of the zone is for the key of an accepted signature.
    fn is_allowed_key(&self, update: &UpdateMessage<'_>) -> bool {
        update.key().is_some_and(|key| self.is_key_of(update.apex(), key).unwrap_or(false))
    }

    /// Whether a rule of the zone is for the key; `None` if the zone has no rules.
    fn is_key_of(&self, apex: Name<'_>, key: Name<'_>) -> Option<bool> {
        let keys = self.zones.get(&lowercase(apex))?;
        Some(keys.iter().any(|known| known.as_name().eq_ignore_case(key)))
    }

    /// Receives the update `message`, whose reply goes to `place` if it is not written to `out` immediately.
    #[cold]
    #[inline(never)]
    pub(crate) fn receive(
        &self,
        message: &[u8],
        context: UpdateContext<'_>,
        place: impl FnOnce() -> ReplyPlace,
        out: &mut [u8],
    ) -> Received {
        let UpdateContext { info, metrics, .. } = context;
        let Some(mut update) = UpdateMessage::parse(message) else {
            metrics.add(Counter::DnsUpdatesRefused, 1);
            return Received::Reply(reply_to_malformed(message, out));
        };
        let (update, result) = match self.decide(&mut update, context) {
            Err(result) => {
                metrics.add(Counter::DnsUpdatesRefused, 1);
                (update, result)
            }
            Ok(()) => {
                let message = update.into_owned();
                let received = ReceivedUpdate { message, info, received_at: Instant::now(), place: place() };
                match self.inbox.add(received) {
                    Ok(()) => {
                        metrics.add(Counter::DnsUpdates, 1);
                        return Received::Queued;
                    }
                    Err(NotAdded::Full(update)) => {
                        metrics.add(Counter::DnsUpdatesOverLimit, 1);
                        (update.message, UpdateResult::Refused(UpdateRefusal::Failed))
                    }
                    Err(NotAdded::Repeated(update, state)) => {
                        metrics.add(Counter::DnsUpdatesRepeated, 1);
                        match state {
                            // Its client gets the reply to the first one.
                            State::Pending => return Received::Reply(None),
                            State::Answered(result) => (update.message, result),
                        }
                    }
                }
            }
        };
        Received::Reply(update.reply(result, info.now_unix_s, out))
    }

    fn decide(&self, update: &mut UpdateMessage<'_>, context: UpdateContext<'_>) -> Result<(), UpdateResult> {
        if !update.has_known_edns() {
            return Err(UpdateResult::BadVersion);
        }
        update.verify(&context.options.tsig_keys, context.info.now_unix_s).map_err(|error| {
            context.metrics.add(Counter::of_tsig_error(error), 1);
            UpdateResult::Tsig(error)
        })?;
        let is_served = update.is_of_internet() && context.zones.get(update.apex()).is_some();
        // The signature is remembered until it expires.
        let is_long = update.signature().is_some_and(|signature| signature.is_long());
        match (is_served, self.is_allowed_key(update)) {
            _ if is_long => Err(UpdateResult::Refused(UpdateRefusal::NotAllowed)),
            (false, _) => Err(UpdateResult::Refused(UpdateRefusal::NotAuthoritative)),
            (true, false) => Err(UpdateResult::Refused(UpdateRefusal::NotAllowed)),
            (true, true) => Ok(()),
        }
    }
}

/// Whether `message` is an update that `policy` is for.
pub(crate) fn policy_for<'p>(policy: Option<&'p Arc<UpdatePolicy>>, message: &[u8]) -> Option<&'p UpdatePolicy> {
    policy.filter(|_| is_update(message)).map(|policy| &**policy)
}

fn lowercase(name: Name<'_>) -> Vec<u8> {
    name.as_bytes().to_ascii_lowercase()
}
