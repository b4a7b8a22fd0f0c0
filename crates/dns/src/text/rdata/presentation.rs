//! RDATA in presentation format, which the zone file parser reads as the same bytes.

use super::base::Base;
use super::svc_param::{self, SvcParamKey, ValueKind};
use super::{FieldKind, FieldSlices};
use super::{bitmap, check, fields};
use crate::text::name::Name;
use crate::text::rtype::Rtype;
use core::fmt::{self, Display, Formatter, Write};
use core::net::{Ipv4Addr, Ipv6Addr};
use sanderling_calendar::DateTime;

/// RDATA in presentation format: the fields of its type or, for an unknown type or malformed RDATA, the form of
/// RFC 3597 §5.
#[derive(Clone, Copy, Debug)]
pub struct PresentationFormat<'a> {
    rtype: Rtype,
    rdata: &'a [u8],
}

impl<'a> PresentationFormat<'a> {
    /// The presentation format of `rdata`, which may be any bytes.
    pub fn new(rtype: Rtype, rdata: &'a [u8]) -> PresentationFormat<'a> {
        PresentationFormat { rtype, rdata }
    }
}

impl Display for PresentationFormat<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if fields(self.rtype).is_none() || check(self.rtype, self.rdata).is_err() {
            return write_generic(self.rdata, out);
        }
        let mut blank = "";
        for (field, bytes) in FieldSlices::of(self.rtype, self.rdata).map_while(Result::ok) {
            // An optional field that is absent.
            if bytes.is_empty() && !matches!(field.kind, FieldKind::RestAsString | FieldKind::DashBase64) {
                continue;
            }
            out.write_str(blank)?;
            write_field(field.kind, bytes, out)?;
            blank = " ";
        }
        Ok(())
    }
}

/// RFC 3597 §5.
fn write_generic(rdata: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    write!(out, "\\# {}", rdata.len())?;
    if rdata.is_empty() {
        return Ok(());
    }
    out.write_char(' ')?;
    write_base(Base::Base16, rdata, out)
}

/// Writes a checked field.
fn write_field(kind: FieldKind, bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    match kind {
        FieldKind::U8
        | FieldKind::U16
        | FieldKind::U32
        | FieldKind::U64
        | FieldKind::Duration
        | FieldKind::Algorithm
        | FieldKind::DigestType
        | FieldKind::CertificateType
        | FieldKind::Scheme => write!(out, "{}", integer(bytes)),
        FieldKind::Timestamp => write_time(integer(bytes), out),
        FieldKind::Rtype => write!(out, "{}", Rtype(integer(bytes) as u16)),
        FieldKind::Ipv4 => write!(out, "{}", ipv4(bytes)),
        FieldKind::Ipv6 => write!(out, "{}", ipv6(bytes)),
        FieldKind::Locator => write_groups(bytes, 2, ":", out),
        FieldKind::Eui48 | FieldKind::Eui64 => write_groups(bytes, 1, "-", out),
        FieldKind::Name => write_name(bytes, out),
        FieldKind::String
        | FieldKind::Digits
        | FieldKind::Coordinate
        | FieldKind::OptionalString
        | FieldKind::Strings => separated(strings(bytes), " ", out, write_quoted),
        FieldKind::Tag => bytes[1..].iter().try_for_each(|&byte| out.write_char(char::from(byte))),
        FieldKind::RestAsString => write_quoted(bytes, out),
        FieldKind::Hex | FieldKind::DsDigest | FieldKind::Fingerprint | FieldKind::ZoneDigest => {
            write_base(Base::Base16, bytes, out)
        }
        FieldKind::Base64 | FieldKind::OptionalBase64 => write_base(Base::Base64, bytes, out),
        FieldKind::DashBase64 if bytes.is_empty() => out.write_str("-"),
        FieldKind::DashBase64 => write_base(Base::Base64, bytes, out),
        FieldKind::Salt if bytes.len() == 1 => out.write_str("-"),
        FieldKind::Salt => write_base(Base::Base16, &bytes[1..], out),
        FieldKind::HashedName => write_base(Base::Base32, &bytes[1..], out),
        FieldKind::Bitmap => separated(bitmap::types(bytes), " ", out, |rtype, out| write!(out, "{rtype}")),
        FieldKind::Services => write_services(bytes, out),
        FieldKind::Nsap => {
            out.write_str("0x")?;
            write_base(Base::Base16, bytes, out)
        }
        FieldKind::Location => write_location(bytes, out),
        FieldKind::Prefixes => write_prefixes(bytes, out),
        FieldKind::Gateway => {
            write!(out, "{} {} ", bytes[0], bytes[1])?;
            write_host(bytes[0], &bytes[2..], out)
        }
        FieldKind::Relay => {
            write!(out, "{} {} ", bytes[0] >> 7, bytes[0] & 0x7f)?;
            write_host(bytes[0] & 0x7f, &bytes[1..], out)
        }
        FieldKind::HostIdentity => write_host_identity(bytes, out),
        FieldKind::Names => separated(names(bytes), " ", out, |name, out| write!(out, "{name}")),
        FieldKind::SvcParams => separated(svc_param::params(bytes), " ", out, write_param),
    }
}

/// Writes `items` with `separator` between them.
fn separated<T>(
    items: impl Iterator<Item = T>,
    separator: &str,
    out: &mut Formatter<'_>,
    write: impl Fn(T, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.write_str(separator)?;
        }
        write(item, out)?;
    }
    Ok(())
}

/// A number of up to eight bytes.
fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn ipv4(bytes: &[u8]) -> Ipv4Addr {
    Ipv4Addr::from(*bytes.first_chunk::<4>().expect("an IPv4 field has four bytes"))
}

fn ipv6(bytes: &[u8]) -> Ipv6Addr {
    Ipv6Addr::from(*bytes.first_chunk::<16>().expect("an IPv6 field has 16 bytes"))
}

fn write_name(bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    write!(out, "{}", Name::parse(bytes).expect("the field was checked"))
}

fn names(bytes: &[u8]) -> impl Iterator<Item = Name<'_>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let name = Name::parse(rest).ok()?;
        rest = &rest[name.length_bytes()..];
        Some(name)
    })
}

fn strings(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (&length, tail) = rest.split_first()?;
        let (string, tail) = tail.split_at_checked(usize::from(length))?;
        rest = tail;
        Some(string)
    })
}

fn write_base(base: Base, bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    base.encoding().encode_write(bytes, out)
}

fn write_quoted(bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    out.write_char('"')?;
    bytes.iter().try_for_each(|&byte| write_byte(byte, out))?;
    out.write_char('"')
}

/// Writes one byte in quotes.
fn write_byte(byte: u8, out: &mut Formatter<'_>) -> fmt::Result {
    match byte {
        b'"' | b'\\' => write!(out, "\\{}", char::from(byte)),
        0x20..=0x7e => out.write_char(char::from(byte)),
        _ => write!(out, "\\{byte:03}"),
    }
}

/// Writes groups of hexadecimal digits, `group_bytes` bytes each.
fn write_groups(bytes: &[u8], group_bytes: usize, separator: &str, out: &mut Formatter<'_>) -> fmt::Result {
    separated(bytes.chunks(group_bytes), separator, out, |group, out| {
        group.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    })
}

/// Writes `YYYYMMDDHHmmSS`, from 1970 to 2106 (RFC 4034 §3.2): it is read back as the same number, whatever the
/// original notation.
fn write_time(seconds: u64, out: &mut Formatter<'_>) -> fmt::Result {
    let DateTime { year, month, day, hour, minute, second } = DateTime::from_unix_s(seconds);
    write!(out, "{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

/// Writes a protocol and the ports whose bits are set.
fn write_services(bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    write!(out, "{}", bytes[0])?;
    for (index, &bits) in bytes[1..].iter().enumerate() {
        for bit in (0..8).filter(|bit| bits & (0x80 >> bit) != 0) {
            write!(out, " {}", index * 8 + bit)?;
        }
    }
    Ok(())
}

/// RFC 1876 §3, with all fields.
fn write_location(bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    write_angle(integer(&bytes[4..8]), 'N', 'S', out)?;
    write_angle(integer(&bytes[8..12]), 'E', 'W', out)?;
    let altitude_cm = integer(&bytes[12..16]) as i64 - 10_000_000;
    let sign = if altitude_cm < 0 { "-" } else { "" };
    write!(out, "{sign}{}.{:02}m", altitude_cm.abs() / 100, altitude_cm.abs() % 100)?;
    for size in &bytes[1..4] {
        let size_cm = u64::from(size >> 4) * 10u64.pow(u32::from(size & 0xf));
        write!(out, " {}.{:02}m", size_cm / 100, size_cm % 100)?;
    }
    Ok(())
}

/// Writes degrees, minutes and seconds from thousandths of a second above 2^31.
fn write_angle(angle: u64, positive: char, negative: char, out: &mut Formatter<'_>) -> fmt::Result {
    let angle_ms = angle as i64 - (1 << 31);
    let hemisphere = if angle_ms < 0 { negative } else { positive };
    let (seconds, ms) = (angle_ms.abs() / 1_000, angle_ms.abs() % 1_000);
    write!(out, "{} {} {}.{ms:03} {hemisphere} ", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// RFC 3123 §5.
fn write_prefixes(bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    let mut rest = bytes;
    let mut blank = "";
    while let [_, family, prefix_bits, length, tail @ ..] = rest {
        let negation = if length & 0x80 == 0 { "" } else { "!" };
        let (address, tail) = tail.split_at(usize::from(length & 0x7f));
        let mut whole = [0; 16];
        whole[..address.len()].copy_from_slice(address);
        write!(out, "{blank}{negation}{family}:")?;
        match family {
            1 => write!(out, "{}/{prefix_bits}", ipv4(&whole))?,
            _ => write!(out, "{}/{prefix_bits}", ipv6(&whole))?,
        }
        rest = tail;
        blank = " ";
    }
    Ok(())
}

/// Writes a gateway or relay (RFC 4025 §3.1, RFC 8777 §4.3.1).
fn write_host(host_type: u8, bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    match host_type {
        0 => out.write_str("."),
        1 => write!(out, "{}", ipv4(bytes)),
        2 => write!(out, "{}", ipv6(bytes)),
        _ => write_name(bytes, out),
    }
}

/// RFC 8005 §6.
fn write_host_identity(bytes: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    let (tag, key) = bytes[4..].split_at(usize::from(bytes[0]));
    write!(out, "{} ", bytes[1])?;
    write_base(Base::Base16, tag, out)?;
    out.write_char(' ')?;
    write_base(Base::Base64, key, out)
}

/// RFC 9460 §2.1.
fn write_param((key, value): (SvcParamKey, &[u8]), out: &mut Formatter<'_>) -> fmt::Result {
    write!(out, "{key}")?;
    if value.is_empty() {
        return Ok(());
    }
    out.write_char('=')?;
    match key.value_kind() {
        ValueKind::Keys => {
            separated(value.chunks_exact(2), ",", out, |pair, out| write!(out, "{}", SvcParamKey(integer(pair) as u16)))
        }
        ValueKind::Protocols => {
            out.write_char('"')?;
            separated(strings(value), ",", out, write_protocol)?;
            out.write_char('"')
        }
        ValueKind::Port => write!(out, "{}", integer(value)),
        ValueKind::Ipv4 => separated(value.chunks_exact(4), ",", out, |bytes, out| write!(out, "{}", ipv4(bytes))),
        ValueKind::Ipv6 => separated(value.chunks_exact(16), ",", out, |bytes, out| write!(out, "{}", ipv6(bytes))),
        ValueKind::Base64 => write_base(Base::Base64, value, out),
        ValueKind::Empty | ValueKind::DohPath | ValueKind::Opaque => write_quoted(value, out),
    }
}

/// Writes a protocol identifier. The backslash that escapes a comma or a backslash is escaped too (RFC 9460 appendix
/// A.1).
fn write_protocol(protocol: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    for &byte in protocol {
        if matches!(byte, b',' | b'\\') {
            out.write_str("\\\\")?;
        }
        write_byte(byte, out)?;
    }
    Ok(())
}
