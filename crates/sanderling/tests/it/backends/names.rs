//! Applications on hosts with a name, whose name server changes its answers.

use super::{Application, Front, Proxy, Setup, route};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, free_address, wait_until};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A name server with the zone `internal.test`.
struct NameServer {
    directory: TestDirectory,
    server: TestServer,
}

impl NameServer {
    fn start(addresses: &[&str]) -> NameServer {
        let directory = TestDirectory::new();
        directory.write("internal.zone", NameServer::zone(1, addresses).as_bytes());
        let config =
            "workers = 1\n[dns]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"internal.test\"]\nzone = \"internal.zone\"\n";
        directory.write("sanderling.toml", config.as_bytes());
        let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
        NameServer { directory, server }
    }

    fn zone(number: u32, addresses: &[&str]) -> String {
        let records: String = addresses.iter().map(|address| format!("app A {address}\n")).collect();
        format!("$TTL 1\n@ SOA ns host {number} 3600 600 86400 1\n@ NS ns\nns A 127.0.0.1\n{records}")
    }

    fn change(&self, number: u32, addresses: &[&str]) {
        self.directory.replace("internal.zone", NameServer::zone(number, addresses).as_bytes());
        let reload = self.directory.control("reload");
        assert_eq!(reload.code(), Some(0), "{reload}");
    }
}

#[test]
fn addresses_of_a_name_are_found_and_followed_without_a_new_process() {
    let port = free_address().port();
    let [first, second] = [2, 3].map(|last| Application::node_at(SocketAddr::from(([127, 0, 0, last], port))));
    let pid_of = |application: &Application| application.child.id().to_string();
    let names = NameServer::start(&["127.0.0.2"]);
    let sections = format!("[dns]\nresolvers = [\"{}\"]\n", names.server.dns());
    let keys = route("/", &format!("proxy = \"http://app.internal.test:{port}\""))
        + &route("/none/", &format!("proxy = \"http://none.internal.test:{port}\""))
        + &route("/local/", &format!("proxy = \"http://www.localhost:{port}\""));
    let proxy = Proxy::with(Setup { top: "state = \"state\"", sections, keys, ..Setup::default() }, &[]);
    let process = proxy.server.server_process_id();
    let pid = || proxy.ask(Front::Http1, "/pid", &[]).content;
    assert_eq!(pid(), pid_of(&first), "the first request waits for the address");
    let missing = proxy.ask(Front::Http1, "/none/", &[]);
    let text = "The application has a name that was not found.\n";
    assert_eq!((missing.status, missing.content.as_str()), (502, text));
    let status = String::from_utf8_lossy(&proxy.directory.control("status").output).into_owned();
    assert!(status.contains("none.internal.test: DOWN: the name was not found"), "{status}");
    // Of this machine: it is not asked for, and nothing listens there.
    let local = proxy.ask(Front::Http1, "/local/", &[]);
    assert!(local.status == 502 && local.content.contains("refuses connections"), "{local:?}");
    names.change(2, &["127.0.0.3"]);
    wait_until("requests go to the new address", || pid() == pid_of(&second));
    names.change(3, &["127.0.0.2", "127.0.0.3"]);
    let both = BTreeSet::from([pid_of(&first), pid_of(&second)]);
    wait_until("requests go to both addresses", || BTreeSet::from([pid(), pid(), pid()]) == both);
    // Names that are not found any more keep their addresses.
    names.server.stop();
    proxy.server.wait_for_error("; keeping its addresses");
    assert_eq!(BTreeSet::from([pid(), pid(), pid(), pid()]), both);
    // The next process begins with them, even without a name server.
    assert_eq!(proxy.server.server_process_id(), process, "no new process");
    let ended = proxy.directory.control("upgrade");
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(both.contains(&pid()));
}
