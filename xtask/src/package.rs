//! Makes the packages of a release: a tarball, packages of Debian and RPM, a container image, the list of components,
//! and checksums. Programs of the distributions write the archives (docs/decisions/0071-packages.md).

mod crates;
mod trials;
mod memory;
mod image;
mod archives;
mod installed;
mod components;
mod release;

use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{Log, Outcome, Program, target_folder};
use crate::setup;
use components::Components;
use release::Release;

/// An image is unpacked on each machine that runs it.
const IMAGE_BYTES_MAX: u64 = 25 * 1024 * 1024;
const CHECKSUMS: &str = "SHA256SUMS";

/// Writes the packages into `out`, and tries them.
pub(crate) fn run(out: &str, log: &mut Log) -> Outcome {
    let release = |log: &mut Log| {
        setup::run(log).into_result()?;
        let release =
            Release::build(Path::new("."), &target_folder().join("package"), &release::source_epoch_s()?, log)?;
        let packages = write(&release, Path::new(out), log)?;
        report(&release, &packages, log)?;
        memory::measure(&release.stripped_program, log)?;
        if setup::is_root() { trials::run(&release, &packages, log).map(|()| Outcome::Passed) } else { Ok(not_tried()) }
    };
    release(log).unwrap_or_else(Outcome::Failed)
}

/// Builds the packages of the last commit twice, from copies in two folders, and compares them.
pub(crate) fn verify(log: &mut Log) -> Outcome {
    let work = target_folder().join("package");
    // The second one begins without anything that is built.
    let builds = [(work.join("first"), work.clone()), (work.join("second-copy"), work.join("second-copy/target"))];
    let compare = |log: &mut Log| {
        setup::install(setup::PACKAGERS, log).into_result()?;
        // Now, since commits may follow while the programs are built.
        let (epoch_s, mut lists) = (release::source_epoch_s()?, Vec::new());
        builds.iter().try_for_each(|(sources, _)| release::copy_sources(sources, log))?;
        for (sources, target) in builds {
            let release = Release::build(&sources, &target, &epoch_s, log)?;
            let out = sources.join("packages");
            let packages = write(&release, &out, log)?;
            report(&release, &packages, log)?;
            lists.push(read(&out.join(CHECKSUMS))?);
        }
        differences(&lists[0], &lists[1])
    };
    Outcome::of(compare(log))
}

/// Installs the program by `cargo install` from the packages of its crates.
pub(crate) fn install_crates(log: &mut Log) -> Outcome {
    Outcome::of(crates::install(env!("CARGO_PKG_VERSION"), log))
}

/// Makes the packages of the program that the tests have built, and tries each of them.
pub(crate) fn check(log: &mut Log) -> Outcome {
    if !setup::is_root() {
        return not_tried();
    }
    let out = target_folder().join("package/ci/packages");
    Outcome::of(Release::of_tests(log).and_then(|release| {
        crates::pack(&release.version, log)?;
        let packages = write(&release, &out, log)?;
        report(&release, &packages, log)?;
        trials::run(&release, &packages, log)
    }))
}

fn not_tried() -> Outcome {
    Outcome::Skipped("only root can try the packages, since they create an account".to_owned())
}

/// The packages of a release.
struct Packages {
    tarball: PathBuf,
    debian: PathBuf,
    rpm: PathBuf,
    image: PathBuf,
    components: Components,
    /// In the order in which they were written.
    all: Vec<PathBuf>,
}

fn write(release: &Release, out: &Path, log: &mut Log) -> Result<Packages, String> {
    emptied(out)?;
    let components = Components::of_program(release)?;
    let components_file = out.join(format!("{}.cdx.json", release.full_name()));
    put(&components_file, &components.cyclone_dx(release)?)?;
    let tarball = archives::tarball(release, &components, out, log)?;
    let debian = archives::debian(release, &components, &release.version, out, log)?;
    let rpm = archives::rpm(release, &components, &release.version, out, log)?;
    let image = image::write(release, &components, out, log)?;
    let all = vec![tarball.clone(), debian.clone(), rpm.clone(), image.clone(), components_file];
    put(&out.join(CHECKSUMS), &checksums(&all)?)?;
    Ok(Packages { tarball, debian, rpm, image, components, all })
}

/// The sizes.
fn report(release: &Release, packages: &Packages, log: &mut Log) -> Result<(), String> {
    log.line(&format!("{:<44} {:>10} B", "the program", size(&release.stripped_program)?));
    for package in &packages.all {
        log.line(&format!("{:<44} {:>10} B", file_name(package), size(package)?));
    }
    match size(&packages.image)? {
        bytes if bytes > IMAGE_BYTES_MAX => Err(format!("the image has {bytes} B, more than {IMAGE_BYTES_MAX} B")),
        _ => Ok(()),
    }
}

/// As `sha256sum --check` reads them.
fn checksums(files: &[PathBuf]) -> Result<String, String> {
    let mut text = String::new();
    for file in files {
        text += &format!("{}  {}\n", sha256(file)?, file_name(file));
    }
    Ok(text)
}

fn sha256(file: &Path) -> Result<String, String> {
    let printed = Program::new("sha256sum").args_of(&[file.to_string_lossy().into_owned()]).output();
    let sum = printed.as_deref().and_then(|line| line.split_once(' ')).map(|(sum, _)| sum.to_owned());
    sum.ok_or_else(|| format!("sha256sum cannot read {}", file.display()))
}

fn differences(first: &str, second: &str) -> Result<(), String> {
    let differs = |line: &&str| !second.lines().any(|other| other == *line);
    let names: Vec<&str> =
        first.lines().filter(differs).filter_map(|line| line.split_once("  ")).map(|(_, name)| name).collect();
    if names.is_empty() { Ok(()) } else { Err(format!("two builds of the same source differ: {}", names.join(", "))) }
}

fn size(file: &Path) -> Result<u64, String> {
    fs::metadata(file).map(|metadata| metadata.len()).map_err(|error| format!("{}: {error}", file.display()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn put(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Makes `folder` an empty one.
fn emptied(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// The path from the root of the file system: tools run in other folders.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_differ_are_named() {
        let first = "aa  a.deb\nbb  b.rpm\ncc  c.tar\n";
        assert_eq!(differences(first, first), Ok(()));
        let error = differences(first, "aa  a.deb\nb0  b.rpm\n").expect_err("two differ");
        assert_eq!(error, "two builds of the same source differ: b.rpm, c.tar");
    }
}
