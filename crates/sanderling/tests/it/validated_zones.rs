//! Random zones that the server signs, as unbound sees them with their DS records as trust anchors: each name and each
//! denial is secure.
//!
//! `SANDERLING_SIGNED_ZONES` is the number of zones, for long runs.

use super::name_servers::Unbound;
use fastrand::Rng;
use sanderling_testkit::dns::{A, AAAA, CDS, CNAME, DNSKEY, DS, MX, NS, Question, Record, SOA, TXT};
use sanderling_testkit::{
    DEADLINE, ListenerCounts, Pauses, TestDirectory, TestServer, free_address, number_or, run_to_end, sanderling, seed,
};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longer than the keys of all zones need until the parent zone may have their DS records, on a machine with other
/// work.
const SIGNING_DEADLINE: Duration = Duration::from_secs(300);
const TYPES: [(u16, &str); 4] =
    [(A, "A 192.0.2.1"), (AAAA, "AAAA 2001:db8::1"), (MX, "MX 5 ns"), (TXT, "TXT \"text\"")];

/// A zone with a signed zone `s` and an unsigned one `u` below it.
struct RandomZone {
    apex: String,
    options: String,
    records: String,
    /// Names below the apex with their types; both of names that exist, and of others.
    questions: BTreeSet<(String, u16)>,
}

impl RandomZone {
    fn new(index: usize, random: &mut Rng) -> RandomZone {
        let algorithms = ["ecdsap256sha256", "ed25519", "rsasha256"];
        // Each combination comes again after twelve zones.
        let (algorithm, nsec3) = (algorithms[index % 3], index % 2 == 1);
        let keys = ["csk", "ksk-zsk"][index / 6 % 2];
        let mut zone = RandomZone {
            apex: format!("z{index}.test"),
            options: format!("algorithm = \"{algorithm}\", keys = \"{keys}\", nsec3 = {nsec3}, "),
            records: String::new(),
            questions: BTreeSet::new(),
        };
        for name in ["", "no.", "ns.", "w.", "s.", "u."] {
            zone.questions.extend([A, SOA, DS, TXT].map(|rtype| (name.to_owned(), rtype)));
        }
        // The parent zone, which has them, is on no server.
        zone.questions.remove(&(String::new(), DS));
        for rtype in [NS, DNSKEY, CDS] {
            zone.questions.insert((String::new(), rtype));
        }
        let name = |random: &mut Rng| {
            let labels = ["a", "B", "c", "d-e", "\\\\255", "z"];
            (0..random.usize(1..5)).map(|_| format!("{}.", labels[random.usize(0..labels.len())])).collect::<String>()
        };
        // With empty non-terminals.
        let hosts: Vec<String> = (0..random.usize(2..8)).map(|_| name(random) + "h.").collect();
        let wildcards: Vec<String> = (0..random.usize(1..4)).map(|_| format!("*.{}w.", name(random))).collect();
        for owner in hosts.iter().chain(&wildcards) {
            let (_, data) = TYPES[random.usize(0..TYPES.len())];
            zone.records += &format!("{} {data}\n", owner.trim_end_matches('.'));
            zone.ask_around(owner, random);
        }
        let targets = [&hosts[0], &wildcards[0].replace('*', "x"), "no.", "www.s.", "www.u."];
        for (index, target) in targets.iter().enumerate() {
            zone.records += &format!("c{index} CNAME d{index}\nd{index} CNAME {}\n", target.trim_end_matches('.'));
            zone.ask_around(&format!("c{index}."), random);
        }
        zone.records += "t DNAME h\n";
        for host in &hosts {
            zone.ask_around(&host.replace("h.", "t."), random);
        }
        for child in ["s.", "u."] {
            zone.ask_around(&format!("www.{child}"), random);
        }
        zone
    }

    /// Asks for names at, above, below and beside `owner`.
    fn ask_around(&mut self, owner: &str, random: &mut Rng) {
        let instance = owner.replace('*', "any");
        let mut names = vec![owner.to_owned(), instance.clone(), format!("no.{instance}"), format!("0{instance}")];
        names.extend(instance.match_indices('.').map(|(at, _)| instance[at + 1..].to_owned()));
        for name in names {
            let (rtype, _) = TYPES[random.usize(0..TYPES.len())];
            self.questions.extend([(name.clone(), rtype), (name, TXT)]);
        }
    }

    fn text(&self, ds: &[String]) -> String {
        let mut text = format!(
            "$TTL 1\n@ SOA ns host 1 3600 600 86400 1\n@ NS ns\nns A 127.0.0.1\n{}s NS ns.s\nns.s A 127.0.0.1\nu NS ns.u\nns.u A 127.0.0.1\n",
            self.records
        );
        ds.iter().for_each(|ds| text += &format!("s DS {ds}\n"));
        text
    }
}

/// The DS records that the status asks for, when all servers and caches have the keys.
fn ds_of(directory: &TestDirectory, zone: &str) -> Vec<String> {
    let (start, mut pauses) = (Instant::now(), Pauses::default());
    loop {
        let mut command = sanderling();
        command.args(["dnssec", "status", zone, "--control", &directory.argument("control")]);
        let status = run_to_end(command, DEADLINE).text();
        let lines = status.lines().filter_map(|line| line.trim().strip_prefix(&format!("{zone}. IN DS ")));
        let ds: Vec<String> = lines.map(str::to_owned).collect();
        if !ds.is_empty() {
            let digests: BTreeSet<&str> = ds.iter().filter_map(|ds| ds.split(' ').nth(2)).collect();
            assert_eq!(
                digests,
                BTreeSet::from(["2", "4"]),
                "SHA-256 and SHA-384, each a trust anchor of unbound: {status}"
            );
            return ds;
        }
        assert!(start.elapsed() < SIGNING_DEADLINE, "{status}");
        pauses.wait();
    }
}

#[test]
fn names_and_denials_of_random_zones_are_secure() {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let zones: Vec<RandomZone> =
        (0..number_or("SANDERLING_SIGNED_ZONES", 4)).map(|index| RandomZone::new(index, &mut random)).collect();
    let (directory, address) = (TestDirectory::new(), free_address());
    let mut config = format!("workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"{address}\"]\n");
    // The zones are signed one after another.
    config += "[limits]\nzone_signings_max = 1\n";
    let child = "$TTL 1\n@ SOA ns host 1 3600 600 86400 1\n@ NS ns\nns A 127.0.0.1\nwww A 192.0.2.9\n*.w TXT \"w\"\n";
    directory.write("child.zone", child.as_bytes());
    let times = format!("dnskey_ttl = \"1s\", rollover_safety = \"1s\", parent_servers = [\"{address}\"]");
    for RandomZone { apex, options, .. } in &zones {
        for (name, file) in [(apex.clone(), apex.clone()), (format!("s.{apex}"), "child".to_owned())] {
            config += &format!("[domain.\"{name}\"]\nzone = \"{file}.zone\"\ndnssec = {{ {options}{times} }}\n");
        }
        config += &format!("[domain.\"u.{apex}\"]\nzone = \"child.zone\"\n");
    }
    directory.write("sanderling.toml", config.as_bytes());
    for zone in &zones {
        directory.write(&format!("{}.zone", zone.apex), zone.text(&[]).as_bytes());
    }
    let command = directory.serve_command();
    let _server = TestServer::start_command(command, ListenerCounts { http: 0, dns: 1 });
    for zone in &zones {
        let ds = ds_of(&directory, &format!("s.{}", zone.apex));
        directory.replace(&format!("{}.zone", zone.apex), zone.text(&ds).as_bytes());
    }
    let reload = directory.control("reload");
    assert!(reload.status.success(), "{reload}");
    let (mut names, mut options) = (Vec::new(), "val-log-level: 2\n".to_owned());
    for RandomZone { apex, .. } in &zones {
        ds_of(&directory, apex).iter().for_each(|ds| options += &format!(" trust-anchor: \"{apex}. DS {ds}\"\n"));
        names.extend(["", "s.", "u."].map(|child| format!("{child}{apex}")));
    }
    let servers: Vec<_> = names.iter().map(|name| (&name[..], address)).collect();
    let resolver = Unbound::start(free_address(), &options, &servers);
    let (mut secure_count, mut question_count) = (0, 0);
    for RandomZone { apex, questions, options, .. } in &zones {
        for (name, rtype) in questions {
            let name = format!("{name}{apex}");
            // The only escape in these names is a backslash.
            let wire_name = name.replace("\\\\", "\\");
            let ask = |server| Question::new(&wire_name, *rtype).with_signatures().query_tcp(server);
            let (theirs, ours) = (ask(resolver.address()), ask(address));
            let is_secure = theirs.is_validated();
            let leads_to_unsigned = |record: &Record| record.rtype == CNAME && record.rdata.starts_with(b"www.u.");
            // The name is below a zone without signatures, or an alias leads there.
            let is_unsigned = name.ends_with(&format!(".u.{apex}"))
                || ours.answer.iter().any(leads_to_unsigned)
                || name == format!("u.{apex}") && *rtype != DS;
            let context =
                || format!("seed {seed}, {options}: {name} {rtype}\n{theirs:?}\n{ours:?}\n{}", resolver.log());
            assert_eq!(theirs.rcode, ours.rcode, "{}", context());
            assert_eq!(is_secure, !is_unsigned, "{}", context());
            (secure_count, question_count) = (secure_count + usize::from(is_secure), question_count + 1);
        }
    }
    println!("{} zones, {question_count} questions, {secure_count} answers secure", zones.len());
    assert!(secure_count > 60 * zones.len(), "seed {seed}: {secure_count}");
}
