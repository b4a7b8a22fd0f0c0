//! Concurrent requests over HTTP/2, by nghttp and h2load.

use super::{BOTH, domain};
use sanderling_testkit::{TestServer, run_program};

#[test]
fn nghttp_gets_all_streams_of_a_connection_with_priorities() {
    let directory = domain();
    for index in 0..10 {
        directory.write(&format!("public/{index}"), &vec![b'x'; 50_000 * index]);
    }
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let urls: Vec<String> = (0..10).map(|index| format!("https://{https}/{index}")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    // RFC 9218; the priorities of RFC 7540, which are ignored; a flow-control window that is smaller than the files.
    let options: [&[&str]; 4] = [
        &["-H", "priority: u=0, i", "--no-rfc7540-pri"],
        &["-H", "priority: u=7", "--padding=200"],
        &["--weight=200", "--window-bits=14", "--connection-window-bits=14"],
        &["-H", ":method: HEAD"],
    ];
    for options in options {
        let common = ["--null-out", "--stat", "--no-verify-peer", "--multiply=3"];
        let ended = run_program("nghttp", "nghttp2-client", &[&common[..], options, &urls].concat());
        let rows = ended.text();
        // `  13      +4.23ms        +210us   4.02ms  200   48K /1`
        let rows = rows.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows: Vec<_> = rows.filter(|words| words.last().is_some_and(|path| path.starts_with('/'))).collect();
        assert_eq!(rows.len(), 30, "{options:?}: {ended}");
        for row in rows {
            let index: usize = row[row.len() - 1][1..].parse().expect("the path is a number");
            let bytes = if options.contains(&":method: HEAD") { 0 } else { 50_000 * index };
            let shown = if bytes < 1024 { bytes.to_string() } else { format!("{}K", bytes / 1024) };
            assert_eq!(row[row.len() - 3..row.len() - 1], ["200", &shown], "{options:?}: {row:?}");
        }
    }
}

#[test]
fn h2load_loses_no_request() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let url = format!("https://{}/", server.encrypted("https"));
    for options in ["-n4000 -c10 -m100", "-n1000 -c20 -m10 --h1", "-n200 -c200 -m1"] {
        let options: Vec<&str> = options.split(' ').collect();
        let ended = run_program("h2load", "nghttp2-client", &[&options[..], &[&url]].concat());
        let count = &options[0][2..];
        let expected = format!("requests: {count} total, {count} started, {count} done, {count} succeeded, 0 failed");
        assert!(ended.text().contains(&expected), "{options:?}: {ended}");
    }
    let status = directory.control("status").text();
    assert!(status.contains("http2_requests 4200") && status.contains("http2_connections 210"), "{status}");
}
