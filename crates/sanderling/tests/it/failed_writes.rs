//! A state folder that is temporarily not writable: the refused actions, the reports, and the recovery.

use super::name_servers::SECRET;
use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, TestDirectory, TestServer, run_program, run_to_end, sanderling, wait_until,
};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const ZONES: [&str; 2] = ["plain.test", "signed.test"];
/// Much longer than an answer takes that waits for nothing.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);

/// A small disk with the state folder. The disk is unmounted when this value is dropped.
struct SmallDisk(String);

impl SmallDisk {
    /// `None` without the right to mount.
    fn mount(directory: &TestDirectory) -> Option<SmallDisk> {
        let disk = directory.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let path = disk.display().to_string();
        let mounted = run_program("mount", "mount", &["-t", "tmpfs", "-o", "size=1m,mode=755", "disk", &path]);
        if !mounted.status.success() {
            println!("not run: this process may not mount");
            return None;
        }
        Some(SmallDisk(path))
    }

    /// Whether it can be written.
    fn set_writable(&self, is_writable: bool) {
        let option = if is_writable { "remount,rw" } else { "remount,ro" };
        let remounted = run_program("mount", "mount", &["-o", option, &self.0]);
        assert!(remounted.status.success(), "{remounted}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

fn configure(directory: &TestDirectory) {
    let zone = "$TTL 300\n@ SOA ns1 host 10 3600 2 3600 60\n@ NS ns1\nns1 A 192.0.2.1\n";
    let update = "update = [{ key = \"transfer\", names = [\"**\"], types = [\"ANY\"] }]";
    let mut config = format!(
        "workers = 1\nstate = \"{}\"\n[dns]\nresolvers = []\nlisten = [\"127.0.0.1:0\"]\n[tsig.transfer]\nsecret_file = \"transfer.key\"\n",
        directory.argument("disk/state")
    );
    for apex in ZONES {
        directory.write(&format!("{apex}.zone"), zone.as_bytes());
        config += &format!("[domain.\"{apex}\"]\nzone = \"{apex}.zone\"\n{update}\n");
    }
    directory.write("sanderling.toml", format!("{config}dnssec = true\n").as_bytes());
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
}

fn start(directory: &TestDirectory) -> TestServer {
    TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
}

/// Whether each zone takes an update with this text.
fn update(server: &TestServer, directory: &TestDirectory, text: &str) -> [bool; 2] {
    let address = server.dns();
    ZONES.map(|zone| {
        let text = format!(
            "server {} {}\nzone {zone}\nttl 60\nupdate add changed.{zone} TXT {text}\nsend\n",
            address.ip(),
            address.port()
        );
        let file = directory.write("nsupdate.txt", text.as_bytes()).display().to_string();
        let key = format!("hmac-sha256:transfer:{SECRET}");
        run_program("nsupdate", "bind9-dnsutils", &["-r", "0", "-t", "20", "-y", &key, &file]).code() == Some(0)
    })
}

fn command(directory: &TestDirectory, words: &[&str]) -> Ended {
    let mut command = sanderling();
    command.args(words).args(["--control", &directory.argument("control")]);
    run_to_end(command, DEADLINE)
}

#[test]
fn zones_take_updates_again_when_a_full_disk_has_space_again() {
    let directory = TestDirectory::new();
    let Some(_disk) = SmallDisk::mount(&directory) else { return };
    configure(&directory);
    let server = start(&directory);
    wait_until("both zones take updates", || update(&server, &directory, "before") == [true; 2]);
    let filler = directory.path().join("disk/filler");
    let _ = fs::write(&filler, vec![0; 2 << 20]);
    assert_eq!(update(&server, &directory, "full"), [false; 2]);
    for zone in ZONES {
        wait_until("the status says it", || {
            command(&directory, &["zone", "status", zone]).text().contains("cannot store dynamic updates")
        });
    }
    let status = command(&directory, &["status"]);
    assert!(status.code() == Some(1) && status.text().contains("2 zones kept"), "{status}");
    assert!(
        server.errors().contains("signed.test: a dynamic update gets SERVFAIL: cannot write "),
        "{}",
        server.errors()
    );
    let line_count = || server.errors().lines().filter(|line| line.contains("No space left")).count();
    let before = line_count();
    for _ in 0..5 {
        assert_eq!(update(&server, &directory, "full"), [false; 2]);
    }
    assert!(line_count() <= before + 1, "{}", server.errors());
    fs::remove_file(&filler).unwrap();
    // No update arrives that would reveal it.
    wait_until("the status is good again", || command(&directory, &["status"]).code() == Some(0));
    assert_eq!(update(&server, &directory, "after"), [true; 2]);
}

#[test]
fn reload_says_that_the_agent_cannot_write_its_folder() {
    let directory = TestDirectory::new();
    let Some(disk) = SmallDisk::mount(&directory) else { return };
    configure(&directory);
    let server = start(&directory);
    wait_until("both zones take updates", || update(&server, &directory, "before") == [true; 2]);
    server.stop();
    disk.set_writable(false);
    let server = start(&directory);
    wait_until("the agent fails", || server.errors().contains("the agent cannot run"));
    for words in [&["reload"][..], &["reload", "signed.test"]] {
        let begin = Instant::now();
        let ended = command(&directory, words);
        let expected = "the agent does not run: cannot write ";
        assert!(ended.code() == Some(1) && ended.errors.contains(expected), "{words:?}: {ended}");
        assert!(begin.elapsed() < ANSWER_TIME_MAX, "{words:?}: {:?}", begin.elapsed());
    }
    disk.set_writable(true);
    let ended = command(&directory, &["reload", "signed.test"]);
    assert!(ended.code() == Some(0), "{ended}");
    wait_until("both zones take updates", || update(&server, &directory, "after") == [true; 2]);
}

#[test]
fn reload_of_a_zone_that_gets_no_thread_is_answered_and_can_be_repeated() {
    if sanderling_os::process::effective_uid() != 0 {
        return println!("skipped: the limit of threads does not concern a user's own processes alone");
    }
    let directory = TestDirectory::new();
    directory.write("plain.test.zone", b"$TTL 300\n@ SOA ns1 host 10 3600 2 3600 60\n@ NS ns1\nns1 A 192.0.2.1\n");
    let config = "workers = 1\nuser = \"nobody\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"plain.test\"]\nzone = \"plain.test.zone\"\n";
    directory.write("sanderling.toml", config.as_bytes());
    let server = start(&directory);
    let process = server.server_process_id();
    // The process's user may change its soft limit.
    let set_limit = |limit: &str| {
        let (process, limit) = (process.to_string(), format!("--nproc={limit}:"));
        let user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"];
        let arguments = [&user[..], &["prlimit", "--pid", &process, &limit]].concat();
        let ended = run_program("setpriv", "util-linux", &arguments);
        assert!(ended.status.success(), "{ended}");
    };
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("it runs");
    let before = limits.lines().find_map(|line| line.strip_prefix("Max processes")?.split_whitespace().next());
    set_limit("1");
    let since = Instant::now();
    let refused = directory.control_with("reload", &["plain.test"]);
    assert!(refused.code() == Some(1) && since.elapsed() < ANSWER_TIME_MAX, "{refused}");
    assert!(refused.errors.contains("cannot start a thread to load the zone plain.test: "), "{refused}");
    set_limit(before.expect("a limit"));
    assert_eq!(directory.control_with("reload", &["plain.test"]).code(), Some(0));
    assert_eq!(server.server_process_id(), process);
}
