//! `sanderling doctor`: looks at the server, its machine and its domains as the world sees them, and says what is
//! right, what is wrong, and what to do.
//!
//! ```text
//! look → Facts                          all that is asked of files, kernel, server and network
//! checks::ROWS: fn(&Facts) → Findings   each judges a part of the facts, and asks nothing
//! report ← Findings
//! ```
//!
//! It changes nothing. The agent asks the network ([`sanderling_agent::outside`]), `sanderling check` the files.
#![forbid(unsafe_code)]

// In the order of imports: a module uses only modules below it.
mod report;
mod checks;
mod look;
mod ports;
mod proc_sockets;
mod facts;

use sanderling_agent::outside::Places;
use sanderling_config::Exit;
use sanderling_config::log::print;
use std::path::PathBuf;

/// The objects to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The configuration file.
    pub config_file: PathBuf,
    /// The control socket of the server, or why it is unknown.
    pub socket: Result<PathBuf, String>,
    /// The domain, and the servers to ask.
    pub places: Places,
    /// Whether the report is JSON.
    pub is_json: bool,
}

/// Whether a program has `port` at any address of this machine.
pub fn is_port_taken(port: u16) -> bool {
    proc_sockets::bound_sockets().iter().any(|socket| socket.address.port() == port)
}

/// Looks, judges, and prints the report. The exit status is a failure if something is wrong.
pub fn run(options: &Options) -> Exit {
    let facts = look::look(options);
    let findings = checks::judge(&facts);
    let elsewhere = checks::only_from_elsewhere(&facts);
    print(&if options.is_json { report::json(&findings, &elsewhere) } else { report::text(&findings, &elsewhere) });
    if findings.iter().any(|finding| finding.verdict.is_wrong()) { Exit::Failure } else { Exit::Success }
}
