//! NOTIFY from primary servers (RFC 1996): which of them are accepted, and where the control thread finds them.

use crate::dns::transfers::TransferRule;
use crate::metrics::{Counter, ThreadMetrics};
use sanderling_dns::notify::{NotifyAnswer, NotifyRequest};
use sanderling_dns::{Name, NameBuf, ReplyOptions, RequestInfo, ZoneMap};
use sanderling_os::event_fd::EventFd;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The zones that this server is a secondary of, and their primaries.
#[derive(Debug)]
pub struct NotifyPolicy {
    /// By the wire form of their names, in lower case.
    zones: HashMap<Vec<u8>, Vec<TransferRule>>,
    /// The primaries of zones that catalogs bring.
    members: Vec<TransferRule>,
    inbox: Arc<NotifyInbox>,
}

/// The last received message of each zone, so that no flood fills it.
#[derive(Debug)]
pub struct NotifyInbox {
    received: Mutex<HashMap<Vec<u8>, ReceivedNotify>>,
    wakeup: Arc<EventFd>,
}

/// An accepted NOTIFY.
#[derive(Clone, Debug)]
pub struct ReceivedNotify {
    /// The name of the zone.
    pub apex: NameBuf,
    /// The serial that the sender has, if it says so.
    pub serial: Option<u32>,
    /// The sender.
    pub from: IpAddr,
}

impl NotifyInbox {
    /// An empty inbox, which signals `wakeup` when it is no longer empty.
    pub fn new(wakeup: Arc<EventFd>) -> NotifyInbox {
        NotifyInbox { received: Mutex::default(), wakeup }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes all.
    pub fn take(&self) -> Vec<ReceivedNotify> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *received).into_values().collect()
    }

    fn add(&self, notify: ReceivedNotify) -> io::Result<()> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = received.is_empty();
        received.insert(lowercase(notify.apex.as_name()), notify);
        drop(received);
        if was_empty { self.wakeup.signal() } else { Ok(()) }
    }
}

impl NotifyPolicy {
    /// A policy of these zones, each with its primaries, and of all other zones, which may have the primaries
    /// `members`. Accepted messages are put into `inbox`.
    pub fn new(
        zones: impl IntoIterator<Item = (NameBuf, Vec<TransferRule>)>,
        members: Vec<TransferRule>,
        inbox: Arc<NotifyInbox>,
    ) -> NotifyPolicy {
        let by_name = |(apex, rules): (NameBuf, _)| (lowercase(apex.as_name()), rules);
        NotifyPolicy { zones: zones.into_iter().map(by_name).collect(), members, inbox }
    }

    /// The rules for a zone, which is one of `zones` unless it has its own rules: no flood of names fills the inbox.
    fn rules(&self, apex: Name<'_>, zones: &ZoneMap) -> Option<&[TransferRule]> {
        let of_member = || (!self.members.is_empty() && zones.get(apex).is_some()).then_some(&self.members[..]);
        self.zones.get(&lowercase(apex)).map(Vec::as_slice).or_else(of_member)
    }

    /// Whether `client`, whose NOTIFY for the zone at `apex` was signed with `key`, is one of the primaries of the
    /// zone.
    pub(crate) fn allows(&self, apex: Name<'_>, client: IpAddr, key: Option<Name<'_>>, zones: &ZoneMap) -> bool {
        self.rules(apex, zones).is_some_and(|rules| rules.iter().any(|rule| rule.matches(client, key)))
    }

    /// Writes the answer to `request` to `out`; its length, or `None` if it does not fit.
    #[cold]
    #[inline(never)]
    pub(crate) fn answer(
        &self,
        mut request: NotifyRequest<'_>,
        info: &RequestInfo,
        zones: &ZoneMap,
        options: &ReplyOptions,
        metrics: &ThreadMetrics,
        out: &mut [u8],
    ) -> Option<usize> {
        let (client, now_unix_s) = (info.client.ip(), info.now_unix_s);
        let answer = match request.verify(&options.tsig_keys, now_unix_s) {
            Err(error) => {
                metrics.add(Counter::of_tsig_error(error), 1);
                NotifyAnswer::Tsig(error)
            }
            Ok(()) => match self.rules(request.apex(), zones) {
                None => NotifyAnswer::NotSecondary,
                Some(rules) if rules.iter().any(|rule| rule.matches(client, request.key())) => {
                    let (apex, serial) = (request.apex().to_owned(), request.serial());
                    // Without a wakeup, the control thread finds it at its next heartbeat.
                    let _ = self.inbox.add(ReceivedNotify { apex, serial, from: client });
                    NotifyAnswer::Accepted
                }
                Some(_) => NotifyAnswer::NotAllowed,
            },
        };
        request.reply(answer, now_unix_s, out)
    }
}

fn lowercase(name: Name<'_>) -> Vec<u8> {
    name.as_bytes().to_ascii_lowercase()
}
