//! Writes lines of one format, and remembers the text of the current second.

use crate::format::Format;
use crate::http_record::HttpRecord;
use crate::http_variable::HttpVariable;
use crate::timestamp::Timestamp;
use crate::variable::{Record, Variable};
use std::sync::Arc;

/// Writes lines of one format.
#[derive(Debug)]
pub struct LineWriter<V> {
    format: Arc<Format<V>>,
    time: Timestamp,
}

impl<V: Variable> LineWriter<V> {
    /// A writer of lines in this format.
    pub fn new(format: Arc<Format<V>>) -> LineWriter<V> {
        LineWriter { format, time: Timestamp::default() }
    }

    /// Appends the line of `record` to `out`, with a line feed at its end. Bytes of the request are escaped.
    pub fn write(&mut self, record: &V::Record<'_>, out: &mut Vec<u8>) {
        self.time.set(record.time_unix_ms() / 1000);
        self.format.write(record, &self.time, out);
    }
}

impl LineWriter<HttpVariable> {
    /// The parts of the fields of `record` that must be kept until its line is written.
    pub fn needed_fields(&self, record: &HttpRecord<'_>) -> Vec<u8> {
        self.format.needed_fields(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessFormat;
    use crate::format::FormatError;
    use crate::http_record::{FieldLines, HttpVersion, Outcome};
    use std::net::SocketAddr;

    const LINE: &[u8] = b"GET /a?b=c HTTP/1.1";
    const FIELDS: &[u8] = b"Host: example.com\r\nReferer:  https://example.org/ \r\n\
        User-Agent: \"x\"\\\x1b[2J\xff\r\nX-Empty:\r\n";

    fn record(line: &[u8]) -> HttpRecord<'_> {
        HttpRecord {
            client: SocketAddr::from(([192, 0, 2, 7], 4711)),
            line,
            fields: FieldLines::new(FIELDS),
            version: HttpVersion::Http1,
            is_encrypted: false,
            outcome: Outcome { status: 200, content_bytes: 512, duration_ms: 12_034 },
            upstream: None,
            time_unix_ms: 1_795_399_465_031,
        }
    }

    fn line(format: &str, record: &HttpRecord<'_>) -> String {
        let mut out = Vec::new();
        LineWriter::new(Arc::new(AccessFormat::parse(format).expect("a format"))).write(record, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn presets_are_those_of_other_servers() {
        let common = r#"192.0.2.7 - - [23/Nov/2026:02:04:25 +0000] "GET /a?b=c HTTP/1.1" 200 512"#;
        assert_eq!(line("common", &record(LINE)), format!("{common}\n"));
        let combined = format!("{common} {}\n", r#""https://example.org/" "\x22x\x22\x5C\x1B[2J\xFF""#);
        assert_eq!(line("combined", &record(LINE)), combined);
    }

    #[test]
    fn remote_user_is_the_name_that_was_sent_with_a_password() {
        for (fields, expected) in [
            ("Authorization: Basic YW5uOnNlY3JldA==\r\n", "ann"),
            ("authorization:  basic YW5uOmE6Yg== \r\n", "ann"),
            ("Authorization: Basic YSJiOg==\r\n", "a\\x22b"),
            // A name with spaces stays one word.
            ("Authorization: Basic YSBiIFs6eA==\r\n", r"a\x20b\x20["),
            ("Authorization: Basic Og==\r\n", "-"),
            ("Authorization: Basic YW5u\r\n", "-"),
            ("Authorization: Basic YW5u!\r\n", "-"),
            ("Authorization: Bearer YW5uOnNlY3JldA==\r\n", "-"),
            ("Authorization: Basic\r\n", "-"),
            ("", "-"),
        ] {
            let record = HttpRecord { fields: FieldLines::new(fields.as_bytes()), ..record(LINE) };
            assert_eq!(line("$remote_user", &record), format!("{expected}\n"), "{fields}");
            let needed = LineWriter::new(Arc::new(AccessFormat::parse("$remote_user").expect("a format")))
                .needed_fields(&record);
            assert_eq!(
                line("$remote_user", &HttpRecord { fields: FieldLines::new(&needed), ..record }),
                format!("{expected}\n"),
                "{fields}"
            );
        }
    }

    #[test]
    fn remote_user_has_its_spaces_in_json() {
        let record = HttpRecord { fields: FieldLines::new(b"Authorization: Basic YSBiIFs6eA==\r\n"), ..record(LINE) };
        assert_eq!(line(r#"{"user":"$remote_user"}"#, &record), "{\"user\":\"a b [\"}\n");
    }

    #[test]
    fn json_has_one_object_in_a_line() {
        let text = line("json", &record(LINE));
        let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(object["status"], 200);
        assert_eq!(object["seconds"], 12.034);
        assert_eq!(object["time"], "2026-11-23T02:04:25.031Z");
        assert_eq!(object["user_agent"], "\"x\"\\\u{1b}[2J\u{FFFD}");
        assert_eq!(text.matches('\n').count(), 1);
    }

    #[test]
    fn variables_have_the_values_of_the_request() {
        let encrypted = HttpRecord {
            client: "[2001:db8:1:2::3]:443".parse().expect("an address"),
            version: HttpVersion::Http2,
            is_encrypted: true,
            ..record(LINE)
        };
        for (format, expected) in [
            ("$remote_addr $remote_net $remote_port", "2001:db8:1:2::3 2001:db8:1:: 443"),
            ("$request $scheme", "GET /a?b=c HTTP/2.0 https"),
            ("$request_method|$request_uri|$server_protocol", "GET|/a?b=c|HTTP/2.0"),
            ("$msec ${request_time}s", "1795399465.031 12.034s"),
            ("$http_x_empty $http_x_none $host", "- - example.com"),
            ("$$$status$$", "$200$"),
            ("$upstream_addr $upstream_header_time", "- -"),
        ] {
            assert_eq!(line(format, &encrypted), format!("{expected}\n"), "{format}");
        }
        for (header_ms, expected) in [(Some(1_002), "1.002"), (None, "-")] {
            let upstream = Some(crate::Upstream { address: "192.0.2.1:3000", header_ms });
            let passed = HttpRecord { upstream, ..encrypted };
            let expected = format!("192.0.2.1:3000 {expected}\n");
            assert_eq!(line("$upstream_addr $upstream_header_time", &passed), expected);
        }
    }

    #[test]
    fn malformed_request_is_one_line() {
        for (request_line, expected) in [
            (&b""[..], "-"),
            (b"\x16\x03\x01\x02", r"\x16\x03\x01\x02"),
            (b"GET /", "GET /"),
            (b"GET / HTTP/1.1 x", "GET / HTTP/1.1 x"),
        ] {
            assert_eq!(line("$request", &record(request_line)), format!("{expected}\n"));
        }
        let long = vec![b'a'; 1000];
        assert_eq!(line("$request", &record(&long)).len(), 257);
    }

    #[test]
    fn long_values_are_cut() {
        let target = [b"GET /".to_vec(), vec![b'a'; 8000], b" HTTP/1.1".to_vec()].concat();
        assert_eq!(line("$request_uri", &record(&target)).len(), 4097);
        assert_eq!(line("$request", &record(&target)).len(), 4096 + "GET  HTTP/1.1\n".len());
        let fields = [b"Cookie: ".to_vec(), vec![b'c'; 8000], b"\r\n".to_vec()].concat();
        assert_eq!(line("$http_cookie", &HttpRecord { fields: FieldLines::new(&fields), ..record(LINE) }).len(), 1025);
    }

    #[test]
    fn field_after_many_others_is_found() {
        for count in [0, 1, 30, 31, 32, 33, 100] {
            let fields = "X-Other: value\r\n".repeat(count) + "User-Agent: a\r\nReferer: b\r\nX-Cut-Off: c";
            let record = HttpRecord { fields: FieldLines::new(fields.as_bytes()), ..record(LINE) };
            assert_eq!(line("$http_user_agent $http_referer $http_x_cut_off", &record), "a b -\n", "{count}");
        }
    }

    #[test]
    fn needed_fields_give_the_same_line() {
        for format in ["combined", "common", "json", "$host $http_x_empty $http_none"] {
            let writer = LineWriter::new(Arc::new(AccessFormat::parse(format).expect("a format")));
            let fields = writer.needed_fields(&record(LINE));
            assert!(fields.len() < FIELDS.len());
            assert_eq!(
                line(format, &HttpRecord { fields: FieldLines::new(&fields), ..record(LINE) }),
                line(format, &record(LINE))
            );
        }
    }

    #[test]
    fn errors_of_a_format_are_reported() {
        for (format, expected) in [
            ("$nothing", FormatError::UnknownVariable("nothing".to_owned())),
            ("$http_", FormatError::UnknownVariable("http_".to_owned())),
            ("a $ b", FormatError::NoName),
            ("${status", FormatError::NoEnd),
            ("$status\n", FormatError::ControlCharacter),
            ("jsn", FormatError::NoVariable),
            (&"$status".repeat(1000), FormatError::TooLong),
        ] {
            assert_eq!(AccessFormat::parse(format), Err(expected));
        }
    }
}
