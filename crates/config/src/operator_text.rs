//! Text that operators write with any editor.

/// The byte order mark that some editors write at the start of a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The content of a file without a byte order mark, which would be taken for a part of its first line. All operator
/// files are read in this way, whatever their format.
pub fn without_byte_order_mark(content: &[u8]) -> &[u8] {
    content.strip_prefix(BYTE_ORDER_MARK).unwrap_or(content)
}
