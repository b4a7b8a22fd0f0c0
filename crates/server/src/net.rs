//! Bytes from and to clients.

pub(crate) mod send_queue;
pub(crate) mod body_sink;
pub(crate) mod body_source;
pub(crate) mod backend_content;
pub(crate) mod content_encoder;
pub(crate) mod backend_stream;
pub(crate) mod call;
pub(crate) mod file_chunk;
pub(crate) mod transport;
pub(crate) mod proxy_protocol;
#[cfg(any(test, feature = "simulation"))]
pub(crate) mod memory_stream;
