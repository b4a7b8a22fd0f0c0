//! The whole program's query log: the lines for each transport, and that logging delays no reply.

use sanderling_testkit::dns::{A, NOERROR, Question};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, UdpClient, run_program, udp_reply, wait_until};
use std::fs;

const DNS: ListenerCounts = ListenerCounts { http: 0, dns: 1 };
const ZONE: &[u8] = b"@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n";

/// A directory with a zone, and a configuration with these lines in `[log]`.
fn domain(log: &str) -> TestDirectory {
    TestDirectory::with(&[("example.com.zone", ZONE), ("sanderling.toml", config(log).as_bytes())])
}

fn config(log: &str) -> String {
    format!("[dns]\nlisten = [\"127.0.0.1:0\"]\n{log}\n[domain.\"example.com\"]\nzone = \"example.com.zone\"\n")
}

/// The lines of the file, once it has so many of them.
fn lines(directory: &TestDirectory, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(directory.path().join("queries.log")).unwrap_or_default();
    wait_until(&format!("{count} lines"), || read().lines().count() >= count);
    read().lines().map(str::to_owned).collect()
}

#[test]
fn each_reply_has_one_line() {
    let format = "$transport $qname $qclass $qtype $rcode $reply_bytes $remote_addr";
    let directory = domain(&format!("[log]\nqueries = \"queries.log\"\nqueries_format = \"{format}\""));
    let server = TestServer::start_command(directory.serve_command(), DNS);
    let question = Question::new("ns1.EXAMPLE.com", A);
    let length_bytes = question.query_udp(server.dns()).length_bytes;
    question.query_tcp(server.dns());
    Question::new("nothing.example.com", 65_280).query_udp(server.dns());
    Question { class: 3, ..Question::new("elsewhere.test", A) }.query_udp(server.dns());
    // The question ends in the middle of its name.
    udp_reply(server.dns(), b"\x5a\x17\0\0\0\x01\0\0\0\0\0\0\x07exam");
    let mut lines = lines(&directory, 5);
    lines.iter_mut().for_each(|line| *line = line.strip_suffix(" 127.0.0.1").expect("the address").to_owned());
    lines.sort();
    for (line, expected) in lines.iter().zip([
        &format!("tcp ns1.EXAMPLE.com. IN A NOERROR {length_bytes}"),
        "udp - - - FORMERR 12",
        "udp elsewhere.test. CH A REFUSED ",
        "udp nothing.example.com. IN TYPE65280 NXDOMAIN ",
        &format!("udp ns1.EXAMPLE.com. IN A NOERROR {length_bytes}"),
    ]) {
        assert!(line.starts_with(expected), "{line}, not {expected}");
    }
    assert_eq!(lines.len(), 5, "{lines:#?}");
}

#[test]
fn one_of_some_queries_is_logged_until_the_log_is_switched_off() {
    let directory = domain("[log]\nqueries = \"queries.log\"\nqueries_one_of = 10");
    let server = TestServer::start_command(directory.serve_command(), DNS);
    let query = Question::new("ns1.example.com", A).message();
    // The datagrams of one client are answered by one thread.
    let client = UdpClient::new(server.dns());
    let answer_all = |count: usize| {
        for _ in 0..count {
            client.send(&query);
            client.receive();
        }
    };
    answer_all(50);
    assert_eq!(lines(&directory, 5).len(), 5);
    directory.replace("sanderling.toml", config("").as_bytes());
    assert!(directory.control("reload").status.success());
    answer_all(10);
    server.stop();
    assert_eq!(lines(&directory, 5).len(), 5);
}

#[test]
fn log_that_takes_nothing_delays_no_reply() {
    let directory =
        domain("[log]\nqueries = \"fifo\"\nqueries_format = \"json\"\n[limits]\nrequest_log_queue_max = \"64KiB\"");
    let fifo = directory.argument("fifo");
    assert!(run_program("mkfifo", "coreutils", &[&fifo]).status.success());
    // The FIFO is open for reading, and no process reads.
    let reader = fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let server = TestServer::start_command(directory.serve_command(), DNS);
    // A pipe holds 64 KiB, and the queue as many: 2,000 lines of over 100 bytes are more.
    for _ in 0..2_000 {
        assert_eq!(Question::new("ns1.example.com", A).query_udp(server.dns()).rcode, NOERROR);
    }
    wait_until("dropped lines", || {
        let status = directory.control("status").text();
        status.lines().any(|line| line.contains("query log") && !line.contains(" 0 lines dropped"))
    });
    drop(reader);
}
