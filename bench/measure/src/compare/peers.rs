//! The servers of the comparison, with settings that are as fair as possible.
//!
//! Fair means: one worker, no logs, persistent connections without limits, caches as large as allowed, deferred accepts
//! and minimal responses where the server offers them, and no rate limits. The settings are in the folder `peers`;
//! lines that begin with `#tls ` count for the comparison of TLS only, those with `#log ` for that of access logs, and
//! those with `#changes `, `#signed `, `#cookies ` and `#limits ` for the workloads with transfers and updates, with
//! zones that the server signs, with cookies, and with rate limits that are not reached; `#in-process ` for private
//! keys in the server process.

use crate::compare::zone::ZoneFile;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Open file descriptors of each server, and of each load generator.
pub(crate) const FDS_MAX: usize = 20_000;
/// Open connections of each server.
const CONNECTIONS_MAX: usize = 12_000;
/// Descriptors for anything else than connections and cached files.
const FDS_RESERVED: usize = 500;
/// The key of updates.
pub(crate) const SECRET: &str = "c2VjcmV0IG9mIHRoZSBjb21wYXJpc29uIDEyMzQ1Njc=";
/// The control socket of Sanderling, in the server's folder.
pub(crate) const CONTROL: &str = "control.sock";

#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// The configuration file in the server's folder, and its template.
    pub(crate) config: (&'static str, &'static str),
}

const SANDERLING: &[&str] = &["serve", "--config", "sanderling.toml", "--control", CONTROL];
const CADDY: &[&str] = &["run", "--config", "Caddyfile", "--adapter", "caddyfile"];

/// A peer: its name, program and arguments, its configuration file, and the template of that.
macro_rules! peer {
    ($name:literal, $program:literal, $arguments:expr, $config:literal, $template:literal) => {
        Peer {
            name: $name,
            program: $program,
            arguments: $arguments,
            config: ($config, include_str!(concat!("../../peers/", $template))),
        }
    };
}

/// The floor first and Sanderling second, then the others.
pub(crate) const HTTP: &[Peer] = &[
    Peer { name: "floor", program: "floor", arguments: &["http", "{ip}:{port}"], config: ("empty", "") },
    peer!("sanderling", "sanderling", SANDERLING, "sanderling.toml", "sanderling-http.toml"),
    peer!("nginx", "nginx", &["-p", "{folder}/", "-e", "stderr", "-c", "nginx.conf"], "nginx.conf", "nginx.conf"),
    peer!("h2o", "h2o", &["-c", "h2o.conf"], "h2o.conf", "h2o.conf"),
    peer!("lighttpd", "lighttpd", &["-D", "-f", "lighttpd.conf"], "lighttpd.conf", "lighttpd.conf"),
    peer!("caddy", "caddy", CADDY, "Caddyfile", "Caddyfile"),
];

/// In the same order.
pub(crate) const DNS: &[Peer] = &[
    Peer { name: "floor", program: "floor", arguments: &["dns", "{ip}:{port}"], config: ("empty", "") },
    peer!("sanderling", "sanderling", SANDERLING, "sanderling.toml", "sanderling-dns.toml"),
    peer!("nsd", "nsd", &["-d", "-c", "nsd.conf"], "nsd.conf", "nsd.conf"),
    peer!("knot", "knotd", &["-c", "knot.conf"], "knot.conf", "knot.conf"),
    peer!("bind", "named", &["-f", "-n", "{workers}", "-c", "named.conf"], "named.conf", "named.conf"),
];

#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A folder over HTTP.
    Site(PathBuf),
    /// Zones over DNS.
    Zones(Vec<ZoneFile>),
    /// The floor's response: the length of the content, the status, and `close`.
    Response(Vec<String>),
}

/// Files in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// Whether servers write an access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessLog {
    Off,
    On,
}

#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) address: SocketAddr,
    /// A second address, for TLS.
    pub(crate) tls: Option<(SocketAddr, Certificate)>,
    pub(crate) access_log: AccessLog,
    pub(crate) marks: &'static [&'static str],
    pub(crate) worker_count: usize,
}

impl Peer {
    pub(crate) fn config(&self, place: &Place, content: &Content) -> (&'static str, String) {
        let (name, template) = self.config;
        let template = fill(template, place);
        let (head, zone_template) = template.split_once("#zone\n").unwrap_or((&template, ""));
        let mut text = head.to_owned();
        match content {
            Content::Site(root) => text = text.replace("{site}", &root.display().to_string()),
            Content::Zones(zones) => text.extend(zones.iter().map(|zone| {
                zone_template.replace("{apex}", &zone.apex).replace("{file}", &zone.file.display().to_string())
            })),
            Content::Response(_) => {}
        }
        (name, text)
    }

    pub(crate) fn arguments(&self, place: &Place, content: &Content) -> Vec<String> {
        let arguments = self.arguments.iter().map(|argument| fill(argument, place));
        let response = if let Content::Response(words) = content { words.as_slice() } else { &[] };
        arguments.chain(response.iter().cloned()).collect()
    }
}

fn fill(template: &str, place: &Place) -> String {
    let worker_count = place.worker_count;
    let are_many = worker_count > 1;
    let cached_files_max = FDS_MAX - CONNECTIONS_MAX - FDS_RESERVED;
    let changes = |with: &str, without: &str| if place.marks.contains(&"changes") { with } else { without }.to_owned();
    let values = [
        ("{secret}", SECRET.to_owned()),
        ("{journal_content}", changes("changes", "none")),
        ("{transfer}", changes("any", "none")),
        ("{signing}", if place.marks.contains(&"signed") { "dnssec-policy default;" } else { "" }.to_owned()),
        ("{update}", changes("allow-update { key update; };", "")),
        ("{ip}", place.address.ip().to_string()),
        ("{port}", place.address.port().to_string()),
        ("{folder}", Path::display(&place.folder).to_string()),
        ("{workers}", worker_count.to_string()),
        ("{processes}", if are_many { worker_count } else { 0 }.to_string()),
        ("{reuseport}", if are_many { " reuseport" } else { "" }.to_owned()),
        ("{yes_no}", if are_many { "yes" } else { "no" }.to_owned()),
        ("{on_off}", if are_many { "on" } else { "off" }.to_owned()),
        ("{connections_max}", CONNECTIONS_MAX.to_string()),
        ("{cached_files_max}", cached_files_max.to_string()),
        ("{fds_max}", FDS_MAX.to_string()),
    ];
    let text = values.iter().fold(template.to_owned(), |text, (key, value)| text.replace(key, value));
    let text = if place.access_log == AccessLog::On { text.replace("#log ", "") } else { text };
    let text = place.marks.iter().fold(text, |text, mark| text.replace(&format!("#{mark} "), ""));
    let Some((address, Certificate { chain, key })) = &place.tls else { return text };
    let text = text.replace("#tls ", "").replace("{tls_port}", &address.port().to_string());
    text.replace("{chain}", &chain.display().to_string()).replace("{key}", &key.display().to_string())
}
