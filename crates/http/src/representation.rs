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
}

impl Representation {
    /// Prepares the representation of a file.
    ///
    /// `metadata` is that of the file as sent, so of the coded one; `media_type` is the Content-Type of the decoded
    /// content. `extra_fields` are further field lines, each with its CRLF, such as Cache-Control; 200, 206 and 304 have
    /// them. `now_unix_s` is the current time in seconds since 1970.
    pub fn new(
        metadata: &FileMetadata,
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
        if let Some(coding) = content_encoding(negotiation) {
            put_fmt(&mut head, format_args!("Content-Encoding: {}\r\n", coding.name()));
        }
        if let Some(unix_s) = modified_unix_s {
            put_fmt(&mut head, format_args!("Last-Modified: {}\r\n", HttpDate::from_unix_s(unix_s)));
        }
        head.extend_from_slice(b"Accept-Ranges: bytes\r\nX-Content-Type-Options: nosniff\r\n");
        let not_modified_start = head.len();
        head.extend_from_slice(ETAG);
        let (high, low) = fingerprint(metadata);
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
    // Reproducible builds stamp every version of a file with second 0 or 1: clients would keep outdated copies.
    const STAMP_S_MAX: i64 = 1;
    if metadata.modified.unix_s <= STAMP_S_MAX {
        return None;
    }
    // RFC 9110 §8.8.2.1: never later than the date of the response.
    u64::try_from(metadata.modified.unix_s).ok().map(|unix_s| unix_s.min(now_unix_s))
}

/// A hash of 128 bits of all metadata, which distinguishes any two versions of a file. No field can be read from it.
fn fingerprint(metadata: &FileMetadata) -> (u64, u64) {
    let words = [
        metadata.device,
        metadata.inode,
        metadata.length_bytes,
        metadata.modified.unix_s.cast_unsigned(),
        metadata.changed.unix_s.cast_unsigned(),
        u64::from(metadata.modified.nanos) << 32 | u64::from(metadata.changed.nanos),
    ];
    // Two chains with different starts; the finalizer of SplitMix64 is a bijection with full avalanche.
    let chain = |start: u64| words.iter().fold(start, |state, word| mix((state ^ word).wrapping_add(start)));
    (chain(0x9e37_79b9_7f4a_7c15), chain(0xd1b5_4a32_d192_ed03))
}

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
