//! Formats of logs of requests: the text of a format becomes a [`Format`], and a [`LineWriter`] writes one line for
//! each record.
//!
//! A [`DnstapWriter`] writes whole DNS messages for programs instead, and [`frame_streams`] has the protocol in which
//! they are passed on.
//!
//! Used by `config`, which reports errors of a format, and by `server`, which writes the lines. This crate does no I/O,
//! and knows neither files nor time zones: times are in UTC.
#![forbid(unsafe_code)]

mod line_writer;
mod format;
mod query_variable;
mod http_variable;
mod http_record;
mod variable;
mod escape;
mod timestamp;
mod log_kind;
mod dnstap;
pub mod frame_streams;

pub use dnstap::{DnstapMessage, DnstapTransport, DnstapWriter};
pub use escape::Escape;
pub use format::{Format, FormatError};
pub use http_record::{FieldLines, HttpRecord, HttpVersion, Outcome, Upstream};
pub use http_variable::HttpVariable;
pub use line_writer::LineWriter;
pub use log_kind::LogKind;
pub use query_variable::{QueryQuestion, QueryRecord, QueryVariable};
pub use variable::{Record, Variable};

/// The contents of the access log.
pub type AccessFormat = Format<HttpVariable>;
/// The contents of the query log.
pub type QueryFormat = Format<QueryVariable>;
