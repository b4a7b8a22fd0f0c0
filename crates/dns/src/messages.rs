//! Messages of DNS: what is received, what is written, and what a reply has besides records.

pub(crate) mod query;
pub mod reply_options;
pub mod cookie;
pub mod zone_map;
pub(crate) mod message;
pub(crate) mod question;
pub mod tsig;
pub(crate) mod compression;
