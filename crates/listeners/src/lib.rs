//! Turns the addresses of a configuration into sockets that outlive every process that serves on them.
//!
//! Each address has siblings (`SO_REUSEPORT`), among which the kernel spreads those who come. They are bound before
//! anybody serves, and handed to each server process. A sibling that was made is not closed while its address is
//! listened on: whoever waits in it would be lost.
#![forbid(unsafe_code)]

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
pub struct Address {
    /// What they are for.
    pub role: ListenerRole,
    /// As the configuration has it: with port 0 where the kernel chooses.
    asked: SocketAddr,
    /// With its real port.
    pub bound: SocketAddr,
    /// Its stream sockets.
    pub streams: Vec<Arc<Listener>>,
    /// None for HTTP, as many as streams for DNS.
    pub datagrams: Vec<Arc<Socket>>,
}

/// All sockets that are listened on. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Vec<Address>);

impl Listeners {
    /// The sockets that `config` asks for: those of `kept` where they fit, new ones for the rest.
    ///
    /// # Errors
    /// An address that cannot be bound. What was kept is as it was.
    pub fn bind(config: &Config, kept: &Listeners) -> io::Result<Listeners> {
        let mut kept = kept.0.clone();
        let http = config.http_listen.iter().map(|address| (Service::Http, *address));
        let dns = config.dns_listen.iter().map(|address| (Service::Dns, *address));
        let mut addresses = Vec::new();
        for (service, asked) in http.chain(dns) {
            let fits = |address: &Address| address.role.service == service && address.asked == asked;
            let address = match kept.iter().position(fits) {
                Some(index) => kept.remove(index),
                None => Address::bind(service, asked)?,
            };
            addresses.push(address);
        }
        // Only when nothing can fail any more: whoever waits in a sibling is lost if it is closed again.
        for address in &mut addresses {
            address.grow_to(config.listener_count());
            address.bound_by(config)?;
        }
        let listeners = Listeners(addresses);
        listeners.defer_silent();
        Ok(listeners)
    }

    /// Leaves silent clients of HTTP to the kernel ([`Listener::set_defer_accept`]): they ask at once. A stream of DNS may be
    /// opened for later, and costs little among so many datagrams.
    pub fn defer_silent(&self) {
        let http = self.0.iter().filter(|address| address.role.service == Service::Http);
        http.flat_map(|address| &address.streams).for_each(|stream| stream.set_defer_accept());
    }

    /// Lets nobody come any more to the addresses that `kept` lacks, but for those that are somebody else's.
    pub fn shut_down_beyond(&self, kept: &Listeners) -> io::Result<()> {
        let gone = self.0.iter().filter(|address| !kept.has(address) && !address.role.is_external);
        gone.flat_map(|address| &address.streams).try_for_each(|stream| stream.shutdown())
    }

    /// Takes over sockets that were bound by somebody else, in the order of their addresses, siblings one behind the
    /// other.
    ///
    /// # Errors
    /// A descriptor that is no bound socket of the Internet.
    pub fn adopt(sockets: Vec<(ListenerRole, OwnedFd)>) -> io::Result<Listeners> {
        let mut addresses: Vec<Address> = Vec::new();
        for (role, descriptor) in sockets {
            socket::set_nonblocking(&descriptor)?;
            let kind = socket::socket_type(&descriptor)?;
            let bound = socket::local_address(&descriptor)?;
            let fits = |address: &Address| address.role.service == role.service && address.bound == bound;
            let index = addresses.iter().position(fits).unwrap_or_else(|| {
                addresses.push(Address { role, asked: bound, bound, streams: Vec::new(), datagrams: Vec::new() });
                addresses.len() - 1
            });
            match (kind, role.service) {
                (SocketType::Stream, _) => addresses[index].streams.push(Arc::new(Listener::from(descriptor))),
                (SocketType::Datagram, Service::Dns) => {
                    addresses[index].datagrams.push(Arc::new(Socket::from_fd(descriptor)?))
                }
                _ => return Err(wrong_socket(role.service, bound)),
            }
        }
        Ok(Listeners(addresses))
    }

    /// Gives the sockets the addresses of `config` that they were made for, port 0 among them: they have its order, as
    /// they come from a process that ran by it.
    pub fn made_for(mut self, config: &Config) -> Listeners {
        let asked = config.http_listen.iter().chain(&config.dns_listen);
        for (address, asked) in self.0.iter_mut().zip(asked) {
            address.asked = *asked;
        }
        self
    }

    /// All addresses, in the order of the configuration, HTTP first.
    pub fn addresses(&self) -> &[Address] {
        &self.0
    }

    /// Every socket with its role, as [`Listeners::adopt`] takes them.
    pub fn descriptors(&self) -> impl Iterator<Item = (ListenerRole, BorrowedFd<'_>)> {
        self.0.iter().flat_map(|address| address.sockets().map(|socket| (address.role, socket)))
    }

    /// The address of the same service and the same place as `wanted`.
    fn same_as(&self, wanted: &Address) -> Option<&Address> {
        self.0.iter().find(|address| address.role.service == wanted.role.service && address.bound == wanted.bound)
    }

    fn has(&self, wanted: &Address) -> bool {
        self.same_as(wanted).is_some()
    }

    /// The same addresses, each with the siblings that `other` has made for it beyond its own.
    pub fn with_siblings_of(&self, other: &Listeners) -> Listeners {
        let grown = |address: &Address| {
            let larger = other.same_as(address).filter(|it| it.sibling_count() > address.sibling_count());
            larger.unwrap_or(address).clone()
        };
        Listeners(self.0.iter().map(grown).collect())
    }

    /// Whether it has a socket that `other` lacks.
    pub fn has_more_than(&self, other: &Listeners) -> bool {
        self.descriptors().count() > other.descriptors().count()
    }

    /// The addresses with their sockets, for a process that serves on them.
    pub fn into_addresses(self) -> Vec<Address> {
        self.0
    }

    /// One line for each address, for people and scripts alike.
    pub fn announcement(&self) -> String {
        self.announcement_beyond(&Listeners::default())
    }

    /// The same for those that `told` lacks.
    pub fn announcement_beyond(&self, told: &Listeners) -> String {
        let new = self.0.iter().filter(|address| !told.has(address));
        new.map(|address| format!("{} {}\n", address.role.service.name(), address.bound)).collect()
    }
}

impl Address {
    fn bind(service: Service, asked: SocketAddr) -> io::Result<Address> {
        let (bound, stream, datagrams) = match service {
            Service::Http => {
                let stream = Listener::bind(asked)?;
                (stream.local_address()?, stream, Vec::new())
            }
            Service::Dns => {
                let (socket, stream) = Socket::bind_with_listener(asked)?;
                (socket.local_address()?, stream, vec![Arc::new(socket)])
            }
        };
        Ok(Address { role: ListenerRole::own(service), asked, bound, streams: vec![Arc::new(stream)], datagrams })
    }

    /// Gives it so many siblings, if it has fewer and can have them. A socket that somebody else has bound, a kernel
    /// without `SO_REUSEPORT`, want of descriptors: all that leaves it with those that it has, which the workers share.
    fn grow_to(&mut self, count: usize) {
        while !self.streams.is_empty() && self.streams.len() < count {
            let Ok(stream) = Listener::bind_reuseport(self.bound) else { break };
            self.streams.push(Arc::new(stream));
        }
        while !self.datagrams.is_empty() && self.datagrams.len() < count {
            let Ok(socket) = Socket::bind_reuseport(self.bound) else { break };
            self.datagrams.push(Arc::new(socket));
        }
    }

    /// Sets the bounds on what waits in the sockets, which a configuration may have changed.
    fn bound_by(&self, config: &Config) -> io::Result<()> {
        for stream in &self.streams {
            socket::set_backlog(stream.as_fd(), config.limits.listen_backlog_max)?;
        }
        for datagrams in &self.datagrams {
            socket::set_receive_buffer(datagrams.as_fd(), config.limits.dns_udp_waiting_bytes_max)?;
        }
        Ok(())
    }

    fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let streams = self.streams.iter().map(|stream| stream.as_fd());
        streams.chain(self.datagrams.iter().map(|socket| socket.as_fd()))
    }

    /// How many siblings it has.
    pub fn sibling_count(&self) -> usize {
        self.streams.len().max(self.datagrams.len())
    }
}

fn wrong_socket(service: Service, bound: SocketAddr) -> io::Error {
    let wanted = match service {
        Service::Http => "a stream (ListenStream=)",
        Service::Dns => "a stream or datagrams (ListenStream=, ListenDatagram=)",
    };
    io::Error::other(format!("the socket at {bound} that was handed over for {} is not {wanted}", service.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::{DefaultSite, Limits, ListenerCount};

    fn config(http: &[&str], dns: &[&str], listeners: ListenerCount) -> Config {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
        Config {
            worker_count: 1,
            listeners,
            account: None,
            sandbox: true,
            control: None,
            http_listen: addresses(http),
            dns_listen: addresses(dns),
            sites: Vec::new(),
            default_site: DefaultSite::None,
            zones: Vec::new(),
            limits: Limits::default(),
        }
    }

    const ANY: &str = "127.0.0.1:0";

    #[test]
    fn siblings_share_the_port_that_the_kernel_chose() {
        let config = config(&[ANY, ANY], &[ANY], ListenerCount::Exactly(3));
        let listeners = Listeners::bind(&config, &Listeners::default()).expect("bound");
        let bound: Vec<SocketAddr> = listeners.addresses().iter().map(|address| address.bound).collect();
        assert_ne!(bound[0], bound[1]);
        for address in listeners.addresses() {
            assert_eq!(address.streams.len(), 3);
            for stream in &address.streams {
                assert_eq!(stream.local_address().expect("bound"), address.bound);
            }
            for socket in &address.datagrams {
                assert_eq!(socket.local_address().expect("bound"), address.bound);
            }
        }
        assert_eq!(listeners.addresses()[2].datagrams.len(), 3);
    }

    #[test]
    fn a_change_keeps_the_sockets_of_what_stays_and_takes_none_away_from_the_old() {
        let old = config(&[ANY, ANY], &[ANY], ListenerCount::Exactly(2));
        let old = Listeners::bind(&old, &Listeners::default()).expect("bound");
        let new = config(&[ANY], &[ANY, ANY], ListenerCount::Exactly(1));
        let new = Listeners::bind(&new, &old).expect("bound");
        assert_eq!(new.0[0].bound, old.0[0].bound);
        assert_eq!(new.0[1].bound, old.0[2].bound);
        let counts: Vec<usize> = new.0.iter().map(Address::sibling_count).collect();
        assert_eq!(counts, [2, 2, 1], "siblings are never closed");
        assert_eq!(old.descriptors().count(), 2 + 2 + 4);
        let more = config(&[ANY, ANY], &[ANY], ListenerCount::Exactly(3));
        let more = Listeners::bind(&more, &old).expect("bound");
        assert!(more.has_more_than(&old) && !old.has_more_than(&more));
        let grown: Vec<usize> = old.with_siblings_of(&more).0.iter().map(Address::sibling_count).collect();
        assert_eq!(grown, [3, 3, 3]);
    }

    #[test]
    fn an_address_that_is_taken_fails_the_whole() {
        let taken = std::net::TcpListener::bind(ANY).expect("bound");
        let address = taken.local_addr().expect("bound").to_string();
        let error = Listeners::bind(&config(&[ANY, &address], &[], ListenerCount::Auto), &Listeners::default());
        assert_eq!(error.expect_err("taken").kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn sockets_that_were_handed_over_are_told_apart_by_what_they_carry() {
        let config = config(&[ANY], &[ANY], ListenerCount::Exactly(2));
        let made = Listeners::bind(&config, &Listeners::default()).expect("bound");
        let copy =
            |(role, descriptor): (ListenerRole, BorrowedFd<'_>)| (role, descriptor.try_clone_to_owned().unwrap());
        let adopted = Listeners::adopt(made.descriptors().map(copy).collect()).expect("sockets");
        assert_eq!(adopted.announcement(), made.announcement());
        assert_eq!(adopted.0[1].datagrams.len(), 2);
        let adopted = adopted.made_for(&config);
        assert_eq!(adopted.0[1].asked, ANY.parse().unwrap());
        let wrong = std::net::UdpSocket::bind(ANY).expect("bound");
        let error = Listeners::adopt(vec![(ListenerRole::own(Service::Http), wrong.into())]).expect_err("no stream");
        assert!(error.to_string().contains("ListenStream="), "{error}");
    }

    #[test]
    fn a_socket_that_another_bound_alone_is_shared() {
        let alone = std::net::TcpListener::bind(ANY).expect("bound");
        let address = alone.local_addr().expect("bound").to_string();
        let given = Listeners::adopt(vec![(ListenerRole::own(Service::Http), alone.into())]).expect("a socket");
        let config = config(&[&address], &[], ListenerCount::Exactly(4));
        let listeners = Listeners::bind(&config, &given).expect("kept");
        assert_eq!(listeners.addresses()[0].sibling_count(), 1);
    }
}
