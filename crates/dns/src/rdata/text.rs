//! Turns RDATA into its zone-file form, which the zone-file parser turns back into the same octets.

use super::encoding::{Base, Encoded};
use super::svc_param::{self, Key, Value};
use super::{FieldKind, FieldSlices};
use super::{bitmap, check, fields};
use crate::name::Name;
use crate::rtype::Rtype;
use core::fmt::{self, Display, Formatter, Write};
use core::net::{Ipv4Addr, Ipv6Addr};

/// RDATA in zone-file form: its type's fields, or the form of RFC 3597 §5 where there are none or where the octets have
/// not the type's shape.
#[derive(Clone, Copy, Debug)]
pub struct PresentationFormat<'a> {
    rtype: Rtype,
    rdata: &'a [u8],
}

impl<'a> PresentationFormat<'a> {
    /// The text of `rdata`, whatever octets it is.
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
        for (field, octets) in FieldSlices::of(self.rtype, self.rdata).map_while(Result::ok) {
            // Octets that are none and print as nothing: a field that was left out.
            if octets.is_empty() && !matches!(field.kind, FieldKind::RestAsString | FieldKind::DashBase64) {
                continue;
            }
            out.write_str(blank)?;
            write_field(field.kind, octets, out)?;
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
    write!(out, " {}", Encoded { base: Base::Base16, octets: rdata })
}

/// Writes one field, whose octets were checked.
fn write_field(kind: FieldKind, octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    match kind {
        FieldKind::U8
        | FieldKind::U16
        | FieldKind::U32
        | FieldKind::U64
        | FieldKind::Period
        | FieldKind::Algorithm
        | FieldKind::DigestType
        | FieldKind::CertificateType
        | FieldKind::Scheme => write!(out, "{}", integer(octets)),
        FieldKind::Time => write_time(integer(octets), out),
        FieldKind::Rtype => write!(out, "{}", Rtype(integer(octets) as u16)),
        FieldKind::Ipv4 => write!(out, "{}", ipv4(octets)),
        FieldKind::Ipv6 => write!(out, "{}", ipv6(octets)),
        FieldKind::Locator => write_groups(octets, 2, ':', out),
        FieldKind::Eui48 | FieldKind::Eui64 => write_groups(octets, 1, '-', out),
        FieldKind::CompressibleName | FieldKind::Name => write_name(octets, out),
        FieldKind::String
        | FieldKind::Digits
        | FieldKind::Coordinate
        | FieldKind::OptionalString
        | FieldKind::Strings => separated(strings(octets), " ", out, write_quoted),
        FieldKind::Tag => octets[1..].iter().try_for_each(|&octet| out.write_char(char::from(octet))),
        FieldKind::RestAsString => write_quoted(octets, out),
        FieldKind::Hex | FieldKind::DsDigest | FieldKind::Fingerprint | FieldKind::ZoneDigest => {
            write_base(Base::Base16, octets, out)
        }
        FieldKind::Base64 | FieldKind::OptionalBase64 => write_base(Base::Base64, octets, out),
        FieldKind::DashBase64 if octets.is_empty() => out.write_str("-"),
        FieldKind::DashBase64 => write_base(Base::Base64, octets, out),
        FieldKind::Salt if octets.len() == 1 => out.write_str("-"),
        FieldKind::Salt => write_base(Base::Base16, &octets[1..], out),
        FieldKind::HashedName => write_base(Base::Base32, &octets[1..], out),
        FieldKind::Bitmap => separated(bitmap::types(octets), " ", out, |rtype, out| write!(out, "{rtype}")),
        FieldKind::Services => write_services(octets, out),
        FieldKind::Nsap => {
            out.write_str("0x")?;
            write_base(Base::Base16, octets, out)
        }
        FieldKind::Location => write_location(octets, out),
        FieldKind::Prefixes => write_prefixes(octets, out),
        FieldKind::Gateway => {
            write!(out, "{} {} ", octets[0], octets[1])?;
            write_host(octets[0], &octets[2..], out)
        }
        FieldKind::Relay => {
            write!(out, "{} {} ", octets[0] >> 7, octets[0] & 0x7f)?;
            write_host(octets[0] & 0x7f, &octets[1..], out)
        }
        FieldKind::HostIdentity => write_host_identity(octets, out),
        FieldKind::Names => separated(names(octets), " ", out, |name, out| write!(out, "{name}")),
        FieldKind::SvcParams => separated(svc_param::params(octets), " ", out, write_param),
    }
}

/// Writes `items`, each by `write`, with `border` between two.
fn separated<T>(
    items: impl Iterator<Item = T>,
    border: &str,
    out: &mut Formatter<'_>,
    write: impl Fn(T, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.write_str(border)?;
        }
        write(item, out)?;
    }
    Ok(())
}

/// A number of up to eight octets.
fn integer(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |value, &octet| value << 8 | u64::from(octet))
}

fn ipv4(octets: &[u8]) -> Ipv4Addr {
    Ipv4Addr::from(*octets.first_chunk::<4>().expect("an IPv4 field has four octets"))
}

fn ipv6(octets: &[u8]) -> Ipv6Addr {
    Ipv6Addr::from(*octets.first_chunk::<16>().expect("an IPv6 field has sixteen octets"))
}

fn write_name(octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    write!(out, "{}", Name::parse(octets).expect("the field was checked to be a name"))
}

fn names(octets: &[u8]) -> impl Iterator<Item = Name<'_>> {
    let mut rest = octets;
    core::iter::from_fn(move || {
        let name = Name::parse(rest).ok()?;
        rest = &rest[name.length_bytes()..];
        Some(name)
    })
}

fn strings(octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = octets;
    core::iter::from_fn(move || {
        let (&length, behind) = rest.split_first()?;
        let (string, behind) = behind.split_at_checked(usize::from(length))?;
        rest = behind;
        Some(string)
    })
}

fn write_base(base: Base, octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    write!(out, "{}", Encoded { base, octets })
}

fn write_quoted(octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    out.write_char('"')?;
    for &octet in octets {
        write_octet(octet, out)?;
    }
    out.write_char('"')
}

/// One octet within quotes.
fn write_octet(octet: u8, out: &mut Formatter<'_>) -> fmt::Result {
    match octet {
        b'"' | b'\\' => write!(out, "\\{}", char::from(octet)),
        0x20..=0x7e => out.write_char(char::from(octet)),
        _ => write!(out, "\\{octet:03}"),
    }
}

/// Groups of hexadecimal digits, `group_bytes` octets each.
fn write_groups(octets: &[u8], group_bytes: usize, border: char, out: &mut Formatter<'_>) -> fmt::Result {
    for (index, group) in octets.chunks(group_bytes).enumerate() {
        if index > 0 {
            out.write_char(border)?;
        }
        for octet in group {
            write!(out, "{octet:02x}")?;
        }
    }
    Ok(())
}

/// `YYYYMMDDHHmmSS`, from 1970 to 2106 (RFC 4034 §3.2).
fn write_time(seconds: u64, out: &mut Formatter<'_>) -> fmt::Result {
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March 0000, so that the leap day is the last of its year; an era has 400 of them.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    write!(out, "{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

/// A protocol and the ports whose bits are set.
fn write_services(octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    write!(out, "{}", octets[0])?;
    for (index, &bits) in octets[1..].iter().enumerate() {
        for bit in (0..8).filter(|bit| bits & (0x80 >> bit) != 0) {
            write!(out, " {}", index * 8 + bit)?;
        }
    }
    Ok(())
}

/// RFC 1876 §3, nothing left out.
fn write_location(octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    write_angle(integer(&octets[4..8]), 'N', 'S', out)?;
    write_angle(integer(&octets[8..12]), 'E', 'W', out)?;
    let altitude_cm = integer(&octets[12..16]) as i64 - 10_000_000;
    let sign = if altitude_cm < 0 { "-" } else { "" };
    write!(out, "{sign}{}.{:02}m", altitude_cm.abs() / 100, altitude_cm.abs() % 100)?;
    for size in &octets[1..4] {
        let size_cm = u64::from(size >> 4) * 10u64.pow(u32::from(size & 0xf));
        write!(out, " {}.{:02}m", size_cm / 100, size_cm % 100)?;
    }
    Ok(())
}

/// Degrees, minutes and seconds from thousandths of a second above 2^31.
fn write_angle(angle: u64, positive: char, negative: char, out: &mut Formatter<'_>) -> fmt::Result {
    let angle_ms = angle as i64 - (1 << 31);
    let hemisphere = if angle_ms < 0 { negative } else { positive };
    let (seconds, ms) = (angle_ms.abs() / 1_000, angle_ms.abs() % 1_000);
    write!(out, "{} {} {}.{ms:03} {hemisphere} ", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// RFC 3123 §5.
fn write_prefixes(octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    let mut rest = octets;
    let mut blank = "";
    while let [_, family, prefix_bits, length, behind @ ..] = rest {
        let negation = if length & 0x80 == 0 { "" } else { "!" };
        let (address, behind) = behind.split_at(usize::from(length & 0x7f));
        let mut whole = [0; 16];
        whole[..address.len()].copy_from_slice(address);
        write!(out, "{blank}{negation}{family}:")?;
        match family {
            1 => write!(out, "{}/{prefix_bits}", ipv4(&whole))?,
            _ => write!(out, "{}/{prefix_bits}", ipv6(&whole))?,
        }
        rest = behind;
        blank = " ";
    }
    Ok(())
}

/// A gateway or relay by its type (RFC 4025 §3.1, RFC 8777 §4.3).
fn write_host(host_type: u8, octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    match host_type {
        0 => out.write_str("."),
        1 => write!(out, "{}", ipv4(octets)),
        2 => write!(out, "{}", ipv6(octets)),
        _ => write_name(octets, out),
    }
}

/// RFC 8005 §6.
fn write_host_identity(octets: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    let (tag, key) = octets[4..].split_at(usize::from(octets[0]));
    write!(out, "{} {} ", octets[1], Encoded { base: Base::Base16, octets: tag })?;
    write_base(Base::Base64, key, out)
}

/// RFC 9460 §2.1.
fn write_param((key, value): (Key, &[u8]), out: &mut Formatter<'_>) -> fmt::Result {
    write!(out, "{key}")?;
    if value.is_empty() {
        return Ok(());
    }
    out.write_char('=')?;
    match key.value() {
        Value::Keys => {
            separated(value.chunks_exact(2), ",", out, |pair, out| write!(out, "{}", Key(integer(pair) as u16)))
        }
        Value::Protocols => {
            out.write_char('"')?;
            separated(strings(value), ",", out, write_protocol)?;
            out.write_char('"')
        }
        Value::Port => write!(out, "{}", integer(value)),
        Value::Ipv4 => separated(value.chunks_exact(4), ",", out, |octets, out| write!(out, "{}", ipv4(octets))),
        Value::Ipv6 => separated(value.chunks_exact(16), ",", out, |octets, out| write!(out, "{}", ipv6(octets))),
        Value::Base64 => write_base(Base::Base64, value, out),
        Value::Empty | Value::DohPath | Value::Opaque => write_quoted(value, out),
    }
}

/// A protocol identifier: the backslash before a comma or a backslash is escaped itself (RFC 9460 appendix A.1).
fn write_protocol(protocol: &[u8], out: &mut Formatter<'_>) -> fmt::Result {
    for &octet in protocol {
        if matches!(octet, b',' | b'\\') {
            out.write_str("\\\\")?;
        }
        write_octet(octet, out)?;
    }
    Ok(())
}
