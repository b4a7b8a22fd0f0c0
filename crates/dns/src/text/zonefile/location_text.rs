//! Reads the location of a LOC record from text (RFC 1876 §3).

use super::Diagnostic;
use super::field_text::RdataReader;
use super::number;
use super::scanner::Token;

pub(super) const REMEDY: &str = "write degrees [minutes [seconds]] N|S degrees [minutes [seconds]] E|W altitude \
                      [size [horizontal precision [vertical precision]]], as in 52 22 23 N 4 53 32 E -2m (RFC 1876 section 3)";
/// The altitude that the wire value 0 means, in centimetres below the reference spheroid.
const ALTITUDE_ZERO_CM: i64 = 10_000_000;
/// Defaults of size, horizontal and vertical precision: 1 m, 10 km and 10 m.
const PRECISIONS_CM: [u64; 3] = [100, 1_000_000, 1_000];
/// The largest size: 9 times ten to the ninth power.
const PRECISION_CM_MAX: u64 = 9_000_000_000;

/// Reads a location up to the end of the entry.
pub(super) fn put_location(rdata: &mut RdataReader<'_>) -> Result<(), Diagnostic> {
    let latitude = take_angle(rdata, 90, *b"NS")?;
    let longitude = take_angle(rdata, 180, *b"EW")?;
    let altitude = rdata.token()?;
    let altitude_cm = parse_metres(rdata.scanner.text_of(altitude))
        .map(|altitude_cm| altitude_cm + ALTITUDE_ZERO_CM)
        .and_then(|altitude_cm| u32::try_from(altitude_cm).ok())
        .ok_or_else(|| rdata.invalid(altitude, "is not an altitude from -100000 to 42849672.95 metres", REMEDY))?;
    rdata.put_integer(0, 1);
    for default_cm in PRECISIONS_CM {
        let size_cm = match rdata.optional_token()? {
            None => default_cm,
            Some(token) => parse_metres(rdata.scanner.text_of(token))
                .and_then(|size_cm| u64::try_from(size_cm).ok())
                .filter(|&size_cm| size_cm <= PRECISION_CM_MAX)
                .ok_or_else(|| rdata.invalid(token, "is not a size from 0 to 90000000 metres", REMEDY))?,
        };
        rdata.put_integer(u64::from(mantissa_and_exponent(size_cm)), 1);
    }
    rdata.put_integer(u64::from(latitude), 4);
    rdata.put_integer(u64::from(longitude), 4);
    rdata.put_integer(u64::from(altitude_cm), 4);
    Ok(())
}

/// Reads degrees, minutes and seconds up to the letter of a hemisphere. Returns thousandths of a second above 2^31. The
/// second of `hemispheres` is negative.
fn take_angle(rdata: &mut RdataReader<'_>, degrees_max: u64, hemispheres: [u8; 2]) -> Result<u32, Diagnostic> {
    let mut angle_ms = 0;
    // The units degree, minute and second in thousandths of a second, and their bounds.
    let parts = [(3_600_000, degrees_max + 1), (60_000, 60), (1_000, 60)];
    for (index, (unit_ms, bound)) in parts.into_iter().enumerate() {
        let token = rdata.token()?;
        if index > 0
            && let Some(negative) = hemisphere(rdata, token, hemispheres)
        {
            return signed(rdata, token, angle_ms, degrees_max, negative);
        }
        let text = rdata.scanner.text_of(token);
        let value = match unit_ms {
            1_000 => parse_fixed(text, 3).filter(|&seconds_ms| seconds_ms < bound * 1_000),
            _ => number::parse_decimal(text, bound - 1).map(|value| value * unit_ms),
        };
        angle_ms += value.ok_or_else(|| rdata.invalid(token, "is not degrees, minutes or seconds in range", REMEDY))?;
    }
    let token = rdata.token()?;
    match hemisphere(rdata, token, hemispheres) {
        Some(negative) => signed(rdata, token, angle_ms, degrees_max, negative),
        None => Err(rdata.invalid(token, "is not a hemisphere", REMEDY)),
    }
}

/// Whether `token` is the letter of the negative hemisphere; `None` when it is neither letter.
fn hemisphere(rdata: &RdataReader<'_>, token: Token, [positive, negative]: [u8; 2]) -> Option<bool> {
    match rdata.scanner.text_of(token) {
        [letter] if letter.eq_ignore_ascii_case(&positive) => Some(false),
        [letter] if letter.eq_ignore_ascii_case(&negative) => Some(true),
        _ => None,
    }
}

fn signed(
    rdata: &RdataReader<'_>,
    token: Token,
    angle_ms: u64,
    degrees_max: u64,
    negative: bool,
) -> Result<u32, Diagnostic> {
    if angle_ms > degrees_max * 3_600_000 {
        return Err(rdata.invalid(token, "ends an angle that is out of range", REMEDY));
    }
    // 180 degrees are 648,000,000 thousandths: below 2^31 on either side.
    let angle_ms = angle_ms as u32;
    Ok(if negative { (1 << 31) - angle_ms } else { (1 << 31) + angle_ms })
}

/// Centimetres from metres with up to two decimals and an optional `m`.
fn parse_metres(text: &[u8]) -> Option<i64> {
    let text = text.strip_suffix(b"m").or(text.strip_suffix(b"M")).unwrap_or(text);
    let (sign, unsigned) = match text.strip_prefix(b"-") {
        Some(unsigned) => (-1, unsigned),
        None => (1, text),
    };
    // Bounds the product below.
    parse_fixed(unsigned, 2).filter(|&metres_cm| metres_cm < 1_000_000_000_000).map(|metres_cm| sign * metres_cm as i64)
}

/// A decimal number with up to `decimals` digits after the dot, in units of the last one.
fn parse_fixed(text: &[u8], decimals: usize) -> Option<u64> {
    let dot = text.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match dot {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &[][..]),
    };
    if fraction.len() > decimals || (dot.is_some() && fraction.is_empty()) {
        return None;
    }
    let whole = number::parse_decimal(whole, u64::from(u32::MAX))?;
    let digits = if fraction.is_empty() { 0 } else { number::parse_decimal(fraction, 999)? };
    let missing = (decimals - fraction.len()) as u32;
    Some(whole * 10u64.pow(decimals as u32) + digits * 10u64.pow(missing))
}

/// A size as a digit and a power of ten, in centimetres, rounded down (RFC 1876 §2).
fn mantissa_and_exponent(size_cm: u64) -> u8 {
    let mut digit = size_cm;
    let mut power = 0;
    while digit > 9 {
        digit /= 10;
        power += 1;
    }
    (digit as u8) << 4 | power
}
