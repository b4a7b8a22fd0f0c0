//! Which file answers a request: indexes, clean URLs, pages for errors, and the fallback of an application.

mod protection;
mod ranges;

use super::*;
use crate::options::HttpOptions;
use crate::site::sites::{DefaultSite, Root, Site, SiteOptions, Sites};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_http::SitePath;
use sanderling_os::directory::Directory;
use sanderling_site_rules::FileOptions;
use sanderling_testkit::wait_until;
use std::path::Path;
use std::time::SystemTime;

const ITERATIONS_MAX: usize = 1_000;
const NAVIGATION: &str = "Accept: text/html,*/*;q=0.8\r\nSec-Fetch-Mode: navigate\r\n";

/// A site in a directory, requested over one connection of HTTP/1.1.
pub(super) struct Browser<'b, 's> {
    pub(super) simulation: &'b mut Simulation<'s>,
    pub(super) root: &'b Path,
    client: usize,
}

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    head: String,
    pub(super) content: Vec<u8>,
}

impl Answer {
    pub(super) fn status(&self) -> &str {
        &self.head[9..12]
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(super) fn text(&self) -> &str {
        str::from_utf8(&self.content).expect("text")
    }

    /// The status with the target of a redirect or the content.
    fn summary(&self) -> String {
        let what = match self.field("Location") {
            Some(location) => location,
            None if self.text().starts_with("<!doctype html>") => "built-in",
            None => self.text(),
        };
        format!("{} {what}", self.status())
    }
}

/// Runs `act` on a site with these files, each with its content.
fn browse(files: &[(&str, &str)], options: FileOptions, act: impl FnOnce(&mut Browser<'_, '_>)) {
    let directory = tempfile::tempdir().expect("created");
    files.iter().for_each(|(path, content)| write(directory.path(), path, content.as_bytes()));
    browse_directory(directory.path(), options, Options::default(), act);
}

/// Runs `act` on the site in a directory.
pub(super) fn browse_directory(
    directory: &Path,
    files: FileOptions,
    options: Options,
    act: impl FnOnce(&mut Browser<'_, '_>),
) {
    let root = Root::Directory(Arc::new(Directory::open(directory).expect("opened")));
    let site = Site { id: 0, hosts: Vec::new(), root, options: SiteOptions { files, ..SiteOptions::default() } };
    browse_site(directory, site, options, act);
}

/// Runs `act` on a site whose document root is `directory`.
fn browse_site(directory: &Path, site: Site, options: Options, act: impl FnOnce(&mut Browser<'_, '_>)) {
    let snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []));
    settle(directory);
    let http = HttpOptions { accepts_http2: true, requests_per_connection_max: u64::MAX, ..HttpOptions::default() };
    simulate(snapshot, Options { http, ..options }, |simulation| {
        let client = simulation.connect(Protocol::Http, b"", usize::MAX).expect("accepted");
        act(&mut Browser { simulation, root: directory, client });
    });
}

pub(super) fn write(root: &Path, path: &str, content: &[u8]) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a directory of ours")).expect("created");
    std::fs::write(path, content).expect("written");
}

/// Waits until files that were written are read.
pub(super) fn settle(root: &Path) {
    let probe = root.join(".probe");
    std::fs::write(&probe, b"").expect("written");
    let modified = || std::fs::metadata(&probe).and_then(|metadata| metadata.modified()).expect("a time");
    wait_until("files are read", || {
        SystemTime::now().duration_since(modified()).is_ok_and(|age| age > Duration::from_millis(25))
    });
}

impl Browser<'_, '_> {
    /// Sends a request, and returns the response.
    fn ask(&mut self, method: &str, target: &str, fields: &str) -> Answer {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        self.simulation.send(self.client, request.as_bytes());
        let mut received = Vec::new();
        let whole = || {
            self.simulation.run(ITERATIONS_MAX);
            received.extend(self.simulation.take_received(self.client));
            let end = memchr::memmem::find(&received, b"\r\n\r\n").map(|at| at + 4);
            end.is_some_and(|end| {
                let head = String::from_utf8_lossy(&received[..end]);
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
                method == "HEAD" || received.len() >= end + length.unwrap_or(0)
            })
        };
        wait_until(target, whole);
        let end = memchr::memmem::find(&received, b"\r\n\r\n").expect("a head") + 4;
        let content = received.split_off(end);
        Answer { head: String::from_utf8(received).expect("text"), content }
    }

    pub(super) fn get(&mut self, target: &str, fields: &str) -> Answer {
        self.ask("GET", target, fields)
    }

    /// The response to a GET is this status with the target of a redirect or the content.
    #[track_caller]
    fn check(&mut self, target: &str, fields: &str, expected: &str) {
        for time in ["first", "again"] {
            assert_eq!(self.get(target, fields).summary(), expected, "{target} {time}");
        }
    }

    fn write(&self, path: &str, content: &str) {
        write(self.root, path, content.as_bytes());
        settle(self.root);
    }

    /// Time passes until entries that are not watched are checked again.
    pub(super) fn wait_until_stale(&mut self) {
        self.simulation.advance(Duration::from_secs(6));
    }
}

fn with_index(index: &[&str]) -> FileOptions {
    FileOptions { index: index.iter().map(|&name| name.to_owned()).collect(), ..FileOptions::default() }
}

#[test]
fn the_first_index_that_exists_answers_for_a_directory() {
    let files = [("a/index.html", "1"), ("a/default.htm", "2"), ("b/default.htm", "3"), ("c/other.html", "4")];
    browse(&files, with_index(&["index.html", "default.htm"]), |browser| {
        browser.check("/a/", "", "200 1");
        browser.check("/b/", "", "200 3");
        browser.check("/b", "", "301 /b/");
        browser.check("/c/", "", "404 built-in");
        browser.check("/a/default.htm", "", "200 2");
        assert_eq!(browser.get("/b/", "").field("Content-Type"), Some("text/html; charset=utf-8"));
        browser.write("b/index.html", "5");
        browser.wait_until_stale();
        browser.check("/b/", "", "200 5");
    });
    browse(&files, with_index(&[]), |browser| browser.check("/a/", "", "404 built-in"));
}

#[test]
fn a_file_with_a_slash_at_its_end_is_redirected_to_its_url() {
    let files = [("a.txt", "a"), ("b/c.txt", "c"), ("404.html", "missing")];
    browse(&files, FileOptions::default(), |browser| {
        browser.check("/a.txt/", "", "308 /a.txt");
        browser.check("/b/c.txt/?q=/", "", "308 /b/c.txt?q=/");
        browser.check("//evil.example/..//a.txt//", "", "308 /a.txt");
        browser.check("/b/", "", "404 missing");
        browser.check("/a.txt/x/", "", "404 missing");
        browser.check("/d/", "", "404 missing");
        browser.write("d", "now a file");
        browser.wait_until_stale();
        browser.check("/d/", "", "308 /d");
    });
}

#[test]
fn the_nearest_404_page_answers_with_status_404() {
    let files = [("404.html", "root"), ("a/404.html", "of a"), ("a/b/page.html", "page"), ("x.txt", "x")];
    browse(&files, FileOptions::default(), |browser| {
        browser.check("/missing", "", "404 root");
        browser.check("/missing/", "", "404 root");
        browser.check("/none/at/all/of/these", "", "404 root");
        browser.check("/a/missing", "", "404 of a");
        browser.check("/a/", "", "404 of a");
        browser.check("/a/b/missing?query", "", "404 of a");
        browser.check("/a/b/", "", "404 of a");
        browser.check("/.env", "", "404 root");
        browser.check("/x.txt/", "", "308 /x.txt");
        browser.check("/404.html", "", "200 root");
        browser.write("a/b/404.html", "of b");
        browser.wait_until_stale();
        browser.check("/a/b/missing", "", "404 of b");
        std::fs::remove_file(browser.root.join("404.html")).expect("removed");
        browser.wait_until_stale();
        browser.check("/missing", "", "404 built-in");
    });
}

#[test]
fn a_404_page_of_a_path_with_many_segments_is_found() {
    let deep = "a/".repeat(30);
    browse(&[("404.html", "root"), (&format!("{deep}page"), "")], FileOptions::default(), |browser| {
        browser.check(&format!("/{deep}missing"), "", "404 root");
    });
}

#[test]
fn a_404_page_is_never_the_response_of_the_file() {
    browse(&[("404.html", "page")], FileOptions::default(), |browser| {
        let file = browser.get("/404.html", "");
        let etag = file.field("ETag").expect("of a file").to_owned();
        let date = file.field("Last-Modified").expect("of a file").to_owned();
        for fields in [
            format!("If-None-Match: {etag}\r\n"),
            "If-None-Match: *\r\n".to_owned(),
            format!("If-Modified-Since: {date}\r\n"),
            "If-Match: \"other\"\r\n".to_owned(),
            "Range: bytes=0-1\r\n".to_owned(),
            format!("Range: bytes=0-1\r\nIf-Range: {etag}\r\n"),
        ] {
            browser.check("/missing", &fields, "404 page");
        }
        let answer = browser.get("/missing", "");
        for field in ["ETag", "Last-Modified", "Accept-Ranges"] {
            assert_eq!(answer.field(field), None, "{field}");
        }
        assert_eq!(answer.field("X-Content-Type-Options"), Some("nosniff"));
        let head = browser.ask("HEAD", "/missing", "");
        assert_eq!((head.status(), head.text(), head.field("Content-Length")), ("404", "", Some("4")));
        assert_eq!(browser.ask("POST", "/missing", "").status(), "405");
    });
}

#[test]
fn a_404_page_is_sent_in_the_coding_that_the_client_prefers() {
    let page = "page ".repeat(100);
    browse(&[("404.html", &page), ("404.html.br", "coded")], FileOptions::default(), |browser| {
        let answer = browser.get("/missing", "Accept-Encoding: br\r\n");
        assert_eq!((answer.status(), answer.text()), ("404", "coded"));
        assert_eq!((answer.field("Content-Encoding"), answer.field("Vary")), (Some("br"), Some("Accept-Encoding")));
        assert_eq!(browser.get("/missing", "").text(), page);
    });
}

#[test]
fn a_large_404_page_is_sent_from_its_descriptor() {
    let page = "x".repeat(100_000);
    browse(&[("404.html", &page)], FileOptions::default(), |browser| {
        assert_eq!(browser.get("/missing", "").summary(), format!("404 {page}"));
    });
}

#[test]
fn an_error_page_is_html_for_browsers_and_text_for_programs() {
    browse(&[("a.txt", "text")], FileOptions::default(), |browser| {
        for (fields, content_type, start) in [
            ("", "text/html; charset=utf-8", "<!doctype html>"),
            (NAVIGATION, "text/html; charset=utf-8", "<!doctype html>"),
            ("Accept: */*\r\n", "text/plain; charset=utf-8", "404 Not Found\n"),
            ("Accept: application/json\r\n", "text/plain; charset=utf-8", "404 Not Found\n"),
        ] {
            let answer = browser.get("/missing", fields);
            assert_eq!((answer.status(), answer.field("Content-Type")), ("404", Some(content_type)), "{fields}");
            assert_eq!(answer.field("Vary"), Some("Accept"));
            assert!(answer.text().starts_with(start) && answer.content.len() < 1024, "{answer:?}");
        }
        let unsatisfiable = browser.get("/a.txt", "Accept: */*\r\nRange: bytes=9-\r\n");
        assert_eq!(unsatisfiable.summary(), "416 416 Range Not Satisfiable\n");
        assert_eq!(unsatisfiable.field("Content-Range"), Some("bytes */4"));
        assert_eq!(browser.ask("PUT", "/a.txt", "Accept: */*\r\n").summary(), "405 405 Method Not Allowed\n");
        assert_eq!(
            browser.get("/a.txt", "Accept: */*\r\nIf-Match: \"x\"\r\n").summary(),
            "412 412 Precondition Failed\n"
        );
    });
}

fn clean_urls() -> FileOptions {
    FileOptions { clean_urls: true, ..FileOptions::default() }
}

#[test]
fn a_page_is_served_at_its_clean_url_and_redirected_to_it() {
    let files = [
        ("index.html", "root"),
        ("about.html", "about"),
        ("blog/index.html", "blog"),
        ("blog/post.html", "post"),
        ("plain.txt", "plain"),
        ("a b.html", "space"),
    ];
    browse(&files, clean_urls(), |browser| {
        browser.check("/", "", "200 root");
        browser.check("/about", "", "200 about");
        browser.check("/about.html", "", "308 /about");
        browser.check("/about.html?x=1&y=%20", "", "308 /about?x=1&y=%20");
        browser.check("/about/", "", "308 /about");
        browser.check("/index.html", "", "308 /");
        browser.check("/index", "", "308 /");
        browser.check("/index/", "", "308 /index");
        browser.check("/blog", "", "301 /blog/");
        browser.check("/blog/", "", "200 blog");
        browser.check("/blog/index.html?q", "", "308 /blog/?q");
        browser.check("/blog/index", "", "308 /blog/");
        browser.check("/blog/post", "", "200 post");
        browser.check("/blog/post/?q", "", "308 /blog/post?q");
        browser.check("/plain.txt", "", "200 plain");
        browser.check("/plain", "", "404 built-in");
        browser.check("/a%20b.html", "", "308 /a%20b");
        browser.check("/a%20b", "", "200 space");
        browser.check("/missing.html", "", "404 built-in");
        browser.check("/.html", "", "404 built-in");
        let answer = browser.get("/about", "");
        assert_eq!(answer.field("Content-Type"), Some("text/html; charset=utf-8"));
    });
}

#[test]
fn a_redirect_to_a_clean_url_never_leads_to_another_host() {
    let files = [("evil.example.html", "page"), ("index.html", ""), ("a/evil.example/index.html", "")];
    browse(&files, clean_urls(), |browser| {
        browser.check("//evil.example.html", "", "308 /evil.example");
        browser.check("///evil.example/", "", "308 /evil.example");
        browser.check("/%2f/evil.example.html", "", "308 /evil.example");
        browser.check("/a/..//evil.example.html", "", "308 /evil.example");
        browser.check("//index.html", "", "308 /");
        browser.check("//a//evil.example", "", "301 /a/evil.example/");
        assert_eq!(browser.get("/\\evil.example.html", "").status(), "400");
    });
}

#[test]
fn a_file_precedes_a_page_and_a_page_a_directory() {
    let files = [
        ("both.html", "page"),
        ("both/index.html", "directory"),
        ("both/below.html", "below"),
        ("exact", "exact"),
        ("exact.html", "page"),
        ("dir.html/index.html", "odd"),
        ("twice.html.html", "twice"),
    ];
    browse(&files, clean_urls(), |browser| {
        browser.check("/both", "", "200 page");
        browser.check("/both.html", "", "308 /both");
        browser.check("/both/", "", "200 directory");
        browser.check("/both/below", "", "200 below");
        browser.check("/exact", "", "200 exact");
        browser.check("/exact.html", "", "200 page");
        browser.check("/dir.html", "", "301 /dir.html/");
        browser.check("/dir.html/", "", "200 odd");
        browser.check("/twice.html.html", "", "308 /twice.html");
        browser.check("/twice.html", "", "200 twice");
    });
}

#[test]
fn pages_are_not_redirected_to_urls_that_are_refused() {
    browse(&[("a.bak.html", "page"), ("b~.html", "page")], clean_urls(), |browser| {
        browser.check("/a.bak.html", "", "200 page");
        browser.check("/b~.html", "", "200 page");
        browser.check("/a.bak", "", "404 built-in");
    });
}

#[test]
fn a_clean_url_has_validators_ranges_and_precompressed_files() {
    let page = "page ".repeat(100);
    browse(&[("a.html", &page), ("a.html.br", "coded")], clean_urls(), |browser| {
        let answer = browser.get("/a", "Accept-Encoding: br\r\n");
        assert_eq!((answer.text(), answer.field("Content-Encoding")), ("coded", Some("br")));
        let etag = browser.get("/a", "").field("ETag").expect("of a file").to_owned();
        assert_ne!(answer.field("ETag"), Some(etag.as_str()));
        assert_eq!(browser.get("/a", &format!("If-None-Match: {etag}\r\n")).status(), "304");
        assert_eq!(browser.get("/a", "Range: bytes=0-3\r\n").summary(), "206 page");
    });
}

#[test]
fn a_page_that_changes_is_served_at_its_clean_url() {
    browse(&[("a.html", "old")], clean_urls(), |browser| {
        browser.check("/a", "", "200 old");
        browser.check("/b", "", "404 built-in");
        browser.write("a.html", "new");
        browser.write("b.html", "made");
        browser.wait_until_stale();
        browser.check("/a", "", "200 new");
        browser.check("/b", "", "200 made");
    });
}

#[test]
fn clean_urls_are_off_by_default() {
    browse(&[("a.html", "page"), ("index.html", "root")], FileOptions::default(), |browser| {
        browser.check("/a", "", "404 built-in");
        browser.check("/a.html", "", "200 page");
        browser.check("/index.html", "", "200 root");
        browser.check("/a.html/", "", "308 /a.html");
    });
}

fn fallback() -> FileOptions {
    FileOptions { fallback: Some("index.html".into()), ..FileOptions::default() }
}

#[test]
fn the_fallback_answers_navigations_alone() {
    let files = [("index.html", "app"), ("app.js", "script"), ("404.html", "page")];
    browse(&files, fallback(), |browser| {
        browser.check("/users/7", NAVIGATION, "200 app");
        browser.check("/users/john.doe", NAVIGATION, "200 app");
        browser.check("/users/7", "Accept: text/html\r\n", "200 app");
        browser.check("/users/", "Accept: text/html\r\n", "200 app");
        browser.check("/app.js", "", "200 script");
        browser.check("/", "", "200 app");
        browser.check("/app.old.js", "Accept: */*\r\nSec-Fetch-Mode: no-cors\r\n", "404 page");
        browser.check("/app.old.js", "Accept: text/html\r\n", "404 page");
        browser.check("/api/users", "Accept: application/json\r\nSec-Fetch-Mode: cors\r\n", "404 page");
        browser.check("/api/users", "Accept: text/html\r\nSec-Fetch-Mode: cors\r\n", "404 page");
        browser.check("/users/7", "", "404 page");
        browser.check("/.env", "", "404 page");
        assert_eq!(browser.ask("POST", "/users/7", NAVIGATION).status(), "405");
        let head = browser.ask("HEAD", "/users/7", NAVIGATION);
        assert_eq!((head.status(), head.field("Content-Length"), head.text()), ("200", Some("3"), ""));
    });
}

#[test]
fn the_fallback_is_a_file_with_validators_that_varies_by_what_selects_it() {
    let app = "app ".repeat(100);
    browse(&[("index.html", &app), ("index.html.br", "coded"), ("404.html", "page")], fallback(), |browser| {
        let answer = browser.get("/users/7", NAVIGATION);
        let vary = |answer: &Answer| {
            let lines = answer.head.lines().filter_map(|line| line.strip_prefix("Vary: "));
            lines.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(vary(&answer), "Accept-Encoding, Accept, Sec-Fetch-Mode");
        assert_eq!(vary(&browser.get("/missing.js", "")), "Accept, Sec-Fetch-Mode");
        let etag = answer.field("ETag").expect("of a file").to_owned();
        let not_modified = browser.get("/users/8", &format!("{NAVIGATION}If-None-Match: {etag}\r\n"));
        assert_eq!(not_modified.status(), "304");
        assert_eq!(vary(&not_modified), "Accept-Encoding, Accept, Sec-Fetch-Mode");
        assert_eq!(browser.get("/users/7", &format!("{NAVIGATION}Range: bytes=0-2\r\n")).summary(), "206 app");
        assert_eq!(browser.get("/users/7", &format!("{NAVIGATION}Accept-Encoding: br\r\n")).text(), "coded");
        assert_eq!(vary(&browser.get("/", "")), "Accept-Encoding", "the file itself");
    });
}

#[test]
fn a_missing_fallback_is_a_404() {
    browse(&[("a.txt", "")], fallback(), |browser| {
        browser.check("/users/7", NAVIGATION, "404 built-in");
        browser.write("index.html", "app");
        browser.wait_until_stale();
        browser.check("/users/7", NAVIGATION, "200 app");
    });
}

#[test]
fn fallback_and_clean_urls_work_together() {
    let files = [("index.html", "app"), ("about.html", "about"), ("404.html", "page")];
    browse(&files, FileOptions { clean_urls: true, ..fallback() }, |browser| {
        browser.check("/about", NAVIGATION, "200 about");
        browser.check("/users/7", NAVIGATION, "200 app");
        browser.check("/missing.js", "", "404 page");
        browser.check("/index.html", NAVIGATION, "308 /");
        browser.check("/404.html", "", "308 /404");
        browser.check("/404", "", "200 page");
    });
}

fn listing() -> FileOptions {
    FileOptions { listing: true, ..FileOptions::default() }
}

const JSON: &str = "Accept: application/json\r\n";

#[test]
fn a_directory_without_an_index_is_listed_as_a_page_or_as_json() {
    let files = [("a/index.html", "index"), ("b/two.txt", "22"), ("b/<i>&.txt", ""), ("b/c/d.txt", "d")];
    browse(&files, listing(), |browser| {
        let page = browser.get("/b/", NAVIGATION);
        assert_eq!((page.status(), page.field("Content-Type")), ("200", Some("text/html; charset=utf-8")));
        assert_eq!(page.field("Vary"), Some("Accept"));
        assert!(page.field("Content-Security-Policy").is_some_and(|policy| policy.starts_with("default-src 'none'")));
        for part in
            ["<a href=\"c/\">c/</a>", "<a href=\"two.txt\">two.txt</a>", "%3Ci%3E%26.txt\">&lt;i&gt;&amp;.txt</a>"]
        {
            assert!(page.text().contains(part), "{part} in {}", page.text());
        }
        let json = browser.get("/b/", JSON);
        assert_eq!((json.status(), json.field("Content-Type")), ("200", Some("application/json")));
        assert!(
            json.text().contains("{\"name\":\"two.txt\",\"url\":\"two.txt\",\"type\":\"file\",\"size\":2,"),
            "{json:?}"
        );
        assert_ne!(json.field("ETag"), page.field("ETag"));
        browser.check("/a/", "", "200 index");
        browser.check("/b", "", "301 /b/");
        browser.check("/none/", "", "404 built-in");
        browser.check("/b/two.txt/", "", "308 /b/two.txt");
        browser.check("/b/two.txt", "", "200 22");
        let etag = page.field("ETag").expect("of the page");
        assert_eq!(browser.get("/b/", &format!("{NAVIGATION}If-None-Match: {etag}\r\n")).status(), "304");
        assert_eq!(browser.get("/b/", "Range: bytes=0-8\r\n").summary(), "206 <!doctype");
        assert_eq!(page.field("Last-Modified"), None);
    });
    browse(&files, FileOptions::default(), |browser| browser.check("/b/", "", "404 built-in"));
}

#[test]
fn entries_that_are_never_fresh_are_used_by_the_request_that_has_waited_for_them() {
    let mut options = Options::default();
    options.open_files.valid_for = Duration::ZERO;
    let directory = tempfile::tempdir().expect("created");
    for path in ["404.html", "a/b.txt"] {
        write(directory.path(), path, b"page");
    }
    browse_directory(directory.path(), FileOptions { listing: true, ..fallback() }, options, |browser| {
        for _ in 0..3 {
            browser.check("/none/missing", "", "404 page");
            browser.check("/none/missing", NAVIGATION, "404 page");
            assert_eq!(browser.get("/a/", "").status(), "200");
            browser.wait_until_stale();
        }
    });
}

/// The names in the listing of the document root.
fn names(browser: &mut Browser<'_, '_>) -> Vec<String> {
    let json = browser.get("/", JSON);
    let names = json.text().lines().filter_map(|line| line.strip_prefix("{\"name\":\"")?.split('"').next());
    names.map(str::to_owned).collect()
}

#[test]
fn a_listing_shows_what_is_served_and_links_as_what_they_lead_to() {
    use std::os::unix::fs::symlink;
    let files = [("a.txt", "a"), (".env", ""), (".well-known/x", ""), ("b.bak", ""), ("dir/x", "")];
    browse(&files, listing(), |browser| {
        let link = |target: &str, name: &str| symlink(target, browser.root.join(name)).expect("linked");
        link("a.txt", "to-file");
        link("dir", "to-directory");
        link("missing", "dangling");
        link("/etc/passwd", "outside");
        link("..", "above");
        let fifo = browser.root.join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("made");
        assert_eq!(names(browser), [".well-known", "dir", "to-directory", "a.txt", "to-file"]);
        for name in ["dangling", "outside", "above", "fifo", ".env", "b.bak"] {
            browser.check(&format!("/{name}"), "", "404 built-in");
        }
    });
}

#[test]
fn a_listing_is_bounded_and_follows_changes() {
    let directory = tempfile::tempdir().expect("created");
    let mut options = Options::default();
    options.open_files.listing_entries_max = 3;
    for name in ["a", "b", "c"] {
        write(directory.path(), name, b"");
    }
    browse_directory(directory.path(), listing(), options, |browser| {
        assert_eq!(names(browser), ["a", "b", "c"]);
        assert!(browser.get("/", JSON).text().ends_with("\"truncated\":false}\n"));
        browser.write("d", "");
        browser.wait_until_stale();
        assert_eq!(names(browser).len(), 3);
        assert!(browser.get("/", JSON).text().ends_with("\"truncated\":true}\n"));
        assert!(browser.get("/", "").text().contains("The list is incomplete"));
        std::fs::remove_file(browser.root.join("a")).expect("removed");
        browser.write("b", "12345");
        browser.wait_until_stale();
        assert_eq!(names(browser), ["b", "c", "d"]);
        assert!(browser.get("/", JSON).text().contains("\"size\":5"));
    });
}

/// Text that is worth compressing.
pub(super) fn text(bytes: usize) -> String {
    "some words of a text that is compressed ".chars().cycle().take(bytes).collect()
}

const BROTLI: &str = "Accept-Encoding: gzip, deflate, br\r\n";
const GZIP: &str = "Accept-Encoding: gzip\r\n";

pub(super) fn decoded(answer: &Answer) -> Vec<u8> {
    use std::io::Read;
    let mut content = Vec::new();
    match answer.field("Content-Encoding") {
        Some("br") => brotli::BrotliDecompress(&mut &answer.content[..], &mut content).expect("brotli"),
        Some("gzip") => {
            flate2::read::GzDecoder::new(&answer.content[..]).read_to_end(&mut content).expect("gzip");
        }
        Some("zstd") => content = zstd::bulk::decompress(&answer.content, 10_000_000).expect("zstd"),
        _ => content.clone_from(&answer.content),
    }
    content
}

#[test]
fn a_file_is_compressed_after_the_first_request_that_accepts_it() {
    for bytes in [2_000, 100_000] {
        let content = text(bytes);
        browse(&[("a.html", &content)], FileOptions::default(), |browser| {
            for (fields, coding) in [(BROTLI, "br"), (GZIP, "gzip"), ("Accept-Encoding: zstd\r\n", "zstd")] {
                let plain = browser.get("/a.html", "");
                assert_eq!((plain.field("Content-Encoding"), plain.field("Vary")), (None, Some("Accept-Encoding")));
                let first = browser.get("/a.html", fields);
                assert_eq!((first.field("Content-Encoding"), first.text()), (None, content.as_str()), "{coding}");
                let second = browser.get("/a.html", fields);
                assert_eq!(second.field("Content-Encoding"), Some(coding));
                assert_eq!(second.field("Vary"), Some("Accept-Encoding"));
                assert_eq!(second.field("Content-Type"), Some("text/html; charset=utf-8"));
                assert_eq!(second.field("Last-Modified"), plain.field("Last-Modified"));
                assert_ne!(second.field("ETag"), plain.field("ETag"));
                assert!(second.content.len() < bytes / 2 && decoded(&second) == content.as_bytes());
                let etag = second.field("ETag").expect("of a file");
                assert_eq!(browser.get("/a.html", &format!("{fields}If-None-Match: {etag}\r\n")).status(), "304");
                let head = browser.ask("HEAD", "/a.html", fields);
                assert_eq!(head.field("Content-Length"), Some(second.content.len().to_string().as_str()));
            }
            assert_eq!(
                browser.get("/a.html", "Accept-Encoding: gzip;q=0.5, br;q=0\r\n").field("Content-Encoding"),
                Some("gzip")
            );
            assert_eq!(browser.get("/a.html", "Accept-Encoding: identity\r\n").field("Content-Encoding"), None);
        });
    }
}

#[test]
fn a_client_that_has_the_file_as_it_is_goes_on_with_that() {
    let content = text(5_000);
    browse(&[("a.txt", &content)], FileOptions::default(), |browser| {
        let etag = browser.get("/a.txt", GZIP).field("ETag").expect("of a file").to_owned();
        let coded = browser.get("/a.txt", GZIP);
        let coded_etag = coded.field("ETag").expect("of a variant").to_owned();
        assert_eq!(coded.field("Content-Encoding"), Some("gzip"));
        assert_eq!(browser.get("/a.txt", &format!("{GZIP}If-None-Match: {etag}\r\n")).status(), "304");
        let rest = browser.get("/a.txt", &format!("{GZIP}Range: bytes=4000-\r\n"));
        assert_eq!((rest.status(), rest.field("Content-Encoding"), rest.text()), ("206", None, &content[4000..]));
        let rest = browser.get("/a.txt", &format!("{GZIP}Range: bytes=4000-\r\nIf-Range: {etag}\r\n"));
        assert_eq!((rest.status(), rest.text()), ("206", &content[4000..]));
        let rest = browser.get("/a.txt", &format!("{GZIP}Range: bytes=10-\r\nIf-Range: {coded_etag}\r\n"));
        assert_eq!((rest.status(), rest.field("Content-Encoding")), ("206", Some("gzip")));
        assert_eq!((rest.field("ETag"), &rest.content[..]), (Some(coded_etag.as_str()), &coded.content[10..]));
        let other = browser.get("/a.txt", &format!("Range: bytes=10-\r\nIf-Range: {coded_etag}\r\n"));
        assert_eq!((other.status(), other.text()), ("200", content.as_str()));
        let head = browser.ask("HEAD", "/a.txt", &format!("{GZIP}Range: bytes=10-\r\n"));
        assert_eq!((head.field("ETag"), head.field("Content-Encoding")), (Some(coded_etag.as_str()), Some("gzip")));
        assert_eq!(head.field("Content-Length"), Some(coded.content.len().to_string().as_str()));
        for refused in ["identity;q=0", "*;q=0"] {
            let fields = format!("Accept-Encoding: gzip, {refused}\r\nRange: bytes=10-\r\n");
            let rest = browser.get("/a.txt", &fields);
            assert_eq!((rest.status(), rest.field("Content-Encoding")), ("206", Some("gzip")), "{refused}");
        }
        for (tags, coding) in [
            (etag.clone(), None),
            (coded_etag.clone(), Some("gzip")),
            (format!("\"x\", {coded_etag}"), Some("gzip")),
            (format!("{coded_etag}, {etag}"), None),
        ] {
            for (range, status) in [("", "200"), ("Range: bytes=10-\r\n", "206")] {
                let answer = browser.get("/a.txt", &format!("{GZIP}{range}If-Match: {tags}\r\n"));
                assert_eq!((answer.status(), answer.field("Content-Encoding")), (status, coding), "{range}{tags}");
            }
        }
    });
}

#[test]
fn what_cannot_be_made_smaller_or_is_precompressed_is_left_alone() {
    let content = text(5_000);
    let random: String = (0..6_000).map(|_| char::from(fastrand::u8(b' '..b'~'))).collect();
    let files = [
        ("small.txt", "x".repeat(1023)),
        ("photo.jpg", content.clone()),
        ("unknown", content.clone()),
        ("archive.txt.gz", content.clone()),
        ("own.txt", content.clone()),
        ("own.txt.br", "own".to_owned()),
        ("random.txt", random),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, content)| (*path, content.as_str())).collect();
    browse(&files, FileOptions::default(), |browser| {
        for path in ["/small.txt", "/photo.jpg", "/unknown", "/archive.txt.gz"] {
            for _ in 0..3 {
                let answer = browser.get(path, BROTLI);
                assert_eq!((answer.field("Content-Encoding"), answer.field("Vary")), (None, None), "{path}");
            }
        }
        for _ in 0..3 {
            assert_eq!(browser.get("/own.txt", BROTLI).summary(), "200 own", "the precompressed file");
        }
    });
    browse(&[("a.txt", &content)], FileOptions { compress: false, ..FileOptions::default() }, |browser| {
        browser.get("/a.txt", GZIP);
        let answer = browser.get("/a.txt", GZIP);
        assert_eq!((answer.field("Content-Encoding"), answer.field("Vary")), (None, None));
    });
}

#[test]
fn a_file_that_changes_is_compressed_again() {
    browse(&[("a.txt", &text(5_000))], FileOptions::default(), |browser| {
        browser.get("/a.txt", GZIP);
        assert_eq!(decoded(&browser.get("/a.txt", GZIP)), text(5_000).as_bytes());
        browser.write("a.txt", &text(6_000));
        browser.wait_until_stale();
        assert_eq!(browser.get("/a.txt", GZIP).text(), text(6_000));
        let answer = browser.get("/a.txt", GZIP);
        assert_eq!((answer.field("Content-Encoding"), decoded(&answer)), (Some("gzip"), text(6_000).into_bytes()));
    });
}

/// Options that compress files of at most `file_bytes_max`, with this budget.
fn compressing(content_bytes_max: u64, file_bytes_max: u64) -> Options {
    let mut options = Options::default();
    options.open_files.compression.content_bytes_max = content_bytes_max;
    options.open_files.compression.file_bytes_max = file_bytes_max;
    options
}

#[test]
fn a_file_above_the_bound_is_sent_as_it_is() {
    let directory = tempfile::tempdir().expect("created");
    write(directory.path(), "fits.txt", text(5_000).as_bytes());
    write(directory.path(), "large.txt", text(5_001).as_bytes());
    browse_directory(directory.path(), FileOptions::default(), compressing(1 << 20, 5_000), |browser| {
        for (path, coding) in [("/fits.txt", Some("gzip")), ("/large.txt", None)] {
            browser.get(path, GZIP);
            assert_eq!(browser.get(path, GZIP).field("Content-Encoding"), coding, "{path}");
        }
    });
}

#[test]
fn compressed_content_is_bounded_by_evicting_what_was_not_used_for_longest() {
    let directory = tempfile::tempdir().expect("created");
    let paths: Vec<String> = (0..20).map(|number| format!("{number}.txt")).collect();
    for (number, path) in paths.iter().enumerate() {
        // Letters of a few kinds: about half of the length remains.
        let mut random = fastrand::Rng::with_seed(number as u64);
        let content: Vec<u8> = (0..4_000).map(|_| random.u8(b'a'..b'q')).collect();
        write(directory.path(), path, &content);
    }
    browse_directory(directory.path(), FileOptions::default(), compressing(16_000, 1 << 20), |browser| {
        let mut coded_count = 0;
        for path in &paths {
            browser.get(&format!("/{path}"), GZIP);
            coded_count += usize::from(browser.get(&format!("/{path}"), GZIP).field("Content-Encoding").is_some());
            // What was evicted is freed by the next iteration, in which the worker has no references to it.
            browser.simulation.run_once();
            let used = browser.simulation.compressed_bytes();
            assert!(used <= 16_000, "{used}");
        }
        assert!(coded_count >= 15, "{coded_count} of 20: the newest is not evicted at once");
    });
    browse_directory(directory.path(), FileOptions::default(), compressing(0, 1 << 20), |browser| {
        browser.get("/0.txt", GZIP);
        assert_eq!(browser.get("/0.txt", GZIP).field("Vary"), None, "a budget of 0");
    });
}

/// The response to any sequence of requests is the one of a server that has compressed nothing, or that one in a
/// coding.
#[test]
fn a_cached_answer_equals_an_uncached_one_for_any_fields() {
    let contents = [text(3_000), text(50_000)];
    let files = [("a.html", contents[0].as_str()), ("b.txt", &contents[1])];
    let mut random = fastrand::Rng::with_seed(sanderling_testkit::seed());
    let mut etags: Vec<String> = vec!["\"none\"".into()];
    browse(&files, FileOptions::default(), |browser| {
        for _ in 0..600 {
            let which = random.usize(..2);
            let (path, whole) = (format!("/{}", files[which].0), contents[which].as_bytes());
            let mut fields = String::new();
            let codings =
                ["gzip", "br", "zstd", "identity", "gzip, br;q=0.5", "*", "br;q=0", "deflate", "zstd;q=0.1, gzip"];
            if random.bool() {
                fields += &format!("Accept-Encoding: {}\r\n", random.choice(codings).expect("one"));
            }
            let ranges = ["0-9", "100-", "-5", "2999-2999", "90000-", "0-1,500-501"];
            if random.u8(..3) == 0 {
                fields += &format!("Range: bytes={}\r\n", random.choice(ranges).expect("one"));
            }
            for name in ["If-None-Match", "If-Range", "If-Match"] {
                if random.u8(..5) == 0 {
                    fields += &format!("{name}: {}\r\n", random.choice(&etags).expect("one"));
                }
            }
            let answer = browser.get(&path, &fields);
            if let Some(etag) = answer.field("ETag").filter(|etag| !etags.iter().any(|known| known == etag)) {
                etags.push(etag.to_owned());
            }
            let context = format!("{path} {fields} {}", answer.head);
            match answer.status() {
                "200" => {
                    assert_eq!(decoded(&answer), whole, "{context}");
                    if let Some(coding) = answer.field("Content-Encoding") {
                        assert!(fields.contains(coding) || fields.contains('*'), "{context}");
                    }
                }
                "206" if answer.field("Content-Encoding").is_none() => {
                    if let Some(range) = answer.field("Content-Range") {
                        let (start, end) = range["bytes ".len()..]
                            .split_once('/')
                            .expect("a length")
                            .0
                            .split_once('-')
                            .expect("an end");
                        let (start, end): (usize, usize) =
                            (start.parse().expect("a number"), end.parse().expect("a number"));
                        assert_eq!(answer.content, &whole[start..=end], "{context}");
                    }
                }
                "206" => assert!(fields.contains("If-Range: ") || fields.contains("If-Match: "), "{context}"),
                "304" => assert!(fields.contains("If-None-Match: "), "{context}"),
                "412" => assert!(fields.contains("If-Match: "), "{context}"),
                "416" => assert!(fields.contains("Range: bytes="), "{context}"),
                _ => panic!("{context}"),
            }
        }
    });
    assert!(etags.len() > 6, "all variants were seen: {etags:?}");
}

#[test]
fn a_404_page_and_the_fallback_are_compressed() {
    let content = text(5_000);
    let files = [("404.html", content.as_str()), ("index.html", &content)];
    browse(&files, fallback(), |browser| {
        for (path, fields, status) in [("/missing.js", "", "404"), ("/users", NAVIGATION, "200")] {
            let fields = format!("{fields}{BROTLI}");
            browser.get(path, &fields);
            let answer = browser.get(path, &fields);
            assert_eq!((answer.status(), answer.field("Content-Encoding")), (status, Some("br")));
            assert_eq!(decoded(&answer), content.as_bytes());
        }
    });
}

/// A request over HTTP/2 for a path of less than 128 bytes, as a navigation.
fn http2_navigation(stream: u32, path: &str) -> Vec<u8> {
    let block = [b"\x82\x86\x41\x01a\x04", &[path.len() as u8][..], path.as_bytes(), b"\x53\x09text/html"].concat();
    let length = (block.len() as u32).to_be_bytes();
    [&length[1..], &[1, 5], &stream.to_be_bytes(), &block].concat()
}

#[test]
fn pages_and_fallback_are_the_same_over_http2() {
    let files = [("app.html", "the app"), ("404.html", "the page"), ("about.html", "about")];
    let options = FileOptions { fallback: Some("app.html".into()), ..clean_urls() };
    browse(&files, options, |browser| {
        let requests = [(1, "/users/7"), (3, "/missing.js"), (5, "/about"), (7, "/about.html")];
        let opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        let requests = requests.map(|(stream, path)| http2_navigation(stream, path)).concat();
        let sent = [opening, requests].concat();
        let client = browser.simulation.connect(Protocol::Http, &sent, usize::MAX).expect("accepted");
        let mut received = Vec::new();
        wait_until("all are answered", || {
            browser.simulation.run(ITERATIONS_MAX);
            received.extend(browser.simulation.take_received(client));
            [&b"the app"[..], b"the page", b"about"]
                .into_iter()
                .all(|text| memchr::memmem::find(&received, text).is_some())
        });
        assert!(received.contains(&0x8d), "a status of 404, by the static table");
    });
}
