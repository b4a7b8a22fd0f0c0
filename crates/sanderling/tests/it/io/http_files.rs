//! Paths without a regular file, and files that change while they are served.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::domain::{Domain, Setup};
use sanderling_testkit::http::{HttpClient, Response, check_serves, get};
use sanderling_testkit::{DEADLINE, RawConnection};

/// Outside of the document root, and never served.
const CANARY: &[u8] = b"the canary sings";
/// Time for an answer on a busy machine. Opening a FIFO would wait for a writer without end.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(1);

#[test]
fn path_that_leads_out_of_the_root_or_to_no_regular_file_is_refused() {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("inside/a.txt", b"a")]);
    let root = domain.folder.path().join("public");
    let outside = domain.folder.write("canary.txt", CANARY);
    let aside = domain.folder.write("public-2/canary.txt", CANARY);
    symlink("../canary.txt", root.join("relative-out")).unwrap();
    symlink(&outside, root.join("absolute-out")).unwrap();
    symlink(aside.parent().unwrap(), root.join("folder-out")).unwrap();
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
        "/folder-out/canary.txt",
        "/folder-out/",
        "/folder-out",
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
        "/..",
        "/../",
        "/inside/../../canary.txt",
        "/inside/../index.html",
        "/./index.html",
        "/%2e%2e/canary.txt",
        "/%2E%2E/canary.txt",
        "/%2e%2e",
        "/.%2e/canary.txt",
        "/%2e%2e%2fcanary.txt",
        "/..%2fcanary.txt",
        "/..%5ccanary.txt",
        "/%252e%252e/canary.txt",
        "/%c0%ae%c0%ae/canary.txt",
        "/inside%2fa.txt",
        "/index.html%00",
        "/index.html%00.txt",
        "/%00",
        "/index.html%0d%0aX:%20y",
        "/.",
        "/...",
        "/.htaccess",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/public-2/canary.txt",
        &format!("/{}", "a".repeat(256)),
        &format!("/{}", "a/".repeat(2_100)),
        &format!("/{}", "%2e%2e/".repeat(500)),
    ] {
        let start = Instant::now();
        let response = HttpClient::connect(domain.server.http()).get(target);
        assert!((400..500).contains(&response.status), "{target}: {}", response.head);
        assert!(start.elapsed() < RESPONSE_TIME_MAX, "{target} took {:?}", start.elapsed());
        let said = response.text();
        assert!(!said.contains("canary") && !said.contains("root:"), "{target}: {said}");
    }
    for target in ["/relative-in", "/inside/a.txt"] {
        assert_eq!(HttpClient::connect(domain.server.http()).get(target).text(), "a", "{target}");
    }
}

/// Clients remove dot segments (RFC 3986 §5.2.4).
#[test]
fn dot_segment_and_nul_get_status_400() {
    let domain = Domain::with_site(&[("index.html", b"hi\n")]);
    for target in ["/..", "/%2e%2e/", "/a/../b", "/%00", "/%2f", "/a%5cb"] {
        assert_eq!(HttpClient::connect(domain.server.http()).get(target).status, 400, "{target}");
    }
    let mut client = HttpClient::connect(domain.server.http());
    client.send(b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.response().status, 400);
}

#[test]
fn file_without_read_permission_gets_status_403() {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("private.txt", CANARY)]);
    let file = domain.folder.path().join("public/private.txt");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&file).is_ok() {
        println!("skipped: this user may read every file");
        return;
    }
    assert_eq!(HttpClient::connect(domain.server.http()).get("/private.txt").status, 403);
}

#[test]
fn replaced_file_is_served_in_its_new_version() {
    let domain = Domain::with_site(&[("index.html", b"old\n"), ("large.bin", &[b'o'; 20_000])]);
    let mut client = HttpClient::connect(domain.server.http());
    let page = (b"old\n".to_vec(), b"new, longer\n".to_vec());
    for (target, (old, new)) in [("index.html", page), ("large.bin", (vec![b'o'; 20_000], vec![b'n'; 30_000]))] {
        let file = domain.folder.path().join("public").join(target);
        let target = format!("/{target}");
        assert!(client.get(&target).body == old);
        fs::rename(domain.folder.write("fresh", &new), &file).unwrap();
        // Until the entry is invalidated, the old version is right, but never a mixture.
        check_becomes(&mut client, &target, |response| {
            assert!(response.body == old || response.body == new, "a mixture of {} bytes", response.body.len());
            response.body == new
        });
        fs::remove_file(&file).unwrap();
        check_becomes(&mut client, &target, |response| response.status == 404);
    }
}

/// Sends requests until the response is the expected one.
#[track_caller]
fn check_becomes(client: &mut HttpClient, target: &str, mut is_expected: impl FnMut(&Response) -> bool) {
    let start = Instant::now();
    while !is_expected(&client.get(target)) {
        assert!(start.elapsed() < Duration::from_secs(10), "{target} is still the old version");
        assert!(client.tcp().is_silent_for(Duration::from_millis(50)));
    }
}

/// More than the socket buffers of a connection hold.
const HUGE_BYTES: usize = 20_000_000;

/// Content in which each MiB differs from the others.
fn huge(salt: u8) -> Vec<u8> {
    (0..HUGE_BYTES).map(|index| salt.wrapping_add((index >> 20) as u8)).collect()
}

/// Changes the file when the client has received its first bytes; returns the received content.
#[track_caller]
fn read_while_changed(change: impl FnOnce(&std::path::Path)) -> (Vec<u8>, Domain) {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("huge.bin", &huge(0))]);
    let mut tcp = RawConnection::open(domain.server.http());
    tcp.send(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let head = tcp.read_until(b"\r\n\r\n");
    let head_bytes = head.windows(4).position(|window| window == b"\r\n\r\n").expect("just found") + 4;
    change(&domain.folder.path().join("public/huge.bin"));
    let content = [head[head_bytes..].to_vec(), tcp.read_to_close()].concat();
    (content, domain)
}

#[test]
fn truncating_a_file_aborts_its_response() {
    let (content, domain) = read_while_changed(|file| {
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(1_000).unwrap();
    });
    assert!(content.len() < HUGE_BYTES, "the client cannot know that the file was truncated");
    check_serves(domain.server.http());
}

#[test]
fn overwriting_a_file_aborts_its_response() {
    let (content, domain) = read_while_changed(|file| {
        use std::io::{Seek, SeekFrom, Write};
        let mut file = fs::OpenOptions::new().write(true).open(file).unwrap();
        file.seek(SeekFrom::Start(HUGE_BYTES as u64 / 2)).unwrap();
        file.write_all(&huge(0x80)[HUGE_BYTES / 2..]).unwrap();
    });
    assert!(content.len() < HUGE_BYTES, "a mixture of two versions");
    check_serves(domain.server.http());
}

#[test]
fn appending_to_a_file_does_not_lengthen_its_response() {
    let (content, _domain) = read_while_changed(|file| {
        use std::io::Write;
        fs::OpenOptions::new().append(true).open(file).unwrap().write_all(&[0xff; 100_000]).unwrap();
    });
    assert!(content.len() <= HUGE_BYTES && huge(0).starts_with(&content), "bytes of another version");
}

#[test]
fn replaced_or_deleted_file_is_sent_to_its_end() {
    for is_removed in [false, true] {
        let (content, domain) = read_while_changed(|file| {
            if is_removed {
                fs::remove_file(file).unwrap();
            } else {
                let fresh = file.with_file_name("fresh");
                fs::write(&fresh, b"new").unwrap();
                fs::rename(fresh, file).unwrap();
            }
        });
        assert!(content == huge(0), "{} bytes of the old version", content.len());
        check_serves(domain.server.http());
    }
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

/// A write through a hard link outside of the site is not reported by inotify. A response that meets the change is aborted,
/// and the next one has the new version, long before the entry is checked again.
#[test]
fn unreported_change_aborts_few_responses() {
    let limits = "watched_file_fresh_ms = 60000\nsmall_file_bytes_max = 100";
    let old = vec![b'o'; 200_000];
    let domain = Domain::serve(Setup { site: &[("large", &old)], limits, ..Setup::default() });
    let root = domain.folder.path();
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
