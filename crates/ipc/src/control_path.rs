//! Turns what the operator named, and what the surroundings of the process are, into the path of the control socket.
//!
//! A server and a command that asks it find the same path by themselves wherever both can see the same: the
//! configuration file, the user, the folder for sockets.

use sanderling_config::{ConfigSource, SearchPaths};
use std::env;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// The socket's name in a folder that the system has for it.
const FILE_NAME: &str = "control.sock";
/// Where the system keeps the sockets of a server that root has started.
const SYSTEM_FOLDER: &str = "/run/sanderling";

/// What a process knows about where sockets go.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// What systemd has made for a service with `RuntimeDirectory=` (systemd.exec(5)).
    runtime_folder: Option<PathBuf>,
    is_root: bool,
    /// What the login has made for its user (XDG Base Directory Specification).
    user_folder: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Surroundings {
        let folder = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        Surroundings {
            // Several are parted by colons; the socket goes into the first.
            runtime_folder: env::var("RUNTIME_DIRECTORY")
                .ok()
                .and_then(|folders| folders.split(':').next().map(PathBuf::from))
                .filter(|path| path.is_absolute()),
            is_root: sanderling_os::process::effective_uid() == 0,
            user_folder: folder("XDG_RUNTIME_DIR"),
        }
    }

    /// The path if nobody names one; `None` where no folder is meant for sockets.
    fn usual_path(&self) -> Option<PathBuf> {
        let user_folder = || self.user_folder.as_ref().map(|folder| folder.join("sanderling"));
        let folder = match &self.runtime_folder {
            Some(folder) => Some(folder.clone()),
            None if self.is_root => Some(SYSTEM_FOLDER.into()),
            None => user_folder(),
        };
        folder.map(|folder| folder.join(FILE_NAME))
    }
}

/// Where a server listens that runs by `source`; `None` if it is not to be asked anything.
///
/// `argument` is that of `--control`, `key` the value of the key `control` of its configuration file.
pub fn of_server(
    argument: Option<&Path>,
    key: Option<&Path>,
    source: &ConfigSource,
    surroundings: &Surroundings,
) -> Option<PathBuf> {
    let usual = || match source {
        ConfigSource::File(_) => surroundings.usual_path(),
        // Whoever serves a folder for a while wants no trace of it, and perhaps a second one beside it.
        ConfigSource::Flags(_) => None,
    };
    argument.or(key).map(Path::to_owned).or_else(usual)
}

/// Where to ask: at `argument`, else where the configuration file `file` says, or the one that is found in `places`,
/// else at the usual path.
///
/// # Errors
///
/// A message for the operator: `file` can't be read, or there is no usual path here.
pub fn of_client(
    argument: Option<PathBuf>,
    file: Option<PathBuf>,
    places: &SearchPaths,
    surroundings: &Surroundings,
) -> Result<PathBuf, String> {
    if let Some(path) = argument {
        return Ok(path);
    }
    let key = match file {
        Some(file) => {
            let text = ConfigSource::File(file.clone()).read().map_err(|faults| {
                let faults: Vec<String> = faults.iter().map(|found| found.problem.to_string()).collect();
                format!("{}: {}", file.display(), faults.join("\n"))
            })?;
            key_of(&file, &text)
        }
        // A file that was merely found may be out of reach: the server may have been started without it.
        None => places.find().and_then(|file| key_of(&file, &ConfigSource::File(file.clone()).read().ok()?)),
    };
    key.or_else(|| surroundings.usual_path()).ok_or_else(|| {
        "it is not known where the server's control socket is: there is no configuration file with the key `control`, \
         and no XDG_RUNTIME_DIR; name the socket with --control PATH"
            .to_owned()
    })
}

/// The value of the key `control` in the configuration file `file`, whose text is `text`. Everything else may be wrong:
/// a server can be asked while its file is worked on.
fn key_of(file: &Path, text: &[u8]) -> Option<PathBuf> {
    let (root, _) = DeTable::parse_recoverable(str::from_utf8(text).ok()?);
    let value = root.get_ref().get("control")?.get_ref().as_str().filter(|value| !value.is_empty())?;
    Some(file.parent().unwrap_or(Path::new("")).join(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::Flags;

    fn surroundings(runtime_folder: &str, is_root: bool, user_folder: &str) -> Surroundings {
        let folder = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        Surroundings { runtime_folder: folder(runtime_folder), is_root, user_folder: folder(user_folder) }
    }

    fn nowhere() -> SearchPaths {
        SearchPaths::new(None, Vec::new())
    }

    #[test]
    fn without_a_name_the_system_says_where() {
        for (runtime_folder, is_root, user_folder, expected) in [
            ("/run/service", true, "/run/user/0", Some("/run/service/control.sock")),
            ("/run/service", false, "/run/user/7", Some("/run/service/control.sock")),
            ("", true, "/run/user/0", Some("/run/sanderling/control.sock")),
            ("", false, "/run/user/7", Some("/run/user/7/sanderling/control.sock")),
            ("", false, "", None),
        ] {
            let surroundings = surroundings(runtime_folder, is_root, user_folder);
            let expected = expected.map(PathBuf::from);
            let source = ConfigSource::File("x.toml".into());
            assert_eq!(of_server(None, None, &source, &surroundings), expected);
            let found = of_client(None, None, &nowhere(), &surroundings);
            assert_eq!(found.ok(), expected, "server and command agree");
        }
        let error = of_client(None, None, &nowhere(), &Surroundings::default()).expect_err("unknown");
        assert!(error.ends_with("name the socket with --control PATH"), "{error}");
    }

    #[test]
    fn a_server_prefers_the_argument_to_the_key_to_the_usual_path() {
        let root = surroundings("", true, "");
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

    /// What a command makes of the configuration file whose text is `text`: the path in the file's folder, if it is
    /// there.
    #[track_caller]
    fn check_key(text: &str, expected: Option<&str>) {
        let folder = tempfile::tempdir().expect("created");
        let file = folder.path().join("sanderling.toml");
        std::fs::write(&file, text).expect("written");
        let expected = expected.map(|name| folder.path().join(name));
        let named = of_client(None, Some(file.clone()), &nowhere(), &Surroundings::default());
        assert_eq!(named.ok(), expected, "named");
        let places = SearchPaths::new(None, vec![folder.path().join("none.toml"), file]);
        assert_eq!(of_client(None, None, &places, &Surroundings::default()).ok(), expected, "found");
    }

    #[test]
    fn a_command_reads_the_key_even_from_a_file_that_is_wrong() {
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
    fn a_file_that_is_named_must_be_there() {
        let error = of_client(None, Some("/nonexistent/x.toml".into()), &nowhere(), &surroundings("", true, ""));
        let error = error.expect_err("not there");
        assert!(error.starts_with("/nonexistent/x.toml: "), "{error}");
        let places = SearchPaths::new(Some("/nonexistent/x.toml".into()), Vec::new());
        let found = of_client(None, None, &places, &surroundings("", true, ""));
        assert_eq!(found, Ok("/run/sanderling/control.sock".into()));
        let argument =
            of_client(Some("a".into()), Some("/nonexistent/x.toml".into()), &nowhere(), &Surroundings::default());
        assert_eq!(argument, Ok("a".into()));
    }
}
