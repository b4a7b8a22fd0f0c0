//! The page of the manual about a domain on two machines, with one server at 127.0.0.1 and one at 127.0.0.2.

use super::https::issue_for;
use super::name_servers::SECRET;
use sanderling_testkit::{
    DEADLINE, Ended, ListenerCounts, TestDirectory, TestServer, curl, dns, free_address, free_address_at, run_to_end,
    sanderling, wait_until,
};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };
const SOA: &str = "$TTL 60\n@ SOA ns1 hostmaster 1 3600 600 604800 60\n";

/// The zone, and the configurations of both machines, as the page has them.
fn blocks() -> [String; 3] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/two-machines.md");
    let page = fs::read_to_string(path).expect("the page");
    let blocks = |begin: &str| {
        let texts = page.split(begin).skip(1).map(|rest| rest.split_once("```").expect("the block ends").0.to_owned());
        texts.collect::<Vec<_>>()
    };
    let configs = blocks("```toml\n");
    [blocks("```\n@ ").swap_remove(0), configs[0].clone(), configs[1].clone()]
}

/// The files of a machine with this configuration, whose DNS is at `address`, and that of the other one at `peer`.
fn machine(config: &str, address: SocketAddr, peer: SocketAddr) -> TestDirectory {
    let directory =
        TestDirectory::with(&[("keys/transfer.key", SECRET.as_bytes()), ("site/1/index.html", b"release 1\n")]);
    let ip = address.ip();
    let config = config
        // Everything on this machine is sent from 127.0.0.1. The parent zone is not asked.
        .replace("dnssec = true", "dnssec = true\ntransfer_allow = [{ network = \"127.0.0.1\", key = \"transfer\" }]")
        .replace("[\"0.0.0.0:53\", \"[::]:53\"]", &format!("[\"{address}\"]\nresolvers = []"))
        .replace("\"0.0.0.0:80\", \"[::]:80\"", &format!("\"{ip}:0\""))
        .replace("\"0.0.0.0:443\", \"[::]:443\"", &format!("\"{ip}:0\""))
        .replace("\"198.51.100.2\"", &format!("\"{peer}\""))
        .replace("\"192.0.2.1\"", &format!("\"{peer}\""))
        .replace("/srv/example.com", &directory.argument("site"))
        // An authority would have to reach this machine.
        .replace("[certificates]\nagree_to_terms = true\ncontact = \"mailto:hostmaster@example.com\"\n", "")
        .replace(
            "on_renew = [\"/usr/local/bin/copy-certificate\"]",
            "certificate = { chain = \"chain.pem\", key = \"key.pem\" }",
        );
    directory.write("sanderling.toml", format!("state = \"state\"\n{config}").as_bytes());
    let published = command(&directory, &["publish", "example.com", &directory.argument("site/1")]);
    assert_eq!(published.code(), Some(0), "{published}");
    directory
}

fn command(directory: &TestDirectory, arguments: &[&str]) -> Ended {
    let mut command = sanderling();
    command.args(arguments).args(["--config", &directory.argument("sanderling.toml")]);
    run_to_end(command, DEADLINE)
}

fn page(directory: &TestDirectory, https: SocketAddr) -> String {
    let (certificate, connect_to) = (directory.argument("certificate/fullchain.pem"), format!("::{https}"));
    curl(&["-sS", "--cacert", &certificate, "--connect-to", &connect_to, "https://example.com/"]).text()
}

#[test]
fn second_machine_gets_zone_certificate_and_site() {
    let [zone, first_config, second_config] = blocks();
    let (one, two) = (free_address(), free_address_at(Ipv4Addr::new(127, 0, 0, 2)));
    let first = machine(&first_config, one, two);
    first.write("zones/example.com.zone", format!("{SOA}@ {zone}").as_bytes());
    issue_for("example.com", &first, "chain.pem", "key.pem", "example.com");
    let _primary = TestServer::start_command(first.serve_command(), BOTH);
    let second = machine(&second_config, two, one);
    let missing = command(&second, &["check"]);
    assert!(missing.code() == Some(1) && missing.errors.contains("certificate/fullchain.pem"), "{missing}");
    let mut secondary = TestServer::start_command(second.serve_command(), BOTH);
    wait_until("the signed zone is transferred", || dns::is_signed(two, "example.com"));
    second.write("certificate/fullchain.pem.new", &fs::read(first.argument("chain.pem")).expect("issued"));
    second.write("certificate/privkey.pem.new", &fs::read(first.argument("key.pem")).expect("issued"));
    for file in ["fullchain.pem", "privkey.pem"] {
        let path = second.path().join("certificate").join(file);
        fs::rename(path.with_added_extension("new"), path).expect("renamed");
    }
    let https = secondary.encrypted("https");
    wait_until("the certificate is in service", || page(&second, https) == "release 1\n");
    let checked = command(&second, &["check"]);
    assert_eq!(checked.code(), Some(0), "{checked}");
    second.write("site/2/index.html", b"release 2\n");
    let published = command(&second, &["publish", "example.com", &second.argument("site/2")]);
    assert_eq!(published.code(), Some(0), "{published}");
    wait_until("the release is noticed", || page(&second, https) == "release 2\n");
}
