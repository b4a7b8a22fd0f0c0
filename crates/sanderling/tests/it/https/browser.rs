//! Chromium with the demo.

use sanderling_testkit::{DEADLINE, ListenerCounts, TestDirectory, TestServer, run_to_end};
use std::fs;
use std::process::Command;

/// Starting a browser takes long on a busy machine.
const STARTS: u32 = 4;

#[test]
fn chromium_loads_the_demo_over_http_2() {
    let arguments = ["demo", "--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--dns", "127.0.0.1:0"];
    let mut server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 1 });
    let url = format!("https://localhost:{}/", server.encrypted("https").port());
    let directory = TestDirectory::new();
    let (profile, log) = (directory.argument("profile"), directory.argument("network.json"));
    let mut chromium = Command::new("chromium");
    let quiet = "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --ignore-certificate-errors --dump-dom";
    chromium.args(quiet.split_whitespace());
    chromium.args([format!("--user-data-dir={profile}"), format!("--log-net-log={log}"), url]);
    let ended = run_to_end(chromium, DEADLINE * STARTS);
    let page = ended.text();
    assert!(page.contains("<title>Sanderling: it works</title>") && page.ends_with("</html>\n"), "{ended}");
    let log = fs::read_to_string(log).expect("Chromium has written it");
    // The icon is perhaps not requested before the end.
    for path in ["/", "/style.css", "/sanderling.svg"] {
        assert!(log.contains(&format!("\":path: {path}\"")), "{path} was not requested over HTTP/2");
    }
    assert!(log.contains("\":status: 200\"") && !log.contains("\":status: 4"), "the statuses");
}
