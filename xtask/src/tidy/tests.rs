//! Each rule on small trees, with accepted and reported text.

use super::{RULES, Tree};

/// The findings of a rule, as `PATH:LINE: TEXT`.
#[track_caller]
fn check(rule: &str, files: &[(&str, &str)], expected: &[&str]) {
    let (_, rule) = RULES.iter().find(|(name, _)| *name == rule).expect("the rule exists");
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let mut findings = rule(&Tree { files, others: Vec::new() });
    findings.sort();
    findings.dedup();
    let found: Vec<String> = findings.into_iter().map(|it| format!("{}:{}: {}", it.path, it.line, it.text)).collect();
    assert_eq!(found, expected);
}

const LIB: &str = "crates/dns/src/lib.rs";

#[test]
fn imports_from_below_and_in_tests_are_accepted() {
    let files = [
        (LIB, "mod top;\npub mod middle;\npub(crate) mod bottom;\n#[cfg(test)]\nmod far;\n"),
        ("crates/dns/src/top.rs", "use crate::middle::{self, Other as X};\nuse crate::{bottom::a, Thing};\n"),
        ("crates/dns/src/middle.rs", "mod leaf;\nuse super::bottom;\nfn f() { crate::bottom::b() }\n"),
        ("crates/dns/src/middle/leaf.rs", "use super::super::bottom::a;\nuse super::Thing;\n"),
        ("crates/dns/src/bottom.rs", "// crate::top\n#[cfg(test)]\nmod tests {\n    use crate::top;\n}\n"),
        ("crates/dns/src/far.rs", "use crate::top;\n"),
    ];
    check("imports", &files, &[]);
}

#[test]
fn import_from_above_is_reported() {
    for line in [
        "use super::top::A;",
        "use crate::{other::X, top::{A, B}};",
        "use crate::{\n    other, top\n};",
        "fn f() -> crate::top::A { make() }",
    ] {
        let files = [
            (LIB, "mod top;\nmod bottom;\nmod other;\n"),
            ("crates/dns/src/top.rs", ""),
            ("crates/dns/src/bottom.rs", line),
            ("crates/dns/src/other.rs", ""),
        ];
        let text = "uses `top`, which crates/dns/src/lib.rs declares above it; move the line, or the code";
        check("imports", &files, &[&format!("crates/dns/src/bottom.rs:1: `bottom` {text}")]);
    }
}

#[test]
fn submodules_have_an_order_of_their_own() {
    let files = [
        (LIB, "mod middle;\n"),
        ("crates/dns/src/middle.rs", "mod a;\nmod b;\n"),
        ("crates/dns/src/middle/a.rs", "use super::b;\n"),
        ("crates/dns/src/middle/b/mod.rs", "\nuse super::a;\n"),
    ];
    let text = "`b` uses `a`, which crates/dns/src/middle.rs declares above it; move the line, or the code";
    check("imports", &files, &[&format!("crates/dns/src/middle/b/mod.rs:2: {text}")]);
}

#[test]
fn dependency_on_a_crate_above_is_reported() {
    let files = [
        ("crates/supervisor/Cargo.toml", "[dependencies]\nsanderling-http.workspace = true\nlibc = \"0.2\"\n"),
        ("crates/os/Cargo.toml", "[dependencies]\n[dev-dependencies]\nsanderling-server.workspace = true\n"),
        ("crates/util/Cargo.toml", ""),
    ];
    let expected = [
        "crates/supervisor/Cargo.toml:2: `http` must not be a dependency; allowed: listeners, ipc, config, os, state",
        "crates/util/Cargo.toml:0: the crate has no line in MAY_IMPORT of xtask; add one",
    ];
    check("crates", &files, &expected);
}

#[test]
fn root_without_its_attributes_is_reported() {
    check("roots", &[(LIB, "#![no_std]\n#![forbid(unsafe_code)]\n#[cfg(test)]\nextern crate std;\n")], &[]);
    check("roots", &[("crates/os/src/lib.rs", "")], &[]);
    let no_std = "`#![no_std]` is missing, or undone by `extern crate std` outside tests";
    let expected = [
        "crates/dns/src/lib.rs:0: `#![forbid(unsafe_code)]` is missing",
        &format!("crates/dns/src/lib.rs:0: {no_std}"),
    ];
    check("roots", &[(LIB, "// #![no_std]\n")], &expected);
}

#[test]
fn file_without_opening_or_with_too_many_lines_is_reported() {
    let long = format!("//! A.\n{}", "\n".repeat(900));
    let files = [("a.rs", "//! A name\n//! in two lines.\n"), ("b.rs", "use core::fmt;\n"), ("c.rs", &long)];
    let opening = "the file does not begin with a `//!` sentence; say what it is for";
    check("files", &files, &[&format!("b.rs:1: {opening}"), "c.rs:0: 901 lines; split the file"]);
}

#[test]
fn stray_blanks_marks_and_private_paths_are_reported() {
    let mark = concat!("TO", "DO");
    let path = concat!("/ho", "me/");
    let text = format!("a\tb\nc \n{mark}: d\n`{path}x`\nhttps://example.org{path}\nA{mark}\n");
    let expected = [
        "a.md:1: a tab; indent by spaces, or write \\t in a literal".to_owned(),
        "a.md:2: spaces at the end of the line; remove them".to_owned(),
        format!("a.md:3: `{mark}`; finish the work, or write an issue"),
        format!("a.md:4: `{path}…` is a path of one machine; make it relative to the project"),
    ];
    check("lines", &[("a.md", &text)], &expected.each_ref().map(String::as_str));
}

#[test]
fn long_line_of_prose_is_reported() {
    let long = "x".repeat(120);
    let code = format!("let a = \"{long}\";\n    // {long}\n/// ```text\n/// {long}\n/// ```\n/// {long}\n");
    let page = format!("{long}x\n| {long} |\n```\n{long}x\n```\n- {long}\n{long}\n");
    let expected = ["a.rs:2", "a.rs:6", "b.md:1", "b.md:6"];
    let expected = expected.map(|place| format!("{place}: the text has more than 120 columns; wrap it"));
    check("lines", &[("a.rs", &code), ("b.md", &page)], &expected.each_ref().map(String::as_str));
}

#[test]
fn words_with_a_standard_term_are_reported() {
    let text = concat!("Oct", "ets of oct", "et-stream\nip.oct", "ets()\nfour oct", "ets\n", "W", "ho knows\n");
    let expected = [concat!("a.md:3: `oct", "ets`; write bytes"), concat!("a.md:4: `w", "ho`; write a named subject")];
    check("words", &[("a.md", text)], &expected);
}

#[test]
fn programs_of_root_that_follow_links_in_the_state_folder_are_reported() {
    let line = "let chain = fs::read(path)?;\n";
    let files = [
        ("crates/supervisor/src/supervisor/secrets.rs", "let key = File::open(\"/dev/urandom\")?;\n"),
        ("crates/sanderling/src/state_files.rs", line),
        ("crates/sanderling/src/publication.rs", line),
        ("crates/sanderling/src/cli.rs", "#[cfg(test)]\nmod tests {\n    let text = fs::read(path);\n}\n"),
        ("crates/agent/src/json_files.rs", line),
    ];
    let expected = "crates/sanderling/src/state_files.rs:1: `fs::read(` follows links; the agent can put links into the state folder: \
                    use `read_beneath`, or `open_without_links`";
    check("state", &files, &[expected]);
}

#[test]
fn processes_that_outlive_a_panic_of_a_thread_are_reported() {
    let call = "    panics::end_process(panics::Scope::Process);\n";
    let [agent, keeper] = ["crates/agent/src/startup.rs", "crates/keeper/src/startup.rs"];
    check("panics", &[(agent, call), (keeper, call)], &[]);
    let missing =
        |path: &str| format!("{path}:0: `{}` is missing: a panic of any thread must end the process", call.trim());
    check(
        "panics",
        &[(agent, "    // panics::end_process(panics::Scope::Process);\n"), (keeper, call)],
        &[&missing(agent)],
    );
    check("panics", &[(agent, call), ("crates/keeper/src/start.rs", call)], &[&missing(keeper)]);
}

#[test]
fn dead_links_are_reported() {
    let text = "[a](docs/a.md#part) [web](https://example.org) [here](#here)\n[dead](docs/no.md) `docs/gone.md` `docs/*`\n\
                ```\n[code](docs/no.md)\n```\n";
    let files = [
        ("README.md", text),
        ("docs/a.md", "[up](../README.md) [gone](x/../b.md)\n"),
        ("a.rs", "//! See docs/a.md.\n// The reason why (docs/b.md).\nconst A: &str = \"docs/c.md\";\n"),
    ];
    let expected = [
        "README.md:2: `docs/gone.md` does not exist",
        "README.md:2: `docs/no.md` does not exist",
        "a.rs:2: `docs/b.md` does not exist",
        "docs/a.md:1: `docs/b.md` does not exist",
    ];
    check("links", &files, &expected);
}

#[test]
fn phrase_with_a_plain_form_is_reported() {
    let page = ("docs/a.md", "It waits for\never.\n```\nfor ever\n```\nA folder of its own.\n");
    let code = concat!(
        "//! It is there.\n\n/// What is read.\nfn f() {\n    // Somebody waits: \"x\"\n",
        "    g(\"the version \\\n        before\", anew, '\"', \"[a] on a line of its own\");\n}\n",
        "#[cfg(test)]\nmod tests {\n    // anew\n}\n",
    );
    let expected = [
        "crates/a/src/b.rs:3: the comment begins with a clause; begin with a noun",
        "crates/a/src/b.rs:5: `somebody`; write someone, or the process or client",
        "crates/a/src/b.rs:6: `the version before`; write the previous version",
        "docs/a.md:1: `for ever`; write forever, or always",
        "docs/a.md:6: `of its own`; write its own, or separate",
    ];
    check("phrases", &[page, ("crates/a/src/b.rs", code)], &expected);
    check("phrases", &[("crates/a/tests/b.rs", "// anew\n")], &[]);
}

#[test]
fn included_file_outside_the_crate_is_reported() {
    let file = |line: &'static str| ("crates/a/src/b/c.rs", line);
    let text = "but it is not in the package of crates/a; move it there";
    check("included", &[file("const A: &str = include_str!(\"../../data/a.txt\");")], &[]);
    check("included", &[("crates/a/tests/b.rs", "include_str!(\"../../../docs/a.md\")")], &[]);
    let expected = format!("crates/a/src/b/c.rs:2: includes `demo/a.zone`, {text}");
    check("included", &[file("\nf(include_bytes!(\"../../../../demo/a.zone\"));")], &[&expected]);
    let expected = format!("crates/a/src/b/c.rs:1: includes `crates/ab/d.txt`, {text}");
    check("included", &[file("include_str!(\"../../../ab/d.txt\")")], &[&expected]);
}
