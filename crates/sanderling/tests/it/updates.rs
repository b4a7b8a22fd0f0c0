//! Dynamic updates by nsupdate: what is acknowledged is there afterwards, whichever process is killed.

mod replaced;

use super::name_servers::{Peer, Program, SECRET, records};
use sanderling_testkit::dns::{self, Question, Reply, TXT, is_served, is_signed};
use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, Pauses, TestDirectory, TestServer, children_of, dig, free_address, kdig,
    run_program, run_to_end, sanderling, send_signal, wait_until,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ZONE: &str =
    "$TTL 300\n@ SOA ns1 host 10 3600 2 3600 60\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.2\nold TXT \"old\"\n";
const RULES: &str = "update = [{ key = \"transfer\", names = [\"**\"], types = [\"ANY\"] }, \
                     { key = \"acme\", names = [\"_acme-challenge.**\"], types = [\"TXT\"] }]\n";

fn configure(of_domain: &str, limits: &str) -> TestDirectory {
    let directory = TestDirectory::new();
    directory.write("example.com.zone", ZONE.as_bytes());
    directory.write("other.example.zone", ZONE.as_bytes());
    for key in ["transfer", "acme", "other"] {
        directory.write(&format!("{key}.key"), format!("{SECRET}\n").as_bytes());
    }
    // The UDP sockets of nsupdate are reuseport sockets, like the server's: it must not choose the same port.
    let listen = free_address();
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nresolvers = []\nlisten = [\"{listen}\"]\n\
         [tsig.transfer]\nsecret_file = \"transfer.key\"\n[tsig.acme]\nsecret_file = \"acme.key\"\n\
         [tsig.other]\nsecret_file = \"other.key\"\n\
         [domain.\"other.example\"]\nzone = \"other.example.zone\"\n\
         [domain.\"example.com\"]\nzone = \"example.com.zone\"\n{RULES}{of_domain}\n[limits]\n{limits}\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
    directory
}

fn start(directory: &TestDirectory) -> TestServer {
    TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
}

/// A line of nsupdate, whose names are below the root.
fn complete_name(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let actions = ["add", "delete", "yxrrset", "nxrrset", "yxdomain", "nxdomain"];
    let action = words.iter().position(|word| actions.contains(&word.as_str()));
    if let Some(name) = action.and_then(|action| words.get_mut(action + 1)).filter(|name| !name.ends_with('.')) {
        *name += ".example.com.";
    }
    words.join(" ")
}

/// Runs nsupdate with these lines, signed with `key` if there is one.
fn nsupdate(server: &TestServer, directory: &TestDirectory, key: Option<&str>, lines: &str) -> Ended {
    nsupdate_with(server.dns(), directory, "nsupdate.txt", key, &format!("{lines}\nsend\n"))
}

/// Runs nsupdate with a file of this name. The lines have each `send`.
fn nsupdate_with(server: SocketAddr, directory: &TestDirectory, file: &str, key: Option<&str>, lines: &str) -> Ended {
    let complete: Vec<String> = lines.lines().map(complete_name).collect();
    let complete = complete.join("\n");
    let text = format!("server 127.0.0.1 {}\nzone example.com\nttl 60\n{complete}\n", server.port());
    let file = directory.write(file, text.as_bytes());
    let file = file.display().to_string();
    let key = key.map(|key| if key.contains(':') { key.to_owned() } else { format!("hmac-sha256:{key}:{SECRET}") });
    let mut arguments = vec!["-t", "20"];
    if lines.starts_with(";tcp") {
        arguments.push("-v");
    }
    if let Some(key) = &key {
        arguments.extend(["-y", key]);
    }
    arguments.push(&file);
    run_program("nsupdate", "bind9-dnsutils", &arguments)
}

#[track_caller]
pub(crate) fn update(server: &TestServer, directory: &TestDirectory, lines: &str) {
    let ended = nsupdate(server, directory, Some("transfer"), lines);
    assert_eq!(ended.code(), Some(0), "{lines}: {ended}\n{}", server.errors());
}

/// The data of a name, sorted.
fn data(server: &TestServer, name: &str, rtype: &str) -> String {
    let text = dig(server.dns(), &["+short", &format!("{name}.example.com"), rtype]).text();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join(" ")
}

fn serial(server: &TestServer) -> u32 {
    dns::serial(server.dns(), "example.com").expect("the zone is served")
}

fn zone_command(directory: &TestDirectory, name: &str) -> String {
    let mut command = sanderling();
    command.args(["zone", name, "example.com", "--control", &directory.argument("control")]);
    run_to_end(command, DEADLINE).text()
}

/// Kills a child of the supervisor, and waits until another one takes its place.
fn kill(server: &TestServer, command: &str) {
    let find = || {
        let children = children_of(server.process_id()).unwrap();
        children.into_iter().find(|child| {
            std::fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|text| text.contains(command))
        })
    };
    let mut killed = None;
    wait_until("it runs and is killed", || {
        killed = find();
        killed.is_some_and(|child| send_signal("KILL", &child.to_string()))
    });
    wait_until("another one runs", || find().is_some_and(|child| Some(child) != killed));
    wait_until("it answers", || is_served(server.dns(), "example.com"));
}

#[test]
fn updates_are_answered_as_rfc_2136_says() {
    let directory = configure("", "zone_records_per_rrset_max = 3");
    let server = start(&directory);
    update(&server, &directory, "add new A 192.0.2.9\nupdate delete old TXT");
    assert_eq!(
        (data(&server, "new", "A"), data(&server, "old", "TXT"), serial(&server)),
        ("192.0.2.9".into(), String::new(), 11)
    );
    update(&server, &directory, ";tcp\nprereq yxrrset new A 192.0.2.9\nadd new A 192.0.2.10");
    assert_eq!((data(&server, "new", "A"), serial(&server)), ("192.0.2.10 192.0.2.9".into(), 12));
    // Nothing changes: the serial is the same.
    update(&server, &directory, "add new A 192.0.2.10");
    assert_eq!(serial(&server), 12);
    let wrong = "hmac-sha256:transfer:b3RoZXI=";
    for (key, lines, expected) in [
        (Some("transfer"), "prereq nxdomain new\nadd x A 192.0.2.1", "YXDOMAIN"),
        (Some("transfer"), "prereq yxdomain none\nadd x A 192.0.2.1", "NXDOMAIN"),
        (Some("transfer"), "prereq nxrrset new A\nadd x A 192.0.2.1", "YXRRSET"),
        (Some("transfer"), "prereq yxrrset new AAAA\nadd x A 192.0.2.1", "NXRRSET"),
        (Some("transfer"), "add x.other.example. A 192.0.2.1", "NOTZONE"),
        (None, "add x A 192.0.2.1", "REFUSED"),
        (Some("other"), "add x A 192.0.2.1", "REFUSED"),
        (Some("acme"), "add x TXT x", "REFUSED"),
        (Some("acme"), "add _acme-challenge CAA 0 issue x", "REFUSED"),
        (Some("unknown"), "add x A 192.0.2.1", "NOTAUTH(BADKEY)"),
        (Some(wrong), "add x A 192.0.2.1", "NOTAUTH(BADSIG)"),
        (Some("transfer"), "zone other.example\nadd x.other.example. A 192.0.2.1", "REFUSED"),
        (Some("transfer"), "zone none.example\nadd x.none.example. A 192.0.2.1", "NOTAUTH"),
        // No zone can be made of it.
        (Some("transfer"), "add x TXT 1\nadd x TXT 2\nadd x TXT 3\nadd x TXT 4", "SERVFAIL"),
    ] {
        for transport in ["", ";tcp\n"] {
            let ended = nsupdate(&server, &directory, key, &format!("{transport}{lines}"));
            assert!(
                ended.to_string().contains(&format!("update failed: {expected}")) && ended.code() != Some(0),
                "{lines}: {ended}"
            );
        }
    }
    assert_eq!((data(&server, "x", "A"), serial(&server)), (String::new(), 12));
    let ended = nsupdate(&server, &directory, Some("acme"), "add _acme-challenge.www TXT token");
    assert_eq!((ended.code(), data(&server, "_acme-challenge.www", "TXT")), (Some(0), "\"token\"".into()), "{ended}");
    server.wait_for_error("zone example.com: a dynamic update of 127.0.0.1 with the key transfer gets SERVFAIL: ");
    server.wait_for_error(
        "with the key acme gets REFUSED: no rule in `update` allows this key to change TXT records at x.example.com.",
    );
    // A message that is not an update at all.
    let malformed = dig(server.dns(), &["+opcode=update", "+noedns", "example.com", "A"]);
    assert!(malformed.text().contains("FORMERR"), "{malformed}");
    // Late replies are replies.
    assert!(!directory.control_with("status", &["--verbose"]).text().contains("dns_dropped"));
    let status = zone_command(&directory, "status");
    assert!(status.contains("updates  3 records that the file does not have, without 1 that it has"), "{status}");
    assert!(
        std::fs::read_to_string(directory.path().join("example.com.zone")).unwrap() == ZONE,
        "the file is the operator's"
    );
}

/// A listener whose first connection is passed on to `peer` over TLS, by `openssl`: nsupdate speaks TLS in no version
/// that Debian 12 has.
fn tls_proxy(peer: SocketAddr) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let (mut client, _) = listener.accept().unwrap();
        let peer = peer.to_string();
        let arguments = ["s_client", "-quiet", "-alpn", "dot", "-servername", "example.com", "-connect", &peer];
        let mut command = Command::new("openssl");
        let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut openssl = command.spawn().unwrap();
        let (mut to_server, mut from_server) = (openssl.stdin.take().unwrap(), openssl.stdout.take().unwrap());
        let mut to_client = client.try_clone().unwrap();
        let back = thread::spawn(move || pass_on(&mut from_server, &mut to_client));
        pass_on(&mut client, &mut to_server);
        let _ = openssl.kill();
        let _ = openssl.wait();
        let _ = back.join();
    };
    (address, thread::spawn(serve))
}

/// Passes each piece on when it arrives; `std::io::copy` may wait for more.
fn pass_on(from: &mut impl Read, to: &mut impl Write) {
    let mut piece = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..length]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

#[test]
fn update_over_tls_is_applied_and_its_reply_is_signed() {
    let certificate = "certificate = { chain = \"chain.pem\", key = \"key.pem\" }\n";
    let directory = configure(certificate, "");
    super::https::issue_for("example.com", &directory, "chain.pem", "key.pem", "example.com");
    let config = std::fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    let config = config.replace("[dns]\n", "[dns]\ntls = [\"127.0.0.1:0\"]\n");
    directory.replace("sanderling.toml", config.as_bytes());
    let mut server = start(&directory);
    let dot = server.encrypted("dot");
    for (key, is_accepted) in [("transfer", true), ("hmac-sha256:transfer:b3RoZXI=", false)] {
        let (address, proxy) = tls_proxy(dot);
        let lines = format!(";tcp\nadd {}.example.com. TXT \"tls\"\nsend\n", key.len());
        // nsupdate verifies the reply's signature.
        let ended = nsupdate_with(address, &directory, "tls.txt", Some(key), &lines);
        assert_eq!(ended.code() == Some(0), is_accepted, "{key}: {ended}\n{}", server.errors());
        let found = data(&server, &key.len().to_string(), "TXT");
        assert_eq!(found, if is_accepted { "\"tls\"" } else { "" });
        proxy.join().unwrap();
    }
}

#[test]
fn updates_outlive_processes_and_are_applied_to_changed_files() {
    let directory = configure("", "");
    let mut server = start(&directory);
    update(&server, &directory, "add one TXT 1\nupdate delete old TXT");
    let has_all = |server: &TestServer, count: usize| {
        let names = ["one", "two", "three", "four"];
        let found: Vec<String> = names.iter().map(|name| data(server, name, "TXT")).collect();
        let expected = ["\"1\"", "\"2\"", "\"3\"", "\"4\""];
        assert_eq!(found[..count], expected[..count], "{}", server.errors());
        assert_eq!(data(server, "old", "TXT"), "");
    };
    kill(&server, "internal-server-process");
    has_all(&server, 1);
    assert_eq!(serial(&server), 11);
    update(&server, &directory, "add two TXT 2");
    kill(&server, "internal-agent");
    update(&server, &directory, "add three TXT 3");
    has_all(&server, 3);
    // A process that replaces another one.
    let config = std::fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.replace("sanderling.toml", format!("{config}zone_include_depth_max = 7\n").as_bytes());
    assert_eq!(directory.control("reload").code(), Some(0));
    has_all(&server, 3);
    update(&server, &directory, "add four TXT 4");
    server.stop();
    server = start(&directory);
    has_all(&server, 4);
    assert_eq!(serial(&server), 14);
    // The operator changes the file without another serial, and with a serial that is not later.
    for (file, expected) in [
        (ZONE.replace("192.0.2.2", "192.0.2.22"), 15),
        (ZONE.replace("192.0.2.2", "192.0.2.23").replace(" 10 ", " 12 "), 16),
    ] {
        directory.replace("example.com.zone", file.as_bytes());
        assert_eq!(directory.control_with("reload", &["example.com"]).code(), Some(0), "{}", server.errors());
        has_all(&server, 4);
        assert_eq!(serial(&server), expected);
        kill(&server, "internal-server-process");
        has_all(&server, 4);
        assert_eq!((serial(&server), data(&server, "www", "A").len()), (expected, "192.0.2.22".len()));
    }
    // The export replaces the updates.
    let exported = zone_command(&directory, "export");
    assert!(exported.contains("four.example.com. 60 IN TXT \"4\"") && !exported.contains("old"), "{exported}");
    directory.replace("example.com.zone", exported.replace(" 16 3600 ", " 17 3600 ").as_bytes());
    assert_eq!(directory.control_with("reload", &["example.com"]).code(), Some(0));
    has_all(&server, 4);
    assert_eq!(serial(&server), 17);
    server.wait_for_error("the file has a later serial and includes all dynamic updates");
    let status = zone_command(&directory, "status");
    assert!(status.contains("updates  none since the file was written"), "{status}");
    let file = directory.path().join("state/updates/example.com.update");
    wait_until("nothing is stored any more", || !file.exists());
    update(&server, &directory, "update delete four TXT");
    assert_eq!((data(&server, "four", "TXT"), serial(&server)), (String::new(), 18));
    // The zone is not served without what was acknowledged.
    server.stop();
    let mut content = std::fs::read(&file).unwrap();
    content[20] ^= 1;
    std::fs::write(&file, &content).unwrap();
    let server = start(&directory);
    server.wait_for_error("cannot read the dynamic updates of the zone example.com: it is damaged");
    assert!(dig(server.dns(), &["example.com", "SOA"]).text().contains("SERVFAIL"));
}

#[test]
fn file_with_a_later_serial_drops_updates_only_if_that_is_forced() {
    for dnssec in ["", "dnssec = true\n"] {
        let directory = configure(dnssec, "");
        let mut server = start(&directory);
        wait_until("the zone is signed", || dnssec.is_empty() || is_signed(server.dns(), "example.com"));
        update(&server, &directory, "add one TXT 1");
        let has_status = |line: &str| zone_command(&directory, "status").contains(line);
        wait_until("the status counts it", || has_status("  updates  1 record that the file does not have\n"));
        if dnssec.is_empty() {
            assert!(has_status("  state    served as in the file, with the dynamic updates\n"));
        }
        let later = ZONE.replace(" 10 3600", " 50 3600") + "later TXT later\n";
        directory.replace("example.com.zone", later.as_bytes());
        let lost = "1 change of a record would be lost";
        for arguments in [&[][..], &["example.com"]] {
            let reload = directory.control_with("reload", arguments);
            assert!(reload.code() == Some(1) && reload.to_string().contains(lost), "{reload}");
            let found = (data(&server, "one", "TXT"), data(&server, "later", "TXT"));
            assert_eq!(found, ("\"1\"".into(), String::new()), "{}", server.errors());
        }
        assert!(has_status(lost) && has_status("`sanderling reload --force-zone example.com`"));
        // Another process has no version of the file before: it serves both.
        server.stop();
        server = start(&directory);
        let has = |server: &TestServer, name: &str| !data(server, name, "TXT").is_empty();
        wait_until("both are served", || has(&server, "one") && has(&server, "later"));
        wait_until("the status says so", || has_status(lost));
        update(&server, &directory, "add two TXT 2");
        assert!(has(&server, "one") && has(&server, "two") && has_status("would be lost"), "{}", server.errors());
        let reload = directory.control_with("reload", &["example.com", "--force-zone", "example.com"]);
        let dropped = "the dynamic updates of example.com are dropped, and with them 2 changes of records";
        assert!(reload.code() == Some(0) && reload.to_string().contains(dropped), "{reload}");
        wait_until("they are dropped", || !has(&server, "one") && !has(&server, "two") && has(&server, "later"));
        assert!(!has_status("would be lost"));
        update(&server, &directory, "add three TXT 3");
        assert!(has(&server, "three"));
    }
}

/// Passes datagrams on to `server` and back until there are none for a while, and returns the client's datagrams.
fn capture(proxy: &UdpSocket, server: SocketAddr) -> Vec<Vec<u8>> {
    let to_server = UdpSocket::bind("127.0.0.1:0").unwrap();
    to_server.connect(server).unwrap();
    to_server.set_read_timeout(Some(DEADLINE)).unwrap();
    let (mut captured, mut buffer) = (Vec::new(), [0; 4_096]);
    proxy.set_read_timeout(Some(DEADLINE)).unwrap();
    while captured.is_empty() {
        let (length, client) = proxy.recv_from(&mut buffer).unwrap();
        to_server.send(&buffer[..length]).unwrap();
        if buffer[2] >> 3 & 15 == 5 {
            captured.push(buffer[..length].to_vec());
        }
        let length = to_server.recv(&mut buffer).unwrap();
        proxy.send_to(&buffer[..length], client).unwrap();
    }
    captured
}

#[test]
fn captured_update_is_not_carried_out_again() {
    let directory = configure("", "");
    let server = start(&directory);
    let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, peer) = (proxy.local_addr().unwrap(), server.dns());
    let capture = thread::spawn(move || capture(&proxy, peer));
    let ended = nsupdate_with(address, &directory, "captured.txt", Some("transfer"), "add captured TXT 1\nsend\n");
    assert_eq!((ended.code(), data(&server, "captured", "TXT")), (Some(0), "\"1\"".into()), "{ended}");
    let captured = capture.join().unwrap().remove(0);
    update(&server, &directory, "update delete captured");
    let before = serial(&server);
    for repeated in 1..=3 {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        client.send_to(&captured, server.dns()).unwrap();
        let mut reply = [0; 1_024];
        let length = client.recv(&mut reply).unwrap();
        // The reply is the same: NOERROR, and signed.
        assert_eq!((&reply[..2], reply[3] & 15, reply[11]), (&captured[..2], 0, 1), "{length} bytes");
        let counted = format!("dns_updates_repeated {repeated}\n");
        wait_until("it is counted", || directory.control_with("status", &["--verbose"]).text().contains(&counted));
    }
    assert_eq!((data(&server, "captured", "TXT"), serial(&server)), (String::new(), before));
}

#[test]
fn secondaries_follow_updates_by_ixfr() {
    let secondary_address = free_address();
    let of_domain = format!("secondaries = [{{ address = \"{secondary_address}\", key = \"transfer\" }}]\n");
    let directory = configure(&format!("{of_domain}transfer_allow = [{{ network = \"127.0.0.1\" }}]"), "");
    let server = start(&directory);
    let secondary = Program::Knot.start(secondary_address, Peer::Primary(server.dns()), "");
    let follows = || {
        wait_until("the secondary has the version", || {
            let own = records(&dig(server.dns(), &["example.com", "AXFR"]));
            own.len() > 3 && secondary.records() == own
        });
    };
    follows();
    for number in 0..3 {
        update(&server, &directory, &format!("add n{number} TXT {number}\nupdate delete n{} TXT", number - 1));
        follows();
    }
    let changes = records(&kdig(server.dns(), &["+tcp", "example.com", "IXFR=12"]));
    // SOAs of the answer and of the change, one record that goes, one that comes.
    assert_eq!(changes.len(), 6, "{changes:?}");
}

#[test]
fn first_rules_may_come_with_a_reload() {
    let directory = configure("", "");
    let with_rules = std::fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    let without = with_rules.replace(RULES, "");
    directory.replace("sanderling.toml", without.as_bytes());
    let server = start(&directory);
    directory.replace("sanderling.toml", with_rules.as_bytes());
    assert_eq!(directory.control("reload").code(), Some(0), "{}", server.errors());
    update(&server, &directory, "add new A 192.0.2.9");
    assert_eq!(data(&server, "new", "A"), "192.0.2.9");
}

/// Asks for an alias and its missing target repeatedly. Each update replaces the alias, so that all answers with the
/// same serial have the same one. Returns how many serials and how many answers there were.
fn ask_for_alias(server: SocketAddr, ends: &AtomicBool) -> (usize, usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.connect(server).unwrap();
    let query = Question::new("alias.example.com", TXT).message();
    let (mut aliases, mut count) = (BTreeMap::new(), 0);
    while !ends.load(Ordering::Relaxed) {
        let mut message = [0; 512];
        // A server process that was killed is replaced.
        let Ok(length) = socket.send(&query).and_then(|_| socket.recv(&mut message)) else { continue };
        let reply = Reply::parse(&message[..length]);
        let ([alias], [_]) = (&reply.answer[..], &reply.authority[..]) else { continue };
        let alias = String::from_utf8_lossy(&alias.rdata);
        // The last record is the SOA, whose data ends with five numbers.
        let serial = u32::from_be_bytes(*message[length - 20..].first_chunk().expect("a serial"));
        let first = aliases.entry(serial).or_insert_with(|| alias.to_string());
        assert_eq!(*first, alias, "two answers with the serial {serial}");
        count += 1;
    }
    (aliases.len(), count)
}

/// Ends the thread of a test that fails, too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Names that one client changes repeatedly, so that the difference to the file is bounded.
const NAMES_OF_CLIENT: usize = 32;

/// Makes updates, some by each run of nsupdate, until `count` of all clients are acknowledged. Returns the possible
/// values of each name: the number of the last acknowledged update, or nothing, and the numbers of later updates with
/// unknown results.
fn update_names(
    server: SocketAddr,
    directory: &TestDirectory,
    client: usize,
    count: usize,
    acknowledged: &AtomicUsize,
) -> Vec<Vec<Option<usize>>> {
    const SENDS_PER_RUN: usize = 25;
    const RUNS_WITHOUT_ANSWER_MAX: usize = 10;
    let mut expected = vec![vec![None]; NAMES_OF_CLIENT];
    let mut failed_runs = 0;
    for first in (0..).step_by(SENDS_PER_RUN) {
        if acknowledged.load(Ordering::Relaxed) >= count {
            break;
        }
        let numbers = first..first + SENDS_PER_RUN;
        let sends = numbers.clone().map(|number| {
            let name = format!("n{}.c{client}", number % NAMES_OF_CLIENT);
            format!(
                "update delete {name} TXT\nupdate add {name} TXT {number}\nupdate delete alias CNAME\n\
                 update add alias CNAME v{number}.c{client}.none.example.com.\nshow\nsend\nanswer\n"
            )
        });
        let transport = if client.is_multiple_of(2) { "" } else { ";tcp\n" };
        let lines = transport.to_owned() + &sends.collect::<String>();
        let file = format!("nsupdate-{client}.txt");
        let ended = nsupdate_with(server, directory, &file, Some("transfer"), &lines);
        let text = ended.text();
        let answers: Vec<&str> = text.split("Outgoing update query:").skip(1).collect();
        assert_eq!(answers.len(), numbers.len(), "{ended}");
        failed_runs += 1;
        for (number, answer) in numbers.zip(answers) {
            let of_name = &mut expected[number % NAMES_OF_CLIENT];
            if answer.split_once("Answer:").is_some_and(|(_, answer)| answer.contains("status: NOERROR")) {
                of_name.clear();
                acknowledged.fetch_add(1, Ordering::Relaxed);
                failed_runs = 0;
            }
            of_name.push(Some(number));
        }
        assert!(failed_runs < RUNS_WITHOUT_ANSWER_MAX, "{ended}");
    }
    expected
}

/// When which process is killed: after so many acknowledged updates.
fn kills(total: usize, random: &mut fastrand::Rng) -> Vec<(usize, &'static str)> {
    let mut kills = Vec::new();
    for (process, count) in [("internal-agent", total / 1_000), ("internal-server-process", total / 10_000)] {
        // One kill for each part of the test. The last part has fewer updates that are acknowledged.
        let part = total * 9 / 10 / count.max(2);
        kills.extend((0..count.max(2)).map(|index| (index * part + random.usize(..part), process)));
    }
    kills.sort_unstable();
    kills
}

/// With `SANDERLING_UPDATES=100000`, so many updates are acknowledged, and the agent is killed 100 times.
#[test]
fn acknowledged_updates_are_there_whatever_is_killed() {
    const CLIENTS: usize = 16;
    let total = sanderling_testkit::number_or("SANDERLING_UPDATES", 400);
    let kills = kills(total, &mut fastrand::Rng::with_seed(sanderling_testkit::seed()));
    let directory = configure("", "dns_update_timeout = \"1s\"\ndns_udp_errors_per_second_max = 1000000");
    let server = start(&directory);
    let started = Instant::now();
    let (ends, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let (address, directory, acknowledged, ends) = (server.dns(), &directory, &acknowledged, &ends);
        let asking = scope.spawn(move || ask_for_alias(address, ends));
        let end = SetOnDrop(ends);
        let update_some = |client| move || update_names(address, directory, client, total, acknowledged);
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(update_some(client))).collect();
        let mut killed = BTreeMap::new();
        for (after, process) in kills {
            let mut pauses = Pauses::default();
            // Clients end early only if they fail.
            while acknowledged.load(Ordering::Relaxed) < after && !clients.iter().all(|client| client.is_finished()) {
                pauses.wait();
            }
            kill(&server, process);
            *killed.entry(process).or_insert(0) += 1;
        }
        let expected: Vec<_> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
        let seconds = started.elapsed().as_secs_f64();
        let count = acknowledged.load(Ordering::Relaxed);
        println!("{count} updates acknowledged in {seconds:.1} s; killed: {killed:?}");
        for target in ["internal-agent", "internal-server-process"] {
            kill(&server, target);
            for (client, names) in expected.iter().enumerate() {
                for (name, numbers) in names.iter().enumerate() {
                    let reply = Question::new(&format!("n{name}.c{client}.example.com"), TXT).query_tcp(address);
                    let texts = reply.answer.iter().map(|record| String::from_utf8_lossy(&record.rdata[1..]).parse());
                    let found: Vec<usize> = texts.collect::<Result<_, _>>().expect("numbers");
                    assert!(found.len() <= 1 && numbers.contains(&found.first().copied()), "{found:?}, {numbers:?}");
                }
            }
        }
        drop(end);
        let (serials, answers) = asking.join().expect("all answers were of one serial");
        println!("{answers} answers of {serials} serials");
        assert!(serials > 1);
    });
}

/// Updates of a zone that is signed here: each version that is acknowledged is signed, and the zone is the same after
/// kills.
#[test]
fn updates_of_a_signed_zone_are_signed_before_they_are_acknowledged() {
    for dnssec in ["dnssec = true", "dnssec = { nsec3 = true, zonemd = true }"] {
        let directory = configure(&format!("{dnssec}\ntransfer_allow = [{{ network = \"127.0.0.1\" }}]\n"), "");
        let server = start(&directory);
        wait_until("the zone is signed", || is_signed(server.dns(), "example.com"));
        let mut random = fastrand::Rng::with_seed(sanderling_testkit::seed());
        let mut texts = BTreeMap::new();
        for round in 0..24 {
            let name = format!("n{}.{}", random.u8(0..6), ["a", "b.a", "c"][random.usize(0..3)]);
            let lines = match random.u8(0..4) {
                0 => {
                    texts.remove(&name);
                    format!("delete {name}")
                }
                _ => {
                    texts.insert(name.clone(), round);
                    format!("delete {name} TXT\nadd {name} TXT t{round}")
                }
            };
            if round == 5 {
                server.kill_children();
                wait_until("the zone is updated", || {
                    nsupdate(&server, &directory, Some("transfer"), &lines).code() == Some(0)
                });
            } else {
                if round % 8 == 7 {
                    kill(&server, "internal-agent");
                }
                // The update waits until the next agent can sign.
                update(&server, &directory, &lines);
            }
            check_texts(&server, &texts);
            if round % 3 == 0 {
                let zone =
                    dig(server.dns(), &["+nocomments", "+nostats", "+nocmd", "+onesoa", "example.com", "AXFR"]).text();
                directory.write("transferred", zone.as_bytes());
                let file = directory.argument("transferred");
                let ended = run_program("dnssec-verify", "bind9-utils", &["-z", "-o", "example.com", &file]);
                assert!(ended.status.success(), "{ended}\n{zone}");
            }
        }
        let status = zone_command(&directory, "status");
        assert!(status.contains("  state    the last signed version is served\n"), "{status}");
        // Updates must not change records that come with the signatures.
        for refused in [
            "add x RRSIG A 13 3 60 20261207142553 20261123185630 1 example.com. AAAA",
            "delete @ DNSKEY",
            "delete www NSEC",
        ] {
            let ended = nsupdate(&server, &directory, Some("transfer"), &refused.replace("@", "example.com."));
            assert!(ended.to_string().contains("REFUSED"), "{refused}: {ended}");
        }
        // Keys of other names are data, and so are those that announce the keys of other zones (RFC 9615).
        let key = "256 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ==";
        let cds = format!("_dsboot.example.co._signal.ns1 CDS 1 13 2 {}", "AB".repeat(32));
        update(&server, &directory, &format!("add k DNSKEY {key}\nadd {cds}"));
        for (name, rtype) in [("k", "DNSKEY"), ("_dsboot.example.co._signal.ns1", "CDS")] {
            let answer = dig(server.dns(), &["+dnssec", "+short", &format!("{name}.example.com"), rtype]).text();
            assert!(answer.lines().count() == 2 && answer.contains(&format!("{rtype} 13 ")), "{name}: {answer}");
        }
        let exported = zone_command(&directory, "export");
        assert!(exported.contains(" IN CDS 1 13 2 ") && exported.contains("k.example.com. 60 IN DNSKEY"), "{exported}");
        update(&server, &directory, "update delete k DNSKEY");
        let status = zone_command(&directory, "status");
        assert!(status.contains("  updates  ") && status.contains(" that the file does not have"), "{status}");
        // The file has changed, and is applied with the updates.
        directory.replace("example.com.zone", format!("{ZONE}later TXT later\n").as_bytes());
        let reload = directory.control("reload");
        assert!(reload.status.success(), "{reload}");
        wait_until("the file is signed", || data(&server, "later", "TXT") == "\"later\"");
        check_texts(&server, &texts);
    }
}

/// Each name has the text of its round.
#[track_caller]
fn check_texts(server: &TestServer, texts: &BTreeMap<String, i32>) {
    for (name, round) in texts {
        let answer = dns::data(server.dns(), &format!("{name}.example.com"), TXT);
        assert_eq!(answer, Some(format!("t{round}")), "{name}: {}", server.errors());
    }
}
