//! Redirects to HTTPS, fields of responses over HTTPS, and requests for hosts that a connection is not for.

use super::tls_tests::{Configs, TlsClient, localhost_certificate};
use super::*;
use crate::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, SiteRules, Sites};
use crate::snapshot::Tls;
use sanderling_dns::{HashSeed, ZoneMap};
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
fn request_for_an_https_target_needs_encryption() {
    simulate_rules(None, |simulation, configs| {
        let mut client = TlsClient::of("example.com", simulation, configs);
        for (target, status) in [
            ("https://example.com/file", "200"),
            ("HTTPS://EXAMPLE.com:443/file?a", "200"),
            ("https://example.com/dns-query?dns=AAAAAAABAAAAAAAAA25zMQdleGFtcGxlA2NvbQAAAQAB", "200"),
            ("https://example.com/folder", "301"),
            ("https://example.com", "404"),
            ("https://unknown.example/file", "421"),
            ("http://example.com/file", "200"),
        ] {
            let response = client.ask(&get(target, "other.example"), simulation);
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {response}");
            if target.starts_with("http:") {
                continue;
            }
            // RFC 9110 §7.4, with and without rules of the site.
            for (method, host) in [("GET", "example.com"), ("OPTIONS", "example.com"), ("HEAD", "plain.example")] {
                let target = target.replace("example.com", host);
                let request = get(&target, "other.example").replacen("GET", method, 1);
                let response = simulation.ask_plain(&request);
                assert!(response.starts_with("HTTP/1.1 421 "), "{request}: {response}");
            }
        }
    });
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
