//! Turns a zone and a query into a reply: no I/O, no clock, no socket, no allocation once a zone is made.
//!
//! ```text
//! text → zonefile::Parser → Record → ZoneBuilder → Zone → ZoneMap        when zones are loaded
//! query + ZoneMap → ParsedQuery → answer → reply                for each query
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answer;
mod query;
pub mod zone_map;
mod message;
pub mod zone_builder;
pub mod zone;
mod packed_rrset;
mod name_hash;
pub mod zonefile;
pub mod rdata;
pub mod rtype;
pub mod name;

pub use answer::{Answered, RequestInfo, Transport, answer, answer_parsed};
pub use name::{Name, NameBuf};
pub use name_hash::HashSeed;
pub use query::ParsedQuery;
pub use rtype::Rtype;
pub use zone::Zone;
pub use zone_builder::{BuildOutcome, ZoneBuilder, ZoneLimits};
pub use zone_map::{ZoneEntry, ZoneMap};
