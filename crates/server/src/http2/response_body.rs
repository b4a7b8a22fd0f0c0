//! Content of responses that is written piece by piece, as their streams may send.

use super::Http2;
use crate::clock::Milliseconds;
use crate::file_hit::FileHit;
use crate::file_reads::FileReads;
use crate::send_queue::{FileChunk, Piece};
use crate::waiter::Waiter;
use sanderling_http::Body;
use sanderling_http2::{Content, Request};
use std::io;

/// Content that is written piece by piece.
#[derive(Debug)]
pub(super) enum ResponseBody<'s> {
    File(FileChunk<'s>),
    /// What is left of a page.
    Page(&'static [u8]),
    Multipart(Box<MultipartBody<'s>>),
}

/// Several parts of a file, with text before each and at the end.
#[derive(Debug)]
pub(super) struct MultipartBody<'s> {
    pub(super) text: Vec<u8>,
    /// How much of it was written.
    written_bytes: usize,
    /// What follows the text; `None` if it is all.
    pub(super) chunk: Option<FileChunk<'s>>,
}

impl MultipartBody<'_> {
    /// Copies the next bytes into `room`.
    pub(super) fn fill(
        &mut self,
        room: &mut [u8],
        reads: &FileReads,
        waiter: Waiter,
        now_ms: Milliseconds,
    ) -> io::Result<Piece> {
        if self.written_bytes == self.text.len()
            && let Some(chunk) = &mut self.chunk
        {
            let length = room.len().min(usize::try_from(chunk.remaining_bytes()).unwrap_or(usize::MAX));
            if length > 0 {
                return chunk.fill(&mut room[..length], reads, waiter, now_ms);
            }
            self.text = chunk.next_part().expect("the length of the response counts its parts");
            self.written_bytes = 0;
        }
        let rest = &self.text[self.written_bytes..];
        let length = room.len().min(rest.len());
        room[..length].copy_from_slice(&rest[..length]);
        self.written_bytes += length;
        Ok(Piece::Sent(length))
    }
}

impl<'s> ResponseBody<'s> {
    pub(super) fn file(&self) -> Option<&FileChunk<'s>> {
        match self {
            ResponseBody::File(chunk) => Some(chunk),
            ResponseBody::Page(_) => None,
            ResponseBody::Multipart(body) => body.chunk.as_ref(),
        }
    }
}

impl<'s> Http2<'s> {
    /// The content of a response with a file.
    #[inline]
    pub(super) fn file_content<'c>(
        &self,
        request: &Request,
        body: Body<'_>,
        hit: &FileHit<'c, 's>,
        copied_bytes_max: u64,
        may_use_sendfile: impl Fn() -> bool,
    ) -> Content<'c, ResponseBody<'s>> {
        match body {
            Body::File { start_bytes, length_bytes } => match hit.in_memory(start_bytes, length_bytes) {
                Some(bytes) if length_bytes <= copied_bytes_max && self.session.has_room_for(request, length_bytes) => {
                    Content::Bytes(bytes)
                }
                _ => {
                    let chunk = hit.chunk(start_bytes, length_bytes, may_use_sendfile());
                    Content::Later { body: ResponseBody::File(chunk), length_bytes }
                }
            },
            Body::Multipart(multipart) => {
                let mut text = Vec::new();
                let chunk = hit.put_multipart(&multipart, may_use_sendfile(), copied_bytes_max, &mut text);
                let body = ResponseBody::Multipart(Box::new(MultipartBody { text, written_bytes: 0, chunk }));
                Content::Later { body, length_bytes: multipart.length_bytes() }
            }
            Body::Empty | Body::StatusPage(_) | Body::DnsMessage | Body::Text(_) => Content::Empty,
        }
    }

    /// The content of a response without a file: the `reply` to a DNS query, or a page.
    #[cold]
    pub(super) fn content_without_file<'c>(
        &self,
        request: &Request,
        body: Body<'_>,
        reply: &'c [u8],
    ) -> Content<'c, ResponseBody<'s>> {
        match body {
            Body::StatusPage(page) => return self.page_content(request, page),
            Body::DnsMessage => {}
            Body::Text(text) => {
                let body = MultipartBody { text: text.to_vec(), written_bytes: 0, chunk: None };
                return Content::Later {
                    body: ResponseBody::Multipart(Box::new(body)),
                    length_bytes: text.len() as u64,
                };
            }
            Body::Empty | Body::File { .. } | Body::Multipart(_) => return Content::Empty,
        }
        if self.session.has_room_for(request, reply.len() as u64) {
            return Content::Bytes(reply);
        }
        let body = MultipartBody { text: reply.to_vec(), written_bytes: 0, chunk: None };
        Content::Later { body: ResponseBody::Multipart(Box::new(body)), length_bytes: reply.len() as u64 }
    }

    pub(super) fn page_content(&self, request: &Request, page: &'static [u8]) -> Content<'static, ResponseBody<'s>> {
        if self.session.has_room_for(request, page.len() as u64) {
            return Content::Bytes(page);
        }
        Content::Later { body: ResponseBody::Page(page), length_bytes: page.len() as u64 }
    }
}
