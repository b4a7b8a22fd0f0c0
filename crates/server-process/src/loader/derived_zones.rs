//! Builds zones again for which the agent has derived other records, without reading their files: the operator may be writing them.

use super::{LoadedZone, Loader, OneZone, Report, ZoneContext};
use crate::derived_records::all_derivations;
use crate::kept_zones::VersionInfo;
use crate::load_status::ZoneState;
use crate::zone_journals::ZoneJournals;
use crate::zone_loader::{self, Denial, ReadZone};
use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::{Config, Zone as ZoneConfig};
use std::sync::Arc;

impl Loader {
    /// Builds the zones again for which something else is derived than for the versions in service.
    pub(crate) fn load_derived(&mut self, config: &Config) -> Vec<OneZone> {
        let mut derivations = all_derivations(config, &self.derived);
        let state_folder = self.state.clone();
        let journals = ZoneJournals::new(config, state_folder.as_deref());
        let mut built = Vec::new();
        for zone in &config.zones {
            let derivation = derivations.remove(&zone.apex).unwrap_or_default();
            let Some(loaded) = self.zones.get_mut(&zone.apex) else { continue };
            if loaded.derivation == derivation || loaded.last_good.is_none() {
                continue;
            }
            let before = Some(Arc::clone(&loaded.state));
            let is_same_file =
                loaded.state.file == zone.file && loaded.sources.as_mut().is_some_and(|it| it.are_unchanged());
            let limits = &config.limits;
            let (seed, kept, journals) = (self.seed, self.kept.as_mut(), &journals);
            let mut context = ZoneContext { limits, seed, kept, forced_zones: &[], journals, derivation };
            let mut report = Report::default();
            if let Err(cause) = loaded.rebuild(zone, &context, &mut report) {
                if is_same_file {
                    loaded.read(zone, &mut context, &mut report);
                } else {
                    let message = format!("cannot change the derived records of the zone {}: {cause}", zone.apex);
                    let remedy = format!("run `sanderling reload {}`", zone.apex);
                    let problem = Problem::new(message, remedy);
                    report.errors.push(Diagnostic::error(Location::File(zone.file.clone()), problem));
                }
            }
            let (entry, state) = (loaded.entry(zone), Arc::clone(&loaded.state));
            let kept = self.seal_kept(&[]);
            let Report { warnings, errors, journals, .. } = report;
            let (is_unchanged, denial) = (false, Denial::None);
            built.push(OneZone { entry, state, before, is_unchanged, warnings, errors, denial, kept, journals });
        }
        built
    }
}

impl LoadedZone {
    /// Builds the version in service from the text that was kept of it.
    ///
    /// # Errors
    /// Why that is not possible.
    fn rebuild(&mut self, zone: &ZoneConfig, context: &ZoneContext<'_>, report: &mut Report) -> Result<(), String> {
        let unkept = || "the text of the version in service was not kept (`kept_zones_max`)".to_owned();
        let (kept, info) = context.kept.as_ref().zip(self.info).ok_or_else(unkept)?;
        let files = kept.files(&zone.apex).map_err(|error| error.to_string())?;
        if files.is_empty() {
            return Err(unkept());
        }
        let derivation = &context.derivation;
        let read = zone_loader::restore(&zone.apex, derivation, files, context.limits, context.seed);
        let first = |diagnostics: Vec<Diagnostic>| diagnostics.first().map_or_else(String::new, ToString::to_string);
        let ReadZone { zone: mut good, added, .. } = read.map_err(first)?;
        context.journals.give(&zone.apex, self.last_good.as_deref(), &mut good, &mut report.journals);
        let (serial, record_count) = (good.serial(), good.record_count() as u64);
        let problem = self.state.problem.clone();
        self.serve(zone, good, added, VersionInfo { serial, record_count, ..info });
        // That of a file which was refused.
        self.state = Arc::new(ZoneState { problem, ..ZoneState::clone(&self.state) });
        self.derivation = Arc::clone(derivation);
        Ok(())
    }
}
