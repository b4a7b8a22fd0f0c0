//! Crates depend on each other in one direction only, and the protocol crates on no operating system.

use super::complaint::Complaint;
use super::manifest::{self, Dependency, WORKSPACE};
use super::source::{Source, line_of};
use super::tree::Tree;

/// Which of our crates each one may be built from, by folder.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("crates/sanderling", &["probe", "supervisor", "server-process", "ipc", "config", "os"]),
    ("crates/probe", &["config", "ipc", "os", "table", "dns", "http"]),
    ("crates/server-process", &["server", "listeners", "ipc", "config", "os", "dns", "http"]),
    // It reads nothing from the network: it may depend on no protocol crate.
    ("crates/supervisor", &["listeners", "ipc", "config", "os"]),
    ("crates/listeners", &["config", "os"]),
    ("crates/ipc", &["config", "os"]),
    ("crates/config", &["os"]),
    ("crates/testkit", &[]),
    ("crates/server", &["os", "table", "dns", "http"]),
    ("crates/http", &[]),
    ("crates/dns", &[]),
    ("crates/table", &[]),
    ("crates/os", &[]),
    ("xtask", &[]),
    ("bench/loadgen", &[]),
    ("bench/soak", &["loadgen"]),
];

/// Packages of the registry that nobody may use, and why.
const FORBIDDEN_PACKAGES: &[(&str, &str)] =
    &[("http", "its name is that of our own crate; `sanderling_http` has the words")];

/// Crates that must build without `std`.
const NO_STD_ROOTS: &[&str] = &["crates/dns/src/lib.rs", "crates/http/src/lib.rs"];

pub(super) fn look(tree: &Tree, found: &mut Vec<Complaint>) {
    let workspace = tree.file(WORKSPACE).map_or("", |file| &file.text);
    let given = manifest::given_by_workspace(workspace);
    complain_of_forbidden(WORKSPACE, &given, found);
    for file in tree.ending("/Cargo.toml") {
        let folder = file.path.strip_suffix("/Cargo.toml").expect("it ends so");
        let dependencies = manifest::built_from(&file.text);
        complain_of_forbidden(&file.path, &dependencies, found);
        let allowed = MAY_IMPORT.iter().find(|(importer, _)| *importer == folder).map(|(_, allowed)| *allowed);
        match allowed {
            Some(allowed) => complain_of_direction(&file.path, &dependencies, &given, allowed, found),
            None if folder.starts_with("crates/") => found.push(Complaint::error(
                &file.path,
                0,
                "this crate has no place in the order of crates; give it a line in MAY_IMPORT of xtask".into(),
            )),
            // The other benchmarks and the fuzz targets stand outside of the workspace and may use everything.
            None => {}
        }
    }
    for root in NO_STD_ROOTS {
        if let Some(file) = tree.file(root) {
            complain_of_std(root, &file.text, found);
        }
    }
}

fn complain_of_forbidden(path: &str, dependencies: &[Dependency<'_>], found: &mut Vec<Complaint>) {
    for dependency in dependencies {
        if let Some((name, reason)) = FORBIDDEN_PACKAGES.iter().find(|(name, _)| *name == dependency.package())
            && dependency.path.is_none()
        {
            found.push(Complaint::error(path, dependency.line, format!("the package `{name}` is forbidden: {reason}")));
        }
    }
}

fn complain_of_direction(
    path: &str,
    dependencies: &[Dependency<'_>],
    given: &[Dependency<'_>],
    allowed: &[&str],
    found: &mut Vec<Complaint>,
) {
    for dependency in dependencies {
        let source = match dependency.path {
            Some(_) => Some(dependency),
            None => given.iter().find(|candidate| candidate.key == dependency.key),
        };
        let Some(folder) = source.and_then(Dependency::folder) else { continue };
        if !allowed.contains(&folder) {
            let allowed = if allowed.is_empty() { "none of ours".to_owned() } else { allowed.join(", ") };
            let text = format!("the crate `{folder}` may not be imported here; allowed: {allowed}");
            found.push(Complaint::error(path, dependency.line, text));
        }
    }
}

fn complain_of_std(path: &str, text: &str, found: &mut Vec<Complaint>) {
    let code = Source::of(text).without_tests();
    if !code.contains("#![no_std]") {
        found.push(Complaint::error(path, 0, "`#![no_std]` is missing: it keeps input and output out of here".into()));
    }
    for (at, _) in code.match_indices("extern crate std") {
        if !code[..at].trim_end().ends_with("#[cfg(test)]") {
            let text = "`extern crate std` undoes `#![no_std]`; only tests may have it".into();
            found.push(Complaint::error(path, line_of(&code, at), text));
        }
    }
}
