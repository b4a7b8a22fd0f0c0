//! Asks the keeper for keys and signatures of zones.

use sanderling_config::DomainName;
use sanderling_dnssec::sign::SigningInput;
use sanderling_dnssec::{KeyId, ZoneSigner};
use sanderling_ipc::zone_signing::{MESSAGE_BYTES_MAX, PARTS_MAX, ZoneKey, ZoneKeyAnswer, ZoneKeyRequest};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Bytes of inputs above which a request gets no further input.
const INPUTS_BYTES_MIN: usize = 256 * 1024;
/// Maximum inputs of a request, which also contains the zone and the key.
const INPUTS_MAX: usize = PARTS_MAX - 2;
const _: () = assert!(INPUTS_BYTES_MIN * 2 < MESSAGE_BYTES_MAX);

/// Time for the supervisor to connect the agent to a keeper, after the start or after the connection was lost. A call
/// waits up to this time.
const CONNECTION_TIME: Duration = Duration::from_secs(5);

/// The connection to the keeper. Calls block, and so are for threads that may wait.
pub(crate) struct KeeperClient {
    /// An exchange holds the lock.
    stream: Mutex<Stream>,
    /// The replacement of `stream` before the next exchange. No task waits while it holds the lock.
    next_stream: Mutex<Option<UnixStream>>,
    /// Signalled when `next_stream` is replaced.
    has_next: Condvar,
    /// Counts the connections.
    connected: watch::Sender<u64>,
    lost: Notify,
}

enum Stream {
    Connected(UnixStream),
    /// There is no connection yet, or an exchange has failed: tasks wait for the next one until then.
    Missing {
        wait_until: Instant,
    },
}

impl Stream {
    fn missing(wait: Duration) -> Stream {
        Stream::Missing { wait_until: Instant::now() + wait }
    }
}

impl Default for KeeperClient {
    fn default() -> KeeperClient {
        KeeperClient::waiting_for(CONNECTION_TIME)
    }
}

impl KeeperClient {
    /// A client whose calls wait for the first connection, up to this time from now on.
    fn waiting_for(time: Duration) -> KeeperClient {
        KeeperClient {
            stream: Mutex::new(Stream::missing(time)),
            next_stream: Mutex::default(),
            has_next: Condvar::new(),
            connected: watch::Sender::new(0),
            lost: Notify::new(),
        }
    }

    /// Asks at this socket from now on.
    pub(crate) fn connect(&self, socket: OwnedFd) {
        let mut next = self.next_stream();
        *next = Some(socket.into());
        self.connected.send_modify(|count| *count += 1);
        drop(next);
        self.has_next.notify_all();
    }

    fn next_stream(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.next_stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection to use from now on, and waits for it until then.
    fn take_next(&self, wait_until: Option<Instant>) -> Option<UnixStream> {
        let mut next = self.next_stream();
        while next.is_none()
            && let Some(left) = wait_until.and_then(|at| at.checked_duration_since(Instant::now()))
        {
            next = self.has_next.wait_timeout(next, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        next.take()
    }

    /// Reports each connection from now on, including one that was made before a task waits for it.
    pub(crate) fn connections(&self) -> watch::Receiver<u64> {
        self.connected.subscribe()
    }

    /// Returns when the connection can no longer be used.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// The keys of the zone that are on the disk.
    ///
    /// # Errors
    /// Returns the reason why the keys are not known.
    pub(crate) fn list_keys(&self, zone: &DomainName) -> Result<Vec<ZoneKey>, String> {
        self.keys(&ZoneKeyRequest::List { zone: zone.to_string() })
    }

    /// Makes the keeper search for a private key of the zone; the reason if it cannot sign with it.
    ///
    /// # Errors
    /// Returns an error if the keeper does not answer.
    pub(crate) fn look_for_key(&self, zone: &DomainName, id: KeyId) -> Result<Option<String>, String> {
        match self.exchange(&ZoneKeyRequest::Sign { zone: zone.to_string(), key: id.0, inputs: Vec::new() })? {
            ZoneKeyAnswer::Refused(reason) => Ok(Some(reason)),
            _ => Ok(None),
        }
    }

    /// A key of the zone that is not one of `known`: `preferred`, or a key that was made before a crash and never used,
    /// or a new key. The key is on the disk.
    ///
    /// # Errors
    /// Returns the reason why no key was made.
    pub(crate) fn make_key(
        &self,
        zone: &DomainName,
        algorithm: u8,
        known: &[KeyId],
        preferred: Option<KeyId>,
    ) -> Result<ZoneKey, String> {
        let is_unused = |key: &ZoneKey| key.algorithm == algorithm && !known.contains(&KeyId(key.id));
        let mut unused: Vec<ZoneKey> = self.list_keys(zone)?.into_iter().filter(is_unused).collect();
        let index = unused.iter().position(|key| Some(KeyId(key.id)) == preferred).unwrap_or_default();
        let unused = (index < unused.len()).then(|| unused.swap_remove(index));
        let made =
            || self.keys(&ZoneKeyRequest::Make { zone: zone.to_string(), algorithm })?.pop().ok_or_else(unexpected);
        unused.map_or_else(made, Ok)
    }

    /// Makes the keeper erase a private key of the zone. The key no longer exists on the disk.
    ///
    /// # Errors
    /// Returns the reason why the key was not erased.
    pub(crate) fn erase_key(&self, zone: &DomainName, id: KeyId) -> Result<(), String> {
        self.keys(&ZoneKeyRequest::Erase { zone: zone.to_string(), key: id.0 }).map(drop)
    }

    fn keys(&self, request: &ZoneKeyRequest) -> Result<Vec<ZoneKey>, String> {
        match self.ask(request)? {
            ZoneKeyAnswer::Keys(keys) => Ok(keys),
            _ => Err(unexpected()),
        }
    }

    fn ask(&self, request: &ZoneKeyRequest) -> Result<ZoneKeyAnswer, String> {
        match self.exchange(request)? {
            ZoneKeyAnswer::Refused(reason) => Err(format!("the keeper refuses: {reason}")),
            answer => Ok(answer),
        }
    }

    /// The answer to a request, which may be that the keeper refuses.
    ///
    /// # Errors
    /// Returns an error if the keeper sends no answer.
    fn exchange(&self, request: &ZoneKeyRequest) -> Result<ZoneKeyAnswer, String> {
        let message = request.to_message().map_err(|error| error.to_string())?;
        let mut place = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let wait_until = match &*place {
            Stream::Connected(_) => None,
            Stream::Missing { wait_until } => Some(*wait_until),
        };
        if let Some(next) = self.take_next(wait_until) {
            *place = Stream::Connected(next);
        }
        let Stream::Connected(stream) = &mut *place else {
            return Err("the keeper does not run".to_owned());
        };
        let answer = stream.write_all(&message).and_then(|()| ZoneKeyAnswer::receive(stream));
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => {
                // A late answer would be mistaken for the answer to the next request.
                *place = Stream::missing(CONNECTION_TIME);
                if self.next_stream().is_none() {
                    self.lost.notify_one();
                }
                Err(format!("the keeper does not answer: {error}"))
            }
        }
    }
}

fn unexpected() -> String {
    "the keeper sent an unexpected answer".to_owned()
}

/// Makes the keeper sign for a zone.
pub(crate) struct KeeperSigner<'k> {
    pub(crate) keeper: &'k KeeperClient,
    pub(crate) zone: &'k DomainName,
}

impl ZoneSigner for KeeperSigner<'_> {
    fn sign(&mut self, inputs: &[SigningInput<'_>]) -> Result<Vec<Vec<u8>>, String> {
        let mut signatures = Vec::with_capacity(inputs.len());
        let mut rest = inputs;
        while let Some(first) = rest.first() {
            let mut bytes = 0;
            let mut is_of_request = |input: &SigningInput<'_>| {
                let has_room = bytes < INPUTS_BYTES_MIN;
                bytes += input.bytes.len();
                input.key == first.key && has_room
            };
            let count = rest.iter().take(INPUTS_MAX).take_while(|input| is_of_request(input)).count();
            let (now, later) = rest.split_at(count);
            let inputs = now.iter().map(|input| input.bytes.to_vec()).collect();
            let zone = self.zone.to_string();
            match self.keeper.ask(&ZoneKeyRequest::Sign { zone, key: first.key.0, inputs })? {
                ZoneKeyAnswer::Signatures(made) if made.len() == count => signatures.extend(made),
                _ => return Err(unexpected()),
            }
            rest = later;
        }
        Ok(signatures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_lost(client: &KeeperClient) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("built");
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = client.lost() => true,
                () = std::future::ready(()) => false,
            }
        })
    }

    #[test]
    fn connection_is_waited_for_at_the_start_and_after_one_was_lost() {
        let list = ZoneKeyRequest::List { zone: "a.test".to_owned() };
        let client = KeeperClient::default();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                let asking = scope.spawn(|| client.ask(&list));
                let (ours, mut answering) = UnixStream::pair().expect("connected");
                client.connect(ours.into());
                ZoneKeyAnswer::Keys(Vec::new()).send(&mut answering).expect("sent");
                assert_eq!(asking.join().expect("no panic"), Ok(ZoneKeyAnswer::Keys(Vec::new())));
            });
            // The keeper has closed it.
            client.ask(&list).expect_err("lost");
        }
        let never = KeeperClient::waiting_for(Duration::ZERO);
        assert_eq!(never.ask(&list).expect_err("none"), "the keeper does not run");
    }

    #[test]
    fn connection_is_lost_with_the_keeper_and_not_by_a_message_that_is_too_long() {
        let (asking, mut answering) = UnixStream::pair().expect("connected");
        let client = KeeperClient::default();
        client.connect(asking.into());
        let inputs = vec![vec![0; MESSAGE_BYTES_MAX]];
        let too_long = ZoneKeyRequest::Sign { zone: "a.test".to_owned(), key: Default::default(), inputs };
        client.ask(&too_long).expect_err("too long");
        assert!(!has_lost(&client));
        ZoneKeyAnswer::Keys(Vec::new()).send(&mut answering).expect("sent");
        let list = ZoneKeyRequest::List { zone: "a.test".to_owned() };
        assert_eq!(client.ask(&list), Ok(ZoneKeyAnswer::Keys(Vec::new())));
        drop(answering);
        client.ask(&list).expect_err("closed");
        assert!(has_lost(&client) && !has_lost(&client));
    }
}
