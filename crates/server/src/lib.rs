//! Moves the bytes: listeners, workers and connections between the kernel and the two protocol crates.
//!
//! ```text
//! Server::run ─┬─ Worker      one poller: HTTP connections, DNS streams      each turn: wait, dispatch, unfinished, deadlines
//!              └─ Datagrams   no poller: receive a batch, answer, send it    each turn: drain, then wait
//! ```
//!
//! It knows no command line, no configuration file and no supervisor: it is given sockets that are bound already, and
//! an immutable [`Content`] that can be replaced at any time.
#![forbid(unsafe_code)]

mod server;
mod worker;
mod datagrams;
mod peer;
mod connection;
mod dns_stream;
mod outbox;
mod files;
mod open_files;
mod watches;
mod fills;
mod open_file;
mod content;
mod deadlines;
mod slab;
mod permits;
mod tally;
mod clock;
mod options;

pub use content::{BuiltinFile, Content, DefaultSite, Root, Site};
pub use open_files::{Census, OpenFilesOptions};
pub use options::{DnsOptions, HttpOptions, Options};
pub use server::{Server, Siblings};
pub use tally::{Counter, Tallies};
