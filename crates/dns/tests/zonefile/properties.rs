//! Properties of any text and any RDATA.

use super::{OTHER_TYPES, TYPES_ZONE, apex, parser, rdata_of};
use proptest::prelude::*;
use sanderling_dns::rdata::{self, PresentationFormat};
use sanderling_dns::zonefile::{Entry, Severity};
use sanderling_dns::{Name, Rtype};

const SNIPPETS: &[u8] = include_bytes!("../zones/snippets.txt");

/// Reads any text to its end. Records are valid, errors have positions in the text, and their number is limited.
fn read_to_the_end(text: &[u8]) {
    let mut parser = parser(text);
    let line_count = text.split(|&byte| byte == b'\n').count() as u32;
    let mut error_count = 0;
    let mut include_count = 0;
    while let Some(entry) = parser.next() {
        match entry {
            Ok(Entry::Record(record)) => {
                assert!(record.owner.is_at_or_below(apex()));
                assert!(record.ttl_s < 1 << 31 && record.rtype.is_data());
                assert_eq!(rdata::check(record.rtype, record.rdata), Ok(()), "{}", record.rtype);
            }
            Ok(Entry::Alias(alias)) => {
                assert!(alias.owner.is_at_or_below(apex()) && !alias.target.is_at_or_below(apex()));
                check_alias(alias.owner, alias.target);
            }
            Ok(Entry::Include { .. }) => {
                include_count += 1;
                if include_count < 4 {
                    parser.include("again".into(), text.to_vec());
                }
            }
            Err(error) => {
                assert!(error.position.line <= line_count && error.position.column >= 1, "{error:?}");
                assert!(!error.problem.is_empty() && !error.remedy.is_empty(), "{error:?}");
                error_count += u32::from(error.severity != Severity::Warning);
            }
        }
    }
    assert!(error_count <= 101);
}

/// Checks that a printed `ALIAS` is read back unchanged.
fn check_alias(owner: Name<'_>, target: Name<'_>) {
    let text = format!("{owner} ALIAS {target}\n");
    match parser(text.as_bytes()).next() {
        Some(Ok(Entry::Alias(again))) => assert_eq!((again.owner, again.target), (owner, target), "{text}"),
        other => panic!("{text}: {other:?}"),
    }
}

/// A byte that is replaced (0), inserted (1) or removed (2).
type Fault = (prop::sample::Index, u8, u8);

fn faults(count_max: usize) -> impl Strategy<Value = Vec<Fault>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..3u8, any::<u8>()), 0..count_max)
}

fn corrupt(bytes: &mut Vec<u8>, faults: &[Fault]) {
    for (at, kind, byte) in faults {
        match (kind, bytes.len()) {
            (1, length) => bytes.insert(at.index(length + 1), *byte),
            (_, 0) => {}
            (0, length) => bytes[at.index(length)] = *byte,
            (_, length) => drop(bytes.remove(at.index(length))),
        }
    }
}

/// Checks that printed RDATA is read as the same bytes.
fn check_round_trip(rtype: Rtype, rdata: &[u8]) {
    let text = format!("a 5 {rtype} {}\n", PresentationFormat::new(rtype, rdata));
    let mut parser = parser(text.as_bytes());
    match parser.next() {
        Some(Ok(Entry::Record(record))) => assert_eq!((record.rtype, record.rdata), (rtype, rdata), "{text}"),
        other => panic!("{text}: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_read_to_the_end(text in prop::collection::vec(any::<u8>(), 0..500)) {
        read_to_the_end(&text);
    }

    #[test]
    fn any_tokens_are_read_to_the_end(text in prop::collection::vec(
        prop::sample::select(vec![
            "$TTL", "$ORIGIN", "$INCLUDE", "$GENERATE", "1-3", "${0,3,n}", "a", "@", ".", "\\", "\"", "(", ")", ";",
            "\n", "\r\n", " ", "\t", "IN", "5", "1h", "A", "192.0.2.1", "TXT", "SOA", "NS", "\\#", "0", "00", "MX", "\\999",
            "HTTPS", "alpn=", "h2,h3", "key7=", "mandatory=alpn", "\0", "LOC", "N", "E", "NSEC", "APL", "1:192.0.2.0/24",
        ]), 0..60))
    {
        read_to_the_end(text.join(" ").as_bytes());
        read_to_the_end(text.concat().as_bytes());
    }

    #[test]
    fn corrupted_zone_is_read_to_the_end(faults in faults(30), start in any::<prop::sample::Index>()) {
        let mut text = [TYPES_ZONE, SNIPPETS].concat();
        text.drain(..start.index(text.len()) / 2);
        corrupt(&mut text, &faults);
        read_to_the_end(&text);
    }

    #[test]
    fn truncated_zone_is_read_to_the_end(end in any::<prop::sample::Index>()) {
        read_to_the_end(&TYPES_ZONE[..end.index(TYPES_ZONE.len())]);
    }

    #[test]
    fn corrupted_rdata_of_every_type_is_rejected_or_read_as_the_same(faults in faults(10)) {
        for (rtype, mut rdata) in rdata_of(TYPES_ZONE).chain(rdata_of(OTHER_TYPES)) {
            corrupt(&mut rdata, &faults);
            // Neither of these may panic.
            let text = PresentationFormat::new(rtype, &rdata).to_string();
            rdata::target(rtype, &rdata);
            if rdata::check(rtype, &rdata).is_ok() {
                check_round_trip(rtype, &rdata);
            } else {
                prop_assert!(text.starts_with("\\# "));
            }
        }
    }

    #[test]
    fn owners_are_printed_and_read_as_the_same(labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..=63), 0..4)) {
        prop_assume!(labels.iter().map(|label| label.len() + 1).sum::<usize>() + super::APEX.len() <= 255);
        let mut owner = vec![];
        for label in &labels {
            owner.push(label.len() as u8);
            owner.extend(label);
        }
        owner.extend(super::APEX);
        let owner = Name::parse(&owner).expect("a name");
        let text = format!("{owner} 5 A 192.0.2.1\n");
        let mut parser = parser(text.as_bytes());
        match parser.next() {
            Some(Ok(Entry::Record(record))) => prop_assert_eq!(record.owner, owner),
            other => panic!("{text}: {other:?}"),
        }
    }
}
