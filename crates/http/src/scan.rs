//! Finds the first byte of a class, eight bytes at a time.

use memchr::memchr;

use crate::grammar::is_token_byte;

/// Index of the first control byte.
#[inline]
pub(crate) fn find_control(text: &[u8]) -> Option<usize> {
    find(text, Word::controls, |byte| byte.is_ascii_control())
}

/// Index of the first byte that is a space or less.
#[inline]
pub(crate) fn find_space(text: &[u8]) -> Option<usize> {
    find(text, |word| word.below(b' ' + 1), |byte| byte <= b' ')
}

/// Length of the token at the start of `text`; `None` if it reaches the end of `text`.
#[inline]
pub(crate) fn token_bytes(text: &[u8]) -> Option<usize> {
    // Most tokens are letters and hyphens: where these end the token nearly always ends.
    let in_word = |word: Word| Word::HIGH_BITS & !(word.letters() | word.equal(b'-'));
    let usual_bytes = find(text, in_word, |byte| !(byte.is_ascii_alphabetic() || byte == b'-'))?;
    let rest = &text[usual_bytes..];
    rest.iter().position(|&byte| !is_token_byte(byte)).map(|index| usual_bytes + index)
}

/// Whether an empty line ends after the first `scanned_bytes`, of which at most two are read again. Lines may end with
/// CRLF or LF, so that a head with invalid line ends has an end too.
pub(crate) fn has_head_end(bytes: &[u8], scanned_bytes: usize) -> bool {
    let mut at = scanned_bytes.saturating_sub(b"\n\r".len());
    while let Some(index) = memchr(b'\n', &bytes[at..]) {
        at += index + 1;
        if matches!(&bytes[at..], [b'\n', ..] | [b'\r', b'\n', ..]) {
            return true;
        }
    }
    false
}

/// Index of the first byte of `text` that `matches`; `in_word` is the same test for eight bytes together.
#[inline]
fn find(text: &[u8], in_word: impl Fn(Word) -> u64, matches: impl Fn(u8) -> bool) -> Option<usize> {
    let mut start = 0;
    while let Some(bytes) = text[start..].first_chunk::<{ Word::BYTES }>() {
        let found = in_word(Word(u64::from_le_bytes(*bytes)));
        if found != 0 {
            return Some(start + found.trailing_zeros() as usize / 8);
        }
        start += Word::BYTES;
    }
    text[start..].iter().position(|&byte| matches(byte)).map(|index| start + index)
}

/// Eight bytes, the first one lowest.
///
/// Each test returns the high bits of the bytes that pass it, and no other bits.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    const BYTES: usize = 8;
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = 0x80 * Word::ONES;

    /// Bytes below `bound`, which is at most 0x80.
    #[inline]
    fn below(self, bound: u8) -> u64 {
        // The low seven bits of a byte plus `0x80 - bound` are less than 0x100: no byte carries into the next.
        let reach = (self.0 & !Word::HIGH_BITS).wrapping_add(u64::from(0x80 - bound) * Word::ONES);
        !(reach | self.0) & Word::HIGH_BITS
    }

    /// Bytes equal to `byte`.
    #[inline]
    fn equal(self, byte: u8) -> u64 {
        Word(self.0 ^ (u64::from(byte) * Word::ONES)).below(1)
    }

    /// Letters of either case.
    #[inline]
    fn letters(self) -> u64 {
        let folded = Word(self.0 | (0x20 * Word::ONES));
        folded.below(b'z' + 1) & !folded.below(b'a')
    }

    /// Control bytes.
    #[inline]
    fn controls(self) -> u64 {
        // DEL is the one byte up to 0x7f that is not below it.
        (self.below(b' ') | !self.below(0x7f)) & !self.0 & Word::HIGH_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Each byte at each position of a word and after it, next to each byte that a carry could come from.
    #[test]
    fn word_scan_equals_byte_scan() {
        for byte in 0..=u8::MAX {
            for neighbour in [0, b'\t', b' ', b'-', b'A', b'z', 0x7f, 0x80, 0xff] {
                for at in 0..20 {
                    let mut text: Vec<u8> = [b'a'; 20].into();
                    text[at] = byte;
                    for other in [at.checked_sub(1), Some(at + 1)].into_iter().flatten() {
                        if let Some(beside) = text.get_mut(other) {
                            *beside = neighbour;
                        }
                    }
                    let position = |matches: fn(u8) -> bool| text.iter().position(|&byte| matches(byte));
                    assert_eq!(find_control(&text), position(|byte| byte.is_ascii_control()), "{text:?}");
                    assert_eq!(find_space(&text), position(|byte| byte <= b' '), "{text:?}");
                    assert_eq!(token_bytes(&text), position(|byte| !is_token_byte(byte)), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn head_end_is_found_whatever_the_fragments() {
        for (text, end) in [
            ("\r\n\r\n", Some(4)),
            ("a\r\nb\r\n\r\nc", Some(8)),
            ("a\n\nb", Some(3)),
            ("a\r\n\nb", Some(4)),
            ("a\n\r\nb", Some(4)),
            ("a\r\r\n\rb", None),
            ("\r\n", None),
            ("", None),
        ] {
            for scanned_bytes in 0..end.unwrap_or(text.len() + 1) {
                let bytes = text.as_bytes();
                assert_eq!(has_head_end(bytes, scanned_bytes), end.is_some(), "{text:?} from {scanned_bytes}");
                assert!(!has_head_end(&bytes[..end.map_or(bytes.len(), |end| end - 1)], scanned_bytes), "{text:?}");
            }
        }
    }
}
