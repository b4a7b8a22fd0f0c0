//! The rules of the tree that no compiler checks.

mod imports;
mod phrases;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use crate::program::{Log, Outcome};

/// The crates of this repository that each crate may depend on. Tests and benchmarks may use more.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    (
        "crates/sanderling",
        &[
            "probe",
            "top",
            "supervisor",
            "server-process",
            "agent",
            "keeper",
            "state",
            "tls",
            "ipc",
            "doctor",
            "import",
            "config",
            "os",
        ],
    ),
    ("crates/doctor", &["agent", "server-process", "tls", "ipc", "config", "os"]),
    ("crates/probe", &["config", "os", "table"]),
    ("crates/top", &["config", "os"]),
    (
        "crates/server-process",
        &["server", "listeners", "zone-files", "ipc", "config", "os", "dns", "http", "tls", "site-rules"],
    ),
    // The supervisor reads nothing from the network, so it depends on no protocol crate.
    ("crates/supervisor", &["listeners", "ipc", "config", "os", "state"]),
    ("crates/agent", &["zone-files", "ipc", "config", "os", "state", "tls", "dnssec", "dns", "http"]),
    ("crates/keeper", &["ipc", "state", "config", "os", "tls", "dnssec", "dns"]),
    ("crates/state", &["os"]),
    ("crates/dnssec", &["dns", "calendar"]),
    ("crates/zone-files", &["ipc", "config", "os", "dns"]),
    ("crates/listeners", &["config", "os"]),
    ("crates/ipc", &["config", "os"]),
    ("crates/config", &["os", "log-format", "site-rules"]),
    ("crates/log-format", &["calendar"]),
    ("crates/site-rules", &[]),
    ("crates/import", &["site-rules"]),
    ("crates/testkit", &[]),
    ("crates/server", &["os", "table", "dns", "fastcgi", "http", "http2", "tls", "log-format", "site-rules"]),
    ("crates/tls", &["calendar"]),
    ("crates/http2", &["http"]),
    ("crates/fastcgi", &["http"]),
    ("crates/http", &["calendar"]),
    ("crates/dns", &["calendar"]),
    ("crates/calendar", &[]),
    ("crates/table", &[]),
    ("crates/os", &[]),
    ("bench/loadgen", &[]),
    ("bench/soak", &["loadgen", "testkit"]),
    ("bench/measure", &["loadgen", "soak"]),
];
const NO_STD_ROOTS: &[&str] = &[
    "crates/dns/src/lib.rs",
    "crates/http/src/lib.rs",
    "crates/calendar/src/lib.rs",
    "crates/http2/src/lib.rs",
    "crates/fastcgi/src/lib.rs",
];
const MAY_BE_UNSAFE: &[&str] =
    &["crates/os/src/lib.rs", "crates/table/src/lib.rs", "bench/floor/src/main.rs", "bench/loadgen/src/lib.rs"];
/// clippy checks the lines of functions.
const FILE_LINES_MAX: usize = 900;
/// The width that rustfmt gives to code; it leaves comments as they are.
const PROSE_COLUMNS_MAX: usize = 120;
/// Files that people edit as text. Zone files and test data may contain tabs.
const PLAIN: &[&str] = &[".rs", ".md", ".toml", ".yml", ".sh", ".html", ".css", ".conf", ".service"];
/// Marks of unfinished work, and beginnings of paths of one machine; divided, so that this file passes.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
const PRIVATE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];
/// Words with a standard term, and that term.
const WORDS: &[(&str, &str)] = &[
    (concat!("oct", "et"), "bytes"),
    (concat!("oct", "ets"), "bytes"),
    (concat!("w", "ho"), "a named subject"),
    (concat!("wh", "oever"), "a named subject"),
];
/// The crates whose code may be asynchronous, and the words of such code.
const MAY_BE_ASYNCHRONOUS: &[&str] = &["crates/agent", "bench/loadgen", "bench/soak", "bench/measure"];
const ASYNCHRONOUS: &[&str] =
    &["tokio", "tokio-rustls", "hyper", "hyper-util", "instant-acme", "async-trait", "futures"];
/// Lines with a name or a quotation in which such a word is correct: a media type, a method of `std::net`.
const QUOTATIONS: &[&str] =
    &[concat!("oct", "et-stream"), concat!(".oct", "ets()"), concat!("addr::oct", "ets"), concat!("rf", "c-quote")];

/// Programs that root may run next to a state folder that the agent can write, and in them the files that open others,
/// of the operator.
const BESIDE_STATE: &[&str] = &["crates/supervisor/src/", "crates/sanderling/src/", "crates/state/src/copy.rs"];
const OPENS_FILES_OF_OPERATOR: &[&str] = &[
    "crates/supervisor/src/log_rotation.rs",
    "crates/supervisor/src/program.rs",
    "crates/sanderling/src/folder_zone.rs",
    "crates/sanderling/src/init.rs",
    "crates/sanderling/src/import_command.rs",
    "crates/sanderling/src/publication.rs",
];
/// Calls that open a path, whatever its links lead to.
const FOLLOWS_LINKS: &[&str] =
    &["fs::read(", "fs::read_to_string(", "fs::read_dir(", "File::open(", "fs::canonicalize("];
/// Paths that no user but root can change, and parts of a path above the folder.
const TRUSTED: &[&str] = &["/dev/urandom", "let real = "];

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[(&str, Rule)] = &[
    ("imports", imports::check),
    ("crates", check_crates),
    ("roots", check_roots),
    ("files", check_files),
    ("lines", check_lines),
    ("words", check_words),
    ("phrases", phrases::check),
    ("state", check_state),
    ("links", check_links),
    ("panics", check_panics),
    ("included", check_included),
];

/// A violation: the file, the line or 0, and the problem with its remedy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    text: String,
}

fn error(path: &str, line: usize, text: impl Into<String>) -> Finding {
    Finding { path: path.to_owned(), line, text: text.into() }
}

/// The text files of the project and the paths of the others.
#[derive(Default)]
struct Tree {
    files: Vec<(String, String)>,
    others: Vec<String>,
}

impl Tree {
    fn read(&mut self, folder: &Path) -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path().strip_prefix(".").unwrap_or(&entry.path()).to_string_lossy().into_owned();
            if [".git", "target", "corpus", "artifacts", "Cargo.lock"].contains(&name.as_str()) {
            } else if entry.file_type()?.is_dir() {
                self.read(&entry.path())?;
            } else {
                // A file that has disappeared belonged to an editor or a running test.
                match fs::read(entry.path()).map(String::from_utf8) {
                    Ok(Ok(text)) => self.files.push((path, text)),
                    _ => self.others.push(path),
                }
            }
        }
        self.files.sort();
        Ok(())
    }

    fn with_end<'t>(&'t self, end: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .filter(move |(path, _)| path.ends_with(end))
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|(found, _)| found == path).map(|(_, text)| text.as_str())
    }

    /// Whether a path is a file, or a folder with files.
    fn contains(&self, path: &str) -> bool {
        let mut paths = self.files.iter().map(|(path, _)| path).chain(&self.others);
        let path = path.trim_end_matches('/');
        paths.any(|it| it.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

/// Prints all findings; passes if there is none.
pub(crate) fn run(log: &mut Log) -> Outcome {
    let mut tree = Tree::default();
    if let Err(error) = tree.read(Path::new(".")) {
        return Outcome::Failed(error.to_string());
    }
    let mut error_count = 0;
    for (name, check) in RULES {
        let mut findings = check(&tree);
        findings.sort();
        findings.dedup();
        error_count += findings.len();
        for Finding { path, line, text } in &findings {
            log.line(&format!("{path}:{line}: {text} [{name}]"));
        }
    }
    log.line(&format!("tidy: {} files, {error_count} errors", tree.files.len()));
    if error_count == 0 { Outcome::Passed } else { Outcome::Failed(format!("tidy found {error_count} errors")) }
}

/// A panicked thread of the agent or the keeper no longer does its work, and the process would continue without it.
fn check_panics(tree: &Tree) -> Vec<Finding> {
    const STARTUPS: [&str; 2] = ["crates/agent/src/startup.rs", "crates/keeper/src/startup.rs"];
    const CALL: &str = "panics::end_process(panics::Scope::Process);";
    let has_call = |path: &str| tree.get(path).is_some_and(|text| text.lines().any(|line| line.trim() == CALL));
    let missing = STARTUPS.into_iter().filter(|path| !has_call(path));
    missing
        .map(|path| error(path, 0, format!("`{CALL}` is missing: a panic of any thread must end the process")))
        .collect()
}

/// Dependencies of crates point down.
fn check_crates(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_end("/Cargo.toml") {
        let folder = path.trim_end_matches("/Cargo.toml");
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == folder) else {
            if folder.starts_with("crates/") {
                found.push(error(path, 0, "the crate has no line in MAY_IMPORT of xtask; add one"));
            }
            continue;
        };
        let mut section = "";
        for (index, line) in text.lines().enumerate() {
            section = if line.starts_with('[') { line } else { section };
            let is_built = section.ends_with("dependencies]") && !section.contains("dev-dependencies");
            let key = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if is_built && ASYNCHRONOUS.contains(&key) && !MAY_BE_ASYNCHRONOUS.contains(&folder) {
                found.push(error(
                    path,
                    index + 1,
                    format!("`{key}` is for asynchronous code, which only the agent has"),
                ));
            }
            let ours = key.strip_prefix("sanderling").map(|name| name.trim_start_matches('-'));
            let ours = ours.or(["loadgen", "soak"].contains(&key).then_some(key)).filter(|_| is_built);
            if let Some(name) = ours.filter(|name| !allowed.contains(name)) {
                let name = if name.is_empty() { "sanderling" } else { name };
                let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                found.push(error(path, index + 1, format!("`{name}` must not be a dependency; allowed: {allowed}")));
            }
        }
    }
    found
}

/// The root of each crate forbids `unsafe`, and the root of a protocol crate also `std`.
fn check_roots(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_end(".rs") {
        let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
        let has = |attribute: &str| text.lines().any(|line| line == attribute);
        if is_root && !MAY_BE_UNSAFE.contains(&path) && !has("#![forbid(unsafe_code)]") {
            found.push(error(path, 0, "`#![forbid(unsafe_code)]` is missing"));
        }
        if NO_STD_ROOTS.contains(&path)
            && (!has("#![no_std]") || text.replace("#[cfg(test)]\nextern crate std;", "").contains("extern crate std;"))
        {
            found.push(error(path, 0, "`#![no_std]` is missing, or undone by `extern crate std` outside tests"));
        }
    }
    found
}

/// Rust files begin with a sentence, and no file is too long.
fn check_files(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_end(".rs") {
        let opening = text.lines().map_while(|line| line.strip_prefix("//! ")).last();
        if !opening.is_some_and(|line| line.trim_end().ends_with(['.', ':', '?'])) {
            found.push(error(path, 1, "the file does not begin with a `//!` sentence; say what it is for"));
        }
        let line_count = text.lines().count();
        if line_count > FILE_LINES_MAX {
            found.push(error(path, 0, format!("{line_count} lines; split the file")));
        }
    }
    found
}

/// No stray blanks, no long comments, no marks of unfinished work, no paths of one machine.
fn check_lines(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in &tree.files {
        let is_plain = PLAIN.iter().any(|end| path.ends_with(end));
        let mut is_diagram = false;
        for (index, line) in text.split('\n').enumerate() {
            let mut add = |text: String| found.push(error(path, index + 1, text));
            if is_plain && line.contains('\t') {
                add("a tab; indent by spaces, or write \\t in a literal".to_owned());
            }
            if is_plain && line.ends_with([' ', '\t', '\r']) {
                add("spaces at the end of the line; remove them".to_owned());
            }
            let prose = match path.ends_with(".md") {
                true => Some(line.trim_start()).filter(|text| !text.starts_with('|')),
                false => line.trim_start().strip_prefix("//").filter(|_| path.ends_with(".rs")),
            };
            is_diagram ^= prose.is_some_and(|text| text.contains("```"));
            if prose.is_some() && !is_diagram && line.chars().count() > PROSE_COLUMNS_MAX {
                add(format!("the text has more than {PROSE_COLUMNS_MAX} columns; wrap it"));
            }
            for mark in UNFINISHED.iter().filter(|mark| has_word(line, mark)) {
                add(format!("`{mark}`; finish the work, or write an issue"));
            }
            let is_middle = |c: char| c.is_alphanumeric() || "_.-~/}".contains(c);
            let starts = |prefix: &&&str| line.match_indices(**prefix).any(|(at, _)| !line[..at].ends_with(is_middle));
            for prefix in PRIVATE_PATHS.iter().filter(starts) {
                add(format!("`{prefix}…` is a path of one machine; make it relative to the project"));
            }
        }
    }
    found
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// Standard terms in documents, comments and messages.
fn check_words(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_end(".rs").chain(tree.with_end(".md")) {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.to_lowercase()));
        for (number, line) in lines.filter(|(_, line)| !QUOTATIONS.iter().any(|quotation| line.contains(quotation))) {
            for (word, instead) in WORDS.iter().filter(|(word, _)| has_word(&line, word)) {
                found.push(error(path, number, format!("`{word}`; write {instead}")));
            }
        }
    }
    found
}

/// Files of the state folder are opened relative to it, and no link leads out of it.
fn check_state(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_end(".rs") {
        let is_beside = BESIDE_STATE.iter().any(|start| path.starts_with(start));
        if !is_beside || OPENS_FILES_OF_OPERATOR.contains(&path) || path.ends_with("/tests.rs") {
            continue;
        }
        for (index, line) in text.lines().take_while(|line| *line != "#[cfg(test)]").enumerate() {
            let is_trusted = TRUSTED.iter().any(|trusted| line.contains(trusted));
            for call in FOLLOWS_LINKS.iter().filter(|call| line.contains(**call) && !is_trusted) {
                let remedy =
                    "the agent can put links into the state folder: use `read_beneath`, or `open_without_links`";
                found.push(error(path, index + 1, format!("`{call}` follows links; {remedy}")));
            }
        }
    }
    found
}

/// Links and names of files in documents and comments exist.
fn check_links(tree: &Tree) -> Vec<Finding> {
    const FOLDERS: &[&str] = &["docs/", "crates/", "xtask/", "bench/", "fuzz/", "packaging/", ".ci/"];
    let is_name = |c: char| c.is_ascii_alphanumeric() || "/.-_".contains(c);
    let mut found = Vec::new();
    let mut check = |path: &str, index: usize, target: String| {
        if !tree.contains(&target) {
            found.push(error(path, index + 1, format!("`{target}` does not exist")));
        }
    };
    for (path, text) in tree.with_end(".md") {
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        let mut is_code = false;
        for (index, line) in text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            if is_code {
                continue;
            }
            let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '#']).next());
            for link in links.filter(|link| !link.is_empty() && !link.contains(':')) {
                check(path, index, resolve(folder, link));
            }
            let quoted = line.split('`').skip(1).step_by(2);
            for name in quoted.filter(|name| FOLDERS.iter().any(|it| name.starts_with(it)) && name.chars().all(is_name))
            {
                check(path, index, name.to_owned());
            }
        }
    }
    for (path, text) in tree.with_end(".rs") {
        for (index, line) in text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//")) {
            let words = line.split(|c: char| !is_name(c)).map(|word| word.trim_end_matches('.'));
            words.filter(|word| word.starts_with("docs/")).for_each(|name| check(path, index, name.to_owned()));
        }
    }
    found
}

/// The program includes files of its crates alone: others are not in the package of the crate at the registry.
fn check_included(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_end(".rs") {
        let Some((package, _)) = path.split_once("/src/").filter(|_| path.starts_with("crates/")) else { continue };
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        for (index, line) in text.lines().enumerate() {
            let included = ["include_str!(\"", "include_bytes!(\""].map(|start| line.split_once(start));
            let names = included.iter().flatten().filter_map(|(_, rest)| rest.split('"').next());
            for target in names.map(|name| resolve(folder, name)) {
                if !target.starts_with(&format!("{package}/")) {
                    let remedy = format!("it is not in the package of {package}; move it there");
                    found.push(error(path, index + 1, format!("includes `{target}`, but {remedy}")));
                }
            }
        }
    }
    found
}

/// A relative link as a path from the root.
pub(crate) fn resolve(folder: &Path, link: &str) -> String {
    let joined = folder.join(link);
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.to_str().unwrap_or_default().split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
