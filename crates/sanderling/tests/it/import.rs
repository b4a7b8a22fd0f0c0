//! Configurations of other servers, imported and served next to these servers: both give the same answers.

use crate::name_servers::{NameServer, Program, SECRET, TSIG};
use crate::nginx::Nginx;
use sanderling_testkit::dns;
use sanderling_testkit::http::{Response, response_to};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, dig, free_address, run, wait_until};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const ZONE: &[u8] = b"$TTL 600\n@ SOA ns1 host 7 3600 600 86400 300\n@ NS ns1\n@ MX 10 mail\nns1 A 192.0.2.1\n\
    mail A 192.0.2.2\n*.wild TXT \"any\"\nsub NS ns.sub\nns.sub A 192.0.2.3\n";
const FILES: &[(&str, &[u8])] = &[
    ("public/index.html", b"start\n"),
    ("public/404.html", b"not here\n"),
    ("public/about.html", b"about\n"),
    ("public/app.js", b"let a = 1;\n"),
    ("public/guide/index.html", b"guide\n"),
    ("public/admin/index.html", b"admin\n"),
    ("public/private/index.html", b"private\n"),
    ("public/posts/one.html", b"one\n"),
    ("public/file.log", b"log\n"),
    ("other/index.html", b"other\n"),
    // The password is `secret`.
    ("users.htpasswd", include_bytes!("site_rules/users.htpasswd")),
];

/// Caddy; stopped when it is dropped.
struct Caddy(Child);

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// nginx with these servers.
fn nginx(directory: &TestDirectory, servers: &str) -> Nginx {
    let types = "types { text/html html; application/javascript js; text/plain txt log; }\n";
    Nginx::start(directory, &format!("{types}{servers}"), "")
}

/// Caddy with these sites, which listen at `address`.
fn caddy(directory: &TestDirectory, address: SocketAddr, sites: &str) -> Caddy {
    let options = "{\n\tadmin off\n\tauto_https off\n\tlog {\n\t\tlevel ERROR\n\t}\n}\n";
    directory.write("Caddyfile", format!("{options}{sites}").as_bytes());
    let in_home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin/caddy"));
    let program = in_home.filter(|path| path.is_file()).unwrap_or_else(|| "caddy".into());
    let mut command = Command::new(program);
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(directory.argument("Caddyfile"));
    for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(variable, directory.path());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let caddy = Caddy(command.spawn().expect("caddy is installed: cargo xtask setup"));
    wait_until("Caddy accepts connections", || TcpStream::connect(address).is_ok());
    caddy
}

/// Imports `file`, and serves the result; the address `theirs` becomes a free one.
fn serve_import(
    directory: &TestDirectory,
    kind: &str,
    file: &str,
    theirs: SocketAddr,
    counts: ListenerCounts,
) -> TestServer {
    let (out, source) = (directory.argument("imported.toml"), directory.argument(file));
    let ended = run(&["import", kind, &source, "--out", &out]);
    assert_eq!(ended.code(), Some(0), "{}", ended.errors);
    assert!(!ended.errors.contains("Correct these errors"), "{}", ended.errors);
    let config = std::fs::read_to_string(&out).expect("written");
    let config = config.replace(&theirs.to_string(), "127.0.0.1:0");
    directory.write("sanderling.toml", format!("state = \"state\"\n{config}").as_bytes());
    TestServer::start_command(directory.serve_command(), counts)
}

const WEB: ListenerCounts = ListenerCounts { http: 1, dns: 0 };
const NAMES: ListenerCounts = ListenerCounts { http: 0, dns: 1 };

/// The parts of a response that clients act on.
fn shown(response: &Response, fields: &[&str]) -> String {
    let values: Vec<String> =
        fields.iter().map(|name| format!("{name}: {}", response.field(name).unwrap_or("-"))).collect();
    let is_content = response.status == 200;
    let body = if is_content { response.text() } else { String::new() };
    format!("{} {} {body:?}", response.status, values.join(", "))
}

/// Compares the responses of both servers to each target, with further request fields.
fn compare(ours: SocketAddr, theirs: SocketAddr, fields: &[&str], requests: &[(&str, &str, &str)]) {
    for (host, target, more) in requests {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
        let [ours, theirs] = [ours, theirs].map(|server| shown(&response_to(server, &request), fields));
        assert_eq!(ours, theirs, "{host}{target} {more}");
    }
}

#[test]
fn redirects_and_rewrites_are_those_of_nginx() {
    let (directory, theirs) = (TestDirectory::with(FILES), free_address());
    let root = directory.argument("public");
    let servers = format!(
        "server {{ listen {theirs}; server_name a.example; root {root}; index index.html; error_page 404 /404.html;
         location = /start {{ return 301 /guide/; }}
         location /old/ {{ return 302 https://archive.example$request_uri; }}
         location ~ ^/v1/(.*)$ {{ return 308 /v2/$1; }}
         rewrite ^/blog/([^/]+)$ /posts/$1.html permanent;
         rewrite ^/latest$ /posts/one.html last;
         location /gone/ {{ return 410; }}
         location = /health {{ return 200 \"ok\"; }}
         location ~ \\.log$ {{ return 403; }}
         }}"
    );
    let _nginx = nginx(&directory, &servers);
    let server = serve_import(&directory, "nginx", "nginx.conf", theirs, WEB);
    let targets = [
        "/",
        "/guide/",
        "/guide",
        "/start",
        "/old/a?b=c",
        "/v1/x/y",
        "/blog/one",
        "/latest",
        "/gone/x",
        "/health",
        "/file.log",
        "/missing",
        "/about.html",
    ];
    let requests: Vec<_> = targets.iter().map(|target| ("a.example", *target, "")).collect();
    compare(server.http(), theirs, &["Location"], &requests);
}

#[test]
fn fields_and_caches_are_those_of_nginx() {
    let (directory, theirs) = (TestDirectory::with(FILES), free_address());
    let root = directory.argument("public");
    let servers = format!(
        "server {{ listen {theirs}; server_name a.example; root {root};
         add_header X-Frame-Options DENY;
         location /guide/ {{ add_header X-Frame-Options SAMEORIGIN; add_header X-Guide yes; }}
         location ~ \\.js$ {{ expires 1h; add_header X-Frame-Options DENY; }}
         location = /about.html {{ expires -1; add_header X-Frame-Options DENY; }}
         }}"
    );
    let _nginx = nginx(&directory, &servers);
    let server = serve_import(&directory, "nginx", "nginx.conf", theirs, WEB);
    let targets = ["/", "/guide/", "/app.js", "/about.html"];
    let requests: Vec<_> = targets.iter().map(|target| ("a.example", *target, "")).collect();
    compare(server.http(), theirs, &["X-Frame-Options", "X-Guide", "Cache-Control"], &requests);
}

#[test]
fn hosts_and_their_redirects_are_those_of_nginx() {
    let (directory, theirs) = (TestDirectory::with(FILES), free_address());
    let (root, other) = (directory.argument("public"), directory.argument("other"));
    let servers = format!(
        "server {{ listen {theirs} default_server; server_name _; root {other}; }}
         server {{ listen {theirs}; server_name www.a.example; return 301 http://a.example$request_uri; }}
         server {{ listen {theirs}; server_name a.example; root {root}; }}
         server {{ listen {theirs}; server_name *.wild.example; root {other}; }}
         server {{ listen {theirs}; server_name gone.example; return 301 https://elsewhere.example/x; }}"
    );
    let _nginx = nginx(&directory, &servers);
    let server = serve_import(&directory, "nginx", "nginx.conf", theirs, WEB);
    let requests = [
        ("a.example", "/", ""),
        ("www.a.example", "/guide/?q=1", ""),
        ("x.y.wild.example", "/", ""),
        ("unknown.example", "/", ""),
        ("127.0.0.1", "/", ""),
        ("gone.example", "/anything", ""),
    ];
    compare(server.http(), theirs, &["Location"], &requests);
}

#[test]
fn application_and_its_start_page_are_reached_as_through_nginx() {
    let (directory, theirs) = (TestDirectory::with(FILES), free_address());
    let backend = free_address();
    let root = directory.argument("public");
    // The same nginx is the application.
    let servers = format!(
        "server {{ listen {theirs}; server_name a.example; root {root};
         location /api/ {{ proxy_pass http://{backend}/; proxy_set_header X-Secret s3; }}
         location /app/ {{ proxy_pass http://{backend}; }}
         location / {{ try_files $uri $uri/ /index.html; }}
         }}"
    );
    let application = format!(
        "server {{ listen {backend}; location / {{ default_type text/plain; return 200 \"$request_uri $http_x_secret\"; }} }}"
    );
    let _nginx = nginx(&directory, &format!("{servers}\n{application}"));
    // Only the first server is imported.
    directory.write("first.conf", format!("http {{ {servers} }}").as_bytes());
    let server = serve_import(&directory, "nginx", "first.conf", theirs, WEB);
    let targets = ["/api/x/y?z=1", "/app/x", "/", "/users/7", "/guide/", "/app.js"];
    let requests: Vec<_> = targets.iter().map(|target| ("a.example", *target, "")).collect();
    compare(server.http(), theirs, &[], &requests);
}

#[test]
fn passwords_and_addresses_are_those_of_nginx() {
    let (directory, theirs) = (TestDirectory::with(FILES), free_address());
    let root = directory.argument("public");
    let servers = format!(
        "server {{ listen {theirs}; server_name a.example; root {root};
         location /admin/ {{ allow 192.0.2.0/24; deny all; }}
         location /guide/ {{ allow 127.0.0.0/8; deny all; }}
         location /private/ {{ auth_basic \"members\"; auth_basic_user_file {}; }}
         location ~ /\\.git {{ deny all; }}
         }}",
        directory.argument("users.htpasswd")
    );
    let _nginx = nginx(&directory, &servers);
    let server = serve_import(&directory, "nginx", "nginx.conf", theirs, WEB);
    let targets = ["/admin/", "/guide/", "/private/"];
    let requests: Vec<_> = targets.iter().map(|target| ("a.example", *target, "")).collect();
    compare(server.http(), theirs, &[], &requests);
    // `ann:secret` and `ann:wrong`.
    for (credentials, status) in [("YW5uOnNlY3JldA==", 200), ("YW5uOndyb25n", 401)] {
        let authorization = format!("Authorization: Basic {credentials}\r\n");
        compare(server.http(), theirs, &[], &[("a.example", "/private/", &authorization)]);
        let request = format!("GET /private/ HTTP/1.1\r\nHost: a.example\r\n{authorization}Connection: close\r\n\r\n");
        assert_eq!(response_to(server.http(), &request).status, status);
    }
}

#[test]
fn static_site_is_that_of_caddy() {
    let (directory, theirs) = (TestDirectory::with(FILES), free_address());
    let root = directory.argument("public");
    let _caddy = caddy(
        &directory,
        theirs,
        &format!(
            "http://a.example:{0} {{\n\tbind 127.0.0.1\n\troot * {root}\n\tfile_server\n\tredir /start /guide/ 301\n\
             \tredir /old/* https://archive.example{{uri}} 308\n\theader X-Frame-Options DENY\n\
             \theader *.js Cache-Control max-age=60\n\trespond /health \"ok\" 200\n\
             \thandle_errors {{\n\t\trewrite * /404.html\n\t\tfile_server\n\t}}\n}}\n\
             http://www.a.example:{0} {{\n\tbind 127.0.0.1\n\tredir http://a.example{{uri}} permanent\n}}\n",
            theirs.port()
        ),
    );
    let server = serve_import(&directory, "caddy", "Caddyfile", theirs, WEB);
    let requests = [
        ("a.example", "/", ""),
        ("a.example", "/guide/", ""),
        ("a.example", "/start", ""),
        ("a.example", "/old/x?y=1", ""),
        ("a.example", "/app.js", ""),
        ("a.example", "/health", ""),
        ("a.example", "/missing", ""),
        ("www.a.example", "/guide/?q=1", ""),
    ];
    compare(server.http(), theirs, &["Location", "X-Frame-Options", "Cache-Control"], &requests[..5]);
    compare(server.http(), theirs, &["Location"], &requests[5..]);
}

#[test]
fn application_of_a_single_page_is_that_of_caddy() {
    let (directory, theirs) = (TestDirectory::with(FILES), free_address());
    let backend = free_address();
    let root = directory.argument("public");
    let application = format!("http://127.0.0.1:{} {{\n\tbind 127.0.0.1\n\trespond \"{{uri}}\"\n}}\n", backend.port());
    let site = format!(
        "http://a.example:{} {{\n\tbind 127.0.0.1\n\thandle_path /api/* {{\n\t\treverse_proxy {backend}\n\t}}\n\
         \thandle /admin/* {{\n\t\trespond 403\n\t}}\n\
         \thandle {{\n\t\troot * {root}\n\t\ttry_files {{path}} /index.html\n\t\tfile_server\n\t}}\n}}\n",
        theirs.port()
    );
    let _caddy = caddy(&directory, theirs, &format!("{site}{application}"));
    directory.write("first", format!("{{\n\tauto_https off\n}}\n{site}").as_bytes());
    let server = serve_import(&directory, "caddy", "first", theirs, WEB);
    let targets = ["/", "/users/7", "/app.js", "/api/x/y?z=1", "/admin/index.html"];
    let requests: Vec<_> = targets.iter().map(|target| ("a.example", *target, "")).collect();
    compare(server.http(), theirs, &[], &requests);
}

/// Compares the whole zone, and answers from it.
fn compare_zone(server: &TestServer, other: &NameServer) {
    let is_served = |address| dns::is_served(address, "example.com");
    wait_until("both servers have the zone", || is_served(server.dns()) && is_served(other.address()));
    let records = |address| {
        let mut records = sorted_records(&dig(address, &["example.com", "AXFR"]).text());
        // The SOA record begins and ends a transfer.
        records.dedup();
        records
    };
    let ours = records(server.dns());
    assert_eq!(ours.len(), 8, "{ours:?}");
    assert_eq!(ours, records(other.address()));
    for arguments in [
        ["mail.example.com", "A"],
        ["x.wild.example.com", "TXT"],
        ["none.example.com", "A"],
        ["a.sub.example.com", "A"],
    ] {
        let answer = |address| {
            let text = dig(address, &[&arguments[..], &["+norec"]].concat()).text();
            let status = text.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("").to_owned();
            (status, sorted_records(&text))
        };
        assert_eq!(answer(server.dns()), answer(other.address()), "{arguments:?}");
    }
}

/// The records that `dig` has printed.
fn sorted_records(text: &str) -> Vec<String> {
    let records = text.lines().filter(|line| !line.is_empty() && !line.starts_with(';'));
    let mut records: Vec<String> = records.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    records.sort();
    records
}

/// Starts the other server, and this one with its imported configuration.
fn serve_both(
    program: Program,
    kind: &str,
    config: impl FnOnce(&str, u16) -> String,
) -> (TestServer, NameServer, TestDirectory) {
    let (directory, theirs) = (TestDirectory::new(), free_address());
    directory.write("example.com.zone", ZONE);
    directory.write("keys/transfer.key", format!("{SECRET}\n").as_bytes());
    let text = config(&directory.path().display().to_string(), theirs.port());
    directory.write("config", text.as_bytes());
    let other = program.start_with(theirs, |_| text);
    let server = serve_import(&directory, kind, "config", theirs, NAMES);
    (server, other, directory)
}

#[test]
fn zone_and_its_transfers_are_those_of_bind() {
    let (server, other, _directory) = serve_both(Program::Bind, "named", |home, port| {
        format!(
            "acl here {{ 127.0.0.1; }};\n\
             options {{ directory \"{home}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no;\n\
             pid-file \"{home}/pid\"; session-keyfile \"{home}/session\"; empty-zones-enable no; dnssec-validation no;\n\
             minimal-responses yes; }};\n\
             controls {{ }};\n\
             zone \"example.com\" {{ type primary; file \"example.com.zone\"; allow-transfer {{ here; }}; }};\n"
        )
    });
    compare_zone(&server, &other);
}

#[test]
fn transfers_need_the_key_of_bind() {
    let (server, other, _directory) = serve_both(Program::Bind, "named", |home, port| {
        format!(
            "key transfer {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n\
             options {{ directory \"{home}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no;\n\
             pid-file \"{home}/pid\"; session-keyfile \"{home}/session\"; empty-zones-enable no; dnssec-validation no;\n\
             allow-transfer {{ key transfer; }}; }};\ncontrols {{ }};\n\
             zone \"example.com\" {{ type master; file \"example.com.zone\"; }};\n"
        )
    });
    let is_served = |address| dns::is_served(address, "example.com");
    wait_until("both servers have the zone", || is_served(server.dns()) && is_served(other.address()));
    for address in [server.dns(), other.address()] {
        let without = dig(address, &["example.com", "AXFR"]).text();
        assert!(without.contains("Transfer failed"), "{without}");
        let with = dig(address, &["-y", TSIG, "example.com", "AXFR"]).text();
        assert!(with.contains("mail.example.com."), "{with}");
    }
}

#[test]
fn zone_is_that_of_nsd() {
    let (server, other, _directory) = serve_both(Program::Nsd, "nsd", |home, port| {
        format!(
            "server:\n ip-address: 127.0.0.1@{port}\n username: \"\"\n zonesdir: \"{home}\"\n database: \"\"\n \
             zonelistfile: \"{home}/zone.list\"\n xfrdfile: \"{home}/xfrd.state\"\n xfrdir: \"{home}\"\n \
             pidfile: \"{home}/pid\"\n server-count: 1\n minimal-responses: yes\nremote-control:\n control-enable: no\n\
             pattern:\n name: local\n provide-xfr: 127.0.0.1 NOKEY\n\
             zone:\n name: example.com\n zonefile: \"%s.zone\"\n include-pattern: local\n"
        )
    });
    compare_zone(&server, &other);
}

#[test]
fn zone_is_that_of_knot() {
    let (server, other, _directory) = serve_both(Program::Knot, "knot", |home, port| {
        format!(
            "server:\n  rundir: {home}\n  listen: 127.0.0.1@{port}\n  udp-workers: 1\n  tcp-workers: 1\n\
             acl:\n  - id: here\n    address: 127.0.0.1\n    action: transfer\n\
             database:\n  storage: {home}\n\
             template:\n  - id: default\n    storage: {home}\n    file: \"%s.zone\"\n    acl: here\n\
             zone:\n  - domain: example.com\n"
        )
    });
    compare_zone(&server, &other);
}

#[test]
fn command_says_what_is_wrong() {
    let directory = TestDirectory::with(&[("broken.conf", b"server {\n  listen 80;\n"), ("empty.conf", b"user a;\n")]);
    let file = |name: &str| directory.argument(name);
    let broken = run(&["import", "nginx", &file("broken.conf")]);
    assert_eq!(broken.code(), Some(1));
    assert!(broken.errors.contains("broken.conf:1:8: the brace is not closed"), "{}", broken.errors);
    let missing = run(&["import", "named", &file("missing.conf")]);
    assert!(
        missing.errors.contains("missing.conf:1:1: cannot read the file: No such file or directory"),
        "{}",
        missing.errors
    );
    let empty = run(&["import", "nginx", &file("empty.conf")]);
    assert_eq!(empty.code(), Some(1), "{}", empty.errors);
    assert!(empty.errors.contains("nothing in the files can be served"), "{}", empty.errors);
    directory.write("out.toml", b"workers = 1\n");
    directory.write("packaged.toml", b"# http.listen = []\n");
    directory.write("good.conf", b"server { listen 80; server_name a.example; root /srv; }");
    let exists = run(&["import", "nginx", &file("good.conf"), "--out", &file("out.toml")]);
    assert!(exists.errors.contains("File exists; choose another name, or remove the file"), "{}", exists.errors);
    let packaged = run(&["import", "nginx", &file("good.conf"), "--out", &file("packaged.toml")]);
    assert_eq!(packaged.code(), Some(0), "{}", packaged.errors);
    let good = run(&["import", "nginx", &file("good.conf"), "--report", &file("report.txt")]);
    assert_eq!(good.code(), Some(0), "{}", good.errors);
    let report = std::fs::read_to_string(file("report.txt")).expect("written");
    assert_eq!(report, "1 of 1 lines with statements are expressed.\n");
}
