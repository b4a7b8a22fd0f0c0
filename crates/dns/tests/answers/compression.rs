//! Names of the highest length and compression pointers in all places, checked by the strict parser of replies.

use super::check;
use super::support::exchange::{ask, ask_bytes};
use super::support::question::Question;
use super::support::zone_text::zone_map;
use sanderling_dns::ZoneMap;

const NXDOMAIN: &str = "NXDOMAIN aa\nauthority: z. 5 SOA ns.a. h.a. 1 2 3 4 5";

/// The zone `z.` with `records`.
fn zone(records: &str) -> ZoneMap {
    zone_map(&format!("$ORIGIN z.\n{records}"))
}

/// A name below `z.` of 127 labels.
fn deepest_name() -> String {
    "a.".repeat(126) + "z."
}

#[test]
fn names_of_255_bytes_and_of_127_labels_are_answered() {
    let longest_name = format!("{0}.{0}.{0}.{1}.z.", "a".repeat(63), "b".repeat(59));
    for name in [longest_name, deepest_name()] {
        let exact = zone(&format!("{name} A 192.0.2.1\n{name} MX 10 {name}"));
        let mx = format!("NOERROR aa\nanswer: {name} 60 MX 10");
        check(&exact, &format!("{name} A"), &format!("NOERROR aa\nanswer: {name} 60 A 192.0.2.1"));
        check(&exact, &format!("{name} MX"), &format!("{mx} {name}\nadditional: {name} 60 A 192.0.2.1"));
        check(&zone(""), &format!("{name} A"), NXDOMAIN);
        let wildcard = zone("* MX 10 mail\nmail A 192.0.2.1");
        check(&wildcard, &format!("{name} MX"), &format!("{mx} mail.z.\nadditional: mail.z. 60 A 192.0.2.1"));
        let alias = zone(&format!("alias CNAME {name}\n{name} CNAME alias2\nalias2 A 192.0.2.1"));
        let chain = format!(
            "NOERROR aa
             answer: alias.z. 60 CNAME {name}
             answer: {name} 60 CNAME alias2.z.
             answer: alias2.z. 60 A 192.0.2.1"
        );
        check(&alias, "alias.z. A +tcp", &chain);
    }
}

#[test]
fn closest_encloser_is_found_at_every_depth() {
    let name = deepest_name();
    // Below each ancestor of the name there is room for two more labels.
    for depth in 1..=125 {
        let owner = &name[name.len() - 2 * depth..];
        let zones = zone(&format!("x.{owner} TXT here\n*.{owner} A 192.0.2.1"));
        check(&zones, &format!("{name} A"), &format!("NOERROR aa\nanswer: {name} 60 A 192.0.2.1"));
        check(&zones, &format!("y.x.{owner} A"), NXDOMAIN);
    }
}

#[test]
fn pointers_are_shifted_for_qnames_of_every_length() {
    let zones = zone(
        "*.w MX 10 mail.w
         *.w MX 20 sub.mail.w
         *.w MX 30 z.
         *.w MX 40 other.
         mail.w A 192.0.2.1
         sub.mail.w AAAA 2001:db8::1
         cut.c NS ns.cut.c
         cut.c NS ns.c
         cut.c NS cut.c
         ns.cut.c A 192.0.2.2
         ns.c A 192.0.2.3
         cut.c A 192.0.2.4
         *.alias CNAME end.alias
         end.alias MX 10 mail.w",
    );
    for length in 1..=60 {
        let label = "q".repeat(length);
        for prefix in [label.clone(), format!("{label}.{label}"), format!("a.{label}.{label}.{label}")] {
            let wildcard = format!(
                "NOERROR aa edns=1232
                 answer: {prefix}.w.z. 60 MX 10 mail.w.z.
                 answer: {prefix}.w.z. 60 MX 20 sub.mail.w.z.
                 answer: {prefix}.w.z. 60 MX 30 z.
                 answer: {prefix}.w.z. 60 MX 40 other.
                 additional: mail.w.z. 60 A 192.0.2.1
                 additional: sub.mail.w.z. 60 AAAA 2001:db8::1"
            );
            check(&zones, &format!("{prefix}.w.z. MX +edns"), &wildcard);
            let referral = "NOERROR edns=1232
                 authority: cut.c.z. 60 NS ns.cut.c.z.
                 authority: cut.c.z. 60 NS ns.c.z.
                 authority: cut.c.z. 60 NS cut.c.z.
                 additional: ns.cut.c.z. 60 A 192.0.2.2
                 additional: cut.c.z. 60 A 192.0.2.4
                 additional: ns.c.z. 60 A 192.0.2.3";
            check(&zones, &format!("{prefix}.cut.c.z. A +edns"), referral);
            let alias = format!(
                "NOERROR aa edns=1232
                 answer: {prefix}.alias.z. 60 CNAME end.alias.z.
                 answer: end.alias.z. 60 MX 10 mail.w.z.
                 additional: mail.w.z. 60 A 192.0.2.1"
            );
            check(&zones, &format!("{prefix}.alias.z. MX +edns"), &alias);
            check(&zones, &format!("{prefix}.no.z. MX"), NXDOMAIN);
        }
    }
}

#[test]
fn message_longer_than_the_reach_of_pointers() {
    let count = 400;
    // Hosts share suffixes in several ways.
    let host = |index| format!("n{index}.{}.p{}.long-label-that-takes-room.cut.z.", "x".repeat(20), index % 7);
    let ns = |index| format!("cut.z. 60 NS {}", host(index));
    let a = |index| format!("{} 60 A 192.0.2.{}", host(index), index % 250);
    let aaaa = |index| format!("{} 60 AAAA 2001:db8::{index}", host(index));
    let records: Vec<String> = (0..count).flat_map(|index| [ns(index), a(index), aaaa(index)]).collect();
    let zones = zone(&records.join("\n"));
    for prefix in ["", "a.b.c.d.e.f.", &"y.".repeat(120)] {
        let question = Question::parse(&format!("{prefix}cut.z. A +tcp"));
        assert!(ask_bytes(&zones, &question).len() > 1 << 14);
        let reply = ask(&zones, &question);
        assert_eq!((reply.sections[1].len(), reply.sections[2].len()), (count, 2 * count));
        for (index, record) in reply.sections[1].iter().enumerate() {
            assert_eq!(record.to_string(), ns(index));
            assert_eq!(reply.sections[2][2 * index].to_string(), a(index));
        }
    }
}

/// Checks the MX records of the wildcard `*.z.`, with `target` for each preference up to `count`, below names of any
/// length, and their addresses.
fn check_wildcard(zones: &ZoneMap, count: usize, target: impl Fn(usize) -> String, addresses: &[String]) {
    for name in ["q.z.".to_owned(), "x.".repeat(60) + "z.", deepest_name()] {
        let reply = ask(zones, &Question::parse(&format!("{name} MX +tcp")));
        let [answer, _, additional] =
            reply.sections.map(|section| section.iter().map(ToString::to_string).collect::<Vec<_>>());
        let expected: Vec<_> = (0..count).map(|index| format!("{name} 60 MX {index} {}", target(index))).collect();
        assert_eq!((answer, &*additional), (expected, addresses));
    }
}

#[test]
fn long_answer_below_a_wildcard() {
    let host = |index| format!("host{index}.p{}.mail.w.z.", index % 60);
    let records: String = (0..600).map(|index| format!("* MX {index} {}\n", host(index))).collect();
    check_wildcard(&zone(&records), 600, host, &[]);
}

#[test]
fn pointers_near_the_end_of_their_reach_are_shifted() {
    // The names of new hosts start shortly before byte 16,384; below a long QNAME they start after it.
    let host = |index| if index < 985 { "z.".into() } else { format!("h{index}{}.z.", "x".repeat(56)) };
    let mx: String = (0..1000).map(|index| format!("* MX {index} {}\n", host(index))).collect();
    let a: String = (985..1000).map(|index| format!("{} A 192.0.2.1\n", host(index))).collect();
    // 13 hosts, of which the first, `z.`, has no address.
    let addresses: Vec<String> = (985..997).map(|index| format!("{} 60 A 192.0.2.1", host(index))).collect();
    check_wildcard(&zone(&(mx + &a)), 1000, host, &addresses);
}

#[test]
fn names_are_compressed_only_in_types_of_rfc_1035_rfc_3597_section_4() {
    // The strict parser rejects pointers in other types. The length shows that they are used in these.
    let name = format!("{}.z.", "m".repeat(63));
    let check_length = |rtype: &str, fields: &str, rdata_bytes: usize| {
        let zones = zone(&format!("{name} {rtype} {fields} {name}\n{name} {rtype} {fields} sub.{name}"));
        let length = ask_bytes(&zones, &Question::parse(&format!("{name} {rtype}"))).len();
        // Header, question, and two records with a pointer as their owner.
        assert_eq!(length, 12 + 67 + 4 + 2 * 12 + rdata_bytes, "{rtype}");
    };
    for (rtype, fields, fields_bytes) in [("PTR", "", 0), ("MX", "1", 2), ("MB", "", 0), ("MG", "", 0), ("MR", "", 0)] {
        check_length(rtype, fields, 2 * fields_bytes + 2 + 6);
    }
    for (rtype, fields, fields_bytes) in [("SRV", "1 2 3", 6), ("KX", "1", 2), ("AFSDB", "1", 2), ("RT", "1", 2)] {
        check_length(rtype, fields, 2 * fields_bytes + 67 + 71);
    }
}

/// Checks the length of the reply to `question`.
#[track_caller]
fn check_length(zones: &ZoneMap, question: &str, length_bytes: usize) {
    let bytes = ask_bytes(zones, &Question::parse(question));
    assert_eq!(bytes.len(), length_bytes, "{question}\n{}", ask(zones, &Question::parse(question)));
}

#[test]
fn names_behind_aliases_are_compressed() {
    let label = "m".repeat(60);
    let zones = zone(&format!(
        "{label}.a CNAME {label}.b
         {label}.b CNAME c
         c MX 10 {label}.b.mail
         {label}.b.mail A 192.0.2.1
         {label}.d DNAME {label}.b
         x.{label}.b CNAME c"
    ));
    let question = |qname_bytes: usize| 12 + qname_bytes + 4;
    // The owner, a pointer, and the fixed fields of each record have 12 bytes.
    let end = (12 + 2 + 61 + 2 + 5 + 2) + (12 + 4);
    check_length(&zones, &format!("{label}.a.z. MX +edns"), question(66) + (12 + 61 + 2 + 2) + (12 + 4) + end + 11);
    // RFC 6672 section 3.1 forbids compression in the RDATA of the DNAME alone.
    let dname = 12 + 61 + 5;
    let cname = 12 + 2 + 61 + 2 + 2;
    check_length(&zones, &format!("x.{label}.d.z. MX +edns"), question(68) + dname + cname + (12 + 4) + end + 11);
}

#[test]
fn long_chain_of_shrinking_names_fits_into_512_bytes() {
    let zones = zone_map("$ORIGIN mybankcard.\nnet.email DNAME email");
    let reply = ask(&zones, &Question::parse(&format!("{}net.email.mybankcard. A", "net.".repeat(50))));
    assert!(!reply.is_truncated());
    assert_eq!(reply.sections[0].len(), 1 + 16);
}
