//! HTTPS and DNS over TLS of the whole program, with curl, nghttp, OpenSSL, kdig and Chromium as clients.

mod browser;
mod certificate_reloads;
mod certificate_times;
mod curl_requests;
mod encrypted_dns;
mod many_requests;
mod protocols;

pub(crate) use certificate_times::issue_at;
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, curl, kdig, run, run_program, send_signal, wait_until,
};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };
const ZONE: &[u8] = b"@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n";
const CONFIG: &[u8] = b"workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\nlisten = [\"127.0.0.1:0\"]\n\
    [dns]\nlisten = [\"127.0.0.1:0\"]\ntls = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n\
    zone = \"example.com.zone\"\ndoh = \"/dns-query\"\ncertificate = { chain = \"chain.pem\", key = \"key.pem\" }\n";

/// A directory with a site, a zone, a certificate and the configuration.
fn domain() -> TestDirectory {
    let large = vec![b'x'; 3_000_000];
    let directory = TestDirectory::with(&[
        ("public/index.html", b"hi\n"),
        ("public/large", &large),
        ("example.com.zone", ZONE),
        ("sanderling.toml", CONFIG),
    ]);
    issue(&directory, "chain.pem", "key.pem", "first");
    directory
}

/// Makes a self-signed certificate for example.com with a new key.
fn issue(directory: &TestDirectory, chain: &str, key: &str, common_name: &str) {
    issue_for("example.com", directory, chain, key, common_name);
}

pub(crate) fn issue_for(name: &str, directory: &TestDirectory, chain: &str, key: &str, common_name: &str) {
    let (chain, key, subject) = (directory.argument(chain), directory.argument(key), format!("/CN={common_name}"));
    let name = format!("subjectAltName=DNS:{name}");
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -addext";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.extend([&name, "-subj", &subject, "-keyout", &key, "-out", &chain]);
    let ended = run_program("openssl", "openssl", &arguments);
    assert!(ended.status.success(), "{}", ended.errors);
}

/// The output of `openssl s_client` about a connection with a request.
fn s_client(server: SocketAddr, options: &str) -> String {
    let script = format!(
        "printf 'GET / HTTP/1.1\\r\\nHost: example.com\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client \
         -connect {server} -servername example.com -ign_eof {options} 2>&1"
    );
    run_program("sh", "dash", &["-c", &script]).text()
}

#[test]
fn site_is_served_by_both_versions_of_http() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let (certificate, connect_to) = (directory.argument("chain.pem"), format!("::{https}"));
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let common = ["-sS", option, "--cacert", &certificate, "--connect-to", &connect_to];
        let page = curl(&[&common[..], &["-w", "%{http_version} %{http_code}", "https://example.com/"]].concat());
        assert_eq!(page.text(), format!("hi\n{version} 200"), "{}", page.errors);
        let large = curl(&[&common[..], &["https://example.com/large"]].concat());
        assert!(large.output.len() == 3_000_000 && large.output.iter().all(|byte| *byte == b'x'), "{}", large.errors);
    }
    // A client of HTTP/1.0 asks for that protocol alone.
    let old = ["-sS0", "--cacert", &certificate, "--connect-to", &connect_to, "https://example.com/"];
    assert_eq!(curl(&old).text(), "hi\n");
    let url = format!("https://{https}/");
    let requests = run_program("nghttp", "nghttp2-client", &["-nv", "--no-verify-peer", &url]).text();
    assert!(requests.contains(" recv (stream_id=") && requests.contains(":status: 200"), "{requests}");
}

#[test]
fn http_2_is_spoken_without_encryption_by_clients_that_begin_with_it() {
    let directory = domain();
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let get = |http: SocketAddr, option: &str| {
        let connect_to = format!("::{http}");
        let form = "%{http_version} %{http_code} ";
        curl(&[option, "--connect-to", &connect_to, "-w", form, "-o", "/dev/null", "http://example.com/"]).text()
    };
    // The preface gets 505, and a client that does not know that it may read a response of HTTP/1.1 fails.
    assert!(!get(server.http(), "--http2-prior-knowledge").contains("2 308"));
    let text = str::from_utf8(CONFIG).expect("text").replacen("[http]\n", "[http]\nhttp2 = true\n", 1);
    directory.replace("sanderling.toml", text.as_bytes());
    let reload = directory.control("reload");
    assert!(reload.text().contains("`http2` in [http] has changed"), "{reload}");
    // The site is redirected to HTTPS.
    assert_eq!(get(server.http(), "--http2-prior-knowledge"), "2 308 ");
    // The request to upgrade the connection is ignored.
    assert_eq!(get(server.http(), "--http2"), "1.1 308 ");
}

#[test]
fn limits_of_tls_and_http_2_are_applied() {
    let directory = domain();
    let limits = b"[limits]\nhttp2_streams_max = 7\ntls_handshake_timeout_ms = 500\n";
    directory.replace("sanderling.toml", &[CONFIG, &limits[..]].concat());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let url = format!("https://{https}/");
    let settings = run_program("nghttp", "nghttp2-client", &["-nv", "--no-verify-peer", &url]).text();
    assert!(settings.contains("SETTINGS_MAX_CONCURRENT_STREAMS(0x03):7]"), "{settings}");
    let mut client = TcpStream::connect(https).expect("connected");
    client.write_all(&[22]).expect("sent");
    client.set_read_timeout(Some(DEADLINE)).expect("a time");
    assert_eq!(client.read(&mut [0; 1]).expect("closed"), 0);
    let status = directory.control("status").text();
    for count in ["tls_timeouts 1", "tls_handshakes 1", "http2_connections 1", "http2_requests 1"] {
        assert!(status.contains(count), "{count}: {status}");
    }
}

#[test]
fn oldest_unfinished_handshake_is_closed_at_the_limit() {
    let directory = domain();
    let config = String::from_utf8(CONFIG.to_vec()).expect("text").replace("workers = 2", "workers = 1\nlisteners = 1");
    directory.replace("sanderling.toml", format!("{config}[limits]\ntls_handshakes_max = 2\n").as_bytes());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let mut clients = [(); 3].map(|()| {
        let mut client = TcpStream::connect(https).expect("connected");
        client.write_all(&[22]).expect("sent");
        client.set_read_timeout(Some(DEADLINE)).expect("a time");
        client
    });
    assert_eq!(clients[0].read(&mut [0; 1]).expect("closed"), 0);
    let status = directory.control("status").text();
    assert!(status.contains("tls_evicted 1") && !status.contains("tls_timeouts"), "{status}");
    server.wait_for_error("tls_handshakes_max is reached: new connections replace the connection");
}

#[test]
fn zone_is_served_over_tls() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let dot = server.encrypted("dot");
    let reply = kdig(dot, &["+tls", "+short", "ns1.example.com", "A"]);
    assert_eq!(reply.text(), "192.0.2.1\n", "{}", reply.errors);
    let padded = kdig(dot, &["+tls", "+padding", "+tcp", "ns1.example.com", "A"]);
    assert!(padded.text().contains("468 B"), "{}", padded.text());
}

#[test]
fn zone_is_served_over_https() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    for method in ["+https=/dns-query", "+https-get"] {
        let reply = kdig(https, &["+https=/dns-query", method, "+short", "ns1.example.com", "A"]);
        assert_eq!(reply.text(), "192.0.2.1\n", "{method}: {}", reply.errors);
    }
}

#[test]
fn queries_over_encrypted_transports_are_logged() {
    let directory = domain();
    let log = b"[log]\nqueries = \"queries.log\"\nqueries_format = \"$transport $qname $qtype $rcode\"\n";
    directory.replace("sanderling.toml", &[CONFIG, log].concat());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (dot, https) = (server.encrypted("dot"), server.encrypted("https"));
    kdig(dot, &["+tls", "ns1.example.com", "A"]);
    let certificate = directory.argument("chain.pem");
    let doh = "https://example.com/dns-query?dns=AAAAAAABAAAAAAAAA25zMQdleGFtcGxlA2NvbQAAAQAB";
    for option in ["--http1.1", "--http2"] {
        let ended = curl(&["-sS", option, "--cacert", &certificate, "--connect-to", &format!("::{https}"), doh]);
        assert!(ended.status.success(), "{}", ended.errors);
    }
    let read = || fs::read_to_string(directory.path().join("queries.log")).unwrap_or_default();
    wait_until("3 lines", || read().lines().count() == 3);
    let mut lines: Vec<String> = read().lines().map(str::to_owned).collect();
    lines.sort();
    let over_https = "doh ns1.example.com. A NOERROR";
    assert_eq!(lines, [over_https, over_https, "dot ns1.example.com. A NOERROR"]);
}

/// The status, `Cache-Control` and length of the response to a request at `path`, by both versions of HTTP.
fn dns_responses(directory: &TestDirectory, https: SocketAddr, path: &str, arguments: &[&str]) -> [String; 2] {
    let (certificate, connect_to) = (directory.argument("chain.pem"), format!("::{https}"));
    let url = format!("https://example.com{path}");
    let form = "%{http_code} %header{allow}%header{cache-control} %{content_type}";
    ["--http1.1", "--http2"].map(|version| {
        let common = ["-sS", version, "--cacert", &certificate, "--connect-to", &connect_to, "-o", "/dev/null"];
        let ended = curl(&[&common[..], &["-w", form, &url], arguments].concat());
        ended.text()
    })
}

#[test]
fn dns_over_https_has_the_ttl_and_the_status_of_each_error() {
    let directory = domain();
    let query = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x03ns1\x07example\x03com\0\0\x01\0\x01";
    directory.replace("query", query);
    directory.replace("long", &[0; 65_536]);
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let check = |path: &str, arguments: &[&str], expected: &str| {
        for response in dns_responses(&directory, https, path, arguments) {
            assert_eq!(response.trim_end(), expected, "{path} {arguments:?}");
        }
    };
    let (content, long) = (format!("@{}", directory.argument("query")), format!("@{}", directory.argument("long")));
    let (dns, other) = ("Content-Type: application/dns-message", "Content-Type: text/plain");
    let found = "200 max-age=3600 application/dns-message";
    check("/dns-query?dns=AAAAAAABAAAAAAAAA25zMQdleGFtcGxlA2NvbQAAAQAB", &[], found);
    check("/dns-query", &["-H", dns, "--data-binary", &content], found);
    check("/dns-query", &["-H", dns, "-H", "Transfer-Encoding: chunked", "--data-binary", &content], found);
    let page = "text/plain; charset=utf-8";
    check("/dns-query", &[], &format!("400  {page}"));
    check("/dns-query?dns=AA==", &[], &format!("400  {page}"));
    check("/dns-query?dns=AAAA", &[], &format!("400  {page}"));
    check("/dns-query", &["-X", "PUT"], &format!("405 GET, HEAD, POST {page}"));
    let refused = format!("413  {page}");
    check("/dns-query", &["-H", dns, "-H", "Expect:", "--data-binary", &long], &refused);
    // A client that waits for 100 (Continue): a DNS message is needed, and other content is not.
    let (waiting, begun) = ("Expect: 100-continue", Instant::now());
    check("/dns-query", &["-H", dns, "-H", waiting, "--expect100-timeout", "60", "--data-binary", &content], found);
    assert!(begun.elapsed() < Duration::from_secs(60), "curl has sent the content without 100 (Continue)");
    // The connection goes on: the body has arrived.
    let (certificate, connect_to) = (directory.argument("chain.pem"), format!("::{https}"));
    let twice = curl(
        &[
            &["-sS", "--http1.1", "--cacert", &certificate, "--connect-to", &connect_to, "-w", "%{num_connects}"][..],
            &["-H", dns, "-H", waiting, "--data-binary", &content],
            &["https://example.com/dns-query", "-o", "/dev/null", "https://example.com/dns-query", "-o", "/dev/null"],
        ]
        .concat(),
    );
    assert_eq!(twice.text(), "10", "{twice}");
    check("/dns-query", &["-H", dns, "-H", waiting, "--data-binary", &long], &refused);
    check("/", &["-H", other, "-H", waiting, "--data-binary", &content], &format!("405 GET, HEAD, OPTIONS {page}"));
    check("/", &["-H", other, "-H", "Expect:", "--data-binary", &long], &format!("405 GET, HEAD, OPTIONS {page}"));
    directory.replace("large", &[0; 1_000_000]);
    let large = format!("@{}", directory.argument("large"));
    for expect in ["Expect:", waiting] {
        check("/", &["-H", other, "-H", expect, "--data-binary", &large], &refused);
    }
    check("/dns-query", &["-H", other, "--data-binary", &content], &format!("415  {page}"));
    check("/", &["-H", dns, "--data-binary", &content], &format!("405 GET, HEAD, OPTIONS {page}"));
    // NXDOMAIN: the TTL of RFC 2308 §5.
    let missing = "/dns-query?dns=AAAAAAABAAAAAAAAA25zMgdleGFtcGxlA2NvbQAAAQAB";
    check(missing, &[], "200 max-age=300 application/dns-message");
}

#[test]
fn sessions_are_resumed_after_a_reload_an_upgrade_and_a_crash() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let connect = |version: &str, session: &str| s_client(https, &format!("-tls1_{version} {session}"));
    let check = |event: &str| {
        for version in ["2", "3"] {
            let resumed = connect(version, &format!("-sess_in {}", directory.argument(version)));
            assert!(resumed.contains(&format!("Reused, TLSv1.{version}")), "{event}: {resumed}");
            assert!(resumed.contains("HTTP/1.1 200 OK"), "{event}: {resumed}");
        }
    };
    for version in ["2", "3"] {
        let first = connect(version, &format!("-sess_out {}", directory.argument(version)));
        assert!(first.contains(&format!("New, TLSv1.{version}")), "{first}");
    }
    check("at once");
    for command in ["reload", "upgrade"] {
        let ended = directory.control(command);
        assert!(ended.status.success(), "{command}: {}", ended.errors);
        check(command);
    }
    // Another limit needs a new process.
    directory.replace("sanderling.toml", &[CONFIG, b"[limits]\nhttp2_streams_max = 7\n"].concat());
    let reloaded = directory.control("reload");
    assert!(reloaded.status.success(), "{reloaded}");
    check("reload with a new process");
    let killed = server.server_process_id();
    assert!(send_signal("KILL", &killed.to_string()));
    server.wait_for_error("is serving");
    check("crash");
}

#[test]
fn changed_certificate_is_used_by_itself_and_a_broken_one_is_not() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let wait_for = |expected: &str, is_in_service: bool| {
        wait_until(expected, || directory.control("status").text().contains(expected));
        let shown = s_client(https, "");
        assert_eq!(shown.contains("CN = second") || shown.contains("CN=second"), is_in_service, "{shown}");
    };
    wait_for("issued by first", false);
    issue(&directory, "chain.pem", "key.pem", "second");
    wait_for("issued by second", true);
    directory.replace("chain.pem", b"broken");
    wait_for("the chain has no certificate", true);
}

#[test]
fn certificate_that_cannot_be_passed_on_is_passed_on_later() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let supervisor = server.process_id().to_string();
    let set_limit = |limit: &str| {
        let ended = run_program("prlimit", "util-linux", &["--pid", &supervisor, &format!("--nofile={limit}:")]);
        assert!(ended.status.success(), "{}", ended.errors);
    };
    // With this limit the supervisor can open nothing.
    let is_open = |number: &u64| fs::symlink_metadata(format!("/proc/{supervisor}/fd/{number}")).is_ok();
    let first_free = (0..).find(|number| !is_open(number)).expect("not all");
    let limits = fs::read_to_string(format!("/proc/{supervisor}/limits")).expect("it runs");
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    set_limit(&first_free.to_string());
    issue(&directory, "chain.pem", "key.pem", "second");
    server.wait_for_error("cannot pass on certificates and keys: ");
    set_limit(limit.expect("a limit"));
    wait_until("the second certificate", || s_client(https, "").replace("CN=", "CN = ").contains("CN = second"));
}

#[test]
fn changed_certificate_is_used_after_a_reload_that_failed() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    // Without certificates, and refused.
    let config =
        "user = \"no-such-user\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n";
    directory.replace("sanderling.toml", config.as_bytes());
    let ended = directory.control("reload");
    assert!(ended.code() == Some(1) && ended.errors.contains("no-such-user"), "{ended}");
    issue(&directory, "chain.pem", "key.pem", "second");
    wait_until("the second certificate", || s_client(https, "").replace("CN=", "CN = ").contains("CN = second"));
}

#[test]
fn domain_has_certificates_for_clients_of_all_kinds() {
    let directory = domain();
    // A certificate with an RSA key for the same name, and one for the alias alone.
    let (chain, key) = (directory.argument("rsa.pem"), directory.argument("rsa.key"));
    let arguments =
        "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=with-rsa -addext subjectAltName=DNS:example.com";
    let made = run_program(
        "openssl",
        "openssl",
        &arguments.split_whitespace().chain(["-keyout", &key, "-out", &chain]).collect::<Vec<_>>(),
    );
    assert!(made.status.success(), "{}", made.errors);
    issue_for("www.example.com", &directory, "www.pem", "www.key", "of-alias");
    let list = "certificate = [{ chain = \"rsa.pem\", key = \"rsa.key\" }, { chain = \"chain.pem\", key = \"key.pem\" }, \
                { chain = \"www.pem\", key = \"www.key\" }]\naliases = [\"www.example.com\"]\n";
    let config = String::from_utf8(CONFIG.to_vec()).expect("text");
    let config = config.replace("certificate = { chain = \"chain.pem\", key = \"key.pem\" }\n", list);
    let config = config.replace("[https]\n", "[https]\nrefuse_unknown_names = true\n");
    directory.replace("sanderling.toml", config.as_bytes());
    let checked = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert_eq!((checked.code(), checked.errors.as_str()), (Some(0), ""), "{checked}");
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (https, dot) = (server.encrypted("https"), server.encrypted("dot"));
    let check = |server: SocketAddr, options: &str, expected: &str| {
        let script = format!("openssl s_client -connect {server} {options} </dev/null 2>&1");
        let shown = run_program("sh", "dash", &["-c", &script]).text().replace("CN=", "CN = ");
        assert!(shown.contains(expected), "{options}: {shown}");
    };
    check(https, "-servername example.com", "subject=CN = first");
    check(https, "-servername example.com -tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256", "subject=CN = with-rsa");
    check(https, "-servername www.example.com", "subject=CN = of-alias");
    // The alert unrecognized_name.
    check(https, "-servername other.example", "SSL alert number 112");
    check(https, "-noservername", "subject=CN = first");
    check(dot, "-servername other.example", "subject=CN = first");
    let status = directory.control("status").text();
    for line in ["RSA, issued by with-rsa, ", "ECDSA, issued by first, "] {
        assert!(status.contains(&format!("certificate   example.com: {line}")), "{status}");
    }
    let json = directory.control_with("status", &["--json"]).text();
    let fields = ["\"issuer\":\"with-rsa\"", "\"key_type\":\"RSA\"", "\"not_after_unix_s\":", "\"problem\":null"];
    for field in fields {
        assert!(json.contains(field), "{field}: {json}");
    }
}

#[test]
fn last_good_certificate_outlives_the_server_process() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let check = |event: &str, issuer: &str, is_broken: bool| {
        let mut status = String::new();
        wait_until(event, || {
            status = directory.control("status").text();
            status.contains(&format!("issued by {issuer}, ")) && status.contains("ERROR: ") == is_broken
        });
        assert_eq!(status.contains("cannot use `"), is_broken, "{status}");
        let shown = s_client(https, "");
        assert!([format!("CN = {issuer}"), format!("CN={issuer}")].iter().any(|name| shown.contains(name)), "{shown}");
    };
    check("start", "first", false);
    directory.replace("chain.pem", b"broken");
    assert!(send_signal("KILL", &server.server_process_id().to_string()));
    server.wait_for_error("is serving");
    check("crash", "first", true);
    let upgraded = directory.control("upgrade");
    assert!(upgraded.status.success(), "{upgraded}");
    check("upgrade", "first", true);
    // The supervisor of the new program notices changed files, too.
    issue(&directory, "chain.pem", "key.pem", "second");
    check("renewal", "second", false);
    directory.replace("key.pem", b"broken");
    directory.replace("sanderling.toml", &[CONFIG, &b"[limits]\nhttp_idle_timeout_ms = 1000\n"[..]].concat());
    let reloaded = directory.control("reload");
    assert!(reloaded.text().contains("has replaced the old one") || reloaded.errors.contains("replaced"), "{reloaded}");
    check("reload with a new process", "second", true);
}

#[test]
fn check_reports_what_is_wrong_with_certificates() {
    let directory = domain();
    let set_mode = |path: &str, mode| {
        fs::set_permissions(directory.argument(path), fs::Permissions::from_mode(mode)).expect("the mode is set");
    };
    let check = || run(&["check", "--config", &directory.argument("sanderling.toml")]);
    let good = check();
    assert_eq!((good.code(), good.errors.as_str()), (Some(0), ""), "{good}");
    assert!(good.text().contains("chain.pem of example.com: ECDSA, issued by first, "), "{good}");

    issue_for("c.example", &directory, "c.pem", "c.key", "c");
    let further = "[domain.\"b.example\"]\nsite = \"public\"\n\
        certificate = { chain = \"chain.pem\", key = \"c.key\" }\n[domain.\"c.example\"]\nsite = \"public\"\n\
        aliases = [\"www.c.example\"]\ncertificate = { chain = \"c.pem\", key = \"c.key\" }\n\
        [domain.\"d.example\"]\nsite = \"public\"\ncertificate = { chain = \"none.pem\", key = \"c.key\" }\n";
    directory.write("sanderling.toml", &[CONFIG, further.as_bytes()].concat());
    set_mode("", 0o755);
    set_mode("key.pem", 0o644);
    let wrong = check();
    assert_eq!(wrong.code(), Some(1), "{wrong}");
    let expected = [
        ("chain.pem` with `", "the private key does not match the certificate; use the key that"),
        ("all users can read the private key", "key.pem`; run chmod o-r"),
        ("c.pem`", "the certificate is not valid for www.c.example; request a certificate with this name"),
        ("none.pem`", "does not exist; create it or correct the path"),
        ("key.pem`; move it to a separate folder", "the server process can read the private key"),
    ];
    assert!(wrong.errors.ends_with("2 errors, 3 warnings\n"), "{wrong}");
    for (file, problem) in expected {
        assert!(wrong.errors.lines().any(|line| line.contains(file) && line.contains(problem)), "{problem}: {wrong}");
    }
    // A directory that others cannot enter protects the key.
    set_mode("", 0o700);
    assert!(!check().errors.contains("all users"));
}

#[test]
fn broken_certificate_at_start_affects_no_other_domain() {
    let directory = domain();
    let further = "[domain.\"b.example\"]\nsite = \"public\"\n\
        certificate = { chain = \"none.pem\", key = \"key.pem\" }\n";
    directory.write("sanderling.toml", &[CONFIG, further.as_bytes()].concat());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let get = |host: &str| curl(&["-sSk", "--connect-to", &format!("::{https}"), &format!("https://{host}/")]);
    assert_eq!(get("example.com").text(), "hi\n");
    server.wait_for_error("none.pem` does not exist");
    assert!(directory.control("status").text().contains("b.example: UNAVAILABLE"));
    // The request is not redirected to an address without a server.
    let code = |host: &str| {
        let connect_to = format!("::{}", server.http());
        curl(&["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--connect-to", &connect_to, &format!("http://{host}/")])
    };
    assert_eq!((code("example.com").text().as_str(), code("b.example").text().as_str()), ("308", "200"));
}

#[test]
fn rule_that_leads_from_http_to_https_ends_there() {
    let directory = domain();
    directory.write("public/_redirects", b"http://example.com/* https://example.com/:splat 301!\n");
    directory.replace("sanderling.toml", &[CONFIG, &b"https_redirect = false\n"[..]].concat());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (http, https) = (server.http(), server.encrypted("https"));
    let certificate = directory.argument("chain.pem");
    let connect = [format!("example.com:80:{http}"), format!("example.com:443:{https}")];
    let common = ["-sSL", "--cacert", &certificate, "--connect-to", &connect[0], "--connect-to", &connect[1]];
    for version in ["--http1.1", "--http2"] {
        let form = "%{http_code} %{num_redirects} %{url_effective}";
        let followed = curl(&[&common[..], &[version, "-w", form, "http://example.com/index.html"]].concat());
        assert_eq!(followed.text(), "hi\n200 1 https://example.com/index.html", "{}", followed.errors);
    }
}

#[test]
fn site_is_redirected_to_https_and_kept_there() {
    let directory = domain();
    let hsts = b"hsts = { max_age_s = 86400 }\n";
    directory.replace("sanderling.toml", &[CONFIG, &hsts[..]].concat());
    let check = |option| run(&["check", "--config", &directory.argument("sanderling.toml"), option]);
    let checked = check("--strict");
    assert_eq!(checked.code(), Some(0), "{checked}");
    assert!(checked.errors.contains("note: `hsts`: browsers that have visited this site refuse it for a day"));
    let json = check("--json").text();
    assert!(json.contains("\"warnings\":0,\"notes\":1,\"problems\":[{\"severity\":\"note\""), "{json}");
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (http, https) = (server.http(), server.encrypted("https"));
    let certificate = directory.argument("chain.pem");
    let connect = [format!("example.com:80:{http}"), format!("example.com:{}:{https}", https.port())];
    let common = ["-sS", "--cacert", &certificate, "--connect-to", &connect[0], "--connect-to", &connect[1]];
    let form = "%{http_code} %{redirect_url}%{url_effective} %header{strict-transport-security}";
    let get = |arguments: &[&str]| curl(&[&common[..], &["-w", form], arguments].concat()).text();
    let page = format!("https://example.com:{}/index.html?a", https.port());
    for version in ["--http1.1", "--http2"] {
        let followed = get(&[version, "-L", "http://example.com/index.html?a"]);
        assert_eq!(followed, format!("hi\n200 {page} max-age=86400"), "{version}");
        let missing = get(&[version, "-o", "/dev/null", &page.replace("index", "none")]);
        assert!(missing.starts_with("404 ") && missing.ends_with(" max-age=86400"), "{missing}");
        let misdirected = get(&[version, "-o", "/dev/null", "-H", "Host: other.example", &page]);
        assert_eq!(misdirected, format!("421 {page} "), "{version}");
    }
    let plain = get(&["-o", "/dev/null", "-X", "POST", "http://example.com/a"]);
    assert_eq!(plain, format!("308 https://example.com:{}/ahttp://example.com/a ", https.port()));

    directory.replace("sanderling.toml", &[CONFIG, &b"https_redirect = false\n"[..]].concat());
    let reloaded = directory.control("reload");
    assert!(reloaded.status.success() && !reloaded.text().contains("new process"), "{reloaded}");
    assert_eq!(get(&["http://example.com/index.html"]), "hi\n200 http://example.com/index.html ");
}

#[test]
fn directory_is_served_with_a_certificate_or_a_self_signed_one() {
    let directory = domain();
    let (folder, chain, key) =
        (directory.argument("public"), directory.argument("chain.pem"), directory.argument("key.pem"));
    let common = ["serve", &folder, "--http", "127.0.0.1:0", "--https"];
    let counts = ListenerCounts { http: 1, dns: 0 };
    let given = ["0.0.0.0:0", "--certificate", &chain, "--key", &key];
    let mut server = TestServer::start(&[&common[..], &given].concat(), counts);
    let connect_to = format!("::127.0.0.1:{}", server.encrypted("https").port());
    let page = curl(&["-sS", "--cacert", &chain, "--connect-to", &connect_to, "https://example.com/"]);
    assert_eq!(page.text(), "hi\n", "{page}");

    let mut server = TestServer::start(&[&common[..], &["127.0.0.1:0"]].concat(), counts);
    let https = server.encrypted("https");
    let page = curl(&["-sSk", &format!("https://localhost:{}/", https.port())]);
    assert_eq!(page.text(), "hi\n", "{page}");
    let refused = run(&[&common[..], &["0.0.0.0:0"]].concat());
    assert_eq!(refused.code(), Some(78), "{refused}");
    assert!(refused.errors.contains("needs a trusted certificate; specify one with"), "{refused}");
}
