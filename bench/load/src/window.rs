//! The queries of one socket that are outstanding, each in a slot that its ID names.

use crate::queries::{HEADER_BYTES, Queries};
use crate::random::Random;
use crate::tally::Tally;

/// Queries outstanding on one socket: 8 sockets make 200.
pub const WINDOW_COUNT: usize = 25;
/// Octets of the shortest reply: header, root, type, class.
const REPLY_BYTES_MIN: usize = HEADER_BYTES + 5;

#[derive(Clone, Copy, Default)]
struct Slot {
    /// `None` when free.
    query_index: Option<u32>,
    id: u16,
}

pub struct Window {
    slots: [Slot; WINDOW_COUNT],
    outstanding_count: usize,
    /// Counts up, so that a late reply to a slot's earlier query is told apart.
    round: u16,
}

impl Window {
    pub fn new() -> Window {
        Window { slots: [Slot::default(); WINDOW_COUNT], outstanding_count: 0, round: 0 }
    }

    pub fn outstanding_count(&self) -> usize {
        self.outstanding_count
    }

    /// Fills every free slot and hands each new query with its ID to `put`.
    pub fn fill(&mut self, queries: &Queries, random: &mut Random, mut put: impl FnMut(u16, &[u8])) {
        let slots = self.slots.iter_mut().enumerate();
        for (number, slot) in slots.filter(|(_, slot)| slot.query_index.is_none()) {
            let index = random.below(queries.count());
            self.round = (self.round + 1) % (u16::MAX / WINDOW_COUNT as u16);
            slot.id = self.round * WINDOW_COUNT as u16 + number as u16;
            slot.query_index = Some(index as u32);
            self.outstanding_count += 1;
            put(slot.id, queries.query(index));
        }
    }

    /// Frees the slot that `reply` answers.
    pub fn take_reply(&mut self, queries: &Queries, reply: &[u8], tally: &mut Tally) {
        let Some(slot) = self.slot_of(queries, reply) else {
            tally.wrong_count += 1;
            return;
        };
        slot.query_index = None;
        self.outstanding_count -= 1;
        tally.reply_count += 1;
        tally.reply_bytes += reply.len() as u64;
        tally.truncated_count += u64::from(reply[2] & 0x02 != 0);
        tally.rcode_counts[usize::from(reply[3] & 0x0f)] += 1;
    }

    fn slot_of(&mut self, queries: &Queries, reply: &[u8]) -> Option<&mut Slot> {
        if reply.len() < REPLY_BYTES_MIN || reply[2] & 0x80 == 0 {
            return None;
        }
        let id = u16::from_be_bytes([reply[0], reply[1]]);
        let slot = &mut self.slots[usize::from(id) % WINDOW_COUNT];
        let question = &queries.query(slot.query_index? as usize)[HEADER_BYTES..];
        (slot.id == id && reply[HEADER_BYTES..].starts_with(question)).then_some(slot)
    }

    /// Gives up on everything that is outstanding.
    pub fn lose_all(&mut self, tally: &mut Tally) {
        tally.lost_count += self.outstanding_count as u64;
        self.outstanding_count = 0;
        for slot in &mut self.slots {
            slot.query_index = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reply_to_an_outstanding_query_counts() {
        let path = std::env::temp_dir().join(format!("load-window-{}", std::process::id()));
        std::fs::write(&path, "a.example. A\n").unwrap();
        let queries = Queries::read(path.to_str().unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (mut window, mut tally) = (Window::new(), Tally::default());
        let mut asked = Vec::new();
        window.fill(&queries, &mut Random::new(1), |id, query| asked.push((id, query.to_vec())));
        assert_eq!(asked.len(), WINDOW_COUNT);
        let (id, mut reply) = asked.swap_remove(3);
        reply[..2].copy_from_slice(&id.to_be_bytes());

        window.take_reply(&queries, &reply, &mut tally);
        assert_eq!((tally.wrong_count, tally.reply_count), (1, 0), "a query is no reply");
        reply[2] = 0x80;
        reply[3] = 3;
        window.take_reply(&queries, &reply, &mut tally);
        assert_eq!((tally.reply_count, tally.rcode_counts[3], window.outstanding_count()), (1, 1, WINDOW_COUNT - 1));
        window.take_reply(&queries, &reply, &mut tally);
        assert_eq!((tally.wrong_count, tally.reply_count), (2, 1), "a second reply is none");
        window.lose_all(&mut tally);
        assert_eq!(tally.lost_count, WINDOW_COUNT as u64 - 1);
    }
}
