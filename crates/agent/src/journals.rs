//! Stores the journals of zones, which the server process makes and its successor reads.

use sanderling_config::log::{log_error, log_warning};
use sanderling_config::{DomainName, journal_file};
use sanderling_ipc::agent::journals_from_memfd;
use sanderling_state::{StateError, StateFolder};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

/// The journals that are not stored yet, and the task that stores them, one after the other.
pub(crate) struct Journals {
    pending: Rc<RefCell<BTreeMap<DomainName, Vec<u8>>>>,
    wake: Rc<Notify>,
}

/// Removes the stored journal of the zone `apex`.
pub(crate) fn remove_journal(state: &StateFolder, apex: &DomainName) -> Result<(), StateError> {
    state.remove(&journal_file(apex).display().to_string())
}

impl Journals {
    /// Starts the task. To be called in a [`tokio::task::LocalSet`].
    pub(crate) fn new(state: Arc<StateFolder>) -> Journals {
        let (pending, wake) = (Rc::<RefCell<BTreeMap<DomainName, Vec<u8>>>>::default(), Rc::new(Notify::new()));
        let (taken, woken) = (Rc::clone(&pending), Rc::clone(&wake));
        tokio::task::spawn_local(async move {
            loop {
                let next = taken.borrow_mut().pop_first();
                let Some((apex, content)) = next else {
                    woken.notified().await;
                    continue;
                };
                let (state, name) = (Arc::clone(&state), journal_file(&apex).display().to_string());
                let stored = spawn_blocking(move || store(&state, &name, &content));
                if let Err(error) = stored.await.expect("the state folder does not panic") {
                    log_error(&format!("zone {apex}: its journal is not stored: {error}"));
                }
            }
        });
        Journals { pending, wake }
    }

    /// Stores these journals, in the place of those before of the same zones.
    pub(crate) fn store(&self, journals: Option<OwnedFd>) {
        match journals.map(journals_from_memfd) {
            Some(Ok(journals)) => {
                let named = journals.into_iter().filter_map(|(name, content)| {
                    let name = DomainName::parse(&name).ok()?;
                    Some((name, content))
                });
                self.pending.borrow_mut().extend(named);
                self.wake.notify_one();
            }
            Some(Err(error)) => log_warning(&format!("ignoring malformed journals: {error}")),
            None => {}
        }
    }
}

fn store(state: &StateFolder, name: &str, content: &[u8]) -> Result<(), StateError> {
    match content.is_empty() {
        true => state.remove(name),
        false => state.write(name, content),
    }
}
