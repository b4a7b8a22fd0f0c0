//! Keeps the books: each statement of the other server is expressed, or has a note that says why not.

use crate::syntax::{Position, Statement, printable};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;

/// The kind of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoteKind {
    /// The statement is not in the result.
    Missing,
    /// The statement is in the result, with another effect in some cases.
    Different,
    /// A step that the operator has to take.
    ByHand,
}

/// A statement that needs the attention of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The kind.
    pub kind: NoteKind,
    /// The file.
    pub file: PathBuf,
    /// From 1.
    pub line: u32,
    /// From 1, in bytes.
    pub column: u32,
    /// The statement, without the content of its blocks.
    pub statement: String,
    /// The reason.
    pub reason: String,
    /// The nearest way to the same effect.
    pub nearest: String,
}

/// All notes of an import, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The notes.
    pub notes: Vec<Note>,
    /// Lines on which a statement begins.
    pub line_count: usize,
    /// Those of them without a note of the kind [`NoteKind::Missing`].
    pub expressed_line_count: usize,
    /// Those of them without any note about an effect.
    pub exact_line_count: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = [
            (NoteKind::Missing, "Not expressed:"),
            (NoteKind::Different, "Expressed with a difference:"),
            (NoteKind::ByHand, "To do by hand:"),
        ];
        for (kind, heading) in headings {
            let notes: Vec<&Note> = self.notes.iter().filter(|note| note.kind == kind).collect();
            if notes.is_empty() {
                continue;
            }
            writeln!(out, "{heading}")?;
            for note in notes {
                let place = format!("{}:{}:{}: {}", note.file.display(), note.line, note.column, note.statement);
                writeln!(out, "{}", printable(&place))?;
                writeln!(out, "    {}", printable(&format!("{}; {}", note.reason, note.nearest)))?;
            }
            writeln!(out)?;
        }
        let (expressed, all) = (self.expressed_line_count, self.line_count);
        writeln!(out, "{expressed} of {all} lines with statements are expressed.")
    }
}

/// A note before the names of the files are known. Entries are in the order of the report.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Position,
    kind: NoteKind,
    statement: String,
    reason: String,
    nearest: String,
}

/// The notes so far.
#[derive(Default)]
pub(crate) struct Ledger {
    /// A statement that is included or inherited several times is noted once.
    entries: BTreeSet<Entry>,
    /// Statements that were dealt with.
    seen: HashSet<Position>,
    /// Lines with statements that are not expressed, or differently.
    missing: HashSet<(usize, u32)>,
    different: HashSet<(usize, u32)>,
}

impl Ledger {
    /// The statement, without its blocks, is expressed.
    pub(crate) fn keep(&mut self, statement: &Statement) {
        self.seen.insert(statement.name.at);
    }

    /// The statement and all that is in its blocks is expressed.
    pub(crate) fn keep_all(&mut self, statement: &Statement) {
        self.keep(statement);
        statement.nested().for_each(|nested| self.keep_all(nested));
    }

    /// The statement and all that is in its blocks is not expressed.
    pub(crate) fn miss(&mut self, statement: &Statement, reason: impl Into<String>, nearest: impl Into<String>) {
        self.note(statement, NoteKind::Missing, reason.into(), nearest.into());
        self.mark_missing(statement);
    }

    fn mark_missing(&mut self, statement: &Statement) {
        let at = statement.name.at;
        self.seen.insert(at);
        self.missing.insert((at.file, at.line));
        statement.nested().for_each(|nested| self.mark_missing(nested));
    }

    /// The statements at these places include files that cannot be read.
    pub(crate) fn unreadable(&mut self, messages: &[(Position, String)], statements: &[Statement]) {
        let mut by_place: HashMap<Position, Vec<&str>> = HashMap::new();
        messages.iter().for_each(|(at, message)| by_place.entry(*at).or_default().push(message));
        self.miss_unreadable(&by_place, statements);
    }

    fn miss_unreadable(&mut self, by_place: &HashMap<Position, Vec<&str>>, statements: &[Statement]) {
        for statement in statements {
            for message in by_place.get(&statement.name.at).into_iter().flatten() {
                self.miss(statement, *message, "copy the file to this machine, and import again");
            }
            statement.blocks.iter().for_each(|block| self.miss_unreadable(by_place, block));
        }
    }

    /// The statement, without its blocks, is expressed with a difference.
    pub(crate) fn differ(&mut self, statement: &Statement, reason: impl Into<String>, nearest: impl Into<String>) {
        self.keep(statement);
        self.different.insert((statement.name.at.file, statement.name.at.line));
        self.note(statement, NoteKind::Different, reason.into(), nearest.into());
    }

    /// The statement, without its blocks, is expressed, and needs a step of the operator.
    pub(crate) fn by_hand(&mut self, statement: &Statement, reason: impl Into<String>, nearest: impl Into<String>) {
        self.keep(statement);
        self.note(statement, NoteKind::ByHand, reason.into(), nearest.into());
    }

    /// The statement names a private key, which the other server reads as root.
    pub(crate) fn private_key(&mut self, statement: &Statement) {
        let nearest = "let it read the file (chgrp sanderling, chmod 640), or name a copy that a deploy hook of the ACME \
                       client makes; the folders above it have to let the user pass";
        self.by_hand(statement, "the packaged service reads the private key as the user `sanderling`", nearest);
    }

    fn note(&mut self, statement: &Statement, kind: NoteKind, reason: String, nearest: String) {
        self.entries.insert(Entry { at: statement.name.at, kind, statement: statement.to_string(), reason, nearest });
    }

    /// The report on these statements, which are in these files. Those that nobody has dealt with are missing.
    pub(crate) fn finish(mut self, statements: &[Statement], files: &[PathBuf]) -> Report {
        let mut lines = HashSet::new();
        for statement in statements {
            self.finish_statement(statement, &mut lines);
        }
        let notes = self.entries.into_iter().map(|entry| Note {
            kind: entry.kind,
            file: files.get(entry.at.file).cloned().unwrap_or_default(),
            line: entry.at.line,
            column: entry.at.column,
            statement: entry.statement,
            reason: entry.reason,
            nearest: entry.nearest,
        });
        Report {
            notes: notes.collect(),
            line_count: lines.len(),
            expressed_line_count: lines.difference(&self.missing).count(),
            exact_line_count: lines
                .iter()
                .filter(|line| !self.missing.contains(line) && !self.different.contains(line))
                .count(),
        }
    }

    fn finish_statement(&mut self, statement: &Statement, lines: &mut HashSet<(usize, u32)>) {
        let at = statement.name.at;
        lines.insert((at.file, at.line));
        if !self.seen.contains(&at) {
            self.miss(statement, "the import does not know this statement here", "see the manual of the other server");
        }
        statement.nested().for_each(|nested| self.finish_statement(nested, lines));
    }
}
