//! The tables of directives: what each becomes, for the import itself and for the pages of the manual.

use crate::ledger::Ledger;
use crate::syntax::Statement;
use std::fmt::Write;

/// The handling of a directive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handling {
    /// It becomes these keys, each `SECTION.KEY`. The remark is for the page.
    Key(&'static [&'static str], &'static str),
    /// The server does this without a key.
    Default(&'static str),
    /// It has no meaning here, for this reason.
    Unneeded(&'static str),
    /// It cannot be expressed, for the first reason; the second is the nearest way.
    NotYet(&'static str, &'static str),
}

/// A directive with its handling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The sections that it can be in, separated by a comma; empty for any, `top` for none.
    pub(crate) section: &'static str,
    /// Its name; with `*` at the end, all names that begin so.
    pub(crate) directive: &'static str,
    pub(crate) handling: Handling,
}

/// Makes rows of lines such as `"server" "listen" => Key(&["http.listen"], "");`.
macro_rules! rows {
    ($($section:literal $($directive:literal)|+ => $handling:expr;)*) => {
        &[$($(Row { section: $section, directive: $directive, handling: $handling }),+),*]
    };
}
pub(crate) use rows;

/// The row of a directive in a section: an exact name takes precedence.
pub(crate) fn row(table: &'static [Row], section: &str, name: &str) -> Option<&'static Row> {
    let is_here = |row: &&Row| row.section.is_empty() || row.section.split(", ").any(|one| one == section);
    let is_named = |row: &&Row| row.directive == name;
    let is_prefix = |row: &&Row| row.directive.strip_suffix('*').is_some_and(|start| name.starts_with(start));
    let find = |is_it: &dyn Fn(&&Row) -> bool| table.iter().filter(is_here).find(is_it);
    find(&is_named).or_else(|| find(&is_prefix))
}

/// Deals with a statement whose row says all about it. Whether it has keys, which are the caller's part.
pub(crate) fn has_keys(table: &'static [Row], section: &str, statement: &Statement, ledger: &mut Ledger) -> bool {
    match row(table, section, statement.name()).map(|row| row.handling) {
        Some(Handling::Key(..)) => return true,
        Some(Handling::Default(_) | Handling::Unneeded(_)) => ledger.keep_all(statement),
        Some(Handling::NotYet(reason, nearest)) => ledger.miss(statement, reason, nearest),
        None => ledger.miss(statement, "the import does not know this directive", "see the manual of the other server"),
    }
    false
}

/// The second column of a row; `None` if it is in another table.
type Cell = fn(&Row) -> Option<String>;

/// The tables of the manual for these rows.
pub(crate) fn page(table: &[Row]) -> String {
    let groups: [(&str, &str, Cell); 4] = [
        ("Expressed", "becomes", |row| match row.handling {
            Handling::Key(keys, "") => Some(keys_text(keys)),
            Handling::Key(keys, remark) => Some(format!("{}: {remark}", keys_text(keys))),
            _ => None,
        }),
        ("Done by default", "Sanderling", |row| match row.handling {
            Handling::Default(text) => Some(text.to_owned()),
            _ => None,
        }),
        ("Not needed", "reason", |row| match row.handling {
            Handling::Unneeded(text) => Some(text.to_owned()),
            _ => None,
        }),
        ("Not expressed", "reason, and the nearest way", |row| match row.handling {
            Handling::NotYet(reason, nearest) => Some(format!("{reason}; {nearest}")),
            _ => None,
        }),
    ];
    let mut text = String::new();
    for (heading, column, cell) in groups {
        let mut lines: Vec<(Vec<String>, String)> = Vec::new();
        for (row, cell) in table.iter().filter_map(|row| cell(row).map(|cell| (row, cell))) {
            let name = match row.section {
                "" | "top" => format!("`{}`", row.directive),
                section => format!("`{}` in `{section}`", row.directive),
            };
            match lines.last_mut().filter(|(_, last)| *last == cell) {
                Some((names, _)) => names.push(name),
                None => lines.push((vec![name], cell)),
            }
        }
        if lines.is_empty() {
            continue;
        }
        let _ = write!(text, "\n### {heading}\n\n| directive | {column} |\n|---|---|\n");
        for (names, cell) in lines {
            let _ = writeln!(text, "| {} | {} |", names.join(", "), cell.replace('|', "\\|"));
        }
    }
    text.push('\n');
    text
}

fn keys_text(keys: &[&str]) -> String {
    let one = |key: &&str| match key.split_once('.') {
        None => format!("`{key}`"),
        Some(("domain", key)) => format!("`{key}`"),
        Some((section @ ("tsig" | "catalog"), key)) => format!("`{key}` in `[{section}.\"NAME\"]`"),
        Some((section, key)) => format!("`{key}` in `[{section}]`"),
    };
    keys.iter().map(one).collect::<Vec<_>>().join(", ")
}
