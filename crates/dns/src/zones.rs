//! A zone in memory.

pub(crate) mod zone_text;
pub(crate) mod zone_change;
pub mod zone_edit;
pub(crate) mod zone_digest;
pub(crate) mod zone_walk;
pub mod zone_builder;
pub mod zone;
pub(crate) mod zone_links;
pub(crate) mod denial;
pub(crate) mod delta;
pub mod journal;
pub(crate) mod layout;
pub(crate) mod packed_rrset;
pub(crate) mod hash_slots;
pub(crate) mod sorted_pages;
pub(crate) mod name_hash;
