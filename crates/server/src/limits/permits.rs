//! A bounded number of permits, shared by all workers: a connection without a permit is not served, and one client gets
//! no more than its part of them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks over the counts of the clients. Where a client may not have all permits, a worker takes one of them when it
/// accepts a connection and when it closes one.
const SHARD_COUNT: usize = 16;

/// The remaining permits, and those that each client has.
#[derive(Debug)]
pub(crate) struct Permits {
    remaining: AtomicUsize,
    /// `None`: one client may have all.
    per_client_max: Option<usize>,
    /// Only clients with a permit have an entry.
    clients: [Mutex<HashMap<ClientPrefix, usize>>; SHARD_COUNT],
}

/// The right to one connection. Dropping the permit returns it to [`Permits`].
#[derive(Debug)]
pub(crate) struct Permit<'s> {
    permits: &'s Permits,
    client: SocketAddr,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitError {
    /// All are taken.
    Exhausted,
    /// The client has as many as one client may have.
    ClientLimit,
}

/// The unit that counts as one client: an IPv4 address, or a /64 of IPv6, which is the usual assignment to one site
/// (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientPrefix(u64);

impl ClientPrefix {
    /// IPv4 addresses are numbered within ::/32, where no client has its address.
    pub(crate) fn of(address: IpAddr) -> ClientPrefix {
        match address {
            IpAddr::V4(address) => ClientPrefix(u64::from(address.to_bits())),
            IpAddr::V6(address) => ClientPrefix((address.to_bits() >> 64) as u64),
        }
    }
}

impl Permits {
    pub(crate) fn new(count_max: usize, per_client_max: usize) -> Permits {
        let per_client_max = Some(per_client_max).filter(|of_client| *of_client <= count_max);
        Permits { remaining: AtomicUsize::new(count_max), per_client_max, clients: Default::default() }
    }

    /// A permit for a connection of `client`, if one remains.
    pub(crate) fn take(&self, client: SocketAddr) -> Result<Permit<'_>, PermitError> {
        self.count(client)?;
        // Relaxed: the number guards no other memory.
        let taken = self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() {
            self.uncount(client);
            return Err(PermitError::Exhausted);
        }
        Ok(Permit { permits: self, client })
    }

    /// Counts one more permit of `client`, unless it has as many as one client may have.
    fn count(&self, client: SocketAddr) -> Result<(), PermitError> {
        let Some(per_client_max) = self.per_client_max else { return Ok(()) };
        let prefix = ClientPrefix::of(client.ip());
        let mut counts = self.lock(prefix);
        let count = counts.entry(prefix).or_default();
        if *count >= per_client_max {
            return Err(PermitError::ClientLimit);
        }
        *count += 1;
        Ok(())
    }

    /// Counts one permit of `client` less.
    fn uncount(&self, client: SocketAddr) {
        if self.per_client_max.is_none() {
            return;
        }
        let prefix = ClientPrefix::of(client.ip());
        let mut counts = self.lock(prefix);
        match counts.get_mut(&prefix) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&prefix)),
        }
    }

    /// Whether one client may have fewer than all.
    pub(crate) fn has_client_limit(&self) -> bool {
        self.per_client_max.is_some()
    }

    /// Whether none remains.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.remaining.load(Ordering::Relaxed) == 0
    }

    fn lock(&self, prefix: ClientPrefix) -> MutexGuard<'_, HashMap<ClientPrefix, usize>> {
        // The lowest bits of an IPv4 address and of an IPv6 prefix differ most.
        let shard = &self.clients[prefix.0 as usize % SHARD_COUNT];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Counts the permit for `client`, for which a proxy has taken it.
    ///
    /// # Errors
    /// The client has as many as one client may have; the permit still counts for the proxy.
    pub(crate) fn pass_to(&mut self, client: SocketAddr) -> Result<(), PermitError> {
        self.permits.count(client)?;
        self.permits.uncount(self.client);
        self.client = client;
        Ok(())
    }

    /// The client that it was given to.
    #[inline]
    pub(crate) fn client(&self) -> &SocketAddr {
        &self.client
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.permits.uncount(self.client);
        self.permits.remaining.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().expect("an address"), 1)
    }

    #[test]
    fn no_more_permits_are_given_than_there_are() {
        let permits = Permits::new(2, 2);
        let first = permits.take(client("192.0.2.1"));
        let second = permits.take(client("192.0.2.2"));
        assert!(first.is_ok() && second.is_ok() && permits.is_exhausted());
        assert_eq!(permits.take(client("192.0.2.3")).err(), Some(PermitError::Exhausted));
        drop(first);
        assert!(permits.take(client("192.0.2.3")).is_ok());
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_a_64_of_ipv6() {
        let check = |taken: &str, wanted: &str, expected: Option<PermitError>| {
            let permits = Permits::new(9, 1);
            let first = permits.take(client(taken)).expect("none is taken");
            assert_eq!(permits.take(client(wanted)).err(), expected, "{taken}, {wanted}");
            drop(first);
            assert!(permits.take(client(wanted)).is_ok());
            assert!(permits.clients.iter().all(|counts| counts.lock().expect("no panic").is_empty()));
        };
        check("192.0.2.1", "192.0.2.1", Some(PermitError::ClientLimit));
        check("192.0.2.1", "192.0.2.2", None);
        check("2001:db8::1", "2001:db8::ffff:0:0:1", Some(PermitError::ClientLimit));
        check("2001:db8::1", "2001:db8:0:1::1", None);
    }
}
