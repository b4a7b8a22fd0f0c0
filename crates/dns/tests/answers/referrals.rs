//! Referrals: glue and sibling glue (RFC 9471), truncation, and DS at a delegation point (RFC 4035 §3.1.4.1).

use super::check;
use super::support::exchange::ask;
use super::support::question::Question;
use super::support::zone_text::zone_map;
use std::fmt::Write;

/// The zone `test.` with `records`.
fn zone(records: &str) -> String {
    format!(
        "$ORIGIN test.\n$TTL 60\ntest. SOA ns.elsewhere. h.elsewhere. 1 2 3 4 5\ntest. NS ns.elsewhere.\n{records}\n"
    )
}

#[test]
fn in_domain_glue_is_included_rfc_9471_section_2_1() {
    let zone = zone(
        "foo.test. NS ns1.foo.test.
        foo.test. NS ns2.foo.test.
        ns1.foo.test. A 192.0.2.1
        ns2.foo.test. AAAA 2001:db8::2:2",
    );
    for name in ["www.foo.test.", "foo.test.", "ns1.foo.test.", "a.b.c.foo.test."] {
        check(
            &zone,
            &format!("{name} A"),
            "NOERROR
             authority: foo.test. 60 NS ns1.foo.test.
             authority: foo.test. 60 NS ns2.foo.test.
             additional: ns1.foo.test. 60 A 192.0.2.1
             additional: ns2.foo.test. 60 AAAA 2001:db8::2:2",
        );
    }
}

#[test]
fn sibling_glue_is_included_rfc_9471_section_2_2() {
    check(
        &zone(
            "foo.test. NS ns1.bar.test.
            foo.test. NS ns2.bar.test.
            bar.test. NS ns1.bar.test.
            bar.test. NS ns2.bar.test.
            ns1.bar.test. A 192.0.2.1
            ns2.bar.test. AAAA 2001:db8::2:2",
        ),
        "www.foo.test. A",
        "NOERROR
         authority: foo.test. 60 NS ns1.bar.test.
         authority: foo.test. 60 NS ns2.bar.test.
         additional: ns1.bar.test. 60 A 192.0.2.1
         additional: ns2.bar.test. 60 AAAA 2001:db8::2:2",
    );
}

#[test]
fn cyclic_sibling_glue_is_included_rfc_9471_section_2_3() {
    check(
        &zone(
            "foo.test. NS ns1.bar.test.
            bar.test. NS ns1.foo.test.
            ns1.bar.test. A 192.0.2.1
            ns1.foo.test. A 192.0.2.2",
        ),
        "www.bar.test. A",
        "NOERROR
         authority: bar.test. 60 NS ns1.foo.test.
         additional: ns1.foo.test. 60 A 192.0.2.2",
    );
}

#[test]
fn missing_glue_is_not_synthesized_from_a_wildcard() {
    let zone =
        zone("foo.test. NS ns1.foo.test.\nfoo.test. NS ns.elsewhere.\n*.test. A 192.0.2.9\nbar.test. NS w.test.");
    check(
        &zone,
        "www.foo.test. A",
        "NOERROR
         authority: foo.test. 60 NS ns1.foo.test.
         authority: foo.test. 60 NS ns.elsewhere.",
    );
    check(&zone, "www.bar.test. A", "NOERROR\nauthority: bar.test. 60 NS w.test.");
}

#[test]
fn glue_is_included_in_referrals_only() {
    let zone = zone("foo.test. NS ns.foo.test.\nns.foo.test. A 192.0.2.1\nmail.test. MX 10 ns.foo.test.");
    check(&zone, "mail.test. MX", "NOERROR aa\nanswer: mail.test. 60 MX 10 ns.foo.test.");
}

#[test]
fn delegation_below_a_delegation_is_hidden() {
    let zone = zone("foo.test. NS ns.elsewhere.\nbar.foo.test. NS ns.bar.foo.test.\nns.bar.foo.test. A 192.0.2.1");
    check(&zone, "x.bar.foo.test. A", "NOERROR\nauthority: foo.test. 60 NS ns.elsewhere.");
}

#[test]
fn wildcards_do_not_apply_below_a_delegation_point() {
    let zone = zone("*.test. A 192.0.2.9\nfoo.test. NS ns.elsewhere.\n*.foo.test. A 192.0.2.1");
    check(&zone, "x.foo.test. A", "NOERROR\nauthority: foo.test. 60 NS ns.elsewhere.");
    check(&zone, "foo.test. A", "NOERROR\nauthority: foo.test. 60 NS ns.elsewhere.");
    check(&zone, "x.y.test. A", "NOERROR aa\nanswer: x.y.test. 60 A 192.0.2.9");
}

/// `foo.test.` with `count` in-domain name servers, each with an IPv6 address.
fn servers(count: usize) -> String {
    let mut records = String::new();
    for index in 0..count {
        writeln!(records, "foo.test. NS ns{index}.foo.test.\nns{index}.foo.test. AAAA 2001:db8::{index:x}")
            .expect("a string takes what is written");
    }
    zone(&records)
}

#[test]
fn all_in_domain_glue_is_included_for_any_number_of_servers() {
    for count in [1, 12, 13, 14, 30, 200] {
        let reply = ask(&zone_map(&servers(count)), &Question::parse("www.foo.test. A +tcp"));
        assert_eq!((reply.sections[1].len(), reply.sections[2].len()), (count, count));
    }
}

#[test]
fn referral_without_space_for_its_glue_is_truncated_rfc_9471_section_3_1() {
    let zones = zone_map(&servers(30));
    let whole = super::support::exchange::ask_bytes(&zones, &Question::parse("www.foo.test. A +tcp +edns")).len();
    assert!(whole > 1232);
    for bytes in (512..=whole + 3).step_by(7).chain([whole - 1, whole]) {
        let reply = ask(&zones, &Question::parse(&format!("www.foo.test. A +edns={bytes} +max=4096")));
        assert_eq!(reply.is_truncated(), bytes < whole, "{bytes} bytes of {whole}");
        assert_eq!(reply.sections[2].len(), if bytes < whole { 0 } else { 30 });
    }
}

#[test]
fn ds_at_a_delegation_point_is_answered_by_the_parent() {
    let digest = "00".repeat(32);
    let zone = zone(&format!(
        "foo.test. NS ns.elsewhere.
        foo.test. DS 1 13 2 {digest}
        bar.test. NS ns.elsewhere."
    ));
    check(&zone, "foo.test. DS", &format!("NOERROR aa\nanswer: foo.test. 60 DS 1 13 2 {digest}"));
    check(&zone, "bar.test. DS", "NOERROR aa\nauthority: test. 5 SOA ns.elsewhere. h.elsewhere. 1 2 3 4 5");
    check(&zone, "x.foo.test. DS", "NOERROR\nauthority: foo.test. 60 NS ns.elsewhere.");
    check(&zone, "foo.test. NS", "NOERROR\nauthority: foo.test. 60 NS ns.elsewhere.");
    check(&zone, "foo.test. ANY", "NOERROR\nauthority: foo.test. 60 NS ns.elsewhere.");
}
