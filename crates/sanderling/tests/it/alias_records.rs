//! `ALIAS` in zone files: the addresses of names of another zone, which a resolver has, with secondaries and
//! signatures.

use super::name_servers::{Peer, Program, SECRET, Unbound};
use super::signed_zones::{check_whole_zone, validate};
use super::updates::update;
use sanderling_testkit::dns::{A, AAAA, TXT, data};
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, dig, free_address, run_to_end, sanderling, wait_until,
};
use std::net::SocketAddr;

const ZONE: &str = "$TTL 300\n@ SOA ns1 host 7 3600 600 86400 60\n@ NS ns1\nns1 A 127.0.0.1\n@ MX 10 mail.other.example.\n\
                    @ ALIAS www.host.example.\nshop 60 IN ALIAS www.host.example.\n";

/// The server of the targets, and the resolver that finds it.
struct Targets {
    directory: TestDirectory,
    server: TestServer,
    resolver: Option<Unbound>,
    resolver_address: SocketAddr,
}

impl Targets {
    fn start() -> Targets {
        let directory = TestDirectory::new();
        directory.write("host.zone", Targets::zone(1).as_bytes());
        let config =
            "workers = 1\n[dns]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"host.example\"]\nzone = \"host.zone\"\n";
        directory.write("sanderling.toml", config.as_bytes());
        let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
        let mut targets = Targets { directory, server, resolver: None, resolver_address: free_address() };
        targets.start_resolver();
        targets
    }

    /// The target is an alias of a name with this address.
    fn zone(number: u32) -> String {
        format!(
            "$TTL 2\n@ SOA ns host {number} 3600 600 86400 1\n@ NS ns\nns A 127.0.0.1\nwww CNAME web\n\
             web A 192.0.2.{number}\nweb AAAA 2001:db8::{number}\n"
        )
    }

    fn start_resolver(&mut self) {
        let zones = [("host.example", self.server.dns())];
        self.resolver = Some(Unbound::start(self.resolver_address, "cache-min-ttl: 0", &zones));
    }

    fn change(&self, number: u32) {
        self.directory.replace("host.zone", Targets::zone(number).as_bytes());
        let reload = self.directory.control("reload");
        assert_eq!(reload.code(), Some(0), "{reload}");
    }

    /// A server of `example.com`, with `lines` in the zone's section.
    fn configure(&self, address: SocketAddr, lines: &str) -> TestDirectory {
        let directory = TestDirectory::new();
        directory.write("example.com.zone", ZONE.as_bytes());
        directory.write("transfer.key", SECRET.as_bytes());
        let config = format!(
            "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"{address}\"]\nresolvers = [\"{}\"]\n\
             transfer_allow = [{{ network = \"127.0.0.1\" }}]\n[limits]\nalias_ttl_s_min = 1\n\
             [tsig.transfer]\nsecret_file = \"transfer.key\"\n\
             [domain.\"example.com\"]\nzone = \"example.com.zone\"\n{lines}\n",
            self.resolver_address
        );
        directory.write("sanderling.toml", config.as_bytes());
        directory
    }
}

fn start(directory: &TestDirectory) -> TestServer {
    TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
}

/// The addresses of both names.
fn addresses(server: SocketAddr) -> String {
    let questions = [("example.com", A), ("example.com", AAAA), ("shop.example.com", A)];
    questions.map(|(name, rtype)| data(server, name, rtype).unwrap_or_default()).join("\n")
}

fn expected(number: u32) -> String {
    format!("192.0.2.{number}\n2001:db8::{number}\n192.0.2.{number}")
}

fn wait_for(server: SocketAddr, number: u32) {
    wait_until(&format!("the address is 192.0.2.{number}"), || addresses(server) == expected(number));
}

/// The server's output for a command about the zone.
fn zone_command(directory: &TestDirectory, command: &str) -> String {
    let mut process = sanderling();
    process.args(["zone", command, "example.com", "--control", &directory.argument("control")]);
    run_to_end(process, DEADLINE).text()
}

#[test]
fn addresses_follow_the_target_and_outlive_resolver_and_server() {
    let mut targets = Targets::start();
    let [address, knot_address] = [free_address(), free_address()];
    let secondaries = format!("secondaries = [{{ address = \"{knot_address}\", key = \"transfer\" }}]");
    let directory = targets.configure(address, &secondaries);
    let server = start(&directory);
    let knot = Program::Knot.start(knot_address, Peer::Primary(address), "");
    wait_for(address, 1);
    wait_for(knot_address, 1);
    targets.change(2);
    wait_for(address, 2);
    wait_for(knot_address, 2);
    let answer = dig(address, &["+noall", "+answer", "example.com", "A"]).text();
    let ttl: u32 =
        answer.split_whitespace().nth(1).and_then(|ttl| ttl.parse().ok()).unwrap_or_else(|| panic!("{answer}"));
    assert!((1..=2).contains(&ttl), "{answer}");
    // Secondaries have addresses alone, and other records of the names stay.
    let transferred = knot.records();
    assert_eq!(transferred.iter().filter(|record| record.contains(" a 192.0.2.2")).count(), 2, "{transferred:?}");
    assert!(!transferred.iter().any(|record| record.contains("alias") || record.contains("type")), "{transferred:?}");
    assert!(transferred.iter().any(|record| record.contains(" mx 10 mail.other.example.")), "{transferred:?}");
    let shown = zone_command(&directory, "show");
    assert!(shown.contains(" IN A 192.0.2.2 ; derived: alias of www.host.example\n"), "{shown}");
    // The export can replace the file.
    let exported = zone_command(&directory, "export");
    assert!(
        exported.contains("example.com. IN ALIAS www.host.example.\n") && !exported.contains("192.0.2.2"),
        "{exported}"
    );

    targets.resolver = None;
    targets.change(3);
    let status = || zone_command(&directory, "status");
    wait_until("the status has the problem", || status().contains("asking the resolver 127.0.0.1:"));
    assert!(status().contains("alias    www.host.example: 192.0.2.2 2001:db8::2, queried in "), "{}", status());
    assert_eq!(addresses(address), expected(2));
    drop(server);
    let server = start(&directory);
    wait_until("the agent has asked again", || {
        assert_eq!(addresses(server.dns()), expected(2));
        status().contains("asking the resolver 127.0.0.1:")
    });
    targets.start_resolver();
    wait_for(address, 3);
    wait_for(knot_address, 3);
}

#[test]
fn signed_zone_has_signatures_of_the_addresses() {
    let targets = Targets::start();
    let address = free_address();
    let dnssec = format!("dnssec = {{ parent_servers = [\"{address}\"] }}");
    let directory = targets.configure(address, &dnssec);
    let server = start(&directory);
    for number in 1..3 {
        if number > 1 {
            targets.change(number);
        }
        wait_for(server.dns(), number);
        let address = format!("192.0.2.{number}");
        wait_until("the addresses validate", || {
            let validated = validate(&server, &directory, "example.com", "A");
            validated.contains("; fully validated") && validated.contains(&address)
        });
        check_whole_zone(&server, &directory);
    }
    // An error in the file is reported until it is corrected, whatever is derived.
    directory.replace("example.com.zone", b"what is this");
    assert_eq!(directory.control("reload").code(), Some(1));
    targets.change(3);
    wait_for(server.dns(), 3);
    let status = directory.control("status");
    assert!(status.code() == Some(1) && status.text().contains("problems      1 zone kept"), "{status}");
}

#[test]
fn zone_of_the_folder_may_have_aliases_and_a_later_version_none() {
    let targets = Targets::start();
    let directory = TestDirectory::new();
    std::fs::create_dir(directory.path().join("zones")).unwrap();
    directory.write("zones/example.com.zone", ZONE.as_bytes());
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\nresolvers = [\"{}\"]\nzones = \"zones/*.zone\"\n",
        targets.resolver_address
    );
    directory.write("sanderling.toml", config.as_bytes());
    let server = start(&directory);
    wait_for(server.dns(), 1);
    let without = ZONE.replace("@ ALIAS www.host.example.", "@ A 192.0.2.99");
    directory.replace("zones/example.com.zone", without.as_bytes());
    let reload = directory.control("reload");
    assert_eq!(reload.code(), Some(0), "{reload}");
    assert_eq!(data(server.dns(), "example.com", A).as_deref(), Some("192.0.2.99"));
    assert_eq!(data(server.dns(), "shop.example.com", A).as_deref(), Some("192.0.2.1"));
}

#[test]
fn updates_stay_when_the_target_changes() {
    let targets = Targets::start();
    let rule = "update = [{ key = \"transfer\", names = [\"**\"], types = [\"ANY\"] }]";
    let directory = targets.configure(free_address(), rule);
    let server = start(&directory);
    wait_for(server.dns(), 1);
    update(&server, &directory, "update add shop 60 A 192.0.2.50\nupdate add text 60 TXT text");
    let of_shop = |server: &TestServer| data(server.dns(), "shop.example.com", A).unwrap_or_default();
    let text = |server: &TestServer| data(server.dns(), "text.example.com", TXT).unwrap_or_default();
    assert_eq!((of_shop(&server), text(&server)), ("192.0.2.1 192.0.2.50".to_owned(), "text".to_owned()));
    targets.change(2);
    wait_until("the target has another address", || of_shop(&server) == "192.0.2.2 192.0.2.50");
    assert_eq!(text(&server), "text");
    drop(server);
    let server = start(&directory);
    assert_eq!((of_shop(&server), text(&server)), ("192.0.2.2 192.0.2.50".to_owned(), "text".to_owned()));
}
