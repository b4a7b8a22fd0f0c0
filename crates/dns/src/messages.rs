//! DNS messages: received ones, written ones, and the parts of a reply other than records.

pub(crate) mod query;
pub mod reply_options;
pub mod cookie;
pub mod zone_map;
pub(crate) mod message;
pub(crate) mod question;
pub mod tsig;
pub(crate) mod compression;
