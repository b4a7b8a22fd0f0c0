//! The logs of requests.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A request log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogKind {
    /// The log of HTTP requests.
    Access,
    /// The log of DNS queries.
    Queries,
    /// DNS messages for a program that reads dnstap.
    Dnstap,
}

impl LogKind {
    /// All of them.
    pub const ALL: [LogKind; 3] = [LogKind::Access, LogKind::Queries, LogKind::Dnstap];

    /// The units of its content.
    pub fn records(self) -> &'static str {
        match self {
            LogKind::Access | LogKind::Queries => "lines",
            LogKind::Dnstap => "messages",
        }
    }
}

impl fmt::Display for LogKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            LogKind::Access => "access log",
            LogKind::Queries => "query log",
            LogKind::Dnstap => "dnstap stream",
        })
    }
}
