//! Counts the system calls of each thread, so that the cost of a request can be read off and kept in a test.
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
        pub enum Call { $($variant),* }

        impl Call {
            /// All kinds.
            pub const ALL: &'static [Call] = &[$(Call::$variant),*];

            /// The kernel's name of the call.
            pub fn name(self) -> &'static str {
                match self { $(Call::$variant => $name),* }
            }
        }
    };
}

calls! {
    Accept = "accept4", AcceptBare = "accept", Bind = "bind", Close = "close", CloseRange = "close_range",
    Connect = "connect", EpollCreate = "epoll_create1", EpollCtl = "epoll_ctl", EpollWait = "epoll_wait",
    EventfdCreate = "eventfd2", EventfdRead = "read", EventfdWrite = "write", Execve = "execve", Fchmod = "fchmod",
    Fcntl = "fcntl", Fioclex = "ioctl", Fionbio = "ioctl", Fstat = "fstat", Fstatfs = "fstatfs",
    Geteuid = "geteuid", Getsockname = "getsockname", Getsockopt = "getsockopt", InotifyAdd = "inotify_add_watch",
    InotifyCreate = "inotify_init1", InotifyRead = "read", InotifyRemove = "inotify_rm_watch",
    Kill = "pidfd_send_signal", Listen = "listen", MemfdCreate = "memfd_create", Open = "openat",
    OpenBeneath = "openat2", PidfdOpen = "pidfd_open", Poll = "ppoll", Pread = "pread64", PreadNow = "preadv2",
    Readlink = "readlinkat", Receive = "recvfrom", ReceiveBatch = "recvmmsg", ReceiveMessage = "recvmsg",
    Send = "sendto", SendBatch = "sendmmsg", SendFile = "sendfile", SendMessage = "sendmsg",
    Setsockopt = "setsockopt", Shutdown = "shutdown", Sigmask = "rt_sigprocmask", Socket = "socket", Socketpair = "socketpair", Spawn = "clone",
    Statx = "statx", Wait = "waitid", Write = "write",
}

const CALL_COUNT: usize = Call::ALL.len();

/// The counts of one thread.
#[derive(Debug)]
struct Counters {
    thread: String,
    calls: [AtomicU64; CALL_COUNT],
}

/// Counts of a thread that has ended stay: what it did was done. Threads are few and live as long as the process.
static ALL: Mutex<Vec<&'static Counters>> = Mutex::new(Vec::new());

thread_local! {
    static MINE: Cell<Option<&'static Counters>> = const { Cell::new(None) };
}

/// Counts one call of this thread.
#[inline]
pub fn count(call: Call) {
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
pub struct Counts {
    /// The thread's name.
    pub thread: String,
    calls: [u64; CALL_COUNT],
}

impl Counts {
    /// How often `call` was made.
    pub fn of(&self, call: Call) -> u64 {
        self.calls[call as usize]
    }

    /// All calls together.
    pub fn total(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut difference = self.clone();
        for (now, then) in difference.calls.iter_mut().zip(earlier.calls) {
            *now = now.saturating_sub(then);
        }
        difference
    }

    /// The kinds that were counted at all, with their numbers.
    pub fn nonzero(&self) -> impl Iterator<Item = (Call, u64)> + '_ {
        Call::ALL.iter().map(|&call| (call, self.of(call))).filter(|&(_, count)| count != 0)
    }

    fn read(counters: &Counters) -> Counts {
        let calls = std::array::from_fn(|index| counters.calls[index].load(Ordering::Relaxed));
        Counts { thread: counters.thread.clone(), calls }
    }
}

/// The counts of this thread.
pub fn of_this_thread() -> Counts {
    Counts::read(MINE.get().unwrap_or_else(enter_thread))
}

/// The counts of each thread that ever made a call through this crate, in the order of their first.
pub fn of_all_threads() -> Vec<Counts> {
    let all = ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.iter().map(|counters| Counts::read(counters)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_its_own_calls() {
        let before = of_this_thread();
        count(Call::Accept);
        count(Call::Accept);
        std::thread::spawn(|| count(Call::Accept)).join().expect("no panic");
        let since = of_this_thread().since(&before);
        assert_eq!(since.of(Call::Accept), 2);
        assert_eq!(since.total(), 2);
        assert_eq!(since.nonzero().collect::<Vec<_>>(), [(Call::Accept, 2)]);
    }

    #[test]
    fn others_see_a_threads_counts_by_its_name() {
        let worker = std::thread::Builder::new().name("counted".into()).spawn(|| count(Call::Poll));
        worker.expect("a thread").join().expect("no panic");
        let all = of_all_threads();
        let counted = all.iter().find(|counts| counts.thread == "counted").expect("registered by its first call");
        assert_eq!(counted.of(Call::Poll), 1);
    }
}
