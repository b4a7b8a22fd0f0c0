//! Changes of a zone: dynamic updates, and the forms in which changes are kept.

pub mod difference;
pub mod update;
pub mod change_log;
pub mod zone_patch;
