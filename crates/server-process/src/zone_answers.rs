//! Answers to the commands about single zones: `zone list`, `zone status`, `zone show`, `zone export`. Each is written
//! by its own thread, as fast as the client reads.

use crate::load_status::ZoneState;
use crate::loader::unknown_zone;
use crate::service_state::{Condition, ServiceState, ZoneCondition};
use crate::status::not_served_reason;
use sanderling_config::{DomainName, ZoneOrigin, duration_text};
use sanderling_dns::{LineForm, Name, RecordSource, Rtype, Zone, ZoneEntry, ZoneMap, ZoneTextWriter};
use sanderling_http::HttpDate;
use sanderling_ipc::agent::{AliasReport, NotifyOutcome, NotifyReport, UpdatesReport, ZoneReport};
use sanderling_ipc::{Connection, Event, Message, Text};
use sanderling_os::clock::unix_seconds;
use sanderling_server::{LastTransfer, OutgoingTransfers};
use sanderling_zone_files::{UpdateState, ZoneSources, wire_name};
use serde::Serialize;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Time for a client to read a part of the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a part of the answer.
const PART_BYTES: usize = 32 * 1024;
/// Bytes of the names of zones beyond which columns are not aligned.
const NAME_WIDTH_MAX: usize = 40;

/// A client of the control socket that gets its answer from this process.
#[derive(Debug)]
pub(crate) struct ZoneClient(Connection);

impl ZoneClient {
    pub(crate) fn new(connection: Connection) -> ZoneClient {
        ZoneClient(connection)
    }

    pub(crate) fn into_fd(self) -> std::os::fd::OwnedFd {
        self.0.into_fd()
    }

    /// Sends text for standard output, and waits until the client has room for it.
    fn write(&mut self, text: &str) -> io::Result<()> {
        Text::parts(text).try_for_each(|part| self.send_and_wait(Event::Stdout(part)))
    }

    fn send_and_wait(&mut self, event: Event) -> io::Result<()> {
        self.0.send_and_wait(&Message::Event(event), CLIENT_TIMEOUT)
    }

    /// Sends a line for standard error. The call does not wait.
    pub(crate) fn send_line(&mut self, line: &str) {
        Text::parts(&format!("{line}\n")).for_each(|part| self.send(Event::Stderr(part)));
    }

    /// Ends the command: text for standard output, or an error. The call does not wait.
    pub(crate) fn finish(mut self, result: Result<&str, &str>) {
        match result {
            Ok(text) => Text::parts(text).for_each(|part| self.send(Event::Stdout(part))),
            Err(error) => self.send_line(&format!("sanderling: {error}")),
        }
        self.send(Event::Done { is_success: result.is_ok() });
    }

    /// A client that has disconnected needs no answer.
    fn send(&mut self, event: Event) {
        let _ = self.0.send(&Message::Event(event));
    }
}

/// An answer's inputs: the served zones and their states.
#[derive(Debug)]
pub(crate) struct ZoneAnswers {
    /// The snapshot is held as a whole: the control thread frees it when it is replaced.
    pub(crate) zones: Arc<ZoneMap>,
    pub(crate) states: Vec<JudgedZone>,
    /// The names of the records that certificate authorities look for.
    pub(crate) challenges: Vec<DomainName>,
    pub(crate) transfers: Arc<OutgoingTransfers>,
}

/// A zone with its condition.
#[derive(Debug)]
pub(crate) struct JudgedZone {
    state: Arc<ZoneState>,
    condition: ZoneCondition,
    /// The reason why the newest version is not served.
    reason: Option<String>,
}

impl JudgedZone {
    pub(crate) fn new(zone: &Arc<ZoneState>, service_state: &ServiceState<'_>) -> JudgedZone {
        JudgedZone {
            state: Arc::clone(zone),
            condition: service_state.zone(zone),
            reason: service_state.zone_problem(zone).map(str::to_owned),
        }
    }

    /// The line of `zone list`.
    pub(crate) fn list_line(&self, width: usize) -> String {
        let ZoneState { name, serial, record_count, file, .. } = &*self.state;
        let serial = serial.map_or("-".to_owned(), |serial| serial.to_string());
        let state = self.condition.name();
        format!("{name:width$}  {serial:>10}  {record_count:>9}  {state:11}  {}\n", file.display())
    }
}

/// A zone of `zone list --json`.
#[derive(Serialize)]
struct ListedZone<'s> {
    #[serde(flatten)]
    zone: &'s ZoneState,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'s str>,
}

impl ZoneAnswers {
    /// The answer to `zone list`.
    pub(crate) fn list(&self, is_json: bool, client: ZoneClient) {
        answer(client, |client| {
            let name_widths = self.states.iter().map(|zone| zone.state.name.len());
            let width = name_widths.max().unwrap_or(0).clamp("zone".len(), NAME_WIDTH_MAX);
            let mut text = match is_json {
                true => "[".to_owned(),
                false => format!("{:width$}  {:>10}  {:>9}  {:11}  file\n", "zone", "serial", "records", "state"),
            };
            for (index, zone) in self.states.iter().enumerate() {
                if is_json {
                    let JudgedZone { state, condition, reason } = zone;
                    let listed = ListedZone { zone: state, state: condition.name(), reason: reason.as_deref() };
                    text += if index == 0 { "\n" } else { ",\n" };
                    text += &serde_json::to_string(&listed).map_err(io::Error::other)?;
                } else {
                    text += &zone.list_line(width);
                }
                if text.len() >= PART_BYTES {
                    client.write(&text)?;
                    text.clear();
                }
            }
            if is_json {
                text += "\n]\n";
            }
            client.write(&text).map(Ok)
        });
    }

    /// The answer to `zone status`; `sources` are the files of the served version, and `report` comes from the agent.
    pub(crate) fn status(
        &self,
        name: &DomainName,
        sources: Option<ZoneSources>,
        report: Option<&ZoneReport>,
        client: ZoneClient,
    ) {
        answer(client, |client| {
            let Some(zone) = self.states.iter().find(|zone| zone.state.name == name.as_str()) else {
                return Ok(Err(self.unknown(name)));
            };
            let is_current = sources.is_some_and(|mut sources| sources.are_unchanged());
            let mut text = status_text(zone, self.zone(name), is_current);
            let now_unix_s = unix_seconds();
            let last = self.transfers.last(wire_name(name).as_name());
            text += &last.map_or(String::new(), |transfer| transfer_text(transfer, now_unix_s));
            text += &report.map_or(String::new(), |report| report_text(report, now_unix_s));
            client.write(&text).map(Ok)
        });
    }

    /// The answer to `zone show`.
    pub(crate) fn show(&self, name: &DomainName, rrtype: Option<&str>, client: ZoneClient) {
        answer(client, |client| {
            let rtype = match rrtype.map(|text| Rtype::from_text(text.as_bytes()).ok_or(text)) {
                Some(Err(text)) => {
                    return Ok(Err(format!("`{text}` is not a record type; write for example MX or TYPE15")));
                }
                Some(Ok(rtype)) => Some(rtype),
                None => None,
            };
            let zone = match self.served(name) {
                Ok(zone) => zone,
                Err(problem) => return Ok(Err(problem)),
            };
            let state = self.state(name);
            let origin = |owner: Name<'_>, rtype| state.and_then(|state| state.added.origin(owner, rtype));
            let form_of = |owner: Name<'_>, rtype| origin(owner, rtype).map_or(LineForm::Plain, LineForm::Commented);
            write_zone(client, zone, rtype, form_of)?;
            let mut text = String::new();
            if rtype.is_none_or(|rtype| rtype == Rtype::TXT) {
                let is_shown = |challenge: &DomainName| origin(wire_name(challenge).as_name(), Rtype::TXT).is_some();
                let missing = self.challenges.iter().filter(|challenge| !is_shown(challenge));
                for challenge in missing.filter(|challenge| self.is_in(challenge, name)) {
                    let Some(zone) = self.zone(challenge) else { continue };
                    let mut writer = ZoneTextWriter::default();
                    let form_of = |_: Name<'_>, _| LineForm::Commented("challenge");
                    while writer.write_with_forms(zone, Some(Rtype::TXT), &mut text, usize::MAX, form_of) {}
                }
            }
            client.write(&text).map(Ok)
        });
    }

    /// The answer to `zone export`: the zone file with the dynamic updates merged in.
    pub(crate) fn export(&self, name: &DomainName, client: ZoneClient) {
        answer(client, |client| {
            let zone = match self.served(name) {
                Ok(zone) => zone,
                Err(problem) => return Ok(Err(problem)),
            };
            let state = self.state(name);
            // The SOA is derived only by its serial.
            let is_derived = |owner: Name<'_>, rtype| {
                rtype != Rtype::SOA && state.is_some_and(|state| state.added.origin(owner, rtype).is_some())
            };
            let is_signed = state.is_some_and(|state| state.origin == ZoneOrigin::Signer);
            let is_of_signer = |owner: Name<'_>, rtype| {
                is_signed && RecordSource::of(rtype, owner.eq_ignore_case(zone.apex())) != RecordSource::Zone
            };
            let form_of = |owner: Name<'_>, rtype| match is_derived(owner, rtype) || is_of_signer(owner, rtype) {
                true => LineForm::LeftOut,
                false => LineForm::Plain,
            };
            write_zone(client, zone, None, form_of)?;
            let aliases = state.iter().flat_map(|state| &state.added.aliases);
            let text: String = aliases.map(|alias| format!("{} IN ALIAS {}\n", alias.owner, alias.target)).collect();
            client.write(&text).map(Ok)
        });
    }

    fn state(&self, name: &DomainName) -> Option<&ZoneState> {
        self.states.iter().map(|zone| &*zone.state).find(|zone| zone.name == name.as_str())
    }

    /// A zone's served version.
    fn served(&self, name: &DomainName) -> Result<&Zone, String> {
        self.zone(name).ok_or_else(|| match self.state(name).is_some() {
            true => format!("the zone {name} is unavailable: see `sanderling zone status {name}`"),
            false => self.unknown(name),
        })
    }

    /// Whether the zone `apex` encloses the small zone of a challenge.
    fn is_in(&self, challenge: &DomainName, apex: &DomainName) -> bool {
        let challenge = wire_name(challenge);
        let mut above = challenge.as_name().parent();
        while let Some(name) = above.filter(|name| self.zones.get(*name).is_none()) {
            above = name.parent();
        }
        above == Some(wire_name(apex).as_name())
    }

    fn zone(&self, name: &DomainName) -> Option<&Zone> {
        match self.zones.get(wire_name(name).as_name())? {
            ZoneEntry::Served(zone) | ZoneEntry::Restricted(zone) => Some(zone),
            ZoneEntry::Unavailable { .. } => None,
        }
    }

    fn unknown(&self, name: &DomainName) -> String {
        unknown_zone(name, self.states.iter().map(|zone| zone.state.name.as_str()))
    }
}

/// Writes a zone's records, as fast as the client reads.
fn write_zone<'c>(
    client: &mut ZoneClient,
    zone: &Zone,
    rtype: Option<Rtype>,
    form_of: impl Fn(Name<'_>, Rtype) -> LineForm<'c>,
) -> io::Result<()> {
    let mut writer = ZoneTextWriter::default();
    let mut text = String::with_capacity(2 * PART_BYTES);
    loop {
        let has_more = writer.write_with_forms(zone, rtype, &mut text, PART_BYTES, &form_of);
        client.write(&text)?;
        text.clear();
        if !has_more {
            return Ok(());
        }
    }
}

/// Has `write` send an answer, or return an error for the client, and ends the command. A client that has disconnected
/// or does not read gets no more.
fn answer(mut client: ZoneClient, write: impl FnOnce(&mut ZoneClient) -> io::Result<Result<(), String>>) {
    if let Ok(result) = write(&mut client) {
        if let Err(error) = &result {
            client.send_line(&format!("sanderling: {error}"));
        }
        let _ = client.send_and_wait(Event::Done { is_success: result.is_ok() });
    }
}

fn status_text(judged: &JudgedZone, zone: Option<&Zone>, is_current: bool) -> String {
    let state = &*judged.state;
    let mut text = format!("zone {}\n", state.name);
    let mut line = |name: &str, value: String| text += &status_line(name, &value);
    if let (Some(serial), Some(loaded_at), Some(zone)) = (state.serial, state.loaded_at, zone) {
        let date = HttpDate::from_unix_s(loaded_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
        line("serial", format!("{serial}, loaded {}", String::from_utf8_lossy(date.as_bytes())));
        line("records", format!("{} of {} names", state.record_count, zone.name_count()));
        line("memory", format!("{} bytes", zone.memory_bytes()));
        if let Some(unix_s) = zone.signatures_expire_at(unix_seconds()) {
            let date = HttpDate::from_unix_s(unix_s);
            let verb = if unix_s < unix_seconds() { "expired on" } else { "until" };
            line("signed", format!("{verb} {}", String::from_utf8_lossy(date.as_bytes())));
        }
        if let Some((first_serial, count)) = zone.journal().first_change() {
            let changes = if count == 1 { "1 change".to_owned() } else { format!("{count} changes") };
            line("journal", format!("{changes} since serial {first_serial}, for IXFR"));
        }
    }
    // The agent reports a signed zone's updates.
    if let Some(updates) = &state.updates {
        line("updates", updates_text(updates));
    }
    line("file", state.file.display().to_string());
    line("state", state_text(judged, is_current));
    text
}

/// The differences between version and file due to dynamic updates.
fn updates_text(updates: &UpdateState) -> String {
    match updates {
        UpdateState { is_none: true, .. } => "none since the file was written".to_owned(),
        UpdateState { added: 0, removed: 0, .. } => "the records of the file, with a later serial".to_owned(),
        UpdateState { added, removed: 0, .. } => format!("{} that the file does not have", records(*added)),
        UpdateState { added: 0, removed, .. } => format!("without {} that the file has", records(*removed)),
        UpdateState { added, removed, .. } => {
            format!("{} that the file does not have, without {removed} that it has", records(*added))
        }
    }
}

fn records(count: usize) -> String {
    if count == 1 { "1 record".to_owned() } else { format!("{count} records") }
}

/// The client to which the zone was transferred last.
fn transfer_text(transfer: LastTransfer, now_unix_s: u64) -> String {
    let LastTransfer { client, serial, is_incremental, at_unix_s } = transfer;
    let protocol = if is_incremental { "IXFR" } else { "AXFR" };
    status_line("transfer", &format!("serial {serial} to {client} by {protocol} {}", ago(at_unix_s, now_unix_s)))
}

/// A line of `zone status`.
fn status_line(name: &str, value: &str) -> String {
    format!("  {name:<8} {value}\n")
}

fn ago(at_unix_s: u64, now_unix_s: u64) -> String {
    format!("{} ago", duration_text(now_unix_s.saturating_sub(at_unix_s)))
}

/// The state of other servers of the zone, a line each.
fn report_text(report: &ZoneReport, now_unix_s: u64) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &status_line(name, &value);
    let ago = |at_unix_s: u64| ago(at_unix_s, now_unix_s);
    let ahead = |at_unix_s: u64| match at_unix_s.saturating_sub(now_unix_s) {
        0 => "now".to_owned(),
        seconds => format!("in {}", duration_text(seconds)),
    };
    if let Some(transfer) = &report.transfer {
        if let (Some(from), Some(at)) = (transfer.from, transfer.transferred_at_unix_s) {
            let serial = transfer.serial.map_or("an expired version".to_owned(), |serial| format!("serial {serial}"));
            line("primary", format!("{serial} transferred from {from} {}", ago(at)));
        }
        if let Some(at) = transfer.checked_at_unix_s {
            line("checked", format!("confirmed by a primary {}", ago(at)));
        }
        line("next", format!("the primaries will be queried {}", ahead(transfer.next_at_unix_s)));
        if let Some(at) = transfer.expires_at_unix_s {
            line("expires", format!("{} without a primary", ahead(at)));
        }
        if let Some(left_out) = &transfer.left_out {
            line("left out", left_out.clone());
        }
        if let Some(problem) = &transfer.problem {
            let count = match transfer.failure_count {
                0 => String::new(),
                1 => " (1 failure)".to_owned(),
                count => format!(" ({count} failures)"),
            };
            line("problem", format!("{problem}{count}"));
        }
    }
    for AliasReport { target, addresses, next_at_unix_s, problem } in &report.aliases {
        let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let addresses = if addresses.is_empty() { "no addresses".to_owned() } else { addresses.join(" ") };
        let problem = problem.as_ref().map_or(String::new(), |problem| format!("; {problem}"));
        line("alias", format!("{target}: {addresses}, queried {}{problem}", ahead(*next_at_unix_s)));
    }
    if let Some(signing) = &report.signing {
        if let Some(serial) = signing.serial {
            if let Some(UpdatesReport { added, removed, is_none }) = signing.updates {
                line("updates", updates_text(&UpdateState { added, removed, is_none, is_held: false }));
            }
            let again = signing.sign_again_at_unix_s.map_or(String::new(), |at| format!(", again {}", ahead(at)));
            line(
                "signing",
                format!("serial {serial}, signed by this server{again}; `sanderling dnssec status` shows the keys"),
            );
        }
        if let Some(problem) = &signing.problem {
            line("problem", problem.clone());
        }
    }
    let problems = report.updates_problem.iter().chain(&report.catalog_problem);
    problems.for_each(|problem| line("problem", problem.clone()));
    for NotifyReport { address, serial, outcome } in &report.secondaries {
        let outcome = match outcome {
            NotifyOutcome::InProgress => "not confirmed yet".to_owned(),
            NotifyOutcome::Confirmed => "confirmed".to_owned(),
            NotifyOutcome::GivenUp(problem) => format!("given up: {problem}"),
        };
        line("notify", format!("serial {serial} to {address}: {outcome}"));
    }
    text
}

/// The served version, and its differences from the file.
pub(crate) fn state_text(zone: &JudgedZone, is_current: bool) -> String {
    let JudgedZone { state, condition, reason } = zone;
    let ZoneState { name, file, origin, problem, .. } = &**state;
    let below = if reason.is_some() { ", because of the problem below" } else { "" };
    match (condition, problem, origin) {
        (ZoneCondition::Unavailable, Some(problem), _) => {
            format!("UNAVAILABLE, queries get SERVFAIL, because the file was refused: {problem}")
        }
        (ZoneCondition::Unavailable, ..) if reason.is_some() => format!("UNAVAILABLE, queries get SERVFAIL{below}"),
        (ZoneCondition::Unavailable, _, origin) => {
            format!("UNAVAILABLE, queries get SERVFAIL: {}", not_served_reason(*origin))
        }
        (ZoneCondition::Unsigned, ..) => format!("served as in the file, WITHOUT SIGNATURES{below}"),
        (ZoneCondition::Bogus, ..) => {
            format!("served with EXPIRED SIGNATURES, which resolvers reject{below}")
        }
        (ZoneCondition::Expiring, ..) => format!("served with signatures that expire soon{below}"),
        (ZoneCondition::Kept, Some(problem), _) if state.updates.is_some_and(|updates| updates.is_held) => {
            format!("served as in the file, with the dynamic updates, but {problem}")
        }
        (ZoneCondition::Kept, Some(problem), _) => {
            format!("the last good version is served, because the file was refused: {problem}")
        }
        (ZoneCondition::Kept, None, ZoneOrigin::Primaries | ZoneOrigin::Catalog) => {
            format!("the last transferred version is served{below}")
        }
        (ZoneCondition::Kept, None, ZoneOrigin::ProducedCatalog) => {
            format!("the last written version is served{below}")
        }
        (ZoneCondition::Kept, None, ZoneOrigin::Operator) => {
            format!("the version with the last dynamic updates is served{below}")
        }
        (ZoneCondition::Kept, None, _) => format!("the last signed version is served{below}"),
        // The agent changes the file, and has each version loaded.
        (ZoneCondition::Served, _, ZoneOrigin::Signer) => "the last signed version is served".to_owned(),
        (ZoneCondition::Served, _, ZoneOrigin::Primaries) => "the last transferred version is served".to_owned(),
        (ZoneCondition::Served, ..) if is_current && state.updates.is_some_and(|updates| !updates.is_none) => {
            "served as in the file, with the dynamic updates".to_owned()
        }
        (ZoneCondition::Served, ..) if is_current => "served as in the file".to_owned(),
        (ZoneCondition::Served, ..) if file.exists() => {
            format!("served; the file has changed since: run `sanderling reload {name}`")
        }
        (ZoneCondition::Served, ..) => {
            "served; the file no longer exists: the next reload removes the zone or reports an error".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_from_the_file_are_told_in_words() {
        for (added, removed, is_none, expected) in [
            (0, 0, true, "none since the file was written"),
            (0, 0, false, "the records of the file, with a later serial"),
            (1, 0, false, "1 record that the file does not have"),
            (0, 2, false, "without 2 records that the file has"),
            (3, 1, false, "3 records that the file does not have, without 1 that it has"),
        ] {
            let updates = UpdateState { added, removed, is_none, is_held: false };
            assert_eq!(updates_text(&updates), expected);
        }
    }
}
