//! The files of the other server: reads those that the command line names and those that they include, within limits.

use crate::syntax::{Position, Statement, SyntaxError, has_effect};
use std::path::{Path, PathBuf};

/// Bytes of one file.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of all files together, counted once for each time that one is included.
const BYTES_MAX: u64 = 64 << 20;
/// Files within files.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Files in total, counted once for each time that one is included.
const FILES_MAX: usize = 10_000;

/// Reads files. This crate itself does no I/O.
pub trait SourceFiles {
    /// The content of the file at `path`, of at most [`FILE_BYTES_MAX`].
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String>;

    /// The files at `pattern`, whose last segment can have `*` and `?`, in the order of their names.
    ///
    /// # Errors
    /// Why the folder cannot be listed.
    fn list(&mut self, pattern: &Path) -> Result<Vec<PathBuf>, String>;
}

/// Parses the text of a file with this index; the last argument says whether a block includes it.
pub(crate) type Parse = fn(&str, usize, bool) -> Result<Vec<Statement>, SyntaxError>;

/// The files that were read.
pub(crate) struct Sources<'f> {
    files: &'f mut dyn SourceFiles,
    parse: Parse,
    /// The names of included files are relative to this directory.
    directory: PathBuf,
    pub(crate) paths: Vec<PathBuf>,
    byte_count: u64,
    /// Included files that cannot be read.
    pub(crate) unreadable: Vec<(Position, String)>,
}

/// Why a file has no statements.
enum LoadError {
    /// It cannot be read: an included one may be of a package that is not installed here.
    Unreadable(SyntaxError),
    Invalid(SyntaxError),
}

impl From<LoadError> for SyntaxError {
    fn from(error: LoadError) -> SyntaxError {
        let (LoadError::Unreadable(error) | LoadError::Invalid(error)) = error;
        error
    }
}

impl<'f> Sources<'f> {
    pub(crate) fn new(files: &'f mut dyn SourceFiles, parse: Parse, first: &Path) -> Sources<'f> {
        let directory = first.parent().unwrap_or(Path::new("")).to_owned();
        Sources { files, parse, directory, paths: Vec::new(), byte_count: 0, unreadable: Vec::new() }
    }

    /// The statements of the file at `path`.
    pub(crate) fn load(&mut self, path: &Path) -> Result<Vec<Statement>, SyntaxError> {
        Ok(self.load_nested(path, false)?)
    }

    fn load_nested(&mut self, path: &Path, is_nested: bool) -> Result<Vec<Statement>, LoadError> {
        let file = self.paths.len();
        self.paths.push(path.to_owned());
        let at = Position { file, line: 1, column: 1 };
        let fail = |message: String| Err(LoadError::Invalid(SyntaxError { at, message }));
        if self.paths.len() > FILES_MAX {
            return fail(format!("more than {FILES_MAX} files are included"));
        }
        let unreadable = |error: String| {
            LoadError::Unreadable(SyntaxError { at, message: format!("cannot read the file: {error}") })
        };
        // In the result and in the report, it could look like another name.
        if path.to_string_lossy().contains(has_effect) {
            return Err(unreadable("its name has control characters; rename it".to_owned()));
        }
        let bytes = self.files.read(path).map_err(unreadable)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return fail(format!("the file is larger than {} MiB", FILE_BYTES_MAX >> 20));
        }
        self.byte_count += bytes.len() as u64;
        if self.byte_count > BYTES_MAX {
            return fail(format!("all files together are larger than {} MiB", BYTES_MAX >> 20));
        }
        (self.parse)(&String::from_utf8_lossy(&bytes), file, is_nested).map_err(LoadError::Invalid)
    }

    /// Puts the statements of each file that `pattern_of` names in place of the statement.
    pub(crate) fn expand(
        &mut self,
        statements: Vec<Statement>,
        pattern_of: &dyn Fn(&Statement) -> Option<String>,
    ) -> Result<Vec<Statement>, SyntaxError> {
        self.expand_at(statements, pattern_of, 0, false)
    }

    fn expand_at(
        &mut self,
        statements: Vec<Statement>,
        pattern_of: &dyn Fn(&Statement) -> Option<String>,
        depth: usize,
        is_nested: bool,
    ) -> Result<Vec<Statement>, SyntaxError> {
        let mut expanded = Vec::with_capacity(statements.len());
        for mut statement in statements {
            let Some(pattern) = pattern_of(&statement) else {
                for block in &mut statement.blocks {
                    *block = self.expand_at(std::mem::take(block), pattern_of, depth, true)?;
                }
                expanded.push(statement);
                continue;
            };
            let at = statement.name.at;
            if depth == INCLUDE_DEPTH_MAX {
                let message = format!("files are included more than {INCLUDE_DEPTH_MAX} levels deep");
                return Err(SyntaxError { at, message });
            }
            let paths = match self.included(&pattern) {
                Ok(paths) => paths,
                Err(message) => {
                    self.unreadable.push((at, message));
                    expanded.push(statement);
                    continue;
                }
            };
            for path in paths {
                match self.load_nested(&path, is_nested) {
                    Ok(included) => expanded.extend(self.expand_at(included, pattern_of, depth + 1, is_nested)?),
                    Err(LoadError::Unreadable(error)) => {
                        self.unreadable.push((at, format!("{}: {}", path.display(), error.message)));
                        expanded.push(statement.clone());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(expanded)
    }

    /// The files that `pattern` means.
    fn included(&mut self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let path = self.directory.join(pattern);
        if !pattern.contains(['*', '?', '[']) {
            return Ok(vec![path]);
        }
        self.files.list(&path).map_err(|error| format!("{}: cannot list the files: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::nginx::parse;

    /// Files of these sizes, by their names.
    struct Blank(&'static [(&'static str, u64)]);

    impl SourceFiles for Blank {
        fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
            let found = self.0.iter().find(|(name, _)| Path::new(name) == path).ok_or("there is none")?;
            Ok(vec![b' '; found.1 as usize])
        }

        fn list(&mut self, _: &Path) -> Result<Vec<PathBuf>, String> {
            Err("there is no such folder".to_owned())
        }
    }

    #[test]
    fn included_files_that_cannot_be_listed_or_read_are_noted() {
        let statements = parse(
            "include a/*.conf;
http { include b.conf; }
",
            0,
            false,
        )
        .expect("parsed");
        let mut files = Blank(&[]);
        let mut sources = Sources::new(&mut files, parse, Path::new("main"));
        let expanded = sources
            .expand(statements.clone(), &|it| (it.name() == "include").then(|| it.argument(0).to_owned()))
            .expect("expanded");
        assert_eq!(expanded, statements);
        let noted: Vec<_> = sources.unreadable.iter().map(|(at, message)| (at.line, message.as_str())).collect();
        let expected = [
            (1, "a/*.conf: cannot list the files: there is no such folder"),
            (2, "b.conf: cannot read the file: there is none"),
        ];
        assert_eq!(noted, expected);
    }

    #[test]
    fn file_with_control_characters_in_its_name_is_not_read() {
        for name in ["a\n[limits]", "a\u{1b}[2J", "a\u{202e}b"] {
            let mut files = Blank(&[]);
            let mut sources = Sources::new(&mut files, parse, Path::new("main"));
            let error = sources.load(Path::new(name)).expect_err("refused").message;
            assert_eq!(error, "cannot read the file: its name has control characters; rename it");
        }
    }

    #[test]
    fn file_and_all_files_together_have_a_limit() {
        let mut files = Blank(&[("large", FILE_BYTES_MAX), ("larger", FILE_BYTES_MAX + 1)]);
        let mut sources = Sources::new(&mut files, parse, Path::new("large"));
        let mut load = |name: &str| sources.load(Path::new(name)).map_err(|error| error.message);
        assert_eq!(load("larger").expect_err("refused"), "the file is larger than 16 MiB");
        assert_eq!(load("none").expect_err("refused"), "cannot read the file: there is none");
        (0..BYTES_MAX / FILE_BYTES_MAX).for_each(|_| drop(load("large").expect("loaded")));
        assert_eq!(load("large").expect_err("refused"), "all files together are larger than 64 MiB");
    }
}
