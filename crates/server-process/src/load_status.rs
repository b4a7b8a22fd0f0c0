//! The state of each site and zone, and the changes by a reload.

use sanderling_config::{DomainName, ZoneFolder, ZoneOrigin, root_text};
use sanderling_server::EarlierFiles;
use sanderling_zone_files::{AddedRecords, UpdateState};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines about single zones in the answer to a reload.
const CHANGES_SHOWN_MAX: usize = 20;

/// All sites and zones, in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadStatus {
    pub(crate) sites: Vec<SiteState>,
    pub(crate) zones: Vec<Arc<ZoneState>>,
    pub(crate) folder: Option<FolderState>,
    /// Zones that should be forced, but do not exist.
    pub(crate) unknown_zone_count: usize,
}

/// The zone folder.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FolderState {
    /// The folder's path with the file pattern.
    pub(crate) files: String,
    /// Whether the folder could be listed; otherwise its zones are unchanged.
    #[serde(skip)]
    pub(crate) is_listed: bool,
    pub(crate) zone_count: usize,
    /// Files that cannot be zones; 1 if the folder cannot be listed.
    pub(crate) problem_count: usize,
    /// The first problem.
    pub(crate) problem: Option<String>,
}

/// A site.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SiteState {
    /// The hosts; empty for every host.
    pub(crate) hosts: Vec<String>,
    /// `None` if only routes answer.
    pub(crate) document_root: Option<PathBuf>,
    /// The served release, if the document root is a link to one.
    pub(crate) release: Option<ReleaseState>,
    #[serde(skip)]
    pub(crate) service: SiteService,
    /// The first error of its document root, its link targets or its user files.
    pub(crate) problem: Option<String>,
}

impl SiteState {
    /// The document root, for messages.
    pub(crate) fn root_text(&self) -> String {
        root_text(self.document_root.as_deref())
    }
}

/// The served part of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SiteService {
    /// The site serves its document root.
    Current,
    /// The last good directory, which the configuration had at this path when it was opened.
    Kept(PathBuf),
    /// The server process's user cannot read the document root: requests get status 403.
    Unreadable,
    /// Nothing: requests get status 503.
    Unavailable,
    /// The site is not served, for lack of a descriptor. One problem is reported for all such sites.
    LeftOut,
}

/// A site's release.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReleaseState {
    /// The release's directory, without symbolic links.
    pub(crate) path: PathBuf,
    /// The time when the link to the release was made.
    #[serde(rename = "since_unix_s", serialize_with = "unix_s")]
    pub(crate) since: Option<SystemTime>,
    /// The files served from earlier releases.
    #[serde(rename = "served_from_earlier_releases", serialize_with = "earlier_files")]
    pub(crate) earlier_files: Arc<EarlierFiles>,
}

/// A zone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ZoneState {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    #[serde(serialize_with = "origin_name")]
    pub(crate) origin: ZoneOrigin,
    /// The facts about the version in service; `None` if there is none, and queries are answered with SERVFAIL.
    pub(crate) serial: Option<u32>,
    pub(crate) record_count: u64,
    #[serde(rename = "loaded_at_unix_s", serialize_with = "unix_s")]
    pub(crate) loaded_at: Option<SystemTime>,
    /// The time when its first signature expires; `None` if it is unsigned.
    #[serde(rename = "signatures_expire_at_unix_s", serialize_with = "unix_s")]
    pub(crate) signatures_expire_at: Option<SystemTime>,
    /// The reason why the current zone file is not served.
    pub(crate) problem: Option<String>,
    /// The records of the version in service that are not in its files.
    #[serde(skip)]
    pub(crate) added: Arc<AddedRecords>,
    /// The differences between version and file due to dynamic updates; `None` if the zone can have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updates: Option<UpdateState>,
}

fn origin_name<S: serde::Serializer>(origin: &ZoneOrigin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match origin {
        ZoneOrigin::Operator => "operator",
        ZoneOrigin::Primaries => "primaries",
        ZoneOrigin::Signer => "signer",
        ZoneOrigin::Catalog | ZoneOrigin::ProducedCatalog => "catalog",
    })
}

fn unix_s<S: serde::Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs()).serialize(serializer)
}

/// All folders, by path.
fn earlier_files<S: serde::Serializer>(files: &Arc<EarlierFiles>, serializer: S) -> Result<S::Ok, S::Error> {
    files.list(usize::MAX).1.serialize(serializer)
}

/// The changes by a reload.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    added: Vec<String>,
    changed: Vec<String>,
    pub(crate) removed: Vec<DomainName>,
    /// Zones parsed since the process has started.
    pub(crate) parsed_count: u64,
}

impl LoadStatus {
    /// Counts the zones of `folder` again, after one was added or removed.
    pub(crate) fn recount_folder(&mut self, folder: Option<&ZoneFolder>) {
        if let Some((state, folder)) = self.folder.as_mut().zip(folder) {
            state.zone_count = self.zones.iter().filter(|zone| folder.has(&zone.file)).count();
        }
    }

    /// Sites, zones and files of the folder with a problem, and zones that do not exist.
    pub(crate) fn problem_count(&self) -> usize {
        let in_folder = self.folder.as_ref().map_or(0, |folder| folder.problem_count);
        let sites = self.sites.iter().filter(|site| site.problem.is_some()).count();
        self.unknown_zone_count + in_folder + sites + self.zones.iter().filter(|zone| zone.problem.is_some()).count()
    }

    /// The version in service of each site and zone with a problem, a line each.
    pub(crate) fn problems_text(&self) -> String {
        let mut text = String::new();
        for site in self.sites.iter().filter(|site| site.problem.is_some() && site.service != SiteService::LeftOut) {
            let (root, hosts) = (site.root_text(), site.hosts_text());
            text += &match &site.service {
                SiteService::Current => {
                    format!("site {root} for {hosts}: served, but parts of it could not be loaded\n")
                }
                SiteService::Kept(path) if Some(path) == site.document_root.as_ref() => {
                    format!("site {root} for {hosts}: not reloaded, keeping the open directory\n")
                }
                SiteService::Kept(path) => {
                    format!("site {root} for {hosts}: not reloaded, keeping the directory {}\n", path.display())
                }
                SiteService::Unreadable => {
                    format!("site {root} for {hosts}: cannot be read; requests get status 403 until it is corrected\n")
                }
                SiteService::Unavailable | SiteService::LeftOut => format!(
                    "site {root} for {hosts}: unavailable; requests get status 503 until it is corrected and reloaded\n"
                ),
            };
        }
        if let Some(FolderState { files, is_listed, zone_count, problem_count: 1.., .. }) = &self.folder {
            text += &match is_listed {
                true => format!("zones {files}: files with errors are not served\n"),
                false => format!("zones {files}: not listed, keeping {zone_count} zones\n"),
            };
        }
        for zone in self.zones.iter().filter(|zone| zone.problem.is_some()) {
            text += &match zone.serial {
                Some(serial) => format!("zone {}: not reloaded, keeping serial {serial}\n", zone.name),
                None => format!(
                    "zone {}: unavailable; queries get SERVFAIL until it is corrected and reloaded\n",
                    zone.name
                ),
            };
        }
        text
    }
}

impl SiteState {
    /// `example.com www.example.com`, or `every host`.
    pub(crate) fn hosts_text(&self) -> String {
        if self.hosts.is_empty() { "every host".to_owned() } else { self.hosts.join(" ") }
    }
}

impl Changes {
    /// A zone was loaded, replacing one with `old_serial`, if there was one.
    pub(crate) fn zone_loaded(&mut self, apex: &DomainName, old_serial: Option<u32>, serial: u32) {
        match old_serial {
            None => self.added.push(format!("{apex}: added, serial {serial}")),
            Some(old) if old == serial => {
                self.changed
                    .push(format!("{apex}: changed, but its serial is still {serial}; secondaries will not notice"));
            }
            // RFC 1982 section 3.2.
            Some(old) if serial.wrapping_sub(old).cast_signed() < 0 => {
                self.changed
                    .push(format!("{apex}: serial {old} -> {serial}, which is lower; secondaries will not notice"));
            }
            Some(old) => self.changed.push(format!("{apex}: serial {old} -> {serial}")),
        }
    }

    /// A zone with `old_serial`, if it had one, no longer has a version.
    pub(crate) fn zone_withdrawn(&mut self, apex: &DomainName, old_serial: Option<u32>) {
        if let Some(old) = old_serial {
            self.changed.push(format!(
                "{apex}: serial {old} is no longer served, because its stored version was removed or has expired; \
                    queries get SERVFAIL until it is transferred"
            ));
        }
    }

    /// `1 zone added, 2 changed, 0 removed`, and a line for each of them, up to a limit.
    pub(crate) fn to_text(&self) -> String {
        let (added, changed, removed) = (self.added.len(), self.changed.len(), self.removed.len());
        let mut text = format!("zones: {added} added, {changed} changed, {removed} removed\n");
        let removed = self.removed.iter().map(|apex| format!("{apex}: removed"));
        let mut lines = self.changed.iter().chain(&self.added).cloned().chain(removed);
        for line in lines.by_ref().take(CHANGES_SHOWN_MAX) {
            text += &format!("  {line}\n");
        }
        match lines.count() {
            0 => text,
            more => text + &format!("  and {more} more\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_and_listed_up_to_a_limit() {
        let apex = |name: &str| DomainName::parse(name).unwrap();
        let mut changes = Changes::default();
        assert_eq!(changes.to_text(), "zones: 0 added, 0 changed, 0 removed\n");
        changes.zone_loaded(&apex("a.example"), None, 7);
        changes.zone_loaded(&apex("b.example"), Some(1), 2);
        changes.zone_loaded(&apex("c.example"), Some(5), 5);
        changes.removed.push(apex("d.example"));
        changes.zone_withdrawn(&apex("never.example"), None);
        assert_eq!(
            changes.to_text(),
            "zones: 1 added, 2 changed, 1 removed\n  b.example: serial 1 -> 2\n  c.example: changed, but its serial is \
             still 5; secondaries will not notice\n  a.example: added, serial 7\n  d.example: removed\n"
        );
        let mut changes = Changes::default();
        changes.zone_loaded(&apex("a.example"), Some(7), 3);
        changes.zone_loaded(&apex("b.example"), Some(u32::MAX), 3);
        let expected = "  a.example: serial 7 -> 3, which is lower; secondaries will not notice\n  b.example: serial 4294967295 -> 3\n";
        assert!(changes.to_text().ends_with(expected), "{}", changes.to_text());
        (0..30).for_each(|number| changes.zone_loaded(&apex("e.example"), Some(number), 99));
        assert!(changes.to_text().ends_with("\n  and 12 more\n"), "{}", changes.to_text());
        let mut changes = Changes::default();
        changes.zone_withdrawn(&apex("a.example"), Some(7));
        let text = changes.to_text();
        assert!(text.contains("1 changed") && text.contains("a.example: serial 7 is no longer served"), "{text}");
    }
}
