//! Downloads over HTTP/2 by clients with small windows, which send many frames for the content that they receive.

use std::fs::File;

use sanderling_testkit::{ListenerCounts, RawConnection, TestDirectory, TestServer};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// A frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32).to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn a_long_download_with_a_small_window_does_not_end_the_connection() {
    // The updates are 26 bytes for each frame: 10 % of the content, and more than eight times the limit.
    const WINDOW_BYTES: u32 = 256;
    const FILE_BYTES: u64 = 6 << 20;
    const CONFIG: &[u8] = b"[http]\nlisten = [\"127.0.0.1:0\"]\nhttp2 = true\n\
        [domain.\"example.com\"]\nsite = \"public\"\n[limits]\nhttp2_overhead_max = \"64KiB\"\n";
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n"), ("sanderling.toml", CONFIG)]);
    File::create(directory.path().join("public/large")).unwrap().set_len(FILE_BYTES).unwrap();
    let counts = ListenerCounts { http: 1, ..ListenerCounts::default() };
    let server = TestServer::start_command(directory.serve_command(), counts);
    let mut client = RawConnection::open(server.http());
    let window = [&[0, 4][..], &WINDOW_BYTES.to_be_bytes()].concat();
    // GET http://example.com/large
    let block = b"\x82\x86\x04\x06/large\x01\x0bexample.com";
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.send(&[frame(SETTINGS, 0, 0, &window), frame(HEADERS, 5, 1, block)].concat());
    let mut received_bytes = 0;
    while received_bytes < FILE_BYTES {
        let header = client.read_bytes(9);
        let payload = client.read_bytes(u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize);
        match header[3] {
            DATA => {
                received_bytes += payload.len() as u64;
                let step = (payload.len() as u32).to_be_bytes();
                client.send(&[frame(WINDOW_UPDATE, 0, 0, &step), frame(WINDOW_UPDATE, 0, 1, &step)].concat());
            }
            GOAWAY => panic!("the connection ends after {received_bytes} bytes: {}", payload.escape_ascii()),
            _ => {}
        }
    }
    assert_eq!(received_bytes, FILE_BYTES);
}
