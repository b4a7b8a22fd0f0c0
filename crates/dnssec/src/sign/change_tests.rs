//! Random zones that change repeatedly have what they have when they are signed as a whole.

use super::*;
use crate::key::{Algorithm, KeyRole};
use crate::records::{Record, RecordsBuilder};
use crate::testing::{TestSigner, apex, records};
use crate::zonemd::{self, ZonemdResult};
use fastrand::Rng;
use sanderling_testkit::seed;
use std::collections::BTreeMap;

const NOW: u64 = 1_795_449_600;
const APEX: &str = "Zone.Example.";
const ZONE_COUNT: usize = 16;
const CHANGE_COUNT: usize = 16;

/// The lines of the apex, whose SOA has this serial.
fn apex_lines(serial: u32) -> String {
    format!("@ 300 SOA ns Admin {serial} 3600 600 86400 60\n@ 300 NS ns\n")
}

/// The lines of a zone: each is an RRset.
type Lines = BTreeMap<(String, &'static str), String>;

fn text(lines: &Lines, serial: u32) -> String {
    let lines = lines.iter().map(|((name, rtype), rdatas)| {
        rdatas.split(';').map(|rdata| format!("{name} 60 {rtype} {rdata}\n")).collect::<String>()
    });
    apex_lines(serial) + &lines.collect::<String>()
}

/// The key of another signer.
const OF_OTHER_SIGNER: &str = "@ 60 DNSKEY 257 3 15 l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4=\n\
    @ 60 CDS 7 15 2 0000000000000000000000000000000000000000000000000000000000000000\n";

/// Adds, changes or removes an RRset.
fn change_line(lines: &mut Lines, random: &mut Rng) {
    const LABELS: [&str; 6] = ["a", "B", "c", "*", "z", "\\001"];
    const RRSETS: [(&str, &str); 9] = [
        ("A", "192.0.2."),
        ("TXT", "x"),
        ("NS", "ns.a.b"),
        ("DNAME", "other.example.x"),
        ("DS", "1 13 2 00000000000000000000000000000000000000000000000000000000000000"),
        ("MX", "7 Mail;8 mail"),
        // Data, since no name here is the apex.
        ("CDS", "7 15 2 00000000000000000000000000000000000000000000000000000000000000"),
        ("ZONEMD", "7 1 241 0000000000000000000000"),
        ("NSEC3PARAM", "1 0 0 aa"),
    ];
    if !lines.is_empty() && random.u8(0..3) == 0 {
        let key = lines.keys().nth(random.usize(0..lines.len())).expect("a line").clone();
        lines.remove(&key);
        return;
    }
    let labels: Vec<&str> = (0..random.usize(1..5)).map(|_| LABELS[random.usize(0..LABELS.len())]).collect();
    let name = if random.u8(0..12) == 0 {
        // The owner of an NSEC3 record, as likely as not.
        let hash = crate::denial::hash(apex(&format!("a.{APEX}")).as_name());
        data_encoding::BASE32_DNSSEC.encode(&hash)
    } else {
        labels.join(".")
    };
    // Delegation points and DNAME records are rare.
    let (rtype, rdata) = RRSETS[if random.bool() { random.usize(0..RRSETS.len()) } else { random.usize(0..2) }];
    lines.insert((name.to_lowercase(), rtype), format!("{rdata}{}", random.u8(10..99)));
}

/// All records but the signatures, and the fields of the signatures that do not depend on the time.
fn without_signatures<'r>(records: impl Iterator<Item = Record<'r>>) -> Vec<String> {
    let text = |record: Record<'_>| {
        let signature = RrsigHead::read(record.rdata).filter(|_| record.rtype == Rtype::RRSIG);
        let rdata = match signature {
            Some((RrsigHead { type_covered, label_count, original_ttl_s, key_tag, .. }, _)) => {
                format!("{type_covered} {label_count} {original_ttl_s} {key_tag}")
            }
            None => sanderling_dns::rdata::PresentationFormat::new(record.rtype, record.rdata).to_string(),
        };
        format!("{} {} {} {rdata}", record.owner.to_lowercase().as_name(), record.ttl_s, record.rtype)
    };
    records.map(text).collect()
}

/// Checks each signature with the public key.
fn check_signatures(version: &ZoneVersion, keys: &KeysInUse, context: &str) {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
    let key = &keys.keys[0].key;
    for node in version.nodes() {
        for rdata in node.rrset(Rtype::RRSIG).into_iter().flat_map(|rrset| rrset.rdatas()) {
            let (head, rest) = RrsigHead::read(rdata).expect("the fields of a signature");
            let signer = Name::parse(rest).expect("a name");
            let fields_bytes = rdata.len() - rest.len() + signer.length_bytes();
            let mut input = rdata[..fields_bytes].to_vec();
            let rrset = node.rrset(head.type_covered).expect("it is covered");
            for covered in rrset.rdatas() {
                let owner = node.owner().to_lowercase();
                crate::signing_input::put_record(
                    owner.as_name(),
                    head.type_covered,
                    rrset.ttl_s(),
                    covered,
                    &mut input,
                );
            }
            let signature = &rdata[fields_bytes..];
            let verified = UnparsedPublicKey::new(&ED25519, &key.bytes).verify(&input, signature);
            assert!(verified.is_ok(), "{} {}: {context}", node.owner(), head.type_covered);
        }
    }
}

/// Makes signatures that are not valid, at no cost.
struct FreeSigner;

impl ZoneSigner for FreeSigner {
    fn sign(&mut self, inputs: &[SigningInput<'_>]) -> Result<Vec<Vec<u8>>, String> {
        Ok(vec![vec![0; 64]; inputs.len()])
    }
}

fn whole_job<'j>(
    (apex, keys): (Name<'j>, &'j KeysInUse),
    parameters: &'j SigningParameters,
    unsigned: &'j Records,
) -> SigningJob<'j> {
    SigningJob { apex, unsigned, previous: None, keys, parameters, now_unix_s: NOW }
}

#[test]
fn changed_zone_is_as_if_it_was_signed_as_a_whole() {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let apex = apex(APEX);
    let apex = apex.as_name();
    let mut whole_count = 0;
    for zone_index in 0..ZONE_COUNT {
        let mut signer = TestSigner::new(apex);
        let keys = signer.keys(Algorithm::Ed25519, &[KeyRole::Csk]);
        let parameters = SigningParameters {
            denial: if random.bool() { Denial::Nsec } else { Denial::Nsec3 },
            has_zonemd: random.u8(0..4) == 0,
            ..SigningParameters::default()
        };
        let mut lines = Lines::new();
        (0..random.usize(0..30)).for_each(|_| change_line(&mut lines, &mut random));
        let of_other_signer = if random.bool() { OF_OTHER_SIGNER } else { "" };
        let text = |lines: &Lines, serial| text(lines, serial) + of_other_signer;
        let unsigned = records(apex, &text(&lines, 7));
        let (keys, parameters) = (&keys, &parameters);
        let first = sign(&whole_job((apex, keys), parameters, &unsigned), &mut signer).expect("signed");
        let mut version = ZoneVersion::from(first.records);
        for change_index in 0..CHANGE_COUNT {
            let before = text(&lines, 0);
            (0..random.usize(1..6)).for_each(|_| change_line(&mut lines, &mut random));
            let serial = 20 + change_index as u32;
            let next = records(apex, &text(&lines, serial));
            let policy = SerialPolicy::Increment;
            let changes = RecordChanges::between(&version, &next, apex, policy, keys).expect("the keys are the same");
            let context = format!(
                "seed {seed}, zone {zone_index}, change {change_index}, {parameters:?}\n{before}then\n{}",
                text(&lines, 0)
            );
            let (keys, parameters) = (&keys, &parameters);
            let job = ChangeJob {
                apex,
                changes: &changes,
                renewed: &[],
                keys,
                parameters,
                now_unix_s: NOW + change_index as u64,
            };
            let old = version.to_records();
            // A signer that fails changes nothing.
            let failed = sign_change(&mut version, &job, &mut TestSigner::new(apex)).expect_err("the key is unknown");
            assert!(matches!(failed, SignError::Signer(_)), "{failed}: {context}");
            assert!(version.iter().eq(old.iter()), "{context}");
            let whole = sign(&whole_job((apex, keys), parameters, &next), &mut FreeSigner).expect("signed");
            match sign_change(&mut version, &job, &mut signer).expect("signed") {
                Some(change) => {
                    let (before, after) = (version_with(&old, &change), version.to_records());
                    assert!(before.iter().eq(after.iter()), "{context}");
                    assert_eq!((change.serial_before < change.serial, change.serial), (true, serial));
                }
                None => {
                    whole_count += 1;
                    version = ZoneVersion::from(
                        sign(&whole_job((apex, keys), parameters, &next), &mut signer).expect("signed").records,
                    );
                }
            }
            // The whole version has a serial of its own, and so another digest.
            let is_comparable = |text: &String| !text.contains(" ZONEMD ") || text.contains("RRSIG");
            let comparable = |texts: Vec<String>| -> Vec<String> {
                let without_serial =
                    |text: String| text.replace(&format!(" {} 3600", whole.serial), &format!(" {serial} 3600"));
                texts.into_iter().filter(is_comparable).map(without_serial).collect()
            };
            let found = comparable(without_signatures(version.iter()));
            assert_eq!(found, comparable(without_signatures(whole.records.iter())), "{context}");
            if parameters.has_zonemd {
                assert_eq!(zonemd::verify(&version.to_records(), apex), ZonemdResult::Verified, "{context}");
            }
            if change_index % 8 == 0 {
                check_signatures(&version, keys, &context);
            }
            if version.delta_name_count() > 40 {
                version = ZoneVersion::from(version.to_records());
            }
            assert!(
                RecordChanges::between(&version, &next, apex, policy, keys).expect("the keys are the same").is_empty(),
                "{context}"
            );
        }
    }
    assert!(whole_count < ZONE_COUNT * CHANGE_COUNT / 10, "{whole_count} changes were signed with the whole zone");
}

/// `records` with a change.
fn version_with(records: &Records, change: &SignedChange) -> Records {
    let mut out = RecordsBuilder::default();
    let is_kept = |record: &Record<'_>| !change.removed.iter().any(|it| it == *record);
    records.iter().filter(is_kept).chain(change.added.iter()).for_each(|record| out.push(record));
    out.finish()
}

#[test]
fn signatures_are_renewed_in_parts() {
    let apex = apex(APEX);
    let apex = apex.as_name();
    for denial in [Denial::Nsec, Denial::Nsec3] {
        let mut signer = TestSigner::new(apex);
        let keys = signer.keys(Algorithm::Ed25519, &[KeyRole::Csk]);
        let parameters = SigningParameters { denial, ..SigningParameters::default() };
        let hosts: String = (0..40).map(|index| format!("h{index} 60 A 192.0.2.1\n")).collect();
        let unsigned = records(apex, &format!("{}{hosts}", apex_lines(7)));
        let (keys, parameters, changes) = (&keys, &parameters, &RecordChanges::default());
        let job = SigningJob { apex, unsigned: &unsigned, previous: None, keys, parameters, now_unix_s: NOW };
        let first = sign(&job, &mut signer).expect("signed");
        let at = first.sign_again_at_unix_s.expect("it has signatures");
        let mut version = ZoneVersion::from(first.records);
        let none = due_signatures(&version, parameters, NOW);
        assert_eq!((none.names.len(), none.sign_again_at_unix_s), (0, Some(at)), "{denial:?}");
        let mut now_unix_s = at;
        let mut round_count = 0;
        while now_unix_s < NOW + u64::from(parameters.validity_s) {
            let due = due_signatures(&version, parameters, now_unix_s);
            assert!(due.sign_again_at_unix_s.is_none_or(|at| at > now_unix_s));
            for renewed in due.names.chunks(5) {
                let job = ChangeJob { apex, changes, renewed, keys, parameters, now_unix_s };
                let change = sign_change(&mut version, &job, &mut signer).expect("signed").expect("in part");
                assert!(change.made_count <= 2 * 5 + 1 && change.made_count > 0, "{}", change.made_count);
                round_count += 1;
            }
            let left = due_signatures(&version, parameters, now_unix_s);
            assert!(left.names.is_empty(), "{denial:?}: {}", left.names.len());
            now_unix_s = left.sign_again_at_unix_s.expect("it has signatures");
        }
        assert!(round_count > 8, "{round_count}");
        check_signatures(&version, keys, "renewed");
        let job = SigningJob { apex, unsigned: &unsigned, previous: None, keys, parameters, now_unix_s: NOW };
        let whole = sign(&job, &mut signer).expect("signed");
        let without_soa = |texts: Vec<String>| -> Vec<String> {
            texts.into_iter().filter(|text| !text.contains(" SOA ns.")).collect()
        };
        let found = without_soa(without_signatures(version.iter()));
        assert_eq!(found, without_soa(without_signatures(whole.records.iter())));
    }
}

#[test]
fn what_contradicts_the_version_is_an_error() {
    let apex = apex(APEX);
    let apex = apex.as_name();
    let mut signer = TestSigner::new(apex);
    let keys = signer.keys(Algorithm::Ed25519, &[KeyRole::Csk]);
    let parameters = SigningParameters::default();
    let unsigned = records(apex, &format!("{}a 60 A 192.0.2.1\n", apex_lines(7)));
    let (keys, parameters) = (&keys, &parameters);
    let job = SigningJob { apex, unsigned: &unsigned, previous: None, keys, parameters, now_unix_s: NOW };
    let mut version = ZoneVersion::from(sign(&job, &mut signer).expect("signed").records);
    let mut change = |removed: &str, added: &str, parameters: &SigningParameters| {
        let changes = RecordChanges { removed: records(apex, removed), added: records(apex, added) };
        let job = ChangeJob { apex, changes: &changes, renewed: &[], keys, parameters, now_unix_s: NOW };
        sign_change(&mut version, &job, &mut signer).map(|change| change.is_some())
    };
    let other_version = |owner: &str| Err(SignError::OtherVersion(owner.to_owned(), Rtype::A));
    assert_eq!(change("a 60 A 192.0.2.2\n", "", parameters), other_version("a.Zone.Example."));
    assert_eq!(change("b 60 A 192.0.2.2\n", "", parameters), other_version("b.Zone.Example."));
    // With other keys, other TTLs of the whole chain, or without a later serial, the zone is signed as a whole.
    assert_eq!(change("", OF_OTHER_SIGNER, parameters), Ok(false));
    assert_eq!(change("", "@ 300 SOA ns Admin 9 3600 600 86400 61\n", parameters), Ok(false));
    let keep = SigningParameters { serial_policy: SerialPolicy::Keep, ..parameters.clone() };
    assert_eq!(change("", "b 60 A 192.0.2.2\n", &keep), Ok(false));
    assert_eq!(change("a 60 A 192.0.2.1\n", "", parameters), Ok(true));
    let mut outside = RecordsBuilder::default();
    outside.push(Record { owner: Name::ROOT, rtype: Rtype::A, ttl_s: 60, rdata: &[192, 0, 2, 1] });
    let changes = RecordChanges { removed: Records::default(), added: outside.finish() };
    let job = ChangeJob { apex, changes: &changes, renewed: &[], keys, parameters, now_unix_s: NOW };
    let error = sign_change(&mut version, &job, &mut signer).expect_err("it is not in the zone");
    assert_eq!(error, SignError::OutOfZone(".".to_owned(), Rtype::A));
}
