//! DNAME (RFC 6672): substitutions, YXDOMAIN, and records beside and below a DNAME.

use super::check;
use super::support::exchange::ask;
use super::support::question::Question;
use super::support::zone_text::zone_map;

/// A root zone with `record`.
fn zone(apex: &str, records: &str) -> String {
    format!("$ORIGIN {apex}\n$TTL 60\n{apex} SOA ns.a. h.a. 1 2 3 4 5\n{apex} NS ns.a.\n{records}\n")
}

/// Checks a row of RFC 6672 §2.2, table 1. The result is `None` for no match.
#[track_caller]
fn check_substitution(name: &str, owner: &str, target: &str, result: Option<&str>) {
    let apex = owner.rsplit('.').nth(1).expect("a label before the root").to_owned() + ".";
    let zones = zone_map(&zone(&apex, &format!("{owner} DNAME {target}")));
    let reply = ask(&zones, &Question::parse(&format!("{name} A +tcp")));
    let made = reply.sections[0].get(..2).map(|records| [records[0].to_string(), records[1].to_string()]);
    let expected = result.map(|result| [format!("{owner} 60 DNAME {target}"), format!("{name} 60 CNAME {result}")]);
    assert_eq!(made, expected, "{name}\n{reply}");
}

#[test]
fn dname_substitutions_of_rfc_6672_table_1() {
    check_substitution("com.", "example.com.", "example.net.", None);
    check_substitution("example.com.", "example.com.", "example.net.", None);
    check_substitution("a.example.com.", "example.com.", "example.net.", Some("a.example.net."));
    check_substitution("a.b.example.com.", "example.com.", "example.net.", Some("a.b.example.net."));
    check_substitution("ab.example.com.", "b.example.com.", "example.net.", None);
    check_substitution("foo.example.com.", "example.com.", "example.net.", Some("foo.example.net."));
    check_substitution("a.x.example.com.", "x.example.com.", "example.net.", Some("a.example.net."));
    check_substitution("a.example.com.", "example.com.", "y.example.net.", Some("a.y.example.net."));
    check_substitution("cyc.example.com.", "example.com.", "example.com.", Some("cyc.example.com."));
    check_substitution("cyc.example.com.", "example.com.", "c.example.com.", Some("cyc.c.example.com."));
    check_substitution("shortloop.x.x.", "x.", ".", Some("shortloop.x."));
    check_substitution("shortloop.x.", "x.", ".", Some("shortloop."));
}

#[test]
fn dname_keeps_the_case_of_qname() {
    check(
        &zone("example.", "d.example. DNAME T.elsewhere."),
        "WwW.D.example. A",
        "NOERROR aa
         answer: d.example. 60 DNAME T.elsewhere.
         answer: WwW.D.example. 60 CNAME WwW.T.elsewhere.",
    );
}

#[test]
fn dname_is_written_once_if_it_is_used_twice() {
    check(
        &zone("x.", "x. DNAME ."),
        "a.x.x.x. A",
        "NOERROR aa
         answer: x. 60 DNAME .
         answer: a.x.x.x. 60 CNAME a.x.x.
         answer: a.x.x. 60 CNAME a.x.
         answer: a.x. 60 CNAME a.",
    );
}

#[test]
fn dname_to_itself_is_written_once() {
    check(
        &zone("example.", "d.example. DNAME d.example."),
        "x.d.example. A",
        "NOERROR aa
         answer: d.example. 60 DNAME d.example.
         answer: x.d.example. 60 CNAME x.d.example.",
    );
}

#[test]
fn growing_name_ends_in_yxdomain_or_at_the_chain_limit() {
    let long = "y".repeat(60);
    let zones = zone_map(&zone("example.", &format!("d.example. DNAME {long}.d.example.")));
    let reply = ask(&zones, &Question::parse("x.d.example. A +tcp"));
    // Three times 61 bytes fit, the fourth does not.
    assert_eq!((reply.rcode, reply.sections[0].len()), (6, 1 + 3), "{reply}");
    let zones = zone_map(&zone("example.", "d.example. DNAME a.d.example."));
    let reply = ask(&zones, &Question::parse("x.d.example. A +tcp"));
    assert_eq!((reply.rcode, reply.sections[0].len()), (0, 1 + 16), "{reply}");
}

#[test]
fn dname_with_too_long_result_is_yxdomain_rfc_6672_section_2_2() {
    let (label, shorter) = ("y".repeat(63), "z".repeat(58));
    let zone = zone("example.", &format!("d.example. DNAME {label}.{label}.{label}.example."));
    let fits = format!("{}.d.example. A", &shorter[..52]);
    let reply = ask(&zone_map(&zone), &Question::parse(&format!("{fits} +tcp")));
    assert_eq!((reply.rcode, reply.sections[0].len(), reply.sections[0][1].rdata.len()), (3, 2, 254));
    check(
        &zone,
        &format!("{}.d.example. A", &shorter[..54]),
        &format!("YXDOMAIN aa\nanswer: d.example. 60 DNAME {label}.{label}.{label}.example."),
    );
}

#[test]
fn dname_does_not_redirect_its_owner_rfc_6672_section_2_3() {
    let zone = zone("example.", "d.example. DNAME t.example.\nd.example. A 192.0.2.1");
    check(&zone, "d.example. A", "NOERROR aa\nanswer: d.example. 60 A 192.0.2.1");
    check(&zone, "d.example. DNAME", "NOERROR aa\nanswer: d.example. 60 DNAME t.example.");
    check(&zone, "d.example. MX", "NOERROR aa\nauthority: example. 5 SOA ns.a. h.a. 1 2 3 4 5");
}

#[test]
fn names_below_a_dname_are_hidden_rfc_6672_section_2_4() {
    let records = "d.example. DNAME t.example.
        x.d.example. A 192.0.2.1
        *.d.example. A 192.0.2.2
        cut.d.example. NS ns.a.
        e.x.d.example. DNAME elsewhere.
        x.t.example. A 192.0.2.3
        y.x.t.example. A 192.0.2.4";
    let zone = zone("example.", records);
    for (kept, address) in [("x", "192.0.2.3"), ("y.x", "192.0.2.4")] {
        check(
            &zone,
            &format!("{kept}.d.example. A"),
            &format!(
                "NOERROR aa
                 answer: d.example. 60 DNAME t.example.
                 answer: {kept}.d.example. 60 CNAME {kept}.t.example.
                 answer: {kept}.t.example. 60 A {address}"
            ),
        );
    }
    for hidden in ["*", "cut", "a.cut", "e.x", "a.e.x"] {
        check(
            &zone,
            &format!("{hidden}.d.example. TXT"),
            &format!(
                "NXDOMAIN aa
                 answer: d.example. 60 DNAME t.example.
                 answer: {hidden}.d.example. 60 CNAME {hidden}.t.example.
                 authority: example. 5 SOA ns.a. h.a. 1 2 3 4 5"
            ),
        );
    }
}

#[test]
fn synthesized_cname_is_not_followed_for_qtype_cname() {
    // The target does not exist, but the CNAME does.
    check(
        &zone("example.", "d.example. DNAME t.example."),
        "x.d.example. CNAME",
        "NOERROR aa
         answer: d.example. 60 DNAME t.example.
         answer: x.d.example. 60 CNAME x.t.example.",
    );
}

#[test]
fn delegation_at_or_above_a_dname_takes_precedence() {
    let zone =
        zone("example.", "cut.example. NS ns.a.\ncut.example. DNAME t.example.\nd.cut.example. DNAME t.example.");
    for name in ["x.cut.example.", "x.d.cut.example.", "cut.example."] {
        check(&zone, &format!("{name} A"), "NOERROR\nauthority: cut.example. 60 NS ns.a.");
    }
}

#[test]
fn chain_of_cname_and_dname_in_either_order() {
    let zone = zone(
        "example.",
        "d.example. DNAME t.example.\nalias.example. CNAME w.d.example.\nw.t.example. CNAME www.example.\n\
         www.example. A 192.0.2.1",
    );
    check(
        &zone,
        "alias.example. A",
        "NOERROR aa
         answer: alias.example. 60 CNAME w.d.example.
         answer: d.example. 60 DNAME t.example.
         answer: w.d.example. 60 CNAME w.t.example.
         answer: w.t.example. 60 CNAME www.example.
         answer: www.example. 60 A 192.0.2.1",
    );
}

#[test]
fn dname_at_the_apex_redirects_all_names_below() {
    let zone = zone("example.", "example. DNAME elsewhere.");
    check(&zone, "example. NS", "NOERROR aa\nanswer: example. 60 NS ns.a.");
    check(
        &zone,
        "a.b.example. MX",
        "NOERROR aa
         answer: example. 60 DNAME elsewhere.
         answer: a.b.example. 60 CNAME a.b.elsewhere.",
    );
}

#[test]
fn loop_through_dnames_is_written_once() {
    let zone =
        zone("example.", "d.example. DNAME e.example.\ne.example. DNAME d.example.\nf.example. CNAME x.d.example.");
    let both = "answer: d.example. 60 DNAME e.example.
        answer: x.d.example. 60 CNAME x.e.example.
        answer: e.example. 60 DNAME d.example.
        answer: x.e.example. 60 CNAME x.d.example.";
    check(&zone, "x.d.example. A", &format!("NOERROR aa\n{both}"));
    check(&zone, "f.example. A", &format!("NOERROR aa\nanswer: f.example. 60 CNAME x.d.example.\n{both}"));
}

#[test]
fn dname_that_leads_to_its_own_owner_is_written_once() {
    check(
        &zone("example.", "d.example. DNAME t.example.\nx.t.example. CNAME d.example."),
        "x.d.example. DNAME",
        "NOERROR aa
         answer: d.example. 60 DNAME t.example.
         answer: x.d.example. 60 CNAME x.t.example.
         answer: x.t.example. 60 CNAME d.example.",
    );
}
