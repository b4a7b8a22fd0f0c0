//! The effects of a reload, and of other addresses of a host, on the connections of a worker.

use crate::backends::Backends;
use crate::clock::Milliseconds;
use sanderling_site_rules::Backend;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

impl Backends {
    /// From now on these are the addresses of hosts. Requests that wait for those of theirs continue.
    pub(crate) fn set_addresses(&mut self, addresses: &Arc<BTreeMap<String, Vec<IpAddr>>>, now_ms: Milliseconds) {
        if Arc::ptr_eq(&self.addresses, addresses) {
            return;
        }
        self.addresses = Arc::clone(addresses);
        for index in 0..self.groups.len() {
            let Backends { groups, checks, servers, problems, connections, .. } = self;
            let group = &mut groups[index];
            if group.is_free() || !group.has_names() {
                continue;
            }
            let is_checking = |server| checks.as_ref().is_some_and(|checks| checks.is_checking((index, server)));
            for key in group.update_servers(addresses, servers, problems, is_checking) {
                connections.remove(key);
            }
            let waiting = std::mem::take(&mut group.waiting);
            let has_check = group.check.take().is_some();
            if has_check {
                self.check_group(index, now_ms);
            }
            waiting.into_iter().for_each(|waiting| self.assign(waiting.call, now_ms));
        }
    }

    /// From now on these are the backends of all routes. The unused connections of others are closed, and what is in
    /// progress on them ends.
    pub(crate) fn set_used<'b>(&mut self, used: impl Iterator<Item = &'b Arc<Backend>>, now_ms: Milliseconds) {
        let mut pointers = HashSet::new();
        for backend in used {
            if pointers.insert(Arc::as_ptr(backend)) && backend.distribution.check.is_some() && self.checks.is_some() {
                let group = self.group_index(backend);
                self.check_group(group, now_ms);
            }
        }
        let Backends { groups, group_of, connections, .. } = self;
        for group in groups.iter_mut().filter(|group| !group.is_free()) {
            let is_used = |backend: &Arc<Backend>| pointers.contains(&Arc::as_ptr(backend));
            let keeps_none = !group.backends.iter().any(is_used);
            if keeps_none {
                group.check = None;
                for server in &mut group.servers {
                    for key in server.retire() {
                        connections.remove(key);
                    }
                }
            }
            // Its last reference stays while there are connections.
            let mut keeps_one = keeps_none && !group.is_quiet();
            group.backends.retain(|backend| {
                let is_kept = is_used(backend) || std::mem::take(&mut keeps_one);
                if !is_kept {
                    group_of.remove(&Arc::as_ptr(backend));
                }
                is_kept
            });
            if group.is_free() {
                group.servers = Vec::new();
            }
        }
    }
}
