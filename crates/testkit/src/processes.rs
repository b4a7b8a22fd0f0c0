//! Processes by their IDs.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred, sendmsg};
use rustix::process::{
    Gid, Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Uid, getrlimit, pidfd_getfd, pidfd_open, setrlimit,
};
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::Command;

/// A process's children, the oldest first, as the kernel lists them.
///
/// # Errors
/// Returns an error if the process does not exist.
pub fn children_of(parent: u32) -> io::Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    Ok(children.split_whitespace().map(|pid| pid.parse().expect("a number")).collect())
}

/// A supervisor's server processes, the oldest first; none if it has exited.
pub fn server_pids(supervisor: u32) -> Vec<u32> {
    let is_server = |pid: &u32| {
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command_line.split(|byte| *byte == 0).skip(1).any(|word| word.ends_with(b"server-process"))
    };
    children_of(supervisor).unwrap_or_default().into_iter().filter(is_server).collect()
}

/// Sends a signal to a process, or to a process group if its ID has a minus before it. Returns whether it existed.
pub fn send_signal(name: &str, id: &str) -> bool {
    // The `kill` of the shell: this crate has no unsafe code, and the program may not be installed.
    let output = Command::new("sh").args(["-c", "kill -s \"$1\" -- \"$2\"", "sh", name, id]).output();
    output.is_ok_and(|output| output.status.success())
}

/// The children of a supervisor that run `command`, such as `internal-agent`.
pub fn children_with(supervisor: u32, command: &str) -> Vec<u32> {
    let is_one = |pid: &u32| {
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command_line.split(|byte| *byte == 0).any(|word| word == command.as_bytes())
    };
    children_of(supervisor).unwrap_or_default().into_iter().filter(is_one).collect()
}

/// A copy of a descriptor of another process, as foreign code in it has it (pidfd_getfd(2)).
///
/// # Errors
/// Returns an error if the process has no such descriptor, or this user may not take it.
pub fn descriptor_of(pid: u32, number: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// The numbers and names of the descriptors that a process has inherited from its supervisor.
///
/// # Errors
/// Returns an error if the process has ended, or belongs to another user.
pub fn inherited_by(pid: u32) -> io::Result<Vec<(i32, String)>> {
    let environment = fs::read(format!("/proc/{pid}/environ"))?;
    let names = environment.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"LISTEN_FDNAMES="));
    let names = String::from_utf8_lossy(names.unwrap_or_default()).into_owned();
    Ok((3..).zip(names.split(':').map(str::to_owned)).collect())
}

/// Lets this process have so many descriptors at once.
#[track_caller]
pub fn allow_descriptors(count: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < count) {
        let limit = Rlimit { current: Some(count), maximum };
        setrlimit(Resource::Nofile, limit).unwrap_or_else(|error| panic!("{count} descriptors: {error}; ulimit -Hn"));
    }
}

/// Bytes of the memory of a process that are in use; 0 if it has ended.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Sends a message over a Unix socket as the process `pid` of the user `uid` would, which root may.
///
/// # Errors
/// Returns the errors of `sendmsg(2)`.
pub fn send_as(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
    sender: Option<(u32, u32)>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250), ScmCredentials(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    if let Some((pid, uid)) = sender {
        let pid = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
        let credentials = UCred { pid, uid: Uid::from_raw(uid), gid: Gid::from_raw(uid) };
        ancillary.push(SendAncillaryMessage::ScmCredentials(credentials));
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
