//! RDATA of every type: from text to the bytes of its RFC, and back to text.

use super::{OTHER_TYPES, TYPES_ZONE, check, lines, parser, rdata_of};
use sanderling_dns::rdata::{self, PresentationFormat};
use sanderling_dns::zonefile::Entry;
use sanderling_dns::{Name, Rtype};
use std::collections::BTreeSet;

/// Checks the wire form, given as text of RFC 3597.
#[track_caller]
fn check_bytes(text: &str, expected: &str) {
    let text = format!("a 300 {text}\n");
    let mut parser = parser(text.as_bytes());
    match parser.next() {
        Some(Ok(Entry::Record(record))) => {
            let bytes = PresentationFormat::new(Rtype(65_280), record.rdata).to_string();
            assert_eq!(bytes, expected, "{text}");
        }
        other => panic!("{text}: {other:?}"),
    }
}

/// Checks the presentation format of RDATA.
#[track_caller]
fn check_print(rtype_and_text: &str, expected: &str) {
    check(format!("a {rtype_and_text}\n"), &[&format!("a.example. 300 {expected}")]);
}

#[test]
fn test_zones_have_every_type_with_fields() {
    let seen: BTreeSet<Rtype> = rdata_of(TYPES_ZONE).chain(rdata_of(OTHER_TYPES)).map(|(rtype, _)| rtype).collect();
    let is_missing = |&rtype: &Rtype| rdata::fields(rtype).is_some() && !seen.contains(&rtype);
    let missing: Vec<Rtype> = (0..=u16::MAX).map(Rtype).filter(is_missing).collect();
    assert_eq!(missing, []);
}

#[test]
fn printed_records_are_read_as_the_same() {
    for zone in [TYPES_ZONE, OTHER_TYPES] {
        let first = lines(zone);
        let again = lines(first.join("\n").as_bytes());
        assert_eq!(first, again);
    }
}

#[test]
fn wire_form_is_that_of_the_rfcs() {
    check_bytes("A 192.0.2.1", "\\# 4 C0000201");
    check_bytes("MX 10 b", "\\# 13 000A0162076578616D706C6500");
    // RFC 1876 has no example in wire form: this example is from BIND.
    check_bytes("LOC 42 21 54 N 71 06 18 W -24m 30m", "\\# 16 0033161389172DD070BE15F000988D20");
    // RFC 3123 §4.
    check_bytes("APL 1:192.168.32.0/21 !1:192.168.38.0/28", "\\# 14 00011503C0A82000011C83C0A826");
    // RFC 4034 §4.3, without the name.
    check_bytes(
        "CSYNC 66 3 A MX RRSIG NSEC TYPE1234",
        "\\# 43 0000004200030006400100000003041B000000000000000000000000000000000000000000000000000020",
    );
    // RFC 6742 §2.1.
    check_bytes("NID 10 0014:4fff:ff20:ee64", "\\# 10 000A00144FFFFF20EE64");
    // RFC 8005 §5: length of the tag, algorithm, length of the key.
    check_bytes("HIP 2 0011 AwEA .", "\\# 10 02020003001103010000");
    // RFC 8777 §4.2: the discovery bit is the highest bit of the byte with the type.
    check_bytes("AMTRELAY 10 1 1 203.0.113.15", "\\# 6 0A81CB00710F");
    check_bytes("WKS 192.0.2.1 tcp 0 7 8", "\\# 7 C0000201068180");
    check_bytes("NSEC3PARAM 1 0 12 aabb", "\\# 7 0100000C02AABB");
    check_bytes("EUI48 00-00-5e-00-53-2a", "\\# 6 00005E00532A");
    check_bytes("CAA 0 issue \"ca\"", "\\# 9 000569737375656361");
    check_bytes("URI 1 2 \"a\"", "\\# 5 0001000261");
}

#[test]
fn test_vectors_of_rfc_9460_appendix_d() {
    let name = "03666F6F076578616D706C6503636F6D00";
    let org = "03666F6F076578616D706C65036F726700";
    check_bytes("HTTPS 0 foo.example.com.", &format!("\\# 19 0000{name}"));
    check_bytes("SVCB 1 .", "\\# 3 000100");
    check_bytes("SVCB 16 foo.example.com. port=53", &format!("\\# 25 0010{name}000300020035"));
    check_bytes("SVCB 1 foo.example.com. key667=hello", &format!("\\# 28 0001{name}029B000568656C6C6F"));
    check_bytes(
        "SVCB 1 foo.example.com. key667=\"hello\\210qoo\"",
        &format!("\\# 32 0001{name}029B000968656C6C6FD2716F6F"),
    );
    check_bytes(
        "SVCB 1 foo.example.com. ( ipv6hint=\"2001:db8::1,2001:db8::53:1\" )",
        &format!("\\# 55 0001{name}0006002020010DB800000000000000000000000120010DB8000000000000000000530001"),
    );
    check_bytes(
        "SVCB 16 foo.example.org. (alpn=h2,h3-19 mandatory=ipv4hint,alpn ipv4hint=192.0.2.1)",
        &format!("\\# 48 0010{org}0000000400010004000100090268320568332D313900040004C0000201"),
    );
    for alpn in ["\"f\\\\\\\\oo\\\\,bar,h2\"", "f\\\\\\092oo\\092,bar,h2"] {
        check_bytes(
            &format!("SVCB 16 foo.example.org. alpn={alpn}"),
            &format!("\\# 35 0010{org}0001000C08665C6F6F2C626172026832"),
        );
    }
}

#[test]
fn other_spellings_are_printed_in_one_form() {
    check_print("DNSKEY 256 3 ECDSAP256SHA256 AAAA", "DNSKEY 256 3 13 AAAA");
    check_print(
        "DS 1 8 SHA-1 2BB183AF5F22588179A53B0A98631FAD1A292118",
        "DS 1 8 1 2BB183AF5F22588179A53B0A98631FAD1A292118",
    );
    check_print("LOC 1 N 0 W 0", "LOC 1 0 0.000 N 0 0 0.000 E 0.00m 1.00m 10000.00m 10.00m");
    check_print(
        "LOC 90 S 180 W -100000 0 90000000 0.01",
        "LOC 90 0 0.000 S 180 0 0.000 W -100000.00m 0.00m 90000000.00m 0.01m",
    );
    check_print("LOC 0 0 0.5 N 0 0 0.05 E 0.5m 1.5m", "LOC 0 0 0.500 N 0 0 0.050 E 0.50m 1.00m 10000.00m 10.00m");
    check_print("SOA . . 1 1m 1h 1d 1w", "SOA . . 1 60 3600 86400 604800");
    check_print(
        "RRSIG A 8 1 1h 1700000000 1600000000 1 . AA==",
        "RRSIG A 8 1 3600 20231114221320 20200913122640 1 . AA==",
    );
    check_print(
        "RRSIG A 8 1 3600 21220222132804 19691231235959 1 . AA==",
        "RRSIG A 8 1 3600 19860116065948 21060207062815 1 . AA==",
    );
    check_print("NSEC . TYPE1 MX A TYPE65535", "NSEC . A MX TYPE65535");
    check_print("NSAP-PTR b", "NSAP-PTR b.example.");
    check_print("NSAP 0X0.1.2.3", "NSAP 0x0123");
    check_print("IPSECKEY 10 3 0 b", "IPSECKEY 10 3 0 b.example.");
    check_print("HTTPS 1 . ohttp port=\"443\"", "HTTPS 1 . port=443 ohttp");
    check_print("CDNSKEY 0 3 0 AA==", "CDNSKEY 0 3 0 AA==");
}

#[test]
fn malformed_rdata_is_reported_and_printed_in_the_generic_form() {
    #[track_caller]
    fn check_malformed(rtype: Rtype, rdata: &[u8], field: &str, problem: &str) {
        let malformed = rdata::check(rtype, rdata).expect_err("the RDATA is malformed");
        assert_eq!((malformed.field, malformed.problem), (field, problem), "{rtype}");
        assert!(PresentationFormat::new(rtype, rdata).to_string().starts_with("\\# "), "{rtype}");
    }
    check_malformed(Rtype::A, &[1, 2, 3], "address", "the data ends too early");
    check_malformed(Rtype::A, &[1, 2, 3, 4, 5], "RDATA", "there are bytes after the last field");
    check_malformed(Rtype::MX, &[0, 1, 0xc0, 0x0c], "exchange", "not an uncompressed name");
    check_malformed(Rtype::TXT, &[], "text", "the data ends too early");
    check_malformed(Rtype::TXT, &[2, 0], "text", "the data ends too early");
    check_malformed(Rtype::DS, &[0, 1, 8, 2, 0], "digest", "a digest of type 2 (SHA-256) has 32 bytes");
    check_malformed(Rtype::DS, &[0, 1, 8, 9], "digest", "the field is empty");
    check_malformed(Rtype::NSEC3, &[1, 0, 0, 0, 0, 0], "next hashed name", "the field is empty");
    check_malformed(Rtype::NSEC, &[0, 0, 1, 0], "types", "a window of the bit map ends with a zero byte");
    check_malformed(Rtype::WKS, &[1, 2, 3, 4, 6, 1, 0], "services", "the bit map ends with a zero byte");
    check_malformed(Rtype::APL, &[0, 3, 0, 0], "prefixes", "the address family is neither 1 (IPv4) nor 2 (IPv6)");
    check_malformed(Rtype::APL, &[0, 1, 33, 0], "prefixes", "a prefix has the wrong length");
    check_malformed(Rtype::APL, &[0, 1, 8, 0x7f], "prefixes", "the data ends too early");
    check_malformed(Rtype::IPSECKEY, &[0, 4, 0], "gateway", "the type is out of range");
    check_malformed(Rtype::AMTRELAY, &[0, 0x81, 1, 2, 3], "relay", "the data ends too early");
    check_malformed(Rtype::HIP, &[0, 1, 0, 1, 2], "host identity", "tag or key is empty");
    check_malformed(Rtype::LOC, &[1; 16], "location", "the version is not 0");
    check_malformed(
        Rtype::LOC,
        &[0, 0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "location",
        "a size is not a digit and a power of ten",
    );
    check_malformed(Rtype::LOC, &[0; 16], "location", "latitude or longitude is out of range");
    check_malformed(Rtype::HTTPS, &[0, 1, 0, 0, 3, 0, 2, 0, 1, 0, 3, 0, 2, 0, 1], "parameters", "a key is repeated");
    check_malformed(
        Rtype::HTTPS,
        &[0, 1, 0, 0, 3, 0, 2, 0, 1, 0, 1, 0, 2, 1, b'a'],
        "parameters",
        "the keys are not in ascending order",
    );
    check_malformed(Rtype::HTTPS, &[0, 1, 0, 0, 3, 0, 2, 0], "parameters", "the last parameter is incomplete");
    check_malformed(
        Rtype::HTTPS,
        &[0, 1, 0, 0, 1, 0, 2, 2, b'a'],
        "parameters",
        "alpn is not a list of protocol identifiers",
    );
    check_malformed(Rtype::CAA, &[0, 0, b'a'], "property", "not a word of letters and digits");
    assert_eq!(rdata::check(Rtype(65_280), &[1, 2, 3]), Ok(()));
}

#[test]
fn target_is_the_host_for_the_additional_section() {
    let check = |text: &str, expected: Option<&str>| {
        let text = format!("a 300 {text}\n");
        let mut parser = parser(text.as_bytes());
        let Some(Ok(Entry::Record(record))) = parser.next() else { panic!("{text} is no record") };
        let target = rdata::target(record.rtype, record.rdata).map(|name: Name<'_>| name.to_string());
        assert_eq!(target.as_deref(), expected, "{text}");
    };
    check("NS b", Some("b.example."));
    check("MX 10 b", Some("b.example."));
    check("MX 0 .", None);
    check("SRV 1 2 3 b", Some("b.example."));
    check("SVCB 1 b port=1", Some("b.example."));
    check("HTTPS 1 . port=1", None);
    check("AFSDB 1 b", Some("b.example."));
    check("KX 1 b", Some("b.example."));
    check("CNAME b", None);
    check("A 192.0.2.1", None);
    assert_eq!(rdata::target(Rtype::MX, &[0]), None);
}
