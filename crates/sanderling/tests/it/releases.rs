//! Releases of a site: published and rolled back under load, by the commands and by a link that is switched by hand.

use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{Ended, ListenerCounts, TestDirectory, TestServer, run_to_end, sanderling, wait_until};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

const HTTP: ListenerCounts = ListenerCounts { http: 1, dns: 0 };
const CONFIG: &str = "workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"releases/current\"\n\
    cache = \"fingerprinted\"\n";
/// Lines of a page that is too large to be kept in memory, so that it is sent in parts.
const LINES: usize = 20_000;

/// A server of the release 1.
struct Fixture {
    directory: TestDirectory,
    server: TestServer,
}

impl Fixture {
    fn new(config: &str, releases: usize) -> Fixture {
        let directory = TestDirectory::with(&[("sanderling.toml", config.as_bytes())]);
        (1..=releases).for_each(|number| write_release(&directory, number));
        symlink("1", directory.path().join("releases/current")).unwrap();
        let server = TestServer::start_command(directory.serve_command(), HTTP);
        Fixture { directory, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("releases").join(name)
    }

    /// Runs `publish`, or `rollback` without a folder.
    fn publish(&self, folder: Option<&str>) -> Ended {
        let mut command = sanderling();
        let command_name = if folder.is_some() { "publish" } else { "rollback" };
        command.args([command_name, "example.com"]).args(folder.map(|folder| self.path(folder)));
        command.args(["--config", &self.directory.argument("sanderling.toml")]);
        command.args(["--control", &self.directory.argument("control")]);
        run_to_end(command, Duration::from_secs(30))
    }

    #[track_caller]
    fn publish_well(&self, folder: Option<&str>, expected: &str) {
        let ended = self.publish(folder);
        assert!(ended.code() == Some(0) && ended.text().contains(expected), "{ended}");
    }

    #[track_caller]
    fn publish_in_vain(&self, folder: Option<&str>, expected: &str) {
        let link = || fs::read_link(self.path("current"));
        let before = link().ok();
        let ended = self.publish(folder);
        assert!(ended.code() == Some(1) && ended.errors.contains(expected), "{expected}: {ended}");
        assert_eq!(link().ok(), before);
    }

    fn client(&self) -> HttpClient {
        HttpClient::connect(self.server.http())
    }

    /// The number of the release that a new connection gets.
    #[track_caller]
    fn served(&self) -> usize {
        number_of(&get(&mut self.client(), "/").1)
    }

    /// The status of the script of this release, whose content is checked.
    #[track_caller]
    fn script(&self, number: usize) -> u16 {
        let (status, content) = get(&mut self.client(), &script_path(number));
        assert!(status != 200 || content == format!("script {number}\n"), "{content}");
        status
    }

    /// The target of a link in the folder.
    fn link(&self, name: &str) -> String {
        fs::read_link(self.path(name)).map_or_else(|_| String::new(), |target| target.display().to_string())
    }
}

/// The first configuration of the manual's page.
fn manual_config() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/releases.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once("```toml\n").expect("the page has a configuration");
    let (config, _) = rest.split_once("```").expect("the block ends");
    config.replace("127.0.0.1:8080", "127.0.0.1:0")
}

fn write_release(directory: &TestDirectory, number: usize) {
    let page = format!("release {number}\n").repeat(LINES);
    directory.write(&format!("releases/{number}/index.html"), page.as_bytes());
    directory.write(&format!("releases/{number}{}", script_path(number)), format!("script {number}\n").as_bytes());
    directory.write(&format!("releases/{number}/only-{number}.html"), b"a page\n");
}

fn script_path(number: usize) -> String {
    format!("/assets/app.3f2a1b{number:02}.js")
}

#[track_caller]
fn get(client: &mut HttpClient, path: &str) -> (u16, String) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n"));
    let response = client.response();
    (response.status, response.text())
}

/// The number of the release of a page, all of whose lines have it.
#[track_caller]
fn number_of(page: &str) -> usize {
    let number = page.lines().next().and_then(|line| line.strip_prefix("release ")).expect("a page").parse().unwrap();
    let line = format!("release {number}");
    assert!(
        page.lines().count() == LINES && page.lines().all(|other| other == line),
        "a mixture with release {number}"
    );
    number
}

#[test]
fn publish_under_load_loses_no_request_and_closes_no_connection() {
    const RELEASES: usize = 12;
    let fixture = Fixture::new(CONFIG, RELEASES);
    let process = fixture.server.server_process_id();
    let is_over = AtomicBool::new(false);
    let pages: [AtomicUsize; 4] = Default::default();
    let address = fixture.server.http();
    let visit = |pages: &AtomicUsize| {
        let (mut pages_client, mut scripts_client) = (HttpClient::connect(address), HttpClient::connect(address));
        let mut newest = 0;
        while !is_over.load(Ordering::Relaxed) {
            let (status, page) = get(&mut pages_client, "/");
            assert_eq!(status, 200);
            let number = number_of(&page);
            assert!(number >= newest, "release {number} after {newest}");
            newest = number;
            // The request uses another connection, which another worker may serve.
            assert_eq!(get(&mut scripts_client, &script_path(number)), (200, format!("script {number}\n")));
            pages.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let visitors: Vec<_> = pages.iter().map(|pages| scope.spawn(move || visit(pages))).collect();
        for number in 2..=RELEASES {
            // Each visitor goes on before the next release: a script is served for two releases more.
            let before = pages.each_ref().map(|pages| pages.load(Ordering::Relaxed));
            wait_until("pages are visited", || {
                pages.iter().zip(before).all(|(pages, before)| pages.load(Ordering::Relaxed) > before + 2)
                    || visitors.iter().any(|visitor| visitor.is_finished())
            });
            fixture.publish_well(Some(&number.to_string()), "no connection was closed");
            assert_eq!([fixture.served(), fixture.served(), fixture.served()], [number; 3]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fixture.server.server_process_id(), process);
}

#[test]
fn status_shows_the_release_and_since_when() {
    let fixture = Fixture::new(CONFIG, 2);
    for number in ["1", "2"] {
        if number == "2" {
            fixture.publish_well(Some(number), "release 2");
        }
        let (path, link) = (fixture.path(number).canonicalize().unwrap(), fixture.path("current"));
        let status = |arguments: &[&str]| {
            let ended = fixture.directory.control_with("status", arguments);
            assert_eq!(ended.code(), Some(0), "{ended}");
            ended.text().to_string()
        };
        let text = status(&[]);
        assert!(text.contains(&format!("releases/current, release {} since ", path.display())), "{text}");
        let since =
            fs::symlink_metadata(link).unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let expected = format!("\"release\":{{\"path\":\"{}\",\"since_unix_s\":{since},", path.display());
        let json = status(&["--json"]);
        assert!(json.contains(&expected), "{expected} in {json}");
    }
}

#[test]
fn files_with_a_hash_in_their_name_of_the_two_releases_before_are_served() {
    let fixture = Fixture::new(&manual_config(), 4);
    assert_eq!([fixture.script(1), fixture.script(2)], [200, 404]);
    fixture.publish_well(Some("2"), "example.com: release 2; before: 1");
    assert_eq!([1, 2, 3].map(|number| fixture.script(number)), [200, 200, 404]);
    let (_, page) = get(&mut fixture.client(), "/only-1.html");
    assert!(!page.contains("a page"), "only names with a hash are the same in all releases");
    fixture.publish_well(Some("3"), "example.com: release 3; before: 2");
    assert_eq!([1, 2, 3].map(|number| fixture.script(number)), [200, 200, 200]);
    fixture.publish_well(Some("4"), "example.com: release 4; before: 3");
    assert_eq!([1, 2, 3, 4].map(|number| fixture.script(number)), [404, 200, 200, 200]);
    // Publishing the same again changes nothing, and the links survive a restart.
    fixture.publish_well(Some("current"), "example.com: release 4\n");
    assert_eq!(fixture.link("current.previous-1") + &fixture.link("current.previous-2"), "32");
    let Fixture { directory, server } = fixture;
    server.stop();
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let fixture = Fixture { directory, server };
    assert_eq!([1, 2, 3, 4].map(|number| fixture.script(number)), [404, 200, 200, 200]);
}

/// The name of the file does not matter.
#[test]
fn removed_document_is_gone_as_soon_as_the_release_is_published() {
    const NAMES: [&str; 8] = [
        "report-Q3Final2.pdf",
        "INV-AB23CD45.pdf",
        "backup-2024a1b2.zip",
        "user-64f1a2b3c4d5e6f7a8b9c0d1.json",
        "post_5f3a2b1c.html",
        "avatar-0123456789abcdef0123456789abcdef.png",
        "assets/photo-aB3dE5fG.jpg",
        "assets/app.3f2a1b01.js.map",
    ];
    let fixture = Fixture::new(CONFIG, 2);
    NAMES.iter().for_each(|name| drop(fixture.directory.write(&format!("releases/1/{name}"), b"secret\n")));
    let statuses = || NAMES.map(|name| get(&mut fixture.client(), &format!("/{name}")).0);
    assert_eq!(statuses(), [200; 8]);
    fixture.publish_well(Some("2"), "release 2");
    assert_eq!(statuses(), [404; 8]);
    assert_eq!(fixture.script(1), 200);
}

#[test]
fn files_of_earlier_releases_are_shown_and_can_be_switched_off() {
    let fixture = Fixture::new(CONFIG, 2);
    let status = |arguments: &[&str]| fixture.directory.control_with("status", arguments).text().to_string();
    fixture.publish_well(Some("2"), "release 2");
    assert!(!status(&[]).contains("earlier releases"));
    assert_eq!(fixture.script(1), 200);
    let expected = format!(", 1 file served from earlier releases: {}\n", script_path(1));
    assert!(status(&[]).contains(&expected), "{expected} in {}", status(&[]));
    let expected = format!("\"served_from_earlier_releases\":[\"{}\"]", script_path(1));
    assert!(status(&["--json"]).contains(&expected), "{expected} in {}", status(&["--json"]));
    fixture.directory.write("sanderling.toml", format!("{CONFIG}earlier_releases = false\n").as_bytes());
    let ended = fixture.directory.control("reload");
    assert!(ended.code() == Some(0) && ended.text().contains("no connection was closed"), "{ended}");
    assert_eq!([fixture.script(1), fixture.script(2)], [404, 200]);
    assert!(!status(&[]).contains("earlier releases"));
}

/// A name that looks as if it had a hash, and has other content in each release.
#[test]
fn name_with_other_content_in_another_release_is_neither_kept_nor_immutable() {
    const NAME: &str = "player-5f3a2b1c.js";
    let fixture = Fixture::new(CONFIG, 4);
    for (release, content) in [(1, "one"), (2, "two")] {
        fixture.directory.write(&format!("releases/{release}/{NAME}"), content.as_bytes());
    }
    let answer = || {
        let mut client = fixture.client();
        client.send(format!("GET /{NAME} HTTP/1.1\r\nHost: example.com\r\n\r\n"));
        let response = client.response();
        let kept_for = response.field("Cache-Control").unwrap_or_default().to_owned();
        (response.status, response.text(), kept_for)
    };
    let immutable = "public, max-age=31536000, immutable";
    assert_eq!(answer(), (200, "one".to_owned(), immutable.to_owned()));
    fixture.publish_well(Some("2"), "release 2");
    assert_eq!(answer(), (200, "two".to_owned(), "no-cache".to_owned()));
    fixture.publish_well(None, "release 1");
    assert_eq!(answer(), (200, "one".to_owned(), "no-cache".to_owned()));
    fixture.publish_well(Some("3"), "release 3");
    // Only the release 1 is known to have it, and then both of the last two.
    assert_eq!(answer().0, 404);
}

#[test]
fn rollback_serves_the_release_before_and_files_of_both() {
    let fixture = Fixture::new(CONFIG, 3);
    fixture.publish_in_vain(None, "sanderling: rollback: there is no earlier release");
    fixture.publish_well(Some("2"), "release 2");
    fixture.publish_well(Some("3"), "release 3");
    fixture.publish_well(None, "example.com: release 2; before: 3");
    assert_eq!((fixture.served(), [1, 2, 3].map(|number| fixture.script(number))), (2, [200; 3]));
    fixture.publish_well(None, "example.com: release 3; before: 2");
    assert_eq!((fixture.served(), [1, 2, 3].map(|number| fixture.script(number))), (3, [200; 3]));
}

#[test]
fn link_that_is_switched_by_hand_is_followed_after_a_reload_and_without() {
    let fixture = Fixture::new(CONFIG, 3);
    let process = fixture.server.server_process_id();
    let switch = |to: &str| {
        let link = fixture.path("current");
        assert!(Command::new("ln").arg("-sfn").arg(to).arg(link).status().unwrap().success());
    };
    switch("2");
    let ended = fixture.directory.control("reload");
    assert!(ended.code() == Some(0) && ended.text().contains("no connection was closed"), "{ended}");
    assert_eq!(fixture.served(), 2);
    switch("3");
    wait_until("the server has noticed the link", || fixture.served() == 3);
    switch("missing");
    switch("1");
    wait_until("the server has noticed the link", || fixture.served() == 1);
    assert_eq!(fixture.server.server_process_id(), process);
}

#[test]
fn folder_that_cannot_be_a_release_is_refused_with_a_remedy() {
    let fixture = Fixture::new(CONFIG, 2);
    fixture.directory.write("outside/index.html", b"outside\n");
    fixture.directory.write("releases/pages/about.html", b"about\n");
    fixture.directory.write("releases/file", b"a file\n");
    fs::create_dir(fixture.path("empty")).unwrap();
    symlink("../outside", fixture.path("elsewhere")).unwrap();
    fs::create_dir(fixture.path("linked")).unwrap();
    symlink("../../outside/index.html", fixture.path("linked/index.html")).unwrap();
    for (folder, expected) in [
        ("missing", "missing does not exist"),
        ("file", "file is not a folder"),
        ("empty", "empty is empty"),
        ("pages", "pages has no index.html, which the current release has"),
        ("linked", "linked has no index.html, which the current release has"),
        ("../outside", "where the server can read releases; copy it there"),
        ("elsewhere", "where the server can read releases; copy it there"),
        (".", "where the server can read releases; copy it there"),
    ] {
        fixture.publish_in_vain(Some(folder), expected);
    }
    assert_eq!((fixture.served(), fixture.link("current.previous-1").as_str()), (1, ""));
    let mut command = sanderling();
    command.args(["publish", "example.org", "x", "--config", &fixture.directory.argument("sanderling.toml")]);
    let ended = run_to_end(command, Duration::from_secs(30));
    assert!(ended.errors.contains("has no site for example.org; did you mean example.com?"), "{ended}");
}

#[test]
fn release_that_the_server_cannot_read_is_taken_back() {
    if sanderling_os::process::effective_uid() != 0 {
        return println!("skipped: only root can switch to another user");
    }
    let fixture = Fixture::new(&format!("user = \"nobody\"\n{CONFIG}"), 3);
    fs::set_permissions(fixture.path("2/index.html"), fs::Permissions::from_mode(0o600)).unwrap();
    fixture.publish_in_vain(Some("2"), "the user `nobody` cannot read `");
    let real = fs::canonicalize(fixture.path("2")).unwrap();
    fixture.publish_in_vain(Some("2"), &format!("chmod o+r {}/index.html\n", real.display()));
    fs::set_permissions(fixture.path("3"), fs::Permissions::from_mode(0o700)).unwrap();
    fixture.publish_in_vain(Some("3"), "3 was not published; the link is unchanged");
    assert_eq!((fixture.served(), fixture.link("current.previous-1").as_str()), (1, ""));
}

#[test]
fn first_release_of_a_site_that_had_none_is_served() {
    let directory = TestDirectory::with(&[("sanderling.toml", CONFIG.as_bytes())]);
    write_release(&directory, 1);
    write_release(&directory, 2);
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let fixture = Fixture { directory, server };
    assert_eq!(get(&mut fixture.client(), "/").0, 503);
    // The first process's sandbox does not allow a folder that was not there. The replaced process may accept
    // connections until it has exited.
    fixture.publish_well(Some("1"), "example.com: release 1\n");
    wait_until("the new process serves", || get(&mut fixture.client(), "/only-1.html").0 == 200);
    let process = fixture.server.server_process_id();
    fixture.publish_well(Some("2"), "no connection was closed");
    assert_eq!((fixture.served(), fixture.server.server_process_id()), (2, process));
}

#[test]
fn link_is_switched_while_no_server_runs() {
    let fixture = Fixture::new(CONFIG, 2);
    let Fixture { directory, server } = fixture;
    server.stop();
    let mut command = sanderling();
    command.args(["publish", "example.com", &directory.argument("releases/2"), "--config"]);
    command.args([&directory.argument("sanderling.toml"), "--control", &directory.argument("control")]);
    let ended = run_to_end(command, Duration::from_secs(30));
    assert!(ended.code() == Some(0) && ended.errors.contains("no server answers at"), "{ended}");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    assert_eq!(Fixture { directory, server }.served(), 2);
}
