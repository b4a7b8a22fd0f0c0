//! DNS over TCP (RFC 7766): queries with their lengths before them, answered in order.

use crate::context::{CloseMode, ConnectionInfo, Context, Input, Step};
use crate::metrics::Counter;
use crate::transfers::{self, Begun, Channel, Transfer, TransferContext, Written};
use crate::transport::Transport;
use sanderling_dns::notify::NotifyRequest;
use sanderling_dns::transfer::TransferRequest;
use sanderling_dns::{Answer, DnsTransport, ParsedQuery, RequestInfo, answer_parsed, answer_with_options};
use sanderling_tls::Alpn;

/// Bytes of the length before each message (RFC 1035 §4.2.2).
const LENGTH_BYTES: usize = 2;
/// Queries of one connection that are answered in one iteration.
pub(crate) const QUERIES_PER_ITERATION_MAX: usize = 512;

/// The DNS side of a connection.
#[derive(Debug, Default)]
pub(crate) struct DnsStream {
    /// The zone transfer that is being written. Between two other messages there is no state.
    transfer: Option<Box<Transfer>>,
}

impl DnsStream {
    /// Whether a zone transfer is being written.
    pub(crate) fn is_transferring(&self) -> bool {
        self.transfer.is_some()
    }

    /// Bytes that the transfer holds; they are none of the zone.
    pub(crate) fn held_bytes(&self) -> usize {
        self.transfer.as_ref().map_or(0, |transfer| transfer.memory_bytes())
    }

    /// Answers the next query, or writes the next message of a transfer.
    pub(crate) fn step<'s>(
        &mut self,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        if self.transfer.is_some() {
            return self.continue_transfer(input, connection, context);
        }
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
            if let Some(request) = TransferRequest::new(&query) {
                return self.begin_transfer(request, input, connection, context);
            }
            if let Some(policy) = &context.snapshot.notify
                && let Some(request) = NotifyRequest::new(&query)
            {
                let length_bytes = policy.answer(request, connection.client.ip(), reply_options, now_unix_s, reply);
                length_bytes.map_or(Answer::NoReply, Answer::Reply)
            } else {
                answer_with_options(&query, &info, reply_options, reply)
            }
        } else {
            answer_parsed(&query, &info, reply)
        };
        match answer {
            Answer::Reply(length_bytes) => {
                if let Some(statistics) = &context.metrics.statistics {
                    statistics.count_reply(transport, &query, &reply[..length_bytes], &context.snapshot.slots);
                }
                if let Some(log) = context.query_log {
                    log.log_reply(&info, &query, &reply[..length_bytes], context.clock.unix_ms());
                }
                let output = &mut context.buffers.output;
                output.extend_from_slice(&(length_bytes as u16).to_be_bytes());
                output.extend_from_slice(&reply[..length_bytes]);
            }
            Answer::NoReply => context.metrics.add(Counter::DnsDropped, 1),
        }
        after_answer(input, connection, context)
    }

    #[cold]
    #[inline(never)]
    fn begin_transfer<'s>(
        &mut self,
        request: TransferRequest<'_, '_>,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let transfer_context = TransferContext {
            zones: &context.snapshot.zones,
            policy: &context.snapshot.transfers,
            options: &context.snapshot.reply_options,
            client: connection.client.ip(),
            channel: channel(connection.transport),
            now_unix_s: context.clock.unix_s(),
            metrics: context.metrics,
        };
        match transfers::begin(request, transfer_context, &mut context.buffers.scratch) {
            Begun::Transfer(transfer) => {
                self.transfer = Some(transfer);
                return self.continue_transfer(input, connection, context);
            }
            Begun::Reply(Some(length_bytes)) => put_message(context, length_bytes),
            Begun::Reply(None) => context.metrics.add(Counter::DnsDropped, 1),
        }
        after_answer(input, connection, context)
    }

    /// Writes the next message. The answers are sent, and the client waited for, as with any others.
    #[cold]
    #[inline(never)]
    fn continue_transfer<'s>(
        &mut self,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let now_unix_s = context.clock.unix_s();
        let Some(transfer) = &mut self.transfer else { return Step::Partial };
        match transfer.write(now_unix_s, &mut context.buffers.scratch, context.metrics) {
            Written::Message(length_bytes) => {
                put_message(context, length_bytes);
                Step::Answered(None)
            }
            Written::End => {
                self.transfer = None;
                after_answer(input, connection, context)
            }
            // The client must not take it for a complete one.
            Written::Failed => Step::Invalid,
        }
    }
}

/// Appends the message of this length in the scratch buffer to the output.
fn put_message(context: &mut Context<'_, '_>, length_bytes: usize) {
    let output = &mut context.buffers.output;
    output.extend_from_slice(&(length_bytes as u16).to_be_bytes());
    output.extend_from_slice(&context.buffers.scratch[..length_bytes]);
}

/// While the server drains, the connection closes after the last query that the client has certainly sent.
fn after_answer<'s>(input: &Input<'_>, connection: &ConnectionInfo<'_>, context: &Context<'_, '_>) -> Step<'s> {
    if context.is_draining() && input.is_empty() && !connection.transport.is_readable() {
        return Step::Last(CloseMode::Linger, None);
    }
    Step::Answered(None)
}

/// RFC 9103 §7.1 and §8.1: transfers over TLS have version 1.3, and the protocol `dot`.
fn channel(transport: &Transport) -> Channel {
    if !transport.is_encrypted() || (transport.alpn() == Some(Alpn::Dot) && !transport.is_tls_1_2()) {
        Channel::Stream
    } else {
        Channel::OtherEncryption
    }
}
