//! Turns a checked configuration into a running server: binds, loads, serves, and ends when it is told to.

use crate::cli::Exit;
use crate::config::{Config, DefaultSite, DomainName, Limits, Origin};
use crate::demo;
use crate::diagnostic::{Diagnostic, Fault, Form, Place, report};
use crate::listeners;
use crate::zones;
use dns::{HashSeed, ZoneSet};
use os::directory::Directory;
use os::signals::{SIGINT, SIGQUIT, SIGTERM, Signals};
use server::{Content, DnsOptions, HttpOptions, OpenFilesOptions, Options, Root, Server, Site};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often the supervising thread looks whether the server has ended by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Serves what `origin` says until a signal ends it.
pub(crate) fn serve(origin: &Origin) -> Exit {
    let mut warnings = Vec::new();
    let loaded = origin.load().and_then(|config| Ok((content_of(&config, &mut warnings)?, config)));
    match loaded {
        Ok((content, config)) => {
            tell(&warnings);
            run(content, &config, announcement)
        }
        Err(diagnostics) => {
            tell(&diagnostics);
            Exit::BadConfiguration
        }
    }
}

/// Serves the built-in domain, out of the program itself.
pub(crate) fn serve_demo(http: SocketAddr, dns: SocketAddr) -> Exit {
    let config = Config {
        worker_count: 1,
        http_listen: vec![http],
        dns_listen: vec![dns],
        sites: Vec::new(),
        default_site: DefaultSite::EveryHost(0),
        zones: Vec::new(),
        limits: Limits::default(),
    };
    let seed = hash_seed();
    let apex = DomainName::parse(demo::APEX).expect("the demo's name is one");
    let zone = zones::parse(&apex, "demo.zone", demo::ZONE, &config.limits, seed).expect("the demo's zone is tested");
    let zones = ZoneSet::new(seed, vec![Arc::new(zone)]).expect("one zone has no double");
    let site = Site { id: 0, hosts: vec![demo::APEX.to_owned()], root: Root::Builtin(demo::SITE) };
    let content = Content::new(vec![site], server::DefaultSite::EveryHost(0), zones);
    run(content, &config, |http, dns| format!("{}\n{}", announcement(http, dns), demo::greeting(http[0], dns[0])))
}

/// Looks for everything that would keep `serve` from starting, and tells it; nothing is bound.
pub(crate) fn check(origin: &Origin) -> Exit {
    let mut warnings = Vec::new();
    let checked = origin.load().and_then(|config| {
        let content = content_of(&config, &mut warnings)?;
        Ok((config, content))
    });
    match checked {
        Err(mut diagnostics) => {
            diagnostics.append(&mut warnings);
            tell(&diagnostics);
            Exit::Failure
        }
        Ok((config, content)) => {
            tell(&warnings);
            say(&summary(&config, &content));
            Exit::Success
        }
    }
}

/// What a good configuration would serve, a line each.
fn summary(config: &Config, content: &Content) -> String {
    let mut text = String::new();
    for site in &config.sites {
        let hosts = site.hosts.iter().map(DomainName::as_str).collect::<Vec<_>>().join(", ");
        let hosts = if hosts.is_empty() { "every host".to_owned() } else { hosts };
        text.push_str(&format!("site {} for {hosts}\n", site.folder.display()));
    }
    for (zone, built) in config.zones.iter().zip(content.zones().zones()) {
        let (name, file) = (zone.apex.as_str(), zone.file.display());
        let (record_count, serial) = (built.record_count(), built.serial());
        text.push_str(&format!("zone {name} from {file}: {record_count} records, serial {serial}\n"));
    }
    text.push_str("no errors\n");
    text
}

/// Opens the sites and loads the zones.
///
/// # Errors
/// Everything that is wrong with any of them.
fn content_of(config: &Config, warnings: &mut Vec<Diagnostic>) -> Result<Content, Vec<Diagnostic>> {
    let mut errors = Vec::new();
    let mut sites = Vec::new();
    for (index, site) in config.sites.iter().enumerate() {
        match Directory::open(&site.folder) {
            Ok(folder) => sites.push(Site {
                id: index as u32,
                hosts: site.hosts.iter().map(|host| host.as_str().to_owned()).collect(),
                root: Root::Folder(folder),
            }),
            Err(error) => {
                let fault = Fault::new(error.to_string(), "check the folder's path and its permissions");
                errors.push(Diagnostic::error(Place::File(site.folder.clone()), fault));
            }
        }
    }
    let seed = hash_seed();
    let mut zones = Vec::new();
    for zone in &config.zones {
        match zones::load(zone, &config.limits, seed, warnings) {
            Ok(zone) => zones.push(Arc::new(zone)),
            Err(mut diagnostics) => errors.append(&mut diagnostics),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let zones = ZoneSet::new(seed, zones).expect("the configuration's reader refuses a zone that stands there twice");
    let zones = zones.with_alias_count_max(config.limits.dns_cname_chain_max);
    let default_site = match config.default_site {
        DefaultSite::None => server::DefaultSite::None,
        DefaultSite::Addresses(index) => server::DefaultSite::Addresses(index),
        DefaultSite::EveryHost(index) => server::DefaultSite::EveryHost(index),
    };
    Ok(Content::new(sites, default_site, zones))
}

/// Binds, serves, and drains when a signal comes.
fn run(content: Content, config: &Config, announce: impl FnOnce(&[SocketAddr], &[SocketAddr]) -> String) -> Exit {
    let signals = Signals::catch(&[SIGTERM, SIGINT, SIGQUIT]);
    let bound = listeners::bind(config.worker_count, &config.http_listen, &config.dns_listen);
    let (signals, bound) = match (signals, bound) {
        (Ok(signals), Ok(bound)) => (signals, bound),
        (Err(error), _) | (_, Err(error)) => return fail(&error),
    };
    let drain_timeout = Duration::from_millis(config.limits.drain_timeout_ms);
    let server = Server::new(content, options_of(&config.limits), drain_timeout);
    let result = server.run(&bound.siblings, |server| {
        say(&announce(&bound.http, &bound.dns));
        wait_for_end(server, &signals)
    });
    match result {
        Ok(Ok(())) => Exit::Success,
        Ok(Err(error)) | Err(error) => fail(&error),
    }
}

fn wait_for_end(server: &Server, signals: &Signals) -> io::Result<()> {
    while !server.is_draining() {
        if signals.wait(Some(LOOK_INTERVAL))?.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// One line for each listener, for people and scripts alike.
fn announcement(http: &[SocketAddr], dns: &[SocketAddr]) -> String {
    let http = http.iter().map(|address| format!("http {address}\n"));
    let dns = dns.iter().map(|address| format!("dns {address}\n"));
    http.chain(dns).collect()
}

fn options_of(limits: &Limits) -> Options {
    let ms = Duration::from_millis;
    Options {
        http: HttpOptions {
            request: sanderling_http::Limits {
                head_bytes_max: limits.http_head_bytes_max,
                field_count_max: limits.http_field_count_max,
                target_bytes_max: limits.http_target_bytes_max,
                content_bytes_max: limits.http_request_content_bytes_max,
            },
            connections_max: limits.http_connections_max,
            requests_per_connection_max: limits.http_requests_per_connection_max,
            header_deadline: ms(limits.http_header_deadline_ms),
            idle_timeout: ms(limits.http_idle_timeout_ms),
            send_timeout: ms(limits.http_send_timeout_ms),
        },
        dns: DnsOptions {
            udp_reply_bytes_max: limits.dns_udp_answer_bytes_max,
            tcp_connections_max: limits.dns_tcp_connections_max,
            tcp_idle_timeout: ms(limits.dns_tcp_idle_timeout_ms),
            tcp_queries_in_flight_max: limits.dns_tcp_queries_in_flight_max,
        },
        open_files: OpenFilesOptions::default(),
    }
}

/// A seed that nobody outside can foresee, from the keys that the standard library draws for its own hash tables.
fn hash_seed() -> HashSeed {
    HashSeed(RandomState::new().build_hasher().finish())
}

/// Writes to standard output. Nobody reading it is no reason to stop serving.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes diagnostics to standard error, in the form that suits it.
fn tell(diagnostics: &[Diagnostic]) {
    let err = io::stderr();
    let _ = report(diagnostics, Form::for_output(&err), &mut err.lock());
}

fn fail(error: &io::Error) -> Exit {
    let _ = writeln!(io::stderr(), "sanderling: {error}");
    Exit::Failure
}
