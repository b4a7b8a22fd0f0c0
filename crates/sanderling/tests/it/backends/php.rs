//! A PHP site, by php-fpm over a UNIX socket and TCP.

use super::{Answer, FRONTS, Front, Proxy, Setup, route};
use sanderling_os::process::effective_uid;
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{TestDirectory, free_address, random_bytes, run_program, seed, send_signal, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const SCRIPT: &[u8] = include_bytes!("application.php");
/// A script that must not run, whatever it is asked for as.
const PICTURE: &[u8] = b"<?php echo 'the picture is run';\n";

/// php-fpm with two workers for a UNIX socket and two for TCP, each of which ends after a number of requests.
pub(super) struct Php {
    child: Child,
    /// The directory of the socket, and of what php-fpm writes.
    directory: TestDirectory,
    address: SocketAddr,
}

impl Php {
    pub(super) fn new(requests_max: usize) -> Php {
        let (directory, address) = (TestDirectory::new(), free_address());
        let user = if effective_uid() == 0 { "user = nobody\ngroup = nogroup\n" } else { "" };
        let pool = |name: &str, listen: &str| {
            format!(
                "[{name}]\n{user}listen = {listen}\nlisten.mode = 0666\npm = static\npm.max_children = 2\n\
                 pm.max_requests = {requests_max}\ncatch_workers_output = no\n"
            )
        };
        let config = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n{}{}",
            directory.argument("php.log"),
            pool("unix", &directory.argument("php.sock")),
            pool("tcp", &address.to_string())
        );
        let config = directory.write("php-fpm.conf", config.as_bytes());
        let mut command = Command::new("php-fpm8.2");
        // Its workers would outlive it.
        command.arg("-F").arg("-y").arg(config).stdin(Stdio::null()).process_group(0);
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("php-fpm8.2: {error}; `cargo xtask setup` installs it (Debian package php8.2-fpm)")
        });
        let socket = directory.path().join("php.sock");
        wait_until("php-fpm accepts connections", || UnixStream::connect(&socket).is_ok());
        Php { child, directory, address }
    }

    /// The servers in the form of the configuration.
    pub(super) fn servers(&self) -> [String; 2] {
        [format!("unix:{}", self.directory.argument("php.sock")), self.address.to_string()]
    }
}

impl Drop for Php {
    fn drop(&mut self) {
        send_signal("KILL", &format!("-{}", self.child.id()));
        let _ = self.child.wait();
    }
}

/// A site with scripts, which this server runs.
fn site(server: &str, keys: &str) -> Proxy {
    let keys = route("/", &format!("fastcgi = \"{server}\"\n{keys}"));
    let files: [(&str, &[u8]); 6] = [
        ("public/index.php", SCRIPT),
        ("public/info.php", SCRIPT),
        ("public/sub/index.php", SCRIPT),
        ("public/page.html", b"a page\n"),
        ("public/x.jpg", PICTURE),
        ("outside.php", SCRIPT),
    ];
    Proxy::with(Setup { keys, ..Setup::default() }, &files)
}

impl Answer {
    /// The value of a variable that the script has printed.
    pub(super) fn variable(&self, name: &str) -> &str {
        let start = format!("{name}=");
        self.content.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or("missing")
    }
}

#[test]
fn scripts_run_and_files_are_sent_over_both_kinds_of_sockets() {
    let php = Php::new(0);
    for server in php.servers() {
        let proxy = site(&server, "");
        let root = proxy.directory.path().join("public").canonicalize().expect("the root exists");
        let root = root.to_str().expect("UTF-8");
        for front in FRONTS {
            let check = |path: &str, script: &str, path_info: &str| {
                let answer = proxy.ask(front, path, &["-H", "X-Own: x", "-H", "Proxy: http://evil.example"]);
                assert_eq!(answer.status, 200, "{front:?} {path}: {answer:?}");
                assert_eq!(answer.all("set-cookie"), ["php=yes"], "{front:?}");
                let query = path.split_once('?').map_or("", |(_, query)| query);
                for (name, value) in [
                    ("REQUEST_METHOD", "GET"),
                    ("REQUEST_URI", path),
                    ("QUERY_STRING", query),
                    ("SCRIPT_NAME", script),
                    ("SCRIPT_FILENAME", &format!("{root}{script}")),
                    ("DOCUMENT_ROOT", root),
                    ("REMOTE_ADDR", "127.0.0.1"),
                    ("HTTP_HOST", "example.com"),
                    ("HTTP_X_OWN", "x"),
                    ("HTTP_PROXY", "none"),
                ] {
                    assert_eq!(answer.variable(name), value, "{front:?} {path} {name}: {}", answer.content);
                }
                let found = answer.variable("PATH_INFO");
                assert!(found == path_info || (path_info.is_empty() && found == "none"), "{path}: {found}");
                let is_https = matches!(front, Front::Https1 | Front::Https2);
                assert_eq!(answer.variable("HTTPS") == "on", is_https, "{}", answer.content);
            };
            check("/", "/index.php", "");
            check("/users/7?q=1", "/index.php", "");
            check("/info.php?a=b", "/info.php", "");
            check("/info.php/extra/path", "/info.php", "/extra/path");
            check("/sub/", "/sub/index.php", "");
            assert_eq!(proxy.ask(front, "/page.html", &[]).content, "a page\n", "{front:?}");
            assert_eq!(proxy.ask(front, "/static.txt", &[]).content, "static\n");
            let post = proxy.ask(front, "/info.php", &["-d", "a=hello&b=2"]);
            assert_eq!((post.variable("a"), post.variable("REQUEST_METHOD")), ("hello", "POST"), "{post:?}");
            assert_eq!(post.variable("CONTENT_TYPE"), "application/x-www-form-urlencoded");
            let large = proxy.ask(front, "/?large=200000", &[]);
            assert!(large.content.ends_with(&"x".repeat(200_000)), "{} bytes", large.content.len());
            assert_eq!(proxy.ask(front, "/?fail", &[]).status, 500);
            let redirect = proxy.ask(front, "/?redirect", &[]);
            assert_eq!((redirect.status, redirect.all("location")), (302, vec!["/elsewhere"]));
            assert_eq!(proxy.ask(front, "/info.php", &["-I"]).content, "");
        }
    }
}

#[test]
fn no_other_file_is_run_and_no_script_is_sent() {
    let php = Php::new(0);
    let server = &php.servers()[0];
    let proxy = site(server, "front_controller = false");
    symlink("../outside.php", proxy.directory.path().join("public/link.php")).expect("linked");
    for (path, status) in [
        ("/x.jpg/y.php", 404),
        ("/x.jpg/.php", 404),
        ("/x.jpg%00.php", 400),
        ("/x.jpg%2Fy.php", 404),
        ("/../outside.php", 400),
        ("/%2e%2e/outside.php", 400),
        ("/missing.php", 404),
        ("/missing.php/info.php", 404),
        ("/link.php", 404),
        ("/page.html/info.php", 404),
    ] {
        let answer = proxy.ask(Front::Http1, path, &[]);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(!answer.content.contains("is run") && !answer.content.contains("<?php"), "{path}: {answer:?}");
    }
    for path in [
        "/info.php",
        "/info.php/",
        "/%69nfo.php",
        "//info.php",
        "/info.php?x",
        "/INFO.PHP",
        "/info.php.",
        "/sub/index.php",
    ] {
        for more in [&[][..], &["-I"], &["-r", "0-9"], &["-X", "POST"], &["-H", "Accept-Encoding: gzip"]] {
            let answer = proxy.ask(Front::Http2, path, more);
            assert!(!answer.content.contains("<?php") && answer.status != 206, "{path} {more:?}: {answer:?}");
        }
    }
    // The picture is a file as any other.
    assert_eq!(proxy.ask(Front::Http1, "/x.jpg", &[]).content.as_bytes(), PICTURE);
}

#[test]
fn no_key_of_a_site_with_scripts_makes_one_a_file() {
    let php = Php::new(0);
    let keys = format!(
        "index = [\"index.php\"]\nfallback = \"info.php\"\nlisting = true\n[domain.\"example.com\".redirects]\n\
         \"/rewritten\" = {{ to = \"/info.php\", status = 200 }}\n\"/forced\" = {{ to = \"/info.php\", status = 200, force = true }}\n\
         \"/gone\" = {{ to = \"/info.php\", status = 410 }}\n{}{}{}",
        route("/scripts/*.php", &format!("fastcgi = \"{}\"\nfront_controller = false", php.servers()[0])),
        route("/uploads/", "respond = { status = 404, text = \"fixed\" }\nfiles_first = true"),
        route("/api/", "proxy = \"http://127.0.0.1:1\"\nfiles_first = true"),
    );
    let files: [(&str, &[u8]); 6] = [
        ("public/index.php", SCRIPT),
        ("public/info.php", SCRIPT),
        ("public/uploads/evil.php", SCRIPT),
        ("public/uploads/a.txt", b"text\n"),
        ("public/api/tool.php", SCRIPT),
        ("public/scripts/run.php", SCRIPT),
    ];
    let proxy = Proxy::with(Setup { keys, ..Setup::default() }, &files);
    for (path, status) in [
        ("/", 404),
        ("/info.php", 404),
        ("/info.php/x", 404),
        ("/rewritten", 404),
        ("/forced", 404),
        ("/gone", 410),
        ("/uploads/evil.php", 404),
        ("/uploads/evil.php/x", 404),
        ("/api/tool.php", 502),
        ("/missing", 404),
        ("/uploads/a.txt", 200),
        ("/scripts/run.php", 200),
    ] {
        let answer = proxy.ask(Front::Http1, path, &["-H", "Accept: text/html", "-H", "Sec-Fetch-Mode: navigate"]);
        assert!(answer.status == status && !answer.content.contains("<?php"), "{path}: {answer:?}");
    }
    assert_eq!(proxy.ask(Front::Http1, "/uploads/evil.php", &[]).content, "fixed");
}

#[test]
fn uploads_reach_a_script_whole() {
    let php = Php::new(0);
    let mut random = fastrand::Rng::with_seed(seed());
    for server in php.servers() {
        let proxy = site(&server, "");
        // About the limits of a record, 65,535 bytes.
        for bytes in [0, 1, 65_528, 65_535, 65_536, 65_537, 131_070, 1_000_000] {
            let file = proxy.directory.write("upload", &random_bytes(&mut random, bytes));
            let file = file.to_str().expect("UTF-8");
            let sum = run_program("sha256sum", "coreutils", &[file]).text();
            let from = format!("@{file}");
            let more = ["-X", "PUT", "-H", "Content-Type: application/x", "--data-binary", &from];
            for front in [Front::Http1, Front::Https2] {
                let answer = proxy.ask(front, "/info.php", &more);
                let expected = sum.split(' ').next().expect("a hash");
                assert_eq!(answer.variable("hash"), expected, "{front:?} {bytes}: {answer:?}");
            }
        }
    }
}

#[test]
fn workers_that_end_after_a_few_requests_lose_none() {
    const REQUESTS: usize = 300;
    const WORKERS: usize = 2;
    let php = Php::new(3);
    for server in php.servers() {
        let proxy = site(&server, "");
        let mut pids = BTreeSet::new();
        for number in 0..REQUESTS {
            let mut client = HttpClient::connect(proxy.http());
            client.send(format!("GET /{number} HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"));
            let response = client.response();
            assert_eq!(response.status, 200, "{number}: {}", response.text());
            let pid = response.text().lines().find_map(|line| line.strip_prefix("pid=").map(str::to_owned));
            pids.insert(pid.expect("the script prints it"));
        }
        assert!(pids.len() > WORKERS, "{pids:?}");
        let status = proxy.directory.control_with("status", &["--json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.output).expect("JSON");
        assert_eq!(status["process"]["counters"]["backend_errors"], 0, "{status}");
    }
}

#[test]
fn release_is_run_from_its_own_directory() {
    let php = Php::new(0);
    let keys = route("/", &format!("fastcgi = \"{}\"", php.servers()[0]));
    let files = [("releases/1/index.php", SCRIPT), ("releases/2/index.php", SCRIPT)];
    let proxy = Proxy::with(Setup { keys: keys.clone(), ..Setup::default() }, &files);
    let path = |name: &str| proxy.directory.path().join(name);
    fs::remove_dir_all(path("public")).expect("removed");
    symlink("releases/1", path("public")).expect("linked");
    proxy.reload(&keys);
    let script = || proxy.ask(Front::Http1, "/", &[]).variable("file").to_owned();
    wait_until("the first release", || script().ends_with("/releases/1/index.php"));
    symlink("releases/2", path("next")).expect("linked");
    fs::rename(path("next"), path("public")).expect("renamed");
    proxy.directory.control("reload");
    wait_until("the second release", || script().ends_with("/releases/2/index.php"));
}
