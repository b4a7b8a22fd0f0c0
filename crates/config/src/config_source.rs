//! Where the configuration comes from: a file or the command line. A reload reads the same source again.

use crate::config::Config;
use crate::config_file;
use crate::config_text;
use crate::diagnostic::Diagnostic;
use crate::flags::Flags;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "SANDERLING_CONFIG";
/// The default configuration files; the first that exists is used.
pub const DEFAULT_FILES: [&str; 2] = ["sanderling.toml", "/etc/sanderling/sanderling.toml"];

/// The source of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// A configuration file.
    File(PathBuf),
    /// The arguments of the command line.
    Flags(Flags),
}

impl ConfigSource {
    /// Reads and checks the whole configuration.
    ///
    /// # Errors
    /// Returns all problems, in file order.
    pub fn load(&self) -> Result<Config, Vec<Diagnostic>> {
        self.parse(&self.read()?)
    }

    /// The text of the file and of those that it includes, in a form for [`ConfigSource::parse`]; empty for arguments.
    ///
    /// # Errors
    /// Returns the reason why the files cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, Vec<Diagnostic>> {
        match self {
            ConfigSource::File(path) => config_text::read(path),
            ConfigSource::Flags(_) => Ok(Vec::new()),
        }
    }

    /// The text of the file alone; empty for arguments.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be read.
    pub fn read_main(&self) -> Result<Vec<u8>, Vec<Diagnostic>> {
        match self {
            ConfigSource::File(path) => config_text::read_main(path),
            ConfigSource::Flags(_) => Ok(Vec::new()),
        }
    }

    /// Checks `text`, which was read from this source.
    ///
    /// # Errors
    /// Returns all problems, in file order.
    pub fn parse(&self, text: &[u8]) -> Result<Config, Vec<Diagnostic>> {
        match self {
            ConfigSource::File(path) => config_file::parse(path, text),
            ConfigSource::Flags(flags) => Config::from_flags(flags),
        }
    }

    /// The arguments of `serve` with which another process uses the same source.
    pub fn to_arguments(&self) -> Vec<OsString> {
        match self {
            ConfigSource::File(path) => vec!["--config".into(), path.into()],
            ConfigSource::Flags(flags) => flags.to_arguments(),
        }
    }
}

/// The places to look for a configuration file if no argument names one.
#[derive(Clone, Debug)]
pub struct SearchPaths {
    from_environment: Option<PathBuf>,
    defaults: Vec<PathBuf>,
}

impl SearchPaths {
    /// The file that the environment names, and the default files.
    pub fn new(from_environment: Option<PathBuf>, defaults: Vec<PathBuf>) -> SearchPaths {
        SearchPaths { from_environment, defaults }
    }

    /// This process's search paths.
    pub fn from_env() -> SearchPaths {
        let from_environment = env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        SearchPaths::new(from_environment, DEFAULT_FILES.map(PathBuf::from).to_vec())
    }

    /// The file that the environment names, else the first default file that exists.
    ///
    /// The file that the environment names need not exist: a missing file is reported when it is read.
    pub fn find(&self) -> Option<PathBuf> {
        let default = || self.defaults.iter().find(|path| may_exist(path)).cloned();
        self.from_environment.clone().or_else(default)
    }

    /// The default files.
    pub fn defaults(&self) -> &[PathBuf] {
        &self.defaults
    }
}

/// Whether `path` exists or cannot be reached. With the next file, the server would use another configuration than the
/// operator expects.
fn may_exist(path: &Path) -> bool {
    !matches!(path.try_exists(), Ok(false))
}
