//! The sockets of a server, in sets of reuseport sockets, and which worker serves which set.

use crate::protocols::connection::Protocol;
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use std::sync::Arc;

/// The service on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    pub(crate) protocol: Protocol,
    pub(crate) is_encrypted: bool,
}

impl Role {
    /// HTTP.
    pub const HTTP: Role = Role { protocol: Protocol::Http, is_encrypted: false };
    /// HTTP over TLS.
    pub const HTTPS: Role = Role { protocol: Protocol::Http, is_encrypted: true };
    /// DNS over UDP and TCP.
    pub const DNS: Role = Role { protocol: Protocol::Dns, is_encrypted: false };
    /// DNS over TLS.
    pub const DOT: Role = Role { protocol: Protocol::Dns, is_encrypted: true };
}

/// One reuseport socket of each address. The sets are bound before any worker runs and outlive all workers.
#[derive(Debug, Default)]
pub struct SocketSet {
    /// Listeners, which workers serve.
    pub streams: Vec<(Role, Arc<Listener>)>,
    /// Datagram sockets. Those of [`Role::DNS`] have separate threads.
    pub datagrams: Vec<(Role, Arc<Socket>)>,
}

/// A socket set that a worker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The index of the set.
    pub(crate) set_index: usize,
    /// Other workers serve the set too.
    pub(crate) is_shared: bool,
}

/// The sets, of `set_count`, that the worker `worker_index` of `worker_count` serves. Each set is assigned to a worker:
/// a listener that no worker accepts from would keep the connections that the kernel assigns to it. Where there are
/// fewer sets than workers, workers share them.
pub(crate) fn assign(worker_index: usize, worker_count: usize, set_count: usize) -> Vec<Assignment> {
    if set_count >= worker_count {
        let indices = (worker_index..set_count).step_by(worker_count);
        return indices.map(|set_index| Assignment { set_index, is_shared: false }).collect();
    }
    let set_index = worker_index.checked_rem(set_count);
    let assignment = |set_index| Assignment { set_index, is_shared: set_index + set_count < worker_count };
    set_index.map(assignment).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets of each worker, a `*` after each shared one.
    fn check(worker_count: usize, set_count: usize, expected: &str) {
        let of_worker = |worker_index| {
            let assigned = assign(worker_index, worker_count, set_count).into_iter();
            let names = assigned.map(|it| format!("{}{}", it.set_index, if it.is_shared { "*" } else { "" }));
            names.collect::<Vec<_>>().join(" ")
        };
        let found = (0..worker_count).map(of_worker).collect::<Vec<_>>().join(", ");
        assert_eq!(found, expected, "{worker_count} workers, {set_count} sets");
    }

    #[test]
    fn every_set_has_a_worker_and_every_worker_has_a_set() {
        check(1, 1, "0");
        check(3, 3, "0, 1, 2");
        check(3, 4, "0 3, 1, 2");
        check(1, 4, "0 1 2 3");
        check(4, 1, "0*, 0*, 0*, 0*");
        check(3, 2, "0*, 1, 0*");
        check(5, 2, "0*, 1*, 0*, 1*, 0*");
        check(2, 0, ", ");
    }
}
