//! The counters of a server, kept by each thread separately and added up on request.

use crate::heartbeat::Heartbeat;
use crate::options::StatisticsOptions;
use crate::statistics::ThreadStatistics;
use sanderling_dns::TsigError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

macro_rules! counters {
    ($($variant:ident = $name:literal: $meaning:literal;)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $(#[doc = $meaning] $variant),* }

        impl Counter {
            /// All of them.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant),*];

            /// The name in `status --json`.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name),* }
            }
        }
    };
}

counters! {
    HttpConnections = "http_connections": "HTTP connections accepted.";
    HttpClosed = "http_closed": "HTTP connections closed.";
    HttpEvicted = "http_evicted": "Idle HTTP connections closed to make room for new ones.";
    HttpPartialEvicted = "http_partial_evicted": "HTTP connections with part of a request closed to make room for new \
                                                  ones.";
    HttpClientEvicted = "http_client_evicted": "Idle HTTP connections closed for a new one of the same client at its limit.";
    HttpDelayed = "http_delayed": "HTTP connections that waited because the limit was reached and none was idle.";
    HttpOverClientLimit = "http_over_client_limit": "HTTP connections closed because their client had too many, and none idle.";
    ProxyHeadersRefused = "proxy_headers_refused": "Connections of trusted proxies closed because of a missing or \
                                                    invalid PROXY header.";
    HttpOverRate = "http_over_rate": "HTTP requests beyond the rate limit of a client: answered with 429, or only \
                                      counted.";
    HttpRequests = "http_requests": "HTTP requests answered.";
    BackendRequests = "backend_requests": "HTTP requests passed on to a backend.";
    BackendErrors = "backend_errors": "HTTP requests to which a backend gave no response: answered with 502, 503 or 504.";
    HttpRefused = "http_refused": "Malformed HTTP requests, answered with an error and closed.";
    HttpTimeouts = "http_timeouts": "HTTP connections closed by a timeout.";
    HttpSlowRequests = "http_slow_requests": "Requests below http_receive_rate_min, answered with 408 and closed.";
    HttpSlowResponses = "http_slow_responses": "HTTP connections reset because a response was below http_send_rate_min.";
    HttpAborted = "http_aborted": "HTTP responses aborted because their file changed, or their backend failed.";
    BuffersScarce = "buffers_scarce": "Times a connection held bytes while the buffers exceeded their budget.";
    BuffersRefused = "buffers_refused": "Connections closed because their request needed too much memory at such a \
                                         time.";
    TlsHandshakes = "tls_handshakes": "TLS handshakes completed.";
    TlsResumed = "tls_resumed": "TLS handshakes that resumed an earlier session.";
    TlsVersion12 = "tls_version_1_2": "TLS handshakes with TLS 1.2; the others use TLS 1.3.";
    TlsFailed = "tls_failed": "TLS handshakes that failed; each is also counted by its cause.";
    TlsIncompatible = "tls_incompatible": "No version, cipher suite, key exchange or signature in common with the client.";
    TlsNoCommonProtocol = "tls_no_common_protocol": "No protocol (ALPN) in common with the client.";
    TlsUnknownName = "tls_unknown_name": "The client asked for a name without a certificate, or for none.";
    TlsInvalid = "tls_invalid": "The client violated the TLS protocol, or does not speak TLS.";
    TlsClientAlert = "tls_client_alert": "The client ended the handshake with an alert: it may not trust the \
                                          certificate.";
    TlsClientClosed = "tls_client_closed": "The client closed the connection.";
    TlsInternal = "tls_internal": "The server could not continue: the key cannot sign, or there are no random numbers.";
    TlsEvicted = "tls_evicted": "Unfinished TLS handshakes closed for a new one at tls_handshakes_max.";
    TlsTimeouts = "tls_timeouts": "TLS handshakes that took longer than tls_handshake_timeout_ms.";
    Http2Connections = "http2_connections": "HTTP connections on which the client chose HTTP/2.";
    Http2Requests = "http2_requests": "Requests over HTTP/2, which are also counted in http_requests and http_refused.";
    Http2Refused = "http2_refused": "HTTP/2 connections closed because of a client error or flood.";
    Http2Errors = "http2_errors": "HTTP/2 connections closed because of a protocol error; others are counted by their \
        limit, as are refused requests.";
    Http2OverStreams = "http2_over_streams": "HTTP/2 requests refused because of http2_streams_max.";
    Http2OverKeptRequestBytes = "http2_over_kept_request_bytes": "HTTP/2 requests refused because of http2_kept_request_bytes_max.";
    Http2OverHeaderBlockBytes = "http2_over_header_block_bytes": "HTTP/2 connections closed because of http2_header_block_bytes_max.";
    Http2OverContinuations = "http2_over_continuations": "HTTP/2 connections closed because of http2_continuations_max.";
    Http2OverResets = "http2_over_resets": "HTTP/2 connections closed because of http2_resets_max.";
    Http2OverControlFrames = "http2_over_control_frames": "HTTP/2 connections closed because of http2_control_frames_max.";
    Http2OverOverheadBytes = "http2_over_overhead_bytes": "HTTP/2 connections closed because of http2_overhead_bytes_max.";
    DnsStreams = "dns_streams": "DNS connections over TCP accepted.";
    DnsStreamsClosed = "dns_streams_closed": "DNS connections over TCP closed.";
    DnsStreamsEvicted = "dns_streams_evicted": "DNS connections over TCP closed to make room for new ones.";
    DnsStreamsClientEvicted = "dns_streams_client_evicted": "DNS connections closed for a new one of the same client.";
    DnsStreamsDelayed = "dns_streams_delayed": "DNS connections over TCP that waited for another one to close.";
    DnsStreamsOverClientLimit = "dns_streams_over_client_limit": "DNS connections closed because their client had too many.";
    DnsUdpQueries = "dns_udp_queries": "Datagrams received.";
    DnsTcpQueries = "dns_tcp_queries": "Queries received over TCP.";
    DnsHttpsQueries = "dns_https_queries": "Requests over HTTP at a path that answers DNS queries.";
    DnsDropped = "dns_dropped": "Messages without a reply: not a query, too long, from a port that gets none, or \
                                 beyond a limit.";
    DnsErrorsLimited = "dns_errors_limited": "Dropped error replies to a network that had too many.";
    DnsRepliesLimited = "dns_replies_limited": "Replies to a network that had too many: not sent, sent truncated, or only counted.";
    DnsRepliesSlipped = "dns_replies_slipped": "Replies beyond that limit that were sent truncated.";
    DnsTransfers = "dns_transfers": "Zone transfers begun.";
    DnsTransfersIncremental = "dns_transfers_incremental": "IXFR queries answered with only the changes.";
    DnsTransfersDone = "dns_transfers_done": "Zone transfers completed.";
    DnsTransfersUpToDate = "dns_transfers_up_to_date": "IXFR queries answered with the SOA: up to date, or over UDP.";
    DnsTransfersRefused = "dns_transfers_refused": "Zone transfers refused because no rule allows them.";
    DnsUpdates = "dns_updates": "Dynamic updates accepted, to be applied.";
    DnsUpdatesRefused = "dns_updates_refused": "Dynamic updates that are malformed, or that no key allows.";
    DnsUpdatesRepeated = "dns_updates_repeated": "Repeated dynamic updates, which are not applied again.";
    DnsUpdatesOverLimit = "dns_updates_over_limit": "Dynamic updates refused because of dns_updates_waiting_max.";
    DnsTransfersOverLimit = "dns_transfers_over_limit": "Zone transfers refused because of dns_transfers_max.";
    DnsTransfersAborted = "dns_transfers_aborted": "Zone transfers with a record that fits into no message.";
    TsigBadKey = "tsig_bad_key": "DNS messages signed with an unknown key.";
    TsigBadSig = "tsig_bad_sig": "DNS messages with a wrong or truncated signature.";
    TsigBadTime = "tsig_bad_time": "DNS messages with a signature whose time is wrong.";
    UdpReceiveErrors = "udp_receive_errors": "Failed calls to receive datagrams.";
    UdpRepliesLost = "udp_replies_lost": "UDP replies that the kernel refused.";
    AcceptErrors = "accept_errors": "Connections not accepted for lack of descriptors or memory.";
    CutOff = "cut_off": "Responses aborted when the drain timeout passed.";
    Panics = "panics": "Connections and queries ended by a bug in the server.";
}

pub(crate) const COUNTER_COUNT: usize = Counter::ALL.len();

impl Counter {
    /// The counter of messages whose signature has this error.
    pub(crate) fn of_tsig_error(error: TsigError) -> Counter {
        match error {
            TsigError::BadKey => Counter::TsigBadKey,
            TsigError::BadTime => Counter::TsigBadTime,
            TsigError::BadSig | TsigError::BadTrunc | TsigError::Malformed => Counter::TsigBadSig,
        }
    }
}

/// The counters of one thread.
#[derive(Debug)]
pub(crate) struct ThreadMetrics {
    /// The thread's name.
    pub(crate) thread: String,
    /// The indices of the socket sets that it serves.
    pub(crate) socket_sets: Vec<usize>,
    pub(crate) heartbeat: Heartbeat,
    /// The detailed counts, if the server has them.
    pub(crate) statistics: Option<Box<ThreadStatistics>>,
    counts: [AtomicU64; COUNTER_COUNT],
}

impl ThreadMetrics {
    pub(crate) fn new(thread: String, socket_sets: Vec<usize>, statistics: Option<StatisticsOptions>) -> ThreadMetrics {
        let counts = [const { AtomicU64::new(0) }; COUNTER_COUNT];
        let statistics = statistics.map(|options| Box::new(ThreadStatistics::new(options)));
        ThreadMetrics { thread, socket_sets, heartbeat: Heartbeat::default(), statistics, counts }
    }

    /// Adds to a counter. Only the thread that the counters belong to calls it.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        let number = &self.counts[counter as usize];
        // One writer: a load and a store lose nothing and need no locked instruction.
        number.store(number.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// All counts, in the order of [`Counter::ALL`].
    pub(crate) fn counts(&self) -> [u64; COUNTER_COUNT] {
        std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed))
    }
}

/// The counters of all threads.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    statistics: Option<StatisticsOptions>,
    threads: Mutex<Vec<Arc<ThreadMetrics>>>,
}

impl Metrics {
    pub(crate) fn new(statistics: Option<StatisticsOptions>) -> Metrics {
        Metrics { statistics, threads: Mutex::default() }
    }

    /// Counters for one more thread.
    pub(crate) fn register(&self, thread: String, socket_sets: Vec<usize>) -> Arc<ThreadMetrics> {
        let metrics = Arc::new(ThreadMetrics::new(thread, socket_sets, self.statistics));
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&metrics));
        metrics
    }

    /// The counters of each thread, in the order of registration.
    pub(crate) fn threads(&self) -> Vec<Arc<ThreadMetrics>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
