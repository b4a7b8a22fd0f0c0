//! Applications that are killed, restarted, stopped or slow, while others are served.
//!
//! `SANDERLING_RESTARTS` is the number of restarts under load.

use super::{Application, Front, Proxy, Setup, accept_with, all_to, route};
use sanderling_testkit::http::{HttpClient, response_to};
use sanderling_testkit::{allow_descriptors, number_or, resident_bytes, udp_reply, wait_until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const RESTARTS_DEFAULT: usize = 20;
const CLIENTS: usize = 4;
/// Responses that each client gets between two restarts: a request is tried three times, and must not meet three of
/// them.
const RESPONSES_BETWEEN: usize = 20;
/// The server ends a connection after 10,000.
const REQUESTS_PER_CONNECTION: usize = 1_000;
/// Requests that wait for an application that does not answer.
const WAITING: usize = 2_000;
/// Memory for each of them: a connection of the client and one to the application, with their buffers.
const BYTES_PER_WAITING_REQUEST: u64 = 20 * 1024;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n")
}

#[test]
fn restarts_under_load_lose_no_safe_request() {
    let restarts = number_or("SANDERLING_RESTARTS", RESTARTS_DEFAULT);
    let mut application = Application::node();
    let keys = route("/", &format!("proxy = \"{}\"\nconnect_timeout = \"30s\"", application.url()));
    let proxy = Proxy::new(&keys);
    let http = proxy.http();
    let (is_over, answered, refused) =
        (AtomicBool::new(false), [const { AtomicUsize::new(0) }; CLIENTS], AtomicUsize::new(0));
    thread::scope(|scope| {
        let (is_over, refused) = (&is_over, &refused);
        for answered in &answered {
            scope.spawn(move || {
                let (mut client, mut requests) = (HttpClient::connect(http), 0);
                while !is_over.load(Ordering::Relaxed) {
                    client.send(get("/pid"));
                    let response = client.response();
                    assert_eq!(response.status, 200, "{}", response.text());
                    answered.fetch_add(1, Ordering::Relaxed);
                    // It may have been carried out, and is not repeated.
                    client.send("POST /upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhello");
                    let response = client.response();
                    assert!(matches!(response.status, 200 | 502), "{}", response.text());
                    refused.fetch_add(usize::from(response.status == 502), Ordering::Relaxed);
                    requests += 2;
                    if requests == REQUESTS_PER_CONNECTION {
                        (client, requests) = (HttpClient::connect(http), 0);
                    }
                }
            });
        }
        for number in 0..restarts {
            let counts = || answered.each_ref().map(|count| count.load(Ordering::Relaxed));
            let before = counts();
            wait_until("some responses", || {
                counts().iter().zip(before).all(|(count, before)| *count >= before + RESPONSES_BETWEEN)
            });
            application.restart();
            let pid = application.child.id().to_string();
            let answers = || response_to(proxy.http(), get("/pid")).text() == pid;
            wait_until(&format!("the application after restart {number}"), answers);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (answered, refused): (usize, usize) =
        (answered.into_iter().map(AtomicUsize::into_inner).sum(), refused.into_inner());
    println!("{restarts} restarts: {answered} GET answered, 0 lost; {refused} POST of as many got 502");
    // On each of the restarts, at most the one of each client that was in flight.
    assert!(refused <= restarts * CLIENTS, "{refused} POST requests were refused in {restarts} restarts");
}

#[test]
fn stopped_application_gets_504_and_answers_after_it_continues() {
    let (application, other) = (Application::node(), Application::node());
    let keys = [
        route("/", &format!("proxy = \"{}\"\ntimeout = \"200ms\"", application.url())),
        route("/other/", &format!("proxy = \"{}\"\nstrip_prefix = true", other.url())),
    ];
    let proxy = Proxy::new(&keys.concat());
    assert_eq!(proxy.ask(Front::Http1, "/pid", &[]).status, 200);
    application.signal("STOP");
    for front in super::FRONTS {
        let answer = proxy.ask(front, "/pid", &[]);
        let expected = "The application did not respond within 0.2 s.\n";
        assert_eq!((answer.status, &*answer.content), (504, expected), "{front:?}");
        assert_eq!(proxy.ask(front, "/other/pid", &[]).content, other.child.id().to_string(), "{front:?}");
    }
    application.signal("CONT");
    assert_eq!(proxy.ask(Front::Http1, "/pid", &[]).content, application.child.id().to_string());
}

#[test]
fn killed_application_fails_alone_and_is_found_again() {
    let (mut application, other) = (Application::node(), Application::node());
    let keys = [
        // One of the two servers answers for both.
        route("/both/", &format!("proxy = [\"{}\", \"{}\"]\nstrip_prefix = true", application.url(), other.url())),
        route("/", &format!("proxy = \"{}\"\nconnect_timeout = \"100ms\"", application.url())),
    ];
    let proxy = Proxy::new(&keys.concat());
    assert_eq!(proxy.ask(Front::Http1, "/pid", &[]).status, 200);
    let mut stream = proxy.stream(Front::Http1, "/events");
    assert_eq!(stream.line(), "data: first");
    application.kill();
    let (rest, is_success) = stream.end();
    assert!(rest.trim().is_empty() && !is_success, "{rest}");
    let answer = proxy.ask(Front::Http2, "/pid", &[]);
    assert_eq!((answer.status, &*answer.content), (502, "The application refuses connections.\n"));
    for _ in 0..20 {
        assert_eq!(proxy.ask(Front::Http1, "/both/pid", &[]).content, other.child.id().to_string());
    }
    application.restart();
    wait_until("the application is found again", || proxy.ask(Front::Http1, "/pid", &[]).status == 200);
    let pid = application.child.id().to_string();
    wait_until("it gets its share again", || proxy.ask(Front::Http1, "/both/pid", &[]).content == pid);
}

#[test]
fn slow_and_broken_responses_are_whole_or_errors() {
    let slow = accept_with(|mut stream| {
        let mut received = [0; 10_000];
        while stream.read(&mut received).is_ok_and(|count| count > 0) {
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789" {
                let _ = stream.set_nodelay(true).and_then(|()| stream.write_all(&[*byte]));
                thread::yield_now();
            }
        }
    });
    let half = accept_with(|mut stream| {
        let _ = stream.read(&mut [0; 10_000]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Len");
    });
    let reset = accept_with(|mut stream| {
        // The kernel resets a connection that is closed with unread bytes.
        let _ = stream.read(&mut [0; 1]);
    });
    let route_to = |path: &str, address: SocketAddr| route(path, &format!("proxy = \"{address}\""));
    let proxy = Proxy::new(&[route_to("/slow", slow), route_to("/half", half), route_to("/reset", reset)].concat());
    for front in super::FRONTS {
        for _ in 0..3 {
            assert_eq!(proxy.ask(front, "/slow", &[]).content, "0123456789", "{front:?}");
        }
        for path in ["/half", "/reset"] {
            let answer = proxy.ask(front, path, &[]);
            let expected = "The application closed the connection before the end of its response.\n";
            assert_eq!((answer.status, &*answer.content), (502, expected), "{front:?} {path}");
        }
    }
}

#[test]
fn requests_that_wait_for_a_silent_application_stop_nothing_else() {
    // The ends of the clients, and those of the application.
    allow_descriptors(3 * WAITING as u64);
    let application = Application::node();
    let accepted = std::sync::Arc::new(AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&accepted);
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = silent.local_addr().expect("bound");
    thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((stream, _)) = silent.accept() {
            held.push(stream);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let silent =
        format!("proxy = \"{address}\"\nconnections_max = 4000\nconnect_timeout = \"60s\"\ntimeout = \"600s\"");
    let keys = ["zone = \"example.com.zone\"\n".to_owned(), all_to(&application), route("/silent", &silent)].concat();
    let zone: &[u8] = b"@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n";
    let files = [("example.com.zone", zone), ("public2/index.html", b"static\n")];
    let sections = "[dns]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"localhost\"]\nsite = \"public2\"\n".to_owned();
    let proxy = Proxy::with(Setup { keys, sections, dns: 1, ..Setup::default() }, &files);
    let query = b"\0\x19\0\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x06\0\x01";
    let check_others = || {
        let mut client = HttpClient::connect(proxy.http());
        for _ in 0..200 {
            assert_eq!(client.get("/").text(), "static\n");
            assert_eq!(udp_reply(proxy.server.dns(), query)[..4], *b"\0\x19\x84\0");
            client.send(get("/pid"));
            assert_eq!(client.response().status, 200);
        }
    };
    check_others();
    let process = proxy.server.server_process_id();
    let before_bytes = resident_bytes(process);
    let request = get("/silent");
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut stream = TcpStream::connect(proxy.http()).expect("a descriptor is left");
        stream.write_all(request.as_bytes()).expect("sent");
        waiting.push(stream);
    }
    wait_until("all requests wait", || accepted.load(Ordering::Relaxed) == WAITING);
    check_others();
    let grown_bytes = resident_bytes(process).saturating_sub(before_bytes);
    println!("{} KiB for {WAITING} requests that wait", grown_bytes / 1024);
    assert!(grown_bytes < WAITING as u64 * BYTES_PER_WAITING_REQUEST, "{grown_bytes}");
    drop(waiting);
    let answered = response_to(proxy.http(), get("/pid")).text();
    assert_eq!(answered, application.child.id().to_string());
}
