//! A child process that is given exactly the descriptors meant for it, and can be waited for like a source.

use crate::cloexec;
use crate::counters::{Call, count};
use crate::failure::named;
use crate::inherit::{COUNT_VARIABLE, FIRST, NAMES_VARIABLE};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A child.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Exited(status) => write!(out, "ended with status {status}"),
            Ended::Killed(signal) => write!(out, "was ended by signal {signal}"),
        }
    }
}

/// Starts `program` with `arguments`, which do not name it. It gets standard input, output and error of ours, and
/// `descriptors` from 3 on under their names (`LISTEN_FDS`, `LISTEN_FDNAMES`): nothing else, since everything else is
/// closed on exec.
pub fn spawn(program: &Path, arguments: &[OsString], descriptors: &[(String, BorrowedFd<'_>)]) -> io::Result<Child> {
    let names: Vec<&str> = descriptors.iter().map(|(name, _)| name.as_str()).collect();
    let mut environment: Vec<CString> = std::env::vars_os()
        .filter(|(key, _)| key != COUNT_VARIABLE && key != NAMES_VARIABLE)
        .map(|(key, value)| assignment(&key, &value))
        .collect::<io::Result<_>>()?;
    environment.push(assignment(OsStr::new(COUNT_VARIABLE), OsStr::new(&descriptors.len().to_string()))?);
    environment.push(assignment(OsStr::new(NAMES_VARIABLE), OsStr::new(&names.join(":")))?);
    let mut words = vec![c_string(program.as_os_str())?];
    for argument in arguments {
        words.push(c_string(argument)?);
    }
    // What this process has itself inherited from whoever started it goes no further.
    cloexec::set_from(FIRST)?;
    // Copies above all targets: so no copy to a target overwrites a source that is still needed.
    let lowest_free = FIRST + descriptors.len() as RawFd;
    let copies = descriptors
        .iter()
        .map(|(_, descriptor)| {
            count(Call::Fcntl);
            rustix::io::fcntl_dupfd_cloexec(descriptor, lowest_free).map_err(io::Error::from)
        })
        .collect::<io::Result<Vec<OwnedFd>>>()?;
    let pid =
        posix_spawn(&words, &environment, &copies).map_err(|error| named("posix_spawn", program.display(), &error))?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?;
    Ok(Child { pid, pidfd })
}

fn posix_spawn(words: &[CString], environment: &[CString], copies: &[OwnedFd]) -> io::Result<Pid> {
    let pointers = |strings: &[CString]| -> Vec<*mut libc::c_char> {
        strings.iter().map(|string| string.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
    };
    let (arguments, environment) = (pointers(words), pointers(environment));
    let mut actions = std::mem::MaybeUninit::uninit();
    let mut pid = 0;
    count(Call::Spawn);
    // SAFETY: `actions` is initialised by its own function before it is used and destroyed after; the lists are
    // null-terminated and their strings outlive the call; the copies are open and have no target's number.
    let status = unsafe {
        let mut status = libc::posix_spawn_file_actions_init(actions.as_mut_ptr());
        for (index, copy) in copies.iter().enumerate() {
            if status == 0 {
                let target = FIRST + index as RawFd;
                status = libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), copy.as_raw_fd(), target);
            }
        }
        if status == 0 {
            status = libc::posix_spawn(
                &raw mut pid,
                words[0].as_ptr(),
                actions.as_ptr(),
                std::ptr::null(),
                arguments.as_ptr(),
                environment.as_ptr(),
            );
        }
        libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
        status
    };
    match status {
        0 => Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process has the number 0")),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl Child {
    /// Its number.
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// How it has ended, if it has; to be asked when its descriptor is readable.
    pub fn ended(&self) -> io::Result<Option<Ended>> {
        count(Call::Wait);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options)?;
        Ok(status.map(|status| match status.exit_status() {
            Some(code) => Ended::Exited(code),
            None => Ended::Killed(status.terminating_signal().unwrap_or(0)),
        }))
    }

    /// Sends it a signal, which never reaches another process that has got its number meanwhile.
    pub fn signal(&self, signal: crate::signals::Signal) -> io::Result<()> {
        count(Call::Kill);
        let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
    }
}

/// Readable when the child has ended.
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL in an argument"))
}

fn assignment(key: &OsStr, value: &OsStr) -> io::Result<CString> {
    let mut words = key.to_owned();
    words.push("=");
    words.push(value);
    c_string(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::Waiting;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn a_child_sees_only_the_descriptors_that_are_meant_for_it() {
        let (mut reader, writer) = UnixStream::pair().expect("made");
        let meant = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("made");
        let _not_meant = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("made");
        // The shell itself writes what it sees: its own descriptors, one a line, and the names.
        let script = "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done >&3; echo $LISTEN_FDS $LISTEN_FDNAMES >&3";
        let descriptors = [("out".to_owned(), writer.as_fd()), ("meant".to_owned(), meant.as_fd())];
        let child = spawn(Path::new("/bin/sh"), &["-c".into(), script.into()], &descriptors).expect("started");
        drop(writer);
        let mut seen = String::new();
        reader.read_to_string(&mut seen).expect("read");
        let mut lines: Vec<&str> = seen.lines().collect();
        assert_eq!(lines.pop(), Some("2 out:meant"));
        let mut numbers: Vec<i32> = lines.iter().map(|line| line.parse().expect("a number")).collect();
        numbers.sort_unstable();
        // The shell keeps its own output aside at 10, and has the folder open that it lists.
        numbers.retain(|number| *number != 10);
        assert!(numbers == [0, 1, 2, 3, 4] || numbers == [0, 1, 2, 3, 4, 5], "{numbers:?}");
        Waiting::for_any_of([child.as_fd()]).wait(Some(Duration::from_secs(10))).expect("waited");
        assert_eq!(child.ended().expect("asked"), Some(Ended::Exited(0)));
    }

    #[test]
    fn how_a_child_ended_is_told() {
        let child = spawn(Path::new("/bin/sh"), &["-c".into(), "read line; exit 7".into()], &[]).expect("started");
        child.signal(crate::signals::SIGTERM).expect("sent");
        Waiting::for_any_of([child.as_fd()]).wait(Some(Duration::from_secs(10))).expect("waited");
        let ended = child.ended().expect("asked").expect("ended");
        assert!(matches!(ended, Ended::Killed(15) | Ended::Exited(7)), "{ended}");
        let error = spawn(Path::new("/nonexistent/program"), &[], &[]).expect_err("not there");
        assert!(error.to_string().contains("posix_spawn(\"/nonexistent/program\")"), "{error}");
    }
}
