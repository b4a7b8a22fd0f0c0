//! Replies at every length: never longer than allowed, never misshapen, cut when something needed is missing and then only.

use super::support::exchange::{ask, ask_octets};
use super::support::question::Question;
use super::support::reply::Reply;
use super::support::zone_text::zone_set;
use std::fmt::Write;

/// A zone with answers of every kind and of many lengths.
fn zone() -> String {
    let mut text = String::from("$ORIGIN z.\n$TTL 60\nz. SOA ns.z. h.z. 1 2 3 4 5\nz. NS ns.x.\n");
    let mut line = |line: String| writeln!(text, "{line}").expect("a string takes what is written");
    for index in 0..80 {
        line(format!("many.z. A 192.0.2.{index}"));
        line(format!("*.wild.z. TXT text{index}"));
        line(format!("mail.z. MX {index} host{index}.z."));
        line(format!("host{index}.z. AAAA 2001:db8::{index}"));
        line(format!("cut.z. NS ns{index}.cut.z."));
        line(format!("ns{index}.cut.z. A 192.0.2.{index}"));
        line(format!("to.z. NS ns{index}.cut.z."));
    }
    line("alias.z. CNAME many.z.".into());
    line("alias2.z. CNAME x.cut.z.".into());
    line("d.z. DNAME wild.z.".into());
    line("small.z. MX 1 host1.z.".into());
    line("srv.z. SRV 1 1 1 host1.z.".into());
    text
}

/// What must be in a whole reply beside its answer and authority: all addresses of a referral (RFC 9471 §3.1); of an
/// answer none (RFC 2181 §9).
fn needs_addresses(reply: &Reply) -> bool {
    reply.sections[1].iter().any(|record| record.rtype == sanderling_dns::Rtype::NS)
}

#[test]
fn replies_of_every_length_from_512_on() {
    let zones = zone_set(&zone());
    for name_and_type in [
        "many.z. A",
        "x.wild.z. TXT",
        "mail.z. MX",
        "cut.z. A",
        "a.b.cut.z. A",
        "alias.z. A",
        "alias2.z. A",
        "x.d.z. TXT",
        "small.z. MX",
        "srv.z. SRV",
        "missing.z. A",
        "to.z. NS",
        "z. NS",
    ] {
        let whole_octets = ask_octets(&zones, &Question::parse(&format!("{name_and_type} +tcp +edns")));
        let whole = Reply::parse(&whole_octets).expect("has been read before");
        assert!(!whole.is_truncated());
        for length in (512..=1_300).chain([1_400, 2_000, 4_096, 65_535]) {
            let cut = ask(&zones, &Question::parse(&format!("{name_and_type} +edns={length} +max=65535")));
            let has_room = whole_octets.len() <= length;
            if has_room {
                assert_eq!((&cut.sections, cut.flags), (&whole.sections, whole.flags), "{name_and_type} in {length}");
            } else if needs_addresses(&whole) {
                assert!(cut.is_truncated(), "{name_and_type} in {length}");
            } else if !cut.is_truncated() {
                // Addresses alone were left out.
                assert_eq!((&cut.sections[..2], cut.flags), (&whole.sections[..2], whole.flags));
                assert!(cut.sections[2].is_empty() && !whole.sections[2].is_empty());
            } else {
                let answer_bytes =
                    ask_octets(&zones, &Question::parse(&format!("{name_and_type} +edns={length} +max=65535")));
                assert!(answer_bytes.len() < 512);
            }
        }
    }
}

#[test]
fn a_reply_is_cut_at_the_octet() {
    // Header, question, n times 16 octets of address, OPT.
    let mut text = String::from("$ORIGIN z.\n$TTL 60\nz. SOA ns.z. h.z. 1 2 3 4 5\nz. NS ns.x.\n");
    for index in 0..40 {
        writeln!(text, "a.z. A 192.0.2.{index}").expect("a string takes what is written");
    }
    let zones = zone_set(&text);
    let whole = 12 + 9 + 40 * 16;
    for (question, is_cut) in [
        ("a.z. A", true),
        ("a.z. A +tcp", false),
        (&*format!("a.z. A +edns={}", whole + 11), false),
        (&*format!("a.z. A +edns={}", whole + 10), true),
        (&*format!("a.z. A +edns=4096 +max={}", whole + 11), false),
        (&*format!("a.z. A +edns=4096 +max={}", whole + 10), true),
    ] {
        let octets = ask_octets(&zones, &Question::parse(question));
        assert_eq!(Reply::parse(&octets).expect("has been read before").is_truncated(), is_cut, "{question}");
    }
    // Without EDNS, 512 octets to the last one.
    let fitting = |count: usize, name: &str| {
        let mut text = String::from("$ORIGIN z.\n$TTL 60\nz. SOA ns.z. h.z. 1 2 3 4 5\nz. NS ns.x.\n");
        for index in 0..count {
            writeln!(text, "{name}. A 192.0.2.{index}").expect("a string takes what is written");
        }
        ask_octets(&zone_set(&text), &Question::parse(&format!("{name}. A")))
    };
    // 12 + (11 + 2 + 1 + 4) + 30 * 16 = 510; a label two longer makes 512, three longer 513.
    assert_eq!(fitting(30, "aaaaaaaaa.z").len(), 12 + 13 + 4 + 480);
    assert_eq!(fitting(30, "aaaaaaaaaaaa.z").len(), 512);
    let cut = Reply::parse(&fitting(30, "aaaaaaaaaaaaa.z")).expect("has been read before");
    assert!(cut.is_truncated());
}
