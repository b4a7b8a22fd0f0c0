//! Applications with several servers: which of them gets a request, which is down, and what the operator sees of it.

use super::{Answer, Application, Front, Proxy, Setup, accept_with, route};
use sanderling_testkit::http::{HttpClient, response_to};
use sanderling_testkit::wait_until;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CLOSING: &str = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n";

/// An application in this process, whose answers a test changes.
#[derive(Clone)]
struct Switched {
    address: SocketAddr,
    is_healthy: Arc<AtomicBool>,
    checks: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Switched {
    fn new() -> Switched {
        let is_healthy = Arc::new(AtomicBool::new(true));
        let [checks, requests] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let parts = (Arc::clone(&is_healthy), Arc::clone(&checks), Arc::clone(&requests));
        let address = accept_with(move |stream| {
            let (is_healthy, checks, requests) = &parts;
            answer(stream, |path| {
                let is_check = path == "/healthz";
                if is_check { checks } else { requests }.fetch_add(1, Ordering::Relaxed);
                if !is_check || is_healthy.load(Ordering::Relaxed) { "200 OK" } else { "500 Internal Server Error" }
            });
        });
        Switched { address, is_healthy, checks, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Answers the requests of a connection with the status for their path.
fn answer(mut stream: TcpStream, status_of: impl Fn(&str) -> &'static str) {
    let mut received = Vec::new();
    let mut room = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut room) {
        received.extend_from_slice(&room[..count]);
        while let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&received[..end]).into_owned();
            received.drain(..end + 4);
            let status = status_of(head.split(' ').nth(1).unwrap_or_default());
            if stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).is_err() {
                return;
            }
        }
    }
}

impl Proxy {
    fn status(&self) -> String {
        String::from_utf8_lossy(&self.directory.control("status").output).into_owned()
    }
}

#[test]
fn checks_take_a_server_out_and_back_and_the_operator_sees_it() {
    let (first, second) = (Switched::new(), Switched::new());
    let keys = format!(
        "proxy = [\"http://{}\", \"http://{}\"]\ncheck = \"/healthz\"\ncheck_interval = \"100ms\"",
        first.address, second.address
    );
    let proxy = Proxy::new(&route("/", &keys));
    wait_until("checks of both", || [&first, &second].iter().all(|server| server.checks.load(Ordering::Relaxed) >= 2));
    second.is_healthy.store(false, Ordering::Relaxed);
    let line = format!("{}: DOWN: answers 500 to the check", second.address);
    wait_until("the server is down", || proxy.status().contains(&line));
    let status = proxy.directory.control("status");
    assert_eq!(status.code(), Some(1), "{status}");
    println!("{}", proxy.status());
    let before = second.requests();
    for _ in 0..20 {
        assert_eq!(response_to(proxy.http(), CLOSING).status, 200);
    }
    assert_eq!((first.requests(), second.requests()), (20, before));
    let metrics = String::from_utf8_lossy(&proxy.directory.control_with("status", &["--metrics"]).output).into_owned();
    for line in [
        "sanderling_backend_servers{state=\"down\"} 1".to_owned(),
        format!("sanderling_backend_server_up{{server=\"{}\"}} 0", second.address),
        format!("sanderling_backend_server_up{{server=\"{}\"}} 1", first.address),
        format!("sanderling_backend_server_requests_total{{server=\"{}\"}} 20", first.address),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let json = String::from_utf8_lossy(&proxy.directory.control_with("status", &["--json"]).output).into_owned();
    assert!(json.contains("\"reason\":\"answers 500 to the check\""), "{json}");
    // Requests are tried if all are down.
    first.is_healthy.store(false, Ordering::Relaxed);
    wait_until("both are down", || proxy.status().contains("2 backend servers down"));
    assert_eq!(response_to(proxy.http(), CLOSING).status, 200);
    [&first, &second].iter().for_each(|server| server.is_healthy.store(true, Ordering::Relaxed));
    wait_until("both are up", || !proxy.status().contains("DOWN"));
    for text in ["is down: answers 500 to the check", "is up again"] {
        proxy.server.wait_for_error(&format!("backend server {} {text}", second.address));
    }
}

#[test]
fn cookie_keeps_a_browser_on_its_server() {
    let applications = [(); 3].map(|()| Application::node());
    let urls: Vec<String> = applications.iter().map(|it| format!("\"{}\"", it.url())).collect();
    let proxy = Proxy::new(&route("/", &format!("proxy = [{}]\nbalance = \"cookie:server\"", urls.join(", "))));
    for front in super::FRONTS {
        let first = proxy.ask(front, "/pid", &[]);
        let cookie = first.all("set-cookie").into_iter().find(|line| line.starts_with("server=")).expect("a cookie");
        let secure = if matches!(front, Front::Https1 | Front::Https2) { "; Secure" } else { "" };
        let (pair, rest) = cookie.split_once(';').expect("attributes");
        assert_eq!(rest, format!(" Path=/; HttpOnly; SameSite=Lax{secure}"));
        for _ in 0..5 {
            let Answer { content, fields, .. } = proxy.ask(front, "/pid", &["-b", pair]);
            assert_eq!(content, first.content, "{front:?}");
            assert!(!fields.iter().any(|(_, value)| value.starts_with("server=")), "{fields:?}");
        }
    }
    let pids: BTreeSet<String> = ["server=0", "server=1", "server=2"]
        .iter()
        .map(|cookie| proxy.ask(Front::Http1, "/pid", &["-b", cookie]).content)
        .collect();
    assert_eq!(pids.len(), 3);
    assert_eq!(proxy.ask(Front::Http1, "/pid", &["-b", "server=../../etc"]).status, 200);
}

#[test]
fn client_keeps_its_server_over_connections_and_workers() {
    let applications = [(); 3].map(|()| Application::node());
    let urls: Vec<String> = applications.iter().map(|it| format!("\"{}\"", it.url())).collect();
    let proxy = Proxy::new(&route("/", &format!("proxy = [{}]\nbalance = \"client\"", urls.join(", "))));
    let mut used = BTreeSet::new();
    for client in 1..=12 {
        let interface = format!("127.0.0.{client}");
        let pid = || proxy.ask(Front::Http1, "/pid", &["--interface", &interface]).content;
        let first = pid();
        assert_eq!([pid(), pid(), pid()], [(); 3].map(|()| first.clone()), "{interface}");
        used.insert(first);
    }
    assert!(used.len() > 1, "{used:?}");
}

#[test]
fn proxy_header_names_the_client_for_another_server() {
    let application = Application::node();
    let inner = Proxy::with(
        Setup {
            http: "client_from = \"proxy-protocol\"\ntrusted_proxies = [\"127.0.0.1\"]".to_owned(),
            keys: super::all_to(&application),
            ..Setup::default()
        },
        &[],
    );
    let keys = format!(
        "proxy = \"http://{}\"\nproxy_protocol = true\nrequest_headers = {{ X-Forwarded-For = false }}",
        inner.http()
    );
    let outer = Proxy::new(&route("/", &keys));
    for client in ["127.0.0.2", "127.0.0.3", "127.0.0.2"] {
        let answer = outer.ask(Front::Http1, "/echo", &["--interface", client]);
        assert_eq!(answer.seen("x-forwarded-for"), format!("\"{client}\""), "{}", answer.content);
    }
    // Several requests of one connection, and of one HTTP/2 connection.
    let mut client = HttpClient::connect(outer.http());
    for _ in 0..3 {
        client.send("GET /echo HTTP/1.1\r\nHost: example.com\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(outer.ask(Front::Https2, "/echo", &[]).seen("x-forwarded-for"), "\"127.0.0.1\"");
}

#[test]
fn removed_server_ends_its_requests() {
    let applications = [Application::node(), Application::node()];
    let all = |count: usize| {
        let urls: Vec<String> = applications[..count].iter().map(|it| format!("\"{}\"", it.url())).collect();
        route("/", &format!("proxy = [{}]\nbalance = \"cookie:server\"", urls.join(", ")))
    };
    let proxy = Proxy::new(&all(2));
    let mut client = HttpClient::connect(proxy.http());
    client.send("POST /upload HTTP/1.1\r\nHost: example.com\r\nCookie: server=1\r\nContent-Length: 10\r\n\r\nhello");
    wait_until("the upload has begun", || {
        let line = format!("{}: up; 1 requests", applications[1].address);
        proxy.status().contains(&line)
    });
    proxy.reload(&all(1));
    let first = applications[0].child.id().to_string();
    for _ in 0..4 {
        assert_eq!(proxy.ask(Front::Http1, "/pid", &["-b", "server=1"]).content, first);
    }
    client.send("world");
    let response = client.response();
    assert!(response.text().starts_with("10 "), "{} {}", response.status, response.text());
}
