//! The table of all metric families, for the text, the manual, and the tests of the dashboard and alerts.

/// A metric family.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// The name without the suffix of its samples.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The end of the name, if the samples have a unit.
    pub(crate) unit: &'static str,
    pub(crate) labels: &'static [&'static str],
    /// The family's description, in one sentence.
    pub(crate) help: &'static str,
    /// Whether it needs the section `[metrics]`.
    pub(crate) is_detailed: bool,
}

/// The kinds of samples of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

impl Family {
    /// The family with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// The names of its samples.
    #[cfg(test)]
    pub(crate) fn samples(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_count", "_sum"],
            Kind::Info => &["_info"],
        };
        suffixes.iter().map(|suffix| format!("{}{suffix}", self.name)).collect()
    }
}

/// Makes the table; `*` marks families that need `[metrics]`.
macro_rules! families {
    ($($kind:ident $name:ident $(($unit:literal))? [$($label:ident),*] $($detailed:literal)? : $help:literal;)*) => {
        pub(crate) const FAMILIES: &[Family] = &[$(Family {
            name: stringify!($name),
            kind: Kind::$kind,
            unit: concat!($($unit)?),
            labels: &[$(stringify!($label)),*],
            help: $help,
            is_detailed: !concat!($($detailed)?).is_empty(),
        }),*];
    };
}

families! {
    Info sanderling_build [version]: "Version of the server process.";
    Gauge process_start_time_seconds ("seconds") []: "Start time of the server process, in seconds since 1970.";
    Gauge sanderling_supervisor_start_time_seconds ("seconds") []: "Start time of the supervisor, in seconds since 1970.";
    Gauge sanderling_configuration_timestamp_seconds ("seconds") []: "Time at which the current configuration was read, in seconds since 1970.";
    Gauge sanderling_processes [state]: "Server processes that start, serve, and drain.";
    Gauge sanderling_workers []: "Workers of the server process.";
    Counter sanderling_restarts []: "Restarts of the server process after it had exited or hung.";
    Gauge sanderling_process_running [process]: "1 if the process runs, otherwise 0: the supervisor, and, if the \
        configuration needs them, the agent and the keeper.";
    Counter sanderling_agent_restarts []: "Restarts of the agent.";
    Counter sanderling_keeper_restarts []: "Restarts of the keeper.";
    Counter sanderling_keeper_signatures []: "Handshake signatures by the keeper.";
    Counter sanderling_keeper_zone_signatures []: "Zone record signatures by the keeper.";
    Counter sanderling_keeper_refused [reason]: "Signatures that the keeper refused; an intact server process never \
                                                 requests them.";
    Counter sanderling_reloads [result]: "Configuration reloads: successful, successful except for some sites, \
        zones, certificates or TSIG keys, and failed.";
    Counter sanderling_panics []: "Connections and queries ended by a bug in the server.";
    Counter sanderling_system_calls [call]: "System calls of the threads that serve clients.";
    Counter sanderling_limit_reached [limit, effect]: "Times that a configured limit closed, refused, delayed or \
                                                       dropped connections, requests or replies.";

    Counter sanderling_connections_accepted [protocol]: "Connections accepted.";
    Counter sanderling_connections_closed [protocol]: "Connections closed.";
    Gauge sanderling_connections [protocol, tls] "*": "Open connections.";
    Gauge sanderling_http_connections [state] "*": "Open HTTP connections: handshaking, receiving a request, idle; and active, all others.";
    Counter sanderling_accept_errors []: "Connections not accepted for lack of descriptors or memory.";
    Gauge sanderling_connection_buffers_bytes ("bytes") []: "Bytes of requests and responses that connections hold.";

    Counter sanderling_http_requests []: "HTTP requests answered.";
    Counter sanderling_backend_requests [result]: "HTTP requests passed on to a backend, and those of them to which it gave no response.";
    Counter sanderling_http_requests_malformed []: "Malformed HTTP requests, answered with an error and closed.";
    Counter sanderling_http_timeouts []: "HTTP connections closed by a timeout.";
    Counter sanderling_http_responses_aborted [reason]: "HTTP responses aborted because their file changed, or when the drain timeout passed.";
    Counter sanderling_http_responses [version, tls, status] "*": "HTTP responses by version, encryption and status class.";
    Histogram sanderling_http_response_duration_seconds ("seconds") [version] "*": "Time from the first byte of a \
        request to the last of its response; 0 within one iteration of the event loop.";
    Counter sanderling_site_responses [site, status] "*": "HTTP responses by site and status class.";
    Counter sanderling_site_content_bytes ("bytes") [site] "*": "Content bytes in HTTP responses, without heads and \
        encryption.";
    Counter sanderling_proxy_headers_refused []: "Connections of trusted proxies closed because of a missing or \
                                                  invalid PROXY header.";
    Counter sanderling_http2_connections []: "HTTP connections on which the client chose HTTP/2.";
    Counter sanderling_http2_requests []: "Requests over HTTP/2.";
    Counter sanderling_http2_connections_refused []: "HTTP/2 connections closed because of a client error or flood.";
    Counter sanderling_http2_protocol_errors []: "HTTP/2 connections closed because of a protocol error.";

    Counter sanderling_tls_handshakes [version]: "TLS handshakes completed.";
    Counter sanderling_tls_handshakes_resumed []: "TLS handshakes that resumed an earlier session.";
    Counter sanderling_tls_handshakes_failed [cause]: "TLS handshakes not completed.";

    Counter sanderling_file_cache_lookups [result] "*": "Look-ups in the open-file cache: files that were open and \
        valid, files that were opened or checked, and paths without a file.";
    Gauge sanderling_file_cache_entries [kind]: "Entries of the open-file cache: files, and paths without a file.";
    Gauge sanderling_file_cache_descriptors []: "Descriptors in the open-file cache.";
    Gauge sanderling_file_cache_content_bytes ("bytes") []: "Bytes of content in the open-file cache.";
    Gauge sanderling_file_cache_watched_directories []: "Directories that are watched for changes.";
    Counter sanderling_file_cache_evictions []: "Files evicted from the open-file cache.";

    Counter sanderling_dns_messages [transport]: "DNS messages received over UDP, over TCP with and without TLS, and over HTTPS.";
    Counter sanderling_dns_transfers [result]: "Queries for a zone transfer, and transfers written to their end.";
    Counter sanderling_dns_tsig_errors [error]: "DNS messages whose TSIG signature was not accepted.";
    Counter sanderling_dns_updates [result]: "Dynamic updates that were accepted, refused, or repeated.";
    Counter sanderling_dns_messages_dropped []: "DNS messages without a reply: not a query, too long, from a port \
                                                 that gets no replies, or beyond a limit.";
    Counter sanderling_dns_replies_slipped []: "Replies beyond dns_udp_replies_per_second_max that were sent truncated.";
    Counter sanderling_udp_receive_errors []: "Failed calls to receive datagrams.";
    Counter sanderling_udp_replies_lost []: "UDP replies that the kernel refused.";
    Counter sanderling_dns_queries [transport, type] "*": "DNS queries that were answered, by type; other for the \
                                                           remaining types, none without a question.";
    Counter sanderling_dns_replies [transport, rcode] "*": "DNS replies by RCODE.";
    Counter sanderling_dns_replies_truncated [transport] "*": "DNS replies with the TC flag.";
    Histogram sanderling_dns_reply_size_bytes ("bytes") [transport] "*": "Sizes of DNS replies.";
    Counter sanderling_zone_queries [zone] "*": "DNS queries that were answered from a zone.";

    Gauge sanderling_sites [state]: "Sites by state; any state but `served` is a problem.";
    Gauge sanderling_zones [state]: "Zones by state; any state but `served` is a problem.";
    Gauge sanderling_certificates [state]: "Certificates by state; any state but `served` is a problem.";
    Gauge sanderling_tsig_keys [state]: "TSIG keys by state; any state but `served` is a problem.";
    Gauge sanderling_backend_servers [state]: "Servers of applications by state; any state but `served` is a problem.";
    Gauge sanderling_backend_server_up [server]: "1 if the server gets requests, 0 if it is down.";
    Counter sanderling_backend_server_requests [server]: "HTTP requests that the server was given.";
    Counter sanderling_backend_server_errors [server]: "HTTP requests to which the server gave no response, or one \
        with status 502, 503 or 504.";
    Gauge sanderling_backend_server_connections [server]: "Open connections to the server.";
    Counter sanderling_backend_server_responses [server]: "HTTP responses of the server.";
    Counter sanderling_backend_server_response_seconds ("seconds") [server]: "Time from the requests to the heads of \
        these responses.";
    Gauge sanderling_zone_serial [zone]: "Serial of the zone in service.";
    Gauge sanderling_zone_records [zone]: "Records of the zone in service.";
    Gauge sanderling_zone_loaded_timestamp_seconds ("seconds") [zone]: "Time at which the current zone version was loaded, in seconds since 1970.";
    Gauge sanderling_zone_signatures_expire_timestamp_seconds ("seconds") [zone]: "Time at which the zone's first \
        signature expires, in seconds since 1970; only for signed zones.";
    Gauge sanderling_zone_problem [zone]: "1 unless the zone's state is `served`.";
    Gauge sanderling_certificate_not_after_timestamp_seconds ("seconds") [domain, file]: "Expiry time of the certificate in service, in seconds since 1970.";
    Gauge sanderling_certificate_problem [domain, file]: "1 unless the certificate's state is `served`.";
    Gauge sanderling_certificate_name_missing [domain, file, name]: "1 for each name of the domain that none of its \
        certificates in service covers.";
    Counter sanderling_log_lines [log, result]: "Lines of request logs, and dnstap messages, that were written or \
                                                 dropped.";
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot read the manual fails")]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_open_metrics() {
        for (index, family) in FAMILIES.iter().enumerate() {
            let Family { name, unit, help, labels, .. } = family;
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit()),
                "{name}"
            );
            assert!(name.starts_with("sanderling_") || name.starts_with("process_"), "{name}");
            // OpenMetrics 1.0: the unit is the last part of the name.
            assert!(unit.is_empty() || name.ends_with(&format!("_{unit}")), "{name}");
            for suffix in ["_total", "_count", "_sum", "_bucket", "_info", "_created"] {
                assert!(!name.ends_with(suffix), "{name}");
            }
            assert!(help.ends_with('.') && !help.contains(['\n', '"', '\\', '|']), "{name}");
            assert!(FAMILIES[..index].iter().all(|other| other.name != *name), "{name} twice");
            assert!(!labels.contains(&"le"), "{name}");
        }
    }

    const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    const BEGIN: &str = "<!-- Table of families, generated from crates/server-process/src/metrics/families.rs. -->\n";
    const END: &str = "<!-- End of the table. -->\n";

    fn markdown() -> String {
        let mut text =
            String::from("| family | type | unit | labels | description | samples |\n|---|---|---|---|---|---|\n");
        for family in FAMILIES {
            let Family { name, kind, unit, labels, help, is_detailed } = family;
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let samples: Vec<String> = family.samples().iter().map(|sample| format!("`{sample}`")).collect();
            let mark = if *is_detailed { " *" } else { "" };
            text += &format!(
                "| `{name}`{mark} | {} | {unit} | {} | {help} | {} |\n",
                kind.name(),
                labels.join(", "),
                samples.join(", ")
            );
        }
        text
    }

    #[test]
    fn manual_has_the_table_of_families() {
        sanderling_testkit::check_manual_table(MANUAL, BEGIN, END, &format!("\n{}\n", markdown()));
    }

    #[test]
    fn samples_of_the_stability_page_exist() {
        let samples = FAMILIES.iter().flat_map(|family| {
            let labels = family.labels.join(", ");
            family.samples().into_iter().map(move |sample| format!("{sample}: {} ({labels})", family.kind.name()))
        });
        sanderling_testkit::check_promised("metrics", samples);
    }

    /// The names of metrics in `text`.
    fn used_in(text: &str) -> Vec<&str> {
        let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        words.filter(|word| word.starts_with("sanderling_") || word.starts_with("process_")).collect()
    }

    fn packaged(path: &str) -> String {
        std::fs::read_to_string(format!("{}/../../packaging/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[track_caller]
    fn check_exist(used: &[&str]) {
        let samples: Vec<String> = FAMILIES.iter().flat_map(Family::samples).collect();
        let unknown: Vec<_> = used.iter().filter(|name| !samples.iter().any(|sample| sample == *name)).collect();
        assert!(unknown.is_empty(), "there are no samples {unknown:?}");
    }

    #[test]
    fn alerts_use_metrics_that_exist() {
        let rules = packaged("prometheus/sanderling.rules.yml");
        let used = used_in(&rules);
        assert!(used.len() > 10, "{used:?}");
        check_exist(&used);
    }

    #[test]
    fn dashboard_uses_metrics_that_exist_with_their_labels() {
        let text = packaged("grafana/sanderling.json");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(dashboard["schemaVersion"].is_u64() && dashboard["uid"] == "sanderling");
        let panels = dashboard["panels"].as_array().expect("panels");
        let (mut ids, mut query_count) = (std::collections::BTreeSet::new(), 0);
        for panel in panels {
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "an id occurs twice: {panel}");
            let position = &panel["gridPos"];
            let [x, w] = ["x", "w"].map(|key| position[key].as_u64().expect("a position"));
            assert!(x + w <= 24, "{panel}");
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().expect("a query");
                let used = used_in(expression);
                assert!(!used.is_empty(), "{expression}");
                check_exist(&used);
                query_count += 1;
                // Labels in the legend belong to the metric, or to the scraped target.
                let family = |sample: &&str| {
                    FAMILIES.iter().find(|family| family.samples().iter().any(|name| name == *sample)).expect("checked")
                };
                let labels: Vec<&str> = used.iter().flat_map(|sample| family(sample).labels).copied().collect();
                for label in target["legendFormat"].as_str().unwrap_or_default().split("{{").skip(1) {
                    let label = label.split("}}").next().unwrap_or_default();
                    assert!(labels.contains(&label), "{expression}: {label}");
                }
            }
        }
        assert!(query_count > 40, "{query_count}");
        check_exist(&used_in(&text.replace("\"uid\": \"sanderling\"", "")));
    }
}
