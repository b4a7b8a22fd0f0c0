//! A broken zone or site affects no other: at startup, on a reload, and after a crash of the server process.

use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, curl, dig, run_to_end, send_signal, server_pids, wait_until,
};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };

fn zone(serial: u32) -> String {
    format!("@ 60 SOA ns host {serial} 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n")
}

/// Three domains with a zone each; `a.example` has a site in `public` too, and `b.example` one in `missing`.
fn directory() -> TestDirectory {
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n")]);
    for name in ["a", "b", "c"] {
        directory.write(&format!("{name}.zone"), zone(1).as_bytes());
    }
    let config = "workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\n[dns]\nlisten = [\"127.0.0.1:0\"]\n\
         [domain.\"a.example\"]\nsite = \"public\"\nzone = \"a.zone\"\n\
         [domain.\"b.example\"]\nsite = \"missing\"\nzone = \"b.zone\"\n[domain.\"c.example\"]\nzone = \"c.zone\"\n";
    directory.write("sanderling.toml", config.as_bytes());
    directory
}

/// `NOERROR 2`: the response code and the serial of a zone.
#[track_caller]
fn serial_of(server: &TestServer, apex: &str) -> String {
    let text = dig(server.dns(), &[apex, "SOA"]).text();
    let code = text.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a status");
    let soa = text.lines().find(|line| line.starts_with(apex) && line.contains("\tSOA\t"));
    let serial = soa.and_then(|line| line.split_whitespace().nth(6)).unwrap_or("-");
    format!("{code} {serial}")
}

#[track_caller]
fn http_status(server: &TestServer, host: &str) -> String {
    let url = format!("http://{}/", server.http());
    let host = format!("Host: {host}");
    curl(&["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &host, &url]).text()
}

#[test]
fn a_broken_zone_and_a_missing_site_do_not_stop_the_others_at_the_start() {
    let directory = directory();
    directory.write("b.zone", b"bad A 1.2.3\n");
    fs::remove_file(directory.path().join("c.zone")).expect("ours");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    assert_eq!(
        ["a", "b", "c"].map(|name| serial_of(&server, &format!("{name}.example."))),
        ["NOERROR 1", "SERVFAIL -", "SERVFAIL -"]
    );
    assert_eq!([http_status(&server, "a.example"), http_status(&server, "b.example")], ["200", "503"]);
    server.wait_for_error("b.zone:1:7");
    let errors = server.errors();
    assert!(errors.contains("c.zone` does not exist") && errors.contains("missing` does not exist"), "{errors}");
    let status = directory.control("status").text();
    assert!(status.contains("b.example: UNAVAILABLE") && status.contains("a.example: serial 1, 3 records"), "{status}");
    // Successive reloads correct everything.
    directory.write("b.zone", zone(2).as_bytes());
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(
        ended.text().contains("b.example: added, serial 2") && ended.text().contains("c.example: unavailable"),
        "{ended}"
    );
    assert_eq!(serial_of(&server, "b.example."), "NOERROR 2");
    directory.write("c.zone", zone(3).as_bytes());
    directory.write("missing/index.html", b"hi\n");
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert_eq!(serial_of(&server, "c.example."), "NOERROR 3");
    assert_eq!(http_status(&server, "b.example"), "200");
}

#[test]
fn a_site_whose_path_breaks_keeps_its_last_good_directory() {
    let directory = directory();
    directory.write("missing/index.html", b"hi\n");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    directory.replace("sanderling.toml", config.replace("\"public\"", "\"publicc\"").as_bytes());
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.errors.contains("publicc` does not exist"), "{ended}");
    assert!(ended.text().contains("publicc for a.example: not reloaded, keeping the directory "), "{ended}");
    assert_eq!(http_status(&server, "a.example"), "200");
    let status = directory.control("status").text();
    assert!(status.contains("/public; ERROR: "), "{status}");
    directory.write("publicc/other.html", b"hi\n");
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert_eq!(http_status(&server, "a.example"), "404");
}

#[test]
fn a_file_of_users_that_was_removed_makes_a_reload_fail() {
    let directory = directory();
    directory.write("missing/index.html", b"hi\n");
    directory.write("users", b"");
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    let auth = "[domain.\"a.example\".auth]\n\"/private/*\" = { users_file = \"users\" }\n";
    directory.replace("sanderling.toml", format!("{config}{auth}").as_bytes());
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    assert_eq!(directory.control("reload").code(), Some(0));
    fs::remove_file(directory.path().join("users")).expect("ours");
    let ended = directory.control("reload");
    assert!(ended.code() == Some(1) && ended.errors.contains("cannot read the user file `"), "{ended}");
    assert!(ended.text().contains("public for a.example: served, but parts of it could not be loaded\n"), "{ended}");
    assert_eq!(http_status(&server, "a.example"), "200");
}

#[test]
fn a_zone_that_breaks_keeps_its_last_good_version_while_others_are_reloaded() {
    let directory = directory();
    directory.write("missing/index.html", b"hi\n");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    directory.write("a.zone", b"bad A 1.2.3\n");
    directory.write("c.zone", zone(2).as_bytes());
    let mut connection = HttpClient::connect(server.http());
    connection.get("/");
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.text().contains("c.example: serial 1 -> 2"), "{ended}");
    assert!(ended.text().contains("zone a.example: not reloaded, keeping serial 1"), "{ended}");
    assert!(ended.errors.contains("a.zone:1:7"), "{ended}");
    connection.get("/");
    assert_eq!(["a.example.", "c.example."].map(|apex| serial_of(&server, apex)), ["NOERROR 1", "NOERROR 2"]);
    let status = directory.control("status").text();
    assert!(
        status.contains("a.example: serving serial 1 of ") && status.contains("; the file has errors: "),
        "{status}"
    );
}

#[test]
fn a_server_process_that_dies_is_replaced_although_a_zone_is_broken() {
    let directory = directory();
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    directory.write("a.zone", b"bad A 1.2.3\n");
    let old = server.server_process_id();
    assert!(send_signal("KILL", &old.to_string()));
    server.wait_for_error("is serving");
    assert_eq!(serial_of(&server, "b.example."), "NOERROR 1");
    assert_eq!(http_status(&server, "a.example"), "200");
}

#[test]
fn standard_error_that_nobody_reads_blocks_neither_reloads_nor_restarts() {
    let directory = directory();
    let log = directory.path().join("log");
    assert!(std::process::Command::new("mkfifo").arg(&log).status().expect("mkfifo").success());
    // Keeps the pipe open and reads nothing.
    let _reader = fs::File::options().read(true).write(true).open(&log).expect("a pipe");
    let mut command = std::process::Command::new("sh");
    let serve = directory.serve_command();
    command
        .args(["-c", "exec \"$0\" \"$@\" 2>\"$LOG\""])
        .arg(serve.get_program())
        .args(serve.get_args())
        .env("LOG", &log);
    let server = TestServer::start_command(command, BOTH);
    // The pipe takes 64 KiB, and the queue 256 KiB.
    let errors = "a line that is not a record, and long enough to fill a pipe with few of them\n".repeat(100);
    directory.write("b.zone", errors.as_bytes());
    for _ in 0..20 {
        assert_eq!(directory.control("reload").code(), Some(1));
    }
    let before = server.server_process_id();
    assert!(send_signal("KILL", &before.to_string()));
    wait_until("a new process serves the zone", || {
        server.server_process_id() != before && serial_of(&server, "a.example.") == "NOERROR 1"
    });
    assert_eq!(directory.control("reload").code(), Some(1));
    assert_eq!(server.stop().code(), Some(0));
}

/// Kills the server process, and waits for the next one.
#[track_caller]
fn crash(server: &TestServer) {
    let old = server.server_process_id();
    let known = server.errors().matches("is serving").count();
    assert!(send_signal("KILL", &old.to_string()));
    wait_until("a new process serves", || server.errors().matches("is serving").count() > known);
    assert_ne!(server.server_process_id(), old);
}

/// A zone with this many records in addition to the SOA record.
fn zone_of(serial: u32, record_count: usize) -> String {
    let hosts = (2..=record_count).map(|number| format!("h{number} 60 A 192.0.2.1\n"));
    format!("@ 60 SOA ns host {serial} 1 1 1 1\n@ 60 NS ns\n{}", hosts.collect::<String>())
}

#[test]
fn last_good_version_of_a_zone_survives_the_server_process() {
    let directory = directory();
    directory.write("a.zone", format!("{}$INCLUDE a.hosts\n", zone(1)).as_bytes());
    directory.write("a.hosts", b"www 60 A 192.0.2.7\n");
    directory.write("missing/index.html", b"hi\n");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    directory.write("b.zone", zone(2).as_bytes());
    assert_eq!(directory.control("reload").code(), Some(0));
    // Broken without a reload.
    directory.write("a.hosts", b"www 60 A 192.0.2\n");
    directory.write("b.zone", b"bad A 1.2.3\n");
    fs::remove_file(directory.path().join("c.zone")).expect("ours");
    let check = |server: &TestServer, event: &str| {
        let serials = ["a", "b", "c"].map(|name| serial_of(server, &format!("{name}.example.")));
        assert_eq!(serials, ["NOERROR 1", "NOERROR 2", "NOERROR 1"], "{event}: {}", server.errors());
        let text = dig(server.dns(), &["www.a.example", "A"]).text();
        assert!(text.contains("192.0.2.7"), "{event}: {text}");
    };
    crash(&server);
    check(&server, "after a crash");
    crash(&server);
    check(&server, "after a second crash");
    let status = directory.control("status").text();
    assert!(
        status.contains("b.example: serving serial 2 of ") && status.contains("; the file has errors: "),
        "{status}"
    );
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    directory.replace("sanderling.toml", config.replace("workers = 1", "workers = 2").as_bytes());
    let ended = directory.control("reload");
    assert!(ended.text().contains("has replaced the old one"), "{ended}");
    check(&server, "after a reload with a new process");
    assert_eq!(directory.control("upgrade").code(), Some(0));
    crash(&server);
    check(&server, "after an upgrade and a crash");
    // Without the supervisor, and with the next one.
    server.signal("KILL");
    server.wait_for_error("lost the supervisor");
    let next = TestServer::start_command(directory.serve_command(), BOTH);
    check(&next, "after an adoption");
    crash(&next);
    check(&next, "after an adoption and a crash");
    directory.write("b.zone", zone(3).as_bytes());
    directory.control("reload");
    assert_eq!(serial_of(&next, "b.example."), "NOERROR 3");
    // A zone that was removed has no version any more.
    directory.replace("sanderling.toml", config.replace("zone = \"c.zone\"", "site = \"public\"").as_bytes());
    directory.control("reload");
    directory.replace("sanderling.toml", config.as_bytes());
    directory.control("reload");
    crash(&next);
    assert_eq!(serial_of(&next, "c.example."), "SERVFAIL -");
    next.stop();
    server.end();
}

#[test]
fn zone_that_lost_records_or_whose_serial_went_back_is_refused_unless_forced() {
    let directory = directory();
    directory.write("missing/index.html", b"hi\n");
    directory.write("a.zone", zone_of(5, 1_000).as_bytes());
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let reload = |arguments: &[&str], expected: &str, serial: &str| {
        let ended = directory.control_with("reload", arguments);
        let is_refused = !expected.is_empty();
        assert_eq!(ended.code(), Some(i32::from(is_refused)), "{ended}");
        assert!(ended.errors.contains(expected), "{expected}: {ended}");
        assert_eq!(ended.errors.contains("`sanderling reload --force-zone a.example`"), is_refused, "{ended}");
        assert_eq!(serial_of(&server, "a.example."), format!("NOERROR {serial}"));
    };
    directory.write("a.zone", zone_of(6, 3).as_bytes());
    reload(&[], "997 of 1001 records are missing, more than `zone_lost_records_percent_max` (50 %)", "5");
    reload(&["--force-zone", "b.example"], "997 of 1001 records are missing", "5");
    let cut = zone_of(7, 1_000);
    directory.write("a.zone", &cut.as_bytes()[..cut.len() - 22]);
    reload(&[], "the zone seems to be truncated: 1 of 1001 records are missing", "5");
    directory.write("a.zone", zone_of(4, 1_000).as_bytes());
    reload(&[], "the serial went back from 5 to 4", "5");
    reload(&["--force-zone", "A.Example."], "", "4");
    directory.write("a.zone", zone_of(3, 2).as_bytes());
    reload(&[], "998 of 1001 records are missing", "4");
    // An earlier process's report about a zone does not prevent a file from being served: it may have lied.
    crash(&server);
    server.wait_for_error(
        "998 of 1001 records are missing, more than `zone_lost_records_percent_max` (50 %); it is served",
    );
    assert_eq!(serial_of(&server, "a.example."), "NOERROR 3");
    directory.write("a.zone", zone_of(2, 3).as_bytes());
    reload(&[], "the serial went back from 3 to 2", "3");
}

#[test]
fn reload_that_waits_for_an_upgrade_forces_its_zones() {
    let directory = directory();
    // So many records that the reload is requested while they are read.
    directory.write("c.zone", zone_of(1, 20_000).as_bytes());
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| directory.control("upgrade"));
        wait_until("a new server process", || server_pids(server.process_id()).len() == 2);
        directory.write("a.zone", zone(0).as_bytes());
        let ended = directory.control_with("reload", &["--force-zone", "a.example"]);
        // The process of the upgrade may have read the file as well: a start has nothing to compare it with.
        let is_read_at_start = server.errors().contains("the serial went back from 1 to 0");
        assert!(is_read_at_start || ended.text().contains("a.example: serial 1 -> 0"), "{ended}");
        assert!(!ended.errors.contains("a.zone"), "{ended}");
        assert_eq!(upgrade.join().expect("no panic").code(), Some(0));
    });
    assert_eq!(serial_of(&server, "a.example."), "NOERROR 0");
}

#[test]
fn status_shows_problems_first_and_lists_everything_if_verbose() {
    let directory = directory();
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    let domains = (0..100).map(|number| format!("[domain.\"d{number}.example\"]\nzone = \"c.zone\"\n"));
    directory.replace("sanderling.toml", (config + &domains.collect::<String>()).as_bytes());
    let _server = TestServer::start_command(directory.serve_command(), BOTH);
    let status = directory.control("status").text();
    assert!(status.lines().count() < 50, "{status}");
    let first = status.lines().find(|line| line.starts_with("  site") || line.starts_with("  zone"));
    assert!(first.is_some_and(|line| line.contains("b.example")), "{status}");
    assert!(status.ends_with("more; `sanderling status --verbose` lists all of them\n"), "{status}");
    let verbose = directory.control_with("status", &["--verbose"]).text();
    assert_eq!(verbose.lines().filter(|line| line.starts_with("  zone")).count(), 103, "{verbose}");
    assert!(verbose.contains("  worker 0 "), "{verbose}");
}

#[test]
fn reload_with_a_new_process_is_answered_when_the_old_one_accepts_no_more() {
    let directory = TestDirectory::with(&[
        ("public/index.html", b"hi\n"),
        (
            "sanderling.toml",
            b"workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.example\"]\nsite = \"public\"\n",
        ),
    ]);
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 0 });
    let old = server.server_process_id().to_string();
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    directory.replace("sanderling.toml", config.replace("workers = 1", "workers = 2").as_bytes());
    // The process cannot report that it has stopped accepting, for which the supervisor waits two seconds.
    assert!(send_signal("STOP", &old));
    let began = Instant::now();
    let ended = directory.control("reload");
    let took = began.elapsed();
    assert!(send_signal("CONT", &old));
    assert!(ended.code() == Some(0) && ended.text().contains("has replaced the old one"), "{ended}");
    assert!(took >= Duration::from_secs(2), "answered after {took:?}");
    assert_eq!(server.stop().code(), Some(0));
}

/// Some versions of container runtimes deny it instead of saying that there is no such call.
#[test]
fn container_that_denies_threads_is_named() {
    let directory = directory();
    let serve = directory.serve_command();
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=clone3", "-e", "inject=clone3:error=EPERM"]);
    command.arg(serve.get_program()).args(serve.get_args());
    let ended = run_to_end(command, DEADLINE);
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.errors.contains("the sandbox of the container denies clone3"), "{ended}");
}
