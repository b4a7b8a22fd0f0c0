//! Calls the kernel: one file for each job of a descriptor, every call counted, every missing feature with a way round.
//!
//! This crate is mechanism. It knows no protocol, no cache and no limit; it does not retry what a caller could decide
//! to retry, it never logs, and it keeps no state but the ways it has chosen ([`ways`]) and its counts ([`counters`]).
//!
//! `unsafe` stands in here, and only for calls that `rustix` does not have.
#![deny(clippy::undocumented_unsafe_blocks)]

// The order is that of imports: a module uses those below it.
pub mod jobs;
pub mod candidates;
pub mod confinement;
pub mod identity;
pub mod process;
pub mod limits;
pub mod inherit;
pub mod notify;
pub mod signals;
pub mod poll;
pub mod wake;
pub mod udp;
pub mod watch;
pub mod directory;
mod walk;
pub mod file;
pub mod socket;
pub mod tcp;
pub mod packets;
pub mod memory_file;
pub mod cloexec;
pub mod ways;
pub mod counters;
pub mod failure;
