//! The encryption of a transport: a TLS session above its byte stream.

use super::{ByteStream, ReadState, Transport, split};
use crate::clock::Milliseconds;
use crate::limits::buffer_budget::PieceLimits;
use sanderling_os::tcp::More;
use sanderling_tls::{Alpn, RECORD_BYTES_MAX, Session, SessionError, State, UNSENT_BYTES_MAX, Version};
use std::io::{self, IoSlice, Write};

/// The amount encrypted before it is sent while buffers are scarce. Shorter records would cost more.
const SCARCE_UNSENT_BYTES_MAX: usize = 4 * 1024;

#[derive(Debug)]
pub(super) struct Layer {
    session: Session,
    now_ms: Milliseconds,
}

impl Layer {
    pub(super) fn has_unsent(&self) -> bool {
        self.session.has_unsent()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.session.held_bytes()
    }

    pub(super) fn partial_bytes(&self) -> usize {
        self.session.partial_bytes()
    }
}

impl Transport {
    /// The stream of `self`, encrypted.
    pub(crate) fn with_tls(self, session: Session) -> Transport {
        Transport { tls: Some(Box::new(Layer { session, now_ms: 0 })), ..self }
    }

    /// Whether nothing can be received or sent before [`Transport::handshake`] is complete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.state() == State::Handshaking)
    }

    /// Whether the handshake waits until its key can sign: a further call of [`Transport::handshake`] tries again.
    pub(crate) fn awaits_key(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.awaits_key())
    }

    /// The protocol that was agreed on in the handshake.
    pub(crate) fn alpn(&self) -> Option<Alpn> {
        self.tls.as_ref()?.session.alpn()
    }

    /// The name that the client has asked for in the handshake.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.tls.as_ref()?.session.server_name()
    }

    /// Whether the client has got a certificate that is valid for `host`.
    pub(crate) fn has_certificate_for(&self, host: &[u8]) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.has_certificate_for(host))
    }

    /// Whether the client has sent no server name, or one without its own certificate.
    pub(crate) fn has_default_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.has_default_certificate())
    }

    /// Whether the handshake has resumed an earlier session.
    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.is_resumed())
    }

    /// Whether the version that was agreed on is TLS 1.2.
    pub(crate) fn is_tls_1_2(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.version() == Some(Version::Tls12))
    }

    /// Takes note of the time, and of the pieces in which the connection is served.
    #[inline]
    pub(crate) fn begin(&mut self, now_ms: Milliseconds, limits: &PieceLimits) {
        if let Some(tls) = &mut self.tls {
            tls.now_ms = now_ms;
            let unsent_bytes_max = if limits.is_scarce() { SCARCE_UNSENT_BYTES_MAX } else { UNSENT_BYTES_MAX };
            tls.session.set_unsent_bytes_max(unsent_bytes_max);
        }
    }

    /// Does what can be done of the handshake; whether it is complete. `room` is used for what is received.
    ///
    /// The last messages to the client may be unsent, so that they leave with the first response.
    pub(crate) fn handshake(&mut self, room: &mut [u8]) -> io::Result<bool> {
        // The data that arrives with the last message fits into the session, which does not refuse the plaintext of a
        // record.
        let length = room.len().min(RECORD_BYTES_MAX);
        let room = &mut room[..length];
        if self.awaits_key() {
            let tried = self.session().try_key_again();
            self.checked(tried)?;
        }
        while self.is_handshaking() {
            if self.awaits_key() {
                return Ok(false);
            }
            if !self.flush_encrypted(More::No, &mut 0)? || !self.is_readable() {
                return Ok(false);
            }
            let count = self.receive_bytes(room)?;
            if self.read_state == ReadState::Ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let fed = self.session().feed(&room[..count]);
            self.checked(fed)?;
            self.note_end();
        }
        Ok(true)
    }

    /// Data after the client's `close_notify` is not received.
    #[inline]
    fn note_end(&mut self) {
        if self.session().state() == State::ClientClosed {
            self.read_state = ReadState::Ended;
        }
    }

    /// Says that nothing more is sent, if there is room for it: a client that gets no `close_notify` cannot know
    /// whether the last response is complete.
    pub(crate) fn send_close_notify(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.session.close();
            // Without room, or without a client, it is not sent.
            let _ = self.flush_encrypted(More::No, &mut 0);
        }
    }

    /// Sends what is encrypted with `close_notify` after it.
    pub(super) fn flush_with_close_notify(&mut self, progress: &mut u64) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            tls.session.close();
        }
        self.flush_encrypted(More::Yes, progress)
    }

    #[inline]
    pub(super) fn has_plaintext(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.is_readable())
    }

    /// Receives into `into`, and decrypts it there.
    #[inline(never)]
    pub(super) fn receive_encrypted(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.has_plaintext() {
            return Ok(self.session().take(into));
        }
        let (_, length) = self.receive_and_decrypt(into)?;
        Ok(length)
    }

    /// As [`Transport::receive_encrypted`]; the bytes that have arrived, of records without content too.
    pub(super) fn discard_encrypted(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.has_plaintext() {
            return Ok(self.session().take(room));
        }
        let (count, _) = self.receive_and_decrypt(room)?;
        Ok(count)
    }

    /// The lengths of the received data, and of its decrypted part.
    #[inline]
    fn receive_and_decrypt(&mut self, into: &mut [u8]) -> io::Result<(usize, usize)> {
        let count = self.receive_bytes(into)?;
        let decrypted = self.session().decrypt_in_place(into, count);
        let length = self.checked(decrypted)?;
        self.note_end();
        if length == 0 {
            // No response follows with which it could leave.
            self.flush_encrypted(More::No, &mut 0)?;
        }
        Ok((count, length))
    }

    /// Encrypts `head` and then `body`, and sends only what makes room for more.
    #[inline(never)]
    pub(super) fn send_encrypted(&mut self, head: &[u8], body: &[u8]) -> io::Result<usize> {
        let now_ms = self.tls.as_ref().map_or(0, |tls| tls.now_ms);
        let mut written = 0;
        loop {
            let (of_head, of_body) = split(written, head.len());
            written += self.session().write(&[&head[of_head..], &body[of_body..]], now_ms);
            if written == head.len() + body.len() || !self.flush_encrypted(More::No, &mut 0)? {
                return Ok(written);
            }
        }
    }

    pub(super) fn encryptable_bytes(&mut self) -> io::Result<usize> {
        if self.session().writable_bytes() == 0 {
            self.flush_encrypted(More::No, &mut 0)?;
        }
        Ok(self.session().writable_bytes())
    }

    #[inline(never)]
    pub(super) fn flush_encrypted(&mut self, more: More, progress: &mut u64) -> io::Result<bool> {
        let Transport { stream, tls: Some(tls), .. } = self else { return Ok(true) };
        while tls.session.has_unsent() {
            match tls.session.send(&mut Sink { stream, more }) {
                Ok(sent) => *progress += sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_writable = false;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends the alert after an error.
    fn checked<T>(&mut self, result: Result<T, SessionError>) -> io::Result<T> {
        result.map_err(|error| {
            // The session has failed in any case.
            let _ = self.flush_encrypted(More::No, &mut 0);
            io::Error::new(io::ErrorKind::InvalidData, error)
        })
    }

    fn session(&mut self) -> &mut Session {
        &mut self.tls.as_mut().expect("the transport is encrypted").session
    }
}

/// Writes to the stream, all slices by one call.
struct Sink<'t> {
    stream: &'t ByteStream,
    more: More,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.stream {
            ByteStream::Plain(stream) => stream.send_slices(slices, self.more),
            #[cfg(any(test, feature = "simulation"))]
            ByteStream::Memory(stream) => stream.send_slices(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
