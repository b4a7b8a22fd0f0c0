//! A connection to a program that reads dnstap: the handshake of Frame Streams, and its end.
//!
//! Used by the thread that writes the messages, which may wait. The socket does not block, so that the thread can give
//! up.

use sanderling_log_format::frame_streams::{is_accepted, ready, start, stop};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Pause before a full target is retried, if it does not block.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Time for the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the longest answer, and of data that may follow it in one call.
const ANSWER_BYTES_MAX: usize = 1_024;

/// A connection to a program that reads dnstap.
#[derive(Debug)]
pub struct FrameStream {
    /// A socket is read and written as a file is.
    socket: File,
    /// Whether frames may be written: after the handshake, and before an error.
    is_open: bool,
}

impl FrameStream {
    /// The connection `socket`, which does not block, before its handshake.
    pub fn new(socket: OwnedFd) -> FrameStream {
        FrameStream { socket: File::from(socket), is_open: false }
    }

    /// Does the handshake. `is_over` says that the reader is not waited for any longer.
    pub(crate) fn begin(&mut self, is_over: &impl Fn() -> bool) -> io::Result<()> {
        let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        let is_over = || is_over() || Instant::now() >= deadline;
        self.send(&ready(), &is_over)?;
        let (mut answer, mut answer_bytes) = ([0; ANSWER_BYTES_MAX], 0);
        while is_accepted(&answer[..answer_bytes]).map_err(io::Error::other)?.is_none() {
            match self.socket.read(&mut answer[answer_bytes..]) {
                Ok(0) => return Err(io::Error::other("the reader has closed the connection in the handshake")),
                Ok(count) => answer_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_over() => thread::sleep(RETRY_PAUSE),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("the reader has not answered the handshake of Frame Streams"));
                }
                Err(error) => return Err(error),
            }
        }
        self.send(&start(), &is_over)?;
        self.is_open = true;
        Ok(())
    }

    fn send(&mut self, frame: &[u8], is_over: &impl Fn() -> bool) -> io::Result<()> {
        write_all(frame, |rest| self.socket.write(rest), is_over).map_err(|(_, error)| error)
    }

    /// Writes a part of `frames`.
    pub(crate) fn write(&mut self, frames: &[u8]) -> io::Result<usize> {
        self.socket.write(frames)
    }

    /// No frame follows, not even the last one: part of another one may have been written.
    pub(crate) fn abort(&mut self) {
        self.is_open = false;
    }
}

/// The reader learns that nothing was truncated. It is not waited for.
impl Drop for FrameStream {
    fn drop(&mut self) {
        if self.is_open {
            let _ = self.socket.write(&stop());
        }
    }
}

/// Writes `bytes`; an error comes with the number of those that were written before it.
pub(crate) fn write_all(
    bytes: &[u8],
    mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    is_over: &impl Fn() -> bool,
) -> Result<(), (usize, io::Error)> {
    let mut written_bytes = 0;
    while written_bytes < bytes.len() {
        match write(&bytes[written_bytes..]) {
            Ok(0) => return Err((written_bytes, io::ErrorKind::WriteZero.into())),
            Ok(count) => written_bytes += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another program has made a pipe that it shares non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_over() => thread::sleep(RETRY_PAUSE),
            Err(error) => return Err((written_bytes, error)),
        }
    }
    Ok(())
}
