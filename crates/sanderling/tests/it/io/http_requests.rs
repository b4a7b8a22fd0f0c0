//! Requests of widely used clients, and the effects of the kernel on them. The tests of the http crate have all cases
//! of RFC 9110 and RFC 9112.

use crate::domain::Domain;
use sanderling_testkit::http::{HttpClient, get, response_to};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, curl};

const PAGE: &[u8] = b"<!doctype html><title>hi</title>\n";
const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
/// Larger than what is kept in memory, so that the file is sent from its descriptor.
const LARGE_BYTES: usize = 300_000;

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|index| (index % 251) as u8).collect()
}

fn site() -> Domain {
    let large = large();
    Domain::with_site(&[
        ("index.html", PAGE),
        ("alphabet.txt", ALPHABET),
        ("empty.txt", b""),
        ("large.bin", &large),
        ("directory/index.html", b"inside\n"),
        ("bare/note.txt", b"no index\n"),
        (".secret", b"canary"),
        (".well-known/security.txt", b"Contact: mailto:a@example.com\n"),
        ("directory/.hidden/x", b"canary"),
    ])
}

#[test]
fn curl_gets_the_index() {
    let domain = site();
    let url = format!("http://{}/", domain.server.http());
    let ended = curl(&[&url]);
    assert_eq!((ended.code(), ended.output.as_slice()), (Some(0), PAGE), "{ended}");
    let ended = curl(&["--head", &url]);
    assert!(ended.text().starts_with("HTTP/1.1 200 OK\r\n"), "{ended}");
    assert!(ended.text().contains(&format!("Content-Length: {}\r\n", PAGE.len())), "{ended}");
    let ended = curl(&["--location", &format!("{url}directory")]);
    assert_eq!(ended.text(), "inside\n", "{ended}");
}

#[test]
fn each_target_has_its_status_and_media_type() {
    let domain = site();
    let mut client = HttpClient::connect(domain.server.http());
    for (target, status, media_type) in [
        ("/", 200, "text/html"),
        ("/?query=1", 200, "text/html"),
        ("/index.html", 200, "text/html"),
        ("/alphabet.txt", 200, "text/plain"),
        ("/%61lphabet.txt", 200, "text/plain"),
        ("/empty.txt", 200, "text/plain"),
        ("/large.bin", 200, "application/octet-stream"),
        ("/directory/", 200, "text/html"),
        ("/directory", 301, "text/html"),
        ("/bare/", 404, "text/html"),
        ("/missing", 404, "text/html"),
        ("/alphabet.txt/", 308, "text/html"),
        ("/alphabet.txt/more", 404, "text/html"),
        ("/directory//index.html", 200, "text/html"),
        ("/.secret", 404, "text/html"),
        ("/directory/.hidden/x", 404, "text/html"),
        ("/.well-known/security.txt", 200, "text/plain"),
        ("http://localhost/alphabet.txt", 200, "text/plain"),
    ] {
        let response = client.get(target);
        assert_eq!(response.status, status, "{target}\n{}", response.head);
        let found = response.field("Content-Type").unwrap_or_default();
        assert!(found.starts_with(media_type), "{target}: {found}");
        assert!(response.field("Date").is_some_and(|date| date.ends_with(" GMT")), "{}", response.head);
        assert!(!response.text().contains("canary"), "{target}");
    }
    assert_eq!(client.get("/large.bin").body, large());
    assert_eq!(client.get("/directory?a=b&c").field("Location"), Some("/directory/?a=b&c"));
    for target in ["/alphabet.txt", "/large.bin"] {
        let etag = client.get(target).field("ETag").expect("a file has an entity tag").to_owned();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {etag}\r\n\r\n"));
        assert_eq!(client.response().status, 304, "{target}");
    }
}

#[test]
fn curl_resumes_a_download() {
    let domain = site();
    let part = domain.directory.write("part", &large()[..100_000]);
    let url = format!("http://{}/large.bin", domain.server.http());
    let ended = curl(&["--continue-at", "-", "--output", part.to_str().unwrap(), &url]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(std::fs::read(part).unwrap() == large());
}

#[test]
fn curl_sends_content() {
    let domain = site();
    let url = format!("http://{}/alphabet.txt", domain.server.http());
    let small = domain.directory.argument("public/index.html");
    let large = domain.directory.argument("public/large.bin");
    for (arguments, status) in [
        (&["--data", "a=b"][..], "405"),
        (&["--upload-file", &small], "405"),
        (&["--header", "Expect: 100-continue", "--upload-file", &small], "405"),
        (&["--header", "Transfer-Encoding: chunked", "--upload-file", &small], "405"),
        (&["--header", "Expect: 100-continue", "--data", "a=b"], "405"),
        (&["--request", "GET", "--data", "a=b"], "200"),
        // Above the limit.
        (&["--header", "Expect: 100-continue", "--upload-file", &large], "413"),
    ] {
        let fixed = ["--output", "/dev/null", "--write-out", "%{http_code}", url.as_str()];
        let ended = curl(&[arguments, &fixed].concat());
        let text = ended.text();
        assert_eq!((ended.code(), text.as_str()), (Some(0), status), "{arguments:?}: {ended}");
    }
}

/// The poller reports both with one event.
#[test]
fn fin_that_arrives_together_with_a_request_is_noticed() {
    let domain = site();
    for _ in 0..3 {
        let mut client = HttpClient::connect(domain.server.http());
        client.get("/");
        domain.server.signal("STOP");
        client.send(get("/"));
        client.tcp().finish_sending();
        domain.server.signal("CONT");
        assert_eq!(client.response().status, 200);
        // Long before the idle timeout.
        client.check_closed();
    }
}

#[test]
fn host_selects_the_site() {
    let domain = site();
    for (host, expected) in [
        ("example.com", 200),
        ("EXAMPLE.com.:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("localhost", 200),
        ("example.org", 421),
        ("www.example.com", 421),
        ("example.com.evil.example", 421),
        ("user@example.com", 400),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(response_to(domain.server.http(), request).status, expected, "{host:?}");
    }
}

#[test]
fn site_of_the_command_line_answers_every_host() {
    let directory = TestDirectory::with(&[("index.html", PAGE)]);
    let arguments = ["serve", directory.path().to_str().unwrap(), "--http", "127.0.0.1:0"];
    let server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 0 });
    for host in ["example.org", "127.0.0.1", "whatever"] {
        let response = response_to(server.http(), format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!((response.status, response.body.as_slice()), (200, PAGE));
    }
}
