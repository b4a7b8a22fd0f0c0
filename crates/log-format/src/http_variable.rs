//! The variables of the access log, with the names that nginx gives them.

use crate::escape::Escape;
use crate::http_record::HttpRecord;
use crate::variable::{Variable, put_number, put_seconds, put_value};

const COMMON: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent"#;
const COMBINED: &str = concat!(
    r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "#,
    r#""$http_referer" "$http_user_agent""#
);
const JSON: &str = concat!(
    r#"{"time":"$time_iso8601","client":"$remote_addr","scheme":"$scheme","host":"$host","method":"$request_method","#,
    r#""target":"$request_uri","protocol":"$server_protocol","status":$status,"bytes":$body_bytes_sent,"#,
    r#""seconds":$request_time,"referer":"$http_referer","user_agent":"$http_user_agent"}"#
);
const AUTHORIZATION: &[u8] = b"authorization";
/// The prefix of the variables of fields.
const FIELD_PREFIX: &str = "http_";

/// A variable of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpVariable {
    /// `$remote_user`.
    RemoteUser,
    /// `$request`.
    Request,
    /// `$request_method`.
    RequestMethod,
    /// `$request_uri`.
    RequestUri,
    /// `$server_protocol`.
    ServerProtocol,
    /// `$scheme`.
    Scheme,
    /// `$host`.
    Host,
    /// `$status`.
    Status,
    /// `$body_bytes_sent`.
    BodyBytesSent,
    /// `$request_time`.
    RequestTime,
    /// `$upstream_addr`.
    UpstreamAddr,
    /// `$upstream_header_time`.
    UpstreamHeaderTime,
    /// A field of the request, by its name in lower case.
    Field(Vec<u8>),
}

impl Variable for HttpVariable {
    type Record<'r> = HttpRecord<'r>;
    const PRESETS: &'static [(&'static str, &'static str)] =
        &[("combined", COMBINED), ("common", COMMON), ("json", JSON)];
    const VARIABLES: &'static [(&'static str, HttpVariable, &'static str)] = &[
        ("remote_user", HttpVariable::RemoteUser, "the user name that the client sent with a password, correct or not"),
        ("request", HttpVariable::Request, "the request line"),
        ("request_method", HttpVariable::RequestMethod, "the method"),
        ("request_uri", HttpVariable::RequestUri, "the target, with its query"),
        ("server_protocol", HttpVariable::ServerProtocol, "HTTP/1.0, HTTP/1.1 or HTTP/2.0"),
        ("scheme", HttpVariable::Scheme, "http or https"),
        ("host", HttpVariable::Host, "the field Host"),
        ("status", HttpVariable::Status, "the status of the response"),
        ("body_bytes_sent", HttpVariable::BodyBytesSent, "content bytes sent"),
        ("request_time", HttpVariable::RequestTime, "seconds from the head of the response to its end"),
        ("upstream_addr", HttpVariable::UpstreamAddr, "the server of the application that got the request"),
        (
            "upstream_header_time",
            HttpVariable::UpstreamHeaderTime,
            "seconds until the head of its response had arrived",
        ),
    ];

    fn from_name(name: &str) -> Option<HttpVariable> {
        if let Some((_, variable, _)) = HttpVariable::VARIABLES.iter().find(|(known, ..)| *known == name) {
            return Some(variable.clone());
        }
        let field = name.strip_prefix(FIELD_PREFIX).filter(|field| !field.is_empty())?;
        Some(HttpVariable::Field(field.to_ascii_lowercase().replace('_', "-").into_bytes()))
    }

    fn write(&self, record: &HttpRecord<'_>, escape: Escape, out: &mut Vec<u8>) {
        let mut put = |value: Option<&[u8]>| put_value(value, escape, out);
        match self {
            HttpVariable::RemoteUser => match record.field(AUTHORIZATION).and_then(user_of) {
                Some(name) if !name.is_empty() => escape.write_word(&name, out),
                _ => put(None),
            },
            HttpVariable::Request if record.is_short_line() => put(Some(record.line)),
            HttpVariable::Request => match record.request_parts() {
                Some(line) => {
                    for part in [line.method, b" ", line.target, b" ", line.version] {
                        escape.write(part, out);
                    }
                }
                None => put(Some(record.invalid_line())),
            },
            HttpVariable::RequestMethod => put(record.request_parts().map(|line| line.method)),
            HttpVariable::RequestUri => put(record.request_parts().map(|line| line.target)),
            HttpVariable::ServerProtocol => put(record.request_parts().map(|line| line.version)),
            HttpVariable::Scheme => put(Some(if record.is_encrypted { b"https" } else { b"http" })),
            HttpVariable::Host => put(record.field(b"host")),
            HttpVariable::Status => put_number(record.outcome.status.into(), out),
            HttpVariable::BodyBytesSent => put_number(record.outcome.content_bytes, out),
            HttpVariable::RequestTime => put_seconds(record.outcome.duration_ms, out),
            HttpVariable::UpstreamAddr => put(record.upstream.map(|upstream| upstream.address.as_bytes())),
            HttpVariable::UpstreamHeaderTime => match record.upstream.and_then(|upstream| upstream.header_ms) {
                Some(header_ms) => put_seconds(header_ms, out),
                None => put(None),
            },
            HttpVariable::Field(name) => put(record.field(name)),
        }
    }
}

impl HttpVariable {
    /// The field that it depends on.
    pub(crate) fn field(&self) -> Option<&[u8]> {
        match self {
            HttpVariable::Host => Some(b"host"),
            HttpVariable::RemoteUser => Some(AUTHORIZATION),
            HttpVariable::Field(name) => Some(name),
            _ => None,
        }
    }
}

/// The name in a value of Authorization with the scheme Basic (RFC 7617 §2).
#[cold]
fn user_of(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = value.split_at_checked(b"Basic ".len())?;
    let mut decoded = data_encoding::BASE64.decode(encoded.trim_ascii()).ok()?;
    decoded.truncate(memchr::memchr(b':', &decoded)?);
    scheme.eq_ignore_ascii_case(b"Basic ").then_some(decoded)
}
