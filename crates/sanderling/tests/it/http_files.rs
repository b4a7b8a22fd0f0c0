//! Files that are not regular, and files that change while they are sent.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::domain::{Domain, Setup};
use crate::http_answers::{Answer, HttpConnection, check_serves, get};
use sanderling_testkit::{DEADLINE, RawConnection};

/// The content of files outside of all document roots.
const CANARY: &[u8] = b"the canary sings";
/// Time in which a refusal must arrive: a FIFO without a writer would never answer.
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn anything_but_a_file_beneath_the_root_is_refused_at_once() {
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
    made(Command::new("mkfifo").arg(root.join("fifo")));
    let _listener = UnixListener::bind(root.join("socket")).unwrap();
    // Without the right to create devices there is none, and the answer is the same.
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
        let answer = HttpConnection::open(domain.server.http()).get(target);
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.head);
        assert!(start.elapsed() < AT_ONCE, "{target} took {:?}", start.elapsed());
        let received = answer.text();
        assert!(!received.contains("canary") && !received.contains("root:"), "{target}: {received}");
    }
    for target in ["/relative-in", "/inside/a.txt"] {
        assert_eq!(HttpConnection::open(domain.server.http()).get(target).text(), "a", "{target}");
    }
}

/// The client removes dot segments (RFC 3986 §5.2.4).
#[test]
fn dot_segments_and_nul_are_bad_requests() {
    let domain = Domain::with_site(&[("index.html", b"hi\n")]);
    for target in ["/..", "/%2e%2e/", "/a/../b", "/%00", "/%2f", "/a%5cb"] {
        assert_eq!(HttpConnection::open(domain.server.http()).get(target).status, 400, "{target}");
    }
    let mut connection = HttpConnection::open(domain.server.http());
    connection.send(b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(connection.answer().status, 400);
}

#[test]
fn unreadable_files_are_forbidden() {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("private.txt", CANARY)]);
    let file = domain.folder.path().join("public/private.txt");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&file).is_ok() {
        println!("permissions do not bind this user: nothing to see");
        return;
    }
    assert_eq!(HttpConnection::open(domain.server.http()).get("/private.txt").status, 403);
}

#[test]
fn replaced_file_is_served() {
    let domain = Domain::with_site(&[("index.html", b"old\n"), ("large.bin", &[b'o'; 20_000])]);
    let mut connection = HttpConnection::open(domain.server.http());
    let page = (b"old\n".to_vec(), b"new, longer\n".to_vec());
    for (target, (old, new)) in [("index.html", page), ("large.bin", (vec![b'o'; 20_000], vec![b'n'; 30_000]))] {
        let file = domain.folder.path().join("public").join(target);
        let target = format!("/{target}");
        assert!(connection.get(&target).content == old);
        fs::rename(domain.folder.write("fresh", &new), &file).unwrap();
        // While an entry is fresh either version may be served, but never a mixture.
        check_becomes(&mut connection, &target, |answer| {
            assert!(answer.content == old || answer.content == new, "a mixture of {} bytes", answer.content.len());
            answer.content == new
        });
        fs::remove_file(&file).unwrap();
        check_becomes(&mut connection, &target, |answer| answer.status == 404);
    }
}

/// Requests until the response is as expected, at the latest some time after the entry has become stale.
#[track_caller]
fn check_becomes(connection: &mut HttpConnection, target: &str, mut is_expected: impl FnMut(&Answer) -> bool) {
    let start = Instant::now();
    while !is_expected(&connection.get(target)) {
        assert!(start.elapsed() < Duration::from_secs(10), "{target} is still the old one");
        assert!(connection.raw().is_silent_for(Duration::from_millis(50)));
    }
}

/// Larger than all socket buffers.
const HUGE_BYTES: usize = 50_000_000;

/// Content in which each MiB is different.
fn huge(salt: u8) -> Vec<u8> {
    (0..HUGE_BYTES).map(|index| salt.wrapping_add((index >> 20) as u8)).collect()
}

/// Changes the file after the client has read its first bytes, and returns what the client received.
#[track_caller]
fn read_while_changed(change: impl FnOnce(&std::path::Path)) -> (Vec<u8>, Domain) {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("huge.bin", &huge(0))]);
    let mut raw = RawConnection::open(domain.server.http());
    raw.send(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let head = raw.read_until(b"\r\n\r\n");
    let head_bytes = head.windows(4).position(|window| window == b"\r\n\r\n").expect("it ends so") + 4;
    change(&domain.folder.path().join("public/huge.bin"));
    let content = [head[head_bytes..].to_vec(), raw.read_to_close()].concat();
    (content, domain)
}

#[test]
fn file_truncated_while_sent_ends_the_connection() {
    let (content, domain) = read_while_changed(|file| {
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(1_000).unwrap();
    });
    assert!(content.len() < HUGE_BYTES, "the client received all bytes of a truncated file");
    check_serves(domain.server.http());
}

#[test]
fn file_overwritten_while_sent_ends_the_connection() {
    let (content, domain) = read_while_changed(|file| {
        use std::io::{Seek, SeekFrom, Write};
        let mut file = fs::OpenOptions::new().write(true).open(file).unwrap();
        file.seek(SeekFrom::Start(HUGE_BYTES as u64 / 2)).unwrap();
        file.write_all(&huge(0x80)[HUGE_BYTES / 2..]).unwrap();
    });
    assert!(content.len() < HUGE_BYTES, "a mixture of two versions came as one whole");
    check_serves(domain.server.http());
}

#[test]
fn file_appended_to_while_sent_ends_at_its_length() {
    let (content, _domain) = read_while_changed(|file| {
        use std::io::Write;
        fs::OpenOptions::new().append(true).open(file).unwrap().write_all(&[0xff; 100_000]).unwrap();
    });
    assert!(content.len() <= HUGE_BYTES && huge(0).starts_with(&content), "bytes of another version");
}

#[test]
fn file_replaced_or_removed_while_sent_arrives_completely() {
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
        assert!(content == huge(0), "{} bytes of the first version", content.len());
        check_serves(domain.server.http());
    }
}

/// With one worker, which the slow reader and the others share.
#[test]
fn slow_reader_does_not_block_other_clients() {
    let content = huge(0);
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("huge.bin", &content)];
    let domain = Domain::serve(Setup { site, worker_count: 1, ..Setup::default() });
    let mut slow = HttpConnection::open(domain.server.http());
    slow.send(get("/huge.bin"));
    // The response has begun, and the client does not read.
    assert!(!slow.raw().is_silent_for(DEADLINE));
    let mut quick = HttpConnection::open(domain.server.http());
    for _ in 0..100 {
        assert_eq!(quick.get("/").status, 200);
    }
    assert!(quick.get("/huge.bin").content == content);
    assert!(slow.answer().content == content, "the slow one has lost nothing");
}

#[track_caller]
fn made(command: &mut Command) {
    let output = command.output().expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// inotify does not report a write through a name outside of the site. The response that notices it is aborted; the next one has
/// the new version, however long the old one would have been fresh.
#[test]
fn change_noticed_while_sending_aborts_only_that_response() {
    let limits = "watched_file_fresh_ms = 60000\nsmall_file_bytes_max = 100";
    let old = vec![b'o'; 200_000];
    let domain = Domain::serve(Setup { site: &[("large", &old)], limits, ..Setup::default() });
    let root = domain.folder.path();
    fs::hard_link(root.join("public/large"), root.join("elsewhere")).unwrap();
    assert!(HttpConnection::open(domain.server.http()).get("/large").content == old);
    let new = vec![b'n'; 200_000];
    fs::write(root.join("elsewhere"), &new).unwrap();
    let mut cut_off_count = 0;
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < DEADLINE);
        let mut connection = RawConnection::open(domain.server.http());
        connection.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let received = connection.read_to_close();
        if received.ends_with(&new) {
            break;
        }
        assert!(received.len() < old.len() || received.starts_with(b"HTTP/1.1 503"), "an old version, whole");
        cut_off_count += 1;
    }
    assert!(cut_off_count <= 3, "{cut_off_count} responses were cut off");
}
