//! Tests of answers: by RFC, against a reference implementation, and for malformed queries.
//!
//! Cases that need no program are in the text files next to this one: lines of zones, and after them `! ` and a
//! diagnostic of the zone, `? ` and a question, `> ` and a line of the reply to the questions before it.

mod aliases;
mod catalogs;
mod compression;
mod edits;
mod journals;
mod malformed;
mod notify;
mod options;
mod properties;
mod queries;
mod signatures;
mod record_queries;
mod transfers;
mod transfers_in;
mod truncation;
mod updates;
mod zone_maps;
mod zone_text;
mod zones;

#[path = "../support/mod.rs"]
mod support;

use sanderling_dns::ZoneMap;
use sanderling_dns::zonefile::{Diagnostic, Severity};
use support::exchange::ask;
use support::question::Question;
use support::signer::{Chain, signed};
use support::zone_text::{built, texts_of_zones, zone_map};

/// Checks each reply and diagnostic in a file of this directory. The zones are signed, if there is a chain.
macro_rules! cases {
    ($($name:ident $($chain:ident)?),*) => {
        $(#[test]
        fn $name() {
            check_file(include_str!(concat!(stringify!($name), ".txt")), None$(.or(Some(Chain::$chain)))?);
        })*
    };
}

mod replies {
    use super::check_file;
    use super::support::signer::Chain;

    cases!(aliases, apexes, dname, edns, negative, referrals, rfc1034, signed, wildcards, zone_maps, zones);
    cases!(rfc4035 Nsec, rfc5155 OptOut);
}

#[track_caller]
fn check_file(text: &str, chain: Option<Chain>) {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let kind = |line: &str| line.chars().next().filter(|&first| "!?>".contains(first));
    let (mut zones, mut questions) = (String::new(), &[][..]);
    let mut differences = String::new();
    for group in lines.chunk_by(|line, next| kind(line) == kind(next)) {
        let expected = group.join("\n");
        let mut compare = |found: &str, context: &str| {
            if found != expected {
                differences += &format!("{context}\n{found}\n");
            }
        };
        match kind(group[0]) {
            Some('?') => questions = group,
            Some('!') => compare(&diagnostics(&zones), ""),
            Some(_) => questions.iter().for_each(|question| {
                let reply = ask(&zone_map(&zones), &Question::parse(&question[2..])).to_string();
                compare(&prefixed("> ", reply.lines()), question);
            }),
            None => zones = chain.map_or(expected.clone(), |chain| signed(&expected, chain)),
        }
    }
    assert!(differences.is_empty(), "instead of the expected lines:\n{differences}");
}

fn prefixed<'l>(prefix: &str, lines: impl Iterator<Item = &'l str>) -> String {
    lines.map(|line| format!("{prefix}{line}")).collect::<Vec<_>>().join("\n")
}

/// Checks the reply to one question. `expected` has a line for RCODE and flags, then a line for each record.
#[track_caller]
fn check(zones: &ZoneMap, question: &str, expected: &str) {
    let reply = ask(zones, &Question::parse(question)).to_string();
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(reply.lines().collect::<Vec<_>>(), expected, "\n{question}\n{reply}");
}

/// A line for each diagnostic of the zone in `text`.
fn diagnostics(text: &str) -> String {
    let [(apex, text)] = &texts_of_zones(text)[..] else { panic!("diagnostics are those of one zone") };
    let built = built(apex, text);
    let has_error = built.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    assert_eq!(built.zone.is_none(), has_error, "a zone is built unless there is an error");
    let line = |diagnostic: &Diagnostic| {
        let Diagnostic { position, severity, problem, remedy } = diagnostic;
        let severity = format!("{severity:?}").to_lowercase();
        format!("! {}: {severity}: {problem}; {remedy}", position.line)
    };
    built.diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}
