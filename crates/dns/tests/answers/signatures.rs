//! Times of signatures.

use super::support::zone_text::{name_bytes, records_of_zones};
use sanderling_dns::zonefile::{Position, Record};
use sanderling_dns::{BuildOutcome, HashSeed, Name, ZoneBuilder, ZoneLimits};

/// Signatures valid from 2020-01-01, the SOA's until 2030-01-01, and the others until 2031-01-01.
const ZONE: &str = "$ORIGIN example.
$TTL 60
@ SOA ns.a. h.a. 1 2 3 4 60
@ NS ns.a.
@ DNSKEY 257 3 13 AAAA
@ RRSIG SOA 13 1 60 20300101000000 20200101000000 1038 example. AA==
@ RRSIG NS 13 1 60 20310101000000 20200101000000 1038 example. AA==
@ RRSIG DNSKEY 13 1 60 20310101000000 20200101000000 1038 example. AA==
@ RRSIG NSEC 13 1 60 20310101000000 20200101000000 1038 example. AA==
@ NSEC @ NS SOA RRSIG NSEC DNSKEY
";
const INCEPTION: u64 = 1_577_836_800;
const EXPIRATION: u64 = 1_893_456_000;

fn built_at(now_unix_s: u64) -> BuildOutcome {
    let apex = name_bytes("example.");
    let builder = ZoneBuilder::new(Name::parse(&apex).expect("a name"), HashSeed(1), ZoneLimits::default());
    let mut builder = builder.with_time(now_unix_s);
    let position = Position { file_index: 0, line: 1, column: 1 };
    for (_, records) in records_of_zones(ZONE) {
        for record in &records {
            let owner = Name::parse(&record.owner).expect("a name");
            builder.add(&Record { position, owner, rtype: record.rtype, ttl_s: record.ttl_s, rdata: &record.rdata });
        }
    }
    builder.finish(position)
}

#[track_caller]
fn check(now_unix_s: u64, problems: &[&str]) {
    let built = built_at(now_unix_s);
    let found: Vec<&str> = built.diagnostics.iter().map(|diagnostic| &diagnostic.problem[..]).collect();
    assert_eq!(found, problems);
    assert_eq!(built.zone.expect("there are only warnings").signatures_expire_at(now_unix_s), Some(EXPIRATION));
}

#[test]
fn signatures_that_are_not_valid_or_expire_soon_are_reported() {
    const DAY_S: u64 = 24 * 3600;
    check(INCEPTION, &[]);
    check(EXPIRATION - 3 * DAY_S, &[]);
    check(EXPIRATION - 2 * DAY_S, &["a signature of the SOA records of example. expires in 48 hours"]);
    check(EXPIRATION, &["a signature of the SOA records of example. expires in 0 hours"]);
    check(EXPIRATION + 1, &["a signature of the SOA records of example. has expired"]);
    let early = built_at(INCEPTION - 1).diagnostics;
    assert_eq!(early.len(), 4);
    assert_eq!(early[0].problem, "a signature of the NS records of example. is not valid yet");
}
