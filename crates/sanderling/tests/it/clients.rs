//! Clients of the whole program: proxies that name them, and limits of their requests.

use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, curl, run_program, tcp_exchange, wait_until,
};
use std::fs;
use std::net::SocketAddr;

const HTTP: ListenerCounts = ListenerCounts { http: 1, dns: 0 };
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n";

fn directory(keys: &str) -> TestDirectory {
    let config = format!(
        "[http]\nlisten = [\"127.0.0.1:0\"]\n{keys}\n[domain.\"example.com\"]\nsite = \"public\"\n\
         [log]\naccess = \"access.log\"\nformat = \"$remote_addr|$status\"\n"
    );
    TestDirectory::with(&[("public/index.html", b"hi\n"), ("sanderling.toml", config.as_bytes())])
}

/// The lines of the log, once there are this many, in alphabetical order.
fn lines(directory: &TestDirectory, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(directory.path().join("access.log")).unwrap_or_default();
    wait_until("the lines of the log", || read().lines().count() >= count);
    // Each worker writes its own.
    let mut lines: Vec<String> = read().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The response to a GET request with this header of the PROXY protocol before it.
fn get_behind(header: &[u8], server: SocketAddr) -> String {
    String::from_utf8_lossy(&tcp_exchange(server, &[header, GET].concat())).into_owned()
}

#[test]
fn log_has_the_client_that_the_proxy_protocol_names() {
    let directory = directory("trusted_proxies = [\"127.0.0.0/8\"]\nclient_from = \"proxy-protocol\"");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let first = get_behind(b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 80\r\n", server.http());
    assert!(first.starts_with("HTTP/1.1 200 OK"), "{first}");
    let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x02\xc6\x33\x64\x01\xdc\x04\0\x50";
    let second = get_behind(binary, server.http());
    assert!(second.starts_with("HTTP/1.1 200 OK"), "{second}");
    assert_eq!(get_behind(b"", server.http()), "");
    let by_curl =
        curl(&["-sS", "--haproxy-protocol", "-H", "Host: example.com", &format!("http://{}/", server.http())]);
    assert_eq!(by_curl.text(), "hi\n", "{by_curl}");
    assert_eq!(lines(&directory, 3), ["127.0.0.1|200", "192.0.2.1|200", "192.0.2.2|200"]);
    server.stop();
}

#[test]
fn encrypted_connection_may_begin_with_a_proxy_header() {
    let directory = directory("trusted_proxies = [\"127.0.0.0/8\"]\nclient_from = \"proxy-protocol\"");
    let (chain, key) = (directory.argument("chain.pem"), directory.argument("key.pem"));
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=example.com \
                     -addext subjectAltName=DNS:example.com";
    let mut arguments: Vec<&str> = arguments.split(' ').collect();
    arguments.extend(["-out", &chain, "-keyout", &key]);
    let made = run_program("openssl", "openssl", &arguments);
    assert_eq!(made.code(), Some(0), "{made}");
    let mut config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("the configuration");
    config = config.replace("[domain", "[https]\nlisten = [\"127.0.0.1:0\"]\n[domain").replace(
        "site = \"public\"\n",
        "site = \"public\"\ncertificate = { chain = \"chain.pem\", key = \"key.pem\" }\n",
    );
    directory.replace("sanderling.toml", config.as_bytes());
    let mut server = TestServer::start_command(directory.serve_command(), HTTP);
    let address = server.encrypted("https");
    let url = format!("https://example.com:{}/", address.port());
    let resolve = format!("example.com:{}:{}", address.port(), address.ip());
    for version in ["--http1.1", "--http2"] {
        let fetched = curl(&["-sS", "--haproxy-protocol", version, "--cacert", &chain, "--resolve", &resolve, &url]);
        assert_eq!(fetched.text(), "hi\n", "{version}: {fetched}");
    }
    let without = curl(&["-sS", "--max-time", "20", "--cacert", &chain, "--resolve", &resolve, &url]);
    assert_ne!(without.code(), Some(0), "{without}");
    server.stop();
}

#[test]
fn client_of_a_trusted_proxy_has_its_own_budget() {
    let keys = "trusted_proxies = [\"127.0.0.0/8\"]\nclient_from = \"x-forwarded-for\"\n\
                [limits]\nhttp_requests_per_second_max = 1\nhttp_requests_at_once_max = 1";
    let directory = directory(keys);
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let url = format!("http://{}/", server.http());
    let status = |client: &str| {
        let field = format!("X-Forwarded-For: {client}");
        curl(&["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: example.com", "-H", &field, &url]).text()
    };
    let mut statuses = [status("192.0.2.1"), status("192.0.2.2"), status("192.0.2.1")];
    let start = std::time::Instant::now();
    while statuses[2] != "429" {
        // The machine was so slow that the client had a request again.
        assert!(start.elapsed() < DEADLINE);
        statuses[2] = status("192.0.2.1");
    }
    assert_eq!(statuses, ["200", "200", "429"]);
    let counters = directory.control_with("status", &["--json"]);
    assert!(counters.text().contains("\"http_over_rate\":"), "{counters}");
    server.stop();
}
