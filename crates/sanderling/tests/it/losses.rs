//! Reloads, upgrades and deaths under a steady load, and the requests that they may cost: none, but those that a killed
//! process had taken.
//!
//! `cargo xtask endure` does the same for longer and under more load.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use losscount::{Cause, DnsLoad, HttpLoad, IdleNotice, Kind, Load, Report, Running, parse_questions};

use crate::domain::ZONE;
use crate::http_answers::check_serves;
use sanderling_testkit::process::{DEADLINE, Ended, Folder, Listeners, Serving, copy_program_to, sanderling};
use sanderling_testkit::process_ids::{send_signal, server_pids};

const PAGE: &[u8] = b"a sanderling runs along the edge of the water\n";
const OTHER_PAGE: &[u8] = b"and never stands still\n";
const QUESTIONS: &str = "example.com A\nexample.com MX\nmail.example.com AAAA\nmissing.example.com A NXDOMAIN\n";
/// So many more are answered before the next thing happens, and after the last.
const ANSWERS_BETWEEN: u64 = 150;
/// How often a port is chosen anew that one transport has free and the other not.
const PORT_TRIES_MAX: usize = 16;
/// A load never ends by itself within a test.
const LONG: Duration = Duration::from_secs(3_600);
/// Who has to wait on a busy machine is late, and not lost.
const PATIENCE: Duration = DEADLINE;
/// For queries whose answer may be lost by nature: these are waited for to the end.
const UDP_PATIENCE_SHORT: Duration = Duration::from_secs(3);
const SEED: u64 = 5;

/// A supervisor with its server process, and the commands to it.
struct Supervised {
    serving: Serving,
    folder: Folder,
    http: SocketAddr,
    dns: SocketAddr,
}

impl Supervised {
    #[track_caller]
    fn start() -> Supervised {
        let folder = Folder::with(&[
            ("first/index.html", PAGE),
            ("second/index.html", OTHER_PAGE),
            ("zone", ZONE.as_bytes()),
            ("page", PAGE),
        ]);
        copy_program_to(&folder.path().join("sanderling"));
        let (http, dns) = (free_address(), free_address());
        let config = config(http, dns, &Wanted::default());
        folder.write("sanderling.toml", config.as_bytes());
        let serving = Serving::start_command(command(&folder), Listeners { http: 1, dns: 1 });
        Supervised { serving, folder, http, dns }
    }

    /// `sanderling VERB`, to its end.
    #[track_caller]
    fn tell(&self, verb: &str) -> Ended {
        self.folder.tell(verb)
    }

    /// Reloads a configuration that says this.
    #[track_caller]
    fn reload(&self, wanted: &Wanted) -> String {
        self.folder.write("sanderling.toml", config(self.http, self.dns, wanted).as_bytes());
        let ended = self.tell("reload");
        assert_eq!(ended.code(), Some(0), "{ended}");
        ended.text()
    }

    /// The server process that was started last.
    #[track_caller]
    fn server_pid(&self) -> u32 {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(pid) = server_pids(self.serving.process_id()).last() {
                return *pid;
            }
            assert!(Instant::now() < deadline, "no server process:\n{}", self.serving.errors());
            thread::yield_now();
        }
    }

    /// Puts a program into the place of the one that runs, and upgrades to it.
    #[track_caller]
    fn upgrade_to(&self, script: Option<&str>) -> Ended {
        let (path, beside) = (self.folder.path().join("sanderling"), self.folder.path().join("new-program"));
        match script {
            Some(script) => fs::write(&beside, script).expect("a file of our own can be written"),
            None => copy_program_to(&beside),
        }
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).expect("the file is our own");
        fs::rename(&beside, &path).expect("the folder is our own");
        self.tell("upgrade")
    }

    /// A load of every kind, which has its first answers.
    #[track_caller]
    fn load(&self, idle_notice: IdleNotice, udp_deadline: Duration) -> Running {
        println!("seed {SEED}");
        let mut load = Load::new(LONG, SEED);
        (load.tcp_deadline, load.udp_deadline) = (PATIENCE, udp_deadline);
        load.http = Some(HttpLoad {
            host: "example.com".to_owned(),
            contents: vec![PAGE.to_vec(), OTHER_PAGE.to_vec()],
            new_per_s: 200,
            kept_per_s: 200,
            connection_count: 8,
            idle_notice,
            ..HttpLoad::new(self.http, "/", Vec::new())
        });
        load.dns = Some(DnsLoad {
            // Few enough to wait in a socket's buffer for as long as a busy machine makes them.
            udp_per_s: 100,
            udp_port_count: 16,
            tcp_new_per_s: 50,
            tcp_kept_per_s: 50,
            connection_count: 8,
            ..DnsLoad::new(self.dns, parse_questions(QUESTIONS).expect("the questions are right"))
        });
        let running = load.start().unwrap_or_else(|error| panic!("{error}\n{}", self.serving.errors()));
        go_on(&running);
        running
    }
}

/// What a configuration may say in different ways.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    worker_count: usize,
    site: &'static str,
    alias: &'static str,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { worker_count: 2, site: "first", alias: "www.example.com" }
    }
}

fn config(http: SocketAddr, dns: SocketAddr, wanted: &Wanted) -> String {
    let Wanted { worker_count, site, alias } = wanted;
    let other_site = if *site == "first" { "second" } else { "first" };
    format!(
        "workers = {worker_count}\n[http]\nlisten = [\"{http}\"]\n[dns]\nlisten = [\"{dns}\"]\n\
         [domain.\"example.com\"]\nsite = \"{site}\"\nzone = \"zone\"\naliases = [\"{alias}\"]\n\
         [domain.\"example.org\"]\nsite = \"{other_site}\"\n\
         [limits]\nstart_timeout_ms = 5000\n"
    )
}

/// The program out of the folder, where an upgrade finds another one.
fn command(folder: &Folder) -> Command {
    let mut command = Command::new(folder.path().join("sanderling"));
    for (name, value) in sanderling().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let (config, control) = (folder.argument("sanderling.toml"), folder.argument("control"));
    command.args(["serve", "--config", &config, "--control", &control]);
    command
}

/// An address of the loopback that nobody else uses, its port free for TCP and UDP alike: the file that another supervisor
/// reads must name it. All of 127.0.0.0/8 is loopback (RFC 1122 §3.2.1.3), so that no other test takes the port meanwhile.
#[track_caller]
fn free_address() -> SocketAddr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high | 1 << 7, low, COUNT.fetch_add(1, Ordering::Relaxed));
    for _ in 0..PORT_TRIES_MAX {
        let listener = TcpListener::bind((ip, 0)).expect("loopback has a free port");
        let address = listener.local_addr().expect("the listener is bound");
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free for both TCP and UDP in {PORT_TRIES_MAX} tries");
}

/// Kills a process, and waits for its end.
#[track_caller]
fn kill(pid: u32) {
    assert!(send_signal("KILL", &pid.to_string()), "process {pid} could not be killed");
    let deadline = Instant::now() + DEADLINE;
    // Who has ended and waits to be collected has no program any more.
    while fs::read_link(format!("/proc/{pid}/exe")).is_ok() {
        assert!(Instant::now() < deadline, "process {pid} was killed and still runs");
        thread::yield_now();
    }
}

/// Waits until the load has had more answers.
#[track_caller]
fn go_on(running: &Running) {
    let wanted_count = running.standing().ok_count + ANSWERS_BETWEEN;
    let deadline = Instant::now() + DEADLINE;
    while running.standing().ok_count < wanted_count {
        assert!(Instant::now() < deadline, "the load gets no answers any more: {:?}", running.standing());
        assert!(!running.wait_end(Duration::from_millis(5)), "the load has ended by itself");
    }
}

#[track_caller]
fn finish(running: Running) -> Report {
    running.stop();
    let report = running.finish().expect("this machine has what the load needs");
    println!("{report}");
    for kind in Kind::ALL {
        assert!(report.counts(kind).is_some_and(|counts| counts.sent_count > 0), "{} was sent nothing", kind.name());
    }
    report
}

#[track_caller]
fn check_nothing_lost(running: Running) -> Report {
    let report = finish(running);
    assert_eq!(report.lost_count(), 0, "{report}");
    report
}

#[test]
fn reloads_that_need_another_process_lose_nothing() {
    let supervised = Supervised::start();
    let running = supervised.load(IdleNotice::AtNextRequest, PATIENCE);
    for worker_count in [3, 1, 4] {
        let told = supervised.reload(&Wanted { worker_count, ..Wanted::default() });
        assert!(told.contains("a new server process"), "{told}");
        go_on(&running);
    }
    check_nothing_lost(running);
}

#[test]
fn reloads_in_place_lose_nothing_and_close_nothing() {
    let supervised = Supervised::start();
    let pid = supervised.server_pid();
    let running = supervised.load(IdleNotice::AtNextRequest, PATIENCE);
    let alias = Wanted { alias: "web.example.com", ..Wanted::default() };
    let site = Wanted { site: "second", ..alias };
    for (wanted, zone) in [(alias, ZONE), (site, ZONE), (site, &format!("{ZONE}new IN TXT \"new\"\n"))] {
        supervised.folder.write("zone", zone.as_bytes());
        let told = supervised.reload(&wanted);
        assert!(told.contains("in place"), "{told}");
        go_on(&running);
    }
    let report = check_nothing_lost(running);
    assert_eq!(report.closed_by_server_count(), 0, "{report}");
    assert_eq!(supervised.server_pid(), pid);
}

#[test]
fn upgrades_lose_nothing_whatever_the_new_program_is_worth() {
    let supervised = Supervised::start();
    let running = supervised.load(IdleNotice::AtNextRequest, PATIENCE);
    let mut pid = supervised.server_pid();
    for script in [None, Some("#!/bin/sh\nexit 1\n"), Some("#!/bin/sh\nexec false\n"), None] {
        let ended = supervised.upgrade_to(script);
        let expected = if script.is_none() { Some(0) } else { Some(1) };
        assert_eq!(ended.code(), expected, "{script:?}: {ended}");
        let next = supervised.server_pid();
        assert_eq!(next != pid, script.is_none(), "{script:?}: {pid}, and then {next}");
        pid = next;
        go_on(&running);
    }
    check_nothing_lost(running);
}

#[test]
fn a_killed_process_costs_what_it_had_and_refuses_nobody() {
    let supervised = Supervised::start();
    let running = supervised.load(IdleNotice::AtOnce, UDP_PATIENCE_SHORT);
    for _ in 0..3 {
        kill(supervised.server_pid());
        check_serves(supervised.http);
        go_on(&running);
    }
    let report = finish(running);
    let taken = [Cause::ResetBefore, Cause::ResetWithin, Cause::ClosedBefore, Cause::Short];
    for kind in Kind::ALL {
        let counts = report.counts(kind).expect("it had a rate");
        let by_nature: u64 = match kind {
            // What a process had received is unanswered.
            Kind::DnsUdp => counts.lost(Cause::Timeout),
            _ => taken.iter().map(|cause| counts.lost(*cause)).sum(),
        };
        assert_eq!(counts.lost_count(), by_nature, "{}\n{report}", kind.name());
    }
}

#[test]
fn the_death_of_the_supervisor_loses_nothing() {
    let supervised = Supervised::start();
    let running = supervised.load(IdleNotice::AtNextRequest, PATIENCE);
    kill(supervised.serving.process_id());
    go_on(&running);
    let next = Serving::start_command(command(&supervised.folder), Listeners { http: 1, dns: 1 });
    assert_eq!((next.http(), next.dns()), (supervised.http, supervised.dns));
    go_on(&running);
    supervised.reload(&Wanted { worker_count: 3, ..Wanted::default() });
    go_on(&running);
    check_nothing_lost(running);
    let stopped = supervised.tell("stop");
    assert_eq!(stopped.code(), Some(0), "{stopped}");
    assert_eq!(next.end().code(), Some(0));
    // The first one was killed, and nobody whom it has started is left.
    assert_eq!(supervised.serving.end().code(), None);
}
