//! Reads zone files with the files that they include, the records derived for the zone, and the changes by dynamic
//! updates.
//!
//! The server process reads the zones that it serves so, and the agent those that it signs.
#![forbid(unsafe_code)]

// Modules are in import order: a module uses only modules below it.
mod zone_loader;
mod derived_records;
mod mail_policies;
mod record_sink;
mod wire_name;
mod zone_sources;

pub use derived_records::{AddedRecords, Alias, Derivations, ZoneDerivation, signed_derivations};
pub use mail_policies::served_mail_policies;
pub use record_sink::{
    MergedUpdates, PriorUpdates, StoreRequest, UpdateState, ZoneUpdates, dropped_updates, held_updates, read_updates,
};
pub use wire_name::wire_name;
pub use zone_loader::{Denial, Failure, ReadZone, first_serial, load, parse, patch_of, restore};
pub use zone_sources::{ZoneSources, ZoneText};
