//! Tests of answers: by RFC, against a reference implementation, and for malformed queries.

mod aliases;
mod compression;
mod dname;
mod edns;
mod malformed;
mod negative;
mod properties;
mod referrals;
mod rfc1034;
mod truncation;
mod wildcards;
mod zone_maps;
mod zones;

#[path = "../support/mod.rs"]
mod support;

use support::exchange::ask;
use support::question::Question;
use support::zone_text::zone_map;

/// Checks the answer to `question` from `zones`, each of which starts with its `$ORIGIN`. `expected` has RCODE and flags,
/// then a line for each record.
#[track_caller]
fn check(zones: &str, question: &str, expected: &str) {
    let reply = ask(&zone_map(zones), &Question::parse(question)).to_string();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let found: Vec<&str> = reply.lines().collect();
    assert_eq!(found, expected, "\n{question}\n{reply}");
}
