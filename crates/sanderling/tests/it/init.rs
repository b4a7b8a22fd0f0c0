//! `init`, and what it has written: checked, served, and not overwritten.

use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, dns, http, run, sanderling};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };
const TYPE_A: u16 = 1;
const FILES: [&str; 3] = ["sanderling.toml", "zones/example.com.zone", "public/index.html"];

/// The result of `init` with these arguments and answers to its question.
fn answered(answers: &str, arguments: &[&str]) -> Output {
    let directory = TestDirectory::with(&[("answer", answers.as_bytes())]);
    let answer = fs::File::open(directory.path().join("answer")).expect("written");
    sanderling().arg("init").args(arguments).stdin(answer).output().expect("started")
}

/// The output of `init` with these arguments, which does not agree to the terms of an authority.
fn init_without_certificate(arguments: &[&str]) -> String {
    let output = answered("n\n", arguments);
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
        "--address",
        "127.0.0.1",
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
fn only_an_answer_is_one() {
    let agrees = |answers: &str| {
        let directory = TestDirectory::new();
        let output = answered(answers, &["example.com", "--dir", &directory.argument("")]);
        let text = fs::read_to_string(directory.path().join(FILES[0])).ok();
        assert_eq!(output.status.success(), text.is_some(), "{output:?}");
        assert!(text.is_some() || fs::read_dir(directory.path()).expect("read").count() == 0, "something is left");
        text.map(|text| text.contains("\nagree_to_terms = true\n"))
    };
    assert_eq!(agrees("j\nYES\n"), Some(true));
    assert_eq!(agrees("\nn\n"), Some(false));
    assert_eq!(agrees("\n\n\ny\n"), None, "to agree is not the default");
    assert_eq!(agrees(""), None);
    let directory = TestDirectory::new();
    let text = init_without_certificate(&["example.com", "--dir", &directory.argument("")]);
    assert!(text.contains("remove the `#` of [https]"), "{text}");
}

#[test]
fn name_or_address_without_a_site_is_refused() {
    let directory = TestDirectory::new();
    let folder = directory.argument("");
    for (name, part) in [("com", "can be registered"), ("www.example.com", "name example.com"), ("a_b.de", "`a_b`")] {
        let ended = run(&["init", name, "--yes", "--dir", &folder]);
        assert!(ended.code() == Some(1) && ended.errors.contains(part), "{ended}");
    }
    for address in ["0.0.0.0", "::", "224.0.0.1", "fe80::1", "example.com"] {
        let ended = run(&["init", "example.com", "--yes", "--dir", &folder, "--address", address]);
        assert!(ended.code() == Some(2), "{ended}");
    }
    assert_eq!(fs::read_dir(directory.path()).expect("read").count(), 0);
    let ended = run(&["init", "münchen.de", "--yes", "--dir", &folder]);
    assert!(ended.code() == Some(0) && ended.text().contains("xn--mnchen-3ya.de"), "{ended}");
}

#[test]
fn failure_leaves_nothing() {
    let directory = TestDirectory::with(&[("zones", b"")]);
    let ended = run(&["init", "example.com", "--yes", "--dir", &directory.argument("")]);
    assert!(ended.code() == Some(1) && ended.errors.contains("a file has its name; remove or rename"), "{ended}");
    assert_eq!(fs::read_dir(directory.path()).expect("read").count(), 1, "only `zones`");
}

#[test]
fn server_can_read_the_files_whatever_the_umask() {
    let directory = TestDirectory::new();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(sanderling().get_program());
    command.args(["init", "example.com", "--yes", "--dir", &directory.argument("new/folder")]);
    let output = command.output().expect("started");
    assert!(output.status.success(), "{output:?}");
    let new = directory.path().join("new");
    for (path, expected) in [("", 0o755), ("folder/public", 0o755), ("folder/zones", 0o755)]
        .into_iter()
        .chain(FILES.iter().map(|file| (*file, 0o644)))
    {
        let path = if expected == 0o644 { new.join("folder").join(path) } else { new.join(path) };
        let mode = fs::metadata(&path).expect("written").permissions().mode() & 0o777;
        assert_eq!(mode, expected, "{}", path.display());
    }
}

#[test]
fn service_manager_names_the_state_folder() {
    let directory = TestDirectory::new();
    let mut command = sanderling();
    command.args(["init", "example.com", "--yes", "--dir", &directory.argument("")]);
    let output = command.env("STATE_DIRECTORY", "/nonexistent/state").output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Private keys will be in /nonexistent/state"), "{text}");
    let config = fs::read_to_string(directory.path().join(FILES[0])).expect("written");
    assert!(!config.contains("state ="), "{config}");
}

#[test]
fn second_domain_is_added_by_hand() {
    let directory = TestDirectory::new();
    let folder = directory.argument("");
    let address = ["--address", "127.0.0.1"];
    assert_eq!(run(&[&["init", "example.com", "--yes", "--dir", &folder], &address[..]].concat()).code(), Some(0));
    let ended = run(&[&["init", "other.org", "--dir", &folder], &address[..]].concat());
    assert!(ended.code() == Some(1) && ended.errors.contains("exists already"), "{ended}");
    for part in ["\n[domain.\"other.org\"]\n", "zones/other.org.zone:\n\n", "\nwww A 127.0.0.1\n"] {
        assert!(ended.text().contains(part), "{part} is not in\n{ended}");
    }
    assert!(!directory.path().join("zones/other.org.zone").exists());
}

#[test]
fn machine_without_the_address_listens_at_its_own() {
    let directory = TestDirectory::new();
    let ended = run(&["init", "example.com", "--yes", "--dir", &directory.argument(""), "--address", "192.0.2.7"]);
    assert!(ended.text().contains("192.0.2.7 is no address of this machine. DNS listens at"), "{ended}");
    let text = fs::read_to_string(directory.path().join(FILES[0])).expect("written");
    assert!(!text.contains("127.0.0.1:53") && !text.contains("192.0.2.7"), "{text}");
}
