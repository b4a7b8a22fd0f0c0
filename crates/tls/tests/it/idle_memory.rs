//! The memory of an idle session: the growth of the process.

use crate::pair::{Pair, VERSIONS, http_client, server_tls};
use std::process::Command;
use std::sync::Arc;

const SESSION_COUNT: usize = 2_000;
/// Half of it is the buffer in which rustls receives.
const IDLE_BYTES_MAX: usize = 8 * 1024 + 512;
const ALONE: &str = "SANDERLING_TEST_ALONE";

fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * PAGE_BYTES
}

#[test]
fn idle_session_needs_little_memory() {
    if std::env::var_os(ALONE).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "idle_memory::idle_session_needs_little_memory", "--nocapture"]).env(ALONE, "1");
        let output = command.output().unwrap();
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success());
        return;
    }
    let tls = server_tls();
    // Freed memory would be used again.
    let mut kept = Vec::with_capacity(VERSIONS.len() * (100 + SESSION_COUNT));
    for version in VERSIONS {
        let config = Arc::new(http_client(version));
        let after_a_request = || {
            let mut pair = Pair::new(&config, "example.com", &tls);
            pair.run().unwrap();
            pair.exchange(&[1; 200], &[2; 2_000]);
            Box::new(pair.session)
        };
        kept.extend((0..100).map(|_| after_a_request()));
        let before = resident_bytes();
        kept.extend((0..SESSION_COUNT).map(|_| after_a_request()));
        let bytes = resident_bytes().saturating_sub(before) / SESSION_COUNT;
        println!("{version:?}: {bytes} bytes of an idle session, {} of them in place", size_of_val(&*kept[0]));
        assert!(bytes <= IDLE_BYTES_MAX, "{bytes}");
    }
}
