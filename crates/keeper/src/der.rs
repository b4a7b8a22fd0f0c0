//! As much of DER as private keys need.

use zeroize::Zeroizing;

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const SEQUENCE: u8 = 0x30;

/// The content of the first element, which has this tag, and the rest.
pub(crate) fn split(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length_bytes, rest) = match *bytes {
        [first, short @ 0..=0x7f, ref rest @ ..] if first == tag => (usize::from(short), rest),
        [first, 0x81, length, ref rest @ ..] if first == tag => (usize::from(length), rest),
        [first, 0x82, high, low, ref rest @ ..] if first == tag => (usize::from(u16::from_be_bytes([high, low])), rest),
        _ => return None,
    };
    rest.split_at_checked(length_bytes)
}

/// An element with these parts as its content.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let length_bytes: usize = parts.iter().map(|part| part.len()).sum();
    // The buffer is allocated once, so that no copy is left behind.
    let mut out = Zeroizing::new(Vec::with_capacity(length_bytes + 4));
    out.push(tag);
    match u16::try_from(length_bytes).expect("keys are short").to_be_bytes() {
        [0, short @ 0..=0x7f] => out.push(short),
        [0, length] => out.extend_from_slice(&[0x81, length]),
        [high, low] => out.extend_from_slice(&[0x82, high, low]),
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// A number that is not negative.
pub(crate) fn integer(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len().saturating_sub(1));
    let digits = &bytes[start..];
    let sign: &[u8] = if digits.first().is_none_or(|first| *first > 0x7f) { &[0] } else { &[] };
    element(INTEGER, &[sign, digits])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_were_written() {
        for length_bytes in [0, 1, 127, 128, 255, 256, 5000] {
            let content = vec![7; length_bytes];
            let mut bytes =
                element(OCTET_STRING, &[&content[..length_bytes / 2], &content[length_bytes / 2..]]).to_vec();
            bytes.push(9);
            assert_eq!(split(&bytes, OCTET_STRING), Some((&content[..], &[9][..])));
            assert_eq!(split(&bytes, SEQUENCE), None);
            assert_eq!(split(&bytes[..length_bytes], OCTET_STRING), None);
        }
    }

    #[test]
    fn numbers_have_no_sign_and_no_leading_zeros() {
        for (bytes, expected) in [
            (&[0, 0, 1][..], &[2, 1, 1][..]),
            (&[0x80], &[2, 2, 0, 0x80]),
            (&[0x7f, 0xff], &[2, 2, 0x7f, 0xff]),
            (&[0], &[2, 1, 0]),
            (&[], &[2, 1, 0]),
        ] {
            assert_eq!(&integer(bytes)[..], expected, "{bytes:?}");
        }
    }
}
