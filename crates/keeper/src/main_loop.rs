//! The main thread: takes keys and sockets from the supervisor, and reports to it.

use crate::key_set::KeySet;
use crate::signing_thread::Shared;
use crate::zone_keys::{KeyFolder, ZoneKeys};
use crate::zone_thread;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::secrets::{
    certificates_from_memfd, certificates_to_memfd, held_keys_from_memfd, held_keys_to_memfd,
    kept_certificates_from_memfd,
};
use sanderling_ipc::{Command, Connection, Event, FdKind, HEARTBEAT_INTERVAL, IncomingFds, Message, Received};
use sanderling_os::poll_set::PollSet;
use sanderling_os::request_socket::RequestSocket;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

/// The main thread.
pub(crate) struct MainLoop {
    /// `None` after the supervisor has exited.
    supervisor: Option<Connection>,
    keys: KeySet,
    /// Each signing thread has a reference.
    shared: Arc<Shared>,
    /// The folder with the keys of zones; `None` if no zone is signed.
    zone_keys: Option<KeyFolder>,
    /// Sockets whose threads could not be started yet.
    unserved: Vec<Unserved>,
    /// Whether the last one could not be.
    is_without_thread: bool,
}

/// A socket that gets its own thread.
enum Unserved {
    /// A socket of a server process's worker.
    Handshakes(RequestSocket),
    /// A socket of an agent.
    Zones(UnixStream),
}

impl MainLoop {
    pub(crate) fn new(supervisor: Connection, zone_keys: Option<KeyFolder>) -> MainLoop {
        MainLoop {
            supervisor: Some(supervisor),
            keys: KeySet::default(),
            shared: Arc::default(),
            zone_keys,
            unserved: Vec::new(),
            is_without_thread: false,
        }
    }

    /// Runs until neither the supervisor nor a server process needs the keeper.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut next_report = Instant::now();
        while self.supervisor.is_some() || Arc::strong_count(&self.shared) > 1 || !self.unserved.is_empty() {
            let now = Instant::now();
            if now >= next_report {
                next_report = now + HEARTBEAT_INTERVAL;
                self.send(Event::KeeperReport(self.shared.counts()), Vec::new());
                self.serve_all();
            }
            let sources = self.supervisor.iter().map(AsFd::as_fd).collect::<Vec<_>>();
            PollSet::new(sources).wait(Some(next_report.saturating_duration_since(now)))?;
            self.handle_commands();
        }
        Ok(())
    }

    fn handle_commands(&mut self) {
        while let Some(supervisor) = &mut self.supervisor {
            match supervisor.flush().and_then(|()| supervisor.recv()) {
                Ok(Received::WouldBlock) => return,
                Ok(Received::Message(Message::Command(command), descriptors)) => {
                    if let Err(error) = self.handle(&command, descriptors) {
                        log_error(&format!("the keeper cannot carry out {command:?}: {}", error_text(&error)));
                    }
                }
                Ok(Received::Message(..) | Received::Closed) | Err(_) => self.supervisor = None,
            }
        }
    }

    fn handle(&mut self, command: &Command, received: IncomingFds) -> io::Result<()> {
        let Descriptors { certificates, kept_certificates, held_keys, keeper_sockets, zone_keys, .. } =
            received.into_iter().collect();
        let missing = || io::Error::other("nothing came with it");
        match command {
            Command::HoldKeys { number } => {
                let certificates = certificates_from_memfd(certificates.ok_or_else(missing)?)?;
                // Keys of an earlier keeper, which may have run foreign code: the other keys are used even without
                // these.
                let earlier = held_keys.map(held_keys_from_memfd).transpose().unwrap_or_else(|error| {
                    log_error(&format!("ignoring the keys of the previous keeper: {}", error_text(&error)));
                    None
                });
                self.keys.hold_earlier(earlier.unwrap_or_default());
                let without_keys = certificates_to_memfd(&self.keys.hold(certificates))?;
                self.use_keys()?;
                self.send(Event::KeysHeld { number: *number }, vec![(FdKind::Certificates, without_keys)]);
            }
            Command::RetainKeys => {
                self.keys.retain(&kept_certificates_from_memfd(kept_certificates.ok_or_else(missing)?)?);
                self.use_keys()?;
            }
            Command::ServeKeys => {
                let sockets = keeper_sockets.into_iter().map(RequestSocket::from_fd).collect::<io::Result<Vec<_>>>()?;
                self.unserved.extend(sockets.into_iter().map(Unserved::Handshakes));
                self.serve_all();
            }
            Command::ServeZoneKeys => {
                self.zone_keys.as_ref().ok_or_else(|| io::Error::other("there is no folder of zone keys"))?;
                self.unserved.push(Unserved::Zones(zone_keys.ok_or_else(missing)?.into()));
                self.serve_all();
            }
            _ => return Err(io::Error::other("it is not for the keeper")),
        }
        Ok(())
    }

    /// Signs with the current keys, and makes the supervisor keep them for the next keeper.
    fn use_keys(&mut self) -> io::Result<()> {
        self.shared.replace_keys(self.keys.to_map());
        let keys = held_keys_to_memfd(self.keys.pems())?;
        self.send(Event::KeysKept, vec![(FdKind::HeldKeys, keys)]);
        Ok(())
    }

    /// Starts threads for the sockets without a thread, until the system refuses. The rest is retried with the next
    /// report: requests wait meanwhile.
    fn serve_all(&mut self) {
        while let Some(socket) = self.unserved.pop() {
            if let Err((error, socket)) = self.serve(socket) {
                self.unserved.push(socket);
                if !self.is_without_thread {
                    let error = error_text(&error);
                    log_error(&format!("the keeper cannot start a thread: {error}; retrying"));
                }
                self.is_without_thread = true;
                return;
            }
        }
        self.is_without_thread = false;
    }

    fn serve(&self, socket: Unserved) -> Result<(), (io::Error, Unserved)> {
        let (shared, folder) = (Arc::clone(&self.shared), self.zone_keys.clone());
        let name = match socket {
            Unserved::Handshakes(_) => "signing",
            Unserved::Zones(_) => "zone-signing",
        };
        // A thread that does not start would drop its arguments.
        let (to_thread, given) = mpsc::channel();
        let serve = move || match given.recv() {
            Ok(Unserved::Handshakes(socket)) => shared.serve(&socket),
            Ok(Unserved::Zones(stream)) => {
                // The thread ends with the agent.
                let _ = folder.map(|folder| zone_thread::serve(ZoneKeys::new(folder), &shared, stream));
            }
            Err(_) => {}
        };
        match thread::Builder::new().name(name.to_owned()).spawn(serve) {
            Ok(_) => {
                // The thread waits for it.
                let _ = to_thread.send(socket);
                Ok(())
            }
            Err(error) => Err((error, socket)),
        }
    }

    fn send(&mut self, event: Event, descriptors: IncomingFds) {
        let Some(supervisor) = &mut self.supervisor else { return };
        if supervisor.send_with(&Message::Event(event), descriptors).is_err() {
            self.supervisor = None;
        }
    }
}
