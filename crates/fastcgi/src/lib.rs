//! FastCGI 1.0 without I/O, for the role Responder: requests become records, and received records become the output of
//! a script.
//!
//! For each request the caller
//! 1. writes [`put_begin`] and [`ScriptRequest::put_params`];
//! 2. writes the content with [`put_stdin`] as it arrives, then [`put_stdin_end`];
//! 3. gives received bytes to [`Decoder::advance`], and the output of the script to
//!    [`parse_cgi_response`](sanderling_http::parse_cgi_response), until [`Event::End`].
//!
//! A connection carries one request at a time: php-fpm and most others support no more. The crate knows no file: the
//! caller decides which script answers.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod params;
mod requests;
mod decoder;
mod record;

pub use decoder::{DecodeError, Decoder, Event, ProtocolStatus};
pub use params::{Script, ScriptRequest};
pub use requests::{put_abort, put_begin, put_stdin, put_stdin_end};
