//! The word before the data of a line: a type of the DNS, or `ALIAS`.

use crate::text::rtype::Rtype;

/// The text in place of the type.
pub(super) enum RecordType {
    /// A type of the DNS.
    Data(Rtype),
    /// The word `ALIAS`.
    Alias,
}

impl RecordType {
    pub(super) fn from_text(text: &[u8]) -> Option<RecordType> {
        let is_alias = || text.eq_ignore_ascii_case(b"ALIAS");
        Rtype::from_text(text).map(RecordType::Data).or_else(|| is_alias().then_some(RecordType::Alias))
    }
}
