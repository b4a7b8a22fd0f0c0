//! Each rule on small trees: what it must report, word for word, and what it must let pass.

use super::tree::Tree;
use super::{RULES, complaints};

/// The complaints of `rule` about a tree of these files.
#[track_caller]
fn check(rule: &str, files: &[(&str, &str)], expected: &[&str]) {
    let rule = RULES.iter().find(|candidate| candidate.name == rule).expect("a rule of this name");
    let found: Vec<String> = complaints(rule, &Tree::of(files)).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

const LIB: &str = "crates/dns/src/lib.rs";

#[test]
fn imports_that_point_down_pass() {
    let files = [
        (LIB, "mod top;\npub mod middle;\npub(crate) mod bottom;\npub use middle::Thing;\n"),
        ("crates/dns/src/top.rs", "use crate::middle::{self, Other as X};\nuse crate::{bottom::a, Thing};\n"),
        ("crates/dns/src/middle.rs", "mod leaf;\nuse super::bottom;\nuse leaf::Leaf;\nfn f() { crate::bottom::b() }\n"),
        ("crates/dns/src/middle/leaf.rs", "use super::super::bottom::a;\nuse super::Thing;\n"),
        ("crates/dns/src/bottom.rs", "use core::fmt; // crate::top\npub(crate) fn a() {}\n"),
    ];
    check("imports", &files, &[]);
}

#[test]
fn an_import_of_a_module_declared_above_is_reported() {
    let files = [
        (LIB, "mod top;\nmod bottom;\n"),
        ("crates/dns/src/top.rs", ""),
        ("crates/dns/src/bottom.rs", "use core::fmt;\nuse crate::top::{A, B};\n"),
    ];
    let expected = "crates/dns/src/bottom.rs:2: error: `bottom` uses `top`, which crates/dns/src/lib.rs declares above it; \
                    move the lines, or the code";
    check("imports", &files, &[expected]);
}

#[test]
fn imports_are_seen_in_every_form() {
    for line in [
        "use super::top::A;",
        "use super::top;",
        "use crate::{other::X, top::{A, B}};",
        "use crate::{\n    other, top\n};",
        "fn f() -> crate::top::A { make() }",
        "use crate::A;",
        "use crate::Renamed;",
        "use self::super::top;",
    ] {
        let files = [
            (LIB, "mod top;\nmod bottom;\nmod other;\npub use top::{A, B as Renamed};\n"),
            ("crates/dns/src/top.rs", ""),
            ("crates/dns/src/bottom.rs", line),
            ("crates/dns/src/other.rs", ""),
        ];
        let rule = RULES.iter().find(|rule| rule.name == "imports").expect("the rule");
        let found = complaints(rule, &Tree::of(&files));
        let is_seen = found.iter().any(|complaint| complaint.text.starts_with("`bottom` uses `top`"));
        assert!(is_seen, "{line}");
    }
}

#[test]
fn submodules_have_an_order_of_their_own() {
    let files = [
        (LIB, "mod middle;\nmod bottom;\n"),
        ("crates/dns/src/middle.rs", "mod a;\nmod b;\n"),
        ("crates/dns/src/middle/a.rs", "use super::b;\nuse crate::bottom;\n"),
        ("crates/dns/src/middle/b/mod.rs", "use super::a;\n"),
        ("crates/dns/src/bottom.rs", "mod deep;\n"),
        ("crates/dns/src/bottom/deep.rs", "fn f() {\n    crate::middle::a::f()\n}\n"),
    ];
    check(
        "imports",
        &files,
        &[
            "crates/dns/src/bottom/deep.rs:2: error: `bottom` uses `middle`, which crates/dns/src/lib.rs declares above it; \
             move the lines, or the code",
            "crates/dns/src/middle/b/mod.rs:1: error: `b` uses `a`, which crates/dns/src/middle.rs declares above it; \
             move the lines, or the code",
        ],
    );
}

#[test]
fn a_glob_of_a_module_above_is_reported() {
    let files = [(LIB, "mod a;\n"), ("crates/dns/src/a.rs", "use super::*;\n")];
    let expected = "crates/dns/src/a.rs:1: error: the glob of a module above hides what is imported; name it";
    check("imports", &files, &[expected]);
}

#[test]
fn tests_may_import_what_they_like() {
    let files = [
        (LIB, "mod top;\nmod bottom;\n#[cfg(test)]\nmod far;\n"),
        ("crates/dns/src/top.rs", ""),
        ("crates/dns/src/bottom.rs", "#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::top;\n}\n"),
        ("crates/dns/src/far.rs", "use crate::top;\n"),
    ];
    check("imports", &files, &[]);
}

const WORKSPACE: &str = "\
[workspace.dependencies]
os = { path = \"crates/os\", package = \"sanderling-os\" }
server = { path = \"crates/server\", package = \"sanderling-server\" }
sanderling_http = { path = \"crates/http\", package = \"sanderling-http\" }
";

#[test]
fn crates_that_point_down_pass() {
    let files = [
        ("Cargo.toml", WORKSPACE),
        ("crates/server/Cargo.toml", "[dependencies]\nos.workspace = true\nsanderling_http.workspace = true\n"),
        ("crates/os/Cargo.toml", "[dependencies]\nlibc = \"0.2\"\n[dev-dependencies]\nserver.workspace = true\n"),
        ("bench/table/Cargo.toml", "[dependencies]\ntable = { path = \"../../crates/table\" }\n"),
    ];
    check("borders", &files, &[]);
}

#[test]
fn a_crate_that_points_up_is_reported() {
    let files = [
        ("Cargo.toml", WORKSPACE),
        ("crates/http/Cargo.toml", "[dependencies]\nos.workspace = true\n"),
        ("crates/os/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nx = { path = \"../server\" }\n"),
        ("crates/server/Cargo.toml", "[dependencies.sanderling]\npath = \"../sanderling\"\n"),
        ("xtask/Cargo.toml", "[dependencies]\nos.workspace = true\n"),
    ];
    check(
        "borders",
        &files,
        &[
            "crates/http/Cargo.toml:2: error: the crate `os` may not be imported here; allowed: none of ours",
            "crates/os/Cargo.toml:2: error: the crate `server` may not be imported here; allowed: none of ours",
            "crates/server/Cargo.toml:1: error: the crate `sanderling` may not be imported here; \
             allowed: os, table, dns, http",
            "xtask/Cargo.toml:2: error: the crate `os` may not be imported here; allowed: none of ours",
        ],
    );
}

#[test]
fn a_crate_without_a_place_is_reported() {
    let expected = "crates/util/Cargo.toml: error: this crate has no place in the order of crates; \
                    give it a line in MAY_IMPORT of xtask";
    check("borders", &[("crates/util/Cargo.toml", "[dependencies]\n")], &[expected]);
}

#[test]
fn the_registry_crate_http_is_reported_under_any_name() {
    let reason = "the package `http` is forbidden: its name is that of our own crate; `sanderling_http` has the words";
    let files = [
        ("Cargo.toml", "[workspace.dependencies]\nhttp = \"1\"\n"),
        ("crates/os/Cargo.toml", "[dependencies]\nwords = { version = \"1\", package = \"http\" }\n"),
    ];
    let expected = [format!("Cargo.toml:2: error: {reason}"), format!("crates/os/Cargo.toml:2: error: {reason}")];
    check("borders", &files, &[&expected[0], &expected[1]]);
}

#[test]
fn protocol_crates_that_reach_for_std_are_reported() {
    check("borders", &[(LIB, "#![no_std]\n#[cfg(test)]\nextern crate std;\n")], &[]);
    let missing = "crates/dns/src/lib.rs: error: `#![no_std]` is missing: it keeps input and output out of here";
    check("borders", &[(LIB, "// #![no_std]\n")], &[missing]);
    let undone = "crates/dns/src/lib.rs:2: error: `extern crate std` undoes `#![no_std]`; only tests may have it";
    check("borders", &[(LIB, "#![no_std]\nextern crate std;\n")], &[undone]);
}

#[test]
fn unsafe_is_reported_outside_of_its_two_crates() {
    let block = "fn f() {\n    unsafe { g() }\n}\n";
    let files = [
        ("crates/os/src/lib.rs", block),
        ("crates/table/src/slot.rs", block),
        ("crates/server/src/worker.rs", block),
        ("crates/http/src/target.rs", "// unsafe\nconst A: &str = \"unsafe\";\n"),
    ];
    let expected = "crates/server/src/worker.rs:2: error: `unsafe` is for the crates os and table; move the call there";
    check("unsafety", &files, &[expected]);
}

#[test]
fn a_root_that_does_not_forbid_unsafe_is_reported() {
    let files = [
        ("crates/server/src/lib.rs", "#![forbid(unsafe_code)]\n"),
        ("crates/os/src/lib.rs", ""),
        ("crates/http/src/lib.rs", "// #![forbid(unsafe_code)]\n"),
    ];
    let expected = "crates/http/src/lib.rs: error: `#![forbid(unsafe_code)]` is missing in the root of the crate";
    check("unsafety", &files, &[expected]);
}

#[test]
fn a_file_without_an_opening_sentence_is_reported() {
    let files = [
        ("a.rs", "//! Turns bytes into a name.\n"),
        ("b.rs", "use core::fmt;\n"),
        ("c.rs", "//! A name\n//! without an end\n//!\n//! More.\n"),
        ("d.rs", "//! Two lines make\n//! one sentence.\n//!\n//! more\n"),
    ];
    check(
        "opening",
        &files,
        &[
            "b.rs:1: error: the file opens without a `//!` sentence; say what it turns into what",
            "c.rs:2: error: the opening `//!` paragraph is no whole sentence: it ends without a full stop",
        ],
    );
}

#[test]
fn long_files_are_reported() {
    let files = [
        ("a.rs", "\n".repeat(600)),
        ("b.rs", "\n".repeat(601)),
        ("c.rs", "\n".repeat(901)),
        ("d.md", "\n".repeat(901)),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    check(
        "length",
        &files,
        &[
            "b.rs: warning: the file has 601 lines; above 600, think of a split",
            "c.rs: error: the file has 901 lines, 900 is the limit; split it",
        ],
    );
}

#[test]
fn long_functions_are_reported_unless_they_test() {
    let function =
        |name: &str, lines: usize| format!("fn {name}<T>(x: [u8; 4]) -> u8 {{{}}}\n", "\n".repeat(lines - 1));
    let source =
        function("short", 70) + "fn declared();\ntype F = fn(u8);\n" + &function("long", 71) + &function("huge", 101);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("cases", 150));
    let files = [("a.rs", source.as_str()), ("b.rs", tests.as_str()), ("x/tests/it.rs", &function("cases", 150))];
    check(
        "length",
        &files,
        &[
            "a.rs:73: warning: the function `long` has 71 lines; above 70, think of a split",
            "a.rs:144: error: the function `huge` has 101 lines, 100 is the limit; split it",
        ],
    );
}

#[test]
fn stray_blanks_are_reported() {
    let files =
        [("a.rs", "fn f() {\n\tg();\n} \n"), ("b.md", "one\r\ntwo\n"), ("demo/demo.zone", "www\tA\t127.0.0.1 \n")];
    check(
        "words",
        &files,
        &[
            "a.rs:2: error: a tab; indent by blanks, and write \\t inside a literal",
            "a.rs:3: error: blanks at the end of the line; take them away",
            "b.md:1: error: blanks at the end of the line; take them away",
        ],
    );
}

#[test]
fn marks_of_unfinished_work_are_reported() {
    let mark = concat!("TO", "DO");
    let line = format!("// {mark}: later\nconst A{mark}: u8 = 0; // mktemp {}\n", "X".repeat(6));
    let expected = format!("a.rs:1: error: `{mark}` marks unfinished work; finish it, or write it down as an issue");
    check("words", &[("a.rs", &line)], &[&expected]);
}

#[test]
fn paths_of_one_machine_are_reported() {
    let path = concat!("/ho", "me/");
    let text = format!("see `{path}me/x`\nor target{path}x, or https://example.org{path}\n");
    let expected = format!("a.md:1: error: `{path}…` is a path of one machine; say it relative to the project");
    check("words", &[("a.md", &text)], &[&expected]);
}

#[test]
fn dead_links_are_reported() {
    let text = "\
[there](docs/a.md#part), [folder](docs/decisions/), [web](https://example.org), [here](#here)
[dead](docs/no.md) and `docs/gone.md` but not `docs/*.md`
```
[in code](docs/no.md)
```
";
    let deep = "[up](../../README.md) [beside](0002.md) [gone](../b.md)\n";
    let files =
        [("README.md", text), ("docs/a.md", ""), ("docs/decisions/0001.md", deep), ("docs/decisions/0002.md", "")];
    check(
        "links",
        &files,
        &[
            "README.md:2: error: `docs/gone.md` does not exist; mend the name, or write the file",
            "README.md:2: error: `docs/no.md` does not exist; mend the name, or write the file",
            "docs/decisions/0001.md:1: error: `docs/b.md` does not exist; mend the name, or write the file",
        ],
    );
}

#[test]
fn dead_papers_in_comments_are_reported() {
    let source = "//! See docs/a.md.\n// Why (docs/b.md): because.\nconst A: &str = \"docs/c.md\";\n";
    let expected = "a.rs:2: error: `docs/b.md` does not exist; mend the name, or write the file";
    check("links", &[("a.rs", source), ("docs/a.md", "")], &[expected]);
}
