//! Reloads, upgrades and crashes of a server under load: which requests are lost, and whether that is allowed.
//!
//! The tests of the program run some scenarios with few events ([`Extent::Test`]), `cargo xtask soak` runs all of them
//! with many. Every server listens on a loopback address of its own.
#![forbid(unsafe_code)]

pub mod torture;
pub mod floods;
pub mod logins;
mod scenarios;
mod crashes;
mod nginx;
mod running;
mod service;
mod site;
mod outcome;
mod extent;

pub use extent::Extent;
pub use outcome::Outcome;
pub use scenarios::{SCENARIOS, Scenario};
pub use service::processes_in;
