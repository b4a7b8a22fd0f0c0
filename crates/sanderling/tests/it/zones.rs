//! The zone folder, the reload of one zone, and the commands that show zones.

use crate::domain::{Domain, ZONE};
use sanderling_testkit::dns::{A, Question};
use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, TestDirectory, TestServer, run_to_end, sanderling, tcp_reply,
};

fn zone(serial: u32, addresses: usize) -> String {
    let hosts = (0..addresses).map(|index| format!("h{index} A 192.0.2.{index}\n"));
    format!("$TTL 60\n@ SOA ns host {serial} 1 1 1 1\n@ NS ns\nns A 192.0.2.1\n{}", hosts.collect::<String>())
}

/// A server of the zones in `zones`, and of `own.example` in a section of its own.
fn served() -> (TestDirectory, TestServer) {
    let directory = TestDirectory::new();
    for name in ["a.example", "b.example"] {
        directory.write(&format!("zones/{name}.zone"), zone(1, 1).as_bytes());
    }
    directory.write("own", zone(5, 2).as_bytes());
    let config = "workers = 1\n[dns]\nlisten = [\"127.0.0.1:0\"]\nzones = \"zones/*.zone\"\n\
                  [domain.\"own.example\"]\nzone = \"own\"\n";
    directory.write("sanderling.toml", config.as_bytes());
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    (directory, server)
}

#[track_caller]
fn zone_command(directory: &TestDirectory, arguments: &[&str]) -> Ended {
    let mut command = sanderling();
    command.arg("zone").args(arguments).args(["--control", &directory.argument("control")]);
    run_to_end(command, DEADLINE)
}

#[track_caller]
fn check(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code(), Some(code), "{ended}");
    let all = ended.text() + &ended.errors;
    parts.iter().for_each(|part| assert!(all.contains(part), "{part:?} is missing: {ended}"));
}

#[track_caller]
fn check_answer(server: &TestServer, name: &str, count: usize) {
    let reply = Question::new(name, A).query_udp(server.dns());
    assert_eq!((reply.rcode, reply.answer.len()), (0, count), "{name}");
}

#[test]
fn files_of_the_folder_are_zones_and_a_broken_one_stops_no_other() {
    let (directory, server) = served();
    check_answer(&server, "h0.a.example", 1);
    directory.write("zones/broken.example.zone", b"@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2\n");
    directory.write("zones/c.example.zone", zone(1, 1).as_bytes());
    std::fs::remove_file(directory.path().join("zones/b.example.zone")).unwrap();
    let checked = sanderling_testkit::run(&["check", "--config", &directory.argument("sanderling.toml")]);
    check(&checked, 1, &["zones/broken.example.zone:3:9: "]);
    check(&directory.control("reload"), 1, &["1 added, 0 changed, 1 removed", "zones/broken.example.zone:3:9: "]);
    check_answer(&server, "h0.a.example", 1);
    check_answer(&server, "h0.c.example", 1);
    assert_ne!(Question::new("h0.b.example", A).query_udp(server.dns()).rcode, 0);
}

#[test]
fn one_zone_is_reloaded_alone() {
    let (directory, server) = served();
    directory.write("zones/a.example.zone", zone(2, 3).as_bytes());
    directory.write("own", zone(6, 1).as_bytes());
    check(&directory.control_with("reload", &["A.example"]), 0, &["zone a.example: serial 1 -> 2, 4 -> 6 records\n"]);
    check_answer(&server, "h2.a.example", 1);
    check_answer(&server, "h1.own.example", 1);
    check(&directory.control_with("reload", &["a.example"]), 0, &["its files are unchanged; serial 2, 6 records"]);
    check(&directory.control_with("reload", &["own.example"]), 0, &["zone own.example: serial 5 -> 6, 5 -> 4 records"]);
    // A new file of the folder.
    directory.write("zones/c.example.zone", zone(1, 1).as_bytes());
    check(&directory.control_with("reload", &["c.example"]), 0, &["zone c.example: added, serial 1, 4 records"]);
    check_answer(&server, "h0.c.example", 1);
    check(&directory.control_with("reload", &["a.exmple"]), 1, &["there is no zone a.exmple; did you mean a.example?"]);
    // The guard, and what forces it.
    directory.write("zones/a.example.zone", zone(1, 3).as_bytes());
    let kept = ["the serial went back from 2 to 1", "zone a.example: not reloaded, keeping serial 2"];
    check(&directory.control_with("reload", &["a.example"]), 1, &kept);
    let forced = directory.control_with("reload", &["a.example", "--force-zone", "a.example"]);
    check(&forced, 0, &["serial 2 -> 1, 6 -> 6 records; the serial is lower, so secondaries will not notice"]);
    // The next reload of all finds nothing to do.
    check(&directory.control("reload"), 0, &["zones: 0 added, 0 changed, 0 removed"]);
    check(&directory.control("status"), 0, &["a.example: serial 1, 6 records", "3 zones"]);
}

/// Runs `zone add` or `zone remove` with the server's configuration.
#[track_caller]
fn folder_command(directory: &TestDirectory, arguments: &[&str]) -> Ended {
    zone_command(directory, &[arguments, &["--config", &directory.argument("sanderling.toml")]].concat())
}

/// The names of the files in the zone folder.
fn folder_files(directory: &TestDirectory) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path().join("zones")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn zone_is_added_to_the_folder_and_removed_from_it() {
    let (directory, server) = served();
    directory.write("new", zone(3, 2).as_bytes());
    let new = directory.argument("new");
    let added = folder_command(&directory, &["add", "C.example", &new]);
    check(&added, 0, &["zone c.example: added, serial 3, 5 records", "its file is ", "/zones/c.example.zone"]);
    check_answer(&server, "h1.c.example", 1);
    check(&folder_command(&directory, &["add", "c.example", &new]), 1, &["the zone c.example already exists in "]);
    check(&directory.control("status"), 0, &["zones/*.zone, 3 zones"]);
    check(&directory.control("reload"), 0, &["zones: 0 added, 0 changed, 0 removed"]);

    let removed = folder_command(&directory, &["remove", "c.example"]);
    let parts =
        ["its file is kept as ", "/zones/c.example.zone.removed\n", "zone c.example: removed, because its file"];
    check(&removed, 0, &parts);
    assert_ne!(Question::new("h1.c.example", A).query_udp(server.dns()).rcode, 0);
    check(&directory.control("status"), 0, &["zones/*.zone, 2 zones"]);
    check(&directory.control("reload"), 0, &["zones: 0 added, 0 changed, 0 removed"]);
    check(
        &folder_command(&directory, &["remove", "c.example"]),
        1,
        &["has no file of the zone c.example; did you mean "],
    );
    // The copy is the zone as it was, and may come back.
    let copy = directory.argument("zones/c.example.zone.removed");
    check(&folder_command(&directory, &["add", "c.example", &copy]), 0, &["added, serial 3, 5 records"]);
    check(&folder_command(&directory, &["remove", "c.example"]), 0, &["/zones/c.example.zone.removed-2\n"]);
    let expected = ["a.example.zone", "b.example.zone", "c.example.zone.removed", "c.example.zone.removed-2"];
    assert_eq!(folder_files(&directory), expected);

    // Without a server.
    check(&directory.control("stop"), 0, &["stopped"]);
    server.end();
    let unreachable = " the zone after its next start or reload.";
    check(
        &folder_command(&directory, &["add", "c.example", &new]),
        0,
        &[unreachable, "The server will serve the zone", "its file is "],
    );
    check(
        &folder_command(&directory, &["remove", "a.example"]),
        0,
        &[unreachable, "The server will not serve the zone"],
    );
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    check_answer(&server, "h1.c.example", 1);
    assert_ne!(Question::new("h0.a.example", A).query_udp(server.dns()).rcode, 0);
}

#[test]
fn zone_that_cannot_be_added_changes_nothing() {
    let (directory, server) = served();
    let before = folder_files(&directory);
    directory.write("new", b"@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2\n");
    let new = directory.argument("new");
    let refused = folder_command(&directory, &["add", "c.example", &new]);
    check(&refused, 1, &[&format!("{new}:3:9: "), "the zone c.example was not added; correct "]);
    check(&folder_command(&directory, &["add", "c.example", &directory.argument("none")]), 1, &["cannot read "]);
    directory.write("new", zone(1, 1).as_bytes());
    check(&folder_command(&directory, &["add", "0/25.2.0.192.in-addr.arpa", &new]), 1, &["cannot be a file name"]);
    check(&folder_command(&directory, &["add", "own.example", &new]), 1, &["has the zone own.example in ", ", at "]);
    check(
        &folder_command(&directory, &["remove", "own.example"]),
        1,
        &["remove `zone` there and run `sanderling reload`"],
    );
    // The running server has another folder.
    let config = std::fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.write("others/x.example.zone", zone(1, 1).as_bytes());
    directory.write("sanderling.toml", config.replace("zones/*", "others/*").as_bytes());
    let refused = folder_command(&directory, &["add", "c.example", &new]);
    check(&refused, 1, &["there is no zone c.example", "the zone c.example was not added"]);
    assert!(!directory.path().join("others/c.example.zone").exists());
    directory.write("sanderling.toml", config.replace("zones = \"zones/*.zone\"\n", "").as_bytes());
    check(&folder_command(&directory, &["add", "c.example", &new]), 1, &["the configuration has no zone folder; set "]);
    assert_eq!(folder_files(&directory), before);
    check_answer(&server, "h0.a.example", 1);
    // A zone whose folder is gone stays in service.
    std::fs::rename(directory.path().join("zones"), directory.path().join("moved")).unwrap();
    check(&directory.control_with("reload", &["a.example"]), 1, &["zone a.example: not reloaded, keeping serial 1"]);
    check_answer(&server, "h0.a.example", 1);
}

#[test]
fn zone_of_primaries_or_of_a_catalog_is_neither_added_nor_removed() {
    let directory = TestDirectory::new();
    let primaries = "primaries = [{ address = \"192.0.2.1:53\" }]\n";
    let config = format!(
        "state = \"state\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\nzones = \"zones/*.zone\"\n\
         [domain.\"s.example\"]\n{primaries}[catalog.\"catalog.example\"]\n{primaries}"
    );
    directory.write("sanderling.toml", config.as_bytes());
    let member =
        r#"{"members":[{"zone":"m.example","catalog":"catalog.example","label":"a","groups":[]}],"removed":[]}"#;
    directory.write("state/zones/members", member.as_bytes());
    directory.write("zones/a.example.zone", zone(1, 1).as_bytes());
    let file = directory.argument("zones/a.example.zone");
    for (name, expected) in [
        ("s.example", "the zone s.example is transferred from its primaries, at "),
        ("catalog.example", "catalog.example is a catalog; remove its section"),
        ("m.example", "the zone m.example comes from the catalog catalog.example; remove it from the catalog"),
    ] {
        check(&folder_command(&directory, &["remove", name]), 1, &[expected]);
        check(&folder_command(&directory, &["add", name, &file]), 1, &[expected]);
    }
    assert_eq!(folder_files(&directory), ["a.example.zone"]);
}

#[test]
fn zones_are_listed_with_their_states() {
    let (directory, _server) = served();
    directory.write("zones/a.example.zone", b"broken\n");
    directory.write("zones/none.example.zone", b"broken\n");
    check(&directory.control("reload"), 1, &[]);
    let list = zone_command(&directory, &["list"]);
    assert_eq!(list.code(), Some(0), "{list}");
    let rows: Vec<Vec<String>> =
        (list.text().lines()).map(|line| line.split_whitespace().take(4).map(str::to_owned).collect()).collect();
    let expected = [
        ["zone", "serial", "records", "state"],
        ["own.example", "5", "5", "served"],
        ["a.example", "1", "4", "kept"],
        ["b.example", "1", "4", "served"],
        ["none.example", "-", "0", "unavailable"],
    ];
    assert_eq!(rows, expected);
    let json = zone_command(&directory, &["list", "--json"]);
    let zones: serde_json::Value = serde_json::from_slice(&json.output).expect("JSON");
    assert_eq!(zones.as_array().map(Vec::len), Some(4));
    assert_eq!((zones[1]["name"].as_str(), zones[1]["state"].as_str()), (Some("a.example"), Some("kept")));
    assert!(zones[1]["problem"].as_str().is_some_and(|text| text.contains("a.example.zone:1:")), "{zones}");
}

#[test]
fn status_of_a_zone_says_how_it_differs_from_its_file() {
    let (directory, _server) = served();
    let status = |name: &str| zone_command(&directory, &["status", name]);
    check(&status("own.example"), 0, &["5, loaded ", "5 of 4 names", " bytes\n", "served as in the file"]);
    directory.write("own", zone(6, 3).as_bytes());
    check(&status("own.example"), 0, &["the file has changed since: run `sanderling reload own.example`"]);
    directory.write("own", b"broken\n");
    check(&directory.control_with("reload", &["own.example"]), 1, &["not reloaded, keeping serial 5"]);
    check(&status("own.example"), 0, &["the last good version is served, because the file was refused: ", "own:1:"]);
    check(&status("wn.example"), 1, &["there is no zone wn.example; did you mean own.example?"]);
    check(&status("other.test"), 1, &["there is no zone other.test; `sanderling zone list` lists all"]);
}

#[test]
fn zone_is_shown_as_it_is_answered() {
    let (directory, server) = served();
    let shown = zone_command(&directory, &["show", "own.example"]);
    check(&shown, 0, &["own.example. 60 IN SOA ns.own.example. host.own.example. 5 1 1 1 1\n"]);
    check(&shown, 0, &["h1.own.example. 60 IN A 192.0.2.1\n"]);
    assert_eq!(shown.text().lines().count(), 5, "{shown}");
    let addresses = zone_command(&directory, &["show", "own.example", "--rrtype", "ns"]);
    assert_eq!(addresses.text(), "own.example. 60 IN NS ns.own.example.\n");
    check(&zone_command(&directory, &["show", "own.example", "--rrtype", "X"]), 1, &["`X` is not a record type"]);
    // The text is a zone file, also of a large zone.
    directory.write("own", zone(6, 200).as_bytes());
    check(&directory.control_with("reload", &["own.example"]), 0, &[]);
    let text = zone_command(&directory, &["show", "own.example"]).output;
    directory.write("zones/a.example.zone", &text);
    directory.write("own", &text);
    let forced = ["own.example", "--force-zone", "own.example"];
    check(&directory.control_with("reload", &forced), 0, &["its records are unchanged; serial 6, 203 records"]);
    assert_eq!(zone_command(&directory, &["show", "own.example"]).output, text);
    // Also while there is no supervisor.
    server.signal("KILL");
    check(&zone_command(&directory, &["show", "own.example"]), 0, &["h199.own.example. 60 IN A 192.0.2.199\n"]);
    check(&directory.control("stop"), 0, &["stopped"]);
    server.end();
}

/// A signed zone whose SOA has a signature until `soa_expiration`, and the others until 2037.
fn signed_zone(serial: u32, soa_expiration: &str) -> String {
    let signature = |rtype: &str, expiration: &str| {
        format!("@ RRSIG {rtype} 13 2 60 {expiration} 20200101000000 1038 a.example. AA==\n")
    };
    let signatures: String = ["NS", "DNSKEY", "NSEC"].map(|rtype| signature(rtype, "20370101000000")).concat();
    format!(
        "$TTL 60\n@ SOA ns.other. host.other. {serial} 1 1 1 1\n@ NS ns.other.\n@ DNSKEY 257 3 13 AAAA\n\
         @ NSEC @ NS SOA RRSIG NSEC DNSKEY\n{signatures}{}",
        signature("SOA", soa_expiration)
    )
}

#[test]
fn signed_zone_is_served_with_the_time_until_which_its_signatures_are_valid() {
    let (directory, server) = served();
    directory.write("zones/a.example.zone", signed_zone(2, "20360101000000").as_bytes());
    check(&directory.control("reload"), 0, &["a.example: serial 1 -> 2"]);
    let query = dig(&server, "none.a.example");
    for part in ["status: NXDOMAIN", "RRSIG\tSOA", "NSEC\ta.example. NS SOA RRSIG NSEC DNSKEY", "RRSIG\tNSEC"] {
        assert!(query.contains(part), "{part:?} is missing: {query}");
    }
    let date = "Tue, 01 Jan 2036 00:00:00 GMT";
    check(&zone_command(&directory, &["status", "a.example"]), 0, &[&format!("signed   until {date}")]);
    check(&directory.control_with("status", &["--verbose"]), 0, &[&format!("signed until {date}")]);
    check(&directory.control_with("status", &["--json"]), 0, &["\"signatures_expire_at_unix_s\":2082758400"]);
    directory.write("zones/a.example.zone", signed_zone(3, "20210101000000").as_bytes());
    check(&directory.control("reload"), 0, &["a signature of the SOA records of a.example. has expired"]);
    let expired = "its signatures have expired on Fri, 01 Jan 2021 00:00:00 GMT";
    check(&directory.control_with("status", &["--verbose"]), 1, &[expired, "problems      1 zone bogus"]);
}

/// The output of `dig +dnssec` about the addresses of `name`.
fn dig(server: &TestServer, name: &str) -> String {
    let (ip, port) = (server.dns().ip().to_string(), server.dns().port().to_string());
    let mut command = std::process::Command::new("dig");
    command.args(["+dnssec", "+nosplit", name, "A", "-p", &port, &format!("@{ip}")]);
    run_to_end(command, DEADLINE).text().split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Pieces that may break a zone file: words of zone files, and other bytes.
const PIECES: [&[u8]; 12] =
    [b"(", b")", b"\"", b"\\", b";", b"\n", b"$INCLUDE x\n", b"@ CNAME a\n", b"SOA", b"999999999999", b"\0", b"\xff"];

fn mutated(text: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..text.len());
        let end = (at + random.usize(..20)).min(text.len());
        match random.u8(..4) {
            0 => text[at] = random.u8(..),
            1 => drop(text.drain(at..end)),
            2 => drop(text.splice(at..at, random.choice(PIECES).expect("a piece").iter().copied())),
            _ => text.truncate(at.max(1)),
        }
        if text.is_empty() {
            break;
        }
    }
    text
}

#[test]
fn answers_stay_after_each_broken_zone_file() {
    let count = sanderling_testkit::number_or("SANDERLING_MUTATIONS", 150);
    let seed = sanderling_testkit::seed();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let domain = Domain::with_zone(ZONE);
    let server = domain.server.dns();
    let questions = ["", "www.", "a.wild.", "x.child.", "x.tree.", "none.", "big.", "chain."];
    let replies = || {
        let reply = |host: &&str| tcp_reply(server, &Question::new(&format!("{host}example.com"), A).message());
        questions.iter().map(reply).collect::<Vec<_>>()
    };
    let (mut expected, mut broken_count) = (replies(), 0);
    for round in 0..count {
        let text = mutated(ZONE.as_bytes(), &mut random);
        domain.directory.replace("zone", &text);
        let reloaded = domain.directory.control_with("reload", &["example.com"]);
        match reloaded.code() {
            Some(0) => expected = replies(),
            Some(1) => {
                broken_count += 1;
                assert_eq!(replies(), expected, "round {round}: {reloaded}\n{}", String::from_utf8_lossy(&text));
            }
            _ => panic!("round {round}: {reloaded}"),
        }
    }
    println!("{broken_count} of {count} were broken");
    assert!(broken_count > count / 4, "{broken_count} of {count}");
    domain.directory.replace("zone", ZONE.as_bytes());
    assert_eq!(domain.directory.control_with("reload", &["--force-zone", "example.com"]).code(), Some(0));
    assert_eq!(tcp_reply(server, &Question::new("example.com", A).message())[3] & 0xf, 0);
}
