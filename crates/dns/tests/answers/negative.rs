//! Negative answers (RFC 2308), and their RCODE after aliases (RFC 6604).

use super::check;

const ZONE: &str = "
    $ORIGIN example.
    $TTL 3600
    example. SOA ns h 7 7200 900 1209600 300
    example. NS ns
    ns A 192.0.2.53
    www A 192.0.2.1
    a.deep.name A 192.0.2.2
    to-missing CNAME missing
    to-nodata CNAME www
    to-empty CNAME deep.name
    far-to-missing CNAME to-missing
    out CNAME www.elsewhere.
";
const SOA: &str = "authority: example. 300 SOA ns.example. h.example. 7 7200 900 1209600 300";

fn check_negative(question: &str, head_and_answer: &str) {
    check(ZONE, question, &format!("{head_and_answer}\n{SOA}"));
}

#[test]
fn nxdomain_has_the_soa() {
    check_negative("missing.example. A", "NXDOMAIN aa");
    check_negative("missing.www.example. A", "NXDOMAIN aa");
    check_negative("a.b.c.d.e.f.g.h.i.j.example. A", "NXDOMAIN aa");
}

#[test]
fn nodata_has_the_soa() {
    check_negative("www.example. AAAA", "NOERROR aa");
    check_negative("example. A", "NOERROR aa");
    check_negative("www.example. TYPE65280", "NOERROR aa");
    check_negative("www.example. TYPE0", "NOERROR aa");
}

#[test]
fn empty_non_terminals_are_nodata_at_each_depth() {
    check_negative("deep.name.example. A", "NOERROR aa");
    check_negative("name.example. A", "NOERROR aa");
    check_negative("x.name.example. A", "NXDOMAIN aa");
    check_negative("x.deep.name.example. A", "NXDOMAIN aa");
    check_negative("x.a.deep.name.example. A", "NXDOMAIN aa");
}

#[test]
fn ttl_of_a_negative_answer_is_the_lower_of_two_rfc_2308_section_5() {
    let zone = |ttl: &str, minimum: &str| {
        format!(
            "$ORIGIN example.
            $TTL 3600
            example. {ttl} SOA ns h 7 7200 900 1209600 {minimum}
            example. NS ns
            ns A 192.0.2.53"
        )
    };
    for (ttl, minimum, expected) in [("60", "300", "60"), ("300", "60", "60"), ("0", "60", "0"), ("60", "0", "0")] {
        let soa = format!("SOA ns.example. h.example. 7 7200 900 1209600 {minimum}");
        check(&zone(ttl, minimum), "x.example. A", &format!("NXDOMAIN aa\nauthority: example. {expected} {soa}"));
        // An answer with the SOA has its own TTL.
        check(&zone(ttl, minimum), "example. SOA", &format!("NOERROR aa\nanswer: example. {ttl} {soa}"));
    }
}

#[test]
fn rcode_is_that_of_the_last_name_of_a_chain_rfc_6604() {
    check_negative(
        "to-missing.example. A",
        "NXDOMAIN aa
         answer: to-missing.example. 3600 CNAME missing.example.",
    );
    check_negative(
        "far-to-missing.example. A",
        "NXDOMAIN aa
         answer: far-to-missing.example. 3600 CNAME to-missing.example.
         answer: to-missing.example. 3600 CNAME missing.example.",
    );
    check_negative(
        "to-nodata.example. AAAA",
        "NOERROR aa
         answer: to-nodata.example. 3600 CNAME www.example.",
    );
    check_negative(
        "to-empty.example. AAAA",
        "NOERROR aa
         answer: to-empty.example. 3600 CNAME deep.name.example.",
    );
}

#[test]
fn cname_out_of_the_zone_has_no_authority_section() {
    check(ZONE, "out.example. A", "NOERROR aa\nanswer: out.example. 3600 CNAME www.elsewhere.");
}

#[test]
fn nxdomain_without_space_for_the_soa_is_truncated() {
    let label = "x".repeat(63);
    let long = format!("{label}.{label}.{label}.{}.example.", "y".repeat(50));
    let other = long.replace('x', "z").replace("y.", "w.");
    let zone = format!(
        "$ORIGIN example.
        $TTL 60
        example. SOA {long} {other} 1 2 3 4 5
        example. NS ns.elsewhere."
    );
    check(&zone, "missing.example. A", "NXDOMAIN aa tc");
    check(
        &zone,
        "missing.example. A +tcp",
        &format!("NXDOMAIN aa\nauthority: example. 5 SOA {long} {other} 1 2 3 4 5"),
    );
}
