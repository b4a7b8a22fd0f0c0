//! Parses numbers, durations and timestamps.

use sanderling_calendar::{DAY_S, DateTime};

/// A decimal number up to `max`.
pub(super) fn parse_decimal(text: &[u8], max: u64) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in text {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    (value <= max).then_some(value)
}

/// Seconds: a number, or numbers with the units w, d, h, m and s in either letter case (`1h30m`).
pub(super) fn parse_duration_s(text: &[u8]) -> Option<u32> {
    let last = text.last()?;
    if last.is_ascii_digit() {
        // A number without a unit is valid only alone: "1h30" is rejected, as by BIND.
        return parse_decimal(text, u64::from(u32::MAX)).map(|value| value as u32);
    }
    let mut total_s: u32 = 0;
    for part in text.split_inclusive(|byte| !byte.is_ascii_digit()) {
        let (unit, digits) = part.split_last()?;
        let unit_s: u32 = match unit.to_ascii_lowercase() {
            b'w' => 7 * 86_400,
            b'd' => 86_400,
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        let count = parse_decimal(digits, u64::from(u32::MAX))? as u32;
        total_s = total_s.checked_add(count.checked_mul(unit_s)?)?;
    }
    Some(total_s)
}

/// Years added to a date so that it is after 1970: the calendar has a period of 400 years.
const SHIFT_YEARS: u64 = 2_000;
/// Seconds in [`SHIFT_YEARS`] years.
const SHIFT_S: u64 = 5 * 146_097 * DAY_S;

/// Seconds since 1970, modulo 2^32, from `YYYYMMDDHHmmSS` with a year from 0001 on, or from a decimal number of at most
/// ten digits (RFC 4034 §3.2). The number is a serial (§3.1.5): a date and those 2^32 s before and after it are the
/// same.
pub(super) fn parse_timestamp(text: &[u8]) -> Option<u32> {
    if text.len() != 14 {
        return parse_decimal(text, u64::from(u32::MAX)).map(|value| value as u32);
    }
    let part = |start: usize, end: usize| parse_decimal(&text[start..end], 9_999);
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    if year == 0 {
        return None;
    }
    let shifted = DateTime { year: year + SHIFT_YEARS, month, day, hour, minute, second };
    Some(shifted.unix_s()?.wrapping_sub(SHIFT_S) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let check = |text: &str, expected| assert_eq!(parse_duration_s(text.as_bytes()), expected, "{text}");
        check("0", Some(0));
        check("3600", Some(3600));
        check("1h30m", Some(5400));
        check("1W2D3H4M5S", Some(788_645));
        check("4294967295", Some(u32::MAX));
        for text in ["", "h", "1h30", "1x", "-1", "4294967296", "4294967295m", "1 h", "1hh", "+1"] {
            check(text, None);
        }
    }

    #[test]
    fn timestamps_are_dates_or_seconds() {
        let check = |text: &str, expected| assert_eq!(parse_timestamp(text.as_bytes()), expected, "{text}");
        check("19700101000000", Some(0));
        check("20040229235959", Some(1_078_099_199));
        check("20231114221320", Some(1_700_000_000));
        check("21060207062815", Some(u32::MAX));
        check("1700000000", Some(1_700_000_000));
        // RFC 4034 §3.1.5: modulo 2^32.
        check("21060207062816", Some(0));
        check("21220222132804", Some(506_242_788));
        check("19691231235959", Some(u32::MAX));
        check("19691231235960", Some(0));
        check("00010101000000", Some(2_288_912_640));
        check("99991231235959", Some(4_294_197_631));
        for text in ["00001231235959", "20230229000000", "20231301000000", "20230100000000", "20230101240000", ""] {
            check(text, None);
        }
    }
}
