//! Patterns for a folder's files: `sites/*.toml`.

use sanderling_os::error::with_second_try;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder and the extension, with its dot, of `pattern` below `base`; `None` if it is malformed.
pub(super) fn parse(pattern: &str, base: &Path) -> Option<(PathBuf, String)> {
    let (folder, file) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let extension = file.strip_prefix('*').filter(|extension| extension.len() > 1 && extension.starts_with('.'))?;
    if folder.contains('*') || extension.contains('*') {
        return None;
    }
    let folder = match (folder, pattern.starts_with('/')) {
        ("", true) => PathBuf::from("/"),
        ("", false) if base.as_os_str().is_empty() => PathBuf::from("."),
        (folder, _) => base.join(folder),
    };
    Some((folder, extension.to_owned()))
}

/// The names of the files in `folder` with `extension`, sorted. Hidden files are left out: editors create them, and
/// programs that write a file before they rename it.
pub(super) fn list(folder: &Path, extension: &str) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in with_second_try(|| fs::read_dir(folder))? {
        let name = entry?.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.len() > extension.len() && bytes.ends_with(extension.as_bytes()) && bytes[0] != b'.' {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
