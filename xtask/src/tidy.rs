//! Turns the tree into complaints: the rules that no compiler checks.

mod imports;
mod borders;
mod unsafety;
mod opening;
mod length;
mod words;
mod links;
mod source;
mod manifest;
mod tree;
mod complaint;
#[cfg(test)]
mod tests;

use std::path::Path;

use complaint::{Complaint, Severity};
use tree::Tree;

/// One rule: its name as it stands in a complaint, and what looks for breaches of it.
struct Rule {
    name: &'static str,
    look: fn(&Tree, &mut Vec<Complaint>),
}

const RULES: &[Rule] = &[
    Rule { name: "imports", look: imports::look },
    Rule { name: "borders", look: borders::look },
    Rule { name: "unsafety", look: unsafety::look },
    Rule { name: "opening", look: opening::look },
    Rule { name: "length", look: length::look },
    Rule { name: "words", look: words::look },
    Rule { name: "links", look: links::look },
];

/// Prints what is wrong with the tree in the current folder. Whether no error is among it; warnings are let pass.
pub(crate) fn run() -> bool {
    let tree = match Tree::read(Path::new(".")) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {error}");
            return false;
        }
    };
    let (mut error_count, mut warning_count) = (0, 0);
    for rule in RULES {
        for complaint in complaints(rule, &tree) {
            match complaint.severity {
                Severity::Warning => warning_count += 1,
                Severity::Error => error_count += 1,
            }
            println!("{complaint} [{}]", rule.name);
        }
    }
    println!("tidy: {} files, {error_count} errors, {warning_count} warnings", tree.files.len());
    error_count == 0
}

/// The complaints of one rule in the order of the files and their lines.
fn complaints(rule: &Rule, tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    (rule.look)(tree, &mut found);
    found.sort_by(|a, b| (&a.path, a.line, &a.text).cmp(&(&b.path, b.line, &b.text)));
    // A line may break a rule in the same way several times: `use crate::top::{A, B}`.
    found.dedup_by(|a, b| (&a.path, a.line, &a.text) == (&b.path, b.line, &b.text));
    found
}
