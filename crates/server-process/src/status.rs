//! The status of a server process, as text for people and as JSON for programs.

use crate::certificate_state::CertificateState;
use crate::load_status::{FolderState, LoadStatus, ReleaseState, SiteService, SiteState, ZoneState};
use crate::sandbox::Sandbox;
use sanderling_config::{LogKind, ZoneOrigin};
use sanderling_http::HttpDate;
use sanderling_os::features::FEATURES;
use sanderling_server::{Counter, DrainMode, EarlierFiles, LogStatus, Server, State, Status};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The counters of the first line of the text.
const REQUESTS: [Counter; 3] = [Counter::HttpRequests, Counter::DnsUdpQueries, Counter::DnsTcpQueries];
/// The counters of the second line.
const ERRORS: [Counter; 36] = [
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
    reloads_in_place: u64,
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
    sites: &'d [SiteState],
    zones: &'d [Arc<ZoneState>],
    zone_folder: Option<&'d FolderState>,
    certificates: &'d [CertificateState],
}

#[derive(Serialize)]
struct LogState {
    /// Lines that were not written.
    dropped: u64,
    /// Why the last ones were not.
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
    pub(crate) fn new(
        server: &Server,
        sandbox: &Sandbox,
        load_status: &'d LoadStatus,
        certificates: &'d [CertificateState],
        started_at: SystemTime,
        worker_count: usize,
    ) -> ProcessStatus<'d> {
        let status = server.status();
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
            started_at_unix_s: started_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            state: state_text(&status),
            reloads_in_place: status.snapshot_version,
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
            access_log: server.log_status(LogKind::Access).map(LogState::from),
            query_log: server.log_status(LogKind::Queries).map(LogState::from),
            dnstap: server.log_status(LogKind::Dnstap).map(LogState::from),
            counters: counters(&|counter| status.sum(counter)),
            worker_count,
            threads: threads.collect(),
            sites: &load_status.sites,
            zones: &load_status.zones,
            zone_folder: load_status.folder.as_ref(),
            certificates,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("the keys of all maps are strings")
    }

    /// One screen.
    pub(crate) fn to_text(&self) -> String {
        self.summary_text() + &self.domains_text(DOMAINS_SHOWN_MAX)
    }

    /// With all threads, sites and zones.
    pub(crate) fn to_verbose_text(&self) -> String {
        self.summary_text() + &self.threads_text() + &self.domains_text(usize::MAX)
    }

    fn summary_text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: String| out += &text_line(name, &value);
        let is_in = |counters: &[Counter], name: &str| counters.iter().any(|counter| counter.name() == name);
        line("requests", nonzero(&self.counters, |name| is_in(&REQUESTS, name)));
        line("errors", nonzero(&self.counters, |name| is_in(&ERRORS, name)));
        line("other counts", nonzero(&self.counters, |name| !is_in(&REQUESTS, name) && !is_in(&ERRORS, name)));
        line("state", self.state.to_owned());
        line("reloads", format!("{} without a new process", self.reloads_in_place));
        line("user", self.user.clone().unwrap_or_else(|| "unchanged".to_owned()));
        line("sandbox", self.sandbox.clone());
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
        let (bad_sites, good_sites): (Vec<_>, Vec<_>) = self.sites.iter().partition(|site| site.problem.is_some());
        let (bad_zones, good_zones): (Vec<_>, Vec<_>) =
            self.zones.iter().map(Arc::as_ref).partition(|zone: &&ZoneState| zone.problem.is_some());
        let (bad_certificates, good_certificates): (Vec<_>, Vec<_>) =
            self.certificates.iter().partition(|certificate| certificate.needs_attention());
        let texts = |sites: Vec<_>, certificates: Vec<_>, zones: Vec<_>| {
            let sites = sites.into_iter().map(site_text);
            sites.chain(certificates.into_iter().map(certificate_text)).chain(zones.into_iter().map(zone_text))
        };
        let mut lines = texts(bad_sites, bad_certificates, bad_zones);
        let mut rest = texts(good_sites, good_certificates, good_zones);
        let mut out = String::new();
        lines.by_ref().chain(rest.by_ref()).take(count_max).for_each(|line| out += &line);
        match lines.count() + rest.count() {
            0 => out,
            more => out + &format!("  and {more} more; `sanderling status --verbose` lists all of them\n"),
        }
    }
}

fn text_line(name: &str, value: &str) -> String {
    format!("  {name:<13} {value}\n")
}

fn certificate_text(certificate: &CertificateState) -> String {
    let version = match (&certificate.in_service, &certificate.problem) {
        (Some(version), _) => version.text(),
        (None, Some(_)) => "UNAVAILABLE".to_owned(),
        (None, None) => "none in service yet; see `sanderling certificates`".to_owned(),
    };
    let problem = certificate.problem.as_ref().map_or(String::new(), |problem| format!("; ERROR: {problem}"));
    let warnings: String = certificate.warnings.iter().map(|warning| format!("; {warning}")).collect();
    format!("  certificate   {}: {version}{problem}{warnings}\n", certificate.domain_text())
}

fn site_text(site: &SiteState) -> String {
    let problem = site.problem.as_ref().map_or(String::new(), |problem| format!("; ERROR: {problem}"));
    let release = site.release.as_ref().map_or(String::new(), |ReleaseState { path, since, earlier_files }| {
        let since = since.map_or(String::new(), |since| format!(" since {}", date_text(since)));
        format!(", release {}{since}{}", path.display(), earlier_files_text(earlier_files))
    });
    let root = match &site.service {
        SiteService::Kept(path) => path,
        SiteService::Current | SiteService::Unreadable | SiteService::Unavailable | SiteService::LeftOut => {
            &site.document_root
        }
    };
    format!("  site          {} from {}{release}{problem}\n", site.hosts_text(), root.display())
}

/// What was served from earlier releases; nothing if nothing was.
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

/// A zone is to be signed again when its signatures expire within this time.
const SIGNATURE_WARNING: Duration = Duration::from_secs(3 * 24 * 3600);

fn zone_text(zone: &ZoneState) -> String {
    let ZoneState { name, serial, record_count, loaded_at, problem, .. } = zone;
    let of_problem = match zone.origin {
        ZoneOrigin::Signer => "the next version is not served",
        ZoneOrigin::Operator | ZoneOrigin::Primaries | ZoneOrigin::Catalog => "the file has errors",
    };
    let version = match (serial, loaded_at, problem) {
        (Some(serial), Some(loaded_at), None) => {
            let age_s = loaded_at.elapsed().map_or(0, |age| age.as_secs());
            format!("serial {serial}, {record_count} records, loaded {age_s} s ago{}", signatures_text(zone))
        }
        (Some(serial), Some(loaded_at), Some(problem)) => {
            let date = date_text(*loaded_at);
            format!("serving serial {serial} of {date}; {of_problem}: {problem}")
        }
        (.., Some(problem)) => format!("UNAVAILABLE, answered with SERVFAIL; {of_problem}: {problem}"),
        (.., None) if zone.origin == ZoneOrigin::Signer => {
            "UNAVAILABLE, answered with SERVFAIL: not signed yet".to_owned()
        }
        (.., None) => "UNAVAILABLE, answered with SERVFAIL: not transferred yet, or expired".to_owned(),
    };
    format!("  zone          {name}: {version}\n")
}

/// Until when the signatures of a zone are valid, and what that means.
fn signatures_text(zone: &ZoneState) -> String {
    let Some(expire_at) = zone.signatures_expire_at else { return String::new() };
    let date = date_text(expire_at);
    match expire_at.duration_since(SystemTime::now()) {
        Ok(left) if left > SIGNATURE_WARNING => format!(", signed until {date}"),
        Ok(_) => format!("; WARNING: its signatures expire on {date}; sign it again"),
        Err(_) => format!("; ERROR: its signatures have expired on {date}; sign it again"),
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
