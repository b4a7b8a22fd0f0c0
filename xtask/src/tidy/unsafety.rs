//! `unsafe` stands in two crates, and the compiler is told so in all the others.

use super::complaint::Complaint;
use super::source::{Source, line_of, words};
use super::tree::Tree;

/// Folders that may hold `unsafe`. Benchmarks measure bare system calls; they are no part of the program.
const MAY_BE_UNSAFE: &[&str] = &["crates/os/", "crates/table/", "bench/"];

/// What the root of every other crate begins with.
const FORBIDDEN: &str = "#![forbid(unsafe_code)]";

pub(super) fn look(tree: &Tree, found: &mut Vec<Complaint>) {
    for file in tree.ending(".rs") {
        if MAY_BE_UNSAFE.iter().any(|folder| file.path.starts_with(folder)) {
            continue;
        }
        let source = Source::of(&file.text);
        for at in words(source.code(), "unsafe") {
            let text = "`unsafe` is for the crates os and table; move the call there".into();
            found.push(Complaint::error(&file.path, line_of(source.code(), at), text));
        }
        if is_root(&file.path) && !source.code().contains(FORBIDDEN) {
            found.push(Complaint::error(&file.path, 0, format!("`{FORBIDDEN}` is missing in the root of the crate")));
        }
    }
}

/// Whether a crate that is part of the program or of its chores starts here.
fn is_root(path: &str) -> bool {
    let in_workspace = path.starts_with("crates/") || path.starts_with("xtask/");
    in_workspace && (path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs"))
}
