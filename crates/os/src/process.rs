//! Processes that are given exactly the descriptors meant for them, and can be waited for like a source: children, and
//! the program that takes this one's place.

use crate::cloexec;
use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::listen_fds::{COUNT_VARIABLE, FIRST_FD, NAMES_VARIABLE, PID_VARIABLE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A child; or another process whose end is to be noticed ([`ProcessHandle::find`]).
#[derive(Debug)]
pub struct ProcessHandle {
    pid: i32,
    pidfd: OwnedFd,
}

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// In a way that only its parent is told, which this process is not.
    Unknown,
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Exited(status) => write!(out, "ended with status {status}"),
            ExitStatus::Signaled(signal) => write!(out, "was ended by signal {signal}"),
            ExitStatus::Unknown => write!(out, "ended, in a way that only its parent was told"),
        }
    }
}

/// Starts `program` with `arguments`, which do not name it. It gets standard input, output and error of ours, and
/// `descriptors` from 3 on under their names (`LISTEN_FDS`, `LISTEN_FDNAMES`): nothing else, since everything else is
/// closed on exec.
pub fn spawn(
    program: &Path,
    arguments: &[OsString],
    descriptors: &[(String, BorrowedFd<'_>)],
) -> io::Result<ProcessHandle> {
    let names: Vec<&str> = descriptors.iter().map(|(name, _)| name.as_str()).collect();
    let environment = environment_with(&[
        (COUNT_VARIABLE, descriptors.len().to_string()),
        (NAMES_VARIABLE, names.join(":")),
        (PID_VARIABLE, String::new()),
        // What a child would tell the service manager would be taken for this process's word.
        (crate::sd_notify::SOCKET_VARIABLE, String::new()),
        (crate::sd_notify::WATCHDOG_VARIABLE, String::new()),
    ])?;
    let words = words(program, arguments)?;
    // What this process has itself inherited from whoever started it goes no further.
    cloexec::set_from(FIRST_FD)?;
    // Copies above all targets: so no copy to a target overwrites a source that is still needed.
    let lowest_free = FIRST_FD + descriptors.len() as RawFd;
    let copies = descriptors
        .iter()
        .map(|(name, descriptor)| {
            count(Syscall::Fcntl);
            rustix::io::fcntl_dupfd_cloexec(descriptor, lowest_free)
                .map_err(|errno| with_context("fcntl(F_DUPFD_CLOEXEC)", name, &errno.into()))
        })
        .collect::<io::Result<Vec<OwnedFd>>>()?;
    let pid = posix_spawn(&words, &environment, &copies)
        .map_err(|error| with_context("posix_spawn", program.display(), &error))?;
    match pidfd_open(pid) {
        Ok(pidfd) => Ok(ProcessHandle { pid: pid.as_raw_nonzero().get(), pidfd }),
        Err(error) => {
            // Nobody could tell when it ends: rather none than one that goes on unseen.
            count(Syscall::PidfdSendSignal);
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            count(Syscall::Waitid);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(error)
        }
    }
}

/// Runs `program` in this very process, which keeps its number, its children, its ignored signals, and our environment
/// with `environment` added to it. The `kept` descriptors go along under their numbers; everything else from 3 on is
/// closed. `arguments` do not name the program.
///
/// Returns only if that failed, with the `kept` descriptors close-on-exec again.
pub fn exec(
    program: &Path,
    arguments: &[OsString],
    environment: &[(&str, String)],
    kept: &[BorrowedFd<'_>],
) -> io::Error {
    let error = match try_exec(program, arguments, environment, kept) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    for descriptor in kept {
        if let Err(second) = cloexec::set(descriptor, &numbered(descriptor)) {
            return io::Error::new(error.kind(), format!("{error}; and after it, {second}"));
        }
    }
    error
}

fn try_exec(
    program: &Path,
    arguments: &[OsString],
    environment: &[(&str, String)],
    kept: &[BorrowedFd<'_>],
) -> io::Result<Infallible> {
    let environment = environment_with(environment)?;
    let words = words(program, arguments)?;
    cloexec::set_from(FIRST_FD)?;
    for descriptor in kept {
        cloexec::clear(descriptor, &numbered(descriptor))?;
    }
    Err(with_context("execve", program.display(), &execve(&words, &environment)))
}

fn numbered(descriptor: &BorrowedFd<'_>) -> String {
    format!("descriptor {}", descriptor.as_raw_fd())
}

/// Returns only if it failed.
fn execve(words: &[CString], environment: &[CString]) -> io::Error {
    let (arguments, environment) = (pointers(words), pointers(environment));
    count(Syscall::Execve);
    // SAFETY: both lists are null-terminated, and their strings outlive the call.
    unsafe { libc::execve(words[0].as_ptr(), arguments.as_ptr().cast(), environment.as_ptr().cast()) };
    io::Error::last_os_error()
}

/// Our environment, with what `changes` sets or sets anew.
fn environment_with(changes: &[(&str, String)]) -> io::Result<Vec<CString>> {
    let ours = std::env::vars_os().filter(|(key, _)| !changes.iter().any(|(changed, _)| key == changed));
    let ours = ours.map(|(key, value)| assignment(&key, &value));
    ours.chain(changes.iter().map(|(key, value)| assignment(OsStr::new(key), OsStr::new(value)))).collect()
}

/// The program's name, and its arguments behind it.
fn words(program: &Path, arguments: &[OsString]) -> io::Result<Vec<CString>> {
    std::iter::once(program.as_os_str()).chain(arguments.iter().map(OsString::as_os_str)).map(c_string).collect()
}

/// For the kernel: ended by a null. Valid as long as `strings` are.
fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|string| string.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
}

fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    count(Syscall::PidfdOpen);
    rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)
        .map_err(|errno| with_context("pidfd_open", pid.as_raw_nonzero(), &errno.into()))
}

fn posix_spawn(words: &[CString], environment: &[CString], copies: &[OwnedFd]) -> io::Result<Pid> {
    let (arguments, environment) = (pointers(words), pointers(environment));
    let mut actions = std::mem::MaybeUninit::uninit();
    let mut pid = 0;
    count(Syscall::Clone);
    // SAFETY: `actions` is initialised by its own function before it is used and destroyed after; the lists are
    // null-terminated and their strings outlive the call; the copies are open and have no target's number.
    let status = unsafe {
        let mut status = libc::posix_spawn_file_actions_init(actions.as_mut_ptr());
        for (index, copy) in copies.iter().enumerate() {
            if status == 0 {
                let target = FIRST_FD + index as RawFd;
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

/// The number of the user whose rights this process has; 0 is root.
pub fn effective_uid() -> u32 {
    count(Syscall::Geteuid);
    rustix::process::geteuid().as_raw()
}

/// A descriptor of this very process, by which another one that is given it notices its end.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    pidfd_open(rustix::process::getpid())
}

impl ProcessHandle {
    /// Takes over a child that the program before this one has started in this process ([`replace`]): `pidfd` is the
    /// descriptor that it kept of the process number `pid`.
    pub fn from_pidfd(pid: i32, pidfd: OwnedFd) -> ProcessHandle {
        ProcessHandle { pid, pidfd }
    }

    /// The process number `pid`, which need not be our child. Who it is must be known otherwise: numbers are used again.
    pub fn open(pid: i32) -> io::Result<ProcessHandle> {
        let number = Pid::from_raw(pid.max(0))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("no process has the number {pid}")))?;
        Ok(ProcessHandle { pid, pidfd: pidfd_open(number)? })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// How it has ended, if it has; to be asked when its descriptor is readable. A child's end is told once.
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        count(Syscall::Waitid);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(status) => Ok(status.map(|status| match status.exit_status() {
                Some(code) => ExitStatus::Exited(code),
                None => ExitStatus::Signaled(status.terminating_signal().unwrap_or(0)),
            })),
            // Not our child, or told already: all that can be known is whether it still runs.
            Err(Errno::CHILD) => Ok(self.is_over()?.then_some(ExitStatus::Unknown)),
            Err(errno) => Err(errno.into()),
        }
    }

    fn is_over(&self) -> io::Result<bool> {
        count(Syscall::Ppoll);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready_count = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&now))?;
        Ok(ready_count > 0)
    }

    /// Sends it a signal, which never reaches another process that has got its number meanwhile.
    pub fn send_signal(&self, signal: crate::signals::Signal) -> io::Result<()> {
        count(Syscall::PidfdSendSignal);
        let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
    }
}

/// Readable when the child has ended.
impl AsFd for ProcessHandle {
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
    use crate::cloexec::tests::alone;
    use crate::poll_set::PollSet;
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn a_child_sees_only_the_descriptors_that_are_meant_for_it() {
        let _alone = alone();
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
        PollSet::new([child.as_fd()]).wait(Some(Duration::from_secs(10))).expect("waited");
        assert_eq!(child.try_wait().expect("asked"), Some(ExitStatus::Exited(0)));
    }

    #[test]
    fn how_a_child_ended_is_told() {
        let _alone = alone();
        let child = spawn(Path::new("/bin/sh"), &["-c".into(), "read line; exit 7".into()], &[]).expect("started");
        child.send_signal(crate::signals::SIGTERM).expect("sent");
        PollSet::new([child.as_fd()]).wait(Some(Duration::from_secs(10))).expect("waited");
        let ended = child.try_wait().expect("asked").expect("ended");
        assert!(matches!(ended, ExitStatus::Signaled(15) | ExitStatus::Exited(7)), "{ended}");
        let error = spawn(Path::new("/nonexistent/program"), &[], &[]).expect_err("not there");
        assert!(error.to_string().contains("posix_spawn(\"/nonexistent/program\")"), "{error}");
    }

    #[test]
    fn the_end_of_a_process_that_is_no_child_is_noticed() {
        let _alone = alone();
        // The shell tells the number of a child of its own, which ends when its input does.
        let (mut reader, writer) = UnixStream::pair().expect("made");
        let (input, hold) = std::io::pipe().expect("made");
        let script = "{ read line <&4; } & echo $! >&3; exec 4<&-; wait; exit 3";
        let descriptors = [("out".to_owned(), writer.as_fd()), ("hold".to_owned(), input.as_fd())];
        let parent = spawn(Path::new("/bin/sh"), &["-c".into(), script.into()], &descriptors).expect("started");
        drop(writer);
        let mut line = [0; 16];
        let length = reader.read(&mut line).expect("told");
        let number = std::str::from_utf8(&line[..length]).expect("a number").trim().parse().expect("a number");
        let found = ProcessHandle::open(number).expect("runs");
        assert_eq!(found.pid(), number);
        assert_eq!(found.try_wait().expect("asked"), None);
        drop((hold, input));
        PollSet::new([found.as_fd()]).wait(Some(Duration::from_secs(10))).expect("waited");
        assert_eq!(found.try_wait().expect("asked"), Some(ExitStatus::Unknown));
        PollSet::new([parent.as_fd()]).wait(Some(Duration::from_secs(10))).expect("waited");
        assert_eq!(parent.try_wait().expect("asked"), Some(ExitStatus::Exited(3)));
        assert_eq!(parent.try_wait().expect("asked"), Some(ExitStatus::Unknown), "told already");
    }

    #[test]
    fn a_number_that_no_process_has_is_refused() {
        for number in [0, -1] {
            assert_eq!(ProcessHandle::open(number).expect_err("no process").kind(), io::ErrorKind::InvalidInput);
        }
        let error = ProcessHandle::open(i32::MAX).expect_err("no process");
        assert!(error.to_string().starts_with("pidfd_open(\"2147483647\") failed"), "{error}");
    }

    /// Set in the processes below, which are this test program again: what it is to play.
    const ROLE: &str = "SANDERLING_TEST_ROLE";

    /// What the test `name` writes when it runs by itself with this role, and the number of its process.
    fn play(name: &str, role: &str) -> (String, u32) {
        let mut command = std::process::Command::new(std::env::current_exe().expect("known"));
        command.args(["--exact", "--nocapture", name]).env(ROLE, role).env("STAYS", "as it was");
        command.env("CHANGES", "old").stdout(std::process::Stdio::piped());
        let mut process = command.spawn().expect("started");
        let mut written = String::new();
        process.stdout.take().expect("piped").read_to_string(&mut written).expect("read");
        let status = process.wait().expect("ended");
        assert!(status.success(), "{status}: {written}");
        (written, process.id())
    }

    #[test]
    fn the_program_that_takes_our_place_gets_our_number_our_environment_and_the_kept_descriptors() {
        let name = "process::tests::\
                    the_program_that_takes_our_place_gets_our_number_our_environment_and_the_kept_descriptors";
        if std::env::var_os(ROLE).is_some() {
            let kept = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("made");
            let _not_kept = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("made");
            let kept_number = kept.as_raw_fd();
            let script = format!(
                "echo; echo found $$ $STAYS, $CHANGES, $ADDED, $1; \
                 for fd in /proc/$$/fd/*; do case $(readlink $fd) in *eventfd*) echo event ${{fd##*/}} {kept_number};; \
                 esac; done"
            );
            let arguments = ["-c".into(), script.into(), "sh".into(), "an argument".into()];
            let environment = [("CHANGES", "new".to_owned()), ("ADDED", "more".to_owned())];
            panic!("{}", exec(Path::new("/bin/sh"), &arguments, &environment, &[kept.as_fd()]));
        }
        let (written, number) = play(name, "exec");
        assert!(written.contains(&format!("\nfound {number} as it was, new, more, an argument\n")), "{written}");
        let events: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix("event ")).collect();
        let [event] = events[..] else { panic!("one eventfd was kept: {written}") };
        let (found, kept) = event.split_once(' ').expect("two numbers");
        assert_eq!(found, kept);
    }

    #[test]
    fn children_outlive_the_program_that_started_them() {
        let name = "process::tests::children_outlive_the_program_that_started_them";
        match std::env::var(ROLE).as_deref() {
            Ok("first") => {
                let child = spawn(Path::new("/bin/sh"), &["-c".into(), "exit 5".into()], &[]).expect("started");
                let arguments = ["--exact".into(), "--nocapture".into(), name.into()];
                let environment = [
                    (ROLE, "second".to_owned()),
                    ("CHILD", child.pid().to_string()),
                    ("PIDFD", child.as_fd().as_raw_fd().to_string()),
                ];
                let program = std::env::current_exe().expect("known");
                panic!("{}", exec(&program, &arguments, &environment, &[child.as_fd()]));
            }
            Ok(_) => {
                let number = |name| std::env::var(name).expect("given").parse::<i32>().expect("a number");
                // SAFETY: the program before this one has left the descriptor open for this one, which opens it nowhere
                // else.
                let pidfd = unsafe { OwnedFd::from_raw_fd(number("PIDFD")) };
                let child = ProcessHandle::from_pidfd(number("CHILD"), pidfd);
                PollSet::new([child.as_fd()]).wait(Some(Duration::from_secs(10))).expect("waited");
                println!("\nthe child {}", child.try_wait().expect("asked").expect("over"));
            }
            Err(_) => {
                let (written, _) = play(name, "first");
                assert!(written.contains("\nthe child ended with status 5\n"), "{written}");
            }
        }
    }

    #[test]
    fn a_program_that_cannot_be_run_leaves_us_as_we_were() {
        let _alone = alone();
        let kept = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("made");
        let error = exec(Path::new("/nonexistent/program"), &[], &[], &[kept.as_fd()]);
        assert!(error.to_string().starts_with("execve(\"/nonexistent/program\") failed: No such file"), "{error}");
        assert!(rustix::io::fcntl_getfd(&kept).expect("open").contains(rustix::io::FdFlags::CLOEXEC));
        let error = exec(Path::new("/bin/sh"), &["a\0b".into()], &[], &[kept.as_fd()]);
        assert_eq!(error.to_string(), "a NUL in an argument");
    }
}
