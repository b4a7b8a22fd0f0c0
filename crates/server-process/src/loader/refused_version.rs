//! Whether a version of a zone can replace the previous one.

use super::{LoadedZone, Report, ZoneContext};
use crate::kept_zones::VersionInfo;
use crate::zone_guard;
use sanderling_config::Zone as ZoneConfig;
use sanderling_dns::difference::{MergeOutcome, Merged};
use sanderling_zone_files::{self as zone_files, Denial, Failure, MergedUpdates};

/// The origin of a zone's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provenance {
    /// A version kept by an earlier process, which may be compromised: it is served where the files cannot be loaded,
    /// and does not restrict them.
    Kept,
    /// This process has loaded the files, or the agent's version of them. A version that has lost records does not
    /// replace it.
    Files,
}

impl LoadedZone {
    /// The reason why a version with `info` must not replace the last good one. Differences from a version that only an
    /// earlier process knows are warnings.
    pub(super) fn refusal(
        &self,
        zone: &ZoneConfig,
        info: &VersionInfo,
        updates: Option<&MergedUpdates>,
        context: &ZoneContext<'_>,
        report: &mut Report,
    ) -> Option<Failure> {
        // A secondary follows its primary.
        if zone.origin.is_agent() || context.forced_zones.contains(&zone.apex) {
            return None;
        }
        let guard = || Some((self.info.as_ref()?, context.limits));
        match self.provenance {
            Provenance::Files => {
                // A changed file that was accepted once stays in use.
                let merged = updates.map(|updates| &updates.merged);
                let held = merged.filter(|merged| merged.outcome == MergeOutcome::Applied).and_then(Merged::held);
                let of_updates = held.map(|later| zone_files::held_updates(&zone.apex, &zone.file, later));
                let diagnostic = of_updates
                    .or_else(|| guard().and_then(|(known, limits)| zone_guard::refusal(zone, known, info, limits)))?;
                Some(Failure { diagnostics: vec![diagnostic], denial: Denial::None })
            }
            Provenance::Kept => {
                let warning = guard().and_then(|(known, limits)| zone_guard::warning(zone, known, info, limits));
                report.warnings.extend(warning);
                None
            }
        }
    }
}
