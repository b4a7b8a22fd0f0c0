//! A fault: the failing call, its process, the error and the time; and the faults that are possible in a traced run.

use anyhow::Context;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A call that is made more often fails at one of its first `OCCURRENCES_MAX` occurrences.
const OCCURRENCES_MAX: u32 = 8;
/// The time by which a call is delayed instead of failing.
const DELAY_US: u32 = 300_000;
const DELAY: &str = "DELAY";
/// Calls without which a program cannot continue.
const MEMORY_CALLS: [&str; 4] = ["mmap", "brk", "mremap", "mprotect"];

/// A process of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// The supervisor that runs when the scenario begins.
    Supervisor,
    /// The server process that serves when the scenario begins.
    Server,
    /// The server process that is started in the scenario.
    NewServer,
    /// The supervisor that is started in the scenario.
    NewSupervisor,
    Agent,
    Keeper,
}

const ROLES: [(&str, Role); 6] = [
    ("supervisor", Role::Supervisor),
    ("server", Role::Server),
    ("new-server", Role::NewServer),
    ("new-supervisor", Role::NewSupervisor),
    ("agent", Role::Agent),
    ("keeper", Role::Keeper),
];

impl Role {
    fn name(self) -> &'static str {
        ROLES.iter().find(|(_, role)| *role == self).expect("the list has all").0
    }
}

/// A single fault, written as `SCENARIO/PROCESS/CALL:ERROR:OCCURRENCE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) scenario: String,
    pub(crate) role: Role,
    call: String,
    error: String,
    occurrence: u32,
}

impl Fault {
    /// The absence of a fault.
    pub(crate) fn none(scenario: &str, role: Role) -> Fault {
        Fault { scenario: scenario.to_owned(), role, call: String::new(), error: String::new(), occurrence: 0 }
    }

    /// Whether a process may exit because of the fault.
    pub(crate) fn is_for_memory(&self) -> bool {
        MEMORY_CALLS.contains(&self.call.as_str())
    }

    /// The arguments of strace.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Fault { call, error, occurrence, .. } = self;
        let effect = if error == DELAY { format!("delay_enter={DELAY_US}") } else { format!("error={error}") };
        vec!["-e".into(), format!("trace={call}"), "-e".into(), format!("inject={call}:{effect}:when={occurrence}")]
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { scenario, role, call, error, occurrence } = self;
        write!(f, "{scenario}/{}/{call}:{error}:{occurrence}", role.name())
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Fault> {
        let parse = || {
            let [scenario, role, fault] = text.split('/').collect::<Vec<_>>()[..] else { return None };
            let [call, error, occurrence] = fault.split(':').collect::<Vec<_>>()[..] else { return None };
            let (_, role) = ROLES.iter().find(|(name, _)| *name == role)?;
            let [scenario, call, error] = [scenario, call, error].map(str::to_owned);
            Some(Fault { scenario, role: *role, call, error, occurrence: occurrence.parse().ok()? })
        };
        parse().with_context(|| format!("{text:?} is not a fault; write SCENARIO/PROCESS/CALL:ERROR:OCCURRENCE"))
    }
}

/// The errors of a call that its manual page names and that do not contradict the kernel's action. Calls that cannot
/// fail get no error, nor do calls whose effect an injected error would hide, such as `close`.
fn errors(call: &str) -> &'static [&'static str] {
    match call {
        "ppoll" | "poll" => &["ENOMEM", "EINTR", "EAGAIN", DELAY],
        "epoll_pwait" => &["EINTR", DELAY],
        "epoll_wait" => &["EINTR", "ENOMEM", DELAY],
        "epoll_ctl" => &["ENOMEM", "ENOSPC"],
        "sendmsg" => &["EAGAIN", "ENOBUFS", "ENOMEM", "EINTR", "EPERM", "EMFILE", "ETOOMANYREFS", DELAY],
        "recvmsg" => &["EAGAIN", "ENOBUFS", "ENOMEM", "EINTR", "EIO", "EMFILE", DELAY],
        "recvmmsg" | "recvfrom" | "sendto" | "sendmmsg" => &["EINTR", "ENOMEM", "ENOBUFS", DELAY],
        "accept" | "accept4" => &["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "ECONNABORTED", "EPERM", "EPROTO", DELAY],
        "socket" | "socketpair" => &["EMFILE", "ENFILE", "ENOMEM", "ENOBUFS"],
        "bind" | "listen" => &["EADDRINUSE", "ENOMEM"],
        "connect" => &["EAGAIN", "EINTR", "ENOMEM"],
        "openat" | "openat2" | "open" => &["EMFILE", "ENFILE", "ENOMEM", "EIO", "EINTR", DELAY],
        "epoll_create1" | "eventfd2" | "memfd_create" | "inotify_init1" | "pidfd_open" | "pipe2" | "dup" => {
            &["EMFILE", "ENFILE", "ENOMEM"]
        }
        "fcntl" => &["EMFILE", "EINVAL"],
        "inotify_add_watch" => &["ENOSPC", "ENOMEM"],
        "read" | "pread64" | "preadv2" | "sendfile" => &["EIO", "ENOMEM", "EINTR", DELAY],
        "write" | "writev" => &["EINTR", "EIO", "ENOSPC"],
        "pwrite64" | "ftruncate" => &["EIO", "ENOSPC"],
        "fsync" | "fdatasync" => &["EIO", "ENOSPC", DELAY],
        "rename" | "renameat" | "renameat2" => &["EIO", "ENOSPC", "EACCES"],
        "unlinkat" | "rmdir" | "lseek" => &["EIO", "ENOMEM"],
        "statx" | "newfstatat" | "fstat" | "stat" | "readlink" | "readlinkat" | "access" => &["EIO", "ENOMEM"],
        "getdents64" | "unlink" | "mkdir" | "fchmod" => &["EIO", "ENOMEM"],
        "clone" | "clone3" | "vfork" => &["EAGAIN", "ENOMEM"],
        "execve" => &["ENOMEM", "EACCES", "EIO", DELAY],
        "waitid" | "wait4" => &["EINTR", "EIO", DELAY],
        "pidfd_send_signal" | "kill" | "tgkill" => &["EPERM", "EAGAIN"],
        call if MEMORY_CALLS.contains(&call) => &["ENOMEM"],
        "getrandom" | "clock_nanosleep" | "nanosleep" => &["EINTR"],
        "close" | "close_range" | "exit" | "exit_group" | "futex" | "madvise" | "munmap" | "restart_syscall" => &[],
        // With the arguments used, the call cannot fail (getrlimit(2)).
        "prlimit64" => &[],
        "getpid" | "gettid" | "getuid" | "geteuid" | "getgid" | "getegid" | "getppid" | "umask" => &[],
        "rseq" | "rt_sigaction" | "rt_sigprocmask" | "rt_sigreturn" | "sched_yield" | "set_robust_list"
        | "set_tid_address" | "sigaltstack" | "arch_prctl" | "shutdown" => &[],
        _ => &["EINVAL", "ENOMEM", "EPERM"],
    }
}

/// The number of occurrences of each call in the output of `strace -f`.
pub(crate) fn count_calls(trace: &str) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for line in trace.lines() {
        // The line begins with the process ID if several threads are traced.
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let Some((call, _)) = line.split_once('(') else { continue };
        if call.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
            *counts.entry(call.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Whether a traced call has failed or was delayed as requested.
pub(crate) fn has_fault(trace: &str) -> bool {
    trace.contains("(INJECTED)") || trace.contains("(DELAYED)")
}

/// The possible faults of a process in a scenario; the faults of one call follow each other.
pub(crate) fn faults_of(scenario: &str, role: Role, counts: &BTreeMap<String, u32>) -> Vec<Vec<Fault>> {
    let of_call = |(call, count): (&String, &u32)| {
        let fault = |error: &str, occurrence| {
            let (scenario, call, error) = (scenario.to_owned(), call.clone(), error.to_owned());
            Fault { scenario, role, call, error, occurrence }
        };
        let occurrences = 1..=(*count).min(OCCURRENCES_MAX);
        occurrences.flat_map(|occurrence| errors(call).iter().map(move |error| fault(error, occurrence))).collect()
    };
    counts.iter().map(of_call).filter(|faults: &Vec<Fault>| !faults.is_empty()).collect()
}

/// A random order in which all calls of all processes come before a second fault of the same call.
pub(crate) fn mix(mut groups: Vec<Vec<Fault>>, random: &mut fastrand::Rng) -> Vec<Fault> {
    groups.iter_mut().for_each(|group| random.shuffle(group));
    let mut mixed = Vec::new();
    while !groups.is_empty() {
        random.shuffle(&mut groups);
        mixed.extend(groups.iter_mut().filter_map(Vec::pop));
        groups.retain(|group| !group.is_empty());
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_is_parsed_as_it_is_written() {
        let text = "reload-process/new-server/openat:EMFILE:3";
        let fault: Fault = text.parse().expect("a fault");
        assert_eq!(fault.to_string(), text);
        assert_eq!(fault.arguments()[3], "inject=openat:error=EMFILE:when=3");
        for wrong in ["", "a/b", "serve/nobody/read:EIO:1", "serve/server/read:EIO", "serve/server/read:EIO:x"] {
            wrong.parse::<Fault>().expect_err(wrong);
        }
    }

    #[test]
    fn calls_are_counted_once_and_mixed_evenly() {
        let trace = "12 read(3, \"\", 1) = 0\n12 ppoll( <unfinished ...>\n13 read(4) = -1 EIO (INJECTED)\n\
                     12 <... ppoll resumed>) = 0\n12 --- SIGCHLD (x) ---\n+++ exited with 0 +++\nclose(3) = 0\n";
        let counts = count_calls(trace);
        let expected = [("close", 1), ("ppoll", 1), ("read", 2)].map(|(call, count)| (call.to_owned(), count));
        assert_eq!(counts, expected.into());
        assert!(has_fault(trace) && !has_fault("read(3) = 0\n"));
        let groups = faults_of("serve", Role::Server, &counts);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [4, 8]);
        let mixed = mix(groups, &mut fastrand::Rng::with_seed(1));
        assert_eq!(mixed.len(), 12);
        assert_ne!(mixed[0].call, mixed[1].call);
    }
}
