//! Takes over the records that the agent derives for zones, and tells it which certificates are in service.

use super::{ControlLoop, Finished};
use crate::loader::{Loader, OneZone};
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{log_error, report};
use sanderling_ipc::derived::{DerivedSet, served_certificates_to_memfd};
use sanderling_ipc::{Event, FdKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Zones that were built again.
pub(super) struct DerivedResult {
    loader: Loader,
    zones: Vec<OneZone>,
}

impl ControlLoop<'_> {
    /// Takes over the derived records that came with a command, if any. The next load applies them.
    pub(super) fn receive_derived(&mut self, file: Option<OwnedFd>) {
        match file.map(DerivedSet::from_memfd) {
            None => {}
            Some(Ok(derived)) if derived == *self.state.derived => {}
            Some(Ok(derived)) => self.state.derived = Arc::new(derived),
            Some(Err(error)) => log_error(&format!("cannot read the derived records: {}", error_text(&error))),
        }
    }

    /// Builds zones again on a new thread, if other records are derived for them. The rebuild waits while another load
    /// is in progress.
    pub(super) fn load_derived(&mut self) {
        let derived = Arc::clone(&self.state.derived);
        let is_needed = |loader: &mut Loader| !Arc::ptr_eq(loader.derived(), &derived);
        let Some(loader) = self.state.loader.take_if(is_needed) else { return };
        let config = Arc::clone(&self.state.config);
        self.start_building_again(loader, move |loader: &mut Loader| {
            // This runs on the thread: if no thread starts, the load stays due.
            loader.set_derived(derived);
            loader.load_derived(&config)
        });
    }

    /// Has `load` build zones again on a new thread.
    pub(super) fn start_building_again(
        &mut self,
        loader: Loader,
        load: impl FnOnce(&mut Loader) -> Vec<OneZone> + Send + 'static,
    ) {
        let started = self.start_load(loader, load, |loader, zones| {
            let zones = zones.unwrap_or_else(|| {
                log_error("rebuilding zones panicked; this is a bug in sanderling: report it");
                Vec::new()
            });
            Finished::DerivedZones(Box::new(DerivedResult { loader, zones }))
        });
        self.loads_one = started.is_ok();
        if let Err((error, _)) = started {
            // Each iteration retries the start.
            let message = format!("cannot start a thread to build zones: {}; retrying", error_text(&error));
            self.updates.failures.error("building zones", &message);
        }
    }

    pub(super) fn apply_derived(&mut self, result: DerivedResult) {
        let DerivedResult { loader, zones } = result;
        self.state.loader = Some(loader);
        self.loads_one = false;
        for OneZone { entry, state, before, errors, warnings, kept, journals, updates, .. } in zones {
            self.keep_zones(kept);
            self.report_journals(&journals);
            self.report_updates(&updates);
            [&errors, &warnings].into_iter().for_each(|diagnostics| report(diagnostics));
            let serial_before = before.as_ref().and_then(|before| before.serial);
            if errors.is_empty()
                && let Some(serial) = state.serial.filter(|_| state.serial != serial_before)
            {
                let text = format!(
                    "zone {}: rebuilt with changed derived records or dynamic updates, serial {serial}",
                    state.name
                );
                self.log_version(&state, before.as_deref(), &text);
            }
            self.put_into_service(entry, &state);
        }
    }

    /// Tells the agent which certificates are in service.
    pub(super) fn report_certificates(&mut self) {
        if !self.state.config.has_derived_records() {
            return;
        }
        match served_certificates_to_memfd(&self.state.certificates.served) {
            Ok(file) => self.send_with(Event::CertificatesServed, FdKind::ServedCertificates, file),
            Err(error) => {
                log_error(&format!(
                    "cannot send the agent the list of certificates in service: {}",
                    error_text(&error)
                ));
            }
        }
    }
}
