//! The protocol of a connection: HTTP/1.1, HTTP/2, and DNS over TCP.

pub(crate) mod connection;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod dns_stream;
