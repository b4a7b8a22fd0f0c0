//! Turns the text of a zone file (RFC 1035 §5) into records, or into a list of what is wrong with it.
//!
//! The dialect is that of BIND's `named-checkzone`: what it takes is taken here, and means the same. Beyond it, any
//! field may stand between quotes or not, TXT strings over 255 octets are cut, `$GENERATE` takes all that follows as
//! RDATA, and a quoted `@` is a label. Refused against it are the mnemonics A6, ATMA, NXT and SINK (their octets are
//! taken in the form of RFC 3597), flags and protocols of keys as words, the SvcParamKey 65535, an empty `ech`, and
//! coordinates of GPOS that are no numbers.
//!
//! What concerns more than one record (a missing SOA, data beside a CNAME) is not looked at here.

mod entry;
mod generate;
mod rdata_text;
mod svc_params_text;
mod location_text;
mod field_text;
mod name_text;
mod number;
mod scanner;

use crate::name::{Name, NameBuf};
use crate::rtype::Rtype;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use entry::{Context, EntryKind};
use generate::Generate;
use scanner::Scanner;

/// A place in a zone file, for people: line and column count from 1, columns in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Which file: index into [`Parser::file_names`]; 0 is the first, others come by `$INCLUDE`.
    pub file_index: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in octets, from 1.
    pub column: u32,
}

/// Whether the zone can be used all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file means nothing here; the zone should be refused.
    Error,
    /// The file means something, though hardly what was wanted: data outside the zone is left out, a TTL over the
    /// limit becomes 0. BIND loads such a zone.
    Warning,
}

/// What is wrong with a zone file, where, and what would mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The token that is wrong.
    pub position: Position,
    /// Whether the zone can be used all the same.
    pub severity: Severity,
    /// What is wrong, in a sentence without its dot: `the TTL "3x" has an unknown unit`.
    pub problem: String,
    /// What would mend it: `use s, m, h, d or w`.
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

/// A record as it stands in the file: its owner absolute, RDATA in wire form without compression.
#[derive(Clone, Copy, Debug)]
pub struct Record<'p> {
    /// Where the record's type stands; for a record of `$GENERATE`, where the directive does.
    pub position: Position,
    /// The owner, absolute, in the case of the file; it is at or below the zone's apex.
    pub owner: Name<'p>,
    /// The type.
    pub rtype: Rtype,
    /// Time to live, in seconds; at most 2^31 − 1 (RFC 2181 §8).
    pub ttl_s: u32,
    /// The data, names in it uncompressed and in the case of the file; it passes [`crate::rdata::check`].
    pub rdata: &'p [u8],
}

/// What the parser met.
#[derive(Debug)]
pub enum Entry<'p> {
    /// A record.
    Record(Record<'p>),
    /// `$INCLUDE`: the caller reads the file and hands its text to [`Parser::include`], or reports that it can't.
    Include {
        /// Where the file name stands.
        position: Position,
        /// The name as written, relative to the file that includes it.
        path: String,
    },
}

/// How much a zone file may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParserLimits {
    /// Errors reported before the parser gives up; warnings do not count.
    pub errors_max: u32,
    /// Files open at once, the first not counted.
    pub include_depth_max: u32,
    /// Files included in all: a bound for files that include each other.
    pub include_count_max: u32,
    /// Records of one `$GENERATE`.
    pub generate_count_max: u32,
}

impl Default for ParserLimits {
    fn default() -> ParserLimits {
        ParserLimits { errors_max: 100, include_depth_max: 8, include_count_max: 10_000, generate_count_max: 1 << 20 }
    }
}

/// Reads zone-file text, one record at a time.
///
/// It is an iterator that lends: each event borrows the parser's buffers until the next call, so that a record costs no
/// allocation.
#[derive(Debug)]
pub struct Parser {
    limits: ParserLimits,
    file_names: Vec<String>,
    /// The files that are being read, each included by the one before it.
    files: Vec<File>,
    context: Context,
    generate: Option<Generate>,
    /// A record that waits behind its warning.
    held: Option<EntryKind>,
    /// The origin for the file that the last event asked for.
    included_origin: Option<NameBuf>,
    error_count: u32,
}

#[derive(Debug)]
struct File {
    scanner: Scanner,
    /// Origin and owner of the file that included this one, which get valid again behind it (RFC 1035 §5.1).
    outer: Option<(NameBuf, entry::Owner)>,
}

impl Parser {
    /// A parser for a zone of class IN.
    ///
    /// `file_name` is for messages; `text` is the whole file; `origin` is the zone's apex and the first `$ORIGIN`.
    pub fn new(file_name: String, text: Vec<u8>, origin: Name<'_>, limits: ParserLimits) -> Parser {
        Parser {
            limits,
            file_names: vec![file_name],
            files: vec![File { scanner: Scanner::new(0, text), outer: None }],
            context: Context::new(origin),
            generate: None,
            held: None,
            included_origin: None,
            error_count: 0,
        }
    }

    /// The next record, `$INCLUDE` or error; `None` at the end of the zone.
    ///
    /// After an error the parser goes on behind the faulty entry, so that all errors of a file are reported; after
    /// [`ParserLimits::errors_max`] of them one more says so, and nothing follows.
    #[allow(clippy::should_implement_trait, reason = "an Iterator cannot lend its items")]
    pub fn next(&mut self) -> Option<Result<Entry<'_>, Diagnostic>> {
        match self.next_entry()? {
            Ok(entry) => Some(Ok(self.event(entry))),
            Err(error) => Some(Err(error)),
        }
    }

    /// Reads `text` next, as the contents of the file that the last [`Entry::Include`] asked for; afterwards the
    /// including file goes on with its own origin and owner (RFC 1035 §5.1).
    ///
    /// # Panics
    ///
    /// When the last event was no [`Entry::Include`].
    pub fn include(&mut self, file_name: String, text: Vec<u8>) {
        let origin = self.included_origin.take().expect("a file is handed over only after it was asked for");
        // `include_count_max` is 32 bits wide, and so is every index.
        let file_index = self.file_names.len() as u32;
        self.file_names.push(file_name);
        let outer = self.context.enter(origin);
        self.files.push(File { scanner: Scanner::new(file_index, text), outer: Some(outer) });
    }

    /// Names of the files, in the order in which they were opened: those that positions speak of.
    pub fn file_names(&self) -> &[String] {
        &self.file_names
    }

    /// The next entry that has something to tell.
    fn next_entry(&mut self) -> Option<Result<EntryKind, Diagnostic>> {
        self.included_origin = None;
        if let Some(entry) = self.held.take() {
            return Some(Ok(entry));
        }
        loop {
            let result = match self.read_generated() {
                Some(result) => result,
                None => self.read_entry()?,
            };
            match result {
                Ok(EntryKind::Nothing) => {}
                Ok(EntryKind::Generate(generate)) => self.generate = Some(*generate),
                Ok(entry) => match self.context.take_warning() {
                    Some(warning) => {
                        self.held = Some(entry);
                        return Some(Err(warning));
                    }
                    None => return Some(Ok(entry)),
                },
                Err(error) => return Some(Err(self.counted(error))),
            }
        }
    }

    /// The next entry of the innermost file; `None` when all files are at their end.
    fn read_entry(&mut self) -> Option<Result<EntryKind, Diagnostic>> {
        loop {
            let file = self.files.last_mut()?;
            let Some(leading) = file.scanner.next_entry() else {
                if let Some(outer) = file.outer.take() {
                    self.context.leave(outer);
                }
                self.files.pop();
                continue;
            };
            let result = entry::read(&mut file.scanner, leading, &mut self.context, &self.limits);
            if result.is_err() {
                file.scanner.skip_entry();
            }
            return Some(self.within_include_limits(result));
        }
    }

    /// The next record of the `$GENERATE` at work; `None` when there is none.
    fn read_generated(&mut self) -> Option<Result<EntryKind, Diagnostic>> {
        let generate = self.generate.as_mut()?;
        let Some(line) = generate.next_line() else {
            self.generate = None;
            return None;
        };
        let result = line.and_then(|mut scanner| {
            let leading = scanner.next_entry().unwrap_or(scanner::Leading::Token);
            let result = entry::read(&mut scanner, leading, &mut self.context, &self.limits);
            generate.take_back(scanner);
            result
        });
        if result.is_err() {
            // The other lines are no better, and would only repeat this.
            self.generate = None;
        }
        Some(result)
    }

    fn within_include_limits(&self, result: Result<EntryKind, Diagnostic>) -> Result<EntryKind, Diagnostic> {
        let Ok(EntryKind::Include { position, .. }) = result else {
            return result;
        };
        let ParserLimits { include_depth_max, include_count_max, .. } = self.limits;
        if self.files.len() > include_depth_max as usize {
            let problem = format!("files include each other more than {include_depth_max} deep");
            return Err(Diagnostic::error(position, problem, "look for a file that includes itself"));
        }
        if self.file_names.len() > include_count_max as usize {
            let problem = format!("more than {include_count_max} files are included");
            return Err(Diagnostic::error(position, problem, "look for files that include each other"));
        }
        result
    }

    /// `error`, or the last one that says that there are too many.
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
        let problem = format!("there are more than {} errors; the rest was not read", self.limits.errors_max);
        Diagnostic::error(error.position, problem, "mend the errors before this one first")
    }

    fn event(&mut self, entry: EntryKind) -> Entry<'_> {
        match entry {
            EntryKind::Record { position, rtype, ttl_s } => {
                let (owner, rdata) = self.context.owner_and_rdata();
                Entry::Record(Record { position, owner, rtype, ttl_s, rdata })
            }
            EntryKind::Include { position, path, origin } => {
                self.included_origin = Some(*origin);
                Entry::Include { position, path }
            }
            EntryKind::Nothing | EntryKind::Generate(_) => unreachable!("next_entry keeps these to itself"),
        }
    }
}
