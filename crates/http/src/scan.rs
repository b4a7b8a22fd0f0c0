//! Where the first byte of a kind stands, found eight bytes at a time.

use crate::grammar::is_token_byte;

/// Where the first control byte stands.
#[inline]
pub(crate) fn find_control(text: &[u8]) -> Option<usize> {
    find(text, Word::controls, |byte| byte.is_ascii_control())
}

/// Where the first space or control byte below it stands.
#[inline]
pub(crate) fn find_space(text: &[u8]) -> Option<usize> {
    find(text, |word| word.below(b' ' + 1), |byte| byte <= b' ')
}

/// How many bytes of a token stand at the start of `text`; `None` when it may go on behind it.
#[inline]
pub(crate) fn token_bytes(text: &[u8]) -> Option<usize> {
    // Most tokens are letters and hyphens: where those end the token ends too, nearly always.
    let in_word = |word: Word| Word::HIGH_BITS & !(word.letters() | word.equal(b'-'));
    let usual_bytes = find(text, in_word, |byte| !(byte.is_ascii_alphabetic() || byte == b'-'))?;
    let rest = &text[usual_bytes..];
    rest.iter().position(|&byte| !is_token_byte(byte)).map(|index| usual_bytes + index)
}

/// Where the first byte of `text` stands of which `is_sought` is true; `in_word` gives the same answer for eight bytes
/// at once.
#[inline]
fn find(text: &[u8], in_word: impl Fn(Word) -> u64, is_sought: impl Fn(u8) -> bool) -> Option<usize> {
    let mut start = 0;
    while let Some(bytes) = text[start..].first_chunk::<{ Word::BYTES }>() {
        let found = in_word(Word(u64::from_le_bytes(*bytes)));
        if found != 0 {
            return Some(start + found.trailing_zeros() as usize / 8);
        }
        start += Word::BYTES;
    }
    text[start..].iter().position(|&byte| is_sought(byte)).map(|index| start + index)
}

/// Eight bytes that are looked at in one step, the first of them lowest.
///
/// The answers have the high bit of each byte set for which they are yes, and no other bit.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    const BYTES: usize = 8;
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = 0x80 * Word::ONES;

    /// Bytes below `bound`, which is at most 0x80.
    #[inline]
    fn below(self, bound: u8) -> u64 {
        // The low seven bits of a byte and what lacks to 0x80 are below 0x100 together: no byte carries to the next.
        let reach = (self.0 & !Word::HIGH_BITS).wrapping_add(u64::from(0x80 - bound) * Word::ONES);
        !(reach | self.0) & Word::HIGH_BITS
    }

    /// Bytes that are `byte`.
    #[inline]
    fn equal(self, byte: u8) -> u64 {
        Word(self.0 ^ (u64::from(byte) * Word::ONES)).below(1)
    }

    /// Letters, in whatever case.
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

    /// Every byte, at every place of a word and behind it, before and behind every byte that a carry could come from.
    #[test]
    fn eight_at_a_time_is_the_same_as_one_at_a_time() {
        for byte in 0..=u8::MAX {
            for neighbour in [0, b'\t', b' ', b'-', b'A', b'z', 0x7f, 0x80, 0xff] {
                for at in 0..20 {
                    let mut text: Vec<u8> = [b'a'; 20].into();
                    text[at] = byte;
                    for other in [at.checked_sub(1), Some(at + 1)].into_iter().flatten() {
                        if let Some(place) = text.get_mut(other) {
                            *place = neighbour;
                        }
                    }
                    let position = |is_sought: fn(u8) -> bool| text.iter().position(|&byte| is_sought(byte));
                    assert_eq!(find_control(&text), position(|byte| byte.is_ascii_control()), "{text:?}");
                    assert_eq!(find_space(&text), position(|byte| byte <= b' '), "{text:?}");
                    assert_eq!(token_bytes(&text), position(|byte| !is_token_byte(byte)), "{text:?}");
                }
            }
        }
    }
}
