//! The configuration text: its file, and the files that it includes.
//!
//! One process reads the text and passes it on to others, so that all have the same text. Between the texts of two
//! files is a NUL, the path of the second one, and another NUL, which TOML does not allow anywhere.

use crate::config_reader::{ConfigReader, entries};
use crate::diagnostic::{Diagnostic, Location, Problem, error_text};
use crate::folder_pattern;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// Maximum size of all files together: tens of thousands of domains.
pub(super) const BYTES_MAX: u64 = 16 * 1024 * 1024;
const EXAMPLE: &str = "include = [\"sites/*.toml\"]";

/// Reads the file at `path` alone.
///
/// # Errors
/// Returns the reason why the file cannot be read.
pub(super) fn read_main(path: &Path) -> Result<Vec<u8>, Vec<Diagnostic>> {
    read_file(path, BYTES_MAX).map_err(|unreadable| {
        let problem = match unreadable {
            Unreadable::Io(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::NotFound => "create it, or specify another file with --config",
                    io::ErrorKind::PermissionDenied => "allow this user to read it",
                    _ => "specify another file with --config",
                };
                Problem::new(format!("cannot read the configuration file: {}", error_text(&error)), remedy)
            }
            Unreadable::NotAFile => {
                Problem::new("the configuration file is not a regular file", "specify another file with --config")
            }
            Unreadable::TooLarge => {
                let message = format!("the configuration file is larger than {BYTES_MAX} bytes");
                Problem::new(message, "specify another file with --config")
            }
            Unreadable::HasNul => Problem::new(
                "the configuration file contains a NUL",
                "remove it, or specify another file with --config",
            ),
        };
        vec![Diagnostic::error(Location::File(path.into()), problem)]
    })
}

/// Reads the file at `path`, and those that it includes.
///
/// # Errors
/// Returns the reason why the files cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Vec<Diagnostic>> {
    let mut all = read_main(path)?;
    let main = String::from_utf8_lossy(&all).into_owned();
    let files = [(path.into(), main.as_bytes())];
    let mut reader = ConfigReader::new(&files);
    for (offset, pattern) in patterns(&main, &mut reader) {
        match included(path.parent().unwrap_or(Path::new("")), &pattern) {
            Ok(files) => files.iter().for_each(|file| {
                if let Err(problem) = append(file, &mut all) {
                    reader.error(offset, problem);
                }
            }),
            Err(problem) => reader.error(offset, problem),
        }
    }
    if reader.has_problems() { Err(reader.into_diagnostics()) } else { Ok(all) }
}

/// The files in `text`, which was read from `path`, each with its path. The first one is that at `path`.
pub(super) fn split<'t>(path: &Path, text: &'t [u8]) -> Vec<(PathBuf, &'t [u8])> {
    let mut parts = text.split(|byte| *byte == 0);
    let mut files = vec![(path.to_owned(), parts.next().unwrap_or_default())];
    while let (Some(path), Some(text)) = (parts.next(), parts.next()) {
        files.push((PathBuf::from(OsStr::from_bytes(path)), text));
    }
    files
}

/// The strings of `include` in `main`, each with its offset. Errors in the rest are reported when it is parsed.
fn patterns(main: &str, reader: &mut ConfigReader<'_>) -> Vec<(usize, String)> {
    let (root, _) = DeTable::parse_recoverable(main);
    let include = entries(root.get_ref(), EXAMPLE).into_iter().find(|entry| entry.key == "include");
    let strings = include.map(|entry| reader.strings(entry)).unwrap_or_default();
    strings.into_iter().map(|(offset, text)| (offset, text.to_owned())).collect()
}

/// The files that `pattern` names, relative to `base`.
fn included(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, Problem> {
    if !pattern.contains('*') {
        return Ok(vec![base.join(pattern)]);
    }
    let Some((folder, extension)) = folder_pattern::parse(pattern, base) else {
        let message = format!("`{pattern}` does not select the files of a folder");
        return Err(Problem::new(message, format!("write the folder and the extension of the files: {EXAMPLE}")));
    };
    let names = folder_pattern::list(&folder, &extension).map_err(|error| {
        let message = format!("cannot list the files in `{}`: {}", folder.display(), error_text(&error));
        Problem::new(message, "create the folder or correct the path")
    })?;
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Appends the text of `file` to `all`.
fn append(file: &Path, all: &mut Vec<u8>) -> Result<(), Problem> {
    let shown = file.display();
    let text = read_file(file, BYTES_MAX.saturating_sub(all.len() as u64)).map_err(|unreadable| match unreadable {
        Unreadable::Io(error) => Problem::new(
            format!("cannot read the included file `{shown}`: {}", error_text(&error)),
            "create the file or correct the path, and allow this user to read it",
        ),
        Unreadable::NotAFile => {
            Problem::new(format!("the included file `{shown}` is not a regular file"), "correct the path")
        }
        Unreadable::TooLarge => Problem::new(
            format!("with the included file `{shown}` the configuration is larger than {BYTES_MAX} bytes"),
            "include fewer files",
        ),
        Unreadable::HasNul => Problem::new(format!("the included file `{shown}` contains a NUL"), "correct the file"),
    })?;
    all.push(0);
    all.extend_from_slice(file.as_os_str().as_bytes());
    all.push(0);
    all.extend_from_slice(&text);
    Ok(())
}

enum Unreadable {
    Io(io::Error),
    NotAFile,
    TooLarge,
    HasNul,
}

fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Unreadable> {
    let mut content = Vec::new();
    // Without blocking: a FIFO at the file's path would block a reload forever.
    let file = sanderling_os::file::open_nonblocking(path).map_err(Unreadable::Io)?;
    if !file.metadata().map_err(Unreadable::Io)?.is_file() {
        return Err(Unreadable::NotAFile);
    }
    file.take(bytes_max + 1).read_to_end(&mut content).map_err(Unreadable::Io)?;
    if content.len() as u64 > bytes_max {
        return Err(Unreadable::TooLarge);
    }
    if content.contains(&0) { Err(Unreadable::HasNul) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use crate::config_source::ConfigSource;

    const MAIN: &str = "include = [\"sites/*.toml\", \"extra.toml\"]\n[limits]\nzone_include_depth_max = 3\n";
    const DOMAIN: &str = "[domain.\"NAME\"]\nzone = \"a.zone\"\n";

    /// The names of the zones of the main file and these included ones, or the messages.
    fn read(main: &str, files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("sites")).expect("a new directory");
        for (name, text) in files.iter().chain(&[("s.toml", main), ("a.zone", ""), ("sites/.a.toml", "not read")]) {
            std::fs::write(path(name), text).expect("writable");
        }
        let config = ConfigSource::File(path("s.toml")).load().map_err(|diagnostics| {
            let text: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
            text.join("\n").replace(&format!("{}/", directory.path().display()), "")
        })?;
        assert!(config.zones.iter().all(|zone| zone.file == path("a.zone")), "relative to the main file: {config:?}");
        Ok(config.zones.iter().map(|zone| zone.apex.to_string()).collect())
    }

    #[test]
    fn included_files_belong_to_the_configuration() {
        let (a, b, c) =
            (DOMAIN.replace("NAME", "a.test"), DOMAIN.replace("NAME", "b.test"), DOMAIN.replace("NAME", "c.test"));
        let zones = read(MAIN, &[("sites/b.toml", b.trim_end()), ("sites/a.toml", &a), ("extra.toml", &c)]);
        assert_eq!(zones, Ok(vec!["a.test".to_owned(), "b.test".to_owned(), "c.test".to_owned()]));
    }

    #[test]
    fn mistakes_are_reported_at_their_file() {
        let a = DOMAIN.replace("NAME", "a.test");
        let check = |main: &str, files: &[(&str, &str)], expected: &str| {
            assert_eq!(read(main, files), Err(expected.to_owned()));
        };
        check(
            MAIN,
            &[("sites/a.toml", &a), ("extra.toml", &format!("# two\n{a}"))],
            "extra.toml:2:9: duplicate key `a.test`; it is already set at sites/a.toml:1; remove one of the two\n\
             extra.toml:3:1: duplicate key `zone`; it is already set at sites/a.toml:2; remove one of the two",
        );
        check(
            MAIN,
            &[("sites/a.toml", &a), ("extra.toml", "workers = 2\n[http]\nlissten = []\n")],
            "extra.toml:1:1: `workers` is in an included file, before the first [section]; move it to s.toml",
        );
        check(
            MAIN,
            &[("sites/a.toml", &a), ("extra.toml", "[http]\nlissten = []\n")],
            "extra.toml:2:1: unknown key `lissten` in [http]; did you mean `listen`?",
        );
        check(MAIN, &[("sites/a.toml", &a), ("extra.toml", "[http")], "extra.toml:1:6: unclosed table; expected `]`");
        check(
            MAIN,
            &[("sites/a.toml", &a)],
            "s.toml:1:28: cannot read the included file `extra.toml`: No such file or directory; \
             create the file or correct the path, and allow this user to read it",
        );
        check(
            MAIN,
            &[("sites/a.toml", &a), ("extra.toml", "[http]\0")],
            "s.toml:1:28: the included file `extra.toml` contains a NUL; correct the file",
        );
        check(
            "include = [\"*/a.toml\"]",
            &[],
            "s.toml:1:12: `*/a.toml` does not select the files of a folder; write the folder and the extension of the \
             files: include = [\"sites/*.toml\"]",
        );
        check(
            "include = 3",
            &[],
            "s.toml:1:11: `include` must be a list of strings, not the number 3; write include = [\"sites/*.toml\"]",
        );
    }

    #[test]
    fn folder_without_files_includes_nothing() {
        let main = format!("include = [\"sites/*.toml\"]\n{}", DOMAIN.replace("NAME", "a.test"));
        assert_eq!(read(&main, &[]), Ok(vec!["a.test".to_owned()]));
    }
}
