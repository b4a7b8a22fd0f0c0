//! The state folder: which one is used, and by which configurations.

use crate::config::{CertificateFiles, Config, SecretContent};
use crate::diagnostic::{Diagnostic, Location, Problem};
use sanderling_os::directory::Directory;
use sanderling_os::process::effective_uid;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The state folder of root, as the packages create it.
pub const DEFAULT_STATE: &str = "/var/lib/sanderling";
/// The remedy for a missing state folder. A folder below one with zones could be read by the server process.
pub const STATE_REMEDY: &str = "set `state` to a folder that is not below one with zones, sites or user files";
/// Bytes of a chain or a key that the agent has stored.
const ISSUED_BYTES_MAX: u64 = 1024 * 1024;

impl Config {
    /// The state folder: from the argument `--state`, the configuration or the service manager, or root's default.
    pub fn state_folder(&self, argument: Option<&Path>) -> Option<PathBuf> {
        let of_service_manager =
            || std::env::var_os("STATE_DIRECTORY").filter(|path| !path.is_empty()).map(PathBuf::from);
        let default = || (effective_uid() == 0).then(|| PathBuf::from(DEFAULT_STATE));
        argument.map(Path::to_owned).or_else(|| self.state.clone()).or_else(of_service_manager).or_else(default)
    }

    /// Whether the agent has something to do: to request, to transfer, to derive or to look up, or a server to notify.
    pub fn needs_agent(&self) -> bool {
        self.requests_certificates()
            || self.has_stored_zones()
            || self.has_derived_records()
            || !self.backend_names.is_empty()
    }

    /// Whether there are certificates to request.
    pub fn requests_certificates(&self) -> bool {
        self.acme.is_some() && self.automatic_certificates().next().is_some()
    }

    /// The problem that the agent has no state folder and none is created, checked as the user that starts the server.
    /// The argument `--state` is not known.
    pub fn missing_state_problem(&self) -> Option<Diagnostic> {
        if !self.needs_agent() {
            return None;
        }
        let location = self.state_place();
        let Some(path) = self.state_folder(None) else {
            let message = format!("without root there is no default state folder: {}", self.without_state());
            let remedy = format!("{STATE_REMEDY}, or start `sanderling serve` as root");
            return Some(Diagnostic::note(location, Problem::new(message, remedy)));
        };
        // `serve` creates it, but not the directories above it.
        let above = path.parent().filter(|above| !above.as_os_str().is_empty())?;
        let is_missing = fs::metadata(above).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let message = format!("the state folder `{}` cannot be created", path.display());
        let remedy = "create the folder above it, or set `state` to another one";
        is_missing.then(|| Diagnostic::error(location, Problem::new(message, remedy)))
    }

    /// The position of the state folder in the configuration, for messages, or that configuration.
    pub(super) fn state_place(&self) -> Location {
        let file = || self.files.first().cloned().map(Location::File);
        let place = self.state_location.clone().map(Location::from).or_else(file);
        place.unwrap_or(Location::Argument("check".to_owned()))
    }

    /// The enabled functions that need a state folder.
    pub fn without_state(&self) -> String {
        let effects = [
            (!self.signed_zones.is_empty(), "zones with `dnssec` are not signed"),
            (!self.zone_updates.is_empty(), "dynamic updates are refused"),
            (self.has_transferred_zones(), "no zones are transferred"),
            (self.requests_certificates(), "no certificates are requested"),
            (self.has_derived_records(), "no records are derived"),
            (self.has_secondaries(), "secondaries are not notified"),
            (!self.backend_names.is_empty(), "the names of applications are not looked up"),
        ];
        let effects: Vec<_> = effects.into_iter().filter_map(|(is_used, effect)| is_used.then_some(effect)).collect();
        effects.join(", ")
    }

    /// Whether the state folder has content, or may have content from an earlier configuration.
    pub fn uses_state_folder(&self) -> bool {
        self.state.is_some() || self.needs_agent()
    }
}

/// The chain and the key of a certificate that the agent has stored. The agent can write the folder, and this process
/// may be root: no link leads out of it. Both files belong to one generation.
///
/// # Errors
/// Returns an error if the files do not exist or cannot be read.
pub fn read_issued(state: &Path, files: &CertificateFiles) -> io::Result<(SecretContent, SecretContent)> {
    let folder = files.chain.parent().unwrap_or(Path::new(""));
    let folder = Directory::open(state)?.open_directory_beneath(folder.as_os_str().as_bytes())?;
    let read = |path: &Path| read_beneath(&folder, path.file_name().unwrap_or_default().as_bytes(), ISSUED_BYTES_MAX);
    Ok((read(&files.chain)?, read(&files.key)?))
}

/// The content of the file `name` in a folder that the agent can write, of at most `bytes_max`.
///
/// # Errors
/// Returns an error if the file does not exist, cannot be read, or is longer than `bytes_max`.
pub fn read_beneath(folder: &Directory, name: &[u8], bytes_max: u64) -> io::Result<SecretContent> {
    let file = folder.open_beneath(name)?;
    let length_bytes = file.metadata()?.length_bytes;
    if length_bytes > bytes_max {
        return Err(io::Error::other(format!("{} has more than {bytes_max} bytes", String::from_utf8_lossy(name))));
    }
    let mut content = Zeroizing::new(vec![0; length_bytes as usize]);
    let mut start = 0;
    while start < content.len() {
        match file.read_at(&mut content[start..], start as u64)? {
            0 => break,
            count => start += count,
        }
    }
    content.truncate(start);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use crate::ConfigSource;

    #[test]
    fn what_needs_a_state_folder_is_named() {
        const ZONE: &str = "[domain.\"a.test\"]\nzone = \"a.zone\"\n";
        let primaries = "[domain.\"b.test\"]\nprimaries = [{ address = \"192.0.2.1\" }]\n";
        let secondaries = "secondaries = [{ address = \"192.0.2.1\" }]\n";
        let route = "route = { \"/\" = { proxy = \"http://app.internal:3000\" } }\n";
        for (text, expected) in [
            (ZONE.to_owned(), ""),
            (format!("{ZONE}{route}"), "the names of applications are not looked up"),
            (format!("{ZONE}dnssec = true\n"), "zones with `dnssec` are not signed"),
            (
                format!("{ZONE}dnssec = true\n{secondaries}{primaries}"),
                "zones with `dnssec` are not signed, no zones are transferred, secondaries are not notified",
            ),
        ] {
            let config = ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes());
            let config = config.unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
            assert_eq!(config.without_state(), expected, "{text}");
            assert_eq!(config.needs_agent(), !expected.is_empty(), "{text}");
        }
    }
}
