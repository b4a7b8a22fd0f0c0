//! Hands descriptors over: to a program that is executed, to a server process that is started, to another process.

use crate::connection::{Connection, OutgoingFds, Received};
use crate::message::{Event, FdKind, Message, PendingCommand, ProcessInfo};
use sanderling_config::log::log_warning;
use sanderling_config::{ListenerRole, LogKind, Service};
use sanderling_os::poll_set::PollSet;
use sanderling_os::{listen_fds, memfd};
use serde_json::Value;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The environment variable with the number of the list's descriptor.
const LIST_VARIABLE: &str = "SANDERLING_HANDOVER";
/// Bytes of the list: thousands of descriptors.
const LIST_BYTES_MAX: u64 = 1024 * 1024;
/// Descriptors of one packet: their kinds fit into it.
const FDS_PER_PACKET: usize = 32;
/// Time for the other process to read or send a handover.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The names of descriptors that a server process inherits (`LISTEN_FDNAMES`). A listener has its service's name.
const NAMES: [(&str, FdKind); 16] = [
    ("supervisor", FdKind::Connection),
    ("configuration", FdKind::Configuration),
    ("zones", FdKind::Zones),
    ("certificates", FdKind::Certificates),
    ("kept-certificates", FdKind::KeptCertificates),
    ("keeper", FdKind::Keeper),
    ("shared-keys", FdKind::SharedKeys),
    ("tsig-secrets", FdKind::TsigSecrets),
    ("backend-files", FdKind::BackendFiles),
    ("derived-records", FdKind::DerivedRecords),
    ("challenges", FdKind::Challenges),
    ("backend-addresses", FdKind::BackendAddresses),
    ("access-log", FdKind::Log(LogKind::Access)),
    ("query-log", FdKind::Log(LogKind::Queries)),
    ("dnstap", FdKind::Log(LogKind::Dnstap)),
    ("control", FdKind::ControlSocket),
];

/// `descriptors` with the names under which a new server process inherits them.
///
/// # Panics
/// Panics for a descriptor of another process or client, which no server process inherits.
pub fn named(descriptors: OutgoingFds<'_>) -> Vec<(String, BorrowedFd<'_>)> {
    let name = |kind| match kind {
        FdKind::Listener(role) => role.service.name(),
        _ => NAMES.iter().find(|(_, known)| *known == kind).expect("a server process has no other descriptors").0,
    };
    descriptors.into_iter().map(|(kind, descriptor)| (name(kind).to_owned(), descriptor)).collect()
}

/// Received descriptors by their kinds, each in the order of arrival.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// The text of the configuration.
    pub configuration: Option<OwnedFd>,
    /// Good versions of zones; a later version replaces an earlier version of the same zone.
    pub zones: Vec<OwnedFd>,
    /// The certificates with their private keys.
    pub certificates: Option<OwnedFd>,
    /// Good versions of certificates.
    pub kept_certificates: Option<OwnedFd>,
    /// A keeper's private keys.
    pub held_keys: Option<OwnedFd>,
    /// Sockets to the keeper.
    pub keeper_sockets: Vec<OwnedFd>,
    /// A socket between the agent and the keeper.
    pub zone_keys: Option<OwnedFd>,
    /// Keepers of the supervisor before, with their process IDs.
    pub keeper_processes: Vec<(i32, OwnedFd)>,
    /// The shared keys.
    pub shared_keys: Option<OwnedFd>,
    /// The secrets of TSIG keys.
    pub tsig_secrets: Option<OwnedFd>,
    /// The files for encrypted connections to applications.
    pub backend_files: Option<OwnedFd>,
    /// The challenges for certificate authorities.
    pub challenges: Option<OwnedFd>,
    /// The addresses of hosts with applications.
    pub backend_addresses: Option<OwnedFd>,
    /// The served zones.
    pub served_zones: Option<OwnedFd>,
    /// Journals of zones.
    pub journals: Option<OwnedFd>,
    /// A zone's dynamic updates.
    pub updates: Option<OwnedFd>,
    /// Changes of a zone.
    pub zone_changes: Option<OwnedFd>,
    /// The records that are derived for zones.
    pub derived_records: Option<OwnedFd>,
    /// The certificates in service.
    pub served_certificates: Option<OwnedFd>,
    /// The agent's state.
    pub agent_report: Option<OwnedFd>,
    /// The targets of log lines.
    pub logs: Vec<(LogKind, OwnedFd)>,
    /// The control socket.
    pub control: Option<OwnedFd>,
    /// The bound sockets.
    pub listeners: Vec<(ListenerRole, OwnedFd)>,
    /// The server processes.
    pub processes: Vec<(ProcessInfo, OwnedFd)>,
    /// The connection to each of `processes`; to the supervisor in a server process.
    pub connections: Vec<OwnedFd>,
    /// The clients that wait for the end of their commands.
    pub clients: Vec<(PendingCommand, OwnedFd)>,
    /// The connection to an application.
    pub backend: Option<OwnedFd>,
    /// The client that gets the answer to the command.
    pub requester: Option<OwnedFd>,
}

impl Extend<(FdKind, OwnedFd)> for Descriptors {
    fn extend<I: IntoIterator<Item = (FdKind, OwnedFd)>>(&mut self, received: I) {
        for (kind, descriptor) in received {
            match kind {
                FdKind::Configuration => self.configuration = Some(descriptor),
                FdKind::Zones => self.zones.push(descriptor),
                FdKind::Certificates => self.certificates = Some(descriptor),
                FdKind::KeptCertificates => self.kept_certificates = Some(descriptor),
                FdKind::HeldKeys => self.held_keys = Some(descriptor),
                FdKind::Keeper => self.keeper_sockets.push(descriptor),
                FdKind::ZoneKeys => self.zone_keys = Some(descriptor),
                FdKind::KeeperProcess { pid } => self.keeper_processes.push((pid, descriptor)),
                FdKind::SharedKeys => self.shared_keys = Some(descriptor),
                FdKind::TsigSecrets => self.tsig_secrets = Some(descriptor),
                FdKind::BackendFiles => self.backend_files = Some(descriptor),
                FdKind::Challenges => self.challenges = Some(descriptor),
                FdKind::BackendAddresses => self.backend_addresses = Some(descriptor),
                FdKind::ServedZones => self.served_zones = Some(descriptor),
                FdKind::Journals => self.journals = Some(descriptor),
                FdKind::Updates => self.updates = Some(descriptor),
                FdKind::ZoneChanges => self.zone_changes = Some(descriptor),
                FdKind::DerivedRecords => self.derived_records = Some(descriptor),
                FdKind::ServedCertificates => self.served_certificates = Some(descriptor),
                FdKind::AgentReport => self.agent_report = Some(descriptor),
                FdKind::Log(log) => self.logs.push((log, descriptor)),
                FdKind::ControlSocket => self.control = Some(descriptor),
                FdKind::Listener(role) => self.listeners.push((role, descriptor)),
                FdKind::Process(info) => self.processes.push((info, descriptor)),
                FdKind::Connection => self.connections.push(descriptor),
                FdKind::Client(pending) => self.clients.push((pending, descriptor)),
                FdKind::Backend => self.backend = Some(descriptor),
                FdKind::Requester => self.requester = Some(descriptor),
            }
        }
    }
}

impl FromIterator<(FdKind, OwnedFd)> for Descriptors {
    fn from_iter<I: IntoIterator<Item = (FdKind, OwnedFd)>>(received: I) -> Descriptors {
        let mut descriptors = Descriptors::default();
        descriptors.extend(received);
        descriptors
    }
}

/// The descriptors that this server process has inherited.
///
/// # Errors
/// Returns an error if a descriptor has an unknown name.
pub fn from_names() -> io::Result<Descriptors> {
    let mut descriptors = Descriptors::default();
    for (name, descriptor) in listen_fds::take()? {
        let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind.clone());
        let listener = || Some(FdKind::Listener(ListenerRole::internal(Service::from_name(&name)?)));
        let unknown = || io::Error::other(format!("unknown inherited descriptor `{name}`"));
        descriptors.extend([(known.or_else(listener).ok_or_else(unknown)?, descriptor)]);
    }
    Ok(descriptors)
}

/// A list of `descriptors` for the program that replaces this one by `exec`: its descriptor, which must stay open like
/// theirs, and the environment variable that names it.
pub fn to_list(descriptors: &OutgoingFds<'_>) -> io::Result<(OwnedFd, (&'static str, String))> {
    let list: Vec<(RawFd, FdKind)> = descriptors.iter().map(|(kind, fd)| (fd.as_raw_fd(), kind.clone())).collect();
    let list = memfd::create("handover", &serde_json::to_vec(&list)?)?;
    let variable = (LIST_VARIABLE, list.as_raw_fd().to_string());
    Ok((list, variable))
}

/// The environment variable for a program that inherits nothing although this one did.
pub const NO_LIST: (&str, &str) = (LIST_VARIABLE, "");

fn list_number() -> Option<String> {
    std::env::var(LIST_VARIABLE).ok().filter(|value| !value.is_empty())
}

/// Whether this program has replaced another.
pub fn has_list() -> bool {
    list_number().is_some()
}

/// The descriptors of the program that this one has replaced; `None` if there was none.
///
/// # Errors
/// Returns an error if the list is malformed.
pub fn from_list() -> io::Result<Option<Descriptors>> {
    let Some(number) = list_number() else { return Ok(None) };
    let number = number.parse().map_err(|_| io::Error::other(format!("{LIST_VARIABLE} is not a number")))?;
    let list = memfd::read(listen_fds::take_fd(number)?, LIST_BYTES_MAX)?;
    let list: Vec<(RawFd, Value)> = serde_json::from_slice(&list)
        .map_err(|error| io::Error::other(format!("the list of inherited descriptors is malformed: {error}")))?;
    let mut descriptors = Descriptors::default();
    for (number, kind) in list {
        let descriptor = listen_fds::take_fd(number)?;
        match serde_json::from_value(kind.clone()) {
            Ok(kind) => descriptors.extend([(kind, descriptor)]),
            // A later version has added this descriptor: a supervisor without it is better than none.
            Err(_) => log_warning(&format!("an inherited descriptor has the unknown kind {kind} and is closed")),
        }
    }
    Ok(Some(descriptors))
}

/// Sends `descriptors` to the process at the other end of `connection`.
///
/// # Errors
/// Returns an error if the other process has closed the connection or does not read.
pub fn send(descriptors: &OutgoingFds<'_>, connection: &mut Connection) -> io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let mut rest = descriptors.as_slice();
    loop {
        let (packet, after) = rest.split_at(rest.len().min(FDS_PER_PACKET));
        let copies = packet.iter().map(|(kind, fd)| Ok((kind.clone(), fd.try_clone_to_owned()?)));
        let has_more = !after.is_empty();
        connection.send_with(&Message::Handover { has_more }, copies.collect::<io::Result<_>>()?)?;
        connection.flush_until(deadline)?;
        if !has_more {
            return Ok(());
        }
        rest = after;
    }
}

/// Receives a handover.
///
/// # Errors
/// Returns an error if the other process refuses, has closed the connection, has sent something else, or has not sent
/// all descriptors in time.
pub fn receive(connection: &mut Connection) -> io::Result<Descriptors> {
    let deadline = Instant::now() + TIMEOUT;
    let mut descriptors = Descriptors::default();
    loop {
        match connection.recv()? {
            Received::WouldBlock => {
                let remaining = deadline.saturating_duration_since(Instant::now());
                if remaining.is_zero() {
                    let message = "the running process does not hand over its sockets; stop it first";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                PollSet::new([connection.as_fd()]).wait(Some(remaining))?;
            }
            Received::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
            Received::Message(Message::Handover { has_more }, received) => {
                descriptors.extend(received);
                if !has_more {
                    return Ok(descriptors);
                }
            }
            Received::Message(Message::Event(Event::Stderr(refusal)), _) => {
                return Err(io::Error::other(refusal.trim_start_matches("sanderling: ").trim_end().to_owned()));
            }
            Received::Message(other, _) => {
                return Err(io::Error::other(format!("unexpected message in a handover: {other:?}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::kinds;

    #[test]
    fn handover_of_any_size_arrives() {
        for count in [0, 1, FDS_PER_PACKET, FDS_PER_PACKET + 1, 300] {
            let (mut sender, mut receiver) = Connection::pair().expect("a pair");
            let own = memfd::create("test", b"").expect("created");
            let kinds: Vec<FdKind> = kinds().into_iter().cycle().take(count).collect();
            let received = std::thread::scope(|scope| {
                let receiving = scope.spawn(|| receive(&mut receiver).expect("received"));
                let outgoing = kinds.iter().map(|kind| (kind.clone(), own.as_fd())).collect();
                send(&outgoing, &mut sender).expect("sent");
                receiving.join().expect("no panic")
            });
            let count_of = |is_kind: fn(&FdKind) -> bool| kinds.iter().filter(|kind| is_kind(kind)).count();
            assert_eq!(received.listeners.len(), count_of(|kind| matches!(kind, FdKind::Listener(_))));
            assert_eq!(received.processes.len(), count_of(|kind| matches!(kind, FdKind::Process(_))));
            assert_eq!(received.connections.len(), count_of(|kind| *kind == FdKind::Connection));
            assert_eq!(received.clients.len(), count_of(|kind| matches!(kind, FdKind::Client(_))));
            assert_eq!(received.control.is_some(), kinds.contains(&FdKind::ControlSocket));
        }
    }

    #[test]
    fn refused_and_incomplete_handovers_are_errors() {
        let refusal = Message::Event(Event::Stderr(crate::Text::new("sanderling: no\n")));
        for (message, expected) in [(refusal, "no"), (Message::Handover { has_more: true }, "unexpected end of file")] {
            let (mut sender, mut receiver) = Connection::pair().expect("a pair");
            sender.send(&message).expect("sent");
            drop(sender);
            assert_eq!(receive(&mut receiver).expect_err("incomplete").to_string(), expected);
        }
    }
}
