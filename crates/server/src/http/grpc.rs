//! Errors for clients of gRPC: they expect a status of gRPC, in a response with status 200.

use crate::net::call::CallError;
use sanderling_http::Request;

/// Statuses of gRPC (`statuscodes.md` of its specification).
const DEADLINE_EXCEEDED: u8 = 4;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;

/// The status of gRPC for a request without a response, if it is one of gRPC.
pub(super) fn grpc_status(request: &Request<'_>, error: &CallError) -> Option<u8> {
    const MEDIA_TYPE: &[u8] = b"application/grpc";
    let media_type = request.fields.find_all(b"content-type").next()?;
    let (own, rest) = media_type.split_at_checked(MEDIA_TYPE.len())?;
    // `application/grpc-web` has another form.
    let is_grpc = own.eq_ignore_ascii_case(MEDIA_TYPE) && matches!(rest.first(), None | Some(b'+' | b';' | b' '));
    is_grpc.then_some(match error {
        CallError::ConnectTimeout(_) | CallError::Timeout(_) => DEADLINE_EXCEEDED,
        CallError::ContentTooLarge => RESOURCE_EXHAUSTED,
        _ => UNAVAILABLE,
    })
}

/// Appends the fields of a response without content that has only a status and its message.
pub(super) fn put_grpc_fields(status: u8, message: &str, out: &mut Vec<u8>) {
    let message = message.trim_ascii_end();
    let fields = format!("Content-Type: application/grpc\r\ngrpc-status: {status}\r\ngrpc-message: ");
    out.extend_from_slice(fields.as_bytes());
    for byte in message.bytes() {
        match byte {
            b'%' | ..b' ' | 0x7f.. => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.extend_from_slice(b"\r\n");
}
