//! Files of the configuration that a site would serve are reported by `check`, at startup and by a reload.

use sanderling_testkit::http::response_to;
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, run, run_program, run_to_end, sanderling,
};

const ZONE: &[u8] = b"@ 60 SOA ns.example.com. a.example.com. 1 60 60 60 60\n@ NS ns.example.com.\nns A 192.0.2.1\n";
const REMEDY: &str = "move it, or serve a folder that contains only public files";

/// The warnings of `check` that a file is served, without the directory's path.
fn warnings(directory: &TestDirectory) -> Vec<String> {
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    let lines = ended.errors.lines().filter(|line| line.contains("served"));
    let lines = lines.map(|line| line.replace(&directory.argument(""), "").replace(&format!("; {REMEDY}"), ""));
    lines.collect()
}

fn write_private_files(directory: &TestDirectory, folder: &str) {
    for (name, content) in [
        ("users.htpasswd", include_bytes!("site_rules/users.htpasswd").as_slice()),
        ("tsig.secret", b"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"),
        ("cookies.secret", b"00112233445566778899aabbccddeeff\n"),
        ("example.com.zone", ZONE),
        ("zones/example.net.zone", ZONE),
        ("sites/more.toml", b"[tsig.\"k\"]\nalgorithm = \"hmac-sha256\"\nsecret_file = \"FOLDERtsig.secret\"\n"),
    ] {
        let content = String::from_utf8_lossy(content).replace("FOLDER", folder);
        directory.write(&format!("{folder}{name}"), content.as_bytes());
    }
    let (chain, key) = (format!("{folder}chain.pem"), format!("{folder}key.pem"));
    let (chain, key) = (directory.argument(&chain), directory.argument(&key));
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=example.com -addext \
                     subjectAltName=DNS:example.com -out CHAIN -keyout KEY";
    let arguments: Vec<&str> = arguments
        .split(' ')
        .map(|word| match word {
            "CHAIN" => &chain,
            "KEY" => &key,
            word => word,
        })
        .collect();
    assert!(run_program("openssl", "openssl", &arguments).status.success());
}

/// Serves with relative paths, as an operator starts it in the folder.
fn start_in(directory: &TestDirectory, counts: ListenerCounts) -> TestServer {
    let mut command = sanderling();
    command.current_dir(directory.path()).args(["serve", "--config", "sanderling.toml", "--control", "control"]);
    TestServer::start_command(command, counts)
}

/// A configuration with private files in `folder`, which is below its own directory or empty, and this document root.
fn configuration(folder: &str, document_root: &str) -> String {
    format!(
        "include = [\"{folder}sites/*.toml\"]\n[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\n\
         listen = [\"127.0.0.1:0\"]\n[dns]\nlisten = [\"127.0.0.1:0\"]\nzones = \"{folder}zones/*.zone\"\n\
         cookie_secret_file = \"{folder}cookies.secret\"\n[log]\naccess = \"{folder}access.log\"\n\
         queries = \"{folder}queries.log\"\n[domain.\"example.com\"]\nsite = \"{document_root}\"\n\
         zone = \"{folder}example.com.zone\"\ncertificate = {{ chain = \"{folder}chain.pem\", key = \"{folder}key.pem\" }}\n\
         [domain.\"example.com\".auth]\n\"/private/*\" = {{ users_file = \"{folder}users.htpasswd\" }}\n"
    )
}

#[test]
fn each_private_file_in_the_document_root_is_reported_with_both_paths_and_its_line() {
    let directory = TestDirectory::with(&[("index.html", b"")]);
    write_private_files(&directory, "private/");
    directory.write("sanderling.toml", configuration("private/", ".").as_bytes());
    let is_in =
        |kind: &str, name: &str| format!("the {kind} `{name}` is in the document root `.`, and is served at /{name}");
    let of_folder = |kind: &str, name: &str| {
        format!("the {kind} `{name}` is in the document root `.`, and its files are served below /{name}")
    };
    let expected = [
        ("sanderling.toml:14:8", is_in("configuration file", "sanderling.toml")),
        ("sanderling.toml:14:8", is_in("configuration file", "private/sites/more.toml")),
        ("sanderling.toml:11:10", is_in("access log", "private/access.log")),
        ("sanderling.toml:12:11", is_in("query log", "private/queries.log")),
        ("sanderling.toml:18:31", is_in("user file", "private/users.htpasswd")),
        ("sanderling.toml:16:25", is_in("private key", "private/key.pem")),
        ("private/sites/more.toml:3:15", is_in("TSIG secret file", "private/tsig.secret")),
        ("sanderling.toml:9:22", is_in("cookie secret file", "private/cookies.secret")),
        ("sanderling.toml:15:8", is_in("zone file", "private/example.com.zone")),
        ("sanderling.toml:8:9", of_folder("zone folder", "private/zones")),
    ];
    let mut expected: Vec<String> =
        expected.iter().map(|(place, message)| format!("{place}: warning: {message}")).collect();
    let mut found = warnings(&directory);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn private_file_that_is_not_served_is_not_reported() {
    let directory = TestDirectory::with(&[("public/index.html", b"")]);
    write_private_files(&directory, "public/.private/");
    directory.write("sanderling.toml", configuration("public/.private/", "public").as_bytes());
    assert_eq!(warnings(&directory), [""; 0]);
    // With `hidden_files` they are.
    let text = configuration("public/.private/", "public")
        .replace("site = \"public\"", "site = \"public\"\nhidden_files = true");
    directory.write("sanderling.toml", text.as_bytes());
    assert_eq!(warnings(&directory).len(), 9);
    write_private_files(&directory, "private/");
    directory.write("sanderling.toml", configuration("private/", "public").as_bytes());
    assert_eq!(warnings(&directory), [""; 0]);
}

#[test]
fn symbolic_link_does_not_hide_that_a_file_is_served() {
    let directory = TestDirectory::with(&[("releases/1/index.html", b""), ("releases/1/sanderling.toml", b"")]);
    std::os::unix::fs::symlink("releases/1", directory.path().join("current")).unwrap();
    let text = "[http]\nlisten = [\"127.0.0.1:0\"]\n[log]\naccess = \"../releases/1/access.log\"\n\
                [domain.\"example.com\"]\nsite = \"../current\"\n";
    directory.write("config/sanderling.toml", text.as_bytes());
    let ended = run(&["check", "--config", &directory.argument("config/sanderling.toml")]);
    assert!(ended.errors.contains("and is served at /access.log"), "{ended}");
}

#[test]
fn start_and_reload_warn_of_a_file_that_is_served() {
    let directory = TestDirectory::with(&[("index.html", b"")]);
    let text = "[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \".\"\n";
    directory.write("sanderling.toml", text.as_bytes());
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 0 });
    let request = "GET /sanderling.toml HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n";
    assert_eq!(response_to(server.http(), request).text(), text);
    server.wait_for_error("sanderling.toml:4:8: warning: the configuration file ");
    server.wait_for_error(&format!("is served at /sanderling.toml; {REMEDY}"));
    directory.replace("sanderling.toml", format!("{text}[log]\naccess = \"access.log\"\n").as_bytes());
    assert!(directory.control("reload").status.success());
    server.wait_for_error("sanderling.toml:6:10: warning: the access log ");
}

#[test]
fn reload_tells_its_client_of_a_file_that_is_served() {
    let directory = TestDirectory::with(&[("index.html", b""), ("example.com.zone", ZONE), ("other/index.html", b"")]);
    directory.write("tsig.secret", b"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n");
    let text = "workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\n[dns]\nlisten = [\"127.0.0.1:0\"]\n[tsig.\"k\"]\n\
                secret_file = \"tsig.secret\"\n[domain.\"example.com\"]\nzone = \"example.com.zone\"\nsite = \"other\"\n";
    let with_site = format!("{text}[domain.\"example.net\"]\nsite = \".\"\n");
    for (changed, is_replaced) in [(with_site.clone(), false), (with_site.replace("workers = 1", "workers = 2"), true)]
    {
        directory.replace("sanderling.toml", text.as_bytes());
        let server = start_in(&directory, ListenerCounts { http: 1, dns: 1 });
        assert!(!server.errors().contains("is served at"));
        directory.replace("sanderling.toml", changed.as_bytes());
        let reload = directory.control("reload");
        assert!(reload.status.success(), "{reload}");
        assert_eq!(reload.text().contains("has replaced the old one"), is_replaced, "{reload}");
        for file in ["sanderling.toml", "tsig.secret", "example.com.zone"] {
            let warning = format!("is served at /{file}; {REMEDY}");
            assert!(reload.errors.contains(&warning), "{reload}");
            server.wait_for_error(&warning);
        }
    }
}

/// A configuration with this site and state folder.
fn with_state(site: &str, state: &str) -> String {
    format!("state = \"{state}\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"{site}\"\n")
}

#[test]
fn site_in_the_state_folder_or_around_it_is_an_error() {
    let directory = TestDirectory::with(&[("public/index.html", b"<!doctype html>"), ("other/index.html", b"")]);
    std::os::unix::fs::symlink("../public/state", directory.path().join("other/link")).unwrap();
    std::os::unix::fs::symlink("public", directory.path().join("current")).unwrap();
    let check = |text: &str, expected: Option<&str>| {
        directory.replace("sanderling.toml", text.as_bytes());
        let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
        assert_eq!(ended.code(), Some(expected.map_or(0, |_| 1)), "{text}{ended}");
        let expected = expected.map_or(String::new(), |expected| {
            format!(": {expected}; it is not served; set `state` to a folder outside all sites")
        });
        let errors = ended.errors.replace(&directory.argument(""), "");
        assert!(errors.contains(&expected), "{text}{ended}");
    };
    let state = |path: &str| format!("the state folder `{path}`, which contains private keys, is in the site ");
    // Whether the folder exists or not, and whether it is hidden or not.
    check(&with_state("public", "public/state"), Some(&format!("{}`public`", state("public/state"))));
    check(&with_state(".", "state"), Some(&format!("{}`.`", state("state"))));
    check(&with_state("public", "public/.state"), Some(&format!("{}`public`", state("public/.state"))));
    directory.write("public/state/keys/key.pem", b"");
    check(&with_state("current", "other/link"), Some(&format!("{}`current`", state("other/link"))));
    let itself = "the site `public/state` is the state folder `other/link`, which contains private keys";
    check(&with_state("public/state", "other/link"), Some(itself));
    let inside = "the site `public/state/keys` is in the state folder `public/state`, which contains private keys";
    check(&with_state("public/state/keys", "public/state"), Some(inside));
    let targets = format!("{}link_targets = [\"public\"]\n", with_state("other", "public/state"));
    let target = "the state folder `public/state`, which contains private keys, is in the link target `public`";
    check(&targets, Some(target));
    check(&with_state("public", "public-state"), None);
}

/// An earlier configuration, or another server, may have put keys into it.
#[test]
fn site_around_the_default_state_folder_is_not_served_whatever_needs_that_folder() {
    let directory = TestDirectory::with(&[("public/index.html", b"index"), ("public/state/keys/key.pem", b"secret")]);
    let mut command = sanderling();
    command.args(["serve", &directory.argument("public"), "--http", "127.0.0.1:0"]);
    command.env("STATE_DIRECTORY", directory.argument("public/state"));
    let server = TestServer::start_command(command, ListenerCounts { http: 1, dns: 0 });
    server.wait_for_error("public/state`, which contains private keys, is in the site `");
    let request = "GET /state/keys/key.pem HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    let response = response_to(server.http(), request).text();
    assert!(!response.contains("secret"), "{response}");
    let mut demo = sanderling();
    demo.args(["demo", "--site", &directory.argument("public")]);
    demo.args(["--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--dns", "127.0.0.1:0"]);
    demo.env("STATE_DIRECTORY", directory.argument("public/state"));
    let ended = run_to_end(demo, DEADLINE);
    assert!(ended.code() == Some(1) && ended.errors.contains("public/state`, which contains private keys"), "{ended}");
}

#[test]
fn site_around_the_state_folder_is_not_served_also_after_a_reload() {
    let directory = TestDirectory::with(&[("public/index.html", b"index"), ("other/index.html", b"other")]);
    directory.write("public/state/keys/key.pem", b"secret");
    let other = "[domain.\"example.net\"]\nsite = \"other\"\n";
    let configure = |text: &str| directory.replace("sanderling.toml", format!("{text}{other}").as_bytes());
    configure(&with_state("public", "state"));
    let server = start_in(&directory, ListenerCounts { http: 1, dns: 0 });
    let get = |host: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        response_to(server.http(), &request).text()
    };
    assert_eq!(get("example.com", "/"), "index");
    // The previously served directory is not kept: it now contains the state folder.
    configure(&with_state("public", "public/state"));
    let reloaded = directory.control("reload");
    assert!(!reloaded.status.success(), "{reloaded:?}");
    server.wait_for_error("sanderling.toml:5:8: the state folder `");
    for path in ["/", "/state/keys/key.pem"] {
        let body = get("example.com", path);
        assert!(!body.contains("index") && !body.contains("secret"), "{body}");
    }
    assert_eq!(get("example.net", "/"), "other");
    configure(&with_state("public", "state"));
    assert!(directory.control("reload").status.success());
    assert_eq!(get("example.com", "/"), "index");
}
