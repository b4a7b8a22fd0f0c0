//! The tree of installed files, from which all archives are made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::components::Components;
use super::release::Release;
use super::{emptied, put};
use crate::program::{Log, Program};

const DOCUMENTATION: &str = "usr/share/doc/sanderling";
/// The folder of completions in zsh itself. That of Debian's packages is another one.
pub(super) const ZSH: &str = "usr/share/zsh/site-functions";
pub(super) const ZSH_OF_DEBIAN: &str = "usr/share/zsh/vendor-completions";

/// Files of the sources, and where they are installed.
const FILES: &[(&str, &str)] = &[
    ("packaging/sanderling.service", "usr/lib/systemd/system/sanderling.service"),
    ("packaging/sanderling.sysusers", "usr/lib/sysusers.d/sanderling.conf"),
    ("packaging/sanderling.tmpfiles", "usr/lib/tmpfiles.d/sanderling.conf"),
    ("packaging/sanderling-http.socket", "usr/share/doc/sanderling/sanderling-http.socket"),
    ("packaging/sanderling-dns.socket", "usr/share/doc/sanderling/sanderling-dns.socket"),
    ("packaging/sanderling.toml", "usr/share/doc/sanderling/sanderling.toml"),
    ("packaging/debian/copyright", "usr/share/doc/sanderling/copyright"),
    ("LICENSE-APACHE", "usr/share/doc/sanderling/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/sanderling/LICENSE-MIT"),
    ("CHANGELOG.md", "usr/share/doc/sanderling/changelog"),
];
/// Files that are read by programs which decompress them.
const COMPRESSED: &[&str] = &["usr/share/doc/sanderling/changelog", "usr/share/doc/sanderling/THIRD-PARTY.txt"];

/// Makes a tree in a folder of this name, with the completions of zsh in `zsh`.
pub(super) fn tree(
    release: &Release,
    components: &Components,
    (name, zsh): (&str, &str),
    log: &mut Log,
) -> Result<PathBuf, String> {
    let root = release.work.join(name);
    emptied(&root)?;
    install(&release.stripped_program, &root.join("usr/bin/sanderling"), 0o755)?;
    for (source, installed) in FILES {
        install(&release.sources.join(source), &root.join(installed), 0o644)?;
    }
    put(&root.join(DOCUMENTATION).join("THIRD-PARTY.txt"), &components.licence_texts()?)?;
    let man = root.join("usr/share/man/man1");
    generate(release, "man", &man, log)?;
    generate(release, "completions bash", &root.join("usr/share/bash-completion/completions"), log)?;
    generate(release, "completions zsh", &root.join(zsh), log)?;
    generate(release, "completions fish", &root.join("usr/share/fish/vendor_completions.d"), log)?;
    let completions = root.join("usr/share/bash-completion/completions");
    // bash looks for a file with the name of the command.
    let renamed = fs::rename(completions.join("sanderling.bash"), completions.join("sanderling"));
    renamed.map_err(|error| format!("{}: {error}", completions.display()))?;
    let mut compressed: Vec<PathBuf> = COMPRESSED.iter().map(|name| root.join(name)).collect();
    compressed.extend(files_of(&man)?);
    let compressed: Vec<String> = compressed.iter().map(|file| file.to_string_lossy().into_owned()).collect();
    // Without name and time of the file.
    Program::new("gzip").args("--best --no-name --").args_of(&compressed).run_silently(log)?;
    set_modes(&root)?;
    Ok(root)
}

/// Adds what is a file of the operator after the installation.
pub(super) fn add_configuration(release: &Release, root: &Path) -> Result<(), String> {
    install(&release.sources.join("packaging/sanderling.toml"), &root.join("etc/sanderling/sanderling.toml"), 0o644)?;
    create(&root.join("etc/sanderling/zones"))?;
    set_modes(root)
}

/// Copies a file, and creates the folders above it.
pub(super) fn install(source: &Path, installed: &Path, mode: u32) -> Result<(), String> {
    create(installed.parent().unwrap_or(installed))?;
    let failed = |error| format!("cannot copy {} to {}: {error}", source.display(), installed.display());
    fs::copy(source, installed).map_err(failed)?;
    fs::set_permissions(installed, PermissionsExt::from_mode(mode)).map_err(failed)
}

pub(super) fn create(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Calls `sanderling generate`, which writes into `folder`.
fn generate(release: &Release, what: &str, folder: &Path, log: &mut Log) -> Result<(), String> {
    create(folder)?;
    let program = Program::new(&release.stripped_program.to_string_lossy()).args("generate").args(what);
    program.args("--into").args_of(&[folder.to_string_lossy().into_owned()]).run_silently(log)
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
    files.sort();
    Ok(files)
}

/// 755 for folders and programs, 644 for other files, whatever the umask.
pub(super) fn set_modes(root: &Path) -> Result<(), String> {
    for path in files_of(root)? {
        let metadata = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mode = if metadata.is_dir() || metadata.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 };
        let set = fs::set_permissions(&path, PermissionsExt::from_mode(mode));
        set.map_err(|error| format!("{}: {error}", path.display()))?;
        if metadata.is_dir() {
            set_modes(&path)?;
        }
    }
    fs::set_permissions(root, PermissionsExt::from_mode(0o755)).map_err(|error| format!("{}: {error}", root.display()))
}
