//! The encodings of binary fields in text (RFC 4648).

use alloc::vec::Vec;
use data_encoding::{BASE32_DNSSEC, BASE64, Encoding, HEXUPPER_PERMISSIVE};

/// An encoding of bytes as digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Hexadecimal, in either case.
    Base16,
    /// The extended hex alphabet (RFC 4648 §7), in either case, without padding.
    Base32,
    /// RFC 4648 §4, with padding.
    Base64,
}

/// Digits are missing or superfluous, or bits after the last byte are not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incomplete;

impl Base {
    pub(crate) fn encoding(self) -> Encoding {
        match self {
            Base::Base16 => HEXUPPER_PERMISSIVE,
            Base::Base32 => BASE32_DNSSEC,
            Base::Base64 => BASE64,
        }
    }

    /// The first byte of `text` that is neither a digit nor padding.
    pub(crate) fn first_invalid(self, text: &[u8]) -> Option<u8> {
        let is_invalid = |byte: &u8| match self {
            Base::Base16 => !byte.is_ascii_hexdigit(),
            Base::Base32 => !matches!(byte, b'0'..=b'9' | b'a'..=b'v' | b'A'..=b'V'),
            Base::Base64 => !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')),
        };
        text.iter().copied().find(|byte| is_invalid(byte))
    }

    /// Appends the bytes that `text` encodes.
    pub(crate) fn decode(self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Incomplete> {
        let start = out.len();
        // `data-encoding` accepts several concatenated padded texts as one.
        let digits_end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |last| last + 1);
        if text[..digits_end].contains(&b'=') {
            return Err(Incomplete);
        }
        out.resize(start + self.encoding().decode_len(text.len()).map_err(|_| Incomplete)?, 0);
        let length_bytes = self.encoding().decode_mut(text, &mut out[start..]).map_err(|_| Incomplete)?;
        out.truncate(start + length_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    #[track_caller]
    fn check(base: Base, text: &str, expected: Result<&[u8], Incomplete>) {
        let mut out = vec![];
        let result = base.decode(text.as_bytes(), &mut out);
        assert_eq!(result.map(|()| &out[..]), expected, "{text}");
        if let Ok(bytes) = expected {
            let mut encoded = String::new();
            base.encoding().encode_write(bytes, &mut encoded).expect("a string takes what is written");
            assert!(encoded.eq_ignore_ascii_case(text), "{text}");
        }
    }

    #[test]
    fn digits_of_either_case_are_decoded() {
        check(Base::Base16, "666F6fa1", Ok(b"foo\xa1"));
        check(Base::Base32, "CPNmuOJ1", Ok(b"fooba"));
        check(Base::Base64, "Zm9vYg==", Ok(b"foob"));
        for base in [Base::Base16, Base::Base32, Base::Base64] {
            check(base, "", Ok(b""));
        }
    }

    #[test]
    fn incomplete_digits_are_rejected() {
        for (base, text) in [
            (Base::Base16, "6"),
            (Base::Base32, "C"),
            (Base::Base32, "CP="),
            (Base::Base32, "CR"),
            (Base::Base64, "Zg="),
            (Base::Base64, "Zh=="),
            (Base::Base64, "Z==="),
            (Base::Base64, "Zg"),
            (Base::Base64, "Zg==Zg=="),
            (Base::Base64, "Zm9v===="),
        ] {
            check(base, text, Err(Incomplete));
        }
    }

    #[test]
    fn bytes_that_are_not_digits_are_found() {
        assert_eq!(Base::Base16.first_invalid(b"6g"), Some(b'g'));
        assert_eq!(Base::Base32.first_invalid(b"CPW"), Some(b'W'));
        assert_eq!(Base::Base64.first_invalid(b"Z-"), Some(b'-'));
        assert_eq!(Base::Base64.first_invalid(b"Zg=="), None);
    }
}
