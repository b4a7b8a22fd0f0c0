//! Precompressed files: the choice for a client, and files that are out of date.

use std::fs::{self};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::domain::{Domain, Setup};
use sanderling_testkit::http::{HttpClient, Response};
use sanderling_testkit::{DEADLINE, curl, wait_until};

/// The content of [`BROTLI`], [`ZSTD`] and [`GZIP`].
const LINES: &[u8] = &lines();

const BROTLI: &[u8] =
    b"\xb1\x58\x22\xc0\x2f\x6e\x63\xdf\x71\x9e\xa0\x48\x10\x8e\x8a\x02\x23\x80\xf6\x3f\x2b\xdf\x4e\x03";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x60\x4c\x03\x95\x00\x00\x58sanderling\n\x01\x00\x3e\xf8\x2f\x5e";
const GZIP: &[u8] =
    b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\x2b\x4e\xcc\x4b\x49\x2d\xca\xc9\xcc\x4b\xe7\x2a\x1e\x65\x8e\x32\x47\x99\
    \xa3\x4c\x72\x99\0\x0b\xbf\xdf\x65\x4c\x04\0\0";

/// A file compressed from a pipe with `zstd --ultra -22`: browsers refuse its window of 128 MiB (RFC 9659).
const LARGE_WINDOW_ZSTD: &[u8] =
    b"\x28\xb5\x2f\xfd\x04\x88\x95\x00\x00\x58sanderling\n\x01\x00\x3e\xf8\x2f\x5e\xa9\x2f\x81\xda";

/// Longer than a response waits for a file that is being written.
const AFTER_A_WRITE: Duration = Duration::from_secs(1);
/// Time between two requests.
const PAUSE: Duration = Duration::from_millis(2);

/// A compressed file of `decoded_bytes`, of which the server examines the start and the end.
fn large_gzip(decoded_bytes: usize) -> Vec<u8> {
    let mut content = vec![b'g'; 40_000];
    content[..3].copy_from_slice(b"\x1f\x8b\x08");
    content[39_996..].copy_from_slice(&(decoded_bytes as u32).to_le_bytes());
    content
}

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

/// A site where the server compresses nothing itself.
fn with_site(site: &[(&str, &[u8])]) -> Domain {
    Domain::serve(Setup { site, limits: "compressed_content_bytes_max = 0", ..Setup::default() })
}

/// A site with small files, sent from memory, and large ones, sent from their descriptors.
fn domain() -> Domain {
    let large = [b'p'; 60_000];
    with_site(&[
        ("index.html", b"<!doctype html><title>plain</title>"),
        ("index.html.br", b"index in br"),
        ("app.js", LINES),
        ("app.js.br", BROTLI),
        ("app.js.zst", ZSTD),
        ("app.js.gz", GZIP),
        ("large.txt", &large),
        ("large.txt.br", &[b'b'; 30_000]),
        ("large.txt.gz", &large_gzip(large.len())),
        ("alone.css", b"body {}"),
    ])
}

/// A client that accepts codings.
struct Client(HttpClient);

impl Client {
    #[track_caller]
    fn connect(domain: &Domain) -> Client {
        Client(HttpClient::connect(domain.server.http()))
    }

    /// Sends a request with these field lines, each with CRLF, and reads the response.
    #[track_caller]
    fn request(&mut self, method: &str, target: &str, fields: &str) -> Response {
        self.0.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        if method == "HEAD" { self.0.response_to_head() } else { self.0.response() }
    }

    #[track_caller]
    fn get(&mut self, target: &str, accepted: &str) -> Response {
        self.request("GET", target, &format!("Accept-Encoding: {accepted}\r\n"))
    }

    /// Sends requests until the response has this coding.
    #[track_caller]
    fn wait_for_coding(&mut self, target: &str, coding: Option<&str>) -> Response {
        self.wait_until(target, |response| response.field("Content-Encoding") == coding)
    }

    /// Sends requests until the response is the expected one.
    #[track_caller]
    fn wait_until(&mut self, target: &str, is_expected: impl Fn(&Response) -> bool) -> Response {
        let start = Instant::now();
        loop {
            let response = self.get(target, "br, gzip");
            assert_eq!(response.status, 200, "{target}: {}", response.head);
            if is_expected(&response) {
                return response;
            }
            assert!(start.elapsed() < DEADLINE, "{target} is still the same: {}", response.head);
            thread::park_timeout(PAUSE);
        }
    }
}

/// Checks the coding of one of several variants.
#[track_caller]
fn check_variant(response: &Response, coding: Option<&str>, content: &[u8]) {
    assert_eq!(response.field("Content-Encoding"), coding, "{}", response.head);
    assert_eq!(response.field("Vary"), Some("Accept-Encoding"), "{}", response.head);
    assert!(response.body == content, "{}\n{}", response.head, response.body.escape_ascii());
}

/// Checks that the response is a file without variants.
#[track_caller]
fn check_only(response: &Response, content: &[u8]) {
    assert_eq!((response.field("Content-Encoding"), response.field("Vary")), (None, None), "{}", response.head);
    assert!(response.body == content, "{}\n{}", response.head, response.body.escape_ascii());
}

#[test]
fn curl_decodes_each_coding() {
    let domain = domain();
    let url = format!("http://{}/app.js", domain.server.http());
    let output = domain.directory.argument("output");
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
    // The codings that curl accepts by itself, and no Accept-Encoding.
    let ended = curl(&["--compressed", "--write-out", " %header{content-encoding}", &url]);
    assert!(ended.output == [LINES, b" br"].concat(), "{ended}");
    assert!(curl(&[&url]).output == LINES);
}

#[test]
fn pipelined_requests_get_different_codings() {
    let domain = domain();
    let mut client = Client::connect(&domain);
    let accepted = ["br", "gzip", "", "gzip;q=0.5, br", "zstd, gzip;q=0"];
    let request =
        |accepted: &&str| format!("GET /large.txt HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {accepted}\r\n\r\n");
    client.0.send(accepted.iter().map(request).collect::<String>());
    let (brotli, gzip, plain) = (vec![b'b'; 30_000], large_gzip(60_000), vec![b'p'; 60_000]);
    for (accepted, (coding, content)) in accepted.iter().zip([
        (Some("br"), &brotli),
        (Some("gzip"), &gzip),
        (None, &plain),
        (Some("br"), &brotli),
        (None, &plain),
    ]) {
        println!("{accepted:?}");
        check_variant(&client.0.response(), coding, content);
    }
}

#[test]
fn precompressed_file_has_no_coding_under_its_own_name() {
    let domain = domain();
    let mut client = Client::connect(&domain);
    for (target, media_type, content) in [
        ("/app.js.gz", "application/gzip", GZIP),
        ("/app.js.zst", "application/zstd", ZSTD),
        ("/app.js.br", "application/octet-stream", BROTLI),
    ] {
        let response = client.get(target, "br, gzip, zstd");
        check_only(&response, content);
        assert_eq!(response.field("Content-Type"), Some(media_type));
    }
}

#[test]
fn only_valid_precompressed_files_are_used() {
    let domain = with_site(&[
        ("index.html", b"hi\n"),
        ("photo.png", b"a compressed type"),
        ("photo.png.br", b"photo"),
        ("directory.js", b"a directory"),
        ("directory.js.br/index.html", b"directory"),
        ("fifo.js", b"a FIFO"),
        ("out.js", b"a symbolic link out of the root"),
        ("twice.js.br", b"a file that is requested by this name"),
        ("twice.js.br.gz", b"twice"),
        ("lone.js.br", b"neither brotli nor beside a file"),
        ("app.js", LINES),
        ("app.js.zst", LARGE_WINDOW_ZSTD),
        ("app.js.gz", b"no gzip"),
    ]);
    let root = domain.directory.path().join("public");
    domain.directory.write("outside.js", b"out");
    symlink("../outside.js", root.join("out.js.br")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("fifo.js.br")).status().unwrap().success());
    let mut client = Client::connect(&domain);
    for name in ["photo.png", "directory.js", "fifo.js", "out.js", "twice.js.br", "app.js"] {
        let content = fs::read(root.join(name)).unwrap();
        check_only(&client.get(&format!("/{name}"), "br, gzip, zstd"), &content);
    }
    assert_eq!(client.get("/lone.js", "br").status, 404);
}

#[test]
fn a_precompressed_file_serves_its_url_without_the_file_itself() {
    let site: &[(&str, &[u8])] =
        &[("index.html", b"hi\n"), ("app.js.br", BROTLI), ("app.js.gz", GZIP), ("page/index.html.zst", ZSTD)];
    let domain = Domain::with_site(site);
    let mut client = Client::connect(&domain);
    let mut tags = Vec::new();
    for (accepted, coding, content) in
        [("br", Some("br"), BROTLI), ("gzip", Some("gzip"), GZIP), ("zstd", None, LINES), ("", None, LINES)]
    {
        let response = client.get("/app.js", accepted);
        check_variant(&response, coding, content);
        assert_eq!(response.field("Content-Type"), Some("text/javascript; charset=utf-8"));
        let tag = response.field("ETag").expect("an entity tag").to_owned();
        let fields = format!("Accept-Encoding: {accepted}\r\nIf-None-Match: {tag}\r\n");
        assert_eq!(client.request("GET", "/app.js", &fields).status, 304, "{accepted}");
        let fields = format!("Accept-Encoding: {accepted}\r\nRange: bytes=2-5\r\nIf-Range: {tag}\r\n");
        let part = client.request("GET", "/app.js", &fields);
        assert_eq!((part.status, &part.body[..]), (206, &content[2..6]), "{accepted}");
        assert_eq!(
            client.request("HEAD", "/app.js", &fields).field("Content-Length"),
            Some(&*content.len().to_string())
        );
        tags.push(tag);
    }
    assert!(tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2] && tags[2] == tags[3], "{tags:?}");
    check_variant(&client.get("/page/", "br"), None, LINES);
    check_variant(&client.get("/page/", "zstd"), Some("zstd"), ZSTD);

    // A precompressed file that appears later is noticed, as are the file itself and the removal of both.
    assert_eq!(client.get("/late.js", "br").status, 404);
    domain.directory.write("public/late.js.br", BROTLI);
    wait_until("the new precompressed file is used", || client.get("/late.js", "br").status == 200);
    domain.directory.write("public/late.js", b"a shorter file\n");
    check_only(
        &client.wait_until("/late.js", |response| response.body != LINES && response.body != BROTLI),
        b"a shorter file\n",
    );
    for name in ["late.js", "late.js.br"] {
        fs::remove_file(domain.directory.path().join("public").join(name)).unwrap();
    }
    wait_until("the file is gone", || client.get("/late.js", "br").status == 404);

    // No content is decoded if there is no memory for it.
    assert_eq!(Client::connect(&with_site(site)).get("/app.js", "br").status, 404);
}

#[test]
fn created_changed_or_deleted_precompressed_file_is_noticed() {
    let domain = with_site(&[("index.html", b"hi\n"), ("directory/app.js", LINES), ("directory/index.html", LINES)]);
    for (target, path) in
        [("/directory/app.js", "public/directory/app.js"), ("/directory/", "public/directory/index.html")]
    {
        let mut client = Client::connect(&domain);
        let mut other = Client::connect(&domain);
        check_only(&client.get(target, "br, gzip"), LINES);
        check_only(&other.get(target, "br, gzip"), LINES);

        domain.directory.write(&format!("{path}.gz"), GZIP);
        check_variant(&client.wait_for_coding(target, Some("gzip")), Some("gzip"), GZIP);
        // All workers share the entry.
        check_variant(&other.get(target, "br, gzip"), Some("gzip"), GZIP);
        check_variant(&client.get(target, "br"), None, LINES);

        let tag = client.get(target, "gzip").field("ETag").unwrap().to_owned();
        // Another operating system in its header.
        let another = [&GZIP[..9], &[255], &GZIP[10..]].concat();
        fs::rename(domain.directory.write("fresh", &another), domain.directory.path().join(format!("{path}.gz")))
            .unwrap();
        let changed = client.wait_until(target, |response| response.body != GZIP);
        check_variant(&changed, Some("gzip"), &another);
        assert_ne!(changed.field("ETag"), Some(tag.as_str()));

        domain.directory.write(&format!("{path}.br"), BROTLI);
        check_variant(&client.wait_for_coding(target, Some("br")), Some("br"), BROTLI);
        for ending in ["br", "gz"] {
            fs::remove_file(domain.directory.path().join(format!("{path}.{ending}"))).unwrap();
        }
        check_only(&client.wait_for_coding(target, None), LINES);
    }
}

#[test]
fn continuous_writes_to_a_precompressed_file_delay_no_response() {
    let domain = with_site(&[("index.html", b"hi\n"), ("app.js", LINES)]);
    let path = domain.directory.path().join("public/app.js.br");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !is_done.load(Ordering::Relaxed) && start.elapsed() < DEADLINE {
                fs::write(&path, BROTLI).unwrap();
            }
        });
        wait_until("the file is there", || path.exists());
        let mut client = Client::connect(&domain);
        let answers = (0..20).map(|_| client.get("/app.js", "br"));
        let is_valid = |response: &Response| match response.field("Content-Encoding") {
            None => response.status == 200 && response.body == LINES,
            // A complete write.
            Some(_) => response.body == BROTLI,
        };
        let wrong: Vec<_> = answers.filter(|response| !is_valid(response)).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{wrong:?}");
    });
    let is_coded = |response: &Response| response.field("Content-Encoding").is_some();
    // The last write may abort a response.
    thread::park_timeout(AFTER_A_WRITE);
    let mut client = Client::connect(&domain);
    check_variant(&client.wait_until("/app.js", is_coded), Some("br"), BROTLI);
}
