//! The messages, their descriptors' kinds, and how both are encoded in a packet.
//!
//! A packet is `SDLG`, the version of the protocol, three zero bytes, and JSON. Magic and version have the same place
//! in every version, so that two versions at least recognize each other. A packet may come from an untrusted process:
//! all of it is checked.

use crate::agent::{ServedZone, UpdatesOutcome, UpdatesToStore, ZoneNotify};
use crate::signing::SigningCounts;
use sanderling_config::log::printable;
use sanderling_config::{ListenerRole, LogKind};
use sanderling_os::clock::UNIX_SECONDS_MAX;
use sanderling_os::seqpacket::MESSAGE_BYTES_MAX;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::fmt;

const MAGIC: [u8; 4] = *b"SDLG";
/// A change that an older version would misread requires the next version number.
const VERSION: u8 = 2;
const HEADER_BYTES: usize = 8;

/// A message between two processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A command for the receiver.
    Command(Command),
    /// A report to the receiver.
    Event(Event),
    /// Hands over the descriptors of this packet.
    Handover {
        /// Whether another packet with descriptors follows.
        has_more: bool,
    },
}

/// A command to the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Use the certificates and keys that come with the command.
    UpdateSecrets,
    /// Write logs of requests to the targets that come with the command ([`FdKind::Log`]).
    UpdateLogs,
    /// Reopen the logs of requests.
    Reopen,
    /// Serve the ACME challenges that come with the command ([`FdKind::Challenges`]), in place of the previous ones.
    /// The receiver confirms it with [`Event::ChallengesServed`].
    UpdateChallenges {
        /// The number of this set.
        number: u64,
    },
    /// The server process serves the ACME challenges. To the agent.
    ChallengesServed {
        /// The number of the set.
        number: u64,
    },
    /// Connect to applications at the addresses that come with the command ([`FdKind::BackendAddresses`]).
    UpdateBackendAddresses,
    /// Hold the private keys of the certificates that come with the command ([`FdKind::Certificates`]), and the keys
    /// that another keeper has held ([`FdKind::HeldKeys`]). The keeper confirms it with [`Event::KeysHeld`].
    HoldKeys {
        /// The number of this set.
        number: u64,
    },
    /// Erase all private keys except the keys of the last [`Command::HoldKeys`] and of the good versions that come with
    /// the command ([`FdKind::KeptCertificates`]). To the keeper.
    RetainKeys,
    /// Serve signing requests at the sockets that come with the command ([`FdKind::Keeper`]). To the keeper.
    ServeKeys,
    /// Answer the agent at the socket that comes with the command ([`FdKind::ZoneKeys`]). To the keeper.
    ServeZoneKeys,
    /// Read the records of zones that are signed again, and sign them. To the agent; with the client that gets the
    /// answer, if there is one ([`FdKind::Requester`]).
    ReadZones {
        /// The zones; all if there is none.
        zones: Vec<String>,
        /// Zones that are loaded even if they have lost records or their serial went back.
        forced_zones: Vec<String>,
        /// Whether the command has succeeded so far.
        is_success: bool,
    },
    /// Carry out this command for a signed zone. To the agent, it comes with the client that gets the answer
    /// ([`FdKind::Requester`]).
    Dnssec(DnssecCommand),
    /// Ask the keeper for keys and signatures of zones at the socket that comes with the command
    /// ([`FdKind::ZoneKeys`]), and not at the previous one. To the agent.
    UseKeeper,
    /// Report the requested certificates, or one of them.
    Certificates {
        /// The certificate's domain.
        name: Option<String>,
        /// Whether the answer is JSON, for programs.
        is_json: bool,
    },
    /// Request a certificate now. To the agent it comes with the client that gets the answer ([`FdKind::Requester`]).
    RenewCertificate {
        /// The certificate's domain.
        name: String,
    },
    /// Request a certificate, and revoke the previous one. To the agent it comes with the client that gets the answer
    /// ([`FdKind::Requester`]).
    RevokeCertificate {
        /// The certificate's domain.
        name: String,
        /// Whether someone else may have the private key.
        is_key_compromised: bool,
    },
    /// Report the zones that concern the agent, by [`Event::ZonesServed`], and the certificates in service, by
    /// [`Event::CertificatesServed`].
    ReportZones,
    /// The zones that come with the command ([`FdKind::ServedZones`]) are served now. To the agent.
    ZonesServed,
    /// Another version of a zone is served now. To the agent.
    ZoneServed(ServedZone),
    /// Store the journals that come with the command ([`FdKind::Journals`]). To the agent.
    StoreJournals,
    /// Store the result of a zone's dynamic updates, which comes with the command ([`FdKind::Updates`]). To the agent.
    StoreUpdates(UpdatesToStore),
    /// The agent has stored the result of a zone's dynamic updates, or failed to.
    UpdatesStored(UpdatesOutcome),
    /// The certificates that come with the command ([`FdKind::ServedCertificates`]) are in service now. To the agent.
    CertificatesServed,
    /// The server process is connected to the application that it has asked for, by the descriptor that comes with the
    /// command ([`FdKind::Backend`]), or it is not.
    BackendConnected {
        /// As of [`Event::BackendWanted`].
        request: u32,
        /// Why it is not (errno(3)).
        errno: Option<i32>,
    },
    /// A primary has sent NOTIFY. To the agent.
    ZoneNotified(ZoneNotify),
    /// Report the status.
    Status(StatusFormat),
    /// The supervisor's counters, and the running processes, for the status and the metrics of a server process. The
    /// agent's report of problems with zones and certificates comes with it ([`FdKind::AgentReport`]) if it has
    /// changed.
    Supervision(Supervision),
    /// Reload configuration and zones. To a server process it comes with the configuration
    /// ([`FdKind::Configuration`]).
    Reload {
        /// Zones that are reloaded even if they have lost records or their serial went back.
        forced_zones: Vec<String>,
    },
    /// Load one site again, which may have another release.
    ReloadSite {
        /// The site's domain; `None` for the site of `serve FOLDER`.
        name: Option<String>,
    },
    /// Do this with one zone, or all. To a server process it comes with the client that gets the answer
    /// ([`FdKind::Requester`]).
    Zone(ZoneCommand),
    /// Switch to the newly installed program without closing sockets.
    Upgrade,
    /// Stop gracefully.
    Stop,
    /// Finish the work in progress and exit, because another server process serves.
    Drain,
    /// Hand over all descriptors to the sender, which becomes the supervisor.
    HandOver,
}

/// Commands for single zones. The server process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZoneCommand {
    /// Load one zone again.
    Reload {
        /// The zone's name.
        zone: String,
        /// Even if it has lost records or its serial went back.
        is_forced: bool,
    },
    /// List all zones.
    List {
        /// Whether the answer is JSON, for programs.
        is_json: bool,
    },
    /// Report the state of one zone.
    Status {
        /// The zone's name.
        zone: String,
    },
    /// Write the records of a zone as a zone file.
    Show {
        /// The zone's name.
        zone: String,
        /// Only records of this type.
        rrtype: Option<String>,
    },
    /// Write the zone file with the dynamic updates merged in.
    Export {
        /// The zone's name.
        zone: String,
    },
}

/// Commands for a zone's signatures. The agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DnssecCommand {
    /// Report the keys, the records for the parent zone, and the pending step.
    Status {
        /// The zone's name.
        zone: String,
    },
    /// Create the first key, whatever DS records the parent zone has.
    NewKeys {
        /// The zone's name.
        zone: String,
    },
    /// Replace keys.
    Rollover {
        /// The zone's name.
        zone: String,
        /// The keys to replace.
        keys: RolloverKeys,
        /// Whether others may know them: then a rollover in progress does not prevent it.
        is_compromised: bool,
    },
}

/// The keys that a rollover replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloverKeys {
    /// The CSK, or KSK and ZSK.
    All,
    /// The CSK or KSK.
    Ksk,
    /// The CSK or ZSK.
    Zsk,
}

/// The format of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatusFormat {
    /// For people, on one screen.
    Text,
    /// For people, with all threads, sites and zones.
    Verbose,
    /// JSON, for programs.
    Json,
    /// Metrics in the format of OpenMetrics.
    Metrics,
}

/// The counters and processes of a supervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supervision {
    /// The start time of the supervisor, in seconds since 1970.
    pub started_at_unix_s: u64,
    /// When the current configuration was read, in seconds since 1970.
    pub loaded_at_unix_s: u64,
    /// Server processes that start, serve and drain.
    pub processes: [u64; 3],
    /// Restarts of the server process.
    pub restarts: u64,
    /// Reloads that are in effect, that are in part, and that have failed.
    pub reloads: [u64; 3],
    /// Responses that replaced server processes have aborted after `drain_timeout_ms`.
    pub cut_off: u64,
    /// The agent.
    #[serde(default)]
    pub agent: ProcessSupervision,
    /// The keeper, which holds the private keys.
    #[serde(default)]
    pub keeper: KeeperSupervision,
}

/// The state of another process, as the supervisor knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSupervision {
    /// Whether the configuration needs it.
    #[serde(default)]
    pub is_needed: bool,
    /// Whether it runs, and works, to the supervisor's knowledge.
    #[serde(default)]
    pub is_running: bool,
    /// Restarts.
    pub restarts: u64,
}

/// The keeper's state, as the supervisor knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperSupervision {
    /// Whether it runs, and the like.
    #[serde(flatten)]
    pub process: ProcessSupervision,
    /// The counters of all keepers.
    pub counts: SigningCounts,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A part of the answer to a command, for standard output.
    Stdout(Text),
    /// A part of the answer to a command, for standard error.
    Stderr(Text),
    /// The command has ended.
    Done {
        /// Whether the command has succeeded.
        is_success: bool,
    },
    /// The server process serves.
    Ready {
        /// Sites and zones that could not be loaded.
        problem_count: usize,
    },
    /// All threads of the server process, or of the agent, are responsive.
    Heartbeat,
    /// The named thread of the server process hangs.
    ThreadHung(Text),
    /// The server process serves the new configuration.
    Reloaded {
        /// The changes, for standard output.
        changes: Text,
        /// Sites and zones that could not be loaded. The last good versions of these stay in service.
        problem_count: usize,
    },
    /// The configuration, or the site, has errors, which have been reported; the server process keeps the current one.
    ReloadRefused,
    /// A site leads to another release than before.
    ReleaseSwitched {
        /// The site's domain; `None` for the site of `serve FOLDER`.
        name: Option<String>,
    },
    /// The server process cannot apply the configuration, or a version that the agent has stored, but a new one could,
    /// for this reason.
    NewProcessNeeded(Text),
    /// Keep the good versions of zones that come with this event ([`FdKind::Zones`]) for the next server process.
    ZonesKept {
        /// Whether these are all versions; otherwise they replace the versions of the same zones.
        replaces_all: bool,
    },
    /// Keep the good versions of certificates that come with this event ([`FdKind::KeptCertificates`]) for the next
    /// server process, in place of the previous ones.
    CertificatesKept,
    /// The agent has an order in progress: certificate authorities look for the challenges that come with this event
    /// ([`FdKind::Challenges`]), and for nothing else.
    ChallengesChanged {
        /// The number of this set.
        number: u64,
    },
    /// The agent has looked up the names of hosts with applications: their addresses come with this event
    /// ([`FdKind::BackendAddresses`]).
    BackendAddressesChanged,
    /// The server process serves the ACME challenges.
    ChallengesServed {
        /// The number of the set.
        number: u64,
    },
    /// The zones that come with this event ([`FdKind::ServedZones`]) are served now. They concern the agent, since they
    /// have secondary or primary servers.
    ZonesServed,
    /// Another version of one of these zones is served now.
    ZoneServed(ServedZone),
    /// The journals that come with this event ([`FdKind::Journals`]) have changed.
    JournalsChanged,
    /// Dynamic updates have made a version of a zone, which is served when it is stored ([`FdKind::Updates`]).
    UpdatesMade(UpdatesToStore),
    /// The agent has stored the result of a zone's dynamic updates, or failed to.
    UpdatesStored(UpdatesOutcome),
    /// The certificates that come with this event ([`FdKind::ServedCertificates`]) are in service now: new handshakes
    /// use no others. Only domains from which records are derived are included.
    CertificatesServed,
    /// The server process wants to be connected to an application: the answer is [`Command::BackendConnected`].
    BackendWanted {
        /// A number for the answer.
        request: u32,
        /// The path of its UNIX socket, which the configuration of the process has.
        path: String,
    },
    /// A primary has sent NOTIFY.
    ZoneNotified(ZoneNotify),
    /// The agent has stored another version of a zone, or removed it: the server process must load it, or apply the
    /// changes that come with the event ([`FdKind::ZoneChanges`]). The server process answers the agent
    /// ([`FdKind::Requester`]).
    ZoneStored {
        /// The zone's name.
        zone: String,
        /// Even if it has lost records or its serial went back.
        #[serde(default)]
        is_forced: bool,
    },
    /// The agent has stored a certificate.
    CertificateStored {
        /// The certificate's domain.
        name: String,
    },
    /// The agent has stored derived records.
    DerivedStored,
    /// The agent can no longer use its socket to the keeper, and needs another one.
    KeeperLost,
    /// The agent's state has changed ([`FdKind::AgentReport`]).
    AgentReport,
    /// The agent cannot run for this reason, and exits.
    AgentFailed(Text),
    /// The keeper holds the private keys of a set of certificates. The certificates come with the event
    /// ([`FdKind::Certificates`]), without their keys.
    KeysHeld {
        /// The number of the set.
        number: u64,
    },
    /// The keys for the next keeper ([`FdKind::HeldKeys`]).
    KeysKept,
    /// The keeper is alive, and reports its counters.
    KeeperReport(SigningCounts),
    /// The server process cannot write this log.
    LogFailed(LogKind),
    /// The server process has failed and exits when it has finished the work in progress.
    Failed,
    /// The server process has stopped accepting, after the command to stop: the listeners can be shut down.
    AcceptStopped,
    /// The server process has stopped accepting, after the command to drain: the other process accepts all new
    /// connections.
    AcceptLeft,
    /// The server process has finished draining, and exits.
    Drained {
        /// Responses that were aborted after `drain_timeout_ms`.
        cut_off_count: u64,
    },
}

/// The kind of a descriptor in a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FdKind {
    /// The text of the configuration in a sealed memfd.
    Configuration,
    /// Good versions of zones in a sealed memfd.
    Zones,
    /// The certificates, with their private keys unless the keeper has them, in a sealed memfd ([`crate::secrets`]).
    Certificates,
    /// The private keys of the keeper in a sealed memfd ([`crate::secrets`]). No server process gets it.
    HeldKeys,
    /// A socket pair between a server process and the keeper: the end of the receiver ([`crate::signing`]).
    Keeper,
    /// A socket pair between the agent and the keeper: the end of the receiver ([`crate::zone_signing`]). No server
    /// process gets it.
    ZoneKeys,
    /// A keeper that continues for server processes started by another supervisor: its pidfd.
    KeeperProcess {
        /// The process ID.
        pid: i32,
    },
    /// Good versions of certificates, with their private keys unless the keeper has them, in a sealed memfd
    /// ([`crate::secrets`]).
    KeptCertificates,
    /// The shared keys in a sealed memfd ([`crate::secrets`]).
    SharedKeys,
    /// The secrets of TSIG keys in a sealed memfd ([`crate::secrets`]).
    TsigSecrets,
    /// The files for encrypted connections to applications, in a sealed memfd ([`crate::backend_files`]).
    BackendFiles,
    /// The challenges for certificate authorities, in a sealed memfd ([`crate::agent`]).
    Challenges,
    /// The addresses of hosts with applications, in a sealed memfd ([`crate::agent`]).
    BackendAddresses,
    /// The agent's state, or the part for a command about zones, in a sealed memfd ([`crate::agent`]).
    AgentReport,
    /// The served zones, in a sealed memfd ([`crate::agent`]).
    ServedZones,
    /// Journals of zones, in a sealed memfd ([`crate::agent`]).
    Journals,
    /// A zone's dynamic updates, in a sealed memfd ([`crate::agent`]).
    Updates,
    /// Changes of a zone, in a sealed memfd ([`crate::agent`]).
    ZoneChanges,
    /// The records that are derived for zones, in a sealed memfd ([`crate::derived`]).
    DerivedRecords,
    /// The certificates in service, in a sealed memfd ([`crate::derived`]).
    ServedCertificates,
    /// The target of a log's lines; the configuration says whether it is a file or a socket.
    Log(LogKind),
    /// A connection to an application.
    Backend,
    /// The control socket.
    ControlSocket,
    /// A bound socket. The reuseport sockets of one address follow each other, and the addresses have the order of the
    /// configuration.
    Listener(ListenerRole),
    /// A server process: its pidfd.
    Process(ProcessInfo),
    /// The connection to the previous server process.
    Connection,
    /// A client of the control socket that waits for the end of its command.
    Client(PendingCommand),
    /// The client of the control socket that gets the answer to the command.
    Requester,
}

/// A server process that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// The number of the process in the order of starts, from 1.
    pub generation: u64,
    /// The process ID.
    pub pid: i32,
    /// Whether it serves; otherwise it drains.
    pub is_serving: bool,
    /// The time when the process became ready, in seconds since 1970, before the year 10000.
    #[serde(deserialize_with = "possible_time")]
    pub ready_at_unix_s: u64,
}

fn possible_time<'d, D: Deserializer<'d>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        unix_s @ 0..=UNIX_SECONDS_MAX => Ok(unix_s),
        unix_s => Err(D::Error::custom(format!("{unix_s} is not a valid time in seconds since 1970"))),
    }
}

/// The command whose end a client waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PendingCommand {
    /// The upgrade that the handover is a part of.
    ThisUpgrade,
    /// A reload that has not begun.
    Reload {
        /// As of [`Command::Reload`].
        forced_zones: Vec<String>,
    },
    /// An upgrade that has not begun.
    Upgrade,
    /// The reload of a site that has not begun.
    ReloadSite {
        /// As of [`Command::ReloadSite`].
        name: Option<String>,
    },
    /// A command for a zone that has not begun.
    Zone(ZoneCommand),
}

/// Text that fits into a packet. The text is shown on a terminal or in a log, so a received text contains no control
/// characters with an effect there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(#[serde(deserialize_with = "printable_text")] String);

fn printable_text<'d, D: Deserializer<'d>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(match printable(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    })
}

impl Text {
    /// Bytes of JSON that a text can take: a packet without the header and the message around the text.
    const JSON_BYTES_MAX: usize = MESSAGE_BYTES_MAX - HEADER_BYTES - 96;

    /// `text`, cut if it is too long.
    pub fn new(text: &str) -> Text {
        Text(Text::split_at_limit(text).0.to_owned())
    }

    /// `text` in as many parts as it needs; none if it is empty.
    pub fn parts(text: &str) -> impl Iterator<Item = Text> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let (part, after) = Text::split_at_limit(rest);
            rest = after;
            (!part.is_empty()).then(|| Text(part.to_owned()))
        })
    }

    fn split_at_limit(text: &str) -> (&str, &str) {
        let mut json_bytes = 0;
        let end = text.char_indices().find(|(_, character)| {
            let bytes = match character {
                '"' | '\\' | '\u{8}' | '\u{c}' | '\n' | '\r' | '\t' => 2,
                '\0'..='\x1f' => 6,
                _ => character.len_utf8(),
            };
            json_bytes = usize::saturating_add(json_bytes, bytes);
            json_bytes > Text::JSON_BYTES_MAX
        });
        text.split_at(end.map_or(text.len(), |(index, _)| index))
    }
}

impl std::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The reason why a packet is not a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The packet comes from another program.
    NotOurs,
    /// The packet comes from another version of this program.
    OtherVersion(u8),
    /// The packet breaks the format of this version.
    Malformed(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::NotOurs => write!(out, "the message does not use the sanderling protocol"),
            DecodeError::OtherVersion(version) => {
                write!(out, "the message uses protocol version {version}, and this program version {VERSION}")
            }
            DecodeError::Malformed(reason) => write!(out, "the message is malformed: {reason}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The packet of `message` with descriptors of these `kinds`.
pub(crate) fn encode(message: &Message, kinds: &[FdKind]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(128);
    packet.extend_from_slice(&MAGIC);
    packet.extend_from_slice(&[VERSION, 0, 0, 0]);
    serde_json::to_writer(&mut packet, &(message, kinds))
        .expect("a message has no map and the memory takes all writes");
    packet
}

/// The message in `packet`, and the kinds of its descriptors.
pub(crate) fn decode(packet: &[u8]) -> Result<(Message, Vec<FdKind>), DecodeError> {
    match packet.strip_prefix(&MAGIC) {
        Some([VERSION, 0, 0, 0, body @ ..]) => {
            serde_json::from_slice(body).map_err(|error| DecodeError::Malformed(error.to_string()))
        }
        Some([version, _, _, _, ..]) if *version != VERSION => Err(DecodeError::OtherVersion(*version)),
        _ => Err(DecodeError::NotOurs),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::agent::{StoreResult, UpdatesId};
    use proptest::prelude::*;
    use sanderling_config::Service;

    /// The commands for keys and signatures.
    fn key_commands() -> Vec<Command> {
        let zone = || "example.com".to_owned();
        vec![
            Command::HoldKeys { number: 1 },
            Command::RetainKeys,
            Command::ServeKeys,
            Command::ServeZoneKeys,
            Command::UseKeeper,
            Command::ReadZones { zones: vec![zone()], forced_zones: Vec::new(), is_success: true },
            Command::Dnssec(DnssecCommand::Status { zone: zone() }),
            Command::Dnssec(DnssecCommand::NewKeys { zone: zone() }),
            Command::Dnssec(DnssecCommand::Rollover { zone: zone(), keys: RolloverKeys::Ksk, is_compromised: true }),
        ]
    }

    /// Every message.
    pub(crate) fn messages() -> Vec<Message> {
        let text = || Text::new("line\n");
        let formats = [StatusFormat::Text, StatusFormat::Verbose, StatusFormat::Json, StatusFormat::Metrics];
        let formats = formats.map(Command::Status);
        let reload = Command::Reload { forced_zones: vec!["example.com".to_owned()] };
        let zone = || "example.com".to_owned();
        let notify = || ZoneNotify { name: zone(), serial: Some(7), from: "2001:db8::1".parse().expect("an address") };
        let of_zones = [
            ZoneCommand::Reload { zone: zone(), is_forced: true },
            ZoneCommand::List { is_json: true },
            ZoneCommand::Status { zone: zone() },
            ZoneCommand::Show { zone: zone(), rrtype: Some("A".to_owned()) },
            ZoneCommand::Export { zone: zone() },
        ]
        .map(Command::Zone);
        let supervision = Command::Supervision(Supervision { processes: [0, 1, 2], ..Supervision::default() });
        let updates = [Command::UpdateSecrets, Command::UpdateLogs, Command::Reopen, supervision];
        let site = Command::ReloadSite { name: Some("example.com".to_owned()) };
        let others = [reload, site, Command::Upgrade, Command::Stop, Command::Drain, Command::HandOver];
        let id = UpdatesId { pid: u32::MAX, number: u64::MAX };
        let made = UpdatesToStore { zone: zone(), id, replaces: Some([255; 32]) };
        let outcome = UpdatesOutcome { zone: zone(), id, result: StoreResult::Outdated, serial: Some(7) };
        let of_agent = [
            Command::UpdateChallenges { number: 1 },
            Command::ChallengesServed { number: 1 },
            Command::UpdateBackendAddresses,
            Command::Certificates { name: Some(zone()), is_json: true },
            Command::RenewCertificate { name: zone() },
            Command::RevokeCertificate { name: zone(), is_key_compromised: true },
            Command::ReportZones,
            Command::ZonesServed,
            Command::StoreJournals,
            Command::ZoneServed(ServedZone {
                name: zone(),
                serial: Some(u32::MAX),
                is_of_operator: true,
                has_error: true,
                alias_targets: vec![zone()],
            }),
            Command::ZoneNotified(notify()),
            Command::BackendConnected { request: u32::MAX, errno: Some(13) },
            Command::CertificatesServed,
            Command::StoreUpdates(made.clone()),
            Command::UpdatesStored(outcome.clone()),
        ];
        let commands =
            of_agent.into_iter().chain(key_commands()).chain(updates).chain(others).chain(formats).chain(of_zones);
        let events = [
            Event::Stdout(text()),
            Event::Stderr(text()),
            Event::Done { is_success: true },
            Event::Ready { problem_count: 1 },
            Event::Heartbeat,
            Event::ThreadHung(text()),
            Event::Reloaded { changes: text(), problem_count: 1 },
            Event::ReloadRefused,
            Event::ReleaseSwitched { name: Some(zone()) },
            Event::NewProcessNeeded(text()),
            Event::AgentFailed(text()),
            Event::ZonesKept { replaces_all: true },
            Event::CertificatesKept,
            Event::ChallengesChanged { number: 1 },
            Event::ChallengesServed { number: 1 },
            Event::BackendAddressesChanged,
            Event::ZonesServed,
            Event::JournalsChanged,
            Event::UpdatesMade(made),
            Event::UpdatesStored(outcome),
            Event::CertificatesServed,
            Event::ZoneStored { zone: zone(), is_forced: true },
            Event::ZoneNotified(notify()),
            Event::BackendWanted { request: u32::MAX, path: "/run/app.sock".to_owned() },
            Event::ZoneServed(ServedZone {
                name: zone(),
                serial: None,
                is_of_operator: false,
                has_error: false,
                alias_targets: vec![],
            }),
            Event::CertificateStored { name: zone() },
            Event::DerivedStored,
            Event::KeeperLost,
            Event::AgentReport,
            Event::KeysHeld { number: 1 },
            Event::KeysKept,
            Event::KeeperReport(SigningCounts::default()),
            Event::LogFailed(LogKind::Queries),
            Event::Failed,
            Event::AcceptStopped,
            Event::AcceptLeft,
            Event::Drained { cut_off_count: 1 },
        ];
        let others = [Message::Handover { has_more: true }];
        commands.map(Message::Command).chain(events.map(Message::Event)).chain(others).collect()
    }

    /// Every kind of descriptor.
    pub(crate) fn kinds() -> Vec<FdKind> {
        let process = ProcessInfo { generation: 7, pid: 1234, is_serving: false, ready_at_unix_s: 1_800_000_000 };
        let reload = PendingCommand::Reload { forced_zones: vec!["example.com".to_owned()] };
        let zone = ZoneCommand::Status { zone: "example.com".to_owned() };
        let site = PendingCommand::ReloadSite { name: None };
        let pending = [PendingCommand::ThisUpgrade, reload, site, PendingCommand::Upgrade, PendingCommand::Zone(zone)];
        let pending = pending.map(FdKind::Client);
        let services = Service::ALL
            .map(|service| FdKind::Listener(ListenerRole { service, is_external: service == Service::Dns }));
        let others = [
            FdKind::Configuration,
            FdKind::Zones,
            FdKind::Certificates,
            FdKind::KeptCertificates,
            FdKind::HeldKeys,
            FdKind::Keeper,
            FdKind::ZoneKeys,
            FdKind::KeeperProcess { pid: 1234 },
            FdKind::SharedKeys,
            FdKind::TsigSecrets,
            FdKind::BackendFiles,
            FdKind::Challenges,
            FdKind::BackendAddresses,
            FdKind::ServedZones,
            FdKind::Journals,
            FdKind::Updates,
            FdKind::ZoneChanges,
            FdKind::DerivedRecords,
            FdKind::ServedCertificates,
            FdKind::AgentReport,
            FdKind::Log(LogKind::Access),
            FdKind::Log(LogKind::Queries),
            FdKind::Log(LogKind::Dnstap),
            FdKind::Backend,
            FdKind::ControlSocket,
            FdKind::Process(process),
            FdKind::Requester,
        ];
        [&pending[..], &services, &others, &[FdKind::Connection]].concat()
    }

    /// The names of the variants of an enum, as serde lists them in an error.
    fn variants<'d, T: Deserialize<'d> + fmt::Debug>() -> Vec<String> {
        let error = serde_json::from_str::<T>("\"NoVariant\"").expect_err("unknown").to_string();
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_message_is_decoded_as_it_was_encoded() {
        let mut all = String::new();
        for message in messages() {
            let packet = encode(&message, &kinds());
            all += &String::from_utf8_lossy(&packet);
            assert_eq!(decode(&packet), Ok((message, kinds())));
        }
        let enums = [variants::<Message>(), variants::<Command>(), variants::<Event>(), variants::<FdKind>()];
        let inner = [
            variants::<StatusFormat>(),
            variants::<PendingCommand>(),
            variants::<ZoneCommand>(),
            variants::<DnssecCommand>(),
        ];
        for name in enums.iter().chain(&inner).flatten() {
            assert!(all.contains(&format!("\"{name}\"")), "{name} is not in `messages` or `kinds`");
        }
        assert_eq!(enums.map(|names| names.len()), [3, 34, 37, 28], "{inner:?}");
    }

    #[test]
    fn received_text_has_no_effect_on_a_terminal() {
        let packet = encode(&Message::Event(Event::Stderr(Text::new("\u{1b}]0;owned\u{7} \u{9b}\n"))), &[]);
        let Ok((Message::Event(Event::Stderr(text)), _)) = decode(&packet) else { panic!("{packet:?}") };
        assert_eq!(&*text, "\\u{1b}]0;owned\\u{7} \\u{9b}\n");
    }

    #[test]
    fn header_has_magic_and_version() {
        let packet = encode(&Message::Command(Command::Stop), &[]);
        assert_eq!(packet, b"SDLG\x02\0\0\0[{\"Command\":\"Stop\"},[]]");
    }

    #[test]
    fn other_programs_and_versions_are_told_apart() {
        for (packet, error) in [
            (&b""[..], DecodeError::NotOurs),
            (b"GET / HTTP/1.1", DecodeError::NotOurs),
            (b"SDLG\x02\0\0\x01[]", DecodeError::NotOurs),
            (b"SDLG\x01\x03\0\0", DecodeError::OtherVersion(1)),
            (b"SDLG\x03what a later version may send", DecodeError::OtherVersion(3)),
            (b"\x01the server understands nothing of this", DecodeError::NotOurs),
        ] {
            assert_eq!(decode(packet), Err(error), "{packet:?}");
        }
        for body in ["", "[]", "[{\"Command\":\"Dance\"},[]]"] {
            let result = decode(format!("SDLG\x02\0\0\0{body}").as_bytes());
            assert!(matches!(result, Err(DecodeError::Malformed(_))), "{body}: {result:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..60), index in 0..200_usize) {
            for start in [&[][..], b"SDLG\x02\0\0\0"] {
                let _ = decode(&[start, &bytes].concat());
            }
            for message in messages() {
                let mut packet = encode(&message, &kinds()[..2]);
                let index = index % packet.len();
                packet[index] = bytes.len() as u8;
                if let Ok((message, kinds)) = decode(&packet) {
                    prop_assert!(decode(&encode(&message, &kinds)).is_ok());
                }
            }
        }

        #[test]
        fn parts_fit_into_a_packet_and_make_up_the_text(text in "(é|x|\"|\u{1}|\n|\u{1f426}){0,6000}") {
            let mut joined = String::new();
            for part in Text::parts(&text) {
                joined.push_str(&part);
                let packet = encode(&Message::Event(Event::NewProcessNeeded(part)), &[]);
                prop_assert!(packet.len() <= MESSAGE_BYTES_MAX);
            }
            prop_assert_eq!(joined, text);
        }
    }
}
