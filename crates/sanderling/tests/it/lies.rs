//! Processes that run foreign code, played by copies of their sockets: each sends all messages there are, with numbers
//! and names that no process sends, when nobody asked, and without end. The supervisor goes on, and the next processes
//! serve what the files have.

mod listeners;
mod orphan;
mod rows;

use rows::{EVENTS, Lie, Packet, Sent, commands, events, packet_of};
use sanderling_ipc::{Command, Connection, Event, Message, Received, StatusFormat};
use sanderling_os::poll_set::PollSet;
use sanderling_os::seqpacket::SeqpacketSocket;
use sanderling_testkit::dns::{A, data, is_signed, serial};
use sanderling_testkit::{
    DEADLINE, ListenerCounts, Pauses, TestDirectory, TestServer, children_with, curl, descriptor_of, resident_bytes,
    run_program, send_signal, wait_until,
};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Each process has its connection at the same descriptor number.
const CONNECTION: i32 = 3;
/// Messages that are sent without end; more with `SANDERLING_LIES`, for example 100000.
const REPEATED_COUNT: usize = 1_000;
/// Bytes of memory that no process of this small configuration may have.
const RESIDENT_BYTES_MAX: u64 = 400 << 20;
const ZONE: &str = "$TTL 300\n@ SOA ns1 host 7 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.7\n";
const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };

/// A process that the supervisor starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    ServerProcess,
    Agent,
    Keeper,
}

impl Role {
    const ALL: [Role; 3] = [Role::ServerProcess, Role::Agent, Role::Keeper];

    fn command(self) -> &'static str {
        match self {
            Role::ServerProcess => "internal-server-process",
            Role::Agent => "internal-agent",
            Role::Keeper => "internal-keeper",
        }
    }
}

/// A directory with a site, a zone that can be updated and transferred, and one that is signed.
fn directory() -> TestDirectory {
    let config = "workers = 1\nstate = \"state\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\nlisten = [\"127.0.0.1:0\"]\n\
        [dns]\nlisten = [\"127.0.0.1:0\"]\nresolvers = []\ntransfer_allow = [{ network = \"127.0.0.1\" }]\n[tsig.update]\nsecret_file = \"update.key\"\n\
        [domain.\"example.com\"]\nsite = \"public\"\nzone = \"a.zone\"\ncertificate = { chain = \"chain.pem\", key = \"key.pem\" }\nhttps_redirect = false\n\
        update = [{ key = \"update\", names = [\"**\"], types = [\"ANY\"] }]\n\
        [domain.\"signed.test\"]\nzone = \"signed.zone\"\ndnssec = true\n";
    let directory = TestDirectory::with(&[
        ("sanderling.toml", config.as_bytes()),
        ("public/index.html", b"hi\n"),
        ("a.zone", ZONE.as_bytes()),
        ("signed.zone", ZONE.as_bytes()),
        ("update.key", b"c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldCE=\n"),
    ]);
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| directory.argument(name));
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=test -addext subjectAltName=DNS:example.com";
    let arguments: Vec<&str> = arguments.split(' ').chain(["-keyout", &key, "-out", &chain]).collect();
    assert!(run_program("openssl", "openssl", &arguments).status.success());
    directory
}

/// A running server whose processes are played.
struct Played {
    directory: TestDirectory,
    server: TestServer,
    https: SocketAddr,
    /// The peak memory of each process, by role; `None` is the supervisor.
    resident_bytes: BTreeMap<Option<Role>, u64>,
}

impl Played {
    fn start() -> Played {
        let directory = directory();
        let mut server = TestServer::start_command(directory.serve_command(), BOTH);
        let https = server.encrypted("https");
        let played = Played { directory, server, https, resident_bytes: BTreeMap::new() };
        Role::ALL.into_iter().for_each(|role| drop(played.take(role)));
        wait_until("the zone is signed", || is_signed(played.server.dns(), "signed.test"));
        played
    }

    /// The process of this role, and a copy of its socket to the supervisor, when there is one.
    fn take(&self, role: Role) -> (u32, SeqpacketSocket) {
        let (deadline, mut pauses) = (Instant::now() + DEADLINE, Pauses::default());
        loop {
            let pids: Vec<u32> = children_with(self.server.process_id(), role.command());
            if let Some(pid) = pids.last()
                && let Ok(descriptor) = descriptor_of(*pid, CONNECTION)
                && let Ok(socket) = SeqpacketSocket::from_fd(descriptor)
            {
                return (*pid, socket);
            }
            let errors = || self.server.errors();
            assert!(Instant::now() < deadline, "no {role:?}: {pids:?}; its standard error:\n{}", errors());
            pauses.wait();
        }
    }

    /// The supervisor answers, and has handled what was sent before.
    #[track_caller]
    fn check_supervisor(&mut self, what: &str) {
        let path = self.directory.path().join("control");
        if let Err(problem) = ask_for_status(&path) {
            panic!("after {what}: {problem}; its standard error:\n{}", self.server.errors());
        }
        let pids = Role::ALL.into_iter().flat_map(|role| {
            let pids = children_with(self.server.process_id(), role.command());
            pids.into_iter().map(move |pid| (Some(role), pid))
        });
        for (role, pid) in pids.chain([(None, self.server.process_id())]).collect::<Vec<_>>() {
            let bytes = resident_bytes(pid);
            let most = self.resident_bytes.entry(role).or_default();
            *most = bytes.max(*most);
            assert!(bytes < RESIDENT_BYTES_MAX, "after {what}: {role:?} has {} MiB", bytes >> 20);
        }
    }

    /// The files are served, by the process that runs or the next one.
    #[track_caller]
    fn check_service(&self, what: &str) {
        wait_until(&format!("the files are served after {what}"), || {
            serves(self.server.http(), self.server.dns()) && self.serves_https()
        });
    }

    fn serves_https(&self) -> bool {
        let (certificate, connect_to) = (self.directory.argument("chain.pem"), format!("::{}", self.https));
        let arguments =
            ["-sS", "-m", "2", "--cacert", &certificate, "--connect-to", &connect_to, "https://example.com/"];
        curl(&arguments).text() == "hi\n"
    }

    /// Sends `packet`, `count` times, as the process of this role does.
    #[track_caller]
    fn lie(&mut self, role: Role, what: &str, packet: &Packet, count: usize) {
        let known_bytes = self.server.errors().len();
        let (pid, socket) = self.take(role);
        for _ in 0..count {
            if packet.send(&socket) == Sent::Closed {
                break;
            }
        }
        self.check_supervisor(what);
        // A process that is terminated for a lie sends no further lies.
        let errors = self.server.errors()[known_bytes..].to_owned();
        let of_process = |line: &&str| line.contains(&format!(" {pid}: "));
        let is_end = |line: &str| line.ends_with("aborting it") || line.ends_with("restarting it");
        if errors.lines().filter(of_process).any(is_end) {
            let runs = || children_with(self.server.process_id(), role.command()).contains(&pid);
            wait_until("it has been ended", || !runs());
        }
    }

    /// Kills the process of this role: the next one has what the lies have left.
    #[track_caller]
    fn replace(&self, role: Role) {
        let (pid, _) = self.take(role);
        send_signal("KILL", &pid.to_string());
        wait_until("it has ended", || !children_with(self.server.process_id(), role.command()).contains(&pid));
    }

    fn print_memory(&self) {
        for (role, bytes) in &self.resident_bytes {
            let name = role.map_or("supervisor".to_owned(), |role| format!("{role:?}"));
            println!("{name}: at most {} MiB of memory", bytes >> 20);
        }
    }
}

/// Whether the page and the record of the files are served.
fn serves(http: SocketAddr, dns: SocketAddr) -> bool {
    use std::io::{Read, Write};
    let page = || {
        let mut stream = std::net::TcpStream::connect_timeout(&http, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    page().is_ok_and(|text: String| text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\nhi\n"))
        && data(dns, "www.example.com", A).as_deref() == Some("192.0.2.7")
        && serial(dns, "example.com") == Some(7)
}

fn ask_for_status(control: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut connection = Connection::connect(control).map_err(text)?;
    connection.send(&Message::Command(Command::Status(StatusFormat::Json))).map_err(text)?;
    let deadline = Instant::now() + DEADLINE;
    loop {
        match connection.recv().map_err(text)? {
            Received::Message(Message::Event(Event::Done { .. }), _) => return Ok(()),
            Received::Message(..) => {}
            Received::Closed => return Err("the supervisor closes the connection".to_owned()),
            Received::WouldBlock if Instant::now() > deadline => {
                return Err("the supervisor does not answer".to_owned());
            }
            Received::WouldBlock => {
                PollSet::new([connection.as_fd()]).wait(Some(Duration::from_secs(1))).map_err(text)?;
            }
        }
    }
}

/// The number in `SANDERLING_LIES`, if set.
fn long_count() -> Option<usize> {
    std::env::var("SANDERLING_LIES").ok().map(|text| text.parse().expect("a number"))
}

/// Only root takes descriptors of processes with secrets.
fn may_play() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("there");
    let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    if !is_root {
        println!("NOT TESTED: this user may not take descriptors of other processes");
    }
    is_root
}

#[test]
fn each_message_has_a_row() {
    let known: Vec<&str> = EVENTS.iter().map(|row| row.name()).collect();
    assert_eq!(events(), known, "a row for each `Event`, in their order");
    assert_eq!(commands(), rows::COMMANDS.iter().map(|json| rows::name_of(json)).collect::<Vec<_>>());
    EVENTS.iter().for_each(|row| drop(row.packet(Lie::Honest)));
    rows::COMMANDS.iter().for_each(|json| drop(packet_of("Command", json)));
}

/// Sends each event as `role`, with all lies if it is one that the role sends, and once otherwise.
fn play_events(role: Role) {
    if !may_play() {
        return;
    }
    let mut played = Played::start();
    let start = Instant::now();
    let (long, count) = (long_count(), long_count().unwrap_or(REPEATED_COUNT));
    for row in EVENTS {
        let is_own = row.senders.contains(&role);
        let lies: &[Lie] = if is_own || long.is_some() { Lie::ALL } else { &[Lie::Honest] };
        for &lie in lies {
            let what = format!("{} of {role:?}, {lie:?}", row.name());
            played.lie(role, &what, &row.packet(lie), 1);
            if is_own && row.outlives_its_sender() {
                played.replace(role);
                played.check_service(&what);
            }
        }
        if is_own {
            let what = format!("{} of {role:?}, {count} times", row.name());
            played.lie(role, &what, &row.packet(Lie::Honest), count);
            // The last version kept for the next process is not honest.
            played.lie(role, &what, &row.packet(Lie::Maximum), 1);
        }
        if role == Role::ServerProcess {
            played.replace(role);
        }
        played.check_service(row.name());
    }
    played.replace(role);
    played.replace(Role::ServerProcess);
    played.check_service("all events");
    println!("{role:?}: {} events in {:?}", EVENTS.len(), start.elapsed());
    played.print_memory();
    assert_eq!(played.directory.control("reload").code(), Some(0), "{}", played.server.errors());
    played.check_service("a reload");
    assert_eq!(played.server.stop().code(), Some(0));
}

#[test]
fn server_process_lies_to_the_supervisor() {
    play_events(Role::ServerProcess);
}

#[test]
fn agent_lies_to_the_supervisor() {
    play_events(Role::Agent);
}

#[test]
fn keeper_lies_to_the_supervisor() {
    play_events(Role::Keeper);
}

/// The supervisor keeps at most so many messages for the agent while that does not read: 256 descriptors, and what its
/// socket takes.
#[test]
fn server_process_that_floods_the_agent_is_ended() {
    if !may_play() {
        return;
    }
    let mut played = Played::start();
    let row = EVENTS.iter().find(|row| row.name() == "UpdatesMade").expect("a row");
    let (packet, (agent, _)) = (row.packet(Lie::Honest), played.take(Role::Agent));
    assert!(send_signal("STOP", &agent.to_string()));
    played.lie(Role::ServerProcess, "a flood", &packet, REPEATED_COUNT);
    let errors = played.server.errors();
    assert!(send_signal("CONT", &agent.to_string()));
    assert!(errors.contains("it floods the agent with messages"), "{errors}");
    played.check_service("a flood");
    assert_eq!(played.server.stop().code(), Some(0));
}

#[test]
fn commands_of_other_processes_are_not_carried_out() {
    if !may_play() {
        return;
    }
    let mut played = Played::start();
    for (index, json) in rows::COMMANDS.iter().enumerate() {
        let roles = if long_count().is_some() { &Role::ALL[..] } else { &Role::ALL[index % 3..][..1] };
        for role in roles {
            played.lie(*role, &format!("{json} of {role:?}"), &packet_of("Command", json), 1);
        }
    }
    for role in Role::ALL {
        let handover = Packet::new(b"SDLG\x02\0\0\0[{\"Handover\":{\"has_more\":true}},[]]".to_vec());
        played.lie(role, "a handover", &handover, 1);
        for bytes in [&b"x"[..], b"SDLG\x01", b"SDLG\x02\0\0\0[", &[0xff; 4096]] {
            played.lie(role, "no message", &Packet::new(bytes.to_vec()), 1);
        }
        played.check_service("commands");
    }
    played.print_memory();
    assert_eq!(played.server.stop().code(), Some(0));
}

/// A server with only a site and a zone, shared by the tests of listeners and of the orphan.
fn small_directory() -> TestDirectory {
    let config = "workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\n[dns]\nlisten = [\"127.0.0.1:0\"]\n\
        [domain.\"example.com\"]\nsite = \"public\"\nzone = \"a.zone\"\n";
    TestDirectory::with(&[
        ("sanderling.toml", config.as_bytes()),
        ("public/index.html", b"hi\n"),
        ("a.zone", ZONE.as_bytes()),
    ])
}
