//! Files with their precompressed files: which are used, what they use, and when a look-up finds them unchanged.

use super::precompressed::is_usable;
use super::*;
use crate::files::open_file::{EntryLimits, RECENT_CHANGE, VariantId};
use crate::options::CompressionOptions;
use crate::site::sites::SiteOptions;
use sanderling_http::SitePath;
use sanderling_os::counters::{Syscall, thread_counts};
use sanderling_os::directory::OPEN;
use sanderling_os::file::{FileType, Metadata, STAT, Timestamp};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn metadata(length_bytes: u64, seconds: i64, nanoseconds: u32) -> Metadata {
    let moment = Timestamp { seconds, nanoseconds };
    Metadata {
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
fn a_precompressed_file_is_used_if_it_is_shorter_and_not_older() {
    let check = |precompressed: Metadata, uncompressed: Metadata, expected: bool| {
        assert_eq!(is_usable(&precompressed, &uncompressed), expected, "{precompressed:?}, {uncompressed:?}");
    };
    check(metadata(50, 10, 5), metadata(100, 10, 5), true);
    check(metadata(50, 10, 6), metadata(100, 10, 5), true);
    check(metadata(50, 11, 0), metadata(100, 10, 5), true);
    check(metadata(50, 10, 4), metadata(100, 10, 5), false);
    check(metadata(50, 9, 999_999_999), metadata(100, 10, 0), false);
    // Its time is that of the other file, in whole seconds.
    check(metadata(50, 10, 0), metadata(100, 10, 999_999_999), true);
    check(metadata(50, 9, 0), metadata(100, 10, 0), false);
    check(metadata(99, 10, 5), metadata(100, 10, 5), true);
    check(metadata(100, 10, 5), metadata(100, 10, 5), false);
    check(metadata(101, 10, 5), metadata(100, 10, 5), false);
    check(metadata(0, 10, 5), metadata(100, 10, 5), false);
    check(metadata(0, 10, 5), metadata(0, 10, 5), false);
    check(metadata(20, 10, 5), metadata(0, 10, 5), false);
}

const LIMITS: EntryLimits =
    EntryLimits { small_file_bytes_max: 8 * 1024, content_bytes: 1 << 20, descriptors: 100, listed_entries: 10 };

/// Nothing is compressed on demand.
fn compression() -> Arc<CompressionQueue> {
    let options = CompressionOptions { content_bytes_max: 0, ..CompressionOptions::default() };
    Arc::new(CompressionQueue::new(options))
}

/// Long after the files were written.
const NOW_UNIX_S: u64 = 10_000_000_000;

fn lookup_of(root: &Path, path: &str, link_targets: Vec<Arc<Directory>>) -> FileLookup {
    let root = Root::Directory(Arc::new(Directory::open(root).expect("opened")));
    let options = SiteOptions { link_targets, ..SiteOptions::default() };
    let site = Arc::new(Site { id: 0, hosts: Vec::new(), root, options });
    let mut key = FileKey::default();
    key.set(0, &SitePath::parse(path.as_bytes()).expect("a path"));
    FileLookup::new(&site, &key)
}

/// A directory with files, one of which is looked up.
struct Fixture {
    directory: tempfile::TempDir,
    lookup: FileLookup,
    gauges: Arc<Gauges>,
}

impl Fixture {
    /// Files, each with its length.
    fn new(files: &[(&str, usize)], path: &str) -> Fixture {
        let directory = tempfile::tempdir().expect("created");
        let lookup = lookup_of(directory.path(), path, Vec::new());
        let fixture = Fixture { directory, lookup, gauges: Arc::default() };
        files.iter().for_each(|(name, length)| fixture.write(name, *length));
        fixture
    }

    fn write(&self, name: &str, length: usize) {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory of ours")).expect("made");
        let mut content = vec![b'x'; length];
        // What is looked at of a precompressed file.
        match name.rsplit('.').next() {
            Some("gz") => {
                let base = path.with_extension("");
                let base_bytes = base.metadata().map_or(0, |metadata| metadata.len()) as u32;
                content[..3].copy_from_slice(&[0x1f, 0x8b, 8]);
                content[length - 4..].copy_from_slice(&base_bytes.to_le_bytes());
            }
            Some("zst") => content[..6].copy_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0, 0]),
            _ => {}
        }
        std::fs::write(path, content).expect("written");
    }

    /// The file, which differs from `cached`.
    #[track_caller]
    fn find(&self, cached: Option<&OpenFile>, limits: EntryLimits) -> OpenFile {
        match self.run(cached, limits) {
            LookupResult::New(file) => file,
            LookupResult::Unchanged => panic!("unchanged: {cached:?}"),
        }
    }

    #[track_caller]
    fn run(&self, cached: Option<&OpenFile>, limits: EntryLimits) -> LookupResult {
        let context =
            LookupContext { now_ms: 0, unix_s: NOW_UNIX_S, limits, attempt_count: 0, sendfile_after: Duration::ZERO };
        loop {
            match self.lookup.run(cached, context, Blocking::Yes, (&self.gauges, &compression())) {
                Ok(found) => return found,
                Err(OpenError::Retry(after)) => std::thread::park_timeout(after.delay()),
                Err(OpenError::File(error)) => panic!("{error:?}"),
            }
        }
    }

    fn attempt(&self) -> Result<LookupResult, OpenError> {
        let context = LookupContext {
            now_ms: 0,
            unix_s: NOW_UNIX_S,
            limits: LIMITS,
            attempt_count: 0,
            sendfile_after: Duration::ZERO,
        };
        self.lookup.run(None, context, Blocking::Yes, (&self.gauges, &compression()))
    }

    #[track_caller]
    fn check_unchanged(&self, cached: &OpenFile) {
        let found = self.run(Some(cached), LIMITS);
        assert!(matches!(found, LookupResult::Unchanged), "{found:?}, not {cached:?}");
    }

    #[track_caller]
    fn check_used(&self, descriptors: u64, content_bytes: u64) {
        let used = [&self.gauges.descriptors, &self.gauges.content_bytes].map(|gauge| gauge.load(Ordering::Relaxed));
        assert_eq!(used, [descriptors, content_bytes]);
    }
}

#[test]
fn memory_and_descriptors_of_all_codings_are_counted_until_the_entry_is_dropped() {
    let files = [("a.txt", 60_000), ("a.txt.br", 20_000), ("a.txt.gz", 1_000), ("a.txt.zst", 60_001)];
    let fixture = Fixture::new(&files, "/a.txt");
    let file = fixture.find(None, LIMITS);
    fixture.check_used(2, 1_000);
    assert!(!file.is_deleted());
    std::fs::remove_file(fixture.directory.path().join("a.txt.br")).expect("removed");
    assert!(file.is_deleted());
    drop(file);
    fixture.check_used(0, 0);
    let fixture = Fixture::new(&files, "/a.txt.br");
    let _file = fixture.find(None, LIMITS);
    fixture.check_used(1, 0);
}

#[test]
fn an_entry_is_unchanged_as_long_as_the_files_of_all_its_codings_are() {
    let fixture = Fixture::new(&[("a.txt", 60_000), ("a.txt.gz", 1_000), ("a.txt.br", 60_001)], "/a.txt");
    let path = |name: &str| fixture.directory.path().join(name);
    let mut file = fixture.find(None, LIMITS);
    fixture.check_unchanged(&file);
    fixture.write("a.txt.br", 60_002);
    fixture.check_unchanged(&file);
    fixture.write("a.txt.gz", 1_000);
    file = fixture.find(Some(&file), LIMITS);
    std::fs::copy(path("a.txt"), path("copy")).expect("copied");
    std::fs::rename(path("copy"), path("a.txt")).expect("renamed");
    // The precompressed file is older now.
    file = fixture.find(Some(&file), LIMITS);
    fixture.check_used(1, 0);
    fixture.write("a.txt.gz", 1_000);
    file = fixture.find(Some(&file), LIMITS);
    fixture.check_used(1, 1_000);
    std::fs::remove_file(path("a.txt.gz")).expect("removed");
    file = fixture.find(Some(&file), LIMITS);
    // A link leads to the same file, and a watch on the directory does not report its changes.
    std::fs::create_dir(path("elsewhere")).expect("made");
    std::fs::rename(path("a.txt"), path("elsewhere/a.txt")).expect("renamed");
    std::os::unix::fs::symlink("elsewhere/a.txt", path("a.txt")).expect("linked");
    file = fixture.find(Some(&file), LIMITS);
    assert!(file.is_unwatchable);
    fixture.check_unchanged(&file);
}

#[test]
fn the_same_file_behind_a_link_is_changed_unless_the_entry_is_watched() {
    let fixture = Fixture::new(&[("directory/a.txt", 1_000)], "/directory/a.txt");
    let file = fixture.find(None, LIMITS);
    assert!(!file.is_unwatchable);
    let path = |name: &str| fixture.directory.path().join(name);
    std::fs::rename(path("directory"), path("elsewhere")).expect("renamed");
    std::os::unix::fs::symlink("elsewhere", path("directory")).expect("linked");
    let behind_link = fixture.find(Some(&file), LIMITS);
    assert!(behind_link.is_unwatchable);
    fixture.check_unchanged(&behind_link);
    file.set_watched(true);
    fixture.check_unchanged(&file);
}

#[test]
fn an_unchanged_file_is_not_read_again() {
    let fixture = Fixture::new(&[("a.txt", 1_000), ("a.txt.gz", 100)], "/a.txt");
    let file = fixture.find(None, LIMITS);
    let check = |expected: &[(Syscall, u64)]| {
        let before = thread_counts();
        fixture.check_unchanged(&file);
        assert_eq!(thread_counts().since(&before).nonzero().collect::<Vec<_>>(), expected);
    };
    if OPEN.selected_name() != "openat2-cached" || STAT.selected_name() != "fstat" {
        return;
    }
    check(&[(Syscall::Close, 2), (Syscall::Fstat, 2), (Syscall::Openat2, 4), (Syscall::Readlinkat, 2)]);
    file.set_watched(true);
    check(&[(Syscall::Close, 2), (Syscall::Fstat, 2), (Syscall::Openat2, 4)]);
}

#[test]
fn only_a_name_of_a_known_text_type_is_looked_up_in_each_coding_without_its_file() {
    if OPEN.selected_name() != "openat2-cached" {
        return;
    }
    // The page for the error is looked for, too.
    let enabled = CompressionOptions::default();
    let disabled = CompressionOptions { content_bytes_max: 0, ..enabled };
    for (path, options, expected) in [
        ("/none", enabled, 2),
        ("/none.png", enabled, 2),
        ("/none.js.br", enabled, 2),
        ("/none.js", enabled, 5),
        ("/none.js", disabled, 2),
    ] {
        let fixture = Fixture::new(&[], path);
        let compression = Arc::new(CompressionQueue::new(options));
        let context =
            LookupContext { now_ms: 0, unix_s: 0, limits: LIMITS, attempt_count: 0, sendfile_after: Duration::ZERO };
        let run = || fixture.lookup.run(None, context, Blocking::Yes, (&fixture.gauges, &compression));
        // The first one fills the kernel's cache of names.
        assert_eq!(run().err(), Some(FileError::NotFound.into()));
        let before = thread_counts();
        assert_eq!(run().err(), Some(FileError::NotFound.into()));
        assert_eq!(
            thread_counts().since(&before).nonzero().collect::<Vec<_>>(),
            [(Syscall::Openat2, expected)],
            "{path}"
        );
    }
}

#[test]
fn no_entry_uses_more_than_the_budget() {
    let files = [("a.txt", 1_000), ("a.txt.br", 300), ("a.txt.gz", 200), ("a.txt.zst", 100)];
    let fixture = Fixture::new(&files, "/a.txt");
    let check = |content_bytes: u64, descriptors: u64, expected: (u64, u64)| {
        let limits = EntryLimits { content_bytes, descriptors, ..LIMITS };
        let file = fixture.find(None, limits);
        fixture.check_used(expected.0, expected.1);
        assert!(matches!(fixture.run(Some(&file), limits), LookupResult::Unchanged));
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

/// As `cp -p`, a new unpack of an archive, another machine.
#[test]
fn a_copy_with_its_times_has_the_same_entity_tag() {
    for length in [1_000, 60_000] {
        let fixture = Fixture::new(&[("a.txt", length)], "/a.txt");
        let path = |name: &str| fixture.directory.path().join(name);
        let (file, modified) = (fixture.find(None, LIMITS), modified_at(&path("a.txt")));
        let replace_by_copy = |modified| {
            std::fs::copy(path("a.txt"), path("copy")).expect("copied");
            let copy = std::fs::File::options().write(true).open(path("copy")).expect("opened");
            copy.set_modified(modified).expect("the time is set");
            std::fs::rename(path("copy"), path("a.txt")).expect("renamed");
            fixture.find(Some(&file), LIMITS)
        };
        assert_eq!(etag(&replace_by_copy(modified)), etag(&file));
        // That of a file in memory depends on its content alone.
        let touched = replace_by_copy(modified + std::time::Duration::from_nanos(1));
        assert_eq!(etag(&touched) == etag(&file), length == 1_000, "{length}");
    }
}

fn etag(file: &OpenFile) -> &[u8] {
    file.variant(VariantId::Uncompressed).representation.etag()
}

fn modified_at(path: &Path) -> std::time::SystemTime {
    path.metadata().and_then(|metadata| metadata.modified()).expect("a time")
}

/// As a log is, or a recording.
#[test]
fn a_file_that_is_appended_to_all_the_time_is_found_with_its_length_at_that_time() {
    for length in [1_000, 60_000] {
        let fixture = Fixture::new(&[("a.txt", length)], "/a.txt");
        let path = fixture.directory.path().join("a.txt");
        let file = Directory::open(fixture.directory.path()).and_then(|it| it.open_beneath(b"a.txt")).expect("opened");
        if cached_tail(&file, length as u64).is_none() {
            println!("skipped: an append is told from another change by bytes in the page cache");
            return;
        }
        let mut written = length as u64;
        let file = loop {
            let mut file = std::fs::File::options().append(true).open(&path).expect("opened");
            std::io::Write::write_all(&mut file, b"line\n").expect("written");
            written += 5;
            assert!(written < length as u64 + 50, "it is not found");
            match fixture.attempt() {
                Ok(LookupResult::New(file)) => break file,
                other => assert!(matches!(other, Err(OpenError::Retry(RetryAfter::RecentChange(_)))), "{other:?}"),
            }
        };
        let variant = file.variant(VariantId::Uncompressed);
        assert_eq!(variant.representation.length_bytes(), written);
        std::fs::File::options().append(true).open(&path).and_then(|file| file.set_len(written + 7)).expect("longer");
        assert!(variant.is_unchanged());
    }
}

#[test]
fn a_file_that_is_written_again_all_the_time_is_not_found() {
    let fixture = Fixture::new(&[], "/a.txt");
    for version in 0..30_u8 {
        // Longer each time, and with another content.
        let content = vec![version; 9_000 + usize::from(version)];
        std::fs::write(fixture.directory.path().join("a.txt"), content).expect("written");
        let written_at = Instant::now();
        let found = fixture.attempt();
        // On a busy machine the change may be an old one by then.
        let is_recent = written_at.elapsed() < RECENT_CHANGE / 2;
        assert!(!is_recent || matches!(found, Err(OpenError::Retry(RetryAfter::RecentChange(_)))), "{version}");
    }
}

#[test]
fn a_media_type_of_the_site_takes_precedence() {
    let options = SiteOptions {
        media_types: [("log", "text/x-log"), ("html", "text/x-own"), ("", "text/x-none")]
            .map(|(extension, media_type)| (extension.to_owned(), media_type.to_owned()))
            .into(),
        ..SiteOptions::default()
    };
    for (file_name, expected) in [
        ("a.log", "text/x-log"),
        ("a.b.LOG", "text/x-log"),
        ("a.html", "text/x-own"),
        ("a.htm", "text/html; charset=utf-8"),
        ("LICENSE", "text/x-none"),
        ("a.unknown", "application/octet-stream"),
    ] {
        assert_eq!(options.media_type(file_name.as_bytes()), expected, "{file_name}");
    }
}

#[test]
fn a_link_leads_to_a_file_beneath_the_root_or_a_link_target() {
    let tree = tempfile::tempdir().expect("made");
    let path = |name: &str| tree.path().join(name);
    for (name, content) in [("site/a.txt", "inside"), ("uploads/b.txt", "upload"), ("uploads-2/c.txt", "secret")] {
        std::fs::create_dir_all(path(name).parent().expect("a directory")).expect("made");
        std::fs::write(path(name), content).expect("written");
    }
    for (link, to) in [
        ("site/absolute", path("site/a.txt")),
        ("site/again", path("site")),
        ("site/uploads", path("uploads")),
        ("site/upload", "../uploads/b.txt".into()),
        ("site/beside", "../uploads-2/c.txt".into()),
        ("site/passwd", "/etc/passwd".into()),
        ("site/stdin", "/proc/self/fd/0".into()),
        ("uploads/out", path("uploads-2/c.txt")),
        ("uploads/back", path("site/a.txt")),
    ] {
        std::os::unix::fs::symlink(to, path(link)).expect("linked");
    }
    let found = |requested: &str, link_targets: &[&str]| {
        let targets = link_targets.iter().map(|name| Arc::new(Directory::open(&path(name)).expect("opened")));
        let lookup = lookup_of(&path("site"), requested, targets.collect());
        let context =
            LookupContext { now_ms: 0, unix_s: 0, limits: LIMITS, attempt_count: 0, sendfile_after: Duration::ZERO };
        loop {
            match lookup.run(None, context, Blocking::Yes, (&Arc::default(), &compression())) {
                Ok(LookupResult::New(file)) => {
                    assert!(file.is_unwatchable, "{requested}");
                    let content = file.variant(VariantId::Uncompressed).content.in_memory().expect("a small file");
                    break Ok(String::from_utf8_lossy(content).into_owned());
                }
                Ok(LookupResult::Unchanged) => panic!("nothing is cached"),
                Err(OpenError::Retry(after)) => std::thread::park_timeout(after.delay()),
                Err(OpenError::File(error)) => break Err(error),
            }
        }
    };
    for (requested, alone, with_target) in [
        ("/absolute", Ok("inside"), Ok("inside")),
        ("/again/a.txt", Ok("inside"), Ok("inside")),
        ("/again", Err(FileError::IsDirectory), Err(FileError::IsDirectory)),
        ("/upload", Err(FileError::NotFound), Ok("upload")),
        ("/uploads", Err(FileError::NotFound), Err(FileError::IsDirectory)),
        ("/uploads/b.txt", Err(FileError::NotFound), Ok("upload")),
        ("/uploads/missing", Err(FileError::NotFound), Err(FileError::NotFound)),
        ("/uploads/out", Err(FileError::NotFound), Err(FileError::NotFound)),
        ("/uploads/back", Ok("inside"), Ok("inside")),
        ("/beside", Err(FileError::NotFound), Err(FileError::NotFound)),
        ("/passwd", Err(FileError::NotFound), Err(FileError::NotFound)),
        ("/stdin", Err(FileError::NotFound), Err(FileError::NotFound)),
    ] {
        assert_eq!(found(requested, &[]), alone.map(str::to_owned), "{requested}");
        assert_eq!(found(requested, &["uploads"]), with_target.map(str::to_owned), "{requested} with uploads");
    }
}
