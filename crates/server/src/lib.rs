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

// The order is that of imports: a module uses those below it.
mod server;
mod siblings;
mod standing;
mod worker;
mod gate;
mod datagrams;
mod shared;
mod connection;
mod dns_stream;
mod peer;
mod outbox;
mod files;
mod open_files;
mod watches;
mod fills;
mod sought;
mod open_file;
mod content;
mod deadlines;
mod slab;
mod permits;
mod stage;
mod tally;
mod beat;
mod clock;
mod options;

pub use content::{BuiltinFile, Content, DefaultSite, Root, Site};
pub use open_files::Census;
pub use options::{DnsOptions, HttpOptions, OpenFilesOptions, Options};
pub use server::Server;
pub use siblings::Siblings;
pub use stage::{Drain, Stage};
pub use standing::{Standing, ThreadStanding};
pub use tally::{Counter, Tallies};
