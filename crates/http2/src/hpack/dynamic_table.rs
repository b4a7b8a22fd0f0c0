//! The fields that a client has sent before (RFC 7541 §2.3.2), which it can then refer to by index.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Field;

/// Maximum size of all entries, counted as in RFC 7541 §4.1: the default of SETTINGS_HEADER_TABLE_SIZE.
pub(super) const TABLE_BYTES_MAX: usize = 4096;
/// An entry's overhead, in addition to its name and value.
const ENTRY_OVERHEAD_BYTES: usize = 32;
/// Bytes of present and evicted entries, above which the latter are removed.
const LOG_BYTES_MAX: usize = TABLE_BYTES_MAX + TABLE_BYTES_MAX / 2;

#[derive(Debug)]
pub(super) struct DynamicTable {
    /// Names and values in insertion order; evicted entries come first.
    log: Vec<u8>,
    /// The oldest first.
    entries: VecDeque<Entry>,
    size_bytes: usize,
    size_bytes_max: usize,
}

/// The position of an entry in the log.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u16,
    name_bytes: u16,
    value_bytes: u16,
}

impl Entry {
    fn size_bytes(self) -> usize {
        usize::from(self.name_bytes) + usize::from(self.value_bytes) + ENTRY_OVERHEAD_BYTES
    }
}

impl DynamicTable {
    pub(super) fn new() -> DynamicTable {
        DynamicTable { log: Vec::new(), entries: VecDeque::new(), size_bytes: 0, size_bytes_max: TABLE_BYTES_MAX }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.log.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// The entry with this index; the newest has index 0.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Field<'_>> {
        let entry = self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        let start = usize::from(entry.start);
        let value_start = start + usize::from(entry.name_bytes);
        Some(Field {
            name: &self.log[start..value_start],
            value: &self.log[value_start..value_start + usize::from(entry.value_bytes)],
        })
    }

    /// Sets the maximum size of all entries, at most [`TABLE_BYTES_MAX`].
    pub(super) fn set_size_bytes_max(&mut self, size_bytes_max: usize) {
        self.size_bytes_max = size_bytes_max;
        self.evict_to(size_bytes_max);
    }

    /// Inserts an entry; evicts the oldest ones to make room. An entry larger than the table only empties it (RFC 7541
    /// §4.4).
    pub(super) fn insert(&mut self, field: Field<'_>) {
        let (name, value) = (field.name, field.value);
        let size_bytes = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        self.evict_to(self.size_bytes_max.saturating_sub(size_bytes));
        if size_bytes > self.size_bytes_max {
            return;
        }
        if self.log.len() + name.len() + value.len() > LOG_BYTES_MAX {
            self.remove_evicted();
        }
        let start = self.log.len() as u16;
        self.log.extend_from_slice(name);
        self.log.extend_from_slice(value);
        self.entries.push_back(Entry { start, name_bytes: name.len() as u16, value_bytes: value.len() as u16 });
        self.size_bytes += size_bytes;
    }

    fn evict_to(&mut self, size_bytes: usize) {
        while self.size_bytes > size_bytes
            && let Some(entry) = self.entries.pop_front()
        {
            self.size_bytes -= entry.size_bytes();
        }
        if self.entries.is_empty() {
            self.log.clear();
        }
    }

    fn remove_evicted(&mut self) {
        let evicted_bytes = self.entries.front().map_or(self.log.len() as u16, |oldest| oldest.start);
        self.log.drain(..usize::from(evicted_bytes));
        self.entries.iter_mut().for_each(|entry| entry.start -= evicted_bytes);
    }
}
