//! Requests turned into their right answers, for servers that then spoil them.

/// The content of the only file.
pub(crate) const CONTENT: &[u8] = b"a sanderling runs along the edge of the water\n";
/// What the DNS servers are asked: one name that is there, one that is not.
pub(crate) const NAMES: &str = "www.example.com A\nmissing.example.com AAAA NXDOMAIN\n";

/// A response with this content, which leaves the connection open.
pub(crate) fn http(content: &[u8]) -> Vec<u8> {
    http_with("", content)
}

/// The same with fields more, each with its line end.
pub(crate) fn http_with(fields: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nServer: fake\r\n{fields}Content-Length: {}\r\n\r\n", content.len());
    [head.as_bytes(), content].concat()
}

/// The right answer to a query of one of [`NAMES`].
pub(crate) fn dns(query: &[u8]) -> Vec<u8> {
    // Behind the question stands our OPT record, of 11 octets.
    let question = &query[12..query.len() - 11];
    let is_missing = question.starts_with(b"\x07missing");
    let (code, answer_count) = if is_missing { (3, 0) } else { (0, 1) };
    let header = [query[0], query[1], 0x84, code, 0, 1, 0, answer_count, 0, 0, 0, 0];
    let address: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x01";
    [header.as_slice(), question, if is_missing { &[] } else { address }].concat()
}

/// The same with another response code.
pub(crate) fn dns_with_code(query: &[u8], code: u8) -> Vec<u8> {
    let mut answer = dns(query);
    answer[3] = code;
    answer
}

/// The same to another question.
pub(crate) fn dns_of_other_question(query: &[u8]) -> Vec<u8> {
    let mut answer = dns(query);
    answer[13] ^= 1;
    answer
}

/// The same with other records: whichever was asked, an address more.
pub(crate) fn dns_with_other_records(query: &[u8]) -> Vec<u8> {
    let mut answer = dns(query);
    answer[7] += 1;
    answer.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x02");
    answer
}

/// The message with its length before it (RFC 1035 §4.2.2).
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length_bytes = u16::try_from(message.len()).expect("the messages of these tests are short");
    [&length_bytes.to_be_bytes(), message].concat()
}
