//! The limits and timeouts of a server, with their defaults.

use std::time::Duration;

const STOP_GRACE_MAX: Duration = Duration::from_millis(200);

/// All options of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// HTTP.
    pub http: HttpOptions,
    /// DNS.
    pub dns: DnsOptions,
    /// Handshakes of HTTPS, and of DNS over TLS, that a worker has begun and not completed.
    pub tls_handshakes_max: usize,
    /// From the accept of an encrypted connection to the end of its handshake.
    pub tls_handshake_timeout: Duration,
    /// Bytes of requests and answers that all connections hold; beyond it they get smaller pieces.
    pub connection_buffers_bytes_max: usize,
    /// Bytes of requests that are received for one connection, and of answers that are written, before they are
    /// processed or sent.
    pub connection_buffer_bytes_max: usize,
    /// Bytes of the access log that wait to be written, of each worker.
    pub request_log_queue_bytes_max: usize,
    /// The checks of passwords.
    pub passwords: PasswordOptions,
    /// The open-file cache.
    pub open_files: OpenFilesOptions,
    /// How long an idle connection stays open while the server drains because another process replaces it: its client
    /// may be about to send a request.
    pub drain_grace: Duration,
    /// Detailed counts; `None` for none.
    pub statistics: Option<StatisticsOptions>,
    /// How long one iteration of a thread may take before the thread is reported as hung.
    pub hang_limit: Duration,
}

impl Default for Options {
    /// The defaults of the configuration.
    fn default() -> Options {
        Options {
            http: HttpOptions::default(),
            dns: DnsOptions::default(),
            tls_handshakes_max: 2_000,
            tls_handshake_timeout: Duration::from_secs(10),
            connection_buffers_bytes_max: 64 * 1024 * 1024,
            connection_buffer_bytes_max: 64 * 1024,
            request_log_queue_bytes_max: 1024 * 1024,
            passwords: PasswordOptions::default(),
            open_files: OpenFilesOptions::default(),
            drain_grace: Duration::from_secs(2),
            statistics: None,
            hang_limit: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// How long an idle connection stays open, and new ones are accepted, when the server stops: enough for a request
    /// that is on its way.
    pub(crate) fn stop_grace(&self) -> Duration {
        self.drain_grace.min(STOP_GRACE_MAX)
    }
}

/// The items that are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatisticsOptions {
    /// Sites; further ones are counted together.
    pub sites_max: usize,
    /// Zones; further ones are counted together.
    pub zones_max: usize,
}

/// Options of HTTP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// Limits of a request.
    pub request: sanderling_http::RequestLimits,
    /// Limits of an HTTP/2 connection.
    pub http2: sanderling_http2::Limits,
    /// The port to which clients are redirected for HTTPS; `None` if there is no listener for it.
    pub https_port: Option<u16>,
    /// An unencrypted connection that begins with the preface of HTTP/2 speaks HTTP/2 (RFC 9113 §3.3).
    pub accepts_http2: bool,
    /// Open connections, in the whole process.
    pub connections_max: usize,
    /// Open connections of one client: an IPv4 address, or a /64 of IPv6.
    pub connections_per_client_max: usize,
    /// Requests of one client in a second; 0 for any number.
    pub requests_per_second_max: u32,
    /// The burst of requests of such a client after a pause.
    pub requests_at_once_max: u32,
    /// Requests answered on one connection.
    pub requests_per_connection_max: u64,
    /// From the first byte of a request, or from the accept, to the last byte of its body.
    pub request_timeout: Duration,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// While the client receives nothing of a response.
    pub send_timeout: Duration,
    /// Bytes per second of a blocked response that the client must receive, in each `send_timeout` after the first.
    pub send_rate_min: u64,
    /// Bytes per second of a request that the client must send, in each 20 seconds.
    pub receive_rate_min: u64,
}

/// Options of DNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// Bytes of a reply over UDP.
    pub udp_reply_bytes_max: u16,
    /// Error replies over UDP to one network in a second, of each thread.
    pub udp_errors_per_second_max: u32,
    /// Other replies over UDP of one class to one network in a second, of each thread; 0 for any number.
    pub udp_replies_per_second_max: u32,
    /// Of the replies beyond that limit, one in N is sent truncated; 0: none.
    pub udp_slip: u32,
    /// Open TCP connections, in the whole process.
    pub tcp_connections_max: usize,
    /// Open TCP connections of one client: an IPv4 address, or a /64 of IPv6.
    pub tcp_connections_per_client_max: usize,
    /// Between two queries of a TCP connection, and until a query has arrived whole.
    pub tcp_idle_timeout: Duration,
    /// Replies on one TCP connection after which they are sent, even if more queries have been received.
    pub tcp_replies_per_send_max: usize,
    /// While the client takes nothing of a zone transfer.
    pub transfer_send_timeout: Duration,
    /// Time until a connection that waits for the reply to an update closes. Updates are answered before.
    pub update_timeout: Duration,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions {
            request: sanderling_http::RequestLimits::default(),
            http2: sanderling_http2::Limits::default(),
            https_port: None,
            accepts_http2: false,
            connections_max: 10_000,
            connections_per_client_max: 1_000_000,
            requests_per_second_max: 0,
            requests_at_once_max: 100,
            requests_per_connection_max: 10_000,
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(30),
            send_rate_min: 240,
            receive_rate_min: 500,
        }
    }
}

impl Default for DnsOptions {
    fn default() -> DnsOptions {
        DnsOptions {
            udp_reply_bytes_max: 1_232,
            udp_errors_per_second_max: 200,
            udp_replies_per_second_max: 0,
            udp_slip: 2,
            tcp_connections_max: 1_024,
            tcp_connections_per_client_max: 1_000_000,
            tcp_idle_timeout: Duration::from_secs(5),
            tcp_replies_per_send_max: 64,
            transfer_send_timeout: Duration::from_secs(30),
            update_timeout: Duration::from_secs(15),
        }
    }
}

/// Options of the open-file cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFilesOptions {
    /// Files; at most as many as a table holds.
    pub files_max: usize,
    /// Descriptors of the files that are not in memory: one for each file, and one for each of its precompressed files.
    pub descriptors_max: usize,
    /// Bytes of content in memory.
    pub content_bytes_max: u64,
    /// Bytes of the largest file that is kept in memory, to be sent together with its head.
    pub small_file_bytes_max: u64,
    /// Files that are compressed on demand.
    pub compression: CompressionOptions,
    /// Listed entries of a directory.
    pub listing_entries_max: usize,
    /// Negative entries: paths without a file.
    pub negative_entries_max: usize,
    /// Directories that are watched (inotify).
    pub watched_directories_max: usize,
    /// How long an entry is valid before it is checked again, if its directory is not watched.
    pub valid_for: Duration,
    /// The same if its directory is watched: only changes that the kernel does not report are missed for so long.
    pub watched_valid_for: Duration,
    /// How long an unused entry is kept.
    pub idle_timeout: Duration,
    /// How long ago the last change of a file must be for `sendfile`, which sends pages without a copy: a process that
    /// writes to the file would change what is being sent.
    pub sendfile_after: Duration,
}

impl Default for OpenFilesOptions {
    fn default() -> OpenFilesOptions {
        OpenFilesOptions {
            files_max: 32_768,
            descriptors_max: 4_096,
            content_bytes_max: 64 * 1024 * 1024,
            small_file_bytes_max: 32 * 1024,
            compression: CompressionOptions::default(),
            listing_entries_max: 5_000,
            negative_entries_max: 1_024,
            watched_directories_max: 8_192,
            valid_for: Duration::from_secs(1),
            watched_valid_for: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            sendfile_after: Duration::from_secs(10),
        }
    }
}

/// Options of the checks of passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordOptions {
    /// Threads that make them, at most.
    pub threads_max: usize,
    /// Checks that wait or are being made.
    pub queued_max: usize,
    /// The same for one IPv4 address or IPv6 /64.
    pub queued_per_client_max: usize,
    /// How long a correct password is remembered.
    pub granted_for: Duration,
    /// How long a wrong password is remembered.
    pub denied_for: Duration,
}

impl Default for PasswordOptions {
    fn default() -> PasswordOptions {
        PasswordOptions {
            threads_max: 4,
            queued_max: 128,
            queued_per_client_max: 4,
            granted_for: Duration::from_secs(60),
            denied_for: Duration::from_secs(10),
        }
    }
}

/// Options of files that are compressed on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// Bytes of all compressed content; 0 to compress nothing.
    pub content_bytes_max: u64,
    /// Bytes of the smallest file that is compressed.
    pub file_bytes_min: u64,
    /// Bytes of the largest one.
    pub file_bytes_max: u64,
}

impl Default for CompressionOptions {
    fn default() -> CompressionOptions {
        CompressionOptions {
            content_bytes_max: 64 * 1024 * 1024,
            file_bytes_min: 1024,
            file_bytes_max: 4 * 1024 * 1024,
        }
    }
}
