//! Which program the server processes run, and which one an upgrade turns to.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The very program that runs, also when another one has taken its place in the file system.
pub(super) const RUNNING: &str = "/proc/self/exe";

/// Where the program stands by which this process was started, as its caller named it: a link that is turned to a new
/// version meanwhile leads there.
pub(super) fn path_as_started() -> PathBuf {
    let named = env::args_os().next().unwrap_or_default();
    let folder = env::current_dir().unwrap_or_default();
    find(&named, &folder, env::var_os("PATH").as_deref())
        // Whoever started it has named it otherwise.
        .or_else(|| env::current_exe().ok())
        .unwrap_or_else(|| PathBuf::from(RUNNING))
}

fn find(named: &OsStr, folder: &Path, search: Option<&OsStr>) -> Option<PathBuf> {
    if Path::new(named).components().count() > 1 {
        return Some(folder.join(named)).filter(|path| path.exists());
    }
    let mut folders = env::split_paths(search?);
    folders.find_map(|place| Some(folder.join(place).join(named)).filter(|path| path.is_file()))
}

/// The arguments of a `command` of this program, with what is forced.
pub(super) fn arguments(command: &str, forced: &[String], rest: Vec<OsString>) -> Vec<OsString> {
    let mut arguments = vec![OsString::from(command)];
    for way in forced {
        arguments.extend([OsString::from("--force"), OsString::from(way)]);
    }
    arguments.extend(rest);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_program_is_found_as_a_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        fs::create_dir(place.join("bin")).unwrap();
        fs::write(place.join("bin/server"), "").unwrap();
        std::os::unix::fs::symlink("bin/server", place.join("link")).unwrap();
        let check = |named: &str, search: Option<&str>, expected: Option<&str>| {
            let found = find(named.as_ref(), place, search.map(OsStr::new));
            assert_eq!(found, expected.map(|path| place.join(path)), "{named}");
        };
        check("bin/server", None, Some("bin/server"));
        check("./link", None, Some("./link"));
        check("server", Some("/none:bin"), Some("bin/server"));
        check("server", Some("/none"), None);
        check("server", None, None);
        check("bin/none", None, None);
        let absolute = place.join("bin/server");
        assert_eq!(find(absolute.as_os_str(), Path::new("/"), None), Some(absolute));
    }
}
