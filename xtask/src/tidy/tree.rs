//! The text files of the project, read once for all rules.

use std::fs;
use std::io;
use std::path::Path;

/// Folders that hold nothing of ours: what git and cargo keep, and what fuzzing leaves behind.
const SKIPPED_FOLDERS: &[&str] = &[".git", "target", "corpus", "artifacts"];
/// Written by cargo.
const SKIPPED_FILES: &[&str] = &["Cargo.lock"];
/// Folders within folders; a tree that is deeper has a circle of links in it.
const DEPTH_MAX: usize = 16;

/// A text file.
pub(super) struct TreeFile {
    /// From the root of the tree, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// All text files, by path; and the paths of all the others, such as pictures.
pub(super) struct Tree {
    pub(super) files: Vec<TreeFile>,
    others: Vec<String>,
}

impl Tree {
    /// Reads everything below `root` but what git, cargo and fuzzing keep there.
    pub(super) fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree { files: Vec::new(), others: Vec::new() };
        tree.read_folder(root, "", 0)?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// A tree of examples.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| TreeFile { path: path.to_owned(), text: text.to_owned() };
        Tree { files: files.iter().map(file).collect(), others: Vec::new() }
    }

    /// The file of this path, when it is text.
    pub(super) fn file(&self, path: &str) -> Option<&TreeFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether the path is a file, of text or not, or a folder that holds one.
    pub(super) fn holds(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let is_or_holds = |candidate: &str| match candidate.strip_prefix(path) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        self.files.iter().any(|file| is_or_holds(&file.path)) || self.others.iter().any(|other| is_or_holds(other))
    }

    /// The files whose names end in `suffix`.
    pub(super) fn ending<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = &'a TreeFile> {
        self.files.iter().filter(move |file| file.path.ends_with(suffix))
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("`{prefix}` lies more than {DEPTH_MAX} folders deep; is there a circle of links?"));
        }
        let failed = |error: io::Error| format!("`{}` cannot be read: {error}", folder.display());
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            if entry.file_type().map_err(failed)?.is_dir() {
                if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                    self.read_folder(&entry.path(), &path, depth + 1)?;
                }
            } else if !SKIPPED_FILES.contains(&name.as_str()) {
                self.read_file(&entry.path(), path)?;
            }
        }
        Ok(())
    }

    /// A file that is gone is passed over: an editor's, or one that a test run beside us just removed.
    fn read_file(&mut self, file: &Path, path: String) -> Result<(), String> {
        match fs::read(file) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => self.files.push(TreeFile { path, text }),
                Err(_) => self.others.push(path),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("`{path}` cannot be read: {error}")),
        }
        Ok(())
    }
}
