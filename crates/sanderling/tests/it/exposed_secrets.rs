//! Secrets that the process which serves clients could read, and need not: each is named by the check, the start and
//! the status. The process itself asks, in its sandbox.

use super::name_servers::SECRET;
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, run};

const ZONE: &[u8] = b"$TTL 60\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.1\n";
const PROBLEM: &str = "the server process can read ";

/// The zone is in `zones`; the secret and the state folder are in these folders.
fn configure(directory: &TestDirectory, secret: &str, state: &str) {
    let config = format!(
        "workers = 1\nstate = \"{state}/state\"\n[dns]\nresolvers = []\nlisten = [\"127.0.0.1:0\"]\n\
         [tsig.transfer]\nsecret_file = \"{secret}/tsig.key\"\n\
         [domain.\"example.com\"]\nzone = \"zones/example.com.zone\"\n\
         secondaries = [{{ address = \"127.0.0.9:1\", key = \"transfer\" }}]\n"
    );
    directory.replace("sanderling.toml", config.as_bytes());
}

#[test]
fn secrets_beside_zones_are_named_everywhere() {
    let secret = format!("{SECRET}\n");
    let directory = TestDirectory::with(&[
        ("zones/example.com.zone", ZONE),
        ("zones/tsig.key", secret.as_bytes()),
        ("keys/tsig.key", secret.as_bytes()),
    ]);
    let file = directory.argument("sanderling.toml");
    configure(&directory, "zones", "zones");
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    let status = directory.control("status").text();
    if status.contains("Landlock not supported") {
        eprintln!("NOT TESTED: this kernel has no Landlock");
        return;
    }
    let check = run(&["check", "--config", &file]);
    for secret in ["the TSIG secret file `", "the state folder `"] {
        for text in [&status, &server.errors(), &check.errors] {
            assert!(text.contains(&format!("{PROBLEM}{secret}")), "{secret}: {text}");
        }
    }
    assert_eq!(check.code(), Some(0), "{check}");
    assert_eq!(run(&["check", "--strict", "--config", &file]).code(), Some(1));
    drop(server);

    configure(&directory, "keys", "elsewhere");
    std::fs::create_dir(directory.path().join("elsewhere")).expect("created");
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    let status = directory.control("status").text();
    for text in [&status, &server.errors(), &run(&["check", "--config", &file]).errors] {
        assert!(!text.contains(PROBLEM), "{text}");
    }
}
