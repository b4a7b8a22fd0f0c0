//! Temporary directories.

use crate::DEADLINE;
use crate::command::{Ended, run_to_end, sanderling};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A directory for one test; dropping it removes it.
#[derive(Debug)]
pub struct TestDirectory(TempDir);

impl TestDirectory {
    /// An empty directory.
    #[expect(clippy::new_without_default, reason = "creating a directory is not a default")]
    pub fn new() -> TestDirectory {
        let directory = TempDir::with_prefix("sanderling-").expect("the directory for temporary files is writable");
        // Root serves as another user, which must reach it.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        TestDirectory(directory)
    }

    /// A directory with these files; their paths may contain directories.
    pub fn with(files: &[(&str, &[u8])]) -> TestDirectory {
        let directory = TestDirectory::new();
        for (path, content) in files {
            directory.write(path, content);
        }
        directory
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in it, as an argument.
    pub fn argument(&self, path: &str) -> String {
        self.0.path().join(path).to_str().expect("the prefix and the paths of tests are UTF-8").to_owned()
    }

    /// Writes a file and the directories above it.
    pub fn write(&self, path: &str, content: &[u8]) -> PathBuf {
        let file = self.0.path().join(path);
        let directory = file.parent().expect("a file has a directory");
        fs::create_dir_all(directory).expect("the directory can be created");
        fs::write(&file, content).expect("the file can be written");
        file
    }

    /// Writes another file and renames it to `path`, so that no reader sees a part of it.
    pub fn replace(&self, path: &str, content: &[u8]) {
        let replacement = self.write("replacement", content);
        fs::rename(replacement, self.0.path().join(path)).expect("the file can be renamed");
    }

    /// `sanderling serve` with `sanderling.toml` of this directory and a control socket in it.
    pub fn serve_command(&self) -> Command {
        let mut command = sanderling();
        command.args(["serve", "--config", &self.argument("sanderling.toml"), "--control", &self.argument("control")]);
        command
    }

    /// Runs a control command for the server of [`TestDirectory::serve_command`].
    #[track_caller]
    pub fn control(&self, name: &str) -> Ended {
        self.control_with(name, &[])
    }

    /// Runs the command with further arguments.
    #[track_caller]
    pub fn control_with(&self, name: &str, arguments: &[&str]) -> Ended {
        let mut command = sanderling();
        command.args([name, "--control", &self.argument("control")]).args(arguments);
        run_to_end(command, DEADLINE)
    }
}
