//! Certificates that other programs request, by dynamic updates of a zone of this server.

use super::Setup;
use crate::name_servers::SECRET;
use sanderling_testkit::{DEADLINE, Ended, ListenerCounts, TestServer, dig, run_to_end};
use std::fs;
use std::process::Command;

/// A server with the section of the manual, and the authority that asks it.
fn start() -> (Setup, TestServer) {
    let mut setup = Setup::new("");
    setup.directory.write("acme.key", format!("{SECRET}\n").as_bytes());
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"127.0.0.1:{}\"]\n[tsig.acme]\nalgorithm = \"hmac-sha256\"\n\
         secret_file = \"acme.key\"\n[domain.\"example.com\"]\nzone = \"example.com.zone\"\n\
         update = [{{ key = \"acme\", names = [\"_acme-challenge.**\"], types = [\"TXT\"] }}]\n",
        setup.dns_port
    );
    setup.directory.write("sanderling.toml", config.as_bytes());
    // Pebble refuses 5 of 100 nonces unless told otherwise, and Certbot 2.1 ends at a refused one with an error of its
    // own (`AttributeError: can't set attribute`).
    setup.variables.push(("PEBBLE_WFE_NONCEREJECT", "0"));
    setup.start_pebble();
    let server = TestServer::start_command(setup.directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    (setup, server)
}

/// Runs the program, which trusts the authority's certificate.
fn run(setup: &Setup, program: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program);
    let trusted = setup.directory.argument("pebble.pem");
    command.args(arguments).env("REQUESTS_CA_BUNDLE", &trusted).env("LEGO_CA_CERTIFICATES", &trusted);
    for (name, value) in [
        ("RFC2136_NAMESERVER", format!("127.0.0.1:{}", setup.dns_port)),
        ("RFC2136_TSIG_ALGORITHM", "hmac-sha256.".to_owned()),
        ("RFC2136_TSIG_KEY", "acme.".to_owned()),
        ("RFC2136_TSIG_SECRET", SECRET.to_owned()),
        // Between two records; the default is a minute.
        ("RFC2136_SEQUENCE_INTERVAL", "1".to_owned()),
    ] {
        command.env(name, value);
    }
    run_to_end(command, DEADLINE * 3)
}

/// There is a certificate of the names at `path`, and no record of the order is left.
#[track_caller]
fn check(setup: &Setup, server: &TestServer, ended: &Ended, path: &str) {
    assert_eq!(ended.code(), Some(0), "{ended}\n{}\n{}", server.errors(), setup.pebble_log());
    let chain = fs::read_to_string(setup.directory.path().join(path)).expect("a certificate");
    assert!(chain.starts_with("-----BEGIN CERTIFICATE-----"), "{chain}");
    let left = dig(server.dns(), &["+short", "_acme-challenge.example.com", "TXT"]).text();
    assert_eq!(left, "");
    let file = fs::read_to_string(setup.directory.path().join("example.com.zone")).expect("the zone");
    assert!(!file.contains("_acme-challenge"), "{file}");
}

#[test]
fn certbot_gets_a_certificate() {
    let (setup, server) = start();
    let credentials = format!(
        "dns_rfc2136_server = 127.0.0.1\ndns_rfc2136_port = {}\ndns_rfc2136_name = acme.\n\
         dns_rfc2136_secret = {SECRET}\ndns_rfc2136_algorithm = HMAC-SHA256\n",
        setup.dns_port
    );
    let credentials = setup.directory.write("rfc2136.ini", credentials.as_bytes()).display().to_string();
    let (folder, authority) =
        (setup.directory.argument("certbot"), format!("https://127.0.0.1:{}/dir", setup.acme_port));
    let arguments = "certonly --non-interactive --agree-tos --register-unsafely-without-email --dns-rfc2136 \
                     --dns-rfc2136-propagation-seconds 0 -d example.com -d *.example.com";
    let folders = ["--config-dir", &folder, "--work-dir", &folder, "--logs-dir", &folder];
    let others = ["--server", &authority, "--dns-rfc2136-credentials", &credentials];
    let arguments: Vec<&str> = arguments.split_whitespace().chain(folders).chain(others).collect();
    let ended = run(&setup, "certbot", &arguments);
    check(&setup, &server, &ended, "certbot/live/example.com/fullchain.pem");
}

#[test]
fn lego_gets_a_certificate() {
    let (setup, server) = start();
    let (folder, authority) = (setup.directory.argument("lego"), format!("https://127.0.0.1:{}/dir", setup.acme_port));
    let resolver = format!("127.0.0.1:{}", setup.dns_port);
    // The client would ask the zone's name server at port 53.
    let arguments = "--accept-tos --email hostmaster@example.com --dns rfc2136 --dns.disable-cp";
    let others = ["--dns.resolvers", &resolver, "--path", &folder, "--server", &authority];
    let names = ["-d", "example.com", "-d", "*.example.com", "run"];
    let arguments: Vec<&str> = arguments.split_whitespace().chain(others).chain(names).collect();
    let ended = run(&setup, "lego", &arguments);
    check(&setup, &server, &ended, "lego/certificates/example.com.crt");
}
