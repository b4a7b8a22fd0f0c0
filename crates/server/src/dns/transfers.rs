//! Zone transfers out: which client can have which zone, and how many concurrently.

use crate::limits::rate_limit_policy::IpNetwork;
use crate::metrics::{Counter, ThreadMetrics};
use sanderling_dns::restricted::RestrictedQuery;
use sanderling_dns::transfer::{RecordTooLong, Refusal, TransferRequest, ZoneTransfer};
use sanderling_dns::{Answer, Name, NameBuf, ParsedQuery, ReplyOptions, RequestInfo, Zone, ZoneEntry, ZoneMap};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Clients that may transfer a zone.
#[derive(Clone, Debug)]
pub struct TransferRule {
    /// Their network; `None` for any address.
    pub network: Option<IpNetwork>,
    /// The key that signs their queries; `None` if they need none.
    pub key: Option<NameBuf>,
}

impl TransferRule {
    /// Whether the rule is for `client`, whose query was signed with `key`.
    pub(crate) fn matches(&self, client: IpAddr, key: Option<Name<'_>>) -> bool {
        let has_key = |needed: &NameBuf| key.is_some_and(|key| key.eq_ignore_case(needed.as_name()));
        self.network.is_none_or(|network| network.contains(client)) && self.key.as_ref().is_none_or(has_key)
    }
}

/// Which client may transfer which zone: none, unless a rule allows it.
#[derive(Debug, Default)]
pub struct TransferPolicy {
    /// For zones without their own rules.
    default: Vec<TransferRule>,
    /// By the wire form of their names, in lower case.
    zones: HashMap<Vec<u8>, Vec<TransferRule>>,
    outgoing: Arc<OutgoingTransfers>,
}

/// The transfers of this process: the limit of concurrent ones, and the last one of each zone.
#[derive(Debug, Default)]
pub struct OutgoingTransfers {
    used: AtomicUsize,
    count_max: usize,
    /// By the wire form of the names of zones, in lower case.
    last: Mutex<HashMap<Vec<u8>, LastTransfer>>,
    /// Those that were refused and must be logged.
    refused: Mutex<Vec<RefusedTransfer>>,
}

/// Refused transfers that wait to be logged; more are only counted, so that clients cannot fill a disk.
const REFUSED_MAX: usize = 8;

/// A transfer that no rule allows.
#[derive(Clone, Debug)]
pub struct RefusedTransfer {
    /// The name of the zone.
    pub apex: NameBuf,
    /// The address of the client.
    pub client: IpAddr,
    /// The key that has signed the query.
    pub key: Option<NameBuf>,
}

/// The last transfer of a zone that was written to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTransfer {
    /// The address of the client.
    pub client: IpAddr,
    /// The serial that the client has since then.
    pub serial: u32,
    /// Whether it had only the changes (RFC 1995).
    pub is_incremental: bool,
    /// When it ended, in seconds since 1970.
    pub at_unix_s: u64,
}

impl OutgoingTransfers {
    /// At most `count_max` concurrently.
    pub fn new(count_max: usize) -> OutgoingTransfers {
        OutgoingTransfers { count_max, ..OutgoingTransfers::default() }
    }

    /// The last transfer of the zone at `apex`, if this process has made one.
    pub fn last(&self, apex: Name<'_>) -> Option<LastTransfer> {
        self.last.lock().ok()?.get(&lowercase(apex)).copied()
    }

    /// `zone` was transferred to `client`.
    fn record(&self, zone: &Zone, client: IpAddr, is_incremental: bool, at_unix_s: u64) {
        let transfer = LastTransfer { client, serial: zone.serial(), is_incremental, at_unix_s };
        if let Ok(mut last) = self.last.lock() {
            last.insert(lowercase(zone.apex()), transfer);
        }
    }

    /// The transfers that were refused since the last call.
    pub fn take_refused(&self) -> Vec<RefusedTransfer> {
        self.refused.lock().map(|mut refused| std::mem::take(&mut *refused)).unwrap_or_default()
    }

    fn note_refused(&self, apex: Name<'_>, client: IpAddr, key: Option<Name<'_>>) {
        if let Ok(mut refused) = self.refused.lock()
            && refused.len() < REFUSED_MAX
        {
            refused.push(RefusedTransfer { apex: apex.to_owned(), client, key: key.map(Name::to_owned) });
        }
    }

    fn take(self: &Arc<OutgoingTransfers>) -> Option<Slot> {
        // Relaxed: the number guards no other memory.
        let next = |used| (used < self.count_max).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.ok().map(|_| Slot(Arc::clone(self)))
    }
}

/// The right to one transfer. Dropping it returns it.
#[derive(Debug)]
struct Slot(Arc<OutgoingTransfers>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TransferPolicy {
    /// A policy of these rules, those for single zones with their names.
    pub fn new(
        default: Vec<TransferRule>,
        zones: impl IntoIterator<Item = (NameBuf, Vec<TransferRule>)>,
        outgoing: Arc<OutgoingTransfers>,
    ) -> TransferPolicy {
        let by_name = |(apex, rules): (NameBuf, _)| (lowercase(apex.as_name()), rules);
        TransferPolicy { default, zones: zones.into_iter().map(by_name).collect(), outgoing }
    }

    /// Whether `client`, whose query was signed with `key`, may transfer the zone at `apex`.
    pub(crate) fn allows(&self, apex: Name<'_>, client: IpAddr, key: Option<Name<'_>>) -> bool {
        let rules = self.zones.get(&lowercase(apex)).unwrap_or(&self.default);
        rules.iter().any(|rule| rule.matches(client, key))
    }
}

fn lowercase(name: Name<'_>) -> Vec<u8> {
    name.as_bytes().to_ascii_lowercase()
}

/// A transfer in progress, of the version of the zone with which it has begun.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// The map that has the zone: while a transfer has it, the control thread does not free it, so that no worker does.
    _zones: Arc<ZoneMap>,
    zone: Arc<Zone>,
    writer: ZoneTransfer,
    /// It has changes instead of the whole zone.
    is_incremental: bool,
    client: IpAddr,
    slot: Slot,
}

/// The result of [`Transfer::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// A message of this length.
    Message(usize),
    /// Nothing: the last message was written before.
    End,
    /// A record fits into no message.
    Failed,
}

impl Transfer {
    /// Writes the next message to `out`.
    pub(crate) fn write(&mut self, now_unix_s: u64, out: &mut [u8], metrics: &ThreadMetrics) -> Written {
        match self.writer.write(&self.zone, now_unix_s, out) {
            Ok(Some(length_bytes)) => Written::Message(length_bytes),
            Ok(None) => {
                metrics.add(Counter::DnsTransfersDone, 1);
                self.slot.0.record(&self.zone, self.client, self.is_incremental, now_unix_s);
                Written::End
            }
            Err(RecordTooLong) => {
                metrics.add(Counter::DnsTransfersAborted, 1);
                Written::Failed
            }
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Transfer>() + self.writer.memory_bytes()
    }
}

/// The consequence of a query for a transfer.
pub(crate) enum Begun {
    /// A reply of this length, or none if it does not fit.
    Reply(Option<usize>),
    Transfer(Box<Transfer>),
}

/// How the client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Datagram,
    /// A stream, encrypted as RFC 9103 demands or not at all.
    Stream,
    /// A stream whose encryption RFC 9103 does not allow for transfers.
    OtherEncryption,
}

/// The inputs of the decision about a transfer.
#[derive(Clone, Copy)]
pub(crate) struct TransferContext<'c> {
    pub(crate) zones: &'c Arc<ZoneMap>,
    pub(crate) policy: &'c TransferPolicy,
    pub(crate) options: &'c ReplyOptions,
    pub(crate) client: IpAddr,
    pub(crate) channel: Channel,
    pub(crate) now_unix_s: u64,
    pub(crate) metrics: &'c ThreadMetrics,
}

/// Answers a query for a transfer, or begins it. A reply is written to `out`.
#[cold]
#[inline(never)]
pub(crate) fn begin(mut request: TransferRequest<'_, '_>, context: TransferContext<'_>, out: &mut [u8]) -> Begun {
    let TransferContext { client, now_unix_s, metrics, .. } = context;
    match decide(&mut request, context) {
        Ok(Decision::Soa(zone)) => {
            metrics.add(Counter::DnsTransfersUpToDate, 1);
            Begun::Reply(request.put_soa(&zone, now_unix_s, out))
        }
        Ok(Decision::Datagram(zone)) => match request.put_changes(&zone, now_unix_s, out) {
            Ok(length_bytes) => {
                metrics.add(Counter::DnsTransfersIncremental, 1);
                context.policy.outgoing.record(&zone, client, true, now_unix_s);
                Begun::Reply(Some(length_bytes))
            }
            // RFC 1995 §2: the client asks again over TCP.
            Err(request) => {
                metrics.add(Counter::DnsTransfersUpToDate, 1);
                Begun::Reply(request.put_soa(&zone, now_unix_s, out))
            }
        },
        Ok(Decision::Zone(zone, slot)) => {
            metrics.add(Counter::DnsTransfers, 1);
            let writer = request.begin(&zone);
            let is_incremental = writer.is_incremental();
            metrics.add(Counter::DnsTransfersIncremental, u64::from(is_incremental));
            let _zones = Arc::clone(context.zones);
            Begun::Transfer(Box::new(Transfer { _zones, zone, writer, is_incremental, client, slot }))
        }
        Err((refusal, counter)) => {
            metrics.add(counter, 1);
            Begun::Reply(request.refuse(refusal, now_unix_s, out))
        }
    }
}

/// Answers a query for a zone that only those may see that may transfer it; `None` if it is none, or not allowed. A
/// signature that is not accepted is counted.
#[cold]
#[inline(never)]
pub(crate) fn answer_restricted(
    query: &ParsedQuery<'_, '_>,
    info: &RequestInfo,
    zones: &ZoneMap,
    policy: &TransferPolicy,
    options: &ReplyOptions,
    metrics: &ThreadMetrics,
    out: &mut [u8],
) -> Option<Answer> {
    if let Some(error) = query.signature_error(options, info.now_unix_s) {
        metrics.add(Counter::of_tsig_error(error), 1);
        return None;
    }
    let query = RestrictedQuery::new(zones, query)?;
    let key = query.key(options, info.now_unix_s);
    let is_allowed = policy.allows(query.apex(), info.client.ip(), key.as_ref().map(NameBuf::as_name));
    is_allowed.then(|| query.answer(info, options, out))
}

enum Decision {
    /// Only the SOA.
    Soa(Arc<Zone>),
    /// The changes, if they fit into a datagram.
    Datagram(Arc<Zone>),
    Zone(Arc<Zone>, Slot),
}

fn decide(request: &mut TransferRequest<'_, '_>, context: TransferContext<'_>) -> Result<Decision, (Refusal, Counter)> {
    let TransferContext { zones, policy, options, client, channel, now_unix_s, .. } = context;
    request
        .verify(&options.tsig_keys, now_unix_s)
        .map_err(|error| (Refusal::Tsig(error), Counter::of_tsig_error(error)))?;
    // RFC 5936 §4.2: there is no AXFR over UDP.
    let is_possible = channel != Channel::OtherEncryption && (channel == Channel::Stream || request.is_incremental());
    let is_allowed = policy.allows(request.apex(), client, request.key());
    // The address of a datagram may be false.
    if !is_allowed && channel == Channel::Stream && zones.get(request.apex()).is_some() {
        policy.outgoing.note_refused(request.apex(), client, request.key());
    }
    if !is_possible || !is_allowed {
        return Err((Refusal::NotAllowed, Counter::DnsTransfersRefused));
    }
    let zone = match zones.get(request.apex()) {
        Some(ZoneEntry::Served(zone) | ZoneEntry::Restricted(zone)) => Arc::clone(zone),
        Some(ZoneEntry::Unavailable { .. }) => return Err((Refusal::Unavailable, Counter::DnsTransfersRefused)),
        None => return Err((Refusal::NotAuthoritative, Counter::DnsTransfersRefused)),
    };
    let is_up_to_date = request.is_up_to_date(&zone).map_err(|refusal| (refusal, Counter::DnsTransfersRefused))?;
    if is_up_to_date {
        return Ok(Decision::Soa(zone));
    }
    if channel == Channel::Datagram {
        return Ok(Decision::Datagram(zone));
    }
    let slot = policy.outgoing.take().ok_or((Refusal::Unavailable, Counter::DnsTransfersOverLimit))?;
    Ok(Decision::Zone(zone, slot))
}
