//! Redirects to HTTPS, fields of responses over HTTPS, and requests for hosts that a connection is not for.

use super::tls_tests::{Configs, TlsClient, localhost_certificate};
use super::*;
use crate::limits::http_clients::HttpClients;
use crate::limits::rate_limit_policy::IpNetwork;
use crate::site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, SiteRules, Sites};
use crate::snapshot::Tls;
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_site_rules::ClientFrom;
use sanderling_testkit::{TestDirectory, run_program};
use sanderling_tls::{Certificate, CertificateStore};
use std::fs;

const UNLIMITED: usize = usize::MAX;
const ITERATIONS_MAX: usize = 1_000;
const FIELD_LINE: &str = "Strict-Transport-Security: max-age=60\r\n";
const FILES: &[BuiltinFile] = &[
    BuiltinFile { path: "file", bytes: b"a file" },
    BuiltinFile { path: "folder/index.html", bytes: b"a page" },
    BuiltinFile { path: ".well-known/acme-challenge/token", bytes: b"a token" },
];

/// `example.com`, `a.wild.example` and `uncovered.example` with rules, and `plain.example` without.
fn snapshot(configs: &Configs) -> Snapshot {
    let rules = SiteRules {
        redirects_to_https: true,
        https_field_lines: FIELD_LINE.to_owned(),
        doh_path: Some("/dns-query".to_owned()),
        ..SiteRules::default()
    };
    let site = |id, hosts: &[&str], rules| Site {
        id,
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        root: Root::Builtin(FILES),
        options: SiteOptions { rules, ..SiteOptions::default() },
    };
    let sites = vec![
        site(0, &["example.com", "a.wild.example", "uncovered.example"], Some(Box::new(rules))),
        site(1, &["plain.example"], None),
    ];
    let sites = Sites::new(sites, DefaultSite::Addresses(0));
    let tls = Tls { https: configs.server.clone(), dot: configs.server.clone() };
    Snapshot { tls: Some(Arc::new(tls)), ..Snapshot::new(sites, ZoneMap::new(HashSeed(1), [])) }
}

/// A certificate for `example.com` and `*.wild.example`, and that for `localhost` for other names.
fn configs() -> Configs {
    let directory = TestDirectory::new();
    let (chain, key) = (directory.argument("chain.pem"), directory.argument("key.pem"));
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=test -addext \
                     basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:example.com,DNS:*.wild.example";
    let arguments: Vec<&str> = arguments.split_whitespace().chain(["-keyout", &key, "-out", &chain]).collect();
    let made = run_program("openssl", "openssl", &arguments);
    assert!(made.status.success(), "{}", made.errors);
    let read = |path| fs::read(path).expect("it was made");
    let certificate = Certificate::from_pem(&read(&chain), &read(&key)).expect("it is usable");
    let mut store = CertificateStore::new();
    ["example.com", "a.wild.example", "uncovered.example"].iter().for_each(|host| store.add(host, &certificate));
    store.add_default(&localhost_certificate());
    Configs::with(store, &certificate)
}

fn simulate_rules(https_port: Option<u16>, act: impl FnOnce(&mut Simulation<'_>, &Configs)) {
    let configs = configs();
    let mut options = Options::default();
    options.http.https_port = https_port;
    options.http.accepts_http2 = true;
    simulate(snapshot(&configs), options, |simulation| act(simulation, &configs));
}

impl Simulation<'_> {
    /// The response to a request without encryption.
    fn ask_plain(&mut self, request: &str) -> String {
        let client = self.connect(Protocol::Http, request.as_bytes(), UNLIMITED).expect("accepted");
        self.run(ITERATIONS_MAX);
        String::from_utf8(self.take_received(client)).expect("responses are text")
    }
}

fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

fn location(response: &str) -> Option<&str> {
    response.lines().find_map(|line| line.strip_prefix("Location: "))
}

#[test]
fn request_without_encryption_is_redirected() {
    simulate_rules(Some(8443), |simulation, _| {
        let mut check = |request: &str, expected: &str| {
            let response = simulation.ask_plain(request);
            assert!(response.starts_with("HTTP/1.1 308 "), "{request}: {response}");
            assert_eq!(location(&response), Some(expected), "{request}");
            assert!(!response.contains("Connection: close") && !response.contains("Strict"), "{response}");
        };
        check(&get("/file?a=b", "Example.COM:80"), "https://Example.COM:8443/file?a=b");
        check(&get("/missing", "a.wild.example"), "https://a.wild.example:8443/missing");
        check(&get("/dns-query?dns=AAAA", "example.com"), "https://example.com:8443/dns-query?dns=AAAA");
        check(&get("//evil.example/", "example.com"), "https://example.com:8443//evil.example/");
        check(
            &get("/.well-known/acme-challenge/../x", "example.com"),
            "https://example.com:8443/.well-known/acme-challenge/../x",
        );
        for method in ["HEAD", "OPTIONS", "DELETE", "PROPFIND"] {
            check(&get("/", "example.com").replace("GET", method), "https://example.com:8443/");
        }
        let (lines, body) =
            ("Host: example.com\r\nContent-Type: application/dns-message\r\n", "Content-Length: 3\r\n\r\nabc");
        check(&format!("POST /dns-query HTTP/1.1\r\n{lines}{body}"), "https://example.com:8443/dns-query");
        // The next request follows on the same connection.
        let responses = simulation.ask_plain(&(get("/a", "example.com") + &get("/file", "plain.example")));
        assert!(responses.contains(" 308 ") && responses.ends_with("a file"), "{responses}");
        assert!(!simulation.ask_plain(&get("/a", "example.com").replace("GET", "HEAD")).contains("<html"));
    });
}

#[test]
fn request_that_need_not_be_redirected_is_answered() {
    simulate_rules(Some(443), |simulation, _| {
        let mut check = |request: &str, status: &str| {
            let response = simulation.ask_plain(request);
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
            assert!(!response.contains("Strict-Transport-Security"), "{response}");
        };
        check(&get("/file", "example.com"), "308");
        check(&get("/.well-known/acme-challenge/token", "example.com"), "200");
        check(&get("/.well-known/acme-challenge/none", "example.com"), "404");
        check(&get("/.well-known/acme-challenges", "example.com"), "308");
        // Those are served by the same site.
        check(&get("/file", "127.0.0.1"), "200");
        check(&get("/file", "[::1]:80"), "200");
        check(&get("/file", "localhost"), "200");
        check("GET /file HTTP/1.0\r\n\r\n", "200");
        // The certificate is not valid for it.
        check(&get("/file", "uncovered.example"), "200");
        check(&get("/file", "plain.example"), "200");
        check(&get("/file", "unknown.example"), "421");
        check(&get("/%00", "example.com"), "400");
        check(&get("/../..", "example.com"), "400");
        check(&get("/ a", "example.com"), "400");
        check(&get("*", "example.com").replace("GET", "OPTIONS"), "204");
        // Certificates that cannot be loaded.
        simulation.update_snapshot(|snapshot| snapshot.tls = None);
        assert!(simulation.ask_plain("").is_empty());
        let response = simulation.ask_plain(&get("/file", "example.com"));
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    });
    simulate_rules(None, |simulation, _| {
        let response = simulation.ask_plain(&get("/file", "example.com"));
        assert!(response.starts_with("HTTP/1.1 200 "), "without a listener for HTTPS: {response}");
    });
}

#[test]
fn every_response_of_the_site_over_https_has_its_fields() {
    simulate_rules(Some(443), |simulation, configs| {
        let mut client = TlsClient::of("example.com", simulation, configs);
        let first = client.ask(&get("/file", "example.com"), simulation);
        let etag = first.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("an entity tag").to_owned();
        assert!(first.ends_with("\r\n\r\na file") && first.contains(FIELD_LINE), "{first}");
        let with = |line: &str| get("/file", "example.com").replace("\r\n\r\n", &format!("\r\n{line}\r\n\r\n"));
        let mut check = |request: &str, status: &str| {
            let response = client.ask(request, simulation);
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
            assert_eq!(response.matches(FIELD_LINE).count(), 1, "{request}: {response}");
            let head = &response[..response.find("\r\n\r\n").expect("an end of the head")];
            assert!(head.contains("Strict-Transport-Security"), "{response}");
        };
        check(&with("Range: bytes=0-1"), "206");
        check(&with("Range: bytes=0-1,3-4"), "206");
        check(&with("Range: bytes=9-"), "416");
        check(&with(&format!("If-None-Match: {etag}")), "304");
        check(&get("/folder", "example.com"), "301");
        check(&get("/none", "example.com"), "404");
        check(&get("/file", "example.com").replace("GET", "OPTIONS"), "204");
        check(&get("/file", "example.com").replace("GET", "DELETE"), "405");
        check(&get("/dns-query", "example.com"), "400");
        check(&get("//x/../%64ns-query", "example.com"), "400");
        check(&get("/dns-query/", "example.com"), "404");
        check(&get("/dns-query", "example.com").replace("GET", "OPTIONS"), "204");
        check(&get("/dns-query?dns=AAAAAAABAAAAAAAAA25zMQdleGFtcGxlA2NvbQAAAQAB", "example.com"), "200");
        check(&with("Connection: close"), "200");
        // Requests that cannot be read are for the host of the handshake; the connection closes after each.
        for (request, status) in [
            (with("Content-Length: 99999999"), "413"),
            (with(&format!("Long: {}", "x".repeat(20_000))), "431"),
            (with("No field"), "400"),
            (get("/file", "a b"), "400"),
        ] {
            let response = TlsClient::of("example.com", simulation, configs).ask(&request, simulation);
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
            assert_eq!(response.matches(FIELD_LINE).count(), 1, "{response}");
        }
        let mut http2 = TlsClient::of_http2("example.com", simulation, configs);
        let received = http2.ask_bytes(&http2_request("ftp"), simulation);
        assert_eq!(status_of_http2(&received), "400");
        assert!(received.windows(10).any(|bytes| bytes == b"max-age=60"), "{received:?}");
        let response = simulation.ask_plain(&get("/file", "a b"));
        assert!(response.starts_with("HTTP/1.1 400 ") && !response.contains("Strict"), "{response}");
    });
}

#[test]
fn request_for_a_host_that_the_certificate_is_not_for_gets_421() {
    simulate_rules(Some(443), |simulation, configs| {
        let mut client = TlsClient::of("example.com", simulation, configs);
        let mut check = |client: &mut TlsClient, request: &str, status: &str| {
            let response = client.ask(request, simulation);
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
            let is_answered = status == "200" && !request.contains("localhost") && !request.contains("127");
            assert_eq!(response.contains(FIELD_LINE), is_answered, "{request}: {response}");
        };
        check(&mut client, &get("/file", "example.com"), "200");
        check(&mut client, &get("/file", "EXAMPLE.com.:443"), "200");
        check(&mut client, &get("/file", "a.wild.example"), "200");
        for host in ["b.a.wild.example", "wild.example", "plain.example", "uncovered.example", "unknown.example"] {
            check(&mut client, &get("/file", host), "421");
            check(&mut client, &get("/file", host).replace("GET", "OPTIONS"), "421");
            check(&mut client, &get("/file", host).replace("GET", "HEAD"), "421");
        }
        check(&mut client, &get("/file", "127.0.0.1"), "421");
        check(&mut client, &get("/file", "localhost"), "421");
        // The connection persists.
        check(&mut client, &get("/file", "example.com"), "200");
    });
}

#[test]
fn request_for_another_scheme_than_that_of_the_connection_gets_421() {
    simulate_rules(None, |simulation, configs| {
        let mut client = TlsClient::of("example.com", simulation, configs);
        for (target, status) in [
            ("https://example.com/file", "200"),
            ("HTTPS://EXAMPLE.com:443/file?a", "200"),
            ("https://example.com/dns-query?dns=AAAAAAABAAAAAAAAA25zMQdleGFtcGxlA2NvbQAAAQAB", "200"),
            ("https://example.com/folder", "301"),
            ("https://example.com", "404"),
            ("https://unknown.example/file", "421"),
        ] {
            let request = get(target, "other.example");
            let of_http = request.replace("https:", "http:").replace("HTTPS:", "HTTP:");
            let mut check = |request: &str, status: &str| {
                let response = client.ask(request, simulation);
                assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
            };
            check(&request, status);
            check(&of_http, "421");
            // With and without rules of the site.
            for (method, host) in
                [("GET", "example.com"), ("OPTIONS", "example.com"), ("POST", "example.com"), ("HEAD", "plain.example")]
            {
                let request = request.replace("example.com", host).replacen("GET", method, 1);
                let response = simulation.ask_plain(&request);
                assert!(response.starts_with("HTTP/1.1 421 "), "{request}: {response}");
            }
        }
        for (scheme, status) in [("http", "421"), ("https", "200"), ("ftp", "400")] {
            let mut client = TlsClient::of_http2("example.com", simulation, configs);
            let received = client.ask_bytes(&http2_request(scheme), simulation);
            assert_eq!(status_of_http2(&received), status, "{scheme}");
        }
        for (scheme, status) in [("http", "200"), ("https", "421"), ("ftp", "400")] {
            let client = simulation.connect(Protocol::Http, &http2_request(scheme), UNLIMITED).expect("accepted");
            simulation.run(ITERATIONS_MAX);
            assert_eq!(status_of_http2(&simulation.take_received(client)), status, "{scheme}");
        }
    });
}

/// The request for a file at `example.com` with this scheme, on a new connection.
fn http2_request(scheme: &str) -> Vec<u8> {
    let literal = |name: u8, value: &str| [&[name, value.len() as u8], value.as_bytes()].concat();
    let block = [&[0x82][..], &literal(6, scheme), &literal(1, "example.com"), &literal(4, "/file")].concat();
    let headers = [0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1];
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], &headers, &block].concat()
}

/// The status in the header block of the first response: a literal, or one of the static table.
fn status_of_http2(received: &[u8]) -> &str {
    let literal = received.windows(5).find_map(|bytes| bytes.strip_prefix(b"\x08\x03"));
    let has_index = |index| received.contains(&index);
    match literal {
        Some(status) => str::from_utf8(status).expect("digits"),
        None if has_index(0x88) => "200",
        None if has_index(0x8c) => "400",
        None => panic!("{received:?}"),
    }
}

/// RFC 9110 §7.4.
#[test]
fn request_of_a_trusted_proxy_may_have_the_scheme_of_its_client() {
    let check = |http_clients: HttpClients, header: &str, [of_http, of_https]: [&str; 2]| {
        simulate_rules(Some(443), |simulation, _| {
            simulation.update_snapshot(|snapshot| snapshot.http_clients = Arc::new(http_clients));
            for (scheme, expected) in [("http", of_http), ("https", of_https)] {
                let mut ask = |request: &[u8]| {
                    let bytes = [header.as_bytes(), request].concat();
                    let client = match header {
                        "" => simulation.connect(Protocol::Http, &bytes, UNLIMITED),
                        _ => simulation.connect_proxy(CLIENT, &bytes),
                    };
                    simulation.run(ITERATIONS_MAX);
                    simulation.take_received(client.expect("accepted"))
                };
                assert_eq!(status_of_http2(&ask(&http2_request(scheme))), expected, "{scheme}");
                let response = ask(get(&format!("{scheme}://example.com/file"), "other.example").as_bytes());
                let response = String::from_utf8_lossy(&response);
                assert!(response.starts_with(&format!("HTTP/1.1 {expected} ")), "{response}");
            }
        });
    };
    let proxies = |client_from, address: IpAddr| HttpClients {
        trusted_proxies: vec![IpNetwork::new(address, 32)],
        client_from: Some(client_from),
        ..HttpClients::default()
    };
    let other = IpAddr::from([192, 0, 2, 77]);
    check(HttpClients::default(), "", ["308", "421"]);
    check(proxies(ClientFrom::XForwardedFor, other), "", ["308", "421"]);
    check(proxies(ClientFrom::XForwardedFor, CLIENT), "", ["308", "200"]);
    let header = "PROXY TCP4 198.51.100.1 192.0.2.9 4000 80\r\n";
    check(proxies(ClientFrom::ProxyProtocol, CLIENT), header, ["308", "200"]);
}

#[test]
fn default_certificate_is_for_its_names_and_for_addresses() {
    let certificate = localhost_certificate();
    let mut store = CertificateStore::new();
    store.add_default(&certificate);
    let configs = Configs::with(store, &certificate);
    simulate(snapshot(&configs), Options::default(), |simulation| {
        let mut client = TlsClient::of("localhost", simulation, &configs);
        for (host, status) in [
            ("localhost:8443", "200"),
            ("127.0.0.1", "200"),
            ("[::1]:443", "200"),
            ("192.0.2.1", "200"),
            ("example.com", "421"),
            ("unknown.example", "421"),
        ] {
            let response = client.ask(&get("/file", host), simulation);
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {response}");
            assert!(!response.contains("Strict-Transport-Security"), "{host}: {response}");
        }
    });
    let sites = snapshot(&configs).sites.all().iter().map(|site| site.hosts.len()).sum::<usize>();
    assert_eq!(sites, 4);
}
