//! Compares replies with the replies of NSD, Knot and BIND from the same generated zones: no reply differs from a reply
//! on which two of the three agree, except as the list of clauses says. Once with zones as they are generated, and once
//! with zones that are signed by the programs of BIND, ldns and Knot, and queries that ask for signatures.
//!
//! `cargo xtask dns-differential [--zones COUNT] [--seed NUMBER]` compares more zones than the test by itself.

mod clauses;
mod peer;
mod signers;
mod zones;

#[path = "../support/mod.rs"]
mod support;

use clauses::Clause;
use fastrand::Rng;
use peer::{Peer, Program};
use sanderling_dns::ZoneMap;
use std::collections::BTreeMap;
use support::exchange::ask;
use support::question::Question;
use support::reply::Reply;
use support::zone_text::zone_map;

const FEATURES: &str = include_str!("../answers/features.zone");
/// The seed of a test run without `SANDERLING_DIFFERENTIAL_SEED`, and its number of zones.
const SEED_DEFAULT: u64 = 17;
const ZONE_COUNT_DEFAULT: usize = 10;
/// Differences that are printed.
const SHOWN_COUNT_MAX: usize = 20;

/// The number in an environment variable that `cargo xtask dns-differential` sets.
fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Whether two replies are the same, apart from the order of records.
fn is_the_same(left: &Reply, right: &Reply) -> bool {
    let head = |reply: &Reply| (reply.rcode, reply.flags, reply.edns.is_some());
    // The records of a truncated reply are not used (RFC 2181 §9).
    head(left) == head(right)
        && (left.is_truncated() || (0..3).all(|section| left.set_of(section) == right.set_of(section)))
}

/// The result of comparing a reply.
enum Verdict {
    /// The reply equals a reply on which two programs agree, or one program's reply if they do not agree.
    Same,
    /// The reply differs, as a clause demands or allows.
    Allowed(Clause),
    Different,
}

fn judge(map: &ZoneMap, question: &Question, ours: &Reply, theirs: &[(Program, &Reply)]) -> Verdict {
    let is_agreed = |reply: &Reply| theirs.iter().filter(|(_, other)| is_the_same(reply, other)).count() >= 2;
    let agreed = theirs.iter().find(|(_, reply)| is_agreed(reply));
    let is_same = match agreed {
        Some((_, agreed)) => is_the_same(ours, agreed),
        None => theirs.iter().any(|(_, reply)| is_the_same(ours, reply)),
    };
    if is_same {
        return Verdict::Same;
    }
    match clauses::of(map, question, ours, theirs) {
        Some(clause) => Verdict::Allowed(clause),
        None => Verdict::Different,
    }
}

#[test]
fn replies_are_those_that_two_of_nsd_knot_and_bind_agree_on() {
    let seed = from_environment("SANDERLING_DIFFERENTIAL_SEED").unwrap_or(SEED_DEFAULT);
    let zone_count =
        from_environment("SANDERLING_DIFFERENTIAL_ZONES").map_or(ZONE_COUNT_DEFAULT, |count| count as usize);
    println!("seed {seed}, {zone_count} zones and those of features.zone");
    let mut random = Rng::with_seed(seed);
    let text = FEATURES.to_owned() + &zones::texts(&mut random, zone_count);
    let questions = zones::questions(&mut random, &text);
    compare(seed, &text, &questions);
}

#[test]
fn replies_from_signed_zones_are_those_that_two_agree_on() {
    let seed = from_environment("SANDERLING_DIFFERENTIAL_SEED").unwrap_or(SEED_DEFAULT);
    let zone_count =
        from_environment("SANDERLING_DIFFERENTIAL_ZONES").map_or(ZONE_COUNT_DEFAULT, |count| count as usize);
    println!("seed {seed}, {zone_count} zones that are signed");
    let mut random = Rng::with_seed(seed);
    let unsigned = zones::texts(&mut random, zone_count);
    let text = signers::signed(&unsigned);
    let questions: Vec<Question> = zones::questions(&mut random, &unsigned)
        .into_iter()
        .map(|question| Question { edns_bytes: Some(1232), dnssec_ok: true, ..question })
        .collect();
    compare(seed, &text, &questions);
}

/// Checks that the replies to `questions` from the zones of `text` agree with two programs.
fn compare(seed: u64, text: &str, questions: &[Question]) {
    let map = zone_map(text);
    let programs = [Program::Nsd, Program::Knot, Program::Bind];
    let answers: Vec<(Peer, Vec<Reply>)> = std::thread::scope(|scope| {
        let run = |program| {
            let peer = Peer::start(program, text);
            let replies = peer.ask_all(questions);
            (peer, replies)
        };
        let threads: Vec<_> = programs.map(|program| scope.spawn(move || run(program))).into_iter().collect();
        threads.into_iter().map(|thread| thread.join().expect("the program answers")).collect()
    });
    for (peer, _) in &answers {
        println!("{:?} refuses {} zones", peer.program, peer.refused.len());
    }
    let mut counts: BTreeMap<Clause, usize> = BTreeMap::new();
    let (mut different_count, mut shown_count, mut last_different) = (0, 0, None);
    // Of zones that two programs refuse.
    let mut unserved_count = 0;
    for (index, question) in questions.iter().enumerate() {
        let ours = ask(&map, question);
        let theirs: Vec<(Program, &Reply)> = answers
            .iter()
            .filter(|(peer, _)| !peer.lacks_zone_of(question, &ours))
            .map(|(peer, replies)| (peer.program, &replies[index]))
            .collect();
        if theirs.len() < 2 {
            unserved_count += 1;
            continue;
        }
        match judge(&map, question, &ours, &theirs) {
            Verdict::Same => {}
            Verdict::Allowed(clause) => *counts.entry(clause).or_default() += 1,
            Verdict::Different => {
                different_count += 1;
                // Only one difference per name is shown: the types of a name mostly differ in the same way.
                if last_different != Some(&question.name) && shown_count < SHOWN_COUNT_MAX {
                    (last_different, shown_count) = (Some(&question.name), shown_count + 1);
                    println!("--- {question:?}\nours: {ours}");
                    theirs.iter().for_each(|(program, reply)| println!("{program:?}: {reply}"));
                }
            }
        }
    }
    println!(
        "{} questions, {unserved_count} of zones that two programs refuse, {different_count} different, allowed: {counts:?}",
        questions.len()
    );
    assert!(unserved_count * 20 < questions.len(), "seed {seed}: two programs refuse too many zones");
    assert_eq!(different_count, 0, "seed {seed}");
}
