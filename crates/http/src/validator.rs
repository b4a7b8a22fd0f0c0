//! The identity of a version of a file, from which its entity tag is made (RFC 9110 §8.8.1).
//!
//! A strong tag must change with the content. So it is made of the content itself, or of metadata that must change with
//! the content.

use alloc::vec::Vec;
use core::fmt;

use crate::content_coding::ContentCoding;
use crate::output::put_fmt;

/// A time stamp of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Seconds since 1970-01-01 00:00:00 UTC; negative before.
    pub unix_s: i64,
    /// Nanoseconds after that second.
    pub nanos: u32,
}

impl FileTime {
    /// Whether it may have been set by a program, and may be the same for several versions of a file: it is in whole
    /// seconds, as archives, images of containers and reproducible builds have it. The clock of a kernel ticks at least
    /// a hundred times a second, and a time of that clock is a whole second only by chance.
    pub fn may_be_set(self) -> bool {
        self.nanos == 0
    }
}

/// The metadata of a file, from fstat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileMetadata {
    /// Length of the file (`st_size`).
    pub length_bytes: u64,
    /// Last modification (`st_mtime`), which the owner can set.
    pub modified: FileTime,
    /// Last status change (`st_ctime`), which the owner cannot set.
    pub changed: FileTime,
    /// Device (`st_dev`).
    pub device: u64,
    /// Inode number (`st_ino`).
    pub inode: u64,
}

/// 128 bits that differ for two versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Validator(Hash);

impl Validator {
    /// Of the content: the same on every machine that has it.
    pub fn of_content(content: &[u8]) -> Validator {
        let mut hash = ContentHash::new(content.len() as u64);
        hash.put(content);
        hash.finish()
    }

    /// Of a file that was not read.
    ///
    /// A time of the kernel's clock belongs to one version, since a file that was written in the last milliseconds is
    /// not served yet; a copy with its times keeps it (`cp -p`, `rsync -t`), on another machine too. If the time may be
    /// set, nothing but the last status change and the inode tells two versions apart.
    pub fn of_metadata(metadata: &FileMetadata) -> Validator {
        let mut hash = Hash::new(metadata.length_bytes);
        let put_time = |hash: &mut Hash, time: FileTime| {
            hash.put(time.unix_s.cast_unsigned());
            hash.put(u64::from(time.nanos));
        };
        put_time(&mut hash, metadata.modified);
        if metadata.modified.may_be_set() {
            put_time(&mut hash, metadata.changed);
            hash.put(metadata.device);
            hash.put(metadata.inode);
        }
        Validator(hash)
    }

    /// Of the output of this version of compressors for the file. It is known before it is made.
    #[must_use]
    pub fn compressed_by(self, compressors: CompressorVersion) -> Validator {
        let Validator(mut hash) = self;
        hash.put(compressors.0);
        Validator(hash)
    }

    /// Appends the entity tag, with its quotes, of the version in a coding.
    pub(crate) fn put_tag(self, coding: ContentCoding, out: &mut Vec<u8>) {
        let Validator(mut hash) = self;
        hash.put(coding as u64);
        put_fmt(out, format_args!("\"{hash:?}\""));
    }
}

/// A version of the compressors: as long as it stays, they make the same bytes of the same content, on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompressorVersion(pub u64);

/// The [`Validator`] of content that is read in parts.
#[derive(Clone, Copy, Debug)]
pub struct ContentHash(Hash);

impl ContentHash {
    /// All parts but the last have a multiple of so many bytes.
    pub const PART_BYTES: usize = size_of::<u64>();

    /// `length_bytes`: of all parts together.
    pub fn new(length_bytes: u64) -> ContentHash {
        ContentHash(Hash::new(length_bytes))
    }

    /// Adds a part.
    pub fn put(&mut self, part: &[u8]) {
        let (words, rest) = part.as_chunks();
        words.iter().for_each(|word| self.0.put(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            // The length is hashed too, so that no other content has these words.
            let mut last = [0; ContentHash::PART_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            self.0.put(u64::from_le_bytes(last));
        }
    }

    /// The validator of the whole content.
    pub fn finish(self) -> Validator {
        Validator(self.0)
    }
}

/// A hash of words, in two chains with different starts. It is not made to resist an attacker: one that can write a
/// file needs no collision.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Hash {
    high: u64,
    low: u64,
}

impl fmt::Debug for Hash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}{:016x}", self.high, self.low)
    }
}

impl Hash {
    const HIGH_START: u64 = 0x9e37_79b9_7f4a_7c15;
    const LOW_START: u64 = 0xd1b5_4a32_d192_ed03;

    fn new(word: u64) -> Hash {
        let mut hash = Hash { high: Hash::HIGH_START, low: Hash::LOW_START };
        hash.put(word);
        hash
    }

    #[inline]
    fn put(&mut self, word: u64) {
        self.high = mix((self.high ^ word).wrapping_add(Hash::HIGH_START));
        self.low = mix((self.low ^ word).wrapping_add(Hash::LOW_START));
    }
}

/// The finalizer of SplitMix64: a bijection, so that contents which differ in one word never have the same hash.
#[inline]
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
