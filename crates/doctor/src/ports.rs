//! The programs that have bound the addresses of the configuration.

use crate::facts::{Holder, PortFacts, Running, Transport};
use crate::proc_sockets::{BoundSocket, name_of, parent_of};
use sanderling_config::{Config, Service};
use sanderling_os::interfaces::source_address;
use sanderling_os::process::effective_uid;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Each fixed address of `config`, with the program that has it. `running` is the server that runs.
pub(crate) fn ports(
    config: &Config,
    sockets: &[BoundSocket],
    holders: &HashMap<u64, Vec<u32>>,
    running: Option<&Running>,
) -> Vec<PortFacts> {
    let is_own = |pid: u32| running.is_some_and(|server| pid == server.pid || parent_of(pid) == Some(server.pid));
    let first_free_port = if effective_uid() == 0 { 0 } else { unprivileged_port_start() };
    let mut ports = Vec::new();
    for service in Service::ALL {
        let transports: &[Transport] =
            if service.has_datagrams() { &[Transport::Udp, Transport::Tcp] } else { &[Transport::Tcp] };
        for &address in config.listen(service).iter().filter(|address| address.port() != 0) {
            let is_local = address.ip().is_unspecified() || source_address(address.ip()) == Some(address.ip());
            let needs_root = address.port() < first_free_port;
            for &transport in transports {
                let holder = holder(address, transport, sockets, holders, is_own);
                ports.push(PortFacts { service, address, transport, holder, is_local, needs_root });
            }
        }
    }
    ports
}

/// The first port that any user can bind (ip(7)).
fn unprivileged_port_start() -> u16 {
    const FILE: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    const DEFAULT: u16 = 1024;
    std::fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT)
}

fn holder(
    address: SocketAddr,
    transport: Transport,
    sockets: &[BoundSocket],
    holders: &HashMap<u64, Vec<u32>>,
    is_own: impl Fn(u32) -> bool,
) -> Holder {
    let in_the_way = sockets.iter().filter(|socket| socket.transport == transport && conflict(socket.address, address));
    let mut found = Holder::None;
    for socket in in_the_way {
        let pids = holders.get(&socket.inode).map_or(&[][..], Vec::as_slice);
        if pids.iter().any(|pid| is_own(*pid)) {
            return Holder::Own;
        }
        if found == Holder::None {
            found = match pids.first() {
                Some(&pid) => Holder::Other { name: name_of(pid), pid, address: socket.address },
                None => Holder::Hidden { address: socket.address },
            };
        }
    }
    found
}

/// Whether the kernel refuses to bind one of the addresses if another program has the other one. A socket at `[::]` may
/// be bound for IPv4 too.
fn conflict(bound: SocketAddr, wanted: SocketAddr) -> bool {
    let is_all = |ip: IpAddr| ip.is_unspecified();
    let is_same_family = bound.is_ipv4() == wanted.is_ipv4();
    let covers = bound.ip() == wanted.ip()
        || is_same_family && (is_all(bound.ip()) || is_all(wanted.ip()))
        || !is_same_family && bound.is_ipv6() && is_all(bound.ip());
    bound.port() == wanted.port() && covers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bound: &str, wanted: &str, expected: bool) {
        let [bound, wanted] = [bound, wanted].map(|text| text.parse().expect("an address"));
        assert_eq!(conflict(bound, wanted), expected, "{bound} {wanted}");
    }

    #[test]
    fn addresses_conflict_as_for_the_kernel() {
        check("127.0.0.53:53", "0.0.0.0:53", true);
        check("127.0.0.53:53", "192.0.2.1:53", false);
        check("0.0.0.0:80", "192.0.2.1:80", true);
        check("[::]:80", "0.0.0.0:80", true);
        check("[::1]:80", "127.0.0.1:80", false);
        check("0.0.0.0:80", "[::]:80", false);
        check("0.0.0.0:81", "0.0.0.0:80", false);
    }

    #[test]
    fn holder_is_the_server_another_program_or_hidden() {
        let wanted: SocketAddr = "127.0.0.1:53".parse().expect("an address");
        let socket = |inode| BoundSocket {
            transport: Transport::Udp,
            address: "0.0.0.0:53".parse().expect("an address"),
            inode,
        };
        let own = std::process::id();
        let holders = HashMap::from([(1, vec![own]), (2, vec![1])]);
        let find = |sockets: &[BoundSocket]| holder(wanted, Transport::Udp, sockets, &holders, |pid| pid == own);
        assert_eq!(find(&[]), Holder::None);
        assert_eq!(find(&[socket(2), socket(1)]), Holder::Own);
        assert_eq!(find(&[socket(3)]), Holder::Hidden { address: socket(3).address });
        assert!(matches!(find(&[socket(2)]), Holder::Other { pid: 1, .. }));
        assert_eq!(holder(wanted, Transport::Tcp, &[socket(2)], &holders, |_| false), Holder::None);
    }
}
