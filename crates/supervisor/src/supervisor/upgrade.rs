//! An upgrade: a server process of the new program, then the new program instead of this one.

use super::{QueuedRequest, Requester, StatusRequest, Supervisor};
use crate::process::Process;
use crate::start_states::StartReason;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{self, log_error, log_warning, report};
use sanderling_ipc::{FdKind, OutgoingFds, PendingCommand, handover};
use sanderling_os::signals;
use sanderling_os::signals::{SIGHUP, SIGUSR2};
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Maximum time to write this program's messages before the next program replaces it.
pub(super) const LOG_FLUSH_MAX: Duration = Duration::from_secs(1);
/// Time in which the server processes must receive all commands before this program is replaced.
const COMMANDS_FLUSH_MAX: Duration = Duration::from_secs(1);

impl Supervisor {
    pub(super) fn begin_upgrade(&mut self, requester: Requester) {
        if let Err(diagnostics) = self.read_config() {
            const KEPT: &str = "the configuration file cannot be loaded; the upgrade keeps the current configuration";
            report(&diagnostics);
            log_warning(KEPT);
            diagnostics.iter().for_each(|diagnostic| self.send_stderr(requester, &format!("{diagnostic}\n")));
            self.send_stderr(requester, &format!("sanderling: warning: {KEPT}\n"));
        }
        self.restore_listeners();
        let program = self.installed_program.clone();
        let result = self.active.try_clone().and_then(|active| {
            let listeners = self.listeners.clone();
            self.start(&program, StartReason::Upgrade, requester, active, listeners)
        });
        if let Err(error) = result {
            let message = format!(
                "upgrade failed, keeping the running program: cannot start {}: {}",
                program.display(),
                error_text(&error)
            );
            log_error(&message);
            self.pass_on_current();
            self.reply(requester, Err(&message));
        }
    }

    /// Replaces this program by the new one. Returns only if that fails, and nothing has changed.
    pub(super) fn become_new_program(&mut self, requester: Requester) {
        let error = match self.try_become_new_program(requester) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        let message = format!("the new program serves, but the old one still supervises: {}", error_text(&error));
        log_error(&message);
        self.reply(requester, Err(&message));
    }

    fn try_become_new_program(&mut self, requester: Requester) -> io::Result<Infallible> {
        // The exec would lose a command to drain that was not sent yet, and two processes would serve.
        let deadline = Instant::now() + COMMANDS_FLUSH_MAX;
        self.processes.iter_mut().try_for_each(|process| process.flush_until(deadline))?;
        // The new program registers its signal handlers first; a signal before that would kill it. Signals that have
        // arrived are handled here, and later ones wait for the new program.
        signals::block_all()?;
        self.handle_signals();
        for StatusRequest { client, .. } in std::mem::take(&mut self.status_requests) {
            self.reply(Requester::Client(client), Err("the program is being upgraded; try again"));
        }
        // The new program starts its own agent.
        self.agent.process.end();
        let error = if self.lifecycle.is_stopping() {
            io::Error::other("the server is stopping")
        } else {
            self.exec_new_program(requester).unwrap_or_else(|error| error)
        };
        signals::unblock_all()?;
        self.restart_agent();
        Err(error)
    }

    /// The error of the exec or of its preparation. A signal that arrives here stays pending through the exec.
    fn exec_new_program(&self, requester: Requester) -> io::Result<io::Error> {
        let mut descriptors: OutgoingFds<'_> = vec![(FdKind::Configuration, self.active.text.as_fd())];
        descriptors.extend(self.kept_zones.iter().map(|zones| (FdKind::Zones, zones.as_fd())));
        descriptors.extend(self.secrets.shared_keys().map(|keys| (FdKind::SharedKeys, keys)));
        descriptors.extend(self.agent.kept_backend_addresses().map(|file| (FdKind::BackendAddresses, file)));
        descriptors.extend(self.secrets.kept().map(|kept| (FdKind::KeptCertificates, kept)));
        descriptors.extend(self.keeper.handover_fds());
        descriptors.extend(self.control.iter().map(|control| (FdKind::ControlSocket, control.listener())));
        descriptors.extend(self.listeners.fds().map(|(role, socket)| (FdKind::Listener(role), socket)));
        descriptors.extend(self.processes.iter().flat_map(Process::handover_fds));
        let client = |requester, pending| match requester {
            Requester::Client(id) => self.control.as_ref()?.client_fd(id).map(|fd| (FdKind::Client(pending), fd)),
            Requester::None => None,
        };
        descriptors.extend(client(requester, PendingCommand::ThisUpgrade));
        for request in &self.queue {
            let (pending, signal) = match request {
                QueuedRequest::Reload(_, forced_zones) => {
                    (PendingCommand::Reload { forced_zones: forced_zones.clone() }, SIGHUP)
                }
                // A full reload includes the site.
                QueuedRequest::ReloadSite(_, name) => (PendingCommand::ReloadSite { name: name.clone() }, SIGHUP),
                QueuedRequest::Upgrade(_) => (PendingCommand::Upgrade, SIGUSR2),
                // No signal requests a zone command.
                QueuedRequest::Zone(_, command) => (PendingCommand::Zone(command.clone()), SIGHUP),
                // The upgrade replaces the process.
                QueuedRequest::Replace(..) => continue,
            };
            match request.requester() {
                Requester::None => signals::send_to_self(signal)?,
                requester => descriptors.extend(client(requester, pending)),
            }
        }
        let (list, variable) = handover::to_list(&descriptors)?;
        let kept: Vec<BorrowedFd<'_>> = descriptors.iter().map(|(_, kept)| *kept).chain([list.as_fd()]).collect();
        log::flush(LOG_FLUSH_MAX);
        let arguments = self.arguments("serve", self.agent.state_argument.as_deref(), Vec::new());
        Ok(sanderling_os::process::exec(&self.installed_program, &arguments, &[variable], &kept))
    }
}
