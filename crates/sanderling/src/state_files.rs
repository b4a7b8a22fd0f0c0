//! The commands `backup` and `export`: copies of the state folder's content. The commands need no running server, and
//! do not change the state folder.

use crate::stored_certificate::StoredCertificate;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::print;
use sanderling_config::{Config, ConfigSource, DEFAULT_STATE, DomainName};
use sanderling_keeper::key_transfer;
use sanderling_state::{CHAIN_FILE, KEY_FILE};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The private key and the chain in one file, in the order that HAProxy and Exim need.
const COMBINED_FILE: &str = "combined.pem";

/// A copy that is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StateCommand {
    /// The location of the state folder.
    pub(crate) state: StateLocation,
    pub(crate) action: StateAction,
}

/// The way in which the state folder is found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StateLocation {
    Folder(PathBuf),
    /// The key `state` of a configuration, else the default.
    Configuration(ConfigSource),
    Default,
}

/// The content to copy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StateAction {
    /// Copies the whole state folder to a new folder.
    Backup(PathBuf),
    /// A certificate with its key, to files in a folder.
    Export(DomainName, PathBuf),
    /// A zone's keys, to files in a folder.
    ExportKeys(DomainName, PathBuf),
    /// Keys of a zone, from these files.
    ImportKeys(DomainName, Vec<PathBuf>),
}

impl StateAction {
    /// The name of the command.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            StateAction::Backup(_) => "backup",
            StateAction::Export(..) => "export",
            StateAction::ExportKeys(..) => "dnssec export",
            StateAction::ImportKeys(..) => "dnssec import",
        }
    }
}

impl StateCommand {
    /// # Errors
    /// Returns the problem and its remedy.
    pub(crate) fn run(self) -> Result<(), String> {
        let state = self.state.path()?;
        match self.action {
            StateAction::Backup(target) => {
                let count = sanderling_state::copy(&state, &target).map_err(|error| error.to_string())?;
                print(&format!("{count} files of {} are in {}\n", state.display(), target.display()));
                Ok(())
            }
            StateAction::Export(_, target) | StateAction::ExportKeys(_, target) if !target.is_dir() => {
                Err(format!("there is no folder {}; create it for the files", target.display()))
            }
            StateAction::Export(name, target) => export(&state, &name, &target),
            StateAction::ExportKeys(zone, target) => export_keys(&state, &zone, &target),
            StateAction::ImportKeys(zone, files) => {
                let tags = key_transfer::import(&state, &zone, &files)?;
                let tags = tags.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                print(&format!(
                    "keys of {zone}: {tags}; the zone will be signed with them as soon as it has `dnssec`\n"
                ));
                Ok(())
            }
        }
    }
}

impl StateLocation {
    fn path(self) -> Result<PathBuf, String> {
        match self {
            StateLocation::Folder(path) => Ok(path),
            StateLocation::Configuration(source) => {
                let config = source
                    .load()
                    .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
                Ok(StateLocation::of(&config))
            }
            StateLocation::Default => Ok(PathBuf::from(DEFAULT_STATE)),
        }
    }

    /// The state folder of `config`.
    pub(crate) fn of(config: &Config) -> PathBuf {
        config.state.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_STATE))
    }
}

/// # Errors
/// Returns an error if `target` is not a folder to write files into.
fn check_target(target: &Path) -> Result<(), String> {
    match fs::metadata(target) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is not a folder; specify a folder", target.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("the folder {} does not exist; create it", target.display()))
        }
        Err(error) => Err(format!("cannot reach {}: {}", target.display(), error_text(&error))),
    }
}

/// Writes the keys of `zone` to the folder `target`.
fn export_keys(state: &Path, zone: &DomainName, target: &Path) -> Result<(), String> {
    check_target(target)?;
    for key in key_transfer::export(state, zone)? {
        for (extension, content, mode) in [("private", &*key.private, 0o600), ("key", &key.public, 0o644)] {
            let path = target.join(format!("{}.{extension}", key.name));
            replace(&path, content.as_bytes(), mode)
                .map_err(|error| format!("cannot write {}: {}", path.display(), error_text(&error)))?;
        }
        print(&format!("{0}.private and {0}.key are in {1}\n", key.name, target.display()));
    }
    Ok(())
}

/// Writes the certificate of `name` to the folder `target`. Files that exist keep their owner and mode.
fn export(state: &Path, name: &DomainName, target: &Path) -> Result<(), String> {
    check_target(target)?;
    let stored = StoredCertificate::read(state, name)?.ok_or_else(|| {
        format!(
            "{} has no certificate of {name}; `sanderling certificates` lists the server's certificates, and \
                `--state` sets its folder",
            state.display()
        )
    })?;
    if !stored.is_for(name) {
        return Err(format!(
            "the certificate of {name} does not cover that name, only others of the domain; `sanderling certificates` \
                says why"
        ));
    }
    let (chain, key) = (&stored.chain, &stored.key);
    let combined = Zeroizing::new([&key[..], &chain[..]].concat());
    for (file, content, mode) in [(KEY_FILE, key, 0o600), (CHAIN_FILE, chain, 0o644), (COMBINED_FILE, &combined, 0o600)]
    {
        let path = target.join(file);
        replace(&path, content, mode)
            .map_err(|error| format!("cannot write {}: {}", path.display(), error_text(&error)))?;
    }
    print(&format!("{KEY_FILE}, {CHAIN_FILE} and {COMBINED_FILE} of {name} are in {}\n", target.display()));
    Ok(())
}

/// Gives the file at `path` this content atomically, and `mode` if it is new. A link there is replaced, not followed.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = path.with_file_name(format!(".new-{name}"));
    let before = fs::metadata(path).ok();
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(content).and_then(|()| {
        if let Some(before) = &before {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        let mode = before.as_ref().map_or(mode, |before| before.mode() & 0o777);
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&temporary, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_certificate::tests::{pem_for, state_for};

    #[test]
    fn exported_files_keep_their_mode_and_have_the_key_first() {
        let (empty, target) = (tempfile::tempdir().expect("created"), tempfile::tempdir().expect("created"));
        let name = DomainName::parse("example.com").expect("a name");
        export(empty.path(), &name, target.path()).expect_err("there is none");
        let missing = target.path().join("missing");
        let problem = export(empty.path(), &name, &missing).expect_err("there is no folder");
        assert_eq!(problem, format!("the folder {} does not exist; create it", missing.display()));
        let state = state_for("example.com");
        let run = || export(state.path(), &name, target.path()).expect("exported");
        let found = |file: &str| {
            let path = target.path().join(file);
            let mode = fs::metadata(&path).expect("exported").mode() & 0o777;
            (fs::read_to_string(path).expect("read"), mode)
        };
        let stored =
            |file: &str| fs::read_to_string(state.path().join("certificates/example.com").join(file)).expect("stored");
        run();
        let (chain, key) = (stored(CHAIN_FILE), stored(KEY_FILE));
        assert_eq!(found(KEY_FILE), (key.clone(), 0o600));
        assert_eq!(found(CHAIN_FILE), (chain.clone(), 0o644));
        assert_eq!(found(COMBINED_FILE), (key + &chain, 0o600));
        fs::set_permissions(target.path().join(KEY_FILE), fs::Permissions::from_mode(0o640)).expect("changed");
        let (chain, key) = pem_for("example.com");
        let folder = sanderling_state::StateFolder::open(state.path()).expect("opened");
        folder.store_certificate("example.com", chain.as_bytes(), key.as_bytes()).expect("stored");
        run();
        assert_eq!(found(KEY_FILE), (key, 0o640));
        // A certificate for another name of the domain must not be given to the program for this name.
        let problem = export(state_for("www.example.com").path(), &name, target.path()).expect_err("another name");
        assert!(problem.contains("does not cover that name, only others of the domain"), "{problem}");
    }
}
