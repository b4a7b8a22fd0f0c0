//! Formats and parses the dates of HTTP fields (RFC 9110 §5.6.7).

use core::fmt;

use sanderling_calendar::{DAY_S, DateTime};

/// Length of an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) const DATE_BYTES: usize = 29;

/// 31 December 9999, 23:59:59: the last second that an IMF-fixdate can express.
const UNIX_S_MAX: u64 = 253_402_300_799;

const WEEKDAYS: [&[u8]; 7] = [b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// A date as IMF-fixdate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HttpDate([u8; DATE_BYTES]);

impl HttpDate {
    /// Formats seconds since 1970-01-01 00:00:00 UTC; dates after the year 9999 become its last second.
    pub fn from_unix_s(unix_s: u64) -> HttpDate {
        let unix_s = unix_s.min(UNIX_S_MAX);
        let DateTime { year, month, day, hour, minute, second } = DateTime::from_unix_s(unix_s);
        let mut date = *b"Thu, 00 Jan 0000 00:00:00 GMT";
        // 1970-01-01 was a Thursday.
        date[..3].copy_from_slice(&WEEKDAYS[(unix_s / DAY_S + 3) as usize % 7][..3]);
        put_two_digits(&mut date[5..7], day);
        date[8..11].copy_from_slice(MONTHS[month as usize - 1]);
        put_two_digits(&mut date[12..14], year / 100);
        put_two_digits(&mut date[14..16], year % 100);
        put_two_digits(&mut date[17..19], hour);
        put_two_digits(&mut date[20..22], minute);
        put_two_digits(&mut date[23..25], second);
        HttpDate(date)
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8; DATE_BYTES] {
        &self.0
    }

    /// Parses the three formats that a recipient must accept, to seconds since 1970. `None` for anything else and for
    /// dates before 1970. The weekday must be valid, but need not match the date.
    pub fn parse_unix_s(text: &[u8]) -> Option<u64> {
        let comma = text.iter().position(|&byte| byte == b',');
        match comma {
            Some(3) => parse_imf_fixdate(text),
            Some(at) => parse_rfc_850_date(text, at),
            None => parse_asctime_date(text),
        }
    }
}

impl fmt::Display for HttpDate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| fmt::Write::write_char(out, char::from(byte)))
    }
}

impl fmt::Debug for HttpDate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HttpDate({self})")
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn parse_imf_fixdate(text: &[u8]) -> Option<u64> {
    let text: &[u8; DATE_BYTES] = text.try_into().ok()?;
    let has_separators = is_weekday(&text[..3], 3)
        && &text[3..5] == b", "
        && text[7] == b' '
        && text[11] == b' '
        && text[16] == b' '
        && &text[25..] == b" GMT";
    let year = number(&text[12..16])?;
    has_separators.then_some(())?;
    unix_s(year, month(&text[8..11])?, number(&text[5..7])?, time_of_day(&text[17..25])?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`, with its comma at `comma`.
fn parse_rfc_850_date(text: &[u8], comma: usize) -> Option<u64> {
    let (weekday, rest) = text.split_at(comma);
    let rest: &[u8; 24] = rest.try_into().ok()?;
    let has_separators = is_weekday(weekday, weekday.len())
        && &rest[..2] == b", "
        && rest[4] == b'-'
        && rest[8] == b'-'
        && rest[11] == b' '
        && &rest[20..] == b" GMT";
    has_separators.then_some(())?;
    // RFC 9110 §5.6.7: a year more than 50 years in the future is in the past. This crate has no clock, so the window
    // is fixed at 1970 to 2069.
    let year = match number(&rest[9..11])? {
        year @ 70.. => 1900 + year,
        year => 2000 + year,
    };
    unix_s(year, month(&rest[5..8])?, number(&rest[2..4])?, time_of_day(&rest[12..20])?)
}

/// `Sun Nov  6 08:49:37 1994`
fn parse_asctime_date(text: &[u8]) -> Option<u64> {
    let text: &[u8; 24] = text.try_into().ok()?;
    let has_separators =
        is_weekday(&text[..3], 3) && text[3] == b' ' && text[7] == b' ' && text[10] == b' ' && text[19] == b' ';
    has_separators.then_some(())?;
    let day = if text[8] == b' ' { number(&text[9..10])? } else { number(&text[8..10])? };
    unix_s(number(&text[20..24])?, month(&text[4..7])?, day, time_of_day(&text[11..19])?)
}

fn is_weekday(text: &[u8], length_bytes: usize) -> bool {
    WEEKDAYS.iter().any(|name| name.get(..length_bytes).is_some_and(|start| start == text) && length_bytes >= 3)
}

/// 1 to 12.
fn month(text: &[u8]) -> Option<u64> {
    MONTHS.iter().position(|name| name.as_slice() == text).map(|index| index as u64 + 1)
}

/// `08:49:37`: hour, minute and second.
fn time_of_day(text: &[u8]) -> Option<[u64; 3]> {
    let parts = [number(&text[..2])?, number(&text[3..5])?, number(&text[6..8])?];
    (text[2] == b':' && text[5] == b':').then_some(parts)
}

/// Parses decimal digits, few enough not to overflow.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))
}

fn unix_s(year: u64, month: u64, day: u64, [hour, minute, second]: [u64; 3]) -> Option<u64> {
    DateTime { year, month, day, hour, minute, second }.unix_s()
}

/// A time of RFC 3339: `2026-11-23T05:40:00Z`.
pub(crate) fn rfc_3339(unix_s: u64) -> [u8; 20] {
    let unix_s = unix_s.min(UNIX_S_MAX);
    let DateTime { year, month, day, hour, minute, second } = DateTime::from_unix_s(unix_s);
    let mut date = *b"0000-00-00T00:00:00Z";
    let values = [year / 100, year % 100, month, day, hour, minute, second];
    for (start, value) in [0, 2, 5, 8, 11, 14, 17].into_iter().zip(values) {
        put_two_digits(&mut date[start..start + 2], value);
    }
    date
}

fn put_two_digits(place: &mut [u8], value: u64) {
    place[0] = b'0' + (value / 10) as u8;
    place[1] = b'0' + (value % 10) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn all_three_formats_are_parsed() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(HttpDate::parse_unix_s(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(HttpDate::parse_unix_s(b"Wed Nov 16 08:49:37 1994"), Some(784_975_777));
    }

    #[test]
    fn date_is_formatted_as_imf_fixdate() {
        for (unix_s, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (4_294_967_296, "Sun, 07 Feb 2106 06:28:16 GMT"),
            (UNIX_S_MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(format!("{}", HttpDate::from_unix_s(unix_s)), text);
        }
    }

    #[test]
    fn two_digit_year_is_1970_to_2069() {
        let year = |digits: &str| HttpDate::parse_unix_s(format!("Monday, 01-Jan-{digits} 00:00:00 GMT").as_bytes());
        assert_eq!(year("70"), Some(0));
        assert_eq!(year("99"), Some(915_148_800));
        assert_eq!(year("00"), Some(946_684_800));
        assert_eq!(year("69"), Some(3_124_224_000));
    }

    #[test]
    fn leap_second_equals_the_next_second() {
        assert_eq!(
            HttpDate::parse_unix_s(b"Sat, 31 Dec 2016 23:59:60 GMT"),
            HttpDate::parse_unix_s(b"Sun, 01 Jan 2017 00:00:00 GMT"),
        );
    }

    #[test]
    fn invalid_date_is_none() {
        for text in [
            "",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sxn, 06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 29 Feb 2001 08:49:37 GMT",
            "Sun, 29 Feb 2100 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08-49-37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sundays, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 06 08:49:37 94",
            "Sun Nov   08:49:37 1994",
            ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,",
            "784111777",
        ] {
            assert_eq!(HttpDate::parse_unix_s(text.as_bytes()), None, "{text}");
        }
    }
}
