//! The server's metrics: the data of `status`, and detailed counts, in the Prometheus format.

mod backend_servers;
mod listener;
mod text;
mod families;

pub(crate) use listener::{Content, MetricsListener, Page};
pub(crate) use text::{MetricsWriter, TextFormat};

use crate::certificate_state::CertificateState;
use crate::load_status::{LoadStatus, ZoneState};
use crate::service_state::{Condition, ServiceState, counts};
use crate::tsig_key_state::TsigKeyState;
use sanderling_config::LogKind;
use sanderling_ipc::signing::Refusal;
use sanderling_ipc::{KeeperSupervision, Supervision};
use sanderling_os::counters::Syscall;
use sanderling_server::statistics::{
    CONNECTION_STATES, DNS_TRANSPORTS, DURATION_BOUNDS_MS, HTTP_VERSIONS, LOOKUP_RESULTS, PROTOCOLS, QUERY_TYPES,
    RCODES, SIZE_BOUNDS_BYTES, STATUS_CLASSES, Series,
};
use sanderling_server::{CacheStats, Counter, LogStatus, Statistics, Status};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use text::Seconds;

/// The names of [`Supervision::processes`].
const PROCESS_STATES: [&str; 3] = ["starting", "serving", "draining"];
/// The names of [`Supervision::reloads`].
const RELOAD_RESULTS: [&str; 3] = ["success", "partial", "failure"];

/// The inputs of metrics.
pub(crate) struct Metrics<'m> {
    pub(crate) status: Status,
    /// The counters of each [`LogKind`]; `None` without that log.
    pub(crate) logs: [Option<LogStatus>; LogKind::ALL.len()],
    pub(crate) load_status: &'m LoadStatus,
    pub(crate) certificates: &'m [CertificateState],
    pub(crate) tsig_keys: &'m [TsigKeyState],
    pub(crate) service_state: &'m ServiceState<'m>,
    pub(crate) supervision: Supervision,
    pub(crate) started_at: SystemTime,
    pub(crate) worker_count: usize,
    /// Zones that are listed.
    pub(crate) zones_max: usize,
}

/// The family of a counter, and the values of its labels.
enum Place {
    Sample(&'static str, &'static [&'static str]),
    /// The counter is written with others, or is part of another.
    Elsewhere,
}

/// A limit that was reached, and its effect.
const fn limit(labels: &'static [&'static str; 2]) -> Place {
    Place::Sample("sanderling_limit_reached", labels)
}

/// The place where each counter is written. Counters of one family have other labels.
fn place(counter: Counter) -> Place {
    match counter {
        Counter::HttpConnections => Place::Sample("sanderling_connections_accepted", &["http"]),
        Counter::DnsStreams => Place::Sample("sanderling_connections_accepted", &["dns"]),
        Counter::HttpClosed => Place::Sample("sanderling_connections_closed", &["http"]),
        Counter::DnsStreamsClosed => Place::Sample("sanderling_connections_closed", &["dns"]),
        Counter::AcceptErrors => Place::Sample("sanderling_accept_errors", &[]),
        Counter::HttpRequests => Place::Sample("sanderling_http_requests", &[]),
        Counter::BackendRequests => Place::Sample("sanderling_backend_requests", &["passed"]),
        Counter::BackendErrors => Place::Sample("sanderling_backend_requests", &["failed"]),
        Counter::HttpRefused => Place::Sample("sanderling_http_requests_malformed", &[]),
        Counter::HttpTimeouts => Place::Sample("sanderling_http_timeouts", &[]),
        Counter::ProxyHeadersRefused => Place::Sample("sanderling_proxy_headers_refused", &[]),
        Counter::HttpAborted => Place::Sample("sanderling_http_responses_aborted", &["file_changed"]),
        // These counters are written with earlier processes' values, by version, or by cause.
        Counter::CutOff | Counter::TlsHandshakes | Counter::TlsVersion12 | Counter::TlsFailed => Place::Elsewhere,
        Counter::TlsResumed => Place::Sample("sanderling_tls_handshakes_resumed", &[]),
        Counter::TlsIncompatible => Place::Sample("sanderling_tls_handshakes_failed", &["incompatible"]),
        Counter::TlsNoCommonProtocol => Place::Sample("sanderling_tls_handshakes_failed", &["no_common_protocol"]),
        Counter::TlsUnknownName => Place::Sample("sanderling_tls_handshakes_failed", &["unknown_name"]),
        Counter::TlsInvalid => Place::Sample("sanderling_tls_handshakes_failed", &["invalid"]),
        Counter::TlsClientAlert => Place::Sample("sanderling_tls_handshakes_failed", &["client_alert"]),
        Counter::TlsClientClosed => Place::Sample("sanderling_tls_handshakes_failed", &["client_closed"]),
        Counter::TlsInternal => Place::Sample("sanderling_tls_handshakes_failed", &["internal"]),
        Counter::TlsTimeouts => Place::Sample("sanderling_tls_handshakes_failed", &["timeout"]),
        Counter::TlsEvicted => Place::Sample("sanderling_tls_handshakes_failed", &["tls_handshakes_max"]),
        Counter::Http2Connections => Place::Sample("sanderling_http2_connections", &[]),
        Counter::Http2Requests => Place::Sample("sanderling_http2_requests", &[]),
        Counter::Http2Refused => Place::Sample("sanderling_http2_connections_refused", &[]),
        Counter::Http2Errors => Place::Sample("sanderling_http2_protocol_errors", &[]),
        Counter::DnsUdpQueries => Place::Sample("sanderling_dns_messages", &["udp"]),
        Counter::DnsTcpQueries => Place::Sample("sanderling_dns_messages", &["tcp"]),
        Counter::DnsHttpsQueries => Place::Sample("sanderling_dns_messages", &["doh"]),
        Counter::DnsDropped => Place::Sample("sanderling_dns_messages_dropped", &[]),
        Counter::DnsTransfers => Place::Sample("sanderling_dns_transfers", &["begun"]),
        Counter::DnsTransfersDone => Place::Sample("sanderling_dns_transfers", &["done"]),
        Counter::DnsTransfersIncremental => Place::Sample("sanderling_dns_transfers", &["incremental"]),
        Counter::DnsTransfersUpToDate => Place::Sample("sanderling_dns_transfers", &["up_to_date"]),
        Counter::DnsTransfersRefused => Place::Sample("sanderling_dns_transfers", &["refused"]),
        Counter::DnsTransfersAborted => Place::Sample("sanderling_dns_transfers", &["aborted"]),
        Counter::TsigBadKey => Place::Sample("sanderling_dns_tsig_errors", &["bad_key"]),
        Counter::TsigBadSig => Place::Sample("sanderling_dns_tsig_errors", &["bad_signature"]),
        Counter::TsigBadTime => Place::Sample("sanderling_dns_tsig_errors", &["bad_time"]),
        Counter::DnsUpdates => Place::Sample("sanderling_dns_updates", &["accepted"]),
        Counter::DnsUpdatesRefused => Place::Sample("sanderling_dns_updates", &["refused"]),
        Counter::DnsUpdatesRepeated => Place::Sample("sanderling_dns_updates", &["repeated"]),
        Counter::DnsUpdatesOverLimit => limit(&["dns_updates_waiting_max", "refused"]),
        Counter::DnsTransfersOverLimit => limit(&["dns_transfers_max", "refused"]),
        Counter::DnsRepliesSlipped => Place::Sample("sanderling_dns_replies_slipped", &[]),
        Counter::UdpReceiveErrors => Place::Sample("sanderling_udp_receive_errors", &[]),
        Counter::UdpRepliesLost => Place::Sample("sanderling_udp_replies_lost", &[]),
        Counter::Panics => Place::Sample("sanderling_panics", &[]),
        Counter::HttpEvicted => limit(&["http_connections_max", "idle_closed"]),
        Counter::HttpPartialEvicted => limit(&["http_connections_max", "closed"]),
        Counter::HttpDelayed => limit(&["http_connections_max", "delayed"]),
        Counter::HttpClientEvicted => limit(&["http_connections_per_client_max", "idle_closed"]),
        Counter::HttpOverClientLimit => limit(&["http_connections_per_client_max", "refused"]),
        Counter::HttpOverRate => limit(&["http_requests_per_second_max", "limited"]),
        Counter::HttpSlowRequests => limit(&["http_receive_rate_min", "refused"]),
        Counter::HttpSlowResponses => limit(&["http_send_rate_min", "closed"]),
        Counter::BuffersScarce => limit(&["connection_buffers_bytes_max", "delayed"]),
        Counter::BuffersRefused => limit(&["connection_buffers_bytes_max", "closed"]),
        Counter::Http2OverStreams => limit(&["http2_streams_max", "refused"]),
        Counter::Http2OverKeptRequestBytes => limit(&["http2_kept_request_bytes_max", "refused"]),
        Counter::Http2OverHeaderBlockBytes => limit(&["http2_header_block_bytes_max", "closed"]),
        Counter::Http2OverContinuations => limit(&["http2_continuations_max", "closed"]),
        Counter::Http2OverResets => limit(&["http2_resets_max", "closed"]),
        Counter::Http2OverControlFrames => limit(&["http2_control_frames_max", "closed"]),
        Counter::Http2OverOverheadBytes => limit(&["http2_overhead_bytes_max", "closed"]),
        Counter::DnsStreamsEvicted => limit(&["dns_tcp_connections_max", "idle_closed"]),
        Counter::DnsStreamsDelayed => limit(&["dns_tcp_connections_max", "delayed"]),
        Counter::DnsStreamsClientEvicted => limit(&["dns_tcp_connections_per_client_max", "idle_closed"]),
        Counter::DnsStreamsOverClientLimit => limit(&["dns_tcp_connections_per_client_max", "refused"]),
        Counter::DnsErrorsLimited => limit(&["dns_udp_errors_per_second_max", "dropped"]),
        Counter::DnsRepliesLimited => limit(&["dns_udp_replies_per_second_max", "limited"]),
    }
}

impl Metrics<'_> {
    /// The text of all metrics.
    pub(crate) fn to_text(&self, format: TextFormat) -> String {
        let mut out = MetricsWriter::new(format);
        self.put_processes(&mut out);
        self.put_counters(&mut out);
        self.put_file_cache(&mut out);
        put_content(self.load_status, self.certificates, self.service_state, self.zones_max, &mut out);
        let keys = self.tsig_keys.iter().map(|key| self.service_state.tsig_key(key));
        put_conditions(&mut out, "sanderling_tsig_keys", keys);
        backend_servers::put_backend_servers(self.service_state, &mut out);
        if let Some(statistics) = &self.status.statistics {
            put_connections(statistics, &mut out);
            put_http(statistics, &mut out);
            put_dns(statistics, &mut out);
        }
        out.finish()
    }

    fn put_processes(&self, out: &mut MetricsWriter) {
        let Supervision { started_at_unix_s, loaded_at_unix_s, processes, restarts, reloads, .. } = &self.supervision;
        out.family("sanderling_build").sample(&[env!("CARGO_PKG_VERSION")], 1);
        out.family("process_start_time_seconds").sample(&[], unix_s(self.started_at));
        out.family("sanderling_workers").sample(&[], self.worker_count);
        if *started_at_unix_s != 0 {
            out.family("sanderling_supervisor_start_time_seconds").sample(&[], started_at_unix_s);
            out.family("sanderling_configuration_timestamp_seconds").sample(&[], loaded_at_unix_s);
            out.family("sanderling_restarts").sample(&[], restarts);
            put_each(out, "sanderling_processes", &PROCESS_STATES, processes);
            put_each(out, "sanderling_reloads", &RELOAD_RESULTS, reloads);
            let KeeperSupervision { process, counts } = &self.supervision.keeper;
            out.family("sanderling_agent_restarts").sample(&[], self.supervision.agent.restarts);
            out.family("sanderling_keeper_restarts").sample(&[], process.restarts);
            out.family("sanderling_keeper_signatures").sample(&[], counts.signatures);
            out.family("sanderling_keeper_zone_signatures").sample(&[], counts.zone_signatures);
            put_each(out, "sanderling_keeper_refused", &Refusal::ALL.map(Refusal::name), &counts.refused);
        }
        let mut samples = out.family("sanderling_process_running");
        for (process, is_running) in self.service_state.processes() {
            samples.sample(&[process], u64::from(is_running));
        }
        let mut calls: BTreeMap<&str, u64> = Syscall::ALL.iter().map(|call| (call.name(), 0)).collect();
        for (call, count) in self.status.threads.iter().flat_map(|thread| thread.calls()) {
            *calls.entry(call.name()).or_default() += count;
        }
        let mut samples = out.family("sanderling_system_calls");
        for (call, count) in calls.iter().filter(|(_, count)| **count > 0) {
            samples.sample(&[call], count);
        }
    }

    fn put_counters(&self, out: &mut MetricsWriter) {
        let mut families: BTreeMap<&str, Vec<(&[&str], u64)>> = BTreeMap::new();
        for &counter in Counter::ALL {
            if let Place::Sample(name, labels) = place(counter) {
                families.entry(name).or_default().push((labels, self.status.sum(counter)));
            }
        }
        let cut_off = self.supervision.cut_off.saturating_add(self.status.sum(Counter::CutOff));
        families.entry("sanderling_http_responses_aborted").or_default().push((&["drain_timeout"], cut_off));
        families
            .entry("sanderling_limit_reached")
            .or_default()
            .push((&["tls_handshakes_max", "closed"], self.status.sum(Counter::TlsEvicted)));
        let (handshakes, of_1_2) = (self.status.sum(Counter::TlsHandshakes), self.status.sum(Counter::TlsVersion12));
        // The one is counted before the other.
        let of_1_3 = handshakes.saturating_sub(of_1_2);
        families.insert("sanderling_tls_handshakes", vec![(&["1.2"], of_1_2), (&["1.3"], of_1_3)]);
        const LOG_LINES: [[[&str; 2]; 2]; LogKind::ALL.len()] = [
            [["access", "written"], ["access", "dropped"]],
            [["queries", "written"], ["queries", "dropped"]],
            [["dnstap", "written"], ["dnstap", "dropped"]],
        ];
        for (labels, status) in LOG_LINES.iter().zip(&self.logs) {
            if let Some(status) = status {
                let samples = families.entry("sanderling_log_lines").or_default();
                samples.extend([(&labels[0][..], status.written_count), (&labels[1][..], status.dropped_count)]);
            }
        }
        for (name, counts) in families {
            let mut samples = out.family(name);
            for (labels, count) in counts {
                samples.sample(labels, count);
            }
        }
        out.family("sanderling_connection_buffers_bytes").sample(&[], self.status.buffers_bytes);
    }

    fn put_file_cache(&self, out: &mut MetricsWriter) {
        let CacheStats {
            file_count,
            negative_count,
            descriptor_count,
            content_bytes,
            watched_directory_count,
            evicted_count,
        } = self.status.cache;
        put_each(
            out,
            "sanderling_file_cache_entries",
            &["file", "none"],
            &[file_count, negative_count].map(|it| it as u64),
        );
        out.family("sanderling_file_cache_descriptors").sample(&[], descriptor_count);
        out.family("sanderling_file_cache_content_bytes").sample(&[], content_bytes);
        out.family("sanderling_file_cache_watched_directories").sample(&[], watched_directory_count);
        out.family("sanderling_file_cache_evictions").sample(&[], evicted_count);
    }
}

/// Sites, zones and certificates.
pub(crate) fn put_content(
    load_status: &LoadStatus,
    certificates: &[CertificateState],
    service_state: &ServiceState<'_>,
    zones_max: usize,
    out: &mut MetricsWriter,
) {
    put_conditions(out, "sanderling_sites", load_status.sites.iter().map(|site| service_state.site(site)));
    put_conditions(out, "sanderling_zones", load_status.zones.iter().map(|zone| service_state.zone(zone)));
    put_conditions(out, "sanderling_certificates", certificates.iter().map(|it| service_state.certificate(it)));
    // Problems first, so that thousands of zones do not hide them.
    let zones = load_status.zones.iter().map(|zone| (&**zone, service_state.zone(zone).is_good()));
    let (good, bad): (Vec<_>, Vec<_>) = zones.partition(|(_, is_good)| *is_good);
    let listed: Vec<(&ZoneState, bool)> = bad.into_iter().chain(good).take(zones_max).collect();
    let mut put_zones = |name: &str, value_of: &dyn Fn(&ZoneState, bool) -> Option<u64>| {
        let mut samples = out.family(name);
        for (zone, is_good) in &listed {
            if let Some(value) = value_of(zone, *is_good) {
                samples.sample(&[&zone.name], value);
            }
        }
    };
    put_zones("sanderling_zone_serial", &|zone, _| zone.serial.map(u64::from));
    put_zones("sanderling_zone_records", &|zone, _| zone.serial.map(|_| zone.record_count));
    put_zones("sanderling_zone_loaded_timestamp_seconds", &|zone, _| zone.loaded_at.map(unix_s));
    let expiration = |zone: &ZoneState, _| zone.signatures_expire_at.map(unix_s);
    put_zones("sanderling_zone_signatures_expire_timestamp_seconds", &expiration);
    put_zones("sanderling_zone_problem", &|_, is_good| Some(u64::from(!is_good)));
    let mut put_certificates = |name: &str, value_of: &dyn Fn(&CertificateState) -> Option<u64>| {
        let mut samples = out.family(name);
        for certificate in certificates {
            let domain = certificate.domain();
            if let Some(value) = value_of(certificate) {
                samples.sample(&[domain, &certificate.file.to_string_lossy()], value);
            }
        }
    };
    put_certificates("sanderling_certificate_not_after_timestamp_seconds", &|certificate| {
        certificate.in_service.as_ref().map(|in_service| in_service.not_after_unix_s)
    });
    put_certificates("sanderling_certificate_problem", &|certificate| {
        Some(u64::from(!service_state.certificate(certificate).is_good()))
    });
    let mut samples = out.family("sanderling_certificate_name_missing");
    let with_any = certificates.iter().filter(|certificate| certificate.in_service.is_some());
    for (certificate, name) in with_any.flat_map(|one| one.missing_names.iter().map(move |name| (one, name))) {
        samples.sample(&[certificate.domain(), &certificate.file.to_string_lossy(), name], 1);
    }
}

/// Writes the number of items in each condition.
fn put_conditions<C: Condition>(out: &mut MetricsWriter, name: &str, conditions: impl Iterator<Item = C>) {
    let mut samples = out.family(name);
    for (condition, count) in counts(conditions) {
        samples.sample(&[condition.name()], count);
    }
}

/// A sample for each value of the only label.
fn put_each(out: &mut MetricsWriter, name: &str, labels: &[&str], counts: &[u64]) {
    let mut samples = out.family(name);
    for (label, count) in labels.iter().zip(counts) {
        samples.sample(&[label], count);
    }
}

fn put_connections(statistics: &Statistics, out: &mut MetricsWriter) {
    let mut samples = out.family("sanderling_connections");
    for (index, protocol) in PROTOCOLS.iter().enumerate() {
        for is_encrypted in [false, true] {
            samples.sample(&[protocol, tls_name(is_encrypted)], statistics.get(Series::Open(index, is_encrypted)));
        }
    }
    let mut samples = out.family("sanderling_http_connections");
    let mut active = [false, true].iter().map(|&tls| statistics.get(Series::Open(0, tls))).sum::<u64>();
    for (index, state) in CONNECTION_STATES.iter().enumerate() {
        let count = statistics.get(Series::InState(index));
        active = active.saturating_sub(count);
        samples.sample(&[state], count);
    }
    samples.sample(&["active"], active);
    put_each_series(out, "sanderling_file_cache_lookups", &LOOKUP_RESULTS, |index| {
        statistics.get(Series::Lookups(index))
    });
}

fn put_http(statistics: &Statistics, out: &mut MetricsWriter) {
    let mut samples = out.family("sanderling_http_responses");
    for (version, version_name) in HTTP_VERSIONS.iter().enumerate() {
        for is_encrypted in [false, true] {
            for (class, class_name) in STATUS_CLASSES.iter().enumerate() {
                let count = statistics.get(Series::Responses { version, is_encrypted, class });
                samples.sample(&[version_name, tls_name(is_encrypted), class_name], count);
            }
        }
    }
    let bounds = DURATION_BOUNDS_MS.map(seconds_bound);
    let mut samples = out.family("sanderling_http_response_duration_seconds");
    for (version, name) in HTTP_VERSIONS.iter().enumerate() {
        let sum = Seconds(statistics.get(Series::DurationSum(version)));
        samples.histogram(&[name], &bounds, |bucket| statistics.get(Series::Durations(version, bucket)), sum);
    }
    let mut samples = out.family("sanderling_site_responses");
    for (slot, site) in statistics.sites.iter().enumerate() {
        for (class, class_name) in STATUS_CLASSES.iter().enumerate() {
            samples.sample(&[site, class_name], statistics.get(Series::SiteResponses(slot, class)));
        }
    }
    let mut samples = out.family("sanderling_site_content_bytes");
    for (slot, site) in statistics.sites.iter().enumerate() {
        samples.sample(&[site], statistics.get(Series::SiteBytes(slot)));
    }
}

fn put_dns(statistics: &Statistics, out: &mut MetricsWriter) {
    let mut samples = out.family("sanderling_dns_queries");
    for (transport, name) in DNS_TRANSPORTS.iter().enumerate() {
        for (index, query_type) in QUERY_TYPES.iter().enumerate() {
            samples.sample(&[name, query_type], statistics.get(Series::Queries(transport, index)));
        }
    }
    let mut samples = out.family("sanderling_dns_replies");
    for (transport, name) in DNS_TRANSPORTS.iter().enumerate() {
        for (index, rcode) in RCODES.iter().enumerate() {
            samples.sample(&[name, rcode], statistics.get(Series::Replies(transport, index)));
        }
    }
    put_each_series(out, "sanderling_dns_replies_truncated", &DNS_TRANSPORTS, |transport| {
        statistics.get(Series::Truncated(transport))
    });
    let bounds = SIZE_BOUNDS_BYTES.map(|bound| format!("{bound}.0"));
    let mut samples = out.family("sanderling_dns_reply_size_bytes");
    for (transport, name) in DNS_TRANSPORTS.iter().enumerate() {
        let sum = statistics.get(Series::SizeSum(transport));
        samples.histogram(&[name], &bounds, |bucket| statistics.get(Series::Sizes(transport, bucket)), sum);
    }
    let zones: Vec<&str> = statistics.zones.iter().map(String::as_str).collect();
    put_each_series(out, "sanderling_zone_queries", &zones, |slot| statistics.get(Series::ZoneQueries(slot)));
}

fn put_each_series(out: &mut MetricsWriter, name: &str, labels: &[&str], count_of: impl Fn(usize) -> u64) {
    let counts: Vec<u64> = (0..labels.len()).map(count_of).collect();
    put_each(out, name, labels, &counts);
}

/// A bound of milliseconds in seconds, as OpenMetrics 1.0 has floating-point numbers: `0.001`, `1.024`.
fn seconds_bound(bound_ms: u64) -> String {
    Seconds(bound_ms).to_string()
}

fn tls_name(is_encrypted: bool) -> &'static str {
    if is_encrypted { "true" } else { "false" }
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
