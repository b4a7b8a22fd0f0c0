//! Requests of browsers, `curl` and `ab`, and the responses by RFC 9110 and RFC 9112.

use crate::domain::{Domain, Setup};
use crate::http_answers::{Answer, HttpConnection, answer_to, get};
use sanderling_testkit::{RawConnection, curl};

const PAGE: &[u8] = b"<!doctype html><title>hi</title>\n";
const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
/// Larger than the files kept in memory: it is sent from its descriptor.
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
        ("folder/index.html", b"inside\n"),
        ("bare/note.txt", b"no index\n"),
        (".secret", b"canary"),
        (".well-known/security.txt", b"Contact: mailto:a@example.com\n"),
        ("folder/.hidden/x", b"canary"),
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
    let ended = curl(&["--location", &format!("{url}folder")]);
    assert_eq!(ended.text(), "inside\n", "{ended}");
}

#[test]
fn targets_have_their_statuses() {
    let domain = site();
    let mut connection = HttpConnection::open(domain.server.http());
    for (target, status, media_type) in [
        ("/", 200, "text/html"),
        ("/?query=1", 200, "text/html"),
        ("/index.html", 200, "text/html"),
        ("/alphabet.txt", 200, "text/plain"),
        ("/%61lphabet.txt", 200, "text/plain"),
        ("/alphabet.txt?v=1", 200, "text/plain"),
        ("/empty.txt", 200, "text/plain"),
        ("/large.bin", 200, "application/octet-stream"),
        ("/folder/", 200, "text/html"),
        ("/folder", 301, "text/html"),
        ("/bare/", 404, "text/html"),
        ("/missing", 404, "text/html"),
        ("/alphabet.txt/", 404, "text/html"),
        ("/alphabet.txt/more", 404, "text/html"),
        ("/folder//index.html", 404, "text/html"),
        ("/.secret", 404, "text/html"),
        ("/folder/.hidden/x", 404, "text/html"),
        ("/.well-known/security.txt", 200, "text/plain"),
        ("http://localhost/alphabet.txt", 200, "text/plain"),
    ] {
        let answer = connection.get(target);
        assert_eq!(answer.status, status, "{target}\n{}", answer.head);
        let found = answer.field("Content-Type").unwrap_or_default();
        assert!(found.starts_with(media_type), "{target}: {found}");
        assert!(answer.field("Date").is_some_and(|date| date.ends_with(" GMT")), "{}", answer.head);
        assert!(!answer.text().contains("canary"), "{target}");
    }
    assert_eq!(connection.get("/large.bin").content, large());
}

#[test]
fn redirects_keep_the_requested_host() {
    let domain = site();
    for (target, location) in [
        ("/folder", "/folder/"),
        ("/folder?a=b&c", "/folder/?a=b&c"),
        ("/%66older", "/folder/"),
        ("http://localhost/folder", "/folder/"),
    ] {
        let answer = HttpConnection::open(domain.server.http()).get(target);
        assert_eq!((answer.status, answer.field("Location")), (301, Some(location)), "{target}");
    }
    // A location that begins with two slashes would name another host.
    for target in ["//folder", "//example.net/folder", "/%2ffolder", "///folder", "/\\folder", "/%5cfolder"] {
        let answer = HttpConnection::open(domain.server.http()).get(target);
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.head);
        assert_eq!(answer.field("Location"), None, "{target}");
    }
}

#[test]
fn head_has_the_head_of_get() {
    let domain = site();
    let mut connection = HttpConnection::open(domain.server.http());
    for target in ["/", "/large.bin", "/empty.txt", "/folder", "/missing"] {
        let got = connection.get(target);
        connection.send(format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let head = connection.answer_to_head();
        let without_date = |answer: &Answer| {
            answer.head.lines().filter(|line| !line.starts_with("Date:")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(without_date(&head), without_date(&got), "{target}");
    }
}

#[test]
fn methods_have_their_statuses() {
    let domain = site();
    for (request, status, allow) in [
        ("OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\n", 204, true),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 204, true),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405, true),
        ("PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405, true),
        ("DELETE /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, true),
        ("TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, true),
        ("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n", 405, true),
        ("BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, false),
        ("get / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, false),
    ] {
        let answer = answer_to(domain.server.http(), request);
        assert_eq!(answer.status, status, "{request}");
        assert_eq!(answer.field("Allow").is_some(), allow, "{request}\n{}", answer.head);
    }
}

#[test]
fn conditional_requests() {
    let domain = site();
    let mut connection = HttpConnection::open(domain.server.http());
    for target in ["/alphabet.txt", "/large.bin"] {
        let first = connection.get(target);
        let etag = first.field("ETag").expect("a file has an entity tag").to_owned();
        let modified = first.field("Last-Modified").map(str::to_owned);
        let modified = modified.unwrap_or_else(|| "Fri, 01 Jan 2100 00:00:00 GMT".to_owned());
        for (field, status) in [
            (format!("If-None-Match: {etag}"), 304),
            (format!("If-None-Match: W/{etag}"), 304),
            ("If-None-Match: *".to_owned(), 304),
            ("If-None-Match: \"other\"".to_owned(), 200),
            (format!("If-None-Match: \"other\", {etag}"), 304),
            (format!("If-Modified-Since: {modified}"), 304),
            ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT".to_owned(), 200),
            ("If-Modified-Since: yesterday".to_owned(), 200),
            (format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {modified}"), 200),
            (format!("If-Match: {etag}"), 200),
            ("If-Match: \"other\"".to_owned(), 412),
            ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT".to_owned(), 412),
        ] {
            connection.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\n"));
            let answer = connection.answer();
            if target == "/alphabet.txt" || !field.contains("Modified-Since") {
                assert_eq!(answer.status, status, "{target} {field}\n{}", answer.head);
            }
            if answer.status == 304 {
                assert_eq!(answer.field("ETag"), Some(etag.as_str()));
            }
        }
    }
}

#[test]
fn range_requests() {
    let domain = site();
    let mut connection = HttpConnection::open(domain.server.http());
    let all = large();
    let last = LARGE_BYTES - 1;
    for (range, expected) in [
        ("bytes=0-0", Ok((0, 0))),
        ("bytes=2-5", Ok((2, 5))),
        ("bytes=299999-", Ok((last, last))),
        ("bytes=0-", Ok((0, last))),
        ("bytes=-7", Ok((LARGE_BYTES - 7, last))),
        ("bytes=-999999999", Ok((0, last))),
        ("bytes=100000-99999999999999999999999", Ok((100_000, last))),
        ("bytes=300000-", Err(416)),
        ("bytes=99999999999999999999999-", Err(416)),
        ("bytes=-0", Err(416)),
        ("bytes=5-2", Err(200)),
        ("bytes=a-b", Err(200)),
        ("lines=0-1", Err(200)),
        ("bytes=0-1,5-6", Err(200)),
    ] {
        connection.send(format!("GET /large.bin HTTP/1.1\r\nHost: localhost\r\nRange: {range}\r\n\r\n"));
        let answer = connection.answer();
        match expected {
            Ok((first, last)) => {
                assert_eq!(answer.status, 206, "{range}");
                let range = format!("bytes {first}-{last}/{LARGE_BYTES}");
                assert_eq!(answer.field("Content-Range"), Some(range.as_str()));
                assert!(answer.content == all[first..=last], "{range}");
            }
            Err(status) => assert_eq!(answer.status, status, "{range}"),
        }
        if answer.status == 416 {
            assert_eq!(answer.field("Content-Range"), Some("bytes */300000"));
        }
        if answer.status == 200 {
            assert_eq!(answer.content.len(), LARGE_BYTES);
        }
    }
}

#[test]
fn curl_resumes_a_download() {
    let domain = site();
    let part = domain.folder.write("part", &large()[..100_000]);
    let url = format!("http://{}/large.bin", domain.server.http());
    let ended = curl(&["--continue-at", "-", "--output", part.to_str().unwrap(), &url]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(std::fs::read(part).unwrap() == large());
}

#[test]
fn curl_sends_content_that_is_discarded() {
    let domain = site();
    let url = format!("http://{}/alphabet.txt", domain.server.http());
    let small = domain.folder.argument("public/index.html");
    let large = domain.folder.argument("public/large.bin");
    for (arguments, status) in [
        (&["--data", "a=b"][..], "405"),
        (&["--upload-file", &small], "405"),
        (&["--header", "Expect: 100-continue", "--upload-file", &small], "405"),
        (&["--header", "Transfer-Encoding: chunked", "--upload-file", &small], "405"),
        (&["--header", "Expect: 100-continue", "--data", "a=b"], "405"),
        (&["--request", "GET", "--data", "a=b"], "200"),
        // More than the limit of discarded content.
        (&["--header", "Expect: 100-continue", "--upload-file", &large], "413"),
    ] {
        let fixed = ["--output", "/dev/null", "--write-out", "%{http_code}", url.as_str()];
        let ended = curl(&[arguments, &fixed].concat());
        assert_eq!((ended.code(), ended.text().as_str()), (Some(0), status), "{arguments:?}: {ended}");
    }
}

#[test]
fn connection_persists_or_closes_as_the_client_wants() {
    let domain = site();
    let server = domain.server.http();
    for (request, persists, expected) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", true, None),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", false, Some("close")),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: foo, CLOSE\r\n\r\n", false, Some("close")),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n", true, None),
        ("GET / HTTP/1.0\r\n\r\n", false, Some("close")),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true, Some("keep-alive")),
        ("GET /large.bin HTTP/1.0\r\nHost: localhost\r\nConnection: Keep-Alive\r\n\r\n", true, Some("keep-alive")),
        ("GET /missing HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true, Some("keep-alive")),
        ("GET / HTTP/1.9\r\nHost: localhost\r\n\r\n", true, None),
    ] {
        let mut connection = HttpConnection::open(server);
        connection.send(request);
        let answer = connection.answer();
        assert_eq!(answer.field("Connection"), expected, "{request}");
        if persists {
            assert_eq!(connection.get("/alphabet.txt").content, ALPHABET, "{request}");
        } else {
            connection.check_closed();
        }
    }
}

#[test]
fn client_that_has_shut_down_its_side_gets_everything() {
    let large = large();
    let site: &[(&str, &[u8])] = &[("large.bin", &large)];
    let domain = Domain::serve(Setup { site, limits: "http_idle_timeout_ms = 1000", ..Setup::default() });
    let mut raw = RawConnection::open(domain.server.http());
    raw.send(get("/large.bin").repeat(20).as_bytes());
    raw.finish_sending();
    let received = raw.read_to_close();
    let head_bytes = received.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    assert_eq!(received.len(), 20 * (head_bytes + LARGE_BYTES));
    assert!(received.ends_with(&large));
}

/// The FIN arrives with the request: the kernel reports one event.
#[test]
fn request_with_fin_is_answered() {
    let domain = site();
    for _ in 0..3 {
        let mut connection = HttpConnection::open(domain.server.http());
        connection.get("/");
        domain.server.signal("STOP");
        connection.send(get("/"));
        connection.raw().finish_sending();
        domain.server.signal("CONT");
        assert_eq!(connection.answer().status, 200);
        // Long before the idle timeout of a minute.
        connection.check_closed();
    }
}

#[test]
fn hosts_select_sites() {
    let domain = site();
    let server = domain.server.http();
    let status = |host: &str| answer_to(server, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).status;
    for (host, expected) in [
        ("example.com", 200),
        ("EXAMPLE.com:8080", 200),
        ("example.com.", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("localhost", 200),
        ("example.org", 421),
        ("www.example.com", 421),
        ("example.com.evil.example", 421),
        ("a b", 400),
        ("exa/mple", 400),
        ("user@example.com", 400),
        ("example.com:99999", 400),
        ("[::1", 400),
        ("", 400),
    ] {
        assert_eq!(status(host), expected, "{host:?}");
    }
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: example.com\r\nHost: example.com\r\n\r\n", 400),
        ("GET http://example.com/ HTTP/1.1\r\nHost: example.org\r\n\r\n", 400),
        ("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 200),
        ("GET http://example.com HTTP/1.1\r\nHost: example.com\r\n\r\n", 200),
        ("GET / HTTP/1.0\r\n\r\n", 200),
    ] {
        assert_eq!(answer_to(server, request).status, expected, "{request}");
    }
}

#[test]
fn folder_of_the_command_line_answers_every_host() {
    use sanderling_testkit::{Folder, ListenerCounts, TestServer};
    let folder = Folder::with(&[("index.html", PAGE)]);
    let arguments = ["serve", folder.path().to_str().unwrap(), "--http", "127.0.0.1:0"];
    let server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 0 });
    for host in ["example.org", "127.0.0.1", "whatever"] {
        let answer = answer_to(server.http(), format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!((answer.status, answer.content.as_slice()), (200, PAGE));
    }
}

#[test]
fn connection_closes_after_its_last_request() {
    let limits = "http_requests_per_connection_max = 3";
    let domain = Domain::serve(Setup { site: &[("index.html", PAGE)], limits, ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    connection.send(get("/").repeat(3));
    assert_eq!(connection.answer().field("Connection"), None);
    assert_eq!(connection.answer().field("Connection"), None);
    assert_eq!(connection.answer().field("Connection"), Some("close"));
    connection.check_closed();
}

/// Requests in flight after the last one must not cost the client its answers (RFC 9112 §9.6).
#[test]
fn requests_after_the_last_one_do_not_reset_the_connection() {
    let limits = "http_requests_per_connection_max = 1";
    let large = large();
    let domain = Domain::serve(Setup { site: &[("large.bin", &large)], limits, ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    // More than one receive call returns, and less than a lingering close reads.
    connection.send(get("/large.bin").repeat(5_000));
    assert!(connection.answer().content == large);
}
