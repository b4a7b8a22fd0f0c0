//! Turns a checked configuration into a running server: binds, loads, serves, and ends when it is told to.

use crate::cli::Exit;
use crate::config::{Config, DefaultSite, DomainName, Limits, Origin};
use crate::demo;
use crate::diagnostic::{Diagnostic, Fault, Form, Place, report};
use crate::listeners;
use crate::zones;
use dns::{HashSeed, ZoneSet};
use os::directory::Directory;
use os::signals::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, Signals};
use server::{Content, DnsOptions, HttpOptions, OpenFilesOptions, Options, Root, Server, Siblings, Site};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often the supervising thread looks whether the server has ended by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Serves what `origin` says until a signal ends it. SIGHUP takes up what it says then.
pub(crate) fn serve(origin: &Origin) -> Exit {
    let mut warnings = Vec::new();
    let mut site_ids = SiteIds::default();
    let loaded = origin.load().and_then(|config| Ok((content_of(&config, &mut site_ids, &mut warnings)?, config)));
    match loaded {
        Ok((content, config)) => {
            tell(&warnings);
            let reload = |server: &Server| reload(server, origin, &config, &mut site_ids);
            run(content, &config, announcement, reload)
        }
        Err(diagnostics) => {
            tell(&diagnostics);
            Exit::BadConfiguration
        }
    }
}

/// Takes up what `origin` says now, if all of it is right: sites and zones are replaced, and every connection stays. What
/// needs other sockets or threads than `running` has is refused as a whole.
fn reload(server: &Server, origin: &Origin, running: &Config, site_ids: &mut SiteIds) {
    let mut warnings = Vec::new();
    let loaded = origin.load().and_then(|config| Ok((content_of(&config, site_ids, &mut warnings)?, config)));
    match loaded {
        Err(diagnostics) => {
            tell(&diagnostics);
            warn("the new configuration is refused as a whole; the old one goes on");
        }
        Ok((_, config)) if !config.can_be_taken_up_by(running) => {
            tell(&warnings);
            warn(
                "the new configuration has other listeners, workers or limits, which need a restart; the old one goes on",
            );
        }
        Ok((content, _)) => {
            tell(&warnings);
            server.replace_content(content);
            warn("the new configuration is being served; no connection was closed");
        }
    }
}

/// Numbers for the roots of sites: a folder that stays the same keeps its number, and what the open-file cache has of it
/// stays good.
#[derive(Debug, Default)]
struct SiteIds {
    known: Vec<RootIdentity>,
}

/// What tells one folder from another: where it is, and which it is.
type RootIdentity = (PathBuf, u64, u64);

impl SiteIds {
    fn id_of(&mut self, identity: RootIdentity) -> u32 {
        let index = self.known.iter().position(|known| *known == identity).unwrap_or_else(|| {
            self.known.push(identity);
            self.known.len() - 1
        });
        index as u32
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
    let announce = |http: &[SocketAddr], dns: &[SocketAddr]| {
        format!("{}\n{}", announcement(http, dns), demo::greeting(http[0], dns[0]))
    };
    run(content, &config, announce, |_| warn("the demo has nothing to reload"))
}

/// Looks for everything that would keep `serve` from starting, and tells it; nothing is bound.
pub(crate) fn check(origin: &Origin) -> Exit {
    let mut warnings = Vec::new();
    let checked = origin.load().and_then(|config| {
        let content = content_of(&config, &mut SiteIds::default(), &mut warnings)?;
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
fn content_of(
    config: &Config,
    site_ids: &mut SiteIds,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Content, Vec<Diagnostic>> {
    let mut errors = Vec::new();
    let mut sites = Vec::new();
    for site in &config.sites {
        match open_root(&site.folder) {
            Ok((folder, identity)) => sites.push(Site {
                id: site_ids.id_of(identity),
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

fn open_root(folder: &Path) -> io::Result<(Directory, RootIdentity)> {
    let root = Directory::open(folder)?;
    let facts = root.facts()?;
    let identity = (root.real_path().to_owned(), facts.device, facts.inode);
    Ok((root, identity))
}

/// Binds, serves, and drains when a signal comes; another one asks for a reload.
fn run(
    content: Content,
    config: &Config,
    announce: impl FnOnce(&[SocketAddr], &[SocketAddr]) -> String,
    mut reload: impl FnMut(&Server),
) -> Exit {
    let signals = Signals::catch(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP]);
    let bound = listeners::bind(config.worker_count, &config.http_listen, &config.dns_listen);
    let (signals, bound) = match (signals, bound) {
        (Ok(signals), Ok(bound)) => (signals, bound),
        (Err(error), _) | (_, Err(error)) => return fail(&error),
    };
    let drain_timeout = Duration::from_millis(config.limits.drain_timeout_ms);
    let mut options = options_of(&config.limits);
    bound_by_descriptors(&mut options);
    let server = Server::new(content, options, drain_timeout);
    let result = server.run(&bound.siblings, |server| {
        say(&announce(&bound.http, &bound.dns));
        let ended = wait_for_end(server, &signals, &mut reload);
        server.drain();
        // Who comes now is refused, rather than left waiting for nobody.
        ended.and(bound.siblings.iter().try_for_each(Siblings::shut_down))
    });
    match result {
        Ok(Ok(())) => Exit::Success,
        Ok(Err(error)) | Err(error) => fail(&error),
    }
}

fn wait_for_end(server: &Server, signals: &Signals, reload: &mut impl FnMut(&Server)) -> io::Result<()> {
    while !server.is_draining() {
        match signals.wait(Some(LOOK_INTERVAL))? {
            None => {}
            Some(SIGHUP) => reload(server),
            Some(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Lowers the numbers of connections and files to what this process may have descriptors for, and says so.
fn bound_by_descriptors(options: &mut Options) {
    let limit = match os::limits::raise_descriptor_limit() {
        Ok(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        Err(error) => return warn(&error.to_string()),
    };
    let wanted = [options.http.connections_max, options.dns.tcp_connections_max, options.open_files.files_max];
    let available = (limit - DESCRIPTORS_RESERVED.min(limit / 2)).max(wanted.len());
    let sum = wanted.iter().fold(0_usize, |sum, count| sum.saturating_add(*count));
    if sum <= available {
        return;
    }
    // Each gets its part, so that neither protocol takes what the other one needs.
    let part = |count: usize| ((count as u128 * available as u128 / sum as u128) as usize).max(1);
    options.http.connections_max = part(options.http.connections_max);
    options.dns.tcp_connections_max = part(options.dns.tcp_connections_max);
    options.open_files.files_max = part(options.open_files.files_max);
    warn(&format!(
        "this process may have {limit} descriptors: {} HTTP connections, {} DNS streams and {} open files are served at \
         most; raise its limit (ulimit -n, LimitNOFILE) for more",
        options.http.connections_max, options.dns.tcp_connections_max, options.open_files.files_max
    ));
}

/// Descriptors for everything else: listeners, pollers, folders, standard streams, and look-ups that are under way. Of a
/// low limit it is half.
const DESCRIPTORS_RESERVED: usize = 128;

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

/// Writes a line for the operator to standard error.
fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "sanderling: {text}");
}

fn fail(error: &io::Error) -> Exit {
    warn(&error.to_string());
    Exit::Failure
}
