//! The configuration text: its file, the files that it includes, and the variables of the environment that they use.
//!
//! One process reads the text and passes it on to others, so that all have the same text, and the same values of
//! variables: the environment of a child has none of them, and that of a running process does not change. Between the
//! texts of two files is a NUL, the path of the second one, and another NUL, which TOML does not allow anywhere. After
//! the files, each variable that is set follows in the same way, with an empty path and the text `NAME=value`.

use crate::config_reader::{ConfigReader, entries};
use crate::diagnostic::{Diagnostic, Location, Problem, error_text};
use crate::folder_pattern;
use crate::variables::{self, Variables};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

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

/// Reads the file at `path` and those that it includes, and takes the values of their variables from the environment.
///
/// # Errors
/// Returns the reason why the files cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Vec<Diagnostic>> {
    read_with(path, variables::of_environment)
}

/// Reads the same, with the values of variables that `value_of` returns.
pub(super) fn read_with(path: &Path, value_of: fn(&str) -> Option<String>) -> Result<Vec<u8>, Vec<Diagnostic>> {
    let mut all = read_main(path)?;
    let main = String::from_utf8_lossy(&all).into_owned();
    let files = [(path.into(), main.as_bytes())];
    let variables = variables_of(&[&main], value_of);
    let mut reader = ConfigReader::new(&files, &variables);
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
    if reader.has_problems() {
        return Err(reader.into_diagnostics());
    }
    let (files, _) = split(path, &all);
    let texts: Vec<Cow<'_, str>> = files.iter().map(|(_, text)| String::from_utf8_lossy(text)).collect();
    for (name, value) in variables_of(&texts, value_of).iter() {
        all.extend_from_slice(format!("\0\0{name}={value}").as_bytes());
    }
    Ok(all)
}

/// The files in `text`, which was read from `path`, each with its path, and the variables. The first file is that at
/// `path`.
pub(super) fn split<'t>(path: &Path, text: &'t [u8]) -> (Vec<(PathBuf, &'t [u8])>, Variables) {
    let mut parts = text.split(|byte| *byte == 0);
    let mut files = vec![(path.to_owned(), parts.next().unwrap_or_default())];
    let mut variables = Variables::default();
    while let (Some(path), Some(text)) = (parts.next(), parts.next()) {
        if !path.is_empty() {
            files.push((PathBuf::from(OsStr::from_bytes(path)), text));
        } else if let Some((name, value)) = String::from_utf8_lossy(text).split_once('=') {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    (files, variables)
}

/// The variables in the strings of these files that `value_of` knows. Syntax errors are reported when the files are
/// parsed.
fn variables_of(texts: &[impl AsRef<str>], value_of: fn(&str) -> Option<String>) -> Variables {
    let mut variables = Variables::default();
    // An escape may stand for a part of `${`.
    for text in texts.iter().map(AsRef::as_ref).filter(|text| text.contains("${") || text.contains('\\')) {
        let (root, _) = DeTable::parse_recoverable(text);
        let mut values: Vec<&DeValue<'_>> = root.get_ref().values().map(|value| value.get_ref()).collect();
        while let Some(value) = values.pop() {
            match value {
                DeValue::String(text) => variables.add_from(text, value_of),
                DeValue::Array(items) => values.extend(items.iter().map(|item| item.get_ref())),
                DeValue::Table(table) => values.extend(table.values().map(|value| value.get_ref())),
                _ => {}
            }
        }
    }
    variables
}

/// The strings of `include` in `main`, each with its offset; none if a variable in them is not set. Errors in the rest
/// are reported when it is parsed.
fn patterns(main: &str, reader: &mut ConfigReader<'_>) -> Vec<(usize, String)> {
    let (mut root, _) = DeTable::parse_recoverable(main);
    if let Some(include) = root.get_mut().get_mut("include") {
        reader.substitute_in_value(include, 0);
    }
    if reader.has_problems() {
        return Vec::new();
    }
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
    use super::{read_with, split};
    use crate::config_file::parse;
    use crate::config_source::ConfigSource;
    use std::path::PathBuf;

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

    /// The paths below the folder and the variables of a text with this main file, or the messages.
    fn read_variables(main: &str, files: &[(&str, &str)]) -> Result<(Vec<PathBuf>, Vec<String>), String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("sites")).expect("a new directory");
        for (name, text) in files.iter().chain(&[("s.toml", main)]) {
            std::fs::write(path(name), text).expect("writable");
        }
        let value_of = |name: &str| match name {
            "FOLDER" => Some("sites".to_owned()),
            "SECRET" | "NEVER_USED" => Some("a = b".to_owned()),
            _ => None,
        };
        let shown = |text: String| text.replace(&format!("{}/", directory.path().display()), "");
        let problems = |all: Vec<crate::diagnostic::Diagnostic>| {
            shown(all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        };
        let text = read_with(&path("s.toml"), value_of).map_err(problems)?;
        let (files, variables) = split(&path("s.toml"), &text);
        let files = files.iter().map(|(path, _)| path.strip_prefix(directory.path()).expect("below").into()).collect();
        parse(&path("s.toml"), &text).map_err(problems)?;
        Ok((files, variables.iter().map(|(name, value)| format!("{name}={value}")).collect()))
    }

    #[test]
    fn text_has_the_variables_that_its_strings_use() {
        let domain = "[domain.\"a.test\"]\nsite = \"${FOLDER}\"\n# ${NEVER_USED}\n\
                      headers.\"/\" = { x = \"${SECRET} $${NEVER_USED}\" }\n";
        let read = read_variables("include = [\"${FOLDER}/*.toml\"]", &[("sites/a.toml", domain)]);
        let expected = (
            vec![PathBuf::from("s.toml"), PathBuf::from("sites/a.toml")],
            vec!["FOLDER=sites".to_owned(), "SECRET=a = b".to_owned()],
        );
        assert_eq!(read, Ok(expected));
        let only_main = |variables: &[&str]| {
            Ok((vec![PathBuf::from("s.toml")], variables.iter().map(|&text| text.to_owned()).collect()))
        };
        assert_eq!(read_variables(domain, &[]), only_main(&["FOLDER=sites", "SECRET=a = b"]));
        assert_eq!(read_variables("[domain.\"a.test\"]\nsite = \".\"\n", &[]), only_main(&[]));
    }

    #[test]
    fn unset_variable_is_reported_where_it_is_used() {
        const REMEDY: &str = "set it for the server, for example with Environment= in its unit file, and for this \
                              command; or write `$${…}` for the text itself";
        let check = |main: &str, included: &str, expected: &str| {
            let expected = format!("{expected} is not set; {REMEDY}");
            assert_eq!(read_variables(main, &[("sites/a.toml", included)]), Err(expected), "{main}");
        };
        check("include = [\"x\", \"${UNSET}/*.toml\"]", "", "s.toml:1:17: the environment variable `UNSET`");
        check(
            "include = [\"${FOLDER}/a.toml\"]\n",
            "[domain.\"a.test\"]\n  site = \"${FOLDER}\"\n  zone = \"${UNSET}\"",
            "sites/a.toml:3:10: the environment variable `UNSET`",
        );
    }
}
