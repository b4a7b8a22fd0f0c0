//! Random zones and questions: answers equal those of the reference implementation, complete or truncated.

use super::support::exchange::{ask, ask_bytes};
use super::support::question::{Question, UDP};
use super::support::random_zone::{question_name, question_type, zone_texts};
use super::support::reference::{Expected, Reference};
use super::support::reply::Reply;
use super::support::signer::{Chain, signed};
use super::support::validator;
use super::support::zone_text::{records_of_zones, zone_map};
use domain::base::Message;
use proptest::prelude::*;
use sanderling_dns::{DnsTransport, Rtype, ZoneMap};

/// Questions to each zone.
const QUESTION_COUNT: usize = 60;

fn questions() -> impl Strategy<Value = Vec<Question>> {
    let question = (question_name(), question_type()).prop_map(|(name, rtype)| Question::new(name, rtype));
    prop::collection::vec(question, QUESTION_COUNT)
}

/// Checks that the crate `domain` reads every record, name and RDATA.
fn check_with_domain(bytes: &[u8], reply: &Reply) {
    let message = Message::from_slice(bytes).expect("longer than a header");
    let (_, answer, authority, additional) = message.sections().expect("four sections");
    let sections = [answer, authority, additional];
    for (section, ours) in sections.into_iter().zip(&reply.sections) {
        let mut count = 0;
        for record in section {
            let record = record.expect("a record");
            let any = record.to_any_record::<domain::rdata::AllRecordData<_, _>>();
            any.expect("RDATA of its type's shape");
            count += usize::from(record.rtype() != domain::base::Rtype::OPT);
        }
        assert_eq!(count, ours.len());
    }
}

/// Checks that a reply of at most 512 bytes is complete, or lacks only addresses, or has TC.
fn check_truncated(zones: &ZoneMap, question: &Question, whole: &Expected, whole_bytes: usize) {
    let cut = ask(zones, question);
    if cut.is_truncated() {
        assert!(whole_bytes > 512, "the whole reply fits");
        return;
    }
    let cut = Expected::of(&cut);
    assert_eq!((cut.rcode, &cut.sections[0], &cut.sections[1]), (whole.rcode, &whole.sections[0], &whole.sections[1]));
    assert!(cut.sections[2] == whole.sections[2] || whole_bytes > 512 && cut.sections[2].is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn answer_equals_that_of_the_reference(text in zone_texts(), questions in questions()) {
        let zones = zone_map(&text);
        let reference = Reference::new(&text);
        for question in questions {
            let over_tcp = Question { transport: DnsTransport::Tcp, ..question.clone() };
            let bytes = ask_bytes(&zones, &over_tcp);
            let reply = Reply::parse(&bytes).expect("has been read before");
            let found = Expected::of(&reply);
            let expected = reference.answer(&question);
            prop_assert_eq!(&found, &expected, "\n{:?}\n{}\n{}", question, reply, text);
            check_with_domain(&bytes, &reply);
            check_truncated(&zones, &question, &found, bytes.len());
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// An answer from a signed zone is the answer from the unsigned zone, with signatures and proofs.
    #[test]
    fn signed_answer_is_the_unsigned_one_with_proofs(
        text in zone_texts(),
        chain in prop::sample::select(vec![Chain::Nsec, Chain::Nsec3, Chain::OptOut]),
        questions in questions(),
    ) {
        // RFC 4592 §4.2 leaves open what these do.
        prop_assume!(!text.lines().any(|line| line.starts_with("*.") && line.contains(" NS ")));
        let (unsigned, text) = (zone_map(&text), signed(&text, chain));
        let zones = zone_map(&text);
        let apexes: Vec<Vec<u8>> = records_of_zones(&text).into_iter().map(|(apex, _)| apex).collect();
        for question in questions.into_iter().filter(|question| question.rtype != Rtype::ANY) {
            let without = Question { transport: DnsTransport::Tcp, ..question.clone() };
            let with = Question { edns_bytes: Some(1232), dnssec_ok: true, ..without.clone() };
            let bytes = ask_bytes(&zones, &with);
            let reply = Reply::parse(&bytes).expect("has been read before");
            check_with_domain(&bytes, &reply);
            let checked = validator::check(&question.name, question.rtype, &reply, &apexes);
            prop_assert!(checked.is_ok(), "{checked:?}\n{question:?}\n{reply}\n{text}");
            let expected = Expected::of(&ask(&unsigned, &without));
            prop_assert_eq!(&Expected::of(&without_proofs(reply)), &expected, "\n{:?}\n{}", question, text);
            prop_assert_eq!(&Expected::of(&ask(&zones, &without)), &expected, "\n{:?}\n{}", question, text);
            let cut = ask(&zones, &Question { transport: UDP, edns_bytes: Some(512), ..with });
            if !cut.is_truncated() {
                let checked = validator::check(&question.name, question.rtype, &cut, &apexes);
                prop_assert!(checked.is_ok(), "{checked:?}\n{question:?}\n{cut}\n{text}");
            }
        }
    }
}

/// `reply` without what only replies from signed zones have.
fn without_proofs(mut reply: Reply) -> Reply {
    for section in &mut reply.sections {
        section.retain(|record| !matches!(record.rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3));
    }
    // With a referral.
    reply.sections[1].retain(|record| record.rtype != Rtype::DS);
    reply
}
