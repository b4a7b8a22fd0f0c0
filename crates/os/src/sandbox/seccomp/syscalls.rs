//! The system calls of a server process, in groups.
//!
//! Found by tracing the whole-program tests with every variant of every feature, and from the fallbacks of the standard
//! library and glibc on older kernels. Opening for writing is not distinguished from opening for reading, since
//! `openat2` has its flags in memory: Landlock and file permissions deny it.

use super::Rules;
use ::seccompiler::{SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompRule};

type Number = libc::c_long;

/// The calls that every process needs: allowed with any arguments.
const ALLOWED_TO_ALL: &[&[Number]] = &[
    // Standard error; waiting.
    &[libc::SYS_write, libc::SYS_writev, libc::SYS_close, libc::SYS_ppoll],
    &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_restart_syscall],
    // The clock, where vdso(7) does not have it; random numbers; the number of processors.
    &[libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday],
    &[libc::SYS_getrandom, libc::SYS_getcpu, libc::SYS_sched_getaffinity],
    // Memory. `of_this_process` has those calls that could make it executable.
    &[libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk],
    // Threads: start, wait, exit.
    &[libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_gettid],
    &[libc::SYS_exit, libc::SYS_exit_group, libc::SYS_getpid],
    // Signal handlers: of SIGTERM, and of a stack overflow with its own stack.
    &[libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack],
];

/// The calls that the keeper also needs: messages, and sealed memory that it reads and creates.
const ALLOWED_TO_KEEPER: &[&[Number]] = &[
    &[libc::SYS_recvfrom, libc::SYS_sendto, libc::SYS_recvmsg, libc::SYS_sendmsg],
    &[libc::SYS_fstat, libc::SYS_pread64, libc::SYS_memfd_create],
];

/// The calls that the keeper also needs for keys in files, which it creates: in its directory, as Landlock ensures.
const ALLOWED_TO_KEEPER_WITH_FILES: &[&[Number]] = &[
    &[libc::SYS_openat, libc::SYS_read, libc::SYS_lseek, libc::SYS_getdents64, libc::SYS_newfstatat, libc::SYS_statx],
    &[libc::SYS_fsync, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat, libc::SYS_renameat2],
];
#[cfg(target_arch = "x86_64")]
const ALLOWED_TO_KEEPER_ON_THIS_ARCHITECTURE: &[Number] =
    &[libc::SYS_open, libc::SYS_mkdir, libc::SYS_unlink, libc::SYS_rename];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_TO_KEEPER_ON_THIS_ARCHITECTURE: &[Number] = &[];

/// The calls that a server process also needs.
const ALLOWED: &[&[Number]] = &[
    // Connections. No socket is bound: all listeners are inherited. `allowed_with_connections` has the other calls.
    &[libc::SYS_accept4, libc::SYS_shutdown],
    &[libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_recvmmsg],
    &[libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_sendfile],
    &[libc::SYS_getsockname, libc::SYS_getpeername],
    // Files: open beneath a root, metadata, read.
    &[libc::SYS_openat2, libc::SYS_openat, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_lseek],
    &[libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_fstatfs, libc::SYS_faccessat],
    &[libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2],
    // The configuration's paths may be relative: realpath(3).
    &[libc::SYS_getcwd],
    // Watches. The inotify instance is created by the first thread that serves.
    &[libc::SYS_inotify_init1, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch],
    // Wake-ups of other threads; sealed memory for the supervisor.
    &[libc::SYS_eventfd2, libc::SYS_memfd_create],
    // Each worker makes its own poller.
    &[libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2],
];

/// The calls that the agent also needs: it connects, and writes beneath the state folder, where Landlock lets it. The
/// resolver of the C library calls `uname`.
const ALLOWED_TO_AGENT: &[&[Number]] = &[
    &[libc::SYS_connect, libc::SYS_uname],
    &[libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_symlinkat],
    &[libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_fchmod],
];
#[cfg(target_arch = "x86_64")]
const ALLOWED_TO_AGENT_ON_THIS_ARCHITECTURE: &[Number] =
    &[libc::SYS_epoll_wait, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_symlink, libc::SYS_rename];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_TO_AGENT_ON_THIS_ARCHITECTURE: &[Number] = &[];

/// The calls that the agent does not need: it has no listener, and no files to serve.
const OF_SERVERS: &[Number] = &[
    libc::SYS_accept4,
    libc::SYS_sendfile,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
];

/// These calls are allowed as well; other architectures lack them.
#[cfg(target_arch = "x86_64")]
const ALLOWED_ON_THIS_ARCHITECTURE: &[Number] = &[libc::SYS_poll, libc::SYS_open, libc::SYS_readlink, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_ON_THIS_ARCHITECTURE: &[Number] = &[];

/// Neither supervisor nor server makes these calls, but an attacker would: to read another process, mount, load modules
/// or run code in the kernel. Together with the calls that run a program, they kill a server process.
const OF_ATTACKERS: &[&[Number]] = &[
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

/// The ioctls of this crate, and of isatty(3), which the standard library calls on standard error. `FIONBIO` is left
/// out: it clears `O_NONBLOCK` of a listener for all processes that have it, and the supervisor would wait for a client
/// forever.
const IOCTLS: &[libc::Ioctl] = &[libc::FIOCLEX, libc::FIONCLEX, libc::TCGETS];

/// Flags, copies and seals of descriptors. Not `F_SETFL`, which clears `O_NONBLOCK` too, and `O_APPEND` of a log: its
/// earlier lines could be overwritten.
const FCNTLS: &[libc::c_int] =
    &[libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC, libc::F_ADD_SEALS, libc::F_GET_SEALS];

/// Socket options by level and name: those that this crate sets. Others may load a program into the kernel
/// (`SO_ATTACH_FILTER`).
const SET_SOCKET_OPTIONS: &[(libc::c_int, libc::c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
];

/// The socket options that this crate and tokio read. Others would give a process forbidden abilities: `SO_PEERPIDFD` a
/// descriptor of the process at the other end, by which it can be signalled.
const READ_SOCKET_OPTIONS: &[(libc::c_int, libc::c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_TYPE),
    (libc::SOL_SOCKET, libc::SO_DOMAIN),
    (libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
    (libc::SOL_SOCKET, libc::SO_ERROR),
    (libc::IPPROTO_TCP, libc::TCP_INFO),
];

/// Names of threads, and of memory by glibc (`PR_SET_VMA`, linux/prctl.h).
const PRCTLS: &[libc::c_int] = &[libc::PR_SET_NAME, 0x5356_4d41];

const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// The calls that a server process may make; all others fail.
pub(super) fn allowed() -> Rules {
    let mut rules = of_this_process();
    rules.extend(any_arguments(ALLOWED));
    rules.extend(ALLOWED_ON_THIS_ARCHITECTURE.iter().map(|&number| (number, Vec::new())));
    // The thread that compresses sets its own priority (PRIO_PROCESS, and 0 for the calling thread).
    rules.insert(libc::SYS_setpriority, cases(vec![vec![is(0, 0), is(1, 0)]]));
    rules.insert(libc::SYS_setsockopt, cases(options(SET_SOCKET_OPTIONS)));
    rules
}

/// The same for a server process that connects to applications by TCP. Landlock has the ports, and checks `connect`
/// only: a first packet with data (`MSG_FASTOPEN`, tcp(7)) makes a connection without that call, and Multipath TCP is
/// not TCP to it.
pub(super) fn allowed_with_connections() -> Rules {
    let mut rules = allowed();
    rules.insert(libc::SYS_connect, Vec::new());
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let of_family =
        |family: libc::c_int| vec![is(0, family as u64), is(1, kind as u64), is(2, libc::IPPROTO_TCP as u64)];
    rules.insert(libc::SYS_socket, cases([libc::AF_INET, libc::AF_INET6].map(of_family).into()));
    for (number, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.insert(number, cases(vec![vec![lacks_bits(flags, libc::MSG_FASTOPEN)]]));
    }
    rules
}

/// The calls that every process may make.
fn of_this_process() -> Rules {
    let mut rules = any_arguments(ALLOWED_TO_ALL);
    // The filter of hidden calls, which is stricter, decides it.
    rules.insert(libc::SYS_clone3, Vec::new());
    let this_process = u64::from(std::process::id());
    for (number, conditions) in [
        // Threads only: no process and no namespace.
        (libc::SYS_clone, vec![vec![has_bits(0, libc::CLONE_THREAD | libc::CLONE_VM), lacks_bits(0, NEW_NAMESPACES)]]),
        // Memory becomes executable only while the program is loaded, which is before this.
        (libc::SYS_mmap, vec![vec![lacks_bits(2, libc::PROT_EXEC)]]),
        (libc::SYS_mprotect, vec![vec![lacks_bits(2, libc::PROT_EXEC)]]),
        // abort(3) signals its own thread.
        (libc::SYS_tgkill, vec![vec![is(0, this_process)]]),
        // The process may read its own limits (0 is this process): glibc reads the stack limit for each thread.
        (libc::SYS_prlimit64, vec![vec![is(0, 0)], vec![is(0, this_process)]]),
        (libc::SYS_ioctl, each_of(1, IOCTLS.iter().copied())),
        (libc::SYS_fcntl, each_of(1, FCNTLS.iter().map(|&command| command as u64))),
        (libc::SYS_getsockopt, options(READ_SOCKET_OPTIONS)),
        (libc::SYS_prctl, each_of(0, PRCTLS.iter().map(|&option| option as u64))),
    ] {
        rules.insert(number, cases(conditions));
    }
    rules
}

/// The calls that the keeper, which holds the private keys, may make; all others fail. There is no new socket, and no
/// file unless `has_files`.
pub(super) fn allowed_to_keeper(has_files: bool) -> Rules {
    let mut rules = of_this_process();
    rules.extend(any_arguments(ALLOWED_TO_KEEPER));
    if has_files {
        rules.extend(any_arguments(ALLOWED_TO_KEEPER_WITH_FILES));
        rules.extend(ALLOWED_TO_KEEPER_ON_THIS_ARCHITECTURE.iter().map(|&number| (number, Vec::new())));
    }
    rules
}

fn options(allowed: &[(libc::c_int, libc::c_int)]) -> Vec<Vec<SeccompCondition>> {
    allowed.iter().map(|&(level, name)| vec![is(1, level as u64), is(2, name as u64)]).collect()
}

fn cases(conditions: Vec<Vec<SeccompCondition>>) -> Vec<SeccompRule> {
    let rule = |conditions| SeccompRule::new(conditions).expect("each case has a condition");
    conditions.into_iter().map(rule).collect()
}

/// The calls that the agent may make; all others fail. There is no `bind` and no `listen`.
pub(super) fn allowed_to_agent() -> Rules {
    let mut rules = allowed();
    OF_SERVERS.iter().for_each(|number| drop(rules.remove(number)));
    rules.extend(any_arguments(ALLOWED_TO_AGENT));
    rules.extend(ALLOWED_TO_AGENT_ON_THIS_ARCHITECTURE.iter().map(|&number| (number, Vec::new())));
    // Only Internet sockets: no kernel sockets (netlink), and no sockets of other programs on this machine.
    let families = [libc::AF_INET, libc::AF_INET6].map(|family| vec![is(0, family as u64)]);
    rules.insert(libc::SYS_socket, cases(families.into_iter().collect()));
    // The agent passes one end to the server process, through the supervisor, and receives an answer at the other.
    rules.insert(libc::SYS_socketpair, cases(vec![vec![is(0, libc::AF_UNIX as u64)]]));
    // The resolver of the C library asks how many bytes have arrived.
    rules.entry(libc::SYS_ioctl).or_default().extend(cases(vec![vec![is(1, libc::FIONREAD)]]));
    rules
}

/// The calls that kill the process.
pub(super) fn killing() -> Rules {
    let mut rules = denied_to_supervisor();
    rules.extend(any_arguments(&[&[libc::SYS_execve, libc::SYS_execveat]]));
    rules
}

/// The calls that fail in the supervisor.
pub(super) fn denied_to_supervisor() -> Rules {
    any_arguments(OF_ATTACKERS)
}

/// The calls that fail as if the kernel did not have them.
pub(super) fn hidden() -> Rules {
    Rules::from([(libc::SYS_clone3, Vec::new())])
}

fn any_arguments(groups: &[&[Number]]) -> Rules {
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

/// Compares the lower 32 bits of an argument: the kernel uses no more of any of these.
fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, Dword, operator, value).expect("no argument is above the sixth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_both_is_allowed_and_kills() {
        for allowed in [allowed(), allowed_with_connections(), allowed_to_agent(), allowed_to_keeper(true)] {
            let both: Vec<_> = killing().into_keys().filter(|number| allowed.contains_key(number)).collect();
            assert!(both.is_empty(), "{both:?}");
        }
    }

    #[test]
    fn no_group_repeats_a_call() {
        let of_keeper = [ALLOWED_TO_KEEPER, ALLOWED_TO_KEEPER_WITH_FILES].concat();
        for (besides, on_this) in
            [(ALLOWED, ALLOWED_ON_THIS_ARCHITECTURE), (&of_keeper, ALLOWED_TO_KEEPER_ON_THIS_ARCHITECTURE)]
        {
            let groups = [ALLOWED_TO_ALL, besides, OF_ATTACKERS, &[on_this]].concat();
            let listed = groups.iter().map(|group| group.len()).sum::<usize>();
            assert_eq!(listed, any_arguments(&groups).len());
        }
    }
}
