//! The path of the control socket, as a server and its clients find it.
//!
//! Both find the same path if they see the same configuration file, user and environment.

use sanderling_config::{ConfigSource, SearchPaths};
use std::env;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

const FILE_NAME: &str = "control.sock";
/// The folder of a server that root has started.
const SYSTEM_FOLDER: &str = "/run/sanderling";

/// What the environment of a process says about the folder of sockets.
#[derive(Clone, Debug, Default)]
pub struct RuntimeEnv {
    /// The folder of a systemd service with `RuntimeDirectory=` (systemd.exec(5)).
    runtime_folder: Option<PathBuf>,
    is_root: bool,
    /// The folder of the user (XDG Base Directory Specification).
    user_folder: Option<PathBuf>,
}

impl RuntimeEnv {
    /// That of this process.
    pub fn from_env() -> RuntimeEnv {
        let absolute = |path: &PathBuf| path.is_absolute();
        RuntimeEnv {
            // Colons separate several folders.
            runtime_folder: env::var("RUNTIME_DIRECTORY")
                .ok()
                .and_then(|folders| folders.split(':').next().map(PathBuf::from))
                .filter(absolute),
            is_root: sanderling_os::process::effective_uid() == 0,
            user_folder: env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(absolute),
        }
    }

    /// The default path; `None` if there is no folder for it.
    fn default_path(&self) -> Option<PathBuf> {
        let user_folder = || self.user_folder.as_ref().map(|folder| folder.join("sanderling"));
        let folder = match &self.runtime_folder {
            Some(folder) => Some(folder.clone()),
            None if self.is_root => Some(SYSTEM_FOLDER.into()),
            None => user_folder(),
        };
        folder.map(|folder| folder.join(FILE_NAME))
    }
}

/// The path for a server with the configuration of `source`; `None` if it has no control socket.
///
/// `argument` is the value of `--control`, `key` that of `control` in the configuration file.
pub fn of_server(
    argument: Option<&Path>,
    key: Option<&Path>,
    source: &ConfigSource,
    env: &RuntimeEnv,
) -> Option<PathBuf> {
    let default = || match source {
        ConfigSource::File(_) => env.default_path(),
        // A folder may be served by several servers of one user, and for a moment only.
        ConfigSource::Flags(_) => None,
    };
    argument.or(key).map(Path::to_owned).or_else(default)
}

/// The path for a client: `argument`, else the key `control` of the configuration file `file` or of the one found in
/// `search_paths`, else the default.
///
/// # Errors
/// A message for the operator: `file` cannot be read, or there is no default.
pub fn of_client(
    argument: Option<PathBuf>,
    file: Option<PathBuf>,
    search_paths: &SearchPaths,
    env: &RuntimeEnv,
) -> Result<PathBuf, String> {
    if let Some(path) = argument {
        return Ok(path);
    }
    let key = match file {
        Some(file) => {
            let text = ConfigSource::File(file.clone())
                .read()
                .map_err(|diagnostics| diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
            key_of(&file, &text)
        }
        // A file that is only found may be unreadable: the server may have been started without it.
        None => search_paths.find().and_then(|file| key_of(&file, &ConfigSource::File(file.clone()).read().ok()?)),
    };
    key.or_else(|| env.default_path()).ok_or_else(|| {
        "the control socket of the server is unknown: no configuration file has the key `control`, and XDG_RUNTIME_DIR \
         is not set; name the socket with --control PATH (`demo` and `serve FOLDER` have no control socket unless \
         `serve` is given --control)"
            .to_owned()
    })
}

/// The key `control` in the configuration file `file` with this `text`. The rest of the file may be wrong: the operator may
/// be editing it.
fn key_of(file: &Path, text: &[u8]) -> Option<PathBuf> {
    let (root, _) = DeTable::parse_recoverable(str::from_utf8(text).ok()?);
    let value = root.get_ref().get("control")?.get_ref().as_str().filter(|value| !value.is_empty())?;
    Some(file.parent().unwrap_or(Path::new("")).join(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::Flags;

    fn env(runtime_folder: &str, is_root: bool, user_folder: &str) -> RuntimeEnv {
        let folder = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        RuntimeEnv { runtime_folder: folder(runtime_folder), is_root, user_folder: folder(user_folder) }
    }

    fn no_paths() -> SearchPaths {
        SearchPaths::new(None, Vec::new())
    }

    #[test]
    fn default_path_depends_on_the_environment() {
        for (runtime_folder, is_root, user_folder, expected) in [
            ("/run/service", true, "/run/user/0", Some("/run/service/control.sock")),
            ("/run/service", false, "/run/user/7", Some("/run/service/control.sock")),
            ("", true, "/run/user/0", Some("/run/sanderling/control.sock")),
            ("", false, "/run/user/7", Some("/run/user/7/sanderling/control.sock")),
            ("", false, "", None),
        ] {
            let env = env(runtime_folder, is_root, user_folder);
            let expected = expected.map(PathBuf::from);
            let source = ConfigSource::File("x.toml".into());
            assert_eq!(of_server(None, None, &source, &env), expected);
            assert_eq!(of_client(None, None, &no_paths(), &env).ok(), expected, "server and client agree");
        }
        let error = of_client(None, None, &no_paths(), &RuntimeEnv::default()).expect_err("unknown");
        assert!(error.contains("name the socket with --control PATH"), "{error}");
    }

    #[test]
    fn server_prefers_the_argument_to_the_key_to_the_default() {
        let root = env("", true, "");
        let (file, flags) = (ConfigSource::File("x.toml".into()), ConfigSource::Flags(Flags::default()));
        let path = |text: &'static str| Some(Path::new(text));
        for (argument, key, source, expected) in [
            (path("a"), path("k"), &file, path("a")),
            (None, path("k"), &file, path("k")),
            (None, None, &file, path("/run/sanderling/control.sock")),
            (path("a"), None, &flags, path("a")),
            (None, None, &flags, None),
        ] {
            assert_eq!(of_server(argument, key, source, &root).as_deref(), expected);
        }
    }

    /// The path that a client takes from a configuration file with this `text`, relative to the folder of the file.
    #[track_caller]
    fn check_key(text: &str, expected: Option<&str>) {
        let folder = tempfile::tempdir().expect("created");
        let file = folder.path().join("sanderling.toml");
        std::fs::write(&file, text).expect("written");
        let expected = expected.map(|name| folder.path().join(name));
        let named = of_client(None, Some(file.clone()), &no_paths(), &RuntimeEnv::default());
        assert_eq!(named.ok(), expected, "named");
        let search_paths = SearchPaths::new(None, vec![folder.path().join("none.toml"), file]);
        assert_eq!(of_client(None, None, &search_paths, &RuntimeEnv::default()).ok(), expected, "found");
    }

    #[test]
    fn client_reads_the_key_from_an_invalid_file() {
        check_key("control = \"my.sock\"\n", Some("my.sock"));
        check_key("control = \"/abs/my.sock\"\n", Some("/abs/my.sock"));
        check_key("lissten = 1\ncontrol = \"my.sock\"\nworkers = \"many\"\n", Some("my.sock"));
        check_key("control = \"my.sock\"\n[domain.\"example.com\"\nsite = \n", Some("my.sock"));
        check_key("", None);
        check_key("control = \"\"\n", None);
        check_key("control = 7\n", None);
        check_key("[http]\ncontrol = \"my.sock\"\n", None);
    }

    #[test]
    fn named_file_must_exist() {
        let error = of_client(None, Some("/nonexistent/x.toml".into()), &no_paths(), &env("", true, ""));
        let error = error.expect_err("missing");
        assert!(error.starts_with("/nonexistent/x.toml: "), "{error}");
        let search_paths = SearchPaths::new(Some("/nonexistent/x.toml".into()), Vec::new());
        let found = of_client(None, None, &search_paths, &env("", true, ""));
        assert_eq!(found, Ok("/run/sanderling/control.sock".into()));
        let argument =
            of_client(Some("a".into()), Some("/nonexistent/x.toml".into()), &no_paths(), &RuntimeEnv::default());
        assert_eq!(argument, Ok("a".into()));
    }
}
