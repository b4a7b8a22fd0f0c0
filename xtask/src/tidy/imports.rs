//! Inside a crate imports point down: the `mod` lines of a file stand from top to bottom, and a module uses only those
//! below it.

use std::collections::HashMap;

use super::complaint::Complaint;
use super::source::{Source, is_for_tests, is_word_character, line_of, strip_visibility, words};
use super::tree::Tree;

/// Modules within modules; a crate that is deeper includes itself.
const DEPTH_MAX: usize = 8;

pub(super) fn look(tree: &Tree, found: &mut Vec<Complaint>) {
    for file in tree.files.iter().filter(|file| is_root(&file.path)) {
        let mut modules = Modules::default();
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        modules.add(tree, &file.path, folder, Vec::new());
        for module in modules.by_path.values() {
            modules.complain(module, found);
        }
    }
}

fn is_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

/// The names from the root of the crate down to a module or to something in it.
type ModulePath = Vec<String>;

/// A module that lives in a file of its own.
struct Module {
    path: ModulePath,
    file: String,
    /// Without tests.
    code: String,
    /// From the top of the file to its bottom.
    children: Vec<String>,
    /// What the module lends a second name by `use`: that name, and the child it comes from.
    lent: HashMap<String, String>,
}

/// The modules of one crate but its tests.
#[derive(Default)]
struct Modules {
    by_path: HashMap<ModulePath, Module>,
}

impl Modules {
    /// Adds the module in `file` and those below it, which lie in `folder`. A file that is missing is the compiler's
    /// to report.
    fn add(&mut self, tree: &Tree, file: &str, folder: &str, path: ModulePath) {
        let Some(text) = tree.file(file).map(|file| &file.text) else { return };
        if path.len() > DEPTH_MAX {
            return;
        }
        let code = Source::of(text).without_tests();
        let children = declared_modules(&code);
        for child in &children {
            let mut child_path = path.clone();
            child_path.push(child.clone());
            let folder = format!("{folder}/{child}");
            let (flat, nested) = (format!("{folder}.rs"), format!("{folder}/mod.rs"));
            let file = if tree.file(&flat).is_some() { flat } else { nested };
            self.add(tree, &file, &folder, child_path);
        }
        let lent = lent_names(&code, &children);
        self.by_path.insert(path.clone(), Module { path, file: file.to_owned(), code, children, lent });
    }

    fn complain(&self, module: &Module, found: &mut Vec<Complaint>) {
        for (at, target) in references(&module.code, &module.path) {
            if let Some(text) = self.breach(module, &target) {
                found.push(Complaint::error(&module.file, line_of(&module.code, at), text));
            }
        }
    }

    /// What is wrong with `module` using `target`.
    fn breach(&self, module: &Module, target: &[String]) -> Option<String> {
        let shared = module.path.iter().zip(target).take_while(|(own, other)| own == other).count();
        // Its own items and those of its children are a module's to use.
        let own = module.path.get(shared)?;
        let other = target.get(shared)?;
        let parent = self.by_path.get(&module.path[..shared])?;
        if other == "*" {
            return Some("the glob of a module above hides what is imported; name it".into());
        }
        let place = |name: &String| parent.children.iter().position(|child| child == name);
        let owner = if place(other).is_some() { other } else { parent.lent.get(other)? };
        (place(owner)? < place(own)?).then(|| {
            format!("`{own}` uses `{owner}`, which {} declares above it; move the lines, or the code", parent.file)
        })
    }
}

/// The names of the lines `mod name;` in their order, those of tests left out.
fn declared_modules(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in code.lines().map(str::trim) {
        if let Some(name) = strip_visibility(line).strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
            if !is_test {
                names.push(name.trim().to_owned());
            }
            is_test = false;
        } else if !line.is_empty() {
            is_test = is_for_tests(line) || (is_test && line.starts_with("#["));
        }
    }
    names
}

/// The names that `use child::…` brings into a module from its own children.
fn lent_names(code: &str, children: &[String]) -> HashMap<String, String> {
    let mut lent = HashMap::new();
    for at in words(code, "use") {
        for used in used_paths(&code[at + "use".len()..]) {
            let inner = used.segments.iter().position(|segment| segment != "self" && segment != "crate");
            if let Some(first) = inner.map(|index| &used.segments[index])
                && children.contains(first)
                && let Some(name) = used.name()
            {
                lent.insert(name.clone(), first.clone());
            }
        }
    }
    lent
}

/// Every path that starts at `crate` or `super`, with its place, as it reads from the root of the crate.
fn references(code: &str, own: &[String]) -> Vec<(usize, ModulePath)> {
    let mut found = Vec::new();
    for at in words(code, "crate") {
        // `$crate` of a macro names the crate for others.
        if let Some(rest) = code[at + "crate".len()..].strip_prefix("::").filter(|_| !code[..at].ends_with('$')) {
            found.extend(used_paths(rest).into_iter().map(|used| (at, used.segments)));
        }
    }
    for at in words(code, "super") {
        // The second of `super::super` is read with the first.
        if code[..at].ends_with("super::") {
            continue;
        }
        let mut rest = &code[at..];
        let mut depth = own.len();
        while let Some(behind) = rest.strip_prefix("super::") {
            depth = depth.saturating_sub(1);
            rest = behind;
        }
        let base = &own[..depth];
        found.extend(used_paths(rest).into_iter().map(|used| (at, [base, &used.segments].concat())));
    }
    found
}

/// One path of a `use` tree or of an expression.
struct UsedPath {
    segments: ModulePath,
    alias: Option<String>,
}

impl UsedPath {
    /// What it is called where it is used.
    fn name(&self) -> Option<&String> {
        self.alias.as_ref().or(self.segments.last())
    }
}

/// The paths that `text` starts with: one, or many when it has `{…}` in it.
fn used_paths(text: &str) -> Vec<UsedPath> {
    let mut found = Vec::new();
    read_paths(text, Vec::new(), &mut found);
    found
}

/// Reads one tree of paths below `path` and gives back what stands behind it.
fn read_paths<'a>(text: &'a str, mut path: ModulePath, found: &mut Vec<UsedPath>) -> &'a str {
    let mut rest = text.trim_start();
    loop {
        if let Some(list) = rest.strip_prefix('{') {
            return read_list(list, &path, found);
        }
        let name_bytes = rest.find(|c: char| !is_word_character(c)).unwrap_or(rest.len());
        let name_bytes = if rest.starts_with('*') { 1 } else { name_bytes };
        let (name, behind) = rest.split_at(name_bytes);
        if !matches!(name, "" | "self") {
            path.push(name.to_owned());
        }
        match behind.trim_start().strip_prefix("::") {
            Some(deeper) if name_bytes > 0 => rest = deeper.trim_start(),
            _ => {
                let (alias, behind) = read_alias(behind);
                found.push(UsedPath { segments: path, alias });
                return behind;
            }
        }
    }
}

fn read_list<'a>(list: &'a str, path: &ModulePath, found: &mut Vec<UsedPath>) -> &'a str {
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('}') {
            return behind;
        }
        let behind = read_paths(rest, path.clone(), found).trim_start();
        let next = behind.strip_prefix(',').unwrap_or(behind).trim_start();
        // What is no path at all ends the list.
        if next.len() == rest.len() {
            return next;
        }
        rest = next;
    }
    rest
}

fn read_alias(text: &str) -> (Option<String>, &str) {
    let Some(rest) = text.trim_start().strip_prefix("as ") else { return (None, text) };
    let rest = rest.trim_start();
    let (alias, behind) = rest.split_at(rest.find(|c: char| !is_word_character(c)).unwrap_or(rest.len()));
    (Some(alias.to_owned()), behind)
}
