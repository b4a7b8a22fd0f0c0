//! Tests of the file that answers a request, with the configurations of the manual.

use std::path::Path;

use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, curl, run, wait_until};

/// The program with the first configuration of a page of the manual, at a free port, and with these files.
struct Manual {
    // Before the directory: the program ends first.
    server: TestServer,
    directory: TestDirectory,
}

impl Manual {
    #[track_caller]
    fn serve(page: &str, files: &[(&str, &[u8])]) -> Manual {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let text = std::fs::read_to_string(path).unwrap();
        let (_, rest) = text.split_once("```toml\n").expect("the page has a configuration");
        let (config, _) = rest.split_once("```").expect("the block ends");
        assert!(config.contains("127.0.0.1:8080"), "{config}");
        Manual::serve_config(&config.replace("127.0.0.1:8080", "127.0.0.1:0"), files)
    }

    #[track_caller]
    fn serve_config(config: &str, files: &[(&str, &[u8])]) -> Manual {
        let directory = TestDirectory::new();
        for (path, content) in files {
            directory.write(path, content);
        }
        directory.write("sanderling.toml", config.as_bytes());
        let server = TestServer::start_command(
            directory.serve_command(),
            ListenerCounts { http: 1, ..ListenerCounts::default() },
        );
        Manual { server, directory }
    }

    /// The output of curl in this format, after the content.
    #[track_caller]
    fn curl(&self, host: &str, path: &str, format: &str, arguments: &[&str]) -> String {
        let address = self.server.http();
        let resolve = format!("{host}:{}:{}", address.port(), address.ip());
        let url = format!("http://{host}:{}{path}", address.port());
        let fixed = ["--path-as-is", "--resolve", &resolve, "--write-out", format, &url];
        curl(&[&fixed, arguments].concat()).text()
    }

    #[track_caller]
    fn check(&self, host: &str, path: &str, arguments: &[&str], expected: &str) {
        assert_eq!(self.curl(host, path, " %{http_code}", arguments), expected, "{host}{path}");
    }
}

const NAVIGATION: &[&str] = &["--header", "Accept: text/html"];

#[test]
fn the_manual_of_single_page_applications_is_true() {
    let manual = Manual::serve("single-page-application.md", &[("dist/index.html", b"app"), ("dist/app.js", b"js")]);
    let check = |path, arguments, expected| manual.check("app.example.com", path, arguments, expected);
    check("/users/7", NAVIGATION, "app 200");
    check("/app.js", &[], "js 200");
    check("/app.3f2a.js", &[], "404 Not Found\n 404");
    check("/app.3f2a.js", NAVIGATION, check_html(&manual).as_str());
}

/// The built-in page with the status after it.
fn check_html(manual: &Manual) -> String {
    let page = manual.curl("app.example.com", "/missing.js", " %{http_code}", NAVIGATION);
    assert!(page.starts_with("<!doctype html>") && page.ends_with(" 404"), "{page}");
    page
}

#[test]
fn the_manual_of_listings_is_true() {
    let manual =
        Manual::serve("listing.md", &[("public/README.md", b"me\n"), ("public/docs/x", b""), ("public/.env", b"")]);
    let json = manual.curl("files.example.com", "/", "", &["--header", "Accept: application/json"]);
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!((lines[0], lines[3]), ("{\"path\":\"/\",\"entries\":[", "],\"truncated\":false}"), "{json}");
    assert!(lines[1].starts_with("{\"name\":\"docs\",\"url\":\"docs/\",\"type\":\"directory\",\"modified\":\""));
    assert!(lines[2].starts_with("{\"name\":\"README.md\",\"url\":\"README.md\",\"type\":\"file\",\"size\":3,"));
    let page = manual.curl("files.example.com", "/docs/", " %{http_code} %{content_type}", &[]);
    assert!(page.ends_with("200 text/html; charset=utf-8") && page.contains("<a href=\"x\">x</a>"), "{page}");
}

#[test]
fn a_folder_is_listed_if_the_command_line_says_so() {
    let directory = TestDirectory::with(&[("a.txt", b"a")]);
    let site = directory.argument("");
    let counts = ListenerCounts { http: 1, ..ListenerCounts::default() };
    for (arguments, status) in [(&["--listing"][..], "200"), (&[], "404")] {
        let arguments = [&["serve", &site, "--http", "127.0.0.1:0"], arguments].concat();
        let server = TestServer::start(&arguments, counts);
        let url = format!("http://{}/", server.http());
        assert!(curl(&["--write-out", " %{http_code}", &url]).text().ends_with(status));
    }
}

#[test]
fn the_manual_of_compressed_files_is_true() {
    let page = "<p>some text</p>\n".repeat(500);
    let files: &[(&str, &[u8])] = &[("public/index.html", page.as_bytes()), ("public/raw/index.html", page.as_bytes())];
    let manual = Manual::serve("compressed-files.md", files);
    let coding = |arguments: &[&str]| {
        let fixed = ["--head", "--output", "/dev/null"];
        manual.curl("example.com", "/", "%header{content-encoding}", &[&fixed, arguments].concat())
    };
    // The thread that compresses works in the sandbox, and changes its own priority there.
    for name in ["br", "zstd", "gzip"] {
        let field = format!("Accept-Encoding: {name}");
        wait_until("the page is compressed", || coding(&["--header", &field]) == name);
    }
    assert_eq!(coding(&[]), "");
    let content = manual.curl("example.com", "/", "", &["--compressed", "--header", "Accept-Encoding: gzip"]);
    assert_eq!(content, page);
    let threads = std::fs::read_dir(format!("/proc/{}/task", manual.server.server_process_id())).unwrap();
    let nice = threads.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).ok()?;
        let (before, after) = stat.rsplit_once(')')?;
        before.ends_with("(compress").then(|| after.split_whitespace().nth(16).map(str::to_owned))?
    });
    assert_eq!(nice.collect::<Vec<_>>(), ["19"]);
}

#[test]
fn the_manual_of_several_domains_is_true() {
    let files: &[(&str, &[u8])] =
        &[("public/index.html", b"public"), ("blog/index.html", b"blog"), ("users/index.html", b"users")];
    let manual = Manual::serve("sites.md", files);
    for (host, expected) in [
        ("example.com", "public 200"),
        ("EXAMPLE.org.", "public 200"),
        ("blog.example.com", "blog 200"),
        ("anna.users.example.com", "users 200"),
        ("a.b.users.example.com", "users 200"),
        ("localhost", "public 200"),
        ("users.example.com", "421 Misdirected Request\n 421"),
        ("example.net", "421 Misdirected Request\n 421"),
    ] {
        manual.check(host, "/", &["--header", "Accept: */*"], expected);
    }
    let form = "%{http_code} %header{location}";
    let location = manual.curl("www.example.com", "/a/b?c", form, &["--output", "/dev/null"]);
    assert_eq!(location, "301 https://example.com/a/b?c");
}

#[test]
fn the_manual_of_error_pages_is_true() {
    let files: &[(&str, &[u8])] = &[
        ("public/404.html", b"none"),
        ("public/de/404.html", b"nichts"),
        ("public/gone.html", b"gone"),
        ("public/2009/b", b"a file"),
        ("public/drafts/a", b"a draft"),
        ("public/internal/a", b"secret"),
    ];
    let manual = Manual::serve("error-pages.md", files);
    for (path, expected) in [
        ("/none", "none 404"),
        ("/de/none", "nichts 404"),
        ("/2009/a", "gone 410"),
        ("/2009/b", "a file 200"),
        ("/drafts/a", "none 404"),
        ("/internal/a", "403 Forbidden\n 403"),
    ] {
        manual.check("example.com", path, &[], expected);
    }
}

#[test]
fn the_manual_of_logs_is_true() {
    let manual = Manual::serve("logs.md", &[("public/index.html", &[b'x'; 512])]);
    manual.curl("example.com", "/?q", "", &[]);
    let log = || std::fs::read_to_string(manual.directory.path().join("access.log")).unwrap_or_default();
    wait_until("a line", || log().ends_with('\n'));
    let page = include_str!("../../../../docs/logs.md");
    let line_of_manual = page.lines().find(|line| line.starts_with('{')).expect("the manual has a line");
    let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let (line, line_of_manual) = (read(&log()), read(line_of_manual));
    let keys = |line: &serde_json::Value| line.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&line), keys(&line_of_manual));
    for key in ["scheme", "method", "target", "protocol", "status", "bytes", "referer"] {
        assert_eq!(line[key], line_of_manual[key], "{key}");
    }
}

#[test]
fn a_response_that_must_not_be_transformed_is_not_compressed() {
    let config = "
        [http]
        listen = [\"127.0.0.1:0\"]
        [domain.\"example.com\"]
        site = \"public\"
    ";
    let page = "<p>some text</p>\n".repeat(500);
    let files: &[(&str, &[u8])] = &[
        ("public/a.html", page.as_bytes()),
        ("public/raw.html", page.as_bytes()),
        ("public/_headers", b"/raw.html\n  Cache-Control: public, no-transform\n"),
    ];
    let manual = Manual::serve_config(config, files);
    let coding = |path: &str| {
        let arguments = ["--head", "--output", "/dev/null", "--header", "Accept-Encoding: gzip"];
        manual.curl("example.com", path, "%header{content-encoding}", &arguments)
    };
    assert_eq!(coding("/raw.html"), "");
    wait_until("the other page is compressed", || coding("/a.html") == "gzip");
    assert_eq!(coding("/raw.html"), "");
}

#[test]
fn wildcards_indexes_and_clean_urls_are_configured() {
    let config = "
        [http]
        listen = [\"127.0.0.1:0\"]
        [domain.\"example.com\"]
        site = \"main\"
        aliases = [\"*.example.com\"]
        clean_urls = true
        [domain.\"*.users.example.com\"]
        site = \"users\"
        index = [\"home.html\", \"index.html\"]
    ";
    let files: &[(&str, &[u8])] = &[
        ("main/index.html", b"main"),
        ("main/about.html", b"about"),
        ("main/404.html", b"missing"),
        ("users/home.html", b"home"),
    ];
    let manual = Manual::serve_config(config, files);
    manual.check("example.com", "/", &[], "main 200");
    manual.check("a.b.example.com", "/about", &[], "about 200");
    manual.check("example.com", "/other", &[], "missing 404");
    manual.check("anna.users.example.com", "/", &[], "home 200");
    manual.check("users.example.com", "/", &[], "main 200");
    manual.check("example.org", "/", &["--header", "Accept: */*"], "421 Misdirected Request\n 421");
    let location = manual.curl("example.com", "/about.html?q", "%{redirect_url}", &["--output", "/dev/null"]);
    assert_eq!(location, format!("http://example.com:{}/about?q", manual.server.http().port()));
    manual.directory.write("main/news.html", b"news");
    wait_until("a new page is served", || manual.curl("example.com", "/news", " %{http_code}", &[]) == "news 200");
}

#[test]
fn check_warns_of_a_site_without_a_page_for_its_root() {
    for (keys, file, warning) in [
        ("", "a.txt", "public` has no index.html; "),
        ("index = [\"home.html\", \"index.txt\"]", "index.html", "public` has no home.html or index.txt; "),
        ("index = [\"home.html\", \"index.txt\"]", "index.txt", ""),
        ("index = []", "a.txt", ""),
        ("listing = true", "a.txt", ""),
        ("fallback = \"app.html\"", "app.html", ""),
        ("route = { \"/\" = { proxy = \"127.0.0.1:3000\" } }", "a.txt", ""),
        ("route = { \"/api/\" = { proxy = \"127.0.0.1:3000\" } }", "a.txt", "public` has no index.html; "),
        ("redirects = { \"/*\" = \"https://example.org/:splat\" }", "a.txt", ""),
    ] {
        let config = format!("[domain.\"example.com\"]\nsite = \"public\"\n{keys}\n");
        let directory = TestDirectory::with(&[("sanderling.toml", config.as_bytes())]);
        directory.write(&format!("public/{file}"), b"");
        let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
        assert_eq!(ended.code(), Some(0), "{ended}");
        assert_eq!(ended.errors.contains(" has no "), !warning.is_empty(), "{keys}: {ended}");
        assert!(ended.errors.contains(warning), "{keys}: {ended}");
    }
}
