//! Stores the results of dynamic updates, before the server process answers the clients.
//!
//! A compromised server process can send any: only updates of zones that allow them are stored, and only well-formed
//! ones.
//!
//! Two server processes may have updates stored while one replaces the other. The stored content is replaced only by
//! content made from it: otherwise the process gets an error, rereads the content, and applies its updates to it.

use crate::blocking::DISK;
use crate::link::Link;
use crate::retry::Retry;
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{DomainName, update_file};
use sanderling_dns::difference::ZoneDifference;
use sanderling_ipc::agent::{StoreResult, UpdatesOutcome, UpdatesToStore, updates_from_memfd};
use sanderling_state::{StateError, StateFolder};
use sanderling_zone_files::wire_name;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Time until the agent tests whether updates can be stored again.
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// The maximum after several failures.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// Updates that wait to be stored. A server process has at most one set of updates per zone stored at a time.
const QUEUE_MAX: usize = 1_024;

/// The task that stores updates one after another.
pub(crate) struct Updates {
    queue: Sender<(UpdatesToStore, Option<OwnedFd>)>,
    link: Rc<Link>,
    failures: Rc<RefCell<Failures>>,
}

/// Updates that could not be stored.
#[derive(Default)]
struct Failures {
    /// The reasons why zones accept no updates.
    problems: BTreeMap<String, String>,
    /// The problems, by zone.
    log: LimitedLog,
}

impl Updates {
    /// Starts the task. `changed` is notified when the set of zones that take no updates changes. Call this in a
    /// [`tokio::task::LocalSet`].
    pub(crate) fn new(state: Arc<StateFolder>, link: Rc<Link>, changed: Rc<Notify>) -> Updates {
        let (queue, queued) = mpsc::channel::<(UpdatesToStore, Option<OwnedFd>)>(QUEUE_MAX);
        let failures = Rc::<RefCell<Failures>>::default();
        let retry = Retry::new(RETRY_INTERVAL_MIN, RETRY_INTERVAL_MAX);
        let task = StoringTask { state, link: Rc::clone(&link), failures: Rc::clone(&failures), changed, retry };
        tokio::task::spawn_local(task.run(queued));
        Updates { queue, link, failures }
    }

    /// The zones that take no updates, and why.
    pub(crate) fn problems(&self) -> BTreeMap<String, String> {
        self.failures.borrow().problems.clone()
    }

    /// Stores `content` as `updates` specifies. The supervisor gets the outcome.
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

struct StoringTask {
    state: Arc<StateFolder>,
    link: Rc<Link>,
    failures: Rc<RefCell<Failures>>,
    changed: Rc<Notify>,
    /// The time of the next test whether updates can be stored.
    retry: Retry,
}

impl StoringTask {
    async fn run(mut self, mut queued: Receiver<(UpdatesToStore, Option<OwnedFd>)>) {
        loop {
            let left = self.retry.left();
            tokio::select! {
                next = queued.recv() => match next {
                    Some((updates, content)) => self.store(updates, content).await,
                    None => return,
                },
                () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => self.try_again().await,
            }
        }
    }

    async fn store(&mut self, updates: UpdatesToStore, content: Option<OwnedFd>) {
        let UpdatesToStore { zone, id, replaces } = updates;
        let (state, name) = (Arc::clone(&self.state), zone.clone());
        let result = match DISK.run(move || store(&state, &name, replaces, content)).await {
            Ok(Ok(result)) => {
                if self.failures.borrow_mut().problems.remove(&zone).is_some() {
                    self.changed.notify_one();
                }
                result
            }
            Ok(Err(problem)) => {
                self.log(&zone, &problem);
                StoreResult::Failed
            }
            Err(error) => {
                self.log(&zone, &error.to_string());
                let problem = format!("cannot store dynamic updates: {error}");
                self.failures.borrow_mut().problems.insert(zone.clone(), problem);
                self.changed.notify_one();
                self.retry.on_failure();
                StoreResult::Failed
            }
        };
        self.link.updates_stored(UpdatesOutcome { zone, id, result, serial: None });
    }

    fn log(&self, zone: &str, problem: &str) {
        let message = format!("zone {zone}: its dynamic updates were not stored: {problem}");
        self.failures.borrow_mut().log.error(zone, &message);
    }

    /// Tests whether updates can be stored again, without an update.
    async fn try_again(&mut self) {
        let Some(zone) = self.failures.borrow().problems.keys().next().cloned() else { return self.retry.on_success() };
        let (state, apex) = (Arc::clone(&self.state), DomainName::parse(&zone));
        let check = move || apex.ok().map(|apex| state.check_writable(&update_file(&apex).display().to_string()));
        match DISK.run(check).await {
            Some(Err(_)) => self.retry.on_failure(),
            _ => {
                self.failures.borrow_mut().problems.clear();
                self.changed.notify_one();
                self.retry.on_success();
            }
        }
    }
}

/// The result of storing it, or its problem.
///
/// # Errors
/// Returns an error if the state folder cannot be read or written.
fn store(
    state: &StateFolder,
    zone: &str,
    replaces: Option<[u8; 32]>,
    content: Option<OwnedFd>,
) -> Result<Result<StoreResult, String>, StateError> {
    let parse = || {
        let apex = DomainName::parse(zone).map_err(|problem| problem.to_string())?;
        let content = content.ok_or("the command has no content")?;
        Ok((apex, updates_from_memfd(content).map_err(|error| error.to_string())?))
    };
    let (apex, content) = match parse() {
        Ok(parsed) => parsed,
        Err(problem) => return Ok(Err(problem)),
    };
    let name = update_file(&apex).display().to_string();
    let replaced = replace(state, &name, replaces, &content, || is_readable(&content, &apex))?;
    Ok(replaced.ok_or_else(|| "the content of the command is malformed".to_owned()))
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
    if content.is_empty() != hash(content).is_none() {
        return Ok(None);
    }
    if stored == hash(content) {
        // An agent that was killed before it could report may have stored it.
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
