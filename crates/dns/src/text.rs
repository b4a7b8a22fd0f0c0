//! Zone files, and the names and records in them.

pub mod zonefile;
pub mod rdata;
pub mod rtype;
pub mod name;
