//! Asks the keeper for handshake signatures. A worker that asks waits for the answer, but not twice for a keeper that
//! does not answer: its handshakes wait then, and the worker serves its other connections.

use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::signing::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, SignAnswer, SignRequest};
use sanderling_os::request_socket::RequestSocket;
use sanderling_tls::{KeyId, RemoteSigner, SignError};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Answers to earlier requests that are skipped.
const LATE_ANSWERS_MAX: u32 = 8;
const NO_KEEPER: SignError = SignError::Unavailable("no keeper runs");
const NO_ANSWER: SignError = SignError::Unavailable("the keeper does not answer");
const REFUSED: SignError = SignError::Refused("the keeper refuses to sign");
const MALFORMED: SignError = SignError::Refused("the keeper's answer is malformed");
const TOO_LONG: SignError = SignError::Refused("the input is too long for the keeper");

/// The sockets to the keeper, one per worker, so that no worker waits for another.
#[derive(Debug, Default)]
pub(crate) struct KeeperLink(RwLock<Arc<[Mutex<Socket>]>>);

#[derive(Debug)]
struct Socket {
    socket: RequestSocket,
    /// The number of the last request.
    last_number: u32,
    peer: Peer,
}

/// The state of the other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Answers,
    /// The last answer has not come in time. No request is sent until it does, or the supervisor has replaced the
    /// keeper.
    IsLate,
    /// The socket is closed: the keeper has exited.
    HasEnded,
}

impl KeeperLink {
    /// Uses these sockets from now on, including for certificates that were already loaded.
    pub(crate) fn replace(&self, sockets: Vec<OwnedFd>) {
        let socket = |descriptor| match RequestSocket::from_fd(descriptor) {
            Ok(socket) => Some(Mutex::new(Socket { socket, last_number: 0, peer: Peer::Answers })),
            Err(error) => {
                log_error(&format!("cannot use a socket to the keeper: {}", error_text(&error)));
                None
            }
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = sockets.into_iter().filter_map(socket).collect();
    }
}

impl RemoteSigner for KeeperLink {
    fn sign(&self, key: &KeyId, scheme: u16, input: &[u8]) -> Result<Vec<u8>, SignError> {
        let sockets = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        let is_open = |socket: &MutexGuard<'_, Socket>| socket.peer != Peer::HasEnded;
        let free = sockets.iter().filter_map(|socket| socket.try_lock().ok()).find(is_open);
        // With more workers than sockets, all may be in use.
        let any = || sockets.first().map(|socket| socket.lock().unwrap_or_else(PoisonError::into_inner));
        let mut socket: MutexGuard<'_, Socket> = free.or_else(any).ok_or(NO_KEEPER)?;
        socket.sign(key, scheme, input)
    }
}

impl Socket {
    fn sign(&mut self, key: &KeyId, scheme: u16, input: &[u8]) -> Result<Vec<u8>, SignError> {
        let (mut request, mut answer) = ([0; REQUEST_BYTES_MAX], [0; ANSWER_BYTES_MAX]);
        if self.peer == Peer::IsLate {
            self.socket.receive_arrived(&mut answer).map_err(|error| self.note(&error))?;
            self.peer = Peer::Answers;
        }
        self.last_number = self.last_number.wrapping_add(1);
        let number = self.last_number;
        let request = SignRequest { number, scheme, key: &key.0, input }.encode(&mut request).ok_or(TOO_LONG)?;
        self.socket.send(request).map_err(|error| self.note(&error))?;
        for _ in 0..=LATE_ANSWERS_MAX {
            let message = self.socket.receive(&mut answer).map_err(|error| self.note(&error))?;
            let answer = message.and_then(SignAnswer::decode).ok_or(MALFORMED)?;
            // A different number belongs to a request that timed out.
            if answer.number == number {
                return answer.result.map(<[u8]>::to_vec).map_err(|_| REFUSED);
            }
        }
        Err(MALFORMED)
    }

    /// A call of the socket has failed.
    fn note(&mut self, error: &io::Error) -> SignError {
        self.peer = if error.kind() == io::ErrorKind::WouldBlock { Peer::IsLate } else { Peer::HasEnded };
        NO_ANSWER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_ipc::signing::Refusal;
    use std::thread;
    use std::time::Duration;

    const KEY: KeyId = KeyId([7; 32]);
    /// Longer than any answer in these tests takes.
    const LONG: Duration = Duration::from_secs(10);

    /// A link with a socket, and its other end.
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
        let (link, keeper) = link(LONG);
        thread::scope(|scope| {
            scope.spawn(|| {
                answer(&keeper, 0, Ok(b"signature"));
                answer(&keeper, 0, Err(Refusal::UnknownKey));
            });
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Ok(b"signature".to_vec()));
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Err(REFUSED));
        });
    }

    #[test]
    fn keeper_that_does_not_answer_is_not_asked_again_until_it_does() {
        let (link, keeper) = link(Duration::from_millis(1));
        for _ in 0..1_000 {
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Err(NO_ANSWER));
        }
        // The late answer to the first request is not taken for the answer to the next.
        answer(&keeper, 0, Ok(b"late"));
        assert_eq!(keeper.receive_arrived(&mut [0; 1]).expect_err("no other").kind(), io::ErrorKind::WouldBlock);
        // The answer is sent before the next request, so that it is in time however busy the machine is.
        let mut out = [0; ANSWER_BYTES_MAX];
        let next = SignAnswer { number: 2, result: Ok(b"in time") };
        keeper.send(next.encode(&mut out).expect("it fits")).expect("sent");
        assert_eq!(link.sign(&KEY, 0x0403, b"input"), Ok(b"in time".to_vec()));
    }

    #[test]
    fn keeper_that_has_ended_fails_at_once_until_there_is_another_one() {
        let (link, keeper) = link(LONG);
        drop(keeper);
        assert_eq!(link.sign(&KEY, 0x0403, b"input"), Err(NO_ANSWER));
        let [asking, answering] = RequestSocket::pair(LONG).expect("created");
        link.replace(vec![asking]);
        let keeper = RequestSocket::from_fd(answering).expect("a socket");
        thread::scope(|scope| {
            scope.spawn(|| answer(&keeper, 0, Ok(b"signature")));
            assert_eq!(link.sign(&KEY, 0x0403, b"input"), Ok(b"signature".to_vec()));
        });
        link.replace(Vec::new());
        assert_eq!(link.sign(&KEY, 0x0403, b"input"), Err(NO_KEEPER));
    }
}
