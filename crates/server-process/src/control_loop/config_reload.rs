//! Loads configurations with their sites, zones and certificates, puts them into service, and keeps their good versions
//! for the next process.

use super::{ControlLoop, Finished, LoadResult};
use crate::access;
use crate::certificates::{LoadedSecrets, SecretDescriptors};
use crate::exposed_secrets;
use crate::kept_zones::NewSegment;
use crate::loader::{Loaded, Loader};
use crate::request_logs;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::log::{log, log_error, report};
use sanderling_config::{Config, DomainName};
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::{CONFIGURATION_BYTES_MAX, Event, FdKind, IncomingFds, Text};
use sanderling_os::memfd;
use sanderling_zone_files::Denial;
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

impl ControlLoop<'_> {
    /// Loads a configuration on a new thread: zones may take seconds, in which heartbeats are due.
    fn load(&mut self, config_text: OwnedFd, forced_zones: &[String]) -> io::Result<()> {
        // This precedes taking the loader, which an error would not return.
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

    /// Loads the configuration that came with a command, with its secrets and targets of logs.
    pub(super) fn receive_config(&mut self, descriptors: IncomingFds, forced_zones: &[String]) {
        let mut received: Descriptors = descriptors.into_iter().collect();
        self.state.log_targets = std::mem::take(&mut received.logs);
        self.receive_derived(received.derived_records.take());
        let configuration = received.configuration.take();
        self.state.received_secrets = SecretDescriptors::from(received);
        let result = configuration.ok_or_else(|| io::Error::other("no configuration came with the command"));
        if let Err(error) = result.and_then(|text| self.load(text, forced_zones)) {
            self.send_new_process_needed(&format!("the running process cannot load it: {}", error_text(&error)));
        }
    }

    /// Has `load` use the loader on a new thread. `finish` converts the result, which is `None` after a panic, into the
    /// outcome that is applied.
    ///
    /// # Errors
    /// Returns an error if the system cannot start a thread. The loader is free again, and `finish` was not called.
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
            // A bug in a parser fails only the load.
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
            // This precedes the result: when a client has the result, a crash must not lose the versions.
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
        if let Ok(copy) = descriptor.try_clone() {
            self.send_with(Event::ZonesKept { replaces_all }, FdKind::Zones, copy);
        }
        if replaces_all {
            self.state.kept_zones.clear();
        }
        self.state.kept_zones.push(descriptor);
    }

    /// Makes the supervisor keep the good versions of certificates.
    pub(super) fn keep_certificates(&mut self) {
        if let Some(Ok(copy)) = self.state.certificates.kept.as_ref().map(OwnedFd::try_clone) {
            self.send_with(Event::CertificatesKept, FdKind::KeptCertificates, copy);
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
        self.state.assembly.complete(&config, &mut snapshot);
        self.server.update_snapshot(|current| {
            match secrets {
                Some(secrets) => secrets.put_into(&mut snapshot),
                None => {
                    snapshot.tls = current.tls.clone();
                    snapshot.reply_options = Arc::clone(&current.reply_options);
                    snapshot.backend_tls = Arc::clone(&current.backend_tls);
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

    /// Takes over certificates, keys and derived records, of which files have changed.
    pub(super) fn update_secrets(&mut self, descriptors: IncomingFds) {
        let mut received: Descriptors = descriptors.into_iter().collect();
        self.receive_derived(received.derived_records.take());
        let config = Arc::clone(&self.state.config);
        let known: HashSet<_> = self.state.certificates.diagnostics.iter().map(ToString::to_string).collect();
        let secrets = self.load_secrets(&config, received.into());
        self.state.certificates.replaced.iter().for_each(|line| log(line));
        let is_new = |diagnostic: &&Diagnostic| !known.contains(&diagnostic.to_string());
        report(&self.state.certificates.diagnostics.iter().filter(is_new).cloned().collect::<Vec<_>>());
        if let Some(secrets) = secrets {
            self.server.update_snapshot(|snapshot| secrets.put_into(snapshot));
        }
        self.report_certificates();
        self.load_derived();
    }

    /// Loads certificates and keys; `None` if the current ones stay.
    fn load_secrets(&mut self, config: &Config, descriptors: SecretDescriptors) -> Option<LoadedSecrets> {
        let mut loaded = self.state.certificates.load(config, descriptors);
        self.keep_certificates();
        match &mut loaded {
            Ok(secrets) => self.state.keys_file = secrets.keys_file.take(),
            Err(error) => log_error(&format!("cannot load the certificates and keys: {}", error_text(error))),
        }
        loaded.ok()
    }
}
