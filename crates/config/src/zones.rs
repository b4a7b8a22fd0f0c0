//! A zone of the configuration, and a zone folder: each file whose name has the extension is the zone that the rest of
//! its name names.

use crate::diagnostic::{Diagnostic, Location, Problem, ValueLocation, error_text};
use crate::domain_name::DomainName;
use crate::folder_pattern;
use crate::paths::check_zone_file;
use crate::transfers::Primary;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A served zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The zone's name. No two zones have the same.
    pub apex: DomainName,
    /// The zone file, relative to the working directory or absolute.
    pub file: PathBuf,
    /// The position of the file in the configuration.
    pub location: ValueLocation,
    /// The process or person that writes the file.
    pub origin: ZoneOrigin,
}

/// The origin of a zone's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneOrigin {
    /// The operator writes the file.
    Operator,
    /// The agent writes the file, with what it transfers from primary servers. Without the file, the zone must not be
    /// served.
    Primaries,
    /// The agent writes the file, which is the signed version of the operator's file.
    Signer,
    /// The agent writes the file of a catalog, as for a zone with primaries. Only servers that may transfer it get
    /// answers from it.
    Catalog,
    /// The agent writes the file of a catalog that lists this server's zones.
    ProducedCatalog,
}

impl ZoneOrigin {
    /// Whether the records come from elsewhere than the operator's file.
    pub fn is_agent(self) -> bool {
        matches!(self, ZoneOrigin::Primaries) || self.is_catalog()
    }

    /// Whether the zone is a catalog.
    pub fn is_catalog(self) -> bool {
        matches!(self, ZoneOrigin::Catalog | ZoneOrigin::ProducedCatalog)
    }
}

/// A zone that is transferred from primary servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondaryZone {
    /// The zone's name.
    pub apex: DomainName,
    /// The servers that it is transferred from. There is one at least.
    pub primaries: Vec<Primary>,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

/// The folder with transferred zones, below the state folder.
pub const TRANSFERRED_ZONES: &str = "zones";

/// The folder with the journals of zones, below the state folder.
pub const JOURNALS: &str = "journals";

/// The file with the journal of the zone at `apex`, below the state folder.
pub fn journal_file(apex: &DomainName) -> PathBuf {
    Path::new(JOURNALS).join(format!("{}.journal", zone_file_name(apex)))
}

/// The folder with the results of dynamic updates, below the state folder.
pub const UPDATES: &str = "updates";

/// The file with the results of dynamic updates for the zone at `apex`, below the state folder.
pub fn update_file(apex: &DomainName) -> PathBuf {
    Path::new(UPDATES).join(format!("{}.update", zone_file_name(apex)))
}

/// The file that has a zone which the agent writes, below the state folder.
pub fn stored_zone_file(apex: &DomainName) -> PathBuf {
    Path::new(TRANSFERRED_ZONES).join(format!("{}.zone", zone_file_name(apex)))
}

/// Maximum length of a zone name in a file name: 255 bytes minus the longest extension, and minus the prefix of a file
/// that is being written.
const FILE_NAME_BYTES_MAX: usize = 255 - ".new-".len() - ".journal".len();

/// A zone's name in file names of the state folder. Different zones have different file names.
pub fn zone_file_name(apex: &DomainName) -> String {
    // Names of zones have no `%`. Zone names may contain slashes (RFC 2317 §4).
    let mut name = match apex.as_str() {
        "." => "%2E".to_owned(),
        name => name.replace('/', "%2F"),
    };
    if name.len() > FILE_NAME_BYTES_MAX {
        // The digits are in lower case, so that it is not the name of a zone with a slash.
        let digest = HEXLOWER.encode(&Sha256::digest(apex.as_str()));
        name.truncate(FILE_NAME_BYTES_MAX - 1 - digest.len());
        name += &format!("%{digest}");
    }
    name
}

impl SecondaryZone {
    /// The file that has the zone, below the state folder.
    pub fn file(&self) -> PathBuf {
        stored_zone_file(&self.apex)
    }

    /// The zone, whose file is below the state folder.
    pub fn zone(&self, state: &Path) -> Zone {
        let (apex, location) = (self.apex.clone(), self.location.clone());
        Zone { apex, file: state.join(self.file()), location, origin: ZoneOrigin::Primaries }
    }
}

impl Zone {
    /// Whether the zone file is a regular file.
    ///
    /// # Errors
    /// Returns an error if the path is not a file, or cannot be reached.
    pub fn check_file(&self) -> Result<(), Diagnostic> {
        check_zone_file(&self.file).map_err(|problem| Diagnostic::error(self.location.clone(), problem))
    }
}

/// The files of `zones` in `[dns]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneFolder {
    /// The folder, relative to the working directory or absolute.
    pub directory: PathBuf,
    /// The extension of the file names, with its dot: `.zone`.
    pub extension: String,
    /// The position of the folder in the configuration.
    pub location: ValueLocation,
}

/// A folder's zones.
#[derive(Debug, Default)]
pub struct ZoneListing {
    /// The zones that the folder defines, in the order of their names.
    pub zones: Vec<Zone>,
    /// Files that are not zones because of their names, and files that are not used because of another file of the same
    /// zone.
    pub problems: Vec<Diagnostic>,
}

impl ZoneFolder {
    /// The folder of `pattern`, such as `zones/*.zone`, below `base`; `None` if it has another form.
    pub(super) fn parse(pattern: &str, base: &Path, location: ValueLocation) -> Option<ZoneFolder> {
        let (directory, extension) = folder_pattern::parse(pattern, base)?;
        Some(ZoneFolder { directory, extension, location })
    }

    /// The pattern: `zones/*.zone`.
    pub fn pattern(&self) -> String {
        self.directory.join(format!("*{}", self.extension)).display().to_string()
    }

    /// Whether `file` is one of the folder.
    pub fn has(&self, file: &Path) -> bool {
        let has_extension = |name: &std::ffi::OsStr| name.as_encoded_bytes().ends_with(self.extension.as_bytes());
        file.parent() == Some(&self.directory) && file.file_name().is_some_and(has_extension)
    }

    /// The file of the zone `apex`, as its name is written in lower case.
    pub fn file_of(&self, apex: &DomainName) -> PathBuf {
        self.directory.join(format!("{apex}{}", self.extension))
    }

    /// Whether the folder can be listed.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be listed.
    pub fn check(&self) -> Result<(), Diagnostic> {
        fs::read_dir(&self.directory).map(|_| ()).map_err(|error| self.unreadable(&error))
    }

    /// The reason why the folder cannot be listed.
    pub fn unreadable(&self, error: &io::Error) -> Diagnostic {
        let user = sanderling_os::user::switched_name().map_or(String::new(), |name| format!(" as the user `{name}`"));
        let message = format!("cannot list the zones in `{}`{user}: {}", self.directory.display(), error_text(error));
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "create the folder or correct the path",
            _ => "check the path of the folder and its permissions",
        };
        Diagnostic::error(self.location.clone(), Problem::new(message, remedy))
    }

    /// Lists the zones. A zone in `own_zones`, which have sections `[domain."NAME"]`, does not belong to the folder.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be listed.
    pub fn list(&self, own_zones: &[Zone]) -> io::Result<ZoneListing> {
        let names = folder_pattern::list(&self.directory, &self.extension)?;
        let own: HashMap<&DomainName, &Zone> = own_zones.iter().map(|zone| (&zone.apex, zone)).collect();
        let mut listing = ZoneListing { zones: Vec::with_capacity(names.len()), problems: Vec::new() };
        let mut by_apex: HashMap<DomainName, usize> = HashMap::with_capacity(names.len());
        for name in names {
            let file = self.directory.join(&name);
            let location = Location::File(file.clone());
            let text = name.to_string_lossy();
            let apex = match DomainName::parse(text.strip_suffix(self.extension.as_str()).unwrap_or(&text)) {
                Ok(apex) => apex,
                Err(Problem { message, .. }) => {
                    let message = format!("the file name is not a zone name: {message}");
                    let remedy = format!("rename it to NAME{}, or remove it", self.extension);
                    listing.problems.push(Diagnostic::error(location, Problem::new(message, remedy)));
                    continue;
                }
            };
            if let Some(own) = own.get(&apex) {
                if own.file != file {
                    let message = format!("the zone {apex} is also in {}, which is not used", file.display());
                    let problem = Problem::new(message, "remove one of the two");
                    listing.problems.push(Diagnostic::warning(own.location.clone(), problem));
                }
                continue;
            }
            match by_apex.entry(apex.clone()) {
                Entry::Occupied(earlier) => {
                    let earlier = listing.zones[*earlier.get()].file.display();
                    let message = format!("the zone {apex} is also in {earlier}, which is used instead");
                    listing.problems.push(Diagnostic::error(location, Problem::new(message, "remove one of the two")));
                }
                Entry::Vacant(place) => {
                    place.insert(listing.zones.len());
                    listing.zones.push(Zone { apex, file, location: location.into(), origin: ZoneOrigin::Operator });
                }
            }
        }
        Ok(listing)
    }
}

/// The zone that has `name`, which may be a wildcard: the deepest one.
pub fn zone_of<'z>(name: &str, apexes: impl Iterator<Item = &'z DomainName>) -> Option<&'z DomainName> {
    let name = name.strip_prefix("*.").unwrap_or(name);
    let is_above = |apex: &&DomainName| {
        let below = name.strip_suffix(apex.as_str());
        below.is_some_and(|below| below.is_empty() || below.ends_with('.')) || apex.as_str() == "."
    };
    apexes.filter(is_above).max_by_key(|apex| apex.labels().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location() -> ValueLocation {
        Location::Argument("test".to_owned()).into()
    }

    #[test]
    fn each_zone_has_file_names_of_its_own_in_its_folder() {
        let long = format!("{0}.{0}.{0}", "a".repeat(63));
        let (longest, other) = (format!("{long}.{}", "b".repeat(61)), format!("{long}.{}c", "b".repeat(60)));
        let slashes = format!("{long}.{}", "/".repeat(61));
        let names = [".", "a.test", "a/b.test", "a.b.test", "*.test", &long, &longest, &other, &slashes];
        let mut files = std::collections::BTreeSet::new();
        for name in names {
            let apex = DomainName::parse(name).expect(name);
            for (folder, file) in [
                (JOURNALS, journal_file(&apex)),
                (UPDATES, update_file(&apex)),
                (TRANSFERRED_ZONES, stored_zone_file(&apex)),
                (TRANSFERRED_ZONES, stored_zone_file(&apex).with_extension("json")),
            ] {
                let parts: Vec<_> = file.components().collect();
                assert_eq!(parts.len(), 2, "{}", file.display());
                assert!(file.starts_with(folder) && parts[1].as_os_str().len() + ".new-".len() <= 255, "{name}");
                assert!(files.insert(file.clone()), "{} is of two zones", file.display());
            }
        }
        let shown = |name: &str| zone_file_name(&DomainName::parse(name).expect(name));
        assert_eq!([".", "a.test", "0/25.test"].map(shown), ["%2E", "a.test", "0%2F25.test"]);
    }

    #[test]
    fn pattern_is_a_folder_and_an_extension() {
        for (pattern, directory, extension) in [
            ("zones/*.zone", "base/zones", ".zone"),
            ("*.db", "base/", ".db"),
            ("/etc/zones/*.a.b", "/etc/zones", ".a.b"),
            ("/*.zone", "/", ".zone"),
        ] {
            let folder = ZoneFolder::parse(pattern, Path::new("base"), location()).expect(pattern);
            assert_eq!((folder.directory, folder.extension.as_str()), (PathBuf::from(directory), extension));
        }
        let folder = ZoneFolder::parse("*.zone", Path::new(""), location()).expect("of the working directory");
        assert_eq!(folder.directory, Path::new("."));
        for pattern in
            ["", "zones", "zones/", "zones/*", "zones/*zone", "zones/*.", "*/*.zone", "a*.zone", "*.z*", "*/a"]
        {
            assert_eq!(ZoneFolder::parse(pattern, Path::new("base"), location()), None, "{pattern}");
        }
    }

    #[test]
    fn zones_have_the_names_of_the_files_and_own_zones_win() {
        let base = tempfile::tempdir().unwrap();
        let folder = ZoneFolder::parse("*.zone", base.path(), location()).unwrap();
        let files =
            ["b.example.zone", "A.example.zone", "a.example.zone", ".hidden.zone", ".zone", "x.txt", "a..b.zone"];
        for name in files.into_iter().chain(["own.example.zone", "same.example.zone", "c.example.zone~"]) {
            fs::write(base.path().join(name), "").unwrap();
        }
        let own = |name: &str, file: PathBuf| Zone {
            apex: DomainName::parse(name).unwrap(),
            file,
            location: location(),
            origin: ZoneOrigin::Operator,
        };
        let own_zones = [
            own("own.example", base.path().join("other")),
            own("same.example", folder.directory.join("same.example.zone")),
        ];
        let listing = folder.list(&own_zones).expect("listed");
        let shown: Vec<String> = listing.zones.iter().map(|zone| zone.apex.to_string()).collect();
        assert_eq!(shown, ["a.example", "b.example"]);
        assert!(listing.zones.iter().all(|zone| folder.has(&zone.file)));
        assert!(listing.zones[0].file.ends_with("A.example.zone"));
        let problems: Vec<String> = listing.problems.iter().map(ToString::to_string).collect();
        let problems = problems.join("\n").replace(&format!("{}/", base.path().display()), "");
        assert_eq!(
            problems,
            "a..b.zone: the file name is not a zone name: invalid domain name `a..b`: it has an empty label; \
             rename it to NAME.zone, or remove it\na.example.zone: the zone a.example is also in A.example.zone, \
             which is used instead; remove one of the two\ntest: warning: the zone own.example is also in \
             own.example.zone, which is not used; remove one of the two"
        );
        fs::remove_dir_all(base.path()).unwrap();
        assert!(folder.list(&[]).is_err() && folder.check().is_err());
    }

    #[test]
    fn names_are_in_the_zones_above_them() {
        let zones: Vec<DomainName> = ["example.com", "sub.example.com", "b.example"]
            .iter()
            .map(|name| DomainName::parse(name).expect("a name"))
            .collect();
        for (name, expected) in [
            ("example.com", Some("example.com")),
            ("www.example.com", Some("example.com")),
            ("*.example.com", Some("example.com")),
            ("*.sub.example.com", Some("sub.example.com")),
            ("notexample.com", None),
            ("com", None),
            ("a.b.example", Some("b.example")),
        ] {
            assert_eq!(zone_of(name, zones.iter()).map(DomainName::as_str), expected, "{name}");
        }
    }
}
