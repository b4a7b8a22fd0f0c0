//! DNS over HTTPS (RFC 8484), of either version of HTTP.

use crate::log::query_log::ThreadQueryLog;
use crate::metrics::{Counter, ThreadMetrics};
use crate::snapshot::Snapshot;
use sanderling_dns::{Answer, DnsTransport, ParsedQuery, RequestInfo, answer_with_options, smallest_ttl};
use sanderling_http::{Request, Response, Status, dns_query};
use std::net::SocketAddr;

/// A request for the path at which DNS queries are answered.
pub(crate) struct DnsRequest<'r> {
    pub(crate) request: &'r Request<'r>,
    /// The kept part of its body.
    pub(crate) content: &'r [u8],
    pub(crate) client: SocketAddr,
    pub(crate) now_unix_ms: u64,
    /// `None` if there is no query log.
    pub(crate) query_log: Option<&'r ThreadQueryLog>,
}

/// Answers a query from `snapshot` into `reply`. Returns the response, and the part of `reply` that is its content if
/// it has [`Body::DnsMessage`](sanderling_http::Body::DnsMessage).
#[cold]
#[inline(never)]
pub(crate) fn answer<'r, 'b>(
    query: &DnsRequest<'r>,
    snapshot: &Snapshot,
    metrics: &ThreadMetrics,
    reply: &'b mut [u8],
) -> (Response<'r>, &'b [u8]) {
    metrics.add(Counter::HttpRequests, 1);
    metrics.add(Counter::DnsHttpsQueries, 1);
    let &DnsRequest { request, content, client, now_unix_ms, query_log } = query;
    let mut room = Vec::new();
    let answered = dns_query(request, content, &mut room).and_then(|message| {
        let info = RequestInfo { client, transport: DnsTransport::Https, now_unix_s: now_unix_ms / 1000 };
        let query = ParsedQuery::parse(&snapshot.zones, message);
        if let Some(error) = query.signature_error(&snapshot.reply_options, info.now_unix_s) {
            metrics.add(Counter::of_tsig_error(error), 1);
        }
        match answer_with_options(&query, &info, &snapshot.reply_options, reply) {
            Answer::Reply(length_bytes) => {
                if let Some(statistics) = &metrics.statistics {
                    statistics.count_reply(info.transport, &query, &reply[..length_bytes], &snapshot.slots);
                }
                if let Some(log) = query_log {
                    log.log_reply(&info, &query, &reply[..length_bytes], now_unix_ms);
                }
                Ok(length_bytes)
            }
            // It is not a query.
            Answer::NoReply => {
                if let Some(log) = query_log {
                    log.log_query(&info, message, now_unix_ms);
                }
                Err(Status::BadRequest)
            }
        }
    });
    match answered {
        Ok(length_bytes) => {
            let reply = &reply[..length_bytes];
            (Response::dns_message(request, length_bytes, smallest_ttl(reply)), reply)
        }
        Err(status) => {
            metrics.add(Counter::DnsDropped, 1);
            (Response::dns_error(request, status), &[])
        }
    }
}
