//! The elements of DER (X.690) that a certificate consists of. This module does not repeat checks of webpki.

use sanderling_calendar::DateTime;

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT_ID: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// Tags of the alternative names (RFC 5280 §4.2.1.6).
pub(crate) const EMAIL_ADDRESS: u8 = 0x81;
pub(crate) const DNS_NAME: u8 = 0x82;
pub(crate) const URI: u8 = 0x86;
pub(crate) const IP_ADDRESS: u8 = 0x87;

/// Object identifiers of attributes and extensions (RFC 5280 §A).
pub(crate) const COMMON_NAME: &[u8] = &[0x55, 4, 3];
pub(crate) const ORGANIZATION: &[u8] = &[0x55, 4, 10];
pub(crate) const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 29, 17];
pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 29, 37];
/// Purposes of a key (RFC 5280 §4.2.1.12): of servers, and any.
pub(crate) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
pub(crate) const ANY_PURPOSE: &[u8] = &[0x55, 29, 37, 0];
/// The TLS features that a server must support (RFC 7633), and the number of the extension that asks for a stapled OCSP
/// response.
pub(crate) const TLS_FEATURE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 24];
pub(crate) const STATUS_REQUEST: &[u8] = &[5];
/// Signatures with a hash that has been broken, each with its name: of RSA with MD5 and SHA-1, and of ECDSA with SHA-1.
pub(crate) const WEAK_SIGNATURES: [(&[u8], &str); 3] = [
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 4], "MD5"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 5], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], "SHA-1"),
];
/// The key type with a curve (RFC 5480 §2.1.1.1).
pub(crate) const P521: &[u8] = &[0x2b, 0x81, 4, 0, 35];

/// Elements one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements<'d>(pub(crate) &'d [u8]);

impl<'d> Elements<'d> {
    /// The content of the next element, if it has this tag.
    pub(crate) fn take_tagged(&mut self, tag: u8) -> Option<&'d [u8]> {
        let mut rest = *self;
        let (found, content) = rest.next()?;
        (found == tag).then(|| {
            *self = rest;
            content
        })
    }
}

impl<'d> Iterator for Elements<'d> {
    /// Tag and content.
    type Item = (u8, &'d [u8]);

    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&[tag, short], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            0x81 => (usize::from(*rest.first()?), &rest[1..]),
            0x82 => {
                let (length, rest) = rest.split_first_chunk()?;
                (usize::from(u16::from_be_bytes(*length)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

/// An element whose content is the concatenation of these bytes.
pub(crate) fn element(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let length = u16::try_from(content.iter().map(|part| part.len()).sum::<usize>()).expect("a short element");
    let mut out = vec![tag];
    match length {
        0..=0x7f => out.push(length as u8),
        // X.690 §10.1: in as few bytes as possible.
        0x80..=0xff => out.extend([0x81, length as u8]),
        _ => {
            out.push(0x82);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
    content.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// Seconds since 1970 of a UTCTime or GeneralizedTime in the form that RFC 5280 §4.1.2.5 demands; dates before 1970 are
/// 0.
pub(crate) fn unix_s(tag: u8, text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let number = |range: std::ops::Range<usize>| {
        Some(digits.get(range)?.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    };
    let (year, rest) = match tag {
        // A year of 50 or more is in the 20th century.
        UTC_TIME => ((number(0..2)? + 50) % 100 + 1950, 2),
        GENERALIZED_TIME => (number(0..4)?, 4),
        _ => return None,
    };
    let two = |index: usize| number(rest + 2 * index..rest + 2 * index + 2);
    let (month, day, hour, minute, second) = (two(0)?, two(1)?, two(2)?, two(3)?, two(4)?);
    match year {
        ..1970 => Some(0),
        _ if digits.len() != rest + 10 => None,
        _ => DateTime { year, month, day, hour, minute, second }.unix_s(),
    }
}

/// A GeneralizedTime. RFC 5280 demands a UTCTime until 2049, but all readers accept this one.
pub(crate) fn time(unix_s: u64) -> Vec<u8> {
    let DateTime { year, month, day, hour, minute, second } = DateTime::from_unix_s(unix_s);
    let text = format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    element(GENERALIZED_TIME, &[text.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_calendar::DAY_S;

    #[test]
    fn dates_are_seconds_since_1970() {
        let cases: [(u8, &str, Option<u64>); 9] = [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "240229235959Z", Some(1_709_251_199)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "20501301000000Z", None),
            (GENERALIZED_TIME, "2050010100000Z", None),
            (UTC_TIME, "240229235959", None),
        ];
        for (tag, text, expected) in cases {
            assert_eq!(unix_s(tag, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn written_date_is_read_as_the_same() {
        for seconds in (0..400 * 366).map(|day| day * DAY_S + day % DAY_S) {
            let time = time(seconds);
            let (tag, text) = Elements(&time).next().expect("an element");
            assert_eq!(unix_s(tag, text), Some(seconds));
        }
    }

    #[test]
    fn element_of_any_length_is_read_as_written() {
        for length in [0, 1, 127, 128, 255, 256, 65_535] {
            let content = vec![7; length];
            let written = element(SEQUENCE, &[&content]);
            let mut elements = Elements(&written);
            assert_eq!(elements.take_tagged(SET), None);
            assert_eq!(elements.take_tagged(SEQUENCE), Some(&content[..]), "{length}");
            assert!(elements.next().is_none());
        }
    }

    #[test]
    fn cut_element_is_none() {
        let written = element(SEQUENCE, &[&[7; 300]]);
        for length in 0..written.len() {
            assert!(Elements(&written[..length]).next().is_none(), "{length}");
        }
    }
}
