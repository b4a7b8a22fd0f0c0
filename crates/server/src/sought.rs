//! A path that was asked for into the file that stands there, with what is beside it in other codings.

use crate::content::{BuiltinFile, Root, Site};
use crate::open_file::{FileKey, Form, Gauges, Look, NoFile, OpenFile, Patience, Unready, Version, no_file};
use os::directory::Directory;
use sanderling_http::{Coding, Facts, Representation, SitePath, Time, Variant, is_compressible, media_type};
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

    /// Looks for the file.
    pub(crate) fn find(
        &self,
        look: Look,
        patience: Patience,
        gauges: &Arc<Gauges>,
    ) -> Result<Result<OpenFile, NoFile>, Unready> {
        let found = match &self.site.root {
            Root::Builtin(files) => Ok(find_builtin(files, &self.path, look, gauges)),
            Root::Folder(root) => self.find_beneath(root, look, patience, gauges),
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
        look: Look,
        patience: Patience,
        gauges: &Arc<Gauges>,
    ) -> Result<Result<OpenFile, NoFile>, Unready> {
        let Taken { version: plain, is_by_link } = match take_beneath(root, &self.path, look, patience)? {
            Ok(taken) => taken,
            Err(no_file) => return Ok(Err(no_file)),
        };
        let media_type = media_type(self.file_name());
        let Beside { coded, hides_changes } = if self.may_be_coded(media_type) {
            self.find_beside(&plain, root, look, patience)?
        } else {
            Beside::default()
        };
        let variant = if coded.is_empty() { Variant::Only } else { Variant::OneOf(Coding::Identity) };
        let plain = Form::new(plain, media_type, variant, look, gauges);
        let form = |(coding, version)| (coding, Form::new(version, media_type, Variant::OneOf(coding), look, gauges));
        let coded = coded.into_iter().map(form).collect();
        Ok(Ok(OpenFile::new(plain, coded, is_by_link || hides_changes, look)))
    }

    /// Whether it is worth looking for the file in a coding. What is in one already is a file like any other when it is
    /// asked for by its own name.
    fn may_be_coded(&self, media_type: &str) -> bool {
        is_compressible(media_type) && Coding::strip_file_ending(&self.path).is_none()
    }

    /// Looks for the file in all codings. Trouble with one of them leaves the client the others.
    fn find_beside(
        &self,
        plain: &Version,
        root: &Directory,
        look: Look,
        patience: Patience,
    ) -> Result<Beside, Unready> {
        let mut beside = Beside::default();
        let mut settling = None;
        for coding in Coding::COMPRESSING {
            let path = [&self.path, coding.file_ending().as_bytes()].concat();
            match take_beneath(root, &path, look, patience) {
                Ok(Ok(taken)) => {
                    beside.hides_changes |= taken.is_by_link;
                    if stands_for(&taken.version.facts, &plain.facts) {
                        beside.coded.push((coding, taken.version));
                    }
                }
                Ok(Err(NoFile::Missing | NoFile::Folder | NoFile::Forbidden)) => {}
                // Nobody tells when it is ready: the change that it is in has been told already.
                Ok(Err(NoFile::Busy | NoFile::Failed)) => beside.hides_changes = true,
                Err(Unready::Settling(left)) => settling = settling.max(Some(left)),
                Err(Unready::WouldWait) => return Err(Unready::WouldWait),
            }
        }
        match settling {
            Some(left) if look.try_count < SETTLING_TRIES_MAX => return Err(Unready::Settling(left)),
            Some(_) => beside.hides_changes = true,
            None => {}
        }
        Ok(beside)
    }
}

/// A file beneath a root.
struct Taken {
    version: Version,
    /// Its path leads through a link.
    is_by_link: bool,
}

/// What is beside a file, and is the same in a coding.
#[derive(Default)]
struct Beside {
    coded: Vec<(Coding, Version)>,
    /// Some of it may change without a word from the folder.
    hides_changes: bool,
}

/// Opens the file at `path`, and reads it if it is small.
fn take_beneath(
    root: &Directory,
    path: &[u8],
    look: Look,
    patience: Patience,
) -> Result<Result<Taken, NoFile>, Unready> {
    let opened = match root.open_beneath_cached(path) {
        Ok(Some(file)) => Ok(file),
        Err(error) => Err(error),
        Ok(None) if patience == Patience::None => return Err(Unready::WouldWait),
        Ok(None) => root.open_beneath(path),
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) => return Ok(Err(no_file(&error))),
    };
    let is_by_link = !file.real_path().is_ok_and(|real| is_beneath(&real, root, path));
    Ok(Version::take(file, look, patience)?.map(|version| Taken { version, is_by_link }))
}

/// Whether `real` is where `path` beneath `root` leads if no link is on the way.
fn is_beneath(real: &Path, root: &Directory, path: &[u8]) -> bool {
    real.strip_prefix(root.real_path()).is_ok_and(|rest| rest.as_os_str().as_bytes() == path)
}

/// Whether a file in a coding can be sent in the place of the plain one: it was not made before that was changed, and it
/// is shorter. Nothing is shorter than an empty file, and no coding makes nothing of a file that is not.
fn stands_for(coded: &os::file::Facts, plain: &os::file::Facts) -> bool {
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
    let facts = Facts {
        length_bytes: file.bytes.len() as u64,
        modified: Time::default(),
        changed: Time::default(),
        device: 0,
        inode: mark,
    };
    let representation = Representation::new(&facts, media_type(path), Variant::Only, b"", look.unix_s);
    let plain = Form::builtin(file.bytes, representation, gauges);
    Ok(OpenFile::new(plain, Vec::new(), false, look))
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::file::{Kind, Timestamp};
    use std::sync::atomic::Ordering;

    fn facts(length_bytes: u64, seconds: i64, nanoseconds: u32) -> os::file::Facts {
        let moment = Timestamp { seconds, nanoseconds };
        os::file::Facts {
            kind: Kind::Regular,
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
        let check = |coded: os::file::Facts, plain: os::file::Facts, expected: bool| {
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

    /// The file at `path` in a folder of these files, each of so many octets.
    fn find(name: &str, files: &[(&str, usize)], path: &str, gauges: &Arc<Gauges>) -> OpenFile {
        let folder = std::env::temp_dir().join(format!("sanderling-sought-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("made");
        for (name, length) in files {
            std::fs::write(folder.join(name), vec![b'x'; *length]).expect("written");
        }
        let root = Root::Folder(Directory::open(&folder).expect("opened"));
        let site = Arc::new(Site { id: 0, hosts: Vec::new(), root });
        let path = SitePath::parse(path.as_bytes()).expect("a path");
        let sought = Sought::new(&site, &path, b"");
        let look = Look { now_ms: 0, unix_s: 0, small_file_bytes_max: 8 * 1024, try_count: 0 };
        let file = loop {
            match sought.find(look, Patience::Any, gauges) {
                Ok(found) => break found.expect("a file"),
                Err(unready) => std::thread::park_timeout(unready.delay()),
            }
        };
        std::fs::remove_dir_all(&folder).expect("removed");
        file
    }

    #[test]
    fn what_all_forms_of_a_file_take_is_counted_until_it_goes() {
        let gauges = Arc::<Gauges>::default();
        let check = |descriptors: u64, content_bytes: u64| {
            assert_eq!(gauges.descriptors.load(Ordering::Relaxed), descriptors);
            assert_eq!(gauges.content_bytes.load(Ordering::Relaxed), content_bytes);
        };
        let files = [("a.txt", 60_000), ("a.txt.br", 20_000), ("a.txt.gz", 1_000), ("a.txt.zst", 60_001)];
        let file = find("taken", &files, "/a.txt", &gauges);
        check(2, 1_000);
        assert!(file.is_deleted(), "as the folder is");
        drop(file);
        check(0, 0);
        let file = find("own-name", &files, "/a.txt.br", &gauges);
        check(1, 0);
        drop(file);
    }

    #[test]
    fn a_file_is_the_same_as_long_as_all_of_its_forms_are() {
        let gauges = Arc::<Gauges>::default();
        let (plain, gzip) = (("a.txt", 60_000), ("a.txt.gz", 1_000));
        let both = find("same", &[plain, gzip], "/a.txt", &gauges);
        assert!(both.is_same_as(&both));
        let one = find("same", &[plain], "/a.txt", &gauges);
        assert!(!one.is_same_as(&both) && !both.is_same_as(&one));
    }
}
