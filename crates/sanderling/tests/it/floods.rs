//! Floods of HTTP/2 over TLS: the connection ends within the limit, and the memory of the server does not grow.

use std::path::Path;

use ::soak::floods::{FLOODS, Server};

/// Resident memory that all floods may add, in KiB.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

#[test]
fn connections_that_flood_the_server_end_within_their_limits() {
    let server = Server::start(Path::new(env!("CARGO_BIN_EXE_sanderling"))).expect("started");
    let mut first_kib = None;
    for flood in FLOODS {
        let (frame_count, code) = flood.run_once(&server).expect("the connection ends");
        println!("{}: {frame_count} frames, code {code:?}", flood.name);
        assert!(frame_count <= flood.frames_max, "{}: {frame_count} frames", flood.name);
        let resident_kib = server.resident_kib();
        let growth_kib = resident_kib.saturating_sub(*first_kib.get_or_insert(resident_kib));
        assert!(growth_kib <= GROWTH_KIB_MAX, "{}: {growth_kib} KiB more", flood.name);
    }
}
