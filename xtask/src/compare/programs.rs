//! Our own programs, built: the server, the floor and the load for DNS.

use std::env;
use std::path::{Path, PathBuf};

use crate::program::{Outcome, Program};

/// Where a run finds the programs that are ours, and where it may write.
pub(super) struct Programs {
    pub(super) sanderling: PathBuf,
    pub(super) floor: PathBuf,
    pub(super) load: PathBuf,
    /// The folder of the run, which is removed at its end.
    pub(super) folder: PathBuf,
}

impl Programs {
    /// Builds them in the project in `root`, the current folder.
    pub(super) fn build(root: &Path) -> Result<Programs, String> {
        let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
        cargo("--package sanderling", &target)?;
        cargo("--manifest-path bench/floor/Cargo.toml", &target)?;
        cargo("--manifest-path bench/load/Cargo.toml", &target)?;
        let release = target.join("release");
        Ok(Programs {
            sanderling: release.join("sanderling"),
            floor: release.join("floor"),
            load: release.join("load"),
            folder: target.join(format!("compare-{}", std::process::id())),
        })
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // What cannot be removed lies below `target`, where `cargo clean` finds it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn cargo(what: &str, target: &Path) -> Result<(), String> {
    let target = format!("--target-dir={}", target.display());
    match Program::cargo().args("build --quiet --release").args(what).args_of(&[target]).run() {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(reason) | Outcome::Failed(reason) => Err(reason),
    }
}
