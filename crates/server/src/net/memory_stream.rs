//! A byte stream in memory, whose other end is a test: it decides what arrives, and how much may be sent.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One connection's two ends. A clone is the same stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStream(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    arrived: VecDeque<u8>,
    has_client_closed: bool,
    sent: Vec<u8>,
    acked_bytes: u64,
    window_bytes: usize,
    has_shut_down: bool,
    is_reset: bool,
    is_broken: bool,
}

/// How the server has ended its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Not yet.
    Open,
    /// In an orderly way: the client reads all that was sent.
    ShutDown,
    /// By a reset.
    Reset,
}

impl MemoryStream {
    /// The server's side: the data from the client.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.is_broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if state.arrived.is_empty() && !state.has_client_closed {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = into.len().min(state.arrived.len());
        for (byte, arrived) in into.iter_mut().zip(state.arrived.drain(..count)) {
            *byte = arrived;
        }
        Ok(count)
    }

    /// The server's side: the arrived data, without taking it.
    pub(crate) fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let state = self.lock();
        if state.arrived.is_empty() && !state.has_client_closed {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = into.len().min(state.arrived.len());
        into.iter_mut().zip(&state.arrived).for_each(|(byte, arrived)| *byte = *arrived);
        Ok(count)
    }

    /// The server's side: takes as much of `bytes` as the window allows.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if state.is_broken || state.has_shut_down {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.window_bytes == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(state.window_bytes);
        state.window_bytes -= count;
        state.sent.extend_from_slice(&bytes[..count]);
        state.acked_bytes += count as u64;
        Ok(count)
    }

    /// The server's side: takes as much of `slices` as the window allows.
    pub(crate) fn send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.send(slice) {
                Ok(count) => sent += count,
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Bytes that the client has received: all that were sent.
    pub(crate) fn acked_bytes(&self) -> u64 {
        self.lock().acked_bytes
    }

    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        self.lock().has_shut_down = true;
        Ok(())
    }

    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        self.lock().is_reset = true;
        Ok(())
    }

    /// The client sends `bytes`.
    pub(crate) fn arrive(&self, bytes: &[u8]) {
        self.lock().arrived.extend(bytes);
    }

    /// Bytes that the server has not received.
    pub(crate) fn unreceived_bytes(&self) -> usize {
        self.lock().arrived.len()
    }

    /// The client closes its sending side.
    pub(crate) fn close_client_side(&self) {
        self.lock().has_client_closed = true;
    }

    /// The connection breaks: every further call fails.
    pub(crate) fn break_off(&self) {
        self.lock().is_broken = true;
    }

    /// Lets the server send `bytes` more.
    pub(crate) fn open_window(&self, bytes: usize) {
        let mut state = self.lock();
        state.window_bytes = state.window_bytes.saturating_add(bytes);
    }

    /// Lets the server send `bytes`, and no more.
    pub(crate) fn set_window(&self, bytes: usize) {
        self.lock().window_bytes = bytes;
    }

    /// Takes the data from the server.
    pub(crate) fn take_sent(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().sent)
    }

    /// How the server has ended its side.
    pub(crate) fn ending(&self) -> Ending {
        let state = self.lock();
        match (state.is_reset, state.has_shut_down) {
            (true, _) => Ending::Reset,
            (false, true) => Ending::ShutDown,
            (false, false) => Ending::Open,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
