//! The facts of a file into the heads of its answers, made once when the file is opened.

use alloc::vec::Vec;
use core::fmt::Write;

use crate::content_coding::ContentCoding;
use crate::date::HttpDate;
use crate::status::Status;

/// A time as file systems keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Since 1970-01-01 00:00:00 UTC; negative before.
    pub unix_s: i64,
    /// Beyond the second.
    pub nanos: u32,
}

/// What the kernel says of an open file: all that its answers depend on but for the bytes themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileMetadata {
    /// The length of the file.
    pub length_bytes: u64,
    /// When its content was last changed (`st_mtime`), as far as its owner says.
    pub modified: FileTime,
    /// When anything of it was last changed (`st_ctime`), which its owner cannot set.
    pub changed: FileTime,
    /// The device that it is on (`st_dev`).
    pub device: u64,
    /// Its number there (`st_ino`).
    pub inode: u64,
}

/// Whether a resource has more than one representation, of which Accept-Encoding selects one (RFC 9110 §12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiation {
    /// It has one only.
    None,
    /// It has several; this one is in this coding.
    AcceptEncoding(ContentCoding),
}

/// A file as HTTP sees it (RFC 9110 §8.1): length, validators, media type, coding, and the head of its answer ready to
/// be sent.
#[derive(Clone, Debug)]
pub struct Representation {
    length_bytes: u64,
    modified_unix_s: Option<u64>,
    /// The head of the whole answer, its last empty line included.
    head: Vec<u8>,
    /// Where in `head` the fields start that a partial answer repeats: those behind Content-Length.
    description_start: usize,
    /// Where in `head` the fields start that "not modified" repeats: ETag, Vary and those of the site.
    validator_start: usize,
    etag_bytes: usize,
}

impl Representation {
    /// The representation of a file.
    ///
    /// `facts` are those of the file that is sent, in whatever coding it is; `media_type` is the value of Content-Type,
    /// that of the content when the coding is undone. `extra_fields` are ready-made field lines of the site, each with
    /// its CRLF, such as Cache-Control; they go out with 200, 206 and 304. `now_unix_s` is the time of the making, in
    /// seconds since 1970.
    pub fn new(
        facts: &FileMetadata,
        media_type: &str,
        negotiation: Negotiation,
        extra_fields: &[u8],
        now_unix_s: u64,
    ) -> Representation {
        let modified_unix_s = credible_modified_unix_s(facts, now_unix_s);
        let mut head = Vec::with_capacity(HEAD_BYTES_USUAL + extra_fields.len());
        head.extend_from_slice(Status::Ok.start());
        put_fmt(&mut head, format_args!("Content-Length: {}\r\n", facts.length_bytes));
        let description_start = head.len();
        put_fmt(&mut head, format_args!("Content-Type: {media_type}\r\n"));
        if let Some(coding) = coding_to_tell(negotiation) {
            put_fmt(&mut head, format_args!("Content-Encoding: {}\r\n", coding.name()));
        }
        if let Some(unix_s) = modified_unix_s {
            put_fmt(&mut head, format_args!("Last-Modified: {}\r\n", HttpDate::from_unix_s(unix_s)));
        }
        head.extend_from_slice(b"Accept-Ranges: bytes\r\nX-Content-Type-Options: nosniff\r\n");
        let validator_start = head.len();
        head.extend_from_slice(ETAG);
        let (high, low) = fingerprint(facts);
        put_fmt(&mut head, format_args!("\"{high:016x}{low:016x}\"\r\n"));
        let etag_bytes = head.len() - validator_start - ETAG.len() - 2;
        if negotiation != Negotiation::None {
            // RFC 9110 §12.5.5: with all of them, the plain one too, else a cache sends one client what another chose.
            head.extend_from_slice(b"Vary: Accept-Encoding\r\n");
        }
        head.extend_from_slice(extra_fields);
        head.extend_from_slice(b"\r\n");
        Representation {
            length_bytes: facts.length_bytes,
            modified_unix_s,
            head,
            description_start,
            validator_start,
            etag_bytes,
        }
    }

    /// The length of the file.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// The strong entity tag, with its quotes (RFC 9110 §8.8.3).
    pub fn etag(&self) -> &[u8] {
        let start = self.validator_start + ETAG.len();
        &self.head[start..start + self.etag_bytes]
    }

    /// The date of Last-Modified, in seconds since 1970, when there is a credible one.
    pub fn modified_unix_s(&self) -> Option<u64> {
        self.modified_unix_s
    }

    /// The head of the whole answer, with a date of 1970, and with its last empty line.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The field lines that tell of the file, but for its length; without the last empty line.
    pub(crate) fn description(&self) -> &[u8] {
        &self.head[self.description_start..self.head.len() - 2]
    }

    /// The field lines of a "not modified" answer (RFC 9110 §15.4.5), with the last empty line.
    pub(crate) fn validator(&self) -> &[u8] {
        &self.head[self.validator_start..]
    }
}

/// What a head without extra fields takes, and a little more.
const HEAD_BYTES_USUAL: usize = 384;

const ETAG: &[u8] = b"ETag: ";

/// RFC 9110 §8.4: what was done to the content is told, and `identity` is nothing.
fn coding_to_tell(negotiation: Negotiation) -> Option<ContentCoding> {
    match negotiation {
        Negotiation::None | Negotiation::AcceptEncoding(ContentCoding::Identity) => None,
        Negotiation::AcceptEncoding(coding) => Some(coding),
    }
}

/// The time to be told in Last-Modified.
fn credible_modified_unix_s(facts: &FileMetadata, now_unix_s: u64) -> Option<u64> {
    // Trees built to be the same everywhere stamp all files with second 0 or 1, before and after each change: such a
    // date would make clients keep what is no longer true.
    const STAMP_S_MAX: i64 = 1;
    if facts.modified.unix_s <= STAMP_S_MAX {
        return None;
    }
    // RFC 9110 §8.8.2.1: never later than the date of the answer.
    u64::try_from(facts.modified.unix_s).ok().map(|unix_s| unix_s.min(now_unix_s))
}

/// 128 bits that differ whenever the facts do, but for chance: enough of the file to tell any two of its states apart,
/// and nothing of it that a stranger could read back.
fn fingerprint(facts: &FileMetadata) -> (u64, u64) {
    let words = [
        facts.device,
        facts.inode,
        facts.length_bytes,
        facts.modified.unix_s.cast_unsigned(),
        facts.changed.unix_s.cast_unsigned(),
        u64::from(facts.modified.nanos) << 32 | u64::from(facts.changed.nanos),
    ];
    // Two chains with different starts; the finalizer of SplitMix64 is a bijection that spreads each bit over all.
    let chain = |start: u64| words.iter().fold(start, |state, word| mix((state ^ word).wrapping_add(start)));
    (chain(0x9e37_79b9_7f4a_7c15), chain(0xd1b5_4a32_d192_ed03))
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Appends text to bytes.
pub(crate) fn put_fmt(out: &mut Vec<u8>, text: core::fmt::Arguments<'_>) {
    struct Bytes<'a>(&'a mut Vec<u8>);
    impl Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    Bytes(out).write_fmt(text).expect("a vector takes all that is written to it");
}
