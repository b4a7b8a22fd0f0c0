//! Signals as events of a file descriptor: the handler sets a flag and writes one byte, and does nothing else.

use crate::counters::{Syscall, count};
use crate::poll_set::PollSet;
use nix::sys::signal::SigSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use signal_hook::consts::{SIGABRT, SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// The number of a signal.
pub type Signal = i32;

/// Signals with a handler.
#[derive(Debug)]
pub struct Signals {
    pending: Vec<(Signal, Arc<AtomicBool>)>,
    pipe: OwnedFd,
}

/// Blocks all signals for this thread, its future children and the program of a later exec, until [`unblock_all`]. A
/// signal that arrives meanwhile stays pending.
pub fn block_all() -> io::Result<()> {
    set_mask(&SigSet::all())
}

/// Unblocks all signals, including those blocked before an exec.
pub fn unblock_all() -> io::Result<()> {
    set_mask(&SigSet::empty())
}

fn set_mask(signals: &SigSet) -> io::Result<()> {
    count(Syscall::RtSigprocmask);
    Ok(signals.thread_set_mask()?)
}

/// Sends `signal` to this process. While signals are blocked, it stays pending, even through an exec (execve(2)).
pub fn send_to_self(signal: Signal) -> io::Result<()> {
    count(Syscall::Kill);
    let signal = rustix::process::Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(rustix::process::getpid(), signal)?)
}

impl Signals {
    /// Installs handlers for `signals`, for the process's life.
    pub fn register(signals: &[Signal]) -> io::Result<Signals> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let mut pending = Vec::new();
        for &signal in signals {
            let flag = Arc::new(AtomicBool::new(false));
            // The flag first: a thread woken by the byte must find it set.
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
            pending.push((signal, flag));
        }
        Ok(Signals { pending, pipe: pipe.into() })
    }

    /// Waits for a signal, at most `timeout`; `None` means no limit.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        if let Some(signal) = self.take() {
            return Ok(Some(signal));
        }
        PollSet::new([self.as_fd()]).wait(timeout)?;
        Ok(self.take())
    }

    /// A signal that has arrived and was not taken yet. A signal that arrived twice meanwhile is returned once.
    pub fn take(&self) -> Option<Signal> {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.pipe, &mut bytes), Ok(64)) {}
        let arrived = self.pending.iter().find(|(_, flag)| flag.swap(false, Ordering::Relaxed));
        arrived.map(|&(signal, _)| signal)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_that_arrives_twice_is_returned_once() {
        let signals = Signals::register(&[SIGUSR1, SIGUSR2]).expect("registered");
        assert_eq!(signals.wait(Some(Duration::ZERO)).expect("no error"), None);
        signal_hook::low_level::raise(SIGUSR2).expect("raised");
        signal_hook::low_level::raise(SIGUSR2).expect("raised");
        assert_eq!(signals.wait(Some(Duration::from_secs(5))).expect("no error"), Some(SIGUSR2));
        assert_eq!(signals.wait(Some(Duration::ZERO)).expect("no error"), None);
    }

    #[test]
    fn blocked_signal_is_delivered_after_unblocking() {
        let signals = Signals::register(&[SIGCHLD]).expect("registered");
        block_all().expect("blocked");
        // The signal is sent to this thread (raise(3)), the only thread of the test that blocks it.
        signal_hook::low_level::raise(SIGCHLD).expect("raised");
        assert_eq!(signals.wait(Some(Duration::ZERO)).expect("no error"), None);
        unblock_all().expect("unblocked");
        assert_eq!(signals.wait(Some(Duration::from_secs(5))).expect("no error"), Some(SIGCHLD));
    }
}
