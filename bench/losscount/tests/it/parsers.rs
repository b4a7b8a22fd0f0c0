//! What any octets at all turn into: a verdict, the same however they are cut.

use crate::answers::{CONTENT, NAMES, http};
use losscount::internals::{HttpRequest, Protocol, Taken, Transport, check_reply};
use losscount::{Cause, parse_questions};
use proptest::prelude::*;
use std::sync::Arc;

/// Takes the parts one after another, until there is a verdict.
fn verdict<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Result<bool, Cause> {
    let mut request = HttpRequest::new("host", "/", false, Arc::new([CONTENT.to_vec(), b"a".to_vec()]));
    let mut answer = request.ask(&mut Vec::new());
    let mut is_whole = false;
    for part in parts {
        match request.take(&mut answer, part) {
            Taken::More => {}
            Taken::Whole { .. } => is_whole = true,
            Taken::Wrong(cause, _) => return Err(cause),
        }
    }
    Ok(is_whole)
}

proptest! {
    #[test]
    fn a_response_is_judged_alike_however_it_is_cut(
        spoiled in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut response = http(CONTENT);
        let length_bytes = response.len();
        if let Some((index, byte)) = spoiled {
            response[index.index(length_bytes)] = byte;
        }
        cuts.sort_by_key(|cut| cut.index(length_bytes));
        let mut parts = Vec::new();
        let mut rest = response.as_slice();
        for cut in cuts.iter().rev() {
            let (before, part) = rest.split_at(cut.index(length_bytes).min(rest.len()));
            parts.push(part);
            rest = before;
        }
        parts.push(rest);
        let in_parts = verdict(parts.into_iter().rev().filter(|part| !part.is_empty()));
        prop_assert_eq!(in_parts, verdict([response.as_slice()]));
        if spoiled.is_none() {
            prop_assert_eq!(in_parts, Ok(true));
        }
    }

    #[test]
    fn any_octets_over_http_have_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        // Chance writes no response.
        prop_assert_ne!(verdict([bytes.as_slice()]), Ok(true));
    }

    #[test]
    fn any_octets_behind_a_question_have_a_verdict(
        counts in any::<[u8; 6]>(),
        records in prop::collection::vec(prop_oneof![Just(0xc0), Just(0x0c), 0..=3_u8, any::<u8>()], 0..80),
    ) {
        let question = parse_questions(NAMES).expect("the names are right").remove(0);
        let header = [0x12, 0x34, 0x84, 0, 0, 1, counts[0] & 1, counts[1], counts[2] & 1, counts[3], counts[4] & 1, counts[5]];
        let asked = b"\x03www\x07example\x03com\0\0\x01\0\x01";
        let message = [&header, asked.as_slice(), &records].concat();
        let has_records = header[6..].iter().any(|byte| *byte > 0);
        let verdict = check_reply(&message, 0x1234, &question, Transport::Udp);
        // Right only when the sections end with the message.
        prop_assert!(verdict.is_err() || has_records || records.is_empty());
        prop_assert!(verdict.is_ok() || has_records || !records.is_empty());
    }
}
