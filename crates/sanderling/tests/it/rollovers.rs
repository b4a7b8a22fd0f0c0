//! Key rollovers, from the first signature to an unsigned zone, with a parent zone that follows CDS records, as a
//! validating and caching resolver sees them: nothing is bogus at any time. Processes are killed at random moments
//! meanwhile.
//!
//! Records are valid for a second or two, so that caches hold them for their whole time. `SANDERLING_KILLS` is the
//! number of kills, for long runs.

use super::name_servers::{NameServer, Program, Unbound};
use sanderling_testkit::dns::{self, A, CDS, MX, NOERROR, NXDOMAIN, Question, TXT, is_served, is_signed};
use sanderling_testkit::{
    ListenerCounts, Pauses, TestDirectory, TestServer, dig, free_address, free_address_at, number_or, run_program,
    run_to_end, sanderling, seed, wait_until,
};
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A time longer than a rollover takes on a busy machine.
const ROLLOVER_DEADLINE: Duration = Duration::from_secs(180);
const CHILD: &str = "child.parent.test";
const CHILD_RECORDS: &str =
    "$TTL 2\n@ SOA ns1 host 1 3600 600 86400 1\n@ NS ns1\nns1 A 127.0.0.1\nwww A 192.0.2.2\n*.wild TXT \"wild\"\n";
/// A name server lags behind for so long: caches ask it again, since no record is valid for longer.
const LAG_TIME: Duration = Duration::from_millis(2500);
/// The words in the status while a step is pending.
const UNSETTLED: [&str; 8] =
    ["is being", "until a new key", "caches may", " must ", "does not have", "still has", "will be", "will not be"];

/// A server with a zone that it signs, and its parent zone.
struct Domains {
    directory: TestDirectory,
    address: SocketAddr,
    server: Option<TestServer>,
    /// The DS records in the parent zone.
    ds: BTreeSet<String>,
    serial: u32,
    resolver: Option<Resolver>,
    /// Another name server of the child zone.
    other: Option<SocketAddr>,
}

/// unbound, with the key of the parent zone as its only trust anchor.
struct Resolver(Unbound);

impl Resolver {
    /// The child zone has the name server `other` besides.
    fn start(zones: SocketAddr, other: Option<SocketAddr>, anchor: &str) -> Resolver {
        let options = format!("val-log-level: 2\n val-bogus-ttl: 1\n trust-anchor: \"{anchor}\"");
        let of_child = std::iter::once(zones).chain(other).map(|server| (CHILD, server));
        let zones: Vec<_> = std::iter::once(("parent.test", zones)).chain(of_child).collect();
        Resolver(Unbound::start(free_address(), &options, &zones))
    }

    fn log(&self) -> String {
        self.0.log()
    }

    /// Whether answers are expected to be secure, although they may be insecure. A bogus one is an error.
    #[track_caller]
    fn check(&self, must_be_secure: bool) {
        for (name, rtype, expected) in
            [("www", A, NOERROR), ("www", MX, NOERROR), ("no", A, NXDOMAIN), ("x.wild", TXT, NOERROR)]
        {
            let owner = format!("{name}.{CHILD}");
            let reply = Question::new(&owner, rtype).with_signatures().query_tcp(self.0.address());
            assert!(
                reply.rcode == expected && (reply.is_validated() || !must_be_secure),
                "{name} {rtype}: {reply:?}\n{}",
                self.log()
            );
        }
    }
}

impl Domains {
    /// The zones, with the options `dnssec` of the child zone, until its keys are in use and the parent zone has its DS
    /// records.
    fn start(dnssec: &str) -> Domains {
        let (directory, address) = (TestDirectory::new(), free_address());
        let ds = BTreeSet::new();
        let mut domains = Domains { directory, address, server: None, ds, serial: 1, resolver: None, other: None };
        domains.directory.write("child.zone", CHILD_RECORDS.as_bytes());
        domains.write_parent();
        domains.configure(dnssec);
        domains.restart();
        domains.run_until("the zone is signed", |status| is_settled(status) && status.contains(" IN DS "));
        domains.start_resolver();
        domains
    }

    fn start_resolver(&mut self) {
        let keys = dig(self.address, &["+short", "parent.test", "DNSKEY"]).text();
        let key = keys.lines().find(|key| key.starts_with("257 ")).expect("the parent zone is signed");
        let resolver = Resolver::start(self.address, self.other, &format!("parent.test. DNSKEY {key}"));
        resolver.check(true);
        self.resolver = Some(resolver);
    }

    /// Gives the child zone another name server, and these records besides.
    fn add_name_server(&mut self, other: SocketAddr, records: &str, dnssec: &str) {
        self.other = Some(other);
        let text = format!("{CHILD_RECORDS}@ NS ns2\nns2 A {}\n{records}", other.ip());
        self.directory.replace("child.zone", text.as_bytes());
        self.change(dnssec);
    }

    /// The configuration with `dnssec` for the child zone.
    fn configure(&self, dnssec: &str) {
        let Domains { address, other, .. } = self;
        let secondaries = other.map_or(String::new(), |it| {
            format!("secondaries = [{{ address = \"{it}\" }}]\ntransfer_allow = [{{ network = \"127.0.0.1\" }}]\n")
        });
        let times = format!("dnskey_ttl = \"1s\", rollover_safety = \"1s\", parent_servers = [\"{address}\"]");
        let config = format!(
            "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"{address}\"]\ntransfer_allow = [{{ network = \"127.0.0.1\" }}]\n\
             [domain.\"parent.test\"]\nzone = \"parent.zone\"\ndnssec = {{ {times} }}\n\
             [domain.\"{CHILD}\"]\nzone = \"child.zone\"\ndnssec = {{ {dnssec}{times} }}\n{secondaries}"
        );
        self.directory.replace("sanderling.toml", config.as_bytes());
    }

    fn restart(&mut self) {
        self.server = None;
        let command = self.directory.serve_command();
        self.server = Some(TestServer::start_command(command, ListenerCounts { http: 0, dns: 1 }));
    }

    #[track_caller]
    fn reload(&self, zone: &[&str]) {
        let reload = self.directory.control_with("reload", zone);
        assert!(reload.status.success(), "{reload}\n{}", self.status());
    }

    fn write_parent(&self) {
        let mut text = format!(
            "$TTL 1\n@ SOA ns1 host {} 3600 600 86400 1\n@ NS ns1\nns1 A 127.0.0.1\nchild NS ns1.child\nns1.child A 127.0.0.1\n",
            self.serial
        );
        self.ds.iter().for_each(|ds| text += &format!("child DS {ds}\n"));
        self.directory.replace("parent.zone", text.as_bytes());
    }

    /// The parent zone takes over what the CDS records ask for (RFC 7344, RFC 8078).
    fn follow_cds(&mut self) {
        let reply = Question::new(CHILD, CDS).try_query(self.address);
        let records = reply.iter().flat_map(|reply| &reply.answer);
        let wanted: BTreeSet<String> = records.map(|record| ds_text(&record.rdata)).collect();
        if wanted.is_empty() {
            return;
        }
        let is_removal = wanted.iter().all(|cds| cds == "0 0 0 00");
        let ds = if is_removal { BTreeSet::new() } else { wanted };
        if ds != self.ds {
            (self.ds, self.serial) = (ds, self.serial + 1);
            self.write_parent();
            self.reload(&["parent.test"]);
        }
    }

    fn status(&self) -> String {
        self.dnssec(&["status", CHILD])
    }

    fn dnssec(&self, arguments: &[&str]) -> String {
        let mut command = sanderling();
        command.arg("dnssec").args(arguments).args(["--control", &self.directory.argument("control")]);
        run_to_end(command, ROLLOVER_DEADLINE).to_string()
    }

    /// Lets the parent zone follow and the resolver ask, until `is_done` with the status. Each status is shown once.
    #[track_caller]
    fn run_until(&mut self, what: &str, is_done: impl Fn(&str) -> bool) -> Vec<String> {
        let (start, mut pauses, mut seen) = (Instant::now(), Pauses::default(), Vec::new());
        loop {
            self.follow_cds();
            // Without DS records, nothing is secure.
            let must_be_secure = !self.ds.is_empty();
            self.resolver.iter().for_each(|resolver| resolver.check(must_be_secure));
            let status = self.status();
            if is_done(&status) {
                return seen;
            }
            if seen.last() != Some(&status) {
                seen.push(status);
            }
            assert!(start.elapsed() < ROLLOVER_DEADLINE, "{what}: {}", seen.join("\n"));
            pauses.wait();
        }
    }

    /// The data of the DNSKEY records.
    fn keys(&self) -> BTreeSet<String> {
        dig(self.address, &["+short", CHILD, "DNSKEY"]).text().lines().map(str::to_owned).collect()
    }

    /// Begins a rollover with `begin`, and runs until all keys but those that are kept are replaced.
    #[track_caller]
    fn run_rollover(&mut self, what: &str, kept_count: usize, begin: impl FnOnce(&Domains)) {
        let before = self.keys();
        let files_before = self.key_files();
        begin(self);
        self.run_until("it has begun", |status| !is_settled(status));
        let steps = self.run_until(what, |status| is_settled(status) && status.contains(" IN DS "));
        let after = self.keys();
        assert_eq!(
            before.intersection(&after).count(),
            kept_count,
            "{what}: {before:?} {after:?}\n{}",
            steps.join("\n")
        );
        assert!(steps.len() > 2, "{}", steps.join("\n"));
        // The private keys are erased with the DNSKEY records.
        wait_until("erased", || self.key_files().len() == after.len());
        assert_eq!(files_before.intersection(&self.key_files()).count(), kept_count);
        self.verify();
    }

    fn key_files(&self) -> BTreeSet<String> {
        let folder = self.directory.path().join("state/keys").join(CHILD);
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(folder).unwrap().map(name).collect()
    }

    /// All signatures and the chain of denials are right.
    #[track_caller]
    fn verify(&self) {
        let zone = dig(self.address, &["+nocomments", "+nostats", "+nocmd", "+onesoa", CHILD, "AXFR"]).text();
        self.directory.write("transferred", zone.as_bytes());
        let ended = run_program("ldns-verify-zone", "ldnsutils", &[&self.directory.argument("transferred")]);
        assert!(ended.status.success(), "{ended}\n{zone}");
    }
}

/// The data of a DS or CDS record as it is in a zone file.
fn ds_text(rdata: &[u8]) -> String {
    let [tag, tag_low, algorithm, digest_type, ref digest @ ..] = *rdata else { panic!("{rdata:?}") };
    let digest: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("{} {algorithm} {digest_type} {digest}", u16::from_be_bytes([tag, tag_low]))
}

fn is_settled(status: &str) -> bool {
    status.contains(" is in use") && !UNSETTLED.iter().any(|words| status.contains(words))
}

impl Domains {
    /// Changes the zone file, and returns the reload that has begun.
    fn begin_change(&self, round: usize) -> Child {
        self.directory.replace("child.zone", format!("{CHILD_RECORDS}round TXT {round}\n").as_bytes());
        let mut reload = sanderling();
        reload.args(["reload", "--control", &self.directory.argument("control")]);
        reload.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs")
    }

    /// Has the keys replaced by the configuration.
    fn change(&self, dnssec: &str) {
        self.configure(dnssec);
        self.reload(&[]);
    }
}

#[test]
fn csk_and_its_algorithm_are_replaced_without_a_bogus_answer() {
    let mut domains = Domains::start("");
    domains.run_rollover("another CSK", 0, |domains| {
        let begun = domains.dnssec(&["rollover", CHILD]);
        assert!(begun.contains("the rollover has begun"), "{begun}");
        let again = domains.dnssec(&["rollover", CHILD]);
        assert!(again.contains("wait until this rollover has finished"), "{again}");
    });
    domains.run_rollover("two CSKs, one before the other is in use", 0, |domains| {
        domains.dnssec(&["rollover", CHILD]);
        wait_until("another key is made", || domains.key_files().len() == 2);
        let introduced = domains.key_files();
        let begun = domains.dnssec(&["rollover", CHILD, "--compromised"]);
        assert!(begun.contains("the rollover has begun"), "{begun}");
        wait_until("a third key is made", || !domains.key_files().is_subset(&introduced));
    });
    domains.run_rollover("another algorithm", 0, |domains| domains.change("algorithm = \"ed25519\", "));
    assert!(domains.keys().iter().all(|key| key.starts_with("257 3 15 ")));
}

#[test]
fn ksk_and_zsk_are_replaced_without_a_bogus_answer() {
    let mut domains = Domains::start("keys = \"ksk-zsk\", nsec3 = true, ");
    let ds = domains.ds.clone();
    for (option, what) in [("--zsk", "another ZSK"), ("--ksk", "another KSK")] {
        domains.run_rollover(what, 1, |domains| {
            domains.dnssec(&["rollover", CHILD, option]);
        });
        assert_eq!(domains.ds == ds, option == "--zsk");
    }
}

#[test]
fn one_key_takes_the_place_of_two_and_the_zone_becomes_unsigned_without_a_bogus_answer() {
    let mut domains = Domains::start("keys = \"ksk-zsk\", ");
    domains.run_rollover("one key", 0, |domains| domains.change(""));
    assert_eq!(domains.keys().len(), 1);
    domains.change("signed = false, ");
    domains.run_until("the zone is unsigned", |status| status.contains("the zone has no keys"));
    assert!(domains.status().contains("  unsigned again, with serial "), "{}", domains.status());
    assert!(domains.ds.is_empty() && domains.keys().is_empty() && domains.key_files().is_empty());
    wait_until("it is served", || !is_signed(domains.address, CHILD));
    domains.resolver.as_ref().expect("it runs").check(false);
}

/// NSD as another name server of the child zone, with this text of the zone.
fn start_nsd(address: SocketAddr, of_zone: &str, zone: &str) -> NameServer {
    Program::Nsd.start_with(address, |home| {
        fs::write(format!("{home}/zone"), zone).unwrap();
        format!(
            "server:\n ip-address: {}@{}\n username: \"\"\n zonesdir: \"{home}\"\n database: \"\"\n \
             zonelistfile: \"{home}/zone.list\"\n xfrdfile: \"{home}/xfrd.state\"\n xfrdir: \"{home}\"\n \
             pidfile: \"{home}/pid\"\n server-count: 1\nremote-control:\n control-enable: no\n\
             zone:\n name: {CHILD}\n zonefile: \"{home}/zone\"\n {of_zone}",
            address.ip(),
            address.port()
        )
    })
}

fn other_address() -> SocketAddr {
    free_address_at(Ipv4Addr::new(127, 0, 0, 2))
}

impl Domains {
    /// Replaces the ZSK or KSK, with another name server that follows each step only when `catch_up` is called, which
    /// is when the status has one of the words of `behind`. The rollover does not continue before that.
    #[track_caller]
    fn run_rollover_with_lag(&mut self, option: &str, behind: &[&str], mut catch_up: impl FnMut(&Domains)) {
        let before = self.keys();
        let begun = self.dnssec(&["rollover", CHILD, option]);
        assert!(begun.contains("the rollover has begun"), "{begun}");
        let is_behind = |status: &str| behind.iter().any(|words| status.contains(words));
        let mut lag_count = 0;
        loop {
            let is_done = |status: &str| is_settled(status) && status.contains(" IN DS ");
            self.run_until("the rollover goes on", |status| is_behind(status) || is_done(status));
            if is_done(&self.status()) {
                break;
            }
            lag_count += 1;
            let keys = self.keys();
            let (begun, mut pauses) = (Instant::now(), Pauses::default());
            while begun.elapsed() < LAG_TIME {
                self.resolver.iter().for_each(|resolver| resolver.check(true));
                assert!(is_behind(&self.status()) && self.keys() == keys, "{}", self.status());
                pauses.wait();
            }
            catch_up(self);
            self.run_until("it goes on", |status| !is_behind(status));
        }
        assert!(lag_count >= 2, "{lag_count}");
        let after = self.keys();
        assert_eq!((before.len(), before.intersection(&after).count()), (after.len(), before.len() - 1));
        self.verify();
    }
}

#[test]
fn rollover_waits_for_a_secondary_that_lags() {
    const DNSSEC: &str = "keys = \"ksk-zsk\", ";
    let mut domains = Domains::start(DNSSEC);
    let other = other_address();
    // The server has the zone from startup: NOTIFY is refused, and an hour passes between two questions for the serial.
    let start = |primary: SocketAddr| {
        Program::Knot.start_with(other, |home| {
            format!(
                "server:\n  rundir: {home}\n  listen: {}@{}\n  udp-workers: 1\n  tcp-workers: 1\ndatabase:\n  storage: {home}\n\
                 remote:\n  - id: primary\n    address: 127.0.0.1@{}\n    via: {}\n\
                 zone:\n  - domain: {CHILD}\n    storage: {home}\n    file: zone\n    master: primary\n",
                other.ip(),
                other.port(),
                primary.port(),
                other.ip()
            )
        })
    };
    domains.add_name_server(other, "", DNSSEC);
    let mut secondary: Option<NameServer> = None;
    let mut catch_up = |domains: &Domains| {
        drop(secondary.take());
        secondary = Some(start(domains.address));
        wait_until("it has transferred the zone", || is_served(other, CHILD));
    };
    catch_up(&domains);
    domains.start_resolver();
    domains.run_rollover_with_lag("--zsk", &["must reach", "must be gone"], &mut catch_up);
    domains.run_rollover_with_lag("--ksk", &["must reach", "must be gone"], &mut catch_up);
}

/// A zone that two sign (RFC 8901): ldns signs the version of NSD, with a serial of its own.
#[test]
fn rollover_waits_for_another_signer_to_take_over_the_keys() {
    const DNSSEC: &str = "keys = \"ksk-zsk\", other_signers = [\"ns2.child.parent.test\"], ";
    let mut domains = Domains::start("keys = \"ksk-zsk\", ");
    let (home, other) = (TestDirectory::new(), other_address());
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(home.path());
        let ended = run_to_end(command, ROLLOVER_DEADLINE);
        assert!(ended.status.success(), "{program}: {ended}");
        ended.text().trim().to_owned()
    };
    let key = run("ldns-keygen", &["-a", "ECDSAP256SHA256", "-k", CHILD]);
    let data = |extension: &str, rtype: &str| {
        let text = fs::read_to_string(home.path().join(format!("{key}.{extension}"))).unwrap();
        let data = text.split(rtype).nth(1).unwrap_or_else(|| panic!("{text}"));
        data.split(';').next().unwrap().trim().to_owned()
    };
    let (dnskey, ds) = (data("key", "DNSKEY\t"), data("ds", "DS\t"));
    let mut server = None;
    let mut serial = 1000;
    // The other signer takes over the DNSKEY records of this signer.
    let mut take_over = |domains: &Domains| {
        serial += 1;
        let mut text = CHILD_RECORDS.replace("host 1 ", &format!("host {serial} "));
        text += &format!("@ NS ns2\nns2 A {}\n@ DNSKEY {dnskey}\n", other.ip());
        let ours = domains.keys();
        ours.iter()
            .filter(|key| !dnskey.ends_with(key.rsplit(' ').next().unwrap()))
            .for_each(|key| text += &format!("@ DNSKEY {key}\n"));
        home.replace("unsigned", text.as_bytes());
        run("ldns-signzone", &["-o", CHILD, "-f", "signed", "unsigned", &key]);
        let signed = fs::read_to_string(home.path().join("signed")).unwrap();
        match &server {
            Some(server) => NameServer::replace_zone(server, &signed),
            None => server = Some(start_nsd(other, "", &signed)),
        }
        wait_until("it answers", || dns::serial(other, CHILD) == Some(serial));
    };
    domains.add_name_server(other, &format!("@ 60 DNSKEY {dnskey}\n@ 60 CDS {ds}\n@ 60 CDNSKEY {dnskey}\n"), DNSSEC);
    assert!(
        domains.keys().len() == 3 && domains.status().contains("another signer has the key "),
        "{}",
        domains.status()
    );
    take_over(&domains);
    domains.run_until("the parent zone refers to both", |_| true);
    wait_until("both are there", || {
        domains.follow_cds();
        domains.ds.len() == 2
    });
    domains.start_resolver();
    let behind = ["of another signer, lacks the record", "of another signer, has the record"];
    domains.run_rollover_with_lag("--zsk", &behind, &mut take_over);
    domains.run_rollover_with_lag("--ksk", &behind, &mut take_over);
    assert!(domains.ds.iter().any(|it| it.to_lowercase().starts_with(&ds[..20])), "{:?}", domains.ds);
    let refused = {
        domains.configure("signed = false, other_signers = [\"ns2.child.parent.test\"], ");
        domains.directory.control("reload")
    };
    assert!(refused.errors.contains("cannot become unsigned"), "{refused}");
}

#[test]
fn kills_at_random_moments_of_signing_and_rollovers_leave_a_zone_that_is_valid() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut domains = Domains::start("keys = \"ksk-zsk\", ");
    let (mut rollover_count, mut last_change) = (0, None);
    for round in 0..number_or("SANDERLING_KILLS", 6) {
        if is_settled(&domains.status()) {
            let begun = domains.dnssec(&["rollover", CHILD]);
            // The keeper may not be back yet.
            assert!(
                begun.contains("the rollover has begun") || begun.contains("the rollover goes on later"),
                "{begun}"
            );
            rollover_count += 1;
        }
        let reload = (round % 2 == 0).then(|| {
            last_change = Some(round);
            domains.begin_change(round)
        });
        // A change is signed in some milliseconds.
        let longest_ms = if reload.is_some() { 60 } else { 1500 };
        std::thread::sleep(Duration::from_millis(random.u64(0..longest_ms)));
        let server = domains.server.take().expect("it runs");
        let is_whole = random.u8(0..4) == 0;
        if is_whole {
            server.kill_all();
            wait_until("nothing runs", || !domains.directory.control("status").status.success());
            domains.restart();
        } else {
            server.kill_children();
            domains.server = Some(server);
        }
        reload.into_iter().for_each(|mut reload| drop(reload.wait()));
        let start = dig(domains.address, &["+tries=5", "+time=5", CHILD, "SOA"]);
        assert!(start.text().contains("NOERROR"), "{start}");
        domains.follow_cds();
        domains.verify();
        domains.resolver.iter().for_each(|resolver| resolver.check(true));
    }
    domains.run_until("the last rollover has ended", |status| is_settled(status) && status.contains(" IN DS "));
    assert!(rollover_count > 0);
    wait_until("erased", || domains.key_files().len() == domains.keys().len());
    let changed = last_change.map(|round| round.to_string());
    assert_ne!(changed, None, "there are changes");
    let served = || dns::data(domains.address, &format!("round.{CHILD}"), TXT);
    wait_until("the last change is served", || served() == changed);
}
