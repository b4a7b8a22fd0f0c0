//! A disk that does not answer delays only the responses that need it.

use sanderling_testkit::http::{HttpClient, get};
use sanderling_testkit::{
    ANSWERED, CONTENT, FILE_BYTES, ListenerCounts, NOT_FOUND_YET, STALLED, StalledDisk, TestDirectory, TestServer,
    send_signal, udp_reply, wait_until,
};
use std::fs;
use std::time::{Duration, Instant};

const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };
/// Much longer than an answer that waits for no disk takes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);

/// Runs `act` with a server whose site has a directory `disk` that is a stalled disk. Without the right to mount,
/// nothing happens.
fn with_stalled_disk(act: impl FnOnce(&TestDirectory, &StalledDisk, TestServer)) {
    let zone = b"@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n";
    let directory = TestDirectory::with(&[
        ("public/index.html", b"hi\n"),
        ("public/disk/file", b""),
        ("public/elsewhere/index.html", b"elsewhere\n"),
        ("public2/index.html", b"another site\n"),
        ("example.com.zone", zone),
    ]);
    let config = "workers = 1\n[limits]\nhang_timeout_ms = 1000\ndrain_timeout_ms = 1000\n\
         [http]\nlisten = [\"127.0.0.1:0\"]\n[dns]\nlisten = [\"127.0.0.1:0\"]\n\
         [domain.\"localhost\"]\nsite = \"public\"\n[domain.\"example.com\"]\nsite = \"public2\"\nzone = \"example.com.zone\"\n";
    directory.write("sanderling.toml", config.as_bytes());
    let Some(disk) = StalledDisk::mount(&directory.path().join("public/disk")) else { return };
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    act(&directory, &disk, server);
}

/// A client that waits for a file.
fn waiting_client(server: &TestServer, disk: &StalledDisk, file: &str) -> HttpClient {
    let count = disk.waiting_count();
    let mut client = HttpClient::connect(server.http());
    client.send(get(&format!("/disk/{file}")));
    wait_until("the disk is asked", || disk.waiting_count() > count);
    client
}

#[test]
fn everything_else_is_answered_while_a_disk_does_not_answer() {
    with_stalled_disk(|directory, disk, server| {
        let process_id = server.server_process_id();
        let mut waiting = [STALLED, NOT_FOUND_YET].map(|file| waiting_client(&server, disk, file));
        // For longer than a hung thread is tolerated.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(4) {
            let before = Instant::now();
            let mut client = HttpClient::connect(server.http());
            assert_eq!(client.get("/").text(), "hi\n");
            assert_eq!(client.get(&format!("/disk/{ANSWERED}")).body, [CONTENT; FILE_BYTES]);
            let query = b"\0\x19\0\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x06\0\x01";
            assert_eq!(udp_reply(server.dns(), query)[..4], *b"\0\x19\x84\0");
            for command in ["status", "reload"] {
                assert_eq!(directory.control(command).code(), Some(0), "{command}");
            }
            assert!(before.elapsed() < ANSWER_TIME_MAX, "{:?}", before.elapsed());
        }
        disk.release();
        for client in &mut waiting {
            assert_eq!(client.response().body, [CONTENT; FILE_BYTES]);
        }
        assert_eq!(server.server_process_id(), process_id, "the process was not replaced");
    });
}

/// Clients that have requested these files and wait for them.
fn waiting_clients(server: &TestServer, paths: impl Iterator<Item = String>) -> Vec<HttpClient> {
    let connect = |path: String| {
        let mut client = HttpClient::connect(server.http());
        client.send(get(&path));
        client
    };
    paths.map(connect).collect()
}

#[test]
fn many_look_ups_on_a_disk_that_does_not_answer_delay_no_other_directory_or_site() {
    with_stalled_disk(|directory, disk, server| {
        // The disk has several directories in the document root.
        let top_directories = ["disk", "a", "b", "c", "d"];
        for link in &top_directories[1..] {
            std::os::unix::fs::symlink("disk", directory.path().join("public").join(link)).expect("linked");
        }
        let paths = (0..40).map(|number| format!("/{}/{NOT_FOUND_YET}-{number}", top_directories[number % 5]));
        let mut waiting = waiting_clients(&server, paths);
        wait_until("four look-ups in each directory", || disk.waiting_count() == 4 * top_directories.len());
        let mut client = HttpClient::connect(server.http());
        assert_eq!(client.get("/elsewhere/").text(), "elsewhere\n");
        client.send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
        assert_eq!(client.response().text(), "another site\n");
        assert_eq!(disk.waiting_count(), 4 * top_directories.len());
        disk.release();
        for client in &mut waiting {
            assert_eq!(client.response().body, [CONTENT; FILE_BYTES]);
        }
    });
}

#[test]
fn many_reads_that_wait_for_a_disk_delay_no_other_read() {
    with_stalled_disk(|_, disk, server| {
        let mut waiting = waiting_clients(&server, (0..12).map(|number| format!("/disk/{number}{STALLED}")));
        wait_until("all reads", || disk.waiting_count() == waiting.len());
        // A thread reads this content too, even though it is on the same disk.
        let mut client = HttpClient::connect(server.http());
        assert_eq!(client.get(&format!("/disk/{ANSWERED}")).body, [CONTENT; FILE_BYTES]);
        assert_eq!(disk.waiting_count(), waiting.len());
        disk.release();
        for client in &mut waiting {
            assert_eq!(client.response().body, [CONTENT; FILE_BYTES]);
        }
    });
}

#[test]
fn a_replacement_does_not_wait_for_the_exit_of_a_process_that_waits_for_a_disk() {
    with_stalled_disk(|_, disk, server| {
        let _waiting = waiting_client(&server, disk, STALLED);
        // The process's heartbeats stop, and it is killed.
        let process = server.server_process_id();
        assert!(send_signal("STOP", &process.to_string()));
        // A thread that still runs could accept the next client's connection, which nobody would answer then.
        wait_until("the stop of all threads", || threads_have_stopped(process));
        assert_eq!(HttpClient::connect(server.http()).get("/").text(), "hi\n");
        assert_eq!(disk.waiting_count(), 1, "the killed process still waits");
        server.wait_for_error("was killed and does not exit");
        disk.release();
    });
}

/// Whether no thread of the process runs, but for those that wait for the disk.
fn threads_have_stopped(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap()).all(|stat| {
        // The name before the state may contain spaces and brackets.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 'D']))
    })
}

#[test]
fn stop_does_not_wait_for_a_disk_that_does_not_answer() {
    with_stalled_disk(|directory, disk, server| {
        let _waiting = [STALLED, NOT_FOUND_YET].map(|file| waiting_client(&server, disk, file));
        let before = Instant::now();
        let ended = directory.control("stop");
        assert_eq!(ended.code(), Some(0), "{ended}");
        assert!(before.elapsed() < ANSWER_TIME_MAX, "{:?}", before.elapsed());
        disk.release();
        assert_eq!(server.end().code(), Some(0));
    });
}
