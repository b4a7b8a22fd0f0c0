//! Random zones, signed and signed again, are accepted by the validators of BIND, ldns and Knot.

use super::*;
use crate::key::{Algorithm, KeyRole};
use crate::testing::{TestSigner, apex, records};
use fastrand::Rng;
use sanderling_testkit::{TestDirectory, run_program, seed};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const ZONE_COUNT: usize = 6;
const APEX: &str = "Zone.Example.";
const LABELS: &[&str] = &["a", "b", "*", "mail", "WWW", "z-9", "\\000x", "\\200"];

/// A zone with hosts, wildcards, empty non-terminals, delegations with glue, aliases and a DNAME.
fn random_zone(random: &mut Rng) -> String {
    let mut text =
        "@ 300 SOA ns Admin 7 3600 600 86400 60\n@ 300 NS ns\n@ 300 NS NS.Other.example.\nns 300 A 192.0.2.1\n"
            .to_owned();
    let mut names: Vec<String> = Vec::new();
    for _ in 0..random.usize(0..40) {
        let depth = random.usize(1..4);
        let labels: Vec<&str> = (0..depth).map(|_| LABELS[random.usize(0..LABELS.len())]).collect();
        names.push(labels.join("."));
    }
    names.sort_by_key(|name| name.to_lowercase());
    names.dedup_by_key(|name| name.to_lowercase());
    for (index, name) in names.iter().enumerate() {
        let ttl = random.u32(1..9) * 60;
        let line = match random.u8(0..6) {
            0 => format!("{name} {ttl} A 192.0.2.{index}\n{name} 60 A 192.0.2.200\n{name} 60 AAAA 2001:db8::{index}\n"),
            1 => format!(
                "{name} {ttl} MX 10 Mail.{name}\n{name} {ttl} TXT \"one\" \"Two\"\n{name} 60 TYPE65280 \\# 2 abcd\n"
            ),
            2 => format!("{name} {ttl} CNAME Target.example.\n"),
            3 => format!("d{index}.{name} {ttl} NS ns.d{index}.{name}\nns.d{index}.{name} 60 A 192.0.2.9\n"),
            4 => {
                let digest = "ab".repeat(32);
                format!("s{index} {ttl} NS ns.other.example.\ns{index} {ttl} DS {index} 13 2 {digest}\n")
            }
            _ => format!("n{index} {ttl} DNAME Example.ORG.\nn{index} 60 SRV 1 2 3 Host.Example.\n{name} 60 TXT x\n"),
        };
        text.push_str(&line);
    }
    text
}

fn check(zone: &SignedZone, context: &str) {
    let mut text = String::new();
    zone.records.write_text(&mut text);
    let folder = TestDirectory::new();
    folder.write("zone", text.as_bytes());
    let file = folder.argument("zone");
    let run = |program, package, arguments: &[&str]| {
        let ended = run_program(program, package, arguments);
        assert_eq!(ended.code(), Some(0), "{program}: {ended}\n{context}\n{text}");
    };
    // With `-z`, a key with the flag SEP may sign everything.
    run("dnssec-verify", "bind9-utils", &["-q", "-z", "-o", APEX, &file]);
    // ldns does not end with some zones whose names have such labels.
    if !text.contains("\\000") {
        run("ldns-verify-zone", "ldnsutils", &[&file]);
    }
    run("kzonecheck", "knot-dnssecutils", &["-d", "on", "-o", APEX, &file]);
}

#[test]
fn validators_accept_random_zones() {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let apex = apex(APEX);
    let apex = apex.as_name();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    for index in 0..ZONE_COUNT {
        let mut signer = TestSigner::new(apex);
        let algorithm = if random.bool() { Algorithm::EcdsaP256 } else { Algorithm::Ed25519 };
        let roles = if random.bool() { &[KeyRole::Csk][..] } else { &[KeyRole::Ksk, KeyRole::Zsk] };
        let keys = signer.keys(algorithm, roles);
        let parameters = SigningParameters {
            denial: if random.bool() { Denial::Nsec } else { Denial::Nsec3 },
            has_zonemd: random.bool(),
            ..SigningParameters::default()
        };
        let text = random_zone(&mut random);
        let context = format!("seed {seed}, zone {index}, {parameters:?}\n{text}");
        let job = |unsigned, previous| SigningJob {
            apex,
            unsigned,
            previous,
            keys: &keys,
            parameters: &parameters,
            now_unix_s: now,
        };
        let unsigned = records(apex, &text);
        let first = sign(&job(&unsigned, None), &mut signer).expect("signed");
        check(&first, &context);
        // Half of the records go, except for glue.
        let mut other = String::new();
        for (line_index, line) in text.lines().enumerate() {
            if line_index < 4 || line.starts_with("ns.") || random.bool() {
                let _ = writeln!(other, "{line}");
            }
        }
        let _ = writeln!(other, "new.host 60 A 192.0.2.55");
        let unsigned = records(apex, &other);
        let second = sign(&job(&unsigned, Some(&first.records)), &mut signer).expect("signed");
        assert!(second.kept_count > 0 && second.serial == 9);
        check(&second, &format!("{context}\nthen\n{other}"));
    }
}

/// A fixed zone: ldns does not end with some random ones, if it is to check the ZONEMD record.
#[test]
fn ldns_accepts_the_digest_of_a_zone() {
    const ZONE: &str = "@ 300 SOA ns Admin 7 3600 600 86400 60\n@ 300 NS NS\nns 300 A 192.0.2.1\n*.W 60 MX 1 Mail\n\
        w 60 TXT b a\nw 60 TXT \"a\" \"b\"\nd 60 NS d\nd 60 A 192.0.2.2\nx.y.z 60 SRV 1 2 3 Host.Example.\nv 60 SVCB 1 Host\n";
    let apex = apex(APEX);
    let apex = apex.as_name();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let unsigned = records(apex, ZONE);
    for denial in [Denial::Nsec, Denial::Nsec3] {
        let mut signer = TestSigner::new(apex);
        let keys = signer.keys(Algorithm::EcdsaP256, &[KeyRole::Csk]);
        let parameters = SigningParameters { denial, has_zonemd: true, ..SigningParameters::default() };
        let (keys, parameters) = (&keys, &parameters);
        let job = SigningJob { apex, unsigned: &unsigned, previous: None, keys, parameters, now_unix_s: now };
        let zone = sign(&job, &mut signer).expect("signed");
        let mut text = String::new();
        zone.records.write_text(&mut text);
        let folder = TestDirectory::new();
        folder.write("zone", text.as_bytes());
        let ended = run_program("ldns-verify-zone", "ldnsutils", &["-ZZ", &folder.argument("zone")]);
        assert_eq!(ended.code(), Some(0), "{ended}\n{text}");
    }
}
