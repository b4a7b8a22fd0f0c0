//! Turns the addresses of a configuration into bound sockets: a sibling of each address for each worker.
//!
//! All are made before any worker runs and handed to whoever serves. This is the seam at which another process can
//! make them, keep them, and pass them on.

use server::Siblings;
use std::io;
use std::net::SocketAddr;

use os::tcp::Listener;
use os::udp::Socket;

/// How often a port is chosen anew that is free for UDP and turns out to be taken for TCP.
const PORT_TRIES_MAX: usize = 16;

/// Sockets, and the addresses that they are really bound to.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// One for each worker.
    pub(crate) siblings: Vec<Siblings>,
    /// Where HTTP is answered.
    pub(crate) http: Vec<SocketAddr>,
    /// Where DNS is answered, over UDP and TCP.
    pub(crate) dns: Vec<SocketAddr>,
}

/// Binds siblings of each address for `worker_count` workers. Port 0 becomes one that the kernel chooses, the same for
/// all siblings and, for DNS, for both transports.
pub(crate) fn bind(worker_count: usize, http: &[SocketAddr], dns: &[SocketAddr]) -> io::Result<Listeners> {
    let mut siblings: Vec<Siblings> = (0..worker_count).map(|_| Siblings::default()).collect();
    let (mut http_bound, mut dns_bound) = (Vec::new(), Vec::new());
    for &address in http {
        let first = Listener::bind(address)?;
        let address = first.local_address()?;
        siblings[0].http.push(first);
        for worker in &mut siblings[1..] {
            worker.http.push(Listener::bind_sibling(address)?);
        }
        http_bound.push(address);
    }
    for &address in dns {
        let (datagrams, stream) = bind_both(address)?;
        let address = datagrams.local_address()?;
        siblings[0].dns_datagrams.push(datagrams);
        siblings[0].dns_streams.push(stream);
        for worker in &mut siblings[1..] {
            worker.dns_datagrams.push(Socket::bind_sibling(address)?);
            worker.dns_streams.push(Listener::bind_sibling(address)?);
        }
        dns_bound.push(address);
    }
    Ok(Listeners { siblings, http: http_bound, dns: dns_bound })
}

/// A UDP socket and a TCP listener on the same port.
fn bind_both(address: SocketAddr) -> io::Result<(Socket, Listener)> {
    let mut tries_left = if address.port() == 0 { PORT_TRIES_MAX } else { 1 };
    loop {
        tries_left -= 1;
        let datagrams = Socket::bind(address)?;
        match Listener::bind(datagrams.local_address()?) {
            Ok(stream) => return Ok((datagrams, stream)),
            Err(error) if tries_left == 0 => return Err(error),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_share_the_port_that_the_kernel_chose() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listeners = bind(3, &[any, any], &[any]).expect("bound");
        assert_eq!(listeners.siblings.len(), 3);
        assert_ne!(listeners.http[0], listeners.http[1]);
        for siblings in &listeners.siblings {
            assert_eq!(siblings.http[1].local_address().expect("bound"), listeners.http[1]);
            assert_eq!(siblings.dns_datagrams[0].local_address().expect("bound"), listeners.dns[0]);
            assert_eq!(siblings.dns_streams[0].local_address().expect("bound"), listeners.dns[0]);
        }
    }
}
