//! Prepares the response heads of a file when it is opened.

use alloc::vec::Vec;
use core::fmt::Write;

use crate::content_coding::ContentCoding;
use crate::date::HttpDate;
use crate::status::Status;

/// A time stamp of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Seconds since 1970-01-01 00:00:00 UTC; negative before.
    pub unix_s: i64,
    /// Nanoseconds after that second.
    pub nanos: u32,
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

/// Whether a representation is selected by content negotiation (RFC 9110 §12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiation {
    /// No: it is the only one of its resource.
    None,
    /// Yes, by Accept-Encoding; this one has this coding.
    AcceptEncoding(ContentCoding),
}

/// A file as a representation (RFC 9110 §8.1): its length and validators, and its prepared response head.
#[derive(Clone, Debug)]
pub struct Representation {
    length_bytes: u64,
    modified_unix_s: Option<u64>,
    /// The head of a 200, including its last empty line.
    head: Vec<u8>,
    /// Where in `head` the fields start that a 206 repeats: those after Content-Length.
    content_fields_start: usize,
    /// Where in `head` the fields start that a 304 repeats: ETag, Vary and the extra fields.
    not_modified_start: usize,
    etag_bytes: usize,
    /// Length of the Content-Type line, the first of the content fields.
    content_type_bytes: usize,
    is_coded: bool,
}

impl Representation {
    /// Prepares the representation of a file.
    ///
    /// `metadata` and `content` are those of the file as sent, so of the coded one; with `content` the entity tag is
    /// the same on every machine that has this content. `media_type` is the Content-Type of the decoded content.
    /// `extra_fields` are further field lines, each with its CRLF, such as Cache-Control; 200, 206 and 304 have them.
    /// `now_unix_s` is the current time in seconds since 1970.
    pub fn new(
        metadata: &FileMetadata,
        content: Option<&[u8]>,
        media_type: &str,
        negotiation: Negotiation,
        extra_fields: &[u8],
        now_unix_s: u64,
    ) -> Representation {
        let modified_unix_s = last_modified_unix_s(metadata, now_unix_s);
        let mut head = Vec::with_capacity(HEAD_BYTES_USUAL + extra_fields.len());
        head.extend_from_slice(Status::Ok.start());
        put_fmt(&mut head, format_args!("Content-Length: {}\r\n", metadata.length_bytes));
        let content_fields_start = head.len();
        put_fmt(&mut head, format_args!("Content-Type: {media_type}\r\n"));
        let content_type_bytes = head.len() - content_fields_start;
        if let Some(coding) = content_encoding(negotiation) {
            put_fmt(&mut head, format_args!("Content-Encoding: {}\r\n", coding.name()));
        }
        if let Some(unix_s) = modified_unix_s {
            put_fmt(&mut head, format_args!("Last-Modified: {}\r\n", HttpDate::from_unix_s(unix_s)));
        }
        head.extend_from_slice(b"Accept-Ranges: bytes\r\nX-Content-Type-Options: nosniff\r\n");
        let not_modified_start = head.len();
        head.extend_from_slice(ETAG);
        let (high, low) = fingerprint(metadata, content, content_encoding(negotiation), now_unix_s);
        put_fmt(&mut head, format_args!("\"{high:016x}{low:016x}\"\r\n"));
        let etag_bytes = head.len() - not_modified_start - ETAG.len() - 2;
        if negotiation != Negotiation::None {
            // RFC 9110 §12.5.5: also without a coding, else a cache sends one client the representation of another.
            head.extend_from_slice(b"Vary: Accept-Encoding\r\n");
        }
        head.extend_from_slice(extra_fields);
        head.extend_from_slice(b"\r\n");
        Representation {
            length_bytes: metadata.length_bytes,
            modified_unix_s,
            head,
            content_fields_start,
            not_modified_start,
            etag_bytes,
            content_type_bytes,
            is_coded: content_encoding(negotiation).is_some(),
        }
    }

    /// The length of the file.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// The strong entity tag, with its quotes (RFC 9110 §8.8.3).
    pub fn etag(&self) -> &[u8] {
        let start = self.not_modified_start + ETAG.len();
        &self.head[start..start + self.etag_bytes]
    }

    /// The date of Last-Modified in seconds since 1970, if the file has a plausible one.
    pub fn modified_unix_s(&self) -> Option<u64> {
        self.modified_unix_s
    }

    /// The head of a 200 with a date of 1970, including its last empty line.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The fields of a 206 but Content-Length and Content-Range, without the last empty line.
    pub(crate) fn content_fields(&self) -> &[u8] {
        &self.head[self.content_fields_start..self.head.len() - 2]
    }

    /// The first of them, Content-Type, with its CRLF.
    pub(crate) fn content_type_line(&self) -> &[u8] {
        &self.content_fields()[..self.content_type_bytes]
    }

    /// Appends the fields of a response that has the file as its page, but is no response of the file: without
    /// validators.
    pub(crate) fn put_page_fields(&self, out: &mut Vec<u8>) {
        let lines = self.content_fields().split_inclusive(|&byte| byte == b'\n');
        let is_of_file =
            |line: &[u8]| [&b"Last-Modified: "[..], b"Accept-Ranges: ", ETAG].iter().any(|name| line.starts_with(name));
        lines.filter(|line| !is_of_file(line)).for_each(|line| out.extend_from_slice(line));
    }

    /// Whether the file has a content coding.
    pub(crate) fn is_coded(&self) -> bool {
        self.is_coded
    }

    /// The fields of a 304 (RFC 9110 §15.4.5), with the last empty line.
    pub(crate) fn not_modified_fields(&self) -> &[u8] {
        &self.head[self.not_modified_start..]
    }
}

/// Slightly more than a usual head without extra fields.
const HEAD_BYTES_USUAL: usize = 384;

const ETAG: &[u8] = b"ETag: ";

/// The value of Content-Encoding, which `identity` does not have (RFC 9110 §8.4.1).
fn content_encoding(negotiation: Negotiation) -> Option<ContentCoding> {
    match negotiation {
        Negotiation::None | Negotiation::AcceptEncoding(ContentCoding::Identity) => None,
        Negotiation::AcceptEncoding(coding) => Some(coding),
    }
}

/// The date of Last-Modified.
fn last_modified_unix_s(metadata: &FileMetadata, now_unix_s: u64) -> Option<u64> {
    // Of a stamp no date: clients would keep outdated copies.
    if is_stamp(metadata.modified) {
        return None;
    }
    // RFC 9110 §8.8.2.1: never later than the date of the response.
    u64::try_from(metadata.modified.unix_s).ok().map(|unix_s| unix_s.min(now_unix_s))
}

/// A hash of 128 bits that distinguishes two versions of a file, and its codings.
///
/// Of the content, if it is given. Else of the length and the modification time, which a copy with its times keeps (`cp
/// -p`, `rsync -t`, `tar`), on another machine too. A stamp says nothing about the version, and the clock of a file
/// system ticks every few milliseconds, so that a file which has just been written may be written again at the same
/// time: of both, all metadata are hashed.
fn fingerprint(
    metadata: &FileMetadata,
    content: Option<&[u8]>,
    coding: Option<ContentCoding>,
    now_unix_s: u64,
) -> (u64, u64) {
    let mut hash = Hash::new(metadata.length_bytes);
    hash.put(coding.map_or(0, |coding| coding as u64));
    if let Some(content) = content {
        let (words, rest) = content.as_chunks();
        words.iter().for_each(|word| hash.put(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash.put(u64::from_le_bytes(last));
        return hash.finish();
    }
    let put_time = |hash: &mut Hash, time: FileTime| {
        hash.put(time.unix_s.cast_unsigned());
        hash.put(u64::from(time.nanos));
    };
    put_time(&mut hash, metadata.modified);
    let is_recent = metadata.modified.unix_s.saturating_add(1) >= now_unix_s.cast_signed();
    if is_recent || is_stamp(metadata.modified) {
        put_time(&mut hash, metadata.changed);
        hash.put(metadata.device);
        hash.put(metadata.inode);
    }
    hash.finish()
}

/// Whether a modification time is the one that reproducible builds give to every version of a file: second 0 or 1.
fn is_stamp(modified: FileTime) -> bool {
    modified.unix_s <= 1
}

/// A hash of words, in two chains with different starts. It is not made to resist an attacker: one that can write a
/// file needs no collision.
struct Hash {
    high: u64,
    low: u64,
}

impl Hash {
    const HIGH_START: u64 = 0x9e37_79b9_7f4a_7c15;
    const LOW_START: u64 = 0xd1b5_4a32_d192_ed03;

    fn new(word: u64) -> Hash {
        let mut hash = Hash { high: Hash::HIGH_START, low: Hash::LOW_START };
        hash.put(word);
        hash
    }

    fn put(&mut self, word: u64) {
        self.high = mix((self.high ^ word).wrapping_add(Hash::HIGH_START));
        self.low = mix((self.low ^ word).wrapping_add(Hash::LOW_START));
    }

    fn finish(self) -> (u64, u64) {
        (self.high, self.low)
    }
}

/// The finalizer of SplitMix64: a bijection, so that contents which differ in one word never have the same hash.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Appends formatted text.
pub(crate) fn put_fmt(out: &mut Vec<u8>, text: core::fmt::Arguments<'_>) {
    struct Bytes<'a>(&'a mut Vec<u8>);
    impl Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    Bytes(out).write_fmt(text).expect("writing to a vector cannot fail");
}

/// Appends `prefix` and a number. Faster than `core::fmt`, which a 206 would use four times.
pub(crate) fn put_number(prefix: &[u8], number: u64, out: &mut Vec<u8>) {
    const DIGIT_COUNT_MAX: usize = 20;
    let mut digits = [0; DIGIT_COUNT_MAX];
    let mut start = DIGIT_COUNT_MAX;
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(prefix);
    out.extend_from_slice(&digits[start..]);
}
