//! The server and the load, built or given, and the folder in which a run may write.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{Outcome, Program};

/// Where a run finds what it starts.
pub(super) struct Programs {
    pub(super) sanderling: PathBuf,
    pub(super) losscount: PathBuf,
    /// Where cargo puts what it builds.
    pub(super) target: PathBuf,
    folder: PathBuf,
}

impl Programs {
    /// Builds them in the project in `root`, the current folder; the server only when none is given.
    pub(super) fn build(root: &Path, sanderling: Option<&Path>) -> Result<Programs, String> {
        let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
        cargo("--package losscount", &target)?;
        let sanderling = match sanderling {
            Some(given) => root.join(given),
            None => {
                cargo("--package sanderling", &target)?;
                target.join("release/sanderling")
            }
        };
        let losscount = target.join("release/losscount");
        let folder = target.join(format!("endure-{}", std::process::id()));
        Ok(Programs { sanderling, losscount, target, folder })
    }

    /// A new folder for a scenario.
    pub(super) fn new_folder(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // What cannot be removed lies in cargo's folder, where `cargo clean` finds it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn cargo(what: &str, target: &Path) -> Result<(), String> {
    let target = format!("--target-dir={}", target.display());
    match Program::cargo().args("build --quiet --release").args(what).args_of(&[target]).run() {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(reason) | Outcome::Failed(reason) => Err(reason),
    }
}
