//! Type bit maps (RFC 4034 §4.1.2).

use crate::text::rtype::Rtype;
use alloc::vec::Vec;

/// Bytes of bits in one window.
const WINDOW_BYTES_MAX: usize = 32;

/// Checks that the windows of `bitmap` ascend, and that each has 1 to 32 bytes, of which the last is not zero. An error
/// is the problem, for a message.
pub(crate) fn check(mut bitmap: &[u8]) -> Result<(), &'static str> {
    let mut window_min = 0;
    while let [window, length, rest @ ..] = bitmap {
        let length = usize::from(*length);
        if u16::from(*window) < window_min {
            return Err("the windows of the bit map are not in ascending order");
        }
        window_min = u16::from(*window) + 1;
        if length == 0 || length > WINDOW_BYTES_MAX || length > rest.len() {
            return Err("a window of the bit map has the wrong length");
        }
        let (bits, tail) = rest.split_at(length);
        if bits[length - 1] == 0 {
            return Err("a window of the bit map ends with a zero byte");
        }
        bitmap = tail;
    }
    if bitmap.is_empty() { Ok(()) } else { Err("the last window of the bit map is incomplete") }
}

/// The types in a bit map that passed [`check`], ascending.
pub(crate) fn types(bitmap: &[u8]) -> impl Iterator<Item = Rtype> {
    let mut rest = bitmap;
    let windows = core::iter::from_fn(move || {
        let (&[window, length], tail) = rest.split_first_chunk()?;
        let (bits, tail) = tail.split_at_checked(usize::from(length))?;
        rest = tail;
        Some((window, bits))
    });
    windows.flat_map(|(window, bits)| {
        let is_set = |&bit: &u8| bits.get(usize::from(bit / 8)).is_some_and(|byte| byte & (0x80 >> (bit % 8)) != 0);
        (0..=u8::MAX).filter(is_set).map(move |bit| Rtype(u16::from_be_bytes([window, bit])))
    })
}

/// Adds `rtype` to the bit map in `out` from `start` on.
pub(crate) fn insert(rtype: Rtype, start: usize, out: &mut Vec<u8>) {
    let [window, bit] = rtype.0.to_be_bytes();
    let byte_index = usize::from(bit / 8);
    let mut at = start;
    while at < out.len() && out[at] < window {
        at += 2 + usize::from(out[at + 1]);
    }
    if at == out.len() || out[at] != window {
        out.splice(at..at, [window, 0]);
    }
    // Types usually ascend, so that few bytes move. A bit map has at most 8,704 bytes.
    let length = usize::from(out[at + 1]);
    if byte_index >= length {
        let end = at + 2 + length;
        out.splice(end..end, core::iter::repeat_n(0, byte_index + 1 - length));
        out[at + 1] = byte_index as u8 + 1;
    }
    out[at + 2 + byte_index] |= 0x80 >> (bit % 8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn types_are_inserted_as_in_rfc_4034_section_4_3() {
        let mut out = vec![0xff];
        for rtype in [Rtype(1234), Rtype::RRSIG, Rtype::A, Rtype::MX, Rtype::NSEC, Rtype::A] {
            insert(rtype, 1, &mut out);
        }
        let mut expected = vec![0xff, 0, 6, 0x40, 0x01, 0, 0, 0, 0x03, 4, 27];
        expected.extend([0; 26]);
        expected.push(0x20);
        assert_eq!(out, expected);
        assert_eq!(check(&out[1..]), Ok(()));
        let listed: Vec<Rtype> = types(&out[1..]).collect();
        assert_eq!(listed, [Rtype::A, Rtype::MX, Rtype::RRSIG, Rtype::NSEC, Rtype(1234)]);
    }

    #[test]
    fn malformed_bit_maps_are_rejected() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[0, 1, 0x40, 0, 1, 0x40]), Err("the windows of the bit map are not in ascending order"));
        assert_eq!(check(&[0, 0]), Err("a window of the bit map has the wrong length"));
        assert_eq!(check(&[0, 2, 0x40]), Err("a window of the bit map has the wrong length"));
        assert_eq!(check(&[0, 2, 0x40, 0]), Err("a window of the bit map ends with a zero byte"));
        assert_eq!(check(&[0]), Err("the last window of the bit map is incomplete"));
    }
}
