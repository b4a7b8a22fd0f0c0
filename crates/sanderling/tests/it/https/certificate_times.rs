//! Certificates that have expired or are not valid yet, several of a domain, and those for addresses.

use super::{BOTH, CONFIG, domain, issue, issue_for, s_client};
use sanderling_testkit::{Ended, TestDirectory, TestServer, curl, run, run_program, wait_until};

const LONG_AGO: &str = "20200101000000Z 20200301000000Z";
const LATER: &str = "20900101000000Z 20900301000000Z";
const CA: &[u8] = b"[ca]\ndefault_ca = all\n[all]\ndatabase = index\nserial = serial\nnew_certs_dir = .\n\
    default_md = sha256\npolicy = policy\nunique_subject = no\ncopy_extensions = copy\n[policy]\ncommonName = optional\n";

/// Makes a self-signed certificate for example.com with a new ECDSA key, valid in `time`.
pub(crate) fn issue_at(time: &str, directory: &TestDirectory, name: &str) {
    for (file, content) in [("ca.conf", CA), ("index", b""), ("serial", b"01\n")] {
        directory.replace(file, content);
    }
    let (start, end) = time.split_once(' ').expect("two times");
    let script = format!(
        "cd {} && openssl ecparam -genkey -name prime256v1 -noout -out {name}.key && \
         openssl req -new -key {name}.key -subj /CN={name} -addext subjectAltName=DNS:example.com -out {name}.csr && \
         openssl ca -batch -config ca.conf -selfsign -keyfile {name}.key -in {name}.csr -startdate {start} -enddate {end} \
         -notext -out {name}.pem",
        directory.path().display()
    );
    let ended = run_program("sh", "dash", &["-c", &script]);
    assert!(ended.status.success(), "{ended}");
}

/// A configuration in which the domain has these certificates.
fn config_with(names: &[&str]) -> String {
    let list: Vec<_> = names.iter().map(|name| format!("{{ chain = \"{name}.pem\", key = \"{name}.key\" }}")).collect();
    let config = str::from_utf8(CONFIG).expect("text");
    config.replace("{ chain = \"chain.pem\", key = \"key.pem\" }", &format!("[{}]", list.join(", ")))
}

fn check(directory: &TestDirectory) -> Ended {
    run(&["check", "--config", &directory.argument("sanderling.toml")])
}

/// Whether the client of OpenSSL gets the certificate with this common name.
fn is_served(server: &mut TestServer, name: &str) -> bool {
    s_client(server.encrypted("https"), "").replace("CN=", "CN = ").contains(&format!("CN = {name}"))
}

#[test]
fn certificate_that_is_not_valid_now_does_not_replace_a_valid_one() {
    for (time, expected) in [(LONG_AGO, "the certificate expired "), (LATER, "the certificate becomes valid in ")] {
        let directory = domain();
        issue_at(time, &directory, "other");
        let mut server = TestServer::start_command(directory.serve_command(), BOTH);
        for (from, to) in [("other.pem", "chain.pem"), ("other.key", "key.pem")] {
            directory.replace(to, &std::fs::read(directory.argument(from)).expect("read"));
        }
        let status = || directory.control("status").text();
        wait_until("the problem", || status().contains("; the previous version stays in service"));
        assert!(status().contains(expected), "{}", status());
        assert!(is_served(&mut server, "first"));
        let reloaded = directory.control("reload");
        assert!(reloaded.code() == Some(1) && reloaded.errors.contains(expected), "{reloaded}");
        assert!(is_served(&mut server, "first"));
        // The certificate outlives the server process.
        directory.replace("sanderling.toml", &[CONFIG, &b"[limits]\nhttp_field_count_max = 99\n"[..]].concat());
        directory.control("reload");
        assert!(is_served(&mut server, "first"));
        // If there is no other one, it is served, with a warning.
        drop(server);
        let mut server = TestServer::start_command(directory.serve_command(), BOTH);
        assert!(is_served(&mut server, "other"));
        let shown = if time == LONG_AGO { "EXPIRED " } else { "NOT YET VALID: in " };
        assert!(status().contains(shown), "{}", status());
        issue(&directory, "chain.pem", "key.pem", "renewed");
        wait_until("the renewed certificate", || is_served(&mut server, "renewed"));
    }
}

#[test]
fn valid_certificate_is_preferred_to_one_that_has_expired() {
    let directory = domain();
    issue_at(LONG_AGO, &directory, "old");
    issue(&directory, "new.pem", "new.key", "new");
    let arguments =
        "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=with-rsa -addext subjectAltName=DNS:example.com";
    let (chain, key) = (directory.argument("rsa.pem"), directory.argument("rsa.key"));
    let arguments: Vec<&str> = arguments.split_whitespace().chain(["-keyout", &key, "-out", &chain]).collect();
    assert!(run_program("openssl", "openssl", &arguments).status.success());
    for (names, served) in [(["old", "rsa"], "with-rsa"), (["rsa", "old"], "with-rsa"), (["old", "new"], "new")] {
        directory.replace("sanderling.toml", config_with(&names).as_bytes());
        let mut server = TestServer::start_command(directory.serve_command(), BOTH);
        assert!(is_served(&mut server, served), "{names:?}");
    }
}

#[test]
fn check_warns_of_certificates_that_are_not_used_or_should_be_renewed() {
    let directory = domain();
    let has_line = |names: &[&str], expected: &[&str]| {
        directory.replace("sanderling.toml", config_with(names).as_bytes());
        let checked = check(&directory);
        assert_eq!(checked.code(), Some(0), "{checked}");
        let has_all = |line: &str| expected.iter().all(|part| line.contains(part));
        assert!(checked.errors.lines().any(has_all), "{expected:?}: {checked}");
    };
    issue(&directory, "one.pem", "one.key", "one");
    issue(&directory, "two.pem", "two.key", "two");
    issue_for("other.example", &directory, "other.pem", "other.key", "other");
    issue_at(LONG_AGO, &directory, "old");
    let unused = |file: &'static str, used: &'static str| {
        [file, " is not used: ", used, " has a key of the same type (ECDSA); remove one of them"]
    };
    has_line(&["one", "two"], &unused("two.pem`", "one.pem`"));
    has_line(&["old", "two"], &unused("old.pem`", "two.pem`"));
    has_line(&["one", "other"], &["other.pem` is not used: it is not valid for any name of the domain; remove it"]);
    has_line(&["old"], &["old.pem`: the certificate expired ", " days ago; renew the certificate"]);
    let due = |end: &str| {
        let date = |text: &str| run_program("date", "coreutils", &["-u", "-d", text, "+%Y%m%d%H%M%SZ"]).text();
        issue_at(&format!("{} {}", date("20 days ago").trim(), date(end).trim()), &directory, "due");
        directory.replace("sanderling.toml", config_with(&["due"]).as_bytes());
        check(&directory)
    };
    // Of 27 days and an hour, 7 days and an hour are left: certbot is about to renew it.
    let checked = due("7 days 1 hour");
    assert!(checked.code() == Some(0) && checked.errors.is_empty(), "{checked}");
    let checked = due("2 days 1 hour");
    let expected = "due.pem`: the certificate expires in 2 days; renew";
    assert!(checked.code() == Some(0) && checked.errors.contains(expected), "{checked}");
    assert!(checked.text().contains("ECDSA, issued by due, 2 days left, RENEWAL IS DUE"), "{checked}");
    let _server = TestServer::start_command(directory.serve_command(), BOTH);
    let status = directory.control("status").text();
    assert!(status.contains("2 days left, RENEWAL IS DUE"), "{status}");
}

#[test]
fn only_a_file_with_a_key_is_said_to_show_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = domain();
    let set_mode = |path: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.argument(path), mode).expect("the mode is set");
    };
    set_mode("", 0o755);
    let swapped = str::from_utf8(CONFIG)
        .expect("text")
        .replace("\"chain.pem\", key = \"key.pem\"", "\"key.pem\", key = \"chain.pem\"");
    directory.replace("sanderling.toml", swapped.as_bytes());
    set_mode("key.pem", 0o644);
    set_mode("chain.pem", 0o644);
    let checked = check(&directory);
    assert!(checked.errors.contains("the key file has a certificate; swap `chain` and `key`"), "{checked}");
    let shown: Vec<&str> = checked.errors.lines().filter(|line| line.contains("all users can read")).collect();
    assert!(shown.len() == 1 && shown[0].contains("key.pem`; run chmod"), "{checked}");
    set_mode("key.pem", 0o600);
    assert!(!check(&directory).errors.contains("all users can read"));
}

#[test]
fn certificate_for_an_address_is_one_for_requests_to_it() {
    let directory = domain();
    issue_for("example.com,IP:192.0.2.1,IP:2001:db8::1", &directory, "chain.pem", "key.pem", "first");
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (https, certificate) = (server.encrypted("https"), directory.argument("chain.pem"));
    let code = |host: &str| {
        let (connect_to, host) = (format!("::{https}"), format!("Host: {host}"));
        let options =
            ["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &certificate, "--connect-to", &connect_to];
        curl(&[&options[..], &["-H", &host, "https://example.com/"]].concat()).text()
    };
    for (host, expected) in
        [("192.0.2.1", "200"), ("[2001:db8::1]", "200"), ("192.0.2.2", "421"), ("[2001:db8::2]", "421")]
    {
        assert_eq!(code(host), expected, "{host}");
    }
}
