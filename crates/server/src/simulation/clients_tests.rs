//! Clients that make too many requests, and clients behind proxies.

use super::*;
use crate::http_clients::HttpClients;
use crate::metrics::Counter;
use crate::options::HttpOptions;
use crate::rate_limit_policy::{IpNetwork, RateLimitPolicy};
use crate::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, Sites};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_site_rules::ClientFrom;

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
