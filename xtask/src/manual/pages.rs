//! The pages of the repository as pages of the book: their paths, their links, and their order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tidy;

const START: &str = "docs/README.md";
const DECISIONS: &str = "docs/decisions/README.md";

/// The pages, by their path in the repository.
pub(super) struct Pages(BTreeMap<String, String>);

/// The path of a file of the repository in the book: the manual is at the top, and a README is the page of its folder.
pub(super) fn book_path(path: &str) -> String {
    let path = match path.strip_prefix("docs/") {
        Some(below) => below.to_owned(),
        None if path.contains('/') => path.to_owned(),
        None => format!("project/{path}"),
    };
    match path.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => path,
    }
}

impl Pages {
    pub(super) fn new(pages: BTreeMap<String, String>) -> Pages {
        Pages(pages)
    }

    /// The path of each page in the book, and its text there.
    pub(super) fn in_book(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|(path, text)| (book_path(path), self.with_links_of_book(path, text)))
    }

    /// The list of pages: those that the start page links to, under its headings; then all others.
    pub(super) fn summary(&self) -> String {
        let mut out = format!("# Summary\n\n[Manual]({})\n", book_path(START));
        let mut listed = BTreeSet::from([START.to_owned()]);
        let start = self.0.get(START).map_or("", String::as_str);
        for line in start.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                out += &format!("\n# {heading}\n\n");
            }
            for link in links(line) {
                let Some(page) = self.page_of(START, link.target) else { continue };
                if listed.insert(page.clone()) {
                    out += &format!("- [{}]({})\n", self.title(&page), book_path(&page));
                }
                if page == DECISIONS {
                    self.add_decisions(&mut listed, &mut out);
                }
            }
        }
        out += "\n# Project\n\n";
        for page in self.0.keys() {
            if listed.insert(page.clone()) {
                out += &format!("- [{}]({})\n", self.title(page), book_path(page));
            }
        }
        out
    }

    fn add_decisions(&self, listed: &mut BTreeSet<String>, out: &mut String) {
        for page in self.0.keys().filter(|page| page.starts_with("docs/decisions/")) {
            if listed.insert(page.clone()) {
                *out += &format!("  - [{}]({})\n", self.title(page), book_path(page));
            }
        }
    }

    /// The first heading of a page.
    fn title(&self, page: &str) -> String {
        let heading = self.0[page].lines().find_map(|line| line.strip_prefix("# "));
        heading.unwrap_or(page).replace(['[', ']'], "")
    }

    /// The page to which `target` leads from the page at `path`.
    fn page_of(&self, path: &str, target: &str) -> Option<String> {
        let file = target.split('#').next().unwrap_or_default();
        let resolved = resolve(path, file);
        self.0.contains_key(&resolved).then_some(resolved)
    }

    /// The text of the page at `path` with the links that it has in the book. A link to a file that is not in the book
    /// becomes its text.
    fn with_links_of_book(&self, path: &str, text: &str) -> String {
        let own = book_path(path);
        let up = "../".repeat(own.matches('/').count());
        let mut out = String::new();
        let mut is_code = false;
        for line in text.lines() {
            is_code ^= line.trim_start().starts_with("```");
            let mut rest = line;
            while let Some(link) = links(rest).into_iter().next().filter(|_| !is_code) {
                let (before, after) = (&rest[..link.start], &rest[link.end..]);
                out += before;
                let is_elsewhere = link.target.contains(':') || link.target.starts_with('#');
                let fragment = link.target.split_once('#').map_or(String::new(), |(_, id)| format!("#{id}"));
                out += &match self.page_of(path, link.target) {
                    _ if is_elsewhere => rest[link.start..link.end].to_owned(),
                    _ if link.is_image => {
                        format!("[{}]({up}{})", link.text, book_path(&resolve(path, link.target)))
                    }
                    Some(page) => format!("[{}]({up}{}{fragment})", link.text, book_path(&page)),
                    None => link.text.to_owned(),
                };
                rest = after;
            }
            out += rest;
            out.push('\n');
        }
        out
    }
}

/// A link of a line: `[text](target)`.
pub(super) struct Link<'l> {
    start: usize,
    end: usize,
    text: &'l str,
    pub(super) target: &'l str,
    is_image: bool,
}

/// The links of a line, in their order. Brackets within the text are part of it.
pub(super) fn links(line: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(middle) = line[from..].find("](").map(|at| from + at) {
        from = middle + 2;
        let Some(end) = line[from..].find(')').map(|at| from + at + 1) else { break };
        let mut depth = 0;
        let opening = line[..middle].char_indices().rev().find(|(_, character)| {
            match character {
                ']' => depth += 1,
                '[' if depth == 0 => return true,
                '[' => depth -= 1,
                _ => {}
            }
            false
        });
        let Some((start, _)) = opening else { continue };
        let is_image = line[..start].ends_with('!');
        found.push(Link { start, end, text: &line[start + 1..middle], target: &line[from..end - 1], is_image });
        from = end;
    }
    found
}

/// The path of `target`, which is relative to the file at `path`.
fn resolve(path: &str, target: &str) -> String {
    tidy::resolve(Path::new(path).parent().unwrap_or(Path::new("")), target)
}
