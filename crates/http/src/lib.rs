//! HTTP/1.1 without I/O: parses requests, decides and writes responses. The crate `http2` writes requests in this form,
//! and reads responses in it.
//!
//! For each request the caller
//! 1. parses the received bytes with [`parse_request`];
//! 2. skips the request body with [`BodySkipper`], if there is one;
//! 3. maps [`Request::path`] to a file path with [`SitePath::parse`] and looks the file up;
//! 4. takes the file's [`Representation`], made when the file was opened, in the coding from [`negotiate_coding`];
//! 5. calls [`respond`] and sends what [`Response::write_head`] writes, then [`Response::body`].
//!
//! For a request that a backend answers, it writes what [`BackendRequest`] says, parses the response with
//! [`parse_response`] or [`parse_cgi_response`], and sends what [`BackendResponse::write_head`] writes and the content,
//! of which [`BodySkipper::of_response`] finds the end.
//!
//! This crate never opens a file, reads a socket or asks for the time. It compresses nothing: a coded file is a
//! separate file. Trailers are only passed on ([`put_passed_trailers`]).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod backend_request;
mod trailers;
mod dns_message;
mod listing;
mod respond;
mod response;
mod multipart;
mod preconditions;
mod representation;
mod validator;
mod range;
mod entity_tag;
mod accept;
mod coded_file;
mod content_coding;
mod body_skipper;
mod cgi_response;
mod backend_response;
mod forwarded;
mod request_values;
mod request;
mod passed_fields;
mod fields;
mod target;
mod host;
mod response_error;
mod request_error;
mod site_path;
mod media_type;
mod status;
mod date;
mod scan;
mod grammar;
mod output;

pub use backend_request::BackendRequest;
pub use backend_response::{
    BackendResponse, ClientContent, ParsedResponse, ResponseFraming, ResponseHeadParts, ResponseLimits, parse_response,
};
pub use body_skipper::{BodySkipper, Skipped};
pub use cgi_response::parse_cgi_response;
pub use coded_file::{CODED_HEAD_BYTES, CODED_TAIL_BYTES, CodingFault, coding_fault};
pub use content_coding::{ContentCoding, accepts_identity, negotiate_coding};
pub use date::HttpDate;
pub use dns_message::{DNS_MESSAGE_BYTES_MAX, dns_query, has_dns_message};
pub use entity_tag::weak_etag;
pub use fields::{FieldName, FieldValues, Fields};
pub use forwarded::{ForwardedField, forwarded_client};
pub use host::Host;
pub use listing::{ListedFile, Listing};
pub use media_type::{is_compressible, is_text, media_type};
pub use multipart::{Multipart, Part};
pub use preconditions::is_not_modified;
pub use representation::{Negotiation, Representation};
pub use request::{Framing, Method, Parsed, Persistence, Request, RequestLimits, Version, parse_request};
pub use request_error::RequestError;
pub use respond::{LookupError, respond};
pub use response::{Body, CanonicalUrl, Response, put_canonical_path, put_field_lines, put_path_segment};
pub use response_error::ResponseError;
pub use site_path::{MalformedPath, PathTraits, SEGMENT_BYTES_MAX, SITE_PATH_BYTES_MAX, SitePath};
pub use status::Status;
pub use target::{Scheme, Target};
pub use trailers::put_passed_trailers;
pub use validator::{CompressorVersion, ContentHash, FileMetadata, FileTime, Validator};
