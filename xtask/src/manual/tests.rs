//! Pages with links, and the pages of the book that they become.

use super::pages::{Pages, book_path, links};
use std::collections::BTreeMap;

fn pages() -> Pages {
    let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    Pages::new(BTreeMap::from([
        page(
            "docs/README.md",
            "# Manual\n\n## The site\n\n| serve | [Sites](sites.md#hosts) |\n[code](../crates/a.rs)\n",
        ),
        page(
            "docs/sites.md",
            "# Sites\nsee [the `[http]` key](README.md), [x](https://a.test/), [g](../GLOSSARY.md#a)\n",
        ),
        page("docs/decisions/0001-a.md", "# 0001: a\n[up](../sites.md) ![p](p.svg)\n```\n[no](sites.md)\n```\n"),
        page("GLOSSARY.md", "# Glossary\n[d](docs/decisions/0001-a.md) ![p](docs/p.svg)\n"),
    ]))
}

#[test]
fn readme_is_the_page_of_its_folder() {
    for (path, expected) in [
        ("docs/README.md", "index.md"),
        ("docs/decisions/README.md", "decisions/index.md"),
        ("README.md", "project/index.md"),
        ("GLOSSARY.md", "project/GLOSSARY.md"),
        ("packaging/README.md", "packaging/index.md"),
    ] {
        assert_eq!(book_path(path), expected);
    }
}

#[test]
fn links_lead_to_pages_of_the_book_and_others_become_text() {
    let pages: BTreeMap<String, String> = pages().in_book().collect();
    assert!(pages["index.md"].contains("[Sites](sites.md#hosts) |\ncode\n"), "{}", pages["index.md"]);
    let expected = "see [the `[http]` key](index.md), [x](https://a.test/), [g](project/GLOSSARY.md#a)\n";
    assert!(pages["sites.md"].ends_with(expected), "{}", pages["sites.md"]);
    let expected = "[up](../sites.md) ![p](../decisions/p.svg)\n```\n[no](sites.md)\n```\n";
    assert!(pages["decisions/0001-a.md"].ends_with(expected), "{}", pages["decisions/0001-a.md"]);
    assert!(pages["project/GLOSSARY.md"].ends_with("[d](../decisions/0001-a.md) ![p](../p.svg)\n"));
}

#[test]
fn every_page_is_in_the_summary_once() {
    let summary = pages().summary();
    let targets: Vec<&str> = summary.lines().flat_map(|line| links(line).into_iter().map(|link| link.target)).collect();
    assert_eq!(targets, ["index.md", "sites.md", "project/GLOSSARY.md", "decisions/0001-a.md"]);
    assert!(summary.contains("\n# The site\n\n- [Sites](sites.md)\n"), "{summary}");
}

#[test]
fn broken_links_of_a_site_are_found() {
    let folder = std::env::temp_dir().join(format!("xtask-manual-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("a")).expect("created");
    let write = |path: &str, text: &str| std::fs::write(folder.join(path), text).expect("written");
    write(
        "index.html",
        r#"<a href="a/b.html#there"><a href="a/b.html#gone"><img src="none.svg"><a href="https://x/">"#,
    );
    write("a/b.html", r##"<h1 id="there"><a href="../index.html"><a href="#there"><a href="c.html">"##);
    let broken = super::site_links::broken(&folder).expect("read");
    std::fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(broken, ["a/b.html: c.html", "index.html: a/b.html#gone", "index.html: none.svg"]);
}
