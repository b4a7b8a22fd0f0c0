//! The common behaviour of all log variables, and the variables that all logs have, with nginx's names.

use crate::escape::Escape;
use crate::timestamp::Timestamp;
use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The variables of one kind of log, other than those that all logs have.
pub trait Variable: Clone + Eq + fmt::Debug + Sized + 'static {
    /// The record of one line.
    type Record<'r>: Record;
    /// The formats with a name, and their texts.
    const PRESETS: &'static [(&'static str, &'static str)];
    /// The variables with a fixed name, and their descriptions.
    const VARIABLES: &'static [(&'static str, Self, &'static str)];

    /// The variable `name`.
    fn from_name(name: &str) -> Option<Self> {
        Self::VARIABLES.iter().find(|(known, ..)| *known == name).map(|(_, variable, _)| variable.clone())
    }

    /// Appends its value.
    fn write(&self, record: &Self::Record<'_>, escape: Escape, out: &mut Vec<u8>);
}

/// The data of a request that all logs have.
pub trait Record {
    /// The client.
    fn client(&self) -> SocketAddr;

    /// The time of writing the line, in milliseconds since 1970.
    fn time_unix_ms(&self) -> u64;
}

/// A variable that all logs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedVariable {
    RemoteAddr,
    RemoteNet,
    RemotePort,
    TimeLocal,
    TimeIso8601,
    Msec,
}

/// The variables that all logs have, and their descriptions.
pub(crate) const SHARED_VARIABLES: &[(&str, SharedVariable, &str)] = &[
    ("remote_addr", SharedVariable::RemoteAddr, "the client's address"),
    (
        "remote_net",
        SharedVariable::RemoteNet,
        "the client's network, IPv4 /24 or IPv6 /48, which does not identify a person",
    ),
    ("remote_port", SharedVariable::RemotePort, "the client's port"),
    ("time_local", SharedVariable::TimeLocal, "the time in UTC, as 23/Nov/2026:02:04:25 +0000"),
    ("time_iso8601", SharedVariable::TimeIso8601, "the time in UTC, as 2026-11-23T02:04:25.031Z"),
    ("msec", SharedVariable::Msec, "the time in seconds since 1970, with milliseconds"),
];

impl SharedVariable {
    /// The variable `name`.
    pub(crate) fn from_name(name: &str) -> Option<SharedVariable> {
        SHARED_VARIABLES.iter().find(|(known, ..)| *known == name).map(|(_, variable, _)| *variable)
    }

    /// Appends its value.
    pub(crate) fn write(self, record: &impl Record, time: &Timestamp, out: &mut Vec<u8>) {
        match self {
            SharedVariable::RemoteAddr => put_address(record.client().ip(), out),
            SharedVariable::RemoteNet => put_address(network(record.client().ip()), out),
            SharedVariable::RemotePort => put_number(record.client().port().into(), out),
            SharedVariable::TimeLocal => out.extend_from_slice(time.common()),
            SharedVariable::TimeIso8601 => {
                out.extend_from_slice(time.iso());
                put_fraction(record.time_unix_ms() % 1000, out);
                out.push(b'Z');
            }
            SharedVariable::Msec => put_seconds(record.time_unix_ms(), out),
        }
    }
}

/// Appends a value of the request; the format decides how a missing or empty one is written.
pub(crate) fn put_value(value: Option<&[u8]>, escape: Escape, out: &mut Vec<u8>) {
    match value {
        Some(value) if !value.is_empty() => escape.write(value, out),
        _ => out.extend_from_slice(escape.missing()),
    }
}

pub(crate) fn put_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

pub(crate) fn put_seconds(milliseconds: u64, out: &mut Vec<u8>) {
    put_number(milliseconds / 1000, out);
    put_fraction(milliseconds % 1000, out);
}

fn put_fraction(milliseconds: u64, out: &mut Vec<u8>) {
    let digit = |number: u64| b'0' + (number % 10) as u8;
    out.extend_from_slice(&[b'.', digit(milliseconds / 100), digit(milliseconds / 10), digit(milliseconds)]);
}

/// The decimal digits of each byte with a dot after them, and how many bytes that is.
const DECIMALS: [([u8; 4], usize); 256] = {
    let mut texts = [([b'.'; 4], 0); 256];
    let mut byte = 0;
    while byte < texts.len() {
        let digits = [byte / 100, byte / 10 % 10, byte % 10];
        let mut index = (byte < 100) as usize + (byte < 10) as usize;
        while index < digits.len() {
            let (text, length) = &mut texts[byte];
            text[*length] = b'0' + digits[index] as u8;
            *length += 1;
            index += 1;
        }
        texts[byte].1 += 1;
        byte += 1;
    }
    texts
};

fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            let (mut text, mut length) = ([0; 16], 0);
            for byte in address.octets() {
                let (digits, count) = DECIMALS[usize::from(byte)];
                text[length..length + 4].copy_from_slice(&digits);
                length += count;
            }
            out.extend_from_slice(&text[..length - 1]);
        }
        // Writing to a vector does not fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// The first 24 bits of an IPv4 address, the first 48 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (!0 << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (!0 << 80)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HttpVariable, QueryVariable};

    const MANUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    const END: &str = "\n<!-- End of the table. -->";
    const HTTP_FIELD: &str = "| `$http_NAME` | a field of the request, as in `$http_user_agent`; over HTTP/2, `$http_cookie` is missing unless a route has an application or a condition on cookies |\n";

    fn rows<V>(variables: &[(&str, V, &str)]) -> String {
        variables.iter().map(|(name, _, meaning)| format!("| `${name}` | {meaning} |\n")).collect()
    }

    #[test]
    fn manual_has_the_tables_of_variables() {
        for (file, own_rows) in [
            ("http_variable.rs", rows(HttpVariable::VARIABLES) + HTTP_FIELD),
            ("query_variable.rs", rows(QueryVariable::VARIABLES)),
        ] {
            let begin = format!("<!-- Table of variables, generated from crates/log-format/src/{file}. -->\n");
            let expected = format!("\n| variable | value |\n|---|---|\n{}{own_rows}", rows(SHARED_VARIABLES));
            sanderling_testkit::check_manual_table(MANUAL, &begin, END, &expected);
        }
    }
}
