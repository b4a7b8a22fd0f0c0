//! The order of modules: a module imports only from modules whose `mod` line is below its own.

use std::collections::HashMap;

use super::{Finding, Tree, error};

/// The code of each module of a crate, by its path from the root.
type Modules<'t> = HashMap<Vec<String>, (&'t str, String)>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let roots = tree.with_end("/src/lib.rs").chain(tree.with_end("/src/main.rs"));
    for (root, _) in roots {
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut modules = Modules::new();
        add(tree, &mut modules, root, folder, Vec::new());
        for (own, (path, code)) in &modules {
            for (at, target) in references(code, own) {
                if let Some(text) = violation(&modules, own, &target) {
                    found.push(error(path, code[..at].lines().count(), text));
                }
            }
        }
    }
    found
}

/// Adds a module and those below it, except tests.
fn add<'t>(tree: &'t Tree, modules: &mut Modules<'t>, path: &str, folder: &str, module: Vec<String>) {
    let Some((path, text)) = tree.files.iter().find(|(found, _)| found == path) else { return };
    let code = without_tests(text);
    for child in children(&code) {
        let folder = format!("{folder}/{child}");
        let file = [format!("{folder}.rs"), format!("{folder}/mod.rs")].into_iter().find(|it| tree.get(it).is_some());
        if let Some(file) = file {
            add(tree, modules, &file, &folder, [module.as_slice(), &[child]].concat());
        }
    }
    modules.insert(module, (path, code));
}

/// The text with comments as empty lines, and without the test module at the end.
fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    code.lines()
        .map(|line| if line.trim_start().starts_with("//") { "\n".into() } else { format!("{line}\n") })
        .collect()
}

/// The modules that a file declares, without those for tests.
fn children(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut previous = "";
    for line in code.lines() {
        let declared = line.split_once("mod ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        if let Some(name) = declared.and_then(|(_, rest)| rest.strip_suffix(';'))
            && !previous.starts_with("#[cfg(test")
        {
            names.push(name.to_owned());
        }
        previous = line;
    }
    names
}

/// Paths that begin with `crate` or `super`, with their positions, from the root of the crate.
fn references(code: &str, own: &[String]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let is_start =
        |at: &usize| !code[..*at].ends_with(|c: char| c == '$' || c == ':' || c == '_' || c.is_alphanumeric());
    for at in code.match_indices("crate::").map(|(at, _)| at).filter(is_start) {
        found.extend(paths(&code[at + "crate::".len()..], &[]).into_iter().map(|path| (at, path)));
    }
    for at in code.match_indices("super::").map(|(at, _)| at).filter(is_start) {
        let (mut rest, mut base) = (&code[at..], own);
        while let Some(next) = rest.strip_prefix("super::") {
            (rest, base) = (next, &base[..base.len().saturating_sub(1)]);
        }
        found.extend(paths(rest, base).into_iter().map(|path| (at, path)));
    }
    found
}

/// The path at the beginning of a text, or all paths of a list in braces.
fn paths(text: &str, prefix: &[String]) -> Vec<Vec<String>> {
    let text = text.trim_start();
    if let Some(list) = text.strip_prefix('{') {
        return items(list).into_iter().flat_map(|item| paths(item, prefix)).collect();
    }
    let (name, rest) = text.split_at(text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len()));
    let path = [prefix, &[name.to_owned()]].concat();
    match rest.strip_prefix("::") {
        Some(deeper) if !name.is_empty() => paths(deeper, &path),
        _ => vec![path],
    }
}

/// The items of a list up to its closing brace.
fn items(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                items.push(&list[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    items
}

/// The problem of a module that imports a path.
fn violation(modules: &Modules<'_>, own: &[String], target: &[String]) -> Option<String> {
    let shared_count = own.iter().zip(target).take_while(|(own, other)| own == other).count();
    // A module may use its own items and its children.
    let (own_name, other_name) = (own.get(shared_count)?, target.get(shared_count)?);
    let (parent, code) = modules.get(&own[..shared_count])?;
    let names = children(code);
    let position = |name: &String| names.iter().position(|child| child == name);
    let is_above = position(other_name)? < position(own_name)?;
    is_above.then(|| {
        format!("`{own_name}` uses `{other_name}`, which {parent} declares above it; move the line, or the code")
    })
}
