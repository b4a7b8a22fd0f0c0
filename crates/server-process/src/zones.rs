//! Turns zone files, with those that they include, into the zones that are served, or into what is wrong with them.

use sanderling_config::diagnostic::{Diagnostic, Location, Problem, Severity};
use sanderling_config::{DomainName, Limits, Zone as ZoneConfig};
use sanderling_dns::zonefile::{self, Entry, Parser, Position};
use sanderling_dns::{HashSeed, NameBuf, Zone, ZoneBuilder, ZoneLimits};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Reads the zone that `config` names.
///
/// # Errors
/// Everything that is wrong, with the warnings among it.
pub(crate) fn load(
    config: &ZoneConfig,
    limits: &Limits,
    seed: HashSeed,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Zone, Vec<Diagnostic>> {
    let mut budget_bytes = limits.zone_file_bytes_max;
    let text = read(&config.file, &mut budget_bytes, limits)
        .map_err(|fault| vec![Diagnostic::error(Location::File(config.file.clone()), fault)])?;
    build(&config.apex, &config.file, text, budget_bytes, limits, seed, warnings)
}

/// The zone of `text`, which includes no file that is not there.
///
/// # Errors
/// Everything that is wrong, with the warnings among it; `name` stands for the file.
pub(crate) fn parse(
    apex: &DomainName,
    name: &str,
    text: &str,
    limits: &Limits,
    seed: HashSeed,
) -> Result<Zone, Vec<Diagnostic>> {
    let text = text.as_bytes().to_vec();
    build(apex, Path::new(name), text, limits.zone_file_bytes_max, limits, seed, &mut Vec::new())
}

fn build(
    apex: &DomainName,
    file: &Path,
    text: Vec<u8>,
    budget_bytes: u64,
    limits: &Limits,
    seed: HashSeed,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Zone, Vec<Diagnostic>> {
    let labels: Vec<&[u8]> = apex.labels().map(str::as_bytes).collect();
    let apex =
        NameBuf::joined(&labels, sanderling_dns::Name::ROOT).expect("the configuration's reader has checked the name");
    let zone_limits = ZoneLimits { records_per_rrset_max: limits.zone_records_per_rrset_max };
    let mut builder = ZoneBuilder::new(apex.as_name(), seed, zone_limits);
    let parser_limits = zonefile::ParserLimits {
        include_depth_max: limits.zone_include_depth_max as u32,
        ..zonefile::ParserLimits::default()
    };
    let mut reading = Reading {
        parser: Parser::new(file.display().to_string(), text, apex.as_name(), parser_limits),
        files: vec![file.to_owned()],
        issues: Vec::new(),
        budget_bytes,
        limits,
    };
    let end = reading.read_all(&mut builder);
    if !reading.has_errors() {
        // A zone of which some records could not be read would only be reported for lacking them.
        let built = builder.finish(end);
        for issue in &built.diagnostics {
            reading.report(issue);
        }
        if let Some(zone) = built.zone {
            warnings.append(&mut reading.issues);
            return Ok(zone);
        }
    }
    Err(reading.issues)
}

/// A zone file being read.
struct Reading<'l> {
    parser: Parser,
    /// The files that positions speak of.
    files: Vec<PathBuf>,
    issues: Vec<Diagnostic>,
    /// Octets that further files may have.
    budget_bytes: u64,
    limits: &'l Limits,
}

impl Reading<'_> {
    /// Reads all records into `builder`; where the last one stands.
    fn read_all(&mut self, builder: &mut ZoneBuilder) -> Position {
        let mut end = Position { file_index: 0, line: 1, column: 1 };
        loop {
            match self.parser.next() {
                None => return end,
                Some(Ok(Entry::Record(record))) => {
                    end = record.position;
                    builder.add(&record);
                }
                Some(Ok(Entry::Include { position, path })) => self.include(position, &path),
                Some(Err(error)) => self.report(&error),
            }
        }
    }

    /// Hands over the file that `$INCLUDE` asks for: relative to the file that asks.
    fn include(&mut self, position: Position, path: &str) {
        let folder = self.files[position.file_index as usize].parent().unwrap_or(Path::new(""));
        let path = folder.join(path);
        match read(&path, &mut self.budget_bytes, self.limits) {
            Ok(text) => {
                self.parser.include(path.display().to_string(), text);
                self.files.push(path);
            }
            Err(fault) => {
                let problem = format!("cannot include {}: {}", path.display(), fault.message);
                let place = self.place(position);
                self.issues.push(Diagnostic::error(place, Problem::new(problem, fault.remedy)));
            }
        }
    }

    fn place(&self, position: Position) -> Location {
        let file = self.files[position.file_index as usize].clone();
        Location::Position { file, line: position.line, column: position.column }
    }

    fn report(&mut self, issue: &zonefile::Diagnostic) {
        let fault = Problem::new(issue.problem.clone(), issue.remedy.clone());
        let place = self.place(issue.position);
        self.issues.push(match issue.severity {
            zonefile::Severity::Error => Diagnostic::error(place, fault),
            zonefile::Severity::Warning => Diagnostic::warning(place, fault),
        });
    }

    fn has_errors(&self) -> bool {
        self.issues.iter().any(|issue| issue.severity == Severity::Error)
    }
}

/// The text of a zone file, within what is left of the bound of all files of the zone.
fn read(path: &Path, budget_bytes: &mut u64, limits: &Limits) -> Result<Vec<u8>, Problem> {
    let unreadable = |error: &io::Error| {
        Problem::new(format!("the zone file cannot be read: {error}"), "check its path and its permissions")
    };
    // Not blocking: a FIFO in the place of a zone file would hold a reload for ever.
    let file = sanderling_os::file::open_nonblocking(path).map_err(|error| unreadable(&error))?;
    let facts = file.metadata().map_err(|error| unreadable(&error))?;
    if !facts.is_file() {
        return Err(Problem::new("this is no regular file", "name the zone's master file (RFC 1035 section 5)"));
    }
    let mut text = Vec::with_capacity(facts.len().min(*budget_bytes) as usize + 1);
    file.take(*budget_bytes + 1).read_to_end(&mut text).map_err(|error| unreadable(&error))?;
    *budget_bytes = budget_bytes.checked_sub(text.len() as u64).ok_or_else(|| {
        let limit = limits.zone_file_bytes_max;
        let problem = format!("the zone has more than {limit} octets of text");
        Problem::new(problem, "raise zone_file_bytes_max in [limits], if it is meant to be so large")
    })?;
    Ok(text)
}
