//! Random zones of few labels, so that wildcards, delegations, aliases and empty non-terminals often meet, and
//! questions.

use proptest::prelude::*;
use sanderling_dns::Rtype;
use std::collections::BTreeMap;

/// Labels of owners and targets. `aa` starts with another of them.
const LABELS: [&str; 5] = ["a", "b", "*", "c", "aa"];
/// A label of questions only.
const OTHER_LABEL: &str = "q";
const LABEL_COUNT_MAX: usize = 4;
const RECORD_COUNT_MAX: usize = 24;

/// The type and the data of a random record.
type Data = (&'static str, String);
/// The owner of a random record, and its data.
pub(crate) type RandomRecord = (String, Data);

/// The text of a zone at `apex` without errors.
pub(crate) fn zone_text(apex: &'static str) -> impl Strategy<Value = String> {
    records(apex).prop_map(move |records| text_of(apex, &records))
}

/// Records, not all of which one zone may have.
pub(crate) fn records(apex: &'static str) -> impl Strategy<Value = Vec<RandomRecord>> {
    prop::collection::vec((below(apex), data(apex)), 0..RECORD_COUNT_MAX)
}

/// The text of one to three zones, one below another.
pub(crate) fn zone_texts() -> impl Strategy<Value = String> {
    let texts = (zone_text("z."), prop::option::of(zone_text("a.z.")), prop::option::of(zone_text("b.a.z.")));
    texts.prop_map(|(above, middle, below)| [Some(above), middle, below].into_iter().flatten().collect())
}

/// The wire form of a name, usually at or below `z.`, in mixed case.
pub(crate) fn question_name() -> impl Strategy<Value = Vec<u8>> {
    let label = prop_oneof![6 => prop::sample::select(&LABELS[..]), 1 => Just(OTHER_LABEL)];
    let apex = prop_oneof![20 => Just("z."), 1 => Just("out."), 1 => Just("")];
    (prop::collection::vec(label, 0..=LABEL_COUNT_MAX), apex, any::<u64>()).prop_map(|(labels, apex, upper)| {
        let name: String = labels.iter().map(|label| format!("{label}.")).collect::<String>() + apex;
        let mixed = |(index, letter): (usize, char)| match upper >> (index % 64) & 1 {
            0 => letter,
            _ => letter.to_ascii_uppercase(),
        };
        let name: String = name.chars().enumerate().map(mixed).collect();
        super::zone_text::name_bytes(if name.is_empty() { "." } else { &name })
    })
}

/// A question's type: those in random zones, and others.
pub(crate) fn question_type() -> impl Strategy<Value = Rtype> {
    let types = "A A AAAA TXT DS NS CNAME DNAME MX SRV SOA ANY CAA".split(' ');
    prop::sample::select(types.filter_map(|rtype| Rtype::from_text(rtype.as_bytes())).collect::<Vec<_>>())
}

fn below(apex: &'static str) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&LABELS[..]), 0..LABEL_COUNT_MAX)
        .prop_map(move |labels| labels.iter().map(|label| format!("{label}.")).collect::<String>() + apex)
}

fn target(apex: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![8 => below(apex), 1 => below("out."), 1 => below("z.")]
}

fn data(apex: &'static str) -> impl Strategy<Value = Data> {
    let number = || 0..3u8;
    prop_oneof![
        4 => number().prop_map(|number| ("A", format!("192.0.2.{number}"))),
        2 => number().prop_map(|number| ("AAAA", format!("2001:db8::{number:x}"))),
        2 => number().prop_map(|number| ("TXT", format!("text{number}"))),
        1 => number().prop_map(|number| ("DS", format!("{number} 13 2 {}", "00".repeat(32)))),
        3 => target(apex).prop_map(|target| ("NS", target)),
        4 => target(apex).prop_map(|target| ("CNAME", target)),
        1 => target(apex).prop_map(|target| ("DNAME", target)),
        1 => target(apex).prop_map(|target| ("MX", format!("10 {target}"))),
        1 => target(apex).prop_map(|target| ("SRV", format!("0 0 53 {target}"))),
    ]
}

/// The text of the records among `records` that one zone may have.
pub(crate) fn text_of(apex: &str, records: &[RandomRecord]) -> String {
    let mut lines = vec![
        format!("$ORIGIN {apex}\n$TTL 300"),
        format!("{apex} SOA ns.{apex} h.{apex} 1 2 3 4 60"),
        format!("{apex} NS ns.out."),
    ];
    let mut types: BTreeMap<&str, Vec<&str>> = BTreeMap::from([(apex, vec!["SOA", "NS"])]);
    for (owner, (mnemonic, data)) in records {
        let own = types.entry(owner).or_default();
        // RFC 2181 §10.1 and RFC 6672 §2.4: no other data beside a CNAME, and one DNAME.
        let is_alone = match *mnemonic {
            "CNAME" => !own.is_empty(),
            "DNAME" => own.contains(&"DNAME") || own.contains(&"CNAME"),
            _ => own.contains(&"CNAME"),
        };
        let line = format!("{owner} {mnemonic} {data}");
        if is_alone || lines.contains(&line) {
            continue;
        }
        own.push(mnemonic);
        lines.push(line);
    }
    lines.join("\n") + "\n"
}
