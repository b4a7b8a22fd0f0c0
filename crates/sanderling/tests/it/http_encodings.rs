//! Precompressed files beside the plain ones: which client gets which, and what happens when one of them is out of date.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::domain::Domain;
use crate::http_answers::{Answer, HttpConnection};
use sanderling_testkit::{DEADLINE, curl};

/// The content of [`BROTLI`], [`ZSTD`] and [`GZIP`].
const LINES: &[u8] = &lines();

const BROTLI: &[u8] =
    b"\xb1\x58\x22\xc0\x2f\x6e\x63\xdf\x71\x9e\xa0\x48\x10\x8e\x8a\x02\x23\x80\xf6\x3f\x2b\xdf\x4e\x03";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x60\x4c\x03\x95\x00\x00\x58sanderling\n\x01\x00\x3e\xf8\x2f\x5e";
const GZIP: &[u8] =
    b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\x2b\x4e\xcc\x4b\x49\x2d\xca\xc9\xcc\x4b\xe7\x2a\x1e\x65\x8e\x32\x47\x99\
    \xa3\x4c\x72\x99\0\x0b\xbf\xdf\x65\x4c\x04\0\0";

/// Time in which a changed file must be visible. A request at once waits until the file settles.
const SOON: Duration = Duration::from_secs(1);
/// The same for a file that was being written for long: it is checked once a second.
const LATER: Duration = Duration::from_secs(3);
/// Time between two checks for a change.
const PAUSE: Duration = Duration::from_millis(2);

const fn lines() -> [u8; 1_100] {
    let line = *b"sanderling\n";
    let mut lines = [0; 1_100];
    let mut index = 0;
    while index < lines.len() {
        lines[index] = line[index % line.len()];
        index += 1;
    }
    lines
}

/// Changes the modification time of a file.
#[track_caller]
fn set_modified(path: PathBuf, modified: SystemTime) {
    let file = File::options().write(true).open(path).expect("a file of the site");
    file.set_modified(modified).expect("no error");
}

/// A site with `app.js` in all codings, small and large, which are sent in different ways.
fn domain() -> Domain {
    let large = [b'p'; 60_000];
    Domain::with_site(&[
        ("index.html", b"<!doctype html><title>plain</title>"),
        ("index.html.br", b"index in br"),
        ("app.js", LINES),
        ("app.js.br", BROTLI),
        ("app.js.zst", ZSTD),
        ("app.js.gz", GZIP),
        ("large.txt", &large),
        ("large.txt.br", &[b'b'; 30_000]),
        ("large.txt.gz", &[b'g'; 40_000]),
        ("alone.css", b"body {}"),
    ])
}

impl HttpConnection {
    /// Sends a request for `target` with these field lines, each with its line end, and reads the response.
    #[track_caller]
    fn ask(&mut self, method: &str, target: &str, fields: &str) -> Answer {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        if method == "HEAD" { self.answer_to_head() } else { self.answer() }
    }

    #[track_caller]
    fn ask_in(&mut self, target: &str, accepted: &str) -> Answer {
        self.ask("GET", target, &format!("Accept-Encoding: {accepted}\r\n"))
    }

    /// Requests until the response has this coding, at most for [`SOON`].
    #[track_caller]
    fn wait_for_coding(&mut self, target: &str, coding: Option<&str>) -> Answer {
        self.wait_until(target, SOON, |answer| answer.field("Content-Encoding") == coding)
    }

    /// Requests until the response is as expected.
    #[track_caller]
    fn wait_until(&mut self, target: &str, within: Duration, is_it: impl Fn(&Answer) -> bool) -> Answer {
        let start = Instant::now();
        loop {
            let answer = self.ask_in(target, "br, gzip");
            assert_eq!(answer.status, 200, "{target}: {}", answer.head);
            if is_it(&answer) {
                return answer;
            }
            assert!(start.elapsed() < within, "{target} is still the same: {}", answer.head);
            thread::park_timeout(PAUSE);
        }
    }
}

/// Checks a response in a coding, and that it says that there are variants.
#[track_caller]
fn check_variant(answer: &Answer, coding: Option<&str>, content: &[u8]) {
    assert_eq!(answer.field("Content-Encoding"), coding, "{}", answer.head);
    assert_eq!(answer.field("Vary"), Some("Accept-Encoding"), "{}", answer.head);
    assert!(answer.content == content, "{}\n{}", answer.head, answer.content.escape_ascii());
}

/// Checks that a response is the plain file, and that there are no variants.
#[track_caller]
fn check_only(answer: &Answer, content: &[u8]) {
    assert_eq!((answer.field("Content-Encoding"), answer.field("Vary")), (None, None), "{}", answer.head);
    assert!(answer.content == content, "{}\n{}", answer.head, answer.content.escape_ascii());
}

#[test]
fn curl_gets_and_decodes_each_coding() {
    let domain = domain();
    let url = format!("http://{}/app.js", domain.server.http());
    let output = domain.folder.argument("output");
    for (accepted, coding, transferred) in [
        ("br", "br", BROTLI.len()),
        ("zstd", "zstd", ZSTD.len()),
        ("gzip", "gzip", GZIP.len()),
        ("gzip;q=0.5, br;q=0.4", "gzip", GZIP.len()),
        ("identity", "", LINES.len()),
    ] {
        let field = format!("Accept-Encoding: {accepted}");
        let format = "%{size_download} %header{content-encoding}";
        let ended = curl(&["--compressed", "--header", &field, "--output", &output, "--write-out", format, &url]);
        assert_eq!(ended.text().trim_end(), format!("{transferred} {coding}").trim_end(), "{ended}");
        assert!(fs::read(&output).unwrap() == LINES, "{accepted}");
    }
    // The codings of curl itself, and no Accept-Encoding.
    let ended = curl(&["--compressed", "--write-out", " %header{content-encoding}", &url]);
    assert!(ended.output == [LINES, b" br"].concat(), "{ended}");
    assert!(curl(&[&url]).output == LINES);
}

#[test]
fn preferred_coding_of_the_client_is_sent() {
    let domain = domain();
    let mut connection = HttpConnection::open(domain.server.http());
    for (accepted, coding, content) in [
        ("gzip, deflate, br, zstd", Some("br"), BROTLI),
        ("gzip, deflate, zstd", Some("zstd"), ZSTD),
        ("gzip, deflate", Some("gzip"), GZIP),
        ("br;q=1", Some("br"), BROTLI),
        ("br;q=0.8, gzip;q=1", Some("gzip"), GZIP),
        ("br;q=0, *", Some("zstd"), ZSTD),
        ("*", Some("br"), BROTLI),
        ("gzip;q=0", None, LINES),
        ("*;q=0", None, LINES),
        ("identity;q=0", None, LINES),
        ("identity;q=1, *;q=0", None, LINES),
        ("deflate", None, LINES),
        ("br;q=2", None, LINES),
        ("", None, LINES),
    ] {
        let answer = connection.ask_in("/app.js", accepted);
        check_variant(&answer, coding, content);
        assert_eq!(answer.field("Content-Type"), Some("text/javascript; charset=utf-8"), "{accepted}");
    }
    check_variant(&connection.ask("GET", "/app.js", ""), None, LINES);
    let two_lines = "Accept-Encoding: gzip\r\nX-Between: a\r\nAccept-Encoding: br;q=0.5\r\n";
    check_variant(&connection.ask("GET", "/app.js", two_lines), Some("gzip"), GZIP);
    check_variant(&connection.ask_in("/large.txt", "zstd, br"), Some("br"), &[b'b'; 30_000]);
    check_variant(&connection.ask_in("/large.txt", "gzip"), Some("gzip"), &[b'g'; 40_000]);
    check_variant(&connection.ask_in("/large.txt", "zstd"), None, &[b'p'; 60_000]);
    check_variant(&connection.ask_in("/", "br"), Some("br"), b"index in br");
    check_only(&connection.ask_in("/alone.css", "br, gzip"), b"body {}");
}

#[test]
fn pipelined_requests_get_their_own_codings() {
    let domain = domain();
    let mut connection = HttpConnection::open(domain.server.http());
    let accepted = ["br", "gzip", "", "gzip;q=0.5, br", "zstd, gzip;q=0"];
    let request =
        |accepted: &&str| format!("GET /large.txt HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {accepted}\r\n\r\n");
    connection.send(accepted.iter().map(request).collect::<String>());
    for (accepted, (coding, byte, length)) in accepted.iter().zip([
        (Some("br"), b'b', 30_000),
        (Some("gzip"), b'g', 40_000),
        (None, b'p', 60_000),
        (Some("br"), b'b', 30_000),
        (None, b'p', 60_000),
    ]) {
        println!("{accepted:?}");
        check_variant(&connection.answer(), coding, &vec![byte; length]);
    }
}

#[test]
fn variants_have_their_own_validators_and_ranges() {
    let domain = domain();
    let mut connection = HttpConnection::open(domain.server.http());
    for target in ["/app.js", "/large.txt"] {
        let mut tags = Vec::new();
        for accepted in ["br", "gzip", "identity"] {
            let fields = format!("Accept-Encoding: {accepted}\r\n");
            let whole = connection.ask("GET", target, &fields);
            let head = connection.ask("HEAD", target, &fields);
            assert_eq!(without_date(&head), without_date(&whole), "{target} in {accepted}");
            assert_eq!(whole.field("Content-Length"), Some(whole.content.len().to_string().as_str()));

            let tag = whole.field("ETag").unwrap().to_owned();
            let same = connection.ask("GET", target, &format!("{fields}If-None-Match: {tag}\r\n"));
            assert_eq!((same.status, same.field("ETag")), (304, Some(tag.as_str())), "{}", same.head);
            assert_eq!((same.field("Vary"), same.field("Content-Encoding")), (Some("Accept-Encoding"), None));

            let range = "Range: bytes=3-9\r\n";
            let part = connection.ask("GET", target, &format!("{fields}{range}If-Range: {tag}\r\n"));
            assert_eq!(part.status, 206, "{}", part.head);
            let expected = format!("bytes 3-9/{}", whole.content.len());
            assert_eq!(part.field("Content-Range"), Some(expected.as_str()));
            check_variant(&part, whole.field("Content-Encoding"), &whole.content[3..=9]);
            tags.push(tag);
        }
        // A validator of one variant does not match another.
        for (accepted, other) in [("br", &tags[1]), ("br", &tags[2]), ("identity", &tags[0])] {
            let fields = format!("Accept-Encoding: {accepted}\r\n");
            let new = connection.ask("GET", target, &format!("{fields}If-None-Match: {other}\r\n"));
            assert_eq!(new.status, 200, "{}", new.head);
            let whole = connection.ask("GET", target, &format!("{fields}Range: bytes=3-9\r\nIf-Range: {other}\r\n"));
            assert_eq!(whole.status, 200, "{}", whole.head);
        }
    }
}

fn without_date(answer: &Answer) -> Vec<&str> {
    answer.head.lines().filter(|line| !line.starts_with("Date: ")).collect()
}

#[test]
fn precompressed_file_is_served_under_its_own_name() {
    let domain = domain();
    let mut connection = HttpConnection::open(domain.server.http());
    for (target, media_type, content) in [
        ("/app.js.gz", "application/gzip", GZIP),
        ("/app.js.zst", "application/zstd", ZSTD),
        ("/app.js.br", "application/octet-stream", BROTLI),
    ] {
        let answer = connection.ask_in(target, "br, gzip, zstd");
        check_only(&answer, content);
        assert_eq!(answer.field("Content-Type"), Some(media_type));
    }
}

#[test]
fn unusable_precompressed_files_are_ignored() {
    let domain = Domain::with_site(&[
        ("index.html", b"hi\n"),
        ("longer.js", b"short"),
        ("longer.js.br", b"longer"),
        ("same.js", b"equal"),
        ("same.js.br", b"EQUAL"),
        ("empty.js", b"no file in a coding is empty"),
        ("empty.js.br", b""),
        ("photo.png", b"a photo is packed"),
        ("photo.png.br", b"photo"),
        ("folder.js", b"beside it is a folder"),
        ("folder.js.br/index.html", b"folder"),
        ("fifo.js", b"beside it is a FIFO"),
        ("out.js", b"beside it is a link that leads out"),
        ("twice.js.br", b"a file by this name is what it is"),
        ("twice.js.br.gz", b"twice"),
        ("lone.js.br", b"nothing is beside it"),
    ]);
    let root = domain.folder.path().join("public");
    domain.folder.write("outside.js", b"out");
    symlink("../outside.js", root.join("out.js.br")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("fifo.js.br")).status().unwrap().success());
    let mut connection = HttpConnection::open(domain.server.http());
    for name in ["longer.js", "same.js", "empty.js", "photo.png", "folder.js", "fifo.js", "out.js", "twice.js.br"] {
        let content = fs::read(root.join(name)).unwrap();
        check_only(&connection.ask_in(&format!("/{name}"), "br, gzip, zstd"), &content);
    }
    assert_eq!(connection.ask_in("/lone.js", "br").status, 404);
}

#[test]
fn precompressed_file_older_than_the_plain_one_is_not_used() {
    let domain = domain();
    let root = domain.folder.path().join("public");
    let mut connection = HttpConnection::open(domain.server.http());
    check_variant(&connection.ask_in("/app.js", "br, gzip"), Some("br"), BROTLI);
    let plain_modified = fs::metadata(root.join("app.js")).unwrap().modified().unwrap();
    set_modified(root.join("app.js.br"), plain_modified - Duration::from_secs(1));
    connection.wait_for_coding("/app.js", Some("gzip"));
    set_modified(root.join("app.js.br"), plain_modified);
    connection.wait_for_coding("/app.js", Some("br"));

    // The plain file changes, and the precompressed ones do not.
    let changed = b"the file has been changed, and not compressed again";
    domain.folder.write("public/app.js", changed);
    let is_new = |answer: &Answer| {
        let is_new = answer.field("Content-Encoding").is_none();
        assert!(is_new || answer.content == BROTLI, "{}", answer.head);
        is_new
    };
    check_only(&connection.wait_until("/app.js", SOON, is_new), changed);
    domain.folder.write("public/app.js.gz", b"compressed again");
    check_variant(&connection.wait_for_coding("/app.js", Some("gzip")), Some("gzip"), b"compressed again");
}

/// The program `brotli` up to 1.0.9 copies the modification time without the fraction of the second.
#[test]
fn time_in_whole_seconds_is_not_older_than_its_fraction() {
    let domain = domain();
    let root = domain.folder.path().join("public");
    let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    set_modified(root.join("app.js"), second + Duration::from_millis(999));
    set_modified(root.join("app.js.br"), second);
    set_modified(root.join("app.js.gz"), second + Duration::from_millis(998));
    set_modified(root.join("app.js.zst"), second - Duration::from_secs(1));
    let mut connection = HttpConnection::open(domain.server.http());
    check_variant(&connection.ask_in("/app.js", "br, gzip, zstd"), Some("br"), BROTLI);
    check_variant(&connection.ask_in("/app.js", "gzip, zstd"), None, LINES);
}

#[test]
fn new_changed_and_removed_precompressed_files_are_noticed_soon() {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("folder/app.js", LINES), ("folder/index.html", LINES)]);
    for (target, path) in [("/folder/app.js", "public/folder/app.js"), ("/folder/", "public/folder/index.html")] {
        let mut connection = HttpConnection::open(domain.server.http());
        let mut other = HttpConnection::open(domain.server.http());
        check_only(&connection.ask_in(target, "br, gzip"), LINES);
        check_only(&other.ask_in(target, "br, gzip"), LINES);

        domain.folder.write(&format!("{path}.gz"), GZIP);
        check_variant(&connection.wait_for_coding(target, Some("gzip")), Some("gzip"), GZIP);
        // All workers share the entry.
        check_variant(&other.ask_in(target, "br, gzip"), Some("gzip"), GZIP);
        check_variant(&connection.ask_in(target, "br"), None, LINES);

        let tag = connection.ask_in(target, "gzip").field("ETag").unwrap().to_owned();
        fs::rename(domain.folder.write("fresh", b"another"), domain.folder.path().join(format!("{path}.gz"))).unwrap();
        let changed = connection.wait_until(target, SOON, |answer| answer.content != GZIP);
        check_variant(&changed, Some("gzip"), b"another");
        assert_ne!(changed.field("ETag"), Some(tag.as_str()));

        domain.folder.write(&format!("{path}.br"), BROTLI);
        check_variant(&connection.wait_for_coding(target, Some("br")), Some("br"), BROTLI);
        for ending in ["br", "gz"] {
            fs::remove_file(domain.folder.path().join(format!("{path}.{ending}"))).unwrap();
        }
        check_only(&connection.wait_for_coding(target, None), LINES);
    }
}

#[test]
fn precompressed_file_that_keeps_changing_blocks_no_request() {
    let domain = Domain::with_site(&[("index.html", b"hi\n"), ("app.js", LINES)]);
    let path = domain.folder.path().join("public/app.js.br");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !is_over.load(Ordering::Relaxed) && start.elapsed() < DEADLINE {
                fs::write(&path, BROTLI).unwrap();
            }
        });
        while !path.exists() {
            thread::yield_now();
        }
        let mut connection = HttpConnection::open(domain.server.http());
        let answers = (0..20).map(|_| connection.ask_in("/app.js", "br"));
        let is_right = |answer: &Answer| match answer.field("Content-Encoding") {
            None => answer.status == 200 && answer.content == LINES,
            // The writer waited for a whole write.
            Some(_) => answer.content == BROTLI,
        };
        let wrong: Vec<_> = answers.filter(|answer| !is_right(answer)).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{wrong:?}");
    });
    let is_coded = |answer: &Answer| answer.field("Content-Encoding").is_some();
    // The last write may abort a response in progress, which is not the subject here.
    thread::park_timeout(SOON);
    let mut connection = HttpConnection::open(domain.server.http());
    check_variant(&connection.wait_until("/app.js", LATER, is_coded), Some("br"), BROTLI);
}
