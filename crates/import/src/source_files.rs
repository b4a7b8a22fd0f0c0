//! The files of the other server: reads those that the command line names and those that they include, within limits.

use crate::syntax::{Position, Statement, SyntaxError};
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

impl<'f> Sources<'f> {
    pub(crate) fn new(files: &'f mut dyn SourceFiles, parse: Parse, first: &Path) -> Sources<'f> {
        let directory = first.parent().unwrap_or(Path::new("")).to_owned();
        Sources { files, parse, directory, paths: Vec::new(), byte_count: 0, unreadable: Vec::new() }
    }

    /// The statements of the file at `path`.
    pub(crate) fn load(&mut self, path: &Path) -> Result<Vec<Statement>, SyntaxError> {
        self.load_nested(path, false)
    }

    fn load_nested(&mut self, path: &Path, is_nested: bool) -> Result<Vec<Statement>, SyntaxError> {
        let file = self.paths.len();
        self.paths.push(path.to_owned());
        let at = Position { file, line: 1, column: 1 };
        let fail = |message: String| Err(SyntaxError { at, message });
        if self.paths.len() > FILES_MAX {
            return fail(format!("more than {FILES_MAX} files are included"));
        }
        let bytes = match self.files.read(path) {
            Ok(bytes) => bytes,
            Err(error) => return fail(format!("cannot read the file: {error}")),
        };
        self.byte_count += bytes.len() as u64;
        if bytes.len() as u64 > FILE_BYTES_MAX || self.byte_count > BYTES_MAX {
            return fail(format!("the files are larger than {} MiB", BYTES_MAX >> 20));
        }
        (self.parse)(&String::from_utf8_lossy(&bytes), file, is_nested)
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
            for path in self.included(&pattern, at) {
                match self.load_nested(&path, is_nested) {
                    Ok(included) => expanded.extend(self.expand_at(included, pattern_of, depth + 1, is_nested)?),
                    // A file of a package that is not installed here.
                    Err(error) if error.message.starts_with("cannot read") => {
                        let message = format!("{}: {}", path.display(), error.message);
                        self.unreadable.push((at, message));
                        expanded.push(statement.clone());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(expanded)
    }

    /// The files that `pattern` means.
    fn included(&mut self, pattern: &str, at: Position) -> Vec<PathBuf> {
        let path = self.directory.join(pattern);
        if !pattern.contains(['*', '?', '[']) {
            return vec![path];
        }
        self.files.list(&path).unwrap_or_else(|error| {
            self.unreadable.push((at, format!("{}: cannot list the files: {error}", path.display())));
            Vec::new()
        })
    }
}
