//! The command `import`: reads the configuration of another server, and writes one of this server with a report.

use crate::init::{write_configuration, write_new};
use sanderling_config::diagnostic::{Diagnostic, error_text};
use sanderling_config::log::printable_in_line;
use sanderling_config::{ConfigSource, DEFAULT_FILES};
use sanderling_import::{FILE_BYTES_MAX, SourceFiles, SourceKind, import};
use sanderling_os::file::open_regular;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Only its owner reads the report: it quotes statements, and some of them have secrets.
const REPORT_MODE: u32 = 0o600;

/// An import.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ImportCommand {
    pub(crate) kind: SourceKind,
    pub(crate) files: Vec<PathBuf>,
    /// The file to write, or standard output.
    pub(crate) out: Option<PathBuf>,
    /// The report to write, or standard error.
    pub(crate) report: Option<PathBuf>,
}

impl ImportCommand {
    /// Writes the configuration and the report.
    ///
    /// # Errors
    /// A file cannot be read, parsed or written, or nothing of them can be served.
    pub(crate) fn run(&self) -> Result<(), String> {
        let imported = import(self.kind, &self.files, &mut Disk).map_err(|errors| errors.join("\n"))?;
        let file = self.out.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILES[0]));
        let mut report = imported.report.to_string();
        if imported.has_content
            && let Err(problems) = ConfigSource::File(file).parse(imported.config.as_bytes())
        {
            report.push_str("\nCorrect these errors in the result:\n");
            let line = |problem: &Diagnostic| format!("{}\n", printable_in_line(&problem.to_string()));
            problems.iter().for_each(|problem| report.push_str(&line(problem)));
        }
        write(self.out.as_deref(), &mut io::stdout(), &imported.config, write_configuration)?;
        write(self.report.as_deref(), &mut io::stderr(), &report, |path, text| write_new(path, text, REPORT_MODE))?;
        if imported.has_content { Ok(()) } else { Err("nothing in the files can be served".to_owned()) }
    }
}

/// Writes `text` with `write_file` to the file at `path`, or to `stream` without one.
fn write(
    path: Option<&Path>,
    stream: &mut dyn Write,
    text: &str,
    write_file: fn(&Path, &str) -> Result<(), String>,
) -> Result<(), String> {
    match path {
        None => stream.write_all(text.as_bytes()).map_err(|error| format!("cannot write: {}", error_text(&error))),
        Some(path) => write_file(path, text),
    }
}

/// The files of this machine.
struct Disk;

impl SourceFiles for Disk {
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let text = |error: io::Error| error_text(&error);
        let file = open_regular(path).map_err(text)?;
        let mut content = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(text)?;
        Ok(content)
    }

    fn list(&mut self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let (folder, name) = (pattern.parent().unwrap_or(Path::new("")), pattern.file_name().unwrap_or_default());
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let name = name.to_string_lossy();
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| error_text(&error))? {
            let entry = entry.map_err(|error| error_text(&error))?;
            if entry.file_name().to_str().is_some_and(|found| is_match(&name, found)) && entry.path().is_file() {
                paths.push(entry.path());
            }
        }
        paths.sort();
        Ok(paths)
    }
}

/// Whether a pattern with `*` and `?` matches a name. Hidden files are matched only by a pattern with a dot.
fn is_match(pattern: &str, name: &str) -> bool {
    fn matches(pattern: &[char], name: &[char]) -> bool {
        let (mut at, mut from, mut retry) = (0, 0, None);
        while from < name.len() {
            match pattern.get(at) {
                Some('*') => {
                    retry = Some((at, from));
                    at += 1;
                }
                Some(&next) if next == '?' || next == name[from] => {
                    at += 1;
                    from += 1;
                }
                _ => match retry {
                    Some((star, start)) => {
                        retry = Some((star, start + 1));
                        at = star + 1;
                        from = start + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|&next| next == '*')
    }
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    (!name.starts_with('.') || pattern.starts_with('.')) && matches(&chars(pattern), &chars(name))
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("*.conf", ".a.conf", false),
            ("*", "a", true),
            ("a?c*", "abcd", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("", "a", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }
}
