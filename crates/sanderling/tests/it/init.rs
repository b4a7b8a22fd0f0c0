//! `init`, and what it has written: checked, served, and not overwritten.

use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, dns, http, run, sanderling};
use std::fs;

const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };
const TYPE_A: u16 = 1;
const FILES: [&str; 3] = ["sanderling.toml", "zones/example.com.zone", "public/index.html"];

/// The output of `init` with these arguments, which does not agree to the terms of an authority.
fn init_without_certificate(arguments: &[&str]) -> String {
    let directory = TestDirectory::with(&[("answer", b"n\n")]);
    let answer = fs::File::open(directory.path().join("answer")).expect("written");
    let output = sanderling().arg("init").args(arguments).stdin(answer).output().expect("started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn written_configuration_passes_the_check_and_is_served() {
    let directory = TestDirectory::new();
    let folder = directory.argument("");
    let text = init_without_certificate(&[
        "example.com",
        "--dir",
        &folder,
        "--no-dnssec",
        "--address",
        "127.0.0.1",
        "--address",
        "::1",
    ]);
    for part in FILES.into_iter().chain(["ns1.example.com", "127.0.0.1, ::1", "sanderling check --config"]) {
        assert!(text.contains(part), "{part}: {text}");
    }
    let config = directory.argument("sanderling.toml");
    let checked = run(&["check", "--strict", "--config", &config]);
    assert!(checked.code() == Some(0) && checked.errors.is_empty(), "{checked}");
    // At ports that any user can bind, and that are free.
    let listen = |line: &str| match line.starts_with("listen = ") {
        true => "listen = [\"127.0.0.1:0\"]\n".to_owned(),
        false => format!("{line}\n"),
    };
    let text: String = fs::read_to_string(&config).expect("written").lines().map(listen).collect();
    directory.replace("sanderling.toml", text.as_bytes());
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let request = "GET / HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n";
    let page = http::response_to(server.http(), request);
    assert!(page.status == 200 && page.text().contains("<h1>example.com</h1>"), "{}", page.text());
    for owner in ["example.com", "www.example.com", "ns1.example.com"] {
        assert_eq!(dns::data(server.dns(), owner, TYPE_A).as_deref(), Some("127.0.0.1"), "{owner}");
    }
}

#[test]
fn signed_domain_with_a_certificate_passes_the_check() {
    let directory = TestDirectory::new();
    let ended = run(&["init", "example.com", "--yes", "--dir", &directory.argument(""), "--address", "127.0.0.1"]);
    assert!(ended.code() == Some(0) && ended.text().contains("DS record     not yet"), "{ended}");
    let text = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    assert!(text.contains("agree_to_terms = true\n") && text.contains("dnssec = true\n"), "{text}");
    let checked = run(&["check", "--strict", "--config", &directory.argument("sanderling.toml")]);
    assert!(checked.code() == Some(0) && !checked.errors.contains("warning"), "{checked}");
}

#[test]
fn nothing_is_overwritten() {
    for file in &FILES[..2] {
        let directory = TestDirectory::with(&[(file, b"mine")]);
        let ended = run(&["init", "example.com", "--yes", "--dir", &directory.argument("")]);
        assert!(ended.code() == Some(1) && ended.errors.contains("exists already"), "{ended}");
        for other in FILES {
            let content = fs::read_to_string(directory.path().join(other)).ok();
            assert_eq!(content.as_deref(), (other == *file).then_some("mine"), "{other}");
        }
    }
    // As a package installs it.
    let directory = TestDirectory::with(&[(FILES[0], b"# http.listen = []\n\n  # site\n")]);
    let ended = run(&["init", "example.com", "--yes", "--dir", &directory.argument("")]);
    let text = fs::read_to_string(directory.path().join(FILES[0])).expect("there");
    assert!(ended.code() == Some(0) && text.contains("[domain.\"example.com\"]\n"), "{ended}\n{text}");
    let directory = TestDirectory::with(&[("public/app.js", b"mine")]);
    let ended = run(&["init", "example.com", "--yes", "--dir", &directory.argument("")]);
    assert!(ended.code() == Some(0) && ended.text().contains("as it was"), "{ended}");
    assert!(!directory.path().join("public/index.html").exists(), "a site has its own first page");
}

#[test]
fn question_without_an_answer_is_an_error() {
    let directory = TestDirectory::new();
    let ended = run(&["init", "example.com", "--dir", &directory.argument("")]);
    assert!(ended.code() == Some(1) && ended.errors.contains("`--yes` agrees"), "{ended}");
    assert_eq!(fs::read_dir(directory.path()).expect("read").count(), 0);
    let refused = run(&["init", ".", "--yes", "--dir", &directory.argument("")]);
    assert!(refused.code() == Some(1) && refused.errors.contains("not a domain with a site"), "{refused}");
}
