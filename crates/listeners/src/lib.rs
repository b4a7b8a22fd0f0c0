//! The bound sockets of the configured addresses.
//!
//! The supervisor binds them before any process serves, and hands them to each server process; they outlive it. Each
//! address has several reuseport sockets (`SO_REUSEPORT`), among which the kernel distributes clients. A socket is not
//! closed while its address is in use: the clients in its listen queue would be lost.
#![forbid(unsafe_code)]

mod error;

pub use error::BindError;

use sanderling_config::{Config, ListenerRole, Service};
use sanderling_os::socket::{self, SocketType};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The sockets of one address.
#[derive(Clone, Debug)]
pub struct ListenAddress {
    /// The service, and the owner of the sockets.
    pub role: ListenerRole,
    /// The address in the configuration, perhaps with port 0.
    configured: SocketAddr,
    /// The address with its real port.
    pub bound: SocketAddr,
    /// The stream sockets.
    pub streams: Vec<Arc<Listener>>,
    /// The datagram sockets: as many as stream sockets for DNS, none for other services.
    pub datagrams: Vec<Arc<Socket>>,
}

/// The sockets of all addresses. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Vec<ListenAddress>);

impl Listeners {
    /// The sockets for `config`: taken from `existing` where the address is the same, otherwise new.
    ///
    /// # Errors
    /// Returns an error if an address cannot be bound. `existing` is unchanged.
    pub fn bind(config: &Config, existing: &Listeners) -> Result<Listeners, BindError> {
        let mut existing = existing.0.clone();
        let listen = |service| config.listen(service).iter().map(move |address| (service, *address));
        let mut addresses = Vec::new();
        for (service, configured) in Service::ALL.into_iter().flat_map(listen) {
            let is_same = |address: &ListenAddress| address.role.service == service && address.configured == configured;
            let address = match existing.iter().position(is_same) {
                Some(index) => existing.remove(index),
                None => ListenAddress::bind(service, configured).map_err(|error| BindError {
                    service,
                    address: configured,
                    error,
                })?,
            };
            addresses.push(address);
        }
        // Sockets are added when nothing can fail after it: closing one would lose the clients in its queue.
        for address in &mut addresses {
            // Only one thread serves metrics.
            let socket_count = if address.role.service == Service::Metrics { 1 } else { config.socket_count() };
            address.add_sockets(socket_count);
            let (service, bound) = (address.role.service, address.bound);
            address.apply_limits(config).map_err(|error| BindError { service, address: bound, error })?;
        }
        let listeners = Listeners(addresses);
        listeners.set_http_options();
        Ok(listeners)
    }

    /// Leaves connections of HTTP and HTTPS in the kernel until their first data arrives
    /// ([`Listener::set_defer_accept`]), and limits the part of a response that the kernel buffers
    /// ([`Listener::set_unsent_limit`]). DNS connections may be opened before they are needed.
    pub fn set_http_options(&self) {
        let http = self.0.iter().filter(|address| address.role.service.begins_with_request());
        http.flat_map(|address| &address.streams).for_each(|stream| {
            stream.set_defer_accept();
            stream.set_unsent_limit();
        });
    }

    /// These sockets, with new ones for those that no longer work: a server process, which has all of them, has shut
    /// them down. The options and limits of the others are set again. The second value has the addresses with new
    /// sockets, and those for which there are none.
    #[must_use]
    pub fn restored(&self, config: &Config) -> (Listeners, Vec<(ListenerRole, SocketAddr, io::Result<()>)>) {
        let mut restored = Listeners::default();
        let mut report = Vec::new();
        for address in &self.0 {
            let mut address = address.clone();
            match address.restore(config) {
                Ok(false) => {}
                result => report.push((address.role, address.bound, result.map(drop))),
            }
            restored.0.push(address);
        }
        restored.set_http_options();
        (restored, report)
    }

    /// Shuts down the listening sockets of the addresses that `kept` does not have, except for external ones.
    pub fn shut_down_except(&self, kept: &Listeners) -> io::Result<()> {
        let unused = self.0.iter().filter(|address| !kept.has(address) && !address.role.is_external);
        // A failure does not prevent the others from being shut down.
        unused.flat_map(|address| &address.streams).map(|stream| stream.shutdown()).fold(Ok(()), Result::and)
    }

    /// Whether no listening socket was shut down by another process.
    pub fn is_listening(&self) -> bool {
        self.0.iter().flat_map(|address| &address.streams).all(|stream| stream.is_listening())
    }

    /// Takes over bound sockets, in the order of their addresses.
    ///
    /// # Errors
    /// Returns an error if a descriptor is not a bound socket of IPv4 or IPv6.
    pub fn from_fds(sockets: Vec<(ListenerRole, OwnedFd)>) -> io::Result<Listeners> {
        let mut addresses: Vec<ListenAddress> = Vec::new();
        for (role, descriptor) in sockets {
            socket::set_nonblocking(&descriptor)?;
            let socket_type = socket::socket_type(&descriptor)?;
            let bound = socket::local_address(&descriptor)?;
            let is_same = |address: &ListenAddress| address.role.service == role.service && address.bound == bound;
            let index = addresses.iter().position(is_same).unwrap_or_else(|| {
                let (streams, datagrams) = (Vec::new(), Vec::new());
                addresses.push(ListenAddress { role, configured: bound, bound, streams, datagrams });
                addresses.len() - 1
            });
            match socket_type {
                SocketType::Stream => addresses[index].streams.push(Arc::new(Listener::from(descriptor))),
                SocketType::Datagram if role.service.has_datagrams() => {
                    addresses[index].datagrams.push(Arc::new(Socket::from_fd(descriptor)?));
                }
                _ => return Err(wrong_socket_type(role.service, bound)),
            }
        }
        Ok(Listeners(addresses))
    }

    /// Sets the configured addresses, which may have port 0: the sockets of each service have the order of `config`,
    /// with which they were bound. A socket that is bound to another address keeps that address.
    #[must_use]
    pub fn with_configured_addresses(mut self, config: &Config) -> Listeners {
        for service in Service::ALL {
            let addresses = self.0.iter_mut().filter(|address| address.role.service == service);
            for (address, configured) in addresses.zip(config.listen(service)) {
                let is_possible = address.bound.ip() == configured.ip()
                    && (configured.port() == 0 || address.bound.port() == configured.port());
                if is_possible {
                    address.configured = *configured;
                }
            }
        }
        self
    }

    /// Marks the sockets of the addresses of `external` as external: a server process that hands them over does not
    /// know.
    #[must_use]
    pub fn with_external(mut self, external: &Listeners) -> Listeners {
        for address in &mut self.0 {
            address.role.is_external |= external.has(address);
        }
        self
    }

    /// All addresses, in the order of the configuration, HTTP first.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.0
    }

    /// All sockets, as [`Listeners::from_fds`] takes them.
    pub fn fds(&self) -> impl Iterator<Item = (ListenerRole, BorrowedFd<'_>)> {
        self.0.iter().flat_map(|address| address.fds().map(|socket| (address.role, socket)))
    }

    /// The address with the service and the bound address of `other`.
    fn same_as(&self, other: &ListenAddress) -> Option<&ListenAddress> {
        self.0.iter().find(|address| address.role.service == other.role.service && address.bound == other.bound)
    }

    fn has(&self, address: &ListenAddress) -> bool {
        self.same_as(address).is_some()
    }

    /// These addresses, with the sockets of `other` where it has more.
    #[must_use]
    pub fn with_added_sockets_of(&self, other: &Listeners) -> Listeners {
        let larger = |address: &ListenAddress| {
            let larger = other.same_as(address).filter(|it| it.socket_count() > address.socket_count());
            larger.unwrap_or(address).clone()
        };
        Listeners(self.0.iter().map(larger).collect())
    }

    /// Whether there are more sockets than in `other`.
    pub fn has_more_than(&self, other: &Listeners) -> bool {
        self.fds().count() > other.fds().count()
    }

    /// A line for each address: `http 127.0.0.1:8080`.
    pub fn announcement(&self) -> String {
        self.announcement_except(&Listeners::default())
    }

    /// A line for each address that `announced` does not have.
    pub fn announcement_except(&self, announced: &Listeners) -> String {
        let new = self.0.iter().filter(|address| !announced.has(address));
        new.map(|address| format!("{} {}\n", address.role.service.name(), address.bound)).collect()
    }
}

impl ListenAddress {
    fn bind(service: Service, configured: SocketAddr) -> io::Result<ListenAddress> {
        let (stream, datagrams) = if service.has_datagrams() {
            let (socket, stream) = Socket::bind_with_listener(configured)?;
            (stream, vec![Arc::new(socket)])
        } else {
            (Listener::bind(configured)?, Vec::new())
        };
        let (role, bound) = (ListenerRole::internal(service), stream.local_address()?);
        Ok(ListenAddress { role, configured, bound, streams: vec![Arc::new(stream)], datagrams })
    }

    /// Adds reuseport sockets up to `count`. The workers share the existing ones if that fails: the kernel has no
    /// `SO_REUSEPORT`, or no descriptor is free. External sockets get no additional ones: when the server stops, added
    /// ones would be closed with the clients in their queues.
    fn add_sockets(&mut self, count: usize) {
        if self.role.is_external {
            return;
        }
        while !self.streams.is_empty() && self.streams.len() < count {
            let Ok(stream) = Listener::bind_reuseport(self.bound) else { break };
            self.streams.push(Arc::new(stream));
        }
        while !self.datagrams.is_empty() && self.datagrams.len() < count {
            let Ok(socket) = Socket::bind_reuseport(self.bound) else { break };
            self.datagrams.push(Arc::new(socket));
        }
    }

    /// Sets the sizes of the queues, which may have changed in the configuration.
    fn apply_limits(&mut self, config: &Config) -> io::Result<()> {
        for stream in &self.streams {
            socket::set_backlog(stream.as_fd(), config.limits.listen_backlog_max)?;
        }
        for datagrams in &self.datagrams {
            socket::set_receive_buffer(datagrams.as_fd(), config.limits.dns_udp_waiting_bytes_max)?;
        }
        Ok(())
    }

    /// Replaces sockets that were shut down; whether there were any.
    ///
    /// # Errors
    /// Returns an error if the address cannot be bound again, or an option cannot be set.
    fn restore(&mut self, config: &Config) -> io::Result<bool> {
        let mut has_replaced = false;
        for stream in self.streams.iter_mut().filter(|stream| !stream.is_listening()) {
            has_replaced = true;
            match self.role.is_external {
                false => *stream = Arc::new(Listener::bind_reuseport(self.bound)?),
                // The service manager has no other socket.
                true => socket::set_backlog(stream.as_fd(), config.limits.listen_backlog_max)?,
            }
        }
        for socket in self.datagrams.iter_mut().filter(|socket| socket.is_shut_down()) {
            *socket = Arc::new(Socket::bind_reuseport(self.bound)?);
            has_replaced = true;
        }
        self.streams.iter().try_for_each(|stream| stream.restore_options())?;
        self.apply_limits(config)?;
        Ok(has_replaced)
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let streams = self.streams.iter().map(|stream| stream.as_fd());
        streams.chain(self.datagrams.iter().map(|socket| socket.as_fd()))
    }

    /// The number of reuseport sockets.
    pub fn socket_count(&self) -> usize {
        self.streams.len().max(self.datagrams.len())
    }
}

fn wrong_socket_type(service: Service, bound: SocketAddr) -> io::Error {
    let expected = match service.has_datagrams() {
        false => "a stream socket (ListenStream=)",
        true => "a stream or datagram socket (ListenStream=, ListenDatagram=)",
    };
    io::Error::other(format!("the inherited socket at {bound} for {service} is not {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::SocketsPerAddress;

    fn config(http: &[&str], dns: &[&str], sockets_per_address: SocketsPerAddress) -> Config {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
        Config { sockets_per_address, http_listen: addresses(http), dns_listen: addresses(dns), ..Config::default() }
    }

    const ANY: &str = "127.0.0.1:0";

    #[test]
    fn reuseport_sockets_share_the_port_that_the_kernel_chose() {
        let config = config(&[ANY, ANY], &[ANY], SocketsPerAddress::Exactly(3));
        let listeners = Listeners::bind(&config, &Listeners::default()).expect("bound");
        let [first, second, dns] = listeners.addresses() else { panic!("three addresses") };
        assert_ne!(first.bound, second.bound);
        for address in listeners.addresses() {
            assert_eq!(address.streams.len(), 3);
            for stream in &address.streams {
                assert_eq!(stream.local_address().expect("bound"), address.bound);
            }
            for socket in &address.datagrams {
                assert_eq!(socket.local_address().expect("bound"), address.bound);
            }
        }
        assert_eq!(dns.datagrams.len(), 3);
    }

    #[test]
    fn rebind_keeps_sockets_and_never_closes_one() {
        let old = config(&[ANY, ANY], &[ANY], SocketsPerAddress::Exactly(2));
        let old = Listeners::bind(&old, &Listeners::default()).expect("bound");
        let new = config(&[ANY], &[ANY, ANY], SocketsPerAddress::Exactly(1));
        let new = Listeners::bind(&new, &old).expect("bound");
        assert_eq!(new.0[0].bound, old.0[0].bound);
        assert_eq!(new.0[1].bound, old.0[2].bound);
        let counts: Vec<usize> = new.0.iter().map(ListenAddress::socket_count).collect();
        assert_eq!(counts, [2, 2, 1]);
        assert_eq!(old.fds().count(), 2 + 2 + 4);
        let more = config(&[ANY, ANY], &[ANY], SocketsPerAddress::Exactly(3));
        let more = Listeners::bind(&more, &old).expect("bound");
        assert!(more.has_more_than(&old) && !old.has_more_than(&more));
        let larger: Vec<usize> = old.with_added_sockets_of(&more).0.iter().map(ListenAddress::socket_count).collect();
        assert_eq!(larger, [3, 3, 3]);
    }

    #[test]
    fn configured_addresses_do_not_depend_on_the_order_of_the_services() {
        let mut config = config(&[ANY], &[ANY], SocketsPerAddress::Exactly(1));
        config.dot_listen = vec!["127.0.0.2:0".parse().expect("an address")];
        let listeners = Listeners::bind(&config, &Listeners::default()).expect("bound");
        let mut sockets: Vec<_> =
            listeners.fds().map(|(role, socket)| (role, socket.try_clone_to_owned().expect("a copy"))).collect();
        sockets.reverse();
        let handed_over = Listeners::from_fds(sockets).expect("sockets").with_configured_addresses(&config);
        let again = Listeners::bind(&config, &handed_over).expect("the same sockets");
        assert!(!again.has_more_than(&handed_over));
        let configured =
            |service| handed_over.0.iter().find(|it| it.role.service == service).expect("an address").configured.ip();
        assert_eq!(configured(Service::Dot), config.dot_listen[0].ip());
        assert_eq!(configured(Service::Dns), config.dns_listen[0].ip());
    }

    #[test]
    fn sockets_that_were_shut_down_are_replaced_and_the_others_kept() {
        let config = config(&[ANY], &[ANY], SocketsPerAddress::Exactly(2));
        let listeners = Listeners::bind(&config, &Listeners::default()).expect("bound");
        let numbers = |listeners: &Listeners| -> Vec<i32> {
            listeners.fds().map(|(_, socket)| std::os::fd::AsRawFd::as_raw_fd(&socket)).collect()
        };
        let (same, report) = listeners.restored(&config);
        assert!(report.is_empty() && numbers(&same) == numbers(&listeners), "{report:?}");
        // Shuts the sockets down as a process with a copy does: a stream socket and, for receiving or sending, a
        // datagram socket.
        let (http, dns) = (&listeners.0[0], &listeners.0[1]);
        http.streams[1].shutdown().expect("shut down");
        for (socket, how) in dns.datagrams.iter().zip([std::net::Shutdown::Read, std::net::Shutdown::Write]) {
            let copy = socket.as_fd().try_clone_to_owned().expect("a copy");
            // The kernel says that it is not connected, and shuts it down.
            let _ = std::net::TcpStream::from(copy).shutdown(how);
        }
        let (restored, report) = listeners.restored(&config);
        let replaced: Vec<SocketAddr> = report.iter().map(|(_, bound, _)| *bound).collect();
        assert!(report.iter().all(|(_, _, result)| result.is_ok()), "{report:?}");
        assert_eq!(replaced, [http.bound, dns.bound]);
        let kept: Vec<bool> = numbers(&restored).iter().map(|number| numbers(&listeners).contains(number)).collect();
        assert_eq!(kept, [true, false, true, true, false, false]);
        for _ in 0..16 {
            std::net::TcpStream::connect(http.bound).expect("connected");
        }
        assert!(restored.restored(&config).1.is_empty());
    }

    #[test]
    fn address_in_use_is_an_error() {
        let used = std::net::TcpListener::bind(ANY).expect("bound");
        let address = used.local_addr().expect("bound").to_string();
        let error = Listeners::bind(&config(&[ANY, &address], &[], SocketsPerAddress::Auto), &Listeners::default());
        let error = error.expect_err("in use");
        assert_eq!(error.error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn inherited_sockets_are_grouped_by_address() {
        let config = config(&[ANY], &[ANY], SocketsPerAddress::Exactly(2));
        let bound = Listeners::bind(&config, &Listeners::default()).expect("bound");
        let copy = |(role, fd): (ListenerRole, BorrowedFd<'_>)| (role, fd.try_clone_to_owned().unwrap());
        let inherited = Listeners::from_fds(bound.fds().map(copy).collect()).expect("sockets");
        assert_eq!(inherited.announcement(), bound.announcement());
        assert_eq!(inherited.0[1].datagrams.len(), 2);
        let inherited = inherited.with_configured_addresses(&config);
        assert_eq!(inherited.0[1].configured, ANY.parse().unwrap());
        let wrong = std::net::UdpSocket::bind(ANY).expect("bound");
        let error =
            Listeners::from_fds(vec![(ListenerRole::internal(Service::Http), wrong.into())]).expect_err("datagrams");
        assert!(error.to_string().contains("ListenStream="), "{error}");
    }

    #[test]
    fn external_sockets_and_sockets_without_reuseport_stay_alone() {
        for is_external in [false, true] {
            let socket: OwnedFd = match is_external {
                false => std::net::TcpListener::bind(ANY).expect("bound").into(),
                // The socket is created as by a service manager with `ReusePort=yes`.
                true => {
                    let (_, stream) = Socket::bind_with_listener(ANY.parse().unwrap()).expect("bound");
                    stream.as_fd().try_clone_to_owned().expect("a copy")
                }
            };
            let address = socket::local_address(&socket).expect("bound").to_string();
            let role = ListenerRole { service: Service::Http, is_external };
            let inherited = Listeners::from_fds(vec![(role, socket)]).expect("a socket");
            let config = config(&[&address], &[], SocketsPerAddress::Exactly(4));
            let listeners = Listeners::bind(&config, &inherited).expect("kept");
            assert_eq!(listeners.addresses()[0].socket_count(), 1, "external: {is_external}");
        }
    }
}
