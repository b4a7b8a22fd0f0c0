//! When a file counts as one version.

use super::*;
use sanderling_http::Negotiation;
use sanderling_os::directory::Directory;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// The content of the file at first.
const CONTENT: &[u8] = b"one version";

/// A look-up just after a change of the file.
const CONTEXT: LookupContext = LookupContext {
    now_ms: 0,
    unix_s: 0,
    limits: EntryLimits { small_file_bytes_max: 0, content_bytes: 0, descriptors: 1, listed_entries: 0 },
    attempt_count: 0,
    sendfile_after: Duration::from_secs(10),
};

/// A directory with a file called `file`.
struct TestDirectory(tempfile::TempDir);

impl TestDirectory {
    fn new() -> TestDirectory {
        let directory = tempfile::tempdir().expect("created");
        fs::write(directory.path().join("file"), CONTENT).expect("written");
        TestDirectory(directory)
    }

    fn open(&self) -> UnreadFile {
        let directory = Directory::open(self.0.path()).expect("opened");
        loop {
            match UnreadFile::new(directory.open_beneath(b"file").expect("opened")).and_then(UnreadFile::settled) {
                Ok(seen) => return seen,
                Err(OpenError::Retry(after)) => std::thread::park_timeout(after.delay()),
                Err(OpenError::File(error)) => panic!("{error:?}"),
            }
        }
    }
}

/// Whether this kernel, or the variant that is forced, can read only from the page cache.
fn knows_page_cache() -> bool {
    let directory = TestDirectory::new();
    let file = Directory::open(directory.0.path()).and_then(|it| it.open_beneath(b"file")).expect("opened");
    cached_tail(&file, CONTENT.len() as u64).is_some()
}

#[test]
fn a_version_is_unchanged_as_long_as_the_file_cannot_have_been_written() {
    let check = |name: &str, act: &dyn Fn(&Path), expected: bool| {
        let directory = TestDirectory::new();
        let version =
            directory.open().read(Storage::Descriptor, TagBasis::Metadata, Blocking::Yes, CONTEXT).expect("a file");
        let variant = FileVariant::new(version, ("text/plain", b""), Negotiation::None, 0, &Arc::default());
        assert!(variant.is_unchanged(), "{name}: at first");
        act(&directory.0.path().join("file"));
        assert_eq!(variant.is_unchanged(), expected, "{name}");
    };
    let link = |path: &Path| fs::hard_link(path, path.with_extension("link")).expect("linked");
    let unlink = |path: &Path| fs::remove_file(path.with_extension("link")).expect("unlinked");
    let write = |path: &Path| fs::write(path, [b'x'; CONTENT.len()]).expect("written");
    check("read", &|path| drop(fs::read(path).expect("read")), true);
    check("unlinked", &|path| fs::remove_file(path).expect("removed"), true);
    check("linked", &link, true);
    check("written", &write, false);
    let append = |path: &Path, bytes: &[u8]| {
        fs::File::options().append(true).open(path).and_then(|mut file| file.write_all(bytes)).expect("appended");
    };
    // An append is told from another change by bytes in the page cache.
    check("appended", &|path| append(path, b"more"), knows_page_cache());
    check(
        "appended and shortened",
        &|path| {
            append(path, b"more");
            fs::File::options().write(true).open(path).and_then(|file| file.set_len(3)).expect("shortened");
        },
        false,
    );
    check("prepended", &|path| fs::write(path, [b"more", CONTENT].concat()).expect("written"), false);
    check("written and longer", &|path| fs::write(path, [b'x'; CONTENT.len() + 1]).expect("written"), false);
    // A write whose time was set back leaves a newer time of the inode, and so do these.
    let write_and_set_back = |path: &Path| {
        let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).expect("a time");
        write(path);
        fs::File::options().write(true).open(path).and_then(|file| file.set_modified(modified)).expect("set");
    };
    check("set-back", &write_and_set_back, false);
    check("renamed", &|path| fs::rename(path, path.with_extension("moved")).expect("renamed"), false);
    check("mode", &|path| fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("set"), false);
    let link_and_unlink = |path: &Path| {
        link(path);
        unlink(path);
    };
    check("link-and-unlink", &link_and_unlink, false);
}

#[test]
fn a_file_written_between_fstat_and_read_is_read_later() {
    let directory = TestDirectory::new();
    let version = directory.open().read(Storage::Memory, TagBasis::Metadata, Blocking::Yes, CONTEXT).expect("a file");
    assert!(matches!(version.content, FileContent::Memory(content) if *content == *CONTENT));
    for content in [[b'x'; CONTENT.len()].as_slice(), b"shorter", b""] {
        let seen = directory.open();
        fs::write(directory.0.path().join("file"), content).expect("written");
        let read = seen.read(Storage::Memory, TagBasis::Metadata, Blocking::Yes, CONTEXT);
        assert!(matches!(read, Err(OpenError::Retry(RetryAfter::RecentChange(_)))), "{read:?}");
    }
}

/// A write of this length takes some milliseconds.
const LONG_WRITE_BYTES: usize = 64 << 20;

#[test]
fn a_file_is_read_when_the_write_that_has_changed_its_times_has_ended() {
    let directory = TestDirectory::new();
    let path = directory.0.path().join("file");
    fs::write(&path, vec![0; LONG_WRITE_BYTES]).expect("written");
    for version in 1..4 {
        let before = directory.open().metadata;
        let new = vec![version; LONG_WRITE_BYTES];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = fs::File::options().write(true).open(&path).expect("opened");
                file.write_at(&new, 0).expect("written");
            });
            let root = Directory::open(directory.0.path()).expect("opened");
            let open = || UnreadFile::new(root.open_beneath(b"file").expect("opened"));
            let seen = loop {
                let seen = open().expect("opened");
                if seen.metadata != before {
                    break seen;
                }
            };
            let read = open().expect("opened").read(Storage::Memory, TagBasis::Metadata, Blocking::No, CONTEXT);
            assert!(matches!(read, Err(OpenError::Retry(RetryAfter::Disk))), "a worker does not wait: {read:?}");
            let read = seen.read(Storage::Descriptor, TagBasis::Metadata, Blocking::Yes, CONTEXT).expect("a version");
            let FileContent::Descriptor(file) = &read.content else { panic!("{read:?}") };
            // A write begins at the start.
            let mut last = [0];
            let count = file.file().read_at(&mut last, LONG_WRITE_BYTES as u64 - 1).expect("read");
            assert_eq!((count, last, file.is_unchanged()), (1, [version], true));
        });
    }
}
