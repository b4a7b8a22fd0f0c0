//! The TOML of the configuration file as values with their positions; collects the problems found in them.

use crate::diagnostic::{Diagnostic, Location, Problem, ValueLocation};
use crate::keys::{Section, Value};
use crate::variables::Variables;
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with its position.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// The entries of a table in the order of the file, each with the `example` that messages give.
pub(super) fn entries<'n, 't>(table: &'n DeTable<'t>, example: &'n str) -> Vec<Entry<'n, 't>> {
    let entry = |(key, value): (&'n Spanned<Cow<'t, str>>, &'n Node<'t>)| Entry {
        offset: key.span().start,
        key: key.get_ref().as_ref(),
        value,
        example,
    };
    let mut entries: Vec<_> = table.iter().map(entry).collect();
    entries.sort_by_key(|entry| entry.offset);
    entries
}

/// A key of a table with its value.
#[derive(Clone, Copy)]
pub(super) struct Entry<'n, 't> {
    /// The key's position, in bytes from the start of the file.
    pub(super) offset: usize,
    pub(super) key: &'n str,
    pub(super) value: &'n Node<'t>,
    /// How the key is written, for messages: `workers = 4`.
    pub(super) example: &'n str,
}

impl<'n, 't> Entry<'n, 't> {
    /// This entry with another example.
    pub(super) fn with_example<'e>(self, example: &'e str) -> Entry<'e, 't>
    where
        'n: 'e,
    {
        Entry { example, ..self }
    }

    /// The entry of `item`, an element of the list in its value.
    pub(super) fn item(self, item: &'n Node<'t>) -> Entry<'n, 't> {
        Entry { value: item, ..self }
    }
}

/// The entries of a table that has a section's keys.
pub(super) struct Keys<'n, 't> {
    section: Section,
    /// In the order of the file.
    pub(super) entries: Vec<Entry<'n, 't>>,
    /// Whether the table has unknown keys, which were reported.
    pub(super) has_unknown: bool,
}

impl<'n, 't> Keys<'n, 't> {
    /// The entry of a key that the section has, if the file has it.
    pub(super) fn get(&self, name: &str) -> Option<Entry<'n, 't>> {
        debug_assert!(self.section.key(name).is_some(), "`{name}` is not in the table of keys");
        self.entries.iter().find(|entry| entry.key == name).copied()
    }
}

/// The separator between the texts of two files.
pub(super) const BETWEEN_FILES: &str = "\n";

/// Reads values out of the text of one or several files, and collects its problems.
pub(super) struct ConfigReader<'a> {
    files: Vec<File<'a>>,
    variables: &'a Variables,
    diagnostics: Vec<Diagnostic>,
}

/// A file of the text.
struct File<'a> {
    path: &'a Path,
    /// The offsets of its lines, in bytes from the start of the whole text.
    line_starts: Vec<usize>,
}

impl<'a> ConfigReader<'a> {
    /// A reader for the combined text of `files`, whose strings may contain `variables`; without problems yet.
    pub(super) fn new(files: &'a [(PathBuf, &[u8])], variables: &'a Variables) -> ConfigReader<'a> {
        let mut start = 0;
        let of_file = |(path, text): &'a (PathBuf, &[u8])| {
            let ends = text.iter().enumerate().filter(|&(_, &byte)| byte == b'\n').map(|(index, _)| start + index + 1);
            let line_starts = std::iter::once(start).chain(ends).collect();
            start += text.len() + BETWEEN_FILES.len();
            File { path, line_starts }
        };
        ConfigReader { files: files.iter().map(of_file).collect(), variables, diagnostics: Vec::new() }
    }

    /// The location of `offset`, in bytes from the start of the text.
    pub(super) fn location(&self, offset: usize) -> ValueLocation {
        let (line, column) = self.line_and_column(offset);
        Location::Position { file: PathBuf::from(self.file(offset).path), line, column }.into()
    }

    /// The line of `offset`, for a message at `beside`: `on line 7`, with the file name if the file differs.
    pub(super) fn line_beside(&self, offset: usize, beside: usize) -> String {
        let (line, _) = self.line_and_column(offset);
        let path = self.file(offset).path;
        if path == self.file(beside).path { format!("on line {line}") } else { format!("at {}:{line}", path.display()) }
    }

    fn file(&self, offset: usize) -> &File<'a> {
        // The first file starts at 0.
        &self.files[self.files.partition_point(|file| file.line_starts[0] <= offset) - 1]
    }

    /// Line and column count from 1.
    fn line_and_column(&self, offset: usize) -> (u32, u32) {
        let line_starts = &self.file(offset).line_starts;
        // The first line starts with the file, so at least one start is not after the offset.
        let line_index = line_starts.partition_point(|&start| start <= offset) - 1;
        let from_1 = |index: usize| u32::try_from(index + 1).unwrap_or(u32::MAX);
        (from_1(line_index), from_1(offset - line_starts[line_index]))
    }

    /// Adds an error at `offset`.
    pub(super) fn error(&mut self, offset: usize, problem: Problem) {
        self.diagnostics.push(Diagnostic::error(self.location(offset), problem));
    }

    pub(super) fn add(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// The number of problems so far. Consequences of a problem in a table are not reported separately.
    pub(super) fn problem_count(&self) -> usize {
        self.diagnostics.len()
    }

    /// Whether a problem has been added.
    pub(super) fn has_problems(&self) -> bool {
        !self.diagnostics.is_empty()
    }

    /// All problems, in the order of the files.
    pub(super) fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by(|a, b| a.location.cmp(&b.location));
        self.diagnostics
    }

    /// The table in `text`, which starts at `start`; `None` if the syntax is wrong: the text after an unclosed bracket
    /// has a different meaning.
    pub(super) fn parse<'t>(&mut self, text: &'t str, start: usize) -> Option<DeTable<'t>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        // An unclosed bracket gives the same message for each further line: only the first is reported.
        let mut seen = HashSet::new();
        for error in &errors {
            let span = error.span().unwrap_or(text.len()..text.len());
            let offset = span.start.min(text.len());
            if error.message() == "duplicate key" {
                self.duplicate_key(text, start, span);
            } else if seen.insert(error.message()) {
                self.error(start + offset, syntax_problem(error.message(), text.get(span).unwrap_or_default()));
            }
        }
        if !errors.is_empty() {
            return None;
        }
        let (mut root, problem_count) = (root.into_inner(), self.problem_count());
        self.substitute_in_table(&mut root, start);
        // What follows from a missing value is not reported as well.
        (self.problem_count() == problem_count).then_some(root)
    }

    /// Replaces the variables of the environment in all strings of a table.
    fn substitute_in_table(&mut self, table: &mut DeTable<'_>, start: usize) {
        for (_, value) in table.iter_mut() {
            self.substitute_in_value(value, start);
        }
    }

    /// Replaces them in a value of the text that starts at `start`.
    pub(super) fn substitute_in_value(&mut self, value: &mut Node<'_>, start: usize) {
        let offset = start + value.span().start;
        match value.get_mut() {
            DeValue::String(text) => match self.variables.substitute(text) {
                Ok(Cow::Borrowed(_)) => {}
                Ok(Cow::Owned(replaced)) => *text = Cow::Owned(replaced),
                Err(name) => {
                    let message = format!("the environment variable `{name}` is not set");
                    let remedy = "set it for the server, for example with Environment= in its unit file, and for this \
                                  command; or write `$${…}` for the text itself";
                    self.error(offset, Problem::new(message, remedy));
                }
            },
            DeValue::Array(items) => items.iter_mut().for_each(|item| self.substitute_in_value(item, start)),
            DeValue::Table(table) => self.substitute_in_table(table, start),
            _ => {}
        }
    }

    /// Adds the error that the table has the key at `span` already.
    fn duplicate_key(&mut self, text: &str, start: usize, span: Range<usize>) {
        let key = text.get(span.clone()).unwrap_or_default();
        let remedy = match earlier_line_with(text, &span) {
            Some(first) => {
                let other = self.line_beside(start + first, start + span.start);
                format!("it is already set {other}; remove one of the two")
            }
            None => "remove one of the two".to_owned(),
        };
        self.error(
            start + span.start,
            Problem::new(format!("duplicate key `{}`", key.trim_matches(['"', '\''])), remedy),
        );
    }

    /// The keys of the file before its first section, and its sections.
    pub(super) fn top<'n, 't>(&mut self, root: &'n DeTable<'t>) -> Keys<'n, 't> {
        self.keys_of(root, Section::Top, "")
    }

    /// The table of `entry`, with the keys of `section`; other keys are reported.
    pub(super) fn keys<'n, 't>(&mut self, entry: Entry<'n, 't>, section: Section) -> Option<Keys<'n, 't>> {
        let table = self.table(entry)?;
        Some(self.keys_of(table, section, entry.key))
    }

    /// The keys of `section` in `table`, the section of `name`.
    fn keys_of<'n, 't>(&mut self, table: &'n DeTable<'t>, section: Section, name: &str) -> Keys<'n, 't> {
        let mut keys = Keys { section, entries: Vec::with_capacity(table.len()), has_unknown: false };
        for entry in entries(table, "") {
            match section.key(entry.key) {
                Some(key) => keys.entries.push(entry.with_example(key.example)),
                None => {
                    keys.has_unknown = true;
                    self.error(entry.offset, section.unknown_key(name, entry.key));
                }
            }
        }
        keys
    }

    /// The entries of a table whose keys are any names.
    pub(super) fn entries<'n, 't>(&mut self, entry: Entry<'n, 't>) -> Vec<Entry<'n, 't>> {
        self.table(entry).map(|table| entries(table, entry.example)).unwrap_or_default()
    }

    /// The table of `entry`.
    pub(super) fn table<'n, 't>(&mut self, entry: Entry<'n, 't>) -> Option<&'n DeTable<'t>> {
        match entry.value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.wrong_type(entry, entry.value, "a table", entry.example);
                None
            }
        }
    }

    /// The string of `entry`, and its offset.
    pub(super) fn string<'n>(&mut self, entry: Entry<'n, '_>) -> Option<(usize, &'n str)> {
        match entry.value.get_ref() {
            DeValue::String(text) => Some((entry.value.span().start, text)),
            _ => {
                self.wrong_type(entry, entry.value, "a string", entry.example);
                None
            }
        }
    }

    /// The strings in the list of `entry`, each with its offset; other values are left out.
    pub(super) fn strings<'n>(&mut self, entry: Entry<'n, '_>) -> Vec<(usize, &'n str)> {
        let DeValue::Array(items) = entry.value.get_ref() else {
            self.wrong_type(entry, entry.value, "a list of strings", entry.example);
            return Vec::new();
        };
        let mut strings = Vec::with_capacity(items.len());
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(text) => strings.push((item.span().start, text.as_ref())),
                _ => self.wrong_type(entry, item, "a list of strings", entry.example),
            }
        }
        strings
    }

    /// The number of the key `name`, in the range that the table of keys has; `None` without it, or after an error.
    pub(super) fn count(&mut self, keys: &Keys<'_, '_>, name: &str) -> Option<u64> {
        let Value::Number(min, max) = keys.section.key(name)?.value else { return None };
        self.number(keys.get(name)?, min, max, "")
    }

    /// The number of `entry`, from `min` to `max`; `or` names other permitted values.
    pub(super) fn number(&mut self, entry: Entry<'_, '_>, min: u64, max: u64, or: &str) -> Option<u64> {
        let DeValue::Integer(integer) = entry.value.get_ref() else {
            self.wrong_type(entry, entry.value, "an integer", &format!("{}{or}", entry.example));
            return None;
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) if (min..=max).contains(&value) => Some(value),
            // Any other integer of TOML is negative or larger than 64 bits.
            _ => {
                let message = format!("`{}` is out of range: {integer}", entry.key);
                self.error(entry.value.span().start, Problem::new(message, format!("write {min} to {max}{or}")));
                None
            }
        }
    }

    /// The boolean of the key `name`; its default without it, or after an error.
    pub(super) fn boolean(&mut self, keys: &Keys<'_, '_>, name: &str) -> bool {
        let default = keys.section.key(name).is_some_and(|key| matches!(key.value, Value::Boolean(true)));
        let Some(entry) = keys.get(name) else { return default };
        match entry.value.get_ref() {
            DeValue::Boolean(value) => *value,
            _ => {
                self.wrong_type(entry, entry.value, "true or false", entry.example);
                default
            }
        }
    }

    /// Adds the error that `found`, the value of `entry` or a part of it, has the wrong type.
    fn wrong_type(&mut self, entry: Entry<'_, '_>, found: &Node<'_>, expected: &str, example: &str) {
        let message = format!("`{}` must be {expected}, not {}", entry.key, describe(found.get_ref()));
        self.error(found.span().start, Problem::new(message, format!("write {example}")));
    }
}

/// The offset of the key on the nearest earlier line that begins like the line of the key at `span`.
fn earlier_line_with(text: &str, span: &Range<usize>) -> Option<usize> {
    let line_start = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
    let prefix = &text[line_start..span.end];
    let is_same_key = |line: &str| {
        let rest = line.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|next: char| next.is_whitespace() || matches!(next, '=' | '.' | ']')))
    };
    let mut end = line_start;
    for line in text[..line_start].split_inclusive('\n').rev() {
        end -= line.len();
        if is_same_key(line) {
            return Some(end + span.start - line_start);
        }
    }
    None
}

/// The message of the TOML parser about `text`, `problem, expected this, that`, with a remedy.
fn syntax_problem(message: &str, text: &str) -> Problem {
    let (message, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    if message.starts_with("cannot extend value of type") {
        let message = format!("`{text}` is already set to a value, and cannot be a table as well");
        return Problem::new(message, "remove one of the two");
    }
    let message = match (message, expected) {
        ("invalid basic string", "`\"`") | ("invalid literal string", "`'`") => "the closing quote is missing",
        _ => message,
    };
    let message = match message {
        // The parser refers to the empty string between `=` and the end of the line.
        "string values must be quoted" if text.is_empty() => "key with no value",
        message => message,
    };
    let remedy = match (message, expected) {
        ("string values must be quoted", _) => "write quotes around it, for example \"example.com\"".to_owned(),
        ("the closing quote is missing", _) => "add it".to_owned(),
        ("key with no value", _) => "write KEY = VALUE".to_owned(),
        ("invalid boolean", _) => "write true or false, or quotes around a string".to_owned(),
        (_, "") => "correct the TOML syntax here".to_owned(),
        (_, expected) => format!("expected {expected}"),
    };
    Problem::new(message, remedy)
}

/// The value as a message names it: `the string "60s"`.
fn describe(value: &DeValue<'_>) -> String {
    /// Characters of a string that a message repeats.
    const SHOWN_CHARS_MAX: usize = 40;
    match value {
        DeValue::String(text) if text.chars().count() <= SHOWN_CHARS_MAX => format!("the string {text:?}"),
        DeValue::String(_) => "a string".to_owned(),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
