//! Redirects, rewrites and fields by path, of the configuration and of the files `_redirects` and `_headers`, with curl
//! as a client of both versions of HTTP.

mod access;
mod auth;

use sanderling_testkit::http::response_to;
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, curl, run, wait_until};
use std::fs;

const HTTP: ListenerCounts = ListenerCounts { http: 1, dns: 0 };
const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

/// A server of a site with these files, and the rest of its section of the configuration.
pub(crate) struct Site {
    pub(crate) server: TestServer,
    pub(crate) directory: TestDirectory,
}

pub(crate) fn configuration(section: &str) -> String {
    format!(
        "workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\nhttp2 = true\n[domain.\"example.com\"]\nsite = \"public\"\n{section}"
    )
}

impl Site {
    pub(crate) fn new(section: &str, files: &[(&str, &[u8])]) -> Site {
        let directory = TestDirectory::with(files);
        directory.write("public/index.html", b"index\n");
        directory.write("sanderling.toml", configuration(section).as_bytes());
        let server = TestServer::start_command(directory.serve_command(), HTTP);
        Site { server, directory }
    }

    /// The whole response to `curl` with `arguments` for a path, with `version`.
    pub(crate) fn ask(&self, version: &str, path: &str, arguments: &[&str]) -> String {
        let (url, to) = (format!("http://example.com{path}"), format!("::{}", self.server.http()));
        let fixed = ["-sSi", "--path-as-is", version, "--connect-to", &to];
        let ended = curl(&[&fixed, arguments, &[&url]].concat());
        assert!(ended.errors.is_empty(), "{path}: {}", ended.errors);
        ended.text().replace("\r\n", "\n")
    }

    /// Both versions of HTTP answer with this status and a head with these fields, and without those after `!`.
    #[track_caller]
    pub(crate) fn check(&self, path: &str, arguments: &[&str], status: u16, fields: &[&str]) {
        for version in VERSIONS {
            let response = self.ask(version, path, arguments);
            let head = response.split("\n\n").next().expect("a head").to_ascii_lowercase();
            let found = head.split_whitespace().nth(1).unwrap_or_default();
            assert_eq!(found, status.to_string(), "{version} {path}: {response}");
            for field in fields {
                let field = field.to_ascii_lowercase();
                let (expected, field) = field.strip_prefix('!').map_or((true, field.as_str()), |field| (false, field));
                let has = head.lines().any(|line| if expected { line == field } else { line.starts_with(field) });
                assert_eq!(has, expected, "{version} {path}: {field} in {response}");
            }
        }
    }

    /// Both versions of HTTP answer with this status and content.
    #[track_caller]
    pub(crate) fn check_content(&self, path: &str, status: u16, content: &str) {
        for version in VERSIONS {
            let response = self.ask(version, path, &[]);
            let (head, found) = response.split_once("\n\n").expect("a head");
            assert_eq!(
                head.split_whitespace().nth(1),
                Some(status.to_string().as_str()),
                "{version} {path}: {response}"
            );
            assert_eq!(found, content, "{version} {path}");
        }
    }
}

#[test]
fn redirects_of_the_configuration_are_answered() {
    let section = "[domain.\"example.com\".redirects]\n\"/old/*\" = { to = \"/new/:splat\", status = 301 }\n\
        \"/news/:year/:slug\" = { to = \"/blog/:slug?year=:year\", status = 302 }\n\"/x\" = \"/y\"\n\
        \"/303\" = { to = \"/y\", status = 303 }\n\"/307\" = { to = \"/y\", status = 307 }\n\
        \"/308\" = { to = \"https://example.org/\", status = 308 }\n\"/index.html\" = \"/\"\n\"/gone\" = { status = 410 }\n\
        \"/secret/*\" = { status = 403 }\n\"/store\" = { to = \"/blog/:id\", query = { id = \":id\" } }\n\
        \"/:any\" = { to = \"/found/:any\", force = false }\n";
    let site = Site::new(section, &[("public/file", b"a file\n"), ("public/secret/file", b"secret\n")]);
    site.check("/old/a/b?q=1", &[], 301, &["location: /new/a/b?q=1", "!etag"]);
    site.check("/old", &[], 301, &["location: /new/"]);
    site.check("/news/2026/a-b?q", &[], 302, &["location: /blog/a-b?year=2026"]);
    site.check("/x", &["-I"], 301, &["location: /y"]);
    site.check("/x", &["-X", "POST"], 301, &["location: /y"]);
    site.check("/x", &["-X", "OPTIONS"], 204, &["!location"]);
    for (path, status) in [("/303", 303), ("/307", 307)] {
        site.check(path, &[], status, &["location: /y"]);
    }
    site.check("/308", &[], 308, &["location: https://example.org/"]);
    site.check("/store?id=7", &[], 301, &["location: /blog/7"]);
    // A redirect applies where a file exists too; one with `force = false` does not.
    site.check("/index.html", &[], 301, &["location: /"]);
    site.check_content("/file", 200, "a file\n");
    site.check("/missing", &[], 301, &["location: /found/missing"]);
    site.check("/gone", &[], 410, &["content-type: text/plain; charset=utf-8"]);
    site.check("/secret/file", &[], 403, &[]);
    site.check("/secret/%66ile", &[], 403, &[]);
    site.check("/x/../secret//./file", &[], 403, &[]);
}

#[test]
fn regular_expressions_are_patterns_of_rules_and_routes() {
    let section = "[domain.\"example.com\".redirects]\n'~ ^/item-(?<id>[0-9]+)/?$' = \"/items/:id\"\n\
        '~* \\.(env|ini)$' = { status = 403 }\n[domain.\"example.com\".headers]\n\
        '~* \\.(png|jpe?g)$' = { \"Cache-Control\" = \"max-age=60\", Server = false }\n\
        [domain.\"example.com\".route.'~ ^/(status|health)$']\nrespond = { status = 200, text = \"fine\" }\n";
    let site = Site::new(section, &[("public/A.PNG", b"picture"), ("public/prod.env", b"secret")]);
    site.check("/item-42", &[], 301, &["location: /items/42"]);
    site.check("/item-42/?q", &[], 301, &["location: /items/42?q"]);
    site.check("/item-4x", &[], 404, &[]);
    for path in ["/prod.env", "/PROD.ENV", "/x/%2eenv", "/a//b/../c.Ini"] {
        site.check(path, &[], 403, &[]);
    }
    site.check("/A.PNG", &[], 200, &["cache-control: max-age=60", "!server"]);
    site.check("/health", &[], 200, &["server: sanderling"]);
    site.check_content("/health", 200, "fine");
    site.check("/health/x", &[], 404, &[]);
    let of_auth = configuration("auth = { '~ ^/private' = { users_file = \"users.htpasswd\" } }\n");
    let directory = TestDirectory::with(&[("sanderling.toml", of_auth.as_bytes()), ("public/index.html", b"")]);
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert!(ended.errors.contains("the path `~ ^/private` is a regular expression; write a path"), "{ended}");
}

#[test]
fn redirect_leads_to_no_other_host() {
    let section = "redirects = { \"/old/*\" = \"/:splat\", \"/o*\" = \"/:splat\" }\n";
    let site = Site::new(section, &[]);
    for (path, location) in [
        ("/old//evil.example", "/evil.example"),
        ("/old/%2F/evil.example", "/evil.example"),
        ("/old/%2f%2fevil.example/%2e%2e", "/"),
        ("//old//evil.example/", "/evil.example/"),
        ("/o/evil.example", "/evil.example"),
        ("/o%2F%2Fevil.example", "/evil.example"),
        ("/old/a%20b%C3%A9%22", "/a%20b%C3%A9%22"),
    ] {
        site.check(path, &[], 301, &[&format!("location: {location}")]);
    }
    for path in ["/old/%0d%0aSet-Cookie:%20a", "/old/%5cevil.example", "/old/%00", "/old/../../x"] {
        site.check(path, &[], 400, &["!location", "!set-cookie"]);
    }
}

#[test]
fn part_of_a_request_stays_in_its_segment() {
    let section = "[domain.\"example.com\".redirects]\n\"/to\" = { to = \"/pub/:id\", query = { id = \":id\" } }\n\
        \"/file\" = { to = \"/pub/:id.txt\", query = { id = \":id\" }, status = 200, force = true }\n\
        \"/old*\" = \"/pub/:splat\"\n\"/served*\" = { to = \"/pub/:splat\", status = 200 }\n";
    let files: &[(&str, &[u8])] =
        &[("public/pub/a.txt", b"public\n"), ("public/priv/b.txt", b"private\n"), ("public/pub/c/d.txt", b"below\n")];
    let site = Site::new(section, files);
    site.check("/to?id=a.txt", &[], 301, &["location: /pub/a.txt"]);
    site.check("/to?id=c/d.txt", &[], 301, &["location: /pub/c%2Fd.txt"]);
    site.check("/to?id=//evil.example", &[], 301, &["location: /pub/%2F%2Fevil.example"]);
    site.check_content("/file?id=a", 200, "public\n");
    site.check_content("/served/c/d.txt", 200, "below\n");
    for id in ["..", "../priv/b.txt", "%2e%2e%2fpriv%2fb.txt", "c/../../priv/b.txt"] {
        site.check(&format!("/to?id={id}"), &[], 404, &["!location"]);
    }
    for path in ["/file?id=../priv/b", "/file?id=c/d", "/old..", "/old../priv/b.txt", "/served../priv/b.txt"] {
        site.check(path, &[], 404, &["!location"]);
    }
}

#[test]
fn path_that_no_file_can_have_gets_the_rules_and_the_page_of_the_site() {
    let section = "security_headers = \"basic\"\n[domain.\"example.com\".redirects]\n\"/old/*\" = \"/new\"\n\
        [domain.\"example.com\".headers]\n\"/a/*\" = { X-A = \"1\" }\n";
    let site = Site::new(section, &[("public/404.html", b"own page\n")]);
    let (segment, deep) = ("a".repeat(256), "b/".repeat(2_500));
    for path in [format!("/{segment}"), format!("/a/{segment}.css"), format!("/{deep}")] {
        site.check_content(&path, 404, "own page\n");
        let own: &[&str] = if path.starts_with("/a/") { &["x-a: 1"] } else { &["!x-a"] };
        site.check(&path, &[], 404, &[own, &["x-frame-options: SAMEORIGIN"]].concat());
    }
    site.check(&format!("/old/{segment}"), &[], 301, &["location: /new"]);
    // A malformed path is none that other rules could match.
    site.check("/a/%00", &[], 400, &["x-frame-options: SAMEORIGIN", "!x-a"]);
}

#[test]
fn other_files_are_served_by_rewrites_and_error_pages() {
    let section = "[domain.\"example.com\".redirects]\n\"/app/*\" = { to = \"/app/index.html\", status = 200 }\n\
        \"/by/:name\" = { to = \"/people/:name.txt\", status = 200, force = true }\n\
        \"/removed/*\" = { to = \"/removed.html\", status = 410 }\n\"/lost/*\" = { to = \"/nowhere.html\", status = 404 }\n";
    let large = vec![b'x'; 100_000];
    let files: &[(&str, &[u8])] = &[
        ("public/app/index.html", b"app\n"),
        ("public/app/main.js", b"script\n"),
        ("public/people/ann b.txt", b"Ann\n"),
        ("public/removed.html", b"removed\n"),
        ("public/removed/not", b"not yet\n"),
        ("public/large", &large),
    ];
    let site = Site::new(section, files);
    site.check_content("/app/users/7", 200, "app\n");
    site.check_content("/app/main.js", 200, "script\n");
    site.check_content("/by/ann%20b", 200, "Ann\n");
    site.check("/by/ann%20b", &["-r", "1-"], 206, &["content-range: bytes 1-3/4"]);
    site.check_content("/removed/x", 410, "removed\n");
    site.check("/removed/x", &["-r", "1-"], 410, &["!content-range", "!etag", "!last-modified", "!accept-ranges"]);
    site.check("/removed/x", &["-I"], 410, &["content-length: 8", "content-type: text/html; charset=utf-8"]);
    site.check_content("/removed/not", 200, "not yet\n");
    site.check("/lost/x", &[], 404, &["content-type: text/plain; charset=utf-8"]);
    // A rule leads to no file that the site does not serve.
    site.check("/by/.hidden", &[], 404, &[]);
    site.check("/by/..%2f..%2fx", &[], 400, &[]);
}

#[test]
fn rules_lead_to_files_whose_urls_have_no_extension() {
    let section = "clean_urls = true\n[domain.\"example.com\".redirects]\n\
        \"/drafts/*\" = { to = \"/404.html\", status = 404, force = true }\n\
        \"/closed/*\" = { to = \"/maintenance\", status = 503, force = true }\n\
        \"/start/*\" = { to = \"/index\", status = 200 }\n\"/*\" = { to = \"/index.html\", status = 200 }\n";
    let files: &[(&str, &[u8])] = &[("public/404.html", b"lost\n"), ("public/maintenance.html", b"soon\n")];
    let site = Site::new(section, files);
    for (path, status, content) in [
        ("/users/7", 200, "index\n"),
        ("/start/x", 200, "index\n"),
        ("/drafts/x", 404, "lost\n"),
        ("/closed/x", 503, "soon\n"),
    ] {
        site.check_content(path, status, content);
    }
    // Requests for the files themselves are redirected, as without the rules.
    site.check("/maintenance.html", &[], 308, &["location: /maintenance"]);
    site.check("/index.html", &[], 308, &["location: /"]);
}

#[test]
fn site_that_is_closed_for_maintenance_gets_503_with_its_page() {
    let section = "[domain.\"example.com\".redirects]\n\"/status\" = { to = \"/status.txt\", status = 200, force = true }\n\
        \"/*\" = { to = \"/maintenance.html\", status = 503, force = true }\n[domain.\"example.com\".headers]\n\
        \"/*\" = { \"Retry-After\" = \"3600\" }\n";
    let site = Site::new(section, &[("public/maintenance.html", b"soon\n"), ("public/status.txt", b"up\n")]);
    for path in ["/", "/index.html", "/missing", "/maintenance.html"] {
        site.check_content(path, 503, "soon\n");
        site.check(path, &["-r", "1-"], 503, &["retry-after: 3600", "!etag", "!content-range"]);
    }
    site.check_content("/status", 200, "up\n");
    let closed = Site::new("redirects = { \"/*\" = { status = 503 } }\n", &[]);
    closed.check("/", &[], 503, &["retry-after: 5"]);
}

#[test]
fn fields_are_on_the_responses_that_may_have_them() {
    let section = "[domain.\"example.com\".headers]\n\"/*\" = { \"X-Frame-Options\" = \"DENY\", \"X-Path\" = \"/:splat\" }\n\
        \"/assets/*\" = { \"Cache-Control\" = \"public, max-age=31536000, immutable\", \"X-Content-Type-Options\" = false }\n\
        \"/assets/*.log\" = { \"Content-Type\" = \"text/x-log\", \"X-Frame-Options\" = \"SAMEORIGIN\" }\n";
    let files: &[(&str, &[u8])] = &[
        ("public/assets/a.js", b"script\n"),
        ("public/assets/a.log", b"0123456789\n"),
        ("public/assets/several.js", &[b'x'; 1000]),
        ("public/assets/several.log", &[b'x'; 1000]),
    ];
    let site = Site::new(section, files);
    site.check(
        "/",
        &[],
        200,
        &["x-frame-options: DENY", "x-path: /", "!cache-control", "x-content-type-options: nosniff"],
    );
    let cache = "cache-control: public, max-age=31536000, immutable";
    let of_script = [cache, "x-frame-options: DENY", "!x-content-type-options", "x-path: /assets/a.js"];
    site.check("/assets/a.js", &[], 200, &of_script);
    site.check("/assets/a.js", &["-I"], 200, &of_script);
    site.check("/assets/a.js", &["-r", "0-1"], 206, &of_script);
    let of_log = [cache, "x-frame-options: SAMEORIGIN", "content-type: text/x-log"];
    site.check("/assets/a.log", &[], 200, &of_log);
    site.check("/assets/a.log", &["-r", "0-0"], 206, &of_log);
    // Parts would have a different type than the whole file.
    site.check(
        "/assets/several.log",
        &["-r", "0-0,900-900"],
        200,
        &["content-type: text/x-log", "content-length: 1000"],
    );
    site.check("/assets/several.js", &["-r", "0-0,900-900"], 206, &["!content-type: text/javascript"]);
    // RFC 9110 §15.4.5.
    let head = site.ask("--http1.1", "/assets/a.log", &["-I"]);
    let etag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("an entity tag");
    let condition = format!("If-None-Match: {etag}");
    site.check("/assets/a.log", &["-H", &condition], 304, &[cache, &format!("etag: {etag}"), "!content-type"]);
    // Header fields for a file are not sent with an error.
    site.check("/assets/none", &[], 404, &["x-frame-options: DENY", "!cache-control"]);
    site.check("/assets/none.log", &[], 404, &["content-type: text/plain; charset=utf-8", "!cache-control"]);
    site.check("/assets", &[], 301, &["location: /assets/", "x-frame-options: DENY", "!cache-control"]);
    site.check("/assets/a.js", &["-X", "DELETE"], 405, &["x-frame-options: DENY", "!cache-control"]);
}

#[test]
fn files_of_rules_are_followed_and_not_served() {
    let redirects = b"/old/* /new/:splat\n/x /y 302 Country=us\n/index.html /elsewhere\n/forced.html /elsewhere 302!\n";
    let headers = b"/*\n  X-A: 1\n  nonsense\n/a/*\n  X-A: 2\n/b/*\n  ! X-A\n";
    let files: &[(&str, &[u8])] =
        &[("public/_redirects", redirects), ("public/_headers", headers), ("public/forced.html", b"forced\n")];
    let site =
        Site::new("redirects = { \"/old/mine\" = \"/own\" }\nheaders = { \"/a/own\" = { X-A = \"3\" } }\n", files);
    site.check("/old/a?b", &[], 301, &["location: /new/a?b"]);
    site.check("/x", &[], 404, &["x-a: 1"]);
    site.check("/a/b", &[], 404, &["x-a: 1, 2"]);
    site.check("/b/c", &[], 404, &["!x-a"]);
    // The rules of the operator take precedence.
    site.check("/old/mine", &[], 301, &["location: /own"]);
    site.check("/a/own", &[], 404, &["x-a: 3"]);
    // A file takes precedence over a rule without an exclamation mark.
    site.check_content("/index.html", 200, "index\n");
    site.check("/forced.html", &[], 302, &["location: /elsewhere"]);
    for path in ["/_redirects", "/_headers", "/%5Fredirects", "//_headers", "/a/../_headers", "/_headers/"] {
        site.check(path, &[], 404, &[]);
    }
    site.server.wait_for_error("public/_redirects:2:1: warning: `Country=us` after the destination is not supported");
    site.server
        .wait_for_error("public/_headers:3:1: warning: `nonsense` is neither a path nor a field; the line is skipped");
}

#[test]
fn change_of_the_files_is_noticed_without_a_reload() {
    let site = Site::new("", &[]);
    site.check("/a", &[], 404, &["!x-a"]);
    site.directory.write("public/_redirects", b"/a /b\nwrong\n");
    let location = |path: &str| response_to(site.server.http(), get(path)).field("Location").map(str::to_owned);
    wait_until("the rule is followed", || location("/a").as_deref() == Some("/b"));
    site.server.wait_for_error("public/_redirects:2:1: warning: `wrong` has no destination");
    site.directory.replace("public/_redirects", b"/a /c\n");
    wait_until("the changed rule is followed", || location("/a").as_deref() == Some("/c"));
    site.directory.write("public/_headers", b"/*\n  X-A: 1\n");
    wait_until("the field is sent", || response_to(site.server.http(), get("/")).field("X-A").is_some());
    assert!(site.directory.control("reload").status.success());
    assert_eq!(location("/a").as_deref(), Some("/c"), "a reload keeps the rules");
    fs::remove_file(site.directory.path().join("public/_redirects")).expect("removed");
    wait_until("there is no rule", || location("/a").is_none());
    assert!(response_to(site.server.http(), get("/")).field("X-A").is_some(), "the other file stays");
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
}

#[test]
fn files_of_rules_are_files_like_others_if_the_site_says_so() {
    let site = Site::new("rules_files = false\n", &[("public/_redirects", b"/a /b\n")]);
    site.check_content("/_redirects", 200, "/a /b\n");
    site.check("/a", &[], 404, &[]);
}

#[test]
fn check_reports_wrong_lines_and_rules_with_their_place() {
    let directory = TestDirectory::with(&[
        ("public/index.html", b"index\n"),
        ("public/_redirects", b"/ok /there\n/a https://example.org/ 200\n"),
        ("public/_headers", b"/*\n  Content-Length: 1\n"),
        ("sanderling.toml", configuration("").as_bytes()),
    ]);
    let check = || run(&["check", "--config", &directory.argument("sanderling.toml")]);
    let ended = check();
    assert_eq!(ended.code(), Some(0), "{}", ended.errors);
    for expected in [
        "public/_redirects:2:1: warning: `https://example.org/` is on another host",
        "public/_headers:2:1: warning: `Content-Length` cannot be set by a rule; the line is skipped",
    ] {
        assert!(ended.errors.contains(expected), "{expected} in {}", ended.errors);
    }
    let rules = "[domain.\"example.com\".headers]\n\"/*\" = { Connection = \"close\" }\n";
    directory.write("sanderling.toml", configuration(rules).as_bytes());
    let ended = check();
    assert_eq!(ended.code(), Some(1));
    let expected = "sanderling.toml:8:10: `Connection` cannot be set by a rule";
    assert!(ended.errors.contains(expected), "{}", ended.errors);
    directory.write("sanderling.toml", configuration("[limits]\nrules_file_max = \"10B\"\n").as_bytes());
    assert!(
        check().errors.contains("public/_redirects: warning: the file is larger than 10 bytes"),
        "{}",
        check().errors
    );
}

#[test]
fn browsers_keep_only_files_with_a_fingerprint() {
    let section = "cache = \"fingerprinted\"\nfallback = \"index.html\"\nredirects = { \"/app/*\" = { to = \"/index.html\", \
        status = 200 } }\nheaders = { \"/own/*\" = { \"Cache-Control\" = \"max-age=5, immutable\" } }\n";
    let files: &[(&str, &[u8])] = &[
        ("public/main.3f2a1b4c.js", b"script\n"),
        ("public/main.js", b"script\n"),
        ("public/own/a.3f2a1b4c.js", b"script\n"),
    ];
    let site = Site::new(section, files);
    let kept = "cache-control: public, max-age=31536000, immutable";
    site.check("/main.3f2a1b4c.js", &[], 200, &[kept]);
    site.check("/main.js", &[], 200, &["cache-control: no-cache"]);
    site.check("/", &[], 200, &["cache-control: no-cache"]);
    site.check("/own/a.3f2a1b4c.js", &[], 200, &["cache-control: max-age=5, immutable"]);
    site.check("/old.3f2a1b4c.js", &[], 404, &["!cache-control"]);
    // The page that stands in for a missing file may become that file.
    let navigation = ["-H", "Accept: text/html", "-H", "Sec-Fetch-Mode: navigate"];
    for path in ["/old.3f2a1b4c.js", "/app/x.3f2a1b4c.js", "/own/none.js"] {
        site.check(path, &navigation, 200, &["!cache-control", "content-type: text/html; charset=utf-8"]);
    }
}

#[test]
fn other_origins_may_read_responses_if_the_site_says_so() {
    let site = Site::new("cors = [\"https://app.example\", \"http://localhost:3000\"]\n", &[]);
    let of = |origin: &str| format!("Origin: {origin}");
    let allowed = "access-control-allow-origin: https://app.example";
    site.check("/", &["-H", &of("https://app.example")], 200, &["vary: origin", allowed]);
    site.check("/none", &["-H", &of("https://app.example")], 404, &["vary: origin", allowed]);
    for origin in ["https://other.example", "https://app.example.org", "null"] {
        site.check("/", &["-H", &of(origin)], 200, &["vary: origin", "!access-control"]);
    }
    site.check("/", &[], 200, &["vary: origin", "!access-control"]);
    let preflight = ["-X", "OPTIONS", "-H", "Access-Control-Request-Method: GET", "-H"];
    let of_local = of("http://localhost:3000");
    let fields = [
        "access-control-allow-origin: http://localhost:3000",
        "access-control-allow-methods: GET, HEAD, OPTIONS",
        "access-control-max-age: 86400",
        "vary: origin",
    ];
    site.check("/", &[&preflight[..], &[&of_local]].concat(), 204, &fields);
    let of_other = of("https://other.example");
    site.check("/", &[&preflight[..], &[&of_other]].concat(), 204, &["vary: origin", "!access-control"]);
    let any = Site::new("cors = \"*\"\n", &[]);
    any.check("/", &[], 200, &["access-control-allow-origin: *", "!vary"]);
    any.check("/", &[&preflight[..], &[&of_other]].concat(), 204, &["access-control-allow-origin: *"]);
}

#[test]
fn security_headers_are_sent_and_explained() {
    let site =
        Site::new("security_headers = \"strict\"\nheaders = { \"/frame\" = { X-Frame-Options = false } }\n", &[]);
    let strict = ["x-frame-options: DENY", "referrer-policy: no-referrer", "cross-origin-resource-policy: same-origin"];
    site.check("/", &[], 200, &strict);
    site.check("/none", &[], 404, &strict);
    site.check("/frame", &[], 404, &["!x-frame-options", "referrer-policy: no-referrer"]);
    let ended = run(&["check", "--strict", "--config", &site.directory.argument("sanderling.toml")]);
    assert_eq!(ended.code(), Some(0), "{}", ended.errors);
    let expected = "sanderling.toml:7:1: note: `security_headers`: its pages cannot contain inline scripts";
    assert!(ended.errors.contains(expected) && ended.errors.contains("frame-ancestors 'none'"), "{}", ended.errors);
    let fields = "frame-ancestors 'none'`, `X-Frame-Options: DENY`, `Referrer-Policy: no-referrer`, ";
    assert!(ended.errors.contains(fields), "{}", ended.errors);
    let basic = Site::new("security_headers = \"basic\"\n", &[("public/_headers", b"/*\n  Referrer-Policy: origin\n")]);
    basic.check("/", &[], 200, &["x-frame-options: SAMEORIGIN", "referrer-policy: origin", "!content-security-policy"]);
}
