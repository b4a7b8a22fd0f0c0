//! The static program, its version and the time of its source.

use std::env;
use std::path::{Path, PathBuf};

use super::{absolute, emptied};
use crate::program::{Log, Program, target_folder};

/// Functions that load modules of the C library at run time, which a static program cannot do
/// (docs/decisions/0070-accounts-and-host-names.md).
const FORBIDDEN: &[&str] = &[
    "getaddrinfo",
    "gethostbyname",
    "getgrgid_r",
    "getgrnam_r",
    "getgrouplist",
    "getpwnam_r",
    "getpwuid_r",
    "initgroups",
];
const STATIC: &str = "-Ctarget-feature=+crt-static";

/// How long the compression of packages may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    /// For packages that are published.
    Best,
    /// For packages that are only tried.
    Fast,
}

#[derive(Debug)]
pub(super) struct Release {
    /// The folder with the source.
    pub(super) sources: PathBuf,
    pub(super) version: String,
    /// As `uname -m` prints it.
    pub(super) architecture: &'static str,
    /// The time of the last commit in seconds, which all files get.
    pub(super) epoch_s: String,
    /// Static, without symbols.
    pub(super) stripped_program: PathBuf,
    pub(super) compression: Compression,
    /// For files that are not packages.
    pub(super) work: PathBuf,
}

impl Release {
    /// Builds the program from `sources`. Paths of this machine do not get into it.
    pub(super) fn build(sources: &Path, target: &Path, epoch_s: &str, log: &mut Log) -> Result<Release, String> {
        let (sources, target) = (absolute(sources)?, absolute(target)?);
        let cargo_home = env::var("CARGO_HOME").or_else(|_| env::var("HOME").map(|home| format!("{home}/.cargo")));
        let cargo_home = cargo_home.map_err(|_| "neither CARGO_HOME nor HOME is set".to_owned())?;
        let triple = triple();
        let remapped = format!(
            "target.{triple}.rustflags=[\"{STATIC}\",\"--remap-path-prefix={}=/sanderling\",\
             \"--remap-path-prefix={cargo_home}=/cargo\"]",
            sources.display()
        );
        let cargo = Program::cargo_in_background()
            .args("build --locked --release --package sanderling --bin sanderling --target")
            .args_of(&[triple.clone(), "--target-dir".to_owned(), target.to_string_lossy().into_owned()])
            .args_of(&["--config".to_owned(), remapped])
            .env(
                "CFLAGS",
                &format!("-ffile-prefix-map={cargo_home}=/cargo -ffile-prefix-map={}=/target", target.display()),
            )
            .current_dir(&sources);
        cargo.run(log).into_result()?;
        let program = target.join(triple).join("release/sanderling");
        Release::of((&sources, &program), (epoch_s, Compression::Best), &target.join("work"), log)
    }

    /// Links the program of the tests again, statically. Few of its crates are built: those that have other features in
    /// tests.
    pub(super) fn of_tests(log: &mut Log) -> Result<Release, String> {
        let target = target_folder();
        let work = target.join("package/ci");
        let cargo = Program::cargo_in_background()
            .args("rustc --quiet --locked --package sanderling --bin sanderling --target-dir")
            .args_of(&[work.to_string_lossy().into_owned(), "--".to_owned(), STATIC.to_owned()])
            .env("CARGO_BUILD_BUILD_DIR", &target.to_string_lossy());
        cargo.run(log).into_result()?;
        Release::of(
            (&absolute(Path::new("."))?, &work.join("debug/sanderling")),
            (&source_epoch_s()?, Compression::Fast),
            &work.join("work"),
            log,
        )
    }

    fn of(
        (sources, program): (&Path, &Path),
        (epoch_s, compression): (&str, Compression),
        work: &Path,
        log: &mut Log,
    ) -> Result<Release, String> {
        let work = absolute(work)?;
        emptied(&work)?;
        check_static(program)?;
        let stripped_program = work.join("sanderling");
        let paths = [program, &stripped_program].map(|path| path.to_string_lossy().into_owned());
        Program::new("objcopy").args("--strip-all").args_of(&paths).run(log).into_result()?;
        Ok(Release {
            sources: sources.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture: env::consts::ARCH,
            epoch_s: epoch_s.to_owned(),
            stripped_program,
            compression,
            work,
        })
    }

    /// The level of xz.
    pub(super) fn compression_level(&self) -> u32 {
        match self.compression {
            Compression::Best => 9,
            Compression::Fast => 1,
        }
    }

    /// The name and version for files: `sanderling-1.2.3-x86_64`.
    pub(super) fn full_name(&self) -> String {
        format!("sanderling-{}-{}", self.version, self.architecture)
    }
}

/// The time of the last commit in seconds, or `SOURCE_DATE_EPOCH`
/// (<https://reproducible-builds.org/specs/source-date-epoch/>).
pub(super) fn source_epoch_s() -> Result<String, String> {
    let of_commit = || Program::new("git").args("log -1 --format=%ct").output().map(|text| text.trim().to_owned());
    let epoch_s = env::var("SOURCE_DATE_EPOCH").ok().or_else(of_commit);
    epoch_s.ok_or_else(|| "outside a Git repository set SOURCE_DATE_EPOCH to the time of the release".to_owned())
}

/// The target that the program is built for.
pub(super) fn triple() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

/// Copies the files of the last commit into `folder`.
///
/// # Errors
/// There are other changes, which the copy would lack.
pub(super) fn copy_sources(folder: &Path, log: &mut Log) -> Result<(), String> {
    let changes = Program::new("git").args("status --porcelain").output().ok_or("git status fails")?;
    if !changes.is_empty() {
        return Err(format!("two builds of the last commit are compared, so commit these changes first:\n{changes}"));
    }
    emptied(folder)?;
    let script = format!("git archive HEAD | tar -x -C '{}'", folder.display());
    Program::new("sh").args("-c").args_of(&[script]).run(log).into_result()
}

fn check_static(program: &Path) -> Result<(), String> {
    let path = program.to_string_lossy().into_owned();
    let needed = Program::new("objdump").args("--private-headers").args_of(std::slice::from_ref(&path)).output();
    let needed = needed.ok_or_else(|| format!("objdump cannot read {path}"))?;
    if let Some(library) = needed.lines().find(|line| line.trim_start().starts_with("NEEDED")) {
        return Err(format!("{path} is not static: {}", library.trim()));
    }
    let symbols = Program::new("nm").args("--defined-only").args_of(std::slice::from_ref(&path)).output();
    let symbols = symbols.ok_or_else(|| format!("nm cannot read {path}"))?;
    let is_there = |name: &&&str| symbols.lines().any(|line| line.ends_with(&format!(" {name}")));
    match FORBIDDEN.iter().find(is_there) {
        Some(name) => Err(format!("{path} contains {name}, which loads modules of the C library at run time")),
        None => Ok(()),
    }
}
