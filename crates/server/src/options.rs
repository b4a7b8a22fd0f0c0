//! The bounds that a server works within: each has a name, and a default that suits most.

use crate::open_files::OpenFilesOptions;
use std::time::Duration;

/// All bounds of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Those of HTTP.
    pub http: HttpOptions,
    /// Those of DNS.
    pub dns: DnsOptions,
    /// Those of the open-file cache.
    pub open_files: OpenFilesOptions,
}

/// Bounds of HTTP connections.
#[derive(Clone, Copy, Debug)]
pub struct HttpOptions {
    /// How much of a request is read.
    pub request: sanderling_http::Limits,
    /// Connections open at once, in the whole process.
    pub connections_max: usize,
    /// Requests answered on one connection.
    pub requests_per_connection_max: u64,
    /// From the first octet of a request, or from the start of the connection, to the end of the head.
    pub header_deadline: Duration,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// Without any octet of a response being taken.
    pub send_timeout: Duration,
}

/// Bounds of DNS.
#[derive(Clone, Copy, Debug)]
pub struct DnsOptions {
    /// Octets of a reply over UDP.
    pub udp_reply_bytes_max: u16,
    /// Streams open at once, in the whole process.
    pub tcp_connections_max: usize,
    /// Between two queries of a stream, and for one query to come whole.
    pub tcp_idle_timeout: Duration,
    /// Queries of one stream that are answered before their replies are sent.
    pub tcp_queries_in_flight_max: usize,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions {
            request: sanderling_http::Limits::default(),
            connections_max: 10_000,
            requests_per_connection_max: 10_000,
            header_deadline: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for DnsOptions {
    fn default() -> DnsOptions {
        DnsOptions {
            udp_reply_bytes_max: 1_232,
            tcp_connections_max: 1_024,
            tcp_idle_timeout: Duration::from_secs(5),
            tcp_queries_in_flight_max: 64,
        }
    }
}
