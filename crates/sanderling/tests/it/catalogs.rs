//! Catalogs of zones (RFC 9432): of this server for Knot, BIND and NSD, and of Knot, BIND and this server for this one.

use super::name_servers::{NameServer, Program, SECRET, TSIG, records};
use sanderling_testkit::dns::{Question, Reply, TXT};
use sanderling_testkit::{
    DEADLINE, ListenerCounts, TestDirectory, TestServer, dig, dig_udp, free_address, kdig, run_program, run_to_end,
    sanderling, wait_until,
};
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const CATALOG: &str = "catalog.example";

/// Zones of a catalog in the tests with other programs: few, unless the variable asks for more.
fn zone_count() -> usize {
    sanderling_testkit::number_or("SANDERLING_CATALOG_ZONES", 20)
}

fn zone(text: &str) -> String {
    format!("$TTL 60\n@ SOA ns host 1 2 2 3600 60\n@ NS ns\nns A 192.0.2.1\ntxt TXT \"{text}\"\n")
}

fn start(directory: &TestDirectory) -> TestServer {
    TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 })
}

/// The text that a server has at `txt` in a zone; `None` if it does not answer with one, or is not started yet.
fn text(server: SocketAddr, zone: &str) -> Option<String> {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    client.connect(server).unwrap();
    let mut message = [0; 1_232];
    client.send(&Question::new(&format!("txt.{zone}"), TXT).message()).ok()?;
    let length = client.recv(&mut message).ok()?;
    let reply = Reply::parse(&message[..length]);
    let answer = reply.answer.first().filter(|_| reply.rcode == 0)?;
    Some(String::from_utf8_lossy(&answer.rdata[1..]).into_owned())
}

#[track_caller]
fn wait_for(server: SocketAddr, what: &str, zones: impl IntoIterator<Item = usize>, is_served: bool) {
    for index in zones {
        let name = format!("z{index}.test");
        wait_until(&format!("{what} has {name}: {is_served}"), || {
            text(server, &name) == is_served.then(|| format!("content {index}"))
        });
    }
}

/// The zones in the catalog that `server` gives to its secondaries.
fn listed(server: SocketAddr) -> BTreeSet<String> {
    let transferred = records(&dig(server, &["-y", TSIG, CATALOG, "AXFR"]));
    let zone = |line: &String| line.split_once(" ptr ").map(|(_, zone)| zone.trim_end_matches('.').to_owned());
    transferred.iter().filter_map(zone).collect()
}

/// The serial of the catalog of `server`.
fn serial(server: SocketAddr) -> u32 {
    let soa = dig(server, &["-y", TSIG, CATALOG, "SOA", "+short"]).text();
    soa.split_whitespace().nth(2).and_then(|serial| serial.parse().ok()).unwrap_or_else(|| panic!("{soa}"))
}

/// A server that produces a catalog of its zones for these secondaries.
fn producer(count: usize, secondaries: &[SocketAddr]) -> (TestDirectory, TestServer) {
    let directory = TestDirectory::new();
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
    for index in 0..count {
        directory.write(&format!("zones/z{index}.test.zone"), zone(&format!("content {index}")).as_bytes());
    }
    directory.write("private.zone", zone("private").as_bytes());
    let secondaries: String =
        secondaries.iter().map(|address| format!("{{ address = \"{address}\", key = \"transfer\" }},")).collect();
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\nzones = \"zones/*.zone\"\n\
         [tsig.transfer]\nsecret_file = \"transfer.key\"\n[catalog.\"{CATALOG}\"]\nsecondaries = [{secondaries}]\n\
         [domain.\"private.test\"]\nzone = \"private.zone\"\ntransfer_allow = [{{ network = \"192.0.2.1\" }}]\n\
         [limits]\ndns_udp_errors_per_second_max = 1000000\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
    let server = start(&directory);
    (directory, server)
}

fn knot_consumer(address: SocketAddr, primary: SocketAddr) -> NameServer {
    Program::Knot.start_with(address, |home| {
        format!(
            "server:\n  rundir: {home}\n  listen: 127.0.0.1@{}\n  udp-workers: 1\n  tcp-workers: 1\n\
             key:\n  - id: transfer\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
             remote:\n  - id: primary\n    address: 127.0.0.1@{}\n    key: transfer\n\
             acl:\n  - id: notify\n    key: transfer\n    action: notify\n\
             database:\n  storage: {home}\n\
             template:\n  - id: member\n    storage: {home}\n    master: primary\n    acl: notify\n    refresh-min-interval: 2\n\
             zone:\n  - domain: {CATALOG}\n    storage: {home}\n    master: primary\n    acl: notify\n    refresh-min-interval: 2\n\
             \x20   catalog-role: interpret\n    catalog-template: member\n",
            address.port(),
            primary.port()
        )
    })
}

fn bind_consumer(address: SocketAddr, primary: SocketAddr) -> NameServer {
    Program::Bind.start_with(address, |home| {
        let (port, primary) = (address.port(), primary.port());
        format!(
            "key \"transfer\" {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n\
             options {{ directory \"{home}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
             recursion no; pid-file \"{home}/pid\"; session-keyfile \"{home}/key\"; empty-zones-enable no; \
             dnssec-validation no; min-refresh-time 1; min-retry-time 1; transfers-in 100; transfers-per-ns 100; \
             serial-query-rate 1000; \
             catalog-zones {{ zone \"{CATALOG}\" default-primaries {{ 127.0.0.1 port {primary} key transfer; }} \
             zone-directory \"{home}\" in-memory no min-update-interval 1; }}; }};\ncontrols {{ }};\n\
             zone \"{CATALOG}\" {{ file \"{home}/catalog\"; type secondary; notify no; \
             primaries {{ 127.0.0.1 port {primary} key transfer; }}; allow-notify {{ key transfer; }}; }};\n"
        )
    })
}

/// NSD before 4.9 knows no catalogs: as its operators do, the test passes the zones of the transferred catalog on to
/// `nsd-control`.
fn nsd_consumer(address: SocketAddr, primary: SocketAddr) -> NameServer {
    Program::Nsd.start_with(address, |home| {
        let (port, primary) = (address.port(), primary.port());
        let transfers = format!(
            "request-xfr: 127.0.0.1@{primary} transfer\n allow-notify: 127.0.0.1 transfer\n min-refresh-time: 1\n \
             min-retry-time: 1\n"
        );
        format!(
            "server:\n ip-address: 127.0.0.1@{port}\n username: \"\"\n zonesdir: \"{home}\"\n database: \"\"\n \
             zonelistfile: \"{home}/zone.list\"\n xfrdfile: \"{home}/xfrd.state\"\n xfrdir: \"{home}\"\n \
             pidfile: \"{home}/pid\"\n server-count: 1\n\
             remote-control:\n control-enable: yes\n control-interface: \"{home}/control\"\n\
             key:\n name: transfer\n algorithm: hmac-sha256\n secret: \"{SECRET}\"\n\
             pattern:\n name: member\n zonefile: \"{home}/%s.zone\"\n {transfers}\
             zone:\n name: {CATALOG}\n zonefile: \"{home}/catalog\"\n provide-xfr: 127.0.0.1 transfer\n {transfers}"
        )
    })
}

/// Makes NSD serve the zones in its version of the catalog.
fn update_nsd(nsd: &NameServer, zones: &mut BTreeSet<String>) {
    let now = listed(nsd.address());
    for (command, names) in [("delzone", zones.difference(&now)), ("addzone", now.difference(zones))] {
        for name in names {
            let config = nsd.file("config");
            let mut arguments = vec!["-c", &config, command, name];
            arguments.extend((command == "addzone").then_some("member"));
            let ended = run_program("nsd-control", "nsd", &arguments);
            assert_eq!(ended.code(), Some(0), "{ended}");
        }
    }
    *zones = now;
}

#[test]
fn produced_catalog_has_the_groups_of_the_configuration() {
    let (directory, server) = producer(3, &[free_address()]);
    let primary = server.dns();
    let groups = || -> Vec<String> {
        let lines = records(&dig(primary, &["-y", TSIG, CATALOG, "AXFR"]));
        let group = |line: &String| line.split_once(" txt ").map(|(_, text)| text.to_owned());
        lines.iter().filter(|line| line.starts_with("group.")).filter_map(group).collect()
    };
    wait_until("the catalog lists all zones", || listed(primary).len() == 3);
    assert_eq!(groups(), [""; 0]);
    let before = serial(primary);
    let config = std::fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    for (keys, expected) in [
        ("groups.internal = [\"z1.test\"]\ngroups.other = [\"absent.test\"]\n", &["\"internal\""][..]),
        ("groups.\"t w o\" = [\"z1.test\"]\n", &["\"t w o\""]),
        ("", &[]),
    ] {
        let config = config.replace("[domain.\"private.test\"]", &format!("{keys}[domain.\"private.test\"]"));
        directory.replace("sanderling.toml", config.as_bytes());
        assert_eq!(directory.control("reload").code(), Some(0));
        wait_until("the groups have changed", || groups() == expected);
        assert_eq!(listed(primary).len(), 3);
    }
    assert!(serial(primary) > before);
}

#[test]
fn zone_that_is_held_back_in_the_catalog_is_shown() {
    let (directory, server) = producer(2, &[free_address()]);
    wait_until("the catalog lists the zones", || listed(server.dns()).len() == 2);
    let zone_status = || {
        let mut command = sanderling();
        command.args(["zone", "status", CATALOG, "--control", &directory.argument("control")]);
        run_to_end(command, DEADLINE).text()
    };
    wait_until("the catalog is as it should be", || zone_status().contains("served as in the file"));
    directory.replace("zones/z0.test.zone", b"what is this");
    let zones = directory.path().join("zones");
    std::fs::rename(zones.join("z1.test.zone"), zones.join("renamed.test.zone")).unwrap();
    assert_eq!(directory.control("reload").code(), Some(1));
    let problem = "it still lists zones that this server no longer has (z1.test), until the errors in the zone files \
                   are corrected (z0.test)";
    wait_until("the status of the zone says so", || zone_status().contains(&format!("problem  {problem}")));
    let state = zone_status();
    assert!(state.contains("the last written version is served, because of the problem below"), "{state}");
    let status = directory.control("status");
    assert!(status.text().contains("2 zones kept") && status.text().contains(problem), "{status}");
    server.wait_for_error(&format!("warning: catalog {CATALOG}: {problem}"));
    directory.replace("zones/z0.test.zone", zone("content 0").as_bytes());
    assert_eq!(directory.control("reload").code(), Some(0));
    wait_until("nothing is held back", || !listed(server.dns()).iter().any(|zone| zone.starts_with("z1.")));
    wait_until("all is well", || directory.control("status").text().contains("problems      none"));
}

#[test]
fn knot_bind_and_nsd_serve_the_zones_of_a_catalog() {
    let count = zone_count();
    let addresses = [free_address(), free_address(), free_address()];
    let (directory, server) = producer(count, &addresses);
    let primary = server.dns();
    wait_until("the catalog lists all zones", || listed(primary).len() == count);
    let first_serial = serial(primary);
    let (knot, bind) = (knot_consumer(addresses[0], primary), bind_consumer(addresses[1], primary));
    let nsd = nsd_consumer(addresses[2], primary);
    let mut nsd_zones = BTreeSet::new();
    let wait_for_all = |zones: std::ops::Range<usize>, is_served: bool, nsd_zones: &mut BTreeSet<String>| {
        wait_until("NSD has the catalog", || listed(nsd.address()) == listed(primary));
        update_nsd(&nsd, nsd_zones);
        for (program, what) in [(&knot, "Knot"), (&bind, "BIND"), (&nsd, "NSD")] {
            wait_for(program.address(), what, zones.clone(), is_served);
        }
    };
    wait_for_all(0..count, true, &mut nsd_zones);
    // Another rule of transfers is for this zone.
    assert!(!listed(primary).contains("private.test"));
    // Only clients that may transfer the catalog see it.
    for arguments in [&[CATALOG, "SOA"][..], &[CATALOG, "AXFR"], &["version.catalog.example", "TXT"]] {
        let refused = dig(primary, arguments).text();
        assert!(refused.contains("REFUSED") || refused.contains("Transfer failed"), "{arguments:?}: {refused}");
    }
    let version =
        |options: &[&str]| dig_udp(primary, &[options, &["-y", TSIG, "version.catalog.example", "TXT"]].concat());
    for options in [&["+notcp"], &["+tcp"]] {
        assert!(version(options).text().contains("\"2\""), "{}", version(options));
    }
    // A restart changes nothing.
    server.kill_children();
    wait_until("it serves again", || text(primary, "z0.test").as_deref() == Some("content 0"));
    wait_until("the catalog is served again", || listed(primary).len() == count);
    assert_eq!(serial(primary), first_serial);
    // Zones come and go.
    for index in 0..3 {
        std::fs::remove_file(directory.path().join(format!("zones/z{index}.test.zone"))).unwrap();
        let added = count + index;
        directory.write(&format!("zones/z{added}.test.zone"), zone(&format!("content {added}")).as_bytes());
    }
    assert_eq!(directory.control("reload").code(), Some(0));
    wait_until("the catalog has changed", || {
        let listed = listed(primary);
        listed.len() == count && !listed.contains("z0.test") && listed.contains(&format!("z{}.test", count + 2))
    });
    assert!(serial(primary) > first_serial);
    let changes = records(&kdig(primary, &["+tcp", "-y", TSIG, CATALOG, &format!("IXFR={first_serial}")]));
    assert_eq!(changes.iter().filter(|line| line.contains(" ptr ")).count(), 6, "{changes:?}");
    wait_for_all(count..count + 3, true, &mut nsd_zones);
    // The secondaries did not have the new zones yet when they received NOTIFY.
    assert!(!server.errors().contains(&format!("z{count}.test: NOTIFY of serial")), "{}", server.errors());
    wait_for_all(0..3, false, &mut nsd_zones);
    // A zone whose file is broken stays in the catalog, and so do all others; one more file is a zone more.
    directory.replace("zones/z4.test.zone", b"broken");
    std::fs::remove_file(directory.path().join("zones/z5.test.zone")).unwrap();
    directory.write("zones/new.test.zone", zone("new").as_bytes());
    assert_eq!(directory.control("reload").code(), Some(1));
    wait_until("the catalog has one more", || listed(primary).len() == count + 1);
    assert!(listed(primary).contains("z4.test") && listed(primary).contains("z5.test"));
    directory.replace("zones/z4.test.zone", zone("mended").as_bytes());
    assert_eq!(directory.control_with("reload", &["z4.test"]).code(), Some(0));
    wait_until("the zone without a file leaves it", || !listed(primary).contains("z5.test"));
    // While the folder cannot be listed, no zone leaves it, even in a server that knows none of them.
    drop(server.stop());
    std::fs::rename(directory.path().join("zones"), directory.path().join("moved")).unwrap();
    let server = start(&directory);
    wait_until("the catalog is served", || !listed(server.dns()).is_empty());
    assert_eq!(listed(server.dns()).len(), count);
}

/// A server that consumes the catalogs of `sections`, and listens at `address`.
fn consumer(address: SocketAddr, sections: &str, limits: &str) -> TestDirectory {
    let directory = TestDirectory::new();
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"{address}\"]\n\
         [tsig.transfer]\nsecret_file = \"transfer.key\"\n{sections}\n[limits]\n{limits}\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
    directory
}

fn catalog_section(name: &str, primary: SocketAddr) -> String {
    format!("[catalog.\"{name}\"]\nprimaries = [{{ address = \"{primary}\", key = \"transfer\" }}]\n")
}

#[test]
fn server_serves_the_zones_of_a_catalog_of_knot() {
    let (address, primary) = (free_address(), free_address());
    let config = |home: &str, zones: std::ops::Range<usize>| {
        let members: String = zones
            .map(|index| {
                format!(
                    "  - domain: z{index}.test\n    storage: {home}\n    file: z{index}\n    acl: signed\n    notify: secondary\n\
                     \x20   catalog-role: member\n    catalog-zone: {CATALOG}\n"
                )
            })
            .collect();
        format!(
            "server:\n  rundir: {home}\n  listen: 127.0.0.1@{}\n  udp-workers: 1\n  tcp-workers: 1\n\
             key:\n  - id: transfer\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
             remote:\n  - id: secondary\n    address: 127.0.0.1@{}\n    key: transfer\n\
             acl:\n  - id: signed\n    key: transfer\n    action: transfer\n\
             database:\n  storage: {home}\n\
             zone:\n  - domain: {CATALOG}\n    storage: {home}\n    acl: signed\n    notify: secondary\n    catalog-role: generate\n{members}",
            primary.port(),
            address.port()
        )
    };
    let count = zone_count();
    let knot = Program::Knot.start_with(primary, |home| {
        for index in 0..count + 3 {
            std::fs::write(format!("{home}/z{index}"), zone(&format!("content {index}"))).unwrap();
        }
        config(home, 0..count)
    });
    let directory = consumer(address, &catalog_section(CATALOG, primary), "dns_udp_errors_per_second_max = 1000000\n");
    let server = start(&directory);
    wait_for(address, "the server", 0..count, true);
    let home = knot.file("");
    knot.replace_config(&config(home.trim_end_matches('/'), 3..count + 3));
    wait_for(address, "the server", 3..count + 3, true);
    wait_for(address, "the server", 0..3, false);
    let mut command = sanderling();
    command.args(["zone", "status", "z4.test", "--control", &directory.argument("control")]);
    let status = run_to_end(command, DEADLINE).text();
    assert!(status.contains(&format!("primary  serial 1 transferred from {primary}")), "{status}");
    drop(server);
}

/// Sanderling as the primary of catalogs that a test writes.
struct Catalogs {
    directory: TestDirectory,
    server: TestServer,
}

impl Catalogs {
    /// The primary of the zones `a.test` and so on, with notifications to `secondary`.
    fn start(secondary: SocketAddr) -> Catalogs {
        let directory = TestDirectory::new();
        directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
        for name in ["a", "b", "c"] {
            directory.write(&format!("zones/{name}.test.zone"), zone(name).as_bytes());
        }
        for name in ["one", "two"] {
            directory.write(&format!("zones/{name}.catalog.zone"), catalog_text(1, "").as_bytes());
        }
        let config = format!(
            "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\nzones = \"zones/*.zone\"\n\
             secondaries = [{{ address = \"{secondary}\", key = \"transfer\" }}]\n[tsig.transfer]\nsecret_file = \"transfer.key\"\n"
        );
        directory.write("sanderling.toml", config.as_bytes());
        let server = start(&directory);
        Catalogs { directory, server }
    }

    fn replace(&self, catalog: &str, text: &str) {
        self.directory.replace(&format!("zones/{catalog}.catalog.zone"), text.as_bytes());
        assert_eq!(self.directory.control_with("reload", &[&format!("{catalog}.catalog")]).code(), Some(0));
    }
}

fn catalog_text(serial: u32, records: &str) -> String {
    format!("$TTL 0\n@ SOA invalid. invalid. {serial} 2 2 3600 0\n@ NS invalid.\nversion TXT 2\n{records}")
}

/// When the version of a zone that the server has was transferred.
fn transferred_at(directory: &TestDirectory, zone: &str) -> Option<String> {
    let record = std::fs::read_to_string(directory.path().join(format!("state/zones/{zone}.json"))).ok()?;
    let (_, after) = record.split_once("\"transferred_at_unix_s\":")?;
    Some(after.split(',').next()?.to_owned())
}

#[test]
fn zones_are_added_removed_reset_and_handed_over() {
    let address = free_address();
    let primary = Catalogs::start(address);
    let sections =
        ["one", "two"].map(|name| catalog_section(&format!("{name}.catalog"), primary.server.dns())).concat();
    // The group is served by a server that does not exist.
    let group =
        format!("members_below = [\".\"]\ngroups.elsewhere = [{{ address = \"{}\" }}]\n[catalog.\"two", free_address());
    let sections = sections.replacen("[catalog.\"two", &group, 1);
    let directory = consumer(address, &sections, "catalog_members_max = 3\n");
    let server = start(&directory);
    let check = |zone: &str, expected: Option<&str>| {
        wait_until(&format!("{zone}: {expected:?}"), || text(address, zone).as_deref() == expected);
    };
    let members = |labels: [&str; 2]| format!("{}.zones PTR a.test.\n{}.zones PTR b.test.\n", labels[0], labels[1]);
    primary.replace("one", &catalog_text(2, &members(["m1", "m2"])));
    check("a.test", Some("a"));
    check("b.test", Some("b"));
    // A broken version changes nothing; nor does one with too many members.
    for (serial, broken, problem) in [
        (3, "version TXT 1\n", "it has several versions"),
        (4, "m1.zones PTR c.test.\n", "its member m1 has several zones"),
        (5, "m9.zones PTR a.test.\n", "it lists the zone a.test. twice"),
        (6, "m3.zones PTR c.test.\nm4.zones PTR d.test.\n", "it has more than 3 members (`catalog_members_max`)"),
    ] {
        primary.replace("one", &catalog_text(serial, &(members(["m1", "m2"]) + broken)));
        let message = format!("not used: {problem}; its zones do not change");
        wait_until(problem, || directory.control("status").text().contains(&message));
        check("a.test", Some("a"));
    }
    primary.replace("one", &catalog_text(7, &members(["m1", "m2"])).replace("version TXT 2\n", ""));
    server.wait_for_error("catalog one.catalog: not used: it has no version record; its zones do not change");
    check("a.test", Some("a"));
    // The root zone is a zone as others if it is allowed: it comes, and leaves with the next version.
    primary.replace("two", &catalog_text(2, "m1.zones PTR .\n"));
    let refused = "catalog two.catalog: ignoring the zone .: it is the root; to accept it from the catalog, add it to \
                   `members_below`";
    server.wait_for_error(refused);
    wait_until("the status names it", || directory.control("status").text().contains(refused));
    primary.replace("one", &catalog_text(8, &(members(["m1", "m2"]) + "m3.zones PTR .\n")));
    server.wait_for_error("catalogs: 3 zones; 1 added, 0 removed, 0 reset");
    // After a change of the label, the stored zone is dropped, and transferred again.
    let before = transferred_at(&directory, "a.test").expect("a version");
    let unchanged = transferred_at(&directory, "b.test").expect("a version");
    primary.replace("one", &catalog_text(9, &members(["m8", "m2"])));
    server.wait_for_error("catalogs: 2 zones; 0 added, 1 removed, 1 reset");
    wait_until("a.test is transferred again", || transferred_at(&directory, "a.test").is_some_and(|now| now > before));
    check("a.test", Some("a"));
    assert_eq!(transferred_at(&directory, "b.test"), Some(unchanged.clone()));
    // A zone of two catalogs stays with the first one, until that gives it away.
    primary.replace("two", &catalog_text(3, "m2.zones PTR b.test.\nm3.zones PTR c.test.\n"));
    check("c.test", Some("c"));
    server.wait_for_error("catalog two.catalog: ignoring the zone b.test, which belongs to the catalog one.catalog");
    primary.replace("one", &catalog_text(10, &(members(["m8", "m2"]) + "coo.m2.zones PTR two.catalog.\n")));
    let owner = |zone: &str| {
        let list = std::fs::read_to_string(directory.path().join("state/zones/members")).unwrap();
        let (_, after) = list.split_once(&format!("\"zone\":\"{zone}\",\"catalog\":\"")).unwrap();
        after.split('"').next().unwrap().to_owned()
    };
    wait_until("b.test has another owner", || owner("b.test") == "two.catalog");
    primary.replace("one", &catalog_text(11, "m8.zones PTR a.test.\n"));
    // The log has one line a minute.
    let record = || std::fs::read_to_string(directory.path().join("state/zones/one.catalog.json")).unwrap_or_default();
    wait_until("the catalog is transferred", || record().contains("\"serial\":11,"));
    check("b.test", Some("b"));
    assert_eq!(transferred_at(&directory, "b.test"), Some(unchanged));
    // A group has primaries of its own: the zone is kept until it expires.
    primary.replace("one", &catalog_text(12, "m8.zones PTR a.test.\ngroup.m8.zones TXT elsewhere\n"));
    wait_until("the group is known", || {
        std::fs::read_to_string(directory.path().join("state/zones/members")).unwrap().contains("elsewhere")
    });
    check("a.test", Some("a"));
    // After a start without the primary, all zones are served.
    drop(primary.server.stop());
    drop(server.stop());
    let server = start(&directory);
    for (zone, expected) in [("a.test", "a"), ("b.test", "b"), ("c.test", "c")] {
        assert_eq!(text(address, zone).as_deref(), Some(expected), "{zone}");
    }
    let mut list = sanderling();
    list.args(["zone", "list", "--control", &directory.argument("control")]);
    let listed = run_to_end(list, DEADLINE);
    assert!(listed.text().contains("two.catalog"), "{listed}");
    drop(server);
    // Without its section, a catalog adds no zones.
    let without_one = format!("[catalog.\"two{}", sections.split_once("[catalog.\"two").unwrap().1);
    let config = std::fs::read_to_string(directory.path().join("sanderling.toml")).unwrap();
    directory.replace("sanderling.toml", config.replace(&sections, &without_one).as_bytes());
    let server = start(&directory);
    check("a.test", None);
    check("b.test", Some("b"));
    wait_until("its state is removed", || transferred_at(&directory, "a.test").is_none());
    assert!(!directory.path().join("state/zones/a.test.zone").exists());
    drop(server);
}
