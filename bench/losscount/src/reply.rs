//! A DNS message turned into right or wrong: id, question, response code, every record's form, and a digest of them.

use crate::outcome::Cause;
use crate::question::{HEADER_BYTES, NAME_BYTES_MAX, Question, response_code_text};
use std::hash::{DefaultHasher, Hasher};

/// Pointers followed in one name. Each must lead further back, and the shortest label between two has two octets.
const POINTER_COUNT_MAX: usize = 128;

/// Over what a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// It may be cut.
    Udp,
    /// It may not (RFC 7766 §8).
    Tcp,
}

/// A message that is the right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of the answer and authority sections, whatever the order of the records in each. Additional records do not count:
    /// a server may leave them out for want of room.
    pub digest: u64,
    /// TC: records have been left out, so that the digest says nothing.
    pub is_truncated: bool,
}

/// Judges a message as the answer to `question` under `id`.
pub fn check_reply(
    message: &[u8],
    id: u16,
    question: &Question,
    transport: Transport,
) -> Result<Reply, (Cause, String)> {
    let wrong = |what: String| (Cause::WrongAnswer, what);
    if message.len() < HEADER_BYTES {
        return Err(wrong(format!("{} octets are no message", message.len())));
    }
    let field = |index: usize| u16::from_be_bytes([message[2 * index], message[2 * index + 1]]);
    let flags = field(1);
    let is_truncated = flags & 0x0200 != 0;
    if field(0) != id {
        return Err(wrong(format!("id {:#06x}, asked under {id:#06x}", field(0))));
    }
    // QR is set and the opcode is QUERY.
    if flags & 0xf800 != 0x8000 {
        return Err(wrong(format!("flags {flags:#06x} are not those of an answer")));
    }
    let mut asked = Vec::new();
    question.put_question(&mut asked);
    // The octets of the name come back as they were sent: a server that answers by compression keeps them too.
    if field(2) != 1 || !message[HEADER_BYTES..].starts_with(&asked) {
        return Err(wrong(format!("the question is not {question}")));
    }
    let code = (flags & 0x000f) as u8;
    if code != question.response_code {
        return Err((Cause::WrongStatus, format!("{} for {question}", response_code_text(code))));
    }
    if is_truncated && transport == Transport::Tcp {
        return Err(wrong("cut (TC) over TCP".to_owned()));
    }
    let counts = [field(3), field(4), field(5)];
    let digest = digest_of(message, HEADER_BYTES + asked.len(), counts)
        .ok_or_else(|| wrong(format!("malformed records in the answer to {question}")))?;
    if let Some(expected) = question.digest
        && expected != digest
        && !is_truncated
    {
        return Err((Cause::WrongContent, format!("other records than before the load, for {question}")));
    }
    Ok(Reply { digest, is_truncated })
}

/// Walks all records to the exact end of the message; `None` when they do not end there.
fn digest_of(message: &[u8], start: usize, counts: [u16; 3]) -> Option<u64> {
    let mut at = start;
    let mut digest = 0_u64;
    for (section, count) in counts.into_iter().enumerate() {
        for _ in 0..count {
            let mut hasher = DefaultHasher::new();
            hasher.write_usize(section);
            at = hash_record(message, at, &mut hasher)?;
            if section < 2 {
                // A sum does not know the order: servers may turn an RRset round (RFC 1034 §3.6).
                digest = digest.wrapping_add(hasher.finish());
            }
        }
    }
    (at == message.len()).then_some(digest)
}

/// Returns where the next record begins.
fn hash_record(message: &[u8], start: usize, hasher: &mut DefaultHasher) -> Option<usize> {
    let at = hash_name(message, start, hasher)?;
    let fixed = message.get(at..at + 10)?;
    // Type, class and TTL.
    hasher.write(&fixed[..8]);
    let rtype = u16::from_be_bytes([fixed[0], fixed[1]]);
    let data = at + 10;
    let end = data + usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    let bytes = message.get(data..end)?;
    // Names in the data of the types of RFC 1035 alone may be compressed (RFC 3597 §4).
    let (before_bytes, name_count) = match rtype {
        2 | 5 | 12 => (0, 1),
        6 => (0, 2),
        15 => (2, 1),
        _ => (bytes.len(), 0),
    };
    hasher.write(bytes.get(..before_bytes)?);
    let mut name_at = data + before_bytes;
    for _ in 0..name_count {
        name_at = hash_name(message, name_at, hasher)?;
    }
    hasher.write(message.get(name_at..end)?);
    Some(end)
}

/// Hashes a name without its compression and without case; returns where it ends in the record.
fn hash_name(message: &[u8], start: usize, hasher: &mut DefaultHasher) -> Option<usize> {
    let mut at = start;
    let mut end_in_record = None;
    let mut name_bytes = 0;
    let mut pointer_count = 0;
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0..64 => {
                let label = message.get(at..=at + length)?;
                name_bytes += label.len();
                if name_bytes > NAME_BYTES_MAX {
                    return None;
                }
                // Lengths are below 64, and so no letters.
                label.iter().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase()));
                at += 1 + length;
                if length == 0 {
                    return Some(end_in_record.unwrap_or(at));
                }
            }
            192.. => {
                let target = (length & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                end_in_record.get_or_insert(at + 2);
                pointer_count += 1;
                // RFC 1035 §4.1.4: a pointer leads to a prior occurrence.
                if target >= at || pointer_count > POINTER_COUNT_MAX {
                    return None;
                }
                at = target;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Transport, check_reply};
    use crate::outcome::Cause;
    use crate::question::{Question, parse_questions};

    const ID: u16 = 0x1234;
    /// `ex. NS a.ex.`, owner and data compressed.
    const NS_A: &[u8] = b"\xc0\x0c\0\x02\0\x01\0\0\0\x3c\0\x04\x01a\xc0\x0c";
    const NS_B: &[u8] = b"\xc0\x0c\0\x02\0\x01\0\0\0\x3c\0\x04\x01b\xc0\x0c";
    const NS_B_PLAIN: &[u8] = b"\x02EX\0\0\x02\0\x01\0\0\0\x3c\0\x06\x01B\x02ex\0";

    fn question() -> Question {
        parse_questions("ex NS").expect("the text is right").remove(0)
    }

    fn message(flags: [u8; 2], records: &[&[u8]]) -> Vec<u8> {
        let mut out = ID.to_be_bytes().to_vec();
        out.extend_from_slice(&flags);
        out.extend_from_slice(&[0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        question().put_question(&mut out);
        out.extend(records.concat());
        out
    }

    #[track_caller]
    fn digest(records: &[&[u8]]) -> u64 {
        check_reply(&message([0x84, 0], records), ID, &question(), Transport::Udp).expect("it is right").digest
    }

    #[track_caller]
    fn check_wrong(message: &[u8], expected: Cause) {
        let verdict = check_reply(message, ID, &question(), Transport::Tcp);
        assert!(matches!(verdict, Err((cause, _)) if cause == expected), "{verdict:?}");
    }

    #[test]
    fn the_digest_knows_neither_order_nor_compression_nor_case() {
        assert_eq!(digest(&[NS_A, NS_B]), digest(&[NS_B, NS_A]));
        assert_eq!(digest(&[NS_A, NS_B]), digest(&[NS_A, NS_B_PLAIN]));
    }

    #[test]
    fn the_digest_knows_what_is_missing_doubled_or_other() {
        let whole = digest(&[NS_A, NS_B]);
        for other in [&[NS_A][..], &[NS_A, NS_A], &[NS_A, NS_B, NS_B], &[]] {
            assert_ne!(digest(other), whole);
        }
    }

    #[test]
    fn another_digest_is_wrong_content() {
        let mut question = question();
        question.digest = Some(digest(&[NS_A]));
        let verdict = |records| check_reply(&message([0x84, 0], records), ID, &question, Transport::Udp);
        assert!(verdict(&[NS_A]).is_ok());
        assert!(matches!(verdict(&[NS_B]), Err((Cause::WrongContent, _))));
    }

    #[test]
    fn a_cut_answer_is_right_over_udp_alone() {
        let cut = message([0x86, 0], &[]);
        assert!(check_reply(&cut, ID, &question(), Transport::Udp).is_ok_and(|reply| reply.is_truncated));
        check_wrong(&cut, Cause::WrongAnswer);
    }

    #[test]
    fn wrong_messages() {
        let right = message([0x84, 0], &[NS_A]);
        check_wrong(&[], Cause::WrongAnswer);
        check_wrong(&right[..right.len() - 1], Cause::WrongAnswer);
        check_wrong(&[right.as_slice(), &[0]].concat(), Cause::WrongAnswer);
        check_wrong(&[&[0xff], &right[1..]].concat(), Cause::WrongAnswer);
        check_wrong(&message([0x04, 0], &[NS_A]), Cause::WrongAnswer);
        check_wrong(&message([0x84, 5], &[]), Cause::WrongStatus);
        let other_name: Vec<u8> = right.iter().map(|&byte| if byte == b'e' { b'E' } else { byte }).collect();
        check_wrong(&other_name, Cause::WrongAnswer);
    }

    #[test]
    fn a_pointer_that_leads_nowhere_is_wrong() {
        for pointer in [b"\xc0\x14", b"\xff\xff", b"\x80\x0c"] {
            check_wrong(&message([0x84, 0], &[pointer, b"\0\x01\0\x01\0\0\0\0\0\0"]), Cause::WrongAnswer);
        }
    }
}
