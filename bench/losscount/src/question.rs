//! Lines of name and type turned into questions, and a question into the octets of a query.

use std::fmt;

/// Octets of the longest name, root label included (RFC 1035 §2.3.4).
pub(crate) const NAME_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: usize = 63;
/// Questions of one load.
const QUESTION_COUNT_MAX: usize = 1 << 20;
/// What our queries say we can receive over UDP: what fits into one packet nearly everywhere (RFC 9715 §3.1 R3).
const UDP_ANSWER_BYTES_MAX: u16 = 1232;
/// Octets of a message's header (RFC 1035 §4.1.1).
pub(crate) const HEADER_BYTES: usize = 12;

const TYPES: [(&str, u16); 19] = [
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", 12),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", 28),
    ("SRV", 33),
    ("NAPTR", 35),
    ("DNAME", 39),
    ("DS", 43),
    ("SSHFP", 44),
    ("DNSKEY", 48),
    ("TLSA", 52),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("ANY", 255),
    ("CAA", 257),
];

const RESPONSE_CODES: [(&str, u8); 6] =
    [("NOERROR", 0), ("FORMERR", 1), ("SERVFAIL", 2), ("NXDOMAIN", 3), ("NOTIMP", 4), ("REFUSED", 5)];

/// A name and a type to ask for, and what must come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Wire form (RFC 1035 §3.1), as it was written.
    pub(crate) name: Vec<u8>,
    pub(crate) rtype: u16,
    pub(crate) response_code: u8,
    /// The digest of the right answer; `None` when any answer will do that has the response code.
    pub(crate) digest: Option<u64>,
}

/// Why a text has no questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong and what would mend it.
    pub why: String,
}

impl fmt::Display for QuestionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for QuestionError {}

/// Reads lines such as `www.example.com A` and `missing.example.com AAAA NXDOMAIN`. Empty lines do not count, nor those
/// that begin with `#` or `;`. Names are absolute, with or without the last dot, and have no escapes.
pub fn parse_questions(text: &str) -> Result<Vec<Question>, QuestionError> {
    let mut questions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let question = parse_line(line).map_err(|why| QuestionError { line: index + 1, why })?;
        if questions.len() == QUESTION_COUNT_MAX {
            return Err(QuestionError { line: index + 1, why: format!("more than {QUESTION_COUNT_MAX} questions") });
        }
        questions.push(question);
    }
    Ok(questions)
}

impl Question {
    /// Puts a query behind the octets in `out`: no recursion, one question, EDNS (RFC 6891 §6.1.2).
    pub(crate) fn put_query(&self, id: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(&id.to_be_bytes());
        // Flags, then one question, no answer, no authority, one additional record.
        out.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        self.put_question(out);
        out.extend_from_slice(&[0, 0, 41]);
        out.extend_from_slice(&UDP_ANSWER_BYTES_MAX.to_be_bytes());
        out.extend_from_slice(&[0; 6]);
    }

    /// The question section alone.
    pub(crate) fn put_question(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&self.rtype.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.name.as_slice();
        while let [length, behind @ ..] = rest
            && *length > 0
        {
            let (label, next) = behind.split_at(usize::from(*length));
            write!(f, "{}.", label.escape_ascii())?;
            rest = next;
        }
        if self.name == [0] {
            f.write_str(".")?;
        }
        match TYPES.iter().find(|(_, number)| *number == self.rtype) {
            Some((mnemonic, _)) => write!(f, " {mnemonic}"),
            None => write!(f, " TYPE{}", self.rtype),
        }
    }
}

/// The mnemonic of a response code, or its number.
pub(crate) fn response_code_text(code: u8) -> String {
    RESPONSE_CODES
        .iter()
        .find(|(_, number)| *number == code)
        .map_or_else(|| code.to_string(), |(text, _)| (*text).into())
}

fn parse_line(line: &str) -> Result<Question, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (name, rtype, code) = match fields.as_slice() {
        [name, rtype] => (name, rtype, "NOERROR"),
        [name, rtype, code] => (name, rtype, *code),
        _ => return Err("wants a name, a type, and maybe a response code, such as `www.example.com A`".to_owned()),
    };
    Ok(Question {
        name: parse_name(name)?,
        rtype: parse_type(rtype).ok_or_else(|| format!("{rtype} is no type known here; TYPE and its number is"))?,
        response_code: RESPONSE_CODES
            .iter()
            .find(|(mnemonic, _)| mnemonic.eq_ignore_ascii_case(code))
            .map(|(_, number)| *number)
            .ok_or_else(|| format!("{code} is no response code known here, such as NOERROR or NXDOMAIN"))?,
        digest: None,
    })
}

fn parse_type(text: &str) -> Option<u16> {
    let by_mnemonic = TYPES.iter().find(|(mnemonic, _)| mnemonic.eq_ignore_ascii_case(text)).map(|(_, number)| *number);
    // RFC 3597 §5.
    by_mnemonic.or_else(|| text.to_ascii_uppercase().strip_prefix("TYPE")?.parse().ok())
}

fn parse_name(text: &str) -> Result<Vec<u8>, String> {
    if text == "." {
        return Ok(vec![0]);
    }
    let mut name = Vec::new();
    for label in text.strip_suffix('.').unwrap_or(text).split('.') {
        if label.is_empty() || label.len() > LABEL_BYTES_MAX || label.contains('\\') {
            return Err(format!("{text}: a label has 1 to {LABEL_BYTES_MAX} octets, and no escapes here"));
        }
        name.push(label.len() as u8);
        name.extend_from_slice(label.as_bytes());
    }
    name.push(0);
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("{text}: a name has at most {NAME_BYTES_MAX} octets"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::parse_questions;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let questions = parse_questions(text).expect("the text is right");
        let shown: Vec<String> =
            questions.iter().map(|q| format!("{q} {}", super::response_code_text(q.response_code))).collect();
        assert_eq!(shown, expected);
    }

    #[track_caller]
    fn check_error(text: &str, line: usize) {
        assert_eq!(parse_questions(text).expect_err("the text is wrong").line, line);
    }

    #[test]
    fn lines_become_questions() {
        check(
            "www.example.com A\n\n# no\nexample.com. mx\n",
            &["www.example.com. A NOERROR", "example.com. MX NOERROR"],
        );
        check(". NS\nx.example TYPE65534 nxdomain", &[". NS NOERROR", "x.example. TYPE65534 NXDOMAIN"]);
    }

    #[test]
    fn wrong_lines_are_told() {
        check_error("a.example A\nb.example", 2);
        check_error("a..example A", 1);
        check_error("a.example NONE", 1);
        check_error("a.example TYPE65536", 1);
        check_error("a.example A MAYBE", 1);
        check_error(&format!("{} A", "x".repeat(64)), 1);
        check_error(&format!("{} A", "abcdefg.".repeat(32)), 1);
    }

    #[test]
    fn a_query_has_one_question_and_edns() {
        let mut out = Vec::new();
        parse_questions("a.b AAAA").expect("the text is right")[0].put_query(0x1234, &mut out);
        let expected = b"\x12\x34\0\0\0\x01\0\0\0\0\0\x01\x01a\x01b\0\0\x1c\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
        assert_eq!(out, expected);
    }
}
