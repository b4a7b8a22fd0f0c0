//! The server processes' program, and the program that an upgrade switches to.

use sanderling_os::process::ProcessHandle;
use sanderling_os::signals;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// The running program, even if its path now leads to another.
pub(super) const RUNNING: &str = "/proc/self/exe";

/// The path of this program as it was started. A link that was switched to a new version leads to the new version.
pub(super) fn installed_path() -> PathBuf {
    let name = env::args_os().next().unwrap_or_default();
    let folder = env::current_dir().unwrap_or_default();
    find(&name, &folder, env::var_os("PATH").as_deref())
        // The name may be wrong: the caller chooses it.
        .or_else(|| env::current_exe().ok())
        .unwrap_or_else(|| PathBuf::from(RUNNING))
}

fn find(name: &OsStr, folder: &Path, search_path: Option<&OsStr>) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return Some(folder.join(name)).filter(|path| path.exists());
    }
    let mut folders = env::split_paths(search_path?);
    folders.find_map(|searched| Some(folder.join(searched).join(name)).filter(|path| path.is_file()))
}

/// The arguments of `command` of this program, with the forced variants.
pub(super) fn arguments(command: &str, forced: &[String], rest: Vec<OsString>) -> Vec<OsString> {
    let mut arguments = vec![OsString::from(command)];
    for variant in forced {
        arguments.extend([OsString::from("--force"), OsString::from(variant)]);
    }
    arguments.extend(rest);
    arguments
}

/// Starts `program` with `name`, which `ps` shows before `arguments`, and `descriptors` by their names.
pub(super) fn spawn(
    program: &Path,
    name: &str,
    arguments: &[OsString],
    descriptors: &[(String, BorrowedFd<'_>)],
) -> io::Result<ProcessHandle> {
    // A signal to all processes with the program's name would kill one that has no handler yet.
    signals::block_all()?;
    let process = sanderling_os::process::spawn(program, name, arguments, descriptors);
    signals::unblock_all()?;
    process
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn program_is_found_as_a_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("bin")).unwrap();
        fs::write(root.join("bin/server"), "").unwrap();
        std::os::unix::fs::symlink("bin/server", root.join("link")).unwrap();
        let check = |name: &str, search_path: Option<&str>, expected: Option<&str>| {
            let found = find(name.as_ref(), root, search_path.map(OsStr::new));
            assert_eq!(found, expected.map(|path| root.join(path)), "{name}");
        };
        check("bin/server", None, Some("bin/server"));
        check("./link", None, Some("./link"));
        check("server", Some("/none:bin"), Some("bin/server"));
        check("server", Some("/none"), None);
        check("server", None, None);
        check("bin/none", None, None);
        let absolute = root.join("bin/server");
        assert_eq!(find(absolute.as_os_str(), Path::new("/"), None), Some(absolute));
    }
}
