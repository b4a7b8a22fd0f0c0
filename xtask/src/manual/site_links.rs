//! The links of a built site: whether their files and places exist.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Pages that mdBook adds, with links for other places than their own.
const GENERATED: [&str; 3] = ["404.html", "print.html", "toc.html"];

/// The links between pages of the site in `folder` that lead nowhere, each with its page.
///
/// # Errors
/// The site cannot be read.
pub(super) fn broken(folder: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    super::list(folder, &mut files)?;
    let mut pages = HashMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "html")) {
        pages.insert(file.clone(), fs::read_to_string(file)?);
    }
    let mut broken = Vec::new();
    for (file, text) in &pages {
        if GENERATED.iter().any(|name| file.ends_with(name)) {
            continue;
        }
        for target in targets(text).filter(|target| leads_nowhere(file, target, &files, &pages)) {
            broken.push(format!("{}: {target}", file.strip_prefix(folder).unwrap_or(file).display()));
        }
    }
    broken.sort();
    broken.dedup();
    Ok(broken)
}

fn leads_nowhere(page: &Path, target: &str, files: &[PathBuf], pages: &HashMap<PathBuf, String>) -> bool {
    // Elsewhere, or a query.
    if target.contains(':') || target.starts_with("//") || target.contains('?') {
        return false;
    }
    let (path, id) = target.split_once('#').map_or((target, None), |(path, id)| (path, Some(id)));
    let file = if path.is_empty() { page.to_owned() } else { normal(&page.with_file_name("").join(path)) };
    let has_id = |id: &str| id.is_empty() || pages.get(&file).is_none_or(|text| text.contains(&format!("id=\"{id}\"")));
    !files.contains(&file) || !id.is_none_or(has_id)
}

/// The values of `href` and `src`.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let of_attribute = |attribute: &'static str| {
        text.split(attribute).skip(1).filter_map(|rest| rest.split_once('"').map(|(value, _)| value))
    };
    of_attribute(" href=\"").chain(of_attribute(" src=\""))
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}
