//! dnstap of the whole program, read by `fstrm_capture` and decoded by `dnstap`.

use super::name_servers::SECRET;
use sanderling_testkit::dns::{A, NOERROR, Question};
use sanderling_testkit::{
    ListenerCounts, TestDirectory, TestServer, UdpClient, dig_udp, free_address, run_program, send_signal, wait_until,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command};

const ZONE: &[u8] = b"@ 300 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n";
/// The type of the content of frames.
const CONTENT_TYPE: &str = "protobuf:dnstap.Dnstap";

/// A directory with a zone that may be updated, and a configuration with these keys of dnstap.
fn domain(keys: &str, limits: &str) -> TestDirectory {
    let directory = TestDirectory::with(&[("example.com.zone", ZONE), ("acme.key", SECRET.as_bytes())]);
    directory.write("sanderling.toml", config(keys, limits).as_bytes());
    directory
}

fn config(keys: &str, limits: &str) -> String {
    // The UDP sockets of nsupdate are reuseport sockets, like the server's: it must not choose the same port.
    let listen = free_address();
    format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"{listen}\"]\n\
         [tsig.acme]\nsecret_file = \"acme.key\"\n\
         [domain.\"example.com\"]\nzone = \"example.com.zone\"\n\
         update = [{{ key = \"acme\", names = [\"**\"], types = [\"ANY\"] }}]\n\
         [log]\ndnstap = {{ socket = \"tap.sock\"{keys} }}\n[limits]\n{limits}\n"
    )
}

fn start(directory: &TestDirectory) -> TestServer {
    TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
}

/// `fstrm_capture`, which reads what is sent to the socket `tap.sock` of a directory.
struct Capture {
    child: Child,
    file: String,
}

impl Capture {
    fn start(directory: &TestDirectory, file: &str) -> Capture {
        let (socket, file) = (directory.argument("tap.sock"), directory.argument(file));
        let arguments = ["-t", CONTENT_TYPE, "-u", &socket, "-w", &file];
        let child = Command::new("fstrm_capture").args(arguments).spawn().expect("install fstrm-bin");
        Capture { child, file }
    }

    /// Ends the program; returns the messages that it has read, one per line, without the times.
    fn messages(mut self) -> Vec<String> {
        assert!(send_signal("TERM", &self.child.id().to_string()));
        self.child.wait().expect("it ends");
        let text = decoded(&["-q", "-r", &self.file]);
        text.lines().filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect()
    }
}

/// If a test fails.
impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds an address to the zone.
fn update(directory: &TestDirectory, server: &TestServer, name: &str, arguments: &[&str]) {
    let port = server.dns().port();
    let text =
        format!("server 127.0.0.1 {port}\nzone example.com\nupdate add {name}.example.com. 60 A 192.0.2.9\nsend\n");
    let text = directory.write("update.txt", text.as_bytes()).display().to_string();
    let key = format!("hmac-sha256:acme:{SECRET}");
    let ended = run_program("nsupdate", "bind9-dnsutils", &[arguments, &["-t", "20", "-y", &key, &text]].concat());
    assert_eq!(ended.code(), Some(0), "{ended}");
}

/// The output of the dnstap project's decoder.
fn decoded(arguments: &[&str]) -> String {
    let ended = run_program("dnstap", "golang-github-dnstap-golang-dnstap-cli", arguments);
    assert_eq!(ended.code(), Some(0), "{ended}");
    ended.text()
}

/// Waits until this many messages were written, by all connections together.
fn wait_for_written(directory: &TestDirectory, count: u64) {
    wait_until(&format!("{count} messages"), || counted(directory, "written") >= count);
}

/// The number of messages that were `written` or `dropped`.
fn counted(directory: &TestDirectory, result: &str) -> u64 {
    let name = format!("sanderling_log_lines_total{{log=\"dnstap\",result=\"{result}\"}} ");
    let text = directory.control_with("status", &["--metrics"]).text();
    text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

/// Queries until the server has connected to its reader.
fn query_until_written(directory: &TestDirectory, server: &TestServer, before: u64) {
    wait_until("a message is written", || {
        Question::new("ns1.example.com", A).query_udp(server.dns());
        counted(directory, "written") > before
    });
}

#[test]
fn queries_and_replies_are_read_by_fstrm_capture() {
    let directory = domain(", identity = \"ns1\"", "");
    let capture = Capture::start(&directory, "out.fstrm");
    wait_until("it listens", || directory.path().join("tap.sock").exists());
    let server = start(&directory);
    let question = Question::new("ns1.example.com", A);
    let length = question.query_udp(server.dns()).length_bytes;
    question.query_tcp(server.dns());
    Question::new("elsewhere.test", A).query_udp(server.dns());
    // An answer is not answered.
    let mut answer = Question::new("answer.example.com", A).message();
    answer[2] |= 0x80;
    UdpClient::new(server.dns()).send(&answer);
    update(&directory, &server, "new", &[]);
    wait_for_written(&directory, 3 * 2 + 1 + 2);
    let status = directory.control("status").text();
    assert!(
        status.lines().any(|line| line.contains("dnstap stream") && line.contains(" 0 messages dropped")),
        "{status}"
    );
    server.stop();
    let messages = capture.messages();
    let count =
        |start: &str, end: &str| messages.iter().filter(|line| line.starts_with(start) && line.ends_with(end)).count();
    for (start, end) in [
        ("AQ 127.0.0.1 UDP", "\"ns1.example.com.\" IN A"),
        (&format!("AR 127.0.0.1 UDP {length}b"), "\"ns1.example.com.\" IN A"),
        ("AQ 127.0.0.1 TCP", "\"ns1.example.com.\" IN A"),
        (&format!("AR 127.0.0.1 TCP {length}b"), "\"ns1.example.com.\" IN A"),
        ("AQ 127.0.0.1 UDP", "\"elsewhere.test.\" IN A"),
        ("AR 127.0.0.1 UDP", "\"elsewhere.test.\" IN A"),
        ("AQ 127.0.0.1 UDP", "\"answer.example.com.\" IN A"),
        ("UQ ", "\"example.com.\" IN SOA"),
        ("UR ", "\"example.com.\" IN SOA"),
    ] {
        assert_eq!(count(start, end), 1, "{start} {end}: {messages:#?}");
    }
    let yaml = decoded(&["-y", "-r", &directory.argument("out.fstrm")]);
    for expected in ["identity: \"ns1\"", "version: \"sanderling ", "socket_protocol: TCP", "status: NOERROR"] {
        assert!(yaml.contains(expected), "{expected}: {yaml}");
    }
}

#[test]
fn replies_to_updates_are_logged_and_counted_when_they_are_sent() {
    let directory = domain("", "[metrics]");
    let log = directory.path().join("queries.log");
    let config = config("", "[metrics]").replace("[log]\n", "[log]\nqueries = \"queries.log\"\n");
    directory.replace("sanderling.toml", config.as_bytes());
    let server = start(&directory);
    update(&directory, &server, "one", &[]);
    update(&directory, &server, "two", &["-v"]);
    for transport in ["udp", "tcp"] {
        let is_line = |line: &str| line.contains(&format!(" 127.0.0.1 {transport} - - - NOERROR "));
        wait_until("a line", || std::fs::read_to_string(&log).is_ok_and(|text| text.lines().any(is_line)));
        let name = format!("sanderling_dns_replies_total{{transport=\"{transport}\",rcode=\"NOERROR\"}} 1");
        let metrics = directory.control_with("status", &["--metrics"]).text();
        assert!(metrics.lines().any(|line| line == name), "{name}: {metrics}");
    }
}

#[test]
fn signed_queries_are_no_errors_and_wrongly_signed_ones_are() {
    let directory = domain("", "dns_udp_errors_per_second_max = 0");
    let server = start(&directory);
    update(&directory, &server, "new", &[]);
    let ask = |secret: &str| {
        let key = format!("hmac-sha256:acme:{secret}");
        dig_udp(server.dns(), &["+timeout=1", "-y", &key, "new.example.com", "A"]).text()
    };
    assert!(ask(SECRET).contains("192.0.2.9"));
    assert!(ask("b3RoZXI=").contains("timed out"));
    let update = |secret: &str| {
        let key = format!("hmac-sha256:acme:{secret}");
        let text = directory.argument("update.txt");
        run_program("nsupdate", "bind9-dnsutils", &["-t", "1", "-u", "1", "-r", "0", "-y", &key, &text])
    };
    assert_eq!(update(SECRET).code(), Some(0));
    assert_ne!(update("b3RoZXI=").code(), Some(0));
    let status = directory.control_with("status", &["--json"]).text();
    assert!(status.contains("\"dns_errors_limited\":2"), "{status}");
}

#[test]
fn reader_may_come_later_and_return() {
    let directory = domain(", messages = [\"response\"]", "");
    let server = start(&directory);
    server.wait_for_error("cannot open the dnstap stream: connect(");
    // A missing reader is not an error of a reload.
    assert!(directory.control("reload").status.success());
    assert_eq!(Question::new("ns1.example.com", A).query_udp(server.dns()).rcode, NOERROR);
    for file in ["first.fstrm", "second.fstrm"] {
        let written = counted(&directory, "written");
        let capture = Capture::start(&directory, file);
        query_until_written(&directory, &server, written);
        let messages = capture.messages();
        assert!(!messages.is_empty() && messages.iter().all(|line| line.starts_with("AR ")), "{messages:?}");
        // Further messages are dropped, until there is a reader.
        let dropped = counted(&directory, "dropped");
        wait_until("messages are dropped", || {
            Question::new("ns1.example.com", A).query_udp(server.dns());
            counted(&directory, "dropped") > dropped
        });
    }
    server.stop();
}

#[test]
fn reader_that_reads_nothing_delays_no_reply() {
    let directory = domain("", "request_log_queue_max = \"64KiB\"");
    let reader = UnixListener::bind(directory.path().join("tap.sock")).unwrap();
    let server = start(&directory);
    let (mut connection, _) = reader.accept().unwrap();
    let mut ready = [0; 42];
    connection.read_exact(&mut ready).unwrap();
    assert!(ready.ends_with(CONTENT_TYPE.as_bytes()));
    connection.write_all(b"\0\0\0\0\0\0\0\x04\0\0\0\x01").unwrap();
    let query = Question::new("ns1.example.com", A).message();
    let client = UdpClient::new(server.dns());
    wait_until("messages are dropped", || {
        for _ in 0..500 {
            client.send(&query);
            assert_eq!(client.receive()[3] & 0xf, NOERROR as u8);
        }
        counted(&directory, "dropped") > 0
    });
    // The reader reads again: waiting and further messages are written.
    let written = counted(&directory, "written");
    let reading = std::thread::spawn(move || connection.read_to_end(&mut Vec::new()));
    query_until_written(&directory, &server, written);
    server.stop();
    assert!(reading.join().unwrap().unwrap() > 64 * 1024);
}

#[test]
fn reader_that_speaks_another_protocol_is_tried_again() {
    let directory = domain("", "");
    let reader = UnixListener::bind(directory.path().join("tap.sock")).unwrap();
    let server = start(&directory);
    let (mut connection, _) = reader.accept().unwrap();
    connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    server.wait_for_error(
        "cannot write the dnstap stream: the reader does not speak Frame Streams; its messages are dropped",
    );
    assert_eq!(Question::new("ns1.example.com", A).query_udp(server.dns()).rcode, NOERROR);
    // The next connection is a new one.
    let (mut connection, _) = reader.accept().unwrap();
    let mut ready = [0; 42];
    connection.read_exact(&mut ready).unwrap();
    server.stop();
}
