//! Reloads and upgrades while WebSockets are open and uploads arrive.
//!
//! `SANDERLING_BACKEND_RELOADS` is their number.

use super::node::{UPGRADE, answer, frame};
use super::{Application, Proxy, Setup, route};
use sanderling_testkit::http::{HttpClient, response_to};

const RELOADS_DEFAULT: usize = 4;
const SOCKETS: usize = 5;
const UPLOADS: usize = 3;
const PIECE_BYTES: usize = 100_000;

#[test]
fn reloads_and_upgrades_cut_no_web_socket_and_no_upload() {
    let reloads = sanderling_testkit::number_or("SANDERLING_BACKEND_RELOADS", RELOADS_DEFAULT);
    let application = Application::node();
    let keys =
        |number: usize| route("/", &format!("proxy = \"{}\"\ntimeout = \"{}s\"", application.url(), 60 + number));
    let mut proxy = Proxy::with(Setup { drain_timeout: "unlimited", keys: keys(0), ..Setup::default() }, &[]);
    let mut sockets: Vec<HttpClient> = Vec::new();
    let mut uploads: Vec<(HttpClient, usize)> = Vec::new();
    for number in 0..reloads {
        // New ones in each round: they belong to different processes.
        for _ in 0..SOCKETS {
            let mut client = HttpClient::connect(proxy.http());
            client.send(UPGRADE);
            let head = client.tcp().read_until(b"\r\n\r\n");
            assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
            sockets.push(client);
        }
        for _ in 0..UPLOADS {
            let mut client = HttpClient::connect(proxy.http());
            let bytes = PIECE_BYTES * (reloads - number + 1);
            client.send(format!("POST /upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: {bytes}\r\n\r\n"));
            client.send([b'x'; PIECE_BYTES]);
            uploads.push((client, bytes));
        }
        match number % 3 {
            0 => proxy.reload(&keys(number + 1)),
            1 => {
                let ended = proxy.directory.control("upgrade");
                assert_eq!(ended.code(), Some(0), "{ended}");
            }
            _ => {
                // Other processes.
                proxy.setup.worker_count += 1;
                proxy.reload(&keys(number + 1));
            }
        }
        for (index, client) in sockets.iter_mut().enumerate() {
            let text = format!("{number} {index}");
            client.send(frame(1, &text));
            client.tcp().read_until(&answer(1, &text));
        }
        uploads.iter_mut().for_each(|(client, _)| client.send([b'x'; PIECE_BYTES]));
        let pid = response_to(proxy.http(), "GET /pid HTTP/1.1\r\nHost: example.com\r\n\r\n").text();
        assert_eq!(pid, application.child.id().to_string());
    }
    for (client, bytes) in &mut uploads {
        let response = client.response();
        assert!(response.text().starts_with(&format!("{bytes} ")), "{bytes}: {} {}", response.status, response.text());
    }
    for client in &mut sockets {
        client.send(frame(8, ""));
        assert_eq!(client.tcp().read_to_close(), answer(8, ""));
    }
    println!("{reloads} reloads and upgrades: {} WebSockets and {} uploads, 0 lost", sockets.len(), uploads.len());
}
