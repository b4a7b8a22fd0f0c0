//! Appends text and numbers to a buffer.

use alloc::vec::Vec;
use core::fmt::Write;

/// Appends formatted text.
pub(crate) fn put_fmt(out: &mut Vec<u8>, text: core::fmt::Arguments<'_>) {
    struct Bytes<'a>(&'a mut Vec<u8>);
    impl Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    Bytes(out).write_fmt(text).expect("writing to a vector cannot fail");
}

/// Appends `prefix` and a number. Faster than `core::fmt`, which a 206 would use four times.
pub(crate) fn put_number(prefix: &[u8], number: u64, out: &mut Vec<u8>) {
    const DIGIT_COUNT_MAX: usize = 20;
    let mut digits = [0; DIGIT_COUNT_MAX];
    let mut start = DIGIT_COUNT_MAX;
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(prefix);
    out.extend_from_slice(&digits[start..]);
}
