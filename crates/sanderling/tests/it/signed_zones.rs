//! Zones that the server signs, as validating clients and verifiers of zones see them, with kills and restarts in
//! between.

use super::derived_records;
use super::name_servers::{Peer, Program, SECRET, records};
use sanderling_testkit::dns::{self, HTTPS, Question, RRSIG, TXT, data, is_served, is_signed};
use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, TestDirectory, TestServer, dig, free_address, run_program, run_to_end, sanderling,
    seed, wait_until,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn zone(serial: u32, address: u8) -> String {
    format!(
        "$TTL 300\n@ SOA ns1 host {serial} 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.{address}\nwww AAAA 2001:db8::1\n\
         *.wild TXT \"wild\"\na.b.empty A 192.0.2.3\nalias CNAME www\nsub NS ns.sub\nns.sub A 192.0.2.4\n"
    )
}

fn configure(line: &str) -> TestDirectory {
    let directory = TestDirectory::new();
    directory.write("example.com.zone", zone(7, 2).as_bytes());
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nresolvers = []\nlisten = [\"127.0.0.1:0\"]\ntransfer_allow = [{{ network = \"127.0.0.1\" }}]\n\
         [domain.\"example.com\"]\nzone = \"example.com.zone\"\n{line}\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
    directory
}

fn start(directory: &TestDirectory) -> TestServer {
    TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
}

fn status(directory: &TestDirectory) -> String {
    let mut command = sanderling();
    command.args(["dnssec", "status", "example.com", "--control", &directory.argument("control")]);
    run_to_end(command, DEADLINE).text()
}

fn serial(server: &TestServer) -> u32 {
    dns::serial(server.dns(), "example.com").expect("the zone is served")
}

fn wait_until_signed(server: &TestServer, directory: &TestDirectory) {
    wait_until("the zone is signed", || is_signed(server.dns(), "example.com"));
    wait_until("the keys are known", || status(directory).contains(" must reach all name servers"));
}

/// The data of the DNSKEY records that are signed by themselves.
fn entry_points(server: &TestServer) -> Vec<String> {
    let keys = dig(server.dns(), &["+short", "example.com", "DNSKEY"]).text();
    keys.lines().filter(|key| key.starts_with("257 ")).map(str::to_owned).collect()
}

/// The names that validate with these keys as the only trust anchor.
pub(crate) fn validate(server: &TestServer, directory: &TestDirectory, name: &str, rtype: &str) -> String {
    let mut anchors = String::new();
    for key in entry_points(server) {
        let fields: Vec<&str> = key.split(' ').collect();
        let [flags, protocol, algorithm, key @ ..] = &fields[..] else { panic!("{key}") };
        anchors += &format!("example.com. static-key {flags} {protocol} {algorithm} \"{}\";\n", key.concat());
    }
    directory.write("anchors", format!("trust-anchors {{\n{anchors}}};\n").as_bytes());
    let (at, port) = (format!("@{}", server.dns().ip()), server.dns().port().to_string());
    let anchors = directory.argument("anchors");
    let arguments = ["-a", &anchors, "+root=example.com", &at, "-p", &port, name, rtype];
    run_program("delv", "bind9-dnsutils", &arguments).to_string()
}

/// Answers and denials validate, and the whole zone verifies.
#[track_caller]
fn check_is_valid(server: &TestServer, directory: &TestDirectory) {
    for (name, rtype, expected) in [
        ("www.example.com", "A", "; fully validated"),
        ("example.com", "DNSKEY", "; fully validated"),
        ("alias.example.com", "AAAA", "; fully validated"),
        ("x.wild.example.com", "TXT", "; fully validated"),
        ("www.example.com", "MX", "; negative response, fully validated"),
        ("b.empty.example.com", "A", "; negative response, fully validated"),
        ("no.example.com", "A", "; negative response, fully validated"),
        ("x.wild.example.com", "A", "; negative response, fully validated"),
    ] {
        let text = validate(server, directory, name, rtype);
        assert!(text.contains(expected), "{name} {rtype}: {text}");
    }
    check_whole_zone(server, directory);
}

/// All signatures and the chain of denials are right.
#[track_caller]
pub(crate) fn check_whole_zone(server: &TestServer, directory: &TestDirectory) {
    let zone = dig(server.dns(), &["+nocomments", "+nostats", "+nocmd", "+onesoa", "example.com", "AXFR"]).text();
    directory.write("transferred", zone.as_bytes());
    let file = directory.argument("transferred");
    // A key may sign everything (-z).
    for (program, package, arguments) in [
        ("dnssec-verify", "bind9-utils", &["-z", "-o", "example.com", file.as_str()][..]),
        ("ldns-verify-zone", "ldnsutils", &[&file]),
    ] {
        let ended = run_program(program, package, arguments);
        assert!(ended.status.success(), "{program}: {ended}\n{zone}");
    }
}

#[track_caller]
fn check_signed_with(line: &str) {
    let directory = configure(line);
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    check_is_valid(&server, &directory);
}

#[test]
fn zone_is_signed_by_one_line_and_follows_its_file() {
    let directory = configure("dnssec = true");
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    check_is_valid(&server, &directory);
    // Not all name servers of the zone have it.
    assert!(!status(&directory).contains(" IN DS "), "{}", status(&directory));
    assert_eq!(dig(server.dns(), &["+short", "example.com", "CDS"]).text(), "");
    // The file's version may have been served before.
    assert_eq!(serial(&server), 8);
    let mut export = sanderling();
    export.args(["zone", "export", "example.com", "--control", &directory.argument("control")]);
    let exported = run_to_end(export, DEADLINE).text();
    let has = |rtype: &str| exported.contains(&format!(" IN {rtype} "));
    assert!(has("SOA") && has("AAAA") && !["RRSIG", "NSEC", "DNSKEY"].into_iter().any(has), "{exported}");
    let keys = directory.path().join("state/keys/example.com");
    let key = fs::read_dir(&keys).unwrap().next().unwrap().unwrap();
    assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    directory.replace("example.com.zone", zone(7, 3).as_bytes());
    let reload = directory.control("reload");
    assert!(reload.status.success() && reload.text().contains("zone example.com: serial 8 -> 9, "), "{reload}");
    assert_eq!(serial(&server), 9);
    let reload = directory.control_with("reload", &["example.com"]);
    let is_told = reload.text().contains("zone example.com: its records are unchanged; serial 9 stays signed");
    assert!(reload.status.success() && is_told, "{reload}");
    assert_eq!(dig(server.dns(), &["+short", "www.example.com"]).text().trim(), "192.0.2.3");
    check_is_valid(&server, &directory);

    directory.replace("example.com.zone", format!("{}www A 192.0.2\n", zone(20, 3)).as_bytes());
    for reload in [directory.control("reload"), directory.control_with("reload", &["example.com"])] {
        assert_eq!(reload.code(), Some(1), "{reload}");
        assert!(reload.errors.contains("example.com.zone:12:"), "{reload}");
        assert_eq!(serial(&server), 9);
    }
    assert!(status(&directory).contains("problem: "));
    wait_until("the zone status has it", || {
        let mut command = sanderling();
        command.args(["zone", "status", "example.com", "--control", &directory.argument("control")]);
        let status = run_to_end(command, DEADLINE).text();
        status.contains("  signing  serial 9, signed by this server, again in ")
            && status.contains("  state    the last signed version is served, because of the problem below\n")
            && status.contains("  problem  ")
    });
    let status = directory.control("status").text();
    let problem = status.lines().find(|line| line.starts_with("  zone example.com: it cannot be signed: "));
    assert!(problem.is_some_and(|line| line.contains("/example.com.zone:12:")), "{status}");
    assert!(!status.contains("signatures of zone records: 0"), "{status}");
    let mut list = sanderling();
    list.args(["zone", "list", "--json", "--control", &directory.argument("control")]);
    let list = run_to_end(list, DEADLINE).text();
    let json: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(json[0]["state"], "kept", "{list}");
    assert!(json[0]["reason"].as_str().is_some_and(|text| text.contains("example.com.zone:12:")), "{list}");

    directory.replace("example.com.zone", zone(20, 4).as_bytes());
    let reload = directory.control_with("reload", &["example.com"]);
    assert!(reload.status.success() && reload.text().contains("zone example.com: serial 9 -> 20, "), "{reload}");
    assert_eq!(serial(&server), 20);
    check_is_valid(&server, &directory);
}

#[test]
fn check_warns_of_what_is_wrong_with_a_zone_to_be_signed() {
    const KEY: &str = "@ DNSKEY 257 3 15 l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4=\n";
    let check = |line: &str, records: &str, expected: Option<&str>| {
        let directory = configure(line);
        directory.replace("example.com.zone", format!("{}{records}", zone(7, 2)).as_bytes());
        let checked = sanderling_testkit::run(&["check", "--config", &directory.argument("sanderling.toml")]);
        match expected {
            Some(expected) => assert!(checked.errors.contains(expected), "{line}: {checked}"),
            // The state folder, which does not exist yet, is beside the zone file.
            None => assert_eq!(checked.errors.matches("warning: ").count(), 1, "{line}: {checked}"),
        }
    };
    let others = "dnssec = { other_signers = [\"ns2.example.net\"] }";
    check("dnssec = true", "", None);
    check("dnssec = true", "", Some("the server process can read the state folder "));
    check(
        "dnssec = true",
        KEY,
        Some("example.com has DNSKEY records: it will not be signed unless all are for keys of this server"),
    );
    check(others, KEY, None);
    check(others, "", Some("example.com has `other_signers`, but no DNSKEY records of them"));
    let soa = "@ SOA ns1 host 7 3600 600 1209600 60\n@ NS ns1\n@ NS ns2.example.net.\n";
    let directory = configure("dnssec = true");
    directory.replace("example.com.zone", format!("$TTL 300\n{soa}ns1 A 192.0.2.1\n").as_bytes());
    let checked = sanderling_testkit::run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert!(checked.errors.contains("answer for 1209600 s without a transfer"), "{checked}");
}

/// The state folder is not in the configuration.
fn check_with_default_state(directory: &TestDirectory, config: &str, state: &str) -> Ended {
    let mut check = sanderling();
    check.args(["check", "--config", &directory.argument(config)]);
    check.env("STATE_DIRECTORY", directory.argument(state));
    run_to_end(check, DEADLINE)
}

#[test]
fn default_state_folder_that_is_a_file_is_an_error() {
    let directory = configure("dnssec = true");
    let text = fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.replace("sanderling.toml", text.replace("state = \"state\"", "").as_bytes());
    directory.write("file", b"");
    let checked = check_with_default_state(&directory, "sanderling.toml", "file");
    assert!(checked.code() == Some(1) && checked.errors.contains("/file` is not a folder; set `state`"), "{checked}");
}

#[test]
fn removed_line_of_a_signed_zone_is_warned_of() {
    let directory = configure("dnssec = true");
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    let text = fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.replace("sanderling.toml", text.replace("dnssec = true", "").as_bytes());
    let warning = "example.com was signed by this server, and has no `dnssec`";
    let checked = sanderling_testkit::run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert!(checked.errors.contains(warning), "{checked}");
    let default_state = text.replace("dnssec = true", "").replace("state = \"state\"", "");
    directory.write("default.toml", default_state.as_bytes());
    let checked = check_with_default_state(&directory, "default.toml", "state");
    assert!(checked.errors.contains(warning), "{checked}");
    // The guard against lost records counts signatures as well.
    let reload = directory.control_with("reload", &["--force-zone", "example.com"]);
    assert!(reload.status.success(), "{reload}");
    assert!(reload.errors.contains(warning), "{reload}");
    server.wait_for_error(warning);
    let again = directory.control("reload");
    assert!(again.text().contains("no connection was closed") && again.errors.contains(warning), "{again}");
}

/// The agent and the server process write to the log as well as the supervisor.
#[test]
fn each_line_of_the_log_has_its_priority_for_journald() {
    let directory = configure("dnssec = true\n[domain.\"example.net\"]\nzone = \"example.net.zone\"");
    directory.write("example.net.zone", zone(7, 2).as_bytes());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec \"$0\" \"$@\""]);
    let serve = directory.serve_command();
    command.arg(serve.get_program()).args(serve.get_args());
    let server = TestServer::start_command(command, ListenerCounts { http: 0, dns: 1 });
    wait_until_signed(&server, &directory);
    for name in ["example.com.zone", "example.net.zone"] {
        directory.replace(name, b"what is this");
    }
    assert_eq!(directory.control("reload").code(), Some(1));
    for (priority, name) in
        [(3, "example.com.zone:1:6: "), (3, "example.net.zone:1:6: "), (6, "zone example.com: serial ")]
    {
        server.wait_for_error(name);
        let errors = server.errors();
        let line = errors.lines().find(|line| line.contains(name)).expect("it was waited for");
        assert!(line.starts_with(&format!("<{priority}>")), "{line}");
    }
    let errors = server.errors();
    assert!(errors.lines().all(|line| line.starts_with('<')), "{errors}");
}

#[test]
fn state_folder_that_can_be_created_only_later_needs_no_reload() {
    let directory = configure("dnssec = true");
    let text = fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    // The sandbox allows the zone's folder.
    directory.write("zones/example.com.zone", zone(7, 2).as_bytes());
    let text = text.replace("\"state\"", "\"missing/state\"").replace("\"example.com.zone", "\"zones/example.com.zone");
    directory.replace("sanderling.toml", text.as_bytes());
    let server = start(&directory);
    server.wait_for_error("create the folder above it");
    let process = server.server_process_id();
    fs::create_dir(directory.path().join("missing")).unwrap();
    wait_until_signed(&server, &directory);
    let errors = server.errors();
    assert!(!errors.contains("cannot read the zone file"), "{errors}");
    let status = directory.control("status").text();
    if !status.contains("Landlock not supported") {
        assert_ne!(server.server_process_id(), process);
        assert!(errors.contains("because the running process's sandbox does not allow"), "{errors}");
    }
    wait_until("all is well", || directory.control("status").text().contains("problems      none"));
}

#[test]
fn keys_and_versions_outlive_processes() {
    let directory = configure("dnssec = true");
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    let before = entry_points(&server);
    assert_eq!(before.len(), 1);
    server.kill_children();
    directory.replace("example.com.zone", zone(30, 5).as_bytes());
    wait_until("the server process is back", || directory.control("reload").status.success());
    wait_until("the new version is served", || serial(&server) == 30);
    check_is_valid(&server, &directory);
    assert_eq!(entry_points(&server), before);

    let transferred = records(&dig(server.dns(), &["example.com", "AXFR"]));
    server.kill_all();
    let server = start(&directory);
    // The zone is signed from the first answer on, with the same signatures.
    assert_eq!(records(&dig(server.dns(), &["example.com", "AXFR"])), transferred);
    assert_eq!(entry_points(&server), before);
    directory.replace("example.com.zone", zone(31, 6).as_bytes());
    let reload = directory.control("reload");
    assert!(reload.status.success(), "{reload}");
    assert_eq!(serial(&server), 31);
    check_is_valid(&server, &directory);
}

#[test]
fn error_in_the_file_is_in_the_status_when_the_reload_has_ended() {
    let directory = configure("dnssec = true");
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    for (text, is_good) in [("what is this", false), (&*zone(8, 2), true), ("what is this", false)] {
        directory.replace("example.com.zone", text.as_bytes());
        let reload = directory.control("reload");
        assert_eq!(reload.status.success(), is_good, "{reload}");
        // Without a wait: scripts look at once.
        let status = directory.control("status");
        let expected = if is_good { "problems      none" } else { "problems      1 zone kept" };
        assert!(status.status.success() == is_good && status.text().contains(expected), "{status}");
        let mut list = sanderling();
        list.args(["zone", "list", "--control", &directory.argument("control")]);
        let list = run_to_end(list, DEADLINE).text();
        assert_eq!(list.contains("  kept  "), !is_good, "{list}");
    }
}

#[test]
fn signatures_are_made_again_while_the_file_has_an_error() {
    let directory = configure("dnssec = true");
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    server.signal("TERM");
    server.end();
    // The stored version lacks a signature.
    let signed = directory.path().join("state/signed/example.com.zone");
    let text = fs::read_to_string(&signed).unwrap();
    let is_kept = |line: &&str| !(line.starts_with("www.example.com. ") && line.contains(" RRSIG A "));
    let damaged: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
    assert!(damaged.len() < text.len(), "{text}");
    fs::write(&signed, damaged).unwrap();
    directory.replace("example.com.zone", format!("{}www A 192.0.2\n", zone(20, 3)).as_bytes());
    let server = start(&directory);
    wait_until("the zone is signed again", || serial(&server) == 9);
    check_is_valid(&server, &directory);
    assert!(status(&directory).contains("problem: "));
    directory.replace("example.com.zone", zone(21, 3).as_bytes());
    let reload = directory.control("reload");
    assert!(reload.status.success(), "{reload}");
    assert_eq!(serial(&server), 21);
    check_is_valid(&server, &directory);
}

#[test]
fn damaged_state_of_keys_is_an_error_until_it_is_repaired() {
    let directory = configure("dnssec = true");
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    server.signal("TERM");
    server.end();
    let state = directory.path().join("state/signing/example.com.json");
    let good = fs::read(&state).unwrap();
    fs::write(&state, "{").unwrap();
    let server = start(&directory);
    let reload = directory.control("reload");
    assert_eq!(reload.code(), Some(1), "{reload}");
    assert!(reload.errors.contains("cannot read signing/example.com.json"), "{reload}");
    let status = status(&directory);
    assert!(status.contains("restore it from a backup"), "{status}");
    assert!(!status.contains("has no keys") && !status.contains("not signed yet"), "{status}");
    let mut rollover = sanderling();
    rollover.args(["dnssec", "rollover", "example.com", "--control", &directory.argument("control")]);
    let rollover = run_to_end(rollover, DEADLINE);
    assert!(rollover.errors.contains("cannot read signing/example.com.json"), "{rollover}");
    fs::write(&state, good).unwrap();
    directory.replace("example.com.zone", zone(20, 3).as_bytes());
    wait_until("the zone is signed again", || directory.control("reload").status.success() && serial(&server) == 20);
    check_is_valid(&server, &directory);
}

#[test]
fn zone_with_a_key_of_another_is_served_unsigned_and_check_and_status_say_so() {
    let directory = configure("dnssec = true");
    let key = "@ DNSKEY 257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ==\n\
               @ NSEC3PARAM 1 0 0 -\n";
    directory.write("example.com.zone", (zone(7, 2) + key).as_bytes());
    let mut check = sanderling();
    check.args(["check", "--config", &directory.argument("sanderling.toml")]);
    let checked = run_to_end(check, DEADLINE).to_string();
    for expected in [
        "the NSEC3PARAM records of example.com are ignored",
        "example.com has DNSKEY records: it will not be signed unless all are for keys of this server",
    ] {
        assert!(checked.contains(expected), "{checked}");
    }
    let server = start(&directory);
    let list = || {
        let mut list = sanderling();
        list.args(["zone", "list", "--control", &directory.argument("control")]);
        run_to_end(list, DEADLINE).text()
    };
    wait_until("it is not signed", || list().contains("  unsigned  "));
    let status = || directory.control("status").text();
    wait_until("the status says why", || status().contains("  zone example.com: it cannot be signed: "));
    // Without that key, the zone is signed.
    directory.replace("example.com.zone", zone(8, 2).as_bytes());
    let reload = directory.control("reload");
    assert!(reload.status.success(), "{reload}");
    wait_until("the list has it", || list().contains("  served  "));
    check_is_valid(&server, &directory);
}

#[test]
fn missing_private_key_is_named_with_what_to_do() {
    let directory = configure("dnssec = true");
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    server.signal("TERM");
    server.end();
    let folder = directory.path().join("state/keys/example.com");
    let key = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let content = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    directory.replace("example.com.zone", zone(20, 3).as_bytes());
    let server = start(&directory);
    wait_until("it is missed", || status(&directory).contains("problem: "));
    let problem = status(&directory);
    assert!(problem.contains("is missing from") && problem.contains("from a backup"), "{problem}");
    assert_eq!(serial(&server), 8);
    fs::write(&key, content).unwrap();
    wait_until("it is signed again", || serial(&server) == 20);
}

#[test]
fn another_serial_policy_counts_from_the_serial_in_service() {
    let directory = configure("dnssec = { serial = \"unixtime\" }");
    let server = start(&directory);
    wait_until_signed(&server, &directory);
    let signed = serial(&server);
    let text = fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    let reload_with = |policy: &str| {
        directory.replace("sanderling.toml", text.replace("unixtime", policy).as_bytes());
        directory.control("reload")
    };
    let reload = reload_with("keep");
    assert_eq!(reload.code(), Some(1), "{reload}");
    assert!(reload.errors.contains("the serial went back"), "{reload}");
    // The version of `keep` is still stored.
    reload_with("increment");
    wait_until("a later version is in service", || serial(&server) > signed);
    check_is_valid(&server, &directory);
    let before = serial(&server);
    directory.replace("example.com.zone", zone(7, 3).as_bytes());
    let reload = reload_with("date");
    assert!(reload.status.success(), "{reload}");
    assert_ne!(serial(&server), before);
    check_is_valid(&server, &directory);
}

#[test]
fn zone_of_a_hidden_primary_is_signed_on_the_way() {
    let address = free_address();
    let directory = TestDirectory::new();
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nresolvers = []\nlisten = [\"127.0.0.1:0\"]\n\
         transfer_allow = [{{ network = \"127.0.0.1\" }}]\n[tsig.transfer]\nsecret_file = \"transfer.key\"\n\
         [domain.\"example.com\"]\nprimaries = [{{ address = \"{address}\", key = \"transfer\" }}]\ndnssec = true\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
    let server = start(&directory);
    // The secondary looks for a later version after two seconds.
    let zone = |serial, address| zone(serial, address).replace("3600 600", "2 2");
    let primary = Program::Nsd.start(address, Peer::Secondary(server.dns()), &zone(7, 2));
    wait_until_signed(&server, &directory);
    check_is_valid(&server, &directory);
    primary.replace_zone(&zone(20, 3));
    wait_until("the next version is signed", || serial(&server) == 20);
    check_is_valid(&server, &directory);
    server.kill_children();
    primary.replace_zone(&zone(21, 4));
    wait_until("the server process is back", || is_served(server.dns(), "example.com"));
    wait_until("the next version is signed", || serial(&server) == 21);
    assert_eq!(dig(server.dns(), &["+short", "www.example.com"]).text().trim(), "192.0.2.4");
    check_is_valid(&server, &directory);
}

#[test]
fn derived_records_and_those_for_authorities_are_signed_with_the_zone() {
    let (mut setup, port) = derived_records::setup(
        "dnssec = true\naliases = [\"*.example.com\"]\ntransfer_allow = [{ network = \"127.0.0.1\" }]",
    );
    setup.start_pebble();
    setup.fetch_root();
    let mut server = setup.start_server();
    // A wildcard is validated by a record.
    setup.wait_for_page(server.encrypted("https"), "any.example.com");
    wait_until("the certificate is advertised", || {
        let name = format!("_{port}._https.example.com");
        let reply = Question::new(&name, HTTPS).with_signatures().query_tcp(server.dns());
        reply.answer.iter().any(|record| record.rtype == RRSIG)
    });
    let challenge = || data(server.dns(), "_acme-challenge.example.com", TXT);
    wait_until("the record is removed", || challenge().is_some_and(|text| text.is_empty()));
    check_whole_zone(&server, &setup.directory);
    let log = server.errors();
    assert!(!log.contains("certificate example.com: the name server"), "{log}");
    // Changes that come at once are signed together; but the authority's record is removed after it was seen.
    assert!(log.matches("new signatures").count() >= 2, "{log}");
}

#[test]
fn zone_is_signed_with_nsec3_and_other_algorithms() {
    check_signed_with("dnssec = { algorithm = \"ed25519\", nsec3 = true }");
    check_signed_with("dnssec = { algorithm = \"rsasha256\", keys = \"ksk-zsk\", serial = \"unixtime\" }");
}

#[test]
fn keys_of_bind_are_imported_and_exported() {
    const LINE: &str = "dnssec = { keys = \"ksk-zsk\" }";
    let directory = configure("[domain.\"example.org\"]\nzone = \"example.com.zone\"\ndnssec = true");
    let server = start(&directory);
    let folder = directory.argument("keys");
    fs::create_dir(&folder).unwrap();
    let generate = |arguments: &[&str]| {
        let arguments = [&["-q", "-a", "ECDSAP256SHA256", "-K", &folder], arguments, &["example.com"]].concat();
        let ended = run_program("dnssec-keygen", "bind9-utils", &arguments);
        assert!(ended.status.success(), "{ended}");
        format!("{folder}/{}.private", ended.text().trim())
    };
    let files = [generate(&["-f", "KSK"]), generate(&[])];
    let dnssec = |arguments: &[&str]| {
        let mut command = sanderling();
        command.arg("dnssec").args(arguments).args(["--config", &directory.argument("sanderling.toml")]);
        command.current_dir(directory.path());
        run_to_end(command, DEADLINE)
    };
    wait_until("there is a state folder", || directory.path().join("state/keys").exists());
    let imported = dnssec(&["import", "example.com", &files[0], &files[1]]);
    assert!(imported.status.success(), "{imported}");
    let text = fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.replace(
        "sanderling.toml",
        text.replace("[domain.\"example.org\"]", &format!("{LINE}\n[domain.\"example.org\"]")).as_bytes(),
    );
    let reload = directory.control("reload");
    assert!(reload.status.success(), "{reload}");
    check_is_valid(&server, &directory);
    let keys = dig(server.dns(), &["+short", "example.com", "DNSKEY"]).text();
    for file in &files {
        let public = fs::read_to_string(file.replace(".private", ".key")).unwrap();
        let data = public.lines().last().unwrap().split_once("DNSKEY ").unwrap().1;
        assert!(keys.contains(data), "{keys}\n{public}");
        assert!(status(&directory).contains(" is in use"), "{}", status(&directory));
    }
    let exports = directory.argument("exported");
    fs::create_dir(&exports).unwrap();
    let exported = dnssec(&["export", "example.com", &exports]);
    assert!(exported.status.success(), "{exported}");
    for file in &files {
        let again = file.replace(&folder, &exports);
        let private = |path: &str| {
            let text = fs::read_to_string(path).unwrap();
            text.lines().find(|line| line.starts_with("PrivateKey: ")).unwrap().to_owned()
        };
        assert_eq!(private(&again), private(file));
        assert_eq!(fs::metadata(&again).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // BIND signs with them.
    let [ksk, zsk] = files.map(|file| file.replace(&folder, &exports).replace(".private", ""));
    let public = |name: &str| fs::read_to_string(format!("{name}.key")).unwrap();
    directory.write("unsigned", format!("{}{}{}", zone(50, 2), public(&ksk), public(&zsk)).as_bytes());
    let arguments = ["-d", &exports, "-o", "example.com", "-k", &ksk, &directory.argument("unsigned"), &zsk];
    let signed = run_program("dnssec-signzone", "bind9-utils", &arguments);
    assert!(signed.status.success(), "{signed}");
}

/// Each version is signed in part, stored in the log, and applied to the version in service: secondaries get complete
/// versions, and the stored whole version does not change until the processes exit.
#[track_caller]
fn check_changes_in_part(line: &str) {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = configure(line);
    let mut server = start(&directory);
    wait_until_signed(&server, &directory);
    let file = directory.path().join("state/signed/example.com.zone");
    let whole = fs::read(&file).unwrap();
    let mut lines: Vec<String> = Vec::new();
    for round in 0..14 {
        let labels = ["a", "b.a", "c.b.a", "*.b.a", "www", "x.sub", "d"];
        for _ in 0..random.usize(1..4) {
            let (label, number) = (labels[random.usize(0..labels.len())], random.u8(1..250));
            match random.u8(0..6) {
                // BIND refuses delegation points that are wildcards.
                0 if !label.starts_with('*') => lines.push(format!("{label} NS ns.sub\n")),
                1 | 2 if !lines.is_empty() => drop(lines.swap_remove(random.usize(0..lines.len()))),
                3 => lines.push(format!("{label} AAAA 2001:db8::{number}\n")),
                _ => lines.push(format!("{label} TXT \"{number}\"\n")),
            }
        }
        // A zone without an error: each round has another number.
        let text = format!("{}{}round TXT \"{round}\"\n", zone(7, 2), lines.concat());
        directory.replace("example.com.zone", text.as_bytes());
        let before = serial(&server);
        if round > 8 {
            server.kill_children();
        }
        wait_until("the zone is read again", || directory.control("reload").status.success());
        let answer = || data(server.dns(), "round.example.com", TXT);
        wait_until("the change is served", || answer() == Some(round.to_string()));
        assert!(serial(&server) > before, "seed {seed}");
        check_whole_zone(&server, &directory);
        if round == 4 {
            assert!(fs::read(&file).unwrap() == whole, "it was written again: seed {seed}");
            let log = fs::metadata(directory.path().join("state/signed/example.com.changes")).unwrap();
            assert!(log.len() > 1000, "{} bytes", log.len());
            let transferred = records(&dig(server.dns(), &["example.com", "AXFR"]));
            server.kill_all();
            server = start(&directory);
            assert_eq!(records(&dig(server.dns(), &["example.com", "AXFR"])), transferred, "seed {seed}");
        }
    }
}

#[test]
fn changes_are_signed_in_part_and_outlive_processes() {
    check_changes_in_part("dnssec = true");
    check_changes_in_part("dnssec = { nsec3 = true }");
}
