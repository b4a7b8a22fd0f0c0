//! Clients that make too many requests, and clients behind proxies.

use super::*;
use crate::limits::http_clients::HttpClients;
use crate::limits::rate_limit_policy::{IpNetwork, RateLimitPolicy};
use crate::metrics::Counter;
use crate::options::HttpOptions;
use crate::site::protection::{AccessRule, ProtectionRules};
use crate::site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, SiteRules, Sites};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_site_rules::{ClientFrom, FileOptions, Pattern};

const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: b"content" }];
const GET: &str = "GET /file HTTP/1.1\r\nHost: example\r\n\r\n";
const ITERATIONS_MAX: usize = 1_000;

/// Three requests at once, and one each second.
fn options() -> Options {
    let http = HttpOptions { requests_per_second_max: 1, requests_at_once_max: 3, ..HttpOptions::default() };
    Options { http, ..Options::default() }
}

fn with_clients(http_clients: HttpClients, options: Options, act: impl FnOnce(&mut Simulation<'_>)) {
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Builtin(FILES), options: SiteOptions::default() };
    let mut snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []));
    snapshot.http_clients = Arc::new(http_clients);
    simulate(snapshot, options, act);
}

fn network(text: &str, prefix_bits: u8) -> IpNetwork {
    IpNetwork::new(address(text), prefix_bits)
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The statuses in what the client has received.
fn statuses(simulation: &mut Simulation<'_>, client: usize) -> Vec<String> {
    simulation.run(ITERATIONS_MAX);
    let received = String::from_utf8_lossy(&simulation.take_received(client)).into_owned();
    received.split("HTTP/1.1 ").skip(1).map(|response| response[..3].to_owned()).collect()
}

#[test]
fn client_with_too_many_requests_gets_429_and_the_time_to_wait() {
    with_clients(HttpClients::default(), options(), |simulation| {
        let client = simulation.connect(Protocol::Http, GET.repeat(5).as_bytes(), usize::MAX).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        let received = String::from_utf8_lossy(&simulation.take_received(client)).into_owned();
        assert_eq!(received.matches("HTTP/1.1 200 OK").count(), 3, "{received}");
        assert_eq!(received.matches("HTTP/1.1 429 Too Many Requests").count(), 2, "{received}");
        assert_eq!(received.matches("\r\nRetry-After: 1\r\n").count(), 2, "{received}");
        assert!(simulation.is_open(client));
        assert_eq!(simulation.count(Counter::HttpOverRate), 2);
        let other = simulation.connect_from(address("192.0.2.2"), Protocol::Http, GET.as_bytes(), usize::MAX);
        assert_eq!(statuses(simulation, other.expect("accepted")), ["200"]);
        simulation.advance(Duration::from_secs(1));
        simulation.send(client, GET.repeat(2).as_bytes());
        assert_eq!(statuses(simulation, client), ["200", "429"]);
    });
}

#[test]
fn exempt_clients_and_dry_runs_are_answered() {
    let exempt = RateLimitPolicy { exempt: vec![network("192.0.2.0", 24)], is_dry_run: false };
    for (rate_limit, counted) in [(exempt, 0), (RateLimitPolicy { exempt: Vec::new(), is_dry_run: true }, 2)] {
        with_clients(HttpClients { rate_limit, ..HttpClients::default() }, options(), |simulation| {
            let client = simulation.connect(Protocol::Http, GET.repeat(5).as_bytes(), usize::MAX).expect("accepted");
            assert_eq!(statuses(simulation, client), ["200"; 5]);
            assert_eq!(simulation.count(Counter::HttpOverRate), counted);
        });
    }
}

#[test]
fn requests_over_http2_are_counted_too() {
    let http = HttpOptions { accepts_http2: true, ..options().http };
    with_clients(HttpClients::default(), Options { http, ..options() }, |simulation| {
        let request = |stream: u8| [&[0, 0, 12, 1, 5, 0, 0, 0, stream][..], b"\x82\x86\x41\x01a\x04\x05/file"].concat();
        let requests = [1, 3, 5, 7].map(request).concat();
        let bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], &requests].concat();
        simulation.connect(Protocol::Http, &bytes, usize::MAX).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.count(Counter::Http2Requests), 4);
        assert_eq!(simulation.count(Counter::HttpOverRate), 1);
    });
}

#[test]
fn clients_that_a_trusted_proxy_names_have_budgets_of_their_own() {
    let http_clients = HttpClients {
        trusted_proxies: vec![network("192.0.2.0", 24)],
        client_from: Some(ClientFrom::XForwardedFor),
        ..HttpClients::default()
    };
    with_clients(http_clients, options(), |simulation| {
        let get = |client: &str| GET.replace("\r\n\r\n", &format!("\r\nX-Forwarded-For: 6.6.6.6, {client}\r\n\r\n"));
        let requests = [get("198.51.100.1").repeat(4), get("198.51.100.2").repeat(3)].concat();
        let proxy = simulation.connect(Protocol::Http, requests.as_bytes(), usize::MAX).expect("accepted");
        assert_eq!(statuses(simulation, proxy), ["200", "200", "200", "429", "200", "200", "200"]);
        // The field of a client that is no proxy means nothing.
        let requests: Vec<String> = (1..=4).map(|number| get(&format!("203.0.113.{number}"))).collect();
        let client = address("198.51.100.9");
        let client = simulation.connect_from(client, Protocol::Http, requests.concat().as_bytes(), usize::MAX);
        assert_eq!(statuses(simulation, client.expect("accepted")), ["200", "200", "200", "429"]);
    });
}

#[test]
fn proxy_header_names_the_client_of_a_connection() {
    with_clients(HttpClients::default(), options(), |simulation| {
        let header = |client: &str| format!("PROXY TCP4 {client} 192.0.2.9 4000 80\r\n");
        let first =
            simulation.connect_proxy(CLIENT, (header("198.51.100.1") + &GET.repeat(3)).as_bytes()).expect("accepted");
        assert_eq!(statuses(simulation, first), ["200"; 3]);
        let again = simulation.connect_proxy(CLIENT, (header("198.51.100.1") + GET).as_bytes()).expect("accepted");
        assert_eq!(statuses(simulation, again), ["429"]);
        let other = simulation.connect_proxy(CLIENT, (header("198.51.100.2") + GET).as_bytes()).expect("accepted");
        assert_eq!(statuses(simulation, other), ["200"]);
    });
}

#[test]
fn proxy_header_may_arrive_in_pieces() {
    with_clients(HttpClients::default(), Options::default(), |simulation| {
        let client = simulation.connect_proxy(CLIENT, b"").expect("accepted");
        for byte in b"PROXY TCP4 198.51.100.1 192.0.2.9 4000 80\r\n" {
            simulation.send(client, &[*byte]);
            simulation.run(ITERATIONS_MAX);
        }
        simulation.send(client, GET.as_bytes());
        assert_eq!(statuses(simulation, client), ["200"]);
    });
}

#[test]
fn connection_of_a_proxy_without_its_header_is_closed() {
    with_clients(HttpClients::default(), Options::default(), |simulation| {
        let client = simulation.connect_proxy(CLIENT, GET.as_bytes()).expect("counted");
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(client) && simulation.take_received(client).is_empty());
        let silent = simulation.connect_proxy(CLIENT, b"PROXY ").expect("accepted");
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.is_open(silent));
        simulation.advance(HttpOptions::default().request_timeout);
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(silent));
        let closing = simulation.connect_proxy(CLIENT, b"PROXY ").expect("accepted");
        simulation.close(closing);
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(closing));
        assert_eq!(simulation.count(Counter::ProxyHeadersRefused), 2);
    });
}

/// Clients of one proxy do not share its connections.
#[test]
fn connections_behind_a_proxy_count_for_the_client() {
    let http = HttpOptions { connections_per_client_max: 1, ..HttpOptions::default() };
    with_clients(HttpClients::default(), Options { http, ..Options::default() }, |simulation| {
        let header = |client: &str| format!("PROXY TCP4 {client} 192.0.2.9 4000 80\r\n{GET}");
        for (client, expected) in [("198.51.100.1", true), ("198.51.100.2", true), ("198.51.100.2", false)] {
            let connection = simulation.connect_proxy(CLIENT, header(client).as_bytes()).expect("accepted");
            simulation.run(ITERATIONS_MAX);
            assert_eq!(simulation.is_open(connection), expected, "{client}");
        }
    });
}

/// A PROXY header of version 2 that names this client of IPv6 and port 4000, with so many bytes after the addresses.
fn binary_header(client: &str, more_bytes: usize) -> Vec<u8> {
    let IpAddr::V6(client) = address(client) else { panic!("{client} is not of IPv6") };
    let length = (36 + more_bytes as u16).to_be_bytes();
    let start = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x21"[..], &length, &client.octets(), &[0; 16], &[15, 160, 0, 80]].concat();
    [start, vec![7; more_bytes]].concat()
}

#[test]
fn long_proxy_header_is_skipped_as_it_arrives() {
    with_clients(HttpClients::default(), options(), |simulation| {
        for more_bytes in [0, 1_996, 2_048, 20_000, 65_535 - 36] {
            for piece_bytes in [1_000, 65_551 + GET.len()] {
                let client = simulation.connect_proxy(CLIENT, b"").expect("accepted");
                let client_of_header = format!("2001:db8:{more_bytes:x}:{:x}::1", piece_bytes % 0xffff);
                let bytes = [&binary_header(&client_of_header, more_bytes)[..], GET.repeat(4).as_bytes()].concat();
                for piece in bytes.chunks(piece_bytes) {
                    simulation.send(client, piece);
                    simulation.run(ITERATIONS_MAX);
                    assert!(simulation.held_bytes() < 20_000, "{}", simulation.held_bytes());
                }
                let statuses = statuses(simulation, client);
                assert_eq!(statuses, ["200", "200", "200", "429"], "{more_bytes} {piece_bytes}");
            }
        }
        assert_eq!(simulation.count(Counter::ProxyHeadersRefused), 0);
        // The rest of a header does not arrive.
        let client = simulation.connect_proxy(CLIENT, &binary_header("::1", 5_000)[..3_000]).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.is_open(client));
        simulation.advance(HttpOptions::default().request_timeout);
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(client));
    });
}

/// How a proxy names a client.
#[derive(Clone, Copy, Debug)]
enum Naming {
    XForwardedFor,
    Forwarded,
    Line,
    Binary,
}

/// What clients get whose addresses a proxy gives as they are, or as IPv4-mapped ones.
fn responses(naming: Naming, clients: &[Ipv4Addr], is_mapped: bool) -> Vec<String> {
    let client_from = match naming {
        Naming::XForwardedFor => ClientFrom::XForwardedFor,
        Naming::Forwarded => ClientFrom::Forwarded,
        Naming::Line | Naming::Binary => ClientFrom::ProxyProtocol,
    };
    let rate_limit = RateLimitPolicy { exempt: vec![network("203.0.113.8", 29)], is_dry_run: false };
    let trusted_proxies = vec![network("192.0.2.0", 24), network("203.0.113.16", 30)];
    let http_clients = HttpClients { trusted_proxies, client_from: Some(client_from), rate_limit };
    let access = |path: &str, allow: &[(&str, u8)], deny: &[(&str, u8)]| {
        let networks = |texts: &[(&str, u8)]| texts.iter().map(|&(text, bits)| network(text, bits)).collect();
        let allow = Some(networks(allow)).filter(|_| !allow.is_empty());
        (Pattern::parse(path, &[]).expect("a pattern"), AccessRule { allow, deny: networks(deny) })
    };
    let rules = vec![
        // A rule may have a mapped network too.
        access("/allowed", &[("203.0.113.0", 27), ("::ffff:203.0.113.64", 122)], &[]),
        access("/denied", &[], &[("203.0.113.0", 28)]),
    ];
    let protection = ProtectionRules::new(rules, Vec::new(), &FileOptions::default());
    let rules = SiteRules { protection, ..SiteRules::default() };
    let options_of_site = SiteOptions { rules: Some(Box::new(rules)), ..SiteOptions::default() };
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Builtin(FILES), options: options_of_site };
    let mut snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []));
    snapshot.http_clients = Arc::new(http_clients);
    let http = HttpOptions { connections_per_client_max: 2, ..options().http };
    let mut responses = Vec::new();
    simulate(snapshot, Options { http, ..options() }, |simulation| {
        for (index, client) in clients.iter().enumerate() {
            let path = ["/file", "/allowed", "/denied"][index % 3];
            let name = if is_mapped { format!("::ffff:{client}") } else { client.to_string() };
            let field = match (naming, is_mapped) {
                (Naming::XForwardedFor, _) => format!("X-Forwarded-For: 6.6.6.6, {name}\r\n"),
                (Naming::Forwarded, true) => format!("Forwarded: for=6.6.6.6, for=\"[{name}]:4000\"\r\n"),
                (Naming::Forwarded, false) => format!("Forwarded: for=6.6.6.6, for={name}\r\n"),
                _ => String::new(),
            };
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n");
            let family = if is_mapped { "TCP6" } else { "TCP4" };
            let other = if is_mapped { "::1" } else { "127.0.0.1" };
            let header = match (naming, is_mapped) {
                (Naming::Binary, true) => binary_header(&name, 0),
                (Naming::Line | Naming::Binary, _) => format!("PROXY {family} {name} {other} 4000 80\r\n").into_bytes(),
                _ => Vec::new(),
            };
            let bytes = [header, request.into_bytes()].concat();
            let connection = match naming {
                Naming::Line | Naming::Binary => simulation.connect_proxy(CLIENT, &bytes),
                // Each is another one of the proxies.
                _ => {
                    let proxy = Ipv4Addr::new(192, 0, 2, index as u8);
                    simulation.connect_from(proxy.into(), Protocol::Http, &bytes, usize::MAX)
                }
            };
            let Some(connection) = connection else {
                responses.push("refused".to_owned());
                continue;
            };
            simulation.run(ITERATIONS_MAX);
            let received = String::from_utf8_lossy(&simulation.take_received(connection)).into_owned();
            responses.push(format!("{} {received}", simulation.is_open(connection)));
        }
    });
    responses
}

#[test]
fn mapped_and_plain_addresses_behave_alike() {
    let seed = sanderling_testkit::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut seen = String::new();
    for _ in 0..20 {
        // So few that many of them come several times.
        let clients: Vec<Ipv4Addr> = (0..60).map(|_| Ipv4Addr::new(203, 0, 113, random.u8(..12) * 8 + 1)).collect();
        for naming in [Naming::XForwardedFor, Naming::Forwarded, Naming::Line, Naming::Binary] {
            let plain = responses(naming, &clients, false);
            assert_eq!(responses(naming, &clients, true), plain, "seed {seed}: {naming:?} {clients:?}");
            seen.push_str(&plain.concat());
        }
    }
    for status in [" 200 ", " 403 ", " 429 "] {
        assert!(seen.contains(status), "seed {seed}: no response with status{status}");
    }
}
