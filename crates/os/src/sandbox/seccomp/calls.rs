//! The system calls of a server process, each group with its reason.
//!
//! Found by tracing the whole-program tests with every way of every job, and by what the standard library and glibc
//! call where a kernel lacks what they prefer. What opens for writing is not told from what opens for reading, since
//! `openat2` has its flags in memory: that is up to Landlock, and to the permissions of the files.

use super::Rules;
use ::seccompiler::{SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompRule};

type Number = libc::c_long;

/// What a server process makes all the time, with any arguments.
const ALWAYS: &[&[Number]] = &[
    // Connections: come, speak, end. No socket is made, bound or connected: all listeners were inherited.
    &[libc::SYS_accept4, libc::SYS_accept, libc::SYS_shutdown, libc::SYS_close],
    &[libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_recvmmsg],
    &[libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_sendfile],
    &[libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt],
    // Files: opened beneath a root, looked at, read.
    &[libc::SYS_openat2, libc::SYS_openat, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_lseek],
    &[libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_fstatfs],
    &[libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2],
    // Being told of changes. The watcher itself is made by the first thread that serves.
    &[libc::SYS_inotify_init1, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch],
    // Standard error and the way to the supervisor, and wake-ups of other threads.
    &[libc::SYS_write, libc::SYS_writev, libc::SYS_eventfd2],
    // PollSet. Each worker makes its own poller.
    &[libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_ppoll],
    &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_restart_syscall],
    // The clock, where the kernel does not tell it without a call (vdso(7)); chance; the number of processors.
    &[libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday],
    &[libc::SYS_getrandom, libc::SYS_getcpu, libc::SYS_sched_getaffinity],
    // Memory that cannot be executed (see `allowed` for what can make it so).
    &[libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk],
    // Threads: they begin, wait for each other, end.
    &[libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_gettid],
    &[libc::SYS_exit, libc::SYS_exit_group, libc::SYS_getpid],
    // Handlers of signals: that of SIGTERM, and the stack on which a stack overflow is told.
    &[libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack],
];

/// What older kernels, or only this architecture, have beside those.
#[cfg(target_arch = "x86_64")]
const ALWAYS_HERE: &[Number] =
    &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_open, libc::SYS_readlink, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ALWAYS_HERE: &[Number] = &[];

/// What no server makes and an intruder would: run a program, look into a process, change what the machine mounts, loads,
/// keeps, or runs in its kernel.
const ENDING: &[&[Number]] = &[
    &[libc::SYS_execve, libc::SYS_execveat],
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd, libc::SYS_kcmp],
    &[libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_open_by_handle_at],
    &[libc::SYS_open_tree, libc::SYS_move_mount, libc::SYS_mount_setattr],
    &[libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick],
    &[libc::SYS_unshare, libc::SYS_setns],
    &[libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module],
    &[libc::SYS_kexec_load, libc::SYS_kexec_file_load, libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff],
    &[libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl],
    &[libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd],
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register],
];

/// The ioctls of the crate, and the one by which the standard library finds out whether somebody reads standard error
/// (isatty(3)).
const IOCTLS: &[libc::Ioctl] = &[libc::FIOCLEX, libc::FIONCLEX, libc::FIONBIO, libc::TCGETS];

/// Flags of descriptors; and copies of them, which the standard library makes.
const FCNTLS: &[libc::c_int] =
    &[libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC, libc::F_GET_SEALS];

/// Options of sockets, by their level and their name: what the crate sets on connections and on inherited sockets. An
/// option may also load a program into the kernel (`SO_ATTACH_FILTER`).
const SOCKET_OPTIONS: &[(libc::c_int, libc::c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
];

/// Names of threads, and of memory where glibc gives it any (`PR_SET_VMA`, linux/prctl.h).
const PRCTLS: &[libc::c_int] = &[libc::PR_SET_NAME, 0x5356_4d41];

const NEW_NAME_SPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// What is allowed; everything else fails.
pub(super) fn allowed() -> Rules {
    let mut rules = always(ALWAYS);
    rules.extend(ALWAYS_HERE.iter().map(|&number| (number, Vec::new())));
    // It is answered by the filter of hidden calls, whose word then is the strictest.
    rules.insert(libc::SYS_clone3, Vec::new());
    let this_process = u64::from(std::process::id());
    for (number, cases) in [
        // Threads of this process only: no process and no name space is made.
        (libc::SYS_clone, vec![vec![has_bits(0, libc::CLONE_THREAD | libc::CLONE_VM), lacks_bits(0, NEW_NAME_SPACES)]]),
        // Memory that is executed is made before this, when the program is loaded, and never again.
        (libc::SYS_mmap, vec![vec![lacks_bits(2, libc::PROT_EXEC)]]),
        (libc::SYS_mprotect, vec![vec![lacks_bits(2, libc::PROT_EXEC)]]),
        // abort(3) signals its own thread; nobody else is signalled.
        (libc::SYS_tgkill, vec![vec![is(0, this_process)]]),
        // Its own limits, where 0 stands for itself: glibc reads that of the stack for each thread.
        (libc::SYS_prlimit64, vec![vec![is(0, 0)], vec![is(0, this_process)]]),
        (libc::SYS_ioctl, each_of(1, IOCTLS.iter().copied())),
        (libc::SYS_fcntl, each_of(1, FCNTLS.iter().map(|&command| command as u64))),
        (libc::SYS_prctl, each_of(0, PRCTLS.iter().map(|&option| option as u64))),
        (
            libc::SYS_setsockopt,
            SOCKET_OPTIONS.iter().map(|&(level, name)| vec![is(1, level as u64), is(2, name as u64)]).collect(),
        ),
    ] {
        let cases =
            cases.into_iter().map(|conditions| SeccompRule::new(conditions).expect("each case has a condition"));
        rules.insert(number, cases.collect());
    }
    rules
}

/// What ends the process.
pub(super) fn ending() -> Rules {
    always(ENDING)
}

/// What this kernel is said not to have.
pub(super) fn hidden() -> Rules {
    Rules::from([(libc::SYS_clone3, Vec::new())])
}

fn always(groups: &[&[Number]]) -> Rules {
    groups.iter().flat_map(|group| group.iter()).map(|&number| (number, Vec::new())).collect()
}

fn each_of(argument: u8, values: impl Iterator<Item = u64>) -> Vec<Vec<SeccompCondition>> {
    values.map(|value| vec![is(argument, value)]).collect()
}

fn is(argument: u8, value: u64) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn has_bits(argument: u8, bits: libc::c_int) -> SeccompCondition {
    condition(argument, SeccompCmpOp::MaskedEq(bits as u64), bits as u64)
}

fn lacks_bits(argument: u8, bits: libc::c_int) -> SeccompCondition {
    condition(argument, SeccompCmpOp::MaskedEq(bits as u64), 0)
}

/// All of these arguments are compared in their lower half: the kernel takes no more of them.
fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, Dword, operator, value).expect("no call has an argument above the sixth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_both_allowed_and_the_end() {
        let (allowed, ending) = (allowed(), ending());
        let both: Vec<_> = ending.keys().filter(|number| allowed.contains_key(number)).collect();
        assert!(both.is_empty(), "{both:?}");
    }

    #[test]
    fn no_group_repeats_a_call() {
        let named = ALWAYS.iter().chain(ENDING).map(|group| group.len()).sum::<usize>() + ALWAYS_HERE.len();
        let distinct = always(ALWAYS).len() + always(ENDING).len() + ALWAYS_HERE.len();
        assert_eq!(named, distinct);
    }
}
