//! Formats of access logs: the text of a format becomes a [`Format`], which writes one line for each [`Record`].
//!
//! Used by `config`, which reports errors of a format, and by `server`, which writes the lines. It does no I/O, and knows
//! neither files nor time zones: times are in UTC.
#![forbid(unsafe_code)]

mod line_writer;
mod format;
mod variable;
mod record;
mod escape;
mod timestamp;

pub use format::{Format, FormatError};
pub use line_writer::LineWriter;
pub use record::{HttpVersion, Outcome, Record};
