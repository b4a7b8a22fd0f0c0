//! Decodes the Huffman code of RFC 7541 appendix B.

use alloc::vec::Vec;

use super::CompressionError;

/// The code length of each byte, and last of EOS. The code is canonical: codes of one length are consecutive in the
/// order of their symbols, so the lengths determine them.
#[rustfmt::skip]
static CODE_BITS: [u8; SYMBOL_COUNT] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28,
    28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23,
    23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21,
    26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const SYMBOL_COUNT: usize = 257;
const EOS: u16 = 256;
const CODE_BITS_MAX: usize = 30;
/// Codes up to this length, which cover nearly all text, are found by one look-up.
const SHORT_BITS: u32 = 8;

/// A decoded symbol.
#[derive(Clone, Copy)]
struct Symbol {
    value: u16,
    /// 0: the code is longer than [`SHORT_BITS`].
    code_bits: u8,
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct CodeRange {
    first: u32,
    count: u32,
    /// The place of the first code's symbol in [`Tables::symbols`].
    symbols_start: u16,
}

struct Tables {
    short: [Symbol; 1 << SHORT_BITS],
    ranges: [CodeRange; CODE_BITS_MAX + 1],
    /// In the order of their codes.
    symbols: [u16; SYMBOL_COUNT],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        short: [Symbol { value: 0, code_bits: 0 }; 1 << SHORT_BITS],
        ranges: [CodeRange { first: 0, count: 0, symbols_start: 0 }; CODE_BITS_MAX + 1],
        symbols: [0; SYMBOL_COUNT],
    };
    let (mut code, mut symbol_count, mut bits) = (0u32, 0, 1);
    while bits <= CODE_BITS_MAX {
        code <<= 1;
        tables.ranges[bits] = CodeRange { first: code, count: 0, symbols_start: symbol_count as u16 };
        let mut symbol = 0;
        while symbol < SYMBOL_COUNT {
            if CODE_BITS[symbol] as usize == bits {
                tables.symbols[symbol_count] = symbol as u16;
                symbol_count += 1;
                if bits <= SHORT_BITS as usize {
                    let free_bits = SHORT_BITS as usize - bits;
                    let mut index = (code as usize) << free_bits;
                    while index < (code as usize + 1) << free_bits {
                        tables.short[index] = Symbol { value: symbol as u16, code_bits: bits as u8 };
                        index += 1;
                    }
                }
                code += 1;
                tables.ranges[bits].count += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    tables
}

/// Appends the decoded text of `coded` to `out`: at most 8 / 5 of its length.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    // The next bits, from the most significant one on; the bits after `bit_count` are 0.
    let (mut bits, mut bit_count) = (0u64, 0u32);
    let mut rest = coded.iter();
    loop {
        while bit_count <= u64::BITS - 8
            && let Some(&byte) = rest.next()
        {
            bits |= u64::from(byte) << (u64::BITS - 8 - bit_count);
            bit_count += 8;
        }
        let short = TABLES.short[(bits >> (u64::BITS - SHORT_BITS)) as usize];
        let symbol = if short.code_bits != 0 { short } else { long_symbol(bits) };
        if u32::from(symbol.code_bits) > bit_count {
            // RFC 7541 §5.2: the padding is shorter than a byte and a prefix of EOS, which has only ones.
            let is_padding = bit_count < 8 && bits.leading_ones() == bit_count;
            return if is_padding { Ok(()) } else { Err(CompressionError) };
        }
        if symbol.value == EOS {
            return Err(CompressionError);
        }
        out.push(symbol.value as u8);
        bits <<= symbol.code_bits;
        bit_count -= u32::from(symbol.code_bits);
    }
}

#[cold]
fn long_symbol(bits: u64) -> Symbol {
    for code_bits in SHORT_BITS as usize + 1..=CODE_BITS_MAX {
        let code = (bits >> (u64::BITS as usize - code_bits)) as u32;
        let range = TABLES.ranges[code_bits];
        let offset = code.wrapping_sub(range.first);
        if offset < range.count {
            let value = TABLES.symbols[usize::from(range.symbols_start) + offset as usize];
            return Symbol { value, code_bits: code_bits as u8 };
        }
    }
    unreachable!("the code is complete: each sequence of bits begins with a symbol")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn check(coded: &[u8], expected: Result<&[u8], CompressionError>) {
        let mut out = vec![];
        assert_eq!(decode(coded, &mut out).map(|()| &out[..]), expected, "{coded:02x?}");
    }

    #[test]
    fn examples_of_the_rfc_are_decoded() {
        check(&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], Ok(b"www.example.com"));
        check(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], Ok(b"no-cache"));
        check(&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf], Ok(b"custom-value"));
        check(&[], Ok(b""));
    }

    #[test]
    fn padding_is_shorter_than_a_byte_and_of_ones() {
        check(&[0xff], Err(CompressionError));
        check(&[0x1f, 0xff], Err(CompressionError));
        check(&[0x00], Err(CompressionError));
        check(&[0xff, 0xff, 0xff, 0xff], Err(CompressionError));
    }

    #[test]
    fn all_bytes_are_decoded() {
        // Each code separately, as the tables say, padded with ones.
        for (symbol, &bits) in CODE_BITS[..256].iter().enumerate() {
            let bits = usize::from(bits);
            let range = TABLES.ranges[bits];
            let place = TABLES.symbols[range.symbols_start as usize..].iter().position(|&it| it as usize == symbol);
            let code = u64::from(range.first) + place.expect("each symbol has a place") as u64;
            let padded = (code << (64 - bits)) | (u64::MAX >> bits);
            check(&padded.to_be_bytes()[..bits.div_ceil(8)], Ok(&[symbol as u8]));
        }
    }

    #[test]
    fn lengths_make_a_complete_code() {
        let sum: u64 = CODE_BITS.iter().map(|&bits| 1 << (CODE_BITS_MAX - bits as usize)).sum();
        assert_eq!(sum, 1 << CODE_BITS_MAX);
    }
}
