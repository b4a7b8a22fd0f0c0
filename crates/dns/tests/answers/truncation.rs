//! Truncation at every length: replies are within the limit, well-formed, and truncated only if required data does not
//! fit.

use super::support::exchange::ask_bytes;
use super::support::question::Question;
use super::support::reply::Reply;
use super::support::zone_text::zone_map;
use sanderling_dns::{Name, Rtype, ZoneMap};

/// The highest length limit: longer than all replies.
const LENGTH_BYTES_MAX: usize = 5_000;

/// A zone with all kinds of answers of many lengths.
fn zone() -> String {
    let of_index = |index| {
        format!(
            "many A 192.0.2.{index}
             *.wild TXT text{index}
             mail MX {index} host{index}
             host{index} AAAA 2001:db8::{index}
             cut NS ns{index}.cut
             ns{index}.cut A 192.0.2.{index}
             to NS ns{index}.cut\n"
        )
    };
    let records: String = (0..80).map(of_index).collect();
    format!(
        "$ORIGIN z.
         {records}
         alias CNAME many
         alias2 CNAME x.cut
         d DNAME wild
         small MX 1 host1
         both MX 1 mixed
         both MX 2 many
         both MX 3 small
         mixed A 192.0.2.1
         mixed A 192.0.2.2
         mixed AAAA 2001:db8::1
         mixed AAAA 2001:db8::2
         small A 192.0.2.3
         alias3 CNAME both
         srv SRV 1 1 1 host1"
    )
}

/// Whether the additional section is required: glue below the delegation point (RFC 9471 §3.1), but not sibling glue
/// (RFC 9471 §3.2) and addresses with an answer (RFC 2181 §9).
fn needs_additional(reply: &Reply) -> bool {
    let Some(ns) = reply.sections[1].iter().find(|record| record.rtype == Rtype::NS) else { return false };
    let point = Name::parse(&ns.owner).expect("a name");
    reply.sections[2].iter().any(|glue| Name::parse(&glue.owner).expect("a name").is_at_or_below(point))
}

#[test]
fn replies_of_every_length_limit_from_512_on() {
    let zones = zone_map(&zone());
    // `both` has several addresses for each host.
    let questions = "many A, both MX, alias3 MX, x.wild TXT, mail MX, cut A, a.b.cut A, alias A, alias2 A, x.d TXT, small MX, srv SRV, \
                     missing A, to NS";
    for question in questions.split(", ") {
        check_lengths(&zones, &question.replace(' ', ".z. "));
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
            // As many RRsets as fit.
            let (kept, omitted) = whole.sections[2].split_at(reply.sections[2].len());
            assert_eq!(reply.sections[2], kept, "{name_and_type} in {length}");
            let next = &omitted[0];
            assert!(kept.last().is_none_or(|last| last.owner != next.owner || last.rtype != next.rtype));
            let next_bytes = omitted.iter().filter(|record| record.owner == next.owner).count() * 44;
            assert!(bytes.len() + next_bytes > length, "{name_and_type}: more fits in {length}");
        }
    }
    assert!(!was_cut, "{LENGTH_BYTES_MAX} bytes are enough for {name_and_type}");
}

/// A zone with `count` addresses of `owner`.
fn addresses(owner: &str, count: usize) -> ZoneMap {
    let records: String = (0..count).map(|index| format!("{owner} A 192.0.2.{index}\n")).collect();
    zone_map(&format!("$ORIGIN z.\n{records}"))
}

#[test]
fn length_limit_is_the_lower_one_of_client_and_server() {
    let zones = addresses("a", 40);
    // Header, question, 16 bytes for each address, OPT.
    let whole = 12 + 9 + 40 * 16 + 11;
    for (limit, is_truncated) in [(whole, false), (whole - 1, true)] {
        for options in [format!("+edns={limit}"), format!("+edns=4096 +max={limit}")] {
            let bytes = ask_bytes(&zones, &Question::parse(&format!("a.z. A {options}")));
            let reply = Reply::parse(&bytes).expect("has been read before");
            assert_eq!(reply.is_truncated(), is_truncated, "{options}");
        }
    }
}

#[test]
fn reply_without_edns_has_at_most_512_bytes() {
    let length = |owner: &str| ask_bytes(&addresses(owner, 30), &Question::parse(&format!("{owner}.z. A"))).len();
    assert_eq!(length("aaaaaaaaaaaa"), 512);
    // Truncated: header and question.
    assert_eq!(length("aaaaaaaaaaaaa"), 12 + 17 + 4);
}

#[test]
fn nxdomain_without_space_for_the_soa_is_truncated() {
    let name = |byte: &str| format!("{0}.{0}.{0}.{1}.z.", byte.repeat(63), byte.repeat(56));
    let zones = zone_map(&format!("$ORIGIN z.\n$TTL 60\n@ SOA {} {} 1 2 3 4 5\n@ NS a.", name("x"), name("y")));
    let reply = |question| Reply::parse(&ask_bytes(&zones, &Question::parse(question))).expect("has been read before");
    assert_eq!(reply("missing.z. A").to_string(), "NXDOMAIN aa tc\n");
    assert_eq!(reply("missing.z. A +tcp").sections[1].len(), 1);
}
