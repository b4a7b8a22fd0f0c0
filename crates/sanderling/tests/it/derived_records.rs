//! Records that follow the server, which `derive` adds to the served zone.

mod rotation;

use crate::certificates::Setup;
use sanderling_testkit::dns::{self, A, AAAA, data};
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, curl, dig, free_address, run_to_end, sanderling, wait_until,
};
use std::fs;
use std::net::SocketAddr;

/// A setup whose authority has a name in CAA records, and the port of HTTPS.
pub(crate) fn setup(domain: &str) -> (Setup, u16) {
    let setup = Setup::new(&format!("zone = \"example.com.zone\"\n{domain}"));
    let port = free_address().port();
    setup
        .replace_in_config("[https]\nlisten = [\"127.0.0.1:0\"]", &format!("[https]\nlisten = [\"127.0.0.1:{port}\"]"));
    setup.replace_in_config("root = \"pebble.pem\"", "root = \"pebble.pem\", caa = \"pebble.test\"");
    (setup, port)
}

/// The records of a name and type, a line each.
fn records(server: SocketAddr, name: &str, rtype: &str) -> String {
    dig(server, &["+short", name, rtype]).text()
}

fn serial(server: SocketAddr) -> u32 {
    dns::serial(server, "example.com").expect("the zone is served")
}

fn wait_for_record(server: SocketAddr, name: &str, rtype: &str, part: &str) {
    wait_until(&format!("{name} {rtype} has {part}"), || records(server, name, rtype).contains(part));
}

#[test]
fn https_and_caa_follow_listeners_certificates_and_accounts() {
    let (mut setup, port) = setup("");
    let mut server = setup.start_server();
    let dns = server.dns();
    let https_name = format!("_{port}._https.example.com");
    wait_for_record(dns, "example.com", "CAA", "0 issue \"pebble.test; validationmethods=dns-01,http-01\"");
    // No certificate is in service.
    assert_eq!(records(dns, &https_name, "HTTPS"), "");
    setup.start_pebble();
    setup.fetch_root();
    setup.directory.control_with("renew", &["example.com"]);
    let https = server.encrypted("https");
    setup.wait_for_page(https, "example.com");
    wait_for_record(dns, &https_name, "HTTPS", &format!("1 . alpn=\"h2\" port={port} ipv4hint=127.0.0.1\n"));
    wait_for_record(dns, "example.com", "CAA", "pebble.test; accounturi=https://127.0.0.1:");
    let raised = serial(dns);
    assert!(raised >= 3, "{raised}");
    let mut show = sanderling();
    show.args(["zone", "show", "example.com", "--control", &setup.directory.argument("control")]);
    let shown = run_to_end(show, DEADLINE).text();
    for (record, comment) in [
        (" IN SOA ", " ; derived: the file's serial is 1\n"),
        (" IN HTTPS ", " ; derived: https\n"),
        (" IN CAA ", " ; derived: caa\n"),
        (" IN NS ", "ns.example.com.\n"),
    ] {
        let line = shown.split_inclusive('\n').find(|line| line.contains(record));
        assert!(line.is_some_and(|line| line.ends_with(comment)), "{record}: {shown}");
    }
    // The zone file is as it was, and its records have precedence.
    let zone = fs::read_to_string(setup.directory.path().join("example.com.zone")).unwrap();
    let changed = zone.replacen("host 1 ", "host 2 ", 1) + "@ 60 CAA 0 issue \"mine.test\"\n";
    assert!(!zone.contains("CAA") && changed != zone);
    setup.directory.replace("example.com.zone", changed.as_bytes());
    // A renewal does not make the server read the file.
    setup.directory.control_with("renew", &["example.com"]);
    assert!(records(dns, "example.com", "CAA").contains("pebble.test"));
    setup.directory.control("reload");
    assert_eq!(records(dns, "example.com", "CAA"), "0 issue \"mine.test\"\n");
    assert_eq!(serial(dns), raised + 1);
    let mut check = sanderling();
    check.args(["check", "--config", &setup.directory.argument("sanderling.toml")]);
    let checked = run_to_end(check, DEADLINE);
    assert!(
        checked.code() == Some(0)
            && checked.errors.contains("note: the file has precedence: no CAA record is derived for example.com"),
        "{checked}"
    );
    // Derived records outlive the server, so that the serial does not go back.
    drop(server);
    let server = setup.start_server();
    assert_eq!(serial(server.dns()), raised + 1);
    wait_for_record(server.dns(), &https_name, "HTTPS", "alpn");
    withdraw(&setup, &server, &https_name, raised + 1);
}

#[test]
fn policy_for_mail_servers_is_served_and_its_record_follows_it() {
    let (mut setup, _) = setup("derive = [\"mta-sts\"]\nmta_sts = { mode = \"enforce\", max_age = \"1d\" }");
    let zone = fs::read_to_string(setup.directory.path().join("example.com.zone")).unwrap();
    let zone_with = |serial: u32, mx: &str| zone.replacen("host 1 ", &format!("host {serial} "), 1) + mx;
    setup.directory.replace("example.com.zone", zone_with(1, "@ 60 MX 10 mail\n").as_bytes());
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    let (dns, https) = (server.dns(), server.encrypted("https"));
    setup.wait_for_page(https, "example.com");
    wait_for_record(dns, "_mta-sts.example.com", "TXT", "\"v=STSv1; id=");
    assert_eq!(records(dns, "mta-sts.example.com", "A"), "127.0.0.1\n");
    // Senders accept neither a redirect nor another type (RFC 8461 section 3.3).
    let policy = |path: &str| {
        let (root, connect_to) = (setup.directory.argument("root.pem"), format!("::{https}"));
        let url = format!("https://mta-sts.example.com{path}");
        let show = "%{response_code} %{content_type}\\n";
        curl(&["-sS", "--cacert", &root, "--connect-to", &connect_to, "-w", show, &url]).text()
    };
    const PATH: &str = "/.well-known/mta-sts.txt";
    let expected = |mx: &str| {
        format!("version: STSv1\r\nmode: enforce\r\nmax_age: 86400\r\nmx: {mx}\r\n200 text/plain; charset=utf-8\n")
    };
    assert_eq!(policy(PATH), expected("mail.example.com"));
    assert!(!policy("/").contains("200 "), "the site is not at this host: {}", policy("/"));
    let id = records(dns, "_mta-sts.example.com", "TXT");
    setup.directory.replace("example.com.zone", zone_with(2, "@ 60 MX 10 mail.other.example.\n").as_bytes());
    setup.directory.control_with("reload", &["example.com"]);
    assert_eq!(policy(PATH), expected("mail.other.example"));
    assert_ne!(records(dns, "_mta-sts.example.com", "TXT"), id);
    // The record is served before the agent of another server process reports anything.
    setup.replace_in_config("mode = \"enforce\"", "mode = \"none\"");
    setup.directory.control("reload");
    assert!(policy(PATH).contains("mode: none\r\n"), "{}", policy(PATH));
    wait_until("another id", || records(dns, "_mta-sts.example.com", "TXT") != id);
}

/// Without `derive`, the records go, and the serial is raised once more.
fn withdraw(setup: &Setup, server: &TestServer, https_name: &str, before: u32) {
    setup.replace_in_config("zone = \"example.com.zone\"\n", "zone = \"example.com.zone\"\nderive = []\n");
    setup.directory.control("reload");
    wait_until("the serial is raised", || serial(server.dns()) == before + 1);
    assert_eq!(records(server.dns(), https_name, "HTTPS"), "");
}

#[test]
fn addresses_follow_the_listeners() {
    let directory = TestDirectory::new();
    std::fs::create_dir(directory.path().join("public")).unwrap();
    directory.write("a.zone", b"$TTL 60\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\n");
    let configure = |http: &str| {
        let config = format!(
            "workers = 1\nstate = \"state\"\n[http]\nlisten = [{http}]\n[dns]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.test\"]\n\
             site = \"public\"\nzone = \"a.zone\"\naliases = [\"www.a.test\"]\nderive = [\"addresses\"]\n"
        );
        directory.replace("sanderling.toml", config.as_bytes());
    };
    configure("\"127.0.0.1:0\"");
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 1 });
    for name in ["a.test", "www.a.test"] {
        wait_until("the address is derived", || data(server.dns(), name, A).as_deref() == Some("127.0.0.1"));
    }
    drop(server);
    configure("\"127.0.0.1:0\", \"[::1]:0\"");
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 2, dns: 1 });
    wait_until("the other address is derived", || data(server.dns(), "www.a.test", AAAA).as_deref() == Some("::1"));
    assert_eq!(records(server.dns(), "www.a.test", "A"), "127.0.0.1\n");
}
