//! Addresses for programs that cannot choose a free port by themselves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::Mutex;

/// Below the ports that the kernel gives to clients and to port 0 (`net.ipv4.ip_local_port_range`), so that no client
/// takes one while its program is not running.
const PORTS: Range<u16> = 10_000..32_000;
/// A port belongs to the test process that has it bound at this address, which no program under test uses.
const RESERVATIONS: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 254);

/// This process's ports. The ports stay reserved until the process ends, since programs are restarted at their address.
static RESERVED: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// An address of the loopback interface, for UDP and TCP, that no other call returns while this process runs.
#[track_caller]
pub fn free_address() -> SocketAddr {
    free_address_at(Ipv4Addr::LOCALHOST)
}

/// A free address at another IP address of the loopback interface. The port is no other call's, whatever its address
/// is.
#[track_caller]
pub fn free_address_at(ip: Ipv4Addr) -> SocketAddr {
    for _ in PORTS {
        let address = SocketAddr::from((ip, fastrand::u16(PORTS)));
        let Ok(reservation) = UdpSocket::bind((RESERVATIONS, address.port())) else { continue };
        // A program that is no test may use the port.
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            RESERVED.lock().expect("no holder of this lock panics").push(reservation);
            return address;
        }
    }
    panic!("no port of {PORTS:?} is free");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;

    #[test]
    fn port_is_returned_once_by_all_threads() {
        const COUNT: usize = 300;
        let take = || -> Vec<u16> { (0..COUNT).map(|_| free_address().port()).collect() };
        let threads = [thread::spawn(take), thread::spawn(take)];
        let ports: BTreeSet<u16> = threads.into_iter().flat_map(|thread| thread.join().expect("free ports")).collect();
        assert_eq!(ports.len(), 2 * COUNT);
    }

    #[test]
    fn port_of_another_process_is_not_returned() {
        let others = UdpSocket::bind((RESERVATIONS, free_port_of_the_range())).expect("it is free");
        let port = others.local_addr().expect("it is bound").port();
        assert!((0..1_000).all(|_| free_address().port() != port));
    }

    /// A port that is not reserved.
    fn free_port_of_the_range() -> u16 {
        let is_free = |port: &u16| UdpSocket::bind((RESERVATIONS, *port)).is_ok();
        PORTS.rev().find(is_free).expect("one of them is free")
    }
}
