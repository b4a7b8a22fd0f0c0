//! The commands `zone add` and `zone remove`: put a zone file into the zone folder, or rename one there so that it is
//! no longer a zone, and notify the running server.
//!
//! The commands write only files in the folder. A zone with another configuration is refused, with a remedy.

use crate::state_files::StateLocation;
use sanderling_config::diagnostic::{Location, error_text};
use sanderling_config::log::{log, print, report};
use sanderling_config::{
    CATALOG_MEMBERS, Config, ConfigSource, DomainName, Zone, ZoneFolder, ZoneOrigin, most_similar, read_catalog_members,
};
use sanderling_ipc::catalog::MemberList;
use sanderling_ipc::client::{self, AskError};
use sanderling_ipc::{Command, ZoneCommand};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Removed files of one zone that are kept.
const REMOVED_FILES_MAX: usize = 99;

/// A zone that is added to the zone folder, or removed from it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FolderZone {
    /// The configuration with the folder.
    pub(crate) source: ConfigSource,
    pub(crate) zone: DomainName,
    pub(crate) action: FolderAction,
    /// The server's control socket, or why it is unknown.
    pub(crate) socket: Result<PathBuf, String>,
    /// For the server's answer.
    pub(crate) timeout: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FolderAction {
    /// With the content of this file.
    Add(PathBuf),
    Remove,
}

impl FolderAction {
    /// The name of the command.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            FolderAction::Add(_) => "zone add",
            FolderAction::Remove => "zone remove",
        }
    }
}

impl FolderZone {
    /// Changes the folder, and tells the server. A zone that the server cannot load is not added.
    ///
    /// # Errors
    /// Returns the problem and its remedy.
    pub(crate) fn run(self) -> Result<(), String> {
        let config = self
            .source
            .load()
            .map_err(|diagnostics| diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        if let Some(problem) = self.other_source(&config)? {
            return Err(problem);
        }
        let Some(folder) = &config.zone_folder else {
            return Err(format!(
                "the configuration has no zone folder; set `zones = \"zones/*.zone\"` in [dns], or give {0} a \
                 section, [domain.\"{0}\"] with `zone = \"FILE\"`; then run `sanderling reload`",
                self.zone
            ));
        };
        let locked = LockedFolder::lock(folder)?;
        let listing = folder.list(&config.zones).map_err(|error| folder.unreadable(&error).to_string())?;
        let present = listing.zones.iter().find(|zone| zone.apex == self.zone);
        match (&self.action, present) {
            (FolderAction::Add(file), None) => self.add(file, &config, &locked),
            (FolderAction::Add(_), Some(zone)) => Err(format!(
                "the zone {0} already exists in {1}; replace that file and run `sanderling reload {0}`",
                self.zone,
                zone.file.display()
            )),
            (FolderAction::Remove, Some(zone)) => self.remove(&zone.file, &locked),
            (FolderAction::Remove, None) => {
                let similar = most_similar(self.zone.as_str(), listing.zones.iter().map(|zone| zone.apex.as_str()));
                let hint = similar.map_or(String::new(), |similar| format!("; did you mean {similar}?"));
                Err(format!("{} has no file of the zone {}{hint}", folder.pattern(), self.zone))
            }
        }
    }

    /// The reason why the zone is not in the folder, and the alternative; `None` if nothing else in the configuration
    /// has it.
    fn other_source(&self, config: &Config) -> Result<Option<String>, String> {
        let name = &self.zone;
        if let Some(zone) = config.zones.iter().find(|zone| zone.apex == *name) {
            let remedy = match self.action {
                FolderAction::Add(_) => format!("replace that file and run `sanderling reload {name}`"),
                FolderAction::Remove => "remove `zone` there and run `sanderling reload`".to_owned(),
            };
            let (file, location) = (zone.file.display(), &zone.location);
            return Ok(Some(format!("the configuration has the zone {name} in {file}, at {location}; {remedy}")));
        }
        let secondary = config.secondary_zones.iter().find(|zone| zone.apex == *name);
        if let Some(location) = secondary.map(|zone| &zone.location) {
            return Ok(Some(format!(
                "the zone {name} is transferred from its primaries, at {location}; remove `primaries` there and run `sanderling reload`"
            )));
        }
        if config.catalogs.iter().any(|catalog| catalog.apex == *name) {
            return Ok(Some(format!("{name} is a catalog; remove its section and run `sanderling reload`")));
        }
        if !config.consumes_catalogs() {
            return Ok(None);
        }
        let catalog = self.catalog_of_member(config)?;
        Ok(catalog.map(|catalog| {
            format!("the zone {name} comes from the catalog {catalog}; remove it from the catalog at its primary")
        }))
    }

    /// The catalog that has brought the zone.
    fn catalog_of_member(&self, config: &Config) -> Result<Option<String>, String> {
        let state = StateLocation::of(config);
        let path = state.join(CATALOG_MEMBERS);
        let list = match read_catalog_members(&state).and_then(|content| MemberList::decode(&content)) {
            Ok(list) => list,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let text = error_text(&error);
                return Err(format!(
                    "cannot read the list of catalog members in {}: {text}; run this as root or as the server's \
                     user",
                    path.display()
                ));
            }
        };
        let member = list.members.into_iter().find(|member| member.zone == self.zone.as_str());
        Ok(member.map(|member| member.catalog))
    }

    fn add(&self, source: &Path, config: &Config, folder: &LockedFolder<'_>) -> Result<(), String> {
        let name = &self.zone;
        if name.as_str() == "." || name.as_str().contains('/') {
            return Err(format!(
                "`{name}` cannot be a file name; give the zone a section, [domain.\"{name}\"] with `zone = \"FILE\"`, and \
                 run `sanderling reload`"
            ));
        }
        let file = folder.folder.file_of(name);
        let new = NewFile::copy(source, &file, config.limits.zone_file_bytes_max)?;
        let zone = Zone {
            apex: name.clone(),
            file: new.path.clone(),
            location: Location::Argument(source.display().to_string()).into(),
            origin: ZoneOrigin::Operator,
        };
        let (mut diagnostics, is_good) = match sanderling_server_process::check_zone(config, &zone) {
            Ok(warnings) => (warnings, true),
            Err(problems) => (problems, false),
        };
        // Diagnostics name the file that the operator knows.
        for diagnostic in &mut diagnostics {
            if let Location::File(file) | Location::Position { file, .. } = &mut diagnostic.location
                && *file == new.path
            {
                source.clone_into(file);
            }
        }
        report(&diagnostics);
        if !is_good {
            return Err(format!("the zone {name} was not added; correct {}", source.display()));
        }
        folder.rename(&new.path, &file)?;
        match self.tell_server() {
            Ok(answer) => print(&answer),
            Err(AskError::Absent(reason) | AskError::Unreachable(reason)) => {
                log(&format!("{reason}\nThe server will serve the zone after its next start or reload."));
            }
            Err(AskError::NoAnswer(reason)) => {
                return Err(format!("the zone {name} is in {}, but {reason}", file.display()));
            }
            Err(AskError::Failed(reason)) => {
                folder.delete(&file)?;
                // The server answers SERVFAIL for a zone that it cannot load, until the file is removed.
                let _ = self.tell_server();
                return Err(format!("{reason}\nthe zone {name} was not added"));
            }
        }
        print(&format!("zone {name}: its file is {}\n", file.display()));
        Ok(())
    }

    fn remove(&self, file: &Path, folder: &LockedFolder<'_>) -> Result<(), String> {
        let kept = free_name(file)?;
        folder.rename(file, &kept)?;
        print(&format!("zone {}: its file is kept as {}\n", self.zone, kept.display()));
        match self.tell_server() {
            Ok(answer) => print(&answer),
            Err(AskError::Absent(reason) | AskError::Unreachable(reason)) => {
                log(&format!("{reason}\nThe server will not serve the zone after its next start or reload."));
            }
            Err(AskError::NoAnswer(reason) | AskError::Failed(reason)) => return Err(reason),
        }
        Ok(())
    }

    /// Makes the server load the zone, or stop serving it if its file is gone.
    fn tell_server(&self) -> Result<String, AskError> {
        let socket = self.socket.clone().map_err(AskError::Unreachable)?;
        let command = ZoneCommand::Reload { zone: self.zone.to_string(), is_forced: false };
        client::ask(Command::Zone(command), &socket, self.timeout)
    }
}

/// The name that a removed `file` gets, which is not a zone file's name.
fn free_name(file: &Path) -> Result<PathBuf, String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let numbers = std::iter::once(String::new()).chain((2..=REMOVED_FILES_MAX).map(|number| format!("-{number}")));
    let mut names = numbers.map(|number| file.with_file_name(format!("{name}.removed{number}")));
    names.find(|path| fs::symlink_metadata(path).is_err()).ok_or_else(|| {
        format!(
            "there are already {REMOVED_FILES_MAX} removed files, such as {}.removed; delete those that you do not \
                need",
            file.display()
        )
    })
}

/// The zone folder, which no other process changes by these commands at the same time.
struct LockedFolder<'f> {
    folder: &'f ZoneFolder,
    /// The open folder, with a lock.
    directory: File,
}

impl<'f> LockedFolder<'f> {
    fn lock(folder: &'f ZoneFolder) -> Result<LockedFolder<'f>, String> {
        let directory = File::open(&folder.directory).map_err(|error| folder.unreadable(&error).to_string())?;
        let shown = folder.directory.display();
        match directory.try_lock() {
            Ok(()) => Ok(LockedFolder { folder, directory }),
            Err(TryLockError::WouldBlock) => {
                Err(format!("another process is changing the zones in {shown}; try again later"))
            }
            Err(TryLockError::Error(error)) => Err(format!("cannot lock {shown}: {}", error_text(&error))),
        }
    }

    /// Renames a file, durably.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), String> {
        fs::rename(from, to).and_then(|()| self.directory.sync_all()).map_err(|error| failed("write", to, &error))
    }

    /// Deletes a file, durably.
    fn delete(&self, file: &Path) -> Result<(), String> {
        fs::remove_file(file).and_then(|()| self.directory.sync_all()).map_err(|error| failed("remove", file, &error))
    }
}

/// A hidden file of the folder, which is not a zone. The file is deleted with this value, unless it was renamed.
struct NewFile {
    path: PathBuf,
}

impl NewFile {
    /// Copies `source`, of which at most one byte more than `bytes_max` is read, to a file next to `target`. All users
    /// can read the copy: the server process may run as another user, and the folder's mode restricts access.
    fn copy(source: &Path, target: &Path, bytes_max: u64) -> Result<NewFile, String> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let new = NewFile { path: target.with_file_name(format!(".new-{name}")) };
        let reader = File::open(source).map_err(|error| failed("read", source, &error))?;
        let write = || {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&new.path)?;
            io::copy(&mut reader.take(bytes_max.saturating_add(1)), &mut file)?;
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            file.sync_all()
        };
        write().map_err(|error| failed("write", &new.path, &error))?;
        Ok(new)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn failed(action: &str, path: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run this as the owner of the folder",
        _ => "",
    };
    format!("cannot {action} {}: {}{remedy}", path.display(), error_text(error))
}
