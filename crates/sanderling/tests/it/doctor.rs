//! `doctor` with planted faults: a server, a secondary and a server of the parent zone, all on the loopback interface.

use super::https::issue_for;
use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, TestDirectory, TestServer, dns, free_address, free_address_at, run_program,
    run_to_end, sanderling, wait_until,
};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

const ZONE: &str = "$TTL 60\n@ SOA ns1 host 7 3600 600 86400 60\n@ NS ns1\n@ NS ns2\nns1 A 127.0.0.1\nns2 A 127.0.0.2\n\
                    @ A 127.0.0.1\n";
const PARENT: &str = "$TTL 60\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.4\n\
                      example NS ns1.example\nexample NS ns2.example\nns1.example A 127.0.0.1\nns2.example A 127.0.0.2\n";
/// Less than any machine allows, and more than the planted limit.
const LIMITS: &str =
    "[limits]\nhttp_connections_max = 200\ndns_tcp_connections_max = 50\nopen_file_descriptors_max = 50\n";
const ONE_DNS: ListenerCounts = ListenerCounts { http: 0, dns: 1 };
const SECONDARY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PARENT_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
const SECOND_PARENT_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);

/// The domain `example.test`, before it is served.
struct World {
    directory: TestDirectory,
    http: SocketAddr,
    dns: SocketAddr,
    secondary: SocketAddr,
    parent: SocketAddr,
    /// The zones of this server, of the secondary, and of the parent. Without one, the secondary does not run.
    zone: String,
    secondary_zone: Option<(&'static str, String)>,
    parent_zone: String,
    /// The parent zone at its second server, if it differs there.
    second_parent_zone: Option<String>,
    /// The configuration in addition to listeners, site and zone.
    more: String,
    serves: bool,
    /// A limit of open files for `doctor`.
    open_files: Option<u32>,
    /// Sockets of this process.
    taken: (Vec<UdpSocket>, Vec<TcpListener>),
}

/// A finding: its check, its verdict, and subject, text and remedy.
type Finding = (String, String, String);

impl World {
    fn new() -> World {
        World {
            directory: TestDirectory::with(&[("public/index.html", b"<!doctype html><title>t</title>hi\n")]),
            http: free_address(),
            dns: free_address(),
            secondary: free_address_at(SECONDARY),
            parent: free_address_at(PARENT_SERVER),
            zone: ZONE.to_owned(),
            secondary_zone: Some(("example.test", ZONE.to_owned())),
            parent_zone: PARENT.to_owned(),
            second_parent_zone: None,
            more: String::new(),
            serves: true,
            open_files: None,
            taken: (Vec::new(), Vec::new()),
        }
    }

    fn configuration(&self) -> String {
        let World { http, dns, secondary, more, .. } = self;
        format!(
            "workers = 1\nstate = \"state/state\"\n{LIMITS}[http]\nlisten = [\"{http}\"]\n[dns]\nlisten = [\"{dns}\"]\nresolvers = []\n\
             [domain.\"example.test\"]\nsite = \"public\"\nzone = \"zones/example.test.zone\"\n\
             secondaries = [{{ address = \"{secondary}\" }}]\n{more}"
        )
    }

    /// The status and the findings of `doctor`, and what it printed.
    fn doctor(&self) -> (Option<i32>, Vec<Finding>, Ended) {
        let write = |path: &str, text: &str| self.directory.write(path, text.as_bytes());
        write("zones/example.test.zone", &self.zone);
        write("parent/test.zone", &self.parent_zone);
        fs::create_dir_all(self.directory.path().join("state")).expect("created");
        if !self.directory.path().join("sanderling.toml").exists() {
            write("sanderling.toml", &self.configuration());
        }
        let zone_server = |name: &str, file: &str, address: SocketAddr| {
            let zone = format!("{name}={}", self.directory.argument(file));
            TestServer::start(&["serve", "--zone", &zone, "--dns", &address.to_string()], ONE_DNS)
        };
        let _parent = zone_server("test", "parent/test.zone", self.parent);
        let second_parent = free_address_at(SECOND_PARENT_SERVER);
        write("parent/second.zone", self.second_parent_zone.as_ref().unwrap_or(&self.parent_zone));
        let _second_parent = zone_server("test", "parent/second.zone", second_parent);
        let _secondary = self.secondary_zone.as_ref().map(|(name, text)| {
            write("secondary/zone", text);
            zone_server(name, "secondary/zone", self.secondary)
        });
        let counts = ListenerCounts { http: 1, dns: 1 };
        let server = self.serves.then(|| TestServer::start_command(self.directory.serve_command(), counts));
        if server.is_some() && !self.more.contains("dnssec") {
            wait_until("the zone", || dns::serial(self.dns, "example.test").is_some());
        }
        let parents = ["--parent-server", &self.parent.to_string(), "--parent-server", &second_parent.to_string()];
        let ended = self.run_doctor(&[&["--json"][..], &parents].concat());
        (ended.code(), findings(&ended), ended)
    }

    /// Runs `doctor` with these arguments.
    fn run_doctor(&self, arguments: &[&str]) -> Ended {
        let mut command = match self.open_files {
            None => sanderling(),
            Some(limit) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={limit}")).arg(sanderling().get_program());
                command
            }
        };
        let (config, control) = (self.directory.argument("sanderling.toml"), self.directory.argument("control"));
        command.args(["doctor", "--config", &config, "--control", &control]).args(arguments);
        run_to_end(command, DEADLINE)
    }

    /// Makes a state folder of another user, for a zone that is signed; no server runs.
    fn add_state_of(&mut self, user: &str) -> PathBuf {
        self.serves = false;
        let state = self.directory.path().join("state/state");
        fs::create_dir_all(&state).expect("created");
        set_owner(&state, user);
        self.more = "dnssec = true\n".to_owned();
        state
    }
}

fn findings(ended: &Ended) -> Vec<Finding> {
    let report: Value = serde_json::from_slice(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended}"));
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let finding = |finding: &Value| {
        let all = ["subject", "text", "remedy"].map(|key| text(finding, key)).join(" | ");
        (text(finding, "check"), text(finding, "verdict"), all)
    };
    report["findings"].as_array().expect("a list").iter().map(finding).collect()
}

#[test]
fn nothing_is_wrong_with_a_domain_that_works() {
    let (code, findings, ended) = World::new().doctor();
    assert_eq!(code, Some(0), "{ended}");
    let of_machine = ["configuration", "server", "ports", "open files"];
    let of_domain = ["delegation", "glue", "name servers", "DS", "addresses", "connections"];
    for check in of_machine.into_iter().chain(of_domain) {
        assert!(findings.iter().any(|finding| finding.0 == check && finding.1 == "good"), "{check}: {ended}");
    }
    assert!(ended.text().contains("curl -I http://example.test/"), "{ended}");
}

/// A fault: how it is planted, the check that names it, and parts of its subject, text and remedy.
type Fault = (fn(&mut World), &'static str, &'static [&'static str]);

const FAULTS: &[Fault] = &[
    (
        |world| {
            world.serves = false;
            world.taken.0.push(UdpSocket::bind(world.dns).expect("free"));
        },
        "ports",
        &["DNS at 127.0.0.1:", "UDP", "the program ", "(pid ", "stop it"],
    ),
    (
        |world| {
            world.serves = false;
            world.taken.1.push(TcpListener::bind(world.http).expect("free"));
        },
        "ports",
        &["HTTP at 127.0.0.1:", "TCP", "the program ", "(pid "],
    ),
    (
        |world| {
            world.serves = false;
            let text = world.configuration().replace("workers = 1", "workers = ");
            world.directory.write("sanderling.toml", text.as_bytes());
        },
        "configuration",
        &["sanderling.toml:1"],
    ),
    (|world| world.serves = false, "server", &["it does not run", "sudo sanderling serve"]),
    (
        |world| world.more = "[domain.\"other.test\"]\nzone = \"zones/none.zone\"\n".to_owned(),
        "configuration",
        &["none.zone", "does not exist"],
    ),
    (
        |world| world.more = "[domain.\"other.test\"]\nzone = \"zones/none.zone\"\n".to_owned(),
        "server",
        &["the zone other.test is unavailable: "],
    ),
    (
        |world| world.secondary_zone = Some(("example.test", ZONE.replace(" 7 ", " 5 "))),
        "name servers",
        &["ns2.example.test (127.0.0.2)", "it has serial 5, and this server 7"],
    ),
    (|world| world.secondary_zone = None, "name servers", &["ns2.example.test", "it does not answer over UDP"]),
    (
        |world| world.secondary_zone = Some(("other.test", ZONE.to_owned())),
        "name servers",
        &["ns2.example.test", "it does not serve the zone: it answers REFUSED", "configure the zone there"],
    ),
    (
        |world| world.parent_zone = PARENT.lines().take(4).map(|line| format!("{line}\n")).collect(),
        "delegation",
        &["the parent zone does not have it", "at the registrar: ns1.example.test, ns2.example.test"],
    ),
    (
        |world| world.parent_zone = PARENT.replace("127.0.0.2", "127.0.0.9"),
        "glue",
        &["ns2.example.test", "the parent zone has 127.0.0.9, and the zone has 127.0.0.2"],
    ),
    (
        |world| world.parent_zone = PARENT.replace("ns2.example A 127.0.0.2\n", ""),
        "glue",
        &["ns2.example.test", "no address of it (glue)", "127.0.0.2"],
    ),
    (
        |world| world.second_parent_zone = Some(PARENT.replace("ns2.example", "ns3.example")),
        "delegation",
        &["example.test at 127.0.0.5", "has ns3.example.test, and 127.0.0.4 has ns2.example.test"],
    ),
    (
        |world| world.second_parent_zone = Some(PARENT.replace("127.0.0.2", "127.0.0.9")),
        "glue",
        &[
            "example.test at 127.0.0.5",
            "has ns2.example.test at 127.0.0.9, and 127.0.0.4 has ns2.example.test at 127.0.0.2",
        ],
    ),
    (
        |world| world.second_parent_zone = Some(format!("{PARENT}example DS 7 13 2 {}\n", "AB".repeat(32))),
        "DS",
        &["example.test at 127.0.0.5", "has 7 13 2 ABAB", ", which 127.0.0.4 lacks"],
    ),
    (
        |world| world.parent_zone = format!("{PARENT}example DS 7 13 2 {}\n", "AB".repeat(32)),
        "DS",
        &["the zone is not signed, and the parent zone has 7 13 2", "restore its backup"],
    ),
    (
        |world| world.zone = format!("{ZONE}@ AAAA ::1\n"),
        "connections",
        &["example.test at [::1]:", "no connection", "remove the AAAA record"],
    ),
    (
        |world| {
            let https = free_address();
            world.more =
                format!("certificate = {{ chain = \"c.pem\", key = \"k/k.pem\" }}\n[https]\nlisten = [\"{https}\"]\n");
            fs::create_dir(world.directory.path().join("k")).expect("created");
            issue_for("other.test", &world.directory, "c.pem", "k/k.pem", "other.test");
        },
        "certificates",
        &["example.test", "not valid for example.test"],
    ),
    (
        |world| {
            world.zone = format!("{ZONE}@ CAA 0 issue \"other.example\"\n");
            world.more = format!(
                "[https]\nlisten = [\"{}\"]\n[certificates]\nagree_to_terms = true\n\
                 authorities = [{{ directory = \"https://127.0.0.1:1/\", caa = \"ca.example\" }}]\n",
                free_address()
            );
        },
        "CAA",
        &["may not issue a certificate", "there is no 0 issue \"ca.example\"", "add it to the zone"],
    ),
    (
        |world| {
            world.serves = false;
            world.open_files = Some(256);
        },
        "open files",
        &["the limit of 256 file descriptors", "LimitNOFILE="],
    ),
    (
        |world| {
            let state = world.add_state_of("sanderling");
            fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("set");
            fs::write(state.join("version"), "99\n").expect("written");
            set_owner(&state, "sanderling");
        },
        "configuration",
        &["state/state", "99"],
    ),
];

/// Gives a file or folder, with its content, to a user, if this process may.
fn set_owner(path: &std::path::Path, user: &str) {
    if sanderling_os::process::effective_uid() == 0 {
        let changed = Command::new("chown").args(["-R", user]).arg(path).status().expect("chown");
        assert!(changed.success(), "chown {user}");
    }
}

#[track_caller]
fn check((plant, check, parts): &Fault) {
    let mut world = World::new();
    plant(&mut world);
    let (code, findings, ended) = world.doctor();
    assert_eq!(code, Some(1), "{parts:?}: {ended}");
    let is_named = |finding: &Finding| {
        finding.0 == *check && finding.1 == "wrong" && parts.iter().all(|part| finding.2.contains(part))
    };
    assert!(findings.iter().any(is_named), "{check} {parts:?} is not in {findings:#?}\n{ended}");
}

#[test]
fn planted_faults_are_named_with_their_remedies() {
    FAULTS.iter().for_each(check);
}

/// The logs are of the supervisor; the server process counts certificates and keys.
#[test]
fn each_problem_of_the_status_is_one_of_doctor() {
    let directory = TestDirectory::with(&[("public/index.html", b"<!doctype html>")]);
    let config = "[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\nlisten = [\"127.0.0.1:0\"]\n[log]\naccess = \"logs/access.log\"\n\
                  [tsig.transfer]\nsecret_file = \"missing.key\"\n[domain.\"a.test\"]\nsite = \"public\"\n\
                  certificate = { chain = \"missing.pem\", key = \"missing.pem\" }\n";
    directory.write("sanderling.toml", config.as_bytes());
    let _server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 0 });
    assert_eq!(directory.control("status").code(), Some(1));
    let config = directory.argument("sanderling.toml");
    let doctor = directory.control_with("doctor", &["--config", &config, "--json"]);
    let of_server: Vec<String> =
        findings(&doctor).into_iter().filter(|(check, ..)| check == "server").map(|(_, _, text)| text).collect();
    for expected in [
        "the certificate of a.test is unavailable",
        "the TSIG key transfer is unavailable",
        "cannot open the access log",
    ] {
        assert!(of_server.iter().any(|text| text.contains(expected)), "{expected}: {doctor}");
    }
}

#[test]
fn rights_that_the_user_of_the_server_lacks_are_named() {
    if sanderling_os::process::effective_uid() != 0 {
        println!("skipped: only root can switch to another user");
        return;
    }
    let faults: [Fault; 3] = [
        (
            |world| {
                let site = world.directory.path().join("public");
                fs::set_permissions(site, fs::Permissions::from_mode(0o700)).expect("set");
            },
            "configuration",
            &["cannot read the site", "public"],
        ),
        (|world| drop(world.add_state_of("nobody")), "configuration", &["belongs to user nobody", "chown"]),
        (
            |world| {
                world.directory.write("zones/tsig.key", b"c2VjcmV0IG9mIHRoZSB0cmFuc2ZlciB0ZXN0cyAxMjM=\n");
                let key = world.directory.path().join("zones/tsig.key");
                fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
                set_owner(&key, "sanderling");
                world.more = "[tsig.transfer]\nsecret_file = \"zones/tsig.key\"\n".to_owned();
            },
            "configuration",
            &["the server process can read the TSIG secret file"],
        ),
    ];
    faults.iter().for_each(check);
}

/// A zone that this server signs, with short TTLs, so that its key is ready soon.
#[test]
fn ds_records_that_are_missing_or_of_another_key_are_named() {
    const CDS: u16 = 59;
    let parent = free_address_at(PARENT_SERVER);
    let mut world = World::new();
    world.zone = "$TTL 1\n@ SOA ns1 host 7 3600 600 86400 1\n@ NS ns1\nns1 A 127.0.0.1\n@ A 127.0.0.1\n".to_owned();
    let without_second = PARENT.replace("example NS ns2.example\n", "").replace("ns2.example A 127.0.0.2\n", "");
    world.secondary_zone = None;
    world.parent = parent;
    world.more =
        format!("dnssec = {{ parent_servers = [\"{parent}\"], dnskey_ttl = \"1s\", rollover_safety = \"1s\" }}\n");
    let text = world.configuration().replace(&format!("secondaries = [{{ address = \"{}\" }}]\n", world.secondary), "");
    world.directory.write("sanderling.toml", text.as_bytes());
    world.directory.write("zones/example.test.zone", world.zone.as_bytes());
    fs::create_dir_all(world.directory.path().join("state")).expect("created");
    let serve_parent = |text: &str| {
        world.directory.write("parent/test.zone", text.as_bytes());
        let zone = format!("test={}", world.directory.argument("parent/test.zone"));
        TestServer::start(&["serve", "--zone", &zone, "--dns", &parent.to_string()], ONE_DNS)
    };
    let wrong = || {
        let ended = world.run_doctor(&["--json"]);
        let is_wrong = |finding: &Finding| finding.1 == "wrong";
        findings(&ended).into_iter().filter(is_wrong).map(|finding| format!("{}: {}", finding.0, finding.2)).collect()
    };
    let first = serve_parent(&without_second);
    let _server = TestServer::start_command(world.directory.serve_command(), ListenerCounts { http: 1, dns: 1 });
    let tag = || {
        let reply = dns::Question::new("example.test", CDS).try_query(world.dns)?;
        reply.answer.first().map(|record| u16::from_be_bytes([record.rdata[0], record.rdata[1]]))
    };
    wait_until("the key", || tag().is_some());
    let (missing, tag): (Vec<String>, _) = (wrong(), tag().expect("it has it"));
    assert_eq!(missing.len(), 1, "{missing:#?}");
    for part in ["DS: example.test", "the keys are ready", &format!("at the registrar: {tag} 13 2 ")] {
        assert!(missing[0].contains(part), "{part}: {missing:#?}");
    }
    drop(first);
    let _second = serve_parent(&format!("{without_second}example DS 7 13 2 {}\n", "AB".repeat(32)));
    let other: Vec<String> = wrong();
    assert_eq!(other.len(), 1, "{other:#?}");
    for part in ["the parent zone has 7 13 2 ", "belongs to no key", &format!(" with {tag} 13 2 ")] {
        assert!(other[0].contains(part), "{part}: {other:#?}");
    }
}

/// Runs `openssl` with these words, in which `DIR/` is the folder of the test.
fn openssl(directory: &TestDirectory, words: &str) {
    let words = words.replace("DIR/", &format!("{}/", directory.path().display()));
    let ended = run_program("openssl", "openssl", &words.split_whitespace().collect::<Vec<_>>());
    assert!(ended.status.success(), "{words}: {ended}");
}

/// A root that the configuration trusts, a certificate between them, and one of the server.
#[test]
fn certificates_are_judged_as_clients_see_them() {
    const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let cases = [
        ("30", "cat leaf.pem between.pem > chain.pem", "good", "the certificate is valid for "),
        ("30", "cat leaf.pem > chain.pem", "wrong", "the issuer of certificate 1, between, is not in the chain"),
        ("-1", "cat leaf.pem between.pem > chain.pem", "wrong", "the certificate expired 1 day ago"),
    ];
    for (days, script, verdict, text) in cases {
        let mut world = World::new();
        let directory = &world.directory;
        fs::create_dir(directory.path().join("k")).expect("created");
        openssl(directory, &format!("req -x509 {KEY} -days 30 -subj /CN=root -keyout DIR/k/root -out DIR/root.pem"));
        let issued_by = |name: &str| format!("-CA DIR/{name}.pem -CAkey DIR/k/{name}");
        let between = "-days 30 -subj /CN=between -keyout DIR/k/between -out DIR/between.pem";
        openssl(directory, &format!("req -x509 {KEY} {between} {}", issued_by("root")));
        let leaf = "-subj /CN=x -addext subjectAltName=DNS:example.test -keyout DIR/k/leaf -out DIR/leaf.csr";
        openssl(directory, &format!("req {KEY} {leaf}"));
        let signed = format!("-req -in DIR/leaf.csr -days {days} -copy_extensions copy -out DIR/leaf.pem");
        openssl(directory, &format!("x509 {signed} {}", issued_by("between")));
        let script = format!("cd {} && {script}", directory.path().display());
        assert!(run_program("sh", "dash", &["-c", &script]).status.success());
        world.more = format!(
            "certificate = {{ chain = \"chain.pem\", key = \"k/leaf\" }}\n[https]\nlisten = [\"{}\"]\n[certificates]\n\
             agree_to_terms = true\nauthorities = [{{ directory = \"https://127.0.0.1:1/\", root = \"root.pem\" }}]\n",
            free_address()
        );
        let (code, findings, ended) = world.doctor();
        let of_certificates: Vec<_> = findings.iter().filter(|finding| finding.0 == "certificates").collect();
        assert_eq!(code, Some(i32::from(verdict == "wrong")), "{text}: {ended}");
        assert_eq!(of_certificates.len(), 1, "{text}: {ended}");
        let (_, own_verdict, own_text) = of_certificates[0];
        assert!(own_verdict == verdict && own_text.contains(text), "{text}: {of_certificates:?}");
    }
}

#[test]
fn text_has_the_marks_and_the_counts() {
    let world = World::new();
    world.directory.write("sanderling.toml", b"workers = \n");
    let ended = world.run_doctor(&[]);
    let text = ended.text();
    assert_eq!(ended.code(), Some(1), "{ended}");
    for part in ["configuration\n  WRONG ", "server\n  WRONG sanderling: it does not run", " wrong, 0 not known"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let usage = sanderling().args(["doctor", "--resolver", "none"]).output().expect("started");
    assert_eq!(usage.status.code(), Some(2));
}
