//! The server's side of one TLS connection: bytes of the network in, bytes of the application out, and back.

use crate::alpn::Alpn;
use crate::certificate_store::Candidates;
use crate::hello::{self, Hello, Refused};
use crate::record_boundary::RecordBoundary;
use crate::remote_key::is_unavailable;
use crate::server_tls::ServerTls;
use rustls::server::ServerConnection;
use rustls::{AlertDescription, HandshakeKind, ProtocolVersion};
use std::io::{self, IoSlice, Read, Write};
use std::mem;

/// Maximum plaintext that a session takes before it must send: enough to make a system call cheap compared with
/// encryption.
pub const UNSENT_BYTES_MAX: usize = 128 * 1024;
/// Slices that [`Session::write`] takes in one call.
pub const WRITE_PARTS_MAX: usize = 8;
/// The longest plaintext of a record (RFC 8446 §5.1).
pub const RECORD_BYTES_MAX: usize = 16 * 1024;
/// The largest overhead of a record over its plaintext (RFC 8446 §5.2).
const RECORD_OVERHEAD_BYTES_MAX: usize = 5 + 256;
/// The plaintext of a record that fits into one segment.
const SHORT_RECORD_BYTES: usize = 1_300;
/// The time without sending after which the congestion window may be small again.
const IDLE_MS: u64 = 1_000;
/// The largest overhead of the records of [`UNSENT_BYTES_MAX`] and of a handshake over their plaintext.
const OVERHEAD_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes from a client in a handshake; rustls would keep messages of up to 64 KiB. A ClientHello with a key
/// share of X25519MLKEM768 has some 1.8 KiB.
const HANDSHAKE_BYTES_MAX: usize = 16 * 1024;
/// The messages that answer a ClientHello, with a usual chain of certificates.
const HANDSHAKE_UNSENT_BYTES: usize = 4 * 1024;
/// The alert `access_denied` (RFC 8446 §6), before encryption begins.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
/// The alerts that it represents.
const UNRECOGNIZED_NAME: u8 = 112;
const HANDSHAKE_FAILURE: u8 = 40;
const INTERNAL_ERROR: u8 = 80;
/// The alert `internal_error`, before encryption begins.
const ALERT_INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, INTERNAL_ERROR];

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// A session's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing can be read or written yet.
    Handshaking,
    /// Both sides can send.
    Open,
    /// The client sends no more (`close_notify`), and can still receive.
    ClientClosed,
    /// The session has failed. The unsent output is the alert for the client; then the connection closes.
    Failed,
}

/// The reason why a session has failed. The client's errors are counted by kind, not logged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no certificate for the requested server name, or no default for a client that asks for none.
    #[error("no certificate for the requested server name")]
    UnknownName,
    /// Client and server have no version, cipher suite, key exchange or signature scheme in common.
    #[error("nothing in common with the client: {0}")]
    Incompatible(rustls::Error),
    /// The client asks for other protocols above TLS than the server has.
    #[error("no protocol in common with the client")]
    NoCommonProtocol,
    /// The client has ended the session by an alert, for example because it does not trust the certificate.
    #[error("the client ended the session: {0}")]
    ClientAlert(rustls::Error),
    /// The client has broken the protocol.
    #[error("the client violated the protocol: {0}")]
    Invalid(rustls::Error),
    /// The server cannot continue: the key cannot sign, or there are no random numbers.
    #[error("TLS has failed: {0}")]
    Internal(rustls::Error),
}

/// The next record's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextRecord {
    /// The client can use the first segment as soon as it arrives, without waiting for the rest of a long record.
    Short,
    /// As long as possible, unless nothing was sent for a while.
    Long { last_write_ms: u64 },
}

/// The server's side of a TLS connection.
///
/// A session has no deadline: the caller closes connections whose handshake takes too long.
#[derive(Debug)]
pub struct Session {
    /// `None` until the ClientHello has arrived, and while the key cannot sign.
    connection: Option<ServerConnection>,
    hello: Hello,
    tls: ServerTls,
    state: State,
    next_record: NextRecord,
    /// Plaintext that was decrypted and not taken.
    readable_bytes: usize,
    /// The received part of an incomplete record or handshake message: after plaintext, of the next record; otherwise
    /// everything received since the last plaintext.
    partial_bytes: usize,
    boundary: RecordBoundary,
    /// Plaintext that was written since nothing was unsent.
    unsent_bytes: usize,
    /// The limit of the unsent bytes.
    unsent_bytes_max: usize,
    /// The alert that replaces the alert of rustls after a failure.
    last_words: Vec<u8>,
    /// The certificates from which the connection's certificate was chosen, once the handshake is complete.
    chosen_from: Candidates,
}

impl Session {
    /// A session in which nothing has arrived.
    pub fn new(tls: &ServerTls) -> Session {
        Session {
            connection: None,
            hello: Hello::Arriving(Vec::new()),
            tls: tls.clone(),
            state: State::Handshaking,
            next_record: NextRecord::Short,
            readable_bytes: 0,
            partial_bytes: 0,
            boundary: RecordBoundary::default(),
            unsent_bytes: 0,
            unsent_bytes_max: UNSENT_BYTES_MAX,
            last_words: Vec::new(),
            chosen_from: Candidates::default(),
        }
    }

    /// The session's next step.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether there is plaintext to take.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.readable_bytes > 0
    }

    /// Whether there is something for [`Session::send`] to send.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        !self.last_words.is_empty() || self.connection.as_ref().is_some_and(|connection| connection.wants_write())
    }

    /// Whether the handshake waits until its key can sign: then [`Session::try_key_again`] continues it.
    #[inline]
    pub fn awaits_key(&self) -> bool {
        matches!(self.hello, Hello::AwaitsKey { .. })
    }

    /// Bytes that [`Session::write`] takes now: none before the handshake is complete.
    pub fn writable_bytes(&self) -> usize {
        match self.state {
            State::Open | State::ClientClosed => self.unsent_bytes_max.saturating_sub(self.unsent_bytes),
            State::Handshaking | State::Failed => 0,
        }
    }

    /// Limits the plaintext that the session takes before it must send, to [`UNSENT_BYTES_MAX`] or less.
    #[inline]
    pub fn set_unsent_bytes_max(&mut self, bytes: usize) {
        self.unsent_bytes_max = bytes.min(UNSENT_BYTES_MAX);
    }

    /// Bytes that the session holds because they have not arrived whole, were not taken, or are unsent. A session needs
    /// some KiB in addition.
    pub fn held_bytes(&self) -> usize {
        let unsent_bytes = match self.state {
            _ if !self.has_unsent() => 0,
            State::Handshaking => HANDSHAKE_UNSENT_BYTES,
            _ => self.unsent_bytes + self.last_words.len(),
        };
        self.partial_bytes() + self.readable_bytes + unsent_bytes
    }

    /// Bytes of a record, or of a message of the handshake, that have arrived and are not complete; an upper bound.
    /// Whole records without plaintext, such as a key update, could be part of a longer message: they count until
    /// plaintext arrives.
    pub fn partial_bytes(&self) -> usize {
        self.partial_bytes.min(RECORD_BYTES_MAX + RECORD_OVERHEAD_BYTES_MAX)
    }

    /// The negotiated protocol, once the handshake is complete; `None` if the client requested none.
    pub fn alpn(&self) -> Option<Alpn> {
        self.connection.as_ref()?.alpn_protocol().and_then(Alpn::from_id)
    }

    /// Whether the client has got a certificate that is valid for `host`, a name in any letter case. `false` before the
    /// handshake is complete.
    pub fn has_certificate_for(&self, host: &[u8]) -> bool {
        self.chosen_from.certificates.are_valid_for_host(host)
    }

    /// Whether the client has sent no server name, or one without its own certificate.
    pub fn has_default_certificate(&self) -> bool {
        self.chosen_from.are_default
    }

    /// The name that the client has asked for, in lower case.
    pub fn server_name(&self) -> Option<&str> {
        self.connection.as_ref()?.server_name()
    }

    /// Whether the session resumes an earlier one, by a ticket.
    pub fn is_resumed(&self) -> bool {
        self.connection.as_ref().is_some_and(|it| it.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// The negotiated version, once the client's first message has arrived.
    pub fn version(&self) -> Option<Version> {
        self.connection.as_ref()?.protocol_version().and_then(|version| match version {
            ProtocolVersion::TLSv1_2 => Some(Version::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
            _ => None,
        })
    }

    /// Takes bytes from the network, and returns how many: all, unless more than [`RECORD_BYTES_MAX`] of plaintext wait
    /// to be taken.
    ///
    /// After an error, the unsent alert is sent, and the connection closed.
    pub fn feed(&mut self, ciphertext: &[u8]) -> Result<usize, SessionError> {
        let mut fed = 0;
        while fed < ciphertext.len() && self.readable_bytes <= RECORD_BYTES_MAX {
            fed += self.feed_some(&ciphertext[fed..])?;
        }
        Ok(fed)
    }

    /// Takes plaintext, as much as there is and fits, and returns how much.
    pub fn take(&mut self, plaintext: &mut [u8]) -> usize {
        if self.readable_bytes == 0 {
            return 0;
        }
        let taken = self.connection().reader().read(plaintext).expect("there is plaintext");
        self.readable_bytes -= taken;
        taken
    }

    /// Replaces the received bytes at the start of `buffer` with the plaintext, and returns its length.
    ///
    /// All plaintext must have been taken before ([`Session::is_readable`]). Afterwards some can be left, if the buffer
    /// is full.
    pub fn decrypt_in_place(&mut self, buffer: &mut [u8], ciphertext_bytes: usize) -> Result<usize, SessionError> {
        debug_assert!(!self.is_readable());
        let (mut fed, mut taken) = (0, 0);
        while fed < ciphertext_bytes {
            // At most one incomplete record, and the fed data, can have been decrypted. So either the plaintext fits
            // into the space of the fed data, or at most a record is left, which does not prevent feeding.
            fed += self.feed_some(&buffer[fed..ciphertext_bytes])?;
            taken += self.take(&mut buffer[taken..fed]);
        }
        taken += self.take(&mut buffer[taken..]);
        Ok(taken)
    }

    /// Writes the start of `parts`, up to [`Session::writable_bytes`], and returns how many bytes. The parts are
    /// encrypted now, and sent by [`Session::send`].
    ///
    /// A call ends a record: short parts are best written together. At most [`WRITE_PARTS_MAX`] parts.
    pub fn write(&mut self, parts: &[&[u8]], now_ms: u64) -> usize {
        let length = parts.iter().map(|part| part.len()).sum::<usize>().min(self.writable_bytes());
        if length == 0 {
            return 0;
        }
        let is_short = match self.next_record {
            NextRecord::Short => true,
            NextRecord::Long { last_write_ms } => now_ms.saturating_sub(last_write_ms) >= IDLE_MS,
        };
        self.next_record = NextRecord::Long { last_write_ms: now_ms };
        let mut written = 0;
        if is_short && length > SHORT_RECORD_BYTES {
            written = self.write_range(parts, 0, SHORT_RECORD_BYTES);
        }
        written += self.write_range(parts, written, length);
        self.unsent_bytes += written;
        written
    }

    /// Sends the unsent output with one vectored write, and returns the amount written. Errors come from `sink`.
    pub fn send(&mut self, sink: &mut dyn Write) -> io::Result<usize> {
        if !self.last_words.is_empty() {
            let sent = sink.write(&self.last_words)?;
            self.last_words.drain(..sent);
            return Ok(sent);
        }
        let Some(connection) = &mut self.connection else { return Ok(0) };
        let sent = connection.write_tls(sink)?;
        if !connection.wants_write() {
            self.unsent_bytes = 0;
        }
        Ok(sent)
    }

    /// Continues a handshake that [awaits its key](Session::awaits_key), if the key can sign now.
    pub fn try_key_again(&mut self) -> Result<(), SessionError> {
        match mem::replace(&mut self.hello, Hello::Taken) {
            Hello::AwaitsKey { bytes, was_asked_again } => self.begin(&bytes, was_asked_again).map(|_| ()),
            other => {
                self.hello = other;
                Ok(())
            }
        }
    }

    /// Says that nothing more is sent (`close_notify`), so that the client does not take the end of the connection for
    /// an attack (RFC 8446 §6.1). Nothing happens unless the session is open.
    pub fn close(&mut self) {
        if matches!(self.state, State::Open | State::ClientClosed) {
            self.connection().send_close_notify();
        }
    }

    fn connection(&mut self) -> &mut ServerConnection {
        self.connection.as_mut().expect("the ClientHello has arrived")
    }

    /// Takes the start of `ciphertext`, at least a byte, and processes the records that are complete.
    fn feed_some(&mut self, mut ciphertext: &[u8]) -> Result<usize, SessionError> {
        if self.state == State::ClientClosed {
            // Data after close_notify is ignored (RFC 8446 §6.1).
            return Ok(ciphertext.len());
        }
        let arrived = ciphertext;
        let Some(connection) = &mut self.connection else { return self.feed_hello(arrived).map(|()| arrived.len()) };
        let has_room = matches!(connection.read_tls(&mut ciphertext), Ok(1..));
        let fed = &arrived[..arrived.len() - ciphertext.len()];
        if let Hello::AskedAgain(bytes) = &mut self.hello {
            bytes.extend_from_slice(fed);
        }
        self.process(fed, has_room)?;
        Ok(fed.len())
    }

    /// Takes data that arrives before there is a connection.
    #[cold]
    #[inline(never)]
    fn feed_hello(&mut self, arrived: &[u8]) -> Result<(), SessionError> {
        let bytes = match mem::replace(&mut self.hello, Hello::Taken) {
            Hello::AwaitsKey { mut bytes, was_asked_again } => {
                bytes.extend_from_slice(arrived);
                self.partial_bytes = bytes.len();
                self.hello = Hello::AwaitsKey { bytes, was_asked_again };
                return self.check_handshake_bytes();
            }
            Hello::Arriving(bytes) if bytes.is_empty() => {
                // Usually it arrives whole, and is not copied.
                if hello::has_whole_record(arrived) && self.begin(arrived, false)? {
                    return Ok(());
                }
                arrived.to_vec()
            }
            Hello::Arriving(mut bytes) => {
                bytes.extend_from_slice(arrived);
                if hello::has_whole_record(&bytes) && self.begin(&bytes, false)? {
                    return Ok(());
                }
                bytes
            }
            // No data is fed after a failure.
            Hello::Taken | Hello::AskedAgain(_) => return Ok(()),
        };
        self.partial_bytes = bytes.len();
        self.hello = Hello::Arriving(bytes);
        self.check_handshake_bytes()
    }

    /// Begins the connection with the received data; `false` if that is not a whole ClientHello. `was_asked_again`: the
    /// answer was already sent, and is the same now.
    fn begin(&mut self, arrived: &[u8], was_asked_again: bool) -> Result<bool, SessionError> {
        let (mut connection, mut rest) = match hello::begin(&self.tls, arrived) {
            Ok(Some(begun)) => begun,
            Ok(None) => return Ok(false),
            Err(refused) if is_unavailable(&refused.error) => {
                self.await_key(arrived.to_vec(), false);
                return Ok(true);
            }
            Err(Refused { error, alert }) => {
                self.last_words = alert;
                return Err(self.fail_with_last_words(error, || hello::server_name(arrived)));
            }
        };
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX + OVERHEAD_BYTES_MAX));
        let taken = &arrived[..arrived.len() - rest.len()];
        self.hello = match connection.handshake_kind() {
            Some(HandshakeKind::FullWithHelloRetryRequest) => Hello::AskedAgain(taken.to_vec()),
            _ => Hello::Taken,
        };
        while was_asked_again && connection.wants_write() {
            connection.write_tls(&mut io::sink()).expect("a sink takes all");
        }
        self.connection = Some(connection);
        (self.partial_bytes, self.boundary) = (0, RecordBoundary::default());
        self.process(taken, true)?;
        while !rest.is_empty() {
            rest = &rest[self.feed_some(rest)?..];
        }
        Ok(true)
    }

    fn await_key(&mut self, bytes: Vec<u8>, was_asked_again: bool) {
        self.partial_bytes = bytes.len();
        self.connection = None;
        self.hello = Hello::AwaitsKey { bytes, was_asked_again };
    }

    /// Processes the input of rustls, of which `fed` is new. `has_room`: rustls has room for it.
    #[inline]
    fn process(&mut self, fed: &[u8], has_room: bool) -> Result<(), SessionError> {
        let connection = self.connection();
        let processed = connection.process_new_packets();
        let is_handshaking = connection.is_handshaking();
        let io_state = match processed {
            Ok(io_state) if has_room => io_state,
            // A message of the handshake is longer than rustls accepts.
            Ok(_) => return Err(self.fail(rustls::InvalidMessage::HandshakePayloadTooLarge.into())),
            Err(error) => return self.fail_or_await_key(error),
        };
        let has_plaintext = io_state.plaintext_bytes_to_read() > self.readable_bytes;
        self.readable_bytes = io_state.plaintext_bytes_to_read();
        let was_handshaking = self.state == State::Handshaking;
        self.state = match (io_state.peer_has_closed(), is_handshaking) {
            (false, true) => State::Handshaking,
            (false, false) => State::Open,
            (true, false) => State::ClientClosed,
            (true, true) => return Err(self.fail(rustls::Error::AlertReceived(AlertDescription::CloseNotify))),
        };
        self.boundary.advance(fed);
        let has_ended_handshake = was_handshaking && self.state != State::Handshaking;
        if has_ended_handshake {
            self.chosen_from = self.tls.certificates().find(self.server_name());
            self.hello = Hello::Taken;
        }
        self.partial_bytes = match has_plaintext || has_ended_handshake {
            true => self.boundary.partial_bytes(),
            false => self.partial_bytes + fed.len(),
        };
        self.check_handshake_bytes()
    }

    #[inline]
    fn check_handshake_bytes(&mut self) -> Result<(), SessionError> {
        if self.state == State::Handshaking && self.partial_bytes > HANDSHAKE_BYTES_MAX {
            return Err(self.fail(rustls::InvalidMessage::HandshakePayloadTooLarge.into()));
        }
        Ok(())
    }

    #[cold]
    fn fail_or_await_key(&mut self, error: rustls::Error) -> Result<(), SessionError> {
        match mem::replace(&mut self.hello, Hello::Taken) {
            Hello::AskedAgain(bytes) if is_unavailable(&error) => {
                self.await_key(bytes, true);
                Ok(())
            }
            _ => Err(self.fail(error)),
        }
    }

    fn fail(&mut self, error: rustls::Error) -> SessionError {
        self.last_words.clear();
        while let Some(connection) = self.connection.as_mut().filter(|connection| connection.wants_write()) {
            connection.write_tls(&mut self.last_words).expect("a vector takes all");
        }
        let name = self.server_name().map(str::to_owned);
        self.fail_with_last_words(error, || name)
    }

    /// `name`: the requested server name.
    fn fail_with_last_words(&mut self, error: rustls::Error, name: impl FnOnce() -> Option<String>) -> SessionError {
        self.state = State::Failed;
        self.hello = Hello::Taken;
        if self.last_words.ends_with(&ACCESS_DENIED) {
            return self.fail_without_certificate(name().as_deref());
        }
        match error {
            rustls::Error::PeerIncompatible(_) => SessionError::Incompatible(error),
            rustls::Error::NoApplicationProtocol => SessionError::NoCommonProtocol,
            rustls::Error::AlertReceived(_) => SessionError::ClientAlert(error),
            rustls::Error::InappropriateMessage { .. }
            | rustls::Error::InappropriateHandshakeMessage { .. }
            | rustls::Error::InvalidEncryptedClientHello(_)
            | rustls::Error::InvalidMessage(_)
            | rustls::Error::DecryptError
            | rustls::Error::PeerMisbehaved(_)
            | rustls::Error::PeerSentOversizedRecord => SessionError::Invalid(error),
            rustls::Error::General(_) => {
                // The key cannot sign. rustls sends no alert; nothing that the client would decrypt was sent before.
                self.last_words = ALERT_INTERNAL_ERROR.to_vec();
                SessionError::Internal(error)
            }
            _ => SessionError::Internal(error),
        }
    }

    /// rustls sends `access_denied`, in clear, only if the store gave it no certificate. RFC 6066 §3 and RFC 8446 §6.2
    /// have other alerts for the causes.
    fn fail_without_certificate(&mut self, name: Option<&str>) -> SessionError {
        let certificates = self.tls.certificates();
        let (alert, error) = if certificates.is_empty() {
            // No name is known, and the client is not to blame.
            (INTERNAL_ERROR, SessionError::Internal(rustls::Error::General("no certificate is in service".to_owned())))
        } else if !certificates.find(name).certificates.is_empty() {
            let error = rustls::PeerIncompatible::NoSignatureSchemesInCommon.into();
            (HANDSHAKE_FAILURE, SessionError::Incompatible(error))
        } else {
            (UNRECOGNIZED_NAME, SessionError::UnknownName)
        };
        *self.last_words.last_mut().expect("an alert") = alert;
        error
    }

    /// Encrypts the bytes `start..end` of `parts`; returns how many.
    fn write_range(&mut self, parts: &[&[u8]], start: usize, end: usize) -> usize {
        let mut slices = [IoSlice::new(&[]); WRITE_PARTS_MAX];
        let mut part_start = 0;
        for (slice, part) in slices.iter_mut().zip(parts) {
            let part_end = part_start + part.len();
            let (from, to) = (start.clamp(part_start, part_end), end.clamp(part_start, part_end));
            *slice = IoSlice::new(&part[from - part_start..to - part_start]);
            part_start = part_end;
        }
        let slices = &slices[..parts.len()];
        self.connection().writer().write_vectored(slices).expect("writing into memory does not fail")
    }
}
