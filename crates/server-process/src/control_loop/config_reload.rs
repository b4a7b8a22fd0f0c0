//! Loads configurations with their sites, zones and certificates, puts them into service, and keeps their good versions
//! for the next process.

use super::{ControlLoop, Finished, LoadResult};
use crate::access;
use crate::certificates::{LoadedSecrets, SecretDescriptors};
use crate::client_policy::set_client_policies;
use crate::exposed_secrets;
use crate::kept_zones::NewSegment;
use crate::loader::{Loaded, Loader};
use crate::mail_policies::mail_policies;
use crate::reply_options::reply_options;
use crate::request_logs;
use crate::transfers::{notify_policy, transfer_policy};
use crate::zone_updates::update_policy;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::log::{log_error, report};
use sanderling_config::{Config, DomainName};
use sanderling_ipc::{CONFIGURATION_BYTES_MAX, Event, FdKind, Message, Text};
use sanderling_os::memfd;
use sanderling_zone_files::Denial;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

impl ControlLoop<'_> {
    /// Loads a configuration on a new thread: zones may take seconds, in which heartbeats are due.
    pub(super) fn load(&mut self, config_text: OwnedFd, forced_zones: &[String]) -> io::Result<()> {
        // Before the loader is taken, which an error would not give back.
        let text = memfd::read(&config_text, CONFIGURATION_BYTES_MAX)?;
        let is_same =
            memfd::read(&self.state.config_text, CONFIGURATION_BYTES_MAX).is_ok_and(|current| current == text);
        let same_config = is_same.then(|| Arc::clone(&self.state.config));
        let Some(mut loader) = self.state.loader.take() else {
            return Err(io::Error::other("it is still loading the previous configuration"));
        };
        loader.set_derived(Arc::clone(&self.state.derived));
        let source = self.state.source.clone();
        let forced_zones: Vec<DomainName> = forced_zones.iter().flat_map(|zone| DomainName::parse(zone)).collect();
        let parse_and_load = move |loader: &mut Loader| {
            let config = same_config.map_or_else(|| source.parse(&text).map(Arc::new), Ok)?;
            let loaded = loader.load(&config, &forced_zones);
            Ok((config, loaded))
        };
        let started = self.start_load(loader, parse_and_load, |loader, result| {
            let result = result.unwrap_or_else(|| {
                let remedy = "this is a bug in sanderling: report it with the configuration and its zones";
                let problem = Problem::new("loading the configuration panicked", remedy);
                Err(vec![Diagnostic::error(Location::Argument("reload".to_owned()), problem)])
            });
            Finished::Config(Box::new(LoadResult { loader, config_text, result }))
        });
        started.map_err(|(error, _)| error)
    }

    /// Has `load` use the loader on a new thread. Applies the output of `finish` for the result, which is `None` after
    /// a panic.
    ///
    /// # Errors
    /// There is no thread. The loader is free again, and `finish` was not called.
    pub(super) fn start_load<T, F>(
        &mut self,
        loader: Loader,
        load: impl FnOnce(&mut Loader) -> T + Send + 'static,
        finish: F,
    ) -> Result<(), (io::Error, F)>
    where
        F: FnOnce(Loader, Option<T>) -> Finished + Send + 'static,
    {
        let (sender, finished) = (self.results.0.clone(), Arc::clone(&self.load_finished));
        // A thread that does not start would drop its arguments.
        let (to_thread, given) = mpsc::channel::<(Loader, F)>();
        let run = move || {
            let Ok((mut loader, finish)) = given.recv() else { return };
            // A bug in a parser fails the load, and nothing else.
            let result = catch_unwind(AssertUnwindSafe(|| load(&mut loader))).ok();
            // Fails only if the process exits.
            let _ = sender.send(finish(loader, result));
            let signalled = finished.signal();
            debug_assert!(signalled.is_ok());
        };
        if let Err(error) = thread::Builder::new().name("loader".to_owned()).spawn(run) {
            self.state.loader = Some(loader);
            return Err((error, finish));
        }
        to_thread.send((loader, finish)).expect("the thread waits for it");
        Ok(())
    }

    /// Applies the loaded configuration, if there is one.
    pub(super) fn handle_loaded(&mut self) {
        while let Ok(finished) = self.results.1.try_recv() {
            match finished {
                Finished::Config(result) => self.handle_config(*result),
                Finished::Site(result) => self.apply_site(*result),
                Finished::Zone(result) => self.apply_zone(*result),
                Finished::DerivedZones(result) => self.apply_derived(*result),
                Finished::Updates(application) => self.finish_updates(*application),
                Finished::Built(built) => self.on_built(built),
                Finished::Merged(merged) => self.serve_merged(*merged),
            }
            self.load_derived();
            self.handle_waiting();
        }
    }

    pub(super) fn handle_config(&mut self, result: LoadResult) {
        let LoadResult { loader, config_text, result } = result;
        self.state.loader = Some(loader);
        let result = result.map(|(config, mut loaded)| {
            // Before the result: when a client has it, a crash must not lose the versions.
            self.keep_zones(loaded.kept.take());
            self.report_journals(&loaded.journals);
            self.report_updates(&loaded.updates);
            (config, loaded)
        });
        match result {
            Err(diagnostics) => {
                report(&diagnostics);
                self.send_diagnostics(&diagnostics);
                self.send(Event::ReloadRefused);
            }
            // A new process loads before it enters its sandbox.
            Ok((_, Loaded { denial: Denial::Sandbox(path), .. })) if self.state.sandbox.restricts_directories() => {
                self.send_new_process_needed(&format!("its sandbox does not allow {}", path.display()));
            }
            Ok((config, loaded)) => match config.needs_new_process(&self.state.config) {
                Some(reason) => self.send_new_process_needed(&reason),
                None => self.apply(config, config_text, loaded),
            },
        }
    }

    /// Makes the supervisor keep good versions of zones.
    pub(super) fn keep_zones(&mut self, segment: Option<NewSegment>) {
        let Some(NewSegment { descriptor, replaces_all }) = segment else { return };
        if let (Some(supervisor), Ok(copy)) = (&mut self.state.supervisor, descriptor.try_clone()) {
            let event = Message::Event(Event::ZonesKept { replaces_all });
            if supervisor.send_with(&event, vec![(FdKind::Zones, copy)]).is_err() {
                self.on_supervisor_lost();
            }
        }
        if replaces_all {
            self.state.kept_zones.clear();
        }
        self.state.kept_zones.push(descriptor);
    }

    /// Makes the supervisor keep the good versions of certificates.
    pub(super) fn keep_certificates(&mut self) {
        if let (Some(supervisor), Some(Ok(copy))) =
            (&mut self.state.supervisor, self.state.certificates.kept.as_ref().map(OwnedFd::try_clone))
            && supervisor
                .send_with(&Message::Event(Event::CertificatesKept), vec![(FdKind::KeptCertificates, copy)])
                .is_err()
        {
            self.on_supervisor_lost();
        }
    }

    pub(super) fn apply(&mut self, config: Arc<Config>, config_text: OwnedFd, loaded: Loaded) {
        let Loaded { mut snapshot, load_status, changes, warnings, errors, watched_sites, .. } = loaded;
        let missing_pages = access::missing_pages(&config, &snapshot);
        let state = self.state.loader.as_ref().and_then(Loader::state_folder);
        let exposed_secrets = exposed_secrets::warnings(&config, state);
        for diagnostics in [&errors, &warnings, &missing_pages, &exposed_secrets] {
            report(diagnostics);
            self.send_diagnostics(diagnostics);
        }
        let descriptors = std::mem::take(&mut self.state.received_secrets);
        let secrets = self.load_secrets(&config, descriptors);
        let diagnostics = std::mem::take(&mut self.state.certificates.diagnostics);
        report(&diagnostics);
        self.send_diagnostics(&diagnostics);
        self.state.certificates.diagnostics = diagnostics;
        request_logs::set_targets(self.server, &config, std::mem::take(&mut self.state.log_targets));
        request_logs::set_logs(&config, &mut snapshot);
        set_client_policies(&config, &mut snapshot);
        snapshot.transfers = transfer_policy(&config, &self.state.outgoing_transfers);
        snapshot.notify = notify_policy(&config, self.notifies.inbox());
        snapshot.updates = update_policy(&config, self.updates.inbox());
        self.zones = Arc::clone(&snapshot.zones);
        snapshot.zones = self.challenges.overlay(&self.zones, &config);
        snapshot.challenges = self.challenges.tokens();
        snapshot.mail_policies = mail_policies(&config, &self.zones);
        self.server.update_snapshot(|current| {
            match secrets {
                Some(LoadedSecrets { tls, shared_keys, tsig_keys, .. }) => {
                    snapshot.tls = tls;
                    snapshot.reply_options = reply_options(&config, shared_keys.as_ref(), tsig_keys);
                }
                None => {
                    snapshot.tls = current.tls.clone();
                    snapshot.reply_options = Arc::clone(&current.reply_options);
                }
            }
            *current = snapshot;
        });
        self.reload_count += 1;
        self.state.config = config;
        self.state.config_text = config_text;
        self.state.load_status = load_status;
        self.state.watched_sites = watched_sites;
        self.state.exposed_secrets = exposed_secrets;
        self.watch_sites();
        let certificates = &self.state.certificates;
        let mut text = changes.to_text();
        certificates.replaced.iter().for_each(|line| text += &format!("{line}\n"));
        text += &(self.state.load_status.problems_text() + &certificates.problems_text());
        let problem_count = self.problem_count();
        self.send(Event::Reloaded { changes: Text::new(&text), problem_count });
        self.report_zones();
        self.report_certificates();
    }

    /// Loads certificates and keys; `None` if the current ones stay.
    pub(super) fn load_secrets(&mut self, config: &Config, descriptors: SecretDescriptors) -> Option<LoadedSecrets> {
        let mut loaded = self.state.certificates.load(config, descriptors);
        self.keep_certificates();
        match &mut loaded {
            Ok(secrets) => self.state.keys_file = secrets.keys_file.take(),
            Err(error) => log_error(&format!("cannot load the certificates and keys: {}", error_text(error))),
        }
        loaded.ok()
    }
}
