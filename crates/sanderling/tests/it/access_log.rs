//! The whole program's access log: the lines, their targets, and failed writes.

use sanderling_testkit::http::{HttpClient, response_to};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, curl, run, run_program, tcp_exchange, wait_until};
use std::fs;

const HTTP: ListenerCounts = ListenerCounts { http: 1, dns: 0 };

/// A directory with a site and a configuration with these keys in `[log]`.
fn site(log: &str) -> TestDirectory {
    let large = vec![b'x'; 3_000_000];
    let directory =
        TestDirectory::with(&[("public/index.html", b"hi\n"), ("public/large", &large), ("public/other", b"1234567")]);
    configure(&directory, log);
    directory
}

fn configure(directory: &TestDirectory, log: &str) {
    let config =
        format!("workers = 2\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n{log}");
    directory.replace("sanderling.toml", config.as_bytes());
}

/// Waits until the file has this many lines, and returns them.
fn lines(directory: &TestDirectory, file: &str, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(directory.path().join(file)).unwrap_or_default();
    wait_until(&format!("{count} lines in {file}"), || read().lines().count() >= count);
    let lines: Vec<String> = read().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

#[test]
fn each_response_has_one_line() {
    let directory =
        site("[log]\naccess = \"access.log\"\nformat = \"$request|$status|$body_bytes_sent|$http_user_agent\"\n");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let get = |target: &str, fields: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: example.com\r\n{fields}Connection: close\r\n\r\n");
        response_to(server.http(), request);
    };
    get("/", "User-Agent: \"a\\b\"\r\n");
    get("/large", "");
    get("/large?x=y", "Range: bytes=0-9,2000000-2000009\r\n");
    get("/missing", "");
    get("/other", "If-None-Match: *\r\n");
    tcp_exchange(server.http(), b"nonsense\r\n\r\n");
    tcp_exchange(server.http(), b"POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 99999999\r\n\r\n");
    let mut lines = lines(&directory, "access.log", 7);
    lines.sort();
    let multipart = lines.iter().position(|line| line.starts_with("GET /large?x=y")).expect("the line");
    let multipart = lines.remove(multipart);
    let bytes: u64 = multipart.split('|').nth(2).expect("the bytes").parse().expect("a number");
    assert!(multipart.contains("|206|") && (200..1000).contains(&bytes), "{multipart}");
    let not_found = lines.iter().position(|line| line.starts_with("GET /missing")).expect("the line");
    assert!(lines.remove(not_found).starts_with("GET /missing HTTP/1.1|404|"));
    let starts = [
        r"GET / HTTP/1.1|200|3|\x22a\x5Cb\x22",
        "GET /large HTTP/1.1|200|3000000|-",
        "GET /other HTTP/1.1|304|0|-",
        "POST / HTTP/1.1|413|",
        "nonsense|400|",
    ];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn request_that_does_not_arrive_in_time_is_logged() {
    let directory = site(
        "[log]\naccess = \"access.log\"\nformat = \"$request|$status\"\n[limits]\nhttp_header_deadline_ms = 100\n",
    );
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let mut client = HttpClient::connect(server.http());
    client.send("GET /slow HTTP/1.1\r\nHost: example.com\r\n");
    assert_eq!(client.response().status, 408);
    assert_eq!(lines(&directory, "access.log", 1), ["GET /slow HTTP/1.1|408"]);
}

#[test]
fn line_of_an_aborted_response_has_the_bytes_that_were_sent() {
    let directory = site("[log]\naccess = \"access.log\"\nformat = \"json\"\n");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let mut client = HttpClient::connect(server.http());
    client.send("GET /large HTTP/1.1\r\nHost: example.com\r\n\r\n");
    client.tcp().read_bytes(100_000);
    drop(client);
    let line = lines(&directory, "access.log", 1).remove(0);
    let bytes = line.split("\"bytes\":").nth(1).and_then(|rest| rest.split(',').next()).expect("the bytes");
    let bytes: u64 = bytes.parse().expect("a number");
    assert!((100_000..3_000_000).contains(&bytes), "{line}");
}

#[test]
fn log_is_changed_and_reopened_without_a_new_process() {
    let directory = site("");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let process = server.server_process_id();
    let get = || drop(response_to(server.http(), "GET /?a HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"));
    assert!(directory.control("reopen").errors.contains("there is no log of requests"));
    get();
    configure(&directory, "[log]\naccess = \"access.log\"\nformat = \"$request_uri\"\n");
    assert!(directory.control("reload").status.success());
    get();
    assert_eq!(lines(&directory, "access.log", 1), ["/?a"]);
    let moved = directory.path().join("moved.log");
    fs::rename(directory.path().join("access.log"), &moved).unwrap();
    assert!(directory.control("reopen").status.success());
    // The thread that writes takes the new file with the next lines.
    get();
    assert_eq!(lines(&directory, "access.log", 1), ["/?a"]);
    fs::rename(directory.path().join("access.log"), &moved).unwrap();
    server.signal("USR1");
    wait_until("another file", || directory.path().join("access.log").exists());
    configure(&directory, "[log]\naccess = \"access.log\"\nformat = \"$status\"\n");
    assert!(directory.control("reload").status.success());
    get();
    assert_eq!(lines(&directory, "access.log", 1), ["200"]);
    assert_eq!(server.server_process_id(), process);
}

#[test]
fn last_lines_are_written_when_the_server_stops() {
    let directory = site("[log]\naccess = \"access.log\"\nformat = \"$status\"\n");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let url = format!("http://{}/[1-50]", server.http());
    assert!(curl(&["-s", "-o", "/dev/null", &url]).status.success());
    server.stop();
    assert_eq!(lines(&directory, "access.log", 50), vec!["404"; 50]);
}

#[test]
fn log_that_takes_nothing_costs_no_request() {
    let directory = site("[log]\naccess = \"fifo\"\n[limits]\nrequest_log_queue_bytes_max = 65536\n");
    let fifo = directory.argument("fifo");
    assert!(run_program("mkfifo", "coreutils", &[&fifo]).status.success());
    // The FIFO is open for reading, and no process reads.
    let reader = fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let mut client = HttpClient::connect(server.http());
    // A pipe holds 64 KiB, and the queue as many: 4,000 lines of over 80 bytes are more.
    for _ in 0..4_000 {
        assert_eq!(client.get("/other").text(), "1234567");
    }
    wait_until("dropped lines", || {
        let status = directory.control("status").text();
        status.lines().any(|line| line.contains("access log") && !line.contains(" 0 lines dropped"))
    });
    drop(reader);
}

#[test]
fn log_is_rotated_by_size() {
    let directory = site("[log]\naccess = \"access.log\"\nformat = \"$request_uri\"\nrotate = \"1KiB\"\nkeep = 2\n");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let mut client = HttpClient::connect(server.http());
    let path = |name: &str| directory.path().join(name);
    let mut number = 0;
    for name in ["access.log.1", "access.log.2.gz"] {
        wait_until(name, || {
            number += 1;
            client.get(&format!("/{number:0>100}"));
            path(name).exists()
        });
    }
    assert!(fs::read_to_string(path("access.log.1")).unwrap().len() >= 1024);
}

#[test]
fn log_is_rotated_after_a_reload_that_failed() {
    let directory = site("[log]\naccess = \"access.log\"\nrotate = \"1KiB\"\n");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let config =
        "user = \"no-such-user\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n";
    directory.replace("sanderling.toml", config.as_bytes());
    let ended = directory.control("reload");
    assert!(ended.code() == Some(1) && ended.errors.contains("no-such-user"), "{ended}");
    let mut client = HttpClient::connect(server.http());
    // Each line has more than 50 bytes.
    for _ in 0..25 {
        client.get("/other");
    }
    wait_until("access.log.1", || directory.path().join("access.log.1").exists());
}

#[test]
fn log_that_cannot_be_opened_is_opened_later() {
    let directory = site("[log]\naccess = \"logs/access.log\"\n");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    server.wait_for_error("until it can be opened, lines go to the previous target, or are dropped if there is none");
    let mut client = HttpClient::connect(server.http());
    assert_eq!(client.get("/other").text(), "1234567");
    fs::create_dir(directory.path().join("logs")).unwrap();
    wait_until("the log", || directory.path().join("logs/access.log").exists());
    wait_until("a line", || {
        client.get("/other");
        fs::read_to_string(directory.path().join("logs/access.log")).is_ok_and(|text| text.contains("GET /other"))
    });
}

#[test]
fn reload_reports_a_log_that_cannot_be_opened() {
    let directory = site("[log]\naccess = \"access.log\"\nformat = \"$request_uri\"\n");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    for (path, missing) in [("none/access.log", "none"), ("public", "public")] {
        configure(&directory, &format!("[log]\naccess = \"{path}\"\nformat = \"$request_uri\"\n"));
        let reloaded = directory.control("reload");
        assert!(reloaded.code() == Some(1) && reloaded.text().contains("reloaded; "), "{reloaded}");
        assert!(reloaded.errors.contains("cannot open the access log: open("), "{reloaded}");
        server.wait_for_error(&format!("/{missing}\") failed"));
    }
    HttpClient::connect(server.http()).get("/other");
    assert_eq!(lines(&directory, "access.log", 1), ["/other"]);
}

#[test]
fn log_that_was_removed_is_created_again_with_or_without_rotation() {
    for rotate in ["", "rotate = \"1GiB\"\n", "rotate = \"daily\"\n"] {
        let directory = site(&format!("[log]\naccess = \"access.log\"\nformat = \"$request_uri\"\n{rotate}"));
        let server = TestServer::start_command(directory.serve_command(), HTTP);
        let path = directory.path().join("access.log");
        let mut client = HttpClient::connect(server.http());
        client.get("/before");
        assert_eq!(lines(&directory, "access.log", 1), ["/before"]);
        fs::remove_file(&path).unwrap();
        wait_until("another file", || path.exists());
        server.wait_for_error("warning: the access log was removed; it is created again");
        client.get("/after");
        assert_eq!(lines(&directory, "access.log", 1), ["/after"]);
    }
}

#[test]
fn log_whose_directory_was_removed_is_reported_and_created_when_the_directory_is_back() {
    let directory = site("[log]\naccess = \"logs/access.log\"\nformat = \"$request_uri\"\n");
    fs::create_dir(directory.path().join("logs")).unwrap();
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let mut client = HttpClient::connect(server.http());
    client.get("/before");
    assert_eq!(lines(&directory, "logs/access.log", 1), ["/before"]);
    fs::remove_dir_all(directory.path().join("logs")).unwrap();
    server.wait_for_error("error: the access log was removed, and cannot be created again: open(");
    server
        .wait_for_error("logs` does not exist; create it or correct the path; until it can be opened, lines are lost");
    let status = directory.control("status").text();
    assert!(status.contains("\nERROR: the access log was removed, and cannot be created again: "), "{status}");
    fs::create_dir(directory.path().join("logs")).unwrap();
    wait_until("another file", || directory.path().join("logs/access.log").exists());
    assert!(!directory.control("status").text().contains("ERROR: "));
    client.get("/after");
    assert_eq!(lines(&directory, "logs/access.log", 1), ["/after"]);
}

#[test]
fn log_goes_to_standard_error_and_to_a_device() {
    let directory = site("[log]\naccess = \"/dev/stderr\"\nformat = \"$request|$status\"\n");
    let server = TestServer::start_command(directory.serve_command(), HTTP);
    let get = || response_to(server.http(), "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    get();
    server.wait_for_error("GET / HTTP/1.1|200");
    configure(&directory, "[log]\naccess = \"/dev/null\"\nrotate = \"1KiB\"\n");
    let reloaded = directory.control("reload");
    assert_eq!(reloaded.code(), Some(0), "{reloaded}");
    get();
}

#[test]
fn check_reports_a_log_that_cannot_be_opened() {
    let directory = site("");
    let check = |path: &str, expected: &str| {
        configure(&directory, &format!("[log]\naccess = \"{path}\"\n"));
        let checked = run(&["check", "--config", &directory.argument("sanderling.toml")]);
        assert_eq!(checked.code(), Some(i32::from(!expected.is_empty())), "{checked}");
        assert!(checked.errors.contains(expected), "{path}: {checked}");
        assert!(expected.is_empty() || checked.errors.contains("sanderling.toml:7:10: "), "{checked}");
    };
    check("access.log", "");
    assert!(!directory.path().join("access.log").exists(), "it is not created");
    check("stdout", "");
    // Links in containers, and a device.
    check("/dev/stdout", "");
    check("/dev/stderr", "");
    check("/dev/null", "");
    check("public", "public` is a directory; specify a file in it");
    check("none/access.log", "none` does not exist; create it or correct the path");
    check("public/index.html/access.log", "access.log` cannot be opened: Not a directory; correct the path");
}
