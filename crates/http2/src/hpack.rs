//! Decodes header blocks (HPACK, RFC 7541). Responses are encoded without a table, by [`response_head`].
//!
//! [`response_head`]: crate::response_head

mod dynamic_table;
mod huffman;
mod static_table;

use alloc::vec::Vec;

use dynamic_table::{DynamicTable, TABLE_BYTES_MAX};
use static_table::STATIC_TABLE;

/// Maximum bytes of an integer after its prefix, so that the value stays below 2^28 plus the prefix.
const INTEGER_BYTES_MAX: usize = 4;

/// A header block is invalid. The tables of client and server differ from then on, so the connection cannot continue
/// (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompressionError;

/// A field as the client sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'f> {
    pub(crate) name: &'f [u8],
    pub(crate) value: &'f [u8],
}

/// The decoding side of a connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: DynamicTable,
}

/// A header block that is being decoded.
#[derive(Debug)]
pub(crate) struct Block<'d, 'b> {
    table: &'d mut DynamicTable,
    rest: &'b [u8],
    /// A field was decoded, so that no change of the table's size may follow (RFC 7541 §4.2).
    has_begun: bool,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder { table: DynamicTable::new() }
    }

    /// The memory of the fields that the client can refer to.
    pub(crate) fn held_bytes(&self) -> usize {
        self.table.held_bytes()
    }

    /// Decodes a whole block. Each block of a connection must be decoded to its end, in order.
    pub(crate) fn block<'d, 'b>(&'d mut self, bytes: &'b [u8]) -> Block<'d, 'b> {
        Block { table: &mut self.table, rest: bytes, has_begun: false }
    }
}

impl Block<'_, '_> {
    /// The next field, `None` at the end. `strings` is used for decoded text.
    #[inline]
    pub(crate) fn next<'f>(&'f mut self, strings: &'f mut Vec<u8>) -> Result<Option<Field<'f>>, CompressionError> {
        loop {
            let Some(&first) = self.rest.first() else { return Ok(None) };
            // RFC 7541 §6, by the first bits.
            match first {
                0x80.. => {
                    let index = self.integer(7)?;
                    self.has_begun = true;
                    return field_at(self.table, index).map(Some);
                }
                0x20..0x40 => {
                    let size_bytes_max = self.integer(5)?;
                    if self.has_begun || size_bytes_max > TABLE_BYTES_MAX {
                        return Err(CompressionError);
                    }
                    self.table.set_size_bytes_max(size_bytes_max);
                }
                _ => return self.literal(first, strings).map(Some),
            }
        }
    }

    fn literal<'f>(&'f mut self, first: u8, strings: &'f mut Vec<u8>) -> Result<Field<'f>, CompressionError> {
        let is_inserted = first & 0x40 != 0;
        let name_index = self.integer(if is_inserted { 6 } else { 4 })?;
        self.has_begun = true;
        strings.clear();
        if name_index == 0 {
            self.string(strings)?;
        } else {
            // A copy: the insertion may evict the entry.
            strings.extend_from_slice(field_at(self.table, name_index)?.name);
        }
        let name_bytes = strings.len();
        self.string(strings)?;
        let (name, value) = strings.split_at(name_bytes);
        let field = Field { name, value };
        if is_inserted {
            self.table.insert(field);
        }
        Ok(field)
    }

    /// Takes an integer whose prefix has `prefix_bits` bits (RFC 7541 §5.1).
    #[inline]
    fn integer(&mut self, prefix_bits: u32) -> Result<usize, CompressionError> {
        let (&first, mut rest) = self.rest.split_first().ok_or(CompressionError)?;
        let prefix_max = (1 << prefix_bits) - 1;
        let mut value = usize::from(first) & prefix_max;
        if value == prefix_max {
            let mut shift = 0;
            loop {
                let (&byte, after) = rest.split_first().ok_or(CompressionError)?;
                rest = after;
                value += usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
                if shift == 7 * INTEGER_BYTES_MAX {
                    return Err(CompressionError);
                }
            }
        }
        self.rest = rest;
        Ok(value)
    }

    /// Takes a string and appends its text to `out` (RFC 7541 §5.2).
    #[inline]
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let is_coded = self.rest.first().is_some_and(|first| first & 0x80 != 0);
        let length_bytes = self.integer(7)?;
        let (string, rest) = self.rest.split_at_checked(length_bytes).ok_or(CompressionError)?;
        self.rest = rest;
        if is_coded {
            huffman::decode(string, out)
        } else {
            out.extend_from_slice(string);
            Ok(())
        }
    }
}

/// The field with this index in both tables together (RFC 7541 §2.3.3).
#[inline]
fn field_at(table: &DynamicTable, index: usize) -> Result<Field<'_>, CompressionError> {
    let index = index.checked_sub(1).ok_or(CompressionError)?;
    match STATIC_TABLE.get(index) {
        Some(&(name, value)) => Ok(Field { name, value }),
        None => table.get(index - STATIC_TABLE.len()).ok_or(CompressionError),
    }
}

#[cfg(test)]
mod tests;
