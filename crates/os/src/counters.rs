//! Counts the system calls of each thread, so that a test can assert the cost of a request.
//!
//! A thread updates its own counts with plain loads and stores, without locked instructions. Other threads may read
//! them at any time, and may see a slightly old value.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

macro_rules! syscalls {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// A system call. A call with several purposes here has a variant for each.
        #[allow(missing_docs, reason = "each is the call of that name")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Syscall { $($variant),* }

        impl Syscall {
            /// All calls, in report order.
            pub const ALL: &'static [Syscall] = &[$(Syscall::$variant),*];

            /// The name of the call in the manual pages.
            pub fn name(self) -> &'static str {
                match self { $(Syscall::$variant => $name),* }
            }
        }
    };
}

syscalls! {
    Accept4 = "accept4", Bind = "bind", Clone = "clone", Close = "close",
    CloseRange = "close_range", Connect = "connect", EpollCreate1 = "epoll_create1", EpollCtl = "epoll_ctl",
    EpollPwait = "epoll_pwait", Eventfd2 = "eventfd2", EventfdRead = "read", EventfdWrite = "write", Execve = "execve",
    Fchmod = "fchmod", Faccessat = "faccessat", Fcntl = "fcntl", Fioclex = "ioctl", Fionbio = "ioctl", Fstat = "fstat", Fstatfs = "fstatfs",
    Geteuid = "geteuid", Getdents64 = "getdents64", Getsockname = "getsockname", Getsockopt = "getsockopt",
    InotifyAddWatch = "inotify_add_watch", InotifyInit1 = "inotify_init1", InotifyRead = "read",
    InotifyRmWatch = "inotify_rm_watch", Kill = "kill", Listen = "listen", Lseek = "lseek", MemfdCreate = "memfd_create", Openat = "openat",
    Newfstatat = "newfstatat", Openat2 = "openat2", PidfdOpen = "pidfd_open", PidfdSendSignal = "pidfd_send_signal", Ppoll = "ppoll",
    Pread64 = "pread64", Preadv2 = "preadv2", Readlinkat = "readlinkat", Renameat = "renameat", Recvfrom = "recvfrom",
    Recvmmsg = "recvmmsg", Recvmsg = "recvmsg", RtSigprocmask = "rt_sigprocmask", Sendto = "sendto",
    Sendfile = "sendfile", Sendmmsg = "sendmmsg", Sendmsg = "sendmsg", Setpriority = "setpriority", Setsockopt = "setsockopt",
    Shutdown = "shutdown", Socket = "socket", Socketpair = "socketpair", Statx = "statx", Unlinkat = "unlinkat", Waitid = "waitid",
    Write = "write",
}

const SYSCALL_COUNT: usize = Syscall::ALL.len();

/// The live counts of one thread.
#[derive(Debug)]
struct Counters {
    thread: String,
    calls: [AtomicU64; SYSCALL_COUNT],
}

/// Counts outlive their thread. Threads are few and live as long as the process.
static ALL: Mutex<Vec<&'static Counters>> = Mutex::new(Vec::new());

thread_local! {
    static CURRENT: Cell<Option<&'static Counters>> = const { Cell::new(None) };
}

/// Counts one call of the current thread.
#[inline]
pub fn count(call: Syscall) {
    let counter = &current().calls[call as usize];
    // No other thread writes, so a load and a store lose no update.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[inline]
fn current() -> &'static Counters {
    CURRENT.get().unwrap_or_else(register_thread)
}

#[cold]
fn register_thread() -> &'static Counters {
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let calls = [const { AtomicU64::new(0) }; SYSCALL_COUNT];
    let counters: &'static Counters = Box::leak(Box::new(Counters { thread, calls }));
    CURRENT.set(Some(counters));
    ALL.lock().unwrap_or_else(PoisonError::into_inner).push(counters);
    counters
}

/// The counts of one thread at one time, or the difference between two times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyscallCounts {
    /// The thread's name.
    pub thread: String,
    calls: [u64; SYSCALL_COUNT],
}

impl SyscallCounts {
    /// The number of times that `call` was made.
    pub fn get(&self, call: Syscall) -> u64 {
        self.calls[call as usize]
    }

    /// The number of all calls.
    pub fn total(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// The calls made since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &SyscallCounts) -> SyscallCounts {
        let mut difference = self.clone();
        for (now, then) in difference.calls.iter_mut().zip(earlier.calls) {
            *now = now.saturating_sub(then);
        }
        difference
    }

    /// The calls that were made, with their numbers.
    pub fn nonzero(&self) -> impl Iterator<Item = (Syscall, u64)> + '_ {
        Syscall::ALL.iter().map(|&call| (call, self.get(call))).filter(|&(_, count)| count != 0)
    }

    fn read(counters: &Counters) -> SyscallCounts {
        let calls = std::array::from_fn(|index| counters.calls[index].load(Ordering::Relaxed));
        SyscallCounts { thread: counters.thread.clone(), calls }
    }
}

/// The current thread's counts.
pub fn thread_counts() -> SyscallCounts {
    SyscallCounts::read(current())
}

/// The counts of every thread that made a call through this crate, in the order of their first calls.
pub fn all_thread_counts() -> Vec<SyscallCounts> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().map(|counters| SyscallCounts::read(counters)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_only_its_own_calls() {
        let before = thread_counts();
        count(Syscall::Accept4);
        count(Syscall::Accept4);
        std::thread::spawn(|| count(Syscall::Accept4)).join().expect("no panic");
        let since = thread_counts().since(&before);
        assert_eq!(since.get(Syscall::Accept4), 2);
        assert_eq!(since.total(), 2);
        assert_eq!(since.nonzero().collect::<Vec<_>>(), [(Syscall::Accept4, 2)]);
    }

    #[test]
    fn counts_of_an_ended_thread_are_found_by_its_name() {
        let worker = std::thread::Builder::new().name("counted".into()).spawn(|| count(Syscall::Ppoll));
        worker.expect("a thread").join().expect("no panic");
        let all = all_thread_counts();
        let counted = all.iter().find(|counts| counts.thread == "counted").expect("registered by its first call");
        assert_eq!(counted.get(Syscall::Ppoll), 1);
    }
}
