//! DNS over TCP (RFC 7766): queries with their lengths before them, answered in order.

use crate::context::{CloseMode, ConnectionInfo, Context, Input, Step};
use crate::metrics::Counter;
use sanderling_dns::{Answer, DnsTransport, ParsedQuery, RequestInfo, answer_parsed, answer_with_options};

/// Bytes of the length before each message (RFC 1035 §4.2.2).
const LENGTH_BYTES: usize = 2;
/// Queries of one connection that are answered in one iteration.
pub(crate) const QUERIES_PER_ITERATION_MAX: usize = 512;

/// The DNS side of a connection. It has no state between two messages.
#[derive(Debug)]
pub(crate) struct DnsStream;

impl DnsStream {
    /// Answers the next query.
    pub(crate) fn step<'s>(
        &mut self,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let Some((length, rest)) = input.rest().split_first_chunk::<LENGTH_BYTES>() else { return Step::Partial };
        let length = usize::from(u16::from_be_bytes(*length));
        if length == 0 {
            return Step::Invalid;
        }
        let Some(query) = rest.get(..length) else { return Step::Partial };
        input.consume(LENGTH_BYTES + length);
        context.metrics.add(Counter::DnsTcpQueries, 1);
        let reply = &mut context.buffers.scratch;
        let now_unix_s = context.clock.unix_s();
        let transport = if connection.transport.is_encrypted() { DnsTransport::Tls } else { DnsTransport::Tcp };
        let info = RequestInfo { client: *connection.client, transport, now_unix_s };
        let query = ParsedQuery::parse(&context.snapshot.zones, query);
        let reply_options = &context.snapshot.reply_options;
        let answer = if query.is_concerned_by(reply_options) {
            answer_with_options(&query, &info, reply_options, reply)
        } else {
            answer_parsed(&query, &info, reply)
        };
        match answer {
            Answer::Reply(length_bytes) => {
                if let Some(statistics) = &context.metrics.statistics {
                    statistics.count_reply(transport, &query, &reply[..length_bytes], &context.snapshot.slots);
                }
                let output = &mut context.buffers.output;
                output.extend_from_slice(&(length_bytes as u16).to_be_bytes());
                output.extend_from_slice(&reply[..length_bytes]);
            }
            Answer::NoReply => context.metrics.add(Counter::DnsDropped, 1),
        }
        // While the server drains, the connection closes after the last query that the client has certainly sent.
        if context.is_draining() && input.is_empty() && !connection.transport.is_readable() {
            return Step::Last(CloseMode::Linger, None);
        }
        Step::Answered(None)
    }
}
