//! Queries the conditions that the state of a zone's keys waits for: the version on the zone's name servers, and the DS
//! records of the parent zone.

use crate::name_servers::NameServers;
use crate::parent_servers::ParentServers;
use crate::resolvers::Resolvers;
use sanderling_config::DomainName;
use sanderling_dnssec::Ds;
use sanderling_dnssec::zone_keys::{DnskeyRdatas, Observations};
use sanderling_zone_files::wire_name;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::AbortHandle;

/// The first pause between two questions; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// Secondary servers transfer a version soon after NOTIFY.
const NAME_SERVERS_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The DS records are often a matter of people.
const PARENT_PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Between two questions of a zone that waits for its first key.
const FIRST_KEY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Zones whose servers are queried concurrently.
const QUESTIONS_MAX: usize = 16;

/// The state that all zones share.
pub(crate) struct ObserverContext {
    name_servers: NameServers,
    parent_servers: ParentServers,
    questions: Semaphore,
}

/// The pending checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Questions {
    /// Whether all name servers of the zone have this version, or a later one.
    pub(crate) served: Option<AwaitedVersion>,
    /// Whether to ask for the parent zone's DS records.
    pub(crate) parent: bool,
    /// Whether to ask for DS records before the zone has its first key.
    pub(crate) before_first_key: bool,
}

/// A version of the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwaitedVersion {
    pub(crate) serial: u32,
    /// The zone's records that name servers of other signers must have.
    pub(crate) dnskeys: DnskeyRdatas,
}

/// Asks about one zone, until this is dropped.
pub(crate) struct ZoneObserver {
    questions: watch::Sender<Questions>,
    shared: Rc<Shared>,
    task: AbortHandle,
}

struct Shared {
    zone: DomainName,
    parent_servers: Vec<SocketAddr>,
    context: Rc<ObserverContext>,
    observed: RefCell<Observations>,
    /// The last answer of the parent zone before the zone has its first key.
    before_first_key: RefCell<Option<Result<Vec<Ds>, String>>>,
    /// The reasons why observations are missing, of the name servers and of the parent zone.
    problems: RefCell<[Option<String>; 2]>,
    /// Notified when something was observed.
    wake: Rc<Notify>,
}

impl Drop for ZoneObserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ObserverContext {
    pub(crate) fn new(name_servers: NameServers, resolvers: Resolvers) -> ObserverContext {
        let questions = Semaphore::new(QUESTIONS_MAX);
        ObserverContext { name_servers, parent_servers: ParentServers::new(resolvers), questions }
    }
}

impl ZoneObserver {
    /// Notifies `wake` when something was observed. Call this in a [`tokio::task::LocalSet`].
    pub(crate) fn start(
        zone: &DomainName,
        parent_servers: &[SocketAddr],
        context: Rc<ObserverContext>,
        wake: Rc<Notify>,
    ) -> ZoneObserver {
        let shared = Rc::new(Shared {
            zone: zone.clone(),
            parent_servers: parent_servers.to_vec(),
            context,
            observed: RefCell::default(),
            before_first_key: RefCell::default(),
            problems: RefCell::default(),
            wake,
        });
        let (questions, receiver) = watch::channel(Questions::default());
        let of_task = Rc::clone(&shared);
        let run = async move {
            let name_servers = poll(
                receiver.clone(),
                NAME_SERVERS_PAUSE_MAX,
                |questions| questions.served.clone(),
                async |awaited: &AwaitedVersion| of_task.ask_name_servers(&awaited.dnskeys).await,
            );
            let parent = poll(
                receiver.clone(),
                PARENT_PAUSE_MAX,
                |questions| questions.parent.then_some(()),
                async |&()| of_task.ask_parent().await,
            );
            let before_first_key = poll(
                receiver,
                FIRST_KEY_PAUSE_MAX,
                |questions| questions.before_first_key.then_some(()),
                async |&()| of_task.ask_before_first_key().await,
            );
            tokio::join!(name_servers, parent, before_first_key);
        };
        ZoneObserver { questions, shared, task: tokio::task::spawn_local(run).abort_handle() }
    }

    /// Asks this from now on.
    pub(crate) fn ask(&self, questions: Questions) {
        let [served, parent] = &mut *self.shared.problems.borrow_mut();
        served.take_if(|_| questions.served.is_none());
        parent.take_if(|_| !questions.parent);
        self.questions.send_if_modified(|current| {
            let is_modified = *current != questions;
            *current = questions;
            is_modified
        });
    }

    /// The DS records that the parent zone has before the zone has its first key, or the reason why they are unknown;
    /// `None` until the parent zone was queried.
    pub(crate) fn ds_before_first_key(&self) -> Option<Result<Vec<Ds>, String>> {
        self.shared.before_first_key.borrow().clone()
    }

    /// The observations since the last call.
    pub(crate) fn take(&self) -> Observations {
        self.shared.observed.take()
    }

    /// The reasons why observations are missing.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.shared.problems.borrow().iter().flatten().cloned().collect()
    }
}

impl Shared {
    async fn ask_name_servers(&self, dnskeys: &DnskeyRdatas) {
        let _permit = self.context.questions.acquire().await;
        let answer = self.context.name_servers.oldest_version(&self.zone, dnskeys).await;
        self.observed.borrow_mut().served = answer.as_ref().ok().copied();
        self.problems.borrow_mut()[0] = answer.err();
        self.wake.notify_one();
    }

    async fn ask_before_first_key(&self) {
        let _permit = self.context.questions.acquire().await;
        let answer = self.context.parent_servers.first_answer(&wire_name(&self.zone), &self.parent_servers).await;
        *self.before_first_key.borrow_mut() = Some(answer);
        self.wake.notify_one();
    }

    async fn ask_parent(&self) {
        let _permit = self.context.questions.acquire().await;
        let answer = self.context.parent_servers.ds(&wire_name(&self.zone), &self.parent_servers).await;
        let (parent, problem) = answer.map_or_else(|problem| (None, Some(problem)), |parent| (Some(parent), None));
        self.observed.borrow_mut().parent = parent;
        self.problems.borrow_mut()[1] = problem;
        self.wake.notify_one();
    }
}

/// Asks as long as there is a question, with growing pauses while the question stays the same.
async fn poll<T: PartialEq>(
    mut questions: watch::Receiver<Questions>,
    pause_max: Duration,
    of: impl Fn(&Questions) -> Option<T>,
    ask: impl AsyncFn(&T),
) {
    let mut pause = PAUSE_MIN;
    let mut asked = None;
    // The task ends with the zone.
    while questions.wait_for(|questions| of(questions).is_some()).await.is_ok() {
        let Some(question) = of(&questions.borrow()) else { continue };
        if asked.as_ref() != Some(&question) {
            pause = PAUSE_MIN;
        }
        ask(&question).await;
        asked = Some(question);
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(pause_max),
            changed = questions.wait_for(|questions| of(questions) != asked) => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn questions_are_asked_less_and_less_often_until_they_change() {
        let (sender, receiver) = watch::channel(Questions::default());
        let (count, begin) = (Cell::new(0), Instant::now());
        let asking = poll(
            receiver,
            PAUSE_MIN * 4,
            |questions| questions.served.clone(),
            async |_| {
                count.set(count.get() + 1);
            },
        );
        let watching = async {
            tokio::time::sleep(PAUSE_MIN * 100).await;
            assert_eq!(count.take(), 0);
            let served = |serial| Some(AwaitedVersion { serial, dnskeys: DnskeyRdatas::default() });
            sender.send_replace(Questions { served: served(7), ..Questions::default() });
            // After 0, 1, 3, 7, 11 pauses.
            tokio::time::sleep(PAUSE_MIN * 12).await;
            assert_eq!(count.take(), 5);
            sender.send_replace(Questions { served: served(7), parent: true, ..Questions::default() });
            tokio::time::sleep(PAUSE_MIN * 2).await;
            assert_eq!(count.take(), 0);
            sender.send_replace(Questions { served: served(8), parent: true, ..Questions::default() });
            tokio::time::sleep(PAUSE_MIN / 2).await;
            assert_eq!(count.take(), 1);
            sender.send_replace(Questions::default());
            tokio::time::sleep(PAUSE_MIN * 100).await;
            assert_eq!(count.take(), 0);
        };
        tokio::select! {
            () = asking => panic!("it goes on"),
            () = watching => {}
        }
        assert!(begin.elapsed() >= PAUSE_MIN * 200);
    }
}
