//! Decides when memory that connections have released is returned to the system. The control loop asks, and returns it.

/// Less is kept for the next connections.
const TRIMMED_BYTES_MIN: usize = 4 * 1024 * 1024;

/// Decides when to return free heap memory to the system, which the allocator would keep.
#[derive(Debug, Default)]
pub(crate) struct HeapTrim {
    /// The most that the buffers held since the heap was last trimmed.
    held_bytes_max: usize,
    held_bytes_before: usize,
}

impl HeapTrim {
    /// Whether to trim the heap, given the bytes that the buffers hold now: they have shrunk by enough to make it
    /// worthwhile, and no longer shrink. Called about once a second.
    pub(crate) fn is_due(&mut self, held_bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.held_bytes_before, held_bytes);
        self.held_bytes_max = self.held_bytes_max.max(held_bytes);
        if held_bytes < before || self.held_bytes_max - held_bytes < TRIMMED_BYTES_MIN {
            return false;
        }
        self.held_bytes_max = held_bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_trimmed_once_when_the_buffers_hold_much_less_and_have_stopped_shrinking() {
        const MIB: usize = 1024 * 1024;
        let mut trim = HeapTrim::default();
        let mut check = |held_mib: usize, expected: bool| assert_eq!(trim.is_due(held_mib * MIB), expected);
        check(0, false);
        check(60, false);
        check(30, false);
        check(1, false);
        check(1, true);
        check(1, false);
        check(4, false);
        check(1, false);
        check(1, false);
        check(9, false);
        check(5, false);
        check(6, false);
        check(5, false);
        check(5, true);
    }
}
