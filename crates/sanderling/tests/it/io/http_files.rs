//! Paths without a regular file, and files that change while they are served.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::domain::{Domain, Setup};
use sanderling_testkit::http::{HttpClient, get};
use sanderling_testkit::{
    DEADLINE, ListenerCounts, RawConnection, TestDirectory, TestServer, curl, send_signal, wait_until,
};

/// Outside of the document root, and never served.
const CANARY: &[u8] = b"the canary sings";

#[test]
fn path_that_leads_out_of_the_root_or_to_no_regular_file_is_refused() {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("inside/a.txt", b"a")]);
    let root = domain.directory.path().join("public");
    let outside = domain.directory.write("canary.txt", CANARY);
    let aside = domain.directory.write("public-2/canary.txt", CANARY);
    symlink("../canary.txt", root.join("relative-out")).unwrap();
    symlink(&outside, root.join("absolute-out")).unwrap();
    symlink(aside.parent().unwrap(), root.join("directory-out")).unwrap();
    symlink("/etc/passwd", root.join("passwd")).unwrap();
    symlink("/proc/self/environ", root.join("environ")).unwrap();
    symlink("/proc/self/fd/0", root.join("stdin")).unwrap();
    symlink("loop-b", root.join("loop-a")).unwrap();
    symlink("loop-a", root.join("loop-b")).unwrap();
    symlink("nothing", root.join("dangling")).unwrap();
    symlink(root.join("inside/a.txt"), root.join("absolute-in")).unwrap();
    symlink("inside/a.txt", root.join("relative-in")).unwrap();
    check_run(Command::new("mkfifo").arg(root.join("fifo")));
    let _listener = UnixListener::bind(root.join("socket")).unwrap();
    // Without the permission there is no device, and the status is the same.
    let _ = Command::new("mknod").arg(root.join("device")).args(["c", "1", "5"]).output();

    for target in [
        "/relative-out",
        "/absolute-out",
        "/directory-out/canary.txt",
        "/directory-out/",
        "/directory-out",
        "/passwd",
        "/environ",
        "/stdin",
        "/loop-a",
        "/dangling",
        "/fifo",
        "/fifo/",
        "/socket",
        "/device",
        "/../canary.txt",
        "/inside/../../canary.txt",
        "/%2e%2e/canary.txt",
        "/..%2fcanary.txt",
        "/.htaccess",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/public-2/canary.txt",
    ] {
        // Opening a FIFO would wait for a writer without end.
        let response = HttpClient::connect(domain.server.http()).get(target);
        assert!((400..500).contains(&response.status), "{target}: {}", response.head);
        let said = response.text();
        assert!(!said.contains("canary") && !said.contains("root:"), "{target}: {said}");
    }
    for target in ["/relative-in", "/absolute-in", "/inside/a.txt"] {
        assert_eq!(HttpClient::connect(domain.server.http()).get(target).text(), "a", "{target}");
    }
}

/// The sandbox allows the directories of link targets.
#[test]
fn links_lead_to_link_targets_and_files_have_the_media_types_of_the_domain() {
    let directory = TestDirectory::with(&[
        ("public/index.html", b"hi\n"),
        ("public/a.log", b"a"),
        ("uploads/b.log", b"b"),
        ("elsewhere/c.log", CANARY),
    ]);
    let path = |name: &str| directory.path().join(name);
    symlink(path("uploads"), path("public/uploads")).unwrap();
    symlink("../elsewhere", path("public/elsewhere")).unwrap();
    let config = "[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n\
                  link_targets = [\"uploads\"]\nmedia_types = { log = \"text/x-log\" }\n";
    directory.write("sanderling.toml", config.as_bytes());
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 0 });
    for (target, status, content) in [
        ("/a.log", 200, "a"),
        ("/uploads/b.log", 200, "b"),
        ("/uploads/missing.log", 404, ""),
        ("/elsewhere/c.log", 404, ""),
    ] {
        let response = HttpClient::connect(server.http()).get(target);
        assert_eq!(response.status, status, "{target}");
        if status == 200 {
            assert_eq!((response.text().as_str(), response.field("Content-Type")), (content, Some("text/x-log")));
        }
    }
}

#[test]
fn a_domain_may_serve_hidden_files_and_refuse_paths_that_are_not_exact() {
    let files: [(&str, &[u8]); 4] =
        [("a.txt", b"a"), (".hidden/b.txt", b"b"), ("c.txt~", b"c"), (".well-known/d.txt", b"d")];
    for (keys, expected) in [
        ("", [200, 404, 404, 200, 200, 404]),
        ("hidden_files = true", [200, 200, 200, 200, 200, 200]),
        ("exact_paths = true", [200, 404, 404, 200, 404, 404]),
        ("hidden_files = true\nexact_paths = true", [200, 200, 200, 200, 404, 404]),
    ] {
        let directory = TestDirectory::new();
        files.iter().for_each(|(name, content)| drop(directory.write(&format!("public/{name}"), content)));
        let config =
            format!("[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n{keys}\n");
        directory.write("sanderling.toml", config.as_bytes());
        let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 0 });
        let targets =
            ["/a.txt", "/.hidden/b.txt", "/c.txt~", "/.well-known/d.txt", "//x/..//a.txt", "/x/../.hidden%2fb.txt"];
        let statuses = targets.map(|target| HttpClient::connect(server.http()).get(target).status);
        assert_eq!(statuses, expected, "{keys}");
    }
}

#[test]
fn directory_that_becomes_a_file_and_a_directory_again_is_served_as_what_it_is() {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("a/index.html", b"inside\n"), ("a/b.txt", b"b")]);
    let root = domain.directory.path().join("public");
    let (path, aside) = (root.join("a"), root.join("aside"));
    let statuses =
        || ["/a", "/a/", "/a/b.txt"].map(|target| HttpClient::connect(domain.server.http()).get(target).status);
    assert_eq!(statuses(), [301, 200, 200]);
    fs::rename(&path, &aside).unwrap();
    fs::write(&path, b"a file").unwrap();
    wait_until("the file", || statuses() == [200, 308, 404]);
    fs::remove_file(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    wait_until("the directory", || statuses() == [301, 200, 200]);
}

/// The time of a change of the inode cannot be set back. The entity tag of a large file depends on the other time.
#[test]
fn file_whose_modification_time_is_set_back_is_served_with_its_new_content() {
    let (old, new) = (|bytes: usize| vec![b'o'; bytes], |bytes: usize| vec![b'n'; bytes]);
    let files = [("small", 1_000), ("large", 200_000)];
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("small", &old(1_000)), ("large", &old(200_000))]);
    for (name, bytes) in files {
        let file = writable(&domain.directory.path().join("public").join(name));
        let modified = SystemTime::now() - Duration::from_secs(3_600);
        file.set_modified(modified).unwrap();
        let target = format!("/{name}");
        let before = HttpClient::connect(domain.server.http()).get(&target);
        assert!(before.body == old(bytes), "{name}");
        file.write_all_at(&new(bytes), 0).unwrap();
        file.set_modified(modified).unwrap();
        let url = format!("http://{}{target}", domain.server.http());
        // A response that has begun with the old version is cut off.
        wait_until("the new content", || curl(&["-H", "Host: localhost", &url]).output == new(bytes));
        let after = HttpClient::connect(domain.server.http()).get(&target);
        assert_eq!(after.field("Last-Modified"), before.field("Last-Modified"), "{name}");
        assert_eq!(after.field("ETag") == before.field("ETag"), name == "large", "{name}");
    }
}

/// The watcher does not read while its process is stopped, so that the kernel drops the file's event.
#[test]
fn change_that_is_lost_because_the_queue_of_inotify_is_full_is_noticed() {
    let limits = "watched_file_fresh_ms = 600000";
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("a.txt", b"old"), ("x", b""), ("y", b"")];
    let domain = Domain::serve(Setup { site, limits, ..Setup::default() });
    let root = domain.directory.path().join("public");
    let content = || HttpClient::connect(domain.server.http()).get("/a.txt").text();
    wait_until("a watched file", || {
        assert_eq!(content(), "old");
        domain.directory.control("status").text().contains("1 directories watched")
    });
    let queued_max = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queued_max: usize = queued_max.trim().parse().expect("a number");
    let process = domain.server.server_process_id().to_string();
    assert!(send_signal("STOP", &process));
    // Only equal events in succession become one.
    let others = ["x", "y"].map(|name| writable(&root.join(name)));
    for number in 0..=queued_max {
        others[number % 2].write_all_at(b"x", 0).unwrap();
    }
    fs::write(root.join("a.txt"), "new").unwrap();
    assert!(send_signal("CONT", &process));
    wait_until("the new content", || content() == "new");
}

/// More than the socket buffers of a connection hold.
const HUGE_BYTES: usize = 20_000_000;

/// Content in which each MiB differs from the others.
fn huge(salt: u8) -> Vec<u8> {
    (0..HUGE_BYTES).map(|index| salt.wrapping_add((index >> 20) as u8)).collect()
}

/// Changes the file when the client has received its first bytes; returns the received content.
#[track_caller]
fn read_while_changed(change: impl FnOnce(&Path)) -> (Vec<u8>, Domain) {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("huge.bin", &huge(0))]);
    let mut tcp = RawConnection::open(domain.server.http());
    tcp.send(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let head = tcp.read_until(b"\r\n\r\n");
    let head_bytes = head.windows(4).position(|window| window == b"\r\n\r\n").expect("just found") + 4;
    change(&domain.directory.path().join("public/huge.bin"));
    let content = [head[head_bytes..].to_vec(), tcp.read_to_close()].concat();
    (content, domain)
}

#[test]
fn change_of_a_file_aborts_its_response_or_leaves_it_as_it_was() {
    type Change = fn(&Path);
    let changes: [(&str, Change, bool); 5] = [
        ("truncate", |file| writable(file).set_len(1_000).unwrap(), false),
        (
            "overwrite",
            |file| writable(file).write_all_at(&huge(0x80)[..HUGE_BYTES / 2], HUGE_BYTES as u64 / 2).unwrap(),
            false,
        ),
        ("append", |file| writable(file).write_all_at(&[0xff; 100_000], HUGE_BYTES as u64).unwrap(), false),
        ("delete", |file| fs::remove_file(file).unwrap(), true),
        ("replace", |file| fs::rename(file.with_file_name("index.html"), file).unwrap(), true),
    ];
    for (name, change, is_whole) in changes {
        let (content, domain) = read_while_changed(change);
        assert!(name == "overwrite" || huge(0).starts_with(&content), "{name}: bytes of another version");
        assert!(name == "append" || (content.len() == HUGE_BYTES) == is_whole, "{name}: {} bytes", content.len());
        let status = HttpClient::connect(domain.server.http()).get("/huge.bin").status;
        assert!(matches!(status, 200 | 404), "{name}: {status}");
    }
}

fn writable(file: &Path) -> fs::File {
    fs::OpenOptions::new().write(true).open(file).unwrap()
}

/// All share the only worker.
#[test]
fn slow_client_does_not_delay_others() {
    let content = huge(0);
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("huge.bin", &content)];
    let domain = Domain::serve(Setup { site, worker_count: 1, ..Setup::default() });
    let mut slow = HttpClient::connect(domain.server.http());
    slow.send(get("/huge.bin"));
    // The response has begun, and the client does not read it.
    assert!(!slow.tcp().is_silent_for(DEADLINE));
    let mut fast = HttpClient::connect(domain.server.http());
    for _ in 0..100 {
        assert_eq!(fast.get("/").status, 200);
    }
    assert!(fast.get("/huge.bin").body == content);
    assert!(slow.response().body == content, "the slow client receives all");
}

#[track_caller]
fn check_run(command: &mut Command) {
    let output = command.output().expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A write through a hard link outside the site is not reported by inotify. A response that meets the change is
/// aborted, and the next one has the new version, long before the entry is checked again.
#[test]
fn unreported_change_aborts_few_responses() {
    let limits = "watched_file_fresh_ms = 60000\nsmall_file_bytes_max = 100";
    let old = vec![b'o'; 200_000];
    let domain = Domain::serve(Setup { site: &[("large", &old)], limits, ..Setup::default() });
    let root = domain.directory.path();
    fs::hard_link(root.join("public/large"), root.join("elsewhere")).unwrap();
    assert!(HttpClient::connect(domain.server.http()).get("/large").body == old);
    let new = vec![b'n'; 200_000];
    fs::write(root.join("elsewhere"), &new).unwrap();
    let mut aborted_count = 0;
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < DEADLINE);
        let mut client = RawConnection::open(domain.server.http());
        client.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let received = client.read_to_close();
        if received.ends_with(&new) {
            break;
        }
        assert!(received.len() < old.len() || received.starts_with(b"HTTP/1.1 503"), "the old version");
        aborted_count += 1;
    }
    assert!(aborted_count <= 3, "{aborted_count} responses were aborted");
}
