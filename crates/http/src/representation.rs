//! Prepares the response heads of a file when it is opened.

use alloc::vec::Vec;

use crate::content_coding::ContentCoding;
use crate::date::HttpDate;
use crate::output::put_fmt;
use crate::status::Status;
use crate::validator::{CompressorVersion, FileMetadata, FileTime, Validator};

/// Whether a representation is selected by content negotiation (RFC 9110 §12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiation {
    /// No: it is the only one of its resource.
    None,
    /// Yes, by Accept-Encoding; this one has this coding.
    AcceptEncoding(ContentCoding),
    /// The same; this one has no coding, and the others are made of it by these compressors when they are asked for.
    OnDemand(CompressorVersion),
}

/// A file as a representation (RFC 9110 §8.1): its length and validators, and its prepared response head.
#[derive(Clone, Debug)]
pub struct Representation {
    length_bytes: u64,
    modified_unix_s: Option<u64>,
    /// The modification time belongs to one version of the file.
    is_time_of_version: bool,
    validator: Validator,
    /// The validator of the representations in other codings made from this one, whether they exist or not.
    compressed: Option<Validator>,
    /// The head of a 200, including its last empty line.
    head: Vec<u8>,
    /// The offset in `head` of the fields that a 206 repeats: those after Content-Length.
    content_fields_start: usize,
    /// The offset in `head` of the fields that a 304 repeats: ETag, Vary and the extra fields.
    not_modified_start: usize,
    etag_bytes: usize,
    /// Length of the Content-Type line, the first of the content fields.
    content_type_bytes: usize,
    is_coded: bool,
}

impl Representation {
    /// Prepares the representation of a file.
    ///
    /// `metadata` and `validator` belong to the file as sent: to the coded one if it is a separate file. `media_type`
    /// is the Content-Type of the decoded content. `extra_fields` are further field lines, each with its CRLF, such as
    /// Cache-Control; 200, 206 and 304 have them. `now_unix_s` is the current time in seconds since 1970.
    pub fn new(
        metadata: &FileMetadata,
        validator: Validator,
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
        validator.put_tag(content_encoding(negotiation).unwrap_or(ContentCoding::Identity), &mut head);
        let etag_bytes = head.len() - not_modified_start - ETAG.len();
        head.extend_from_slice(b"\r\n");
        if negotiation != Negotiation::None {
            // RFC 9110 §12.5.5: also without a coding, else a cache sends one client the representation of another.
            head.extend_from_slice(b"Vary: Accept-Encoding\r\n");
        }
        head.extend_from_slice(extra_fields);
        head.extend_from_slice(b"\r\n");
        Representation {
            length_bytes: metadata.length_bytes,
            modified_unix_s,
            is_time_of_version: !metadata.modified.may_be_set(),
            validator,
            compressed: match negotiation {
                Negotiation::OnDemand(compressors) => Some(validator.compressed_by(compressors)),
                Negotiation::None | Negotiation::AcceptEncoding(_) => None,
            },
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

    /// The input of the entity tag.
    pub fn validator(&self) -> Validator {
        self.validator
    }

    /// Whether representations in other codings are made of this one.
    pub(crate) fn makes_codings(&self) -> bool {
        self.compressed.is_some()
    }

    /// The tag of the representation in a coding that is made of this one, whether it is made or not; `None` if none is
    /// made.
    pub(crate) fn compressed_etag(&self, coding: ContentCoding) -> Option<Vec<u8>> {
        let mut etag = Vec::with_capacity(self.etag_bytes);
        self.compressed?.put_tag(coding, &mut etag);
        Some(etag)
    }

    /// Whether the modification time belongs to one version of the file, so that no other one has had it.
    pub(crate) fn is_time_of_version(&self) -> bool {
        self.is_time_of_version
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

    /// Appends the fields of a response that has the file as its page, but does not represent the file: without
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

    /// Appends the same for the representation in a coding that is made of this one.
    pub(crate) fn put_not_modified_fields(&self, coding: ContentCoding, out: &mut Vec<u8>) {
        let (etag, others) = self.not_modified_fields().split_at(ETAG.len() + self.etag_bytes);
        match self.compressed {
            Some(compressed) => {
                out.extend_from_slice(ETAG);
                compressed.put_tag(coding, out);
            }
            None => out.extend_from_slice(etag),
        }
        out.extend_from_slice(others);
    }
}

/// Slightly more than a usual head without extra fields.
const HEAD_BYTES_USUAL: usize = 384;

const ETAG: &[u8] = b"ETag: ";

/// The value of Content-Encoding, which `identity` does not have (RFC 9110 §8.4.1).
fn content_encoding(negotiation: Negotiation) -> Option<ContentCoding> {
    match negotiation {
        Negotiation::None | Negotiation::AcceptEncoding(ContentCoding::Identity) | Negotiation::OnDemand(_) => None,
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

/// Whether a modification time is one that a tool gives to every version of a file: 1970 and 1980 of reproducible
/// builds, 1985 of npm. No file of a web site is older than the web.
fn is_stamp(modified: FileTime) -> bool {
    const YEAR_1990_UNIX_S: i64 = 631_152_000;
    modified.unix_s < YEAR_1990_UNIX_S
}
