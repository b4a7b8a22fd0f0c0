//! The packages of the crates at a registry, from which `cargo install` builds the program.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{absolute, checksums, emptied, file_name, put};
use crate::program::{Log, Program, target_folder};

/// Writes the packages of all crates that are published; their dependencies are looked for among them.
///
/// # Errors
/// The manifest of a crate lacks something, such as the version of a dependency.
pub(super) fn pack(version: &str, log: &mut Log) -> Result<Vec<PathBuf>, String> {
    let metadata = Program::cargo().args("metadata --locked --offline --no-deps --format-version 1").output();
    let metadata: Value = serde_json::from_str(&metadata.ok_or("cargo metadata fails")?)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    // `publish = false` is an empty list of registries.
    let is_published = |package: &&Value| package["publish"].as_array().is_none_or(|registries| !registries.is_empty());
    let packages = metadata["packages"].as_array().into_iter().flatten().filter(is_published);
    let names: Vec<&str> = packages.filter_map(|package| package["name"].as_str()).collect();
    let target = target_folder().join("package/crates");
    let cargo = Program::cargo_in_background()
        .args("package --quiet --locked --offline --no-verify --allow-dirty --target-dir")
        .args_of(&[target.to_string_lossy().into_owned()])
        .args_of(&names.iter().map(|name| format!("--package={name}")).collect::<Vec<_>>());
    cargo.run(log).into_result()?;
    Ok(names.iter().map(|name| target.join(format!("package/{name}-{version}.crate"))).collect())
}

/// Installs the program from the packages, with all outside crates in a directory that takes the place of the registry.
pub(super) fn install(version: &str, log: &mut Log) -> Result<(), String> {
    let crates = pack(version, log)?;
    let work = absolute(&target_folder().join("package/crates"))?;
    let (registry, root) = (work.join("registry"), work.join("root"));
    emptied(&registry)?;
    emptied(&root)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let vendor = Program::cargo().args("vendor --quiet --locked --versioned-dirs").args_of(&[text(&registry)]);
    vendor.run_silently(log)?;
    for package in &crates {
        let unpack = Program::new("tar").args("--extract --gzip --file").args_of(&[text(package)]);
        unpack.args("--directory").args_of(&[text(&registry)]).run_silently(log)?;
        let sum = checksums(std::slice::from_ref(package))?;
        let sum = sum.split_whitespace().next().unwrap_or_default();
        let folder = registry.join(file_name(package).trim_end_matches(".crate"));
        put(&folder.join(".cargo-checksum.json"), &json!({ "files": {}, "package": sum }).to_string())?;
    }
    let cargo = Program::cargo_in_background()
        .args("install sanderling --locked --offline --debug --config source.crates-io.replace-with=\"packed\"")
        .args_of(&["--config".to_owned(), format!("source.packed.directory=\"{}\"", registry.display())])
        .args_of(&["--version".to_owned(), version.to_owned(), "--root".to_owned(), text(&root)])
        .args_of(&["--target-dir".to_owned(), text(&work.join("build"))]);
    // Outside the workspace, which would be found otherwise.
    cargo.current_dir(Path::new("/")).run(log).into_result()?;
    Program::new(&text(&root.join("bin/sanderling"))).args("--version").run(log).into_result()
}
