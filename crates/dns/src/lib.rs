//! Turns a zone and a query into a reply: no I/O, no clock, no socket, no allocation once a zone is made.
//!
//! ```text
//! text → zonefile::Parser → Record → ZoneBuilder → Zone → ZoneSet        at load
//! query + ZoneSet → Asked → answer → reply                              for each query
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answer;
mod asked;
mod message;
pub mod zones;
pub mod zone_builder;
pub mod zone;
mod ready;
pub mod name_hash;
pub mod zonefile;
pub mod rdata;
pub mod rtype;
pub mod name;

pub use answer::{Reply, Transport, answer, answer_asked};
pub use asked::Asked;
pub use message::Rcode;
pub use name::{Name, NameBuf};
pub use name_hash::HashSeed;
pub use rtype::Rtype;
pub use zone::Zone;
pub use zone_builder::{Built, ZoneBuilder, ZoneLimits};
pub use zones::ZoneSet;
