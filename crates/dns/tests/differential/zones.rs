//! Generated zones in which wildcards, delegations, aliases, empty non-terminals and hidden names meet, and the
//! questions to them.

use crate::support::question::Question;
use crate::support::zone_text::{name_bytes, records_of_zones};
use fastrand::Rng;
use sanderling_dns::{Name, Rtype};
use std::collections::{BTreeMap, BTreeSet};

/// Labels of owners and targets. `aa` starts with another of them.
const LABELS: [&str; 6] = ["a", "b", "*", "c", "aa", "d"];
const LABEL_COUNT_MAX: usize = 4;
const RECORD_COUNT_MAX: usize = 30;
/// One in this many zones has NS records of wildcards, and more NS and DS records at its apex, which BIND refuses.
const REFUSED_BY_BIND_ONE_IN: usize = 8;
/// One in this many zones has a child zone on the same server.
const CHILD_ONE_IN: usize = 3;

/// Types of the questions: the types of the generated records, and others.
const TYPES: &str = "A AAAA NS SOA MX TXT CNAME DNAME DS SRV HTTPS SVCB ANY CAA PTR NAPTR KX AFSDB RP TLSA LOC DNSKEY \
                     NSEC RRSIG TYPE65280";

/// The text of `count` zones, each starting with its `$ORIGIN`.
pub(crate) fn texts(random: &mut Rng, count: usize) -> String {
    let mut text = String::new();
    let mut made_count = 0;
    while made_count < count {
        let apex = format!("z{made_count}.test.");
        let others = [apex.clone(), format!("z{}.test.", random.usize(..count)), "out.".to_owned()];
        let is_for_bind = random.usize(..REFUSED_BY_BIND_ONE_IN) != 0;
        text += &zone(random, &apex, &others, is_for_bind);
        made_count += 1;
        if made_count < count && random.usize(..CHILD_ONE_IN) == 0 {
            let child = format!("{}.{apex}", random.choice(["a", "b.a", "c"]).expect("there are some"));
            // NSD refuses a child zone below a DNAME of its parent, so BIND must not refuse it.
            text += &zone(random, &child, &[child.clone(), apex, "out.".to_owned()], true);
            made_count += 1;
        }
    }
    text
}

/// The text of one zone, whose targets are below the names of `others`.
fn zone(random: &mut Rng, apex: &str, others: &[String; 3], is_for_bind: bool) -> String {
    let mut lines = vec![
        format!("$ORIGIN {apex}\n$TTL 300"),
        format!("{apex} SOA ns.{apex} h.{apex} 1 2 3 4 60"),
        format!("{apex} NS ns.out."),
    ];
    let mut types: BTreeMap<String, Vec<&str>> = BTreeMap::from([(apex.to_owned(), vec!["SOA", "NS"])]);
    for _ in 0..random.usize(..RECORD_COUNT_MAX) {
        let owner = below(random, apex);
        let (mnemonic, data) = data(random, others);
        // RFC 2181 §10.1 and RFC 6672 §2.4: no other data beside a CNAME, one DNAME. Knot refuses NS beside DNAME below
        // the apex.
        let own = types.get(&owner).cloned().unwrap_or_default();
        let is_beside = match mnemonic {
            "CNAME" => !own.is_empty(),
            "DNAME" => {
                own.iter().any(|other| matches!(*other, "DNAME" | "CNAME" | "NS")) && owner != apex
                    || own.contains(&"DNAME")
            }
            "NS" => own.iter().any(|other| matches!(*other, "CNAME" | "DNAME")),
            _ => own.contains(&"CNAME"),
        };
        // NSD and Knot refuse names below a DNAME.
        let is_below = |above: &str, name: &str| name.ends_with(&format!(".{above}"));
        let is_hidden = types.iter().any(|(other, types)| {
            types.contains(&"DNAME") && is_below(other, &owner) || mnemonic == "DNAME" && is_below(&owner, other)
        });
        let is_refused =
            mnemonic == "NS" && owner.starts_with("*.") || matches!(mnemonic, "NS" | "DS") && owner == apex;
        let line = format!("{owner} {mnemonic} {data}");
        let is_unfit = is_beside || is_hidden || is_refused && is_for_bind;
        if !is_unfit && !lines.contains(&line) {
            types.entry(owner).or_default().push(mnemonic);
            lines.push(line);
        }
    }
    lines.join("\n") + "\n"
}

fn below(random: &mut Rng, apex: &str) -> String {
    let labels = (0..random.usize(..LABEL_COUNT_MAX)).map(|_| *random.choice(&LABELS).expect("there are some"));
    labels.map(|label| format!("{label}.")).collect::<String>() + apex
}

/// The type and the data of a record.
fn data(random: &mut Rng, others: &[String; 3]) -> (&'static str, String) {
    let number = random.u8(..3);
    let apex = &others[[0, 0, 0, 0, 0, 0, 1, 2][random.usize(..8)]];
    let target = below(random, apex);
    match random.usize(..34) {
        0..=5 => ("A", format!("192.0.2.{number}")),
        6..=8 => ("AAAA", format!("2001:db8::{number:x}")),
        9..=10 => ("TXT", format!("text{number}")),
        11 => ("DS", format!("{number} 13 2 {}", "00".repeat(32))),
        12..=15 => ("NS", target),
        16..=20 => ("CNAME", target),
        21..=22 => ("DNAME", target),
        23..=24 => ("MX", format!("{number} {target}")),
        25 => ("SRV", format!("0 0 53 {target}")),
        26 => ("SVCB", format!("{number} {target}")),
        27 => ("HTTPS", format!("{number} {}", if random.bool() { target } else { ".".into() })),
        28 => ("PTR", target),
        29 => ("KX", format!("{number} {target}")),
        30 => ("AFSDB", format!("{number} {target}")),
        31 => ("NAPTR", format!("{number} 10 \"s\" \"x\" \"\" {target}")),
        32 => ("CAA", "0 issue \"ca.out\"".to_owned()),
        _ => ("TYPE65280", "\\# 2 0102".to_owned()),
    }
}

/// Questions of every type for every owner, every name between an owner and its apex, and names below and next to them.
pub(crate) fn questions(random: &mut Rng, text: &str) -> Vec<Question> {
    let mut names = BTreeSet::new();
    for (apex, records) in records_of_zones(text) {
        let apex = Name::parse(&apex).expect("an apex");
        for record in records {
            let mut owner = Some(Name::parse(&record.owner).expect("an owner"));
            while let Some(name) = owner.filter(|name| name.is_at_or_below(apex)) {
                let text = name.to_string();
                names.extend(["", "q.", "Q.b.", "*."].map(|prefix| format!("{prefix}{text}")));
                owner = name.parent();
            }
        }
    }
    let types: Vec<Rtype> = TYPES.split_whitespace().filter_map(|rtype| Rtype::from_text(rtype.as_bytes())).collect();
    let mut questions = vec![];
    for name in names {
        let bytes = name_bytes(&name);
        for &rtype in &types {
            questions.push(Question {
                edns_bytes: random.bool().then_some(1232),
                recursion_desired: random.bool(),
                ..Question::new(bytes.clone(), rtype)
            });
        }
    }
    questions
}
