//! The papers, and the comments of the code, point to files that exist.

use super::complaint::Complaint;
use super::tree::Tree;

/// Folders whose files the papers name in backticks; such a name must be true as well.
const NAMED_FOLDERS: &[&str] = &["docs/", "crates/", "xtask/", "bench/", "fuzz/", "demo/", "packaging/", ".ci/"];

pub(super) fn look(tree: &Tree, found: &mut Vec<Complaint>) {
    for file in tree.ending(".md") {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut is_code = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            }
            if is_code {
                continue;
            }
            let linked = targets(line).filter_map(|target| resolve(folder, target));
            let named = names(line).map(str::to_owned);
            let dead = linked.chain(named).filter(|path| !tree.holds(path));
            found.extend(dead.map(|path| complaint(&file.path, index, &path)));
        }
    }
    for file in tree.ending(".rs") {
        let comments = file.text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
        for (index, line) in comments {
            let dead = papers(line).filter(|path| !tree.holds(path));
            found.extend(dead.map(|path| complaint(&file.path, index, path)));
        }
    }
}

fn complaint(file: &str, index: usize, path: &str) -> Complaint {
    Complaint::error(file, index + 1, format!("`{path}` does not exist; mend the name, or write the file"))
}

/// The targets of the links `[text](target)` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

/// The path from the root that a link in `folder` leads to; `None` when it leaves the tree or stays on its page.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let path = target.split('#').next().unwrap_or(target);
    if path.is_empty() || path.contains(':') {
        return None;
    }
    let mut folders: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                folders.pop();
            }
            name => folders.push(name),
        }
    }
    Some(folders.join("/"))
}

/// What stands in backticks and is the name of a file in one of our folders: no pattern, no command.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|name| NAMED_FOLDERS.iter().any(|folder| name.starts_with(folder)) && name.chars().all(is_plain))
}

/// The papers that a comment names, such as `docs/decisions/0001-event-loop.md`.
fn papers(comment: &str) -> impl Iterator<Item = &str> {
    let words = comment.split(|c: char| !is_plain(c)).map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.starts_with("docs/"))
}

/// What the names of our files are made of.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '/' | '.' | '-' | '_')
}
