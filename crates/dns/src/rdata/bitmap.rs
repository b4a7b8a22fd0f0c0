//! A set of types as windows of bits (RFC 4034 §4.1.2): walked, checked, and built from a list.

use crate::rtype::Rtype;
use alloc::vec::Vec;

/// Octets of bits that one window may have.
const WINDOW_BYTES_MAX: usize = 32;

/// Whether `bitmap` is windows in ascending order, each of 1 to 32 octets of which the last is not zero.
pub(crate) fn check(mut bitmap: &[u8]) -> Result<(), &'static str> {
    let mut window_min = 0;
    while let [window, length, rest @ ..] = bitmap {
        let length = usize::from(*length);
        if u16::from(*window) < window_min {
            return Err("has windows out of order");
        }
        window_min = u16::from(*window) + 1;
        if length == 0 || length > WINDOW_BYTES_MAX || length > rest.len() {
            return Err("has a window of the wrong length");
        }
        let (bits, behind) = rest.split_at(length);
        if bits[length - 1] == 0 {
            return Err("has a window with zeros at its end");
        }
        bitmap = behind;
    }
    if bitmap.is_empty() { Ok(()) } else { Err("ends within a window") }
}

/// The types in a bitmap that passed [`check`], ascending.
pub(crate) fn types(bitmap: &[u8]) -> impl Iterator<Item = Rtype> {
    let mut rest = bitmap;
    let windows = core::iter::from_fn(move || {
        let (&[window, length], behind) = rest.split_first_chunk()?;
        let (bits, behind) = behind.split_at_checked(usize::from(length))?;
        rest = behind;
        Some((window, bits))
    });
    windows.flat_map(|(window, bits)| {
        let is_set = |&bit: &u8| bits.get(usize::from(bit / 8)).is_some_and(|octet| octet & (0x80 >> (bit % 8)) != 0);
        (0..=u8::MAX).filter(is_set).map(move |bit| Rtype(u16::from_be_bytes([window, bit])))
    })
}

/// Adds `rtype` to the bitmap that stands in `out` from `start` on.
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
    // Types mostly ascend, so what is moved here is short; a bitmap has 8,704 octets at most.
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
    fn the_example_of_rfc_4034_section_4_3() {
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
    fn bitmaps_that_rfc_4034_forbids() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[0, 1, 0x40, 0, 1, 0x40]), Err("has windows out of order"));
        assert_eq!(check(&[0, 0]), Err("has a window of the wrong length"));
        assert_eq!(check(&[0, 2, 0x40]), Err("has a window of the wrong length"));
        assert_eq!(check(&[0, 2, 0x40, 0]), Err("has a window with zeros at its end"));
        assert_eq!(check(&[0]), Err("ends within a window"));
    }
}
