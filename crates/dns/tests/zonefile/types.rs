//! Every type's RDATA: from text to the octets of its RFC, and back to text.

use super::{check, lines, parser, record_line};
use sanderling_dns::rdata::{self, PresentationFormat};
use sanderling_dns::zonefile::Entry;
use sanderling_dns::{Name, Rtype};

/// Every type in fields, as its RFC spells it.
const TYPES_ZONE: &[u8] = include_bytes!("../zones/types.zone");

/// Checks the wire form, given as text of RFC 3597.
#[track_caller]
fn check_octets(text: &str, expected: &str) {
    let text = format!("a 300 {text}\n");
    let mut parser = parser(text.as_bytes());
    match parser.next() {
        Some(Ok(Entry::Record(record))) => {
            let octets = PresentationFormat::new(Rtype(65_280), record.rdata).to_string();
            assert_eq!(octets, expected, "{text}");
        }
        other => panic!("{text}: {other:?}"),
    }
}

/// Checks what is printed for RDATA of `rtype`.
#[track_caller]
fn check_print(rtype_and_text: &str, expected: &str) {
    check(format!("a {rtype_and_text}\n"), &[&format!("a.example. 300 {expected}")]);
}

#[test]
fn every_type_of_the_table_stands_in_the_test_zone() {
    let mut seen = std::collections::BTreeSet::new();
    let mut parser = parser(TYPES_ZONE);
    while let Some(event) = parser.next() {
        match event {
            Ok(Entry::Record(record)) => {
                rdata::check(record.rtype, record.rdata).expect("what was read has the shape of its type");
                seen.insert(record.rtype);
            }
            other => panic!("{other:?}"),
        }
    }
    // These BIND 9.18 does not know, or not in fields, and so they are tested by themselves below.
    let elsewhere = [
        Rtype::MD,
        Rtype::MF,
        Rtype::CNAME,
        Rtype::SIG,
        Rtype::NSEC3PARAM,
        Rtype::HHIT,
        Rtype::BRID,
        Rtype::CLA,
        Rtype::IPN,
    ];
    let missing: Vec<Rtype> = (0..=u16::MAX)
        .map(Rtype)
        .filter(|&rtype| rdata::fields(rtype).is_some() && !seen.contains(&rtype) && !elsewhere.contains(&rtype))
        .collect();
    assert_eq!(missing, []);
}

#[test]
fn what_is_printed_is_read_again_as_the_same() {
    let first = lines(TYPES_ZONE);
    let again = lines(first.join("\n").as_bytes());
    assert_eq!(first, again);
}

#[test]
fn octets_of_the_rfcs() {
    check_octets("A 192.0.2.1", "\\# 4 C0000201");
    check_octets("MX 10 b", "\\# 13 000A0162076578616D706C6500");
    // RFC 1876 has no octets; these are those of BIND.
    check_octets("LOC 42 21 54 N 71 06 18 W -24m 30m", "\\# 16 0033161389172DD070BE15F000988D20");
    // RFC 3123 §4.
    check_octets("APL 1:192.168.32.0/21 !1:192.168.38.0/28", "\\# 14 00011503C0A82000011C83C0A826");
    // RFC 4034 §4.3, without the name.
    check_octets(
        "CSYNC 66 3 A MX RRSIG NSEC TYPE1234",
        "\\# 43 0000004200030006400100000003041B000000000000000000000000000000000000000000000000000020",
    );
    // RFC 6742 §2.1.
    check_octets("NID 10 0014:4fff:ff20:ee64", "\\# 10 000A00144FFFFF20EE64");
    // RFC 8005 §5: length of the tag, algorithm, length of the key.
    check_octets("HIP 2 0011 AwEA .", "\\# 10 02020003001103010000");
    // RFC 8777 §4.2: the discovery bit is the highest of the type's octet.
    check_octets("AMTRELAY 10 1 1 203.0.113.15", "\\# 6 0A81CB00710F");
    check_octets("WKS 192.0.2.1 tcp 0 7 8", "\\# 7 C0000201068180");
    check_octets("NSEC3PARAM 1 0 12 aabb", "\\# 7 0100000C02AABB");
    check_octets("EUI48 00-00-5e-00-53-2a", "\\# 6 00005E00532A");
    check_octets("CAA 0 issue \"ca\"", "\\# 9 000569737375656361");
    check_octets("URI 1 2 \"a\"", "\\# 5 0001000261");
}

#[test]
fn test_vectors_of_rfc_9460_appendix_d() {
    let name = "03666F6F076578616D706C6503636F6D00";
    let org = "03666F6F076578616D706C65036F726700";
    check_octets("HTTPS 0 foo.example.com.", &format!("\\# 19 0000{name}"));
    check_octets("SVCB 1 .", "\\# 3 000100");
    check_octets("SVCB 16 foo.example.com. port=53", &format!("\\# 25 0010{name}000300020035"));
    check_octets("SVCB 1 foo.example.com. key667=hello", &format!("\\# 28 0001{name}029B000568656C6C6F"));
    check_octets(
        "SVCB 1 foo.example.com. key667=\"hello\\210qoo\"",
        &format!("\\# 32 0001{name}029B000968656C6C6FD2716F6F"),
    );
    check_octets(
        "SVCB 1 foo.example.com. ( ipv6hint=\"2001:db8::1,2001:db8::53:1\" )",
        &format!("\\# 55 0001{name}0006002020010DB800000000000000000000000120010DB8000000000000000000530001"),
    );
    check_octets(
        "SVCB 16 foo.example.org. (alpn=h2,h3-19 mandatory=ipv4hint,alpn ipv4hint=192.0.2.1)",
        &format!("\\# 48 0010{org}0000000400010004000100090268320568332D313900040004C0000201"),
    );
    for alpn in ["\"f\\\\\\\\oo\\\\,bar,h2\"", "f\\\\\\092oo\\092,bar,h2"] {
        check_octets(
            &format!("SVCB 16 foo.example.org. alpn={alpn}"),
            &format!("\\# 35 0010{org}0001000C08665C6F6F2C626172026832"),
        );
    }
}

#[test]
fn spellings() {
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
    check_print("SIG A 8 1 1h 1700000000 1600000000 1 . AA==", "SIG A 8 1 3600 20231114221320 20200913122640 1 . AA==");
    check_print("NSEC . TYPE1 MX A TYPE65535", "NSEC . A MX TYPE65535");
    check_print("NSAP-PTR b", "NSAP-PTR b.example.");
    check_print("NSAP 0X0.1.2.3", "NSAP 0x0123");
    check_print("IPSECKEY 10 3 0 b", "IPSECKEY 10 3 0 b.example.");
    check_print("HTTPS 1 . ohttp port=\"443\"", "HTTPS 1 . port=443 ohttp");
    check_print("MD b", "MD b.example.");
    check_print("MF b", "MF b.example.");
    check_print("CNAME b", "CNAME b.example.");
    check_print("HHIT AAEC", "HHIT AAEC");
    check_print("BRID AAEC", "BRID AAEC");
    check_print("CLA b c", "CLA \"b\" \"c\"");
    check_print("IPN 18446744073709551615", "IPN 18446744073709551615");
    check_print("CDNSKEY 0 3 0 AA==", "CDNSKEY 0 3 0 AA==");
}

#[test]
fn octets_without_the_shape_of_their_type() {
    #[track_caller]
    fn check_shape(rtype: Rtype, octets: &[u8], field: &str, problem: &str) {
        let malformed = rdata::check(rtype, octets).expect_err("the octets are wrong");
        assert_eq!((malformed.field, malformed.problem), (field, problem), "{rtype}");
        assert!(PresentationFormat::new(rtype, octets).to_string().starts_with("\\# "), "{rtype}");
    }
    check_shape(Rtype::A, &[1, 2, 3], "address", "ends too early");
    check_shape(Rtype::A, &[1, 2, 3, 4, 5], "RDATA", "goes on behind its last field");
    check_shape(Rtype::MX, &[0, 1, 0xc0, 0x0c], "exchange", "is no uncompressed name");
    check_shape(Rtype::TXT, &[], "text", "ends too early");
    check_shape(Rtype::TXT, &[2, 0], "text", "ends too early");
    check_shape(Rtype::DS, &[0, 1, 8, 2, 0], "digest", "has not the length that its algorithm gives");
    check_shape(Rtype::DS, &[0, 1, 8, 9], "digest", "is empty");
    check_shape(Rtype::NSEC3, &[1, 0, 0, 0, 0, 0], "next hashed name", "is empty");
    check_shape(Rtype::NSEC, &[0, 0, 1, 0], "types", "has a window with zeros at its end");
    check_shape(Rtype::WKS, &[1, 2, 3, 4, 6, 1, 0], "services", "have zeros at the end of the map");
    check_shape(Rtype::APL, &[0, 3, 0, 0], "prefixes", "have an address family other than 1 (IPv4) and 2 (IPv6)");
    check_shape(Rtype::APL, &[0, 1, 33, 0], "prefixes", "have a prefix of the wrong length");
    check_shape(Rtype::APL, &[0, 1, 8, 0x7f], "prefixes", "ends too early");
    check_shape(Rtype::IPSECKEY, &[0, 4, 0], "gateway", "has a type other than 0 to 3");
    check_shape(Rtype::AMTRELAY, &[0, 0x81, 1, 2, 3], "relay", "ends too early");
    check_shape(Rtype::HIP, &[0, 1, 0, 1, 2], "host identity", "has an empty tag or key");
    check_shape(Rtype::LOC, &[1; 16], "location", "has a version that RFC 1876 does not know");
    check_shape(
        Rtype::LOC,
        &[0, 0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "location",
        "has a size that is no digit and power of ten",
    );
    check_shape(Rtype::LOC, &[0; 16], "location", "lies off the globe");
    check_shape(Rtype::HTTPS, &[0, 1, 0, 0, 3, 0, 2, 0, 1, 0, 3, 0, 2, 0, 1], "parameters", "have a key twice");
    check_shape(
        Rtype::HTTPS,
        &[0, 1, 0, 0, 3, 0, 2, 0, 1, 0, 1, 0, 2, 1, b'a'],
        "parameters",
        "have keys out of order",
    );
    check_shape(Rtype::HTTPS, &[0, 1, 0, 0, 3, 0, 2, 0], "parameters", "end within a parameter");
    check_shape(
        Rtype::HTTPS,
        &[0, 1, 0, 0, 1, 0, 2, 2, b'a'],
        "parameters",
        "have an alpn that is no list of protocols",
    );
    check_shape(Rtype::CAA, &[0, 0, b'a'], "property", "is not made of letters and digits");
    assert_eq!(rdata::check(Rtype(65_280), &[1, 2, 3]), Ok(()));
}

#[test]
fn names_that_may_be_compressed_are_those_of_rfc_1035() {
    let mut parser = parser(TYPES_ZONE);
    while let Some(Ok(Entry::Record(record))) = parser.next() {
        let offsets: Vec<usize> = rdata::compressible_names(record.rtype, record.rdata).collect();
        let expected: &[usize] = match record.rtype {
            Rtype::SOA => &[0, 12],
            Rtype::MINFO => &[0, 16],
            Rtype::NS | Rtype::PTR | Rtype::MB | Rtype::MG | Rtype::MR => &[0],
            Rtype::MX => &[2],
            _ => &[],
        };
        assert_eq!(offsets, expected, "{}", record_line(&record));
    }
}

#[test]
fn targets_are_hosts_whose_addresses_are_wanted() {
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
