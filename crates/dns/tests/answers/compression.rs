//! Names of the highest length and compression pointers in all places, checked by the strict parser of replies.

use super::check;
use super::support::exchange::{ask, ask_bytes};
use super::support::question::Question;
use super::support::zone_text::zone_map;
use std::fmt::Write;

fn zone(records: &str) -> String {
    format!("$ORIGIN z.\n$TTL 60\nz. SOA ns.z. h.z. 1 2 3 4 5\nz. NS ns.x.\n{records}\n")
}

/// A name below `z.` of 255 bytes in four labels.
fn longest_name() -> String {
    format!("{0}.{0}.{0}.{1}.z.", "a".repeat(63), "b".repeat(59))
}

/// A name below `z.` of 127 labels.
fn deepest_name() -> String {
    "a.".repeat(126) + "z."
}

#[test]
fn names_of_255_bytes_and_of_127_labels_are_answered() {
    for name in [longest_name(), deepest_name()] {
        let exact = zone(&format!("{name} A 192.0.2.1\n{name} MX 10 {name}"));
        check(&exact, &format!("{name} A"), &format!("NOERROR aa\nanswer: {name} 60 A 192.0.2.1"));
        check(
            &exact,
            &format!("{name} MX"),
            &format!("NOERROR aa\nanswer: {name} 60 MX 10 {name}\nadditional: {name} 60 A 192.0.2.1"),
        );
        let nothing = zone("");
        check(&nothing, &format!("{name} A"), "NXDOMAIN aa\nauthority: z. 5 SOA ns.z. h.z. 1 2 3 4 5");
        let wildcard = zone("*.z. MX 10 mail.z.\nmail.z. A 192.0.2.1");
        check(
            &wildcard,
            &format!("{name} MX"),
            &format!("NOERROR aa\nanswer: {name} 60 MX 10 mail.z.\nadditional: mail.z. 60 A 192.0.2.1"),
        );
        let alias = zone(&format!("alias.z. CNAME {name}\n{name} CNAME alias2.z.\nalias2.z. A 192.0.2.1"));
        check(
            &alias,
            "alias.z. A +tcp",
            &format!(
                "NOERROR aa
                 answer: alias.z. 60 CNAME {name}
                 answer: {name} 60 CNAME alias2.z.
                 answer: alias2.z. 60 A 192.0.2.1"
            ),
        );
    }
}

#[test]
fn closest_encloser_is_found_at_every_depth() {
    let name = deepest_name();
    let labels: Vec<&str> = name.split_terminator('.').collect();
    for depth in 1..labels.len() {
        let owner = labels[labels.len() - depth..].join(".") + ".";
        let text = zone(&format!("x.{owner} TXT here\n*.{owner} A 192.0.2.1"));
        if owner.len() + 5 <= 255 {
            check(&text, &format!("{name} A"), &format!("NOERROR aa\nanswer: {name} 60 A 192.0.2.1"));
            check(&text, &format!("y.x.{owner} A"), "NXDOMAIN aa\nauthority: z. 5 SOA ns.z. h.z. 1 2 3 4 5");
        }
    }
}

#[test]
fn pointers_are_shifted_for_qnames_of_every_length() {
    let text = zone(
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
            check(
                &text,
                &format!("{prefix}.w.z. MX +edns"),
                &format!(
                    "NOERROR aa edns=1232
                     answer: {prefix}.w.z. 60 MX 10 mail.w.z.
                     answer: {prefix}.w.z. 60 MX 20 sub.mail.w.z.
                     answer: {prefix}.w.z. 60 MX 30 z.
                     answer: {prefix}.w.z. 60 MX 40 other.
                     additional: mail.w.z. 60 A 192.0.2.1
                     additional: sub.mail.w.z. 60 AAAA 2001:db8::1"
                ),
            );
            check(
                &text,
                &format!("{prefix}.cut.c.z. A +edns"),
                "NOERROR edns=1232
                 authority: cut.c.z. 60 NS ns.cut.c.z.
                 authority: cut.c.z. 60 NS ns.c.z.
                 authority: cut.c.z. 60 NS cut.c.z.
                 additional: ns.cut.c.z. 60 A 192.0.2.2
                 additional: ns.c.z. 60 A 192.0.2.3
                 additional: cut.c.z. 60 A 192.0.2.4",
            );
            check(
                &text,
                &format!("{prefix}.alias.z. MX +edns"),
                &format!(
                    "NOERROR aa edns=1232
                     answer: {prefix}.alias.z. 60 CNAME end.alias.z.
                     answer: end.alias.z. 60 MX 10 mail.w.z."
                ),
            );
            check(
                &text,
                &format!("{prefix}.no.z. MX +edns"),
                "NXDOMAIN aa edns=1232\nauthority: z. 5 SOA ns.z. h.z. 1 2 3 4 5",
            );
        }
    }
}

/// Name servers whose names share suffixes in several ways.
fn many_servers(owner: &str, count: usize) -> String {
    let mut records = String::new();
    for index in 0..count {
        let host = format!("n{index}.{}.p{}.long-label-that-takes-room.{owner}", "x".repeat(20), index % 7);
        writeln!(records, "{owner} NS {host}\n{host} A 192.0.2.{}\n{host} AAAA 2001:db8::{index}", index % 250)
            .expect("a string takes what is written");
    }
    records
}

#[test]
fn message_longer_than_the_reach_of_pointers() {
    let count = 400;
    for (owner, name) in
        [("cut.z.", "cut.z."), ("cut.z.", "a.b.c.d.e.f.cut.z."), ("cut.z.", &*("y.".repeat(120) + "cut.z."))]
    {
        let zones = zone_map(&zone(&many_servers(owner, count)));
        let question = Question::parse(&format!("{name} A +tcp"));
        let bytes = ask_bytes(&zones, &question);
        assert!(bytes.len() > 1 << 14, "{} bytes", bytes.len());
        let reply = ask(&zones, &question);
        assert_eq!((reply.sections[1].len(), reply.sections[2].len()), (count, 2 * count));
        for (index, record) in reply.sections[1].iter().enumerate() {
            let host = format!("n{index}.{}.p{}.long-label-that-takes-room.{owner}", "x".repeat(20), index % 7);
            assert_eq!(record.to_string(), format!("{owner} 60 NS {host}"));
            assert_eq!(reply.sections[2][2 * index].to_string(), format!("{host} 60 A 192.0.2.{}", index % 250));
        }
    }
}

#[test]
fn long_answer_below_a_wildcard() {
    let mut records = String::new();
    for index in 0..600 {
        writeln!(records, "*.w.z. MX {index} host{index}.p{}.mail.w.z.", index % 60)
            .expect("a string takes what is written");
    }
    let zones = zone_map(&zone(&records));
    for name in ["q.w.z.".to_owned(), "x.".repeat(120) + "w.z."] {
        let reply = ask(&zones, &Question::parse(&format!("{name} MX +tcp")));
        let expected = |index: usize| format!("{name} 60 MX {index} host{index}.p{}.mail.w.z.", index % 60);
        let found: Vec<String> = reply.sections[0].iter().map(ToString::to_string).collect();
        assert_eq!(found, (0..600).map(expected).collect::<Vec<_>>());
    }
}

#[test]
fn pointers_near_the_end_of_their_reach_are_shifted() {
    // The names of new hosts start shortly before byte 16,384; below a long QNAME they start after it.
    let mut records = String::new();
    let host = |index: usize| format!("h{index}{}.z.", "x".repeat(56));
    for index in 0..985 {
        writeln!(records, "*.z. MX {index} z.").expect("a string takes what is written");
    }
    for index in 985..1000 {
        writeln!(records, "*.z. MX {index} {0}\n{0} A 192.0.2.1", host(index)).expect("a string takes what is written");
    }
    let zones = zone_map(&zone(&records));
    for name in ["q.z.".to_owned(), "x.".repeat(60) + "z.", "x.".repeat(126) + "z."] {
        let reply = ask(&zones, &Question::parse(&format!("{name} MX +tcp")));
        for (index, record) in reply.sections[0].iter().enumerate() {
            let target = if index < 985 { "z.".into() } else { host(index) };
            assert_eq!(record.to_string(), format!("{name} 60 MX {index} {target}"));
        }
        // 13 hosts, of which the first, `z.`, has no address.
        let hosts: Vec<String> = (985..997).map(|index| format!("{} 60 A 192.0.2.1", host(index))).collect();
        assert_eq!(reply.sections[2].iter().map(ToString::to_string).collect::<Vec<_>>(), hosts);
    }
}

#[test]
fn names_are_compressed_only_in_types_of_rfc_1035_rfc_3597_section_4() {
    // The strict parser rejects pointers in other types. The length shows that they are used in these.
    let name = format!("{}.z.", "m".repeat(63));
    let records = |rtype: &str| format!("{name} {rtype} {name}\n{name} {rtype} sub.{name}");
    let length =
        |text: &str, rtype: &str| ask_bytes(&zone_map(&zone(text)), &Question::parse(&format!("{name} {rtype}"))).len();
    let question_bytes = 12 + 67 + 4;
    for (rtype, prefix) in [("PTR", 0), ("MX 1", 2), ("MB", 0), ("MG", 0), ("MR", 0)] {
        let mnemonic = rtype.split(' ').next().expect("a type");
        assert_eq!(length(&records(rtype), mnemonic), question_bytes + 2 * (12 + prefix) + 2 + 6, "{rtype}");
    }
    for (rtype, prefix) in [("SRV 1 2 3", 6), ("KX 1", 2), ("AFSDB 1", 2), ("RT 1", 2)] {
        let mnemonic = rtype.split(' ').next().expect("a type");
        assert_eq!(length(&records(rtype), mnemonic), question_bytes + 2 * (12 + prefix) + 67 + 71, "{rtype}");
    }
}
