//! What the kernel counts of the network: what it dropped, for which no server is asked (proc(5)).

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// Whether a closed listener's waiting connections are given to its siblings. Zero, its default, is the harder case.
const MIGRATE: &str = "/proc/sys/net/ipv4/tcp_migrate_req";
/// How often a port is chosen anew that one transport has free and the other not.
const PORT_TRIES_MAX: usize = 16;

/// A port of the loopback that was free a moment ago, for TCP and UDP alike.
pub(super) fn free_address() -> Result<SocketAddr, String> {
    for _ in 0..PORT_TRIES_MAX {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        if UdpSocket::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(format!("no port is free for both TCP and UDP in {PORT_TRIES_MAX} tries"))
}

/// The setting `net.ipv4.tcp_migrate_req` of this network; `None` where the kernel has no such thing.
pub(super) fn migrates() -> Option<bool> {
    let text = fs::read_to_string(MIGRATE).ok()?;
    Some(text.trim() != "0")
}

/// Drops that the kernel has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drops {
    /// Datagrams that found the receive buffer of a socket of our port full.
    datagram_count: u64,
    /// Connections that found the queue of a listener full, of the whole machine; they are tried again by the kernel.
    connection_count: u64,
}

impl Drops {
    /// Those of the DNS service at this address.
    pub(super) fn so_far(dns: Option<SocketAddr>) -> Drops {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Drops {
            datagram_count: dns.map_or(0, |address| datagram_drops(&read("/proc/net/udp"), address.port())),
            connection_count: named_count(&read("/proc/net/netstat"), "TcpExt:", "ListenDrops").unwrap_or(0),
        }
    }

    /// A sentence about what was dropped since.
    pub(super) fn told_since(self, before: Drops) -> String {
        format!(
            "Dropped by the kernel: {} datagrams at a full receive buffer of the server's, {} connections at a full queue \
             (the whole machine's; tried again after a second)",
            self.datagram_count.saturating_sub(before.datagram_count),
            self.connection_count.saturating_sub(before.connection_count)
        )
    }
}

/// The last column of the lines of a port.
fn datagram_drops(table: &str, port: u16) -> u64 {
    let port = format!(":{port:04X}");
    let drops = table.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns.get(1).filter(|address| address.ends_with(&port))?;
        columns.last()?.parse::<u64>().ok()
    });
    drops.sum()
}

/// The number below a name: each group has a line of names, and behind it a line of numbers.
fn named_count(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let index = names.split_whitespace().position(|candidate| candidate == name)?;
    numbers.split_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_summed_over_the_siblings_of_a_port() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode \
                     ref pointer drops\n  \
                     10: 0100007F:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000 5\n  \
                     11: 0100007F:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 3 2 0000 2\n  \
                     12: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4 2 0000 9\n";
        assert_eq!((datagram_drops(table, 0x14e9), datagram_drops(table, 80)), (7, 0));
    }

    #[test]
    fn counts_are_found_by_their_names() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 2 3\nIpExt: ListenDrops\nIpExt: 4\n";
        assert_eq!(named_count(text, "TcpExt:", "ListenDrops"), Some(3));
        assert_eq!(named_count(text, "TcpExt:", "Other"), None);
    }
}
