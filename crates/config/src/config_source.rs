//! Where the configuration comes from: a file or the command line. A reload reads the same source again.

use crate::config::Config;
use crate::config_file;
use crate::config_text;
use crate::diagnostic::Diagnostic;
use crate::flags::Flags;
use crate::log::log_warning;
use sanderling_os::process::effective_uid;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

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

    /// The file that the environment names, else the first default file that exists. Root ignores one in the working
    /// directory that another user could have put there, and says so.
    ///
    /// The file that the environment names need not exist: a missing file is reported when it is read.
    pub fn find(&self) -> Option<PathBuf> {
        let default = || self.defaults.iter().find(|path| may_exist(path) && !is_foreign(path)).cloned();
        self.from_environment.clone().or_else(default)
    }

    /// The default files.
    pub fn defaults(&self) -> &[PathBuf] {
        &self.defaults
    }
}

/// Whether this process is root, and another user may have written the file at the relative `path`.
fn is_foreign(path: &Path) -> bool {
    static IS_REPORTED: Once = Once::new();
    if path.is_absolute() || effective_uid() != 0 {
        return false;
    }
    // sudo(8) names the user that has become root.
    let id_of = |name: &str| env::var(name).ok().and_then(|value| value.parse().ok());
    let problem = problem_of_owner(path, (id_of("SUDO_UID"), id_of("SUDO_GID")));
    if let Some(problem) = &problem {
        IS_REPORTED.call_once(|| {
            let path = path.display();
            log_warning(&format!("{path} is ignored, since {problem}; `--config {path}` uses it nevertheless"));
        });
    }
    problem.is_some()
}

/// Why the file at `path`, or the folder in which it is, may be written by others than root and the user with these
/// IDs; `None` if it may not.
fn problem_of_owner(path: &Path, (user, group): (Option<u32>, Option<u32>)) -> Option<String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    [path, folder].into_iter().find_map(|path| {
        let metadata = fs::metadata(path).ok()?;
        let is_own = metadata.uid() == 0 || Some(metadata.uid()) == user;
        let is_own_group = metadata.gid() == 0 || Some(metadata.gid()) == group;
        let is_writable = metadata.mode() & 0o002 != 0 || metadata.mode() & 0o020 != 0 && !is_own_group;
        match (is_own, is_writable) {
            (false, _) => Some(format!("{} belongs to another user", path.display())),
            (true, true) => Some(format!("other users can write {}", path.display())),
            (true, false) => None,
        }
    })
}

/// Whether `path` exists or cannot be reached. With the next file, the server would use another configuration than the
/// operator expects.
fn may_exist(path: &Path) -> bool {
    !matches!(path.try_exists(), Ok(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn file_and_folder_must_belong_to_root_or_the_user() {
        let folder = tempfile::tempdir().expect("created");
        let file = folder.path().join("sanderling.toml");
        fs::write(&file, "").expect("written");
        let metadata = file.metadata().expect("it exists");
        let me = (Some(metadata.uid()), Some(metadata.gid()));
        let check = |file_mode: u32, folder_mode: u32, user, expected: Option<&str>| {
            let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
            set(&file, file_mode);
            set(folder.path(), folder_mode);
            let problem = problem_of_owner(&file, user);
            let is_expected = match expected {
                Some(part) => problem.as_deref().is_some_and(|problem| problem.contains(part)),
                None => problem.is_none(),
            };
            assert!(is_expected, "{file_mode:o} {folder_mode:o} {user:?}: {problem:?}");
        };
        check(0o644, 0o755, me, None);
        check(0o664, 0o775, me, None);
        check(0o646, 0o755, me, Some("other users can write"));
        check(0o644, 0o777, me, Some("other users can write"));
        if metadata.uid() == 0 {
            std::os::unix::fs::chown(&file, Some(12_345), Some(12_345)).expect("root may");
            check(0o644, 0o755, me, Some("belongs to another user"));
            check(0o644, 0o755, (Some(12_345), None), None);
            check(0o664, 0o755, (Some(12_345), None), Some("other users can write"));
            check(0o664, 0o755, (Some(12_345), Some(12_345)), None);
        }
    }
}
