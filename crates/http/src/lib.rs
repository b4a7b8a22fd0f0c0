//! A request's bytes and the facts of a file in, a response out: HTTP/1.1 without sockets, files or a clock.
//!
//! The way of one request: [`parse_request`] turns bytes into a [`Request`]; [`SitePath::parse`] says which file it is
//! about; the caller finds that file and lends its [`Representation`], made once when the file was opened, or that one of
//! several that [`negotiate_coding`] says; [`respond`] decides; [`Response::write_head`] writes the head, and
//! [`Response::body`] says what follows it. The content of a request, which no file needs, is thrown away by
//! [`BodySkipper`].
//!
//! What it does not do: HTTP/2 and later, several ranges in one answer (they are answered with the whole file),
//! compression (a file in a coding is another file), trailers, and everything that needs to know what a path means on a
//! disk.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod respond;
mod response;
mod conditions;
mod representation;
mod range;
mod entity_tag;
mod content_coding;
mod body_skipper;
mod request;
mod fields;
mod target;
mod host;
mod request_error;
mod site_path;
mod media_type;
mod status;
mod date;
mod scan;
mod grammar;

pub use body_skipper::{BodySkipper, Skipped};
pub use content_coding::{ContentCoding, negotiate_coding};
pub use date::HttpDate;
pub use fields::{FieldName, Fields, Values};
pub use host::Host;
pub use media_type::{is_compressible, media_type};
pub use representation::{FileMetadata, FileTime, Negotiation, Representation};
pub use request::{Framing, Method, Parsed, Persistence, Request, RequestLimits, Version, parse_request};
pub use request_error::RequestError;
pub use respond::{LookupError, respond};
pub use response::{Body, Response};
pub use site_path::{SEGMENT_BYTES_MAX, SITE_PATH_BYTES_MAX, SitePath, SitePathError};
pub use status::Status;
pub use target::Target;
