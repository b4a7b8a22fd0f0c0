//! The command `demo`: serves a built-in domain on this machine, without a supervisor. A directory can take the
//! place of its site.

use crate::certificates::tls;
use crate::exposed_files::PrivateState;
use crate::loader::hash_seed;
use crate::options::options_of;
use crate::socket_sets::socket_sets;
use sanderling_config::Exit;
use sanderling_config::diagnostic::{Location, error_text};
use sanderling_config::log::{log, log_error, print, report};
use sanderling_config::{Config, ConfigSource, DomainName, Flags, Limits, SocketsPerAddress};
use sanderling_dns::{ZoneEntry, ZoneMap};
use sanderling_listeners::Listeners;
use sanderling_os::clock::unix_seconds;
use sanderling_os::directory::Directory;
use sanderling_os::signals::{SIGINT, SIGQUIT, SIGTERM, Signals};
use sanderling_server::{BuiltinFile, DrainMode, Root, Server, Site, SiteOptions, Sites, Snapshot, Tls};
use sanderling_tls::self_signed::localhost;
use sanderling_tls::{CertificateStore, TICKET_KEY_BYTES, TicketKeys};
use sanderling_zone_files as zone_files;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The built-in domain; names below `test` are not registered (RFC 6761 §6.2).
const APEX: &str = "sanderling.test";

const ZONE: &str = include_str!("../demo/demo.zone");

const SITE: &[BuiltinFile] = &[
    BuiltinFile { path: "index.html", bytes: include_bytes!("../demo/site/index.html") },
    BuiltinFile { path: "style.css", bytes: include_bytes!("../demo/site/style.css") },
    BuiltinFile { path: "sanderling.svg", bytes: include_bytes!("../demo/site/sanderling.svg") },
    BuiltinFile { path: "favicon.svg", bytes: include_bytes!("../demo/site/favicon.svg") },
    BuiltinFile { path: "robots.txt", bytes: include_bytes!("../demo/site/robots.txt") },
];

/// A short file of it.
const BUILTIN_PATH: &str = "robots.txt";

/// Time between two checks whether the server has stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Serves the built-in domain at these addresses until a signal stops it. Its site is the directory `site`, if there is
/// one.
pub fn serve_demo(http: SocketAddr, https: SocketAddr, dns: SocketAddr, site: Option<&Path>) -> Exit {
    let (root, path) = match site.map(|path| (path, Directory::open(path))) {
        None => (Root::Builtin(SITE), BUILTIN_PATH),
        Some((path, Ok(directory))) => {
            let (config, location) = (Config::default(), Location::Argument("--site".to_owned()));
            let states = PrivateState::all(&config, config.state_folder(None).as_deref());
            if let Err(problem) =
                states.iter().try_for_each(|state| state.check("site", path, directory.real_path(), &location))
            {
                report(&[problem]);
                return Exit::Failure;
            }
            (Root::Directory(Arc::new(directory)), "")
        }
        Some((path, Err(error))) => {
            log_error(&format!("cannot open the site `{}`: {}", path.display(), error_text(&error)));
            return Exit::Failure;
        }
    };
    let flags = Flags { http_listen: vec![http], https_listen: vec![https], dns_listen: vec![dns], ..Flags::default() };
    if let Err(diagnostics) = Config::from_flags(&flags) {
        report(&diagnostics);
        return Exit::BadConfiguration;
    }
    let config = Config {
        sockets_per_address: SocketsPerAddress::Exactly(1),
        http_listen: flags.http_listen,
        https_listen: flags.https_listen,
        dns_listen: flags.dns_listen,
        ..Config::default()
    };
    let listeners = match Listeners::bind(&config, &Listeners::default()) {
        Ok(listeners) => listeners,
        Err(error) => {
            log(&error.to_problem(&ConfigSource::Flags(Flags::default())).to_string());
            return Exit::Failure;
        }
    };
    match serve(&config.limits, &listeners, (root, path)) {
        Ok(()) => Exit::Success,
        Err(error) => {
            log_error(&format!("cannot serve: {}", error_text(&error)));
            Exit::Failure
        }
    }
}

/// Serves the site at `root`, where `path` is a short file to try.
fn serve(limits: &Limits, listeners: &Listeners, (root, path): (Root, &str)) -> io::Result<()> {
    let signals = Signals::register(&[SIGTERM, SIGINT, SIGQUIT])?;
    let announcement = listeners.announcement();
    let bound: Vec<SocketAddr> = listeners.addresses().iter().map(|address| address.bound).collect();
    let socket_sets = socket_sets(listeners);
    let snapshot = Snapshot { tls: Some(Arc::new(self_signed_tls()?)), ..snapshot(limits, root) };
    let server = Server::new(snapshot, options_of(limits), Duration::from_millis(limits.drain_timeout_ms));
    server.run(&socket_sets, 1, |server| {
        print(&format!("{announcement}\n{}", greeting(bound[0], bound[1], bound[2], path)));
        let stopped = wait_for_stop(server, &signals);
        server.drain(DrainMode::Stopping);
        // From now on, clients are refused instead of waiting for an answer.
        stopped.and(listeners.shut_down_except(&Listeners::default()))
    })?
}

fn snapshot(limits: &Limits, root: Root) -> Snapshot {
    let seed = hash_seed();
    let apex = DomainName::parse(APEX).expect("the built-in name is valid");
    let zone = zone_files::parse(&apex, "demo.zone", ZONE, limits, seed).expect("the built-in zone is valid");
    let zones = ZoneMap::new(seed, [ZoneEntry::Served(Arc::new(zone))]);
    let site = Site { id: 0, hosts: vec![APEX.to_owned()], root, options: SiteOptions::default() };
    Snapshot::new(Sites::new(vec![site], sanderling_server::DefaultSite::EveryHost(0)), zones)
}

/// A certificate for `localhost`, and ticket keys that end with the process.
fn self_signed_tls() -> io::Result<Tls> {
    let mut store = CertificateStore::new();
    store.add_default(&localhost(unix_seconds()).map_err(io::Error::other)?);
    let mut key = [0; TICKET_KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(tls(store, TicketKeys::new(&key, None), false))
}

fn wait_for_stop(server: &Server, signals: &Signals) -> io::Result<()> {
    while !server.is_draining() {
        if signals.wait(Some(CHECK_INTERVAL))?.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// The lines that `demo` prints, to be pasted into another terminal. They request the file at `path` of the site.
fn greeting(http: SocketAddr, https: SocketAddr, dns: SocketAddr, path: &str) -> String {
    let (http, https, dns) = (reachable(http), reachable(https), reachable(dns));
    let (server, port) = (dns.ip(), dns.port());
    format!(
        "Serving the built-in domain {APEX}. Open it in a browser:

  http://{http}/

or query it in another \
terminal:

  curl -i http://{http}/{path}
  curl --connect-to ::{http} http://{APEX}/{path}
  curl --insecure \
https://{https}/{path}
  dig @{server} -p {port} {APEX}
  dig @{server} -p {port} blog.{APEX}
  dig @{server} -p \
{port} anything.wild.{APEX} TXT
  dig @{server} -p {port} big.{APEX} TXT

Press Ctrl-C to stop. `sanderling serve \
FOLDER` serves your own files.
"
    )
}

/// An address to connect to: loopback for a listener on all addresses.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn greeting_has_reachable_addresses() {
        let text =
            greeting("[::]:80".parse().unwrap(), "[::1]:443".parse().unwrap(), "0.0.0.0:53".parse().unwrap(), "a.txt");
        assert!(text.contains("  http://[::1]:80/\n") && text.contains("curl -i http://[::1]:80/a.txt\n"), "{text}");
        assert!(text.contains("  dig @127.0.0.1 -p 53 sanderling.test\n"), "{text}");
    }

    #[test]
    fn all_files_of_the_site_are_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/site");
        let mut found: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut embedded: Vec<&str> = SITE.iter().map(|file| file.path).collect();
        found.sort();
        embedded.sort_unstable();
        assert_eq!(found, embedded);
    }

    /// The page must work on a machine without a network.
    #[test]
    fn references_of_the_page_are_files_of_the_site() {
        let page = str::from_utf8(SITE[0].bytes).unwrap();
        let references: Vec<&str> = ["href=\"", "src=\""]
            .iter()
            .flat_map(|start| page.split(start).skip(1))
            .map(|rest| rest.split('"').next().unwrap_or_default())
            .collect();
        assert!(references.len() >= 3, "{references:?}");
        for reference in references {
            let path = reference.strip_prefix('/').unwrap_or_else(|| panic!("{reference} leaves the site"));
            assert!(SITE.iter().any(|file| file.path == path), "{reference} is not a file of the site");
        }
    }
}
