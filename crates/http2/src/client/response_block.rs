//! Turns a header block into the head of a response in the form of HTTP/1.1, so that one parser decides what a valid
//! response is.
//!
//! This file checks what HTTP/1.1 text cannot express: pseudo-header fields, and bytes that would end a line.

use alloc::vec::Vec;

use sanderling_http::ResponseLimits;

use super::ClientFault;
use crate::frame::ErrorCode;
use crate::hpack::{Decoder, Field};
use crate::request_head::{Scratch, content_bytes, is_valid_name, is_valid_value};

/// The facts in a header block other than the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DecodedResponse {
    pub(super) status: u16,
    /// The value of Content-Length.
    pub(super) content_bytes: Option<u64>,
}

/// Decodes the head of a response into [`Scratch::head`].
pub(super) fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    scratch: &mut Scratch,
    limits: &ResponseLimits,
) -> Result<DecodedResponse, ClientFault> {
    let mut decoded = DecodedResponse::default();
    decode_fields(decoder, bytes, scratch, limits, |Field { name, value }, head| {
        if name.first() == Some(&b':') {
            // RFC 9113 §8.3.2: there is one, before all other fields.
            decoded.status = status_of(value).filter(|_| name == b":status" && head.is_empty())?;
            for part in [b"HTTP/1.1 ", value, b" \r\n"] {
                head.extend_from_slice(part);
            }
            return Some(());
        }
        if head.is_empty() {
            return None;
        }
        if name == b"content-length" {
            decoded.content_bytes = Some(content_bytes(value, decoded.content_bytes)?);
        }
        put_line(name, value, head)
    })?;
    if decoded.status == 0 {
        return Err(ErrorCode::ProtocolError.into());
    }
    scratch.head.extend_from_slice(b"\r\n");
    Ok(decoded)
}

/// Decodes trailers into [`Scratch::head`].
pub(super) fn decode_trailers(
    decoder: &mut Decoder,
    bytes: &[u8],
    scratch: &mut Scratch,
    limits: &ResponseLimits,
) -> Result<(), ClientFault> {
    // RFC 9113 §8.1: no pseudo-header fields.
    decode_fields(decoder, bytes, scratch, limits, |Field { name, value }, head| put_line(name, value, head))
}

/// Decodes each field of a block into [`Scratch::head`]; `put` returns `None` if the field is malformed.
fn decode_fields(
    decoder: &mut Decoder,
    bytes: &[u8],
    scratch: &mut Scratch,
    limits: &ResponseLimits,
    mut put: impl FnMut(Field<'_>, &mut Vec<u8>) -> Option<()>,
) -> Result<(), ClientFault> {
    let Scratch { head, strings, .. } = scratch;
    head.clear();
    let mut block = decoder.block(bytes);
    let mut field_count = 0;
    while let Some(field) = block.next(strings).map_err(|_| ErrorCode::CompressionError)? {
        field_count += 1;
        put(field, head).ok_or(ErrorCode::ProtocolError)?;
        if head.len() > limits.head_bytes_max || field_count > limits.field_count_max {
            return Err(ClientFault::TooLong);
        }
    }
    Ok(())
}

/// Three digits.
fn status_of(value: &[u8]) -> Option<u16> {
    let digits = core::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|status| (100..1000).contains(status) && digits.len() == 3)
}

/// Appends the line of a field; `None` if it is malformed (RFC 9113 §8.2).
fn put_line(name: &[u8], value: &[u8], head: &mut Vec<u8>) -> Option<()> {
    const OF_CONNECTION: [&[u8]; 5] =
        [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
    if !is_valid_name(name) || !is_valid_value(value) || OF_CONNECTION.contains(&name) {
        return None;
    }
    for part in [name, b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
    Some(())
}
