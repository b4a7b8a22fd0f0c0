//! The server as a secondary: of NSD, Knot and BIND, with kills and restarts in between, and of a primary that lies.

use super::name_servers::{NameServer, Peer, Program, SECRET, records};
use sanderling_testkit::dns::{Question, SERVFAIL, TXT, data, wire_name};
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, UdpClient, children_with, dig, free_address, kdig, run_to_end,
    sanderling, wait_until,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A zone of any types, whose secondaries look for a later version after `refresh_s`.
fn zone(serial: u32, refresh_s: u32) -> String {
    let hosts: String =
        (0..3_000).map(|index| format!("host-{index} A 10.0.{}.{}\n", index / 250, index % 250)).collect();
    format!(
        "$TTL 300\n@ SOA ns1 host {serial} {refresh_s} 2 3600 60\n@ NS ns1\n@ NS ns2.example.net.\nns1 A 192.0.2.1\n*.wild MX 10 mail\n\
         mail A 192.0.2.2\nsub NS ns.sub\nns.sub AAAA 2001:db8::3\nalias CNAME mail\ntxt TXT \"a\" \"b;c\" \"\\200\\\"\"\n\
         _sip._tcp SRV 1 2 5060 mail\nnaptr NAPTR 1 2 \"u\" \"sip\" \"!^.*$!sip:a@b!\" .\ncaa CAA 0 issue \"ca.example\"\n\
         svc HTTPS 1 . alpn=h2 ipv4hint=192.0.2.4\nunknown TYPE65280 \\# 3 010203\nserial TXT \"{serial}\"\n{hosts}"
    )
}

/// The configuration of a secondary of `example.com` with this primary.
fn configure(primary: SocketAddr, key: &str, limits: &str) -> TestDirectory {
    let directory = TestDirectory::new();
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\ntransfer_allow = [{{ network = \"127.0.0.1\" }}]\n\
         [tsig.transfer]\nsecret_file = \"transfer.key\"\n\
         [domain.\"example.com\"]\nprimaries = [{{ address = \"{primary}\"{key} }}]\n[limits]\n{limits}\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
    directory
}

fn start(directory: &TestDirectory) -> TestServer {
    TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
}

fn served(server: &TestServer) -> Vec<String> {
    records(&dig(server.dns(), &["example.com", "AXFR"]))
}

fn zone_status(directory: &TestDirectory) -> String {
    let mut command = sanderling();
    command.args(["zone", "status", "example.com", "--control", &directory.argument("control")]);
    run_to_end(command, DEADLINE).text()
}

#[track_caller]
fn wait_for_version(server: &TestServer, primary: &NameServer, serial: u32) {
    let text = format!("\"{serial}\"");
    wait_until("the primary has the version", || primary.records().iter().any(|line| line.ends_with(&text)));
    let expected = primary.records();
    wait_until("the secondary has the version", || served(server) == expected);
}

#[track_caller]
fn check_secondary_of(program: Program) {
    let address = free_address();
    let directory = configure(address, ", key = \"transfer\"", "");
    let server = start(&directory);
    let unavailable = dig(server.dns(), &["example.com", "SOA"]);
    assert!(unavailable.text().contains("SERVFAIL"), "{unavailable}");
    let mut primary = program.start(address, Peer::Secondary(server.dns()), &zone(u32::MAX, 3_600));
    wait_for_version(&server, &primary, u32::MAX);
    // RFC 1982: 0 is after 4294967295. Without NOTIFY, the secondary would ask after an hour.
    primary.replace_zone(&zone(0, 2));
    wait_for_version(&server, &primary, 0);
    server.wait_for_error(&format!("serial {} -> 0 transferred from {address}, its changes", u32::MAX));
    // The secondary has its own journal for its secondaries.
    let changes = records(&kdig(server.dns(), &["+tcp", "example.com", &format!("IXFR={}", u32::MAX)]));
    assert!((5..20).contains(&changes.len()), "{changes:?}");
    server.kill_children();
    primary.replace_zone(&zone(1, 2));
    wait_for_version(&server, &primary, 1);
    // The agent reports it after the server process serves it.
    let transferred = format!("primary  serial 1 transferred from {address}");
    wait_until("the status has the transfer", || zone_status(&directory).contains(&transferred));
    assert!(zone_status(&directory).contains("the last transferred version is served"), "{}", zone_status(&directory));
    let before = served(&server);
    // A new start without the primary.
    primary.kill();
    let ended = server.kill_all();
    assert!(!ended.status.success());
    let server = start(&directory);
    assert_eq!(served(&server), before);
    primary.restart_with(&zone(2, 2));
    wait_for_version(&server, &primary, 2);
}

#[test]
fn server_is_a_secondary_of_nsd() {
    check_secondary_of(Program::Nsd);
}

#[test]
fn server_is_a_secondary_of_knot() {
    check_secondary_of(Program::Knot);
}

#[test]
fn server_is_a_secondary_of_bind() {
    check_secondary_of(Program::Bind);
}

/// A zone whose changes are worth a log, and which is asked for every two seconds.
fn large_zone(serial: u32) -> String {
    let hosts = (0..30_000).map(|index| format!("large-{index} A 10.1.{}.{}\n", index / 250, index % 250));
    zone(serial, 2) + &hosts.collect::<String>()
}

#[test]
fn changes_of_a_large_zone_are_appended_to_a_log() {
    let (primary_directory, config) = (
        TestDirectory::new(),
        "workers = 1\n[dns]\nlisten = [\"127.0.0.1:0\"]\n\
        transfer_allow = [{ network = \"127.0.0.1\" }]\n[domain.\"example.com\"]\nzone = \"zone\"\n",
    );
    primary_directory.write("sanderling.toml", config.as_bytes());
    primary_directory.write("zone", large_zone(1).as_bytes());
    let primary = start(&primary_directory);
    let directory = configure(primary.dns(), "", "");
    let server = start(&directory);
    let wait_for_same = |server: &TestServer, serial: u32| {
        wait_until("the secondary has the version", || zone_status(&directory).contains(&format!("serial {serial} ")));
        wait_until("the secondary answers with it", || served(server) == served(&primary));
    };
    wait_for_same(&server, 1);
    let file = directory.path().join("state/zones/example.com.zone");
    let (log, whole) = (file.with_extension("changes"), std::fs::read(&file).unwrap());
    assert!(!log.exists());
    let mut log_bytes = 0;
    for serial in 2..4 {
        primary_directory.write("zone", large_zone(serial).as_bytes());
        assert_eq!(primary_directory.control_with("reload", &["example.com"]).code(), Some(0));
        wait_for_same(&server, serial);
        let bytes = std::fs::metadata(&log).unwrap().len();
        assert!(bytes > log_bytes && std::fs::read(&file).unwrap() == whole, "{bytes} after {log_bytes}");
        log_bytes = bytes;
    }
    // The log has one line a minute.
    server.wait_for_error(&format!("serial 1 -> 2 transferred from {}, its changes", primary.dns()));
    assert!(!server.errors().contains("serial 2 -> 3"), "{}", server.errors());
    // Both are read by a new start, and changes follow.
    assert!(!server.kill_all().status.success());
    let server = start(&directory);
    assert_eq!(served(&server), served(&primary));
    primary_directory.write("zone", large_zone(4).as_bytes());
    assert_eq!(primary_directory.control_with("reload", &["example.com"]).code(), Some(0));
    wait_for_same(&server, 4);
    assert!(std::fs::metadata(&log).unwrap().len() > log_bytes && std::fs::read(&file).unwrap() == whole);
    // A version that the log does not fit is not served, and the whole zone is transferred.
    assert!(!server.kill_all().status.success());
    let text = String::from_utf8(whole).unwrap();
    std::fs::write(&file, text.replace("serial.example.com. 300 IN TXT \"1\"", "serial.example.com. 300 IN TXT \"9\""))
        .unwrap();
    let server = start(&directory);
    server.wait_for_error("zone example.com: the server process cannot load it: ");
    wait_for_same(&server, 4);
    assert!(!log.exists());
}

/// The behaviour of a primary.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    /// The primary announces the first serial, and transfers the second.
    Transfers(u32, u32),
    /// The primary does not answer at all.
    Silent,
    Refuses,
    /// The transfer does not begin with the SOA.
    NoSoa,
    /// The connection ends before the transfer does.
    CutOff,
    /// Records without end.
    Endless,
    /// Messages without records, without end.
    Empty,
    /// The primary sends one short message after another.
    Trickles,
    /// A zone of more than 64 KiB, with this serial.
    Long(u32),
    /// A record of another zone.
    ForeignRecord,
    /// A CNAME beside another record.
    BrokenZone,
    /// Changes that remove a record which was never there.
    WrongChanges,
    /// Changes without end.
    EndlessChanges,
    /// A transfer that stops in the middle.
    Stalls,
}

const APEX: &[u8] = b"\x07example\x03com\0";

fn record(owner: &[u8], rtype: u8, rdata: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rdata.len()).unwrap().to_be_bytes();
    [owner, &[0, rtype, 0, 1, 0, 0, 0, 60], &length, rdata].concat()
}

/// Of 300 bytes, the same each time.
fn long_record() -> Vec<u8> {
    record(APEX, 16, &[&[255], &[b'a'; 255][..]].concat())
}

/// Versions before 5 expire after three seconds.
fn soa(serial: u32) -> Vec<u8> {
    let expire_s = if serial < 5 { 3 } else { 3_600 };
    let numbers = [serial, 2, 2, expire_s, 60].map(u32::to_be_bytes).concat();
    record(APEX, 6, &[&[0, 0], &numbers[..]].concat())
}

/// The reply to `query` with these records.
fn reply(query: &[u8], rcode: u8, records: &[Vec<u8>]) -> Vec<u8> {
    let end = 12 + APEX.len() + 4;
    let mut reply = query[..end].to_vec();
    (reply[2], reply[3], reply[7], reply[9], reply[11]) = (0x84, rcode, u8::try_from(records.len()).unwrap(), 0, 0);
    reply.extend(records.concat());
    reply
}

/// A primary whose behaviour the test chooses. The primary ends with the test.
struct LyingPrimary {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl LyingPrimary {
    fn start(first: Behaviour) -> LyingPrimary {
        let address = free_address();
        let (udp, tcp) = (UdpSocket::bind(address).unwrap(), TcpListener::bind(address).unwrap());
        let behaviour = Arc::new(Mutex::new(first));
        let (for_udp, for_tcp) = (Arc::clone(&behaviour), Arc::clone(&behaviour));
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, client)) = udp.recv_from(&mut query) {
                let behaviour = *for_udp.lock().unwrap();
                let serial = match behaviour {
                    Behaviour::Silent => continue,
                    Behaviour::Transfers(announced, _) | Behaviour::Long(announced) => announced,
                    _ => 9,
                };
                let _ = udp.send_to(&reply(&query[..length], 0, &[soa(serial)]), client);
            }
        });
        thread::spawn(move || {
            for client in tcp.incoming().flatten() {
                let behaviour = *for_tcp.lock().unwrap();
                // The client may close the connection at any time.
                let _ = transfer(client, behaviour);
            }
        });
        LyingPrimary { address, behaviour }
    }

    fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }
}

fn transfer(mut client: TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    let mut length = [0; 2];
    client.read_exact(&mut length)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
    client.read_exact(&mut query)?;
    let mut send = |rcode, records: &[Vec<u8>]| {
        let reply = reply(&query, rcode, records);
        client.write_all(&[&u16::try_from(reply.len()).unwrap().to_be_bytes()[..], &reply].concat())
    };
    let content = |serial: u32| {
        let text = serial.to_string();
        let text = [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        vec![soa(serial), record(APEX, 2, b"\x02ns\0"), record(APEX, 16, &text)]
    };
    let is_for_changes = query[12 + APEX.len() + 1] == 251;
    match behaviour {
        Behaviour::WrongChanges if is_for_changes => {
            send(0, &[soa(9), soa(7), record(APEX, 16, b"\x01x"), soa(9), soa(9)])
        }
        Behaviour::EndlessChanges if is_for_changes => {
            send(0, &[soa(9), soa(7)])?;
            for index in 0_u32.. {
                let owner = [b"\x04", &index.to_be_bytes()[..], APEX].concat();
                send(0, &vec![record(&owner, 16, b"\x01x"); 200])?;
            }
            Ok(())
        }
        Behaviour::WrongChanges | Behaviour::EndlessChanges => send(0, &[content(9), vec![soa(9)]].concat()),
        Behaviour::Silent => Ok(()),
        Behaviour::Transfers(_, serial) => send(0, &[content(serial), vec![soa(serial)]].concat()),
        Behaviour::Refuses => send(5, &[]),
        Behaviour::NoSoa => send(0, &content(9)[1..]),
        Behaviour::CutOff => send(0, &content(9)),
        Behaviour::Endless => {
            send(0, &content(9))?;
            loop {
                send(0, &vec![long_record(); 200])?;
            }
        }
        Behaviour::Empty => {
            send(0, &content(9))?;
            loop {
                send(0, &[])?;
            }
        }
        Behaviour::Trickles => {
            send(0, &content(9))?;
            client.set_read_timeout(Some(Duration::from_millis(20)))?;
            loop {
                let reply = reply(&query, 0, &[record(APEX, 16, b"\x01a")]);
                client.write_all(&[&u16::try_from(reply.len()).unwrap().to_be_bytes()[..], &reply].concat())?;
                // Unless the client closes the connection, until the timeout.
                if client.read(&mut [0]).is_ok() {
                    return Ok(());
                }
            }
        }
        Behaviour::Long(serial) => {
            let text = [&[255], &[b'a'; 255][..]].concat().repeat(2);
            let records = |from: u8| (from..from + 100).map(|index| record(&[&[1, index], APEX].concat(), 16, &text));
            send(0, &content(serial))?;
            send(0, &records(0).collect::<Vec<_>>())?;
            send(0, &records(128).chain([soa(serial)]).collect::<Vec<_>>())
        }
        Behaviour::ForeignRecord => send(0, &[content(9), vec![record(b"\x03com\0", 1, &[0; 4]), soa(9)]].concat()),
        Behaviour::BrokenZone => send(0, &[content(9), vec![record(APEX, 5, b"\x01a\0"), soa(9)]].concat()),
        Behaviour::Stalls => {
            send(0, &content(9))?;
            client.read_exact(&mut [0]).or(Ok(()))
        }
    }
}

/// The zone is served in this version.
#[track_caller]
fn check_serial(server: &TestServer, serial: u32) {
    let text = dig(server.dns(), &["example.com", "TXT", "+short"]);
    assert_eq!(text.text().trim(), format!("\"{serial}\""), "{text}");
}

#[test]
fn record_outside_of_the_zone_is_left_out_and_named() {
    let primary = LyingPrimary::start(Behaviour::ForeignRecord);
    let directory = configure(primary.address, "", "");
    let server = start(&directory);
    wait_until("the zone is served", || data(server.dns(), "example.com", TXT).as_deref() == Some("9"));
    let line = "  left out the record com. A, which is outside the zone\n";
    wait_until("the status names the record", || zone_status(&directory).contains(line));
}

#[test]
fn old_version_stays_while_the_primary_lies() {
    let primary = LyingPrimary::start(Behaviour::Transfers(7, 7));
    let limits = "zone_transfer_in_timeout_ms = 1000\nzone_transfer_in_idle_timeout_ms = 400\n\
                  zone_transfer_in_empty_messages_max = 5\ntransferred_zone_bytes_max = 200000\n";
    let directory = configure(primary.address, "", limits);
    let server = start(&directory);
    wait_until("the zone is served", || data(server.dns(), "example.com", TXT).as_deref() == Some("7"));
    let check = |behaviour: Behaviour, problem: &str| {
        primary.behave(behaviour);
        let line = format!("{}: {problem}", primary.address);
        wait_until("the status has the problem", || directory.control("status").text().contains(&line));
        check_serial(&server, 7);
        let status = zone_status(&directory);
        assert!(status.contains(&line), "{status}");
        primary.behave(Behaviour::Transfers(7, 7));
        wait_until("the primary confirms the version", || !directory.control("status").text().contains(&line));
    };
    check(Behaviour::Transfers(6, 6), "it has serial 6, which is before 7 (RFC 1982)");
    check(Behaviour::Transfers(9, 8), "it announced serial 9 but transferred serial 8");
    check(Behaviour::Refuses, "it answers REFUSED");
    check(Behaviour::NoSoa, "its transfer does not begin with the SOA of the zone");
    check(Behaviour::CutOff, "it closed the connection before the end");
    check(Behaviour::BrokenZone, "its zone has an error: ");
    check(Behaviour::Stalls, "it sent no further message within 0.4 s (`zone_transfer_in_idle_timeout`)");
    check(Behaviour::Trickles, "it did not send everything within 1 s (`zone_transfer_in_timeout`)");
    check(Behaviour::Endless, "its transfer has more than 200000 bytes (`transferred_zone_max`)");
    let empty = "its transfer has more than 5 messages without records (`zone_transfer_in_empty_messages_max`)";
    check(Behaviour::Empty, empty);
    let notify = |apex: &[u8]| {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        let message = [&[0, 1, 0x24, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], apex, &[0, 6, 0, 1]].concat();
        client.send_to(&message, server.dns()).unwrap();
        let mut reply = [0; 512];
        let length = client.recv(&mut reply).unwrap();
        (reply[2], reply[3], length == message.len())
    };
    assert_eq!(notify(APEX), (0xa4, 0, true));
    assert_eq!(notify(b"\x03com\0"), (0xa4, 9, true), "not a secondary of this zone");
    // The version of a primary whose serial went back is taken over if the operator removes the other one.
    primary.behave(Behaviour::Silent);
    std::fs::remove_file(directory.path().join("state/zones/example.com.zone")).unwrap();
    let reload = directory.control_with("reload", &["example.com"]);
    let has_reason = reload.errors.contains("queries get SERVFAIL until it is transferred");
    assert!(reload.code() == Some(1) && has_reason, "{reload}");
    primary.behave(Behaviour::Transfers(6, 6));
    wait_until("the earlier version is served", || data(server.dns(), "example.com", TXT).as_deref() == Some("6"));
    primary.behave(Behaviour::Transfers(9, 9));
    wait_until("the next version is served", || data(server.dns(), "example.com", TXT).as_deref() == Some("9"));
}

/// The most memory that the agent has had, in KiB.
fn agent_memory_kib(server: &TestServer) -> u64 {
    let agent = children_with(server.process_id(), "internal-agent")[0];
    let status = std::fs::read_to_string(format!("/proc/{agent}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn memory_of_the_agent_does_not_grow_with_what_a_primary_sends() {
    let primary = LyingPrimary::start(Behaviour::Transfers(7, 7));
    let directory = configure(primary.address, "", "transferred_zone_bytes_max = 40000000\n");
    let server = start(&directory);
    wait_until("the zone is served", || data(server.dns(), "example.com", TXT).as_deref() == Some("7"));
    let before_kib = agent_memory_kib(&server);
    primary.behave(Behaviour::Endless);
    server.wait_for_error("its transfer has more than 40000000 bytes (`transferred_zone_max`)");
    let grown_kib = agent_memory_kib(&server) - before_kib;
    assert!(grown_kib < 10_000, "{grown_kib} KiB");
    // The next transfer may have begun.
    primary.behave(Behaviour::Refuses);
    wait_until("what was received is removed", || {
        let names = std::fs::read_dir(directory.path().join("state/zones")).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names == ["example.com.json", "example.com.zone"]
    });
}

#[test]
fn zone_is_transferred_as_a_whole_if_its_changes_cannot_be_applied() {
    let first = Behaviour::Transfers(7, 7);
    check_whole_transfer(
        first,
        Behaviour::WrongChanges,
        "its changes remove the record example.com. TXT, which is not in the stored version",
    );
    check_whole_transfer(first, Behaviour::EndlessChanges, "its changes have more than the 65536 bytes of the zone");
    let problem = "its changes have more than 65536 bytes (`zone_transfer_in_changes_max`)";
    check_whole_transfer(Behaviour::Long(7), Behaviour::EndlessChanges, problem);
}

#[track_caller]
fn check_whole_transfer(first: Behaviour, behaviour: Behaviour, problem: &str) {
    let primary = LyingPrimary::start(first);
    let directory = configure(primary.address, "", "zone_transfer_in_changes_bytes_max = 65536");
    let server = start(&directory);
    let served = |serial: u32| data(server.dns(), "example.com", TXT) == Some(serial.to_string());
    wait_until("the zone is served", || served(7));
    primary.behave(behaviour);
    wait_until("the next version is served", || served(9));
    server.wait_for_error(&format!("{problem}; transferring the whole zone"));
}

#[test]
fn zone_expires_and_comes_back() {
    let primary = LyingPrimary::start(Behaviour::Transfers(4, 4));
    let directory = configure(primary.address, "", "");
    let server = start(&directory);
    let is_served = |serial: &str| data(server.dns(), "example.com", TXT).as_deref() == Some(serial);
    let has_expired = || {
        let reply = Question::new("example.com", TXT).try_query(server.dns());
        reply.is_some_and(|reply| reply.rcode == SERVFAIL)
    };
    wait_until("the zone is served", || is_served("4"));
    primary.behave(Behaviour::Silent);
    wait_until("the zone expires", has_expired);
    server.wait_for_error("zone example.com: serial 4 has expired; answering SERVFAIL");
    server.kill_children();
    wait_until("a new process answers SERVFAIL as well", has_expired);
    // A version of any serial is better than none.
    primary.behave(Behaviour::Transfers(3, 3));
    wait_until("the zone is served again", || is_served("3"));
}

#[test]
fn unsigned_transfer_is_refused_if_there_is_a_key() {
    let primary = LyingPrimary::start(Behaviour::Transfers(7, 7));
    let directory = configure(primary.address, ", key = \"transfer\"", "");
    let server = start(&directory);
    server.wait_for_error(&format!(
        "no primary provides it: {}: it sends a message without a signature",
        primary.address
    ));
    let answer = dig(server.dns(), &["example.com", "TXT"]);
    assert!(answer.text().contains("SERVFAIL"), "{answer}");
}

/// NOTIFY for each of this many zones at once, with the limit of error replies reached from the beginning.
const NOTIFIED_ZONES: usize = 300;

#[test]
fn notify_and_transfer_that_an_address_rule_allows_are_no_errors() {
    let primary = LyingPrimary::start(Behaviour::Silent);
    let directory = configure(primary.address, "", "dns_udp_errors_per_second_max = 0");
    let zones: String = (0..NOTIFIED_ZONES)
        .map(|index| format!("[domain.\"z{index}.test\"]\nprimaries = [{{ address = \"{}\" }}]\n", primary.address))
        .collect();
    let config = std::fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.write("own.zone", zone(7, 3_600).as_bytes());
    let own = "[domain.\"own.test\"]\nzone = \"own.zone\"\n";
    directory.write("sanderling.toml", format!("{config}{zones}{own}").as_bytes());
    let server = start(&directory);
    let client = UdpClient::new(server.dns());
    let message = |flags: u8, apex: &str, rtype: u8| {
        [&[0, 1, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &wire_name(apex), &[0, rtype, 0, 1]].concat()
    };
    for index in 0..NOTIFIED_ZONES {
        client.send(&message(0x24, &format!("z{index}.test"), 6));
        let reply = client.receive();
        assert_eq!((reply[2], reply[3]), (0xa4, 0), "z{index}.test");
    }
    // An incremental transfer (IXFR) from serial 7, which is the current one: the SOA is the answer.
    let mut ixfr = message(0, "own.test", 251);
    ixfr[9] = 1;
    let soa = [&[0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22, 0, 0][..], &7_u32.to_be_bytes(), &[0; 16]].concat();
    client.send(&[ixfr, soa].concat());
    let reply = client.receive();
    assert_eq!((reply[3] & 15, reply[7]), (0, 1), "{reply:?}");
    // NOTIFY for the zone of another server is an error, and no more of them are sent.
    client.send(&message(0x24, "com", 6));
    client.send(&message(0x24, "z0.test", 6));
    assert_eq!(client.receive()[3], 0);
    let status = directory.control("status").text();
    assert!(status.contains("dns_errors_limited 1"), "{status}");
}
