//! A path that was asked for into the file that stands there, with what is beside it in other codings.

use crate::content::{BuiltinFile, Root, Site};
use crate::open_file::{
    Examined, FileKey, Form, Gauges, Look, NoFile, OpenFile, Patience, Place, Room, Unready, Version, no_file,
};
use sanderling_http::{
    ContentCoding, FileMetadata, FileTime, Negotiation, Representation, SitePath, is_compressible, media_type,
};
use sanderling_os::directory::Directory;
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The file that stands for a folder.
const INDEX: &[u8] = b"index.html";
/// How often a file waits for one in a coding that is just being written. Whoever writes on and on is not waited for.
const SETTLING_TRIES_MAX: u8 = 3;

/// A file that is looked for: what was asked, and what that means beneath the site's root.
#[derive(Clone, Debug)]
pub(crate) struct Sought {
    pub(crate) site: Arc<Site>,
    pub(crate) key: FileKey,
    /// Relative to the root.
    pub(crate) path: Vec<u8>,
    /// A slash stood behind the path: it is a folder's index that is looked for.
    is_index: bool,
}

/// What a look for a file has found.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it goes from the stack into the table at once")]
pub(crate) enum Sighting {
    /// The version that was known, in the same forms: nothing was read.
    Same,
    /// Another one.
    Another(OpenFile),
}

impl Sought {
    pub(crate) fn new(site: &Arc<Site>, path: &SitePath<'_>, key: &[u8]) -> Sought {
        let mut file_path = path.as_bytes().to_vec();
        if path.ends_with_slash() {
            if !file_path.is_empty() {
                file_path.push(b'/');
            }
            file_path.extend_from_slice(INDEX);
        }
        Sought { site: Arc::clone(site), key: key.to_vec(), path: file_path, is_index: path.ends_with_slash() }
    }

    /// The folder that the file is in, relative to the root; empty for the root itself.
    pub(crate) fn folder(&self) -> &[u8] {
        let end = self.path.iter().rposition(|&octet| octet == b'/').unwrap_or(0);
        &self.path[..end]
    }

    fn file_name(&self) -> &[u8] {
        self.path.rsplit(|&octet| octet == b'/').next().expect("any path splits into one part at least")
    }

    /// Whether the file system has to be asked for it.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.site.root, Root::Folder(_))
    }

    /// Looks for the file, of which `known` is what was found before.
    pub(crate) fn find(
        &self,
        known: Option<&OpenFile>,
        look: Look,
        patience: Patience,
        gauges: &Arc<Gauges>,
    ) -> Result<Result<Sighting, NoFile>, Unready> {
        let found = match &self.site.root {
            Root::Builtin(files) => Ok(find_builtin(files, &self.path, look, gauges).map(Sighting::Another)),
            Root::Folder(root) => self.find_beneath(root, known, look, patience, gauges),
        }?;
        Ok(match found {
            // A folder that is called index.html is no page.
            Err(NoFile::Folder) if self.is_index => Err(NoFile::Missing),
            found => found,
        })
    }

    fn find_beneath(
        &self,
        root: &Directory,
        known: Option<&OpenFile>,
        look: Look,
        patience: Patience,
        gauges: &Arc<Gauges>,
    ) -> Result<Result<Sighting, NoFile>, Unready> {
        let plain = match open_beneath(root, Cow::Borrowed(&self.path), patience)? {
            Ok(plain) => plain,
            Err(no_file) => return Ok(Err(no_file)),
        };
        let media_type = media_type(self.file_name());
        let mut beside =
            if self.may_be_coded(media_type) { self.look_beside(root, look, patience)? } else { Beside::default() };
        let mut room = look.room;
        // One descriptor there may always be; without those for them, files in codings are as good as missing.
        let place = room.place(plain.examined.facts.length_bytes).unwrap_or(Place::Descriptor);
        beside.place(&plain.examined.facts, &mut room);
        let known = known.filter(|known| known.has_facts(&plain.examined.facts, beside.facts()));
        // Who watches the folders on the way to a file tells of a link that comes there, and then the entry goes, also when
        // he has not been heard yet.
        let is_told = known.is_some_and(OpenFile::is_watched);
        let has_links = !is_told && (plain.is_by_link(root) || beside.has_links(root));
        let mut hides_changes = beside.hides_changes || has_links;
        if known.is_some_and(|known| known.hides_changes() == hides_changes) {
            return Ok(Ok(Sighting::Same));
        }
        let plain = match plain.examined.take(place, patience)? {
            Ok(plain) => plain,
            Err(no_file) => return Ok(Err(no_file)),
        };
        let coded = beside.take(look, patience, &mut hides_changes)?;
        let variant =
            if coded.is_empty() { Negotiation::None } else { Negotiation::AcceptEncoding(ContentCoding::Identity) };
        let plain = Form::new(plain, media_type, variant, look, gauges);
        let form = |(coding, version)| {
            (coding, Form::new(version, media_type, Negotiation::AcceptEncoding(coding), look, gauges))
        };
        let coded = coded.into_iter().map(form).collect();
        Ok(Ok(Sighting::Another(OpenFile::new(plain, coded, hides_changes, look))))
    }

    /// Whether it is worth looking for the file in a coding. What is in one already is a file like any other when it is
    /// asked for by its own name.
    fn may_be_coded(&self, media_type: &str) -> bool {
        is_compressible(media_type) && ContentCoding::strip_file_extension(&self.path).is_none()
    }

    /// Looks for the file in all codings.
    fn look_beside(&self, root: &Directory, look: Look, patience: Patience) -> Result<Beside, Unready> {
        let mut beside = Beside::default();
        let mut settling = None;
        for coding in ContentCoding::COMPRESSIONS {
            let path = [&self.path, coding.file_extension().as_bytes()].concat();
            let opened = open_beneath(root, Cow::Owned(path), patience);
            match unless_trouble(opened, look, &mut beside.hides_changes) {
                Ok(Some(opened)) => beside.coded.push(Coded { coding, opened, place: None }),
                Ok(None) => {}
                Err(Unready::Settling(left)) => settling = settling.max(Some(left)),
                Err(Unready::WouldWait) => return Err(Unready::WouldWait),
            }
        }
        settling.map_or(Ok(beside), |left| Err(Unready::Settling(left)))
    }
}

/// A file beneath a root, open.
#[derive(Debug)]
struct Opened<'p> {
    examined: Examined,
    /// Relative to the root.
    path: Cow<'p, [u8]>,
}

/// One that is a file in a coding by its name.
#[derive(Debug)]
struct Coded {
    coding: ContentCoding,
    opened: Opened<'static>,
    /// Where it is kept, if it is.
    place: Option<Place>,
}

/// What is beside a file, and may be the same in a coding.
#[derive(Debug, Default)]
struct Beside {
    coded: Vec<Coded>,
    /// Some of it may change without a word from the folder.
    hides_changes: bool,
}

impl Beside {
    /// Keeps those that stand for the file of these facts, as far as there is room.
    fn place(&mut self, plain: &sanderling_os::file::Metadata, room: &mut Room) {
        for Coded { opened, place, .. } in &mut self.coded {
            let facts = &opened.examined.facts;
            *place = stands_for(facts, plain).then(|| room.place(facts.length_bytes)).flatten();
        }
    }

    /// The facts of those that are kept.
    fn facts(&self) -> impl Iterator<Item = (ContentCoding, &sanderling_os::file::Metadata)> {
        self.coded
            .iter()
            .filter(|coded| coded.place.is_some())
            .map(|coded| (coded.coding, &coded.opened.examined.facts))
    }

    /// Whether a link leads to any of them, kept or not.
    fn has_links(&self, root: &Directory) -> bool {
        self.coded.iter().any(|coded| coded.opened.is_by_link(root))
    }

    /// Those that are kept; `hides_changes` becomes true if one was being changed.
    fn take(
        self,
        look: Look,
        patience: Patience,
        hides_changes: &mut bool,
    ) -> Result<Vec<(ContentCoding, Version)>, Unready> {
        let mut versions = Vec::new();
        for Coded { coding, opened, place } in self.coded {
            let Some(place) = place else { continue };
            if let Some(version) = unless_trouble(opened.examined.take(place, patience), look, hides_changes)? {
                versions.push((coding, version));
            }
        }
        Ok(versions)
    }
}

impl Opened<'_> {
    /// Whether its path leads through a link.
    fn is_by_link(&self, root: &Directory) -> bool {
        !self.examined.file.real_path().is_ok_and(|real| is_beneath(&real, root, &self.path))
    }
}

/// What was found of a file in a coding. Trouble with one of them leaves the client the others.
fn unless_trouble<T>(
    found: Result<Result<T, NoFile>, Unready>,
    look: Look,
    hides_changes: &mut bool,
) -> Result<Option<T>, Unready> {
    match found {
        Ok(Ok(found)) => return Ok(Some(found)),
        Ok(Err(NoFile::Missing | NoFile::Folder | NoFile::Forbidden)) => {}
        // Nobody tells when it is ready: the change that it is in has been told already.
        Ok(Err(NoFile::Busy | NoFile::Failed)) => *hides_changes = true,
        Err(Unready::Settling(_)) if look.try_count >= SETTLING_TRIES_MAX => *hides_changes = true,
        Err(unready) => return Err(unready),
    }
    Ok(None)
}

/// Opens the file at `path`, and looks at its facts.
fn open_beneath<'p>(
    root: &Directory,
    path: Cow<'p, [u8]>,
    patience: Patience,
) -> Result<Result<Opened<'p>, NoFile>, Unready> {
    let opened = match root.open_beneath_cached(&path) {
        Ok(Some(file)) => Ok(file),
        Err(error) => Err(error),
        Ok(None) if patience == Patience::None => return Err(Unready::WouldWait),
        Ok(None) => root.open_beneath(&path),
    };
    match opened {
        Ok(file) => Ok(Examined::of(file)?.map(|examined| Opened { examined, path })),
        Err(error) => Ok(Err(no_file(&error))),
    }
}

/// Whether `real` is where `path` beneath `root` leads if no link is on the way.
fn is_beneath(real: &Path, root: &Directory, path: &[u8]) -> bool {
    real.strip_prefix(root.real_path()).is_ok_and(|rest| rest.as_os_str().as_bytes() == path)
}

/// Whether a file in a coding can be sent in the place of the plain one: it was not made before that was changed, and it
/// is shorter. Nothing is shorter than an empty file, and no coding makes nothing of a file that is not.
fn stands_for(coded: &sanderling_os::file::Metadata, plain: &sanderling_os::file::Metadata) -> bool {
    // Compressors give their file the time of the plain one, and some of them its whole seconds only.
    let has_whole_seconds = coded.modified.nanoseconds == 0;
    let is_older = if has_whole_seconds {
        coded.modified.seconds < plain.modified.seconds
    } else {
        coded.modified < plain.modified
    };
    !is_older && coded.length_bytes != 0 && coded.length_bytes < plain.length_bytes
}

fn find_builtin(
    files: &'static [BuiltinFile],
    path: &[u8],
    look: Look,
    gauges: &Arc<Gauges>,
) -> Result<OpenFile, NoFile> {
    let Some(file) = files.iter().find(|file| file.path.as_bytes() == path) else {
        let is_below =
            |file: &&BuiltinFile| file.path.as_bytes().strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        return Err(if files.iter().any(|file| is_below(&file)) { NoFile::Folder } else { NoFile::Missing });
    };
    // The content itself tells its versions apart, since there is no file that could: FNV-1a, 64 bits.
    let mark = file
        .bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |mark, &octet| (mark ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3));
    let facts = FileMetadata {
        length_bytes: file.bytes.len() as u64,
        modified: FileTime::default(),
        changed: FileTime::default(),
        device: 0,
        inode: mark,
    };
    let representation = Representation::new(&facts, media_type(path), Negotiation::None, b"", look.unix_s);
    let plain = Form::builtin(file.bytes, representation, gauges);
    Ok(OpenFile::new(plain, Vec::new(), false, look))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_os::counters::{Syscall, thread_counts};
    use sanderling_os::directory::OPEN;
    use sanderling_os::file::{FileType, STAT, Timestamp};
    use std::path::PathBuf;
    use std::sync::atomic::Ordering;

    fn facts(length_bytes: u64, seconds: i64, nanoseconds: u32) -> sanderling_os::file::Metadata {
        let moment = Timestamp { seconds, nanoseconds };
        sanderling_os::file::Metadata {
            file_type: FileType::Regular,
            length_bytes,
            modified: moment,
            changed: moment,
            inode: 1,
            device: 1,
            link_count: 1,
        }
    }

    #[test]
    fn a_coded_file_is_used_that_is_shorter_than_the_plain_one_and_not_older() {
        let check = |coded: sanderling_os::file::Metadata, plain: sanderling_os::file::Metadata, expected: bool| {
            assert_eq!(stands_for(&coded, &plain), expected, "{coded:?} beside {plain:?}");
        };
        check(facts(50, 10, 5), facts(100, 10, 5), true);
        check(facts(50, 10, 6), facts(100, 10, 5), true);
        check(facts(50, 11, 0), facts(100, 10, 5), true);
        check(facts(50, 10, 4), facts(100, 10, 5), false);
        check(facts(50, 9, 999_999_999), facts(100, 10, 0), false);
        // Its time is that of the plain file, in whole seconds.
        check(facts(50, 10, 0), facts(100, 10, 999_999_999), true);
        check(facts(50, 9, 0), facts(100, 10, 0), false);
        check(facts(99, 10, 5), facts(100, 10, 5), true);
        check(facts(100, 10, 5), facts(100, 10, 5), false);
        check(facts(101, 10, 5), facts(100, 10, 5), false);
        check(facts(0, 10, 5), facts(100, 10, 5), false);
        check(facts(0, 10, 5), facts(0, 10, 5), false);
        check(facts(20, 10, 5), facts(0, 10, 5), false);
    }

    const ROOM: Room = Room { small_file_bytes_max: 8 * 1024, content_bytes: 1 << 20, descriptors: 100 };

    /// A folder with files, one of which is looked for.
    struct Fixture {
        folder: PathBuf,
        sought: Sought,
        gauges: Arc<Gauges>,
    }

    impl Fixture {
        /// These files, each of so many octets.
        fn new(name: &str, files: &[(&str, usize)], path: &str) -> Fixture {
            let folder = std::env::temp_dir().join(format!("sanderling-sought-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir(&folder).expect("made");
            let root = Root::Folder(Directory::open(&folder).expect("opened"));
            let site = Arc::new(Site { id: 0, hosts: Vec::new(), root });
            let sought = Sought::new(&site, &SitePath::parse(path.as_bytes()).expect("a path"), b"");
            let fixture = Fixture { folder, sought, gauges: Arc::default() };
            files.iter().for_each(|(name, length)| fixture.write(name, *length));
            fixture
        }

        fn write(&self, name: &str, length: usize) {
            let path = self.folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder of ours")).expect("made");
            std::fs::write(path, vec![b'x'; length]).expect("written");
        }

        /// The file, which is not the same as `known`.
        #[track_caller]
        fn find(&self, known: Option<&OpenFile>, room: Room) -> OpenFile {
            match self.look(known, room) {
                Sighting::Another(file) => file,
                Sighting::Same => panic!("the same as {known:?}"),
            }
        }

        #[track_caller]
        fn look(&self, known: Option<&OpenFile>, room: Room) -> Sighting {
            let look = Look { now_ms: 0, unix_s: 0, room, try_count: 0 };
            loop {
                match self.sought.find(known, look, Patience::Any, &self.gauges) {
                    Ok(found) => return found.expect("a file"),
                    Err(unready) => std::thread::park_timeout(unready.delay()),
                }
            }
        }

        #[track_caller]
        fn check_same(&self, known: &OpenFile) {
            let found = self.look(Some(known), ROOM);
            assert!(matches!(found, Sighting::Same), "{found:?} is not {known:?}");
        }

        #[track_caller]
        fn check_taken(&self, descriptors: u64, content_bytes: u64) {
            let taken =
                [&self.gauges.descriptors, &self.gauges.content_bytes].map(|gauge| gauge.load(Ordering::Relaxed));
            assert_eq!(taken, [descriptors, content_bytes]);
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn what_all_forms_of_a_file_take_is_counted_until_it_goes() {
        let files = [("a.txt", 60_000), ("a.txt.br", 20_000), ("a.txt.gz", 1_000), ("a.txt.zst", 60_001)];
        let fixture = Fixture::new("taken", &files, "/a.txt");
        let file = fixture.find(None, ROOM);
        fixture.check_taken(2, 1_000);
        assert!(!file.is_deleted());
        std::fs::remove_file(fixture.folder.join("a.txt.br")).expect("removed");
        assert!(file.is_deleted());
        drop(file);
        fixture.check_taken(0, 0);
        let fixture = Fixture::new("own-name", &files, "/a.txt.br");
        let _file = fixture.find(None, ROOM);
        fixture.check_taken(1, 0);
    }

    #[test]
    fn a_file_is_the_same_as_long_as_all_of_its_forms_are() {
        let fixture = Fixture::new("same", &[("a.txt", 60_000), ("a.txt.gz", 1_000), ("a.txt.br", 60_001)], "/a.txt");
        let path = |name: &str| fixture.folder.join(name);
        let mut file = fixture.find(None, ROOM);
        fixture.check_same(&file);
        fixture.write("a.txt.br", 60_002);
        fixture.check_same(&file);
        fixture.write("a.txt.gz", 1_000);
        file = fixture.find(Some(&file), ROOM);
        std::fs::copy(path("a.txt"), path("copy")).expect("copied");
        std::fs::rename(path("copy"), path("a.txt")).expect("renamed");
        // The one in a coding is older now.
        file = fixture.find(Some(&file), ROOM);
        fixture.check_taken(1, 0);
        fixture.write("a.txt.gz", 1_000);
        file = fixture.find(Some(&file), ROOM);
        fixture.check_taken(1, 1_000);
        std::fs::remove_file(path("a.txt.gz")).expect("removed");
        file = fixture.find(Some(&file), ROOM);
        // A link leads to the same file, and whoever watches the folder alone does not hear of its changes.
        std::fs::create_dir(path("elsewhere")).expect("made");
        std::fs::rename(path("a.txt"), path("elsewhere/a.txt")).expect("renamed");
        std::os::unix::fs::symlink("elsewhere/a.txt", path("a.txt")).expect("linked");
        file = fixture.find(Some(&file), ROOM);
        assert!(!file.can_be_watched());
        fixture.check_same(&file);
    }

    #[test]
    fn the_same_file_behind_a_link_is_another_unless_somebody_would_tell_of_the_link() {
        let fixture = Fixture::new("linked", &[("folder/a.txt", 1_000)], "/folder/a.txt");
        let file = fixture.find(None, ROOM);
        assert!(file.can_be_watched());
        let path = |name: &str| fixture.folder.join(name);
        std::fs::rename(path("folder"), path("elsewhere")).expect("renamed");
        std::os::unix::fs::symlink("elsewhere", path("folder")).expect("linked");
        let behind_link = fixture.find(Some(&file), ROOM);
        assert!(!behind_link.can_be_watched());
        fixture.check_same(&behind_link);
        file.note_watched(true);
        fixture.check_same(&file);
    }

    #[test]
    fn what_is_the_same_is_not_read_again() {
        let fixture = Fixture::new("read", &[("a.txt", 1_000), ("a.txt.gz", 100)], "/a.txt");
        let file = fixture.find(None, ROOM);
        let check = |expected: &[(Syscall, u64)]| {
            let before = thread_counts();
            fixture.check_same(&file);
            assert_eq!(thread_counts().since(&before).nonzero().collect::<Vec<_>>(), expected);
        };
        if OPEN.selected_name() != "openat2-cached" || STAT.selected_name() != "fstat" {
            return;
        }
        check(&[(Syscall::Close, 2), (Syscall::Fstat, 2), (Syscall::Openat2, 4), (Syscall::Readlinkat, 2)]);
        file.note_watched(true);
        check(&[(Syscall::Close, 2), (Syscall::Fstat, 2), (Syscall::Openat2, 4)]);
    }

    #[test]
    fn no_file_takes_more_than_all_may_together() {
        let files = [("a.txt", 1_000), ("a.txt.br", 300), ("a.txt.gz", 200), ("a.txt.zst", 100)];
        let fixture = Fixture::new("room", &files, "/a.txt");
        let check = |content_bytes: u64, descriptors: u64, expected: (u64, u64)| {
            let room = Room { content_bytes, descriptors, ..ROOM };
            let file = fixture.find(None, room);
            fixture.check_taken(expected.0, expected.1);
            assert!(matches!(fixture.look(Some(&file), room), Sighting::Same));
        };
        check(1_600, 100, (0, 1_600));
        check(1_599, 100, (1, 1_400));
        check(1_200, 100, (2, 1_100));
        check(999, 100, (1, 600));
        check(0, 100, (4, 0));
        check(0, 3, (3, 0));
        check(0, 1, (1, 0));
        check(100, 1, (1, 100));
    }
}
