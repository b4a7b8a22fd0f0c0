//! Tables of the manual that are generated from the code, and the names that `docs/stability.md` promises.

use std::collections::BTreeSet;
use std::fs;

/// Checks that `expected` is in `file` between the lines `begin` and `end`, or writes it there if the variable
/// `UPDATE_DOCS` is set.
#[track_caller]
pub fn check_manual_table(file: &str, begin: &str, end: &str, expected: &str) {
    let manual = fs::read_to_string(file).expect("the manual can be read");
    let (before, rest) = manual.split_once(begin).expect("the manual has the line before the table");
    let (found, after) = rest.split_once(end).expect("the manual has the line after the table");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(file, format!("{before}{begin}{expected}{end}{after}")).expect("the manual can be written");
        return;
    }
    assert!(found == expected, "{file} is out of date: run this test once with UPDATE_DOCS=1");
}

/// Checks that `crates/sanderling/tests/data/0.1/NAME.txt` lists `current`: no name that operators use was removed or
/// renamed, and a new one is promised as well. If the variable `UPDATE_DOCS` is set, new names are added to the file.
#[track_caller]
pub fn check_promised(name: &str, current: impl IntoIterator<Item = String>) {
    let file = format!("{}/../sanderling/tests/data/0.1/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let current: BTreeSet<String> = current.into_iter().collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let stored = fs::read_to_string(&file).unwrap_or_default();
        let all: BTreeSet<&str> = stored.lines().chain(current.iter().map(String::as_str)).collect();
        let text: String = all.into_iter().map(|line| format!("{line}\n")).collect();
        fs::write(&file, text).expect("the list can be written");
    }
    let stored = fs::read_to_string(&file).expect("the list can be read");
    assert!(!stored.is_empty(), "{file} is empty");
    let missing: Vec<&str> = stored.lines().filter(|line| !current.contains(*line)).collect();
    assert!(missing.is_empty(), "docs/stability.md promises these names, which are removed or renamed: {missing:#?}");
    let listed: BTreeSet<&str> = stored.lines().collect();
    let new: Vec<&String> = current.iter().filter(|name| !listed.contains(name.as_str())).collect();
    assert!(new.is_empty(), "{file} lacks {new:#?}: run this test once with UPDATE_DOCS=1");
}
