//! The supervisor: owns the listening sockets, and starts, watches and replaces the server process.
//!
//! The supervisor reads nothing from the network; its crate depends on no protocol.
#![forbid(unsafe_code)]
// Numbers come from other processes, which may lie.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod supervisor;
mod process;
mod unix_backends;
mod child;
mod start_states;
mod started_with;
mod phase;
mod program;
mod orphans;
mod backoff;
mod log_rotation;

pub use supervisor::{serve, state_problem};
