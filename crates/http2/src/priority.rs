//! The priority of a response (RFC 9218).

use alloc::vec::Vec;

/// The priority of a response's content among the connection's responses. A smaller value comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Priority {
    /// 0 to 7.
    pub(crate) urgency: u8,
    /// Whether content can be used in parts, so that responses of equal urgency take turns.
    pub(crate) is_incremental: bool,
}

impl Default for Priority {
    /// RFC 9218 §4.1 and §4.2.
    fn default() -> Priority {
        Priority { urgency: 3, is_incremental: false }
    }
}

impl Priority {
    /// Reads the members `u` and `i` of a dictionary (RFC 9651 §3.2). Unknown members and invalid values are ignored,
    /// as priorities are hints.
    pub(crate) fn parse(value: &[u8]) -> Priority {
        let mut priority = Priority::default();
        for member in value.split(|&byte| byte == b',') {
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

/// Streams whose priority may arrive before they are opened.
const EARLY_COUNT_MAX: usize = 16;

/// The priorities of streams that the client has not opened yet (RFC 9218 §7.1).
#[derive(Debug, Default)]
pub(crate) struct EarlyPriorities {
    list: Vec<(u32, Priority)>,
}

impl EarlyPriorities {
    /// Keeps the latest priority of a stream, and the latest ones of all.
    pub(crate) fn put(&mut self, stream: u32, priority: Priority) {
        self.list.retain(|(other, _)| *other != stream);
        if self.list.len() == EARLY_COUNT_MAX {
            self.list.remove(0);
        }
        self.list.push((stream, priority));
    }

    /// The priority of a stream that the client opens; earlier streams can no longer be opened.
    #[inline]
    pub(crate) fn take(&mut self, stream: u32) -> Option<Priority> {
        if self.list.is_empty() {
            return None;
        }
        let found = self.list.iter().find(|(other, _)| *other == stream).map(|(_, priority)| *priority);
        self.list.retain(|(other, _)| *other > stream);
        found
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.list.capacity() * size_of::<(u32, Priority)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_and_others_ignored() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i,u=5;x=1", 5, true),
            ("i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1, a=1, i=?1", 3, true),
            ("u=1, u=2", 2, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, is_incremental }, "{value}");
        }
    }
}
