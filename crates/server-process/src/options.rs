//! The options of the server for the limits of the configuration and of the process.

use crate::open_directories::DescriptorLimit;
use sanderling_config::{Config, Limits};
use sanderling_server::{
    CompressionOptions, DnsOptions, HttpOptions, OpenFilesOptions, Options, PasswordOptions, StatisticsOptions,
};
use std::time::Duration;

/// The options for `limits`.
pub(crate) fn options_of(limits: &Limits) -> Options {
    let request = sanderling_http::RequestLimits {
        head_bytes_max: limits.http_head_bytes_max,
        field_count_max: limits.http_field_count_max,
        target_bytes_max: limits.http_target_bytes_max,
        body_bytes_max: limits.http_request_content_bytes_max,
    };
    Options {
        http: HttpOptions {
            request,
            http2: sanderling_server::Http2Limits {
                request,
                streams_max: limits.http2_streams_max,
                requests_max: limits.http_requests_per_connection_max,
                header_block_bytes_max: limits.http2_header_block_bytes_max,
                kept_request_bytes_max: limits.http2_kept_request_bytes_max,
                continuations_max: limits.http2_continuations_max,
                reset_budget: limits.http2_resets_max,
                control_budget: limits.http2_control_frames_max,
                overhead_bytes_max: limits.http2_overhead_bytes_max,
                keeps_cookies: false,
                accepts_websockets: false,
            },
            https_port: None,
            accepts_http2: false,
            connections_max: limits.http_connections_max,
            connections_per_client_max: limits.http_connections_per_client_max,
            requests_per_second_max: limits.http_requests_per_second_max,
            requests_at_once_max: limits.http_requests_at_once_max,
            requests_per_connection_max: limits.http_requests_per_connection_max,
            request_timeout: ms(limits.http_header_deadline_ms),
            idle_timeout: ms(limits.http_idle_timeout_ms),
            send_timeout: ms(limits.http_send_timeout_ms),
            send_rate_min: limits.http_send_rate_min,
            receive_rate_min: limits.http_receive_rate_min,
        },
        dns: DnsOptions {
            udp_reply_bytes_max: limits.dns_udp_answer_bytes_max,
            udp_errors_per_second_max: limits.dns_udp_errors_per_second_max,
            udp_replies_per_second_max: limits.dns_udp_replies_per_second_max,
            udp_slip: limits.dns_udp_slip,
            tcp_connections_max: limits.dns_tcp_connections_max,
            tcp_connections_per_client_max: limits.dns_tcp_connections_per_client_max,
            tcp_idle_timeout: ms(limits.dns_tcp_idle_timeout_ms),
            tcp_replies_per_send_max: limits.dns_tcp_queries_in_flight_max,
            transfer_send_timeout: ms(limits.dns_transfer_send_timeout_ms),
            // The control thread answers within the configured timeout, and may be late.
            update_timeout: 2 * ms(limits.dns_update_timeout_ms) + Duration::from_secs(5),
        },
        tls_handshakes_max: limits.tls_handshakes_max,
        tls_handshake_timeout: ms(limits.tls_handshake_timeout_ms),
        connection_buffers_bytes_max: limits.connection_buffers_bytes_max,
        connection_buffer_bytes_max: limits.connection_buffer_bytes_max,
        request_log_queue_bytes_max: limits.request_log_queue_bytes_max,
        passwords: PasswordOptions {
            threads_max: limits.password_threads_max,
            queued_max: limits.password_checks_max,
            queued_per_client_max: limits.password_checks_per_client_max,
            granted_for: ms(limits.password_granted_ms),
            denied_for: ms(limits.password_denied_ms),
        },
        open_files: open_files_options(limits),
        statistics: None,
        drain_grace: ms(limits.drain_grace_ms),
        hang_limit: ms(limits.hang_timeout_ms),
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// How files are found, kept and compressed.
pub(crate) fn open_files_options(limits: &Limits) -> OpenFilesOptions {
    OpenFilesOptions {
        files_max: limits.open_files_max,
        descriptors_max: limits.open_file_descriptors_max,
        content_bytes_max: limits.open_file_content_bytes_max,
        small_file_bytes_max: limits.small_file_bytes_max,
        compression: CompressionOptions {
            content_bytes_max: limits.compressed_content_bytes_max,
            file_bytes_max: limits.compressed_file_bytes_max,
            ..CompressionOptions::default()
        },
        listing_entries_max: limits.listing_entries_max,
        negative_entries_max: limits.missing_files_max,
        watched_directories_max: limits.watched_folders_max,
        valid_for: ms(limits.open_file_fresh_ms),
        watched_valid_for: ms(limits.watched_file_fresh_ms),
        idle_timeout: ms(limits.open_file_idle_timeout_ms),
        ..OpenFilesOptions::default()
    }
}

/// The detailed counters.
pub(crate) fn statistics_options(config: &Config) -> Option<StatisticsOptions> {
    let Limits { metrics_sites_max: sites_max, metrics_zones_max: zones_max, .. } = config.limits;
    config.metrics.as_ref().map(|_| StatisticsOptions { sites_max, zones_max })
}

/// The parts of `config` that a limit of `limit` open files does not allow; `None` if it allows all.
pub fn descriptor_problem(config: &Config, limit: u64) -> Option<String> {
    let limit = DescriptorLimit(usize::try_from(limit).unwrap_or(usize::MAX));
    fit_to_descriptor_limit(&mut options_of(&config.limits), limit, config.sites.len())
}

/// Lowers the numbers of connections and files to fit into the limit of descriptors together with the directories of
/// sites; a message if that was needed.
pub(crate) fn fit_to_descriptor_limit(
    options: &mut Options,
    limit: DescriptorLimit,
    directory_count: usize,
) -> Option<String> {
    let wanted = [options.http.connections_max, options.dns.tcp_connections_max, options.open_files.descriptors_max];
    let available = limit.available().saturating_sub(directory_count).max(wanted.len());
    let sum = wanted.iter().fold(0_usize, |sum, count| sum.saturating_add(*count));
    if sum <= available {
        return None;
    }
    // The limits are reduced in proportion: neither service takes the other's descriptors.
    let part = |count: usize| ((count as u128 * available as u128 / sum as u128) as usize).max(1);
    options.http.connections_max = part(options.http.connections_max);
    options.dns.tcp_connections_max = part(options.dns.tcp_connections_max);
    options.open_files.descriptors_max = part(options.open_files.descriptors_max);
    let beside = match directory_count {
        0 => String::new(),
        1 => "in addition to the directory of a site ".to_owned(),
        _ => format!("in addition to the directories of {directory_count} sites "),
    };
    let DescriptorLimit(limit) = limit;
    Some(format!(
        "the limit of {limit} file descriptors allows {beside}only {} HTTP connections, {} DNS connections and {} cached \
         file descriptors; raise it with LimitNOFILE= or `ulimit -n`",
        options.http.connections_max, options.dns.tcp_connections_max, options.open_files.descriptors_max
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_limits_are_those_of_the_server() {
        assert_eq!(options_of(&Limits::default()), Options::default());
    }

    #[test]
    fn connections_and_files_have_the_descriptors_that_sites_leave() {
        let fit = |limit: usize, directory_count: usize| {
            let mut options = Options::default();
            let message = fit_to_descriptor_limit(&mut options, DescriptorLimit(limit), directory_count);
            let sum =
                options.http.connections_max + options.dns.tcp_connections_max + options.open_files.descriptors_max;
            (sum, message.is_some())
        };
        assert_eq!(fit(usize::MAX, 10_000), (fit(usize::MAX, 0).0, false));
        for (limit, directory_count) in [(1_024, 0), (1_024, 672), (64, 0)] {
            let (sum, has_message) = fit(limit, directory_count);
            let available = DescriptorLimit(limit).available() - directory_count;
            assert!(has_message && (available - 3..=available).contains(&sum), "{limit} {directory_count} {sum}");
        }
    }

    #[test]
    fn limits_of_http_2_are_those_of_the_configuration() {
        let limits = Limits {
            http_head_bytes_max: 2_000,
            http_requests_per_connection_max: 1,
            http2_streams_max: 2,
            http2_header_block_bytes_max: 3,
            http2_kept_request_bytes_max: 4,
            http2_continuations_max: 5,
            http2_resets_max: 6,
            http2_control_frames_max: 7,
            http2_overhead_bytes_max: 8,
            ..Limits::default()
        };
        let expected = sanderling_server::Http2Limits {
            request: sanderling_http::RequestLimits { head_bytes_max: 2_000, ..Default::default() },
            requests_max: 1,
            streams_max: 2,
            header_block_bytes_max: 3,
            kept_request_bytes_max: 4,
            continuations_max: 5,
            reset_budget: 6,
            control_budget: 7,
            overhead_bytes_max: 8,
            keeps_cookies: false,
            accepts_websockets: false,
        };
        assert_eq!(options_of(&limits).http.http2, expected);
    }
}
