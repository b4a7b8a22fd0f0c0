//! HTTP/2 (RFC 9113) without I/O: received bytes become requests, and responses become frames.
//!
//! The caller
//! 1. gives received bytes to [`Session::receive`], which takes whole frames off them;
//! 2. parses the head of a complete request, which has the form of HTTP/1.1, with [`sanderling_http::parse_request`],
//!    and answers it as it would answer a request of HTTP/1.1, with [`Session::answer`], or keeps it for later with
//!    [`Session::park`];
//! 3. fills the frames of [`Session::next_data`] while its output has room, which are in the order of RFC 9218;
//! 4. sends the output, and closes the connection once [`Session::is_finished`].
//!
//! The crate knows no clock: [`Session::activity`] returns the reason why a connection waits, and the caller decides
//! how long it may. The crate does not support server push, the upgrade from HTTP/1.1, trailers in responses or
//! CONNECT. A session keeps request content only where the caller asks for it ([`Session::await_content`]), up to the
//! length of a DNS message.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod client;
mod session;
mod streams;
mod response_head;
mod request_head;
mod limits;
mod priority;
mod hpack;
mod frame;

pub use client::{Arrived, ClientFault, ClientSession, RESPONSE_WINDOW_BYTES};
pub use frame::{DATA_BYTES_MAX, ErrorCode};
pub use limits::{ExceededLimit, Limits};
pub use request_head::Scratch;
pub use session::{Activity, Content, DataFrame, Exchange, PartialEnd, Received, Request, Session};
