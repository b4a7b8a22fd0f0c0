//! A thread for each worker of a server process: waits for a request, checks it, signs.

use crate::handshake_input::is_of_handshake;
use sanderling_config::Exit;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{self, log_error};
use sanderling_ipc::signing::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, Refusal, SignAnswer, SignRequest, SigningCounts};
use sanderling_os::request_socket::RequestSocket;
use sanderling_tls::{KeyId, PrivateKey};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::Duration;

/// Time until a call is repeated that has failed for a moment, for example since there was no memory.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Time for writing the last message of the process.
const LOG_TIME_MAX: Duration = Duration::from_secs(1);

/// Attempts of a call in five seconds. After that, a new process may be able to sign.
const ATTEMPTS_MAX: u32 = 500;

/// Repeats a call of a socket as long as it fails for another cause than the end of its peer, at most
/// `attempts_max` times.
fn repeat<T>(attempts_max: u32, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..attempts_max {
        match call() {
            Err(error) if !is_of_peer(&error) => thread::sleep(RETRY_INTERVAL),
            result => return result,
        }
    }
    call()
}

/// Whether a call has failed because the peer has closed its socket.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof)
}

/// Ends the process, which the supervisor starts again, unless the peer has closed its socket.
fn end_process_unless_of_peer(error: &io::Error) {
    if !is_of_peer(error) {
        log_error(&format!(
            "the keeper cannot use a server process's socket: {}; the keeper exits and is restarted",
            error_text(error)
        ));
        log::flush(LOG_TIME_MAX);
        std::process::exit(Exit::Failure.status().into());
    }
}

/// The state that all threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    keys: RwLock<HashMap<KeyId, PrivateKey>>,
    signatures: AtomicU64,
    /// Of records.
    zone_signatures: AtomicU64,
    /// In the order of [`Refusal::ALL`].
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Shared {
    /// Signs with these keys from now on.
    pub(crate) fn replace_keys(&self, keys: HashMap<KeyId, PrivateKey>) {
        let before = std::mem::replace(&mut *self.keys.write().unwrap_or_else(PoisonError::into_inner), keys);
        // The previous keys are erased after the lock is released.
        drop(before);
    }

    /// Records of zones were signed.
    pub(crate) fn count_zone_signatures(&self, count: usize) {
        self.zone_signatures.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The counters so far.
    pub(crate) fn counts(&self) -> SigningCounts {
        SigningCounts {
            signatures: self.signatures.load(Ordering::Relaxed),
            zone_signatures: self.zone_signatures.load(Ordering::Relaxed),
            refused: std::array::from_fn(|index| self.refused[index].load(Ordering::Relaxed)),
        }
    }

    /// Answers the requests that come over `socket` until the server process closes it. If the socket cannot be used,
    /// ends the process.
    pub(crate) fn serve(&self, socket: &RequestSocket) {
        let (mut request, mut answer) = ([0; REQUEST_BYTES_MAX], [0; ANSWER_BYTES_MAX]);
        loop {
            let received = repeat(ATTEMPTS_MAX, || socket.receive(&mut request).map(|it| it.map(<[u8]>::len)));
            let message = match received {
                Ok(message) => message,
                Err(error) => return end_process_unless_of_peer(&error),
            };
            let message = message.and_then(|length_bytes| request.get(..length_bytes));
            let request = message.and_then(SignRequest::decode);
            let number = request.map_or(0, |request| request.number);
            let signature = request.ok_or(Refusal::Malformed).and_then(|request| self.sign(&request));
            let result = signature.as_deref().map_err(|refusal| *refusal);
            match result {
                Ok(_) => &self.signatures,
                Err(refusal) => &self.refused[refusal as usize - 1],
            }
            .fetch_add(1, Ordering::Relaxed);
            let answer = SignAnswer { number, result }.encode(&mut answer).expect("no key has a longer signature");
            // Without an answer, the worker would send no further requests over this socket.
            if let Err(error) = repeat(ATTEMPTS_MAX, || socket.send(answer)) {
                return end_process_unless_of_peer(&error);
            }
        }
    }

    fn sign(&self, request: &SignRequest<'_>) -> Result<Vec<u8>, Refusal> {
        if !is_of_handshake(request.input) {
            return Err(Refusal::NotOfHandshake);
        }
        let key = {
            let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
            keys.get(&KeyId(*request.key)).cloned().ok_or(Refusal::UnknownKey)?
        };
        key.sign(request.scheme, request.input).ok_or(Refusal::WrongScheme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::ErrorKind::{BrokenPipe, Other, OutOfMemory};

    #[test]
    fn call_that_fails_is_made_again_within_a_bound() {
        let calls = |errors: &[io::ErrorKind]| {
            let mut made = 0;
            let result = repeat(3, || {
                made += 1;
                errors.get(made - 1).map_or(Ok(()), |&kind| Err(kind.into()))
            });
            (made, result.err().map(|error| error.kind()))
        };
        assert_eq!(calls(&[]), (1, None));
        assert_eq!(calls(&[OutOfMemory, Other]), (3, None));
        assert_eq!(calls(&[Other; 9]), (3, Some(Other)));
        assert_eq!(calls(&[OutOfMemory, BrokenPipe, Other]), (2, Some(BrokenPipe)), "the peer has ended");
    }
}
