//! No stray blanks, no marks of unfinished work, no paths of somebody's machine.

use super::complaint::Complaint;
use super::source::is_word_character;
use super::tree::Tree;

/// Ends of the names of files that people edit as text; zone files and test input may hold tabs.
const PLAIN: &[&str] = &[".rs", ".md", ".toml", ".yml", ".sh", ".ci/run", ".html", ".css", ".svg", ".service"];

/// Marks of work that was left for later; an issue is the place for it. They are put together here, so that this file
/// passes its own rule.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Starts of paths that exist on one machine only.
const PRIVATE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];

pub(super) fn look(tree: &Tree, found: &mut Vec<Complaint>) {
    for file in &tree.files {
        let is_plain = PLAIN.iter().any(|end| file.path.ends_with(end));
        for (index, line) in file.text.split('\n').enumerate() {
            let mut complain = |text: String| found.push(Complaint::error(&file.path, index + 1, text));
            if is_plain && line.contains('\t') {
                complain("a tab; indent by blanks, and write \\t inside a literal".into());
            }
            if is_plain && line.ends_with([' ', '\t', '\r']) {
                complain("blanks at the end of the line; take them away".into());
            }
            for mark in UNFINISHED.iter().filter(|mark| has_word(line, mark)) {
                complain(format!("`{mark}` marks unfinished work; finish it, or write it down as an issue"));
            }
            for path in PRIVATE_PATHS.iter().filter(|path| has_path(line, path)) {
                complain(format!("`{path}…` is a path of one machine; say it relative to the project"));
            }
        }
    }
}

fn has_word(line: &str, word: &str) -> bool {
    super::source::words(line, word).next().is_some()
}

/// Whether `path` stands in the line as the start of a path, not as the middle of a longer one.
fn has_path(line: &str, path: &str) -> bool {
    let is_middle = |c: char| is_word_character(c) || matches!(c, '.' | '-' | '~' | '/' | '}');
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(is_middle))
}
