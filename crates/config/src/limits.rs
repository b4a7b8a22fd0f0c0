//! The configuration's limits: one table of keys, defaults and ranges for the reader, the help and the manual.

use crate::units::Quantity;
use std::sync::LazyLock;

/// The value of a limit that the configuration sets to `"unlimited"`.
pub const UNLIMITED: u64 = u64::MAX;

/// A process that is given a part of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    Agent,
    Keeper,
}

/// One row of the table.
pub(super) struct Limit {
    /// The key in `[limits]`.
    pub(super) key: &'static str,
    pub(super) default: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    /// Whether it may be [`UNLIMITED`].
    pub(super) may_be_unlimited: bool,
    /// A sentence with the limited quantity, and the effect at the limit.
    description: &'static str,
    /// The processes that apply it, other than the server process, which is started with every limit.
    pub(super) applied_by: &'static [Process],
    set: fn(&mut Limits, u64),
    get: fn(&Limits) -> u64,
}

impl Limit {
    /// Sets the field of `limits` to `value`; the caller has checked the range.
    pub(super) fn set(&self, limits: &mut Limits, value: u64) {
        (self.set)(limits, value);
    }

    /// The quantity of the limit, if its key ends with a unit.
    pub(super) fn quantity(&self) -> Option<Quantity> {
        if self.key.ends_with("_ms") {
            return Some(Quantity::Duration);
        }
        self.key.contains("_bytes").then_some(Quantity::Size)
    }

    /// The key for a value with a unit, such as `drain_timeout` for `drain_timeout_ms`.
    pub(super) fn key_without_unit(&self) -> Option<String> {
        self.quantity().map(|quantity| match quantity {
            Quantity::Duration => self.key.replace("_ms", ""),
            Quantity::Size => self.key.replace("_bytes", ""),
        })
    }

    /// The key that the manual has: without the unit.
    pub(super) fn name(&self) -> String {
        self.key_without_unit().unwrap_or_else(|| self.key.to_owned())
    }

    /// `value` in the form of a configuration file.
    pub(super) fn format(&self, value: u64) -> String {
        self.quantity().map_or_else(|| value.to_string(), |quantity| format!("\"{}\"", quantity.format(value)))
    }

    /// The range, for a message.
    pub(super) fn range(&self) -> String {
        format!("{} to {}", self.format(self.min), self.format(self.max))
    }

    /// The default as a line of a configuration file: `drain_timeout = "30s"`.
    fn assignment(&self) -> String {
        format!("{} = {}", self.name(), self.format(self.default))
    }
}

/// All keys in `[limits]`.
pub(super) fn keys() -> Vec<&'static str> {
    static WITHOUT_UNIT: LazyLock<Vec<String>> =
        LazyLock::new(|| LIMITS.iter().filter_map(Limit::key_without_unit).collect());
    LIMITS.iter().map(|limit| limit.key).chain(WITHOUT_UNIT.iter().map(String::as_str)).collect()
}

/// The limit with this key, and whether its value has a unit.
pub(super) fn find(key: &str) -> Option<(&'static Limit, bool)> {
    let with_unit = |limit: &&Limit| limit.key_without_unit().is_some_and(|without| without == key);
    let plain = LIMITS.iter().find(|limit| limit.key == key).map(|limit| (limit, false));
    plain.or_else(|| LIMITS.iter().find(with_unit).map(|limit| (limit, true)))
}

/// Makes the table and the struct from the same lines.
macro_rules! limits {
    ($($key:ident: $type:ty = $default:literal in $min:literal ..= $max:literal $(or $unlimited:ident)?
        $(for $($process:ident)+)?, $description:literal;)*) => {
        /// The value of each limit. The unit is part of the name; docs/configuration.md has the ranges.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits {
            $(#[doc = $description] pub $key: $type,)*
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($key: $default,)* }
            }
        }

        /// All limits, in the order of the manual.
        #[allow(clippy::cast_lossless, reason = "some of the types are u64 already")]
        pub(super) const LIMITS: &[Limit] = &[
            $(Limit {
                key: stringify!($key),
                default: $default,
                min: $min,
                max: $max,
                may_be_unlimited: !concat!($(stringify!($unlimited))?).is_empty(),
                description: $description,
                // Each range fits the type of its field: a test of the configuration file sets both ends.
                applied_by: &[$($(Process::$process),+)?],
                set: |limits, value| limits.$key = value as $type,
                get: |limits| limits.$key as u64,
            },)*
        ];
    };
}

limits! {
    http_connections_max: usize = 10_000 in 1..=1_000_000,
        "Maximum open HTTP connections; at the limit, a new one replaces another: see below.";
    http_connections_per_client_max: usize = 1_000_000 in 1..=1_000_000,
        "Maximum open HTTP connections per IPv4 address or IPv6 /64; see below for the effect.";
    http_requests_per_connection_max: u64 = 10_000 in 1..=1_000_000_000,
        "Maximum requests per connection; the server closes the connection after the last one.";
    http_requests_per_second_max: u32 = 0 in 0..=1_000_000,
        "Maximum requests per second per IPv4 address or IPv6 /64; excess requests get 429. 0: no limit.";
    http_requests_at_once_max: u32 = 100 in 1..=1_000_000,
        "Maximum burst of requests from such a client after a pause, if the rate is limited.";
    http_head_bytes_max: usize = 16_384 in 1_024..=1_048_576,
        "Maximum size of a request line with its header fields; larger requests get status 431.";
    http_field_count_max: usize = 100 in 8..=1_000,
        "Maximum number of header fields per request; requests with more get status 431.";
    http_target_bytes_max: usize = 8_192 in 256..=524_288,
        "Maximum size of a request target; requests with a longer one get status 414.";
    http_request_content_bytes_max: u64 = 65_536 in 0..=1_073_741_824,
        "Maximum size of a request body; larger ones get status 413. Only DNS over HTTPS uses bodies.";
    http_header_deadline_ms: u64 = 10_000 in 100..=600_000,
        "Maximum time to receive a request with its body; slower ones get 408 and are disconnected.";
    http_idle_timeout_ms: u64 = 60_000 in 100..=3_600_000,
        "Maximum idle time between two requests; the connection is then closed.";
    http_send_timeout_ms: u64 = 30_000 in 100..=3_600_000,
        "Time after which the connection of a client that reads nothing of a response is closed.";
    http_send_rate_min: u64 = 240 in 0..=1_000_000_000_000,
        "Minimum rate at which a client reads a response, in bytes per second. 0: no limit. See below.";
    http_receive_rate_min: u64 = 500 in 0..=1_000_000_000_000,
        "Minimum rate at which a client sends a request, in bytes per second. 0: no limit. See below.";
    http2_streams_max: u32 = 100 in 1..=10_000,
        "Maximum concurrent requests per HTTP/2 connection; further ones are refused, and can be retried.";
    http2_header_block_bytes_max: usize = 32_768 in 1_024..=1_048_576,
        "Maximum compressed header size of an HTTP/2 request; above it, the connection is closed.";
    http2_kept_request_bytes_max: usize = 65_536 in 1_024..=16_777_216,
        "Maximum size of an HTTP/2 connection's requests that wait for a disk or query; more are refused.";
    http2_continuations_max: u8 = 8 in 0..=255,
        "Maximum CONTINUATION frames per HTTP/2 request; above it, the connection is closed.";
    http2_resets_max: u32 = 200 in 1..=1_000_000,
        "Maximum HTTP/2 resets beyond one per response or 32 KiB; above it, the connection is closed.";
    http2_control_frames_max: u32 = 1_000 in 100..=1_000_000,
        "HTTP/2 control frames, beyond 4 per response and 2 per DATA frame, that close a connection.";
    http2_overhead_bytes_max: u64 = 1_048_576 in 65_536..=1_099_511_627_776,
        "Maximum HTTP/2 overhead bytes beyond 8 times the payload; above it, the connection is closed.";
    tls_handshakes_max: usize = 2_000 in 1..=1_000_000,
        "Maximum unfinished TLS handshakes per worker; at the limit, a new one replaces the oldest.";
    tls_handshake_timeout_ms: u64 = 10_000 in 100..=600_000 for Agent,
        "Maximum duration of a TLS handshake; the connection is then closed.";
    connection_buffers_bytes_max: usize = 67_108_864 in 0..=1_099_511_627_776,
        "Maximum size of the buffers of all connections; above it, each connection gets buffers of 2 KiB.";
    connection_buffer_bytes_max: usize = 65_536 in 4_096..=1_048_576,
        "Size of a connection's buffer for received requests, and for responses before they are sent.";
    open_files_max: usize = 32_768 in 1..=262_144,
        "Maximum entries in the open-file cache; at the limit, the least recently used is evicted.";
    open_file_descriptors_max: usize = 4_096 in 1..=262_144,
        "Maximum file descriptors in the open-file cache; at the limit, some are closed.";
    open_file_content_bytes_max: u64 = 67_108_864 in 0..=1_099_511_627_776,
        "Maximum size of small files in memory; at the limit, the least recently used is evicted.";
    small_file_bytes_max: u64 = 32_768 in 0..=1_048_576,
        "Maximum size of a file whose content is kept in memory; for larger ones, the descriptor is kept.";
    compressed_content_bytes_max: u64 = 67_108_864 in 0..=1_099_511_627_776,
        "Maximum compressed content in memory; at the limit, the least recently used is evicted. 0: none.";
    compressed_file_bytes_max: u64 = 4_194_304 in 0..=67_108_864,
        "Maximum size of a file that is compressed; larger ones are sent uncompressed.";
    listing_entries_max: usize = 5_000 in 1..=100_000,
        "Maximum entries in a directory listing; longer listings are truncated, with a note at the end.";
    missing_files_max: usize = 1_024 in 1..=262_144,
        "Maximum negative entries in the open-file cache; at the limit, some are evicted.";
    site_rules_max: usize = 10_000 in 0..=1_000_000,
        "Maximum redirects of a site from each source; header rules have the same limit.";
    site_patterns_max: usize = 1_000 in 0..=100_000,
        "Maximum pattern rules (`*`, `:name`) of a site from each source; they are matched one by one.";
    rules_file_bytes_max: u64 = 1_048_576 in 0..=67_108_864,
        "Maximum size of a `_redirects` or `_headers` file; a larger one is ignored.";
    watched_folders_max: usize = 8_192 in 0..=1_000_000,
        "Maximum directories watched with inotify; files in others are checked after `open_file_fresh`.";
    open_file_fresh_ms: u64 = 1_000 in 0..=60_000,
        "Time until a file in an unwatched directory, or a negative entry, is checked again.";
    watched_file_fresh_ms: u64 = 5_000 in 0..=600_000,
        "Time until a watched file is checked again: inotify misses other hard links and mmap.";
    open_file_idle_timeout_ms: u64 = 60_000 in 0..=3_600_000,
        "Time until an unused entry of the open-file cache is closed.";
    dns_udp_answer_bytes_max: u16 = 1_232 in 512..=4_096,
        "Maximum size of a reply over UDP, even if the client accepts more; larger replies are truncated.";
    dns_udp_errors_per_second_max: u32 = 200 in 0..=1_000_000,
        "Maximum error replies per second and thread to one IPv4 /24 or IPv6 /56; others are dropped.";
    dns_udp_replies_per_second_max: u32 = 0 in 0..=1_000_000,
        "Maximum other replies per second to one network, counted by kind. 0: no limit. See below.";
    dns_udp_slip: u32 = 2 in 0..=1_000,
        "One in N of the replies above that limit is sent truncated. 0: none.";
    dns_tcp_connections_max: usize = 1_024 in 1..=1_000_000,
        "Maximum open DNS connections over TCP; at the limit, the one idle longest is closed.";
    dns_tcp_connections_per_client_max: usize = 1_000_000 in 1..=1_000_000,
        "Maximum open DNS connections per IPv4 address or IPv6 /64; see below for the effect.";
    dns_tcp_idle_timeout_ms: u64 = 5_000 in 100..=600_000,
        "Maximum idle time between two queries; the TCP connection is then closed.";
    dns_tcp_queries_in_flight_max: usize = 64 in 1..=4_096,
        "Maximum queries of a TCP connection that are answered before the replies are sent.";
    dns_transfers_max: usize = 16 in 0..=10_000,
        "Maximum concurrent zone transfers to clients; further ones get SERVFAIL and are retried later.";
    dns_transfer_send_timeout_ms: u64 = 30_000 in 100..=3_600_000,
        "Time after which the connection of a client that reads nothing of a zone transfer is closed.";
    zone_transfers_in_max: usize = 8 in 1..=1_000 for Agent,
        "Maximum concurrent zone transfers from primaries; further ones wait.";
    zone_signings_max: usize = 4 in 1..=64 for Agent,
        "Maximum signed zones that are read or signed at the same time; further ones wait.";
    catalog_members_max: usize = 100_000 in 1..=1_000_000 for Agent,
        "Maximum zones per catalog; a larger catalog is not used, and its previous zones are kept.";
    zone_transfer_in_timeout_ms: u64 = 600_000 in 1_000..=86_400_000 for Agent,
        "Maximum duration of a transfer from a primary; it is then aborted, and retried later.";
    zone_transfer_in_idle_timeout_ms: u64 = 10_000 in 100..=3_600_000 for Agent,
        "Maximum wait for the next message of such a transfer; it is then aborted, and retried later.";
    zone_transfer_in_empty_messages_max: u32 = 100 in 0..=1_000_000 for Agent,
        "Maximum messages without records in such a transfer; above it, the transfer is aborted.";
    zone_transfer_in_changes_bytes_max: u64 = 8_388_608 in 65_536..=67_108_864 for Agent,
        "Maximum size of the changes in an IXFR from a primary; above it, the whole zone is transferred.";
    transferred_zone_bytes_max: u64 = 1_073_741_824 in 1_024..=1_099_511_627_776 for Agent,
        "Maximum size of a zone from a primary; larger ones, or ones above `zone_file_max`, are refused.";
    authority_timeout_ms: u64 = 30_000 in 1_000..=600_000 for Agent,
        "Maximum wait for a certificate authority's response; the request is then retried later.";
    renewal_interval_ms: u64 = 3_600_000 in 1_000..=86_400_000 for Agent,
        "Minimum time from a new certificate to its renewal, whatever its authority suggests.";
    name_servers_timeout_ms: u64 = 300_000 in 1_000..=86_400_000 for Agent,
        "Maximum wait until all name servers answer with a challenge; the order is then retried later.";
    on_renew_interval_ms: u64 = 60_000 in 1_000..=86_400_000,
        "Minimum time between two runs of a domain's `on_renew` command.";
    on_renew_timeout_ms: u64 = 60_000 in 1_000..=3_600_000,
        "Maximum run time of a domain's `on_renew` command; the command is then killed.";
    dns_cname_chain_max: usize = 16 in 1..=64,
        "Maximum CNAME and DNAME records followed for one answer; the answer ends there.";
    zone_file_bytes_max: u64 = 1_073_741_824 in 1_024..=1_099_511_627_776 for Agent,
        "Maximum size of a zone file with the files that it includes; a larger one is refused.";
    zone_include_depth_max: usize = 8 in 0..=64 for Agent,
        "Maximum depth of $INCLUDE; 0 forbids it.";
    zone_records_per_rrset_max: usize = 1_000 in 1..=4_000 for Agent,
        "Maximum records of one name and type; a zone with more is refused.";
    zone_journal_bytes_max: usize = 1_048_576 in 0..=67_108_864 for Agent,
        "Maximum size of a zone's changes kept for IXFR; older secondaries get the whole zone.";
    zone_journals_bytes_max: u64 = 1_073_741_824 in 0..=1_099_511_627_776 for Agent,
        "Maximum size of all zone journals in the state folder; further ones are not stored.";
    zone_updates_bytes_max: usize = 4_194_304 in 1_024..=16_777_216 for Agent,
        "Maximum size of a zone's dynamic updates; further updates get SERVFAIL.";
    dns_update_signatures_max: usize = 65_536 in 1_000..=1_000_000,
        "Maximum update signatures kept against replay; above it, the first to expire are forgotten.";
    dns_updates_waiting_max: usize = 256 in 1..=65_536,
        "Maximum dynamic updates that wait to be applied; further ones get SERVFAIL.";
    dns_update_timeout_ms: u64 = 5_000 in 100..=60_000,
        "Maximum time to apply and store a dynamic update; slower updates get SERVFAIL.";
    derived_record_ttl_s: u32 = 300 in 1..=86_400 for Agent,
        "TTL of records that `derive` adds to a zone, in seconds.";
    alias_ttl_s_min: u32 = 60 in 1..=86_400 for Agent,
        "Minimum TTL of ALIAS addresses, and minimum time between two queries for a target, in seconds.";
    alias_ttl_s_max: u32 = 86_400 in 1..=604_800 for Agent,
        "Maximum TTL of ALIAS addresses, in seconds.";
    alias_kept_ms: u64 = 259_200_000 in 0..=2_592_000_000 for Agent,
        "Time for which ALIAS addresses are kept while no resolver answers.";
    alias_targets_max: usize = 1_000 in 1..=100_000 for Agent,
        "Maximum ALIAS targets in all zones; further targets are not resolved.";
    zone_guarded_records_min: u64 = 20 in 0..=1_000_000_000,
        "Number of records above which a zone is protected against losing too many in one reload.";
    zone_lost_records_percent_max: u64 = 50 in 0..=100,
        "Maximum percentage of its records that a zone can lose in a reload; above it, it is refused.";
    kept_zones_bytes_max: u64 = 268_435_456 in 0..=1_099_511_627_776 for Agent,
        "Maximum size of last good versions kept for a new server process; further zones are not kept.";
    listen_backlog_max: u16 = 4_096 in 1..=65_535,
        "Maximum listen queue of a socket; the kernel also limits it to `net.core.somaxconn`.";
    dns_udp_waiting_bytes_max: usize = 1_048_576 in 4_096..=134_217_728,
        "Receive buffer (SO_RCVBUF) of a UDP socket; the kernel also limits it to `net.core.rmem_max`.";
    drain_timeout_ms: u64 = 30_000 in 0..=604_800_000 or unlimited,
        "Maximum time for unfinished requests when a server process stops; they are then aborted.";
    drain_grace_ms: u64 = 2_000 in 0..=600_000,
        "Time until idle connections are closed when a server process is replaced; 200 ms for a stop.";
    start_timeout_ms: u64 = 30_000 in 100..=3_600_000,
        "Maximum duration of a reload before a process is started; of its startup before it is killed.";
    hang_timeout_ms: u64 = 5_000 in 1_000..=600_000,
        "Maximum duration of one event loop iteration; the server process is then restarted.";
    agent_hang_timeout_ms: u64 = 600_000 in 1_000..=86_400_000,
        "Maximum duration of one agent step, such as signing a whole zone; the agent is then restarted.";
    request_log_queue_bytes_max: usize = 1_048_576 in 65_536 ..= 1_073_741_824,
        "Maximum size of a thread's waiting request log lines; further lines are dropped and counted.";
    metrics_sites_max: usize = 100 in 0..=10_000,
        "Maximum sites with their own metrics; further sites are counted together.";
    metrics_zones_max: usize = 100 in 0..=10_000,
        "Maximum zones with their own metrics; further zones are counted together.";
    password_threads_max: usize = 4 in 1..=256,
        "Maximum threads that check passwords; there is at most one per processor.";
    password_checks_max: usize = 128 in 1..=65_536,
        "Maximum password checks waiting or running; above it, the one with the lowest priority gets 503.";
    password_checks_per_client_max: usize = 4 in 1..=65_536,
        "Maximum password checks per IPv4 address or IPv6 /64; further ones get status 503.";
    password_granted_ms: u64 = 60_000 in 1_000..=86_400_000,
        "Time for which a correct password is remembered before it is checked again.";
    password_denied_ms: u64 = 10_000 in 1_000..=3_600_000,
        "Time for which a wrong password is remembered.";
    check_files_max: usize = 100_000 in 0..=100_000_000,
        "Maximum files of a site that `check` examines; further files are skipped with a note.";
    check_read_bytes_max: u64 = 1_073_741_824 in 0..=1_099_511_627_776,
        "Maximum bytes of a site's files that `check` reads; further files are skipped with a note.";
    log_queue_bytes_max: usize = 262_144 in 4_096..=1_073_741_824 for Agent Keeper,
        "Maximum size of the messages that wait until the log is read; further ones are dropped.";
}

impl Limits {
    /// The limits that `process` applies; the others have their defaults.
    pub(super) fn of(&self, process: Process) -> Limits {
        let mut limits = Limits::default();
        let applied = LIMITS.iter().filter(|limit| limit.applied_by.contains(&process));
        applied.for_each(|limit| limit.set(&mut limits, (limit.get)(self)));
        limits
    }

    /// The keys, without units, whose values differ from those of `other`.
    pub(super) fn changed_keys(&self, other: &Limits) -> Vec<String> {
        LIMITS.iter().filter(|limit| (limit.get)(self) != (limit.get)(other)).map(Limit::name).collect()
    }
}

/// The table for `--help`: each default as a line of a configuration file, below its description.
pub fn help_text() -> String {
    LIMITS.iter().map(|limit| format!("  # {}\n  {}\n", limit.description, limit.assignment())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    const BEGIN: &str = "<!-- Table of limits, generated from crates/config/src/limits.rs. -->\n";
    const END: &str = "<!-- End of the table. -->\n";

    fn markdown() -> String {
        let mut text = String::from("| key | default | min | max | limit and effect |\n|---|--:|--:|--:|---|\n");
        for limit in LIMITS {
            let unlimited = if limit.may_be_unlimited { " or `\"unlimited\"`" } else { "" };
            let key = limit.name();
            let [default, min, max] = [limit.default, limit.min, limit.max].map(|value| match limit.quantity() {
                Some(_) => format!("`{}`", limit.format(value)),
                None => value.to_string(),
            });
            let description = limit.description;
            text.push_str(&format!("| `{key}` | {default} | {min} | {max}{unlimited} | {description} |\n"));
        }
        text
    }

    #[test]
    fn manual_has_the_table_of_limits() {
        sanderling_testkit::check_manual_table(MANUAL, BEGIN, END, &format!("\n{}\n", markdown()));
    }

    #[test]
    fn keys_without_a_unit_are_of_one_limit_each() {
        for limit in LIMITS {
            let found = |key: &str| find(key).map(|(found, has_unit)| (found.key, has_unit));
            assert_eq!(found(limit.key), Some((limit.key, false)));
            if let Some(key) = limit.key_without_unit() {
                assert_eq!(found(&key), Some((limit.key, true)));
            }
        }
    }

    #[test]
    fn descriptions_are_sentences_on_one_line() {
        for limit in LIMITS {
            assert!(limit.description.ends_with('.') && !limit.description.contains('|'), "{}", limit.key);
            // The help has it as a comment, which must not wrap.
            assert!(limit.description.len() <= 96, "{}", limit.key);
        }
    }
}
