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

// Modules are in import order: a module uses only modules below it.
mod answers;
mod changes;
mod transfers;
mod messages;
mod zones;
mod text;

pub use answers::answer::{Answer, DnsTransport, RequestInfo, answer, answer_parsed, answer_with_options};
pub use answers::reply_ttl::smallest_ttl;
pub use answers::{answer, restricted};
pub use changes::change_log::ChangeLog;
pub use changes::{change_log, difference, update, zone_patch};
pub use messages::cookie::CookieSecrets;
pub use messages::query::{ParsedQuery, ReplyClass};
pub use messages::reply_options::ReplyOptions;
pub use messages::tsig::{SignatureError, TsigAlgorithm, TsigError, TsigKey, TsigKeys};
pub use messages::zone_map::{ZoneEntry, ZoneMap};
pub use messages::{cookie, reply_options, tsig, zone_map};
pub use text::name::{Name, NameBuf};
pub use text::rtype::{RecordSource, Rtype};
pub use text::{name, rdata, rtype, zonefile};
pub use transfers::{catalog, client, notify, transfer, transfer_in};
pub use zones::journal::{JournalError, ZoneChange, ZoneJournal, is_later, raised_serial};
pub use zones::name_hash::HashSeed;
pub use zones::zone::Zone;
pub use zones::zone_builder::{BuildOutcome, ZoneBuilder, ZoneLimits};
pub use zones::zone_text::{LineForm, ZoneTextWriter};
pub use zones::{journal, zone, zone_builder, zone_edit};
