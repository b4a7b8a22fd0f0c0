//! Arranges the inherited sockets: one set of reuseport sockets for each worker.

use sanderling_config::Service;
use sanderling_listeners::Listeners;
use sanderling_os::tcp::Listener;
use sanderling_server::{Role, SocketSet};
use std::sync::Arc;

/// As many sets as the address with the most reuseport sockets has sockets. The control thread has those for metrics.
pub(crate) fn socket_sets(listeners: &Listeners) -> Vec<SocketSet> {
    let mut sets: Vec<SocketSet> = Vec::new();
    for address in listeners.addresses() {
        let Some(role) = role_of(address.role.service) else { continue };
        sets.resize_with(sets.len().max(address.socket_count()), SocketSet::default);
        for (set, stream) in sets.iter_mut().zip(&address.streams) {
            set.streams.push((role, Arc::clone(stream)));
        }
        for (set, socket) in sets.iter_mut().zip(&address.datagrams) {
            set.datagrams.push((role, Arc::clone(socket)));
        }
    }
    sets
}

fn role_of(service: Service) -> Option<Role> {
    match service {
        Service::Http => Some(Role::HTTP),
        Service::Https => Some(Role::HTTPS),
        Service::Dns => Some(Role::DNS),
        Service::Dot => Some(Role::DOT),
        Service::Metrics => None,
    }
}

/// The sockets for metrics.
pub(crate) fn metrics_listeners(listeners: &Listeners) -> Vec<Arc<Listener>> {
    let of_metrics = listeners.addresses().iter().filter(|address| address.role.service == Service::Metrics);
    of_metrics.flat_map(|address| address.streams.clone()).collect()
}

/// The port to which clients are redirected for HTTPS: the usual one, if there are several.
pub(crate) fn https_port(listeners: &Listeners) -> Option<u16> {
    let https = listeners.addresses().iter().filter(|address| address.role.service == Service::Https);
    let ports: Vec<u16> = https.map(|address| address.bound.port()).collect();
    ports.iter().copied().find(|port| *port == 443).or(ports.first().copied())
}
