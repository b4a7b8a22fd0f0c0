//! Turns the text of a TOML file into values that know where they stand, gathering what is wrong on the way.

use crate::diagnostic::{Diagnostic, Fault, Place};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its place.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// A table's entries in the order of the file, each with the offset of its key.
pub(super) fn entries<'n, 't>(table: &'n DeTable<'t>) -> Vec<Entry<'n, 't>> {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, value)| Entry { offset: key.span().start, key: key.get_ref().as_ref(), value })
        .collect();
    entries.sort_by_key(|entry| entry.offset);
    entries
}

/// One key of a table with its value.
#[derive(Clone, Copy)]
pub(super) struct Entry<'n, 't> {
    /// Where the key stands, in octets from the start of the file.
    pub(super) offset: usize,
    pub(super) key: &'n str,
    pub(super) value: &'n Node<'t>,
}

/// A text under examination: where its lines start, and what was found wrong.
pub(super) struct Examination<'a> {
    file: &'a Path,
    line_starts: Vec<usize>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Examination<'a> {
    /// Starts with nothing found; `file` is what diagnostics call the text.
    pub(super) fn new(file: &'a Path, text: &[u8]) -> Examination<'a> {
        let ends = text.iter().enumerate().filter(|&(_, &octet)| octet == b'\n').map(|(index, _)| index + 1);
        Examination { file, line_starts: std::iter::once(0).chain(ends).collect(), diagnostics: Vec::new() }
    }

    /// Whether nothing was found.
    pub(super) fn is_clean(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// Notes an error at `offset`, in octets from the start of the text.
    pub(super) fn refuse(&mut self, offset: usize, fault: Fault) {
        // The first line starts at 0, so that at least one start is not behind the offset.
        let line_index = self.line_starts.partition_point(|&start| start <= offset) - 1;
        let column_index = offset - self.line_starts[line_index];
        let counted = |index: usize| u32::try_from(index + 1).unwrap_or(u32::MAX);
        let place = Place::Position {
            file: PathBuf::from(self.file),
            line: counted(line_index),
            column: counted(column_index),
        };
        self.diagnostics.push(Diagnostic::error(place, fault));
    }

    /// Everything found, in the order of the file.
    pub(super) fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by(|a, b| a.place.cmp(&b.place));
        self.diagnostics
    }

    /// The table that `text` is; nothing if it breaks the syntax of TOML, as what stands behind a bracket that was
    /// never closed says little about what was meant.
    pub(super) fn parse<'t>(&mut self, text: &'t str) -> Option<DeTable<'t>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        // That bracket gives the same message for each line behind it: a message is told once, where it is met first.
        let mut told = HashSet::new();
        for error in errors.iter().filter(|error| told.insert(error.message())) {
            let offset = error.span().map_or(text.len(), |span| span.start.min(text.len()));
            self.refuse(offset, syntax_fault(error.message()));
        }
        errors.is_empty().then(|| root.into_inner())
    }

    /// The table behind `entry`.
    pub(super) fn table<'n, 't>(&mut self, entry: Entry<'n, 't>, example: &str) -> Option<&'n DeTable<'t>> {
        match entry.value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.refuse_type(entry, entry.value, "a table", example);
                None
            }
        }
    }

    /// The string behind `entry`, and its offset.
    pub(super) fn string<'n>(&mut self, entry: Entry<'n, '_>, example: &str) -> Option<(usize, &'n str)> {
        match entry.value.get_ref() {
            DeValue::String(text) => Some((entry.value.span().start, text)),
            _ => {
                self.refuse_type(entry, entry.value, "a string", example);
                None
            }
        }
    }

    /// The strings of the list behind `entry`, each with its offset; what is no string is left out.
    pub(super) fn strings<'n>(&mut self, entry: Entry<'n, '_>, example: &str) -> Vec<(usize, &'n str)> {
        let DeValue::Array(items) = entry.value.get_ref() else {
            self.refuse_type(entry, entry.value, "a list of strings", example);
            return Vec::new();
        };
        let mut strings = Vec::with_capacity(items.len());
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(text) => strings.push((item.span().start, text.as_ref())),
                _ => self.refuse_type(entry, item, "a list of strings", example),
            }
        }
        strings
    }

    /// The number behind `entry`, from `min` to `max`; `example` is one that would do.
    pub(super) fn number(&mut self, entry: Entry<'_, '_>, min: u64, max: u64, example: u64) -> Option<u64> {
        let DeValue::Integer(integer) = entry.value.get_ref() else {
            self.refuse_type(entry, entry.value, "a whole number", &format!("{} = {example}", entry.key));
            return None;
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) if (min..=max).contains(&value) => Some(value),
            // Every other integer of TOML is below zero or above what 64 bits hold: outside the range as well.
            _ => {
                let problem = format!("`{}` is out of range: {integer}", entry.key);
                self.refuse(entry.value.span().start, Fault::new(problem, format!("it goes from {min} to {max}")));
                None
            }
        }
    }

    /// Whether the value behind `entry` is true.
    pub(super) fn truth(&mut self, entry: Entry<'_, '_>) -> Option<bool> {
        match entry.value.get_ref() {
            DeValue::Boolean(truth) => Some(*truth),
            _ => {
                self.refuse_type(entry, entry.value, "true or false", &format!("{} = true", entry.key));
                None
            }
        }
    }

    /// Notes that `found`, which is the value of `entry` or stands in it, is not what its key takes.
    fn refuse_type(&mut self, entry: Entry<'_, '_>, found: &Node<'_>, expected: &str, example: &str) {
        let problem = format!("`{}` must be {expected}, but here is {}", entry.key, describe(found.get_ref()));
        self.refuse(found.span().start, Fault::new(problem, format!("write {example}")));
    }
}

/// The message of the TOML parser, `problem, expected this, that`, with what would mend it.
fn syntax_fault(message: &str) -> Fault {
    let (problem, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let remedy = match (problem, expected) {
        ("string values must be quoted", _) => "write it in quotes, as in \"example.com\"".to_owned(),
        ("invalid boolean", _) => "write true or false, or put a string in quotes".to_owned(),
        ("duplicate key", _) => "remove one of the two".to_owned(),
        (_, "") => "correct the TOML at this place".to_owned(),
        (_, expected) => format!("expected {expected}"),
    };
    Fault::new(problem, remedy)
}

/// The value as a sentence names it: `the string "60s"`.
fn describe(value: &DeValue<'_>) -> String {
    /// Characters of a string that are repeated to the operator.
    const SHOWN_CHARS_MAX: usize = 40;
    match value {
        DeValue::String(text) if text.chars().count() <= SHOWN_CHARS_MAX => format!("the string {text:?}"),
        DeValue::String(_) => "a long string".to_owned(),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
