//! Transfers of zones, NOTIFY and catalogs.

pub mod catalog;
pub mod transfer;
pub mod notify;
pub mod transfer_in;
pub mod client;
