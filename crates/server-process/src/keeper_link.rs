//! Asks the keeper of private keys for the signatures of handshakes. A worker that asks waits for the answer.

use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::signing::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, SignAnswer, SignRequest};
use sanderling_os::request_socket::RequestSocket;
use sanderling_tls::{KeyId, RemoteSigner};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Time after an answer that did not come, in which no other one is waited for: a keeper that hangs must not stop the
/// workers until the supervisor replaces it.
const PAUSE: Duration = Duration::from_secs(1);
/// Answers to earlier requests that are skipped.
const LATE_ANSWERS_MAX: u32 = 8;
const NO_ANSWER: &str = "the keeper of private keys does not answer";

/// The sockets to the keeper, as many as there are workers, so that none waits for another one.
#[derive(Debug, Default)]
pub(crate) struct KeeperLink(RwLock<Arc<[Mutex<Socket>]>>);

#[derive(Debug)]
struct Socket {
    socket: RequestSocket,
    /// The number of the last request.
    last_number: u32,
    /// When the keeper is asked again after it has not answered.
    paused_until: Option<Instant>,
}

impl KeeperLink {
    /// Uses these sockets from now on, also for certificates that were loaded before.
    pub(crate) fn replace(&self, sockets: Vec<OwnedFd>) {
        let socket = |descriptor| match RequestSocket::from_fd(descriptor) {
            Ok(socket) => Some(Mutex::new(Socket { socket, last_number: 0, paused_until: None })),
            Err(error) => {
                log_error(&format!("cannot use a socket to the keeper of private keys: {}", error_text(&error)));
                None
            }
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = sockets.into_iter().filter_map(socket).collect();
    }
}

impl RemoteSigner for KeeperLink {
    fn sign(&self, key: &KeyId, scheme: u16, input: &[u8]) -> Result<Vec<u8>, &'static str> {
        let sockets = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        let free = sockets.iter().find_map(|socket| socket.try_lock().ok());
        // With more workers than sockets, all may be in use.
        let any = || sockets.first().map(|socket| socket.lock().unwrap_or_else(PoisonError::into_inner));
        let mut socket: MutexGuard<'_, Socket> = free.or_else(any).ok_or("there is no keeper of private keys")?;
        if socket.paused_until.is_some_and(|until| Instant::now() < until) {
            return Err(NO_ANSWER);
        }
        socket.exchange(key, scheme, input).map_err(|error| {
            let is_late = error.kind() == io::ErrorKind::WouldBlock;
            socket.paused_until = is_late.then(|| Instant::now() + PAUSE);
            NO_ANSWER
        })?
    }
}

impl Socket {
    fn exchange(&mut self, key: &KeyId, scheme: u16, input: &[u8]) -> io::Result<Result<Vec<u8>, &'static str>> {
        let (mut request, mut answer) = ([0; REQUEST_BYTES_MAX], [0; ANSWER_BYTES_MAX]);
        self.last_number = self.last_number.wrapping_add(1);
        let number = self.last_number;
        let request = SignRequest { number, scheme, key: &key.0, input }.encode(&mut request);
        self.socket.send(request.ok_or(io::ErrorKind::InvalidInput)?)?;
        for _ in 0..=LATE_ANSWERS_MAX {
            let message = self.socket.receive(&mut answer)?;
            let answer = message.and_then(SignAnswer::decode).ok_or(io::ErrorKind::InvalidData)?;
            // Another number is that of a request which had waited too long.
            if answer.number == number {
                let signature = answer.result.map(<[u8]>::to_vec);
                return Ok(signature.map_err(|_| "the keeper of private keys refuses to sign"));
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_ipc::signing::Refusal;
    use std::thread;

    const KEY: KeyId = KeyId([7; 32]);

    /// A link with a socket, and the other end of it.
    fn link(timeout: Duration) -> (KeeperLink, RequestSocket) {
        let [asking, answering] = RequestSocket::pair(timeout).expect("created");
        let link = KeeperLink::default();
        link.replace(vec![asking]);
        (link, RequestSocket::from_fd(answering).expect("a socket"))
    }

    /// Answers a request with its number and `distance`.
    fn answer(keeper: &RequestSocket, distance: u32, result: Result<&[u8], Refusal>) {
        let (mut buffer, mut out) = ([0; REQUEST_BYTES_MAX], [0; ANSWER_BYTES_MAX]);
        let message = keeper.receive(&mut buffer).expect("received").expect("short");
        let request = SignRequest::decode(message).expect("a request");
        assert_eq!((request.key, request.scheme, request.input), (&KEY.0, 0x0403, &b"input"[..]));
        let number = request.number.wrapping_sub(distance);
        keeper.send(SignAnswer { number, result }.encode(&mut out).expect("it fits")).expect("sent");
    }

    #[test]
    fn answer_of_the_keeper_is_the_signature() {
        let (link, keeper) = link(Duration::from_secs(10));
        thread::scope(|scope| {
            scope.spawn(|| {
                answer(&keeper, 0, Ok(b"signature"));
                answer(&keeper, 0, Err(Refusal::UnknownKey));
            });
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Ok(b"signature".to_vec()));
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Err("the keeper of private keys refuses to sign"));
        });
    }

    #[test]
    fn keeper_that_does_not_answer_is_not_waited_for_again_at_once() {
        let (link, keeper) = link(Duration::from_millis(50));
        let start = Instant::now();
        for _ in 0..1_000 {
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Err(NO_ANSWER));
        }
        assert!(start.elapsed() < PAUSE, "{:?}", start.elapsed());
        // The late answer is not taken for that to the next request.
        answer(&keeper, 0, Ok(b"late"));
        link.0.read().expect("not poisoned")[0].lock().expect("not poisoned").paused_until = None;
        thread::scope(|scope| {
            scope.spawn(|| answer(&keeper, 0, Ok(b"in time")));
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Ok(b"in time".to_vec()));
        });
    }

    #[test]
    fn keeper_that_has_ended_fails_at_once_until_there_is_another_one() {
        let (link, keeper) = link(Duration::from_secs(10));
        drop(keeper);
        assert_eq!(link.sign(&KEY, 0x0403, b"input"), Err(NO_ANSWER));
        let [asking, answering] = RequestSocket::pair(Duration::from_secs(10)).expect("created");
        link.replace(vec![asking]);
        let keeper = RequestSocket::from_fd(answering).expect("a socket");
        thread::scope(|scope| {
            scope.spawn(|| answer(&keeper, 0, Ok(b"signature")));
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Ok(b"signature".to_vec()));
        });
        link.replace(Vec::new());
        assert_eq!(link.sign(&KEY, 0x0403, b"input"), Err("there is no keeper of private keys"));
    }
}
