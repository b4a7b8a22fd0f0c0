//! The comparison tables of the manual: tests named in a comment of the row show each feature of this program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The text for a missing feature, in place of tests.
const MISSING: &str = "no";

#[test]
fn each_feature_of_the_manual_names_tests_that_exist() {
    check_tables("docs/features.md", "| feature | Sanderling |", 1);
}

#[test]
fn each_feature_of_dns_names_tests_that_exist() {
    check_tables("docs/dns-features.md", "| feature | Sanderling |", 1);
}

#[test]
fn each_case_that_is_easy_to_get_wrong_names_tests_that_exist() {
    check_tables("docs/features.md", "| case | Sanderling |", 1);
}

#[test]
fn each_clause_of_hosting_platforms_names_tests_that_exist() {
    check_tables("docs/redirects-and-headers.md", "| | Netlify |", 3);
}

/// Checks all tables of a page with a header that begins like this; `column` is this program's column.
#[track_caller]
fn check_tables(page: &str, header: &str, column: usize) {
    let root = Path::new(ROOT);
    let manual = fs::read_to_string(root.join(page)).expect("read");
    let mut tests = BTreeSet::new();
    add_tests(&root.join("crates"), &mut tests);
    let mut row_count = 0;
    for table in manual.split("\n\n").filter(|block| block.starts_with(header)) {
        for row in table.lines().skip(2) {
            let cell = row.trim_matches('|').split('|').nth(column).expect("the column").trim();
            let (ours, comment) = cell.split_once(" <!-- ").unwrap_or((cell, ""));
            let names = comment.strip_suffix(" -->").unwrap_or_default();
            assert_eq!(
                ours == MISSING,
                names.is_empty(),
                "a feature has tests, and one that is missing has none: {row}"
            );
            for name in names.split(", ").filter(|name| !name.is_empty()) {
                assert!(tests.contains(name), "there is no test `{name}`: {row}");
            }
            row_count += 1;
        }
    }
    assert!(row_count > 20, "{page} has {row_count} rows");
}

/// Adds the names of the test functions below a directory.
fn add_tests(directory: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_tests(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let after = text.split("#[test]").skip(1).filter_map(|rest| rest.split_once("fn ")?.1.split_once('('));
            tests.extend(after.map(|(name, _)| name.to_owned()));
        }
    }
}
