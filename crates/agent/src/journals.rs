//! Stores the journals of zones, which the server process makes and its successor reads. A compromised server process
//! can send any: only journals of configured zones are stored, with a limit on their total size. The successor checks
//! their content.

use crate::blocking::DISK;
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{DomainName, JOURNALS, Limits, journal_file};
use sanderling_ipc::agent::journals_from_memfd;
use sanderling_state::{StateError, StateFolder};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// Bytes of journals that wait to be stored.
const PENDING_BYTES_MAX: usize = 256 << 20;

/// The journals that are not stored yet, and the task that stores them, one after another.
pub(crate) struct Journals {
    pending: Rc<RefCell<BTreeMap<DomainName, Vec<u8>>>>,
    wake: Rc<Notify>,
    bytes_max: usize,
    ignored: RefCell<LimitedLog>,
}

/// Removes the stored journal of the zone `apex`.
pub(crate) fn remove_journal(state: &StateFolder, apex: &DomainName) -> Result<(), StateError> {
    state.remove(&name_of(apex))
}

fn name_of(apex: &DomainName) -> String {
    journal_file(apex).display().to_string()
}

impl Journals {
    /// Starts the task. Call this in a [`tokio::task::LocalSet`].
    pub(crate) fn new(state: Arc<StateFolder>, limits: &Limits) -> Journals {
        let (pending, wake) = (Rc::<RefCell<BTreeMap<DomainName, Vec<u8>>>>::default(), Rc::new(Notify::new()));
        let (taken, woken) = (Rc::clone(&pending), Rc::clone(&wake));
        let mut failures = LimitedLog::default();
        let mut stored = StoredJournals::of(&state, limits.zone_journals_bytes_max);
        tokio::task::spawn_local(async move {
            loop {
                let next = taken.borrow_mut().pop_first();
                let Some((apex, content)) = next else {
                    woken.notified().await;
                    continue;
                };
                if let Err(problem) = stored.reserve(&apex, content.len() as u64) {
                    failures.warning(apex.as_str(), &format!("zone {apex}: its journal was not stored: {problem}"));
                    continue;
                }
                let (state, name) = (Arc::clone(&state), name_of(&apex));
                if let Err(error) = DISK.run(move || store(&state, &name, &content)).await {
                    failures.error(apex.as_str(), &format!("zone {apex}: its journal was not stored: {error}"));
                }
            }
        });
        Journals { pending, wake, bytes_max: limits.zone_journal_bytes_max, ignored: RefCell::default() }
    }

    /// Stores these journals of zones that this server `has`, in place of the previous ones of the same zones.
    pub(crate) fn store(&self, journals: Option<OwnedFd>, has: impl Fn(&DomainName) -> bool) {
        match journals.map(journals_from_memfd) {
            Some(Ok(journals)) => {
                let mut pending = self.pending.borrow_mut();
                let mut pending_bytes: usize = pending.values().map(Vec::len).sum();
                let (mut foreign_count, mut too_long) = (0_usize, None);
                for (name, content) in journals {
                    // An empty journal removes the stored journal of a zone that the server no longer has.
                    let is_stored = |apex: &DomainName| content.is_empty() || has(apex);
                    let Some(apex) = DomainName::parse(&name).ok().filter(is_stored) else {
                        foreign_count = foreign_count.saturating_add(1);
                        continue;
                    };
                    pending_bytes = pending_bytes.saturating_add(content.len());
                    if content.len() > self.bytes_max || pending_bytes > PENDING_BYTES_MAX {
                        too_long = too_long.or(Some((apex, content.len())));
                        continue;
                    }
                    pending.insert(apex, content);
                }
                self.wake.notify_one();
                let mut ignored = self.ignored.borrow_mut();
                if foreign_count > 0 {
                    let problem = format!("ignoring {foreign_count} journals of unknown zones");
                    ignored.warning("foreign zones", &problem);
                }
                if let Some((apex, bytes)) = too_long {
                    ignored.warning("long journals", &format!("zone {apex}: ignoring a journal of {bytes} bytes"));
                }
            }
            Some(Err(error)) => {
                self.ignored.borrow_mut().warning("malformed", &format!("ignoring malformed journals: {error}"));
            }
            None => {}
        }
    }
}

/// The lengths of the journals in the state folder.
struct StoredJournals {
    bytes: HashMap<String, u64>,
    all_bytes: u64,
    bytes_max: u64,
}

impl StoredJournals {
    fn of(state: &StateFolder, bytes_max: u64) -> StoredJournals {
        let entries = fs::read_dir(state.path().join(JOURNALS)).into_iter().flatten().filter_map(Result::ok);
        let lengths = entries.filter_map(|entry| {
            let name = format!("{JOURNALS}/{}", entry.file_name().to_str()?);
            Some((name, entry.metadata().ok()?.len()))
        });
        let bytes: HashMap<String, u64> = lengths.collect();
        let all_bytes = bytes.values().copied().fold(0, u64::saturating_add);
        StoredJournals { bytes, all_bytes, bytes_max }
    }

    /// Notes that the journal of `apex` is going to have this length.
    ///
    /// # Errors
    /// Returns an error if all journals together would be too long.
    fn reserve(&mut self, apex: &DomainName, bytes: u64) -> Result<(), String> {
        let name = name_of(apex);
        let others = self.all_bytes.saturating_sub(self.bytes.get(&name).copied().unwrap_or(0));
        let all_bytes = others.saturating_add(bytes);
        if bytes > 0 && all_bytes > self.bytes_max {
            return Err(format!("all journals would have more than {} bytes (`zone_journals_max`)", self.bytes_max));
        }
        self.all_bytes = all_bytes;
        if bytes == 0 {
            self.bytes.remove(&name)
        } else {
            self.bytes.insert(name, bytes)
        };
        Ok(())
    }
}

fn store(state: &StateFolder, name: &str, content: &[u8]) -> Result<(), StateError> {
    match content.is_empty() {
        true => state.remove(name),
        false => state.write(name, content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_ipc::agent::journals_to_memfds;

    fn apex(name: &str) -> DomainName {
        DomainName::parse(name).expect("a name")
    }

    #[test]
    fn journals_of_all_zones_have_a_limit() {
        let folder = tempfile::tempdir().expect("created");
        let state = StateFolder::open(folder.path()).expect("opened");
        state.write(&name_of(&apex("a.test")), &[7; 60]).expect("written");
        let mut stored = StoredJournals::of(&state, 100);
        assert!(stored.reserve(&apex("b.test"), 41).expect_err("too long").contains("`zone_journals_max`"));
        stored.reserve(&apex("b.test"), 40).expect("short");
        stored.reserve(&apex("a.test"), 61).expect_err("too long");
        stored.reserve(&apex("a.test"), 0).expect("none");
        stored.reserve(&apex("b.test"), 100).expect("short");
        stored.reserve(&apex("c.test"), u64::MAX).expect_err("too long");
    }

    #[test]
    fn only_journals_of_zones_that_the_server_has_are_stored() {
        let folder = tempfile::tempdir().expect("created");
        let state = Arc::new(StateFolder::open(folder.path()).expect("opened"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("built");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let limits = Limits { zone_journal_bytes_max: 10, ..Limits::default() };
            let journals = Journals::new(state, &limits);
            let sent = [("own.test", 10), ("long.test", 11), ("foreign.test", 1), ("../../up", 1), ("removed.test", 0)];
            let sent = sent.map(|(name, bytes)| (name.to_owned(), vec![7; bytes]));
            let file = journals_to_memfds(&sent).next().expect("one").expect("created");
            journals.store(Some(file), |apex| ["own.test", "long.test"].contains(&apex.as_str()));
            let names: Vec<String> = journals.pending.borrow().keys().map(ToString::to_string).collect();
            assert_eq!(names, ["own.test", "removed.test"]);
        });
    }
}
