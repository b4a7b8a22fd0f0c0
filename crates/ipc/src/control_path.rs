//! The control socket's path, as a server and its clients find it.
//!
//! Server and client find the same path if they see the same configuration file, user and environment.

use sanderling_config::{ConfigSource, SearchPaths, substitute_from_environment};
use std::env;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

pub(crate) const FILE_NAME: &str = "control.sock";
/// The folder of a server that root has started.
pub(crate) const SYSTEM_FOLDER: &str = "/run/sanderling";

/// The default path in a process's environment; `None` if there is no folder for it.
#[derive(Clone, Debug, Default)]
pub struct RuntimeEnv(Option<PathBuf>);

impl RuntimeEnv {
    /// This process's environment.
    pub fn from_env() -> RuntimeEnv {
        let folder = |name| env::var(name).unwrap_or_default();
        let is_root = sanderling_os::process::effective_uid() == 0;
        RuntimeEnv::new(runtime_directory(), is_root, &folder("XDG_RUNTIME_DIR"))
    }

    /// The path is in the `runtime_directory` of a systemd service, else in the user's folder (XDG Base Directory
    /// Specification).
    fn new(runtime_directory: Option<PathBuf>, is_root: bool, user_folder: &str) -> RuntimeEnv {
        let folder = match runtime_directory {
            None if is_root => Some(SYSTEM_FOLDER.into()),
            None => absolute(user_folder).map(|folder| folder.join("sanderling")),
            folder => folder,
        };
        RuntimeEnv(folder.map(|folder| folder.join(FILE_NAME)))
    }
}

/// The first of the runtime directories that systemd gives a service, which are in memory (systemd.exec(5)).
pub fn runtime_directory() -> Option<PathBuf> {
    first_folder(&env::var("RUNTIME_DIRECTORY").unwrap_or_default())
}

/// The first of folders that are separated by colons.
fn first_folder(folders: &str) -> Option<PathBuf> {
    absolute(folders.split(':').next().unwrap_or_default())
}

fn absolute(folder: &str) -> Option<PathBuf> {
    Some(PathBuf::from(folder)).filter(|path| path.is_absolute())
}

/// The path for a server with the configuration of `source`; `None` if it has no control socket.
///
/// `argument` is the value of `--control`, `key` the value of `control` in the configuration file.
pub fn of_server(
    argument: Option<&Path>,
    key: Option<&Path>,
    source: &ConfigSource,
    env: &RuntimeEnv,
) -> Option<PathBuf> {
    let default = || match source {
        ConfigSource::File(_) => env.0.clone(),
        // A folder may be served by several servers of one user, and for a moment only.
        ConfigSource::Flags(_) => None,
    };
    argument.or(key).map(Path::to_owned).or_else(default)
}

/// The path for a client: `argument`, else the key `control` of the configuration file `file` or of the file found in
/// `search_paths`, else the default.
///
/// # Errors
/// Returns a message for the operator if `file` cannot be read, or if there is no default.
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
        Some(file) => key_in(&file)?,
        None => match search_paths.find() {
            // The environment names a file that does not exist: the server may have been started without it.
            Some(file) if matches!(file.try_exists(), Ok(false)) => None,
            Some(file) => key_in(&file)?,
            None => None,
        },
    };
    key.or_else(|| env.0.clone()).ok_or_else(|| {
        "the server's control socket is unknown: no configuration file has the key `control`, and XDG_RUNTIME_DIR \
         is not set; specify the socket with --control PATH (`demo` and `serve FOLDER` have no control socket unless \
         `serve` is given --control)"
            .to_owned()
    })
}

/// The key `control` in the configuration file `file`. The rest of the file may be wrong: the operator may be editing
/// it.
fn key_in(file: &Path) -> Result<Option<PathBuf>, String> {
    let text = ConfigSource::File(file.to_owned())
        .read_main()
        .map_err(|diagnostics| diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let text = String::from_utf8_lossy(&text);
    let (root, _) = DeTable::parse_recoverable(&text);
    let Some(value) = root.get_ref().get("control") else { return Ok(None) };
    let problem = |problem: &str| format!("{}: {problem}, or specify the socket with --control PATH", file.display());
    let not_a_path = || problem("`control` is not a socket path; write control = \"control.sock\"");
    let value = substitute_from_environment(value.get_ref().as_str().ok_or_else(not_a_path)?)
        .map_err(|name| problem(&format!("the environment variable `{name}` is not set; set it as for the server")))?;
    if value.is_empty() {
        return Err(not_a_path());
    }
    Ok(Some(file.parent().unwrap_or(Path::new("")).join(value.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::Flags;

    fn no_paths() -> SearchPaths {
        SearchPaths::new(None, Vec::new())
    }

    #[test]
    fn default_path_depends_on_the_environment() {
        for (runtime_folders, is_root, user_folder, expected) in [
            ("/run/service:/run/other", true, "/run/user/0", Some("/run/service/control.sock")),
            ("/run/service", false, "/run/user/7", Some("/run/service/control.sock")),
            ("", true, "/run/user/0", Some("/run/sanderling/control.sock")),
            ("relative", false, "/run/user/7", Some("/run/user/7/sanderling/control.sock")),
            ("", false, "relative", None),
        ] {
            let env = RuntimeEnv::new(first_folder(runtime_folders), is_root, user_folder);
            let expected = expected.map(PathBuf::from);
            assert_eq!(of_server(None, None, &ConfigSource::File("x.toml".into()), &env), expected);
            assert_eq!(of_client(None, None, &no_paths(), &env).ok(), expected, "server and client agree");
        }
        let error = of_client(None, None, &no_paths(), &RuntimeEnv::default()).expect_err("unknown");
        assert!(error.contains("specify the socket with --control PATH"), "{error}");
    }

    #[test]
    fn server_prefers_the_argument_to_the_key_to_the_default() {
        let root = RuntimeEnv::new(None, true, "");
        let (file, flags) = (ConfigSource::File("x.toml".into()), ConfigSource::Flags(Flags::default()));
        for (argument, key, source, expected) in [
            (Some("a"), Some("k"), &file, Some("a")),
            (None, Some("k"), &file, Some("k")),
            (None, None, &file, Some("/run/sanderling/control.sock")),
            (Some("a"), None, &flags, Some("a")),
            (None, None, &flags, None),
        ] {
            let found = of_server(argument.map(Path::new), key.map(Path::new), source, &root);
            assert_eq!(found.as_deref(), expected.map(Path::new));
        }
    }

    #[test]
    fn client_reads_the_key_even_from_an_invalid_file() {
        let folder = tempfile::tempdir().expect("created");
        let file = folder.path().join("sanderling.toml");
        let search_paths = SearchPaths::new(None, vec![folder.path().join("none.toml"), file.clone()]);
        // Cargo sets the variable for the programs that it runs.
        let substituted = format!("{}.sock", std::env::var("CARGO_PKG_NAME").expect("set"));
        for (text, expected) in [
            ("control = \"my.sock\"\n", Some("my.sock")),
            ("control = \"/abs/my.sock\"\n", Some("/abs/my.sock")),
            ("control = \"my.sock\"\nworkers = \"many\"\n[domain.\"example.com\"\nsite = \n", Some("my.sock")),
            ("[http]\ncontrol = \"my.sock\"\n", None),
            ("control = \"${CARGO_PKG_NAME}.sock\"\n", Some(&*substituted)),
            ("control = \"$${CARGO_PKG_NAME}.sock\"\n", Some("${CARGO_PKG_NAME}.sock")),
        ] {
            std::fs::write(&file, text).expect("written");
            let expected = expected.map(|name| folder.path().join(name));
            for (named, found) in [(Some(file.clone()), &no_paths()), (None, &search_paths)] {
                assert_eq!(of_client(None, named, found, &RuntimeEnv::default()).ok(), expected, "{text}");
            }
        }
    }

    #[test]
    fn wrong_key_is_an_error_and_not_the_default() {
        let folder = tempfile::tempdir().expect("created");
        let file = folder.path().join("sanderling.toml");
        let search_paths = SearchPaths::new(None, vec![file.clone()]);
        for text in ["control = \"\"\n", "control = 7\n"] {
            std::fs::write(&file, text).expect("written");
            let error = of_client(None, None, &search_paths, &RuntimeEnv::new(None, true, "")).expect_err(text);
            assert!(error.contains("sanderling.toml: `control` is not a socket path; "), "{error}");
        }
        std::fs::write(&file, "control = \"${NO_SUCH_VARIABLE_OF_TESTS}\"\n").expect("written");
        let error = of_client(None, None, &search_paths, &RuntimeEnv::new(None, true, "")).expect_err("not set");
        let expected = "sanderling.toml: the environment variable `NO_SUCH_VARIABLE_OF_TESTS` is not set; set it as for \
                        the server, or specify the socket with --control PATH";
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn named_file_must_exist_unless_there_is_an_argument() {
        let missing = || Some(PathBuf::from("/nonexistent/x.toml"));
        let root = RuntimeEnv::new(None, true, "");
        let error = of_client(None, missing(), &no_paths(), &root).expect_err("missing");
        assert!(error.starts_with("/nonexistent/x.toml: "), "{error}");
        let found = of_client(None, None, &SearchPaths::new(missing(), Vec::new()), &root);
        assert_eq!(found, Ok("/run/sanderling/control.sock".into()));
        assert_eq!(of_client(Some("a".into()), missing(), &no_paths(), &root), Ok("a".into()));
    }
}
