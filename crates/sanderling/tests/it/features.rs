//! The manual's tables of features: each feature of this program has tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const COLUMN_COUNT: usize = 7;

#[test]
fn each_feature_of_the_manual_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manual = fs::read_to_string(root.join("docs/features.md")).expect("read");
    let mut tests = BTreeSet::new();
    add_tests(&root.join("crates"), &mut tests);
    let mut feature_count = 0;
    for row in manual.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| feature ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), COLUMN_COUNT, "{row}");
        let (ours, comment) = cells[1].split_once(" <!-- ").unwrap_or((cells[1], ""));
        let names: Vec<&str> = comment.trim_end_matches(" -->").split(", ").filter(|name| !name.is_empty()).collect();
        assert_eq!(ours == "no", names.is_empty(), "a feature has tests, and one that is missing has none: {row}");
        for name in names {
            assert!(tests.contains(name), "there is no test `{name}`: {row}");
            feature_count += 1;
        }
    }
    assert!(feature_count > 0, "the manual has features");
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
