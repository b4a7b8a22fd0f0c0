//! The time for which a reply may be kept, for transports with their own caches.

use crate::zones::packed_rrset::HEADER_BYTES;

/// Type and class after a question's name.
const QUESTION_TAIL_BYTES: usize = 4;
/// Type, class, TTL and the length of the data after a record's owner.
const RECORD_FIXED_BYTES: usize = 10;

/// The smallest TTL in the answer and authority sections of `reply`, in seconds (RFC 8484 §5.1).
///
/// A negative answer has the TTL of its SOA, as in RFC 2308 §5. 0 for any other error, and without a record.
pub fn smallest_ttl(reply: &[u8]) -> u32 {
    const NOERROR: u8 = 0;
    const NXDOMAIN: u8 = 3;
    let is_cacheable = reply.get(3).is_some_and(|flags| matches!(flags & 0x0F, NOERROR | NXDOMAIN));
    if is_cacheable { find_smallest(reply).unwrap_or(0) } else { 0 }
}

fn find_smallest(reply: &[u8]) -> Option<u32> {
    let count = |at: usize| Some(u16::from_be_bytes(reply.get(at..)?.first_chunk().copied()?));
    let mut at = HEADER_BYTES;
    for _ in 0..count(4)? {
        at = end_of_name(reply, at)? + QUESTION_TAIL_BYTES;
    }
    let mut smallest = None;
    for _ in 0..u32::from(count(6)?) + u32::from(count(8)?) {
        at = end_of_name(reply, at)?;
        let fixed: &[u8; RECORD_FIXED_BYTES] = reply.get(at..)?.first_chunk()?;
        let ttl = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        smallest = Some(smallest.map_or(ttl, |smallest: u32| smallest.min(ttl)));
        at += RECORD_FIXED_BYTES + usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    }
    smallest.filter(|_| at <= reply.len())
}

/// The end of the name at `at`, which may end with a compression pointer (RFC 1035 §4.1.4).
fn end_of_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..0x40 => at += 1 + usize::from(length),
            _ => return Some(at + 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A reply to a question for the root with these records in answer and authority section.
    fn reply(rcode: u8, answer: &[u32], authority: &[u32]) -> Vec<u8> {
        let mut reply =
            [&[0, 0, 0x84, rcode, 0, 1, 0, answer.len() as u8, 0, authority.len() as u8, 0, 1][..]].concat();
        reply.extend_from_slice(b"\x01a\0\0\x01\0\x01");
        for ttl in answer.iter().chain(authority) {
            reply.extend_from_slice(b"\xC0\x0C\0\x01\0\x01");
            reply.extend_from_slice(&ttl.to_be_bytes());
            reply.extend_from_slice(b"\0\x04\xC0\0\x02\x01");
        }
        // The TTL field of an OPT is not a TTL.
        reply.extend_from_slice(b"\0\0\x29\x04\xD0\0\0\0\0\0\0");
        reply
    }

    #[test]
    fn smallest_ttl_is_that_of_answer_and_authority() {
        assert_eq!(smallest_ttl(&reply(0, &[300, 60], &[3600])), 60);
        assert_eq!(smallest_ttl(&reply(0, &[300], &[30])), 30);
        assert_eq!(smallest_ttl(&reply(3, &[], &[900])), 900);
        assert_eq!(smallest_ttl(&reply(0, &[], &[])), 0);
        assert_eq!(smallest_ttl(&reply(2, &[300], &[])), 0, "SERVFAIL");
    }

    #[test]
    fn cut_off_reply_has_no_ttl() {
        let reply = reply(0, &[300], &[60]);
        let end = reply.len() - 11;
        for length in 0..end {
            assert_eq!(smallest_ttl(&reply[..length]), 0, "{length}");
        }
        assert_eq!(smallest_ttl(&reply[..end]), 60);
    }
}
