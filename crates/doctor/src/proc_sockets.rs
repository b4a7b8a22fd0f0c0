//! The sockets of this machine and the processes that have them, from `/proc` (proc_pid_net(5), proc_pid_fd(5)).

use crate::facts::Transport;
use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a TCP socket that listens, and of a UDP socket that is not connected (`net/tcp_states.h`).
const TCP_LISTEN: &str = "0A";
const UDP_UNCONNECTED: &str = "07";
/// Fields of a line: `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode`.
const STATE_FIELD: usize = 3;
const INODE_FIELD: usize = 9;

/// A socket that is bound for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoundSocket {
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
    pub(crate) inode: u64,
}

/// All sockets that are bound for clients.
pub(crate) fn bound_sockets() -> Vec<BoundSocket> {
    let files = [("tcp", Transport::Tcp), ("tcp6", Transport::Tcp), ("udp", Transport::Udp), ("udp6", Transport::Udp)];
    let read = |(name, transport)| {
        let text = fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
        parse(&text, transport)
    };
    files.into_iter().flat_map(read).collect()
}

/// The processes that have each socket, by its inode. Those of other users are visible to root only.
pub(crate) fn holders() -> HashMap<u64, Vec<u32>> {
    let mut holders: HashMap<u64, Vec<u32>> = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        for target in descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()) {
            let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            inode.into_iter().for_each(|inode| holders.entry(inode).or_default().push(pid));
        }
    }
    holders
}

/// The name of a process.
pub(crate) fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

/// The parent of a process.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    // The name in parentheses may have spaces; the state and the parent follow it.
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The soft limit of open files of a process.
pub(crate) fn open_files_limit_of(pid: u32) -> Option<u64> {
    parse_limit(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

fn parse_limit(text: &str) -> Option<u64> {
    let limit = text.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    if limit == "unlimited" { Some(u64::MAX) } else { limit.parse().ok() }
}

fn parse(text: &str, transport: Transport) -> Vec<BoundSocket> {
    let state = match transport {
        Transport::Tcp => TCP_LISTEN,
        Transport::Udp => UDP_UNCONNECTED,
    };
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if *fields.get(STATE_FIELD)? != state {
            return None;
        }
        Some(BoundSocket { transport, address: address(fields[1])?, inode: fields.get(INODE_FIELD)?.parse().ok()? })
    };
    text.lines().skip(1).filter_map(socket).collect()
}

/// `0100007F:0035`: the address in words of the machine's byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = |start: usize| u32::from_str_radix(address.get(start..start + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(words(0)?)),
        32 => {
            let bytes = [words(0)?, words(8)?, words(16)?, words(24)?].concat();
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn own_sockets_are_found_with_this_process_as_their_holder() {
        let tcp = [TcpListener::bind("127.0.0.1:0"), TcpListener::bind("[::1]:0")];
        let tcp: Vec<TcpListener> = tcp.into_iter().flatten().collect();
        let udp = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let mut expected = vec![(Transport::Udp, udp.local_addr().expect("bound"))];
        expected.extend(tcp.iter().map(|socket| (Transport::Tcp, socket.local_addr().expect("bound"))));
        assert!(expected.len() > 1, "no TCP");
        let (sockets, holders) = (bound_sockets(), holders());
        for (transport, address) in expected {
            let found = sockets.iter().find(|socket| (socket.transport, socket.address) == (transport, address));
            let found = found.unwrap_or_else(|| panic!("{address} is not in {sockets:?}"));
            assert_eq!(holders.get(&found.inode), Some(&vec![std::process::id()]));
        }
    }

    #[test]
    fn connected_sockets_and_damaged_lines_are_left_out() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20 0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100\n\
            \x20 1: 0100007F:0050 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0 100\n\
            \x20 2: damaged\n";
        let found = parse(text, Transport::Tcp);
        assert_eq!(found, [BoundSocket { transport: Transport::Tcp, address: ([0, 0, 0, 0], 80).into(), inode: 77 }]);
    }

    #[test]
    fn limits_and_parents_are_read() {
        let text =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288      files\n";
        assert_eq!(parse_limit(text), Some(1024));
        assert_eq!(parse_limit("Max open files  unlimited unlimited files"), Some(u64::MAX));
        assert!(open_files_limit_of(std::process::id()).is_some_and(|limit| limit > 0));
        assert_eq!(parent_of(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_ne!(name_of(std::process::id()), "?");
    }
}
