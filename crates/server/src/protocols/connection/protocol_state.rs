//! The protocol of a connection with its state, and its interface to the connection.

use crate::context::{ConnectionInfo, Context, Input, Step};
use crate::net::call::CallHandle;
use crate::options::Options;
use crate::protocols::dns_stream::DnsStream;
use crate::protocols::http1::Http1;
use crate::protocols::http2::Http2;
use std::time::Duration;

/// The protocol of a connection with its state.
#[derive(Debug)]
pub(crate) enum ProtocolState<'s> {
    Http1(Http1),
    Other(OtherProtocol<'s>),
}

/// Separate, so that HTTP/1.1 is found by one comparison.
#[derive(Debug)]
pub(crate) enum OtherProtocol<'s> {
    Http2(Box<Http2<'s>>),
    Dns(DnsStream),
    /// Bytes of the client for this call, and back.
    Tunnel(CallHandle),
}

impl<'s> OtherProtocol<'s> {
    #[inline(never)]
    pub(super) fn requests_per_iteration_max(&self) -> usize {
        match self {
            OtherProtocol::Http2(_) => crate::protocols::http2::STEPS_PER_ITERATION_MAX,
            OtherProtocol::Dns(_) => crate::protocols::dns_stream::QUERIES_PER_ITERATION_MAX,
            OtherProtocol::Tunnel(_) => 1,
        }
    }

    #[inline(never)]
    pub(super) fn idle_timeout(&self, options: &Options) -> Duration {
        match self {
            OtherProtocol::Http2(_) | OtherProtocol::Tunnel(_) => options.http.idle_timeout,
            OtherProtocol::Dns(_) => options.dns.tcp_idle_timeout,
        }
    }

    #[inline(never)]
    pub(super) fn step(
        &mut self,
        input: &mut Input<'_>,
        info: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        match self {
            OtherProtocol::Dns(dns) => dns.step(input, info, context),
            OtherProtocol::Http2(_) | OtherProtocol::Tunnel(_) => unreachable!("they have no sequence of requests"),
        }
    }
}

impl<'s> ProtocolState<'s> {
    #[inline]
    pub(super) fn step(
        &mut self,
        input: &mut Input<'_>,
        info: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        match self {
            ProtocolState::Http1(http) => http.step(input, info, context),
            ProtocolState::Other(other) => other.step(input, info, context),
        }
    }

    /// Whether there is something to do without further input: part of a request has left the input already, or streams
    /// can continue.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        match self {
            ProtocolState::Http1(http) => http.has_partial_request(),
            ProtocolState::Other(OtherProtocol::Http2(http)) => http.has_work(),
            ProtocolState::Other(OtherProtocol::Dns(dns)) => dns.is_busy(),
            ProtocolState::Other(OtherProtocol::Tunnel(_)) => false,
        }
    }

    /// Whether the request of a connection without streams waits for a backend.
    pub(super) fn has_call(&self) -> bool {
        matches!(self, ProtocolState::Http1(http) if http.has_call())
    }

    /// Whether a backend gets the body of its request as it arrives.
    pub(super) fn passes_body_on(&self) -> bool {
        matches!(self, ProtocolState::Http1(http) if http.passes_body_on())
    }

    /// Bytes that the protocol holds: of requests that have left the input already, and of responses.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            ProtocolState::Http1(http) => http.held_bytes(),
            ProtocolState::Other(OtherProtocol::Http2(http)) => http.held_bytes(),
            ProtocolState::Other(OtherProtocol::Dns(dns)) => dns.held_bytes(),
            ProtocolState::Other(OtherProtocol::Tunnel(call)) => call.held_bytes(),
        }
    }

    /// The bytes of incomplete requests.
    pub(super) fn partial_bytes(&self) -> usize {
        match self {
            ProtocolState::Http1(http) => http.held_bytes(),
            ProtocolState::Other(OtherProtocol::Http2(http)) => http.partial_bytes(),
            ProtocolState::Other(OtherProtocol::Dns(_) | OtherProtocol::Tunnel(_)) => 0,
        }
    }

    /// Bytes of the partial request that have left the input already; `None` if its rate does not matter.
    pub(super) fn received_bytes(&self) -> Option<u64> {
        match self {
            ProtocolState::Http1(http) => Some(http.received_bytes()),
            ProtocolState::Other(OtherProtocol::Http2(http)) => http.received_bytes(),
            ProtocolState::Other(OtherProtocol::Dns(_) | OtherProtocol::Tunnel(_)) => None,
        }
    }

    /// The least rates, in bytes per second, at which a client must send a request, and receive a response.
    pub(super) fn rates_min(&self, options: &Options) -> (u64, u64) {
        match self {
            ProtocolState::Http1(_) | ProtocolState::Other(OtherProtocol::Http2(_)) => {
                (options.http.receive_rate_min, options.http.send_rate_min)
            }
            ProtocolState::Other(OtherProtocol::Dns(_) | OtherProtocol::Tunnel(_)) => (0, 0),
        }
    }

    /// Requests that are answered in one iteration.
    pub(super) fn requests_per_iteration_max(&self) -> usize {
        match self {
            ProtocolState::Http1(_) => crate::protocols::http1::REQUESTS_PER_ITERATION_MAX,
            ProtocolState::Other(other) => other.requests_per_iteration_max(),
        }
    }

    /// Answers after which the output is sent, however short it is. Not for HTTP/2.
    pub(super) fn unsent_answers_max(&self, options: &Options) -> usize {
        match self {
            ProtocolState::Http1(_) => usize::MAX,
            ProtocolState::Other(_) => options.dns.tcp_replies_per_send_max,
        }
    }

    /// Between two requests.
    pub(super) fn idle_timeout(&self, options: &Options) -> Duration {
        match self {
            ProtocolState::Http1(_) => options.http.idle_timeout,
            ProtocolState::Other(other) => other.idle_timeout(options),
        }
    }

    /// From the first bytes of a request to its last; `None` does not change the deadline. The first request of an HTTP
    /// connection has its deadline from the accept, and a DNS query that of the idle connection before it.
    pub(super) fn receive_timeout(
        &self,
        answered_count: u64,
        has_answered: bool,
        options: &Options,
    ) -> Option<Duration> {
        match self {
            ProtocolState::Http1(_) | ProtocolState::Other(OtherProtocol::Http2(_)) => {
                (answered_count != 0).then_some(options.http.request_timeout)
            }
            ProtocolState::Other(OtherProtocol::Dns(_)) => has_answered.then_some(options.dns.tcp_idle_timeout),
            ProtocolState::Other(OtherProtocol::Tunnel(_)) => None,
        }
    }

    /// While the client takes nothing of an answer.
    pub(super) fn send_timeout(&self, options: &Options) -> Duration {
        match self {
            ProtocolState::Http1(_) | ProtocolState::Other(OtherProtocol::Http2(_) | OtherProtocol::Tunnel(_)) => {
                options.http.send_timeout
            }
            ProtocolState::Other(OtherProtocol::Dns(dns)) => dns.send_timeout(&options.dns),
        }
    }

    /// Writes the response to a client whose deadline has passed; `false` if there is none.
    pub(super) fn write_timeout_response(
        &mut self,
        is_receiving: bool,
        is_sent: bool,
        unprocessed: &[u8],
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, '_>,
    ) -> bool {
        match self {
            ProtocolState::Http1(http) => http.write_timeout_response(is_receiving, unprocessed, connection, context),
            ProtocolState::Other(OtherProtocol::Http2(http)) => http.write_timeout_response(is_sent, context),
            ProtocolState::Other(OtherProtocol::Dns(_) | OtherProtocol::Tunnel(_)) => false,
        }
    }
}
