//! The connection to the supervisor, and the challenges that it passes on to the server process.

use sanderling_config::log::{log_error, log_warning};
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_ipc::agent::{
    AgentReport, BackendAddresses, Challenge, UpdatesOutcome, ZONE_CHANGES_BYTES_MAX, backend_addresses_to_memfd,
    challenges_to_memfd, zone_changes_to_memfd,
};
use sanderling_ipc::{Command, Connection, Event, FdKind, HEARTBEAT_INTERVAL, IncomingFds, Message, Received};
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{Notify, watch};

/// Time for the server process to answer challenges. The server process may be restarted meanwhile.
const SERVED_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the server process to load a zone.
const LOADED_TIMEOUT: Duration = Duration::from_secs(120);
/// The number of successive server processes that are asked to load a version. The version may crash every process that
/// loads it.
const LOADING_PROCESSES_MAX: usize = 5;
/// Time after which unsent messages are retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The connection to the supervisor.
pub(crate) struct Link {
    connection: RefCell<Connection>,
    /// A copy of its descriptor, to wait for. Nothing is sent or received by it.
    readable: UnixDatagram,
    challenges: RefCell<ChallengeSet>,
    challenges_changed: Notify,
    served: watch::Sender<u64>,
    report_errors: RefCell<LimitedLog>,
    /// Counts the reports of all zones that are served: each server process sends one when it serves.
    reports: watch::Sender<u64>,
}

/// The reason why the server process has not loaded a zone.
enum LoadError {
    /// The process has exited, or was replaced by another.
    Lost,
    Other(String),
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> LoadError {
        LoadError::Other(error.to_string())
    }
}

/// The challenges of all orders in progress.
#[derive(Default)]
struct ChallengeSet {
    number: u64,
    challenges: Vec<Challenge>,
}

/// A message from the supervisor.
pub(crate) enum Incoming {
    Command(Command, IncomingFds),
    /// The supervisor has exited: the agent exits too.
    Closed,
}

impl Link {
    /// Call this in the runtime.
    pub(crate) fn new(connection: Connection) -> io::Result<Link> {
        let readable = UnixDatagram::from_std(connection.as_fd().try_clone_to_owned()?.into())?;
        Ok(Link {
            connection: RefCell::new(connection),
            readable,
            challenges: RefCell::default(),
            challenges_changed: Notify::new(),
            served: watch::Sender::new(0),
            report_errors: RefCell::default(),
            reports: watch::Sender::new(0),
        })
    }

    /// The next command. Confirmations of challenges are handled here.
    pub(crate) async fn receive(&self) -> Incoming {
        loop {
            if self.readable.readable().await.is_err() {
                return Incoming::Closed;
            }
            if let Some(incoming) = self.receive_arrived() {
                return incoming;
            }
        }
    }

    /// The next command, if one has already arrived.
    pub(crate) fn receive_arrived(&self) -> Option<Incoming> {
        let receive = || match self.connection.borrow_mut().recv() {
            Ok(Received::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            received => Ok(received),
        };
        loop {
            match self.readable.try_io(Interest::READABLE, receive) {
                Ok(Ok(Received::Message(Message::Command(Command::ChallengesServed { number }), _))) => {
                    self.served.send_replace(number);
                }
                Ok(Ok(Received::Message(Message::Command(command), descriptors))) => {
                    if command == Command::ZonesServed {
                        self.reports.send_modify(|count| *count += 1);
                    }
                    return Some(Incoming::Command(command, descriptors));
                }
                Ok(Ok(Received::Message(..))) => {
                    log_warning("ignoring a message from the supervisor that is not a command");
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                _ => return Some(Incoming::Closed),
            }
        }
    }

    /// Retries the messages for which the supervisor had no room.
    pub(crate) async fn flush(&self) {
        while self.connection.borrow().unsent_count() > 0 {
            tokio::time::sleep(RETRY_INTERVAL).await;
            let _ = self.connection.borrow_mut().flush();
        }
        std::future::pending::<()>().await;
    }

    /// Makes the server process load the zone `name`, which was stored or removed. Returns when it is loaded.
    /// `is_forced`: even if it has lost records or its serial went back. `changes`, in log form, may continue from the
    /// served version; the process then applies them. The text is the result of the load. If the process does not
    /// answer because it was replaced, its replacement is asked.
    ///
    /// # Errors
    /// Returns the reason why the zone was not loaded.
    pub(crate) async fn zone_stored(&self, name: &str, is_forced: bool, changes: &[u8]) -> Result<String, String> {
        let mut reports = self.reports.subscribe();
        let mut result = self.have_loaded(name, is_forced, changes).await;
        for _ in 1..LOADING_PROCESSES_MAX {
            let is_lost = matches!(result, Err(LoadError::Lost));
            if !is_lost || !matches!(tokio::time::timeout(LOADED_TIMEOUT, reports.changed()).await, Ok(Ok(()))) {
                break;
            }
            result = self.have_loaded(name, is_forced, changes).await;
        }
        result.map_err(|error| match error {
            LoadError::Lost => "it does not answer".to_owned(),
            LoadError::Other(problem) => problem,
        })
    }

    async fn have_loaded(&self, name: &str, is_forced: bool, changes: &[u8]) -> Result<String, LoadError> {
        let (mut ours, theirs) = Connection::pair()?;
        let readable = UnixDatagram::from_std(ours.as_fd().try_clone_to_owned()?.into())?;
        let mut descriptors = vec![(FdKind::Requester, theirs.into_fd())];
        if !changes.is_empty() && changes.len() <= ZONE_CHANGES_BYTES_MAX as usize {
            descriptors.push((FdKind::ZoneChanges, zone_changes_to_memfd(changes)?));
        }
        self.send(Event::ZoneStored { zone: name.to_owned(), is_forced }, descriptors);
        let answer = async {
            let (mut text, mut lines) = (String::new(), String::new());
            loop {
                readable.readable().await.map_err(|_| LoadError::Lost)?;
                let receive = || match ours.recv() {
                    Ok(Received::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
                    received => Ok(received),
                };
                match readable.try_io(Interest::READABLE, receive) {
                    Ok(Ok(Received::Message(Message::Event(Event::Done { is_success }), _))) => {
                        return match is_success {
                            true => Ok(text),
                            false => Err(LoadError::Other(lines.lines().next().unwrap_or_default().to_owned())),
                        };
                    }
                    Ok(Ok(Received::Message(Message::Event(Event::Stdout(part)), _))) => text += &part,
                    Ok(Ok(Received::Message(Message::Event(Event::Stderr(line)), _))) => lines += &line,
                    Ok(Ok(Received::Message(..))) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return Err(LoadError::Lost),
                }
            }
        };
        let no_answer = |_| LoadError::Other("it does not answer".to_owned());
        tokio::time::timeout(LOADED_TIMEOUT, answer).await.map_err(no_answer)?
    }

    fn send(&self, event: Event, descriptors: IncomingFds) {
        // The end of the supervisor is noticed when receiving.
        let _ = self.connection.borrow_mut().send_with(&Message::Event(event), descriptors);
    }

    /// Returns whether sending was possible; if not, memory or descriptors were briefly exhausted.
    pub(crate) fn report(&self, report: &AgentReport) -> bool {
        let file = report.to_memfd();
        match file {
            Ok(file) => {
                self.send(Event::AgentReport, vec![(FdKind::AgentReport, file)]);
                true
            }
            Err(error) => {
                self.report_errors.borrow_mut().error("", &format!("cannot report to the supervisor: {error}"));
                false
            }
        }
    }

    /// Sends heartbeats of this thread to the supervisor.
    pub(crate) async fn send_heartbeats(&self) {
        loop {
            if self.connection.borrow().unsent_count() == 0 {
                self.send(Event::Heartbeat, Vec::new());
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    /// Tells the supervisor that there is a new certificate for the domain `name`.
    pub(crate) fn certificate_stored(&self, name: &str) {
        self.send(Event::CertificateStored { name: name.to_owned() }, Vec::new());
    }

    /// Reports the outcome of storing a version made by dynamic updates.
    pub(crate) fn updates_stored(&self, outcome: UpdatesOutcome) {
        self.send(Event::UpdatesStored(outcome), Vec::new());
    }

    /// Tells the supervisor that other records are derived for zones.
    pub(crate) fn derived_stored(&self) {
        self.send(Event::DerivedStored, Vec::new());
    }

    /// Tells the supervisor that the agent needs another socket to the keeper.
    pub(crate) fn keeper_lost(&self) {
        self.send(Event::KeeperLost, Vec::new());
    }

    /// Tells the server process the addresses of hosts with applications.
    pub(crate) fn backend_addresses_changed(&self, addresses: &BackendAddresses) {
        match backend_addresses_to_memfd(addresses) {
            Ok(file) => self.send(Event::BackendAddressesChanged, vec![(FdKind::BackendAddresses, file)]),
            Err(error) => log_error(&format!("cannot pass on addresses of applications: {error}")),
        }
    }

    /// Makes the server process answer `challenges`, in addition to other orders' challenges, until the returned guard
    /// is dropped. Returns when it does; `None` if it does not in time.
    pub(crate) async fn publish(&self, challenges: Vec<Challenge>) -> Option<Published<'_>> {
        self.challenges.borrow_mut().challenges.extend(challenges.iter().cloned());
        let published = Published { link: self, challenges };
        let number = self.send_challenges()?;
        let mut served = self.served.subscribe();
        let is_served = tokio::time::timeout(SERVED_TIMEOUT, served.wait_for(|served| *served >= number)).await;
        matches!(is_served, Ok(Ok(_))).then_some(published)
    }

    /// The challenges of all orders in progress.
    pub(crate) fn challenges(&self) -> Vec<Challenge> {
        self.challenges.borrow().challenges.clone()
    }

    /// Returns when they have changed.
    pub(crate) async fn challenges_changed(&self) {
        self.challenges_changed.notified().await;
    }

    /// The number of the set that was sent.
    fn send_challenges(&self) -> Option<u64> {
        self.challenges_changed.notify_one();
        let (number, file) = {
            let mut set = self.challenges.borrow_mut();
            set.number += 1;
            (set.number, challenges_to_memfd(&set.challenges))
        };
        match file {
            Ok(file) => {
                self.send(Event::ChallengesChanged { number }, vec![(FdKind::Challenges, file)]);
                Some(number)
            }
            Err(error) => {
                log_error(&format!("cannot pass on challenges: {error}"));
                None
            }
        }
    }
}

/// Challenges that are answered until this is dropped.
pub(crate) struct Published<'l> {
    link: &'l Link,
    challenges: Vec<Challenge>,
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        for challenge in &self.challenges {
            let all = &mut self.link.challenges.borrow_mut().challenges;
            if let Some(index) = all.iter().position(|other| other == challenge) {
                all.swap_remove(index);
            }
        }
        self.link.send_challenges();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("built")
            .block_on(test);
    }

    fn challenge(token: &str) -> Challenge {
        Challenge::Http { token: token.to_owned(), content: String::new() }
    }

    /// The challenges that the agent has sent last.
    fn last_sent(supervisor: &mut Connection) -> (u64, Vec<Challenge>) {
        let mut last = None;
        while let Ok(Received::Message(Message::Event(Event::ChallengesChanged { number }), mut fds)) =
            supervisor.recv()
        {
            let (_, file) = fds.pop().expect("a set");
            last = Some((number, sanderling_ipc::agent::challenges_from_memfd(file).expect("read")));
        }
        last.expect("a set")
    }

    #[test]
    fn challenges_are_those_of_all_orders_in_progress() {
        run(async {
            let (mut supervisor, agent) = Connection::pair().expect("a pair");
            let link = Link::new(agent).expect("made");
            let confirm = |supervisor: &mut Connection, number| {
                supervisor.send(&Message::Command(Command::ChallengesServed { number })).expect("sent");
            };
            confirm(&mut supervisor, 1);
            let link = &link;
            let publish = |token: &'static str| async move {
                tokio::select! {
                    published = link.publish(vec![challenge(token)]) => published.expect("served"),
                    _ = link.receive() => panic!("closed"),
                }
            };
            let first = publish("a").await;
            assert_eq!(last_sent(&mut supervisor), (1, vec![challenge("a")]));
            confirm(&mut supervisor, 2);
            let second = publish("b").await;
            assert_eq!(last_sent(&mut supervisor).1.len(), 2);
            drop(first);
            assert_eq!(last_sent(&mut supervisor), (3, vec![challenge("b")]));
            drop(second);
            assert_eq!(last_sent(&mut supervisor), (4, vec![]));
            // No process confirms it.
            assert!(link.publish(vec![challenge("c")]).await.is_none());
            assert_eq!(last_sent(&mut supervisor), (6, vec![]));
        });
    }
}
