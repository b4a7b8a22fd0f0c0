//! Paths that need a name and a password.

use super::{Site, configuration};
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{TestDirectory, run, run_program, wait_until};

/// `ann` with the password `secret` by bcrypt, and `bob` with `password` by Argon2id: little work, so that the tests
/// are fast.
const USERS: &[u8] = include_bytes!("users.htpasswd");
const SECTION: &str = "clean_urls = true\nredirects = { \"/out/*\" = { to = \"/private/:splat\", status = 200 }, \
    \"/lost/*\" = { to = \"/private/file.txt\", status = 404 } }\nheaders = { \"/*\" = { \"Cache-Control\" = \"max-age=60\" } }\n\
    [domain.\"example.com\".auth]\n\"/private/*\" = { users_file = \"users.htpasswd\", realm = \"the club\" }\n\
    \"/page\" = { users_file = \"users.htpasswd\" }\n\"/script.js\" = { users_file = \"users.htpasswd\" }\n";

#[test]
fn users_file_of_an_editor_of_windows_has_all_its_users() {
    let (_, users) = str::from_utf8(USERS).ok().and_then(|users| users.split_once('\n')).expect("a comment");
    let users = format!("\u{feff}{}", users.replace('\n', "\r\n"));
    let section = "auth = { \"/private/*\" = { users_file = \"users.htpasswd\" } }\n";
    let site = Site::new(section, &[("users.htpasswd", users.as_bytes()), ("public/private/file", b"secret\n")]);
    for user in ["ann:secret", "bob:password"] {
        site.check("/private/file", &["-u", user], 200, &[]);
    }
}

fn site() -> Site {
    let script = vec![b' '; 5_000];
    Site::new(
        SECTION,
        &[
            ("users.htpasswd", USERS),
            ("public/private/index.html", b"secret index\n"),
            ("public/private/file.txt", b"secret file\n"),
            ("public/page.html", b"secret page\n"),
            ("public/script.js", &script),
            ("public/script.js.br", b"compressed secret\n"),
            ("public/open.txt", b"open\n"),
        ],
    )
}

#[test]
fn protected_files_need_a_password_on_every_spelling_of_their_path() {
    let site = site();
    for path in [
        "/private",
        "/private/",
        "/private/file.txt",
        "/private/none",
        "//private//file.txt",
        "/./private/./file.txt",
        "/x/../private/file.txt",
        "/%70rivate/file.txt",
        "/private%2Ffile.txt",
        "/private/%66ile.txt?query",
        "/private/index.html",
        "/private/index",
        "/out/file.txt",
        "/out/",
        "/lost/x",
        "/page",
        "/page/",
        "/page.html",
        "/%70age.html",
        "/page.html/",
        "/script.js",
        "/script.js.gz",
        "/script.js.br",
    ] {
        for arguments in [
            &[][..],
            &["-I"],
            &["-r", "0-3"],
            &["-H", "If-None-Match: *"],
            &["-H", "Accept-Encoding: gzip"],
            &["-H", "Accept: application/json"],
            &["-u", "ann:wrong"],
            &["-u", "eve:secret"],
            &["-X", "POST"],
            &["-H", "Authorization: Bearer x"],
            &["-H", "Authorization: Basic !"],
        ] {
            for version in super::VERSIONS {
                let response = site.ask(version, path, arguments);
                let status = response.split_whitespace().nth(1);
                // A rewrite is for GET and HEAD alone.
                let is_refused = arguments == ["-X", "POST"] && status == Some("405");
                assert!(status == Some("401") || is_refused, "{version} {path} {arguments:?}: {response}");
                assert!(!response.contains("secret"), "{version} {path} {arguments:?}: {response}");
            }
        }
    }
    site.check(
        "/private/x",
        &[],
        401,
        &["www-authenticate: Basic realm=\"the club\", charset=\"UTF-8\"", "cache-control: no-store"],
    );
    site.check_content("/open.txt", 200, "open\n");
    site.check("/privates", &[], 404, &["!www-authenticate"]);
}

#[test]
fn password_opens_the_files_of_its_users() {
    let site = site();
    let private = "cache-control: private, no-cache";
    for user in ["ann:secret", "bob:password"] {
        site.check("/private/file.txt", &["-u", user], 200, &[private]);
        site.check("/private/file.txt", &["-u", user, "-r", "0-1"], 206, &[private]);
        site.check("/private", &["-u", user], 301, &["location: /private/"]);
        site.check("/out/file.txt", &["-u", user], 200, &[private]);
        site.check("/page", &["-u", user], 200, &[private]);
    }
    assert!(site.ask("--http1.1", "/private/", &["-u", "ann:secret"]).ends_with("secret index\n"));
    // A browser asks without a password whether it may.
    let preflight = ["-X", "OPTIONS", "-H", "Origin: https://a.example", "-H", "Access-Control-Request-Method: GET"];
    site.check("/private/file.txt", &preflight, 204, &["!www-authenticate"]);
}

#[test]
fn checks_of_passwords_are_bounded_for_one_client() {
    let site = site();
    let url = format!("http://{}/private/file.txt", site.server.http());
    let requests: String = (0..200).map(|number| format!("url = \"{url}\"\nuser = \"ann:{number}\"\nnext\n")).collect();
    let config = site.directory.write("requests", requests.trim_end_matches("next\n").as_bytes());
    let config = config.display().to_string();
    let ended = run_program(
        "curl",
        "curl",
        &["-sS", "-Z", "--parallel-immediate", "-w", "%{http_code}\n", "-o", "/dev/null", "-K", &config],
    );
    let count = |status: &str| ended.text().lines().filter(|line| *line == status).count();
    assert!(count("401") + count("503") >= 1 && count("200") == 0, "{} {}", ended.text(), ended.errors);
    site.check("/private/file.txt", &["-u", "ann:secret", "--retry", "5"], 200, &[]);
}

/// Both limits are reached by the second of two passwords while the first one is checked, and not reached by the first.
#[test]
fn checks_of_passwords_are_limited_as_the_configuration_says() {
    // Work for some tenths of a second. No password has this hash.
    let users = String::from_utf8_lossy(USERS).replace("$2y$04$", "$2y$12$");
    let files: &[(&str, &[u8])] = &[("users.htpasswd", users.as_bytes()), ("public/private/file", b"secret\n")];
    let auth = "auth = { \"/private/*\" = { users_file = \"users.htpasswd\" } }\n";
    let mut password = 0_u32;
    let mut statuses_of_two = |site: &Site| {
        let clients = [(); 2].map(|()| {
            password += 1;
            // `ann:`, and six bytes of a password that depend on the number.
            let credentials = format!("YW5uOjAw{password:0>4}");
            let mut client = HttpClient::connect(site.server.http());
            client.send(format!(
                "GET /private/file HTTP/1.1\r\nHost: example.com\r\nAuthorization: Basic {credentials}\r\n\r\n"
            ));
            client
        });
        let mut statuses = clients.map(|mut client| client.response().status);
        statuses.sort_unstable();
        statuses
    };
    for (key, below) in [("password_checks_max", 2), ("password_checks_per_client_max", 2)] {
        let site = Site::new(&format!("{auth}[limits]\n{key} = 1\n"), files);
        wait_until("a check is refused", || match statuses_of_two(&site) {
            [401, 503] => true,
            // The first check had ended before the second request came.
            statuses => {
                assert_eq!(statuses, [401, 401], "{key}");
                false
            }
        });
        let site = Site::new(&format!("{auth}[limits]\n{key} = {below}\n"), files);
        assert_eq!(statuses_of_two(&site), [401, 401], "{key}");
    }
}

#[test]
fn wrong_users_are_reported_and_protect_all_the_same() {
    let users = b"# comment\nann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\nbob:$apr1$x$y\ncat\n:$2y$04$x\ndan:$2y$31$abc\n";
    let section = "auth = { \"/private/*\" = { users_file = \"users.htpasswd\" }, \"/none/*\" = { users_file = \"none\" }, \
         \"/empty/*\" = { users_file = \"empty\" }, \"/folder/*\" = { users_file = \"folder\" } }\n";
    let site = Site::new(
        section,
        &[
            ("users.htpasswd", users),
            ("empty", b"# none\n"),
            ("folder/file", b""),
            ("public/private/file", b"secret\n"),
        ],
    );
    site.check("/private/file", &["-u", "ann:password"], 401, &[]);
    site.check("/none/file", &["-u", "ann:password"], 401, &[]);
    let ended = run(&["check", "--config", &site.directory.argument("sanderling.toml")]);
    assert_eq!(ended.code(), Some(1));
    for expected in [
        "users.htpasswd:2:1: the hash of ann is SHA-1: an attacker can try billions of passwords a second; the line is skipped",
        "users.htpasswd:4:1: the line has no colon",
        "users.htpasswd:5:1: the name is empty",
        "users.htpasswd:6:1: ",
        "sanderling.toml:7:87: cannot read the user file",
        "No such file or directory; create the file, or correct its path; until then, no user can log in",
        "it is not a regular file; specify a user file as written by htpasswd -B; until then, no user can log in",
        "empty` has no users, so no user can log in; add one, for example with htpasswd -B ",
    ] {
        assert!(ended.errors.contains(expected), "{expected} in {}", ended.errors);
    }
    // A reload takes other users.
    site.directory.replace("users.htpasswd", USERS);
    site.directory.write("none", USERS);
    std::fs::remove_dir_all(site.directory.path().join("folder")).expect("created above");
    site.directory.write("folder", USERS);
    assert!(site.directory.control("reload").status.success());
    site.check("/private/file", &["-u", "ann:secret"], 200, &[]);
    let directory =
        TestDirectory::with(&[("public/index.html", b""), ("sanderling.toml", configuration(section).as_bytes())]);
    assert_eq!(run(&["check", "--config", &directory.argument("sanderling.toml")]).code(), Some(1));
}
