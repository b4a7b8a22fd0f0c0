//! Several ranges of a file as one body: `multipart/byteranges` (RFC 9110 §14.6).

use alloc::vec::Vec;

use crate::output::put_number;
use crate::range::{ByteRange, Ranges};
use crate::representation::Representation;

/// The body of a 206 with several ranges. For each part the caller sends what [`Multipart::write_part_head`] writes and
/// the bytes of the file, and after the last one what [`Multipart::write_end`] writes.
#[derive(Clone, Copy, Debug)]
pub struct Multipart<'r> {
    file: &'r Representation,
    /// The list of ranges in the request: parsing it again is cheaper than to move the ranges with each response.
    list: &'r [u8],
}

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first byte in the file.
    pub start_bytes: u64,
    /// Number of its bytes; at least one.
    pub length_bytes: u64,
}

impl<'r> Multipart<'r> {
    /// The parts of `file` that `list` requests. `None` if they would be as long as the whole file, with their heads,
    /// or the file has a content coding: a Content-Encoding of the whole body would be wrong, and parts have none.
    #[cold]
    pub(crate) fn new(file: &'r Representation, list: &'r [u8]) -> Option<Multipart<'r>> {
        let multipart = Multipart { file, list };
        (!file.is_coded() && multipart.length_bytes() < file.length_bytes()).then_some(multipart)
    }

    /// The file.
    pub(crate) fn file(&self) -> &'r Representation {
        self.file
    }

    /// The length of the body.
    pub fn length_bytes(&self) -> u64 {
        let mut text = Vec::new();
        let mut content_bytes = 0u64;
        for part in self.parts() {
            self.write_part_head(part, &mut text);
            // No two parts have the same bytes, so the sum is at most the length of the file.
            content_bytes += part.length_bytes;
        }
        self.write_end(&mut text);
        content_bytes.saturating_add(text.len() as u64)
    }

    /// The parts, in their order.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let ranges = Ranges::parse(self.list, self.file.length_bytes()).unwrap_or_default();
        (0..ranges.as_slice().len()).map(move |index| {
            let ByteRange { start_bytes, length_bytes } = ranges.as_slice()[index];
            Part { start_bytes, length_bytes }
        })
    }

    /// Appends what precedes the bytes of a part.
    pub fn write_part_head(&self, part: Part, out: &mut Vec<u8>) {
        self.write_delimiter(out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.file.content_type_line());
        let Part { start_bytes, length_bytes } = part;
        put_content_range(ByteRange { start_bytes, length_bytes }, self.file, out);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends what follows the bytes of the last part.
    pub fn write_end(&self, out: &mut Vec<u8>) {
        self.write_delimiter(out);
        out.extend_from_slice(b"--\r\n");
    }

    /// Appends the fields of the head: those of the file, but with the type and the length of the body.
    pub(crate) fn write_fields(&self, out: &mut Vec<u8>) {
        put_number(b"Content-Length: ", self.length_bytes(), out);
        out.extend_from_slice(b"\r\nContent-Type: multipart/byteranges; boundary=");
        out.extend_from_slice(self.boundary());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.file.content_fields()[self.file.content_type_line().len()..]);
    }

    fn write_delimiter(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary());
    }

    /// A text that does not occur in the file (RFC 2046 §5.1.1): a hash of its version, so that only a file that was
    /// made for it could contain it.
    fn boundary(&self) -> &'r [u8] {
        let etag = self.file.etag();
        &etag[1..etag.len() - 1]
    }
}

/// Appends Content-Range, without its CRLF.
pub(crate) fn put_content_range(range: ByteRange, file: &Representation, out: &mut Vec<u8>) {
    put_number(b"Content-Range: bytes ", range.start_bytes, out);
    put_number(b"-", range.end_bytes() - 1, out);
    put_number(b"/", file.length_bytes(), out);
}
