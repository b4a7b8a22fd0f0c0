//! Help, announcements and error messages of the program.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use sanderling_testkit::{DEADLINE, ListenerCounts, TestDirectory, TestServer, run, run_to_end, sanderling};

const GOOD_ZONE: &[u8] = b"@ 300 IN SOA ns h 1 2 3 4 5\n@ 300 IN NS ns\nns 300 IN A 192.0.2.1\n";

/// `sanderling help check | head -1` must not panic.
#[test]
fn closed_standard_output_is_not_an_error() {
    for arguments in [&["--help"][..], &["help", "check"], &["--version"]] {
        let mut command = sanderling();
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("a child of this process");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn wrong_command_line_exits_with_2() {
    for arguments in [
        &["sevre"][..],
        &["serve", ".", "--http", "8080"],
        &["serve", "--http", "127.0.0.1:0"],
        &["check", "--force", "juggling=high", "--zone", "a.example=/dev/null"],
        &[],
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code(), Some(2), "{arguments:?}: {ended}");
        assert!(!ended.errors.is_empty() && ended.output.is_empty(), "{arguments:?}: {ended}");
        assert!(!ended.errors.contains("panicked"), "{ended}");
    }
}

/// For scripts: a line for each listener, and nothing else on standard output.
#[test]
fn serve_announces_its_listeners_and_nothing_else() {
    let directory = TestDirectory::with(&[("public/index.html", b"hi"), ("zone", GOOD_ZONE)]);
    let zone = format!("example.com={}", directory.argument("zone"));
    let public = directory.argument("public");
    let arguments =
        ["serve", &public, "--http", "127.0.0.1:0", "--http", "[::1]:0", "--zone", &zone, "--dns", "127.0.0.1:0"];
    let server = TestServer::start(&arguments, ListenerCounts { http: 2, dns: 1 });
    assert!(server.http_all()[0].is_ipv4() && server.http_all()[1].is_ipv6());
    server.check_announcement_is_exact();
    let ended = server.stop();
    let log = "sanderling: stopping: requests in progress are finished\n";
    assert_eq!((ended.code(), ended.text().as_str(), ended.errors.as_str()), (Some(0), "", log));
}

#[test]
fn check_reports_all_errors_of_a_zone_with_positions() {
    let zone = b"@ 300 IN SOA ns h 1 2 3 4 5\n@ 300 IN NS ns\nns 300 IN A 192.0.2.999\n\
                 x 300 IN FROB 1\ny 300 IN MX ten mail\nz 300 IN TXT \"open\n";
    let directory = TestDirectory::with(&[("zone", zone)]);
    let file = directory.argument("zone");
    let ended = run(&["check", "--zone", &format!("example.com={file}")]);
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert_eq!(ended.text(), "", "{ended}");
    check_messages(&ended.errors, &file, &[(3, 13), (4, 10), (5, 13), (6, 14)]);
}

#[test]
fn check_is_strict_and_prints_json_if_asked() {
    let zone = b"@ 300 IN SOA ns h 1 2 3 4 5\n@ 300 IN NS ns\nns 300 IN A 192.0.2.1\nwww 300 IN CNAME gone\n";
    let directory = TestDirectory::with(&[("zone", zone), ("broken", b"@ 300 IN FROB 1\n")]);
    let check = |file: &str, options: &[&str]| {
        let zone = format!("example.com={}", directory.argument(file));
        run(&[&["check", "--zone", &zone], options].concat())
    };
    let ended = check("zone", &[]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.text().ends_with("no errors\n") && ended.errors.contains("refers to gone.example.com."), "{ended}");
    let ended = check("zone", &["--strict"]);
    assert_eq!((ended.code(), ended.text()), (Some(1), String::new()), "{ended}");
    for (options, code) in [(&["--json"][..], 0), (&["--json", "--strict"], 1)] {
        let ended = check("zone", options);
        assert_eq!((ended.code(), ended.errors.as_str()), (Some(code), ""), "{ended}");
        let expected = format!(
            "{{\"errors\":0,\"warnings\":1,\"notes\":0,\"problems\":[{{\"severity\":\"warning\",\"place\":\"{}\",\"line\":4,\"column\":12,\"problem\":\"the \
             CNAME record of www.example.com. refers to gone.example.com., which is not in the \
             zone\",\"remedy\":\"correct the name; an absolute name ends with a dot\"}}]}}\n",
            directory.argument("zone")
        );
        assert_eq!(ended.text(), expected);
    }
    let ended = check("broken", &["--json"]);
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(
        ended.text().starts_with("{\"errors\":1,\"warnings\":0,\"notes\":0,\"problems\":[{\"severity\":\"error\""),
        "{ended}"
    );
    let ended = check("missing", &["--json"]);
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.text().contains("\"line\":null"), "{ended}");
}

#[test]
fn wrong_configuration_is_reported_by_check_and_serve() {
    let config = "[http]\nlissten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"publik\"\nzone = 7\n\
                  [limits]\nhttp_idle_timout = 3\ndns_tcp_idle_timeout_ms = 1\n";
    let directory = TestDirectory::with(&[("sanderling.toml", config.as_bytes())]);
    let file = directory.argument("sanderling.toml");
    for (command, status) in [("check", 1), ("serve", 78)] {
        let ended = run(&[command, "--config", &file]);
        assert_eq!((ended.code(), ended.text().as_str()), (Some(status), ""), "{command}: {ended}");
        check_messages(&ended.errors, &file, &[(2, 1), (4, 8), (5, 8), (7, 1), (8, 27)]);
        assert!(ended.errors.contains("did you mean `listen`?"), "{ended}");
        assert!(ended.errors.contains("did you mean `http_idle_timeout`?"), "{ended}");
    }
}

/// A FIFO without a writer would block forever.
#[test]
fn unusable_configuration_or_zone_file_is_refused_at_once() {
    let directory = TestDirectory::new();
    let (fifo, missing) = (directory.argument("fifo"), directory.argument("none.toml"));
    assert!(Command::new("mkfifo").arg(&fifo).status().is_ok_and(|status| status.success()));
    let zones = [&fifo, "/dev/zero", "/", "/none/zone"].map(|file| format!("example.com={file}"));
    let of_zones = zones.iter().map(|zone| ("--zone", zone));
    for (option, value) in of_zones.chain([("--config", &fifo), ("--config", &missing)]) {
        for (command, status) in [("check", 1), ("serve", 78)] {
            let mut program = sanderling();
            program.args([command, option, value]);
            let ended = run_to_end(program, Duration::from_secs(5));
            assert_eq!(
                (ended.code(), ended.text().as_str()),
                (Some(status), ""),
                "{command} {option} {value}: {ended}"
            );
            assert!(ended.errors.contains("; ") && !ended.errors.contains("os error"), "no remedy: {ended}");
        }
    }
}

#[test]
fn import_waits_for_no_fifo_and_its_report_is_private() {
    let server = b"server { listen 80; server_name a.example; root /a; gzip_vary on; x y; }\n";
    let directory = TestDirectory::with(&[("nginx.conf", server)]);
    let (file, report) = (directory.argument("nginx.conf"), directory.argument("report"));
    let imported = run(&["import", "nginx", &file, "--report", &report]);
    assert_eq!(imported.code(), Some(0), "{imported}");
    let mode = std::fs::metadata(&report).expect("written").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{mode:o}");
    let fifo = directory.argument("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().is_ok_and(|status| status.success()));
    let ended = run_to_end(program(&["import", "nginx", &fifo]), DEADLINE);
    assert!(ended.code() == Some(1) && ended.errors.contains("it is not a regular file"), "{ended}");
}

/// Root may be in a folder such as /tmp.
#[test]
fn configuration_of_a_folder_that_others_can_write_is_ignored_by_root() {
    let config = b"[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.example\"]\nsite = \"public\"\n";
    let directory = TestDirectory::with(&[("sanderling.toml", config), ("public/index.html", b"hi")]);
    let uid = std::fs::metadata(directory.path()).expect("it exists").uid();
    for (mode, is_used) in [(0o755, true), (0o777, uid != 0)] {
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(mode)).expect("its owner may");
        let mut command = program(&["config"]);
        command.current_dir(directory.path()).env_remove("SANDERLING_CONFIG");
        let ended = run_to_end(command, DEADLINE);
        let is_ignored = ended.errors.contains("sanderling.toml is ignored, since other users can write .;");
        assert_eq!(ended.text().contains("127.0.0.1:0"), is_used, "{mode:o}: {ended}");
        assert_eq!(is_ignored, !is_used, "{mode:o}: {ended}");
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut program = sanderling();
    program.args(arguments);
    program
}

/// The message names what failed, the system call with its object, and the remedy.
#[test]
fn descriptor_limit_at_start_is_reported() {
    let directory = TestDirectory::with(&[("index.html", b"hi")]);
    let mut command = Command::new("prlimit");
    command.arg("--nofile=16:16").arg(sanderling().get_program());
    command.args(["serve", directory.path().to_str().unwrap(), "--http", "127.0.0.1:0", "--workers", "8"]);
    let ended = run_to_end(command, DEADLINE);
    assert_eq!(ended.code(), Some(1), "{ended}");
    let message = ") failed: Too many open files; raise the limit of open files";
    assert!(ended.errors.contains("cannot ") && ended.errors.contains(message), "{ended}");
}

#[test]
fn control_command_without_a_server_explains_the_control_socket() {
    let directory = TestDirectory::new();
    let ended = directory.control("status");
    assert_eq!((ended.code(), ended.text().as_str()), (Some(1), ""), "{ended}");
    assert!(ended.errors.starts_with("sanderling: no server answers at "), "{ended}");
    assert!(ended.errors.contains("`demo` and `serve FOLDER` have no control socket unless"), "{ended}");
}

#[test]
fn wrong_user_and_group_are_both_reported() {
    let config = "user = \"no-such-user\"\ngroup = \"no-such-group\"\n[domain.\"example.com\"]\nsite = \".\"\n";
    let directory = TestDirectory::with(&[("sanderling.toml", config.as_bytes())]);
    let file = directory.argument("sanderling.toml");
    let ended = run(&["check", "--config", &file]);
    assert_eq!(ended.code(), Some(1), "{ended}");
    check_messages(&ended.errors, &file, &[(1, 8), (2, 9)]);
}

#[test]
fn missing_directory_of_the_control_socket_is_reported() {
    let directory = TestDirectory::with(&[("public/index.html", b"hi")]);
    let (public, path) = (directory.argument("public"), directory.argument("a/b/control"));
    let arguments = ["serve", &public, "--http", "127.0.0.1:0", "--control", &path];
    let server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 0 });
    server
        .wait_for_error("a does not exist; create it or specify another path; the server runs without it; use SIGHUP");
    assert!(!directory.path().join("a").exists());
    // Without a control socket there is no status to print if the test fails.
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn check_binds_no_socket_and_lists_sites_and_zones() {
    let directory = TestDirectory::with(&[("public/index.html", b"hi"), ("zone", GOOD_ZONE)]);
    // The port is in use.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "[http]\nlisten = [\"{}\"]\n[domain.\"example.com\"]\nsite = \"public\"\nzone = \"zone\"\n",
        taken.local_addr().unwrap()
    );
    directory.write("sanderling.toml", config.as_bytes());
    let ended = run(&["check", "--config", &directory.argument("sanderling.toml")]);
    assert_eq!((ended.code(), ended.errors.as_str()), (Some(0), ""), "{ended}");
    assert!(ended.text().contains("zone example.com from") && ended.text().contains("serial 1"), "{ended}");
    assert!(ended.text().ends_with("no errors\n"), "{ended}");
}

#[test]
fn environment_variable_names_the_configuration() {
    let directory =
        TestDirectory::with(&[("zone", GOOD_ZONE), ("x.toml", b"[domain.\"example.com\"]\nzone = \"zone\"\n")]);
    let mut command: Command = sanderling();
    command.arg("check").env("SANDERLING_CONFIG", directory.argument("x.toml")).current_dir("/");
    let output = command.output().expect("the program can be started");
    assert!(output.status.success(), "{output:?}");
}

/// Each message is `file:line:column: problem; remedy`, in the order of the file, and their number follows.
#[track_caller]
fn check_messages(errors: &str, file: &str, places: &[(u32, u32)]) {
    let lines: Vec<&str> = errors.lines().collect();
    assert_eq!(lines.len(), places.len() + 1, "{errors}");
    for (line, (row, column)) in lines.iter().zip(places) {
        let message = line.strip_prefix(&format!("{file}:{row}:{column}: "));
        let message = message.unwrap_or_else(|| panic!("{line:?} is not at {row}:{column}; all:\n{errors}"));
        assert!(message.contains("; "), "no remedy in {message:?}");
    }
    let plural = if places.len() == 1 { "" } else { "s" };
    assert_eq!(lines.last().copied(), Some(format!("{} error{plural}", places.len()).as_str()));
}
