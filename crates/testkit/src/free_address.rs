//! Addresses for programs that cannot choose a free port by themselves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// Below the ports that the kernel gives to clients and to port 0 (`net.ipv4.ip_local_port_range`), so that nothing
/// else takes one before the program does.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// An address of the loopback interface that is free for UDP and TCP.
#[track_caller]
pub fn free_address() -> SocketAddr {
    for _ in PORTS {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS)));
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port of {PORTS:?} is free");
}
