//! Reads the records to sign.

use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::{Limits, Zone, update_file};
use sanderling_dns::difference::{LaterFile, MergeOutcome, Merged};
use sanderling_dns::{HashSeed, Name, Rtype};
use sanderling_dnssec::{Record, Records, RecordsBuilder, ZoneKeys};
use sanderling_state::StateFolder;
use sanderling_zone_files::{
    PriorUpdates, ReadZone, StoreRequest, ZoneDerivation, ZoneText, ZoneUpdates, dropped_updates, held_updates,
    read_updates, wire_name,
};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;

/// Records that were read.
pub(super) struct ReadRecords {
    pub(super) records: Records,
    pub(super) updates: Option<ZoneUpdates>,
    pub(super) files: Option<Vec<(PathBuf, Vec<u8>)>>,
    pub(super) warnings: Vec<Diagnostic>,
    /// The updates are dropped, since the file has a later serial.
    pub(super) dropped: Option<Diagnostic>,
    /// The updates are applied although the file has a later serial, because it lacks their changes.
    pub(super) held: Option<Diagnostic>,
    /// The targets of `ALIAS`.
    pub(super) alias_targets: Vec<String>,
}

/// The reason why the records cannot be read.
pub(super) struct ReadFailure {
    pub(super) diagnostics: Vec<Diagnostic>,
    /// The dynamic updates could not be read or stored at the moment: the operator's file may be good.
    pub(super) is_of_state: bool,
}

impl From<Vec<Diagnostic>> for ReadFailure {
    fn from(diagnostics: Vec<Diagnostic>) -> ReadFailure {
        ReadFailure { diagnostics, is_of_state: false }
    }
}

/// The treatment of dynamic updates if the file has a later serial and lacks their changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaterUpdates {
    /// The updates are dropped.
    Dropped,
    /// The updates stay, and the changed file is not used.
    FileRefused,
    /// The updates are applied to the file.
    Held,
}

/// Reads the records of a zone and those that are derived, from `kept` if there are such files.
pub(super) fn read_records(
    source: &Zone,
    derivation: &ZoneDerivation,
    limits: &Limits,
    kept: Option<Vec<(PathBuf, Vec<u8>)>>,
    updates_file: Option<PathBuf>,
    later: LaterUpdates,
    state: &StateFolder,
) -> Result<ReadRecords, ReadFailure> {
    let seed = HashSeed(RandomState::new().build_hasher().finish());
    let mut warnings = Vec::new();
    let of_state = |error| ReadFailure { diagnostics: vec![error], is_of_state: true };
    let prior = updates_file.map(|file| read_updates(&source.apex, &file)).transpose().map_err(of_state)?;
    let later_file = match later {
        LaterUpdates::Dropped => LaterFile::Replaces,
        LaterUpdates::FileRefused | LaterUpdates::Held => LaterFile::ReplacesIfComplete,
    };
    let prior = prior.map(|prior| PriorUpdates { later_file, ..prior });
    let (ReadZone { zone, added, text, updates, .. }, files) = match kept {
        Some(files) => {
            (sanderling_zone_files::restore(&source.apex, derivation, prior, files.clone(), limits, seed)?, Some(files))
        }
        None => {
            source.check_file().map_err(|diagnostic| vec![diagnostic])?;
            let text_bytes_max = limits.kept_zones_bytes_max;
            let read =
                sanderling_zone_files::load(source, derivation, prior, limits, seed, text_bytes_max, &mut warnings)
                    .map_err(|failure| failure.diagnostics)?;
            (read, None)
        }
    };
    let merged = updates.as_ref().map(|updates| &updates.merged);
    let held = merged.and_then(Merged::held).map(|later| held_updates(&source.apex, &source.file, later));
    // A changed file that was accepted once stays in use.
    let is_changed = merged.is_some_and(|merged| merged.outcome == MergeOutcome::Applied);
    if let Some(held) = held.clone().filter(|_| later == LaterUpdates::FileRefused && is_changed) {
        return Err(vec![held].into());
    }
    let lost = merged.filter(|merged| merged.outcome == MergeOutcome::Superseded).and_then(|merged| merged.later);
    let lost = lost.filter(|later| later.lost_count > 0);
    let dropped = lost.map(|later| dropped_updates(&source.apex, &source.file, later));
    warnings.extend(dropped.clone());
    let mut records = RecordsBuilder::default();
    zone.each_record(|owner, rtype, ttl_s, rdata| records.push(Record { owner, rtype, ttl_s, rdata }));
    let (updates, to_store) = updates.map(|updates| updates.finish(wire_name(&source.apex).as_name())).unzip();
    if let Some(StoreRequest { content, .. }) = to_store.flatten() {
        let file = update_file(&source.apex).display().to_string();
        let stored = if content.is_empty() { state.remove(&file) } else { state.write(&file, &content) };
        let message = "cannot store the dynamic updates for the changed file";
        stored.map_err(|error| {
            let problem = Problem::new(format!("{message}: {error}"), "see the message");
            of_state(Diagnostic::error(Location::File(source.file.clone()), problem))
        })?;
    }
    let files = files.or_else(|| split_files(text));
    let (records, alias_targets) = (records.finish(), added.alias_targets());
    Ok(ReadRecords { records, updates, files, warnings, dropped, held, alias_targets })
}

/// The text of each file; `None` if it was not kept.
fn split_files(text: ZoneText) -> Option<Vec<(PathBuf, Vec<u8>)>> {
    let mut rest = &text.content?[..];
    let split = |(path, length_bytes): (String, u64)| {
        let (content, after) = rest.split_at_checked(length_bytes as usize)?;
        rest = after;
        Some((PathBuf::from(path), content.to_vec()))
    };
    text.files.into_iter().map(split).collect()
}

/// The records except those that come with keys of this signer.
pub(super) fn without_own_keys<'r>(
    records: impl Iterator<Item = Record<'r>>,
    apex: Name<'_>,
    keys: &ZoneKeys,
) -> Records {
    let mut kept = RecordsBuilder::default();
    let is_kept = |it: &Record<'_>| it.owner != apex || !keys.has_made(apex, it.rtype, it.rdata);
    records.filter(is_kept).for_each(|record| kept.push(record));
    kept.finish()
}

/// Whether records of the apex come with keys of this signer: the operator may keep them in the file for other signers.
pub(super) fn has_own_keys(records: &Records, apex: Name<'_>, keys: &ZoneKeys) -> bool {
    [Rtype::DNSKEY, Rtype::CDS, Rtype::CDNSKEY]
        .into_iter()
        .any(|rtype| records.rdatas(apex, rtype).any(|rdata| keys.has_made(apex, rtype, rdata)))
}
