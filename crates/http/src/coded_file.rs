//! Whether a file in a content coding is what clients of that coding accept. Tools write more than that: a browser may
//! refuse or truncate files that the tools themselves can decode.

use core::fmt;

use crate::content_coding::ContentCoding;

/// Bytes at the start of a file that tell: the longest header of a zstd frame (RFC 8878 §3.1.1.1).
pub const CODED_HEAD_BYTES: usize = 18;
/// Bytes at the end of a file that tell: the length of a member of gzip (RFC 1952 §2.3.1).
pub const CODED_TAIL_BYTES: usize = 4;

/// The largest window of zstd (RFC 9659 §3).
const ZSTD_WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Why a file must not be sent with its content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodingFault {
    /// It does not begin as content in this coding does.
    Malformed,
    /// Clients would need more memory than the coding allows to ask of them.
    WindowTooLarge,
    /// It can be decoded only with a dictionary, which clients do not have.
    NeedsDictionary,
    /// The last member of gzip has not the length of the decoded file: there are several, of which browsers decode only
    /// the first, or it was made from another file.
    OtherLength,
}

/// The fault of the file, as the rest of a sentence.
impl fmt::Display for CodingFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            CodingFault::Malformed => "does not have the coding that its name says",
            CodingFault::WindowTooLarge => "needs a larger window than browsers support",
            CodingFault::NeedsDictionary => "needs a dictionary",
            CodingFault::OtherLength => {
                "does not decompress to the length of the uncompressed file, or has several gzip members"
            }
        })
    }
}

/// The fault of a file in a coding that begins with `head`, of [`CODED_HEAD_BYTES`] if it has as many, and ends with
/// `tail`, of [`CODED_TAIL_BYTES`]. `decoded_bytes`: the decoded length of the file, if it is a coded file.
pub fn coding_fault(
    coding: ContentCoding,
    head: &[u8],
    tail: &[u8],
    decoded_bytes: Option<u64>,
) -> Option<CodingFault> {
    match coding {
        ContentCoding::Identity => None,
        ContentCoding::Gzip => gzip_fault(head, tail, decoded_bytes),
        ContentCoding::Zstd => zstd_fault(head, decoded_bytes),
        ContentCoding::Brotli => brotli_fault(head),
    }
}

fn gzip_fault(head: &[u8], tail: &[u8], decoded_bytes: Option<u64>) -> Option<CodingFault> {
    // Its magic number, and deflate as the method.
    if !head.starts_with(&[0x1f, 0x8b, 8]) {
        return Some(CodingFault::Malformed);
    }
    let member_bytes = tail.last_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    // Modulo 2^32.
    let is_whole = |decoded_bytes: u64| member_bytes == Some(decoded_bytes as u32);
    (!decoded_bytes.is_none_or(is_whole)).then_some(CodingFault::OtherLength)
}

/// RFC 8878 §3.1.1.1.
fn zstd_fault(head: &[u8], decoded_bytes: Option<u64>) -> Option<CodingFault> {
    let Some(header) = ZstdHeader::parse(head) else { return Some(CodingFault::Malformed) };
    if header.has_dictionary {
        return Some(CodingFault::NeedsDictionary);
    }
    if header.window_bytes > ZSTD_WINDOW_BYTES_MAX {
        return Some(CodingFault::WindowTooLarge);
    }
    // Other frames may follow, so that it may become more.
    let is_longer = decoded_bytes.is_some_and(|decoded_bytes| header.content_bytes > Some(decoded_bytes));
    is_longer.then_some(CodingFault::OtherLength)
}

/// The header of the first frame.
struct ZstdHeader {
    window_bytes: u64,
    has_dictionary: bool,
    /// `None` if the header does not have it.
    content_bytes: Option<u64>,
}

impl ZstdHeader {
    fn parse(head: &[u8]) -> Option<ZstdHeader> {
        let (&descriptor, mut rest) = head.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?.split_first()?;
        let is_single_segment = descriptor & 0x20 != 0;
        let window_bytes = match is_single_segment {
            true => None,
            false => {
                let (&window, after) = rest.split_first()?;
                rest = after;
                let base = 1_u64 << (10 + (window >> 3));
                Some(base + base / 8 * u64::from(window & 7))
            }
        };
        let dictionary = take_number(&mut rest, [0, 1, 2, 4][usize::from(descriptor & 3)])?;
        let content_bytes = match (descriptor >> 6, is_single_segment) {
            (0, false) => None,
            (0, true) => Some(take_number(&mut rest, 1)?),
            (1, _) => Some(take_number(&mut rest, 2)? + 256),
            (2, _) => Some(take_number(&mut rest, 4)?),
            _ => Some(take_number(&mut rest, 8)?),
        };
        // The window of a single segment is its whole content.
        let window_bytes = window_bytes.or(content_bytes)?;
        Some(ZstdHeader { window_bytes, has_dictionary: dictionary != 0, content_bytes })
    }
}

/// Takes a number of so many bytes, the lowest first.
fn take_number(rest: &mut &[u8], byte_count: usize) -> Option<u64> {
    let (bytes, after) = rest.split_at_checked(byte_count)?;
    *rest = after;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

fn brotli_fault(head: &[u8]) -> Option<CodingFault> {
    // RFC 7932 §9.1 has no window with this code; that of a large one follows (RFC 9841 §9.1, `brotli --large_window`).
    const LARGE_WINDOW: u8 = 0b001_0001;
    let first = head.first()?;
    (first & 0x7f == LARGE_WINDOW).then_some(CodingFault::WindowTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(coding: ContentCoding, head: &[u8], tail: &[u8], decoded: Option<u64>, expected: Option<CodingFault>) {
        assert_eq!(coding_fault(coding, head, tail, decoded), expected, "{coding:?} {head:x?} {tail:x?} {decoded:?}");
    }

    fn zstd(descriptor: u8, rest: &[u8]) -> alloc::vec::Vec<u8> {
        [&[0x28, 0xb5, 0x2f, 0xfd, descriptor], rest].concat()
    }

    #[test]
    fn window_of_zstd_is_at_most_eight_mebibytes() {
        let check = |head: &[u8], expected| check(ContentCoding::Zstd, head, &[], None, expected);
        let too_large = Some(CodingFault::WindowTooLarge);
        // A window descriptor: 2^(10 + exponent), and mantissa eighths of it.
        check(&zstd(0x04, &[13 << 3]), None);
        check(&zstd(0x04, &[12 << 3 | 7]), None);
        check(&zstd(0x04, &[13 << 3 | 1]), too_large);
        // The output of `zstd --ultra -22` for a pipe.
        check(&zstd(0x04, &[17 << 3]), too_large);
        check(&zstd(0x00, &[31 << 3 | 7]), too_large);
        // A single segment, whose window is its content: of 255 bytes, 64 KiB, 8 MiB.
        check(&zstd(0x20, &[255]), None);
        check(&zstd(0x60, &[0xff, 0xff]), None);
        check(&zstd(0xa0, &[0, 0, 0x80, 0]), None);
        check(&zstd(0xa0, &[1, 0, 0x80, 0]), too_large);
        check(&zstd(0xe0, &[0, 0, 0x80, 0, 0, 0, 0, 0]), None);
        check(&zstd(0xe0, &[0, 0, 0, 0, 1, 0, 0, 0]), too_large);
    }

    #[test]
    fn zstd_with_a_dictionary_or_of_other_content_is_refused() {
        let check = |head: &[u8], decoded, expected| check(ContentCoding::Zstd, head, &[], decoded, Some(expected));
        for (descriptor, dictionary) in [(0x01, &[7][..]), (0x02, &[0, 7]), (0x03, &[0, 0, 0, 7])] {
            check(&zstd(descriptor, &[&[0x40], dictionary].concat()), None, CodingFault::NeedsDictionary);
        }
        check(&zstd(0x20, &[200]), Some(199), CodingFault::OtherLength);
        for length in 0..=5 {
            check(&zstd(0xe0, &[0; 8])[..length], None, CodingFault::Malformed);
        }
        // A skippable frame, as of `pzstd`.
        check(&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0], None, CodingFault::Malformed);
        check(b"text", None, CodingFault::Malformed);
    }

    #[test]
    fn zstd_of_this_content_is_accepted() {
        // Other frames may follow.
        for (head, decoded) in [(zstd(0x20, &[200]), 200), (zstd(0x20, &[200]), 300), (zstd(0x01, &[0x40, 0]), 5)] {
            check(ContentCoding::Zstd, &head, &[], Some(decoded), None);
        }
    }

    #[test]
    fn brotli_has_no_large_window() {
        for window in 0..=u8::MAX {
            // The code is seven bits; the eighth is reserved.
            let expected = matches!(window, 0x11 | 0x91).then_some(CodingFault::WindowTooLarge);
            check(ContentCoding::Brotli, &[window, 24], &[], None, expected);
        }
        check(ContentCoding::Brotli, &[], &[], None, None);
    }

    #[test]
    fn gzip_has_one_member_with_the_length_of_the_file() {
        let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        let check = |head: &[u8], tail: &[u8], decoded, expected| {
            check(ContentCoding::Gzip, head, tail, decoded, expected);
        };
        check(&head, &[0x10, 0x27, 0, 0], Some(10_000), None);
        check(&head, &[0x10, 0x27, 0, 0], Some((1 << 32) + 10_000), None);
        check(&head, &[0x10, 0x27, 0, 0], None, None);
        check(&head, &[0x0f, 0x27, 0, 0], Some(10_000), Some(CodingFault::OtherLength));
        check(&head, &[], Some(0), Some(CodingFault::OtherLength));
        for malformed in [&b"text"[..], b"\x1f\x8b", b"\x1f\x8b\x07", b""] {
            check(malformed, &[0; 4], None, Some(CodingFault::Malformed));
        }
    }
}
