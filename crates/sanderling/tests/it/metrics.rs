//! Metrics of the whole program: the counters, their endpoints, and their list in the manual.

use sanderling_testkit::dns::Question;
use sanderling_testkit::http::{HttpClient, response_to};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, curl, tcp_exchange, wait_until};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

const ZONE: &[u8] = b"$TTL 60\n@ IN SOA ns hostmaster 7 3600 600 86400 60\n@ IN NS ns\nns IN A 192.0.2.1\n";
const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };
const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

/// A site, a zone and a listener for metrics; `more` is the rest of the configuration.
fn directory(metrics: &str, more: &str) -> TestDirectory {
    let large = vec![b'x'; 300_000];
    let directory =
        TestDirectory::with(&[("public/index.html", b"hi\n"), ("public/large", &large), ("example.com.zone", ZONE)]);
    configure(&directory, metrics, more);
    directory
}

fn configure(directory: &TestDirectory, metrics: &str, more: &str) {
    let config = format!(
        "workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\nhttp2 = true\n[dns]\nlisten = [\"127.0.0.1:0\"]\n{metrics}\n\
         [domain.\"example.com\"]\nsite = \"public\"\nzone = \"example.com.zone\"\n{more}"
    );
    directory.replace("sanderling.toml", config.as_bytes());
}

const LISTENER: &str = "[metrics]\nlisten = [\"127.0.0.1:0\"]";

/// The samples of a text, by name with labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?} is no sample"));
        (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line:?} has no number")))
    });
    let count = text.lines().filter(|line| !line.starts_with('#')).count();
    let samples: BTreeMap<String, f64> = samples.collect();
    assert_eq!(samples.len(), count, "a sample occurs twice:\n{text}");
    samples
}

fn collect(metrics: SocketAddr) -> BTreeMap<String, f64> {
    samples(&response_to(metrics, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text())
}

/// The families of a text with type and unit.
fn families(text: &str) -> BTreeMap<String, (String, String)> {
    let mut families: BTreeMap<String, (String, String)> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            families.insert(name.to_owned(), (kind.to_owned(), String::new()));
        } else if let Some((name, unit)) = line.strip_prefix("# UNIT ").and_then(|rest| rest.split_once(' ')) {
            families.get_mut(name).expect("the type comes first").1 = unit.to_owned();
        }
    }
    families
}

#[test]
fn requests_and_queries_are_counted_by_their_properties() {
    let directory = directory(LISTENER, "[log]\naccess = \"access.log\"\n");
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (http, dns, metrics) = (server.http(), server.dns(), server.metrics());
    let get = |line: &str, fields: &str| {
        let request = format!("{line}\r\nHost: example.com\r\n{fields}Connection: close\r\n\r\n");
        response_to(http, request).status
    };
    assert_eq!(get("GET / HTTP/1.1", ""), 200);
    assert_eq!(get("HEAD / HTTP/1.1", ""), 200);
    assert_eq!(get("GET /large HTTP/1.1", ""), 200);
    assert_eq!(get("GET /missing HTTP/1.1", ""), 404);
    assert_eq!(get("GET / HTTP/1.0", "If-None-Match: *\r\n"), 304);
    tcp_exchange(http, b"GET / HTTP/1.1\r\n\r\n");
    let [host, url] =
        [format!("example.com:{}:127.0.0.1", http.port()), format!("http://example.com:{}/large", http.port())];
    assert_eq!(curl(&["-sS", "--http2-prior-knowledge", "--resolve", &host, "-o", "/dev/null", &url]).text(), "");
    Question::new("ns.example.com.", 1).query_udp(dns);
    Question::new("no.example.com.", 28).query_udp(dns);
    Question::new("ns.example.com.", 65_280).query_tcp(dns);
    Question::new("example.org.", 15).query_udp(dns);
    let check = |found: &BTreeMap<String, f64>| {
        let value = |name: &str| *found.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        let expected = [
            ("sanderling_http_responses_total{version=\"1.1\",tls=\"false\",status=\"2xx\"}", 3.0),
            ("sanderling_http_responses_total{version=\"1.0\",tls=\"false\",status=\"3xx\"}", 1.0),
            ("sanderling_http_responses_total{version=\"1.1\",tls=\"false\",status=\"4xx\"}", 2.0),
            ("sanderling_http_responses_total{version=\"2\",tls=\"false\",status=\"2xx\"}", 1.0),
            ("sanderling_http_responses_total{version=\"2\",tls=\"true\",status=\"2xx\"}", 0.0),
            ("sanderling_http_response_duration_seconds_count{version=\"1.1\"}", 5.0),
            ("sanderling_http_response_duration_seconds_bucket{version=\"1.1\",le=\"+Inf\"}", 5.0),
            ("sanderling_site_responses_total{site=\"example.com\",status=\"2xx\"}", 4.0),
            ("sanderling_site_responses_total{site=\"_none\",status=\"4xx\"}", 1.0),
            ("sanderling_http_requests_total", 6.0),
            ("sanderling_http_requests_malformed_total", 1.0),
            ("sanderling_http2_requests_total", 1.0),
            ("sanderling_dns_queries_total{transport=\"udp\",type=\"A\"}", 1.0),
            ("sanderling_dns_queries_total{transport=\"udp\",type=\"AAAA\"}", 1.0),
            ("sanderling_dns_queries_total{transport=\"udp\",type=\"MX\"}", 1.0),
            ("sanderling_dns_queries_total{transport=\"tcp\",type=\"other\"}", 1.0),
            ("sanderling_dns_replies_total{transport=\"udp\",rcode=\"NOERROR\"}", 1.0),
            ("sanderling_dns_replies_total{transport=\"udp\",rcode=\"NXDOMAIN\"}", 1.0),
            ("sanderling_dns_replies_total{transport=\"udp\",rcode=\"REFUSED\"}", 1.0),
            ("sanderling_dns_reply_size_bytes_count{transport=\"udp\"}", 3.0),
            ("sanderling_zone_queries_total{zone=\"example.com\"}", 3.0),
            ("sanderling_zone_queries_total{zone=\"_none\"}", 1.0),
            ("sanderling_zone_serial{zone=\"example.com\"}", 7.0),
            ("sanderling_processes{state=\"serving\"}", 1.0),
            ("sanderling_restarts_total", 0.0),
            ("sanderling_connections{protocol=\"http\",tls=\"false\"}", 0.0),
            ("sanderling_log_lines_total{log=\"access\",result=\"written\"}", 7.0),
            ("sanderling_log_lines_total{log=\"access\",result=\"dropped\"}", 0.0),
        ];
        let differences: Vec<_> = expected.iter().filter(|(name, expected)| value(name) != *expected).collect();
        assert!(differences.is_empty(), "not so: {differences:#?}\n{found:#?}");
        // Both large responses, and the page of status 404.
        assert!(value("sanderling_site_content_bytes_total{site=\"example.com\"}") > 600_000.0);
        let lookups =
            ["hit", "miss", "none"].map(|it| value(&format!("sanderling_file_cache_lookups_total{{result=\"{it}\"}}")));
        assert_eq!((lookups.iter().sum::<f64>(), lookups[2]), (6.0, 1.0), "{lookups:?}");
        assert!(value("process_start_time_seconds") > 1_700_000_000.0);
    };
    // The last connections close, and the lines are written, a moment later.
    let is_settled = |found: &BTreeMap<String, f64>| {
        found["sanderling_connections{protocol=\"http\",tls=\"false\"}"] == 0.0
            && found["sanderling_log_lines_total{log=\"access\",result=\"written\"}"] == 7.0
            && found.contains_key("sanderling_restarts_total")
    };
    wait_until("all is counted", || is_settled(&collect(metrics)));
    check(&collect(metrics));
    check(&samples(&directory.control_with("status", &["--metrics"]).text()));
}

#[test]
fn listener_follows_http() {
    let directory = directory(LISTENER, "");
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let metrics = server.metrics();
    let get = |line: &str, fields: &str| response_to(metrics, format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let response = get("GET /metrics", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.1\r\n");
    assert_eq!(response.status, 200);
    assert_eq!(response.field("Content-Type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(response.text().ends_with("\n# EOF\n"));
    let head = get("HEAD /metrics", "");
    assert_eq!((head.status, head.text().as_str()), (200, ""));
    let classic = get("GET /metrics", "Accept: text/plain\r\n");
    assert_eq!(classic.field("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(classic.text().contains("\n# TYPE sanderling_http_requests_total counter\n"), "{}", classic.text());
    assert!(!classic.text().contains("# EOF") && !classic.text().contains("# UNIT"));
    assert_eq!(get("GET /", "").status, 404);
    assert_eq!(get("POST /metrics", "").status, 405);
}

#[test]
fn output_has_the_families_of_the_manual() {
    let manual = std::fs::read_to_string(MANUAL).unwrap();
    let mut listed = BTreeMap::new();
    let mut detailed = Vec::new();
    for line in manual.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].split('`').nth(1).expect("a name").to_owned();
        if cells[1].ends_with('*') {
            detailed.push(name.clone());
        }
        listed.insert(name, (cells[2].to_owned(), cells[3].to_owned()));
    }
    assert!(listed.len() > 40 && detailed.len() > 10);
    let directory = directory(LISTENER, "[log]\naccess = \"access.log\"\n");
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let metrics = server.metrics();
    wait_until("the counts of the supervisor", || collect(metrics).contains_key("sanderling_restarts_total"));
    let text = HttpClient::connect(metrics).get("/metrics").text();
    assert_eq!(families(&text), listed);
    configure(&directory, "", "[log]\naccess = \"access.log\"\n");
    directory.control("reload").text();
    let status = || directory.control_with("status", &["--metrics"]).text();
    wait_until("the counts of the supervisor", || status().contains("sanderling_restarts_total"));
    detailed.iter().for_each(|name| drop(listed.remove(name)));
    assert_eq!(families(&status()), listed, "without [metrics]");
}

#[test]
fn listener_stays_open_and_the_supervisor_keeps_its_counts_when_a_process_is_replaced() {
    let directory = directory(LISTENER, "");
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let metrics = server.metrics();
    response_to(server.http(), "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    let reloads = |result: &str| format!("sanderling_reloads_total{{result=\"{result}\"}}");
    let wait_for = |name: &str, expected: f64| {
        wait_until(name, || collect(metrics).get(name) == Some(&expected));
    };
    configure(&directory, LISTENER, "[limits]\nhttp_head_bytes_max = 20000\n");
    let answer = directory.control("reload").text();
    assert!(answer.contains("has replaced the old one"), "{answer}");
    wait_for(&reloads("success"), 1.0);
    assert_eq!(collect(metrics)["sanderling_http_requests_total"], 0.0, "a new process begins again");
    configure(&directory, LISTENER, "mistake");
    assert!(!directory.control("reload").status.success());
    wait_for(&reloads("failure"), 1.0);
    configure(&directory, LISTENER, "[limits]\nhttp_head_bytes_max = 20000\n");
    directory.write("example.com.zone", b"nonsense");
    assert!(!directory.control("reload").status.success());
    wait_for(&reloads("partial"), 1.0);
    wait_for("sanderling_zone_problem{zone=\"example.com\"}", 1.0);
    wait_for("sanderling_zones{state=\"kept\"}", 1.0);
    wait_for("sanderling_zone_serial{zone=\"example.com\"}", 7.0);
    sanderling_testkit::send_signal("KILL", &server.server_process_id().to_string());
    wait_until("the restarted process", || {
        let text = directory.control_with("status", &["--metrics"]);
        String::from_utf8_lossy(&text.output).contains("sanderling_restarts_total 1\n")
    });
    wait_for("sanderling_processes{state=\"serving\"}", 1.0);
    assert_eq!(collect(metrics)[&reloads("success")], 1.0);
}

/// A secondary zone whose primary has never answered gets SERVFAIL, and all views say so.
#[test]
fn zone_that_was_never_transferred_is_unavailable_in_every_view() {
    let more = "[domain.\"example.net\"]\nprimaries = [{ address = \"127.0.0.9:1\" }]\n";
    let directory = directory(LISTENER, more);
    let text = fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.replace("sanderling.toml", format!("state = \"state\"\n{text}").as_bytes());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let metrics = server.metrics();
    wait_until("the agent has reported", || {
        let found = collect(metrics);
        found.get("sanderling_process_running{process=\"agent\"}") == Some(&1.0)
            && directory.control("status").text().contains("; it is not transferred: ")
    });
    let found = collect(metrics);
    for (name, expected) in [
        ("sanderling_zones{state=\"served\"}", 1.0),
        ("sanderling_zones{state=\"unavailable\"}", 1.0),
        ("sanderling_zone_problem{zone=\"example.net\"}", 1.0),
        ("sanderling_zone_problem{zone=\"example.com\"}", 0.0),
        ("sanderling_process_running{process=\"supervisor\"}", 1.0),
    ] {
        assert_eq!(found.get(name), Some(&expected), "{name}: {found:#?}");
    }
    let top = directory.control_with("top", &["--once"]).text();
    assert!(top.contains("\nproblems     1 zone unavailable\n"), "{top}");
    let status = directory.control("status");
    assert_eq!(status.code(), Some(1), "{status}");
    assert!(status.text().contains("  problems      1 zone unavailable\n"), "{status}");
    assert!(status.text().contains("  reloads       0 without a new process\n"), "{status}");
    let json = directory.control_with("status", &["--json"]);
    let value: serde_json::Value = serde_json::from_str(&json.text()).expect("JSON");
    assert_eq!((json.code(), value["process"]["problems"][0].as_str()), (Some(1), Some("1 zone unavailable")));
    assert_eq!(value["process"]["zones"][1]["state"], "unavailable");
    assert_eq!(directory.control_with("status", &["--metrics"]).code(), Some(0));
    directory.replace("sanderling.toml", text.replace(more, "").as_bytes());
    assert!(directory.control("reload").status.success());
    let status = directory.control("status");
    assert_eq!((status.code(), status.text().contains("  problems      none\n")), (Some(0), true), "{status}");
}

#[test]
fn sites_beyond_the_limit_are_counted_together_and_sites_keep_their_place() {
    let more = "[domain.\"a.example\"]\nsite = \"public\"\n[domain.\"b.example\"]\nsite = \"public\"\n\
                [limits]\nmetrics_sites_max = 2\n";
    let directory = directory(LISTENER, more);
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (http, metrics) = (server.http(), server.metrics());
    let get = |host: &str| {
        response_to(http, format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    };
    ["example.com", "a.example", "a.example", "b.example", "none.example"].into_iter().for_each(get);
    let check = |expected: &[(&str, f64)]| {
        let found = collect(metrics);
        for (site, count) in expected {
            let of_class =
                |class: &str| found[&format!("sanderling_site_responses_total{{site=\"{site}\",status=\"{class}\"}}")];
            assert_eq!(of_class("2xx") + of_class("4xx"), *count, "{site}: {found:#?}");
        }
    };
    check(&[("example.com", 1.0), ("a.example", 2.0), ("_other", 1.0), ("_none", 1.0)]);
    configure(
        &directory,
        LISTENER,
        &more.replace("[domain.\"a.example\"]", "[domain.\"c.example\"]\nsite = \"public\"\n[domain.\"a.example\"]"),
    );
    let answer = directory.control("reload").text();
    assert!(answer.contains("no connection was closed"), "{answer}");
    ["a.example", "c.example"].into_iter().for_each(get);
    check(&[("example.com", 1.0), ("a.example", 3.0), ("_other", 2.0), ("_none", 1.0)]);
}

#[test]
fn page_of_top_is_printed_once() {
    let directory = directory("[metrics]", "");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    response_to(server.http(), "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    let page = directory.control_with("top", &["--once"]).text();
    assert!(page.starts_with(concat!("sanderling ", env!("CARGO_PKG_VERSION"), "  up ")), "{page}");
    let lines: Vec<&str> = page.lines().collect();
    for (index, start) in
        ["problems     none", "requests  ", "time  ", "queries  ", "connections  ", "TLS  ", "limits  "]
            .iter()
            .enumerate()
    {
        assert!(lines[index + 1].starts_with(start), "{page}");
    }
    assert!(lines[10].starts_with("example.com ") && lines[10].ends_with(" 7"), "{page}");
    assert!(!page.contains('\x1b'), "{page:?}");
    // Without a terminal there is no live page.
    let ended = directory.control("top");
    assert!(!ended.status.success());
    assert!(ended.errors.contains("cannot use the terminal") && ended.errors.contains("--once"), "{}", ended.errors);
    drop(server);
    let ended = directory.control_with("top", &["--once"]);
    assert!(!ended.status.success() && ended.errors.contains("no server answers"), "{}", ended.errors);
}

#[test]
fn top_ends_when_its_terminal_is_closed() {
    let directory = directory("[metrics]", "");
    let _server = TestServer::start_command(directory.serve_command(), BOTH);
    let (control, process_id) = (directory.argument("control"), directory.argument("process-id"));
    // SIGHUP is ignored, so that it is not what ends the program.
    let command = format!(
        "trap '' HUP; echo $$ > {process_id}; exec {} top --control {control}",
        env!("CARGO_BIN_EXE_sanderling")
    );
    // `script` has the other end of the terminal.
    let mut script = Command::new("script");
    script.args(["--quiet", "--command", &command, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut script = script.spawn().expect("`script` is installed");
    let mut first_byte = [0];
    script.stdout.as_mut().expect("a pipe").read_exact(&mut first_byte).expect("a page");
    let process = format!("/proc/{}", fs::read_to_string(process_id).expect("a number").trim());
    assert!(Path::new(&process).exists());
    script.kill().expect("it runs");
    script.wait().expect("it has ended");
    wait_until("top ends", || !Path::new(&process).exists());
}
