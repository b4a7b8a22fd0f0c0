//! Sends requests over HTTP, HTTPS and DNS at a fixed rate, and counts their outcomes.
//!
//! Requests are sent when they are due, whatever the server does, and are never repeated, except HTTP/2 requests that
//! the server reports as unprocessed (GOAWAY). Each one ends either with a correct response or as lost for one
//! [`Cause`]; events that are no losses are counted as [`Note`]s. Latencies count from the time a request was due. The
//! kernel still retransmits segments: a SYN dropped at a full accept queue shows as a latency of one second.
//!
//! ```no_run
//! use loadgen::{HttpTarget, Kind, Load};
//! use std::time::Duration;
//!
//! let page = std::fs::read("index.html").expect("the page exists");
//! let mut load = Load::new(Duration::from_secs(2), 1);
//! load.rates[Kind::HttpNew as usize] = 200;
//! load.rates[Kind::HttpKept as usize] = 500;
//! load.http = Some(HttpTarget::new(([127, 0, 0, 1], 8080).into(), "/", page));
//! let running = load.start().expect("the load is valid");
//! // Reload, kill or upgrade the server here.
//! let report = running.finish().expect("this machine has enough resources");
//! assert_eq!(report.lost_count(), 0, "{report}");
//! assert!(report.counts(Kind::HttpKept).expect("its rate is not zero").ok_count > 0);
//! ```
//!
//! A server that does not respond leaves rate × deadline connections open: raise the limit of file descriptors first,
//! or requests are counted as [`Cause::NotSent`]. Not supported: chunked content, zone transfers, encrypted DNS.

#![deny(unsafe_code)]

mod load;
mod datagrams;
mod dns;
pub mod client;
mod http;
mod http2;
mod streams;
mod tls;
mod report;
mod outcome;

pub use dns::{Question, parse_questions};
pub use load::{DnsTarget, HttpTarget, Load, Running};
pub use outcome::{Cause, Kind, Note};
pub use report::{Counts, Report};
pub use streams::IdleClose;
pub use tls::{config as tls_config, config_with as tls_config_with};
