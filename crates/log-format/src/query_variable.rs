//! The variables of the log of DNS queries.

use crate::escape::Escape;
use crate::variable::{Record, Variable, put_number, put_value};
use std::fmt;
use std::io::Write;
use std::net::SocketAddr;

const TEXT: &str = "$time_iso8601 $remote_addr $transport $qname $qclass $qtype $rcode $reply_bytes";
const JSON: &str = concat!(
    r#"{"time":"$time_iso8601","client":"$remote_addr","transport":"$transport","name":"$qname","class":"$qclass","#,
    r#""type":"$qtype","rcode":"$rcode","bytes":$reply_bytes}"#
);

/// A query with its reply.
#[derive(Clone, Copy, Debug)]
pub struct QueryRecord<'r> {
    /// The client.
    pub client: SocketAddr,
    /// The transport, as `udp`.
    pub transport: &'static str,
    /// The question; `None` if the query could not be parsed.
    pub question: Option<QueryQuestion<'r>>,
    /// The reply's code, as `NOERROR`.
    pub rcode: &'static str,
    /// The reply's length.
    pub reply_bytes: usize,
    /// The time of writing the line, in milliseconds since 1970.
    pub time_unix_ms: u64,
}

/// The question, in presentation format (RFC 1035 §5.1), which is printable ASCII without spaces.
#[derive(Clone, Copy)]
pub struct QueryQuestion<'r> {
    /// The name.
    pub name: &'r dyn fmt::Display,
    /// The class.
    pub class: &'r dyn fmt::Display,
    /// The type.
    pub rtype: &'r dyn fmt::Display,
}

/// A variable of the log of DNS queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryVariable {
    /// `$transport`.
    Transport,
    /// `$qname`.
    Name,
    /// `$qclass`.
    Class,
    /// `$qtype`.
    Type,
    /// `$rcode`.
    Rcode,
    /// `$reply_bytes`.
    ReplyBytes,
}

impl Variable for QueryVariable {
    type Record<'r> = QueryRecord<'r>;
    const PRESETS: &'static [(&'static str, &'static str)] = &[("text", TEXT), ("json", JSON)];
    const VARIABLES: &'static [(&'static str, QueryVariable, &'static str)] = &[
        ("transport", QueryVariable::Transport, "udp, tcp, dot (over TLS) or doh (over HTTPS)"),
        ("qname", QueryVariable::Name, "the queried name, as in a zone file"),
        ("qclass", QueryVariable::Class, "the class, as IN"),
        ("qtype", QueryVariable::Type, "the type, such as AAAA"),
        ("rcode", QueryVariable::Rcode, "the reply's code, as NOERROR"),
        ("reply_bytes", QueryVariable::ReplyBytes, "bytes of the reply"),
    ];

    fn write(&self, record: &QueryRecord<'_>, escape: Escape, out: &mut Vec<u8>) {
        let question = record.question.as_ref();
        match self {
            QueryVariable::Transport => out.extend_from_slice(record.transport.as_bytes()),
            QueryVariable::Name => put_display(question.map(|it| it.name), escape, out),
            QueryVariable::Class => put_display(question.map(|it| it.class), escape, out),
            QueryVariable::Type => put_display(question.map(|it| it.rtype), escape, out),
            QueryVariable::Rcode => out.extend_from_slice(record.rcode.as_bytes()),
            QueryVariable::ReplyBytes => put_number(record.reply_bytes as u64, out),
        }
    }
}

/// Appends a value in presentation format. In text it is not escaped: it has neither spaces nor control characters.
fn put_display(value: Option<&dyn fmt::Display>, escape: Escape, out: &mut Vec<u8>) {
    let Some(value) = value else { return put_value(None, escape, out) };
    let start = out.len();
    // Writing to a vector does not fail.
    let _ = write!(out, "{value}");
    if escape == Escape::Json && out[start..].iter().any(|byte| matches!(byte, b'"' | b'\\')) {
        let value = out.split_off(start);
        escape.write(&value, out);
    }
}

impl Record for QueryRecord<'_> {
    fn client(&self) -> SocketAddr {
        self.client
    }

    fn time_unix_ms(&self) -> u64 {
        self.time_unix_ms
    }
}

impl fmt::Debug for QueryQuestion<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.name, self.class, self.rtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LineWriter, QueryFormat};
    use std::sync::Arc;

    fn line(format: &str, question: Option<QueryQuestion<'_>>) -> String {
        let record = QueryRecord {
            client: SocketAddr::from(([192, 0, 2, 7], 4711)),
            transport: "udp",
            question,
            rcode: "NOERROR",
            reply_bytes: 61,
            time_unix_ms: 1_795_399_465_031,
        };
        let mut out = Vec::new();
        LineWriter::new(Arc::new(QueryFormat::parse(format).expect("a format"))).write(&record, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn lines_have_question_and_reply() {
        let question = QueryQuestion { name: &r#"a\.b\"c.example."#, class: &"IN", rtype: &"AAAA" };
        for (format, question, expected) in [
            ("text", Some(question), r#"2026-11-23T02:04:25.031Z 192.0.2.7 udp a\.b\"c.example. IN AAAA NOERROR 61"#),
            ("text", None, "2026-11-23T02:04:25.031Z 192.0.2.7 udp - - - NOERROR 61"),
            ("$remote_net $remote_port $qname", Some(question), r#"192.0.2.0 4711 a\.b\"c.example."#),
        ] {
            assert_eq!(line(format, question), format!("{expected}\n"), "{format}");
        }
        let object: serde_json::Value = serde_json::from_str(&line("json", Some(question))).expect("JSON");
        assert_eq!(object["name"], r#"a\.b\"c.example."#);
        assert_eq!((&object["type"], &object["bytes"]), (&"AAAA".into(), &61.into()));
    }
}
