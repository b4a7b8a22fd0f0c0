//! `check` finds broken links, names without a media type, and precompressed files that do not belong to their file.

use sanderling_testkit::{Ended, TestDirectory, run, run_program, wait_until};

/// A directory with a site of these files, and the rest of its section of the configuration.
fn directory(section: &str, files: &[(&str, &[u8])]) -> TestDirectory {
    let directory = TestDirectory::with(files);
    let config = format!("[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n{section}");
    directory.write("sanderling.toml", config.as_bytes());
    directory
}

fn check(directory: &TestDirectory, arguments: &[&str]) -> Ended {
    run(&[&["check", "--config", &directory.argument("sanderling.toml")], arguments].concat())
}

/// The warnings of `check`, without the directory's path.
fn warnings(directory: &TestDirectory) -> Vec<String> {
    let ended = check(directory, &[]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    let root = directory.argument("public/");
    let lines = ended.errors.lines().filter(|line| line.starts_with(&root));
    lines.map(|line| line.replace(&root, "").split("; ").next().unwrap_or_default().to_owned()).collect()
}

/// The links of a page at `blog/index.html` that are broken.
#[track_caller]
fn check_links(section: &str, files: &[(&str, &[u8])], links: &[(&str, Option<u16>)]) {
    let page: String = links.iter().map(|(link, _)| format!("<a href=\"{link}\">\n")).collect();
    let directory = directory(section, files);
    directory.write("public/index.html", b"<title>start</title>");
    directory.write("public/blog/index.html", page.as_bytes());
    let found = warnings(&directory);
    let expected = links.iter().enumerate().filter_map(|(index, (link, status))| {
        let line = index + 1;
        status.map(|status| format!("blog/index.html:{line}:10: warning: the link to `{link}` gets status {status}"))
    });
    let mut expected: Vec<String> = expected.collect();
    let mut found = found;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn links_are_followed_as_requests_are_answered() {
    let files: &[(&str, &[u8])] = &[
        ("public/about.html", b""),
        ("public/blog/a b.txt", b""),
        ("public/empty/file.txt", b""),
        ("public/.hidden", b""),
        ("public/_redirects", b"/from-file /about.html\n/gone /about.html 410\n/app/* /index.html 200\n"),
    ];
    let links = [
        ("/", None),
        ("../about.html", None),
        ("about.html", Some(404)),
        ("a%20b.txt?x#y", None),
        ("a b.txt", None),
        ("/blog", None),
        ("/empty/", Some(404)),
        ("/empty", Some(404)),
        ("/.hidden", Some(404)),
        ("/about", Some(404)),
        ("/old", None),
        ("/older", None),
        ("/lost", Some(404)),
        ("/from-file", None),
        ("/gone", Some(410)),
        ("/secret/x", Some(403)),
        ("/app/users/7", None),
        ("https://example.com/none", Some(404)),
        ("https://other.example/none", None),
        ("mailto:a@example.com", None),
        ("#here", None),
        ("/%zz", Some(400)),
        ("/100%25", Some(404)),
    ];
    let section = "redirects = { \"/old\" = \"/about.html\", \"/older\" = \"/old\", \"/lost\" = \"/none\", \
        \"/away\" = \"https://other.example/\", \"/secret/*\" = { status = 403 } }\n";
    check_links(section, files, &links);
    let with_clean_urls = [("/about", None), ("/about.html", None), ("/blog/", None), ("/none", Some(404))];
    check_links(&format!("clean_urls = true\n{section}"), files, &with_clean_urls);
    check_links("index = [\"start.html\", \"index.html\"]\n", &[("public/x/start.html", b"")], &[("/x/", None)]);
    check_links("listing = true\n", files, &[("/empty/", None), ("/empty/none", Some(404))]);
    check_links("doh = \"/dns-query\"\n", files, &[("/dns-query", None)]);
}

#[test]
fn resources_need_a_file_where_navigations_get_the_fallback() {
    let directory = directory("fallback = \"index.html\"\n", &[]);
    directory.write(
        "public/index.html",
        b"<a href=/users/7><script src=/app.js></script>\n<img srcset='/1.png 1x, /2.png 2x'><link href=style.css>",
    );
    directory.write("public/style.css", b"/* url(no) */\n a { b: url(none.woff2) }");
    directory.write("public/2.png", b"");
    let expected = [
        "index.html:1:30: warning: the link to `/app.js` gets status 404",
        "index.html:2:14: warning: the link to `/1.png` gets status 404",
        "style.css:2:13: warning: the link to `none.woff2` gets status 404",
    ];
    let mut found = warnings(&directory);
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_broken_link_of_many_pages_is_one_warning() {
    let directory = directory("", &[]);
    for page in ["index", "a", "b"] {
        directory.write(&format!("public/{page}.html"), b"<a href=/none>");
    }
    let ended = check(&directory, &["--json"]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.text().contains("the link to `/none` gets status 404, as do 2 other links to it"), "{ended}");
    assert!(ended.text().contains("\"warnings\":1,") && ended.text().contains("\"line\":1,\"column\":9"), "{ended}");
    assert_eq!(check(&directory, &["--strict"]).code(), Some(1));
}

#[test]
fn extension_without_a_media_type_is_reported_once() {
    let names = ["public/a.Foo", "public/b.foo", "public/c.bar", "public/d.exe", "public/LICENSE", "public/index.html"];
    let directory = directory("media_types = { bar = \"text/x-bar\" }\n", &names.map(|name| (name, &b""[..])));
    let expected = "a.Foo: warning: the extension foo has no media type, as 1 other files: browsers download the file";
    assert_eq!(warnings(&directory), [expected]);
}

#[test]
fn precompressed_file_that_is_not_used_is_reported() {
    let directory = directory("", &[("public/index.html", b""), ("public/app.js", b"let a = 1;")]);
    for name in ["app.js.br", "gone.css.gz", "backup.tar.gz", "dump.gz"] {
        directory.write(&format!("public/{name}"), b"longer than the file");
    }
    let expected = [
        "app.js.br: warning: this file is not shorter than its uncompressed file, and is not used",
        "gone.css.gz: warning: this file does not have the coding that its name says, and is not used",
    ];
    assert_eq!(warnings(&directory), expected);
}

#[test]
fn links_are_followed_within_the_limits_of_the_configuration() {
    let files: &[(&str, &[u8])] =
        &[("public/index.html", b"<script src=/app.js></script>"), ("public/app.js", &[b' '; 5_000])];
    for (limit, expected) in [("1KiB", 2), ("5KiB", 0)] {
        let directory = directory(&format!("[limits]\ncompressed_file_max = \"{limit}\"\n"), files);
        let path = directory.argument("public/app.js");
        assert!(run_program("gzip", "gzip", &[&path]).status.success());
        // A file that has changed just now may be still written, and counts as there.
        wait_until("the warnings", || warnings(&directory).len() == expected);
        let link = "index.html:1:13: warning: the link to `/app.js` gets status 404".to_owned();
        assert_eq!(warnings(&directory).contains(&link), expected > 0);
    }
}

#[test]
fn limits_of_the_check_are_noted() {
    let files: &[(&str, &[u8])] = &[("public/index.html", b"<a href=/none>"), ("public/z.html", b"<a href=/missing>")];
    for (limit, expected) in [
        ("check_files_max = 2", ["/missing", "/none"].as_slice()),
        ("check_files_max = 1", &["/none", "only 1 files of the site were checked"]),
        ("check_files_max = 0", &["only 0 files of the site were checked"]),
        ("check_read_bytes_max = 31", &["/missing", "/none"]),
        ("check_read_max = \"30B\"", &["/none", "skipped 1 files of the site"]),
    ] {
        let directory = directory(&format!("[limits]\n{limit}\n"), files);
        let errors = check(&directory, &[]).errors;
        for text in ["/missing", "/none", "only ", "skipped "] {
            let is_expected = expected.iter().any(|expected| expected.contains(text));
            assert_eq!(errors.contains(text), is_expected, "{limit}: {text}\n{errors}");
        }
        assert!(expected.iter().all(|expected| errors.contains(expected)), "{limit}: {errors}");
    }
}

#[test]
fn rules_and_a_fallback_that_lead_to_missing_files_are_reported() {
    let section = "fallback = \"app.html\"\n[domain.\"example.com\".redirects]\n\
        \"/old\" = { to = \"/gone.html\", status = 410 }\n\"/a\" = { to = \"/index.html\", status = 200 }\n\
        \"/b/*\" = { to = \"/b-:splat\", status = 200 }\n\"/c\" = { to = \"/packed.txt\", status = 200 }\n";
    let files: &[(&str, &[u8])] = &[
        ("public/index.html", b""),
        ("public/packed.txt.br", b"\x3b"),
        ("public/_redirects", b"/x /y%20z.html 200\n/* /404.html 404\n"),
    ];
    let directory = directory(section, files);
    let errors = check(&directory, &[]).errors;
    for expected in [
        "sanderling.toml:4:8: warning: `fallback` is the file `app.html`, which does not exist; ",
        "sanderling.toml:4:8: warning: a rule serves the file `/gone.html`, which does not exist; ",
        "public/_redirects: warning: a rule serves the file `/y%20z.html`, which does not exist; ",
        "public/_redirects: warning: a rule serves the file `/404.html`, which does not exist; ",
    ] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    assert_eq!(errors.matches("which does not exist").count(), 4, "{errors}");
}

#[test]
fn rules_for_hosts_that_the_site_does_not_have_are_reported() {
    let section = "aliases = [\"*.example.net\"]\nredirects = { \"https://other.example/*\" = \"/\", \
        \"https://EXAMPLE.com/a\" = \"/\", \"https://a.example.net/a\" = \"/\", \"http://192.0.2.1/a\" = \"/\" }\n";
    let files: &[(&str, &[u8])] = &[
        ("public/index.html", b""),
        ("public/_redirects", b"/x /\nhttps://example.net/* https://example.com/:splat\n"),
        ("public/_headers", b"https://third.example/*\n  X-A: b\n"),
    ];
    let errors = check(&directory(section, files), &[]).errors;
    for expected in [
        "sanderling.toml:4:8: warning: a rule is for the host `other.example`, which is not a host of the site; write \
         one of its hosts, such as `example.com`, or add it to `aliases`",
        "public/_redirects:2:1: warning: a rule is for the host `example.net`, ",
        "public/_headers: warning: a rule is for the host `third.example`, ",
    ] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    assert_eq!(errors.matches("which is not a host of the site").count(), 3, "{errors}");
}

#[test]
fn circle_of_redirects_is_reported_with_its_locations() {
    let section = "clean_urls = true\n[domain.\"example.com\".redirects]\n\"/a\" = \"/b\"\n\"/b\" = \"https://example.com/c#d\"\n\
        \"/c\" = \"/a\"\n\"/into\" = \"/a\"\n\"/x/*\" = \"/y/:splat\"\n\"/grow/*\" = \"/more/x/:splat\"\n\"/more/*\" = \"/grow/:splat\"\n\
        \"/about\" = \"/about.html\"\n\"/old/*\" = \"/new/:splat\"\n\"/new/x\" = \"https://other.example/old/x\"\n\
        \"/file\" = { to = \"/to-file\", force = false }\n\"/to-file\" = \"/file\"\n\
        \"http://example.com/secure/*\" = \"https://example.com/secure/:splat\"\n";
    let files: &[(&str, &[u8])] = &[
        ("public/index.html", b"<a href=/into><a href=/old/1>"),
        ("public/about.html", b""),
        ("public/file", b""),
        ("public/new/1", b""),
        ("public/_redirects", b"/y/:z /x/:z\nhttps://www.example.com/r /s\n/s /r\n"),
    ];
    let directory = directory(section, files);
    let errors = check(&directory, &[]).errors;
    let start = "warning: redirects form a loop: ";
    let circles: Vec<&str> = errors
        .lines()
        .filter_map(|line| line.split_once(start)?.1.split_once("; correct one of the rules"))
        .map(|it| it.0)
        .collect();
    let expected = [
        "/a -> /b -> /c -> /a",
        "/x/x -> /y/x -> /x/x",
        "/grow/x -> /more/x/x -> /grow/x/x -> /more/x/x/x -> /grow/x/x/x -> /more/x/x/x/x -> ...",
        "/about -> /about.html -> /about",
    ];
    assert_eq!(circles, expected, "{errors}");
    let rule = "public/_redirects:2:1: warning: redirects of the host `www.example.com` form a loop: /r -> /s -> /r; ";
    assert!(errors.contains(rule), "{errors}");
    assert!(errors.contains("index.html:1:9: warning: the link to `/into` is in a redirect loop"), "{errors}");
    assert_eq!(errors.matches("the link to").count(), 1, "{errors}");
}
