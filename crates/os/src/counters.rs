//! SyscallCounts the system calls of each thread, so that the cost of a request can be read off and kept in a test.
//!
//! A thread writes its own counts with plain loads and stores, never a locked instruction; others may read them at any
//! time and see each number a little late.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! calls {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// A kind of system call.
        #[allow(missing_docs, reason = "each is the call of that name")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Syscall { $($variant),* }

        impl Syscall {
            /// All kinds.
            pub const ALL: &'static [Syscall] = &[$(Syscall::$variant),*];

            /// The kernel's name of the call.
            pub fn name(self) -> &'static str {
                match self { $(Syscall::$variant => $name),* }
            }
        }
    };
}

calls! {
    Accept4 = "accept4", Accept = "accept", Bind = "bind", Clone = "clone", Close = "close",
    CloseRange = "close_range", Connect = "connect", EpollCreate1 = "epoll_create1", EpollCtl = "epoll_ctl",
    EpollWait = "epoll_wait", Eventfd2 = "eventfd2", EventfdRead = "read", EventfdWrite = "write", Execve = "execve",
    Fchmod = "fchmod", Fcntl = "fcntl", Fioclex = "ioctl", Fionbio = "ioctl", Fstat = "fstat", Fstatfs = "fstatfs",
    Geteuid = "geteuid", Getsockname = "getsockname", Getsockopt = "getsockopt",
    InotifyAddWatch = "inotify_add_watch", InotifyInit1 = "inotify_init1", InotifyRead = "read",
    InotifyRmWatch = "inotify_rm_watch", Listen = "listen", MemfdCreate = "memfd_create", Openat = "openat",
    Openat2 = "openat2", PidfdOpen = "pidfd_open", PidfdSendSignal = "pidfd_send_signal", Ppoll = "ppoll",
    Pread64 = "pread64", Preadv2 = "preadv2", Readlinkat = "readlinkat", Recvfrom = "recvfrom",
    Recvmmsg = "recvmmsg", Recvmsg = "recvmsg", RtSigprocmask = "rt_sigprocmask", Sendto = "sendto",
    Sendfile = "sendfile", Sendmmsg = "sendmmsg", Sendmsg = "sendmsg", Setsockopt = "setsockopt",
    Shutdown = "shutdown", Socket = "socket", Socketpair = "socketpair", Statx = "statx", Waitid = "waitid",
    Write = "write",
}

const CALL_COUNT: usize = Syscall::ALL.len();

/// The counts of one thread.
#[derive(Debug)]
struct Counters {
    thread: String,
    calls: [AtomicU64; CALL_COUNT],
}

/// SyscallCounts of a thread that has ended stay: what it did was done. Threads are few and live as long as the process.
static ALL: Mutex<Vec<&'static Counters>> = Mutex::new(Vec::new());

thread_local! {
    static MINE: Cell<Option<&'static Counters>> = const { Cell::new(None) };
}

/// SyscallCounts one call of this thread.
#[inline]
pub fn count(call: Syscall) {
    let mine = MINE.get().unwrap_or_else(enter_thread);
    let counter = &mine.calls[call as usize];
    // Only this thread writes: a load and a store lose nothing, and cost no locked instruction.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cold]
fn enter_thread() -> &'static Counters {
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let mine: &'static Counters =
        Box::leak(Box::new(Counters { thread, calls: [const { AtomicU64::new(0) }; CALL_COUNT] }));
    MINE.set(Some(mine));
    ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(mine);
    mine
}

/// The counts of one thread at a moment, or the difference of two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyscallCounts {
    /// The thread's name.
    pub thread: String,
    calls: [u64; CALL_COUNT],
}

impl SyscallCounts {
    /// How often `call` was made.
    pub fn get(&self, call: Syscall) -> u64 {
        self.calls[call as usize]
    }

    /// All calls together.
    pub fn total(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &SyscallCounts) -> SyscallCounts {
        let mut difference = self.clone();
        for (now, then) in difference.calls.iter_mut().zip(earlier.calls) {
            *now = now.saturating_sub(then);
        }
        difference
    }

    /// The kinds that were counted at all, with their numbers.
    pub fn nonzero(&self) -> impl Iterator<Item = (Syscall, u64)> + '_ {
        Syscall::ALL.iter().map(|&call| (call, self.get(call))).filter(|&(_, count)| count != 0)
    }

    fn read(counters: &Counters) -> SyscallCounts {
        let calls = std::array::from_fn(|index| counters.calls[index].load(Ordering::Relaxed));
        SyscallCounts { thread: counters.thread.clone(), calls }
    }
}

/// The counts of this thread.
pub fn thread_counts() -> SyscallCounts {
    SyscallCounts::read(MINE.get().unwrap_or_else(enter_thread))
}

/// The counts of each thread that ever made a call through this crate, in the order of their first.
pub fn all_thread_counts() -> Vec<SyscallCounts> {
    let all = ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.iter().map(|counters| SyscallCounts::read(counters)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_its_own_calls() {
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
    fn others_see_a_threads_counts_by_its_name() {
        let worker = std::thread::Builder::new().name("counted".into()).spawn(|| count(Syscall::Ppoll));
        worker.expect("a thread").join().expect("no panic");
        let all = all_thread_counts();
        let counted = all.iter().find(|counts| counts.thread == "counted").expect("registered by its first call");
        assert_eq!(counted.get(Syscall::Ppoll), 1);
    }
}
