//! Arranges the inherited sockets: one set of reuseport sockets for each worker, and those for metrics.

use sanderling_config::Service;
use sanderling_listeners::Listeners;
use sanderling_os::tcp::Listener;
use sanderling_server::SocketSet;
use std::sync::Arc;

/// As many sets as the address with the most reuseport sockets has sockets, and the listeners for metrics.
pub(crate) fn socket_sets(listeners: Listeners) -> (Vec<SocketSet>, Vec<Listener>) {
    const UNSHARED: &str = "a server process has one reference to each socket";
    let (mut sets, mut of_metrics): (Vec<SocketSet>, _) = (Vec::new(), Vec::new());
    for address in listeners.into_addresses() {
        for (index, stream) in address.streams.into_iter().enumerate() {
            let stream = Arc::into_inner(stream).expect(UNSHARED);
            let service = address.role.service;
            let set = if service == Service::Metrics { &mut SocketSet::default() } else { set_at(&mut sets, index) };
            match service {
                Service::Http => set.http.push(stream),
                Service::Https => set.https.push(stream),
                Service::Dns => set.dns_streams.push(stream),
                Service::Dot => set.dot.push(stream),
                Service::Metrics => of_metrics.push(stream),
            }
        }
        for (index, socket) in address.datagrams.into_iter().enumerate() {
            set_at(&mut sets, index).dns_datagrams.push(Arc::into_inner(socket).expect(UNSHARED));
        }
    }
    (sets, of_metrics)
}

/// The port to which clients are redirected for HTTPS: the usual one, if there are several.
pub(crate) fn https_port(listeners: &Listeners) -> Option<u16> {
    let https = listeners.addresses().iter().filter(|address| address.role.service == Service::Https);
    let ports: Vec<u16> = https.map(|address| address.bound.port()).collect();
    ports.iter().copied().find(|port| *port == 443).or(ports.first().copied())
}

fn set_at(sets: &mut Vec<SocketSet>, index: usize) -> &mut SocketSet {
    if sets.len() <= index {
        sets.resize_with(index + 1, SocketSet::default);
    }
    &mut sets[index]
}
