//! Secrets that the process which serves clients could read, and need not: each is reported by `check`, at startup and
//! by `status`. The process itself asks, in its sandbox.

use super::https::issue_for;
use super::name_servers::SECRET;
use sanderling_testkit::{DEADLINE, ListenerCounts, TestDirectory, TestServer, run, run_to_end, sanderling};

const ZONE: &[u8] = b"$TTL 60\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.1\n";
const LISTENERS: ListenerCounts = ListenerCounts { http: 1, dns: 1 };
const PROBLEM: &str = "the server process can read ";

/// The folders of the secrets, and what a problem calls them.
const SECRETS: [(&str, &str); 4] = [
    ("tsig", "TSIG secret file"),
    ("certificate", "private key"),
    ("account", "key of an external account"),
    ("cookie", "cookie secret file"),
];

/// The zone is in `zones`; each secret is in a folder of its own below `secrets`, the state folder in `state`.
fn configure(directory: &TestDirectory, secrets: &str, state: &str) {
    let config = format!(
        "workers = 1\nstate = \"{state}/state\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\nlisten = [\"127.0.0.1:0\"]\n\
         [dns]\nresolvers = []\nlisten = [\"127.0.0.1:0\"]\ncookie_secret_file = \"{secrets}/cookie/cookie.key\"\n\
         [certificates]\nagree_to_terms = true\n\
         authorities = [{{ name = \"zerossl\", external_account = {{ id = \"a\", key_file = \"{secrets}/account/account.key\" }} }}]\n\
         [tsig.transfer]\nsecret_file = \"{secrets}/tsig/tsig.key\"\n\
         [domain.\"example.com\"]\nsite = \"public\"\nzone = \"zones/example.com.zone\"\n\
         certificate = {{ chain = \"chain.pem\", key = \"{secrets}/certificate/certificate.key\" }}\n\
         secondaries = [{{ address = \"127.0.0.9:1\", key = \"transfer\" }}]\n"
    );
    directory.replace("sanderling.toml", config.as_bytes());
}

#[test]
fn secrets_beside_zones_are_named_everywhere() {
    let directory = TestDirectory::with(&[("zones/example.com.zone", ZONE), ("public/index.html", b"hi\n")]);
    for folder in ["zones", "keys"] {
        for (name, _) in SECRETS {
            let content = if name == "cookie" { "0123456789abcdef0123456789abcdef\n" } else { &format!("{SECRET}\n") };
            directory.write(&format!("{folder}/{name}/{name}.key"), content.as_bytes());
        }
    }
    issue_for("example.com", &directory, "chain.pem", "zones/certificate/certificate.key", "example.com");
    std::fs::copy(
        directory.path().join("zones/certificate/certificate.key"),
        directory.path().join("keys/certificate/certificate.key"),
    )
    .expect("copied");
    let file = directory.argument("sanderling.toml");
    configure(&directory, "zones", "zones");
    let server = TestServer::start_command(directory.serve_command(), LISTENERS);
    let status = directory.control("status").text();
    if status.contains("Landlock not supported") {
        eprintln!("NOT TESTED: this kernel has no Landlock");
        return;
    }
    let check = run(&["check", "--config", &file]);
    for secret in SECRETS.map(|(_, kind)| kind).into_iter().chain(["state folder"]) {
        for text in [&status, &server.errors(), &check.errors] {
            assert!(text.contains(&format!("{PROBLEM}the {secret} `")), "{secret}: {text}");
        }
    }
    assert_eq!(check.code(), Some(0), "{check}");
    assert_eq!(run(&["check", "--strict", "--config", &file]).code(), Some(1));
    drop(server);

    configure(&directory, "keys", "elsewhere");
    std::fs::create_dir(directory.path().join("elsewhere")).expect("created");
    let server = TestServer::start_command(directory.serve_command(), LISTENERS);
    let status = directory.control("status").text();
    for text in [&status, &server.errors(), &run(&["check", "--config", &file]).errors] {
        assert!(!text.contains(PROBLEM), "{text}");
    }
}

/// The remedy moves what the server process reads there, if the secret is in a folder of its own already.
#[test]
fn zone_file_above_the_folder_of_a_secret_is_to_be_moved() {
    let directory = TestDirectory::with(&[("example.com.zone", ZONE), ("keys/transfer.key", SECRET.as_bytes())]);
    let configure = |zone: &str| {
        let config = format!(
            "[dns]\nlisten = [\"127.0.0.1:0\"]\n[tsig.transfer]\nsecret_file = \"keys/transfer.key\"\n\
             [domain.\"example.com\"]\nzone = \"{zone}\"\ntransfer_allow = [{{ key = \"transfer\" }}]\n"
        );
        directory.replace("sanderling.toml", config.as_bytes());
        run(&["check", "--config", &directory.argument("sanderling.toml")]).errors
    };
    let errors = configure("example.com.zone");
    let remedy = format!("move the files of zones, sites and users out of {}", directory.path().display());
    assert!(errors.contains(PROBLEM) && errors.contains(&remedy) && !errors.contains("move it"), "{errors}");
    directory.write("keys/example.com.zone", ZONE);
    let errors = configure("keys/example.com.zone");
    assert!(errors.contains("move it to a separate folder"), "{errors}");
    directory.write("zones/example.com.zone", ZONE);
    let errors = configure("zones/example.com.zone");
    assert!(!errors.contains(PROBLEM), "{errors}");
}

/// The file of a zone from primaries is in the state folder, which this configuration does not name.
#[test]
fn zone_from_primaries_exposes_no_folder() {
    let directory = TestDirectory::new();
    let config = "[dns]\nlisten = [\"127.0.0.1:0\"]\n\
                  [domain.\"example.com\"]\nprimaries = [{ address = \"192.0.2.1\" }]\n\
                  [catalog.\"catalog.test\"]\nprimaries = [{ address = \"192.0.2.1\" }]\n";
    directory.write("sanderling.toml", config.as_bytes());
    let mut check = sanderling();
    check.args(["check", "--config", &directory.argument("sanderling.toml")]).current_dir("/");
    check.env("STATE_DIRECTORY", directory.argument("state"));
    let ended = run_to_end(check, DEADLINE);
    assert!(ended.code() == Some(0) && !ended.errors.contains(PROBLEM), "{ended}");
}
