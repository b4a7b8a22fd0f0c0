//! Lost keys and states of signed zones whose parent zones have DS records: no new key replaces them, and all views
//! report it.

use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, TestDirectory, TestServer, dig, free_address, run_program, run_to_end, sanderling,
    wait_until,
};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

const CHILD: &str = "child.parent.test";
const CHILD_ZONE: &str = "$TTL 1\n@ SOA ns1 host 1 3600 600 86400 1\n@ NS ns1\nns1 A 127.0.0.1\nwww A 192.0.2.2\n";

/// A server with a zone that it signs, and its parent zone, which `parent_servers` answer for.
struct Fixture {
    directory: TestDirectory,
    address: SocketAddr,
    serial: u32,
}

impl Fixture {
    fn new(parent_servers: Option<SocketAddr>) -> Fixture {
        let (directory, address) = (TestDirectory::new(), free_address());
        let parent = parent_servers.unwrap_or(address);
        let config = format!(
            "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"{address}\"]\n\
             [domain.\"parent.test\"]\nzone = \"parent.zone\"\n\
             [domain.\"{CHILD}\"]\nzone = \"child.zone\"\ndnssec = {{ parent_servers = [\"{parent}\"] }}\n"
        );
        directory.write("sanderling.toml", config.as_bytes());
        directory.write("child.zone", CHILD_ZONE.as_bytes());
        let mut fixture = Fixture { directory, address, serial: 0 };
        fixture.write_parent("");
        fixture
    }

    fn write_parent(&mut self, ds: &str) {
        self.serial += 1;
        let text = format!(
            "$TTL 1\n@ SOA ns host {} 3600 600 86400 1\n@ NS ns\nns A 127.0.0.1\nchild NS ns1.child\nns1.child A 127.0.0.1\n{ds}\n",
            self.serial
        );
        self.directory.replace("parent.zone", text.as_bytes());
    }

    fn start(&self) -> TestServer {
        TestServer::start_command(self.directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
    }

    fn dnskeys(&self) -> String {
        dig(self.address, &["+noall", "+answer", CHILD, "DNSKEY"]).text()
    }

    fn wait_until_signed(&self) -> String {
        wait_until("the zone is signed", || !self.dnskeys().is_empty());
        self.dnskeys()
    }

    /// The DS record of the key.
    fn ds(&self) -> String {
        self.directory.write("dnskeys", self.dnskeys().as_bytes());
        let file = self.directory.argument("dnskeys");
        run_program("dnssec-dsfromkey", "bind9-utils", &["-2", "-f", &file, CHILD]).text()
    }

    fn dnssec(&self, command: &str) -> Ended {
        let mut process = sanderling();
        process.args(["dnssec", command, CHILD, "--control", &self.directory.argument("control")]);
        run_to_end(process, DEADLINE)
    }

    #[track_caller]
    fn wait_for_problem(&self, problem: &str) {
        wait_until(problem, || self.dnssec("status").text().contains(problem));
        wait_until("the status has it, too", || {
            let status = self.directory.control("status");
            status.code() == Some(1) && status.text().contains(problem)
        });
    }

    #[track_caller]
    fn check_metric(&self, line: &str) {
        let metrics = self.directory.control_with("status", &["--metrics"]).text();
        assert!(metrics.contains(line), "{line}: {metrics}");
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.directory.path().join(from), self.directory.path().join(to)).expect("renamed");
    }
}

#[test]
fn no_new_key_takes_the_place_of_one_that_the_parent_zone_has_a_ds_record_of() {
    let mut fixture = Fixture::new(None);
    let server = fixture.start();
    let keys = fixture.wait_until_signed();
    let ds = fixture.ds();
    drop(server);
    fixture.write_parent(&ds);

    // The state folder is lost.
    fixture.rename("state", "lost");
    let server = fixture.start();
    fixture.wait_for_problem("the parent zone has DS records (key tags ");
    assert_eq!(fixture.dnskeys(), "");
    fixture.check_metric("sanderling_zones{state=\"unsigned\"} 1\n");
    let status = fixture.directory.control("status").text();
    assert!(status.contains("WITHOUT SIGNATURES, although it should be signed"), "{status}");
    let tag = ds.split_whitespace().nth(3).expect("a key tag");
    assert!(server.errors().contains(&format!("it cannot be signed: the parent zone has DS records (key tags {tag})")));
    drop(server);

    // The state folder is restored.
    fs::remove_dir_all(fixture.directory.path().join("state")).expect("removed");
    fixture.rename("lost", "state");
    let server = fixture.start();
    assert_eq!(fixture.wait_until_signed(), keys);
    drop(server);

    // Only the keys' state is lost: the key is still there.
    fs::remove_dir_all(fixture.directory.path().join("state/signing")).expect("removed");
    fs::remove_dir_all(fixture.directory.path().join("state/signed")).expect("removed");
    let server = fixture.start();
    assert_eq!(fixture.wait_until_signed(), keys);
    let refused = fixture.dnssec("new-keys");
    assert!(refused.code() == Some(1) && refused.errors.contains("it already has keys"), "{refused}");
    drop(server);

    // The operator's choice takes precedence.
    fixture.rename("state", "lost");
    let _server = fixture.start();
    fixture.wait_for_problem("the parent zone has DS records (key tags ");
    let allowed = fixture.dnssec("new-keys");
    assert_eq!(allowed.code(), Some(0), "{allowed}");
    assert_ne!(fixture.wait_until_signed(), keys);
}

#[test]
fn zone_whose_parent_zone_cannot_be_asked_is_signed_by_a_command() {
    let fixture = Fixture::new(Some(free_address()));
    let _server = fixture.start();
    fixture.wait_for_problem("cannot check whether the parent zone has a DS record");
    assert_eq!(fixture.dnskeys(), "");
    let allowed = fixture.dnssec("new-keys");
    assert_eq!(allowed.code(), Some(0), "{allowed}");
    fixture.wait_until_signed();
}

#[test]
fn lost_private_key_is_noticed_at_the_next_start() {
    let fixture = Fixture::new(None);
    let server = fixture.start();
    let keys = fixture.wait_until_signed();
    drop(server);
    let folder = fixture.directory.path().join("state/keys").join(CHILD);
    let file = fs::read_dir(&folder).expect("listed").next().expect("a key").expect("listed").path();
    let key = fs::read(&file).expect("read");
    fs::remove_file(&file).expect("removed");
    let check = |directory: &TestDirectory| {
        let mut command = sanderling();
        command.args(["check", "--config", &directory.argument("sanderling.toml")]).current_dir(directory.path());
        run_to_end(command, DEADLINE)
    };
    let problem = "is missing from ";
    let checked = check(&fixture.directory);
    assert!(checked.code() == Some(1) && checked.errors.contains(problem), "{checked}");

    let server = fixture.start();
    fixture.wait_for_problem(problem);
    assert_eq!(fixture.wait_until_signed(), keys, "the version before stays in service");
    fixture.check_metric("sanderling_zones{state=\"kept\"} 1\n");
    assert!(server.errors().contains("a private key cannot be used: "), "{}", server.errors());
    drop(server);

    fs::write(&file, key).expect("written");
    // As root this test makes files that the server's user may not read.
    let owner = fs::metadata(&folder).expect("it exists");
    std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).expect("changed");
    let checked = check(&fixture.directory);
    assert!(!checked.errors.contains(problem), "{checked}");
    let _server = fixture.start();
    wait_until("the key is there again", || !fixture.dnssec("status").text().contains("problem: "));
    assert_eq!(fixture.wait_until_signed(), keys);
}

/// `cp -r` as root has made the copy.
#[test]
fn restored_state_folder_of_another_user_is_an_error_of_the_start() {
    if sanderling_os::process::effective_uid() != 0 {
        return;
    }
    let fixture = Fixture::new(None);
    let server = fixture.start();
    let keys = fixture.wait_until_signed();
    drop(server);
    let state = fixture.directory.argument("state");
    for chown in [&["-R", "root", &state][..], &["root", &format!("{state}/signed")]] {
        assert!(run_program("chown", "coreutils", chown).status.success());
        let ended = run_to_end(fixture.directory.serve_command(), DEADLINE);
        assert_eq!(ended.code(), Some(78), "{ended}");
        assert!(
            ended.errors.contains(" belongs to user root; change its owner to the server's user: chown -R sanderling "),
            "{ended}"
        );
        let mut check = sanderling();
        check.args(["check", "--config", &fixture.directory.argument("sanderling.toml")]);
        let ended = run_to_end(check, DEADLINE);
        assert!(ended.code() == Some(1) && ended.errors.contains(" belongs to user root; "), "{ended}");
        let user = run_program("id", "coreutils", &["-u", "sanderling"]).text();
        assert!(run_program("chown", "coreutils", &["-R", user.trim(), &state]).status.success());
    }
    // A single wrong file, or one that the agent has made unusable on purpose, does not prevent startup.
    let wrong = format!("{state}/zones/wrong");
    std::fs::create_dir(&wrong).expect("created");
    let server = fixture.start();
    assert_eq!(fixture.wait_until_signed(), keys);
    server.wait_for_error(&format!("{wrong} belongs to user root"));
}
