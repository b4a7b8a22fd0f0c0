//! Child processes and exec, each with exactly the file descriptors meant for it; process descriptors (pidfd_open(2)).

use crate::cloexec;
use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::fallback::FORCE_VARIABLE;
use crate::listen_fds::{COUNT_VARIABLE, FIRST_FD, NAMES_VARIABLE};
use crate::poll_set::PollSet;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::wait::{Id, WaitPidFlag};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::convert::Infallible;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A child, or another process whose end can be waited for ([`ProcessHandle::open`]).
#[derive(Debug)]
pub struct ProcessHandle {
    pid: i32,
    pidfd: OwnedFd,
}

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The process exited with this status.
    Exited(i32),
    /// This signal killed it.
    Signaled(i32),
    /// Only the parent knows the status, and this process is not the parent.
    Unknown,
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Exited(status) => write!(out, "exited with status {status}"),
            ExitStatus::Signaled(signal) => write!(out, "was killed by signal {signal}"),
            ExitStatus::Unknown => write!(out, "ended with unknown status"),
        }
    }
}

/// The variables of our environment that a child inherits: those that it reads. Other variables may contain secrets, or
/// change the behaviour of its libraries.
const INHERITED_VARIABLES: [&str; 6] =
    [FORCE_VARIABLE, "JOURNAL_STREAM", "NO_COLOR", "RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "TERM"];

/// Starts `program` with `name`, which `ps` shows, and `arguments` after it. The child inherits the standard streams, a
/// few variables, and `descriptors` from 3 on under their names (`LISTEN_FDS`, `LISTEN_FDNAMES`); all others are closed
/// on exec.
pub fn spawn(
    program: &Path,
    name: &str,
    arguments: &[OsString],
    descriptors: &[(String, BorrowedFd<'_>)],
) -> io::Result<ProcessHandle> {
    let names: Vec<&str> = descriptors.iter().map(|(name, _)| name.as_str()).collect();
    let changes = [(COUNT_VARIABLE, descriptors.len().to_string()), (NAMES_VARIABLE, names.join(":"))];
    let environment = environment_with(&changes, |name| INHERITED_VARIABLES.iter().any(|kept| name == *kept))?;
    let path = c_string(&[program.as_os_str()])?;
    let command = command_line(name.as_ref(), arguments)?;
    // Descriptors that this process inherited itself are not for its children.
    cloexec::set_from(FIRST_FD)?;
    // The copies are above all target numbers, so that no dup2 overwrites a source that is still needed.
    let lowest_free = FIRST_FD + descriptors.len() as RawFd;
    let mut copies = Vec::new();
    let mut actions = PosixSpawnFileActions::init()?;
    for ((name, descriptor), target) in descriptors.iter().zip(FIRST_FD..) {
        count(Syscall::Fcntl);
        let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, lowest_free)
            .map_err(|errno| with_context("fcntl(F_DUPFD_CLOEXEC)", name, &errno.into()))?;
        actions.add_dup2(copy.as_raw_fd(), target)?;
        copies.push(copy);
    }
    count(Syscall::Clone);
    let pid = posix_spawn(path.as_c_str(), &actions, &PosixSpawnAttr::init()?, &command, &environment)
        .map_err(|errno| with_context("posix_spawn", program.display(), &errno.into()))?;
    let pid = Pid::from_raw(pid.as_raw()).expect("the process ID of a child is positive");
    match pidfd_open(pid) {
        Ok(pidfd) => Ok(ProcessHandle { pid: pid.as_raw_pid(), pidfd }),
        Err(error) => {
            // Without a pidfd its end would go unnoticed.
            count(Syscall::Kill);
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            count(Syscall::Waitid);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(error)
        }
    }
}

/// Replaces this program by `program` (execve(2)), with `arguments` (without the program's name) and our environment
/// changed by `environment`. The process ID, children and ignored signals stay; so do the `kept` descriptors under
/// their numbers, while all others from 3 on are closed.
///
/// Returns only on failure, with the `kept` descriptors close-on-exec again.
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
        if let Err(second) = cloexec::set(descriptor, &description(descriptor)) {
            return io::Error::new(error.kind(), format!("{error}; then {second}"));
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
    let environment = environment_with(environment, |_| true)?;
    let command = command_line(program.as_os_str(), arguments)?;
    cloexec::set_from(FIRST_FD)?;
    for descriptor in kept {
        cloexec::clear(descriptor, &description(descriptor))?;
    }
    count(Syscall::Execve);
    nix::unistd::execve(&command[0], &command, &environment)
        .map_err(|errno| with_context("execve", program.display(), &errno.into()))
}

fn description(descriptor: &BorrowedFd<'_>) -> String {
    format!("descriptor {}", descriptor.as_raw_fd())
}

/// The variables of our environment that pass `is_kept`, with `changes` added or replaced.
fn environment_with(changes: &[(&str, String)], is_kept: impl Fn(&OsStr) -> bool) -> io::Result<Vec<CString>> {
    let ours =
        std::env::vars_os().filter(|(key, _)| is_kept(key) && !changes.iter().any(|(changed, _)| key == changed));
    let changes = changes.iter().map(|(key, value)| (OsString::from(key), OsString::from(value)));
    let assignment = |(key, value): (OsString, OsString)| c_string(&[&key, OsStr::new("="), &value]);
    ours.chain(changes).map(assignment).collect()
}

/// The program's name, then its arguments.
fn command_line(name: &OsStr, arguments: &[OsString]) -> io::Result<Vec<CString>> {
    std::iter::once(name).chain(arguments.iter().map(OsString::as_os_str)).map(|word| c_string(&[word])).collect()
}

fn c_string(parts: &[&OsStr]) -> io::Result<CString> {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.as_bytes()).copied().collect();
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an argument contains a NUL"))
}

fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    count(Syscall::PidfdOpen);
    rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)
        .map_err(|errno| with_context("pidfd_open", pid.as_raw_pid(), &errno.into()))
}

/// This process's effective user ID; 0 is root.
pub fn effective_uid() -> u32 {
    count(Syscall::Geteuid);
    rustix::process::geteuid().as_raw()
}

/// A child that has ended and that nothing has waited for, or that another process has left to this one, which is
/// process 1 (pid_namespaces(7)). It stays what it is.
pub fn ended_child() -> io::Result<Option<i32>> {
    count(Syscall::Waitid);
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match nix::sys::wait::waitid(Id::All, flags) {
        Ok(status) => Ok(status.pid().map(nix::unistd::Pid::as_raw)),
        Err(nix::errno::Errno::ECHILD) => Ok(None),
        Err(errno) => Err(with_context("waitid", "P_ALL", &errno.into())),
    }
}

/// Waits for the child `pid`, which has ended.
pub fn forget_child(pid: i32) -> io::Result<()> {
    count(Syscall::Waitid);
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    let waited = nix::sys::wait::waitid(Id::Pid(nix::unistd::Pid::from_raw(pid)), flags);
    waited.map(drop).map_err(|errno| with_context("waitid", pid, &errno.into()))
}

/// A pidfd of this process, by which a process that receives it notices our end.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    pidfd_open(rustix::process::getpid())
}

/// Sets the name that `ps` and `pgrep -x` show for this process, at most 15 bytes (prctl(2), PR_SET_NAME). Call this
/// from the main thread, which gives the process its name; threads created later without a name inherit it. The name of
/// a program started through `/proc/self/exe` is `exe` otherwise.
pub fn set_name(name: &CStr) -> io::Result<()> {
    rustix::thread::set_name(name).map_err(|errno| with_context("prctl", "PR_SET_NAME", &errno.into()))
}

/// The lowest priority: the thread runs only when no other thread wants to.
pub const NICE_MAX: i32 = 19;

/// Gives the calling thread this nice value, which is higher than the previous one.
pub fn lower_thread_priority(nice: i32) -> io::Result<()> {
    count(Syscall::Setpriority);
    // In Linux this call accepts a thread for a process, and 0 is the calling thread.
    rustix::process::setpriority_process(None, nice).map_err(|errno| with_context("setpriority", nice, &errno.into()))
}

/// Kills the process group of the child `pid`, which leads it and has not been waited for.
pub fn kill_group(pid: i32) -> io::Result<()> {
    let pid = Pid::from_raw(pid.max(0)).ok_or(io::ErrorKind::InvalidInput)?;
    count(Syscall::Kill);
    rustix::process::kill_process_group(pid, Signal::KILL)
        .map_err(|errno| with_context("kill", pid.as_raw_nonzero(), &errno.into()))
}

impl ProcessHandle {
    /// A child that the program before an [`exec`] started: `pidfd` is the descriptor it kept of the process `pid`.
    pub fn from_pidfd(pid: i32, pidfd: OwnedFd) -> ProcessHandle {
        ProcessHandle { pid, pidfd }
    }

    /// Opens the process `pid`, which need not be a child. The caller must know by other means that the ID has not been
    /// reused.
    pub fn open(pid: i32) -> io::Result<ProcessHandle> {
        let id = Pid::from_raw(pid.max(0))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{pid} is not a process ID")))?;
        Ok(ProcessHandle { pid, pidfd: pidfd_open(id)? })
    }

    /// The process ID.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The exit status if the process has ended, which makes its descriptor readable. A child's exit status is returned
    /// once.
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        count(Syscall::Waitid);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(status) => Ok(status.map(|status| match status.exit_status() {
                Some(code) => ExitStatus::Exited(code),
                None => ExitStatus::Signaled(status.terminating_signal().unwrap_or(0)),
            })),
            // Not our child, or waited for already.
            Err(Errno::CHILD) => Ok(self.has_ended()?.then_some(ExitStatus::Unknown)),
            Err(errno) => Err(errno.into()),
        }
    }

    fn has_ended(&self) -> io::Result<bool> {
        let mut poll_set = PollSet::new([self.as_fd()]);
        poll_set.wait(Some(Duration::ZERO))?;
        Ok(poll_set.is_ready(0))
    }

    /// Sends the process a signal. A later process with the same ID never gets it.
    pub fn send_signal(&self, signal: crate::signals::Signal) -> io::Result<()> {
        count(Syscall::PidfdSendSignal);
        let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
    }
}

/// Readable when the process has ended.
impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloexec::tests::serialise;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn child_inherits_exactly_the_given_descriptors() {
        let _serial = serialise();
        let (mut reader, writer) = UnixStream::pair().expect("created");
        let given = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("created");
        let _not_given = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("created");
        // The shell lists its own descriptors, one per line, and the variables.
        let script = "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done >&3; echo $LISTEN_FDS $LISTEN_FDNAMES >&3";
        let descriptors = [("out".to_owned(), writer.as_fd()), ("given".to_owned(), given.as_fd())];
        let child = spawn(Path::new("/bin/sh"), "sh", &["-c".into(), script.into()], &descriptors).expect("started");
        drop(writer);
        let mut output = String::new();
        reader.read_to_string(&mut output).expect("read");
        let mut lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines.pop(), Some("2 out:given"));
        let mut numbers: Vec<i32> = lines.iter().map(|line| line.parse().expect("a number")).collect();
        numbers.sort_unstable();
        // While it lists, the shell itself has a copy of its output, at 10, and the directory.
        numbers.retain(|number| *number != 10);
        assert!(numbers == [0, 1, 2, 3, 4] || numbers == [0, 1, 2, 3, 4, 5], "{numbers:?}");
        PollSet::new([child.as_fd()]).wait(Some(Duration::from_secs(10))).expect("no error");
        assert_eq!(child.try_wait().expect("no error"), Some(ExitStatus::Exited(0)));
        let error = spawn(Path::new("/nonexistent/program"), "program", &[], &[]).expect_err("no such program");
        assert!(error.to_string().contains("posix_spawn(\"/nonexistent/program\")"), "{error}");
    }

    #[test]
    fn end_of_a_process_that_is_not_a_child_is_noticed() {
        let _serial = serialise();
        // The shell prints the process ID of its child, which exits at the end of its input, and then kills itself.
        let (mut reader, writer) = UnixStream::pair().expect("created");
        let (input, input_writer) = std::io::pipe().expect("created");
        let script = "{ read line <&4; } & echo $! >&3; exec 4<&-; wait; kill -KILL $$";
        let descriptors = [("out".to_owned(), writer.as_fd()), ("input".to_owned(), input.as_fd())];
        let parent = spawn(Path::new("/bin/sh"), "sh", &["-c".into(), script.into()], &descriptors).expect("started");
        drop(writer);
        let mut line = [0; 16];
        let length = reader.read(&mut line).expect("printed");
        let pid = std::str::from_utf8(&line[..length]).expect("a number").trim().parse().expect("a number");
        let error = ProcessHandle::open(i32::MAX).expect_err("no process");
        assert!(error.to_string().starts_with("pidfd_open(\"2147483647\") failed"), "{error}");
        let found = ProcessHandle::open(pid).expect("runs");
        assert_eq!(found.pid(), pid);
        assert_eq!(found.try_wait().expect("no error"), None);
        drop((input_writer, input));
        PollSet::new([found.as_fd()]).wait(Some(Duration::from_secs(10))).expect("no error");
        assert_eq!(found.try_wait().expect("no error"), Some(ExitStatus::Unknown));
        PollSet::new([parent.as_fd()]).wait(Some(Duration::from_secs(10))).expect("no error");
        assert_eq!(parent.try_wait().expect("no error"), Some(ExitStatus::Signaled(9)));
        assert_eq!(parent.try_wait().expect("no error"), Some(ExitStatus::Unknown), "waited for already");
    }

    /// The environment variable with the role of a process that is this test program started again.
    const ROLE: &str = "SANDERLING_TEST_ROLE";

    #[test]
    fn exec_keeps_the_process_id_the_environment_and_the_kept_descriptors() {
        const NAME: &str = "process::tests::exec_keeps_the_process_id_the_environment_and_the_kept_descriptors";
        if std::env::var_os(ROLE).is_some() {
            let kept = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("created");
            let _not_kept = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("created");
            let kept_number = kept.as_raw_fd();
            let script = format!(
                "echo; echo found $$ $KEPT, $CHANGED, $ADDED, $1; \
                 for fd in /proc/$$/fd/*; do case $(readlink $fd) in *eventfd*) echo event ${{fd##*/}} {kept_number};; \
                 esac; done"
            );
            let arguments = ["-c".into(), script.into(), "sh".into(), "an argument".into()];
            let environment = [("CHANGED", "new".to_owned()), ("ADDED", "more".to_owned())];
            panic!("{}", exec(Path::new("/bin/sh"), &arguments, &environment, &[kept.as_fd()]));
        }
        let mut command = std::process::Command::new(std::env::current_exe().expect("known"));
        command.args(["--exact", "--nocapture", NAME]).env(ROLE, "exec").env("KEPT", "unchanged").env("CHANGED", "old");
        let mut process = command.stdout(std::process::Stdio::piped()).spawn().expect("started");
        let mut written = String::new();
        process.stdout.take().expect("piped").read_to_string(&mut written).expect("read");
        let (status, number) = (process.wait().expect("ended"), process.id());
        assert!(status.success(), "{status}: {written}");
        assert!(written.contains(&format!("\nfound {number} unchanged, new, more, an argument\n")), "{written}");
        let events: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix("event ")).collect();
        let [event] = events[..] else { panic!("one eventfd was kept: {written}") };
        let (found, kept) = event.split_once(' ').expect("two numbers");
        assert_eq!(found, kept);
    }

    #[test]
    fn set_name_changes_the_name_that_ps_shows() {
        // The name of this test's thread; a process is named after its main thread (proc_pid_comm(5)).
        set_name(c"sanderling").expect("set");
        assert_eq!(std::fs::read_to_string("/proc/thread-self/comm").expect("readable"), "sanderling\n");
    }

    #[test]
    fn failed_exec_changes_nothing() {
        let _serial = serialise();
        let kept = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("created");
        let error = exec(Path::new("/nonexistent/program"), &[], &[], &[kept.as_fd()]);
        assert!(error.to_string().starts_with("execve(\"/nonexistent/program\") failed: No such file"), "{error}");
        assert!(rustix::io::fcntl_getfd(&kept).expect("open").contains(rustix::io::FdFlags::CLOEXEC));
        let error = exec(Path::new("/bin/sh"), &["a\0b".into()], &[], &[kept.as_fd()]);
        assert_eq!(error.to_string(), "an argument contains a NUL");
    }
}
