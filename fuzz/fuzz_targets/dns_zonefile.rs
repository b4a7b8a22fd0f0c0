//! Any bytes as a zone file: records are well-formed, and printed records are read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_dns::Name;
use sanderling_dns::rdata::{self, PresentationFormat};
use sanderling_dns::zonefile::{AliasRecord, Entry, Parser, ParserLimits, Record};

/// Low limits, so that an input takes little time.
const LIMITS: ParserLimits =
    ParserLimits { errors_max: 20, include_depth_max: 2, include_count_max: 4, generate_count_max: 100 };
const APEX: &[u8] = b"\x07example\0";

fuzz_target!(|text: &[u8]| {
    let mut parser = parser(text.to_vec());
    while let Some(entry) = parser.next() {
        match entry {
            Ok(Entry::Record(record)) => check_record(&record),
            Ok(Entry::Alias(alias)) => check_alias(&alias),
            Ok(Entry::Include { .. }) => parser.include("included".into(), text.to_vec()),
            Err(_) => {}
        }
    }
});

fn parser(text: Vec<u8>) -> Parser {
    let apex = Name::parse(APEX).expect("the apex is a name");
    Parser::new("fuzz.zone".into(), text, apex, LIMITS)
}

fn check_alias(alias: &AliasRecord<'_>) {
    let line = format!("{} ALIAS {}\n", alias.owner, alias.target);
    match parser(line.clone().into_bytes()).next() {
        Some(Ok(Entry::Alias(again))) => assert_eq!((again.owner, again.target), (alias.owner, alias.target), "{line}"),
        other => panic!("{line}: {other:?}"),
    }
}

fn check_record(record: &Record<'_>) {
    assert_eq!(rdata::check(record.rtype, record.rdata), Ok(()));
    let text = PresentationFormat::new(record.rtype, record.rdata);
    let line = format!("{} {} {} {text}\n", record.owner, record.ttl_s, record.rtype);
    let mut parser = parser(line.clone().into_bytes());
    match parser.next() {
        Some(Ok(Entry::Record(again))) => {
            assert_eq!((again.owner, again.ttl_s), (record.owner, record.ttl_s), "{line}");
            assert_eq!((again.rtype, again.rdata), (record.rtype, record.rdata), "{line}");
        }
        other => panic!("{line}: {other:?}"),
    }
}
