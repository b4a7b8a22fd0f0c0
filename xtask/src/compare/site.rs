//! The files that every HTTP server serves, and the scripts by which wrk asks for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::random::Random;

/// The folder for files that fit one send with their head, and the one for those that do not: so that a server whose
/// best way depends on the size can be told which is which.
pub(super) const SMALL_FOLDER: &str = "small";
pub(super) const LARGE_FOLDER: &str = "large";
/// Octets of each single file.
pub(super) const SMALL_BYTES: &[usize] = &[512, 4096];
pub(super) const LARGE_BYTES: &[usize] = &[16 * 1024, 100 * 1024, 1024 * 1024];
/// Octets of each file of a rotation.
const ROTATION_BYTES: usize = 512;
/// Files in one folder of a rotation.
const FILES_PER_FOLDER: usize = 1000;
/// A file that was just written is checked at every request by a careful server; these are older when it counts.
const SETTLED_AFTER: Duration = Duration::from_secs(11);

/// The root of the site, and when its last file was written.
pub(super) struct Site {
    pub(super) root: PathBuf,
    written: Instant,
}

impl Site {
    /// Makes the single files, and `rotation_count` files for rotations.
    pub(super) fn create(root: &Path, rotation_count: usize) -> Result<Site, String> {
        let sized =
            |folder, sizes: &'static [usize]| sizes.iter().map(move |bytes| (format!("{folder}/{bytes}"), *bytes));
        for (path, bytes) in sized(SMALL_FOLDER, SMALL_BYTES).chain(sized(LARGE_FOLDER, LARGE_BYTES)) {
            write(&root.join(path), &vec![b'x'; bytes])?;
        }
        let content = [b'x'; ROTATION_BYTES];
        for number in 0..rotation_count {
            write(&root.join(rotation_path(number)), &content)?;
        }
        Ok(Site { root: root.to_owned(), written: Instant::now() })
    }

    /// Sleeps until the files count as left alone.
    pub(super) fn wait_until_settled(&self) {
        std::thread::sleep(SETTLED_AFTER.saturating_sub(self.written.elapsed()));
    }
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let folder = path.parent().expect("every path has a folder");
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(path, content).map_err(failed)
}

fn rotation_path(number: usize) -> String {
    format!("{SMALL_FOLDER}/{:03}/{number:06}.html", number / FILES_PER_FOLDER)
}

/// A script that asks for one of `count` files of the rotation after another, in random order.
pub(super) fn rotation_script(count: usize, seed: u64) -> String {
    let paths: Vec<String> =
        Random::new(seed).order(count).into_iter().map(|number| format!("\"/{}\"", rotation_path(number))).collect();
    format!(
        "local paths = {{{}}}\n\
         local requests, at = {{}}, 0\n\
         init = function(args)\n  \
           for number, path in ipairs(paths) do requests[number] = wrk.format(nil, path) end\n\
         end\n\
         request = function()\n  at = at % #requests + 1\n  return requests[at]\nend\n",
        paths.join(",\n")
    )
}

/// A script that asks `depth` times for `path` at once.
pub(super) fn pipeline_script(path: &str, depth: usize) -> String {
    format!(
        "local requests\n\
         init = function(args)\n  requests = string.rep(wrk.format(nil, \"{path}\"), {depth})\nend\n\
         request = function() return requests end\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_names_every_file_once() {
        let script = rotation_script(3, 1);
        for number in 0..3 {
            assert_eq!(script.matches(&format!("\"/small/000/00000{number}.html\"")).count(), 1, "{script}");
        }
    }

    #[test]
    fn a_rotation_fills_folder_after_folder() {
        assert_eq!(rotation_path(0), "small/000/000000.html");
        assert_eq!(rotation_path(99_999), "small/099/099999.html");
    }
}
