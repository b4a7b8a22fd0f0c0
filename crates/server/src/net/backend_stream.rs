//! The byte stream to a backend, perhaps encrypted.
//!
//! Encryption is above a [`Transport`] here, not in it as for clients, so that their path has no branch for it.

use crate::net::call::CallError;
use crate::net::transport::{Transport, split};
use sanderling_http::Scheme;
use sanderling_os::poll::Readiness;
use sanderling_os::tcp::More;
use sanderling_tls::{ClientError, ClientSession};
use std::io::{self, IoSlice, Write};
use std::os::fd::BorrowedFd;

/// A byte stream to a backend.
#[derive(Debug)]
pub(crate) struct BackendStream {
    transport: Transport,
    tls: Option<Box<Layer>>,
}

#[derive(Debug)]
struct Layer {
    session: ClientSession,
    /// Bytes that were sent, with encryption.
    sent_bytes: u64,
    /// The fault of the server that has ended the session.
    error: Option<ClientError>,
}

impl BackendStream {
    /// Without encryption.
    pub(crate) fn plain(transport: Transport) -> BackendStream {
        BackendStream { transport, tls: None }
    }

    /// With encryption.
    pub(crate) fn encrypted(transport: Transport, session: ClientSession) -> BackendStream {
        BackendStream { transport, tls: Some(Box::new(Layer { session, sent_bytes: 0, error: None })) }
    }

    /// The descriptor to register with a poller; streams in memory have none.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.transport.descriptor()
    }

    /// The scheme of the requests.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// Records what the poller reports.
    pub(crate) fn set_readiness(&mut self, readiness: Readiness) {
        self.transport.set_readiness(readiness);
    }

    /// Lets the next receive ask the kernel, whatever was reported.
    pub(crate) fn assume_readable(&mut self) {
        self.transport.assume_readable();
    }

    /// Whether there may be something to receive.
    pub(crate) fn is_readable(&self) -> bool {
        self.transport.is_readable() || self.tls.as_ref().is_some_and(|tls| tls.session.is_readable())
    }

    /// Whether the backend has closed its side and all was received.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.tls {
            None => self.transport.has_ended(),
            Some(tls) => (tls.session.has_peer_closed() || self.transport.has_ended()) && !tls.session.is_readable(),
        }
    }

    /// Whether the end, which was received, is that of all content: with encryption, the backend has said so.
    pub(crate) fn is_end_certain(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.session.has_peer_closed())
    }

    /// Whether there may be room to send. Before the end of the handshake there is none.
    pub(crate) fn is_writable(&self) -> bool {
        self.transport.is_writable() && !self.is_handshaking()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.is_handshaking())
    }

    /// Does what can be done of the handshake. `room`: for received bytes; without it, only the first message is sent.
    pub(crate) fn handshake(&mut self, room: &mut [u8]) -> Result<(), CallError> {
        while self.is_handshaking() {
            let is_sent = self.flush().map_err(|error| CallError::Connect(error.kind()))?;
            if !is_sent || room.is_empty() || !self.transport.is_readable() {
                return Ok(());
            }
            // What is decrypted after the last message stays in the session.
            let count = self.transport.receive(room).map_err(|error| CallError::Connect(error.kind()))?;
            if count == 0 && self.transport.has_ended() {
                return Err(CallError::Tls(ClientError::Closed));
            }
            let Some(tls) = &mut self.tls else { return Ok(()) };
            if let Err(error) = tls.session.feed_all(&room[..count]) {
                // The alert; the session has failed in any case.
                let _ = self.flush();
                return Err(CallError::Tls(error));
            }
        }
        Ok(())
    }

    /// Receives what has arrived, up to the length of `into`. Returns 0 if nothing has, or at the end
    /// ([`BackendStream::has_ended`]).
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let BackendStream { transport, tls: Some(tls) } = self else { return self.transport.receive(into) };
        if tls.session.is_readable() {
            return Ok(tls.session.take(into));
        }
        let count = transport.receive(into)?;
        let decrypted = tls.session.decrypt_in_place(into, count);
        if let Err(error) = &decrypted {
            tls.error = Some(error.clone());
        }
        // The alert, or the reply to a change of keys.
        self.flush()?;
        decrypted.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The fault that has ended the encryption.
    pub(crate) fn take_error(&mut self) -> Option<ClientError> {
        self.tls.as_mut()?.error.take()
    }

    /// Sends as much of `head` and then of `body` as there is room for; how much of both.
    pub(crate) fn send_both(&mut self, head: &[u8], body: &[u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return if body.is_empty() {
                self.transport.send(head, More::No)
            } else {
                self.transport.send_both(head, body, More::No)
            };
        }
        let mut written = 0;
        while self.flush()? && written < head.len() + body.len() {
            let (of_head, of_body) = split(written, head.len());
            let Some(tls) = &mut self.tls else { break };
            written += tls.session.write([&head[of_head..], &body[of_body..]]);
        }
        Ok(written)
    }

    /// Sends what is encrypted; `false` if there is no room.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let BackendStream { transport, tls: Some(tls) } = self else { return Ok(true) };
        while tls.session.has_unsent() {
            if !transport.is_writable() {
                return Ok(false);
            }
            match tls.session.send(&mut Sink(transport)) {
                Ok(count) => tls.sent_bytes += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether something was encrypted that the stream has not taken.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.has_unsent())
    }

    /// Bytes that were sent, with encryption; `None` for a stream without it.
    pub(crate) fn encrypted_bytes(&self) -> Option<u64> {
        self.tls.as_ref().map(|tls| tls.sent_bytes)
    }

    /// Bytes that the backend has received since the connection began; `None` if the kernel does not know.
    pub(crate) fn acked_bytes(&self) -> Option<u64> {
        self.transport.acked_bytes()
    }

    /// Closes the sending side.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.session.close();
            self.flush()?;
        }
        self.transport.shutdown_write()
    }
}

/// Writes to the stream, all slices by one call where it has one.
struct Sink<'t>(&'t mut Transport);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_slices(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
