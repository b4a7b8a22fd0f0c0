//! Logs of requests and queries.

pub(crate) mod access_log;
pub(crate) mod query_log;
pub(crate) mod dnstap;
pub(crate) mod log_lines;
pub(crate) mod log_queue;
pub(crate) mod frame_stream;
