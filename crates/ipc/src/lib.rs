//! The one protocol between the server's processes, and between them and the commands that control them.
//!
//! A [`Message`] travels as one packet over a Unix socket, with its descriptors, each with its [`FdKind`]. The same
//! messages go
//! - between the supervisor and a server process,
//! - from a command such as `sanderling reload` to the control socket, and back,
//! - between the supervisor and the agent, and between it and the keeper,
//! - from a server process without a supervisor to the supervisor that adopts it.
//!
//! Descriptors also pass through `exec`: by their names to a new server process, by a list to the program that replaces
//! the supervisor ([`handover`]). This crate carries messages; it does not act on them.
#![forbid(unsafe_code)]
// Numbers come from other processes, which may lie.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod client;
pub mod control_socket;
pub mod control_path;
pub mod handover;
mod connection;
mod message;
pub mod catalog;
pub mod derived;
pub mod agent;
pub mod backend_files;
pub mod secrets;
pub mod zone_signing;
pub mod signing;

pub use connection::{Connection, IncomingFds, OutgoingFds, RETRY_INTERVAL, Received, is_closed};
pub use message::{
    Command, DecodeError, DnssecCommand, Event, FdKind, KeeperSupervision, Message, PendingCommand, ProcessInfo,
    ProcessSupervision, RolloverKeys, StatusFormat, Supervision, Text, ZoneCommand,
};

use std::time::Duration;

/// Descriptors of kept zones ([`FdKind::Zones`]) that the supervisor holds at most.
pub const KEPT_ZONES_FDS_MAX: usize = 32;

/// Bytes of the longest configuration.
pub const CONFIGURATION_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Time between two heartbeats of a server process. The supervisor kills a process that has missed several.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
