//! Truncation at every length: replies are within the limit, well-formed, and truncated only if required data does not fit.

use super::support::exchange::ask_bytes;
use super::support::question::Question;
use super::support::reply::Reply;
use super::support::zone_text::zone_map;
use sanderling_dns::ZoneMap;
use std::fmt::Write;

/// The highest length limit: longer than all replies.
const LENGTH_BYTES_MAX: usize = 5_000;

/// A zone with all kinds of answers of many lengths.
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

/// Whether the additional section is required: for a referral (RFC 9471 §3.1), but not for an answer (RFC 2181 §9).
fn needs_additional(reply: &Reply) -> bool {
    reply.sections[1].iter().any(|record| record.rtype == sanderling_dns::Rtype::NS)
}

#[test]
fn replies_of_every_length_limit_from_512_on() {
    let zones = zone_map(&zone());
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
        check_lengths(&zones, name_and_type);
    }
}

/// Asks with every length limit. A truncated reply did not fit, to the byte; any other has all required records.
fn check_lengths(zones: &ZoneMap, name_and_type: &str) {
    let whole_bytes = ask_bytes(zones, &Question::parse(&format!("{name_and_type} +tcp +edns")));
    let whole = Reply::parse(&whole_bytes).expect("has been read before");
    assert!(!whole.is_truncated());
    let mut was_cut = false;
    for length in 512..=LENGTH_BYTES_MAX {
        let bytes = ask_bytes(zones, &Question::parse(&format!("{name_and_type} +edns={length} +max={length}")));
        let reply = Reply::parse(&bytes).expect("has been read before");
        if reply.is_truncated() {
            assert!(whole_bytes.len() > length && (was_cut || length == 512), "{name_and_type} in {length}");
            was_cut = true;
            continue;
        }
        if was_cut {
            assert_eq!(bytes.len(), length, "{name_and_type} is truncated one byte below its length");
            was_cut = false;
        }
        assert_eq!((&reply.sections[..2], reply.flags), (&whole.sections[..2], whole.flags));
        if whole_bytes.len() <= length || needs_additional(&whole) {
            assert_eq!(reply.sections[2], whole.sections[2], "{name_and_type} in {length}");
        } else {
            assert!(reply.sections[2].is_empty() && !whole.sections[2].is_empty(), "{name_and_type} in {length}");
        }
    }
    assert!(!was_cut, "{LENGTH_BYTES_MAX} bytes are enough for {name_and_type}");
}

#[test]
fn reply_is_truncated_one_byte_below_its_length() {
    // Header, question, 16 bytes for each address, OPT.
    let mut text = String::from("$ORIGIN z.\n$TTL 60\nz. SOA ns.z. h.z. 1 2 3 4 5\nz. NS ns.x.\n");
    for index in 0..40 {
        writeln!(text, "a.z. A 192.0.2.{index}").expect("a string takes what is written");
    }
    let zones = zone_map(&text);
    let whole = 12 + 9 + 40 * 16;
    for (question, is_cut) in [
        ("a.z. A", true),
        ("a.z. A +tcp", false),
        (&*format!("a.z. A +edns={}", whole + 11), false),
        (&*format!("a.z. A +edns={}", whole + 10), true),
        (&*format!("a.z. A +edns=4096 +max={}", whole + 11), false),
        (&*format!("a.z. A +edns=4096 +max={}", whole + 10), true),
    ] {
        let bytes = ask_bytes(&zones, &Question::parse(question));
        assert_eq!(Reply::parse(&bytes).expect("has been read before").is_truncated(), is_cut, "{question}");
    }
    // Without EDNS, the limit is 512 bytes.
    let fitting = |count: usize, name: &str| {
        let mut text = String::from("$ORIGIN z.\n$TTL 60\nz. SOA ns.z. h.z. 1 2 3 4 5\nz. NS ns.x.\n");
        for index in 0..count {
            writeln!(text, "{name}. A 192.0.2.{index}").expect("a string takes what is written");
        }
        ask_bytes(&zone_map(&text), &Question::parse(&format!("{name}. A")))
    };
    assert_eq!(fitting(30, "aaaaaaaaa.z").len(), 12 + 13 + 4 + 480);
    assert_eq!(fitting(30, "aaaaaaaaaaaa.z").len(), 512);
    let cut = Reply::parse(&fitting(30, "aaaaaaaaaaaaa.z")).expect("has been read before");
    assert!(cut.is_truncated());
}
