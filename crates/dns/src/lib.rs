//! Answers DNS queries from zones, and reads zone files.
//!
//! The crate does no I/O and reads no clock. After a zone is built, answering allocates nothing.
//!
//! ```text
//! text → zonefile::Parser → Record → ZoneBuilder → Zone → ZoneMap    when zones are loaded
//! query + ZoneMap → ParsedQuery → answer → reply                     for each query
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

// The order is that of imports: a module uses those below it.
pub mod restricted;
pub mod catalog;
pub mod answer;
mod signed_answer;
mod alias_chain;
mod proofs;
mod reply_ttl;
mod zone_text;
pub mod transfer;
pub mod notify;
pub mod difference;
pub mod update;
pub mod change_log;
pub mod zone_patch;
pub mod transfer_in;
pub mod client;
mod zone_change;
pub mod zone_edit;
mod zone_digest;
mod zone_walk;
mod query;
pub mod reply_options;
pub mod cookie;
pub mod zone_map;
mod message;
mod question;
pub mod tsig;
pub mod zone_builder;
pub mod zone;
mod zone_links;
mod denial;
mod delta;
pub mod journal;
mod layout;
mod compression;
mod packed_rrset;
mod hash_slots;
mod sorted_pages;
mod name_hash;
pub mod zonefile;
pub mod rdata;
pub mod rtype;
pub mod name;

pub use answer::{Answer, DnsTransport, RequestInfo, answer, answer_parsed, answer_with_options};
pub use change_log::ChangeLog;
pub use cookie::CookieSecrets;
pub use journal::{JournalError, ZoneChange, ZoneJournal, is_later, raised_serial};
pub use name::{Name, NameBuf};
pub use name_hash::HashSeed;
pub use query::{ParsedQuery, ReplyClass};
pub use reply_options::ReplyOptions;
pub use reply_ttl::smallest_ttl;
pub use rtype::{RecordSource, Rtype};
pub use tsig::{SignatureError, TsigAlgorithm, TsigError, TsigKey, TsigKeys};
pub use zone::Zone;
pub use zone_builder::{BuildOutcome, ZoneBuilder, ZoneLimits};
pub use zone_map::{ZoneEntry, ZoneMap};
pub use zone_text::{LineForm, ZoneTextWriter};
