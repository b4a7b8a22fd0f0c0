//! All scheduled actions, in one place: the agent waits for the earliest entry, and the operator sees all of them.
//!
//! Entries are in wall-clock time, like dates of certificates: work that was due while the machine slept is due
//! afterwards.

use sanderling_ipc::agent::ScheduledTask;

/// The schedule. A key has at most one entry.
#[derive(Debug)]
pub(crate) struct Schedule<K> {
    entries: Vec<Entry<K>>,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    task: ScheduledTask,
}

impl<K: PartialEq> Schedule<K> {
    pub(crate) fn new() -> Schedule<K> {
        Schedule { entries: Vec::new() }
    }

    /// Does `key` at this time, instead of the time that it had.
    pub(crate) fn set(&mut self, key: K, at_unix_s: u64, what: String, why: String) {
        self.remove(&key);
        self.entries.push(Entry { key, task: ScheduledTask { at_unix_s, what, why } });
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.entries.retain(|entry| entry.key != *key);
    }

    /// Removes the earliest entry that is due, of those that are `possible`.
    pub(crate) fn take_due(&mut self, now_unix_s: u64, possible: impl Fn(&K) -> bool) -> Option<K> {
        let is_due = |entry: &&Entry<K>| entry.task.at_unix_s <= now_unix_s && possible(&entry.key);
        let at = self.entries.iter().filter(is_due).map(|entry| entry.task.at_unix_s).min()?;
        let index = self.entries.iter().position(|entry| entry.task.at_unix_s == at && possible(&entry.key))?;
        Some(self.entries.remove(index).key)
    }

    /// The time of the earliest entry that is `possible`.
    pub(crate) fn next_at(&self, possible: impl Fn(&K) -> bool) -> Option<u64> {
        self.entries.iter().filter(|entry| possible(&entry.key)).map(|entry| entry.task.at_unix_s).min()
    }

    /// All entries and `others`, sorted by time.
    pub(crate) fn report(&self, others: impl Iterator<Item = ScheduledTask>) -> Vec<ScheduledTask> {
        let mut tasks: Vec<ScheduledTask> = self.entries.iter().map(|entry| entry.task.clone()).chain(others).collect();
        tasks.sort_by(|one, other| (one.at_unix_s, &one.what).cmp(&(other.at_unix_s, &other.what)));
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_due_entry_is_taken_first() {
        let mut schedule = Schedule::new();
        for (key, at) in [('a', 30), ('b', 10), ('c', 20), ('a', 5)] {
            schedule.set(key, at, format!("do {key}"), "why".to_owned());
        }
        let order: Vec<_> =
            schedule.report(std::iter::empty()).into_iter().map(|task| (task.at_unix_s, task.what)).collect();
        assert_eq!(order, [(5, "do a".to_owned()), (10, "do b".to_owned()), (20, "do c".to_owned())]);
        assert_eq!((schedule.next_at(|_| true), schedule.next_at(|key| *key != 'a')), (Some(5), Some(10)));
        assert_eq!(schedule.take_due(4, |_| true), None);
        assert_eq!(schedule.take_due(15, |key| *key != 'a'), Some('b'));
        assert_eq!(schedule.take_due(15, |_| true), Some('a'));
        assert_eq!(schedule.take_due(15, |_| true), None);
        schedule.remove(&'c');
        assert_eq!(schedule.next_at(|_| true), None);
    }
}
