//! Stores what dynamic updates have made of zones, before the server process answers the clients.
//!
//! A server process that was taken over sends any: only updates of zones that may have some are stored, and only in the
//! form that updates have.
//!
//! Two server processes may have updates stored while one replaces the other. What is stored is replaced only by what
//! was made of it: otherwise the process is told so, reads it, and applies its updates to it.

use crate::link::Link;
use sanderling_config::log::log_error;
use sanderling_config::{DomainName, update_file};
use sanderling_dns::difference::ZoneDifference;
use sanderling_ipc::agent::{StoreResult, UpdatesOutcome, UpdatesToStore, updates_from_memfd};
use sanderling_state::{StateError, StateFolder};
use sanderling_zone_files::wire_name;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::spawn_blocking;

/// Updates that wait to be stored. A server process has one of each zone stored at a time.
const QUEUE_MAX: usize = 1_024;

/// The task that stores one after the other.
pub(crate) struct Updates {
    queue: Sender<(UpdatesToStore, Option<OwnedFd>)>,
    link: Rc<Link>,
}

impl Updates {
    /// Starts the task. To be called in a [`tokio::task::LocalSet`].
    pub(crate) fn new(state: Arc<StateFolder>, link: Rc<Link>) -> Updates {
        let (queue, mut queued) = mpsc::channel::<(UpdatesToStore, Option<OwnedFd>)>(QUEUE_MAX);
        let of_task = Rc::clone(&link);
        tokio::task::spawn_local(async move {
            while let Some((updates, content)) = queued.recv().await {
                let UpdatesToStore { zone, id, replaces } = updates;
                let (state, name) = (Arc::clone(&state), zone.clone());
                let stored = spawn_blocking(move || store(&state, &name, replaces, content));
                let result = stored.await.expect("the state folder does not panic").unwrap_or_else(|problem| {
                    log_error(&format!("zone {zone}: its dynamic updates are not stored: {problem}"));
                    StoreResult::Failed
                });
                of_task.updates_stored(UpdatesOutcome { zone, id, result, serial: None });
            }
        });
        Updates { queue, link }
    }

    /// Stores `content` as `updates` says. The supervisor is told what has become of it.
    pub(crate) fn store(&self, updates: UpdatesToStore, content: Option<OwnedFd>) {
        // The task ends with the agent.
        if let Err(TrySendError::Full((updates, _))) = self.queue.try_send((updates, content)) {
            self.refuse(updates);
        }
    }

    /// Stores nothing of a zone that can have no dynamic updates.
    pub(crate) fn refuse(&self, updates: UpdatesToStore) {
        let UpdatesToStore { zone, id, .. } = updates;
        self.link.updates_stored(UpdatesOutcome { zone, id, result: StoreResult::Failed, serial: None });
    }
}

/// # Errors
/// Why it is not stored.
fn store(
    state: &StateFolder,
    zone: &str,
    replaces: Option<[u8; 32]>,
    content: Option<OwnedFd>,
) -> Result<StoreResult, String> {
    let apex = DomainName::parse(zone).map_err(|problem| problem.to_string())?;
    let content = content.ok_or("nothing came with the command")?;
    let content = updates_from_memfd(content).map_err(|error| error.to_string())?;
    let name = update_file(&apex).display().to_string();
    match replace(state, &name, replaces, &content, || is_readable(&content, &apex)) {
        Ok(Some(result)) => Ok(result),
        Ok(None) => Err("what came with the command is damaged".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a server process that reads `content` would serve the zone.
fn is_readable(content: &[u8], apex: &DomainName) -> bool {
    content.is_empty() || ZoneDifference::decode(content, wire_name(apex).as_name()).is_ok()
}

/// `None` if `content` would be stored and is not readable.
fn replace(
    state: &StateFolder,
    name: &str,
    replaces: Option<[u8; 32]>,
    content: &[u8],
    is_readable: impl FnOnce() -> bool,
) -> Result<Option<StoreResult>, StateError> {
    // The SHA-256 at the end of each form.
    let hash = |content: &[u8]| content.last_chunk::<32>().copied();
    let stored = state.read(name)?.as_deref().and_then(hash);
    if stored == hash(content) {
        // By an agent that was killed before it could say so.
        return Ok(Some(StoreResult::Stored));
    }
    if stored != replaces {
        return Ok(Some(StoreResult::Outdated));
    }
    if !is_readable() {
        return Ok(None);
    }
    match content.is_empty() {
        true => state.remove(name)?,
        false => state.write(name, content)?,
    }
    Ok(Some(StoreResult::Stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_read_again_is_stored() {
        let apex = DomainName::parse("example.com").expect("a name");
        assert!(is_readable(b"", &apex));
        for damaged in [&b"x"[..], &[0; 200]] {
            assert!(!is_readable(damaged, &apex));
        }
        let folder = tempfile::tempdir().expect("created");
        let state = StateFolder::open(folder.path()).expect("opened");
        assert_eq!(replace(&state, "updates/a.update", None, b"damaged", || false).expect("no error"), None);
        assert!(!state.has("updates/a.update"));
    }

    #[test]
    fn what_is_stored_is_replaced_only_by_what_was_made_of_it() {
        let folder = tempfile::tempdir().expect("created");
        let state = StateFolder::open(folder.path()).expect("opened");
        let content = |byte: u8| [&b"content"[..], &[byte; 32]].concat();
        for (replaces, new, expected, stored) in [
            (None, content(1), StoreResult::Stored, content(1)),
            (None, content(2), StoreResult::Outdated, content(1)),
            (None, content(1), StoreResult::Stored, content(1)),
            (Some([1; 32]), content(2), StoreResult::Stored, content(2)),
            (Some([1; 32]), Vec::new(), StoreResult::Outdated, content(2)),
            (Some([2; 32]), Vec::new(), StoreResult::Stored, Vec::new()),
            (Some([2; 32]), content(3), StoreResult::Outdated, Vec::new()),
        ] {
            let result = replace(&state, "updates/example.com.update", replaces, &new, || true).expect("no error");
            let found = state.read("updates/example.com.update").expect("read").unwrap_or_default();
            assert_eq!((result, found), (Some(expected), stored));
        }
    }
}
