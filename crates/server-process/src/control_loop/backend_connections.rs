//! The work of other processes for connections to applications: the supervisor makes those to UNIX sockets, and the
//! agent finds the addresses of hosts.

use super::ControlLoop;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::agent::backend_addresses_from_memfd;
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::{Event, IncomingFds};
use sanderling_server::BackendServerStatus;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

impl ControlLoop<'_> {
    /// Asks the supervisor for the connections that serving threads want.
    pub(super) fn request_backends(&mut self) {
        if self.state.supervisor.is_none() {
            return self.fail_backends();
        }
        for wanted in self.state.assembly.unix_connector.take_wanted() {
            // The paths of a configuration are UTF-8, as its text.
            let path = wanted.path.to_string_lossy().into_owned();
            self.send(Event::BackendWanted { request: wanted.request, path });
        }
    }

    /// Gives the answer of the supervisor to the thread that waits for it.
    pub(super) fn on_backend_connected(&mut self, request: u32, errno: Option<i32>, descriptors: IncomingFds) {
        let result = connection(errno, descriptors);
        if let Some(worker_index) = self.state.assembly.unix_connector.answer(request, result) {
            self.server.wake_worker(worker_index);
        }
    }

    /// Takes over the addresses of hosts with applications that the agent has found.
    pub(super) fn update_backend_addresses(&mut self, descriptors: IncomingFds) {
        let received: Descriptors = descriptors.into_iter().collect();
        let missing = || io::Error::other("the command has no descriptor");
        match received.backend_addresses.ok_or_else(missing).and_then(backend_addresses_from_memfd) {
            Ok(found) => {
                self.state.assembly.update_backend_addresses(&self.state.config, found);
                let addresses = Arc::clone(&self.state.assembly.backend_addresses);
                self.server.update_snapshot(|snapshot| snapshot.backend_addresses = addresses);
            }
            Err(error) => log_error(&format!("cannot read the addresses of applications: {}", error_text(&error))),
        }
    }

    /// Whether requests of clients that are connected may still want some after this process has drained for this time.
    pub(super) fn may_want_backends(&self, drained: Duration) -> bool {
        let is_over = drained > Duration::from_millis(self.state.config.limits.drain_timeout_ms);
        let has_clients = || self.server.status().threads.iter().any(|thread| thread.http_open_count() > 0);
        !is_over && !self.state.config.backend_sockets().is_empty() && has_clients()
    }

    /// Without a supervisor, or after the last look for them, no connection is made: the threads that want one learn
    /// it.
    pub(super) fn fail_backends(&mut self) {
        for worker_index in self.state.assembly.unix_connector.fail_all() {
            self.server.wake_worker(worker_index);
        }
    }
}

/// A host with an application whose name was not found, as a server that is down.
pub(super) fn not_found(name: &str) -> BackendServerStatus {
    BackendServerStatus {
        address: name.to_owned(),
        down: Some("the name was not found".to_owned()),
        requests: 0,
        errors: 0,
        connections: 0,
        responses: 0,
        response_ms: 0,
    }
}

fn connection(errno: Option<i32>, descriptors: IncomingFds) -> io::Result<OwnedFd> {
    if let Some(errno) = errno {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let received: Descriptors = descriptors.into_iter().collect();
    received.backend.ok_or_else(|| io::Error::other("the command has no descriptor"))
}
