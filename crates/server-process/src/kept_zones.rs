//! The last good version of each zone as text, in sealed memory that the supervisor keeps for the next server process,
//! which serves it if the files are broken by then.
//!
//! A segment has the texts of some zones, an index in JSON, and the length of the index in its last 8 bytes. A version
//! in a later segment replaces the same zone's version in an earlier segment, so that a reload writes only changes
//! (docs/decisions/0021-last-good-zones.md).
// Numbers come from other processes, which may lie.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use sanderling_config::DomainName;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_warning;
use sanderling_dns::Zone;
use sanderling_ipc::KEPT_ZONES_FDS_MAX;
use sanderling_os::memfd;
use sanderling_zone_files::ZoneText;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The name of the segments in `/proc/PID/fd`.
const NAME: &str = "zones";
/// Bytes of the length of the index.
const LENGTH_BYTES: u64 = 8;
/// Maximum size of an index in bytes: enough for a million zones.
const INDEX_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of replaced versions that are always tolerated; above this, replaced versions may have no more bytes than the
/// current versions.
const DEAD_BYTES_MAX: u64 = 1024 * 1024;

/// The facts about a version of a zone that need no parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionInfo {
    pub(crate) serial: u32,
    pub(crate) record_count: u64,
    pub(crate) loaded_at_unix_s: u64,
    /// Whether each file ended with a newline.
    pub(crate) ends_with_newline: bool,
}

impl VersionInfo {
    /// The facts about `zone`, which was read from `text` now.
    pub(crate) fn new(zone: &Zone, text: &ZoneText) -> VersionInfo {
        VersionInfo {
            serial: zone.serial(),
            record_count: zone.record_count() as u64,
            loaded_at_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            ends_with_newline: text.ends_with_newline,
        }
    }
}

/// The kept versions, and those to keep next.
#[derive(Debug, Default)]
pub(crate) struct KeptZones {
    segments: Vec<Arc<OwnedFd>>,
    zones: HashMap<String, KeptZone>,
    pending: Option<Pending>,
    /// Bytes of the texts in all segments.
    written_bytes: u64,
    /// Bytes of the texts of `zones`.
    kept_bytes: u64,
    /// Zones that were too large to be kept since the last call of [`KeptZones::seal`].
    unkept_count: usize,
}

/// A version and its segment; the index `segments.len()` means the pending segment.
#[derive(Debug)]
struct KeptZone {
    segment: usize,
    entry: IndexEntry,
    keeper: Keeper,
}

/// The process that has kept a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    ThisProcess,
    /// The process may be compromised: the text may differ from the files, whatever its hash and serial are.
    EarlierProcess,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct IndexEntry {
    zone: String,
    info: VersionInfo,
    /// A hash of all texts.
    hash: u64,
    /// The offset of the first file's text; the others follow it.
    offset: u64,
    /// Path and length of each file, in the order in which they were read.
    files: Vec<(String, u64)>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    entries: Vec<IndexEntry>,
    /// Zones of earlier segments that are no longer kept.
    removed: Vec<String>,
}

/// A segment that is being written.
#[derive(Debug)]
struct Pending {
    writer: memfd::Writer,
    index: Index,
}

/// A new segment for the supervisor.
#[derive(Debug)]
pub(crate) struct NewSegment {
    pub(crate) descriptor: Arc<OwnedFd>,
    /// The segment has all zones, and the earlier segments are no longer needed.
    pub(crate) replaces_all: bool,
}

impl KeptZones {
    /// The versions in these segments of an earlier process. A version that cannot be read is left out.
    pub(crate) fn from_segments(segments: &[Arc<OwnedFd>]) -> KeptZones {
        let mut kept = KeptZones::default();
        for descriptor in segments {
            match read_index(descriptor) {
                Ok((index, text_bytes)) => kept.add_segment(Arc::clone(descriptor), index, text_bytes),
                Err(error) => log_warning(&format!("cannot read kept zones: {}; ignoring them", error_text(&error))),
            }
        }
        kept
    }

    fn add_segment(&mut self, descriptor: Arc<OwnedFd>, index: Index, text_bytes: u64) {
        for zone in index.removed {
            self.forget(&zone);
        }
        for entry in index.entries {
            self.insert(self.segments.len(), entry, Keeper::EarlierProcess);
        }
        self.segments.push(descriptor);
        self.written_bytes = self.written_bytes.saturating_add(text_bytes);
    }

    fn insert(&mut self, segment: usize, entry: IndexEntry, keeper: Keeper) {
        self.forget(&entry.zone);
        self.kept_bytes = self.kept_bytes.saturating_add(entry.text_bytes());
        self.zones.insert(entry.zone.clone(), KeptZone { segment, entry, keeper });
    }

    fn forget(&mut self, zone: &str) -> bool {
        let removed = self.zones.remove(zone);
        self.kept_bytes = self.kept_bytes.saturating_sub(removed.as_ref().map_or(0, |kept| kept.entry.text_bytes()));
        removed.is_some()
    }

    /// The facts about the kept version of `apex`.
    pub(crate) fn info(&self, apex: &DomainName) -> Option<VersionInfo> {
        self.zones.get(apex.as_str()).map(|kept| kept.entry.info)
    }

    /// Whether this process has kept the version of `apex`.
    pub(crate) fn is_own(&self, apex: &DomainName) -> bool {
        self.zones.get(apex.as_str()).is_some_and(|kept| kept.keeper == Keeper::ThisProcess)
    }

    /// The zones of all kept versions, each with its main file.
    pub(crate) fn main_files(&self) -> impl Iterator<Item = (DomainName, PathBuf)> {
        self.zones.values().filter_map(|kept| {
            let (file, _) = kept.entry.files.first()?;
            Some((DomainName::parse(&kept.entry.zone).ok()?, PathBuf::from(file)))
        })
    }

    /// The files of the kept version of `apex`, in the order in which they were read; none if there is no such version.
    pub(crate) fn files(&self, apex: &DomainName) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
        let Some(KeptZone { segment, entry, .. }) = self.zones.get(apex.as_str()) else { return Ok(Vec::new()) };
        // While a load is in progress, the versions that it has added are not read: their zones have just been parsed.
        let Some(descriptor) = self.segments.get(*segment) else { return Ok(Vec::new()) };
        let mut offset = entry.offset;
        let files = entry.files.iter().map(|(path, length_bytes)| {
            let text = memfd::read_range(descriptor, offset, to_usize(*length_bytes)?)?;
            offset = offset.saturating_add(*length_bytes);
            Ok((PathBuf::from(path), text))
        });
        files.collect()
    }

    /// Keeps a version of `apex`, unless all texts would then have more than `bytes_max`. The new version always
    /// replaces an earlier process's version.
    ///
    /// # Errors
    /// Returns an error if memory or descriptors are exhausted; the previous version is kept.
    pub(crate) fn keep(
        &mut self,
        apex: &DomainName,
        info: VersionInfo,
        text: &ZoneText,
        bytes_max: u64,
    ) -> io::Result<()> {
        let zone = apex.as_str();
        let before = self.zones.get(zone).map(|kept| &kept.entry);
        let is_same = before.is_some_and(|entry| entry.hash == text.hash && entry.info.serial == info.serial);
        if is_same && self.is_own(apex) {
            return Ok(());
        }
        let other_bytes = self.kept_bytes.saturating_sub(before.map_or(0, IndexEntry::text_bytes));
        let fits = |content: &&Vec<u8>| other_bytes.saturating_add(content.len() as u64) <= bytes_max;
        let Some(content) = text.content.as_ref().filter(fits) else {
            self.unkept_count = self.unkept_count.saturating_add(1);
            return self.remove(apex);
        };
        let pending = self.pending()?;
        let offset = pending.writer.length_bytes();
        let result = pending.writer.write(content);
        if result.is_err() {
            self.discard_pending();
            return result;
        }
        let files = text.files.clone();
        let entry = IndexEntry { zone: zone.to_owned(), info, hash: text.hash, offset, files };
        pending.index.entries.push(entry.clone());
        self.insert(self.segments.len(), entry, Keeper::ThisProcess);
        Ok(())
    }

    /// Forgets the content of the segment being written: its end is unknown.
    fn discard_pending(&mut self) {
        self.pending = None;
        self.zones.retain(|_, kept| kept.segment < self.segments.len());
        self.kept_bytes = self.zones.values().map(|kept| kept.entry.text_bytes()).sum();
    }

    /// Drops the kept version of `apex`.
    pub(crate) fn remove(&mut self, apex: &DomainName) -> io::Result<()> {
        if self.forget(apex.as_str()) {
            self.pending()?.index.removed.push(apex.as_str().to_owned());
        }
        Ok(())
    }

    /// Drops versions of zones for which `is_served` is false.
    pub(crate) fn retain(&mut self, is_served: impl Fn(&DomainName) -> bool) -> io::Result<()> {
        let apexes: Vec<DomainName> = self.zones.keys().filter_map(|zone| DomainName::parse(zone).ok()).collect();
        apexes.iter().filter(|apex| !is_served(apex)).try_for_each(|apex| self.remove(apex))
    }

    fn pending(&mut self) -> io::Result<&mut Pending> {
        match &mut self.pending {
            Some(pending) => Ok(pending),
            none => Ok(none.insert(Pending { writer: memfd::Writer::new(NAME)?, index: Index::default() })),
        }
    }

    /// Ends the segment with the changes since the last call; `None` if nothing has. Many segments, or many replaced
    /// versions, become one segment.
    pub(crate) fn seal(&mut self) -> io::Result<Option<NewSegment>> {
        if std::mem::take(&mut self.unkept_count) > 0 {
            log_warning("not all zones are kept for the next server process; raise `kept_zones_max` to keep them all");
        }
        let Some(pending) = self.pending.take() else { return Ok(None) };
        let text_bytes = pending.writer.length_bytes();
        let descriptor = pending.seal().inspect_err(|_| self.discard_pending())?;
        self.written_bytes = self.written_bytes.saturating_add(text_bytes);
        self.segments.push(Arc::new(descriptor));
        let replaces_all = self.drop_earlier_segments(text_bytes) || self.is_large() && self.compact().is_ok();
        Ok(self.segments.last().map(|last| NewSegment { descriptor: Arc::clone(last), replaces_all }))
    }

    /// Whether there are many segments, or many replaced versions in them.
    fn is_large(&self) -> bool {
        let dead_bytes = self.written_bytes.saturating_sub(self.kept_bytes);
        self.segments.len() >= KEPT_ZONES_FDS_MAX || dead_bytes > self.kept_bytes.max(DEAD_BYTES_MAX)
    }

    /// Drops all segments except the last, which has `text_bytes`, if it has all versions; returns whether it does. The
    /// first segment of a process is such a one.
    fn drop_earlier_segments(&mut self, text_bytes: u64) -> bool {
        let last = self.segments.len().saturating_sub(1);
        if last == 0 || self.zones.values().any(|kept| kept.segment < last) {
            return false;
        }
        self.zones.values_mut().for_each(|kept| kept.segment = 0);
        self.segments.drain(..last);
        self.written_bytes = text_bytes;
        true
    }

    /// Copies all versions to one segment.
    fn compact(&mut self) -> io::Result<()> {
        let mut pending = Pending { writer: memfd::Writer::new(NAME)?, index: Index::default() };
        for KeptZone { segment, entry, .. } in self.zones.values() {
            let text = memfd::read_range(&self.segments[*segment], entry.offset, to_usize(entry.text_bytes())?)?;
            pending.index.entries.push(IndexEntry { offset: pending.writer.length_bytes(), ..entry.clone() });
            pending.writer.write(&text)?;
        }
        for entry in &pending.index.entries {
            if let Some(moved) = self.zones.get_mut(&entry.zone) {
                (moved.segment, moved.entry) = (0, entry.clone());
            }
        }
        self.written_bytes = pending.writer.length_bytes();
        self.segments = vec![Arc::new(pending.seal()?)];
        Ok(())
    }
}

impl IndexEntry {
    fn text_bytes(&self) -> u64 {
        self.files.iter().map(|(_, length_bytes)| *length_bytes).fold(0, u64::saturating_add)
    }
}

impl Pending {
    fn seal(mut self) -> io::Result<OwnedFd> {
        let index = serde_json::to_vec(&self.index)?;
        self.writer.write(&index)?;
        self.writer.write(&(index.len() as u64).to_le_bytes())?;
        self.writer.seal()
    }
}

/// The index of a segment, and the bytes of its texts.
///
/// # Errors
/// Returns an error if the file is not a segment, or another process can still change it.
fn read_index(segment: &OwnedFd) -> io::Result<(Index, u64)> {
    if !memfd::is_sealed(segment) {
        return Err(io::Error::other("the memory is not sealed"));
    }
    let malformed = || io::Error::other("it is not a segment of zones");
    let file_bytes = memfd::length_bytes(segment)?;
    let end = file_bytes.checked_sub(LENGTH_BYTES).ok_or_else(malformed)?;
    let length = memfd::read_range(segment, end, LENGTH_BYTES as usize)?;
    let index_bytes = u64::from_le_bytes(length.try_into().map_err(|_| malformed())?);
    let text_bytes = end.checked_sub(index_bytes).ok_or_else(malformed)?;
    if index_bytes > INDEX_BYTES_MAX {
        return Err(io::Error::other(format!("its index is too large: {index_bytes} bytes")));
    }
    let index: Index = serde_json::from_slice(&memfd::read_range(segment, text_bytes, to_usize(index_bytes)?)?)?;
    let is_within = |entry: &IndexEntry| {
        let mut lengths = entry.files.iter().map(|(_, length_bytes)| *length_bytes);
        lengths.try_fold(entry.offset, u64::checked_add).is_some_and(|end| end <= text_bytes)
    };
    // No part of the text belongs to two versions.
    let all_bytes = index.entries.iter().map(IndexEntry::text_bytes).fold(0, u64::saturating_add);
    let is_whole = index.entries.iter().all(is_within) && all_bytes <= text_bytes;
    if is_whole { Ok((index, text_bytes)) } else { Err(malformed()) }
}

fn to_usize(length: u64) -> io::Result<usize> {
    usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apex(number: usize) -> DomainName {
        DomainName::parse(&format!("z{number}.example")).unwrap()
    }

    fn info(serial: u32) -> VersionInfo {
        VersionInfo { serial, record_count: 3, loaded_at_unix_s: 1_800_000_000, ends_with_newline: true }
    }

    /// A zone with two files, whose content shows zone and serial.
    fn text(number: usize, serial: u32) -> ZoneText {
        let (first, second) = (format!("zone {number} serial {serial}\n"), "included\n".repeat(number + 1));
        let files = vec![("a".to_owned(), first.len() as u64), ("b".to_owned(), second.len() as u64)];
        let content = Some((first + &second).into_bytes());
        ZoneText { hash: u64::from(serial), files, content, ends_with_newline: true }
    }

    #[track_caller]
    fn check(kept: &KeptZones, number: usize, serial: Option<u32>) {
        assert_eq!(kept.info(&apex(number)), serial.map(info));
        let files = kept.files(&apex(number)).expect("read");
        let joined: Vec<u8> = files.iter().flat_map(|(_, text)| text).copied().collect();
        assert_eq!(joined, serial.map_or(Vec::new(), |serial| text(number, serial).content.unwrap()));
        assert!(files.is_empty() || files[1].0.ends_with("b"));
    }

    /// The contents of inherited segments.
    fn inherited(segments: &[Arc<OwnedFd>]) -> KeptZones {
        KeptZones::from_segments(segments)
    }

    /// Adds a segment as the supervisor does.
    fn hand_over(kept: &mut KeptZones, supervisor: &mut Vec<Arc<OwnedFd>>) {
        let Some(NewSegment { descriptor, replaces_all }) = kept.seal().expect("sealed") else { return };
        if replaces_all {
            supervisor.clear();
        }
        supervisor.push(descriptor);
        assert!(supervisor.len() < KEPT_ZONES_FDS_MAX, "the supervisor would drop a segment");
    }

    #[test]
    fn next_process_finds_the_last_version_of_each_zone() {
        let (mut kept, mut supervisor) = (KeptZones::default(), Vec::new());
        (0..5).for_each(|number| kept.keep(&apex(number), info(1), &text(number, 1), 1_000).expect("kept"));
        hand_over(&mut kept, &mut supervisor);
        kept.keep(&apex(1), info(2), &text(1, 2), 1_000).expect("kept");
        kept.remove(&apex(2)).expect("removed");
        hand_over(&mut kept, &mut supervisor);
        assert!(kept.seal().expect("nothing to seal").is_none());
        kept.keep(&apex(1), info(2), &text(1, 2), 1_000).expect("kept already");
        assert!(kept.seal().expect("nothing to seal").is_none(), "the same version is not written again");
        for kept in [&kept, &inherited(&supervisor)] {
            check(kept, 0, Some(1));
            check(kept, 1, Some(2));
            check(kept, 2, None);
        }
        let mut next = inherited(&supervisor);
        next.retain(|zone| *zone == apex(0)).expect("removed");
        hand_over(&mut next, &mut supervisor);
        check(&inherited(&supervisor), 0, Some(1));
        check(&inherited(&supervisor), 1, None);
    }

    #[test]
    fn version_of_an_earlier_process_is_replaced_whatever_it_says_of_itself() {
        let (mut liar, mut supervisor) = (KeptZones::default(), Vec::new());
        let lie = ZoneText { content: text(0, 7).content, files: text(0, 7).files, ..text(0, 1) };
        liar.keep(&apex(0), info(1), &lie, 1_000).expect("kept");
        hand_over(&mut liar, &mut supervisor);
        let mut kept = inherited(&supervisor);
        assert!(kept.info(&apex(0)).is_some() && !kept.is_own(&apex(0)));
        kept.keep(&apex(0), info(1), &text(0, 1), 1_000).expect("kept");
        hand_over(&mut kept, &mut supervisor);
        assert!(kept.is_own(&apex(0)));
        [&kept, &inherited(&supervisor)].into_iter().for_each(|kept| check(kept, 0, Some(1)));
        kept.keep(&apex(0), info(1), &text(0, 1), 1_000).expect("kept already");
        assert!(kept.seal().expect("nothing to seal").is_none(), "its own is not written again");
        // If the new version cannot be kept, the liar's version is dropped too.
        let mut kept = inherited(&supervisor);
        kept.keep(&apex(0), info(1), &text(0, 1), 1).expect("left out");
        check(&kept, 0, None);
    }

    #[test]
    fn any_number_of_changes_fits_into_few_segments() {
        let (mut kept, mut supervisor) = (KeptZones::default(), Vec::new());
        for serial in 0..200_u32 {
            let number = serial as usize % 3;
            kept.keep(&apex(number), info(serial), &text(number, serial), 1_000).expect("kept");
            hand_over(&mut kept, &mut supervisor);
        }
        for kept in [&kept, &inherited(&supervisor)] {
            check(kept, 0, Some(198));
            check(kept, 1, Some(199));
            check(kept, 2, Some(197));
        }
    }

    #[test]
    fn zone_beyond_the_limit_is_not_kept() {
        let mut kept = KeptZones::default();
        let bytes_max = text(0, 1).content.unwrap().len() as u64;
        kept.keep(&apex(0), info(1), &text(0, 1), bytes_max).expect("kept");
        kept.keep(&apex(1), info(1), &text(1, 1), bytes_max).expect("left out");
        check(&kept, 1, None);
        kept.keep(&apex(0), info(22), &text(0, 22), bytes_max).expect("removed");
        assert!(kept.seal().expect("sealed").is_some());
        check(&kept, 0, None);
    }

    #[test]
    fn memory_that_is_no_segment_is_ignored() {
        // The untrusted index and its end.
        let segment = |text: &[u8], entries: &str, length: Option<u64>| {
            let index = format!("{{\"entries\":[{entries}],\"removed\":[]}}");
            let length = length.unwrap_or(index.len() as u64).to_le_bytes();
            memfd::create(NAME, &[text, index.as_bytes(), &length].concat()).expect("created")
        };
        let entry = |numbers: &str, offset: u64, bytes: u64| {
            format!(
                "{{\"zone\":\"z0.example\",\"info\":{{\"serial\":1,{numbers},\"ends_with_newline\":true}},\"hash\":1,\"offset\":{offset},\"files\":[[\"a\",{bytes}]]}}"
            )
        };
        const NUMBERS: &str = "\"record_count\":3,\"loaded_at_unix_s\":5";
        assert!(inherited(&[Arc::new(segment(b"text", &entry(NUMBERS, 0, 4), None))]).info(&apex(0)).is_some());
        let overlapping = [entry(NUMBERS, 0, 4), entry(NUMBERS, 1, 3)].join(",");
        for (entries, length) in [
            (entry(NUMBERS, 0, u64::MAX), None),
            (entry(NUMBERS, u64::MAX, 1), None),
            (overlapping, None),
            (entry("\"record_count\":-1,\"loaded_at_unix_s\":5", 0, 4), None),
            (entry(NUMBERS, 0, 4), Some(0)),
            (entry(NUMBERS, 0, 4), Some(u64::MAX)),
        ] {
            let kept = inherited(&[Arc::new(segment(b"text", &entries, length))]);
            assert!(kept.segments.is_empty() && kept.zones.is_empty(), "{entries}");
        }
        let fds = [&b""[..], b"short", &[0xff; 100], &[0; 100]].map(|content| memfd::create(NAME, content).unwrap());
        for descriptor in fds {
            let kept = inherited(&[Arc::new(descriptor)]);
            assert!(kept.segments.is_empty() && kept.zones.is_empty());
        }
    }
}
