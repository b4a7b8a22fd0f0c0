//! Random zones and questions: answers equal those of the reference implementation, complete or truncated.

use super::support::exchange::{ask, ask_bytes};
use super::support::question::Question;
use super::support::random_zone::{question_name, question_type, zone_texts};
use super::support::reference::{Expected, Reference};
use super::support::reply::Reply;
use super::support::zone_text::zone_map;
use domain::base::Message;
use proptest::prelude::*;
use sanderling_dns::{DnsTransport, ZoneMap};

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
            count += 1;
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
