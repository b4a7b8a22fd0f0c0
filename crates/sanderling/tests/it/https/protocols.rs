//! Which protocols are agreed on, and what is refused.

use super::{BOTH, domain, s_client};
use sanderling_testkit::TestServer;

#[test]
fn protocol_of_a_listener_is_agreed_on_or_refused() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (https, dot) = (server.encrypted("https"), server.encrypted("dot"));
    for version in ["-tls1_2", "-tls1_3"] {
        let connect = |server, alpn: &str| s_client(server, &format!("{version} {alpn}"));
        for (server, offered, agreed) in [
            (https, "http/1.1", "http/1.1"),
            (https, "http/1.1,h2", "h2"),
            (https, "dot,h2", "h2"),
            (dot, "dot", "dot"),
            (dot, "h2,dot", "dot"),
        ] {
            let shown = connect(server, &format!("-alpn {offered}"));
            assert!(shown.contains(&format!("ALPN protocol: {agreed}\n")), "{version} {offered}: {shown}");
        }
        for server in [https, dot] {
            let shown = connect(server, "");
            assert!(shown.contains("No ALPN negotiated") && !shown.contains("Cipher is (NONE)"), "{version}: {shown}");
        }
        for (server, offered) in [(https, "dot"), (https, "h3"), (dot, "h2"), (dot, "http/1.1,doq")] {
            let shown = connect(server, &format!("-alpn {offered}"));
            assert!(shown.contains("alert no application protocol"), "{version} {offered}: {shown}");
        }
    }
}
