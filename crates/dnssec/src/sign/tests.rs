//! Small zones, and random zones that the validators of BIND, ldns and Knot accept.

use super::*;
use crate::key::{Algorithm, KeyRole};
use crate::records::Record;
use crate::testing::{TestSigner, apex, records};
use crate::zonemd::{self, ZonemdResult};
use std::collections::{BTreeMap, HashSet};

const NOW: u64 = 1_795_449_600;
const SOA: &str = "@ 600 SOA ns.example. admin.example. 5 7200 900 604800 300\n@ 600 NS ns\nns 600 A 192.0.2.1\n";

fn sign_text(text: &str, parameters: &SigningParameters) -> SignedZone {
    let apex = apex("example.");
    let mut signer = TestSigner::new(apex.as_name());
    let keys = signer.keys(Algorithm::Ed25519, &[KeyRole::Csk]);
    let unsigned = records(apex.as_name(), text);
    sign(&job(apex.as_name(), &unsigned, None, &keys, parameters, NOW), &mut signer).expect("it can be signed")
}

fn job<'j>(
    apex: Name<'j>,
    unsigned: &'j Records,
    previous: Option<&'j Records>,
    keys: &'j KeysInUse,
    parameters: &'j SigningParameters,
    now_unix_s: u64,
) -> SigningJob<'j> {
    SigningJob { apex, unsigned, previous, keys, parameters, now_unix_s }
}

fn with_denial(denial: Denial) -> SigningParameters {
    SigningParameters { denial, ..SigningParameters::default() }
}

/// The records of one type as text: owner and RDATA.
fn of_type(zone: &SignedZone, rtype: Rtype) -> Vec<String> {
    let text = |record: Record<'_>| {
        let rdata = sanderling_dns::rdata::PresentationFormat::new(rtype, record.rdata);
        format!("{} {rdata}", record.owner)
    };
    zone.records.iter().filter(|record| record.rtype == rtype).map(text).collect()
}

/// Owner and type of each signature.
fn signed_rrsets(zone: &SignedZone) -> Vec<String> {
    of_type(zone, Rtype::RRSIG).iter().map(|text| text.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

const ZONE: &str = "*.w 60 TXT x\na.b.c 60 A 192.0.2.2\nd 60 NS ns.d\nd 60 A 192.0.2.9\nns.d 60 A 192.0.2.3\ns 60 NS ns.s\n\
    s 60 DS 1 13 2 0000000000000000000000000000000000000000000000000000000000000000\nx.s 60 TXT hidden\n\
    n 60 DNAME example.org.\nx.n 60 TXT hidden\n";

#[test]
fn nsec_chain_shows_what_the_zone_is_authoritative_for() {
    let zone = sign_text(&format!("{SOA}{ZONE}"), &SigningParameters::default());
    let expected = [
        "example. a.b.c.example. NS SOA RRSIG NSEC DNSKEY",
        "a.b.c.example. d.example. A RRSIG NSEC",
        "d.example. n.example. NS RRSIG NSEC",
        "n.example. ns.example. DNAME RRSIG NSEC",
        "ns.example. s.example. A RRSIG NSEC",
        "s.example. *.w.example. NS DS RRSIG NSEC",
        "*.w.example. example. TXT RRSIG NSEC",
    ];
    assert_eq!(of_type(&zone, Rtype::NSEC), expected);
    let expected = [
        "example. NS",
        "example. SOA",
        "example. NSEC",
        "example. DNSKEY",
        "a.b.c.example. A",
        "a.b.c.example. NSEC",
        "d.example. NSEC",
        "n.example. DNAME",
        "n.example. NSEC",
        "ns.example. A",
        "ns.example. NSEC",
        "s.example. DS",
        "s.example. NSEC",
        "*.w.example. TXT",
        "*.w.example. NSEC",
    ];
    assert_eq!(signed_rrsets(&zone), expected);
    assert_eq!(zone.made_count, expected.len());
    assert_eq!(zone.ttls, ZoneTtls { dnskey_s: 3600, longest_s: 3600 });
    // RFC 4034 §3.1.3: neither the root nor the wildcard counts.
    let wildcard =
        of_type(&zone, Rtype::RRSIG).into_iter().find(|text| text.starts_with("*.w.example. TXT")).expect("it");
    assert_eq!(wildcard.split(' ').nth(3), Some("2"));
}

#[test]
fn records_of_keys_at_other_names_than_the_apex_are_data() {
    let apex = apex("example.");
    let apex = apex.as_name();
    let mut signer = TestSigner::new(apex);
    let keys = signer.keys(Algorithm::Ed25519, &[KeyRole::Ksk, KeyRole::Zsk]);
    let zonemd = format!("ZONEMD 5 1 1 {}", "00".repeat(48));
    // RFC 9615: what announces the keys of another zone.
    let other = "_dsboot.example.co._signal.ns";
    let data = format!(
        "{other} 60 CDS 1 13 2 {0}\n{other} 60 CDNSKEY 257 3 15 {1}\nk 60 DNSKEY 256 3 15 {1}\nk 60 {zonemd}\nk 60 NSEC3PARAM 1 0 0 -\n",
        "00".repeat(32),
        "l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4="
    );
    let unsigned = records(apex, &format!("{SOA}@ 600 {zonemd}\n{data}"));
    let parameters = SigningParameters::default();
    let zone = sign(&job(apex, &unsigned, None, &keys, &parameters, NOW), &mut signer).expect("it can be signed");
    let [ksk, zsk] = [0, 1].map(|index| keys.keys[index].key.tag().to_string());
    let signature_of = |rrset: &str| {
        let signatures = of_type(&zone, Rtype::RRSIG);
        let of_rrset: Vec<&String> = signatures.iter().filter(|text| text.starts_with(&format!("{rrset} "))).collect();
        assert_eq!(of_rrset.len(), 1, "{rrset}: {of_rrset:?}");
        of_rrset[0].split(' ').nth(7).expect("the tag").to_owned()
    };
    assert_eq!(signature_of("example. DNSKEY"), ksk);
    for (owner, rtype) in [(other, "CDS"), (other, "CDNSKEY"), ("k", "DNSKEY"), ("k", "ZONEMD"), ("k", "NSEC3PARAM")] {
        assert_eq!(signature_of(&format!("{owner}.example. {rtype}")), zsk, "{owner} {rtype}");
    }
    assert_eq!(of_type(&zone, Rtype::ZONEMD).len(), 1, "that of the apex is made here, or absent");
    let again = job(apex, &unsigned, Some(&zone.records), &keys, &parameters, NOW + 60);
    assert!(!sign(&again, &mut signer).expect("it can be signed").is_changed);
}

#[test]
fn nsec3_chain_has_empty_non_terminals() {
    let zone = sign_text(&format!("{SOA}{ZONE}"), &with_denial(Denial::Nsec3));
    let by_hash: BTreeMap<String, String> = of_type(&zone, Rtype::NSEC3)
        .iter()
        .map(|text| {
            let fields: Vec<&str> = text.split(' ').collect();
            assert_eq!(fields[1..5], ["1", "0", "0", "-"]);
            (fields[0].split('.').next().expect("a label").to_owned(), fields[6..].join(" "))
        })
        .collect();
    let expected = [
        ("example.", "NS SOA RRSIG DNSKEY NSEC3PARAM"),
        ("c.example.", ""),
        ("b.c.example.", ""),
        ("a.b.c.example.", "A RRSIG"),
        ("d.example.", "NS"),
        ("n.example.", "DNAME RRSIG"),
        ("ns.example.", "A RRSIG"),
        ("s.example.", "NS DS RRSIG"),
        ("w.example.", ""),
        ("*.w.example.", "TXT RRSIG"),
    ];
    let hash = |name: &str| {
        let hash = crate::denial::hash(apex(name).as_name());
        data_encoding::BASE32_DNSSEC.encode(&hash)
    };
    assert_eq!(by_hash, expected.iter().map(|(name, types)| (hash(name), (*types).to_owned())).collect());
    assert_eq!(of_type(&zone, Rtype::NSEC3PARAM), ["example. 1 0 0 -"]);
}

#[test]
fn signatures_of_unchanged_records_are_kept_until_they_are_due() {
    let apex = apex("example.");
    let apex = apex.as_name();
    let mut signer = TestSigner::new(apex);
    let keys = signer.keys(Algorithm::Ed25519, &[KeyRole::Csk]);
    for denial in [Denial::Nsec, Denial::Nsec3] {
        let parameters = SigningParameters { has_zonemd: true, ..with_denial(denial) };
        let unsigned = records(apex, &format!("{SOA}{ZONE}"));
        let first = sign(&job(apex, &unsigned, None, &keys, &parameters, NOW), &mut signer).expect("signed");
        assert_eq!((first.serial, first.is_changed, first.kept_count), (6, true, 0));
        assert_eq!(zonemd::verify(&first.records, apex), ZonemdResult::Verified);
        let mut again = |unsigned: &Records, keys: &KeysInUse, parameters: &SigningParameters, now_unix_s| {
            sign(&job(apex, unsigned, Some(&first.records), keys, parameters, now_unix_s), &mut signer).expect("signed")
        };
        let same = again(&unsigned, &keys, &parameters, NOW + 60);
        assert_eq!((same.serial, same.is_changed, same.made_count), (6, false, 0), "{denial:?}");
        assert!(same.records.iter().eq(first.records.iter()));
        assert_eq!(same.sign_again_at_unix_s, first.sign_again_at_unix_s);
        let due = first.sign_again_at_unix_s.expect("it has signatures");
        assert!(due > NOW + 5 * 24 * 3600 && due <= NOW + 7 * 24 * 3600);
        let refreshed = again(&unsigned, &keys, &parameters, due);
        assert!(refreshed.is_changed && refreshed.serial == 7 && refreshed.made_count > 0, "{denial:?}");
        assert!(refreshed.sign_again_at_unix_s > Some(due));
        // Another address, with the SOA and the digest.
        let changed = records(apex, &format!("{SOA}{ZONE}").replace("192.0.2.1\n", "192.0.2.77\n"));
        let changed = again(&changed, &keys, &parameters, NOW + 60);
        assert_eq!((changed.serial, changed.is_changed, changed.made_count), (7, true, 3), "{denial:?}");
        assert_eq!(zonemd::verify(&changed.records, apex), ZonemdResult::Verified);
        // A record less: the chain too.
        let fewer = again(&records(apex, SOA), &keys, &parameters, NOW + 60);
        assert!(fewer.is_changed && fewer.made_count > 3 && fewer.serial == 7);
        // A later serial alone.
        let later =
            again(&records(apex, &format!("{SOA}{ZONE}").replace(" 5 7200", " 9 7200")), &keys, &parameters, NOW + 60);
        assert_eq!((later.serial, later.is_changed, later.made_count), (9, true, 2));
        let without = SigningParameters { has_zonemd: false, ..parameters.clone() };
        let without = again(&unsigned, &keys, &without, NOW + 60);
        assert!(without.is_changed && of_type(&without, Rtype::ZONEMD).is_empty());
        // Without keys, the zone is unsigned.
        let unsigned_again = again(&unsigned, &KeysInUse::default(), &parameters, NOW + 60);
        let made = [Rtype::RRSIG, Rtype::NSEC, Rtype::NSEC3, Rtype::NSEC3PARAM, Rtype::DNSKEY];
        assert!(made.iter().all(|&rtype| of_type(&unsigned_again, rtype).is_empty()));
        assert!(unsigned_again.is_changed && unsigned_again.sign_again_at_unix_s.is_none());
    }
}

#[test]
fn keys_sign_what_their_roles_say_and_foreign_keys_stay() {
    let apex = apex("example.");
    let apex = apex.as_name();
    let mut signer = TestSigner::new(apex);
    let keys = signer.keys(Algorithm::EcdsaP256, &[KeyRole::Ksk, KeyRole::Zsk]);
    let foreign = "@ 60 DNSKEY 257 3 15 l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4=\n@ 60 RRSIG A 1 1 1 1 1 1 x. AAAA\n\
        @ 60 NSEC x. A\n@ 60 ZONEMD 1 1 1 c68090d90a7aed716bc459f9340e3d7c1370d4d24b7e2fc3a1ddc0b9a87153b9a9713b3c9ae5cc27777f98b8e730044c\n";
    let unsigned = records(apex, &format!("{SOA}{foreign}"));
    let parameters = SigningParameters::default();
    let zone = sign(&job(apex, &unsigned, None, &keys, &parameters, NOW), &mut signer).expect("signed");
    assert_eq!(of_type(&zone, Rtype::DNSKEY).len(), 3);
    assert!(of_type(&zone, Rtype::ZONEMD).is_empty());
    let tags: Vec<String> = keys.keys.iter().map(|it| it.key.tag().to_string()).collect();
    for signature in of_type(&zone, Rtype::RRSIG) {
        let fields: Vec<&str> = signature.split(' ').collect();
        assert_eq!(fields[7] == tags[0], fields[1] == "DNSKEY", "{signature}");
    }
    // The zone signing key alone is replaced: signatures of keys stay, except that there is one key more.
    let mut more = keys.clone();
    let new = signer.make_key(Algorithm::EcdsaP256, KeyRole::Zsk);
    more.keys.push(KeyInUse { key: new, is_published: true, signs_keys: false, signs_zone: false });
    let next =
        sign(&job(apex, &unsigned, Some(&zone.records), &more, &parameters, NOW + 9), &mut signer).expect("signed");
    assert_eq!(next.made_count, 2, "DNSKEY and SOA");
}

#[test]
fn what_cannot_be_signed_is_an_error() {
    let apex_name = apex("example.");
    let apex_name = apex_name.as_name();
    let mut signer = TestSigner::new(apex_name);
    let keys = signer.keys(Algorithm::Ed25519, &[KeyRole::Csk]);
    let good = SigningParameters::default();
    let mut check = |apex: Name<'_>, text: &str, keys: &KeysInUse, parameters: &SigningParameters| {
        let unsigned = records(apex_name, text);
        sign(&job(apex, &unsigned, None, keys, parameters, NOW), &mut signer).map(|_| ()).expect_err("an error")
    };
    assert_eq!(check(apex_name, "@ 60 NS ns\n", &keys, &good), SignError::NoSoa);
    let error = check(apex("x.example.").as_name(), "x 60 SOA a b 1 1 1 1 1\ny 60 A 192.0.2.1\n", &keys, &good);
    assert_eq!(error, SignError::OutOfZone("y.example.".into(), Rtype::A));
    let short = SigningParameters { refresh_s: 13 * 24 * 3600, ..good.clone() };
    assert_eq!(check(apex_name, SOA, &keys, &short), SignError::Parameters);
    let long = SigningParameters { validity_s: 366 * 24 * 3600, ..good.clone() };
    assert_eq!(check(apex_name, SOA, &keys, &long), SignError::Parameters);
    let mut other = TestSigner::new(apex_name);
    let unknown = other.keys(Algorithm::Ed25519, &[KeyRole::Csk]);
    assert_eq!(check(apex_name, SOA, &unknown, &good), SignError::Signer("the key is unknown".into()));
}

#[test]
fn many_signatures_are_made_in_batches() {
    let apex = apex("example.");
    let mut signer = TestSigner::new(apex.as_name());
    let keys = signer.keys(Algorithm::Ed25519, &[KeyRole::Csk]);
    let hosts: String = (0..1000).map(|index| format!("h{index} 60 A 192.0.2.1\n")).collect();
    let unsigned = records(apex.as_name(), &format!("{SOA}{hosts}"));
    let parameters = SigningParameters::default();
    let zone = sign(&job(apex.as_name(), &unsigned, None, &keys, &parameters, NOW), &mut signer).expect("signed");
    assert_eq!(zone.made_count, 2006);
    assert!(signer.batch_count < 12, "{}", signer.batch_count);
    let expirations: HashSet<String> =
        of_type(&zone, Rtype::RRSIG).iter().filter_map(|text| text.split(' ').nth(5).map(str::to_owned)).collect();
    assert!(expirations.len() > 500, "signatures do not end together");
}
