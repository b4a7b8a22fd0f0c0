//! A server process's status, as text for people and as JSON for programs.

use crate::backend_state::BackendServerState;
use crate::certificate_state::CertificateState;
use crate::load_status::{FolderState, LoadStatus, ReleaseState, SiteService, SiteState, ZoneState};
use crate::sandbox::Sandbox;
use crate::service_state::{Condition, ServiceState, ZoneCondition};
use crate::tsig_key_state::TsigKeyState;
use sanderling_config::diagnostic::Diagnostic;
use sanderling_config::{LogKind, ZoneOrigin};
use sanderling_http::HttpDate;
use sanderling_os::features::FEATURES;
use sanderling_server::{Counter, DrainMode, EarlierFiles, LogStatus, Server, State, Status};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The counters of the first line of the text.
const REQUESTS: [Counter; 3] = [Counter::HttpRequests, Counter::DnsUdpQueries, Counter::DnsTcpQueries];
/// The counters of the second line.
const ERRORS: [Counter; 37] = [
    Counter::BackendErrors,
    Counter::HttpRefused,
    Counter::HttpTimeouts,
    Counter::HttpSlowRequests,
    Counter::HttpSlowResponses,
    Counter::HttpAborted,
    Counter::Http2Refused,
    Counter::Http2Errors,
    Counter::Http2OverStreams,
    Counter::Http2OverKeptRequestBytes,
    Counter::Http2OverHeaderBlockBytes,
    Counter::Http2OverContinuations,
    Counter::Http2OverResets,
    Counter::Http2OverControlFrames,
    Counter::Http2OverOverheadBytes,
    Counter::TlsFailed,
    Counter::TlsIncompatible,
    Counter::TlsNoCommonProtocol,
    Counter::TlsUnknownName,
    Counter::TlsInvalid,
    Counter::TlsClientAlert,
    Counter::TlsClientClosed,
    Counter::TlsInternal,
    Counter::TlsTimeouts,
    Counter::DnsTransfersRefused,
    Counter::DnsTransfersOverLimit,
    Counter::DnsUpdatesRefused,
    Counter::DnsUpdatesOverLimit,
    Counter::DnsTransfersAborted,
    Counter::TsigBadKey,
    Counter::TsigBadSig,
    Counter::TsigBadTime,
    Counter::UdpReceiveErrors,
    Counter::UdpRepliesLost,
    Counter::AcceptErrors,
    Counter::CutOff,
    Counter::Panics,
];
/// Sites and zones in the short text.
const DOMAINS_SHOWN_MAX: usize = 20;

/// A list of names and values that JSON has as an object.
type Map<V> = BTreeMap<&'static str, V>;

/// The status for programs.
#[derive(Serialize)]
pub(crate) struct ProcessStatus<'d> {
    pid: u32,
    started_at_unix_s: u64,
    state: &'static str,
    /// The deviations from the configuration.
    problems: Vec<String>,
    reloads_in_place: u64,
    /// Secrets that the process could read, although it needs none.
    exposed_secrets: Vec<String>,
    /// The user that the process has switched to.
    user: Option<String>,
    sandbox: String,
    /// The selected variant of each kernel feature.
    features: Map<&'static str>,
    open_files: Map<u64>,
    /// Bytes that the buffers of all connections hold.
    connection_buffers_bytes: usize,
    access_log: Option<LogState>,
    query_log: Option<LogState>,
    dnstap: Option<LogState>,
    counters: Map<u64>,
    worker_count: usize,
    threads: Vec<Thread>,
    sites: Vec<Listed<'d, SiteState>>,
    zones: Vec<Listed<'d, ZoneState>>,
    zone_folder: Option<&'d FolderState>,
    certificates: Vec<Listed<'d, CertificateState>>,
    tsig_keys: Vec<Listed<'d, TsigKeyState>>,
    backend_servers: Vec<BackendServer>,
}

/// A server of an application with its condition.
#[derive(Serialize)]
struct BackendServer {
    #[serde(flatten)]
    server: BackendServerState,
    state: &'static str,
    /// Why it is down.
    reason: Option<String>,
    #[serde(skip)]
    is_good: bool,
}

/// A site, zone, certificate or TSIG key with its condition.
#[derive(Serialize)]
struct Listed<'d, T> {
    #[serde(flatten)]
    item: &'d T,
    /// The state in which it is served.
    state: &'static str,
    /// Why it is not served as the configuration says, if that is known, and the remedy.
    reason: Option<String>,
    #[serde(skip)]
    is_good: bool,
    /// The line of the text.
    #[serde(skip)]
    text: String,
}

impl<'d, T> Listed<'d, T> {
    fn new(item: &'d T, condition: impl Condition, reason: Option<&str>, text: String) -> Listed<'d, T> {
        let is_good = condition.is_good();
        let reason = reason.filter(|_| !is_good).map(str::to_owned);
        Listed { item, state: condition.name(), reason, is_good, text }
    }
}

/// The inputs of a status.
pub(crate) struct StatusParts<'d> {
    pub(crate) server: &'d Server,
    pub(crate) sandbox: &'d Sandbox,
    pub(crate) load_status: &'d LoadStatus,
    pub(crate) certificates: &'d [CertificateState],
    pub(crate) tsig_keys: &'d [TsigKeyState],
    pub(crate) service_state: &'d ServiceState<'d>,
    pub(crate) started_at: SystemTime,
    pub(crate) worker_count: usize,
    pub(crate) reload_count: u64,
    pub(crate) exposed_secrets: &'d [Diagnostic],
}

#[derive(Serialize)]
struct LogState {
    /// Lines that were not written.
    dropped: u64,
    /// The reason why the last lines were not written.
    error: Option<String>,
}

impl From<LogStatus> for LogState {
    fn from(LogStatus { dropped_count, error, .. }: LogStatus) -> LogState {
        LogState { dropped: dropped_count, error }
    }
}

#[derive(Serialize)]
struct Thread {
    name: String,
    /// The socket sets that it serves.
    socket_sets: Vec<usize>,
    accepted: u64,
    http_open: u64,
    dns_open: u64,
    iterations: u64,
    counters: Map<u64>,
    calls: Map<u64>,
}

impl<'d> ProcessStatus<'d> {
    pub(crate) fn new(parts: &StatusParts<'d>) -> ProcessStatus<'d> {
        let StatusParts { server, sandbox, load_status, certificates, tsig_keys, service_state, .. } = *parts;
        let status = server.status();
        let logs = LogKind::ALL.map(|kind| (kind, server.log_status(kind).map(LogState::from)));
        let failed_logs = logs.iter().filter(|(_, state)| state.as_ref().is_some_and(|state| state.error.is_some()));
        let failed_logs: Vec<LogKind> = failed_logs.map(|(kind, _)| *kind).collect();
        let [access_log, query_log, dnstap] = logs.map(|(_, state)| state);
        let counters = |count: &dyn Fn(Counter) -> u64| {
            Counter::ALL.iter().map(|&counter| (counter.name(), count(counter))).collect::<Map<u64>>()
        };
        let threads = status.threads.iter().map(|thread| Thread {
            name: thread.name.clone(),
            socket_sets: thread.socket_sets.clone(),
            accepted: thread.accepted_count(),
            http_open: thread.http_open_count(),
            dns_open: thread.dns_open_count(),
            iterations: thread.iteration_count,
            counters: counters(&|counter| thread.count(counter)),
            calls: thread.calls().map(|(call, count)| (call.name(), count)).collect(),
        });
        ProcessStatus {
            pid: std::process::id(),
            started_at_unix_s: parts.started_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            state: state_text(&status),
            problems: service_state.problems(load_status, certificates, tsig_keys, &failed_logs),
            reloads_in_place: parts.reload_count,
            exposed_secrets: parts.exposed_secrets.iter().map(ToString::to_string).collect(),
            user: sandbox.user.clone(),
            sandbox: sandbox.layers.to_string(),
            features: FEATURES.iter().map(|feature| (feature.name(), feature.selected_name())).collect(),
            open_files: Map::from([
                ("files", status.cache.file_count as u64),
                ("descriptors", status.cache.descriptor_count),
                ("content_bytes", status.cache.content_bytes),
                ("negative_entries", status.cache.negative_count as u64),
                ("folders_watched", status.cache.watched_directory_count as u64),
                ("evicted", status.cache.evicted_count),
            ]),
            connection_buffers_bytes: status.buffers_bytes,
            access_log,
            query_log,
            dnstap,
            counters: counters(&|counter| status.sum(counter)),
            worker_count: parts.worker_count,
            threads: threads.collect(),
            sites: load_status
                .sites
                .iter()
                .map(|site| Listed::new(site, service_state.site(site), site.problem.as_deref(), site_text(site)))
                .collect(),
            zones: load_status
                .zones
                .iter()
                .map(|zone| {
                    let text = zone_text(zone, service_state);
                    Listed::new(&**zone, service_state.zone(zone), service_state.zone_problem(zone), text)
                })
                .collect(),
            zone_folder: load_status.folder.as_ref(),
            certificates: certificates
                .iter()
                .map(|it| {
                    let reason = certificate_problem(it, service_state);
                    Listed::new(it, service_state.certificate(it), reason, certificate_text(it, service_state))
                })
                .collect(),
            tsig_keys: tsig_keys
                .iter()
                .map(|key| Listed::new(key, service_state.tsig_key(key), key.problem(), tsig_key_text(key)))
                .collect(),
            backend_servers: service_state
                .backend_servers()
                .iter()
                .map(|server| {
                    let condition = service_state.backend_server(server);
                    BackendServer {
                        server: BackendServerState::new(server),
                        state: condition.name(),
                        reason: server.down.clone(),
                        is_good: condition.is_good(),
                    }
                })
                .collect(),
        }
    }

    /// Whether everything is served as configured.
    pub(crate) fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("the keys of all maps are strings")
    }

    /// The status as text that fits on one screen.
    pub(crate) fn to_text(&self) -> String {
        self.summary_text() + &self.domains_text(DOMAINS_SHOWN_MAX)
    }

    /// The status with all threads, sites and zones.
    pub(crate) fn to_verbose_text(&self) -> String {
        self.summary_text() + &self.threads_text() + &self.domains_text(usize::MAX)
    }

    fn summary_text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: String| out += &text_line(name, &value);
        let is_in = |counters: &[Counter], name: &str| counters.iter().any(|counter| counter.name() == name);
        line("problems", if self.problems.is_empty() { "none".to_owned() } else { self.problems.join("; ") });
        line("requests", nonzero(&self.counters, |name| is_in(&REQUESTS, name)));
        line("errors", nonzero(&self.counters, |name| is_in(&ERRORS, name)));
        line("other counts", nonzero(&self.counters, |name| !is_in(&REQUESTS, name) && !is_in(&ERRORS, name)));
        line("state", self.state.to_owned());
        line("reloads", format!("{} without a new process", self.reloads_in_place));
        line("user", self.user.clone().unwrap_or_else(|| "unchanged".to_owned()));
        line("sandbox", self.sandbox.clone());
        self.exposed_secrets.iter().for_each(|secret| line("WARNING", secret.clone()));
        line("features", joined(self.features.iter().map(|(name, variant)| format!("{name}={variant}")), " "));
        let files = &self.open_files;
        line(
            "open files",
            format!(
                "{} files ({} descriptors, {} bytes in memory), {} negative entries, {} directories watched, {} evicted",
                files["files"],
                files["descriptors"],
                files["content_bytes"],
                files["negative_entries"],
                files["folders_watched"],
                files["evicted"]
            ),
        );
        line("buffers", format!("{} bytes", self.connection_buffers_bytes));
        let logs = [&self.access_log, &self.query_log, &self.dnstap];
        for (kind, state) in LogKind::ALL.into_iter().zip(logs) {
            if let Some(LogState { dropped, error }) = state {
                let error = error.as_ref().map_or(String::new(), |error| format!("; ERROR: {error}"));
                line(&kind.to_string(), format!("{dropped} {} dropped{error}", kind.records()));
            }
        }
        if let Some(FolderState { files, zone_count, problem, .. }) = self.zone_folder {
            let problem = problem.as_ref().map_or(String::new(), |problem| format!("; ERROR: {problem}"));
            line("zone folder", format!("{files}, {zone_count} zones{problem}"));
        }
        out
    }

    fn threads_text(&self) -> String {
        let line = |thread: &Thread| {
            let socket_sets = joined(thread.socket_sets.iter().map(ToString::to_string), " ");
            let value = format!(
                "socket sets {socket_sets}; accepted {}, open {} HTTP and {} DNS, iterations {}; calls: {}",
                thread.accepted,
                thread.http_open,
                thread.dns_open,
                thread.iterations,
                nonzero(&thread.calls, |_| true)
            );
            text_line(&thread.name, &value)
        };
        self.threads.iter().map(line).collect()
    }

    /// Problems first, so that thousands of domains do not hide them.
    fn domains_text(&self, count_max: usize) -> String {
        fn texts<'l, T>(listed: &'l [Listed<'_, T>], is_good: bool) -> impl Iterator<Item = &'l str> {
            listed.iter().filter(move |one| one.is_good == is_good).map(|one| one.text.as_str())
        }
        let server_text = |it: &BackendServer| text_line("backend", &it.server.text(it.reason.as_deref()));
        let servers: Vec<_> = self.backend_servers.iter().map(|it| (it.is_good, server_text(it))).collect();
        let of = |is_good| {
            let sites = texts(&self.sites, is_good);
            let (certificates, keys) = (texts(&self.certificates, is_good), texts(&self.tsig_keys, is_good));
            let servers = servers.iter().filter(move |(of_good, _)| *of_good == is_good).map(|(_, text)| text.as_str());
            sites.chain(servers).chain(certificates).chain(keys).chain(texts(&self.zones, is_good))
        };
        let mut lines = of(false).chain(of(true));
        let mut out = String::new();
        lines.by_ref().take(count_max).for_each(|line| out += line);
        match lines.count() {
            0 => out,
            more => out + &format!("  and {more} more; `sanderling status --verbose` lists all of them\n"),
        }
    }
}

fn text_line(name: &str, value: &str) -> String {
    format!("  {name:<13} {value}\n")
}

fn certificate_text(certificate: &CertificateState, service_state: &ServiceState<'_>) -> String {
    let version = match (&certificate.in_service, &certificate.problem) {
        (Some(version), _) => version.text(),
        (None, Some(_)) => "UNAVAILABLE".to_owned(),
        (None, None) => "not in service yet; see `sanderling certificates`".to_owned(),
    };
    let problem = certificate_problem(certificate, service_state);
    let problem = problem.map_or(String::new(), |problem| format!("; ERROR: {problem}"));
    let warnings: String = certificate.warnings.iter().map(|warning| format!("; {warning}")).collect();
    format!("  certificate   {}: {version}{problem}{warnings}\n", certificate.domain_text())
}

/// Why the certificate is not read, or not issued.
fn certificate_problem<'s>(certificate: &'s CertificateState, service_state: &ServiceState<'s>) -> Option<&'s str> {
    certificate.problem.as_deref().or(service_state.agent_problems().certificate(certificate.domain()))
}

fn tsig_key_text(key: &TsigKeyState) -> String {
    format!("  TSIG key      {}: {}\n", key.name, key.text())
}

fn site_text(site: &SiteState) -> String {
    let problem = site.problem.as_ref().map_or(String::new(), |problem| format!("; ERROR: {problem}"));
    let release = site.release.as_ref().map_or(String::new(), |ReleaseState { path, since, earlier_files }| {
        let since = since.map_or(String::new(), |since| format!(" since {}", date_text(since)));
        format!(", release {}{since}{}", path.display(), earlier_files_text(earlier_files))
    });
    let root = match &site.service {
        SiteService::Kept(path) => path.display().to_string(),
        SiteService::Current | SiteService::Unreadable | SiteService::Unavailable | SiteService::LeftOut => {
            site.root_text()
        }
    };
    format!("  site          {} from {root}{release}{problem}\n", site.hosts_text())
}

/// The files served from earlier releases; empty if there are none.
fn earlier_files_text(files: &EarlierFiles) -> String {
    const SHOWN_MAX: usize = 3;
    let (count, shown) = files.list(SHOWN_MAX);
    let files = match count {
        0 => return String::new(),
        1 => "file",
        _ => "files",
    };
    let more = if count > shown.len() { ", …" } else { "" };
    format!(", {count} {files} served from earlier releases: {}{more}", shown.join(", "))
}

pub(crate) fn zone_text(zone: &ZoneState, service_state: &ServiceState<'_>) -> String {
    let ZoneState { name, serial, record_count, loaded_at, .. } = zone;
    let condition = service_state.zone(zone);
    let of_problem = match zone.origin {
        ZoneOrigin::Operator if zone.problem.is_some() => "the file has errors",
        ZoneOrigin::Operator | ZoneOrigin::Signer => "the next version is not served",
        ZoneOrigin::Primaries | ZoneOrigin::Catalog => "it is not transferred",
        ZoneOrigin::ProducedCatalog => "it is not up to date",
    };
    let problem = service_state.zone_problem(zone);
    let with_problem = problem.map_or(String::new(), |problem| format!("; {of_problem}: {problem}"));
    let version = match (serial, loaded_at) {
        (Some(serial), Some(loaded_at)) => {
            let version = match problem {
                None => {
                    let age_s = loaded_at.elapsed().map_or(0, |age| age.as_secs());
                    format!("serial {serial}, {record_count} records, loaded {age_s} s ago")
                }
                Some(_) => format!("serving serial {serial} of {}", date_text(*loaded_at)),
            };
            version + &signatures_text(zone, condition) + &with_problem
        }
        _ if problem.is_some() => format!("UNAVAILABLE, queries get SERVFAIL{with_problem}"),
        _ => format!("UNAVAILABLE, queries get SERVFAIL: {}", not_served_reason(zone.origin)),
    };
    format!("  zone          {name}: {version}\n")
}

/// The reason why a zone has no version, although no problem is reported.
pub(crate) fn not_served_reason(origin: ZoneOrigin) -> &'static str {
    match origin {
        ZoneOrigin::Signer => "not signed yet",
        ZoneOrigin::ProducedCatalog => "not written yet",
        ZoneOrigin::Operator | ZoneOrigin::Primaries | ZoneOrigin::Catalog => "not transferred yet, or expired",
    }
}

/// The expiry of a zone's signatures, and its consequence.
fn signatures_text(zone: &ZoneState, condition: ZoneCondition) -> String {
    let date = zone.signatures_expire_at.map(date_text).unwrap_or_default();
    let remedy = match zone.origin {
        ZoneOrigin::Signer => "not re-signed; see `sanderling dnssec status`",
        _ => "sign it again",
    };
    match condition {
        ZoneCondition::Unsigned => ", WITHOUT SIGNATURES, although it should be signed".to_owned(),
        ZoneCondition::Expiring => format!("; WARNING: its signatures expire on {date}; {remedy}"),
        ZoneCondition::Bogus => format!("; ERROR: its signatures have expired on {date}; {remedy}"),
        _ if date.is_empty() => String::new(),
        _ => format!(", signed until {date}"),
    }
}

fn date_text(time: SystemTime) -> String {
    let date = HttpDate::from_unix_s(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
    String::from_utf8_lossy(date.as_bytes()).into_owned()
}

fn state_text(status: &Status) -> &'static str {
    match status.state {
        State::Serving => "serving",
        State::Draining(DrainMode::Replaced) => "draining, replaced by another process",
        State::Draining(DrainMode::Stopping) => "draining",
        State::Ended => "ended",
    }
}

fn joined(items: impl Iterator<Item = String>, separator: &str) -> String {
    items.collect::<Vec<_>>().join(separator)
}

/// `name count, name count` of the selected counts above zero.
fn nonzero(counts: &Map<u64>, is_selected: impl Fn(&str) -> bool) -> String {
    let nonzero = counts.iter().filter(|(name, count)| **count > 0 && is_selected(name));
    let nonzero = nonzero.map(|(name, count)| format!("{name} {count}"));
    Some(joined(nonzero, ", ")).filter(|text| !text.is_empty()).unwrap_or_else(|| "none".to_owned())
}
