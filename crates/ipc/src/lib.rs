//! What the processes of the server and the commands that control it say to each other.
#![forbid(unsafe_code)]

pub mod control;
pub mod control_client;
pub mod control_path;
pub mod handover;
pub mod control_message;
pub mod channel;
mod exit;
pub mod json;

pub use exit::Exit;

use std::time::Duration;

/// Names of the descriptors that a supervisor hands over beside its sockets, which have the names of their services.
pub const CHANNEL: &str = "channel";
/// See [`CHANNEL`].
pub const CONFIGURATION: &str = "configuration";
/// See [`CHANNEL`].
pub const CONTROL: &str = "control";

/// Bytes of a configuration's text that is taken over; its reader has bounded it already.
pub const CONFIGURATION_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How often the supervisor hears that all threads move. It gives a process up that has been silent for several.
pub const BEAT_INTERVAL: Duration = Duration::from_secs(1);
