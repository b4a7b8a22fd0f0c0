//! Turns rates, expected answers and a time into the fate of every single request.
//!
//! Requests are due by the clock and sent when they are due, however the server fares; none is ever sent again. Each
//! ends as answered rightly, or as lost for one [`Cause`]; what is no loss but worth knowing is a [`Note`].
//!
//! ```no_run
//! use losscount::{HttpLoad, Kind, Load};
//! use std::time::Duration;
//!
//! let mut load = Load::new(Duration::from_secs(2), 1);
//! let page = std::fs::read("index.html").expect("the page is there");
//! load.http = Some(HttpLoad { new_per_s: 200, kept_per_s: 500, ..HttpLoad::new(([127, 0, 0, 1], 8080).into(), "/", page) });
//! let running = load.start().expect("the load is complete");
//! // Reload, kill or upgrade the server here.
//! let report = running.finish().expect("this machine has what the load needs");
//! assert_eq!(report.lost_count(), 0, "{report}");
//! assert!(report.counts(Kind::HttpKept).expect("it had a rate").ok_count > 0);
//! ```
//!
//! No request is sent again by this program; the kernel still repeats lost segments, so that a SYN dropped from a full
//! listener shows as a latency of a second. A silent server leaves rate times deadline connections open: a program that
//! runs a load in itself sees to its limit of descriptors (`ulimit -n`), or finds [`Cause::Unsent`].
//!
//! What it does not do: TLS, HTTP/2, chunked content, many paths, zone transfers.

#![deny(unsafe_code)]

mod load;
mod probe;
mod streams;
mod datagrams;
mod lane;
mod http;
mod dns_stream;
mod protocol;
mod reply;
mod question;
mod report;
mod tally;
mod histogram;
mod poller;
mod error_queue;
mod slots;
mod schedule;
mod random;
mod outcome;

pub use histogram::Histogram;
pub use load::{DnsContent, DnsLoad, HttpLoad, Load, LoadError, Running};
pub use outcome::{Cause, Kind, Note};
pub use question::{Question, QuestionError, parse_questions};
pub use report::Report;
pub use streams::IdleNotice;
pub use tally::{Counts, Loss, Standing};

#[doc(hidden)]
pub mod internals {
    //! The parsers that read what a server sent: open to the property tests, and to nobody else.
    pub use crate::http::{HttpAnswer, HttpRequest};
    pub use crate::protocol::{Protocol, Taken};
    pub use crate::reply::{Reply, Transport, check_reply};
}
