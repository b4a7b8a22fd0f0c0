//! Tables of the manual that are generated from the code.

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
