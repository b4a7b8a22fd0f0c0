//! Connections to the UNIX sockets of applications, which the supervisor makes for the serving threads.

use super::ControlLoop;
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::{Event, IncomingFds};
use std::io;
use std::os::fd::OwnedFd;
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

fn connection(errno: Option<i32>, descriptors: IncomingFds) -> io::Result<OwnedFd> {
    if let Some(errno) = errno {
        return Err(io::Error::from_raw_os_error(errno));
    }
    let received: Descriptors = descriptors.into_iter().collect();
    received.backend.ok_or_else(|| io::Error::other("the command has no descriptor"))
}
