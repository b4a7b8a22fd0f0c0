//! Parses zone files (RFC 1035 §5) into records and diagnostics.
//!
//! The dialect is the dialect of BIND's `named-checkzone`: a file that BIND loads has the same meaning here, with these
//! differences. Additionally accepted: any field in quotes, TXT strings over 255 bytes (they are split), all text after
//! the type of `$GENERATE` as RDATA, a quoted `@` as a label, and `ALIAS` as in PowerDNS. Rejected: the text form of
//! A6, ATMA, NXT and SINK (the form of RFC 3597 is accepted), flags and protocols of keys as words, the SvcParamKey
//! 65535, an empty `ech`, and coordinates of GPOS that are not numbers.
//!
//! Checks that need more than one record (a missing SOA, other data with a CNAME) are in
//! [`crate::zones::zone_builder`].

mod entry;
mod generate;
mod record_type;
mod rdata_text;
mod svc_params_text;
mod location_text;
mod field_text;
mod name_text;
mod number;
mod scanner;

use crate::text::name::{Name, NameBuf};
use crate::text::rtype::Rtype;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use entry::{Context, EntryKind};
use generate::Generate;
use scanner::Scanner;

/// A position in a zone file, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The index of the file in [`Parser::file_names`]. 0 is the first file, others are included by `$INCLUDE`.
    pub file_index: u32,
    /// The line, from 1.
    pub line: u32,
    /// The column in bytes, from 1.
    pub column: u32,
}

/// Whether the zone can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The text is invalid: the zone must not be served.
    Error,
    /// There are more than [`ParserLimits::errors_max`] errors. The rest of the zone was not read.
    Incomplete,
    /// The text is valid but probably not intended: records outside the zone are omitted, a TTL over the limit becomes
    /// 0. BIND loads such a zone.
    Warning,
}

/// An error or a warning about a zone file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The position of the text at fault.
    pub position: Position,
    /// Whether the zone can be served.
    pub severity: Severity,
    /// The problem, without a final period: `"3x" is not a TTL`.
    pub problem: String,
    /// The remedy: `write seconds`.
    pub remedy: String,
}

impl Diagnostic {
    #[cold]
    pub(crate) fn error(position: Position, problem: impl Into<String>, remedy: impl Into<String>) -> Diagnostic {
        Diagnostic { position, severity: Severity::Error, problem: problem.into(), remedy: remedy.into() }
    }

    #[cold]
    pub(crate) fn warning(position: Position, problem: impl Into<String>, remedy: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(position, problem, remedy) }
    }
}

/// A record of a zone file.
#[derive(Clone, Copy, Debug)]
pub struct Record<'p> {
    /// The position of the record's type or, for a record of `$GENERATE`, of the directive.
    pub position: Position,
    /// The absolute owner, in the case of the file. The owner is at or below the apex.
    pub owner: Name<'p>,
    /// The type.
    pub rtype: Rtype,
    /// The TTL in seconds: at most 2^31 − 1 (RFC 2181 §8).
    pub ttl_s: u32,
    /// The RDATA in wire form, with uncompressed names in the case of the file. The RDATA passes
    /// [`crate::text::rdata::check`].
    pub rdata: &'p [u8],
}

/// An `ALIAS` of a zone file: its owner gets the addresses of another name. No such record exists in the DNS.
#[derive(Clone, Copy, Debug)]
pub struct AliasRecord<'p> {
    /// The position of the word `ALIAS` or, for a line of `$GENERATE`, of the directive.
    pub position: Position,
    /// The absolute owner, in the case of the file. The owner is at or below the apex.
    pub owner: Name<'p>,
    /// The absolute name that has the addresses, in the case of the file. The target is not at or below the apex.
    pub target: Name<'p>,
}

/// The result of parsing an entry (RFC 1035 §5.1).
#[derive(Debug)]
pub enum Entry<'p> {
    /// A record.
    Record(Record<'p>),
    /// An `ALIAS`.
    Alias(AliasRecord<'p>),
    /// `$INCLUDE`: the caller passes the text of the file to [`Parser::include`], or reports that it cannot be read.
    Include {
        /// The position of the file name.
        position: Position,
        /// The file name, relative to the directory of the including file.
        path: String,
    },
}

/// Limits of one zone file with the files that it includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParserLimits {
    /// Errors before the parser stops. Warnings do not count.
    pub errors_max: u32,
    /// Depth of nested `$INCLUDE`.
    pub include_depth_max: u32,
    /// Included files in total, which bounds files that include each other.
    pub include_count_max: u32,
    /// Records of one `$GENERATE`.
    pub generate_count_max: u32,
}

impl Default for ParserLimits {
    fn default() -> ParserLimits {
        ParserLimits { errors_max: 100, include_depth_max: 8, include_count_max: 10_000, generate_count_max: 1 << 20 }
    }
}

/// Parses a zone file, one entry at a time.
///
/// Each entry borrows the parser's buffers until the next call, so that a record needs no allocation.
#[derive(Debug)]
pub struct Parser {
    limits: ParserLimits,
    file_names: Vec<String>,
    /// The open files, each included by its predecessor.
    files: Vec<OpenFile>,
    context: Context,
    generate: Option<Generate>,
    /// The entry that follows its warning.
    delayed: Option<EntryKind>,
    /// The origin of the file that the last [`Entry::Include`] names.
    included_origin: Option<NameBuf>,
    error_count: u32,
}

#[derive(Debug)]
struct OpenFile {
    scanner: Scanner,
    /// Origin and owner of the including file, which are restored after this one (RFC 1035 §5.1).
    outer: Option<(NameBuf, entry::Owner)>,
}

impl Parser {
    /// A parser for a zone of class IN.
    ///
    /// `file_name` is used in messages. `text` is the whole file. `origin` is the apex of the zone and the initial
    /// origin.
    pub fn new(file_name: String, text: Vec<u8>, origin: Name<'_>, limits: ParserLimits) -> Parser {
        Parser {
            limits,
            file_names: vec![file_name],
            files: vec![OpenFile { scanner: Scanner::new(0, text), outer: None }],
            context: Context::new(origin),
            generate: None,
            delayed: None,
            included_origin: None,
            error_count: 0,
        }
    }

    /// The next record, `$INCLUDE` or diagnostic; `None` at the end of the zone.
    ///
    /// After an error the parser continues with the next entry, so that it reports all errors. After
    /// [`ParserLimits::errors_max`] errors it returns one more, and stops.
    #[allow(clippy::should_implement_trait, reason = "the items of an Iterator cannot borrow from it")]
    pub fn next(&mut self) -> Option<Result<Entry<'_>, Diagnostic>> {
        match self.next_entry()? {
            Ok(entry) => Some(Ok(self.entry(entry))),
            Err(error) => Some(Err(error)),
        }
    }

    /// Continues with `text`, the contents of the file that the last [`Entry::Include`] names, and then with the
    /// including file and its origin and owner (RFC 1035 §5.1).
    ///
    /// # Panics
    ///
    /// Panics if the last entry was not [`Entry::Include`].
    pub fn include(&mut self, file_name: String, text: Vec<u8>) {
        let origin = self.included_origin.take().expect("called after `Entry::Include`");
        // Bounded by `include_count_max`, which has 32 bits.
        let file_index = self.file_names.len() as u32;
        self.file_names.push(file_name);
        let outer = self.context.enter(origin);
        self.files.push(OpenFile { scanner: Scanner::new(file_index, text), outer: Some(outer) });
    }

    /// The files' names, to which [`Position::file_index`] refers.
    pub fn file_names(&self) -> &[String] {
        &self.file_names
    }

    /// The next record, `$INCLUDE` or diagnostic.
    fn next_entry(&mut self) -> Option<Result<EntryKind, Diagnostic>> {
        self.included_origin = None;
        if let Some(entry) = self.delayed.take() {
            return Some(Ok(entry));
        }
        loop {
            let result = match self.read_generated() {
                Some(result) => result,
                None => self.read_entry()?,
            };
            match result {
                Ok(EntryKind::Ignored) => {}
                Ok(EntryKind::Generate(generate)) => self.generate = Some(*generate),
                Ok(entry) => match self.context.take_warning() {
                    Some(warning) => {
                        self.delayed = Some(entry);
                        return Some(Err(warning));
                    }
                    None => return Some(Ok(entry)),
                },
                Err(error) => return Some(Err(self.counted(error))),
            }
        }
    }

    /// The next entry of the innermost file; `None` at the end of all files.
    fn read_entry(&mut self) -> Option<Result<EntryKind, Diagnostic>> {
        loop {
            let file = self.files.last_mut()?;
            let Some(start) = file.scanner.next_entry() else {
                if let Some(outer) = file.outer.take() {
                    self.context.leave(outer);
                }
                self.files.pop();
                continue;
            };
            let result = entry::read(&mut file.scanner, start, &mut self.context, &self.limits);
            if result.is_err() {
                file.scanner.skip_entry();
            }
            return Some(self.check_include_limits(result));
        }
    }

    /// The next record of the current `$GENERATE`; `None` without one.
    fn read_generated(&mut self) -> Option<Result<EntryKind, Diagnostic>> {
        let generate = self.generate.as_mut()?;
        let Some(line) = generate.next_line() else {
            self.generate = None;
            return None;
        };
        let result = line.and_then(|mut scanner| {
            let start = scanner.next_entry().unwrap_or(scanner::EntryStart::Token);
            let result = entry::read(&mut scanner, start, &mut self.context, &self.limits);
            generate.reuse_line(scanner);
            result
        });
        if result.is_err() {
            // The other lines would only repeat the error.
            self.generate = None;
        }
        Some(result)
    }

    fn check_include_limits(&self, result: Result<EntryKind, Diagnostic>) -> Result<EntryKind, Diagnostic> {
        let Ok(EntryKind::Include { position, .. }) = result else {
            return result;
        };
        let ParserLimits { include_depth_max, include_count_max, .. } = self.limits;
        if self.files.len() > include_depth_max as usize {
            let problem = format!("$INCLUDE is nested more than {include_depth_max} deep");
            return Err(Diagnostic::error(position, problem, "check for a file that includes itself"));
        }
        if self.file_names.len() > include_count_max as usize {
            let problem = format!("the zone includes more than {include_count_max} files");
            return Err(Diagnostic::error(position, problem, "check for files that include each other"));
        }
        result
    }

    /// Counts `error`, and replaces the first one over the limit by the error that ends the list.
    fn counted(&mut self, error: Diagnostic) -> Diagnostic {
        if error.severity == Severity::Warning {
            return error;
        }
        self.error_count = self.error_count.saturating_add(1);
        if self.error_count <= self.limits.errors_max {
            return error;
        }
        self.files.clear();
        self.generate = None;
        let problem = format!("more than {} errors; the rest of the zone was not read", self.limits.errors_max);
        let remedy = "fix the earlier errors first";
        Diagnostic { severity: Severity::Incomplete, ..Diagnostic::error(error.position, problem, remedy) }
    }

    fn entry(&mut self, entry: EntryKind) -> Entry<'_> {
        match entry {
            EntryKind::Record { position, rtype, ttl_s } => {
                let (owner, rdata) = self.context.owner_and_rdata();
                Entry::Record(Record { position, owner, rtype, ttl_s, rdata })
            }
            EntryKind::Alias { position } => {
                let (owner, target) = self.context.owner_and_rdata();
                let target = Name::parse(target).expect("put_name writes a name");
                Entry::Alias(AliasRecord { position, owner, target })
            }
            EntryKind::Include { position, path, origin } => {
                self.included_origin = Some(*origin);
                Entry::Include { position, path }
            }
            EntryKind::Ignored | EntryKind::Generate(_) => unreachable!("not returned by next_entry"),
        }
    }
}
