//! Options of DNS replies: cookies, the server's name, reasons of errors, with dig and kdig as clients; limits of
//! replies.

use sanderling_testkit::dns::{Question, Reply};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, UdpClient, dig, dig_udp, kdig, run};
use std::net::SocketAddr;
use std::time::Duration;

const DNS: ListenerCounts = ListenerCounts { http: 0, dns: 1 };
const ZONE: &[u8] = b"@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n";
const CLIENT_COOKIE: &str = "0123456789abcdef";

/// A directory with a zone, and a configuration with these lines in `[dns]`.
fn domain(dns: &str) -> TestDirectory {
    TestDirectory::with(&[("example.com.zone", ZONE), ("sanderling.toml", config(dns).as_bytes())])
}

fn config(dns: &str) -> String {
    format!("[dns]\nlisten = [\"127.0.0.1:0\"]\n{dns}\n[domain.\"example.com\"]\nzone = \"example.com.zone\"\n")
}

/// The output of dig about the cookie in the reply to a query with `cookie`: the cookie and `(good)`, or nothing.
fn cookie(server: SocketAddr, cookie: &str) -> String {
    let reply = dig_udp(server, &["example.com", "SOA", &format!("+cookie={cookie}")]).text();
    let line = reply.lines().find_map(|line| line.strip_prefix("; COOKIE: "));
    line.unwrap_or_default().to_owned()
}

/// The cookie of 24 bytes in what dig prints.
fn hex(printed: &str) -> &str {
    printed.strip_suffix(" (good)").unwrap_or_else(|| panic!("no good cookie: {printed}"))
}

#[test]
fn name_and_version_are_those_of_the_configuration() {
    let directory = domain("nsid = \"ns1.test\"\nversion = \"of a test\"\nerror_report_agent = \"reports.example\"");
    let server = TestServer::start_command(directory.serve_command(), DNS);
    for (name, text) in [("version.bind", "of a test"), ("id.server", "ns1.test")] {
        let reply = dig(server.dns(), &["CH", "TXT", name, "+short"]);
        assert_eq!(reply.text(), format!("\"{text}\"\n"), "{name}");
    }
    for transport in ["+notcp", "+tcp"] {
        let reply = dig_udp(server.dns(), &["example.com", "SOA", "+nsid", "+keepalive", transport]).text();
        assert!(reply.contains("; NSID: ") && reply.contains("ns1.test"), "{reply}");
        assert_eq!(reply.contains("; TCP KEEPALIVE: 5.0 secs"), transport == "+tcp", "{reply}");
        assert!(reply.contains("reports.example") || reply.contains("OPT=18: 07 72 65 70 6f 72 74 73"), "{reply}");
    }
    let reply = kdig(server.dns(), &["elsewhere.test", "A", "+edns"]).text();
    assert!(reply.contains("REFUSED") && reply.contains("EDE: 20 (Not Authoritative)"), "{reply}");
    // A reload in place removes them.
    directory.replace("sanderling.toml", config("extended_errors = false\ntcp_keepalive = false").as_bytes());
    let ended = directory.control("reload");
    assert!(ended.text().starts_with("reloaded; no connection was closed"), "{}{}", ended.text(), ended.errors);
    let reply = dig(server.dns(), &["CH", "TXT", "version.bind"]).text();
    assert!(reply.contains("REFUSED") && !reply.contains("EDE"), "{reply}");
    let reply = dig(server.dns(), &["example.com", "SOA", "+nsid", "+keepalive"]).text();
    assert!(!reply.contains("; NSID") && !reply.contains("KEEPALIVE") && !reply.contains("OPT=18"), "{reply}");
}

#[test]
fn name_version_and_cookie_are_no_errors() {
    let config = config("nsid = \"ns1.test\"\nversion = \"of a test\"");
    let directory = domain("");
    directory.replace("sanderling.toml", (config + "[limits]\ndns_udp_errors_per_second_max = 0\n").as_bytes());
    let server = TestServer::start_command(directory.serve_command(), DNS);
    for name in ["version.bind", "id.server", "hostname.bind"] {
        assert!(dig_udp(server.dns(), &["CH", "TXT", name, "+nocookie"]).text().contains("NOERROR"), "{name}");
    }
    // An OPT with a cookie and nothing else.
    let client = UdpClient::new(server.dns());
    client.send(b"\0\x01\0\0\0\0\0\0\0\0\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\x0c\0\x0a\0\x08clientco");
    assert_eq!(client.receive()[3] & 15, 0);
    // A question without a configured answer is an error.
    let reply = dig_udp(server.dns(), &["CH", "TXT", "authors.bind", "+nocookie", "+tries=1", "+time=1"]);
    assert!(reply.code() == Some(9), "no reply: {reply}");
}

#[test]
fn cookies_outlive_a_reload_an_upgrade_and_a_crash() {
    let directory = domain("");
    let server = TestServer::start_command(directory.serve_command(), DNS);
    let first = cookie(server.dns(), CLIENT_COOKIE);
    let first = hex(&first);
    assert!(first.starts_with(CLIENT_COOKIE) && first.len() == 48, "{first}");
    // A valid and recent cookie is returned unchanged.
    let check = |server: &TestServer| assert_eq!(hex(&cookie(server.dns(), first)), first);
    check(&server);
    directory.replace("sanderling.toml", (config("") + "[limits]\ndns_cname_chain_max = 8\n").as_bytes());
    for verb in ["reload", "upgrade"] {
        let process = server.server_process_id();
        let ended = directory.control(verb);
        assert!(ended.status.success(), "{verb}: {}", ended.errors);
        assert_ne!(server.server_process_id(), process, "{verb} has started another process");
        check(&server);
    }
    // An invented cookie is replaced.
    let made_up = format!("{CLIENT_COOKIE}{}", "01000000".to_owned() + &"0".repeat(24));
    assert_ne!(hex(&cookie(server.dns(), &made_up)), made_up);
}

#[test]
fn servers_with_the_same_secret_accept_the_cookies_of_each_other() {
    let (old, new) = ("0123456789abcdef".repeat(2), "fedcba9876543210".repeat(2));
    let start = |secrets: &str| {
        let directory = domain("cookie_secret_file = \"secret\"");
        directory.replace("secret", secrets.as_bytes());
        let server = TestServer::start_command(directory.serve_command(), DNS);
        (directory, server)
    };
    let (_one, server) = start(&old);
    let (directory, other) = start(&old);
    let check = || run(&["check", "--config", &directory.argument("sanderling.toml")]);
    let made = cookie(server.dns(), CLIENT_COOKIE);
    let made = hex(&made);
    assert_eq!(hex(&cookie(other.dns(), made)), made);
    let ended = check();
    assert!(ended.status.success(), "{}", ended.errors);
    directory.replace("secret", b"nonsense");
    let ended = check();
    assert!(!ended.status.success() && ended.errors.contains("has a line of the wrong length"), "{}", ended.errors);
    // The secrets that the server has stay.
    directory.control("reload");
    assert_eq!(hex(&cookie(other.dns(), made)), made);
    directory.replace("secret", new.as_bytes());
    let ended = directory.control("reload");
    assert!(ended.status.success(), "{}", ended.errors);
    assert_ne!(hex(&cookie(other.dns(), made)), made);
    directory.replace("secret", format!("{new}\n{old}\n").as_bytes());
    directory.control("reload");
    assert_eq!(hex(&cookie(other.dns(), made)), made, "the second secret is accepted");
    directory.replace("sanderling.toml", config("").as_bytes());
    let ended = directory.control("reload");
    assert!(ended.status.success(), "{}", ended.errors);
    assert_ne!(hex(&cookie(other.dns(), made)), made, "without the key, its secrets are not used");
}

#[test]
fn no_cookie_is_sent_if_they_are_off() {
    let directory = domain("cookies = false");
    let server = TestServer::start_command(directory.serve_command(), DNS);
    // dig prints the query's cookie if the reply has none.
    assert!(!cookie(server.dns(), CLIENT_COOKIE).contains("(good)"));
}

/// The replies to `count` queries for a name: those with records, and those with the flag TC.
fn replies(server: SocketAddr, count: usize) -> (usize, usize) {
    let query = Question::new("ns1.example.com", 1).message();
    let client = UdpClient::new(server);
    (0..count).for_each(|_| client.send(&query));
    let (mut with_records, mut truncated) = (0, 0);
    // The last reply belongs to a kind without a limit.
    client.send(&Question::new("example.com", 6).message());
    while let Some(reply) = client.receive_within(Duration::from_secs(20)) {
        let reply = Reply::parse(&reply);
        match (reply.is_truncated(), reply.answer.first().map(|record| record.rtype)) {
            (true, _) => truncated += 1,
            (false, Some(1)) => with_records += 1,
            (false, _) => return (with_records, truncated),
        }
    }
    panic!("no reply to the last query");
}

#[test]
fn flood_of_replies_is_limited() {
    let limits = "[limits]\ndns_udp_replies_per_second_max = 5\n";
    let before = "workers = 1\nlisteners = 1\n".to_owned();
    let write = |dns: &str| before.clone() + &config(dns) + limits;
    let directory = domain("");
    directory.replace("sanderling.toml", write("rate_limit_dry_run = true").as_bytes());
    let server = TestServer::start_command(directory.serve_command(), DNS);
    assert_eq!(replies(server.dns(), 60), (60, 0), "a dry run");
    assert!(
        directory.control("status").text().contains("dns_replies_limited 5"),
        "60 - 5, or less if a second has ended"
    );
    directory.replace("sanderling.toml", write("").as_bytes());
    let ended = directory.control("reload");
    assert!(ended.text().starts_with("reloaded; no connection was closed"), "{}{}", ended.text(), ended.errors);
    let (with_records, truncated) = replies(server.dns(), 60);
    assert!(with_records <= 5 && truncated >= 20, "{with_records} {truncated}");
    server.wait_for_error("dns_udp_replies_per_second_max is reached");
    let cookie = cookie(server.dns(), CLIENT_COOKIE);
    let reply = dig_udp(server.dns(), &["ns1.example.com", "A", "+short", &format!("+cookie={}", hex(&cookie))]);
    assert_eq!(reply.text(), "192.0.2.1\n", "its cookie is valid");
    directory.replace("sanderling.toml", write("rate_limit_exempt = [\"127.0.0.0/8\"]").as_bytes());
    let ended = directory.control("reload");
    assert!(ended.status.success(), "{}", ended.errors);
    assert_eq!(replies(server.dns(), 60), (60, 0), "exempt");
}
