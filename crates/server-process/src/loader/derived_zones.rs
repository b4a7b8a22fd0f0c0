//! Rebuilds zones for which the agent has derived other records, or stored other dynamic updates, without reading their
//! files: the operator may be writing them.

use super::refused_version::Provenance;
use super::{LoadedZone, Loader, OneZone, Report, StoredParts, ZoneContext};
use crate::kept_zones::VersionInfo;
use crate::load_status::ZoneState;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::{Config, DomainName, Zone as ZoneConfig, ZoneOrigin};
use sanderling_zone_files::{self as zone_files, Denial, Derivations, ReadZone, ZoneDerivation};
use std::collections::HashSet;
use std::sync::Arc;

impl Loader {
    /// Rebuilds the zones whose derived records differ from the versions in service.
    pub(crate) fn load_derived(&mut self, config: &Config) -> Vec<OneZone> {
        let derived = Arc::clone(&self.derived);
        let derivations = Derivations::new(config, &derived);
        let mut built = Vec::new();
        let own = config.zones.iter().filter(|zone| config.signed_zone(&zone.apex).is_none()).cloned();
        for zone in own.chain(self.derived_zones_of_folder(config)).collect::<Vec<_>>() {
            let derivation = derivations.of(&zone);
            let Some(loaded) = self.zones.get(&zone.apex) else { continue };
            if loaded.derivation != derivation && loaded.last_good.is_some() {
                built.extend(self.build_again(config, &zone, derivation, "change the derived records"));
            }
        }
        built
    }

    /// The zones of the folder for which the agent has derived records.
    fn derived_zones_of_folder(&self, config: &Config) -> impl Iterator<Item = ZoneConfig> {
        let of_config: HashSet<&DomainName> = config.zones.iter().map(|zone| &zone.apex).collect();
        let names = self.derived.zones.keys().filter_map(|name| DomainName::parse(name).ok());
        names.filter(move |name| !of_config.contains(name)).filter_map(|apex| {
            let ZoneState { file, origin, .. } = &*self.zones.get(&apex)?.state;
            let (file, origin) = (file.clone(), *origin);
            let location = Location::File(file.clone());
            (origin == ZoneOrigin::Operator).then_some(ZoneConfig { apex, location: location.into(), file, origin })
        })
    }

    /// Builds the zone `apex` again with the dynamic updates that are stored: another process has stored some.
    pub(crate) fn load_updates(&mut self, config: &Config, apex: &DomainName) -> Vec<OneZone> {
        let Some(zone) = self.zone_named(config, apex) else { return Vec::new() };
        let Some(loaded) = self.zones.get_mut(apex) else { return Vec::new() };
        loaded.updates = None;
        let derivation = Arc::clone(&loaded.derivation);
        self.build_again(config, &zone, derivation, "read the dynamic updates").into_iter().collect()
    }

    /// Builds a zone again from the text of the version in service. `action` is the action that fails without it.
    fn build_again(
        &mut self,
        config: &Config,
        zone: &ZoneConfig,
        derivation: Arc<ZoneDerivation>,
        action: &str,
    ) -> Option<OneZone> {
        let state_folder = self.state.clone();
        let stored = StoredParts::new(config, state_folder.as_deref());
        let loaded = self.zones.get_mut(&zone.apex)?;
        let before = Some(Arc::clone(&loaded.state));
        let is_same_file =
            loaded.state.file == zone.file && loaded.sources.as_mut().is_some_and(|it| it.are_unchanged());
        let (limits, seed, kept, stored) = (&config.limits, self.seed, self.kept.as_mut(), &stored);
        let mut context = ZoneContext { limits, seed, kept, forced_zones: &[], stored, derivation };
        let mut report = Report::default();
        if let Err(cause) = loaded.rebuild(zone, &context, &mut report) {
            if is_same_file {
                loaded.read(zone, &mut context, &mut report);
            } else {
                let message = format!("cannot {action} of the zone {}: {cause}", zone.apex);
                let remedy = format!("run `sanderling reload {}`", zone.apex);
                let problem = Problem::new(message, remedy);
                report.errors.push(Diagnostic::error(Location::File(zone.file.clone()), problem));
            }
        }
        let (entry, state) = (loaded.entry(zone), Arc::clone(&loaded.state));
        let kept = self.seal_kept(&[]);
        // No client waits for the zone and could get the sandbox's denial.
        Some(OneZone { denial: Denial::None, ..OneZone::new(entry, state, before, kept, report) })
    }
}

impl LoadedZone {
    /// Builds the version in service from its kept text: kept by this process, unless the version in service comes from
    /// an earlier one.
    ///
    /// # Errors
    /// Returns the reason why the zone cannot be rebuilt.
    fn rebuild(&mut self, zone: &ZoneConfig, context: &ZoneContext<'_>, report: &mut Report) -> Result<(), String> {
        let unkept = || "the text of the current version was not kept (`kept_zones_max`)".to_owned();
        let (kept, info) = context.kept.as_ref().zip(self.info).ok_or_else(unkept)?;
        if self.provenance == Provenance::Files && !kept.is_own(&zone.apex) {
            return Err(unkept());
        }
        let files = kept.files(&zone.apex).map_err(|error| error.to_string())?;
        if files.is_empty() {
            return Err(unkept());
        }
        let derivation = &context.derivation;
        let prior = self.prior_updates(&zone.apex, context.stored).map_err(|diagnostic| diagnostic.to_string())?;
        let read = zone_files::restore(&zone.apex, derivation, prior, files, context.limits, context.seed);
        let first = |diagnostics: Vec<Diagnostic>| diagnostics.first().map_or_else(String::new, ToString::to_string);
        let ReadZone { zone: mut good, added, updates, .. } = read.map_err(first)?;
        self.take_updates(zone, updates, report);
        context.stored.journals.give(&zone.apex, self.last_good.as_deref(), &mut good, &mut report.journals);
        let (serial, record_count) = (good.serial(), good.record_count() as u64);
        let problem = self.state.problem.clone();
        self.serve(zone, good, added, VersionInfo { serial, record_count, ..info });
        // The problem of a refused file.
        self.state = Arc::new(ZoneState { problem, ..ZoneState::clone(&self.state) });
        self.derivation = Arc::clone(derivation);
        Ok(())
    }
}
