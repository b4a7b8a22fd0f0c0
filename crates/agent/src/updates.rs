//! Stores what dynamic updates have made of zones, before the server process answers the clients.
//!
//! Two server processes may have updates stored while one replaces the other. What is stored is replaced only by what
//! was made of it: otherwise the process is told so, reads it, and applies its updates to it.

use crate::link::Link;
use sanderling_config::log::log_error;
use sanderling_config::{DomainName, update_file};
use sanderling_ipc::agent::{StoreResult, UpdatesOutcome, UpdatesToStore, updates_from_memfd};
use sanderling_state::{StateError, StateFolder};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::spawn_blocking;

/// The task that stores one after the other.
pub(crate) struct Updates {
    queue: UnboundedSender<(UpdatesToStore, Option<OwnedFd>)>,
}

impl Updates {
    /// Starts the task. To be called in a [`tokio::task::LocalSet`].
    pub(crate) fn new(state: Arc<StateFolder>, link: Rc<Link>) -> Updates {
        let (queue, mut queued) = mpsc::unbounded_channel::<(UpdatesToStore, Option<OwnedFd>)>();
        tokio::task::spawn_local(async move {
            while let Some((updates, content)) = queued.recv().await {
                let UpdatesToStore { zone, id, replaces } = updates;
                let (state, name) = (Arc::clone(&state), zone.clone());
                let stored = spawn_blocking(move || store(&state, &name, replaces, content));
                let result = stored.await.expect("the state folder does not panic").unwrap_or_else(|problem| {
                    log_error(&format!("zone {zone}: its dynamic updates are not stored: {problem}"));
                    StoreResult::Failed
                });
                link.updates_stored(UpdatesOutcome { zone, id, result, serial: None });
            }
        });
        Updates { queue }
    }

    /// Stores `content` as `updates` says. The supervisor is told what has become of it.
    pub(crate) fn store(&self, updates: UpdatesToStore, content: Option<OwnedFd>) {
        // The task ends with the agent.
        let _ = self.queue.send((updates, content));
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
    replace(state, &update_file(&apex).display().to_string(), replaces, &content).map_err(|error| error.to_string())
}

fn replace(
    state: &StateFolder,
    name: &str,
    replaces: Option<[u8; 32]>,
    content: &[u8],
) -> Result<StoreResult, StateError> {
    // The SHA-256 at the end of each form.
    let hash = |content: &[u8]| content.last_chunk::<32>().copied();
    let stored = state.read(name)?.as_deref().and_then(hash);
    if stored == hash(content) {
        // By an agent that was killed before it could say so.
        return Ok(StoreResult::Stored);
    }
    if stored != replaces {
        return Ok(StoreResult::Outdated);
    }
    match content.is_empty() {
        true => state.remove(name)?,
        false => state.write(name, content)?,
    }
    Ok(StoreResult::Stored)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let result = replace(&state, "updates/example.com.update", replaces, &new).expect("no error");
            let found = state.read("updates/example.com.update").expect("read").unwrap_or_default();
            assert_eq!((result, found), (expected, stored));
        }
    }
}
