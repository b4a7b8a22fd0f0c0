//! The zones that catalogs have brought, as the agent lists them in the state folder.

use sanderling_config::log::log_error;
use sanderling_config::{CATALOG_MEMBERS, DomainName, read_catalog_members};
use sanderling_ipc::catalog::MemberList;
use sanderling_os::error::is_missing;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The list that was read last.
#[derive(Debug, Default)]
pub(crate) struct CatalogMembers {
    /// Each zone with its catalog.
    zones: Vec<(DomainName, DomainName)>,
    /// Inode and time of change of the file that it was read from: each list is a separate file.
    version: Option<(u64, i64, i64)>,
}

impl CatalogMembers {
    /// Reads the list in the state folder if it has changed. If it cannot be read, or is missing, the last one is kept.
    pub(crate) fn update(&mut self, state: Option<&Path>) {
        let Some(state) = state else { return };
        let path = state.join(CATALOG_MEMBERS);
        let version = match fs::metadata(&path) {
            Ok(metadata) => Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec())),
            // The supervisor reports anything that replaces the folder.
            Err(error) if is_missing(&error) && self.version.is_none() => return,
            Err(_) => None,
        };
        if version.is_some() && version == self.version {
            return;
        }
        match read_catalog_members(state).and_then(|content| MemberList::decode(&content)) {
            Ok(list) => {
                let parse = |name: &str| DomainName::parse(name).ok();
                let members = list.members.iter();
                self.zones = members.filter_map(|one| parse(&one.zone).zip(parse(&one.catalog))).collect();
                self.version = version;
            }
            Err(error) => {
                let path = path.display();
                log_error(&format!("cannot read {path}: {error}; using the previous list of catalog members"));
            }
        }
    }

    /// The zones, each with its catalog.
    pub(crate) fn zones(&self) -> impl Iterator<Item = (&DomainName, &DomainName)> {
        self.zones.iter().map(|(zone, catalog)| (zone, catalog))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_ipc::catalog::ListedMember;

    #[test]
    fn list_is_read_again_when_it_has_changed_and_kept_if_it_is_broken() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(CATALOG_MEMBERS);
        fs::create_dir(path.parent().unwrap()).unwrap();
        let write = |content: &[u8]| {
            fs::write(state.path().join("next"), content).unwrap();
            fs::rename(state.path().join("next"), &path).unwrap();
        };
        let list = |zone: &str| {
            let member = ListedMember {
                zone: zone.to_owned(),
                catalog: "c.example".to_owned(),
                label: "a".to_owned(),
                groups: Vec::new(),
            };
            MemberList { members: vec![member], removed: Vec::new() }.encode()
        };
        let mut members = CatalogMembers::default();
        let mut check = |expected: &[&str]| {
            members.update(Some(state.path()));
            let zones: Vec<&str> = members.zones().map(|(zone, _)| zone.as_str()).collect();
            assert_eq!(zones, expected);
        };
        check(&[]);
        write(&list("a.example"));
        check(&["a.example"]);
        write(&list("b.example"));
        check(&["b.example"]);
        write(b"broken");
        check(&["b.example"]);
        let too_long = fs::File::create(state.path().join("next")).unwrap();
        too_long.set_len(1 << 40).unwrap();
        fs::rename(state.path().join("next"), &path).unwrap();
        check(&["b.example"]);
        // The state folder looks unmounted.
        fs::remove_file(&path).unwrap();
        check(&["b.example"]);
    }
}
