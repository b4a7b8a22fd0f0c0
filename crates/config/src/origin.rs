//! Where a configuration comes from, so that a reload can ask the same place again.

use super::file;
use super::flags::Flags;
use super::settings::Config;
use crate::diagnostic::Diagnostic;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "SANDERLING_CONFIG";
/// Where a configuration file is looked for, in this order.
const USUAL_FILES: [&str; 2] = ["sanderling.toml", "/etc/sanderling/sanderling.toml"];

/// What the operator chose to run by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A configuration file.
    File(PathBuf),
    /// Arguments alone.
    Flags(Flags),
}

impl Origin {
    /// Reads and checks the whole configuration; nothing is kept from an earlier time.
    ///
    /// # Errors
    ///
    /// Every fault of it, in the order of the file.
    pub fn load(&self) -> Result<Config, Vec<Diagnostic>> {
        self.parse(&self.read()?)
    }

    /// The text of the file; nothing for arguments, which say it all themselves.
    ///
    /// # Errors
    ///
    /// Why it can't be read.
    pub fn read(&self) -> Result<Vec<u8>, Vec<Diagnostic>> {
        match self {
            Origin::File(path) => file::read(path),
            Origin::Flags(_) => Ok(Vec::new()),
        }
    }

    /// Checks `text`, which was read from here.
    ///
    /// # Errors
    ///
    /// Every fault of it, in the order of the file.
    pub fn parse(&self, text: &[u8]) -> Result<Config, Vec<Diagnostic>> {
        match self {
            Origin::File(path) => file::parse(path, text),
            Origin::Flags(flags) => Config::from_flags(flags),
        }
    }

    /// The arguments of `serve` by which another process of this program runs by the same.
    pub fn to_arguments(&self) -> Vec<OsString> {
        match self {
            Origin::File(path) => vec!["--config".into(), path.into()],
            Origin::Flags(flags) => flags.to_arguments(),
        }
    }
}

/// Where to look for a configuration file that no argument names.
#[derive(Clone, Debug)]
pub struct SearchPlaces {
    named: Option<PathBuf>,
    usual: Vec<PathBuf>,
}

impl SearchPlaces {
    /// The places of this process: its environment and its working folder.
    pub fn of_process() -> SearchPlaces {
        let named = env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        SearchPlaces { named, usual: USUAL_FILES.map(PathBuf::from).to_vec() }
    }

    /// The file that the environment names, or the first usual one that exists.
    ///
    /// What the environment names needn't exist: reading it then tells the operator what is amiss.
    pub fn find(&self) -> Option<PathBuf> {
        let usual = || self.usual.iter().find(|path| exists(path)).cloned();
        self.named.clone().or_else(usual)
    }

    /// The usual places, for telling where was looked.
    pub fn usual(&self) -> &[PathBuf] {
        &self.usual
    }

    /// These places: the file that the environment names, and the usual ones.
    pub fn new(named: Option<PathBuf>, usual: Vec<PathBuf>) -> SearchPlaces {
        SearchPlaces { named, usual }
    }
}

/// Whether something stands at `path`. A file that is there but out of reach counts: falling through to the next
/// place would run by another configuration than the operator sees.
fn exists(path: &Path) -> bool {
    !matches!(path.try_exists(), Ok(false))
}
