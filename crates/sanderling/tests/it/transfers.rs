//! Zone transfers out, with dig and kdig, and with NSD, Knot and BIND as secondary servers.

use super::name_servers::{Peer, Program, SECRET, TSIG, records};
use sanderling_testkit::dns::is_served;
use sanderling_testkit::{
    Ended, ListenerCounts, TestDirectory, TestServer, children_of, dig, free_address, kdig, run_program, send_signal,
    wait_until,
};

/// A zone whose secondaries look every two seconds for a later version.
pub(crate) fn zone(serial: u32, host_count: usize) -> String {
    let hosts = (0..host_count)
        .map(|index| format!("host-{index}.group-{} A 10.0.{}.{}\n", index % 9, index / 250, index % 250));
    format!(
        "$TTL 300\n@ SOA ns1 host {serial} 2 2 3600 60\n@ NS ns1\n@ NS ns2.example.net.\nns1 A 192.0.2.1\n*.wild MX 10 mail\n\
         mail A 192.0.2.2\nsub NS ns.sub\nns.sub A 192.0.2.3\nalias CNAME mail\ntxt TXT \"a\" \"b;c\"\n{}",
        hosts.collect::<String>()
    )
}

/// A server of `example.com`, which its secondary at 127.0.0.1 may transfer with a key, and of others.
fn served(limits: &str) -> (TestDirectory, TestServer) {
    let directory = TestDirectory::new();
    directory.write("example.com.zone", zone(7, 5_000).as_bytes());
    directory.write("zones/open.example.zone", zone(1, 1).as_bytes());
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
    directory.write("other.key", b"b3RoZXI=");
    let mut openssl =
        vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"];
    let (key, chain) = (directory.argument("key.pem"), directory.argument("cert.pem"));
    openssl.extend(["-subj", "/CN=example.com", "-addext", "subjectAltName=DNS:example.com"]);
    openssl.extend(["-keyout", &key, "-out", &chain]);
    let ended = run_program("openssl", "openssl", &openssl);
    assert_eq!(ended.code(), Some(0), "{ended}");
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\ntls = [\"127.0.0.1:0\"]\nzones = \"zones/*.zone\"\n\
         transfer_allow = [{{ network = \"127.0.0.0/8\" }}]\n\
         [tsig.transfer]\nsecret_file = \"transfer.key\"\n[tsig.other]\nsecret_file = \"other.key\"\n\
         [domain.\"example.com\"]\nzone = \"example.com.zone\"\ncertificate = {{ chain = \"cert.pem\", key = \"key.pem\" }}\n\
         secondaries = [{{ address = \"127.0.0.1:53\", key = \"transfer\" }}]\n[limits]\n{limits}\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    (directory, server)
}

/// The records of the reply to a client with the version `serial`.
fn changes_since(server: &TestServer, serial: u32) -> usize {
    records(&kdig(server.dns(), &["+tcp", "-y", TSIG, "example.com", &format!("IXFR={serial}")])).len()
}

fn load_version(directory: &TestDirectory, serial: u32) {
    directory.replace("example.com.zone", zone(serial, 5_000 + serial as usize).as_bytes());
    assert_eq!(directory.control_with("reload", &["example.com"]).code(), Some(0));
}

/// Waits until the journal leads to the version `serial`, and kills the server process, whose successor reads it.
fn kill_after_storing(directory: &TestDirectory, server: &TestServer, serial: u32) {
    let journal = directory.path().join("state/journals/example.com.journal");
    let soa = [serial, 2, 2, 3_600, 60].map(u32::to_be_bytes).concat();
    wait_until("the journal is stored", || {
        std::fs::read(&journal).is_ok_and(|content| content.windows(soa.len()).any(|part| part == soa))
    });
    kill_server_process(server);
}

fn kill_server_process(server: &TestServer) {
    let killed = server.server_process_id();
    assert!(send_signal("KILL", &killed.to_string()));
    wait_until("another one serves", || {
        !children_of(server.process_id()).unwrap().contains(&killed) && is_served(server.dns(), "example.com")
    });
}

#[test]
fn journal_outlives_the_processes_and_a_damaged_one_is_not_used() {
    // SOA, and for each change two SOAs, a host more and another serial.
    const WHOLE: usize = 5_010;
    let (directory, server) = served("");
    load_version(&directory, 8);
    load_version(&directory, 9);
    let first = changes_since(&server, 7);
    assert!((5..100).contains(&first), "{first} records");
    let status = zone_command(&directory, "status").text();
    assert!(status.contains("  transfer serial 9 to 127.0.0.1 by IXFR "), "{status}");
    assert!(changes_since(&server, 8) < first);
    assert!(changes_since(&server, 6) > WHOLE, "the journal does not go back so far");
    let status = zone_command(&directory, "status").text();
    assert!(status.contains("journal  2 changes since serial 7, for IXFR"), "{status}");
    kill_after_storing(&directory, &server, 9);
    assert_eq!(changes_since(&server, 7), first, "of the next process");
    load_version(&directory, 10);
    let of_three = changes_since(&server, 7);
    assert!((first + 1..100).contains(&of_three), "{of_three} records");
    kill_after_storing(&directory, &server, 10);
    assert_eq!(changes_since(&server, 7), of_three);
    let journal = directory.path().join("state/journals/example.com.journal");
    let mut content = std::fs::read(&journal).unwrap();
    content[100] ^= 1;
    std::fs::write(&journal, &content).unwrap();
    kill_server_process(&server);
    server.wait_for_error("example.com.journal: it is damaged; secondaries get the whole zone once");
    assert!(changes_since(&server, 9) > WHOLE);
    // The journal begins again.
    load_version(&directory, 11);
    assert!(changes_since(&server, 10) < 100);
    kill_after_storing(&directory, &server, 11);
    // Another version with the same serial: what secondaries have is not known.
    directory.replace("example.com.zone", zone(11, 5_000).as_bytes());
    kill_server_process(&server);
    server.wait_for_error("example.com.journal: it is for another version of the zone");
    assert!(changes_since(&server, 10) > WHOLE);
}

#[test]
fn limit_of_a_journal_is_kept() {
    let (directory, server) = served("zone_journal_bytes_max = 2000\n");
    for serial in 8..30 {
        load_version(&directory, serial);
    }
    assert!(changes_since(&server, 28) < 10);
    assert!(changes_since(&server, 7) > 5_000);
    kill_after_storing(&directory, &server, 29);
    assert!(changes_since(&server, 28) < 10);
    let config = std::fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.replace("sanderling.toml", config.replace("bytes_max = 2000", "bytes_max = 500").as_bytes());
    assert_eq!(directory.control("reload").code(), Some(0));
    kill_server_process(&server);
    server.wait_for_error("example.com.journal: it has more than 500 bytes (`zone_journal_max`); secondaries");
    let (directory, server) = served("zone_journal_bytes_max = 0\n");
    load_version(&directory, 8);
    assert!(changes_since(&server, 7) > 5_000);
}

#[track_caller]
fn check_counter(directory: &TestDirectory, counter: &str) {
    let status = directory.control("status").text();
    assert!(status.contains(counter), "{counter:?} is not in\n{status}");
}

#[test]
fn zone_is_transferred_to_those_that_a_rule_allows() {
    let (directory, mut server) = served("");
    let (plain, dot) = (server.dns(), server.encrypted("dot"));
    let shown = run_zone_show(&directory);
    let of_dig = dig(plain, &["-y", TSIG, "example.com", "AXFR"]);
    let mut expected = shown.clone();
    // RFC 5936 section 2.2: the SOA twice.
    expected.extend(shown.iter().find(|line| line.contains(" soa ")).cloned());
    expected.sort();
    assert_eq!(records(&of_dig), expected, "{of_dig}");
    assert_eq!(records(&kdig(plain, &["-y", TSIG, "example.com", "AXFR"])), expected);
    assert_eq!(records(&kdig(dot, &["+tls", "-y", TSIG, "example.com", "AXFR"])), expected);
    assert_eq!(records(&kdig(plain, &["-y", TSIG, "example.com", "IXFR=6"])), expected, "the whole zone");
    for options in [&["+tcp"][..], &["+notcp"]] {
        let current = kdig(plain, &[options, &["-y", TSIG, "example.com", "IXFR=7"]].concat());
        assert_eq!(records(&current).len(), 1, "{current}");
    }
    let older = kdig(plain, &["+notcp", "-y", TSIG, "example.com", "IXFR=3"]);
    assert_eq!(records(&older).len(), 1, "over UDP the SOA alone: {older}");
    // A zone of the folder has the rules of [dns].
    assert_eq!(records(&dig(plain, &["open.example", "AXFR"])).len(), 12);
    check_counter(&directory, "dns_transfers 5");
    check_counter(&directory, "dns_transfers_done 5");
    check_counter(&directory, "dns_transfers_up_to_date 3");
    let status = zone_command(&directory, "status").text();
    assert!(status.contains("  transfer serial 7 to 127.0.0.1 by AXFR "), "{status}");
}

/// The records of `example.com` as the server shows them.
fn run_zone_show(directory: &TestDirectory) -> Vec<String> {
    records(&zone_command(directory, "show"))
}

fn zone_command(directory: &TestDirectory, name: &str) -> Ended {
    let mut command = sanderling_testkit::sanderling();
    command.args(["zone", name, "example.com", "--control", &directory.argument("control")]);
    sanderling_testkit::run_to_end(command, sanderling_testkit::DEADLINE)
}

#[test]
fn other_transfers_are_refused_and_counted_by_cause() {
    let (directory, mut server) = served("dns_transfers_max = 0\n");
    let (plain, dot) = (server.dns(), server.encrypted("dot"));
    let status = |server, options: &[&str]| {
        let ended = kdig(server, &[&["+header", "example.com", "AXFR"][..], options].concat());
        let text = ended.text() + &ended.errors;
        let codes = ["REFUSED", "NOTAUTH", "SERVFAIL", "BADKEY", "BADSIG", "NOERROR"];
        codes.into_iter().filter(|code| text.contains(code)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(status(plain, &[]), "REFUSED");
    assert_eq!(status(plain, &["-y", "hmac-sha256:other:b3RoZXI="]), "REFUSED");
    check_counter(&directory, "dns_transfers_refused 2");
    // The second one is of the same client and zone, within a minute.
    server.wait_for_error(
        "zone example.com: a transfer to 127.0.0.1 without a key gets REFUSED: no rule in `transfer_allow` or \
         `secondaries` allows it",
    );
    assert!(status(plain, &["-y", "hmac-sha256:unknown:b3RoZXI="]).contains("BADKEY"));
    check_counter(&directory, "tsig_bad_key 1");
    assert!(status(plain, &["-y", "hmac-sha256:transfer:b3RoZXI="]).contains("BADSIG"));
    check_counter(&directory, "tsig_bad_sig 1");
    // Also of other queries, over UDP.
    for (key, counted) in [("unknown", "tsig_bad_key 2"), ("transfer", "tsig_bad_sig 2")] {
        kdig(plain, &["+notcp", "-y", &format!("hmac-sha256:{key}:b3RoZXI="), "example.com", "SOA"]);
        check_counter(&directory, counted);
    }
    assert_eq!(status(dot, &["+tls"]), "REFUSED");
    // The limit of transfers, which are allowed.
    assert_eq!(status(plain, &["-y", TSIG]), "SERVFAIL");
    check_counter(&directory, "dns_transfers_over_limit 1");
    // RFC 9103 section 7.1: TLS 1.3 alone, and the protocol `dot`.
    let old = kdig(dot, &["+tls", "+tls-sni=example.com", "+noedns", "example.org", "AXFR"]);
    assert!((old.text() + &old.errors).contains("NOTAUTH"), "of no zone, which the rules of [dns] allow: {old}");
}

#[test]
fn changed_secret_is_used_without_a_reload_and_a_broken_one_keeps_the_last() {
    let (directory, server) = served("");
    let count = |tsig: &str| records(&dig(server.dns(), &["-y", tsig, "example.com", "AXFR"])).len();
    let whole = count(TSIG);
    assert!(whole > 5_000);
    directory.replace("transfer.key", b"bmV3IHNlY3JldA==\n");
    let new = "hmac-sha256:transfer:bmV3IHNlY3JldA==";
    wait_until("the new secret is in use", || count(new) == whole);
    assert_eq!(count(TSIG), 0);
    directory.replace("transfer.key", b"not base64");
    server.wait_for_error("is not a single line of base64");
    server.wait_for_error("its last good secret stays in service");
    assert_eq!(count(new), whole);
    // Even a signed query for something else gets a signed reply.
    let soa = dig(server.dns(), &["-y", new, "example.com", "SOA", "+short"]);
    assert!(soa.text().contains(" 7 2 2 3600 60") && !soa.errors.contains("verify"), "{soa}");
}

#[test]
fn broken_secret_is_a_problem_of_the_reload_and_the_status() {
    let (directory, server) = served("");
    assert_eq!(directory.control("status").code(), Some(0));
    let check = |problem: &str, line: &str, state: &str| {
        let status = directory.control("status");
        assert!(status.code() == Some(1) && status.text().contains(problem), "{status}");
        assert!(status.text().contains(&format!("TSIG key      transfer: {line}; ERROR: ")), "{status}");
        let metrics = directory.control_with("status", &["--metrics"]).text();
        assert!(metrics.contains(&format!("sanderling_tsig_keys{{state=\"{state}\"}} 1\n")), "{metrics}");
    };
    directory.replace("transfer.key", b"not base64");
    let reload = directory.control("reload");
    assert!(reload.code() == Some(1) && reload.errors.contains("its last good secret stays in service"), "{reload}");
    assert!(reload.errors.contains("1 of the sites, zones, certificates and TSIG keys could not be"), "{reload}");
    check("1 TSIG key kept", "the last good secret is in service", "kept");
    drop(server);
    std::fs::remove_file(directory.path().join("transfer.key")).unwrap();
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    check("1 TSIG key unavailable", "UNAVAILABLE, messages signed with it are refused", "unavailable");
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
    wait_until("the secret is in use", || directory.control("status").code() == Some(0));
    drop(server);
}

/// The secondary transfers the zone, and its next version.
#[track_caller]
fn check_secondary(program: Program) {
    let (directory, mut server) = served("");
    let primary = match program {
        Program::BindTls => server.encrypted("dot"),
        _ => server.dns(),
    };
    let secondary = program.start(free_address(), Peer::Primary(primary), "");
    let of_primary = || records(&dig(server.dns(), &["-y", TSIG, "example.com", "AXFR"]));
    let first = of_primary();
    wait_until("the secondary has the zone", || secondary.records() == first);
    directory.replace("example.com.zone", zone(8, 5_100).as_bytes());
    assert_eq!(directory.control_with("reload", &["example.com"]).code(), Some(0));
    let second = of_primary();
    assert_eq!(second.len(), first.len() + 100);
    wait_until("the secondary has the next version", || secondary.records() == second);
    check_counter(&directory, "dns_transfers_incremental 1");
    let status = directory.control("status").text();
    // The last transfer is by the secondary or by `dig`.
    let zone_status = zone_command(&directory, "status").text();
    assert!(zone_status.contains("  transfer serial 8 to 127.0.0.1 by "), "{zone_status}");
    assert!(!status.contains("tsig_bad") && !status.contains("dns_transfers_refused"), "{status}");
}

#[test]
fn nsd_is_a_secondary() {
    check_secondary(Program::Nsd);
}

#[test]
fn knot_is_a_secondary() {
    check_secondary(Program::Knot);
}

#[test]
fn bind_is_a_secondary() {
    check_secondary(Program::Bind);
}

#[test]
fn bind_is_a_secondary_over_tls() {
    check_secondary(Program::BindTls);
}
