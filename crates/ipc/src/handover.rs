//! Hands descriptors over: to a program that is executed, to a server process that is started, to another process.

use crate::connection::{Connection, IncomingFds, OutgoingFds, Received};
use crate::message::{ArtefactKind, Event, FdKind, Message};
use sanderling_config::log::warn;
use sanderling_config::{ListenerRole, Service};
use sanderling_os::{listen_fds, memfd};
use serde_json::Value;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The environment variable with the number of the list's descriptor.
const LIST_VARIABLE: &str = "SANDERLING_HANDOVER";
/// Bytes of the list: thousands of descriptors.
const LIST_BYTES_MAX: u64 = 1024 * 1024;
/// Descriptors of one packet: their kinds fit into it.
const FDS_PER_PACKET: usize = 32;
/// Time in which the other process must read a handover.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The names of descriptors that a server process inherits (`LISTEN_FDNAMES`).
const NAMES: [(&str, FdKind); 5] = [
    ("channel", FdKind::Connection),
    ("configuration", FdKind::Artefact(ArtefactKind::Configuration)),
    ("control", FdKind::ControlSocket),
    ("http", FdKind::Listener(ListenerRole { service: Service::Http, is_external: false })),
    ("dns", FdKind::Listener(ListenerRole { service: Service::Dns, is_external: false })),
];

/// `descriptors` with the names under which a new server process inherits them.
///
/// # Panics
/// A server process has no descriptors of other processes or clients.
pub fn named(descriptors: OutgoingFds<'_>) -> Vec<(String, BorrowedFd<'_>)> {
    let name = |kind| match kind {
        FdKind::Listener(role) => role.service.name(),
        _ => NAMES.iter().find(|(_, known)| *known == kind).expect("a server process has no other descriptors").0,
    };
    descriptors.into_iter().map(|(kind, descriptor)| (name(kind).to_owned(), descriptor)).collect()
}

/// The descriptors that this server process has inherited.
///
/// # Errors
/// One of them has an unknown name.
pub fn from_names() -> io::Result<IncomingFds> {
    let kind = |name: &str| NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    let inherited = listen_fds::take()?.into_iter().map(|(name, descriptor)| match kind(&name) {
        Some(kind) => Ok((kind, descriptor)),
        None => Err(io::Error::other(format!("unknown inherited descriptor `{name}`"))),
    });
    inherited.collect()
}

/// A list of `descriptors` for the program that replaces this one by `exec`: its descriptor, which must stay open like
/// theirs, and the environment variable that names it.
pub fn to_list(descriptors: &OutgoingFds<'_>) -> io::Result<(OwnedFd, (&'static str, String))> {
    let list: Vec<(RawFd, FdKind)> = descriptors.iter().map(|(kind, fd)| (fd.as_raw_fd(), *kind)).collect();
    let list = memfd::create("handover", &serde_json::to_vec(&list)?)?;
    let variable = (LIST_VARIABLE, list.as_raw_fd().to_string());
    Ok((list, variable))
}

/// The descriptors of the program that this one has replaced; `None` if there was none.
///
/// # Errors
/// The list is malformed.
pub fn from_list() -> io::Result<Option<IncomingFds>> {
    let Some(number) = std::env::var(LIST_VARIABLE).ok().filter(|value| !value.is_empty()) else { return Ok(None) };
    let number = number.parse().map_err(|_| io::Error::other(format!("{LIST_VARIABLE} is not a number")))?;
    let list = memfd::read(listen_fds::take_fd(number)?, LIST_BYTES_MAX)?;
    let list: Vec<(RawFd, Value)> = serde_json::from_slice(&list)
        .map_err(|error| io::Error::other(format!("the list of inherited descriptors is malformed: {error}")))?;
    let mut descriptors = Vec::new();
    for (number, kind) in list {
        let descriptor = listen_fds::take_fd(number)?;
        match serde_json::from_value(kind.clone()) {
            Ok(kind) => descriptors.push((kind, descriptor)),
            // Another version has added it: a supervisor without it is better than none.
            Err(_) => warn(&format!("an inherited descriptor has the unknown kind {kind} and is closed")),
        }
    }
    Ok(Some(descriptors))
}

/// Sends `descriptors` to the process at the other end of `connection`.
///
/// # Errors
/// The other process has closed the connection or does not read.
pub fn send(descriptors: &OutgoingFds<'_>, connection: &mut Connection) -> io::Result<()> {
    let deadline = Instant::now() + SEND_TIMEOUT;
    let mut rest = descriptors.as_slice();
    loop {
        let (packet, after) = rest.split_at(rest.len().min(FDS_PER_PACKET));
        let copies = packet.iter().map(|(kind, fd)| Ok((*kind, fd.try_clone_to_owned()?)));
        let has_more = !after.is_empty();
        connection.send_with(&Message::Handover { has_more }, copies.collect::<io::Result<_>>()?)?;
        connection.flush_until(deadline)?;
        if !has_more {
            return Ok(());
        }
        rest = after;
    }
}

/// The descriptors of a handover received so far.
#[derive(Debug, Default)]
pub struct Receiving(IncomingFds);

impl Receiving {
    /// Receives what has arrived; `Some` when the handover is complete.
    ///
    /// # Errors
    /// The other process refuses, has closed the connection, or has sent something else.
    pub fn receive(&mut self, connection: &mut Connection) -> io::Result<Option<IncomingFds>> {
        loop {
            match connection.recv()? {
                Received::WouldBlock => return Ok(None),
                Received::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
                Received::Message(Message::Handover { has_more }, descriptors) => {
                    self.0.extend(descriptors);
                    if !has_more {
                        return Ok(Some(std::mem::take(&mut self.0)));
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::kinds;
    use std::os::fd::AsFd;

    #[test]
    fn handover_of_any_size_arrives() {
        for count in [0, 1, FDS_PER_PACKET, FDS_PER_PACKET + 1, 300] {
            let (mut sender, mut receiver) = Connection::pair().expect("a pair");
            let own = memfd::create("test", b"").expect("created");
            let kinds: Vec<FdKind> = kinds().into_iter().cycle().take(count).collect();
            let received = std::thread::scope(|scope| {
                let receiving = scope.spawn(|| {
                    let mut receiving = Receiving::default();
                    loop {
                        if let Some(received) = receiving.receive(&mut receiver).expect("received") {
                            return received;
                        }
                    }
                });
                let outgoing = kinds.iter().map(|kind| (*kind, own.as_fd())).collect();
                send(&outgoing, &mut sender).expect("sent");
                receiving.join().expect("no panic")
            });
            assert_eq!(received.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>(), kinds);
        }
    }

    #[test]
    fn refused_and_incomplete_handovers_are_errors() {
        let (mut sender, mut receiver) = Connection::pair().expect("a pair");
        let mut receiving = Receiving::default();
        assert!(receiving.receive(&mut receiver).expect("no error").is_none());
        sender.send(&Message::Event(Event::Stderr(crate::Text::new("sanderling: no\n")))).expect("sent");
        assert_eq!(receiving.receive(&mut receiver).expect_err("refused").to_string(), "no");
        sender.send(&Message::Handover { has_more: true }).expect("sent");
        assert!(receiving.receive(&mut receiver).expect("no error").is_none());
        drop(sender);
        receiving.receive(&mut receiver).expect_err("closed");
    }
}
