//! The variables of a format, with the names that nginx gives them.

use crate::escape::Escape;
use crate::record::Record;
use crate::timestamp::Timestamp;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    RemoteAddr,
    RemoteNet,
    RemotePort,
    RemoteUser,
    TimeLocal,
    TimeIso8601,
    Msec,
    Request,
    RequestMethod,
    RequestUri,
    ServerProtocol,
    Scheme,
    Host,
    Status,
    BodyBytesSent,
    RequestTime,
    /// A field of the request, by its name in lower case.
    Field(Vec<u8>),
}

/// The variables with a fixed name, and what they are.
pub(crate) const VARIABLES: &[(&str, Variable, &str)] = &[
    ("remote_addr", Variable::RemoteAddr, "the address of the client"),
    ("remote_net", Variable::RemoteNet, "its network, IPv4 /24 or IPv6 /48, which does not identify a person"),
    ("remote_port", Variable::RemotePort, "the port of the client"),
    ("remote_user", Variable::RemoteUser, "the user name that the client has sent with a password, right or wrong"),
    ("time_local", Variable::TimeLocal, "the time in UTC, as 23/Nov/2026:02:04:25 +0000"),
    ("time_iso8601", Variable::TimeIso8601, "the time in UTC, as 2026-11-23T02:04:25.031Z"),
    ("msec", Variable::Msec, "the time in seconds since 1970, with milliseconds"),
    ("request", Variable::Request, "the request line"),
    ("request_method", Variable::RequestMethod, "the method"),
    ("request_uri", Variable::RequestUri, "the target, with its query"),
    ("server_protocol", Variable::ServerProtocol, "HTTP/1.0, HTTP/1.1 or HTTP/2.0"),
    ("scheme", Variable::Scheme, "http or https"),
    ("host", Variable::Host, "the field Host"),
    ("status", Variable::Status, "the status of the response"),
    ("body_bytes_sent", Variable::BodyBytesSent, "bytes of content that were sent"),
    ("request_time", Variable::RequestTime, "seconds that sending the response has taken"),
];
const AUTHORIZATION: &[u8] = b"authorization";
/// The prefix of the variables of fields.
const FIELD_PREFIX: &str = "http_";

impl Variable {
    /// The variable `name`.
    pub(crate) fn from_name(name: &str) -> Option<Variable> {
        if let Some((_, variable, _)) = VARIABLES.iter().find(|(known, ..)| *known == name) {
            return Some(variable.clone());
        }
        let field = name.strip_prefix(FIELD_PREFIX).filter(|field| !field.is_empty())?;
        Some(Variable::Field(field.to_ascii_lowercase().replace('_', "-").into_bytes()))
    }

    /// The field that it depends on.
    pub(crate) fn field(&self) -> Option<&[u8]> {
        match self {
            Variable::Host => Some(b"host"),
            Variable::RemoteUser => Some(AUTHORIZATION),
            Variable::Field(name) => Some(name),
            _ => None,
        }
    }

    /// Appends its value.
    pub(crate) fn write(&self, record: &Record<'_>, time: &Timestamp, escape: Escape, out: &mut Vec<u8>) {
        let put_bytes = |bytes: Option<&[u8]>, out: &mut Vec<u8>| match bytes {
            Some(bytes) if !bytes.is_empty() => escape.write(bytes, out),
            _ => out.extend_from_slice(escape.missing()),
        };
        match self {
            Variable::RemoteAddr => put_address(record.client.ip(), out),
            Variable::RemoteNet => put_address(network(record.client.ip()), out),
            Variable::RemotePort => put_number(record.client.port().into(), out),
            Variable::RemoteUser => put_bytes(record.field(AUTHORIZATION).and_then(user_of).as_deref(), out),
            Variable::TimeLocal => out.extend_from_slice(time.common()),
            Variable::TimeIso8601 => {
                out.extend_from_slice(time.iso());
                put_fraction(record.time_unix_ms % 1000, out);
                out.push(b'Z');
            }
            Variable::Msec => put_seconds(record.time_unix_ms, out),
            Variable::Request => match record.request_parts() {
                Some(line) => {
                    for part in [line.method, b" ", line.target, b" ", line.version] {
                        escape.write(part, out);
                    }
                }
                None => put_bytes(Some(record.invalid_line()), out),
            },
            Variable::RequestMethod => put_bytes(record.request_parts().map(|line| line.method), out),
            Variable::RequestUri => put_bytes(record.request_parts().map(|line| line.target), out),
            Variable::ServerProtocol => put_bytes(record.request_parts().map(|line| line.version), out),
            Variable::Scheme => out.extend_from_slice(if record.is_encrypted { b"https" } else { b"http" }),
            Variable::Host => put_bytes(record.field(b"host"), out),
            Variable::Status => put_number(record.outcome.status.into(), out),
            Variable::BodyBytesSent => put_number(record.outcome.content_bytes, out),
            Variable::RequestTime => put_seconds(record.outcome.duration_ms, out),
            Variable::Field(name) => put_bytes(record.field(name), out),
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

fn put_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn put_seconds(milliseconds: u64, out: &mut Vec<u8>) {
    put_number(milliseconds / 1000, out);
    put_fraction(milliseconds % 1000, out);
}

fn put_fraction(milliseconds: u64, out: &mut Vec<u8>) {
    let digit = |number: u64| b'0' + (number % 10) as u8;
    out.extend_from_slice(&[b'.', digit(milliseconds / 100), digit(milliseconds / 10), digit(milliseconds)]);
}

fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (index, byte) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                put_number(byte.into(), out);
            }
        }
        // Writing to a vector does not fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// The first 24 bits of an IPv4 address, the first 48 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (!0 << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (!0 << 80)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    const BEGIN: &str = "<!-- Table of variables, generated from crates/log-format/src/variable.rs. -->\n";
    const END: &str = "\n<!-- End of the table. -->";

    #[test]
    fn manual_has_the_table_of_variables() {
        let rows = VARIABLES.iter().map(|(name, _, meaning)| format!("| `${name}` | {meaning} |\n"));
        let field = "| `$http_NAME` | a field of the request, as in `$http_user_agent`; `$http_cookie` is missing over HTTP/2 |\n".to_owned();
        let table: String = rows.chain([field]).collect();
        let expected = format!("\n| variable | value |\n|---|---|\n{table}");
        sanderling_testkit::check_manual_table(MANUAL, BEGIN, END, &expected);
    }
}
