//! Reads zone files, with the files that they include, and builds the served zones.

use crate::derived_records::{AddedRecords, Alias, RecordMerge, ZoneDerivation};
use crate::record_sink::{MergedUpdates, PriorUpdates, RecordSink};
use crate::wire_name::wire_name;
use crate::zone_sources::{ZoneSources, ZoneSourcesBuilder, ZoneText};
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::{DomainName, Limits, Zone as ZoneConfig, ZoneOrigin, changes_file};
use sanderling_dns::zone_patch::{PatchError, ZonePatch};
use sanderling_dns::zonefile::{self, Entry, Parser, Position};
use sanderling_dns::{ChangeLog, HashSeed, Rtype, Zone, ZoneBuilder, ZoneLimits, rdata};
use sanderling_os::clock::unix_seconds;
use sanderling_os::error::with_second_try;
use std::io::{self, Read};
use std::mem;
use std::path::{Path, PathBuf};
use std::vec;

/// The reason why a zone could not be loaded.
#[derive(Debug)]
pub struct Failure {
    /// All errors, with the warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// The cause of a denied access, if that is the problem.
    pub denial: Denial,
}

/// Whether permission to read a file was denied, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// No permission was denied.
    #[default]
    None,
    /// This process's user lacks the permission, and so would another process of this user.
    Permissions,
    /// This process's sandbox: a new process can read this path, and can open it to its own sandbox.
    Sandbox(PathBuf),
}

/// A zone that was read.
#[derive(Debug)]
pub struct ReadZone {
    /// The zone in serving form.
    pub zone: Zone,
    /// The records of the zone that are not in its files.
    pub added: AddedRecords,
    /// The outcome for dynamic updates; `None` if the zone has none.
    pub updates: Option<MergedUpdates>,
    /// The zone's files.
    pub sources: ZoneSources,
    /// The text of the files.
    pub text: ZoneText,
}

/// Loads the zone of `config` with its derived records, and keeps the text of its files if it has at most
/// `text_bytes_max`.
///
/// # Errors
/// Returns all problems of the zone.
pub fn load(
    config: &ZoneConfig,
    derivation: &ZoneDerivation,
    updates: Option<PriorUpdates>,
    limits: &Limits,
    seed: HashSeed,
    text_bytes_max: u64,
    warnings: &mut Vec<Diagnostic>,
) -> Result<ReadZone, Failure> {
    let mut budget_bytes = limits.zone_file_bytes_max;
    let mut sources = ZoneSourcesBuilder::new(text_bytes_max);
    let failure = |path: &Path, ReadError { problem, denial }| Failure {
        diagnostics: vec![Diagnostic::error(Location::File(path.to_owned()), problem)],
        denial,
    };
    let text = read(&config.file, &mut budget_bytes, &mut sources, limits);
    let text = text.map_err(|error| failure(&config.file, error))?;
    let changes_path = changes_file(&config.file);
    // A log that exists but cannot be read is an error: without it, an earlier version would be served.
    let has_changes = config.origin != ZoneOrigin::Operator && changes_path.try_exists().unwrap_or(true);
    let changes = has_changes.then(|| read(&changes_path, &mut budget_bytes, &mut sources, limits));
    let changes = changes.transpose().map_err(|error| failure(&changes_path, error))?;
    if config.origin != ZoneOrigin::Operator && changes.is_none() {
        sources.add_absent(changes_path);
    }
    let patch = changes.map(|changes| patch_of(&text, &changes, &config.apex));
    let mut loader = ZoneLoader::new(&config.apex, &config.file, text, budget_bytes, limits);
    (loader.sources, loader.patch) = (sources, patch);
    loader.load(&config.apex, derivation, updates, seed, warnings)
}

/// The zone of `text`; `name` is the file name in diagnostics.
///
/// # Errors
/// Returns all errors, with the warnings.
pub fn parse(
    apex: &DomainName,
    name: &str,
    text: &str,
    limits: &Limits,
    seed: HashSeed,
) -> Result<Zone, Vec<Diagnostic>> {
    let text = text.as_bytes().to_vec();
    let loader = ZoneLoader::new(apex, Path::new(name), text, limits.zone_file_bytes_max, limits);
    match loader.load(apex, &ZoneDerivation::default(), None, seed, &mut Vec::new()) {
        Ok(read) => Ok(read.zone),
        Err(failure) => Err(failure.diagnostics),
    }
}

/// The zone of a version whose `files` were kept, the main file first, with its current derived records.
///
/// # Errors
/// Returns all errors, with the warnings.
pub fn restore(
    apex: &DomainName,
    derivation: &ZoneDerivation,
    updates: Option<PriorUpdates>,
    files: Vec<(PathBuf, Vec<u8>)>,
    limits: &Limits,
    seed: HashSeed,
) -> Result<ReadZone, Vec<Diagnostic>> {
    let mut files = files.into_iter();
    let (path, text) = files.next().unwrap_or_default();
    let changes = files.as_slice().first().filter(|(other, _)| *other == changes_file(&path));
    let patch = changes.map(|(_, changes)| patch_of(&text, changes, apex));
    let mut loader = ZoneLoader::new(apex, &path, text, limits.zone_file_bytes_max, limits);
    loader.patch = patch;
    loader.kept_includes = Some(files);
    loader.load(apex, derivation, updates, seed, &mut Vec::new()).map_err(|failure| failure.diagnostics)
}

/// The changes since the version in `text`, whose first record is the SOA.
pub fn patch_of(text: &[u8], changes: &[u8], apex: &DomainName) -> ZonePatch {
    let apex = wire_name(apex);
    let serial = first_serial(text, apex.as_name());
    serial.map_or_else(ZonePatch::default, |serial| ChangeLog::read(changes, apex.as_name(), serial).patch())
}

/// The serial of the SOA in the first line of `text`.
pub fn first_serial(text: &[u8], apex: sanderling_dns::Name<'_>) -> Option<u32> {
    let line = text.split_inclusive(|&byte| byte == b'\n').next()?;
    let mut parser = Parser::new(String::new(), line.to_vec(), apex, zonefile::ParserLimits::default());
    match parser.next() {
        Some(Ok(Entry::Record(record))) if record.rtype == Rtype::SOA => rdata::serial_of(record.rdata),
        _ => None,
    }
}

/// A zone that is being read.
struct ZoneLoader<'l> {
    parser: Parser,
    /// The files read so far, by the index in positions.
    files: Vec<PathBuf>,
    diagnostics: Vec<Diagnostic>,
    aliases: Vec<Alias>,
    sources: ZoneSourcesBuilder,
    /// The changes since the file was written.
    patch: Option<ZonePatch>,
    /// The included files of a kept version, in the order in which they were read, instead of those on disk.
    kept_includes: Option<vec::IntoIter<(PathBuf, Vec<u8>)>>,
    denial: Denial,
    /// Bytes that further files may have.
    budget_bytes: u64,
    limits: &'l Limits,
}

impl<'l> ZoneLoader<'l> {
    fn new(apex: &DomainName, file: &Path, text: Vec<u8>, budget_bytes: u64, limits: &'l Limits) -> ZoneLoader<'l> {
        let parser_limits = zonefile::ParserLimits {
            include_depth_max: limits.zone_include_depth_max as u32,
            ..zonefile::ParserLimits::default()
        };
        ZoneLoader {
            parser: Parser::new(file.display().to_string(), text, wire_name(apex).as_name(), parser_limits),
            files: vec![file.to_owned()],
            diagnostics: Vec::new(),
            aliases: Vec::new(),
            sources: ZoneSourcesBuilder::new(0),
            patch: None,
            kept_includes: None,
            denial: Denial::None,
            budget_bytes,
            limits,
        }
    }

    fn load(
        mut self,
        apex: &DomainName,
        derivation: &ZoneDerivation,
        updates: Option<PriorUpdates>,
        seed: HashSeed,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<ReadZone, Failure> {
        let zone_limits = ZoneLimits { records_per_rrset_max: self.limits.zone_records_per_rrset_max };
        let builder = ZoneBuilder::new(wire_name(apex).as_name(), seed, zone_limits);
        let mut builder = builder.with_time(unix_seconds());
        let mut merge = RecordMerge::new(apex, derivation);
        let updates_file = updates.as_ref().map(|prior| prior.file.clone());
        let mut sink = RecordSink::new(wire_name(apex).as_name(), &mut builder, updates);
        let end = self.read_records(&mut sink, merge.as_mut());
        self.check_aliases(&mut sink, derivation);
        let mut notes = Vec::new();
        let added =
            merge.map(|merge| merge.finish(&mut sink, &self.aliases, |position| self.location(position), &mut notes));
        self.diagnostics.append(&mut notes);
        let of_updates = Position { file_index: self.files.len() as u32, line: 1, column: 1 };
        self.files.extend(updates_file);
        let file_serial = added.as_ref().and_then(|added| added.file_serial);
        let merged = sink.finish(file_serial, of_updates);
        // Without the records that could not be read, the zone would have further errors.
        if !self.has_errors() {
            let built = builder.finish(end);
            for diagnostic in &built.diagnostics {
                self.add(diagnostic);
            }
            if let Some(zone) = built.zone {
                warnings.append(&mut self.diagnostics);
                let (sources, text) = self.sources.build();
                let mut added = added.unwrap_or_default();
                added.aliases = self.aliases;
                return Ok(ReadZone { zone, added, updates: merged, sources, text });
            }
        }
        Err(Failure { diagnostics: self.diagnostics, denial: self.denial })
    }

    /// Reads all records into `sink`, and returns the position of the last one.
    fn read_records(&mut self, sink: &mut RecordSink<'_>, mut merge: Option<&mut RecordMerge<'_>>) -> Position {
        let mut end = Position { file_index: 0, line: 1, column: 1 };
        loop {
            match self.parser.next() {
                None => break,
                Some(Ok(Entry::Record(mut record))) => {
                    end = record.position;
                    match self.patch.as_mut().map_or(Ok(Some(record.ttl_s)), |patch| patch.apply(&record)) {
                        Ok(Some(ttl_s)) => record.ttl_s = ttl_s,
                        Ok(None) => continue,
                        Err(error) => {
                            self.add_patch_error(&error);
                            break;
                        }
                    }
                    if !merge.as_mut().is_some_and(|merge| merge.holds_back(&record)) {
                        sink.add(&record);
                    }
                }
                Some(Ok(Entry::Alias(record))) => {
                    end = record.position;
                    self.aliases.push(Alias::new(&record));
                    sink.add_alias_record(&record);
                }
                Some(Ok(Entry::Include { position, path })) => self.include(position, &path),
                Some(Err(diagnostic)) => self.add(&diagnostic),
            }
        }
        let patch = self.patch.take().filter(|_| !self.has_errors());
        if let Some(Err(error)) = patch.map(|patch| patch.finish(|record| sink.add(record))) {
            self.add_patch_error(&error);
        }
        end
    }

    /// Reports problems of `ALIAS`.
    fn check_aliases(&mut self, sink: &mut RecordSink<'_>, derivation: &ZoneDerivation) {
        let Some(first) = self.aliases.first() else { return };
        if !derivation.resolves_aliases() {
            let message = "ALIAS has no effect here: no resolver is asked for the addresses of its target";
            let remedy =
                "set `resolvers` in [dns], for example resolvers = [\"system\"]; a state folder is also needed";
            self.diagnostics.push(Diagnostic::error(self.location(first.position), Problem::new(message, remedy)));
        }
        for diagnostic in sink.check_alias_records() {
            self.add(&diagnostic);
        }
    }

    fn add_patch_error(&mut self, error: &PatchError) {
        let message = format!("the changes since this version do not fit: {error}");
        let problem = Problem::new(message, "run `sanderling reload` with the zone name, which signs it again");
        self.diagnostics.push(Diagnostic::error(Location::File(self.files[0].clone()), problem));
    }

    /// Reads a file for `$INCLUDE`; its path is relative to the file with the directive.
    fn include(&mut self, position: Position, path: &str) {
        let folder = self.files[position.file_index as usize].parent().unwrap_or(Path::new(""));
        let path = folder.join(path);
        let text = match &mut self.kept_includes {
            Some(kept) => kept.next().map(|(_, text)| text).ok_or_else(|| Problem::new("it was not kept", "").into()),
            None => read(&path, &mut self.budget_bytes, &mut self.sources, self.limits),
        };
        match text {
            Ok(text) => {
                self.parser.include(path.display().to_string(), text);
                self.files.push(path);
            }
            Err(ReadError { problem, denial }) => {
                self.denial = mem::take(&mut self.denial).max(denial);
                let message = format!("cannot include {}: {}", path.display(), problem.message);
                let location = self.location(position);
                self.diagnostics.push(Diagnostic::error(location, Problem::new(message, problem.remedy)));
            }
        }
    }

    fn location(&self, position: Position) -> Location {
        let file = self.files[position.file_index as usize].clone();
        Location::Position { file, line: position.line, column: position.column }
    }

    fn add(&mut self, diagnostic: &zonefile::Diagnostic) {
        let problem = Problem::new(diagnostic.problem.clone(), diagnostic.remedy.clone());
        let location = self.location(diagnostic.position);
        self.diagnostics.push(match diagnostic.severity {
            zonefile::Severity::Error => Diagnostic::error(location, problem),
            zonefile::Severity::Incomplete => Diagnostic::incomplete(location, problem),
            zonefile::Severity::Warning => Diagnostic::warning(location, problem),
        });
    }

    fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// The reason why a file of a zone cannot be read.
struct ReadError {
    problem: Problem,
    denial: Denial,
}

impl ReadError {
    fn new(path: &Path, error: &io::Error) -> ReadError {
        let user = sanderling_os::user::switched_name().map_or(String::new(), |name| format!(" as the user `{name}`"));
        let message = format!("cannot read the zone file{user}: {}", error_text(error));
        let denial = match error.kind() {
            io::ErrorKind::PermissionDenied if sanderling_os::file::is_permitted(path) => {
                Denial::Sandbox(path.to_owned())
            }
            io::ErrorKind::PermissionDenied => Denial::Permissions,
            _ => Denial::None,
        };
        let remedy = match denial {
            Denial::Sandbox(_) => {
                "its permissions allow it, and a sandbox does not: run `sanderling reload`, or correct the rules of the system (SELinux, AppArmor)"
            }
            Denial::Permissions | Denial::None => "check its path and permissions",
        };
        ReadError { problem: Problem::new(message, remedy), denial }
    }
}

impl From<Problem> for ReadError {
    fn from(problem: Problem) -> ReadError {
        ReadError { problem, denial: Denial::None }
    }
}

/// The text of a zone file, within the rest of the budget for all files of the zone.
fn read(
    path: &Path,
    budget_bytes: &mut u64,
    sources: &mut ZoneSourcesBuilder,
    limits: &Limits,
) -> Result<Vec<u8>, ReadError> {
    // Opened without blocking: a FIFO at a zone file's path would block a reload forever.
    let read_error = |error| ReadError::new(path, &error);
    let open = || {
        let file = sanderling_os::file::open_nonblocking(path)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    };
    let (file, metadata) = with_second_try(open).map_err(read_error)?;
    if !metadata.is_file() {
        return Err(Problem::new("not a regular file", "specify a zone file").into());
    }
    let mut text = Vec::with_capacity(metadata.len().min(*budget_bytes) as usize + 1);
    // The files read before an error are kept, so the second try continues after it.
    let mut rest = file.take(*budget_bytes + 1);
    with_second_try(|| rest.read_to_end(&mut text)).map_err(read_error)?;
    *budget_bytes = budget_bytes.checked_sub(text.len() as u64).ok_or_else(|| {
        let message = format!("the zone has more than {} bytes of text", limits.zone_file_bytes_max);
        Problem::new(message, "shorten it or raise `zone_file_max` in [limits]")
    })?;
    sources.add(path, &metadata, &text);
    Ok(text)
}
