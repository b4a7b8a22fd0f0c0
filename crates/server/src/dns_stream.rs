//! DNS over TCP (RFC 7766): queries with their lengths before them, answered in order.

use crate::context::{CloseMode, ConnectionInfo, Context, Input, Step};
use crate::metrics::Counter;
use sanderling_dns::{Answer, DnsTransport, RequestInfo};

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
        let info = RequestInfo { client: *connection.client, transport: DnsTransport::Tcp, now_unix_s };
        match sanderling_dns::answer(&context.snapshot.zones, &info, query, reply) {
            Answer::Reply(length_bytes) => {
                let output = &mut context.buffers.output;
                output.extend_from_slice(&(length_bytes as u16).to_be_bytes());
                output.extend_from_slice(&reply[..length_bytes]);
            }
            Answer::NoReply => context.metrics.add(Counter::DnsDropped, 1),
        }
        // While the server drains, the connection closes after the last query that the client has certainly sent.
        if context.is_draining() && input.is_empty() && !connection.may_have_sent_more {
            return Step::Last(CloseMode::Linger, None);
        }
        Step::Answered(None)
    }
}
