//! The bounds that a server works within: each has a name, and a default that suits most.

use std::time::Duration;

const LAST_GRACE_MAX: Duration = Duration::from_millis(200);

/// All bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Those of HTTP.
    pub http: HttpOptions,
    /// Those of DNS.
    pub dns: DnsOptions,
    /// Those of the open-file cache.
    pub open_files: OpenFilesOptions,
    /// How long a connection that nothing is owed to lives on when the server drains for another one: whoever has not heard
    /// of it may be about to ask.
    pub drain_grace: Duration,
    /// How long one turn of a thread may take before the thread is said to hang.
    pub hang_limit: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            http: HttpOptions::default(),
            dns: DnsOptions::default(),
            open_files: OpenFilesOptions::default(),
            drain_grace: Duration::from_secs(2),
            hang_limit: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// The grace of an idle connection where nobody serves on, and how long others are let in beside it: enough for a
    /// request that is on its way, and no reason to wait for.
    pub(crate) fn last_grace(&self) -> Duration {
        self.drain_grace.min(LAST_GRACE_MAX)
    }
}

/// Bounds of HTTP connections.
#[derive(Clone, Copy, Debug)]
pub struct HttpOptions {
    /// How much of a request is read.
    pub request: sanderling_http::RequestLimits,
    /// Connections open at once, in the whole process.
    pub connections_max: usize,
    /// Requests answered on one connection.
    pub requests_per_connection_max: u64,
    /// From the first octet of a request, or from when the connection was accepted, to the end of the head.
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
            request: sanderling_http::RequestLimits::default(),
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

/// Bounds of the open-file cache.
#[derive(Clone, Copy, Debug)]
pub struct OpenFilesOptions {
    /// Files in the cache, in the whole process; at most as many as a table holds.
    pub files_max: usize,
    /// Descriptors of those that are not in memory: one for each, and one more for each coding that it is there in as
    /// well.
    pub descriptors_max: usize,
    /// Octets of content in memory, in the whole process.
    pub content_bytes_max: u64,
    /// Octets of the largest file that is kept in memory, to be sent together with its head.
    pub small_file_bytes_max: u64,
    /// Paths that lead nowhere, kept apart.
    pub missing_max: usize,
    /// Folders that are watched.
    pub folders_watched_max: usize,
    /// How long an entry is used before the file system is asked again, when nobody tells of changes.
    pub fresh_for: Duration,
    /// The same when somebody does: only what he cannot see is missed for so long.
    pub watched_fresh_for: Duration,
    /// How long an entry is kept that nobody uses.
    pub idle_timeout: Duration,
    /// How long a file must have been left alone before its pages are passed on without a copy: what is passed on is the
    /// file itself, and who writes it then writes into what is being sent.
    pub settled_after: Duration,
    /// Threads that wait for the file system when a worker must not.
    pub opener_count: usize,
}

impl Default for OpenFilesOptions {
    fn default() -> OpenFilesOptions {
        OpenFilesOptions {
            files_max: 32_768,
            descriptors_max: 4_096,
            content_bytes_max: 64 * 1024 * 1024,
            small_file_bytes_max: 32 * 1024,
            missing_max: 1_024,
            folders_watched_max: 8_192,
            fresh_for: Duration::from_secs(1),
            watched_fresh_for: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            settled_after: Duration::from_secs(10),
            opener_count: 2,
        }
    }
}
