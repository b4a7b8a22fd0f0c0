//! Turns signals into something that can be waited for: a handler sets a flag and writes a byte, and no more.

use crate::counters::{Syscall, count};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use signal_hook::consts::{SIGABRT, SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// The number of a signal.
pub type Signal = i32;

/// Some signals, caught from now on.
#[derive(Debug)]
pub struct Signals {
    arrived: Vec<(Signal, Arc<AtomicBool>)>,
    bytes: OwnedFd,
}

/// Keeps every signal that can be kept from this thread, and from the program that takes this process's place, until
/// [`unblock_all`]. A signal that comes meanwhile is delivered then.
pub fn block_all() -> io::Result<()> {
    change_mask(true)
}

/// Lets signals in again, also those that a program before this one has held back.
pub fn unblock_all() -> io::Result<()> {
    change_mask(false)
}

/// Sends `signal` to this very process. While signals are held back it waits, also through an exec (execve(2)).
pub fn send_to_self(signal: Signal) -> io::Result<()> {
    count(Syscall::PidfdSendSignal);
    let signal = rustix::process::Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(rustix::process::getpid(), signal)?)
}

fn change_mask(is_full: bool) -> io::Result<()> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    count(Syscall::RtSigprocmask);
    // SAFETY: the set is initialised by the first call, and no old one is asked for.
    let status = unsafe {
        if is_full {
            libc::sigfillset(set.as_mut_ptr());
        } else {
            libc::sigemptyset(set.as_mut_ptr());
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut())
    };
    if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status)) }
}

impl Signals {
    /// Catches `signals` for the rest of the process's life.
    pub fn register(signals: &[Signal]) -> io::Result<Signals> {
        let (bytes, writer) = UnixStream::pair()?;
        bytes.set_nonblocking(true)?;
        let mut arrived = Vec::new();
        for &signal in signals {
            let flag = Arc::new(AtomicBool::new(false));
            // The flag first: who is woken by the byte finds it set.
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
            arrived.push((signal, flag));
        }
        Ok(Signals { arrived, bytes: bytes.into() })
    }

    /// Waits for a signal, at most `timeout`; `None` waits for ever.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        if let Some(signal) = self.take() {
            return Ok(Some(signal));
        }
        count(Syscall::Ppoll);
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).unwrap_or(LONG));
        match poll(&mut [PollFd::new(&self.bytes, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(self.take()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A signal that has arrived and was not taken yet. One that arrived twice meanwhile is told once.
    pub fn take(&self) -> Option<Signal> {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.bytes, &mut bytes), Ok(64)) {}
        let arrived = self.arrived.iter().find(|(_, flag)| flag.swap(false, Ordering::Relaxed));
        arrived.map(|&(signal, _)| signal)
    }
}

/// Longer than a process lives.
const LONG: Timespec = Timespec { tv_sec: 1 << 40, tv_nsec: 0 };

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bytes.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_signal_is_told_once() {
        let signals = Signals::register(&[SIGUSR1, SIGUSR2]).expect("caught");
        assert_eq!(signals.wait(Some(Duration::ZERO)).expect("no error"), None);
        signal_hook::low_level::raise(SIGUSR2).expect("raised");
        signal_hook::low_level::raise(SIGUSR2).expect("raised");
        assert_eq!(signals.wait(Some(Duration::from_secs(5))).expect("no error"), Some(SIGUSR2));
        assert_eq!(signals.wait(Some(Duration::ZERO)).expect("no error"), None);
    }

    #[test]
    fn a_signal_that_is_held_back_comes_later() {
        let signals = Signals::register(&[SIGCHLD]).expect("caught");
        block_all().expect("held back");
        // To this thread alone: the others of the test hold nothing back.
        // SAFETY: the thread is this one.
        unsafe { libc::pthread_kill(libc::pthread_self(), SIGCHLD) };
        assert_eq!(signals.wait(Some(Duration::ZERO)).expect("no error"), None);
        unblock_all().expect("let in");
        assert_eq!(signals.wait(Some(Duration::from_secs(5))).expect("no error"), Some(SIGCHLD));
    }
}
