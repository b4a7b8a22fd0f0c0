//! Tests of the zone file parser: records, errors, and comparisons with BIND and the crate `domain`.

mod dialect;
mod errors;
mod include;
mod peers;
mod properties;
mod types;

use sanderling_dns::rdata::PresentationFormat;
use sanderling_dns::zonefile::{Diagnostic, Entry, Parser, ParserLimits, Record, Severity};
use sanderling_dns::{Name, Rtype};

/// `example.`, the apex of every zone in these tests.
const APEX: &[u8] = b"\x07example\0";

/// Records of every type with fields, as in its RFC.
const TYPES_ZONE: &[u8] = include_bytes!("../zones/types.zone");
/// Records of the types with fields that BIND 9.18 does not read, or that need a zone of their own.
const OTHER_TYPES: &[u8] =
    b"$TTL 300\na MD b\n MF b\n CNAME b\n HHIT AAEC\n BRID AAEC\n CLA b c\n IPN 18446744073709551615\n \
    SIG A 8 1 1h 1700000000 1600000000 1 . AA==\n NSEC3PARAM 1 0 12 aabb\n NSEC3PARAM 1 0 12 -\n";

fn apex() -> Name<'static> {
    Name::parse(APEX).expect("the apex is a name")
}

/// A parser of `text`.
fn parser(text: &[u8]) -> Parser {
    Parser::new("example.zone".into(), text.to_vec(), apex(), ParserLimits::default())
}

/// A line such as `www.example. 300 A 192.0.2.1`.
fn record_line(record: &Record<'_>) -> String {
    let text = PresentationFormat::new(record.rtype, record.rdata);
    format!("{} {} {} {text}", record.owner, record.ttl_s, record.rtype).trim_end().into()
}

/// A line such as `3:7: error: …; …`.
fn error_line(error: &Diagnostic) -> String {
    let Diagnostic { position, severity, problem, remedy } = error;
    let severity = match severity {
        Severity::Error | Severity::Incomplete => "error",
        Severity::Warning => "warning",
    };
    format!("{}:{}: {severity}: {problem}; {remedy}", position.line, position.column)
}

/// The parser's results for `text`, with a line for each entry.
fn lines(text: &[u8]) -> Vec<String> {
    let mut parser = parser(text);
    let mut lines = vec![];
    while let Some(entry) = parser.next() {
        lines.push(match entry {
            Ok(Entry::Record(record)) => record_line(&record),
            Ok(Entry::Alias(alias)) => format!("{} ALIAS {}", alias.owner, alias.target),
            Ok(Entry::Include { path, .. }) => panic!("unexpected $INCLUDE {path:?}"),
            Err(error) => error_line(&error),
        });
    }
    lines
}

/// Type and RDATA of each record in `text`.
fn rdata_of(text: &[u8]) -> impl Iterator<Item = (Rtype, Vec<u8>)> {
    let mut parser = parser(text);
    std::iter::from_fn(move || match parser.next()? {
        Ok(Entry::Record(record)) => Some((record.rtype, record.rdata.to_vec())),
        other => panic!("{other:?} is not a record"),
    })
}

/// Reads `text` from line 2 on, after `$TTL 300`.
#[track_caller]
fn check(text: impl AsRef<[u8]>, expected: &[&str]) {
    let text = [b"$TTL 300\n", text.as_ref()].concat();
    assert_eq!(lines(&text), expected, "\n{}", String::from_utf8_lossy(&text));
}
