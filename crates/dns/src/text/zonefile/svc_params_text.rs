//! Reads SvcParams from text (RFC 9460 §2.1 and appendix A), and sorts them by key.

use super::Diagnostic;
use super::field_text::{self, RdataReader};
use super::number;
use super::scanner::{self, Token};
use crate::text::rdata::RDATA_BYTES_MAX;
use crate::text::rdata::base::Base;
use crate::text::rdata::svc_param::{SvcParamKey, ValueKind};
use alloc::format;
use alloc::vec::Vec;

const REMEDY: &str = "write key, key=value or key=\"value\", as in alpn=h2,h3 port=8443";

/// Reads parameters up to the end of the entry. Rules about several parameters are checked in wire form.
pub(super) fn put_params(rdata: &mut RdataReader<'_>) -> Result<(), Diagnostic> {
    let params_start = rdata.out.len();
    while let Some(token) = rdata.optional_token()? {
        let param_start = rdata.out.len();
        // Bounds the parameters that a new one is compared with.
        if param_start > RDATA_BYTES_MAX {
            return Err(rdata.too_long());
        }
        let key = put_param(rdata, token)?;
        if !sort_in(key, params_start, param_start, rdata.out) {
            let remedy = "write each key once, with all its values in one list";
            return Err(rdata.invalid(token, &format!("repeats the key {key}"), remedy));
        }
    }
    Ok(())
}

/// Moves the parameter at `param_start`, the last one, before the first with a higher key. Returns false for a repeated
/// key.
fn sort_in(key: SvcParamKey, params_start: usize, param_start: usize, out: &mut [u8]) -> bool {
    let mut at = params_start;
    while at < param_start {
        let other = SvcParamKey(u16::from_be_bytes([out[at], out[at + 1]]));
        if other == key {
            return false;
        }
        if other > key {
            break;
        }
        at += 4 + usize::from(u16::from_be_bytes([out[at + 2], out[at + 3]]));
    }
    let length_bytes = out.len() - param_start;
    out[at..].rotate_right(length_bytes);
    true
}

/// Appends the parameter that starts with `token`.
fn put_param(rdata: &mut RdataReader<'_>, token: Token) -> Result<SvcParamKey, Diagnostic> {
    let text = rdata.scanner.text_of(token);
    let equals = text.iter().position(|&byte| byte == b'=');
    let key = SvcParamKey::from_text(&text[..equals.unwrap_or(text.len())]);
    let Some(key) = key else {
        let remedy = "write a registered key in lower case, such as alpn, or key65280 (RFC 9460 section 2.1)";
        return Err(rdata.invalid(token, "has an unknown key", remedy));
    };
    // RFC 9460 §2.1: the value of a generic key is in wire form, even if the key is registered.
    let kind = if text.starts_with(b"key") { ValueKind::Opaque } else { key.value_kind() };
    rdata.scratch.clear();
    match equals {
        Some(equals) if equals + 1 == text.len() && rdata.scanner.is_at_quote() => {
            let value = rdata.token()?;
            field_text::put_unescaped(rdata.scanner, value, rdata.scratch)?;
        }
        Some(equals) => {
            let value = rdata.scanner.without_prefix(token, equals + 1);
            field_text::put_unescaped(rdata.scanner, value, rdata.scratch)?;
        }
        None => {}
    }
    rdata.put_integer(u64::from(key.0), 2);
    let length_offset = rdata.out.len();
    rdata.put_integer(0, 2);
    put_value(kind, rdata.scratch, rdata.out)
        .map_err(|expected| rdata.invalid(token, &format!("has an invalid value: {key} takes {expected}"), REMEDY))?;
    let length_bytes = rdata.out.len() - length_offset - 2;
    let Ok(length_bytes) = u16::try_from(length_bytes) else {
        return Err(rdata.invalid(token, "has a value of more than 65535 bytes", "shorten it"));
    };
    rdata.out[length_offset..length_offset + 2].copy_from_slice(&length_bytes.to_be_bytes());
    Ok(key)
}

/// Appends the value in `text`, which has no escapes. An error is the expected form.
fn put_value(kind: ValueKind, text: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    match kind {
        ValueKind::Keys => put_keys(text, out).ok_or("a list of keys"),
        ValueKind::Protocols => put_protocols(text, out).ok_or("a list of protocols"),
        ValueKind::Empty if !text.is_empty() => Err("no value"),
        ValueKind::Empty => Ok(()),
        ValueKind::Port => {
            let port = number::parse_decimal(text, u64::from(u16::MAX)).ok_or("a number from 0 to 65535")?;
            out.extend_from_slice(&(port as u16).to_be_bytes());
            Ok(())
        }
        ValueKind::Ipv4 => put_addresses(text, out, field_text::parse_ipv4).ok_or("a list of IPv4 addresses"),
        ValueKind::Ipv6 => put_addresses(text, out, field_text::parse_ipv6).ok_or("a list of IPv6 addresses"),
        ValueKind::Base64 => Base::Base64.decode(text, out).map_err(|_| "text in base 64"),
        ValueKind::DohPath | ValueKind::Opaque => {
            out.extend_from_slice(text);
            Ok(())
        }
    }
}

/// Appends keys in ascending order. A repeated key is found in wire form (RFC 9460 §8).
fn put_keys(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    for text in value.split(|&byte| byte == b',') {
        if out.len() - start > RDATA_BYTES_MAX {
            return None;
        }
        let key = SvcParamKey::from_text(text)?.0.to_be_bytes();
        let mut at = start;
        while at < out.len() && out[at..at + 2] <= key[..] {
            at += 2;
        }
        out.splice(at..at, key);
    }
    Some(())
}

/// Appends protocol identifiers. A comma in an identifier is escaped twice (RFC 9460 appendix A.1).
fn put_protocols(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = value;
    let mut length_offset = out.len();
    out.push(0);
    while let Some(split) = scanner::split_byte(rest) {
        let (byte, tail) = split.ok()?;
        if byte == b',' && rest.len() - tail.len() == 1 {
            out[length_offset] = protocol_length(out.len() - length_offset - 1)?;
            length_offset = out.len();
            out.push(0);
        } else {
            out.push(byte);
        }
        rest = tail;
    }
    out[length_offset] = protocol_length(out.len() - length_offset - 1)?;
    Some(())
}

/// RFC 9460 §7.1.1: identifiers have 1 to 255 bytes.
fn protocol_length(length_bytes: usize) -> Option<u8> {
    u8::try_from(length_bytes).ok().filter(|&length| length > 0)
}

fn put_addresses<const N: usize>(
    text: &[u8],
    out: &mut Vec<u8>,
    parse: impl Fn(&[u8]) -> Option<[u8; N]>,
) -> Option<()> {
    for address in text.split(|&byte| byte == b',') {
        out.extend_from_slice(&parse(address)?);
    }
    Some(())
}
