//! Writes the records of a request.

use alloc::vec::Vec;

use crate::record::{HEADER_BYTES, Header, kind};

/// Content of one record: the largest multiple of eight that the length field can hold, so that full records need no
/// padding.
const CONTENT_BYTES_MAX: usize = 65_528;

/// Appends the record that begins a request (§5.1). `is_kept`: the application is asked to leave the connection open
/// afterwards, which it may refuse to do.
pub fn put_begin(is_kept: bool, out: &mut Vec<u8>) {
    const RESPONDER: u8 = 1;
    const CONTENT_BYTES: u16 = 8;
    out.extend_from_slice(&Header::of_request(kind::BEGIN_REQUEST, CONTENT_BYTES).to_bytes());
    out.extend_from_slice(&[0, RESPONDER, u8::from(is_kept), 0, 0, 0, 0, 0]);
}

/// Appends a piece of the content of the request. An empty one appends nothing.
pub fn put_stdin(content: &[u8], out: &mut Vec<u8>) {
    let mut stream = StreamWriter::new(kind::STDIN, out);
    stream.put(content);
    stream.finish();
}

/// Appends the end of the content of the request. The application waits for it even if there is no content.
pub fn put_stdin_end(out: &mut Vec<u8>) {
    put_stream_end(kind::STDIN, out);
}

/// Appends the record that asks the application to give up the request (§5.4). The response still ends with
/// [`Event::End`](crate::Event::End).
pub fn put_abort(out: &mut Vec<u8>) {
    out.extend_from_slice(&Header::of_request(kind::ABORT_REQUEST, 0).to_bytes());
}

/// A stream ends with an empty record (§3.3).
pub(crate) fn put_stream_end(kind: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&Header::of_request(kind, 0).to_bytes());
}

/// Divides a stream into records.
pub(crate) struct StreamWriter<'o> {
    kind: u8,
    out: &'o mut Vec<u8>,
    /// Where the content of the last record begins; its header is written when it is full.
    content_start: usize,
}

impl<'o> StreamWriter<'o> {
    pub(crate) fn new(kind: u8, out: &'o mut Vec<u8>) -> StreamWriter<'o> {
        out.extend_from_slice(&[0; HEADER_BYTES]);
        StreamWriter { kind, content_start: out.len(), out }
    }

    /// Appends content to the stream.
    pub(crate) fn put(&mut self, content: &[u8]) {
        let mut rest = content;
        while !rest.is_empty() {
            if self.room_bytes() == 0 {
                self.begin_record();
            }
            let (piece, after) = rest.split_at(rest.len().min(self.room_bytes()));
            self.out.extend_from_slice(piece);
            rest = after;
        }
    }

    /// Begins another record unless `content_bytes` fit into this one.
    pub(crate) fn reserve(&mut self, content_bytes: usize) {
        let is_empty = self.out.len() == self.content_start;
        if content_bytes > self.room_bytes() && !is_empty {
            self.begin_record();
        }
    }

    /// Bytes that the last record can still hold.
    fn room_bytes(&self) -> usize {
        CONTENT_BYTES_MAX - (self.out.len() - self.content_start)
    }

    fn begin_record(&mut self) {
        self.end_record();
        self.out.extend_from_slice(&[0; HEADER_BYTES]);
        self.content_start = self.out.len();
    }

    /// Ends the last record. The stream itself may continue.
    pub(crate) fn finish(mut self) {
        if self.out.len() == self.content_start {
            // An empty record would end the stream.
            self.out.truncate(self.content_start - HEADER_BYTES);
        } else {
            self.end_record();
        }
    }

    fn end_record(&mut self) {
        let content_bytes = (self.out.len() - self.content_start) as u16;
        let header = Header::of_request(self.kind, content_bytes);
        self.out[self.content_start - HEADER_BYTES..self.content_start].copy_from_slice(&header.to_bytes());
        self.out.resize(self.out.len() + usize::from(header.padding_bytes), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn request_begins_with_role_and_flags() {
        let written = |is_kept| {
            let mut out = vec![];
            put_begin(is_kept, &mut out);
            out
        };
        assert_eq!(written(true), [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(written(false), [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn content_is_padded_to_eight_bytes() {
        let check = |content: &[u8], expected: &[u8]| {
            let mut out = vec![];
            put_stdin(content, &mut out);
            assert_eq!(out, expected);
        };
        check(b"", &[]);
        check(b"abc", b"\x01\x05\0\x01\0\x03\x05\0abc\0\0\0\0\0");
        check(b"abcdefgh", b"\x01\x05\0\x01\0\x08\0\0abcdefgh");
        let (mut end, mut abort) = (vec![], vec![]);
        put_stdin_end(&mut end);
        put_abort(&mut abort);
        assert_eq!((&end[..], &abort[..]), (&b"\x01\x05\0\x01\0\0\0\0"[..], &b"\x01\x02\0\x01\0\0\0\0"[..]));
    }

    /// Also content of 65,535 and 65,536 bytes, which some servers cut.
    #[test]
    fn long_content_has_several_records() {
        for content_bytes in [65_527, 65_528, 65_529, 65_535, 65_536, 65_537, 131_056, 131_072, 200_000] {
            let content: Vec<u8> = (0..content_bytes).map(|index| index as u8 ^ (index >> 8) as u8).collect();
            let mut out = b"before".to_vec();
            put_stdin(&content, &mut out);
            let (mut rest, mut read) = (&out[b"before".len()..], vec![]);
            while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
                let header = Header::from_bytes(*header);
                assert_eq!((header.version, header.kind, header.request_id), (1, kind::STDIN, 1));
                let (content, after) = after.split_at(usize::from(header.content_bytes));
                assert!(!content.is_empty());
                read.extend_from_slice(content);
                rest = &after[usize::from(header.padding_bytes)..];
                assert_eq!((content.len() + usize::from(header.padding_bytes)) % 8, 0);
            }
            assert!(rest.is_empty() && read == content, "{content_bytes}");
        }
    }
}
