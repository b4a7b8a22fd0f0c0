//! Turns the text of SvcParams (RFC 9460 §2.1 and appendix A) into their wire form, keys ascending.

use super::Diagnostic;
use super::field_text::{self, RdataText};
use super::number;
use super::scanner::{self, Token};
use crate::rdata::RDATA_BYTES_MAX;
use crate::rdata::encoding::{Base, Decoder};
use crate::rdata::svc_param::{Key, Value};
use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// What mends a parameter.
const REMEDY: &str = "write key, key=value or key=\"value\", as in alpn=h2,h3 port=8443";

/// Reads parameters up to the end of the entry; that they keep the rules together is checked on the wire form.
pub(super) fn put_params(rdata: &mut RdataText<'_>) -> Result<(), Diagnostic> {
    let params_start = rdata.out.len();
    while let Some(token) = rdata.optional_token()? {
        let param_start = rdata.out.len();
        // This bounds the parameters that each new one is compared with.
        if param_start > RDATA_BYTES_MAX {
            return Err(rdata.too_long());
        }
        let key = put_param(rdata, token)?;
        if !move_into_order(key, params_start, param_start, rdata.out) {
            let remedy = "a key may stand once: put its values into one list";
            return Err(rdata.not_a(token, &format!("new parameter: {key} was there before"), remedy));
        }
    }
    Ok(())
}

/// Moves the parameter at `param_start`, the last one, before the first with a larger key; false if its key is there.
fn move_into_order(key: Key, params_start: usize, param_start: usize, out: &mut [u8]) -> bool {
    let mut at = params_start;
    while at < param_start {
        let other = Key(u16::from_be_bytes([out[at], out[at + 1]]));
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

/// Appends the parameter that `token` starts.
fn put_param(rdata: &mut RdataText<'_>, token: Token) -> Result<Key, Diagnostic> {
    let text = rdata.scanner.text_of(token);
    let equals = text.iter().position(|&octet| octet == b'=');
    let key = Key::from_text(&text[..equals.unwrap_or(text.len())]);
    let Some(key) = key else {
        return Err(rdata.not_a(
            token,
            "parameter that is known",
            "write a key of RFC 9460 in lower case, or key65280",
        ));
    };
    // What stands behind the generic form of a key is its wire form, for a registered key too (RFC 9460 §2.1).
    let kind = if text.starts_with(b"key") { Value::Opaque } else { key.value() };
    rdata.scratch.clear();
    match equals {
        Some(equals) if equals + 1 == text.len() && rdata.scanner.stands_at_quote() => {
            let value = rdata.token()?;
            field_text::put_unescaped(rdata.scanner, value, rdata.scratch)?;
        }
        Some(equals) => {
            let value = rdata.scanner.behind(token, equals + 1);
            field_text::put_unescaped(rdata.scanner, value, rdata.scratch)?;
        }
        None => {}
    }
    rdata.put_integer(u64::from(key.0), 2);
    let length_at = rdata.out.len();
    rdata.put_integer(0, 2);
    put_value(kind, rdata.scratch, rdata.out)
        .map_err(|expected| rdata.not_a(token, &format!("{key} with {expected}"), REMEDY))?;
    let length_bytes = rdata.out.len() - length_at - 2;
    let Ok(length_bytes) = u16::try_from(length_bytes) else {
        return Err(rdata.not_a(token, "value of at most 65535 octets", "shorten it"));
    };
    rdata.out[length_at..length_at + 2].copy_from_slice(&length_bytes.to_be_bytes());
    Ok(key)
}

/// Appends the value that `text`, without its escapes, means; `Err` is what was expected.
fn put_value(kind: Value, text: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    match kind {
        Value::Keys => put_keys(text, out).ok_or("a list of keys"),
        Value::Protocols => put_protocols(text, out).ok_or("a list of protocols"),
        Value::Empty if !text.is_empty() => Err("no value"),
        Value::Empty => Ok(()),
        Value::Port => {
            let port = number::parse_decimal(text, u64::from(u16::MAX)).ok_or("a number from 0 to 65535")?;
            out.extend_from_slice(&(port as u16).to_be_bytes());
            Ok(())
        }
        Value::Ipv4 => put_addresses(text, out, Ipv4Addr::octets).ok_or("a list of IPv4 addresses"),
        Value::Ipv6 => put_addresses(text, out, Ipv6Addr::octets).ok_or("a list of IPv6 addresses"),
        Value::Base64 => {
            let mut decoder = Decoder::new(Base::Base64);
            decoder.take(text, out).and_then(|()| decoder.finish()).map_err(|_| "text in base 64")
        }
        Value::DohPath | Value::Opaque => {
            out.extend_from_slice(text);
            Ok(())
        }
    }
}

/// Keys, put in order; one that stands twice is found on the wire form (RFC 9460 §8).
fn put_keys(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    for text in value.split(|&octet| octet == b',') {
        if out.len() - start > RDATA_BYTES_MAX {
            return None;
        }
        let key = Key::from_text(text)?.0.to_be_bytes();
        let mut at = start;
        while at < out.len() && out[at..at + 2] <= key[..] {
            at += 2;
        }
        out.splice(at..at, key);
    }
    Some(())
}

/// Protocol identifiers; a comma within one is escaped once more (RFC 9460 appendix A.1).
fn put_protocols(value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = value;
    let mut length_at = out.len();
    out.push(0);
    while let Some(split) = scanner::split_octet(rest) {
        let (octet, behind) = split.ok()?;
        if octet == b',' && rest.len() - behind.len() == 1 {
            out[length_at] = protocol_length(out.len() - length_at - 1)?;
            length_at = out.len();
            out.push(0);
        } else {
            out.push(octet);
        }
        rest = behind;
    }
    out[length_at] = protocol_length(out.len() - length_at - 1)?;
    Some(())
}

/// RFC 9460 §7.1.1: identifiers have 1 to 255 octets.
fn protocol_length(length_bytes: usize) -> Option<u8> {
    u8::try_from(length_bytes).ok().filter(|&length| length > 0)
}

fn put_addresses<A: FromStr, const N: usize>(
    text: &[u8],
    out: &mut Vec<u8>,
    octets: impl Fn(&A) -> [u8; N],
) -> Option<()> {
    for address in text.split(|&octet| octet == b',') {
        out.extend_from_slice(&octets(&field_text::parse_address(address)?));
    }
    Some(())
}
