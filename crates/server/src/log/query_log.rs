//! The records of one thread for DNS queries and their replies: the lines of the query log, and dnstap messages.

use crate::log::dnstap::{Dnstap, ThreadDnstap};
use crate::log::log_lines::{LogLines, RequestLog};
use crate::log::log_queue::LogQueue;
use crate::statistics::{DNS_TRANSPORTS, RCODES, index_of_rcode, index_of_transport};
use sanderling_dns::{ParsedQuery, RequestInfo};
use sanderling_log_format::{QueryQuestion, QueryRecord, QueryVariable};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// The log of DNS queries.
pub type QueryLog = RequestLog<QueryVariable>;

/// The records of a thread for the queries that it answers. There is one only if there is a query log, or dnstap, so
/// that the path of a query without both has one test.
#[derive(Debug)]
pub(crate) struct ThreadQueryLog(RefCell<Logs>);

#[derive(Debug, Default)]
struct Logs {
    lines: Option<LogLines<QueryVariable>>,
    dnstap: Option<ThreadDnstap>,
}

impl ThreadQueryLog {
    /// Begins, changes or ends `thread_log`, as `query_log` and `dnstap` say. Each comes with the queue for it.
    pub(crate) fn update(
        thread_log: &mut Option<ThreadQueryLog>,
        (query_log, queue): (Option<&QueryLog>, &Arc<LogQueue>),
        (dnstap_settings, dnstap_queue): (Option<&Dnstap>, &Arc<LogQueue>),
    ) {
        let Logs { lines, dnstap } = thread_log.take().map(|log| log.0.into_inner()).unwrap_or_default();
        let lines = query_log.map(|log| match lines {
            Some(mut lines) => {
                lines.set(log);
                lines
            }
            None => LogLines::new(log, queue),
        });
        let dnstap = dnstap_settings.map(|settings| match dnstap {
            Some(mut dnstap) => {
                dnstap.set(settings);
                dnstap
            }
            None => ThreadDnstap::new(settings, dnstap_queue),
        });
        if lines.is_some() || dnstap.is_some() {
            *thread_log = Some(ThreadQueryLog(RefCell::new(Logs { lines, dnstap })));
        }
    }

    /// Records `message`, which gets no reply, or a later one.
    #[cold]
    #[inline(never)]
    pub(crate) fn log_query(&self, info: &RequestInfo, message: &[u8], time_unix_ms: u64) {
        if let Some(dnstap) = &mut self.0.borrow_mut().dnstap {
            dnstap.write_query(info, message, time_unix_ms);
        }
    }

    /// Records `query` and its `reply` at this time.
    // Separate, so that the path of a query without a log stays short.
    #[cold]
    #[inline(never)]
    pub(crate) fn log_reply(&self, info: &RequestInfo, query: &ParsedQuery<'_, '_>, reply: &[u8], time_unix_ms: u64) {
        if let Some(dnstap) = &mut self.0.borrow_mut().dnstap {
            dnstap.write_query(info, query.message(), time_unix_ms);
        }
        self.log_late_reply(info, query, reply, time_unix_ms);
    }

    /// Records the `reply` to `query`, which has been recorded.
    pub(crate) fn log_late_reply(
        &self,
        info: &RequestInfo,
        query: &ParsedQuery<'_, '_>,
        reply: &[u8],
        time_unix_ms: u64,
    ) {
        let logs = &mut *self.0.borrow_mut();
        if let Some(dnstap) = &mut logs.dnstap {
            dnstap.write_reply(info, reply, time_unix_ms);
        }
        if let Some(lines) = &mut logs.lines
            && lines.takes_next()
        {
            write_line(lines, info, query, reply, time_unix_ms);
        }
    }

    /// Passes on the records of an iteration.
    pub(crate) fn pass_on(&self) {
        let logs = &mut *self.0.borrow_mut();
        logs.lines.iter_mut().for_each(LogLines::pass_on);
        logs.dnstap.iter_mut().for_each(ThreadDnstap::pass_on);
    }
}

fn write_line(
    lines: &mut LogLines<QueryVariable>,
    info: &RequestInfo,
    query: &ParsedQuery<'_, '_>,
    reply: &[u8],
    time_unix_ms: u64,
) {
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
