//! The DNS protocol of the load: questions, their queries, and the check of a reply.

use crate::client;
use crate::outcome::Cause;
use crate::streams::{Protocol, Verdict};
use domain::base::iana::{Opcode, Rcode, Rtype};
use domain::base::wire::ParseError;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;
use fastrand::Rng;
use std::cell::RefCell;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

/// The UDP payload size in queries, which avoids fragmentation nearly everywhere (RFC 9715 §3.1 R3).
const UDP_PAYLOAD_BYTES: u16 = 1232;
/// Bytes of the header of a message (RFC 1035 §4.1.1).
const HEADER_BYTES: usize = 12;

/// A name and a type to ask for, and the expected reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    name: Name<Vec<u8>>,
    rtype: Rtype,
    rcode: Rcode,
    /// The query with the ID 0.
    query: Vec<u8>,
    /// Bytes of the question in the query, after the header.
    question_bytes: usize,
    /// The digest of the expected records; `None` accepts any.
    digest: Option<u64>,
}

/// Parses lines such as `www.example.com A` and `missing.example.com AAAA NXDOMAIN`. Names are absolute, with or
/// without the last dot.
///
/// # Errors
/// Returns the malformed line.
pub fn parse_questions(text: &str) -> Result<Vec<Question>, String> {
    let expected = "expected a name, a type and, if it is not NOERROR, a response code";
    text.lines().map(|line| parse_line(line).ok_or_else(|| format!("`{line}`: {expected}"))).collect()
}

fn parse_line(line: &str) -> Option<Question> {
    let mut fields = line.split_whitespace();
    let name: Name<Vec<u8>> = fields.next()?.parse().ok()?;
    let rtype = fields.next()?.parse().ok()?;
    let rcode = fields.next().unwrap_or("NOERROR").parse().ok()?;
    let mut builder = MessageBuilder::new_vec().question();
    builder.push((&name, rtype)).expect("a vector holds any query");
    let question_bytes = builder.as_slice().len() - HEADER_BYTES;
    let mut builder = builder.additional();
    let with_size = builder.opt(|opt| {
        opt.set_udp_payload_size(UDP_PAYLOAD_BYTES);
        Ok(())
    });
    with_size.expect("a vector holds any query");
    Some(Question { name, rtype, rcode, query: builder.finish(), question_bytes, digest: None })
}

impl Question {
    pub(crate) fn query(&self, id: u16) -> Vec<u8> {
        [id.to_be_bytes().as_slice(), &self.query[2..]].concat()
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.rtype)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Replies may be truncated.
    Udp,
    /// Replies must be complete (RFC 7766 §8).
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// A digest of the records in the answer and authority sections, independent of their order, compression and case.
    /// Additional records are not included, as a server may omit them.
    pub(crate) digest: u64,
    /// TC: the digest does not cover all records.
    pub(crate) is_truncated: bool,
}

/// A message's ID; `None` if it is shorter than a header.
pub(crate) fn id_of(message: &[u8]) -> Option<u16> {
    let header = message.first_chunk::<HEADER_BYTES>()?;
    Some(u16::from_be_bytes([header[0], header[1]]))
}

/// Checks a message as the reply to `question` with `id`.
///
/// # Errors
/// Returns the cause of the loss, with the details.
pub(crate) fn check_reply(
    bytes: &[u8],
    id: u16,
    question: &Question,
    transport: Transport,
) -> Result<Reply, (Cause, String)> {
    let bad = |detail: String| (Cause::BadResponse, detail);
    let Ok(message) = Message::from_octets(bytes) else {
        return Err(bad(format!("{} bytes are less than a header", bytes.len())));
    };
    let header = message.header();
    if header.id() != id || !header.qr() || header.opcode() != Opcode::QUERY {
        return Err(bad(format!("ID {:#06x} or flags are not those of the reply to ID {id:#06x}", header.id())));
    }
    // Servers copy the bytes of the question, including the case of its letters.
    let expected = &question.query[HEADER_BYTES..HEADER_BYTES + question.question_bytes];
    if message.header_counts().qdcount() != 1 || !bytes[HEADER_BYTES..].starts_with(expected) {
        return Err(bad(format!("the question is not {question}")));
    }
    if header.rcode() != question.rcode {
        return Err((Cause::WrongStatus, format!("{} for {question}", header.rcode())));
    }
    let is_truncated = header.tc();
    if is_truncated && transport == Transport::Tcp {
        return Err(bad("truncated over TCP".to_owned()));
    }
    let digest = digest_of(message).map_err(|error| bad(format!("records of the reply to {question}: {error}")))?;
    if !is_truncated && question.digest.is_some_and(|expected| expected != digest) {
        return Err((Cause::WrongContent, format!("records differ from those before the load for {question}")));
    }
    Ok(Reply { digest, is_truncated })
}

/// Parses the records of all sections, which must end with the message.
fn digest_of(message: Message<&[u8]>) -> Result<u64, ParseError> {
    let mut digest = 0_u64;
    let mut section_index = 0;
    let mut section = message.answer()?;
    loop {
        for record in section.by_ref() {
            let mut hasher = DefaultHasher::new();
            section_index.hash(&mut hasher);
            record?.to_any_record::<AllRecordData<_, _>>()?.hash(&mut hasher);
            if section_index < 2 {
                // A sum is independent of the order: servers may rotate RRsets (RFC 1034 §3.6).
                digest = digest.wrapping_add(hasher.finish());
            }
        }
        let end = section.pos();
        match section.next_section()? {
            Some(next) => section = next,
            None if end == message.as_slice().len() => return Ok(digest),
            None => return Err(ParseError::form_error("bytes after the last record")),
        }
        section_index += 1;
    }
}

/// Questions in random order, over TCP.
pub(crate) struct DnsProtocol {
    questions: Arc<[Question]>,
    random: RefCell<Rng>,
}

impl DnsProtocol {
    pub(crate) fn new(questions: &Arc<[Question]>, random: Rng) -> DnsProtocol {
        DnsProtocol { questions: Arc::clone(questions), random: RefCell::new(random) }
    }
}

/// A reply that is being received, preceded by its length.
pub(crate) struct DnsResponse {
    question_index: usize,
    id: u16,
    received: Vec<u8>,
}

impl Protocol for DnsProtocol {
    type Response = DnsResponse;
    // RFC 7766 §6.2.1: the client closes when it has no more queries.
    const SERVER_CLOSES: bool = false;

    fn request(&self) -> (Vec<u8>, DnsResponse) {
        let mut random = self.random.borrow_mut();
        let (question_index, id) = (random.usize(..self.questions.len()), random.u16(..));
        let query = client::framed(&self.questions[question_index].query(id));
        (query, DnsResponse { question_index, id, received: Vec::new() })
    }

    fn receive(&self, response: &mut DnsResponse, bytes: &[u8]) -> Verdict {
        let DnsResponse { question_index, id, received } = response;
        received.extend_from_slice(bytes);
        let Some((length, message)) = received.split_first_chunk() else { return Verdict::Incomplete };
        let length_bytes = usize::from(u16::from_be_bytes(*length));
        match message.len() {
            received_bytes if received_bytes < length_bytes => return Verdict::Incomplete,
            received_bytes if received_bytes > length_bytes => {
                return Verdict::Lost(Cause::WrongContent, "bytes after the end of the message".to_owned());
            }
            _ => {}
        }
        match check_reply(message, *id, &self.questions[*question_index], Transport::Tcp) {
            Ok(_) => Verdict::Correct { closes: false },
            Err((cause, detail)) => Verdict::Lost(cause, detail),
        }
    }
}

/// Asks each question once over TCP; the replies' records become the expected records.
///
/// # Errors
/// Returns an error if the server does not answer, or sends an unexpected answer.
pub(crate) fn learn_records(server: SocketAddr, questions: &mut [Question]) -> Result<(), String> {
    for (id, question) in (1..).zip(questions) {
        let reply = client::exchange_tcp(server, &question.query(id)).map_err(|error| format!("{server}: {error}"))?;
        let reply = check_reply(&reply, id, question, Transport::Tcp).map_err(|(_, detail)| detail)?;
        question.digest = Some(reply.digest);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u16 = 0x1234;
    /// `ex. NS a.ex.`, with compressed owner and data.
    const NS_A: &[u8] = b"\xc0\x0c\0\x02\0\x01\0\0\0\x3c\0\x04\x01a\xc0\x0c";
    const NS_B: &[u8] = b"\xc0\x0c\0\x02\0\x01\0\0\0\x3c\0\x04\x01b\xc0\x0c";
    const NS_B_UNCOMPRESSED: &[u8] = b"\x02EX\0\0\x02\0\x01\0\0\0\x3c\0\x06\x01B\x02ex\0";

    fn question() -> Question {
        parse_questions("ex NS").expect("the line is valid").remove(0)
    }

    fn message(flags: [u8; 2], records: &[&[u8]]) -> Vec<u8> {
        let header = [0x12, 0x34, flags[0], flags[1], 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
        [&header, b"\x02ex\0\0\x02\0\x01".as_slice(), &records.concat()].concat()
    }

    #[track_caller]
    fn digest(records: &[&[u8]]) -> u64 {
        check_reply(&message([0x84, 0], records), ID, &question(), Transport::Udp).expect("the reply is correct").digest
    }

    #[track_caller]
    fn check_lost(message: &[u8], expected: Cause) {
        let reply = check_reply(message, ID, &question(), Transport::Tcp);
        assert!(matches!(reply, Err((cause, _)) if cause == expected), "{reply:?}");
    }

    #[test]
    fn questions_are_parsed() {
        let questions = parse_questions("www.example.com A\nx.example. TYPE65534 NXDOMAIN").expect("valid");
        let shown: Vec<String> = questions.iter().map(|it| format!("{it} {}", it.rcode)).collect();
        assert_eq!(shown, ["www.example.com A NOERROR", "x.example TYPE65534 NXDOMAIN"]);
        assert!(parse_questions("a.example A\nb.example").is_err_and(|error| error.starts_with("`b.example`: ")));
    }

    #[test]
    fn digest_ignores_order_compression_and_case() {
        assert_eq!(digest(&[NS_A, NS_B]), digest(&[NS_B, NS_A]));
        assert_eq!(digest(&[NS_A, NS_B]), digest(&[NS_A, NS_B_UNCOMPRESSED]));
    }

    #[test]
    fn digest_covers_missing_and_repeated_records() {
        let whole = digest(&[NS_A, NS_B]);
        for other in [&[NS_A][..], &[NS_A, NS_A], &[NS_A, NS_B, NS_B], &[]] {
            assert_ne!(digest(other), whole);
        }
    }

    #[test]
    fn other_records_are_wrong_content() {
        let question = Question { digest: Some(digest(&[NS_A])), ..question() };
        let reply = |records| check_reply(&message([0x84, 0], records), ID, &question, Transport::Udp);
        assert!(reply(&[NS_A]).is_ok());
        assert!(matches!(reply(&[NS_B]), Err((Cause::WrongContent, _))));
    }

    #[test]
    fn truncated_reply_is_correct_over_udp_only() {
        let truncated = message([0x86, 0], &[]);
        assert!(check_reply(&truncated, ID, &question(), Transport::Udp).is_ok_and(|reply| reply.is_truncated));
        check_lost(&truncated, Cause::BadResponse);
    }

    #[test]
    fn malformed_and_unrelated_messages_are_bad_responses() {
        let correct = message([0x84, 0], &[NS_A]);
        check_lost(&[], Cause::BadResponse);
        check_lost(&correct[..correct.len() - 1], Cause::BadResponse);
        check_lost(&[correct.as_slice(), &[0]].concat(), Cause::BadResponse);
        check_lost(&[&[0xff], &correct[1..]].concat(), Cause::BadResponse);
        check_lost(&message([0x04, 0], &[NS_A]), Cause::BadResponse);
        check_lost(&message([0x84, 5], &[]), Cause::WrongStatus);
        let other_case: Vec<u8> = correct.iter().map(|&byte| if byte == b'e' { b'E' } else { byte }).collect();
        check_lost(&other_case, Cause::BadResponse);
        for pointer in [b"\xff\xff", b"\x80\x0c"] {
            check_lost(&message([0x84, 0], &[pointer, b"\0\x01\0\x01\0\0\0\0\0\0"]), Cause::BadResponse);
        }
    }
}
