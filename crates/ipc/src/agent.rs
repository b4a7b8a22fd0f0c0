//! The messages of the agent and the other processes in sealed memory: challenges for certificate authorities
//! ([`FdKind::Challenges`](crate::FdKind::Challenges)), a report for the operator
//! ([`FdKind::AgentReport`](crate::FdKind::AgentReport)), the zones that are served
//! ([`FdKind::ServedZones`](crate::FdKind::ServedZones)), and their journals
//! ([`FdKind::Journals`](crate::FdKind::Journals)).

use sanderling_os::memfd;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of a file, except journals.
const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of changes of a zone that are handed over. With more changes, the server process loads the whole zone.
pub const ZONE_CHANGES_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a zone's dynamic updates: more than the limit `zone_updates_bytes_max` allows.
const UPDATES_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Bytes of journals after which no further journal is put into the same file.
const JOURNALS_BYTES_MIN: usize = 8 * 1024 * 1024;
/// Maximum bytes of a journal file, whose last journal may be as long as the limit `zone_journal_bytes_max` allows.
const JOURNALS_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// A challenge (RFC 8555 §8).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Challenge {
    /// Over HTTP (§8.3).
    Http {
        /// The last part of the path.
        token: String,
        /// The content at this path.
        content: String,
    },
    /// In the zone (§8.4).
    Dns {
        /// The name of the TXT record.
        name: String,
        /// The text of the TXT record.
        text: String,
    },
}

/// The agent's state, for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentReport {
    /// The requested certificates, in the order of the configuration.
    pub certificates: Vec<CertificateReport>,
    /// The zones that have primary or secondary servers, in the order of their names.
    pub zones: Vec<ZoneReport>,
    /// The scheduled events, sorted by time.
    pub schedule: Vec<ScheduledTask>,
}

/// A requested certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateReport {
    /// The domain, which is also its folder's name.
    pub name: String,
    /// The names that the certificate is for.
    pub names: Vec<String>,
    /// The authority of the order in progress, or of the next one.
    pub authority: String,
    /// Whether an order is in progress.
    pub is_in_progress: bool,
    /// The order's progress.
    pub progress: Option<String>,
    /// The issued certificate; `None` if none was issued.
    pub issued: Option<IssuedReport>,
    /// Failed attempts since the last success.
    pub failure_count: u32,
    /// The cause of the last failure, and the remedy.
    pub last_error: Option<String>,
    /// The names left out of the request, since they have failed.
    #[serde(default)]
    pub failing_names: Vec<FailingNameReport>,
}

/// A name that a certificate is requested without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingNameReport {
    /// The name.
    pub name: String,
    /// Failed attempts in a row.
    pub failure_count: u32,
    /// The cause of the last failure, and the remedy.
    pub last_error: String,
    /// The time when the name is retried.
    pub next_attempt_unix_s: u64,
}

/// An issued certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedReport {
    /// The names in the certificate.
    pub names: Vec<String>,
    /// The issuer's name.
    pub issuer: String,
    /// The beginning of its validity, in seconds since 1970.
    pub not_before_unix_s: u64,
    /// The end of its validity, in seconds since 1970.
    pub not_after_unix_s: u64,
}

/// A served zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedZone {
    /// The zone's name.
    pub name: String,
    /// The serial of the served version; `None` if there is no good version.
    pub serial: Option<u32>,
    /// Whether the operator writes the zone file.
    #[serde(default)]
    pub is_of_operator: bool,
    /// Whether the current file has errors, so that an earlier version or none is served.
    #[serde(default)]
    pub has_error: bool,
    /// The `ALIAS` targets in the zone file, in lower case and without a dot at the end.
    #[serde(default)]
    pub alias_targets: Vec<String>,
}

/// The served zones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedZones {
    /// The zones that concern the agent.
    pub zones: Vec<ServedZone>,
    /// Whether the list is complete: the zone folder could be listed, or there is none.
    pub is_complete: bool,
}

/// Dynamic updates of a zone to store, which come with it ([`FdKind::Updates`](crate::FdKind::Updates)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatesToStore {
    /// The zone's name.
    pub zone: String,
    /// Identifies the updates among all updates that their process has applied.
    pub id: UpdatesId,
    /// The SHA-256 at the end of the stored content to replace; `None` if nothing is stored. If the digest differs,
    /// another process has stored updates meanwhile, which must not be lost.
    pub replaces: Option<[u8; 32]>,
}

/// The number of a version that dynamic updates have made, and the process that has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatesId {
    /// The process ID.
    pub pid: u32,
    /// Counts the process's versions.
    pub number: u64,
}

/// The outcome of [`UpdatesToStore`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatesOutcome {
    /// The zone's name.
    pub zone: String,
    /// Identifies the stored updates.
    pub id: UpdatesId,
    /// The result of storing the updates.
    pub result: StoreResult,
    /// The serial of the version that the agent has signed with the updates, and hands over next; `None` if it does not
    /// sign the zone.
    #[serde(default)]
    pub serial: Option<u32>,
}

/// The result of storing updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreResult {
    /// The updates are stored, and survive a crash.
    Stored,
    /// Rejected: the stored version is not the one it was based on.
    Outdated,
    /// The updates are not stored, because of an error that the agent has logged.
    Failed,
}

/// Writes the result of a zone's dynamic updates.
pub fn updates_to_memfd(content: &[u8]) -> io::Result<OwnedFd> {
    memfd::create("updates", content)
}

/// Reads the output of [`updates_to_memfd`].
///
/// # Errors
/// Returns an error if the memory can change, or has too many bytes.
pub fn updates_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<u8>> {
    check_sealed(&descriptor)?;
    memfd::read(descriptor, UPDATES_BYTES_MAX)
}

/// Writes changes of a zone, in the form of a log.
pub fn zone_changes_to_memfd(changes: &[u8]) -> io::Result<OwnedFd> {
    memfd::create("zone-changes", changes)
}

/// Reads the output of [`zone_changes_to_memfd`].
///
/// # Errors
/// Returns an error if the memory can change, or has too many bytes.
pub fn zone_changes_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<u8>> {
    check_sealed(&descriptor)?;
    memfd::read(descriptor, ZONE_CHANGES_BYTES_MAX)
}

/// A primary server says that a zone has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneNotify {
    /// The zone's name.
    pub name: String,
    /// The serial on the primary, if it says so.
    pub serial: Option<u32>,
    /// The server.
    pub from: IpAddr,
}

/// A zone, and its other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneReport {
    /// The zone's name.
    pub name: String,
    /// The state of the transfers, if the zone has primary servers.
    pub transfer: Option<TransferReport>,
    /// The state of the signing, if the zone is signed.
    #[serde(default)]
    pub signing: Option<SigningReport>,
    /// The reason why the zone accepts no dynamic updates, if it is not signed.
    #[serde(default)]
    pub updates_problem: Option<String>,
    /// The reason why the catalog is not up to date, if the zone is a catalog of this server.
    #[serde(default)]
    pub catalog_problem: Option<String>,
    /// The `ALIAS` targets in the zone file.
    #[serde(default)]
    pub aliases: Vec<AliasReport>,
    /// The zone's secondary servers, in configuration order.
    pub secondaries: Vec<NotifyReport>,
}

/// The state of a zone that is transferred from primary servers. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferReport {
    /// The transferred version; `None` if there is none, or if it has expired.
    pub serial: Option<u32>,
    /// The server that the version came from.
    pub from: Option<SocketAddr>,
    /// The time of the transfer.
    pub transferred_at_unix_s: Option<u64>,
    /// The last time when a primary confirmed that the version is current.
    pub checked_at_unix_s: Option<u64>,
    /// The time when the version expires, unless a primary confirms it.
    pub expires_at_unix_s: Option<u64>,
    /// The time when the primaries are asked again.
    pub next_at_unix_s: u64,
    /// Failed rounds through all primaries since the last successful round.
    pub failure_count: u32,
    /// The records outside the zone that a primary has transferred.
    pub left_out: Option<String>,
    /// The reason why the last round failed, or the problem of the version.
    pub problem: Option<String>,
}

/// The target of an `ALIAS`. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliasReport {
    /// The name that has the addresses.
    pub target: String,
    /// The served addresses.
    pub addresses: Vec<IpAddr>,
    /// The time when resolvers are asked again.
    pub next_at_unix_s: u64,
    /// The reason why the target has no addresses, or why they may be old.
    pub problem: Option<String>,
}

/// A signed zone's state. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningReport {
    /// The signed version; `None` if there is none yet.
    pub serial: Option<u32>,
    /// The time when signatures are renewed.
    pub sign_again_at_unix_s: Option<u64>,
    /// The reason why the zone file is not used, or the zone not signed.
    pub problem: Option<String>,
    /// The changes by dynamic updates to the zone file; `None` if the zone can have none.
    pub updates: Option<UpdatesReport>,
}

/// The differences between a zone's records and its file due to dynamic updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatesReport {
    /// Records that the updates add.
    pub added: usize,
    /// Records of the file that the updates remove.
    pub removed: usize,
    /// There were no updates since the file was written.
    pub is_none: bool,
}

/// The state of NOTIFY for a secondary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifyReport {
    /// The secondary's address.
    pub address: SocketAddr,
    /// The serial of the version in the NOTIFY.
    pub serial: u32,
    /// The outcome of the NOTIFY.
    pub outcome: NotifyOutcome,
}

/// The outcome of a NOTIFY.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyOutcome {
    /// The NOTIFY has not been answered yet.
    InProgress,
    /// The server has confirmed the NOTIFY.
    Confirmed,
    /// The NOTIFY is no longer sent, for this reason.
    GivenUp(String),
}

/// A scheduled task of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledTask {
    /// The time of the task, in seconds since 1970.
    pub at_unix_s: u64,
    /// The task in words.
    pub what: String,
    /// The reason for this time.
    pub why: String,
}

impl ScheduledTask {
    /// Whether an order of the certificate `name` is the first one or a renewal.
    pub fn order(name: &str, is_renewal: bool) -> String {
        let verb = if is_renewal { "renew" } else { "request" };
        format!("{verb} the certificate of {name}")
    }

    /// Whether it is an order of the certificate `name`.
    pub fn is_order_of(&self, name: &str) -> bool {
        [false, true].iter().any(|&is_renewal| self.what == ScheduledTask::order(name, is_renewal))
    }
}

/// Writes challenges.
pub fn challenges_to_memfd(challenges: &[Challenge]) -> io::Result<OwnedFd> {
    memfd::create("challenges", &serde_json::to_vec(challenges)?)
}

/// Reads the output of [`challenges_to_memfd`].
///
/// # Errors
/// Returns an error if the content is malformed.
pub fn challenges_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<Challenge>> {
    from_memfd(descriptor)
}

/// The addresses of hosts with applications, by their names; none if the name was not found.
pub type BackendAddresses = BTreeMap<String, Vec<IpAddr>>;

/// Writes addresses of hosts.
pub fn backend_addresses_to_memfd(addresses: &BackendAddresses) -> io::Result<OwnedFd> {
    memfd::create("backend-addresses", &serde_json::to_vec(addresses)?)
}

/// Reads the output of [`backend_addresses_to_memfd`].
///
/// # Errors
/// Returns an error if the content is malformed.
pub fn backend_addresses_from_memfd(descriptor: impl AsFd) -> io::Result<BackendAddresses> {
    from_memfd(descriptor)
}

/// Writes zones that are served.
pub fn served_zones_to_memfd(zones: &ServedZones) -> io::Result<OwnedFd> {
    memfd::create("served-zones", &serde_json::to_vec(zones)?)
}

/// Reads the output of [`served_zones_to_memfd`].
///
/// # Errors
/// Returns an error if the content is malformed.
pub fn served_zones_from_memfd(descriptor: impl AsFd) -> io::Result<ServedZones> {
    from_memfd(descriptor)
}

/// Writes journals with their zones' names, into one or several files.
pub fn journals_to_memfds(journals: &[(String, Vec<u8>)]) -> impl Iterator<Item = io::Result<OwnedFd>> {
    let mut rest = journals.iter().peekable();
    std::iter::from_fn(move || {
        rest.peek()?;
        let mut content = Vec::new();
        while content.len() < JOURNALS_BYTES_MIN
            && let Some((name, journal)) = rest.next()
        {
            for part in [name.as_bytes(), journal] {
                let length = u32::try_from(part.len()).expect("a journal has a limit");
                content.extend_from_slice(&length.to_be_bytes());
                content.extend_from_slice(part);
            }
        }
        Some(memfd::create("journals", &content))
    })
}

/// Reads the output of [`journals_to_memfds`].
///
/// # Errors
/// Returns an error if the content is malformed.
pub fn journals_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<(String, Vec<u8>)>> {
    check_sealed(&descriptor)?;
    let content = memfd::read(descriptor, JOURNALS_BYTES_MAX)?;
    let mut rest = &content[..];
    let mut next = || {
        let (length, after) = rest.split_first_chunk()?;
        let (part, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        rest = after;
        Some((part.to_vec(), after.is_empty()))
    };
    let mut journals = Vec::new();
    let mut is_end = content.is_empty();
    while !is_end {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let (name, _) = next().ok_or_else(malformed)?;
        let (journal, is_last) = next().ok_or_else(malformed)?;
        journals.push((String::from_utf8(name).map_err(|_| malformed())?, journal));
        is_end = is_last;
    }
    Ok(journals)
}

impl AgentReport {
    /// The zones with a problem of signing, transfer, updates or writing, and the certificates whose last order has
    /// failed, without the other data of the report.
    pub fn problems(&self) -> AgentReport {
        let of_zone = |zone: &ZoneReport| {
            let transfer = zone.transfer.as_ref().and_then(|transfer| transfer.problem.clone());
            let signing = zone.signing.as_ref().and_then(|signing| signing.problem.clone());
            let (updates_problem, catalog_problem) = (zone.updates_problem.clone(), zone.catalog_problem.clone());
            let is_good = [&transfer, &signing, &updates_problem, &catalog_problem].into_iter().all(Option::is_none);
            (!is_good).then(|| ZoneReport {
                name: zone.name.clone(),
                updates_problem,
                catalog_problem,
                transfer: transfer.map(|it| TransferReport { problem: Some(it), ..TransferReport::default() }),
                signing: signing.map(|it| SigningReport { problem: Some(it), ..SigningReport::default() }),
                ..ZoneReport::default()
            })
        };
        let of_certificate = |certificate: &CertificateReport| {
            certificate.last_error.is_some().then(|| CertificateReport {
                name: certificate.name.clone(),
                last_error: certificate.last_error.clone(),
                ..CertificateReport::default()
            })
        };
        AgentReport {
            certificates: self.certificates.iter().filter_map(of_certificate).collect(),
            zones: self.zones.iter().filter_map(of_zone).collect(),
            schedule: Vec::new(),
        }
    }

    /// Writes the report.
    pub fn to_memfd(&self) -> io::Result<OwnedFd> {
        memfd::create("agent-report", &serde_json::to_vec(self)?)
    }

    /// Reads the output of [`AgentReport::to_memfd`].
    ///
    /// # Errors
    /// Returns an error if the content is malformed.
    pub fn from_memfd(descriptor: impl AsFd) -> io::Result<AgentReport> {
        from_memfd(descriptor)
    }
}

fn check_sealed(descriptor: impl AsFd) -> io::Result<()> {
    match memfd::is_sealed(descriptor) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "the memory is not sealed")),
    }
}

pub(crate) fn from_memfd<T: DeserializeOwned>(descriptor: impl AsFd) -> io::Result<T> {
    check_sealed(&descriptor)?;
    Ok(serde_json::from_slice(&memfd::read(descriptor, BYTES_MAX)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn addresses_of_hosts_arrive_as_they_were_sent() {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
        let sent = BTreeMap::from([
            ("app.internal".to_owned(), addresses(&["192.0.2.1", "2001:db8::1"])),
            ("none.internal".to_owned(), Vec::new()),
        ]);
        let file = backend_addresses_to_memfd(&sent).expect("created");
        assert_eq!(backend_addresses_from_memfd(&file).expect("read"), sent);
    }

    #[test]
    fn challenges_and_reports_arrive_as_they_were_sent() {
        let challenges = [
            Challenge::Http { token: "token".to_owned(), content: "token.key".to_owned() },
            Challenge::Dns { name: "_acme-challenge.example.com".to_owned(), text: "digest".to_owned() },
        ];
        for count in 0..=challenges.len() {
            let file = challenges_to_memfd(&challenges[..count]).expect("created");
            assert_eq!(challenges_from_memfd(&file).expect("read"), challenges[..count]);
        }
        let task = ScheduledTask { at_unix_s: 7, what: "renew".to_owned(), why: "due".to_owned() };
        let certificate = CertificateReport { issued: Some(IssuedReport::default()), ..CertificateReport::default() };
        let outcomes = [NotifyOutcome::InProgress, NotifyOutcome::Confirmed, NotifyOutcome::GivenUp("why".to_owned())];
        let address = "[2001:db8::1]:53".parse().expect("an address");
        let secondaries = outcomes.map(|outcome| NotifyReport { address, serial: 7, outcome }).to_vec();
        let transfer = Some(TransferReport { from: Some(address), ..TransferReport::default() });
        let signing = Some(SigningReport { serial: Some(7), ..SigningReport::default() });
        let aliases = vec![AliasReport { target: "www.example.net".to_owned(), ..AliasReport::default() }];
        let zone = ZoneReport {
            name: "example.com".to_owned(),
            transfer,
            signing,
            aliases,
            secondaries,
            ..ZoneReport::default()
        };
        let report = AgentReport { certificates: vec![certificate], zones: vec![zone], schedule: vec![task] };
        assert_eq!(AgentReport::from_memfd(report.to_memfd().expect("created")).expect("read"), report);
    }

    #[test]
    fn problems_are_those_of_zones_and_certificates_alone() {
        let zone = |name: &str, transfer: Option<&str>, signing: Option<&str>| ZoneReport {
            name: name.to_owned(),
            transfer: Some(TransferReport { problem: transfer.map(str::to_owned), ..TransferReport::default() }),
            signing: Some(SigningReport { problem: signing.map(str::to_owned), ..SigningReport::default() }),
            ..ZoneReport::default()
        };
        let certificate = |name: &str, error: Option<&str>| CertificateReport {
            name: name.to_owned(),
            last_error: error.map(str::to_owned),
            ..CertificateReport::default()
        };
        let report = AgentReport {
            certificates: vec![certificate("a.test", None), certificate("b.test", Some("refused"))],
            zones: vec![
                zone("a.test", None, None),
                zone("b.test", Some("no primary"), None),
                zone("c.test", None, Some("no key")),
                ZoneReport { updates_problem: Some("no space".to_owned()), ..zone("d.test", None, None) },
                ZoneReport { catalog_problem: Some("held back".to_owned()), ..zone("e.test", None, None) },
            ],
            schedule: vec![ScheduledTask { at_unix_s: 7, what: String::new(), why: String::new() }],
        };
        let problems = report.problems();
        assert_eq!(problems.certificates, [certificate("b.test", Some("refused"))]);
        let [b, c, d, e] = &problems.zones[..] else { panic!("{problems:?}") };
        assert_eq!((b.name.as_str(), b.signing.is_none(), c.name.as_str()), ("b.test", true, "c.test"));
        assert_eq!(c.signing.as_ref().and_then(|signing| signing.problem.as_deref()), Some("no key"));
        assert_eq!(d.updates_problem.as_deref(), Some("no space"));
        assert_eq!(e.catalog_problem.as_deref(), Some("held back"));
        assert!(problems.schedule.is_empty());
    }

    #[test]
    fn journals_arrive_as_they_were_sent() {
        let journal = |name: &str, bytes| (name.to_owned(), vec![7; bytes]);
        let all = [journal("a", 0), journal("b", JOURNALS_BYTES_MIN), journal("c", 1)];
        for (count, file_count) in [(0, 0), (1, 1), (2, 1), (3, 2)] {
            let files: Vec<OwnedFd> = journals_to_memfds(&all[..count]).collect::<io::Result<_>>().expect("created");
            assert_eq!(files.len(), file_count);
            let read = files.iter().flat_map(|file| journals_from_memfd(file).expect("read"));
            assert!(read.eq(all[..count].iter().cloned()), "{count}");
        }
        for content in [&[0][..], &[0, 0, 0, 1], &[0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0, 2, 7]] {
            journals_from_memfd(memfd::create("test", content).expect("created")).expect_err("malformed");
        }
    }

    #[test]
    fn memory_that_can_change_or_has_another_form_is_refused() {
        let mut unsealed = tempfile::tempfile().expect("created");
        unsealed.write_all(b"[]").expect("written");
        challenges_from_memfd(&unsealed).expect_err("not sealed");
        backend_addresses_from_memfd(&unsealed).expect_err("not sealed");
        for content in [&b"[1]"[..], b"", b"{}"] {
            challenges_from_memfd(memfd::create("test", content).expect("created")).expect_err("malformed");
        }
    }
}
