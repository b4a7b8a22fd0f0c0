//! Octets to and from the digits of base 16, base 32 (extended alphabet) and base 64 (RFC 4648).

use alloc::vec::Vec;
use core::fmt::{self, Write};

const BASE16_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
const BASE32_DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
const BASE64_DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// One of the three bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Hexadecimal, either case.
    Base16,
    /// RFC 4648 §7, either case, without padding.
    Base32,
    /// RFC 4648 §4, padded.
    Base64,
}

impl Base {
    /// Bits of one digit.
    fn digit_bits(self) -> u32 {
        match self {
            Base::Base16 => 4,
            Base::Base32 => 5,
            Base::Base64 => 6,
        }
    }

    fn value_of(self, digit: u8) -> Option<u32> {
        let value = match (self, digit) {
            (Base::Base16 | Base::Base32, b'0'..=b'9') => digit - b'0',
            (Base::Base16, b'a'..=b'f' | b'A'..=b'F') => (digit | 0x20) - b'a' + 10,
            (Base::Base32, b'a'..=b'v' | b'A'..=b'V') => (digit | 0x20) - b'a' + 10,
            (Base::Base64, b'A'..=b'Z') => digit - b'A',
            (Base::Base64, b'a'..=b'z') => digit - b'a' + 26,
            (Base::Base64, b'0'..=b'9') => digit - b'0' + 52,
            (Base::Base64, b'+') => 62,
            (Base::Base64, b'/') => 63,
            _ => return None,
        };
        Some(u32::from(value))
    }

    fn digit_of(self, value: usize) -> char {
        char::from(match self {
            Base::Base16 => BASE16_DIGITS[value],
            Base::Base32 => BASE32_DIGITS[value],
            Base::Base64 => BASE64_DIGITS[value],
        })
    }
}

/// Why digits are no octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigitsError {
    /// An octet that is no digit of the base, or padding in the wrong place.
    NoDigit(u8),
    /// The last octet is not complete, or the bits left over are not zero.
    Incomplete,
}

/// Takes digits piece by piece, because a zone file may cut them with blanks anywhere (RFC 4034 §2.2).
pub(crate) struct Decoder {
    base: Base,
    bits: u32,
    bit_count: u32,
    padding_count: u32,
    digit_count: usize,
}

impl Decoder {
    pub(crate) fn new(base: Base) -> Decoder {
        Decoder { base, bits: 0, bit_count: 0, padding_count: 0, digit_count: 0 }
    }

    /// Appends to `out` the octets that `digits` complete.
    pub(crate) fn take(&mut self, digits: &[u8], out: &mut Vec<u8>) -> Result<(), DigitsError> {
        for &digit in digits {
            if digit == b'=' && self.base == Base::Base64 {
                // Bounded: a quantum of four has two digits at least.
                self.padding_count = (self.padding_count + 1).min(3);
                continue;
            }
            let Some(value) = self.base.value_of(digit).filter(|_| self.padding_count == 0) else {
                return Err(DigitsError::NoDigit(digit));
            };
            self.bits = self.bits << self.base.digit_bits() | value;
            self.bit_count += self.base.digit_bits();
            self.digit_count += 1;
            if self.bit_count >= 8 {
                self.bit_count -= 8;
                out.push((self.bits >> self.bit_count) as u8);
                self.bits &= (1 << self.bit_count) - 1;
            }
        }
        Ok(())
    }

    /// Whether the digits were complete octets.
    pub(crate) fn finish(self) -> Result<(), DigitsError> {
        // Fewer bits are left than a digit has, or a digit was of no use.
        let complete = self.bits == 0 && self.bit_count < self.base.digit_bits();
        let padded = match self.base {
            Base::Base64 => self.digit_count.next_multiple_of(4) - self.digit_count == self.padding_count as usize,
            Base::Base16 | Base::Base32 => true,
        };
        if complete && padded { Ok(()) } else { Err(DigitsError::Incomplete) }
    }
}

/// Octets printed in a base.
pub(crate) struct Encoded<'a> {
    pub(crate) base: Base,
    pub(crate) octets: &'a [u8],
}

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit_bits = self.base.digit_bits();
        let mask = (1 << digit_bits) - 1;
        let mut bits: u32 = 0;
        let mut bit_count = 0;
        let mut digit_count = 0usize;
        for &octet in self.octets {
            bits = (bits << 8 | u32::from(octet)) & 0xffff;
            bit_count += 8;
            while bit_count >= digit_bits {
                bit_count -= digit_bits;
                out.write_char(self.base.digit_of((bits >> bit_count & mask) as usize))?;
                digit_count += 1;
            }
        }
        if bit_count > 0 {
            out.write_char(self.base.digit_of((bits << (digit_bits - bit_count) & mask) as usize))?;
            digit_count += 1;
        }
        if self.base == Base::Base64 {
            for _ in digit_count..digit_count.next_multiple_of(4) {
                out.write_char('=')?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;

    #[track_caller]
    fn check(base: Base, digits: &str, expected: Result<&[u8], DigitsError>) {
        let mut out = vec![];
        let mut decoder = Decoder::new(base);
        let result = decoder.take(digits.as_bytes(), &mut out).and_then(|()| decoder.finish());
        assert_eq!(result.map(|()| &out[..]), expected, "{digits}");
        if let Ok(octets) = expected {
            assert!(format!("{}", Encoded { base, octets }).eq_ignore_ascii_case(digits), "{digits}");
        }
    }

    #[test]
    fn test_vectors_of_rfc_4648_section_10() {
        let vectors: [(&[u8], &str, &str, &str); 7] = [
            (b"", "", "", ""),
            (b"f", "66", "CO", "Zg=="),
            (b"fo", "666F", "CPNG", "Zm8="),
            (b"foo", "666F6F", "CPNMU", "Zm9v"),
            (b"foob", "666F6F62", "CPNMUOG", "Zm9vYg=="),
            (b"fooba", "666F6F6261", "CPNMUOJ1", "Zm9vYmE="),
            (b"foobar", "666F6F626172", "CPNMUOJ1E8", "Zm9vYmFy"),
        ];
        for (octets, base16, base32, base64) in vectors {
            check(Base::Base16, base16, Ok(octets));
            check(Base::Base32, base32, Ok(octets));
            check(Base::Base64, base64, Ok(octets));
        }
    }

    #[test]
    fn digits_that_are_no_octets() {
        check(Base::Base16, "6", Err(DigitsError::Incomplete));
        check(Base::Base16, "6g", Err(DigitsError::NoDigit(b'g')));
        check(Base::Base32, "C", Err(DigitsError::Incomplete));
        check(Base::Base32, "CP=", Err(DigitsError::NoDigit(b'=')));
        check(Base::Base32, "CPW", Err(DigitsError::NoDigit(b'W')));
        check(Base::Base64, "Zg=", Err(DigitsError::Incomplete));
        check(Base::Base64, "Zh==", Err(DigitsError::Incomplete));
        check(Base::Base64, "Z===", Err(DigitsError::Incomplete));
        check(Base::Base64, "Zg", Err(DigitsError::Incomplete));
        check(Base::Base64, "Zg==Zg==", Err(DigitsError::NoDigit(b'Z')));
        check(Base::Base64, "Zm9v====", Err(DigitsError::Incomplete));
    }
}
