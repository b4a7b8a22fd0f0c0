//! The files of sites and zones are read with the rights of the configured user, never with root's rights.

use super::https::issue_for;
use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, TestDirectory, TestServer, curl, dig, run, run_to_end, sanderling,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };
const ZONE: &str = "@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n";

/// The domains `a.example`, with a site in `public`, and `b.example`, each with a zone; served as `nobody`. `None` if
/// the test cannot switch to another user.
fn directory() -> Option<TestDirectory> {
    if sanderling_os::process::effective_uid() != 0 {
        println!("skipped: only root can switch to another user");
        return None;
    }
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n")]);
    for name in ["a", "b"] {
        directory.write(&format!("zones/{name}.zone"), ZONE.as_bytes());
    }
    let config = "user = \"nobody\"\nworkers = 1\n\
        [http]\nlisten = [\"127.0.0.1:0\"]\n[dns]\nlisten = [\"127.0.0.1:0\"]\n\
        [domain.\"a.example\"]\nsite = \"public\"\nzone = \"zones/a.zone\"\n\
        [domain.\"b.example\"]\nsite = \"closed/site\"\nzone = \"zones/b.zone\"\n";
    directory.write("sanderling.toml", config.as_bytes());
    directory.write("closed/site/page.html", b"no index\n");
    set_mode(&directory, "", 0o755);
    Some(directory)
}

fn set_mode(directory: &TestDirectory, path: &str, mode: u32) {
    fs::set_permissions(directory.path().join(path), fs::Permissions::from_mode(mode)).expect("ours");
}

/// The response code of the zone `apex`, and the number of records at `www` below it.
#[track_caller]
fn answer(server: &TestServer, apex: &str) -> String {
    let text = dig(server.dns(), &[&format!("www.{apex}"), "A"]).text();
    let code = text.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a status");
    let count = text.split("ANSWER: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a count");
    format!("{code} {count}")
}

#[test]
fn files_that_the_user_cannot_read_are_reported_by_check_and_serve() {
    let Some(directory) = directory() else { return };
    for (path, mode) in [("public", 0o700), ("closed", 0o700), ("zones/b.zone", 0o600)] {
        set_mode(&directory, path, mode);
    }
    let site = "the user `nobody` cannot read the site `";
    let others = [
        "closed/site` cannot be reached: the user `nobody` cannot enter",
        "b.zone: cannot read the zone file as the user `nobody`: Permission",
    ];
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    for expected in [&others[..], &[site]].concat() {
        assert!(ended.code() == Some(1) && ended.errors.contains(expected), "{expected}: {ended}");
    }
    assert!(!ended.errors.contains("_redirects"), "a file that may not exist: {ended}");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    for expected in [&others[..], &[site]].concat() {
        server.wait_for_error(expected);
    }
    let status = |host: &str| {
        let url = format!("http://{}/", server.http());
        curl(&["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &format!("Host: {host}"), &url]).text()
    };
    assert_eq!([status("a.example"), status("b.example")], ["403", "503"]);
    assert_eq!([answer(&server, "a.example"), answer(&server, "b.example")], ["NXDOMAIN 0", "SERVFAIL 0"]);
}

#[test]
fn page_that_the_user_cannot_read_is_named() {
    let Some(directory) = directory() else { return };
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    directory.replace("sanderling.toml", config.replace("closed/site", "public").as_bytes());
    set_mode(&directory, "public/index.html", 0o600);
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    let page = directory.argument("public/index.html");
    let expected = format!("the user `nobody` cannot read `{page}`, the page for /; run chmod o+r {page}\n");
    assert!(ended.code() == Some(1) && ended.errors.contains(&expected), "{ended}");
    assert!(!ended.errors.contains("cannot read the file"), "a second message: {ended}");
}

/// The server is not started in that directory.
#[test]
fn site_below_a_folder_that_the_user_cannot_enter_is_an_error_in_that_folder_too() {
    let Some(directory) = directory() else { return };
    let config = "user = \"nobody\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.example\"]\nsite = \"public\"\n";
    directory.write("home/own/sanderling.toml", config.as_bytes());
    directory.write("home/own/public/index.html", b"<!doctype html>");
    set_mode(&directory, "home", 0o700);
    let mut check = sanderling();
    check.arg("check").current_dir(directory.path().join("home/own"));
    let ended = run_to_end(check, DEADLINE);
    let home = directory.argument("home");
    let expected =
        format!("cannot be reached: the user `nobody` cannot enter {home}; run chmod o+x {home}, or move the site\n");
    assert!(ended.code() == Some(1) && ended.errors.contains(&expected), "{ended}");
    assert!(!ended.errors.contains("cannot list the directory"), "{ended}");
}

#[test]
fn check_tells_a_state_folder_that_the_user_cannot_write_and_reaches_the_control_socket_as_root() {
    let Some(directory) = directory() else { return };
    let config = "user = \"nobody\"\nstate = \"private/state\"\ncontrol = \"private/run/control\"\n\
        [dns]\nlisten = [\"127.0.0.1:0\"]\n[tsig.acme]\nsecret_file = \"acme.key\"\n\
        [domain.\"a.example\"]\nzone = \"zones/a.zone\"\n\
        update = [{ key = \"acme\", names = [\"www\"], types = [\"A\"] }]\n";
    directory.write("sanderling.toml", config.as_bytes());
    directory.write("acme.key", b"c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldA==\n");
    set_mode(&directory, "acme.key", 0o600);
    fs::create_dir_all(directory.path().join("private/state")).expect("ours");
    for (mode, expected) in [
        (0o700, "private/state` cannot be reached: the user `nobody` cannot enter"),
        (0o755, "the user `nobody` cannot write to the state folder"),
    ] {
        set_mode(&directory, "private", mode);
        let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
        assert!(ended.code() == Some(1) && ended.errors.contains(expected), "{expected}: {ended}");
        assert!(!ended.errors.contains("control"), "{ended}");
    }
    // Of root, the agent would not use it, whatever its mode.
    set_mode(&directory, "private/state", 0o777);
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert!(
        ended.code() == Some(1) && ended.errors.contains("private/state belongs to user root; change its owner to"),
        "{ended}"
    );
    let nobody = sanderling_os::user::User::lookup("nobody", None).expect("every system has it");
    std::os::unix::fs::chown(directory.argument("private/state"), Some(nobody.uid), None).expect("ours");
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert_eq!(ended.code(), Some(0), "{ended}");
}

#[test]
fn reload_reports_a_site_that_the_user_cannot_read() {
    let Some(directory) = directory() else { return };
    directory.write("closed/site/index.html", b"hi\n");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    set_mode(&directory, "public", 0o700);
    let ended = directory.control("reload");
    assert!(ended.code() == Some(1) && ended.errors.contains("the user `nobody` cannot read the site `"), "{ended}");
    assert!(ended.text().contains("public for a.example: cannot be read; requests get status 403 until"), "{ended}");
    // A directory that cannot be read does not replace one that can.
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    directory.replace("sanderling.toml", config.replace("closed/site", "public").as_bytes());
    let ended = directory.control("reload");
    assert!(ended.text().contains("public for b.example: not reloaded, keeping the directory "), "{ended}");
    let url = format!("http://{}/", server.http());
    assert_eq!(curl(&["-s", "-H", "Host: b.example", &url]).text(), "hi\n");
    set_mode(&directory, "public", 0o755);
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
}

#[test]
fn include_is_read_with_the_rights_of_the_user() {
    let Some(directory) = directory() else { return };
    directory.write("zones/b.zone", format!("{ZONE}$INCLUDE private\n").as_bytes());
    directory.write("zones/private", b"www 60 A 192.0.2.99\nSECRET\n");
    set_mode(&directory, "zones/private", 0o600);
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    server.wait_for_error("private: cannot read the zone file as the user `nobody`: Permission denied");
    assert_eq!(answer(&server, "b.example"), "SERVFAIL 0");
    assert!(!server.errors().contains("SECRET"), "{}", server.errors());
}

#[test]
fn included_file_elsewhere_is_reloaded_in_place() {
    let Some(directory) = directory() else { return };
    directory.write("closed/site/index.html", b"hi\n");
    directory.write("zones/b.zone", format!("{ZONE}$INCLUDE ../shared/hosts\n").as_bytes());
    directory.write("shared/hosts", b"www 60 A 192.0.2.1\n");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    assert_eq!(answer(&server, "b.example"), "NOERROR 1");
    directory.replace("shared/hosts", b"www 60 A 192.0.2.1\nwww 60 A 192.0.2.2\n");
    let ended = directory.control("reload");
    assert!(ended.code() == Some(0) && ended.text().contains("no connection was closed"), "{ended}");
    assert_eq!(answer(&server, "b.example"), "NOERROR 2");
}

#[test]
fn zone_that_no_process_may_read_does_not_cause_a_new_process_at_each_reload() {
    let Some(directory) = directory() else { return };
    set_mode(&directory, "zones/b.zone", 0o600);
    set_mode(&directory, "closed", 0o700);
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let process = server.server_process_id();
    let ended = directory.control("reload");
    assert!(ended.code() == Some(1) && ended.text().contains("no connection was closed"), "{ended}");
    assert_eq!(server.server_process_id(), process);
    // Permission alone suffices.
    set_mode(&directory, "zones/b.zone", 0o644);
    directory.control("reload");
    assert_eq!((answer(&server, "b.example").as_str(), server.server_process_id()), ("NXDOMAIN 0", process));
}

#[test]
fn zone_in_a_new_directory_takes_one_new_process() {
    let Some(directory) = directory() else { return };
    directory.write("closed/site/index.html", b"hi\n");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    directory.write("elsewhere/c.zone", ZONE.as_bytes());
    directory.replace(
        "sanderling.toml",
        format!("{config}[domain.\"c.example\"]\nzone = \"elsewhere/c.zone\"\n").as_bytes(),
    );
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert_eq!(answer(&server, "c.example"), "NXDOMAIN 0");
    let ended = directory.control("reload");
    assert!(ended.code() == Some(0) && ended.text().contains("no connection was closed"), "{ended}");
}

#[test]
fn root_without_a_user_serves_as_another_user_with_a_clean_environment() {
    let Some(directory) = directory() else { return };
    directory.write("closed/site/index.html", b"hi\n");
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    directory.replace("sanderling.toml", config.replace("user = \"nobody\"\n", "").as_bytes());
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert!(ended.text().contains(", because root does not serve; set `user`"), "{ended}");
    set_mode(&directory, "public/index.html", 0o600);
    let mut command = directory.serve_command();
    command.env("SECRET_TOKEN", "1").env("NO_COLOR", "1");
    let server = TestServer::start_command(command, BOTH);
    let url = format!("http://{}/", server.http());
    assert_eq!(curl(&["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: a.example", &url]).text(), "403");
    let process = format!("/proc/{}", server.server_process_id());
    let status = fs::read_to_string(format!("{process}/status")).expect("it runs");
    assert!(!status.contains("Uid:\t0"), "{status}");
    let environment = fs::read_to_string(format!("{process}/environ")).expect("it runs");
    assert!(environment.contains("NO_COLOR=1") && !environment.contains("SECRET_TOKEN"), "{environment}");
    assert!(!directory.control("status").text().contains("unchanged"));
}

#[test]
fn supervisor_of_root_keeps_few_rights_also_after_an_upgrade() {
    let Some(directory) = directory() else { return };
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let rights = || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.process_id())).expect("it runs");
        let is_of_rights =
            |line: &&str| line.starts_with("Cap") || line.starts_with("NoNew") || line.starts_with("Seccomp");
        status.lines().filter(is_of_rights).map(str::to_owned).collect::<Vec<String>>()
    };
    let before = rights();
    assert!(before.contains(&"NoNewPrivs:\t1".to_owned()) && before.contains(&"Seccomp:\t2".to_owned()), "{before:?}");
    let bits = |name: &str| {
        let line = before.iter().find_map(|line| line.strip_prefix(name)).expect("a line of each set");
        u64::from_str_radix(line.trim(), 16).expect("hexadecimal").count_ones()
    };
    assert!(bits("CapBnd:") <= 10 && bits("CapEff:") <= 10, "{before:?}");
    assert_eq!(directory.control("upgrade").code(), Some(0));
    assert_eq!(rights(), before);
}

/// `sanderling` with these arguments on a machine without the user `sanderling`; `None` if this process may not mount.
fn without_own_user(directory: &TestDirectory, arguments: &[&str]) -> Option<Command> {
    const HIDE: &str = "grep -v ^sanderling: /etc/passwd > \"$0\" && mount --bind \"$0\" /etc/passwd && exec \"$@\"";
    let in_namespace = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", HIDE, &directory.argument("passwd")]).args(arguments);
        command
    };
    if !in_namespace(&["true"]).status().is_ok_and(|status| status.success()) {
        println!("not run: this process may not mount");
        return None;
    }
    let program = sanderling().get_program().to_str().expect("UTF-8").to_owned();
    Some(in_namespace(&[&[program.as_str()], arguments].concat()))
}

#[test]
fn root_without_a_user_of_its_own_serves_neither_secrets_nor_a_state_folder() {
    let Some(directory) = directory() else { return };
    directory.write("closed/site/index.html", b"hi\n");
    let served = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    let served = served.replace("user = \"nobody\"\n", "");
    let (config, control) = (directory.argument("sanderling.toml"), directory.argument("control"));
    let serve = ["serve", "--config", &config, "--control", &control];
    let refused = "refusing to serve as `nobody`, which other services use too, with secrets or a state folder, and \
                   there is no user `sanderling`; create it (useradd --system sanderling), or set `user`";
    let owning = [
        format!("state = \"state\"\n{served}"),
        format!("{served}dnssec = true\n"),
        format!("{served}[tsig.k]\nsecret_file = \"k\"\n"),
        format!("{served}[domain.\"c.example\"]\nprimaries = [{{ address = \"127.0.0.1\" }}]\n"),
    ];
    for text in &owning {
        directory.replace("sanderling.toml", text.as_bytes());
        let Some(command) = without_own_user(&directory, &serve) else { return };
        let ended = run_to_end(command, DEADLINE);
        assert!(ended.code() == Some(78) && ended.errors.contains(refused), "{text}: {ended}");
        let check = without_own_user(&directory, &["check", "--config", &config]).expect("as before");
        let ended = run_to_end(check, DEADLINE);
        assert!(ended.code() == Some(1) && ended.errors.contains(refused), "{text}: {ended}");
        assert!(!directory.path().join("state").exists() && !directory.path().join("control").exists());
    }
    // The folder of an earlier version of the program may belong to nobody.
    fs::create_dir(directory.path().join("state")).expect("ours");
    directory.replace("sanderling.toml", owning[0].as_bytes());
    let ended = run_to_end(without_own_user(&directory, &serve).expect("as before"), DEADLINE);
    let state = directory.path().join("state");
    let chown = format!("change the owner of the state folder to that user (chown -R sanderling: {})", state.display());
    assert!(ended.code() == Some(78) && ended.errors.contains(&chown), "{ended}");
    // Without anything to own it serves as nobody, and a reload does not change that.
    directory.replace("sanderling.toml", served.as_bytes());
    let server = TestServer::start_command(without_own_user(&directory, &serve).expect("as before"), BOTH);
    assert!(directory.control("status").text().contains("  user          nobody\n"));
    for text in &owning {
        directory.replace("sanderling.toml", text.as_bytes());
        let ended = directory.control("reload");
        assert!(ended.code() == Some(1) && ended.errors.contains(refused), "{text}: {ended}");
        assert_eq!(answer(&server, "a.example"), "NXDOMAIN 0");
    }
}

/// `sanderling check` of a configuration that a unit in `units` serves; `None` if this process may not mount.
fn check_with_unit(directory: &TestDirectory) -> Option<Ended> {
    const MOUNT: &str = "mount --bind \"$0\" /etc/systemd/system && exec \"$@\"";
    let in_namespace = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", MOUNT, &directory.argument("units")]).args(arguments);
        command
    };
    if !Path::new("/etc/systemd/system").is_dir()
        || !in_namespace(&["true"]).status().is_ok_and(|status| status.success())
    {
        println!("not run: this process may not mount");
        return None;
    }
    let program = sanderling().get_program().to_str().expect("UTF-8").to_owned();
    Some(run_to_end(in_namespace(&[&program, "check", "--config", &directory.argument("sanderling.toml")]), DEADLINE))
}

/// The service starts as its user, so that nothing is read by root.
#[test]
fn files_that_the_user_of_the_unit_cannot_read_or_write_are_errors_of_check() {
    let Some(directory) = directory() else { return };
    let config = "state = \"state\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[https]\nlisten = [\"127.0.0.1:0\"]\n\
        [dns]\nlisten = [\"127.0.0.1:0\"]\n[log]\naccess = \"logs/access.log\"\n\
        [tsig.acme]\nsecret_file = \"keys/acme.key\"\n\
        [domain.\"a.example\"]\nsite = \"public\"\nzone = \"zones/a.zone\"\n\
        certificate = { chain = \"keys/chain.pem\", key = \"keys/key.pem\" }\n\
        auth = { \"/private/*\" = { users_file = \"users/users\" } }\n\
        update = [{ key = \"acme\", names = [\"www\"], types = [\"A\"] }]\n";
    directory.write("sanderling.toml", config.as_bytes());
    let command = format!("/usr/bin/sanderling serve --config {}", directory.argument("sanderling.toml"));
    let unit = format!("[Service]\nUser=nobody\nGroup=12345\nExecStart={command}\n");
    directory.write("units/sanderling.service", unit.as_bytes());
    directory.write("keys/acme.key", b"c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldA==\n");
    issue_for("a.example", &directory, "keys/chain.pem", "keys/key.pem", "a.example");
    directory.write("users/users", b"a:$2y$05$MDCeBHBGFY2IvUkEXlmhNu4tqo3pCHkBVyyCSq7vfMQCqvJQ5VNJS\n");
    for folder in ["logs", "state"] {
        fs::create_dir(directory.path().join(folder)).expect("ours");
    }
    let files = ["sanderling.toml", "keys/acme.key", "keys/chain.pem", "keys/key.pem", "users/users"];
    let set_all = |mode: u32| files.iter().for_each(|file| set_mode(&directory, file, mode));
    set_all(0o600);
    let nobody = sanderling_os::user::User::lookup("nobody", Some("12345")).expect("every system has it");
    let own = |path: &str, uid: Option<u32>| {
        std::os::unix::fs::chown(directory.argument(path), uid, Some(nobody.gid)).expect("ours");
    };
    own("state", Some(nobody.uid));
    let Some(ended) = check_with_unit(&directory) else { return };
    let cannot_read = [
        ("configuration file", "sanderling.toml"),
        ("TSIG secret file", "keys/acme.key"),
        ("certificate chain", "keys/chain.pem"),
    ];
    for (kind, file) in cannot_read {
        let path = directory.argument(file);
        let expected =
            format!("the user `nobody` cannot read the {kind} `{path}`; run chgrp 12345 {path}; chmod 640 {path}");
        assert!(ended.code() == Some(1) && ended.errors.contains(&expected), "{expected}: {ended}");
    }
    for expected in ["the user `nobody` cannot write the directory of the access log", "users/users`"] {
        assert!(ended.errors.contains(expected), "{expected}: {ended}");
    }
    own("logs", Some(nobody.uid));
    files.iter().for_each(|file| own(file, None));
    set_all(0o640);
    let ended = check_with_unit(&directory).expect("it was possible");
    let line = "user nobody, the one of /etc/systemd/system/sanderling.service\n";
    assert!(ended.code() == Some(0) && ended.text().contains(line), "{ended}");
    set_mode(&directory, "keys", 0o700);
    let ended = check_with_unit(&directory).expect("it was possible");
    let remedy = format!("cannot enter {0}; run chgrp 12345 {0}; chmod 750 {0}", directory.argument("keys"));
    assert!(ended.code() == Some(1) && ended.errors.contains(&remedy), "{ended}");
    // Of the configuration of another server, root reads the files.
    directory.write("units/sanderling.service", b"[Service]\nUser=nobody\nExecStart=/usr/bin/sanderling serve\n");
    let ended = check_with_unit(&directory).expect("it was possible");
    assert!(!ended.errors.contains("cannot enter") && !ended.errors.contains("configuration file"), "{ended}");
}
