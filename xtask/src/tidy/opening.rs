//! Every Rust file opens with a sentence that says what it is.

use super::complaint::Complaint;
use super::tree::Tree;

pub(super) fn look(tree: &Tree, found: &mut Vec<Complaint>) {
    for file in tree.ending(".rs") {
        let opening: Vec<&str> = file.text.lines().map_while(|line| line.strip_prefix("//! ")).collect();
        match opening.last() {
            None => {
                let text = "the file opens without a `//!` sentence; say what it turns into what".into();
                found.push(Complaint::error(&file.path, 1, text));
            }
            // The paragraph may lead on to a list.
            Some(last) if !last.trim_end().ends_with(['.', ':', '?']) => {
                let text = "the opening `//!` paragraph is no whole sentence: it ends without a full stop".into();
                found.push(Complaint::error(&file.path, opening.len(), text));
            }
            Some(_) => {}
        }
    }
}
