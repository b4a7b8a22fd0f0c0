//! An interpreter for each format, and the table of its directives.

mod caddy;
mod knot;
mod nsd;
mod named;
mod nginx;

use crate::ledger::{Ledger, Report};
use crate::model::Model;
use crate::parsers;
use crate::settings::included;
use crate::source_files::{Parse, SourceFiles, Sources};
use crate::syntax::{Statement, printable};
use crate::table::{Row, page};
use crate::toml_text::without_variables;
use crate::writer;
use std::path::PathBuf;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// nginx.conf
    Nginx,
    /// Caddyfile
    Caddy,
    /// named.conf of BIND
    Named,
    /// nsd.conf
    Nsd,
    /// knot.conf
    Knot,
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The configuration in TOML.
    pub config: String,
    /// Whether it has a site or zone, without which the server does not start.
    pub has_content: bool,
    /// The statements that need attention.
    pub report: Report,
}

impl SourceKind {
    /// All formats.
    pub const ALL: [SourceKind; 5] =
        [SourceKind::Nginx, SourceKind::Caddy, SourceKind::Named, SourceKind::Nsd, SourceKind::Knot];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SourceKind::Nginx => "nginx",
            SourceKind::Caddy => "caddy",
            SourceKind::Named => "named",
            SourceKind::Nsd => "nsd",
            SourceKind::Knot => "knot",
        }
    }

    /// The tables of its directives for the page of the manual, in Markdown.
    pub fn manual_tables(self) -> String {
        page(self.table())
    }

    fn table(self) -> &'static [Row] {
        match self {
            SourceKind::Nginx => nginx::TABLE,
            SourceKind::Caddy => caddy::TABLE,
            SourceKind::Named => named::TABLE,
            SourceKind::Nsd => nsd::TABLE,
            SourceKind::Knot => knot::TABLE,
        }
    }

    fn parser(self) -> Parse {
        match self {
            SourceKind::Nginx => parsers::nginx::parse,
            SourceKind::Caddy => parsers::caddyfile::parse,
            SourceKind::Named => parsers::named::parse,
            SourceKind::Nsd => parsers::nsd::parse,
            SourceKind::Knot => parsers::knot::parse,
        }
    }

    /// The pattern of the files that a statement includes.
    fn included(self, statement: &Statement) -> Option<String> {
        match self {
            SourceKind::Nginx => nginx::included(statement),
            SourceKind::Caddy => caddy::included(statement),
            SourceKind::Named | SourceKind::Nsd | SourceKind::Knot => included(statement),
        }
    }

    fn interpret(self, statements: &[Statement], model: &mut Model, ledger: &mut Ledger) {
        match self {
            SourceKind::Nginx => nginx::interpret(statements, model, ledger),
            SourceKind::Caddy => caddy::interpret(statements, model, ledger),
            SourceKind::Named => named::interpret(statements, model, ledger),
            SourceKind::Nsd => nsd::interpret(statements, model, ledger),
            SourceKind::Knot => knot::interpret(statements, model, ledger),
        }
    }
}

/// Translates the files of another server, each with those that it includes, into one configuration.
///
/// # Errors
/// A file cannot be read or parsed: a message for each, with file, line and column.
pub fn import(kind: SourceKind, paths: &[PathBuf], files: &mut dyn SourceFiles) -> Result<Imported, Vec<String>> {
    let first = paths.first().cloned().unwrap_or_default();
    let mut sources = Sources::new(files, kind.parser(), &first);
    let (mut statements, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        let loaded = sources.load(path).and_then(|loaded| sources.expand(loaded, &|it| kind.included(it)));
        match loaded {
            Ok(loaded) => statements.extend(loaded),
            Err(error) => {
                let path = sources.paths.get(error.at.file).unwrap_or(path);
                errors.push(format!("{}:{error}", printable(&path.display().to_string())));
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if kind == SourceKind::Caddy {
        statements = caddy::expand_snippets(&statements);
    }
    let (mut model, mut ledger) = (Model::default(), Ledger::default());
    ledger.unreadable(&sources.unreadable, &statements);
    kind.interpret(&statements, &mut model, &mut ledger);
    let mut config = writer::write(&model, kind.name(), &sources.paths);
    // Only Caddy has variables of the environment, whose interpreter leaves no other text of this form.
    if kind != SourceKind::Caddy {
        config = without_variables(&config);
    }
    let has_content = !model.domains.is_empty() || !model.catalogs.is_empty();
    Ok(Imported { config, has_content, report: ledger.finish(&statements, &sources.paths) })
}

#[cfg(test)]
mod tests;
