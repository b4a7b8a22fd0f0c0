//! Responses to curl over HTTPS, in both versions of HTTP, which equal the responses without encryption.

use super::{BOTH, domain};
use sanderling_testkit::{TestDirectory, TestServer, curl, random_bytes, run_program, seed};
use std::fs;
use std::net::SocketAddr;

const FILE_COUNT: usize = 300;
const LARGE_BYTES: usize = 20_000_000;

struct Site {
    directory: TestDirectory,
    _server: TestServer,
    https: SocketAddr,
}

impl Site {
    /// The domain of all tests with some more files.
    fn start(files: &[(&str, &[u8])]) -> Site {
        let directory = domain();
        files.iter().for_each(|(path, content)| drop(directory.write(path, content)));
        let mut server = TestServer::start_command(directory.serve_command(), BOTH);
        let https = server.encrypted("https");
        Site { directory, _server: server, https }
    }

    /// The output of curl for each version of HTTP.
    #[track_caller]
    fn get(&self, path: &str, options: &[&str]) -> [String; 2] {
        let (certificate, connect_to) = (self.directory.argument("chain.pem"), format!("::{}", self.https));
        let url = format!("https://example.com{path}");
        ["--http1.1", "--http2"].map(|version| {
            let common = [version, "--cacert", &certificate, "--connect-to", &connect_to, &url];
            let ended = curl(&[&common[..], options].concat());
            assert_eq!(ended.code(), Some(0), "{version} {path} {options:?}: {ended}");
            ended.text()
        })
    }

    /// Both versions give `expected`.
    #[track_caller]
    fn check(&self, path: &str, options: &[&str], expected: &str) {
        let [first, second] = self.get(path, options);
        assert_eq!((first.as_str(), second.as_str()), (expected, expected), "{path} {options:?}");
    }
}

#[test]
fn ranges_conditions_and_heads_are_those_of_http() {
    const FORM: &str = "|%{http_code} %header{content-range}%header{allow}";
    let site = Site::start(&[("public/text.txt", b"0123456789")]);
    let check =
        |options: &[&str], expected: &str| site.check("/text.txt", &[&["-w", FORM], options].concat(), expected);
    check(&[], "0123456789|200 ");
    check(&["-r", "2-4"], "234|206 bytes 2-4/10");
    check(&["-r", "-3"], "789|206 bytes 7-9/10");
    check(&["-r", "20-", "-o", "/dev/null"], "|416 bytes */10");
    check(&["-X", "DELETE", "-o", "/dev/null"], "|405 GET, HEAD, OPTIONS");
    let [tag, of_http2] = site.get("/text.txt", &["-o", "/dev/null", "-w", "%header{etag}"]);
    assert_eq!(tag, of_http2);
    assert!(tag.len() > 10, "{tag}");
    check(&["-H", &format!("If-None-Match: {tag}")], "|304 ");
    check(&["-H", "If-None-Match: \"other\""], "0123456789|200 ");
    check(&["-H", "If-Match: \"other\"", "-o", "/dev/null"], "|412 ");
    check(&["-H", &format!("If-Range: {tag}"), "-r", "0-0"], "0|206 bytes 0-0/10");
    check(&["-H", "If-Range: \"other\"", "-r", "0-0"], "0123456789|200 ");
    site.check("/text.txt", &["-I", "-o", "/dev/null", "-w", "%{http_code} %header{content-length}"], "200 10");
    site.check("/missing", &["-o", "/dev/null", "-w", "%{http_code}"], "404");
    for parts in site.get("/large", &["-r", "0-0,-1"]) {
        let ranges = ["Content-Range: bytes 0-0/3000000\r\n", "Content-Range: bytes 2999999-2999999/3000000\r\n"];
        assert!(ranges.iter().all(|range| parts.contains(range)), "{parts}");
    }
}

/// Some widely used server answers each row differently.
#[test]
fn both_versions_answer_requests_that_other_servers_get_wrong() {
    const FORM: &str = "%{http_code} %header{content-range}%header{allow}%header{location}%header{content-encoding}";
    let text = "a line that is repeated\n".repeat(100);
    let directory = TestDirectory::with(&[("coded.css", text.as_bytes())]);
    let gzip = run_program("gzip", "gzip", &["--stdout", &directory.argument("coded.css")]);
    let site = Site::start(&[
        ("public/text.txt", b"0123456789"),
        ("public/empty.txt", b""),
        ("public/docs/index.html", b"docs"),
        ("public/.env", b"secret"),
        ("public/dump.sql", b"secret"),
        ("public/.well-known/security.txt", b"contact"),
        ("public/coded.css", text.as_bytes()),
        ("public/coded.css.gz", &gzip.output),
        ("public/alone.css.gz", &gzip.output),
    ]);
    let (many_ranges, long) = (format!("Range: bytes={}", ["0-0"; 200].join(",")), format!("/{}", "a".repeat(9_000)));
    let (allow, post_date) = ("GET, HEAD, OPTIONS", "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT");
    let rows: &[(&str, &[&str], &str)] = &[
        ("/text.txt", &["-I", "-r", "0-1"], "200 "),
        ("/text.txt", &["-H", "Range: bytes=-0"], "416 bytes */10"),
        ("/text.txt", &["-H", "Range: items=0-1"], "200 "),
        ("/text.txt", &["-H", "Range: bytes=0-1,4-5"], "206 bytes 0-5/10"),
        ("/text.txt", &["-H", &many_ranges], "206 bytes 0-0/10"),
        ("/empty.txt", &["-H", "Range: bytes=0-"], "200 "),
        ("/text.txt", &["-H", "If-None-Match: \"other\"", "-H", post_date], "200 "),
        ("/text.txt", &["-H", post_date], "304 "),
        ("/text.txt", &["-H", "If-None-Match: \"other\", *"], "200 "),
        ("/text.txt", &["-H", "If-None-Match: *"], "304 "),
        ("/text.txt", &["-H", "Expect: tea"], "417 "),
        ("/text.txt", &["-X", "TRACE"], &format!("405 {allow}")),
        ("/text.txt", &["-d", "a"], &format!("405 {allow}")),
        ("/text.txt", &["-X", "OPTIONS"], &format!("204 {allow}")),
        ("/text.txt", &["-X", "BREW"], "501 "),
        ("/text.txt/", &[], "308 /text.txt"),
        ("/docs?a=//b", &[], "301 /docs/?a=//b"),
        ("//docs", &[], "301 /docs/"),
        ("//evil.example/..//docs", &[], "301 /docs/"),
        ("//text.txt", &[], "200 "),
        ("/docs%2findex.html", &[], "200 "),
        ("/docs/%2e%2e/text.txt", &[], "200 "),
        ("/docs/..%2f..%2ftext.txt", &[], "400 "),
        ("/text.txt%00", &[], "400 "),
        ("/%zz", &[], "400 "),
        (&long, &[], "414 "),
        ("/.env", &[], "404 "),
        ("/dump.sql", &[], "404 "),
        ("/.well-known/security.txt", &[], "200 "),
        ("/coded.css", &["-H", "Accept-Encoding: gzip;q=0.5, br"], "200 gzip"),
        ("/coded.css", &["-H", "Accept-Encoding: gzip;q=0"], "200 "),
        ("/coded.css", &["-H", "Accept-Encoding: *;q=0"], "200 "),
        ("/coded.css", &["-H", "Accept-Encoding: identity;q=0, *"], "200 gzip"),
        ("/alone.css", &["-H", "Accept-Encoding: gzip"], "200 gzip"),
        ("/alone.css", &[], "200 "),
        ("/alone.css.gz", &["-H", "Accept-Encoding: gzip"], "200 "),
        (
            "/coded.css",
            &["-H", "Accept-Encoding: gzip", "-r", "0-1"],
            &format!("206 bytes 0-1/{}gzip", gzip.output.len()),
        ),
    ];
    for (path, options, expected) in rows {
        let common = ["--path-as-is", "-o", "/dev/null", "-w", FORM];
        site.check(path, &[&common[..], options].concat(), expected);
    }
}

#[test]
fn precompressed_file_is_sent_to_a_client_that_accepts_it() {
    let text = "a line that is repeated\n".repeat(1000);
    let directory = TestDirectory::with(&[("text.txt", text.as_bytes())]);
    let gzip = run_program("gzip", "gzip", &["--stdout", &directory.argument("text.txt")]);
    let site = Site::start(&[("public/text.txt", text.as_bytes()), ("public/text.txt.gz", &gzip.output)]);
    let form = "|%header{content-encoding} %{size_download}";
    site.check("/text.txt", &["-w", form], &format!("{text}| {}", text.len()));
    site.check("/text.txt", &["--compressed", "-w", form], &format!("{text}|gzip {}", gzip.output.len()));
}

#[test]
fn large_file_arrives_as_it_is() {
    let content = random_bytes(&mut fastrand::Rng::with_seed(seed()), LARGE_BYTES);
    let site = Site::start(&[("public/random", &content)]);
    let file = site.directory.argument("received");
    let is_received = |expected: &[u8]| fs::read(&file).expect("curl has written it") == expected;
    for options in [&["-r", "1000-"][..], &[]] {
        let expected = &content[if options.is_empty() { 0 } else { 1000 }..];
        site.get("/random", &[&["-o", &file], options].concat());
        assert!(is_received(expected), "the last of both versions: {options:?}");
    }
    let certificate = site.directory.argument("chain.pem");
    let connect_to = format!("::{}", site.https);
    for version in ["--http1.1", "--http2"] {
        let common = [version, "--cacert", &certificate, "--connect-to", &connect_to, "-o", &file];
        // The client reads more slowly than the server sends: unsent data waits for room.
        let ended = curl(&[&common[..], &["--limit-rate", "40M", "https://example.com/random"]].concat());
        assert!(ended.status.success() && is_received(&content), "{version}: {ended}");
    }
}

#[test]
fn one_connection_carries_many_files() {
    let site = Site::start(&[]);
    for index in 1..=FILE_COUNT {
        site.directory.write(&format!("public/{index}"), content_of(index).as_bytes());
    }
    let (certificate, connect_to) = (site.directory.argument("chain.pem"), format!("::{}", site.https));
    let (url, to) = (format!("https://example.com/[1-{FILE_COUNT}]"), site.directory.argument("received-#1"));
    let parallel = ["--parallel", "--parallel-max", "50"];
    for (version, how) in [("--http1.1", &[][..]), ("--http2", &[]), ("--http2", &parallel)] {
        let common =
            [version, "--cacert", &certificate, "--connect-to", &connect_to, "-o", &to, "-w", "%{num_connects}"];
        let ended = curl(&[&common[..], how, &[&url]].concat());
        assert!(ended.status.success(), "{version} {how:?}: {ended}");
        let connections: u32 = ended.text().bytes().map(|digit| u32::from(digit - b'0')).sum();
        assert_eq!((ended.output.len(), connections), (FILE_COUNT, 1), "{version} {how:?}");
        for index in 1..=FILE_COUNT {
            let received = site.directory.path().join(format!("received-{index}"));
            assert_eq!(fs::read_to_string(&received).ok(), Some(content_of(index)), "{version} {how:?}");
            fs::remove_file(received).expect("the file exists");
        }
    }
}

/// Files of 0 to some 100,000 bytes.
fn content_of(index: usize) -> String {
    format!("file {index}\n").repeat(index * index / 9)
}
