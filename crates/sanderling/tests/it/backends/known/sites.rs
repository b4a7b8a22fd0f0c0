//! Kinds of sites, in front of an application that stands for the one on the page.

use super::Known;
use crate::backends::node::answer;
use crate::backends::php::Php;
use crate::backends::{Application, WEBSOCKET_JS};
use sanderling_testkit::{TestDirectory, run_program};
use std::os::unix::fs::PermissionsExt;

/// The response of a WebSocket that sends a message back.
fn check_web_socket(site: &Known, host: &str, path: &str) {
    let (ip, port) = (site.https.ip().to_string(), site.https.port().to_string());
    let received = run_program("node", "nodejs", &[WEBSOCKET_JS, &ip, &port, host, path, "hello"]);
    assert!(received.output.ends_with(&[answer(1, "hello"), answer(8, "")].concat()), "{path}: {received}");
}

#[test]
fn mastodon_has_two_programs_and_its_files() {
    let (web, streaming) = (Application::node(), Application::node());
    let directory = TestDirectory::with(&[
        ("public/packs/common-1a2b.js", b"script\n"),
        ("public/system/a.png", b"picture\n"),
        ("public/500.html", b"page\n"),
    ]);
    let replaced = [
        ("/srv/mastodon/public", "public"),
        ("http://127.0.0.1:3000", &*web.url()),
        ("http://127.0.0.1:4000", &*streaming.url()),
    ];
    let site = Known::start("Mastodon", &replaced, directory);
    let url = |path: &str| format!("https://social.example.com{path}");
    let packed = site.ask(&url("/packs/common-1a2b.js"), &[]);
    assert_eq!(
        (&*packed.content, packed.all("cache-control")),
        ("script\n", vec!["public, max-age=31536000, immutable"])
    );
    let picture = site.ask(&url("/system/a.png"), &[]);
    assert_eq!(picture.all("content-security-policy"), ["default-src 'none'; form-action 'none'"]);
    let answer = site.ask(&url("/echo"), &["-d", "status=hi"]);
    assert_eq!(
        (answer.seen("x-forwarded-proto"), answer.seen("host")),
        ("\"https\"".into(), "\"social.example.com\"".into())
    );
    assert_eq!(site.status(&url("/pid"), &[]).1, web.child.id().to_string());
    check_web_socket(&site, "social.example.com", "/api/v1/streaming?stream=user");
    check_web_socket(&site, "social.example.com", "/api/v1/streaming/");
    let redirect = site.ask("http://social.example.com/about", &[]);
    let target = format!("https://social.example.com:{}/about", site.https.port());
    assert_eq!((redirect.status, redirect.all("location")), (308, vec![&*target]));
}

#[test]
fn single_page_application_has_its_api_and_events() {
    let application = Application::node();
    let directory = TestDirectory::with(&[("app/index.html", b"app\n"), ("app/app.3f2a1b4c.js", b"script\n")]);
    let replaced = [("/srv/app", "app"), ("http://127.0.0.1:3000", &*application.url())];
    let site = Known::start("A single-page application with its API", &replaced, directory);
    let url = |path: &str| format!("https://app.example.com{path}");
    let navigation = ["-H", "Accept: text/html", "-H", "Sec-Fetch-Mode: navigate"];
    assert_eq!(site.status(&url("/users/7"), &navigation), (200, "app\n".to_owned()));
    let script = site.ask(&url("/app.3f2a1b4c.js"), &[]);
    assert_eq!(script.all("cache-control"), ["public, max-age=31536000, immutable"]);
    let answer = site.ask(&url("/api/echo?q=1"), &["-d", "x"]);
    assert!(answer.status == 200 && answer.content.contains("\"url\":\"/echo?q=1\""), "{answer:?}");
    assert_eq!(answer.all("x-frame-options"), ["SAMEORIGIN"], "{answer:?}");
    let large = site.directory.write("large", &[b'x'; 10 * 1024 * 1024 + 1]);
    assert_eq!(site.status(&url("/api/echo"), &["--data-binary", &format!("@{}", large.display())]).0, 413);
    assert_eq!(site.status(&url("/events/"), &[]), (404, "the application has no such path".to_owned()));
}

#[test]
fn one_application_gets_all_paths_and_web_sockets() {
    let application = Application::node();
    let replaced = [("http://127.0.0.1:8123", &*application.url())];
    let site = Known::start("One application with WebSocket", &replaced, TestDirectory::new());
    assert_eq!(site.status("https://home.example.com/pid", &[]).1, application.child.id().to_string());
    check_web_socket(&site, "home.example.com", "/api/websocket");
}

#[test]
fn home_server_has_lists_passwords_scripts_and_applications() {
    let (torrents, admin, php) = (Application::node(), Application::node(), Php::new(0));
    let directory = TestDirectory::with(&[
        ("nas/films/a film.mkv", b"film\n"),
        ("nas/private/taxes.txt", b"taxes\n"),
        ("nas/wiki.php", b"<?php echo 'wiki', $_SERVER['PATH_INFO'] ?? '';\n"),
    ]);
    let open = |path: &str| {
        let path = directory.path().join(path);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("set");
    };
    open("nas");
    let [socket, _] = php.servers();
    let replaced = [
        ("/srv/nas", "nas"),
        ("unix:/run/php/php-fpm.sock", &*socket),
        ("http://127.0.0.1:9091", &*torrents.url()),
        ("http://127.0.0.1:9000", &*admin.url()),
    ];
    let site = Known::start("A home server", &replaced, directory);
    let url = |path: &str| format!("https://nas.example.com{path}");
    let (status, list) = site.status(&url("/films/"), &[]);
    assert!(status == 200 && list.contains("a film.mkv"), "{status} {list}");
    assert_eq!(site.status(&url("/private/taxes.txt"), &[]).0, 401);
    assert_eq!(site.status(&url("/private/taxes.txt"), &["-u", "ann:secret"]), (200, "taxes\n".to_owned()));
    assert_eq!(site.status(&url("/wiki.php"), &[]), (200, "wiki".to_owned()));
    assert_eq!(site.status(&url("/torrents/pid"), &[]).0, 404, "the application gets the whole path");
    assert_eq!(site.status(&url("/admin/pid"), &[]), (200, admin.child.id().to_string()));
}

#[test]
fn several_hosts_have_their_applications() {
    let [comments, git, status_page] = [Application::node(), Application::node(), Application::node()];
    let directory = TestDirectory::with(&[("blog/index.html", b"blog\n")]);
    let replaced = [
        ("/srv/blog", "blog"),
        ("http://127.0.0.1:8000", &*comments.url()),
        ("http://127.0.0.1:3000", &*git.url()),
        ("http://127.0.0.1:3001", &*status_page.url()),
    ];
    let site = Known::start("Several hosts with applications, and one that only redirects", &replaced, directory);
    assert_eq!(site.status("https://www.example.com/", &[]), (200, "blog\n".to_owned()));
    for (url, application) in [
        ("https://www.example.com/comments/pid", &comments),
        ("https://git.example.com/pid", &git),
        ("https://status.example.com/pid", &status_page),
    ] {
        assert_eq!(site.status(url, &[]), (200, application.child.id().to_string()), "{url}");
    }
    assert_eq!(site.ask("https://git.example.com/echo", &[]).all("x-powered-by"), ["Node"]);
    assert!(site.ask("https://status.example.com/echo", &[]).all("x-powered-by").is_empty());
    let moved = site.ask("https://old.example.com/a/b?c=d", &[]);
    assert_eq!((moved.status, moved.all("location")), (301, vec!["https://www.example.com/a/b?c=d"]));
}

#[test]
fn project_site_has_builds_hooks_and_downloads() {
    let [first, second, hook] = [Application::node(), Application::node(), Application::node()];
    let directory = TestDirectory::with(&[("project/about.html", b"about\n"), ("project/downloads/a.tar", b"tar\n")]);
    let replaced = [
        ("/srv/project", "project"),
        ("http://127.0.0.1:8010", &*first.url()),
        ("http://127.0.0.1:8011", &*second.url()),
        ("http://127.0.0.1:8012", &*hook.url()),
    ];
    let site = Known::start("A project site with builds and mirrors", &replaced, directory);
    let url = |path: &str| format!("https://project.example.com{path}");
    assert_eq!(site.status(&url("/about"), &[]), (200, "about\n".to_owned()));
    assert_eq!(site.ask(&url("/downloads/a.tar"), &[]).all("cache-control"), ["public, max-age=86400"]);
    assert_eq!(site.status(&url("/healthz"), &[]), (200, "ok".to_owned()));
    assert_eq!(site.status(&url("/hook"), &[]), (405, "POST only".to_owned()));
    assert_eq!(site.status(&url("/hook"), &["-d", "x"]).1, "the application has no such path");
    let large = site.directory.write("large", &[b'x'; 1024 * 1024 + 1]);
    assert_eq!(site.status(&url("/hook"), &["--data-binary", &format!("@{}", large.display())]).0, 413);
    let ci = site.status(&url("/ci/x"), &[]);
    assert_eq!(ci, (404, "the application has no such path".to_owned()));
}
