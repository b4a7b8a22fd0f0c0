//! An authenticator that is asked about requests to applications of Node and PHP, and about files.

use super::node::{UPGRADE, answer, frame};
use super::php::Php;
use super::{AUTHENTICATOR_JS, Application, FRONTS, Front, Proxy, Setup, route};
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{free_address, random_bytes, run_program, seed};

const ANN: [&str; 2] = ["-H", "Cookie: session=ann"];
const LARGE_BYTES: usize = 100_000_000;

fn authenticator() -> Application {
    Application::start("node", "nodejs", AUTHENTICATOR_JS, free_address())
}

/// Routes of this application, each asked about at another path of the authenticator.
fn guarded(application: &Application, authenticator: &Application) -> String {
    let (url, auth) = (application.url(), authenticator.url());
    let keys = |path: &str| {
        format!("forward_auth = \"{auth}{path}\"\nforward_auth_fields = [\"Remote-User\", \"Remote-Groups\"]")
    };
    let passed = |path: &str, question: &str| {
        route(path, &format!("proxy = \"{url}\"\nstrip_prefix = true\n{}", keys(question)))
    };
    [
        route("/", &format!("proxy = \"{url}\"\n{}", keys("/forward-auth"))),
        passed("/oauth/", "/oauth2/auth?allowed_groups=a"),
        passed("/error/", "/error"),
        passed("/vanish/", "/vanish"),
        passed("/garbage/", "/garbage"),
        passed("/slow/", "/slow"),
        passed("/large/", "/large"),
        route("/static.txt", &keys("/forward-auth")),
    ]
    .concat()
}

#[test]
fn request_is_passed_on_if_the_authenticator_admits_it_over_every_version_of_http() {
    let (application, authenticator) = (Application::node(), authenticator());
    let proxy = Proxy::new(&guarded(&application, &authenticator));
    for front in FRONTS {
        let forged =
            ["-H", "Remote-User: root", "-H", "remote_user: root", "-H", "Remote-Groups: admins", "-d", "hello"];
        let echo = proxy.ask(front, "/echo?q=1", &[&ANN[..], &forged].concat());
        assert_eq!((echo.status, echo.seen("remote-user").as_str()), (200, "\"ann\""), "{front:?} {echo:?}");
        assert!(echo.content.contains("\"text\":\"hello\"") && !echo.content.contains("admins"), "{front:?} {echo:?}");
        assert!(!echo.content.contains("root") && !echo.content.contains("x-seen"), "{front:?} {echo:?}");
        assert_eq!(echo.all("cache-control"), ["private, no-cache"], "{front:?}");

        let count = application.ask("/count");
        let scheme = if matches!(front, Front::Http1 | Front::Http2) { "http" } else { "https" };
        let login = proxy.ask(front, "/echo?q=1&r=2", &forged[..6]);
        assert_eq!(login.status, 302, "{front:?} {login:?}");
        let location = format!("https://login.example/?rd={scheme}%3A%2F%2Fexample.com%2Fecho%3Fq%3D1%26r%3D2");
        assert_eq!((login.all("location"), login.all("x-client")), (vec![&*location], vec!["127.0.0.1"]));
        assert_eq!(login.all("set-cookie"), ["a=1; HttpOnly", "b=2"], "{front:?}");
        assert_eq!(login.content, "log in first\n");
        let refused = proxy.ask(front, "/echo", &["-d", "hello"]);
        assert_eq!((refused.status, refused.content.as_str()), (401, "log in first\n"), "{front:?}");
        assert_eq!(proxy.ask(front, "/echo", &["-I"]).content, "", "{front:?}");
        // Caches may keep a 404 and a redirect without being told to.
        let missing = proxy.ask(front, "/missing", &ANN);
        assert_eq!((missing.status, missing.all("cache-control")), (404, vec!["private, no-cache"]), "{front:?}");
        assert_eq!(login.all("cache-control"), ["private, no-cache"], "{front:?}");
        let refused = proxy.ask(front, "/oauth/echo?x", &["-X", "DELETE"]);
        assert_eq!((refused.status, refused.all("www-authenticate")), (401, vec!["Bearer"]), "{front:?}");
        assert_eq!(refused.all("x-asked"), [format!("DELETE {scheme}://example.com/oauth/echo?x")], "{front:?}");
        assert_eq!(application.ask("/count"), count, "nothing was passed on");
        assert_eq!(proxy.ask(front, "/oauth/echo", &ANN).seen("remote-user"), "\"ann\"", "{front:?}");

        assert_eq!(proxy.ask(front, "/static.txt", &[]).status, 302, "{front:?}");
        assert_eq!(proxy.ask(front, "/static.txt", &ANN).content, "static\n", "{front:?}");
    }
}

#[test]
fn authenticator_that_fails_admits_nobody_and_the_response_says_so() {
    let (application, mut authenticator) = (Application::node(), authenticator());
    let proxy = Proxy::new(&guarded(&application, &authenticator));
    let name = format!("The authenticator {}", authenticator.address);
    for front in FRONTS {
        for (path, problem) in [
            ("/error/echo", "answered with status 500"),
            ("/vanish/echo", "closed the connection before the end of its response"),
            ("/garbage/echo", "sent an invalid response"),
        ] {
            let answer = proxy.ask(front, path, &ANN);
            assert_eq!(answer.status, 502, "{front:?} {path}");
            assert!(answer.content.starts_with(&format!("{name} {problem}")), "{front:?} {path}: {}", answer.content);
        }
        assert_eq!(proxy.ask(front, "/slow/echo", &ANN).seen("remote-user"), "\"ann\"", "{front:?}");
        assert_eq!(proxy.ask(front, "/large/echo", &ANN).status, 200, "{front:?}");
        let refused = proxy.curl(front, "/large/echo", &[]).output;
        assert_eq!(refused.len(), LARGE_BYTES, "{front:?}");
    }
    authenticator.kill();
    for front in FRONTS {
        let answer = proxy.ask(front, "/oauth/echo", &ANN);
        assert_eq!((answer.status, answer.content), (502, format!("{name} refuses connections.\n")), "{front:?}");
        assert_eq!(proxy.ask(front, "/static.txt", &ANN).status, 502, "{front:?}");
    }
    assert_eq!(application.ask("/count"), "8", "the admitted ones");
}

#[test]
fn uploads_wait_for_the_authenticator_and_arrive_whole() {
    let (application, authenticator) = (Application::node(), authenticator());
    let proxy = Proxy::new(&guarded(&application, &authenticator));
    for length in [1, 20_000, 10_000_000] {
        let content = random_bytes(&mut fastrand::Rng::with_seed(seed()), length);
        let upload = proxy.directory.write("upload", &content);
        let upload = upload.to_str().expect("UTF-8");
        let sum = run_program("sha256sum", "coreutils", &[upload]).text();
        let expected = format!("{length} {}", sum.split(' ').next().expect("a hash"));
        let from = format!("@{upload}");
        for front in FRONTS {
            for path in ["/upload", "/slow/upload"] {
                for expect in ["Expect:", "Expect: 100-continue"] {
                    let arguments = [&ANN[..], &["--data-binary", &from, "-H", expect]].concat();
                    let answer = proxy.curl(front, path, &arguments).text();
                    assert_eq!(answer, expected, "{front:?} {path} {expect}");
                }
            }
            let refused = proxy.ask(front, "/upload", &["--data-binary", &from]);
            assert_eq!(refused.status, 401, "{front:?}");
        }
    }
}

#[test]
fn websocket_waits_for_the_authenticator() {
    let (application, authenticator) = (Application::node(), authenticator());
    let proxy = Proxy::new(&guarded(&application, &authenticator));
    let mut client = HttpClient::connect(proxy.http());
    client.send(UPGRADE.as_bytes());
    assert!(client.tcp().read_until(b"log in first\n").starts_with(b"HTTP/1.1 302 "));
    let mut client = HttpClient::connect(proxy.http());
    client.send(UPGRADE.replace("\r\n\r\n", "\r\nCookie: session=ann\r\n\r\n").as_bytes());
    assert!(client.tcp().read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 101 "));
    client.send(frame(1, "hello"));
    client.tcp().read_until(&answer(1, "hello"));
}

#[test]
fn php_gets_the_user_as_a_variable_and_files_of_its_route_are_guarded() {
    let (php, authenticator) = (Php::new(0), authenticator());
    let [server, _] = php.servers();
    let keys = route(
        "/",
        &format!(
            "fastcgi = \"{server}\"\nforward_auth = \"{}/forward-auth\"\nforward_auth_fields = [\"Remote-User\", \"X-Own\"]",
            authenticator.url()
        ),
    );
    let files: [(&str, &[u8]); 2] =
        [("public/index.php", include_bytes!("application.php")), ("public/page.html", b"a page\n")];
    let proxy = Proxy::with(Setup { keys, ..Setup::default() }, &files);
    for front in FRONTS {
        let answer = proxy.ask(front, "/a", &[&ANN[..], &["-H", "X-Own: forged", "-H", "x_own: forged"]].concat());
        assert_eq!((answer.status, answer.variable("HTTP_X_OWN")), (200, "none"), "{front:?} {answer:?}");
        assert_eq!(answer.variable("HTTP_REMOTE_USER"), "ann", "{front:?}");
        assert_eq!(proxy.ask(front, "/page.html", &ANN).content, "a page\n", "{front:?}");
        for path in ["/a", "/page.html", "/index.php", "/%70age.html", "//page.html"] {
            let answer = proxy.ask(front, path, &[]);
            assert!(matches!(answer.status, 302 | 400), "{front:?} {path}: {answer:?}");
        }
    }
}

#[test]
fn requests_beyond_the_limit_of_a_route_are_refused() {
    let application = Application::node();
    let keys = [
        route("/", &format!("proxy = \"{}\"", application.url())),
        route(
            "/echo",
            &format!("proxy = \"{}\"\nrequests_per_second_max = 1\nrequests_at_once_max = 3", application.url()),
        ),
        route("/static.txt", "requests_per_second_max = 1\nrequests_at_once_max = 3"),
    ];
    let proxy = Proxy::new(&keys.concat());
    for path in ["/echo", "/static.txt"] {
        let mut refused = None;
        for _ in 0..20 {
            let answer = proxy.ask(Front::Http2, path, &[]);
            assert!(matches!(answer.status, 200 | 429), "{path} {answer:?}");
            refused = Some(answer).filter(|answer| answer.status == 429).or(refused);
        }
        let refused = refused.expect("20 requests take less than 17 seconds");
        assert_eq!(refused.all("retry-after").len(), 1, "{path} {refused:?}");
        assert_eq!(proxy.ask(Front::Http1, "/pid", &[]).status, 200);
    }
}
