//! The probes of RFC 8906 §8, which operators use to find servers that answer incorrectly: each as in the RFC, with
//! `dig`.

use crate::domain::{Domain, ZONE};
use sanderling_testkit::dig_udp;

/// Sends the queries, and checks that the replies have these parts in the lines that `dig` prints, and none of the
/// others.
#[track_caller]
fn check(domain: &Domain, options: &str, expected: &[&str], unexpected: &[&str]) {
    let arguments: Vec<&str> = options.split_whitespace().collect();
    let reply = dig_udp(domain.server.dns(), &arguments);
    let text = reply.text();
    expected.iter().for_each(|part| assert!(text.contains(part), "{options}: {part:?} is missing: {text}"));
    unexpected.iter().for_each(|part| assert!(!text.contains(part), "{options}: {part:?}: {text}"));
}

const SOA: &str = "\tSOA\t";
const AA: &str = "flags: qr aa;";

#[test]
fn probes_of_rfc_8906_section_8_1_are_answered() {
    let domain = Domain::with_zone(ZONE);
    let noerror = ["status: NOERROR", SOA, AA];
    check(&domain, "+noedns +noad +norec soa example.com", &noerror, &["EDNS", "MBZ"]);
    let nodata = ["status: NOERROR", AA, "ANSWER: 0"];
    check(&domain, "+noedns +noad +norec type1000 example.com", &nodata, &["EDNS"]);
    check(&domain, "+noedns +noad +norec +cd soa example.com", &["status: NOERROR", SOA, " aa"], &["EDNS"]);
    check(&domain, "+noedns +norec +ad soa example.com", &["status: NOERROR", SOA, " aa"], &["EDNS", " ad"]);
    check(&domain, "+noedns +noad +norec +zflag soa example.com", &["status: NOERROR", SOA, " aa"], &["EDNS", "MBZ"]);
    check(&domain, "+noedns +noad +rec soa example.com", &["status: NOERROR", SOA, " aa rd"], &["EDNS", " ra"]);
    check(
        &domain,
        "+noedns +noad +opcode=15 +norec +header-only",
        &["status: NOTIMP", "opcode: RESERVED15", "QUERY: 0, ANSWER: 0, AUTHORITY: 0, ADDITIONAL: 0"],
        &[SOA, " aa"],
    );
    check(&domain, "+noedns +noad +norec +tcp soa example.com", &noerror, &["EDNS"]);
}

#[test]
fn probes_of_rfc_8906_section_8_2_are_answered() {
    let domain = Domain::with_zone(ZONE);
    let noerror = ["status: NOERROR", SOA, AA, "EDNS: version: 0"];
    let badvers = ["status: BADVERS", "EDNS: version: 0"];
    let of = |options: &str| format!("+nocookie +noad +norec {options} example.com");
    check(&domain, &of("+edns=0 soa"), &noerror, &[]);
    check(&domain, &of("+edns=1 +noednsneg soa"), &badvers, &[SOA]);
    check(&domain, &of("+edns=0 +ednsopt=100 soa"), &noerror, &["OPT=100"]);
    check(&domain, &of("+edns=0 +ednsflags=0x40 soa"), &noerror, &["MBZ"]);
    check(&domain, &of("+edns=1 +noednsneg +ednsflags=0x40 soa"), &badvers, &[SOA, "MBZ"]);
    check(&domain, &of("+edns=1 +noednsneg +ednsopt=100 soa"), &badvers, &[SOA, "OPT=100"]);
    check(
        &domain,
        &of("+dnssec +bufsize=512 +ignore dnskey"),
        &["status: NOERROR", "EDNS: version: 0, flags: do"],
        &[],
    );
    check(&domain, &of("+edns=0 +dnssec soa"), &["status: NOERROR", SOA, "EDNS: version: 0, flags: do"], &[]);
    check(&domain, &of("+edns=1 +noednsneg +dnssec soa"), &["status: BADVERS", "EDNS: version: 0, flags: do"], &[SOA]);
    let options = "+edns=0 +noad +norec +cookie +nsid +expire +subnet=0.0.0.0/0 soa example.com";
    check(&domain, options, &noerror, &[]);
}
