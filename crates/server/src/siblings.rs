//! The sockets of a server, in sets that are siblings of each other, and which worker serves which set.

use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use std::io;

/// One sibling of each address. They are bound before any worker runs, and outlive them all.
#[derive(Debug, Default)]
pub struct Siblings {
    /// Where HTTP connections come in.
    pub http: Vec<Listener>,
    /// Where DNS streams come in.
    pub dns_streams: Vec<Listener>,
    /// Where DNS datagrams come in.
    pub dns_datagrams: Vec<Socket>,
}

impl Siblings {
    /// Lets nobody connect any more: for whoever owns the sockets, when no process goes on serving them.
    pub fn shut_down(&self) -> io::Result<()> {
        self.http.iter().chain(&self.dns_streams).try_for_each(Listener::shutdown)
    }
}

/// A set of siblings that a worker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The index of the set.
    pub(crate) sibling_index: usize,
    /// Other workers serve it too.
    pub(crate) is_shared: bool,
}

/// What the worker `worker_index` of `worker_count` serves of `sibling_count` sets. Each set is somebody's: one that
/// nobody accepts from would swallow the connections that the kernel gives to it. Where there are fewer sets than workers
/// they are shared.
pub(crate) fn charges_of(worker_index: usize, worker_count: usize, sibling_count: usize) -> Vec<Charge> {
    if sibling_count >= worker_count {
        let indices = (worker_index..sibling_count).step_by(worker_count);
        return indices.map(|sibling_index| Charge { sibling_index, is_shared: false }).collect();
    }
    let sibling_index = worker_index.checked_rem(sibling_count);
    let charge = |sibling_index| Charge { sibling_index, is_shared: sibling_index + sibling_count < worker_count };
    sibling_index.map(charge).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each worker serves, a `*` behind what it shares.
    fn check(worker_count: usize, sibling_count: usize, expected: &str) {
        let of_worker = |worker_index| {
            let charges = charges_of(worker_index, worker_count, sibling_count).into_iter();
            let names = charges.map(|it| format!("{}{}", it.sibling_index, if it.is_shared { "*" } else { "" }));
            names.collect::<Vec<_>>().join(" ")
        };
        let found = (0..worker_count).map(of_worker).collect::<Vec<_>>().join(", ");
        assert_eq!(found, expected, "{worker_count} workers on {sibling_count} siblings");
    }

    #[test]
    fn every_sibling_is_served_and_every_worker_serves() {
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
