//! What a domain says about requests and responses applies to those of an application, too.

use super::{Answer, Application, FRONTS, Front, Proxy, Setup, all_to, route};
use sanderling_testkit::http::response_to;
use sanderling_testkit::{free_address, wait_until};
use std::fs;
use std::net::TcpListener;

const USERS: &[u8] = include_bytes!("../site_rules/users.htpasswd");

#[test]
fn passwords_addresses_fields_and_origins_apply_to_an_application() {
    let application = Application::node();
    let keys = format!(
        "cors = [\"https://app.example\"]\nsecurity_headers = \"basic\"\nredirects = {{ \"/old\" = \"/new\" }}\n\
         auth = {{ \"/echo/private\" = {{ users_file = \"users.htpasswd\" }}, \"/count\" = {{ users_file = \"users.htpasswd\" }} }}\n\
         access = {{ \"/fire\" = {{ deny = [\"127.0.0.0/8\"] }} }}\n\
         headers = {{ \"/echo\" = {{ \"X-Site\" = \"1\", \"X-Powered-By\" = false, \"Cache-Control\" = \"no-store\" }} }}\n{}",
        all_to(&application)
    );
    let proxy = Proxy::with(Setup { keys, ..Setup::default() }, &[("users.htpasswd", USERS)]);
    for front in FRONTS {
        let answer = proxy.ask(front, "/echo", &["-H", "Origin: https://app.example"]);
        assert_eq!(answer.all("x-site"), ["1"], "{front:?} {answer:?}");
        assert_eq!(answer.all("cache-control"), ["no-store"]);
        assert_eq!(answer.all("access-control-allow-origin"), ["https://app.example"]);
        assert_eq!((answer.all("x-powered-by").len(), answer.all("x-frame-options")), (0, vec!["SAMEORIGIN"]));
        for path in ["/count", "/%63ount", "/count?x", "//count"] {
            let answer = proxy.ask(front, path, &[]);
            assert_eq!((answer.status, answer.all("www-authenticate").len()), (401, 1), "{front:?} {path}");
            let answer = proxy.ask(front, path, &["-u", "ann:wrong"]);
            assert_eq!(answer.status, 401, "{front:?} {path}");
        }
        let answer = proxy.ask(front, "/count", &["-u", "ann:secret"]);
        assert_eq!((answer.status, answer.all("cache-control")), (200, vec!["private, no-cache"]), "{front:?}");
        assert_eq!(proxy.ask(front, "/fire", &[]).status, 403, "{front:?}");
        assert_eq!(proxy.ask(front, "/old", &[]).all("location"), ["/new"], "{front:?}");
    }
}

#[test]
fn routes_are_chosen_by_path_method_field_and_cookie() {
    let (application, other) = (Application::node(), Application::node());
    let (url, other_url) = (application.url(), other.url());
    let keys = format!(
        "[domain.\"example.com\".route]\n\
         \"/\" = {{ proxy = \"{url}\", files_first = true }}\n\
         \"/health\" = {{ respond = {{ status = 200, text = \"ok\\n\" }} }}\n\
         \"/nothing\" = {{ respond = {{ status = 204 }} }}\n\
         \"/closed/\" = {{ respond = {{ status = 403, text = \"closed\" }} }}\n\
         \"/closed/pid\" = {{ proxy = \"{url}\" }}\n\
         \"/api/\" = {{ proxy = \"{url}\", strip_prefix = true, host = \"app.internal:81\", \
           request_headers = {{ X-Secret = \"s\", X-Own = false, Via = false }}, \
           response_headers = {{ X-Powered-By = false, X-New = \"n\", Set-Cookie = false }} }}\n\
         \"/pid\" = [{{ proxy = \"{url}\" }}, {{ proxy = \"{other_url}\", methods = [\"PUT\"] }}, \
           {{ proxy = \"{other_url}\", fields = {{ X-Canary = \"1\" }} }}, \
           {{ proxy = \"{other_url}\", cookies = {{ beta = true }} }}]\n"
    );
    let proxy = Proxy::new(&keys);
    let [own, others] = [&application, &other].map(|application| application.child.id().to_string());
    for front in FRONTS {
        let pid = |more: &[&str]| proxy.ask(front, "/pid", more).content;
        assert_eq!(pid(&[]), own, "{front:?}");
        assert_eq!((pid(&["-X", "PUT"]), pid(&["-X", "POST"])), (others.clone(), own.clone()));
        assert_eq!((pid(&["-H", "X-Canary: 1"]), pid(&["-H", "x-canary: 2"])), (others.clone(), own.clone()));
        assert_eq!((pid(&["-b", "a=1; beta=2"]), pid(&["-b", "alphabeta=1"])), (others.clone(), own.clone()));
        assert_eq!(proxy.ask(front, "/health", &[]).content, "ok\n");
        assert_eq!(proxy.ask(front, "/nothing", &[]).status, 204);
        assert_eq!(proxy.ask(front, "/closed/x", &[]).status, 403);
        assert_eq!(proxy.ask(front, "/closed/pid", &[]).status, 404, "the application has no such path");
        assert_eq!(proxy.ask(front, "/static.txt", &[]).content, "static\n");
        assert_eq!(proxy.ask(front, "/static.txt", &["-X", "POST"]).status, 404, "files are for GET and HEAD");
        let answer = proxy.ask(front, "/api/echo?x", &["-H", "X-Own: x"]);
        assert!(answer.content.contains("\"url\":\"/echo?x\""), "{answer:?}");
        assert_eq!((answer.seen("host"), answer.seen("x-secret")), ("\"app.internal:81\"".into(), "\"s\"".into()));
        assert_eq!((answer.seen("x-own"), answer.seen("via")), (String::new(), String::new()));
        assert_eq!(answer.seen("x-forwarded-host"), "\"example.com\"");
        assert_eq!((answer.all("x-new"), answer.all("x-powered-by").len()), (vec!["n"], 0));
        assert!(answer.all("set-cookie").is_empty(), "{answer:?}");
    }
}

#[test]
fn fields_that_name_a_client_are_replaced_or_extended() {
    let application = Application::node();
    let forged = [
        "X-Forwarded-For: 192.0.2.9",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.example",
        "X-Real-IP: 192.0.2.9",
        "Forwarded: for=192.0.2.9",
        "X_Forwarded_For: 192.0.2.9",
        "Connection: X-Forwarded-For, Forwarded, X-Own",
        "X-Own: x",
        "TE: trailers",
        "Keep-Alive: x",
    ];
    let more: Vec<&str> = forged.iter().flat_map(|field| ["-H", field]).collect();
    let proxy = Proxy::new(&all_to(&application));
    let answer = proxy.ask(Front::Http1, "/echo", &more);
    for (name, value) in [
        ("x-forwarded-for", "\"127.0.0.1\""),
        ("x-forwarded-proto", "\"http\""),
        ("x-forwarded-host", "\"example.com\""),
        ("forwarded", "\"for=127.0.0.1;host=example.com;proto=http\""),
        ("x-real-ip", ""),
        ("x_forwarded_for", ""),
        ("x-own", ""),
        ("te", ""),
        ("keep-alive", ""),
    ] {
        assert_eq!(answer.seen(name), value, "{name}: {}", answer.content);
    }
    drop(proxy);
    let trusted = |from: &str| {
        let http = format!("trusted_proxies = [\"127.0.0.0/8\"]\nclient_from = \"{from}\"");
        Proxy::with(Setup { http, keys: all_to(&application), ..Setup::default() }, &[])
    };
    let seen = |from: &str, names: [&str; 4]| {
        let proxy = trusted(from);
        // Both ways to HTTP: over HTTP/2 names are in lower case.
        let answers: Vec<Answer> = [Front::Http1, Front::Http2]
            .map(|front| {
                proxy.ask(front, "/echo", &["-H", forged[0], "-H", forged[1], "-H", forged[2], "-H", forged[4]])
            })
            .into();
        let of = |answer: &Answer| names.map(|name| answer.seen(name));
        assert_eq!(of(&answers[0]), of(&answers[1]));
        of(&answers[0])
    };
    let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
    let expected = ["\"192.0.2.9, 127.0.0.1\"", "\"https\"", "\"evil.example\"", ""];
    assert_eq!(seen("x-forwarded-for", names), expected);
    let [for_, proto, host, forwarded] = seen("forwarded", names);
    assert_eq!([for_, proto, host], ["", "", ""], "{forwarded}");
    assert!(forwarded.starts_with("\"for=192.0.2.9, for=127.0.0.1;host=example.com;proto="), "{forwarded}");
}

#[test]
fn response_of_an_application_is_logged_and_counted() {
    let application = Application::node();
    let refusing = free_address();
    let keys = format!(
        "{}{}[log]\naccess = \"access.log\"\nformat = \"$request|$status|$body_bytes_sent|$remote_addr\"\n[metrics]\nlisten = [\"127.0.0.1:0\"]\n",
        all_to(&application),
        route("/down/", &format!("proxy = \"{refusing}\"")),
    );
    // A proxy in front names the client of one request.
    let http = "trusted_proxies = [\"127.0.0.0/8\"]\nclient_from = \"x-forwarded-for\"".to_owned();
    let mut proxy = Proxy::with(Setup { http, keys, ..Setup::default() }, &[]);
    assert_eq!(proxy.ask(Front::Http1, "/download?bytes=100000", &[]).content.len(), 100_000);
    let client = ["-H", "X-Forwarded-For: 192.0.2.9"];
    assert_eq!(proxy.ask(Front::Http2, "/download?bytes=70000&chunked", &client).content.len(), 70_000);
    let error = proxy.ask(Front::Http1, "/down/x", &[]);
    assert_eq!(error.content, "The application refuses connections.\n");
    let log = || fs::read_to_string(proxy.directory.path().join("access.log")).unwrap_or_default();
    wait_until("three lines", || log().lines().count() >= 3);
    let log = log();
    for line in [
        "GET /download?bytes=100000 HTTP/1.1|200|100000|127.0.0.1".to_owned(),
        "GET /download?bytes=70000&chunked HTTP/2.0|200|70000|192.0.2.9".to_owned(),
        format!("GET /down/x HTTP/1.1|502|{}|127.0.0.1", error.content.len()),
    ] {
        assert!(log.lines().any(|own| own == line), "{line}: {log}");
    }
    let metrics = proxy.server.metrics();
    let text = response_to(metrics, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let count = |name: &str| -> f64 {
        let samples = text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit_once(' '));
        samples.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
    };
    assert_eq!(count("sanderling_backend_requests_total{result=\"passed\"}"), 3.0, "{text}");
    assert_eq!(count("sanderling_backend_requests_total{result=\"failed\"}"), 1.0, "{text}");
}

#[test]
fn error_says_which_application_failed_and_how() {
    let application = Application::node();
    let refusing = free_address();
    // Connections are made by the kernel, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let silent_address = silent.local_addr().expect("bound");
    let keys = [
        route("/down/", &format!("proxy = \"{refusing}\"")),
        route("/silent/", &format!("proxy = \"{silent_address}\"\ntimeout = \"50ms\"")),
        route("/missing/", "proxy = \"unix:/nonexistent/app.sock\""),
        route("/hold", &format!("proxy = \"{}\"\nconnections_max = 1\nconnect_timeout = \"50ms\"", application.url())),
        route("/upload", &format!("proxy = \"{}\"\nrequest_body_max = \"10B\"", application.url())),
    ];
    // One worker, so that there is one connection.
    let proxy = Proxy::with(Setup { worker_count: 1, keys: keys.concat(), ..Setup::default() }, &[]);
    let _held = proxy.stream(Front::Http1, "/hold");
    wait_until("the request has arrived", || application.ask("/waiting") == "1");
    for front in FRONTS {
        let check = |path: &str, more: &[&str], status: u16, content: &str| {
            let answer = proxy.ask(front, path, more);
            assert_eq!((answer.status, answer.content.trim()), (status, content), "{front:?} {path}");
        };
        check("/down/x", &[], 502, "The application refuses connections.");
        check("/silent/x", &[], 504, "The application did not respond within 0.05 s.");
        check("/missing/x", &[], 502, "The application cannot be reached: its socket does not exist.");
        check("/hold", &[], 503, "The application had no free connection within 0.05 s.");
        let large = proxy.ask(front, "/upload", &["-d", "eleven bytes"]);
        assert_eq!(large.status, 413, "{front:?}");
    }
}
