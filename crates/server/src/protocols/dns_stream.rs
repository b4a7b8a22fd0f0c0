//! DNS over TCP (RFC 7766): queries with their lengths before them, answered in order.

use crate::context::{CloseMode, ConnectionInfo, Context, Input, Step};
use crate::dns::transfers::{self, Begun, Channel, Transfer, TransferContext, Written};
use crate::dns::updates::{self, LateReply, Received, ReplyPlace, UpdateContext, UpdatePolicy};
use crate::metrics::Counter;
use crate::net::transport::Transport;
use crate::options::DnsOptions;
use sanderling_dns::notify::NotifyRequest;
use sanderling_dns::transfer::TransferRequest;
use sanderling_dns::{Answer, DnsTransport, ParsedQuery, RequestInfo, answer_parsed, answer_with_options};
use sanderling_tls::Alpn;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the length before each message (RFC 1035 §4.2.2).
const LENGTH_BYTES: usize = 2;
/// Queries of one connection that are answered in one iteration.
pub(crate) const QUERIES_PER_ITERATION_MAX: usize = 512;

/// The DNS side of a connection.
#[derive(Debug, Default)]
pub(crate) struct DnsStream {
    task: Option<Task>,
}

/// The pending work for a query. Between two other messages there is no state.
#[derive(Debug)]
enum Task {
    /// A zone transfer is being written.
    Transfer(Box<Transfer>),
    /// An update is being applied; or a reply was set, if it has been.
    Update(Arc<LateReply>),
}

impl DnsStream {
    /// Whether a query has begun that is not answered whole.
    pub(crate) fn is_busy(&self) -> bool {
        self.task.is_some()
    }

    /// Time for the client to take some bytes of an answer, or for an update to be applied.
    pub(crate) fn send_timeout(&self, options: &DnsOptions) -> Duration {
        match self.task {
            None => options.tcp_idle_timeout,
            Some(Task::Transfer(_)) => options.transfer_send_timeout,
            Some(Task::Update(_)) => options.update_timeout,
        }
    }

    /// Bytes that the transfer holds; they are none of the zone.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.task {
            Some(Task::Transfer(transfer)) => transfer.memory_bytes(),
            None | Some(Task::Update(_)) => 0,
        }
    }

    /// Answers the next query, or writes the next message of a transfer.
    pub(crate) fn step<'s>(
        &mut self,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        if self.task.is_some() {
            return self.continue_task(input, connection, context);
        }
        let Some((length, rest)) = input.rest().split_first_chunk::<LENGTH_BYTES>() else { return Step::Partial };
        let length = usize::from(u16::from_be_bytes(*length));
        if length == 0 {
            return Step::Invalid;
        }
        let Some(message) = rest.get(..length) else { return Step::Partial };
        input.consume(LENGTH_BYTES + length);
        context.metrics.add(Counter::DnsTcpQueries, 1);
        let reply = &mut context.buffers.scratch;
        let now_unix_s = context.clock.unix_s();
        let transport = if connection.transport.is_encrypted() { DnsTransport::Tls } else { DnsTransport::Tcp };
        let info = RequestInfo { client: *connection.client, transport, now_unix_s };
        let query = ParsedQuery::parse(&context.snapshot.zones, message);
        let reply_options = &context.snapshot.reply_options;
        let answer = if query.is_concerned_by(reply_options) {
            if let Some(request) = TransferRequest::new(&query) {
                return self.begin_transfer(&query, request, info, input, connection, context);
            }
            if let Some(policy) = updates::policy_for(context.snapshot.updates.as_ref(), message) {
                return self.begin_update(&query, policy, info, input, connection, context);
            }
            if let Some(policy) = &context.snapshot.notify
                && let Some(request) = NotifyRequest::new(&query)
            {
                let (zones, metrics) = (&context.snapshot.zones, context.metrics);
                let length_bytes = policy.answer(request, &info, zones, reply_options, metrics, reply);
                length_bytes.map_or(Answer::NoReply, Answer::Reply)
            } else if query.is_refused()
                && let Some(answer) = transfers::answer_restricted(
                    &query,
                    &info,
                    &context.snapshot.zones,
                    &context.snapshot.transfers,
                    reply_options,
                    context.metrics,
                    reply,
                )
            {
                answer
            } else {
                answer_with_options(&query, &info, reply_options, reply)
            }
        } else {
            answer_parsed(&query, &info, reply)
        };
        match answer {
            Answer::Reply(length_bytes) => {
                record(&query, info, length_bytes, context);
                put_message(context, length_bytes);
            }
            Answer::NoReply => record_unanswered(&query, info, context),
        }
        after_answer(input, connection, context)
    }

    #[cold]
    #[inline(never)]
    fn begin_transfer<'s>(
        &mut self,
        query: &ParsedQuery<'_, '_>,
        request: TransferRequest<'_, '_>,
        info: RequestInfo,
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
                log_query(query, info, context);
                self.task = Some(Task::Transfer(transfer));
                return self.continue_task(input, connection, context);
            }
            Begun::Reply(Some(length_bytes)) => {
                record(query, info, length_bytes, context);
                put_message(context, length_bytes);
            }
            Begun::Reply(None) => record_unanswered(query, info, context),
        }
        after_answer(input, connection, context)
    }

    #[cold]
    #[inline(never)]
    fn begin_update<'s>(
        &mut self,
        query: &ParsedQuery<'_, '_>,
        policy: &UpdatePolicy,
        info: RequestInfo,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let update_context = UpdateContext {
            zones: &context.snapshot.zones,
            options: &context.snapshot.reply_options,
            info,
            metrics: context.metrics,
        };
        let reply = Arc::<LateReply>::default();
        let place = || ReplyPlace::Stream { waiter: context.waiter, reply: Arc::clone(&reply) };
        match policy.receive(query.message(), update_context, place, &mut context.buffers.scratch) {
            Received::Queued => {
                log_query(query, info, context);
                self.task = Some(Task::Update(reply));
                return Step::WaitForEvent;
            }
            Received::Reply(Some(length_bytes)) => {
                record(query, info, length_bytes, context);
                put_message(context, length_bytes);
            }
            Received::Reply(None) => record_unanswered(query, info, context),
        }
        after_answer(input, connection, context)
    }

    /// Writes the next message of a transfer, or the reply to an update. The answers are sent, and the client waited
    /// for, as with any others.
    #[cold]
    #[inline(never)]
    fn continue_task<'s>(
        &mut self,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let now_unix_s = context.clock.unix_s();
        match &mut self.task {
            None => return Step::Partial,
            Some(Task::Update(reply)) => {
                // Without a reply in time the connection closes: the client does not know the outcome of the update.
                let Some(reply) = reply.get() else { return Step::Invalid };
                let output = &mut context.buffers.output;
                output.extend_from_slice(&(reply.len() as u16).to_be_bytes());
                output.extend_from_slice(reply);
            }
            Some(Task::Transfer(transfer)) => {
                match transfer.write(now_unix_s, &mut context.buffers.scratch, context.metrics) {
                    Written::Message(length_bytes) => {
                        put_message(context, length_bytes);
                        return Step::Answered(None);
                    }
                    Written::End => {}
                    // The client must not take it for a complete one.
                    Written::Failed => return Step::Invalid,
                }
            }
        }
        self.task = None;
        after_answer(input, connection, context)
    }
}

/// Counts and logs the reply of this length in the scratch buffer.
#[inline]
fn record(query: &ParsedQuery<'_, '_>, info: RequestInfo, length_bytes: usize, context: &Context<'_, '_>) {
    let reply = &context.buffers.scratch[..length_bytes];
    if let Some(statistics) = &context.metrics.statistics {
        statistics.count_reply(info.transport, query, reply, &context.snapshot.slots);
    }
    if let Some(log) = context.query_log {
        log.log_reply(&info, query, reply, context.clock.unix_ms());
    }
}

/// Counts and logs a query that gets no reply.
#[cold]
#[inline(never)]
fn record_unanswered(query: &ParsedQuery<'_, '_>, info: RequestInfo, context: &Context<'_, '_>) {
    context.metrics.add(Counter::DnsDropped, 1);
    log_query(query, info, context);
}

/// Logs a query that gets no reply, or not the next one.
fn log_query(query: &ParsedQuery<'_, '_>, info: RequestInfo, context: &Context<'_, '_>) {
    if let Some(log) = context.query_log {
        log.log_query(&info, query.message(), context.clock.unix_ms());
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
