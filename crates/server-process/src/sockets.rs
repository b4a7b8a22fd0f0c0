//! The sockets that a supervisor hands over, as the server takes them.

use sanderling_config::Service;
use sanderling_listeners::Listeners;
use sanderling_server::SocketSet;
use std::sync::Arc;

/// One set of sockets for each sibling of the address that has most.
pub(crate) fn sets_of(listeners: Listeners) -> Vec<SocketSet> {
    const ALONE: &str = "a process that serves holds its sockets once";
    let mut sets: Vec<SocketSet> = Vec::new();
    for address in listeners.into_addresses() {
        for (index, stream) in address.streams.into_iter().enumerate() {
            let stream = Arc::into_inner(stream).expect(ALONE);
            let set = set_at(&mut sets, index);
            match address.role.service {
                Service::Http => set.http.push(stream),
                Service::Dns => set.dns_streams.push(stream),
            }
        }
        for (index, socket) in address.datagrams.into_iter().enumerate() {
            set_at(&mut sets, index).dns_datagrams.push(Arc::into_inner(socket).expect(ALONE));
        }
    }
    sets
}

fn set_at(sets: &mut Vec<SocketSet>, index: usize) -> &mut SocketSet {
    if sets.len() <= index {
        sets.resize_with(index + 1, SocketSet::default);
    }
    &mut sets[index]
}
