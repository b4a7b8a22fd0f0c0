//! The wire form of each kind of field: finds the end of a field and checks it.

use super::FieldKind;
use super::{bitmap, svc_param};
use crate::text::name::Name;

const TOO_EARLY: &str = "the data ends too early";
const EMPTY: &str = "the field is empty";
/// A gateway or relay has an unknown type.
pub(crate) const HOST_TYPE_PROBLEM: &str = "the type is out of range";

/// The end of the field of `kind` that starts at `at` in `rdata`. An error is the problem, for a message.
pub(crate) fn field_end(kind: FieldKind, rdata: &[u8], at: usize) -> Result<usize, &'static str> {
    let rest = rdata.get(at..).ok_or(TOO_EARLY)?;
    let length_bytes = match kind {
        FieldKind::U8 | FieldKind::Algorithm | FieldKind::DigestType | FieldKind::Scheme => fixed(rest, 1)?,
        FieldKind::U16 | FieldKind::Rtype | FieldKind::CertificateType => fixed(rest, 2)?,
        FieldKind::U32 | FieldKind::Duration | FieldKind::Timestamp | FieldKind::Ipv4 => fixed(rest, 4)?,
        FieldKind::Eui48 => fixed(rest, 6)?,
        FieldKind::U64 | FieldKind::Locator | FieldKind::Eui64 => fixed(rest, 8)?,
        FieldKind::Ipv6 => fixed(rest, 16)?,
        FieldKind::Name => name(rest)?,
        FieldKind::String => string(rest)?.len() + 1,
        FieldKind::Digits => digits(rest)?,
        FieldKind::Coordinate => coordinate(rest)?,
        FieldKind::OptionalString if rest.is_empty() => 0,
        FieldKind::OptionalString => string(rest)?.len() + 1,
        FieldKind::Strings => strings(rest)?,
        FieldKind::Tag => tag(rest)?,
        FieldKind::RestAsString | FieldKind::OptionalBase64 | FieldKind::DashBase64 => rest.len(),
        FieldKind::Hex | FieldKind::Base64 if rest.is_empty() => return Err(EMPTY),
        FieldKind::Hex | FieldKind::Base64 => rest.len(),
        FieldKind::DsDigest => digest(rest, ds_digest(rdata[at - 1]))?,
        FieldKind::Fingerprint => digest(rest, fingerprint(rdata[at - 1]))?,
        FieldKind::ZoneDigest => zone_digest(rest, rdata[at - 1])?,
        FieldKind::Salt => string(rest)?.len() + 1,
        FieldKind::HashedName if rest.first() == Some(&0) => return Err(EMPTY),
        FieldKind::HashedName => string(rest)?.len() + 1,
        FieldKind::Bitmap => bitmap::check(rest).map(|()| rest.len())?,
        FieldKind::Services => services(rest)?,
        FieldKind::Nsap if rest.is_empty() => return Err(EMPTY),
        FieldKind::Nsap => rest.len(),
        FieldKind::Location => location(rest)?,
        FieldKind::Prefixes => prefixes(rest)?,
        FieldKind::Gateway => gateway(rest)?,
        FieldKind::Relay => relay(rest)?,
        FieldKind::HostIdentity => host_identity(rest)?,
        FieldKind::Names => names(rest)?,
        FieldKind::SvcParams => svc_param::check(rest).map(|()| rest.len())?,
    };
    Ok(at + length_bytes)
}

fn fixed(rest: &[u8], length_bytes: usize) -> Result<usize, &'static str> {
    if rest.len() < length_bytes { Err(TOO_EARLY) } else { Ok(length_bytes) }
}

fn name(rest: &[u8]) -> Result<usize, &'static str> {
    Name::parse(rest).map(Name::length_bytes).map_err(|_| "not an uncompressed name")
}

fn names(rest: &[u8]) -> Result<usize, &'static str> {
    let mut at = 0;
    while at < rest.len() {
        at += name(&rest[at..])?;
    }
    Ok(at)
}

/// The `<character-string>` at the start of `rest`, without its length byte.
fn string(rest: &[u8]) -> Result<&[u8], &'static str> {
    let (&length, tail) = rest.split_first().ok_or(TOO_EARLY)?;
    tail.get(..usize::from(length)).ok_or(TOO_EARLY)
}

fn strings(rest: &[u8]) -> Result<usize, &'static str> {
    if rest.is_empty() {
        return Err(TOO_EARLY);
    }
    let mut at = 0;
    while at < rest.len() {
        at += 1 + string(&rest[at..])?.len();
    }
    Ok(at)
}

/// RFC 1183 §3.1: an X.121 address has at least four digits.
fn digits(rest: &[u8]) -> Result<usize, &'static str> {
    let string = string(rest)?;
    let is_valid = string.len() >= 4 && string.iter().all(u8::is_ascii_digit);
    if is_valid { Ok(string.len() + 1) } else { Err("not a number of at least four digits") }
}

/// RFC 1712 §3: a decimal number, `-32.6882`.
fn coordinate(rest: &[u8]) -> Result<usize, &'static str> {
    let string = string(rest)?;
    let unsigned = string.strip_prefix(b"-").or(string.strip_prefix(b"+")).unwrap_or(string);
    let (whole, fraction) = match unsigned.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&unsigned[..dot], &unsigned[dot + 1..]),
        None => (unsigned, &[][..]),
    };
    let is_valid = !(whole.is_empty() && fraction.is_empty()) && whole.iter().chain(fraction).all(u8::is_ascii_digit);
    if is_valid { Ok(string.len() + 1) } else { Err("not a decimal number") }
}

/// RFC 8659 §4.1: at least one letter or digit.
fn tag(rest: &[u8]) -> Result<usize, &'static str> {
    let tag = string(rest)?;
    let is_valid = !tag.is_empty() && tag.iter().all(u8::is_ascii_alphanumeric);
    if is_valid { Ok(tag.len() + 1) } else { Err("not a word of letters and digits") }
}

/// A digest. `expected` is the length for the algorithm, if known, and the problem with any other length.
fn digest(rest: &[u8], expected: Option<(usize, &'static str)>) -> Result<usize, &'static str> {
    match expected {
        _ if rest.is_empty() => Err(EMPTY),
        Some((length_bytes, problem)) if rest.len() != length_bytes => Err(problem),
        _ => Ok(rest.len()),
    }
}

/// The IANA registry of DS digests.
fn ds_digest(digest_type: u8) -> Option<(usize, &'static str)> {
    match digest_type {
        1 => Some((20, "a digest of type 1 (SHA-1) has 20 bytes")),
        2 => Some((32, "a digest of type 2 (SHA-256) has 32 bytes")),
        3 => Some((32, "a digest of type 3 (GOST R 34.11-94) has 32 bytes")),
        4 => Some((48, "a digest of type 4 (SHA-384) has 48 bytes")),
        _ => None,
    }
}

/// SHA-1 (RFC 4255 §3.1.2) and SHA-256 (RFC 6594 §3.1).
fn fingerprint(fingerprint_type: u8) -> Option<(usize, &'static str)> {
    match fingerprint_type {
        1 => Some((20, "a fingerprint of type 1 (SHA-1) has 20 bytes")),
        2 => Some((32, "a fingerprint of type 2 (SHA-256) has 32 bytes")),
        _ => None,
    }
}

/// RFC 8976 §2.2.4: SHA-384 and SHA-512. No digest is shorter than 12 bytes.
fn zone_digest(rest: &[u8], hash_algorithm: u8) -> Result<usize, &'static str> {
    match hash_algorithm {
        1 => digest(rest, Some((48, "a digest of hash algorithm 1 (SHA-384) has 48 bytes"))),
        2 => digest(rest, Some((64, "a digest of hash algorithm 2 (SHA-512) has 64 bytes"))),
        _ if rest.len() < 12 => Err("a digest has at least 12 bytes"),
        _ => Ok(rest.len()),
    }
}

/// A protocol and up to 65,536 bits. The last byte is not zero, so that each map has one form.
fn services(rest: &[u8]) -> Result<usize, &'static str> {
    match rest {
        [] => Err(TOO_EARLY),
        [_, .., 0] => Err("the bit map ends with a zero byte"),
        [_, map @ ..] if map.len() > 8192 => Err("the bit map goes beyond port 65535"),
        _ => Ok(rest.len()),
    }
}

/// RFC 1876 §2: version 0, sizes as digit and power of ten, angles in range.
fn location(rest: &[u8]) -> Result<usize, &'static str> {
    let &[version, size, horizontal, vertical, ref angles @ ..] = rest.first_chunk::<16>().ok_or(TOO_EARLY)?;
    if version != 0 {
        return Err("the version is not 0");
    }
    // Zero has one form: that with the power 0.
    let is_size = |byte: u8| byte >> 4 <= 9 && byte & 0x0f <= 9 && (byte >> 4 != 0 || byte == 0);
    if ![size, horizontal, vertical].into_iter().all(is_size) {
        return Err("a size is not a digit and a power of ten");
    }
    let angle = |at: usize| i64::from(u32::from_be_bytes([angles[at], angles[at + 1], angles[at + 2], angles[at + 3]]));
    let is_within = |degrees: i64, value: i64| (value - (1 << 31)).abs() <= degrees * 3_600_000;
    if !is_within(90, angle(0)) || !is_within(180, angle(4)) {
        return Err("latitude or longitude is out of range");
    }
    Ok(16)
}

/// RFC 3123 §4: family, prefix length, negation and address length, then the address without trailing zero bytes.
fn prefixes(rest: &[u8]) -> Result<usize, &'static str> {
    let mut at = 0;
    while at < rest.len() {
        let &[family_high, family_low, prefix_bits, length] = rest[at..].first_chunk::<4>().ok_or(TOO_EARLY)?;
        let length = usize::from(length & 0x7f);
        let (bits_max, length_max) = match [family_high, family_low] {
            [0, 1] => (32, 4),
            [0, 2] => (128, 16),
            _ => return Err("the address family is neither 1 (IPv4) nor 2 (IPv6)"),
        };
        let address = rest[at + 4..].get(..length).ok_or(TOO_EARLY)?;
        if prefix_bits > bits_max || length > length_max || address.last() == Some(&0) {
            return Err("a prefix has the wrong length");
        }
        at += 4 + length;
    }
    Ok(at)
}

/// RFC 4025 §2.1: type and algorithm, then nothing, an address or a name.
fn gateway(rest: &[u8]) -> Result<usize, &'static str> {
    let &[gateway_type, _algorithm] = rest.first_chunk().ok_or(TOO_EARLY)?;
    host_by_type(gateway_type, &rest[2..]).map(|length_bytes| 2 + length_bytes)
}

/// RFC 8777 §4.2: discovery bit and type, then nothing, an address or a name.
fn relay(rest: &[u8]) -> Result<usize, &'static str> {
    let (&first, host) = rest.split_first().ok_or(TOO_EARLY)?;
    host_by_type(first & 0x7f, host).map(|length_bytes| 1 + length_bytes)
}

fn host_by_type(host_type: u8, rest: &[u8]) -> Result<usize, &'static str> {
    match host_type {
        0 => Ok(0),
        1 => fixed(rest, 4),
        2 => fixed(rest, 16),
        3 => name(rest),
        _ => Err(HOST_TYPE_PROBLEM),
    }
}

/// RFC 8005 §5: length of the tag, algorithm, length of the key, then tag and key, both not empty.
fn host_identity(rest: &[u8]) -> Result<usize, &'static str> {
    let &[tag_length, _algorithm, key_high, key_low] = rest.first_chunk().ok_or(TOO_EARLY)?;
    let key_length = usize::from(u16::from_be_bytes([key_high, key_low]));
    if tag_length == 0 || key_length == 0 {
        return Err("tag or key is empty");
    }
    fixed(rest, 4 + usize::from(tag_length) + key_length)
}
