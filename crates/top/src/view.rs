//! The content of the page: rates between two moments, and the state of the later one.

use crate::samples::{Sample, Samples};
use std::time::Duration;

/// The kinds of things with states: the families of their numbers, and their singular nouns.
const CONTENT: [(&str, &str); 5] = [
    ("sanderling_sites", "site"),
    ("sanderling_zones", "zone"),
    ("sanderling_certificates", "certificate"),
    ("sanderling_tsig_keys", "TSIG key"),
    ("sanderling_backend_servers", "backend server"),
];

/// The order of sites and zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Most requests first.
    Rate,
    /// Most errors first.
    Errors,
    /// Most bytes first.
    Bytes,
    /// By name.
    Name,
}

impl Sort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Errors => "errors",
            Sort::Bytes => "bytes",
            Sort::Name => "name",
        }
    }

    /// The order that follows.
    pub(crate) fn next(self) -> Sort {
        match self {
            Sort::Rate => Sort::Errors,
            Sort::Errors => Sort::Bytes,
            Sort::Bytes => Sort::Name,
            Sort::Name => Sort::Rate,
        }
    }
}

/// The content of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) sort: Option<Sort>,
    pub(crate) version: String,
    pub(crate) uptime_s: f64,
    /// Starting, serving, draining.
    pub(crate) processes: [f64; 3],
    pub(crate) restarts: f64,
    /// The last reloads that failed.
    pub(crate) failed_reloads: f64,
    pub(crate) panics: f64,
    /// Whether the server has detailed metrics.
    pub(crate) is_detailed: bool,
    pub(crate) requests: f64,
    /// By class of status, from 1xx to 5xx.
    pub(crate) by_class: [f64; 5],
    pub(crate) content_bytes: f64,
    /// The times within which half, 95 and 99 of 100 responses were sent, in seconds; `None` without responses.
    pub(crate) percentiles: [Option<f64>; 3],
    pub(crate) cache_hits: f64,
    pub(crate) cache_lookups: f64,
    pub(crate) cached_files: f64,
    pub(crate) cached_bytes: f64,
    pub(crate) queries: f64,
    /// Over UDP, TCP, TLS and HTTPS.
    pub(crate) by_transport: [f64; 4],
    pub(crate) replies: f64,
    pub(crate) name_errors: f64,
    pub(crate) server_failures: f64,
    pub(crate) dropped_messages: f64,
    pub(crate) http_connections: f64,
    pub(crate) dns_connections: f64,
    pub(crate) encrypted_connections: f64,
    /// Handshaking, receiving, idle, active.
    pub(crate) by_state: [f64; 4],
    pub(crate) handshakes: f64,
    pub(crate) resumed: f64,
    pub(crate) failed_handshakes: f64,
    pub(crate) dropped_log_lines: f64,
    /// The effects of limits, most frequent first.
    pub(crate) limits: Vec<(String, f64)>,
    pub(crate) sites: Vec<SiteRow>,
    pub(crate) zones: Vec<ZoneRow>,
    pub(crate) certificates: Vec<CertificateRow>,
    /// Those that are down first, then those with most requests.
    pub(crate) backend_servers: Vec<BackendServerRow>,
    /// The deviations from the configuration, in singular and plural, with their number: `zones unavailable`.
    pub(crate) problems: Vec<([String; 2], f64)>,
    /// Processes that are needed and do not run.
    pub(crate) stopped_processes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SiteRow {
    pub(crate) name: String,
    pub(crate) requests: f64,
    pub(crate) errors: f64,
    pub(crate) bytes: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ZoneRow {
    pub(crate) name: String,
    pub(crate) queries: f64,
    pub(crate) serial: Option<f64>,
    pub(crate) has_failed: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CertificateRow {
    pub(crate) domain: String,
    /// Seconds until it expires.
    pub(crate) left_s: f64,
    pub(crate) has_failed: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BackendServerRow {
    pub(crate) address: String,
    pub(crate) is_down: bool,
    pub(crate) requests: f64,
    pub(crate) errors: f64,
    pub(crate) connections: f64,
    /// Mean seconds from a request to the head of its response; `None` without responses.
    pub(crate) mean_s: Option<f64>,
}

/// Differences between two moments.
struct Rates<'s> {
    before: Option<&'s Samples>,
    now: &'s Samples,
    seconds: f64,
}

impl Rates<'_> {
    /// The sum of a counter per second.
    fn of(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let Some(before) = self.before else { return 0.0 };
        let (before, now) = (before.sum(name, labels), self.now.sum(name, labels));
        // A new server process begins again.
        (if now >= before { now - before } else { now }) / self.seconds
    }

    /// Of each of these labels.
    fn of_each<const N: usize>(&self, name: &str, label: &str, values: [&str; N]) -> [f64; N] {
        values.map(|value| self.of(name, &[(label, value)]))
    }
}

impl View {
    pub(crate) fn new(before: Option<&Samples>, now: &Samples, sort: Sort) -> View {
        let elapsed = before.map_or(Duration::ZERO, |before| now.taken_at.saturating_duration_since(before.taken_at));
        let rates = Rates { before, now, seconds: elapsed.as_secs_f64().max(0.001) };
        let unix_s =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let first = |name: &str| now.find(name, &[]).unwrap_or(0.0);
        let mut view = View {
            sort: Some(sort),
            version: now.all("sanderling_build_info").first().map_or("", |sample| sample.label("version")).to_owned(),
            uptime_s: unix_s - first("process_start_time_seconds"),
            processes: ["starting", "serving", "draining"]
                .map(|state| now.sum("sanderling_processes", &[("state", state)])),
            restarts: first("sanderling_restarts_total"),
            failed_reloads: now.sum("sanderling_reloads_total", &[("result", "failure")]),
            panics: first("sanderling_panics_total"),
            is_detailed: !now.all("sanderling_http_responses_total").is_empty(),
            requests: rates.of("sanderling_http_requests_total", &[]),
            by_class: rates.of_each("sanderling_http_responses_total", "status", ["1xx", "2xx", "3xx", "4xx", "5xx"]),
            content_bytes: rates.of("sanderling_site_content_bytes_total", &[]),
            percentiles: percentiles(before, now),
            cache_hits: rates.of("sanderling_file_cache_lookups_total", &[("result", "hit")]),
            cache_lookups: rates.of("sanderling_file_cache_lookups_total", &[]),
            cached_files: now.sum("sanderling_file_cache_entries", &[("kind", "file")]),
            cached_bytes: first("sanderling_file_cache_content_bytes"),
            queries: rates.of("sanderling_dns_messages_total", &[]),
            by_transport: rates.of_each("sanderling_dns_queries_total", "transport", ["udp", "tcp", "dot", "doh"]),
            replies: rates.of("sanderling_dns_replies_total", &[]),
            name_errors: rates.of("sanderling_dns_replies_total", &[("rcode", "NXDOMAIN")]),
            server_failures: rates.of("sanderling_dns_replies_total", &[("rcode", "SERVFAIL")]),
            dropped_messages: rates.of("sanderling_dns_messages_dropped_total", &[]),
            http_connections: open(now, "http"),
            dns_connections: open(now, "dns"),
            encrypted_connections: now.sum("sanderling_connections", &[("tls", "true")]),
            by_state: ["handshaking", "receiving", "idle", "active"]
                .map(|state| now.sum("sanderling_http_connections", &[("state", state)])),
            handshakes: rates.of("sanderling_tls_handshakes_total", &[]),
            resumed: rates.of("sanderling_tls_handshakes_resumed_total", &[]),
            failed_handshakes: rates.of("sanderling_tls_handshakes_failed_total", &[]),
            dropped_log_lines: now.sum("sanderling_log_lines_total", &[("result", "dropped")]),
            limits: limits(&rates),
            problems: CONTENT.iter().flat_map(|(family, noun)| problems(now, family, noun)).collect(),
            stopped_processes: stopped_processes(now),
            certificates: certificates(now, unix_s),
            backend_servers: backend_servers(&rates),
            ..View::default()
        };
        view.put_sites(&rates, sort);
        view.put_zones(&rates, sort);
        view
    }

    fn put_sites(&mut self, rates: &Rates<'_>, sort: Sort) {
        let name = "sanderling_site_responses_total";
        for site in distinct(rates.now.all(name), "site") {
            let of = |class: &str| rates.of(name, &[("site", site), ("status", class)]);
            let row = SiteRow {
                name: site.to_owned(),
                requests: rates.of(name, &[("site", site)]),
                errors: of("4xx") + of("5xx"),
                bytes: rates.of("sanderling_site_content_bytes_total", &[("site", site)]),
            };
            if row.requests > 0.0 || !is_rest(site) {
                self.sites.push(row);
            }
        }
        self.sites.sort_by(|one, other| one.name.cmp(&other.name));
        // Stable: equal ones stay in the order of their names.
        self.sites.sort_by(|one, other| match sort {
            Sort::Rate => other.requests.total_cmp(&one.requests),
            Sort::Errors => other.errors.total_cmp(&one.errors),
            Sort::Bytes => other.bytes.total_cmp(&one.bytes),
            Sort::Name => std::cmp::Ordering::Equal,
        });
    }

    fn put_zones(&mut self, rates: &Rates<'_>, sort: Sort) {
        let name = "sanderling_zone_queries_total";
        let counted = distinct(rates.now.all(name), "zone");
        let listed = distinct(rates.now.all("sanderling_zone_problem"), "zone");
        let more = listed.into_iter().filter(|zone| !counted.contains(zone)).collect::<Vec<_>>();
        for zone in counted.into_iter().chain(more) {
            let labels = [("zone", zone)];
            let row = ZoneRow {
                name: zone.to_owned(),
                queries: rates.of(name, &labels),
                serial: rates.now.find("sanderling_zone_serial", &labels),
                has_failed: rates.now.find("sanderling_zone_problem", &labels) == Some(1.0),
            };
            if row.queries > 0.0 || !is_rest(zone) {
                self.zones.push(row);
            }
        }
        self.zones.sort_by(|one, other| one.name.cmp(&other.name));
        self.zones.sort_by(|one, other| match sort {
            Sort::Rate | Sort::Bytes => other.queries.total_cmp(&one.queries),
            Sort::Errors => other.has_failed.cmp(&one.has_failed),
            Sort::Name => std::cmp::Ordering::Equal,
        });
    }
}

/// The number of items in each bad state, the worst state first.
fn problems(now: &Samples, family: &str, noun: &str) -> Vec<([String; 2], f64)> {
    let states = now.all(family).iter().rev();
    let bad = states.filter(|sample| sample.label("state") != "served");
    bad.map(|sample| (state_names(noun, sample.label("state")), sample.value)).collect()
}

/// The singular and plural for a state: `zone kept`, `zones kept`.
pub(crate) fn state_names(noun: &str, state: &str) -> [String; 2] {
    [format!("{noun} {state}"), format!("{noun}s {state}")]
}

fn stopped_processes(now: &Samples) -> Vec<String> {
    let stopped = now.all("sanderling_process_running").iter().filter(|sample| sample.value == 0.0);
    stopped.map(|sample| sample.label("process").to_owned()).collect()
}

fn open(now: &Samples, protocol: &str) -> f64 {
    let labels = [("protocol", protocol)];
    let closed = now.sum("sanderling_connections_closed_total", &labels);
    (now.sum("sanderling_connections_accepted_total", &labels) - closed).max(0.0)
}

/// Whether the name stands for requests outside all sites or zones, or for those without their own metrics.
fn is_rest(name: &str) -> bool {
    name.starts_with('_')
}

/// The values of a label, each once.
fn distinct<'s>(samples: &'s [Sample], label: &str) -> Vec<&'s str> {
    let mut values: Vec<&str> = Vec::new();
    for sample in samples {
        let value = sample.label(label);
        // The samples of one site follow each other.
        if values.last() != Some(&value) {
            values.push(value);
        }
    }
    values
}

/// The effects of limits, between the two moments if there are any, most frequent first.
fn limits(rates: &Rates<'_>) -> Vec<(String, f64)> {
    let name = "sanderling_limit_reached_total";
    let rate_of = |sample: &Sample| {
        let (limit, effect) = (sample.label("limit"), sample.label("effect"));
        (format!("{limit}: {effect}"), rates.of(name, &[("limit", limit), ("effect", effect)]))
    };
    let mut limits: Vec<(String, f64)> =
        rates.now.all(name).iter().map(rate_of).filter(|(_, rate)| *rate > 0.0).collect();
    limits.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    limits
}

/// The certificates, those that expire first before others.
fn certificates(now: &Samples, unix_s: f64) -> Vec<CertificateRow> {
    let rows = now.all("sanderling_certificate_not_after_timestamp_seconds").iter().map(|sample| {
        let labels = [("domain", sample.label("domain")), ("file", sample.label("file"))];
        CertificateRow {
            domain: sample.label("domain").to_owned(),
            left_s: sample.value - unix_s,
            has_failed: now.find("sanderling_certificate_problem", &labels) == Some(1.0),
        }
    });
    let mut rows: Vec<CertificateRow> = rows.collect();
    rows.sort_by(|one, other| one.left_s.total_cmp(&other.left_s));
    rows
}

fn backend_servers(rates: &Rates<'_>) -> Vec<BackendServerRow> {
    let rows = rates.now.all("sanderling_backend_server_up").iter().map(|sample| {
        let labels = [("server", sample.label("server"))];
        let responses = rates.of("sanderling_backend_server_responses_total", &labels);
        let seconds = rates.of("sanderling_backend_server_response_seconds_total", &labels);
        BackendServerRow {
            address: sample.label("server").to_owned(),
            is_down: sample.value == 0.0,
            requests: rates.of("sanderling_backend_server_requests_total", &labels),
            errors: rates.of("sanderling_backend_server_errors_total", &labels),
            connections: rates.now.sum("sanderling_backend_server_connections", &labels),
            mean_s: (responses > 0.0).then(|| seconds / responses),
        }
    });
    let mut rows: Vec<BackendServerRow> = rows.collect();
    rows.sort_by(|one, other| {
        other
            .is_down
            .cmp(&one.is_down)
            .then(other.requests.total_cmp(&one.requests))
            .then(one.address.cmp(&other.address))
    });
    rows
}

/// The bounds of the histogram of response times below which half, 95 and 99 of 100 responses are, between the moments.
fn percentiles(before: Option<&Samples>, now: &Samples) -> [Option<f64>; 3] {
    const NAME: &str = "sanderling_http_response_duration_seconds_bucket";
    let mut bounds: Vec<(f64, f64)> = Vec::new();
    for bound in now.all(NAME).iter().map(|sample| sample.label("le")) {
        let Ok(number) = bound.parse::<f64>() else { continue };
        if bounds.iter().all(|(known, _)| *known != number) {
            let labels = [("le", bound)];
            let earlier = before.map_or(0.0, |before| before.sum(NAME, &labels));
            let count = now.sum(NAME, &labels);
            bounds.push((number, if count >= earlier { count - earlier } else { count }));
        }
    }
    bounds.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let all = bounds.last().map_or(0.0, |(_, count)| *count);
    [0.5, 0.95, 0.99].map(|share| {
        let found = bounds.iter().find(|(_, count)| all > 0.0 && *count >= all * share);
        found.map(|(bound, _)| *bound)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Instant;

    /// The view after two texts that were fetched a second apart.
    pub(crate) fn view(before: &str, now: &str, sort: Sort) -> View {
        let start = Instant::now();
        let before = Samples::parse(before, start);
        View::new(Some(&before), &Samples::parse(now, start + Duration::from_secs(1)), sort)
    }

    #[test]
    fn rates_are_differences_and_a_smaller_counter_has_begun_again() {
        let text = |number: u64| format!("sanderling_http_requests_total {number}\n");
        assert_eq!(view(&text(10), &text(25), Sort::Rate).requests, 15.0);
        assert_eq!(view(&text(10), &text(4), Sort::Rate).requests, 4.0);
        let first = View::new(None, &Samples::parse(&text(10), Instant::now()), Sort::Rate);
        assert_eq!(first.requests, 0.0);
    }

    #[test]
    fn each_kind_of_content_has_its_problems() {
        for (family, noun) in CONTENT {
            let text = format!("{family}{{state=\"served\"}} 3\n{family}{{state=\"kept\"}} 2\n");
            assert_eq!(view("", &text, Sort::Rate).problems, [(state_names(noun, "kept"), 2.0)]);
        }
    }

    #[test]
    fn servers_that_are_down_come_first_and_have_rates() {
        let text = |server: &str, up: u64, numbers: [u64; 4]| {
            let [requests, errors, responses, seconds] = numbers;
            format!(
                "sanderling_backend_server_up{{server=\"{server}\"}} {up}\n\
                 sanderling_backend_server_requests_total{{server=\"{server}\"}} {requests}\n\
                 sanderling_backend_server_errors_total{{server=\"{server}\"}} {errors}\n\
                 sanderling_backend_server_connections{{server=\"{server}\"}} 3\n\
                 sanderling_backend_server_responses_total{{server=\"{server}\"}} {responses}\n\
                 sanderling_backend_server_response_seconds_total{{server=\"{server}\"}} {seconds}.000\n"
            )
        };
        let before = text("a", 1, [0; 4]) + &text("b", 1, [0; 4]) + &text("c", 1, [0; 4]);
        let now = text("a", 1, [5, 0, 4, 2]) + &text("b", 1, [9, 1, 8, 2]) + &text("c", 0, [1, 1, 0, 0]);
        let rows = view(&before, &now, Sort::Rate).backend_servers;
        let shown: Vec<_> =
            rows.iter().map(|row| (row.address.as_str(), row.is_down, row.requests, row.mean_s)).collect();
        assert_eq!(shown, [("c", true, 1.0, None), ("b", false, 9.0, Some(0.25)), ("a", false, 5.0, Some(0.5))]);
        assert_eq!((rows[0].errors, rows[0].connections), (1.0, 3.0));
    }

    #[test]
    fn percentiles_are_bounds_of_all_versions() {
        let text = |counts: [u64; 4]| {
            let line = |version: &str, bound: &str, count: u64| {
                format!(
                    "sanderling_http_response_duration_seconds_bucket{{version=\"{version}\",le=\"{bound}\"}} {count}\n"
                )
            };
            let [a, b, c, d] = counts;
            line("1.1", "0.001", a)
                + &line("1.1", "0.002", b)
                + &line("2", "0.001", c)
                + &line("2", "0.002", d)
                + &line("1.1", "+Inf", b)
                + &line("2", "+Inf", d)
        };
        let found = view(&text([5, 5, 0, 0]), &text([5, 15, 80, 90]), Sort::Rate).percentiles;
        assert_eq!(found, [Some(0.001), Some(0.002), Some(0.002)]);
        assert_eq!(view(&text([5, 5, 0, 0]), &text([5, 5, 0, 0]), Sort::Rate).percentiles, [None; 3]);
    }

    #[test]
    fn sites_are_sorted_in_each_order() {
        let text = |numbers: [u64; 6]| {
            let [a, a_errors, a_bytes, b, b_errors, b_bytes] = numbers;
            let site = |site: &str, good: u64, bad: u64, bytes: u64| {
                format!(
                    "sanderling_site_responses_total{{site=\"{site}\",status=\"2xx\"}} {good}\n\
                     sanderling_site_responses_total{{site=\"{site}\",status=\"4xx\"}} {bad}\n\
                     sanderling_site_content_bytes_total{{site=\"{site}\"}} {bytes}\n"
                )
            };
            site("b", b, b_errors, b_bytes) + &site("a", a, a_errors, a_bytes)
        };
        let names = |sort: Sort| {
            let view = view(&text([0; 6]), &text([1, 5, 10, 20, 0, 500]), sort);
            view.sites.iter().map(|site| site.name.clone()).collect::<String>()
        };
        let mut sort = Sort::Rate;
        for expected in ["ba", "ab", "ba", "ab"] {
            assert_eq!(names(sort), expected, "{sort:?}");
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Rate);
    }
}
