//! Parses numbers, durations and timestamps.

use sanderling_calendar::DateTime;

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

/// Seconds: a number, or numbers with the units w, d, h, m and s in any case (`1h30m`).
pub(super) fn parse_duration_s(text: &[u8]) -> Option<u32> {
    let last = text.last()?;
    if last.is_ascii_digit() {
        // Only a number without units is in seconds: like BIND, reject "1h30".
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

/// Seconds since 1970, modulo 2^32, from `YYYYMMDDHHmmSS` or from a decimal number of at most ten digits
/// (RFC 4034 §3.2).
pub(super) fn parse_timestamp(text: &[u8]) -> Option<u32> {
    if text.len() != 14 {
        return parse_decimal(text, u64::from(u32::MAX)).map(|value| value as u32);
    }
    let part = |start: usize, end: usize| parse_decimal(&text[start..end], 9_999);
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    // 32 bits of seconds end in 2106.
    u32::try_from(DateTime { year, month, day, hour, minute, second }.unix_s()?).ok()
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
        for text in ["21060207062816", "20230229000000", "20231301000000", "20230100000000", "20230101240000", ""] {
            check(text, None);
        }
    }
}
