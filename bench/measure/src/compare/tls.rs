//! The workloads over TLS 1.3: all servers with the same certificate and the same cipher.

use crate::compare::dns;
use crate::compare::http::{self, CONNECTION_COUNT, SMALL, Site};
use crate::compare::loads::{Load, dnsperf, h2load, handshakes, wrk};
use crate::compare::peers::{self, Certificate, Content, Peer};
use crate::compare::rounds::{Contestant, Outcome, Rounds};
use crate::compare::server::{Bench, Server};
use crate::compare::tls_client::{self, Client, Protocol, Tickets};
use crate::compare::zone::{APEX, Asked, CHANGED_NAME, write_queries, write_zone};
use anyhow::{Context, ensure};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const ZONE_NAME_COUNT: usize = 100_000;
const IDLE_COUNT: usize = 1000;
/// Connections of one client that shows whether a server always resumes sessions.
const RESUMED_COUNT: usize = 8;
/// The servers with DNS over TLS.
const DNS_PEERS: [&str; 3] = ["sanderling", "nsd", "bind"];
/// The settings of OpenSSL in the loads, and of the certificate.
const OPENSSL: &str = "openssl_conf = openssl
[openssl]
ssl_conf = ssl
[ssl]
system_default = system
[system]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
[req]
prompt = no
distinguished_name = name
x509_extensions = extensions
[name]
CN = example.com
[extensions]
subjectAltName = DNS:example.com
basicConstraints = critical,CA:FALSE
";

pub(crate) struct Report {
    pub(crate) settings: String,
    pub(crate) https: Vec<Outcome>,
    pub(crate) dns: Vec<Outcome>,
    /// Protocol, server, and bytes of a connection.
    pub(crate) idle: Vec<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Http1,
    /// A connection for each request.
    Handshake(Tickets),
    /// So many streams on each connection.
    Http2 {
        stream_count: usize,
    },
}

type Workload = http::Workload<Variant>;

const PLAIN: Workload = Workload {
    title: "512 B",
    variant: Variant::Http1,
    path: SMALL,
    content_bytes: 512,
    connection_count: CONNECTION_COUNT,
    is_quick: true,
};

const LARGE: Workload = Workload { title: "100 KiB", path: "/large/102400", content_bytes: 100 * 1024, ..PLAIN };

const WORKLOADS: &[Workload] = &[
    Workload { title: "full handshake", variant: Variant::Handshake(Tickets::Ignored), ..PLAIN },
    Workload { title: "resumed handshake", variant: Variant::Handshake(Tickets::Used), is_quick: false, ..PLAIN },
    PLAIN,
    LARGE,
    Workload {
        title: "HTTP/2, 1 KiB, 32 streams",
        variant: Variant::Http2 { stream_count: 32 },
        path: http::KIB,
        content_bytes: 1024,
        connection_count: 8,
        ..PLAIN
    },
    Workload {
        title: "HTTP/2, 1 KiB, 1 stream",
        variant: Variant::Http2 { stream_count: 1 },
        path: http::KIB,
        content_bytes: 1024,
        is_quick: false,
        ..PLAIN
    },
    Workload {
        title: "HTTP/2, 100 KiB, 8 streams",
        variant: Variant::Http2 { stream_count: 8 },
        connection_count: 8,
        is_quick: false,
        ..LARGE
    },
];

pub(crate) fn run(rounds: &mut Rounds) -> anyhow::Result<Report> {
    let folder = rounds.bench.folder.join("tls");
    let openssl = openssl_config(&folder)?;
    let bench = Bench { certificate: Some(certificate(&folder, &openssl)?), ..rounds.bench.clone() };
    let site = Site::create(&folder.join("site"), 0)?;
    let servers = http::start_servers(&bench, &site, "tls", 1)?;
    let settings = settings(&servers)?;
    println!("{settings}");
    let mut https = Vec::new();
    let is_quick = rounds.is_quick;
    for workload in WORKLOADS.iter().filter(|workload| !is_quick || workload.is_quick) {
        let load = |server: &Server| workload.load(server.tls_address()?, &openssl, rounds.length);
        let contestants = contestants(&servers, workload.title, load);
        https.push(rounds.compare(workload.title, &contestants, true));
    }
    drop(servers);
    let (dns, mut idle) = over_dns(rounds, &bench, &folder, &openssl)?;
    let content = Content::Site(site.root.clone());
    for (title, protocol) in [("HTTP/1.1", Protocol::Http1), ("HTTP/2", Protocol::Http2)] {
        idle.extend(idle_rows(&bench, &peers::HTTP[1..], &content, title, protocol, SMALL, http::answers)?);
    }
    Ok(Report { settings, https, dns: vec![dns], idle })
}

/// Writes the settings of OpenSSL into a new folder.
pub(crate) fn openssl_config(folder: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let file = folder.join("openssl.cnf");
    fs::write(&file, OPENSSL)?;
    Ok(file)
}

/// A key of P-256 with a certificate of its own.
pub(crate) fn certificate(folder: &Path, openssl: &Path) -> anyhow::Result<Certificate> {
    let (chain, key) = (folder.join("chain.pem"), folder.join("key.pem"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 30 -config";
    let files = [openssl.as_os_str(), "-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), chain.as_os_str()];
    let status = Command::new("openssl").args(words.split(' ')).args(files).stderr(Stdio::null()).status();
    ensure!(status.context("openssl")?.success(), "openssl made no certificate");
    Ok(Certificate { chain, key })
}

/// The cipher, and the groups of the key exchange that the servers select.
fn settings(servers: &[Server]) -> anyhow::Result<String> {
    let group_of = |server: &Server| {
        let client = Client::new(server.tls_address()?, Protocol::Http1, Tickets::Ignored)?;
        Ok(format!("{} {}", server.name, tls_client::group(&client.request(SMALL, 512)?)))
    };
    let groups: Vec<String> = servers.iter().map(group_of).collect::<anyhow::Result<_>>()?;
    Ok(format!(
        "TLS 1.3 with TLS_AES_128_GCM_SHA256 and a key of P-256. The client of the handshakes is rustls, which offers \
         X25519MLKEM768 and X25519; the servers select: {}.",
        groups.join(", ")
    ))
}

/// The loads of all servers that answer; the others are left out.
fn contestants<'s>(
    servers: &'s [Server],
    title: &str,
    load: impl Fn(&Server) -> anyhow::Result<Load>,
) -> Vec<Contestant<'s>> {
    let mut contestants = Vec::new();
    for server in servers {
        match load(server) {
            Ok(load) => contestants.push(Contestant { server, load }),
            Err(error) => println!("{title}: without {}: {error:#}", server.name),
        }
    }
    contestants
}

impl Workload {
    fn load(&self, server: SocketAddr, openssl: &Path, length: Duration) -> anyhow::Result<Load> {
        let (path, count) = (self.path, self.connection_count);
        let protocol = if matches!(self.variant, Variant::Http2 { .. }) { Protocol::Http2 } else { Protocol::Http1 };
        Client::new(server, protocol, Tickets::Ignored)?.request(path, self.content_bytes)?;
        Ok(match self.variant {
            Variant::Http1 => wrk(server, path, count, &[], length).over_tls(openssl),
            Variant::Handshake(Tickets::Used) => {
                let client = Client::new(server, protocol, Tickets::Used)?;
                // Some servers give no new ticket to a client that uses one, so that it has none after a while.
                for number in 0..RESUMED_COUNT {
                    let is_resumed = client.request_once(path, self.content_bytes)?;
                    ensure!(is_resumed == (number > 0), "sessions are not always resumed");
                }
                handshakes(server, path, self.content_bytes, Tickets::Used, length)?
            }
            Variant::Handshake(tickets) => handshakes(server, path, self.content_bytes, tickets, length)?,
            Variant::Http2 { stream_count } => {
                let streams = format!("-m{stream_count}");
                h2load(server, path, count, &[&streams, "--tls13-ciphers=TLS_AES_128_GCM_SHA256"], length)
                    .over_tls(openssl)
            }
        })
    }
}

fn over_dns(
    rounds: &mut Rounds,
    bench: &Bench,
    folder: &Path,
    openssl: &Path,
) -> anyhow::Result<(Outcome, Vec<Vec<String>>)> {
    let (zone, _) = write_zone(folder, ZONE_NAME_COUNT)?;
    let queries = write_queries(folder, Asked::Names, ZONE_NAME_COUNT, rounds.random.u64(..))?;
    let peers: Vec<Peer> = peers::DNS.iter().filter(|peer| DNS_PEERS.contains(&peer.name)).copied().collect();
    let content = Content::Zones(vec![zone]);
    let answers = |server| dns::answers(server, APEX);
    let servers = bench.start_all(&peers, "dot", 1, &content, answers)?;
    let load = |server: &Server| {
        let address = server.tls_address()?;
        Client::new(address, Protocol::Dns, Tickets::Ignored)?.request(CHANGED_NAME, 0)?;
        Ok(dnsperf(address, &queries.file, "dot", rounds.length).over_tls(openssl))
    };
    let contestants = contestants(&servers, "DNS over TLS", load);
    let outcome = rounds.compare("over TLS", &contestants, true);
    let idle = idle_rows(bench, &peers, &content, "DNS over TLS", Protocol::Dns, CHANGED_NAME, answers)?;
    Ok((outcome, idle))
}

/// The memory of idle connections after one response, for each server.
fn idle_rows(
    bench: &Bench,
    peers: &[Peer],
    content: &Content,
    title: &str,
    protocol: Protocol,
    path: &str,
    answers: impl Fn(SocketAddr) -> bool,
) -> anyhow::Result<Vec<Vec<String>>> {
    println!("idle connections: {title}");
    let mut rows = Vec::new();
    for peer in peers {
        let place = bench.place(&format!("idle-{protocol:?}-{}", peer.name), 1)?;
        let bytes = bench.start(peer, place, content, &answers).and_then(|server| {
            let client = Client::new(server.tls_address()?, protocol, Tickets::Ignored)?;
            // The first connection allocates what all of them share.
            drop(client.request(path, 512)?);
            let before_mib = server.memory_mib();
            let open = |_| client.request(path, 512);
            let connections: Vec<tls_client::Stream> = (0..IDLE_COUNT).map(open).collect::<anyhow::Result<_>>()?;
            let grown_mib = server.memory_mib() - before_mib;
            drop(connections);
            Ok(format!("{:.0}", grown_mib * 1024.0 * 1024.0 / IDLE_COUNT as f64))
        });
        let bytes = bytes.unwrap_or_else(|error| format!("{error:#}"));
        println!("  {} {bytes}", peer.name);
        rows.push(vec![title.to_owned(), peer.name.to_owned(), bytes]);
    }
    Ok(rows)
}
