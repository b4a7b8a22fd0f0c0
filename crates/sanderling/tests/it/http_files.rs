//! What a file system holds besides plain files, and files that change while they are sent.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::domain::{Domain, Wanted};
use crate::http_answers::{Answer, HttpConnection, check_serves, get};
use sanderling_testkit::clients::RawConnection;
use sanderling_testkit::process::DEADLINE;

/// What stands outside of every root, and must never be seen.
const CANARY: &[u8] = b"the canary sings";
/// How soon a refusal is due, on a busy machine too: a FIFO without a writer would never answer.
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn what_is_no_file_beneath_the_root_is_refused_at_once() {
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
    // Without the right to make devices there is none, and the answer is the same.
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
        let answer = HttpConnection::open(domain.serving.http()).get(target);
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.head);
        assert!(start.elapsed() < AT_ONCE, "{target} took {:?}", start.elapsed());
        let said = answer.text();
        assert!(!said.contains("canary") && !said.contains("root:"), "{target}: {said}");
    }
    for target in ["/relative-in", "/inside/a.txt"] {
        assert_eq!(HttpConnection::open(domain.serving.http()).get(target).text(), "a", "{target}");
    }
}

/// Dot segments are the client's to take out (RFC 3986 §5.2.4): whoever sends one is up to something.
#[test]
fn dot_segments_and_nul_are_malformed() {
    let domain = Domain::with_site(&[("index.html", b"hi\n")]);
    for target in ["/..", "/%2e%2e/", "/a/../b", "/%00", "/%2f", "/a%5cb"] {
        assert_eq!(HttpConnection::open(domain.serving.http()).get(target).status, 400, "{target}");
    }
    let mut connection = HttpConnection::open(domain.serving.http());
    connection.send(b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(connection.answer().status, 400);
}

#[test]
fn files_that_may_not_be_read_are_forbidden() {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("private.txt", CANARY)]);
    let file = domain.folder.path().join("public/private.txt");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&file).is_ok() {
        println!("permissions do not bind this user: nothing to see");
        return;
    }
    assert_eq!(HttpConnection::open(domain.serving.http()).get("/private.txt").status, 403);
}

#[test]
fn a_file_that_is_replaced_is_served_anew() {
    let domain = Domain::with_site(&[("index.html", b"old\n"), ("large.bin", &[b'o'; 20_000])]);
    let mut connection = HttpConnection::open(domain.serving.http());
    let page = (b"old\n".to_vec(), b"new, longer\n".to_vec());
    for (target, (old, new)) in [("index.html", page), ("large.bin", (vec![b'o'; 20_000], vec![b'n'; 30_000]))] {
        let file = domain.folder.path().join("public").join(target);
        let target = format!("/{target}");
        assert!(connection.get(&target).content == old);
        fs::rename(domain.folder.write("fresh", &new), &file).unwrap();
        // Within the time that an entry stays fresh either version is right, but never a mixture.
        check_becomes(&mut connection, &target, |answer| {
            assert!(answer.content == old || answer.content == new, "a mixture of {} octets", answer.content.len());
            answer.content == new
        });
        fs::remove_file(&file).unwrap();
        check_becomes(&mut connection, &target, |answer| answer.status == 404);
    }
}

/// Asks until the answer is as expected, at the latest some time after an entry's time is over.
#[track_caller]
fn check_becomes(connection: &mut HttpConnection, target: &str, mut is_expected: impl FnMut(&Answer) -> bool) {
    let start = Instant::now();
    while !is_expected(&connection.get(target)) {
        assert!(start.elapsed() < Duration::from_secs(10), "{target} is still the old one");
        assert!(connection.raw().is_silent_for(Duration::from_millis(50)));
    }
}

/// Large enough that no pair of socket buffers holds it.
const HUGE_BYTES: usize = 50_000_000;

/// Content of which each MiB is told apart from the others.
fn huge(salt: u8) -> Vec<u8> {
    (0..HUGE_BYTES).map(|index| salt.wrapping_add((index >> 20) as u8)).collect()
}

/// Changes the file when the client has read its first octets; what the client got in the end.
#[track_caller]
fn read_while_changed(change: impl FnOnce(&std::path::Path)) -> (Vec<u8>, Domain) {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("huge.bin", &huge(0))]);
    let mut raw = RawConnection::open(domain.serving.http());
    raw.send(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let head = raw.read_until(b"\r\n\r\n");
    let head_bytes = head.windows(4).position(|window| window == b"\r\n\r\n").expect("it ends so") + 4;
    change(&domain.folder.path().join("public/huge.bin"));
    let content = [head[head_bytes..].to_vec(), raw.read_to_close()].concat();
    (content, domain)
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_ends_the_connection() {
    let (content, domain) = read_while_changed(|file| {
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(1_000).unwrap();
    });
    assert!(content.len() < HUGE_BYTES, "nothing tells the client that the file was cut");
    check_serves(domain.serving.http());
}

#[test]
fn a_file_that_is_overwritten_while_it_is_sent_ends_the_connection() {
    let (content, domain) = read_while_changed(|file| {
        use std::io::{Seek, SeekFrom, Write};
        let mut file = fs::OpenOptions::new().write(true).open(file).unwrap();
        file.seek(SeekFrom::Start(HUGE_BYTES as u64 / 2)).unwrap();
        file.write_all(&huge(0x80)[HUGE_BYTES / 2..]).unwrap();
    });
    assert!(content.len() < HUGE_BYTES, "a mixture of two versions came as one whole");
    check_serves(domain.serving.http());
}

#[test]
fn a_file_that_grows_while_it_is_sent_ends_at_its_length() {
    let (content, _domain) = read_while_changed(|file| {
        use std::io::Write;
        fs::OpenOptions::new().append(true).open(file).unwrap().write_all(&[0xff; 100_000]).unwrap();
    });
    assert!(content.len() <= HUGE_BYTES && huge(0).starts_with(&content), "octets of another version");
}

#[test]
fn a_file_that_is_replaced_or_removed_while_it_is_sent_comes_whole() {
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
        assert!(content == huge(0), "{} octets of the version that was begun", content.len());
        check_serves(domain.serving.http());
    }
}

/// One worker, so that the slow reader and the others share it.
#[test]
fn a_slow_reader_does_not_hold_others() {
    let content = huge(0);
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("huge.bin", &content)];
    let domain = Domain::serve(Wanted { site, worker_count: 1, ..Wanted::default() });
    let mut slow = HttpConnection::open(domain.serving.http());
    slow.send(get("/huge.bin"));
    // The answer has begun, and nobody reads on.
    assert!(!slow.raw().is_silent_for(DEADLINE));
    let mut quick = HttpConnection::open(domain.serving.http());
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

/// Nobody is told of what is written through a name outside of the site. Who notices it while he is sent the file is cut
/// off; who asks next gets the new version, however long the old one would have been believed.
#[test]
fn a_change_that_is_only_noticed_while_it_is_sent_costs_no_more_than_that_response() {
    let limits = "watched_file_fresh_ms = 60000\nsmall_file_bytes_max = 100";
    let old = vec![b'o'; 200_000];
    let domain = Domain::serve(Wanted { site: &[("large", &old)], limits, ..Wanted::default() });
    let root = domain.folder.path();
    fs::hard_link(root.join("public/large"), root.join("elsewhere")).unwrap();
    assert!(HttpConnection::open(domain.serving.http()).get("/large").content == old);
    let new = vec![b'n'; 200_000];
    fs::write(root.join("elsewhere"), &new).unwrap();
    let mut cut_off_count = 0;
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < DEADLINE);
        let mut connection = RawConnection::open(domain.serving.http());
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
