//! Reloads and renewals of certificates with unusable files, or with files for other names.

use super::{BOTH, domain, issue, issue_for, s_client};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, curl, run, run_program, wait_until};
use std::fs;

const SHARED: &str = "workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\nlisten = [\"127.0.0.1:0\"]\n\
    [domain.\"a.test\"]\nsite = \"public\"\ncertificate = { chain = \"a.pem\", key = \"a.key\" }\n";
const HTTP: ListenerCounts = ListenerCounts { http: 1, dns: 0 };

/// A domain with this certificate, after a.test.
fn config_with(domain: &str, certificate: &str, further: &str) -> String {
    format!("{SHARED}[domain.\"{domain}\"]\nsite = \"public\"\ncertificate = {certificate}\n{further}")
}

fn b_test(chain: &str, further: &str) -> String {
    config_with("b.test", &format!("{{ chain = \"{chain}\", key = \"b.key\" }}"), further)
}

/// A site at a.test and b.test, each with its certificate.
fn two_domains() -> TestDirectory {
    let directory =
        TestDirectory::with(&[("public/index.html", b"hi\n"), ("sanderling.toml", b_test("b.pem", "").as_bytes())]);
    issue_for("a.test", &directory, "a.pem", "a.key", "of-a");
    issue_for("b.test", &directory, "b.pem", "b.key", "of-b");
    directory
}

/// The issuer of the certificate for b.test, and the status of a request for b.test over HTTPS and HTTP.
fn served(server: &mut TestServer) -> (String, String) {
    let https = server.encrypted("https");
    let script = format!("openssl s_client -connect {https} -servername b.test </dev/null 2>&1");
    let shown = run_program("sh", "dash", &["-c", &script]).text().replace("CN=", "CN = ");
    let issuer = shown.lines().find_map(|line| line.strip_prefix("issuer=CN = ")).unwrap_or(&shown).to_owned();
    let code = |scheme: &str, server| {
        let (connect_to, url) = (format!("::{server}"), format!("{scheme}://b.test/"));
        curl(&["-sSk", "-o", "/dev/null", "-w", "%{http_code}", "--connect-to", &connect_to, &url]).text()
    };
    (issuer, format!("{} {}", code("https", https), code("http", server.http())))
}

fn as_served(issuer: &str) -> (String, String) {
    (issuer.to_owned(), "200 308".to_owned())
}

#[test]
fn domain_keeps_its_certificate_if_its_new_path_is_wrong() {
    let directory = two_domains();
    let mut server = TestServer::start_command(directory.serve_command(), HTTP);
    assert_eq!(served(&mut server), as_served("of-b"));
    let new_process = "[limits]\nhttp_field_count_max = 99\n";
    for (chain, further) in [("none.pem", ""), ("none2.pem", ""), ("none.pem", new_process)] {
        directory.replace("sanderling.toml", b_test(chain, further).as_bytes());
        let reloaded = directory.control("reload");
        assert_eq!(reloaded.code(), Some(1), "{reloaded}");
        for expected in
            ["certificate b.test: not reloaded, keeping the version read from ", "b.pem: ECDSA, issued by of-b, "]
        {
            assert!(format!("{}{}", reloaded.text(), reloaded.errors).contains(expected), "{reloaded}");
        }
        assert_eq!(served(&mut server), as_served("of-b"), "{chain} {further}");
    }
    let upgraded = directory.control("upgrade");
    assert!(upgraded.status.success(), "{upgraded}");
    assert_eq!(served(&mut server), as_served("of-b"));
    directory.replace("sanderling.toml", b_test("b.pem", new_process).as_bytes());
    let reloaded = directory.control("reload");
    assert_eq!(reloaded.code(), Some(0), "{reloaded}");
}

#[test]
fn certificate_for_no_name_of_the_domain_does_not_replace_one_for_some() {
    let directory = two_domains();
    directory.replace("sanderling.toml", b_test("b.pem", "aliases = [\"www.b.test\"]\n").as_bytes());
    issue_for("b.test,DNS:www.b.test", &directory, "b.pem", "b.key", "of-b");
    let mut server = TestServer::start_command(directory.serve_command(), HTTP);
    let problem = "b.pem`: the certificate is not valid for any name of the domain; the previous version stays in \
        service; specify a certificate for b.test, www.b.test";
    issue_for("other.test", &directory, "b.pem", "b.key", "of-other");
    wait_until("the problem", || directory.control("status").text().contains(problem));
    assert_eq!(served(&mut server), as_served("of-b"));
    server.wait_for_error(problem);
    let reloaded = directory.control("reload");
    assert!(reloaded.code() == Some(1) && reloaded.errors.contains(problem), "{reloaded}");
    assert_eq!(served(&mut server), as_served("of-b"));
    // For fewer names, it is accepted.
    issue_for("b.test", &directory, "b.pem", "b.key", "of-fewer");
    wait_until("the certificate for fewer names", || served(&mut server) == as_served("of-fewer"));
    assert!(directory.control("status").text().contains("the certificate is not valid for www.b.test"));
}

#[test]
fn certificate_without_a_listener_is_not_used() {
    let directory = two_domains();
    let config = b_test("b.pem", "").replace("[https]\nlisten = [\"127.0.0.1:0\"]\n", "");
    directory.replace("sanderling.toml", config.as_bytes());
    let checked = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    for domain in ["a.test", "b.test"] {
        let warning = format!("the certificate of {domain} is not used: there is no listener for TLS; add [https]");
        assert!(checked.code() == Some(0) && checked.errors.contains(&warning), "{checked}");
    }
}

#[test]
fn server_without_any_certificate_says_so() {
    let directory = domain();
    issue(&directory, "chain.pem", "other.key", "second");
    let [folder, chain, key] = ["public", "chain.pem", "key.pem"].map(|name| directory.argument(name));
    let arguments =
        ["serve", &folder, "--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--certificate", &chain, "--key", &key];
    let refused = run(&arguments);
    assert_eq!(refused.code(), Some(78), "{refused}");
    assert!(refused.errors.contains("the private key does not match the certificate"), "{refused}");
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    server.wait_for_error("no certificate is in service: all handshakes at 127.0.0.1:0, 127.0.0.1:0 fail");
    // The alert internal_error, since no name is known.
    let shown = s_client(server.encrypted("https"), "");
    assert!(shown.contains("SSL alert number 80"), "{shown}");
}

#[test]
fn log_has_what_a_renewal_has_changed_and_nothing_else() {
    let directory = two_domains();
    // A warning of the other domain, which it repeats at no renewal.
    let warning = "the certificate is not valid for www.b.test";
    directory.replace("sanderling.toml", b_test("b.pem", "aliases = [\"www.b.test\"]\n").as_bytes());
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    server.wait_for_error(warning);
    issue_for("a.test", &directory, "new.pem", "new.key", "renewed");
    // The chain first: for a moment the key does not match.
    for (from, to) in [("new.pem", "a.pem"), ("new.key", "a.key")] {
        let content = fs::read(directory.argument(from)).expect("read");
        directory.replace(to, &content);
    }
    server.wait_for_error("certificate of a.test replaced: ECDSA, issued by renewed, ");
    let log = server.errors();
    assert!(!log.contains("does not match"), "{log}");
    assert_eq!(log.matches(warning).count(), 1, "{log}");
}
