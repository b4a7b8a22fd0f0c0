//! Tests of the processes that a reload replaces, and of the effect of its changes.

use super::name_servers::SECRET;
use super::updates::update;
use sanderling_testkit::dns::{A, AAAA, data, is_signed};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, children_with, wait_until};

const ZONE: &str = "$TTL 300\n@ SOA ns1 host 10 3600 2 3600 60\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.2\n";
const CONFIG: &str = r#"
workers = 1
state = "state"
[http]
listen = ["127.0.0.1:0"]
[dns]
resolvers = []
listen = ["127.0.0.1:0"]
[tsig.transfer]
secret_file = "transfer.key"
[domain."a.test"]
zone = "a.zone"
dnssec = true
update = [{ key = "transfer", names = ["**"], types = ["ANY"] }]
[domain."example.com"]
zone = "example.zone"
dnssec = true
[domain."c.test"]
zone = "c.zone"
site = "public"
derive = ["addresses"]
[domain."d.test"]
zone = "d.zone"
"#;

const PROCESSES: [&str; 3] = ["internal-server-process", "internal-agent", "internal-keeper"];

fn start() -> (TestDirectory, TestServer) {
    let directory = TestDirectory::new();
    std::fs::create_dir(directory.path().join("public")).expect("created");
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
    for file in ["a.zone", "example.zone", "c.zone", "d.zone"] {
        directory.write(file, ZONE.as_bytes());
    }
    directory.write("sanderling.toml", CONFIG.as_bytes());
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 1 });
    for zone in ["a.test", "example.com"] {
        wait_until_signed(&server, zone);
    }
    (directory, server)
}

fn wait_until_signed(server: &TestServer, zone: &str) {
    wait_until("the zone is signed", || is_signed(server.dns(), zone));
}

/// The process of each kind that was started last.
fn processes(server: &TestServer) -> [Option<u32>; 3] {
    PROCESSES.map(|command| children_with(server.process_id(), command).last().copied())
}

/// Reloads `CONFIG` with `new` in place of each `old`, and checks which processes are replaced. `take_effect` returns
/// when the change has taken effect.
fn check(
    server: &TestServer,
    directory: &TestDirectory,
    change: (&str, &str),
    replaced: &[&str],
    take_effect: impl Fn(),
) {
    let (old, new) = change;
    let file = directory.path().join("sanderling.toml");
    let config = std::fs::read_to_string(&file).expect("read");
    assert!(config.contains(old), "{old}: {config}");
    let before = processes(server);
    directory.replace("sanderling.toml", config.replacen(old, new, 1).as_bytes());
    let reload = directory.control("reload");
    assert_eq!(reload.code(), Some(0), "{new}: {reload}");
    take_effect();
    for (index, command) in PROCESSES.into_iter().enumerate() {
        let is_other = || processes(server)[index].is_some_and(|process| Some(process) != before[index]);
        if replaced.contains(&command) {
            wait_until(&format!("{command} is replaced"), is_other);
        }
    }
    for (index, command) in PROCESSES.into_iter().enumerate() {
        let is_other = processes(server)[index] != before[index];
        assert_eq!(is_other, replaced.contains(&command), "{command}: {new}: {}", server.errors());
    }
}

#[test]
fn reload_replaces_the_processes_that_a_change_concerns() {
    let [of_server, agent, keeper] = PROCESSES;
    let (directory, server) = start();
    let check = |old, new, replaced: &[&str], take_effect: &dyn Fn()| {
        check(&server, &directory, (old, new), replaced, take_effect);
    };
    let address = |rtype| data(server.dns(), "c.test", rtype);
    wait_until("the address is derived", || address(A).as_deref() == Some("127.0.0.1"));
    check("[domain.\"a.test\"]", "# Ours.\n\n[domain.\"a.test\"]", &[], &|| {});
    check("site = \"public\"", "site = \"public\"\nindex = [\"a.html\"]", &[], &|| {});
    // The agent stores what updates make, and another zone had some before.
    let rule = "zone = \"example.zone\"\nupdate = [{ key = \"transfer\", names = [\"**\"], types = [\"A\"] }]";
    check("zone = \"example.zone\"", rule, &[agent], &|| update(&server, &directory, "add new A 192.0.2.9"));
    check("types = [\"A\"]", "types = [\"TXT\"]", &[], &|| update(&server, &directory, "add new TXT new"));
    check("[\"127.0.0.1:0\"]\n[dns]", "[\"[::1]:0\"]\n[dns]", &[of_server, agent], &|| {
        wait_until("the other address is derived", || {
            (address(A).as_deref(), address(AAAA).as_deref()) == (Some(""), Some("::1"))
        });
    });
    check("zone = \"d.zone\"", "zone = \"d.zone\"\ndnssec = true", &[agent, keeper], &|| {
        wait_until_signed(&server, "d.test");
    });
    check("[dns]", "[limits]\ndrain_timeout = \"9s\"\n[dns]", &[of_server], &|| {});
    update(&server, &directory, "add last TXT last");
}
