//! The log of DNS queries: a line for each reply that one thread has written.

use crate::log_lines::{LogLines, RequestLog};
use crate::log_queue::LogQueue;
use crate::statistics::{DNS_TRANSPORTS, RCODES, index_of_rcode, index_of_transport};
use sanderling_dns::{ParsedQuery, RequestInfo};
use sanderling_log_format::{QueryQuestion, QueryRecord, QueryVariable};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// The log of DNS queries.
pub type QueryLog = RequestLog<QueryVariable>;

/// What a thread logs of the queries that it answers.
#[derive(Debug)]
pub(crate) struct ThreadQueryLog(RefCell<LogLines<QueryVariable>>);

impl ThreadQueryLog {
    /// Begins, changes or ends `thread_log`, as `log` says.
    pub(crate) fn update(thread_log: &mut Option<ThreadQueryLog>, log: Option<&QueryLog>, queue: &Arc<LogQueue>) {
        *thread_log = log.map(|log| match thread_log.take() {
            Some(ThreadQueryLog(mut lines)) => {
                lines.get_mut().set(log);
                ThreadQueryLog(lines)
            }
            None => ThreadQueryLog(RefCell::new(LogLines::new(log, queue))),
        });
    }

    /// Logs `reply`, which answers `query` at this time.
    // By itself, so that the path of a query without a log stays short.
    #[cold]
    #[inline(never)]
    pub(crate) fn log_reply(&self, info: &RequestInfo, query: &ParsedQuery<'_, '_>, reply: &[u8], time_unix_ms: u64) {
        let mut lines = self.0.borrow_mut();
        if !lines.takes_next() {
            return;
        }
        let (name, class, rtype) = (query.qname(), query.qclass().map(Class), query.qtype());
        let question = match (&name, &class, &rtype) {
            (Some(name), Some(class), Some(rtype)) => Some(QueryQuestion { name, class, rtype }),
            _ => None,
        };
        lines.write(&QueryRecord {
            client: info.client,
            transport: DNS_TRANSPORTS[index_of_transport(info.transport)],
            question,
            rcode: RCODES[index_of_rcode(query.rcode_of(reply))],
            reply_bytes: reply.len(),
            time_unix_ms,
        });
    }

    /// Passes the lines of an iteration on.
    pub(crate) fn pass_on(&self) {
        self.0.borrow_mut().pass_on();
    }
}

/// A class in presentation format (RFC 1035 §3.2.4, RFC 3597 §5).
#[derive(Clone, Copy)]
struct Class(u16);

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => formatter.write_str("IN"),
            3 => formatter.write_str("CH"),
            4 => formatter.write_str("HS"),
            255 => formatter.write_str("ANY"),
            number => write!(formatter, "CLASS{number}"),
        }
    }
}
