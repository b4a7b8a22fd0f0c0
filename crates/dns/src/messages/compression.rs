//! The names in a reply that later names may refer to (RFC 1035 §4.1.4), for records that are not packed for QNAME.

use crate::text::name::Name;
use crate::zones::packed_rrset::HEADER_BYTES;

/// Offsets below this fit into a compression pointer: 14 bits.
pub(crate) const POINTER_REACH_BYTES: usize = 1 << 14;
/// Names that a reply remembers: the suffixes of the longest QNAME, and about as many other names.
const NAMES_MAX: usize = 192;

/// Offsets of names in a reply. Names beyond [`NAMES_MAX`] or the reach of pointers are not remembered.
#[derive(Debug)]
pub(crate) struct NameOffsets {
    offsets: [u16; NAMES_MAX],
    /// The bytes of each name without compression: names of different lengths are different.
    lengths: [u8; NAMES_MAX],
    count: usize,
}

impl NameOffsets {
    /// The offsets of `qname`, which is in the question, and of its ancestors.
    pub(crate) fn of_question(qname: Name<'_>) -> NameOffsets {
        let mut known = NameOffsets { offsets: [0; NAMES_MAX], lengths: [0; NAMES_MAX], count: 0 };
        let mut name = qname;
        while let Some(parent) = name.parent() {
            known.add(HEADER_BYTES + qname.length_bytes() - name.length_bytes(), name);
            name = parent;
        }
        known
    }

    /// Remembers `name`, which is at `offset`.
    pub(crate) fn add(&mut self, offset: usize, name: Name<'_>) {
        if offset < POINTER_REACH_BYTES && self.count < NAMES_MAX {
            self.offsets[self.count] = offset as u16;
            self.lengths[self.count] = name.length_bytes() as u8;
            self.count += 1;
        }
    }

    /// The offset of `name` in `message`, if it is known.
    pub(crate) fn find(&self, message: &[u8], name: Name<'_>) -> Option<usize> {
        let has_length = |&(&length, _): &(&u8, &u16)| usize::from(length) == name.length_bytes();
        let candidates = self.lengths[..self.count].iter().zip(&self.offsets).filter(has_length);
        candidates.map(|(_, &offset)| usize::from(offset)).find(|&offset| is_at(message, offset, name))
    }

    /// Forgets the names from `offset` on, which are removed from the message.
    pub(crate) fn remove_from(&mut self, offset: usize) {
        while self.count > 0 && usize::from(self.offsets[self.count - 1]) >= offset {
            self.count -= 1;
        }
    }
}

/// Whether `name` is at `offset` of `message`, whose pointers come from the writer: each refers to an earlier offset.
fn is_at(message: &[u8], offset: usize, name: Name<'_>) -> bool {
    let mut at = offset;
    for label in name.labels() {
        while message[at] & 0xc0 == 0xc0 {
            at = usize::from(u16::from_be_bytes([message[at] & 0x3f, message[at + 1]]));
        }
        let end = at + 1 + label.len();
        if usize::from(message[at]) != label.len() || !message[at + 1..end].eq_ignore_ascii_case(label) {
            return false;
        }
        at = end;
    }
    // The lengths are equal, so the root follows.
    true
}
