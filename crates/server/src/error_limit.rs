//! Limits error replies over UDP by the network of the client: its address may be forged, and an error is an answer to any
//! bytes.

use crate::metrics::{Counter, ThreadMetrics};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

/// Networks that are counted at the same time. Of two that share a slot, each may get more than the limit.
const SLOT_COUNT: usize = 4096;

/// Source ports that get no answer, each as a bit: 0 cannot be answered, and the services of the others answer every datagram (echo, daytime,
/// quote of the day, character generator, time), so that the two would never end.
const PORTS_NOT_ANSWERED: u64 = 1 | 1 << 7 | 1 << 13 | 1 << 17 | 1 << 19 | 1 << 37;

/// Whether a datagram from `port` may be answered.
#[inline]
pub(crate) fn is_answered(port: u16) -> bool {
    u32::from(port) >= u64::BITS || PORTS_NOT_ANSWERED >> port & 1 == 0
}

/// The error replies of one thread in the current second.
#[derive(Debug)]
pub(crate) struct ErrorLimit {
    per_second_max: u32,
    /// Its keys are random, so that nobody can choose networks that share a slot.
    hashes: RandomState,
    slots: Box<[Slot]>,
    metrics: Arc<ThreadMetrics>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    network: u64,
    unix_s: u64,
    count: u32,
}

impl ErrorLimit {
    pub(crate) fn new(per_second_max: u32, metrics: Arc<ThreadMetrics>) -> ErrorLimit {
        let empty = Slot { network: 0, unix_s: 0, count: 0 };
        ErrorLimit { per_second_max, hashes: RandomState::new(), slots: vec![empty; SLOT_COUNT].into(), metrics }
    }

    /// Whether one more error may be sent to the client in this second; if not, that is counted.
    pub(crate) fn take(&mut self, client: IpAddr, unix_s: u64) -> bool {
        let network = network_of(client);
        let slot = &mut self.slots[self.hashes.hash_one(network) as usize % SLOT_COUNT];
        if slot.network != network || slot.unix_s != unix_s {
            *slot = Slot { network, unix_s, count: 0 };
        }
        let may_send = slot.count < self.per_second_max;
        slot.count += u32::from(may_send);
        self.metrics.add(Counter::DnsErrorsLimited, u64::from(!may_send));
        may_send
    }
}

/// The /24 of an IPv4 address, which is numbered within ::/32, where no client has its address; the /56 of an IPv6 address.
fn network_of(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(client) => u64::from(client.to_bits() >> 8),
        IpAddr::V6(client) => (client.to_bits() >> 72) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_limit(per_second_max: u32) -> ErrorLimit {
        ErrorLimit::new(per_second_max, Arc::new(ThreadMetrics::new("datagrams 0".to_owned(), Vec::new())))
    }

    #[test]
    fn a_network_gets_so_many_errors_in_a_second() {
        let check = |first: &str, second: &str, is_same_network: bool| {
            let [first, second] = [first, second].map(|client| client.parse::<IpAddr>().expect("an address"));
            let mut limit = error_limit(3);
            assert!((0..3).all(|_| limit.take(first, 1)) && !limit.take(first, 1));
            assert_eq!(limit.take(second, 1), !is_same_network, "{first} {second}");
            assert!(limit.take(first, 2), "in the next second");
        };
        check("192.0.2.1", "192.0.2.255", true);
        check("192.0.2.1", "192.0.3.1", false);
        check("2001:db8:0:1::1", "2001:db8:0:ff::2", true);
        check("2001:db8:0:1::1", "2001:db8:0:100::1", false);
    }

    #[test]
    fn no_error_is_sent_at_a_limit_of_zero() {
        assert!(!error_limit(0).take("192.0.2.1".parse().expect("an address"), 1));
    }

    #[test]
    fn services_that_answer_every_datagram_are_not_answered() {
        let not_answered: Vec<u16> = (0..=u16::MAX).filter(|&port| !is_answered(port)).collect();
        assert_eq!(not_answered, [0, 7, 13, 17, 19, 37]);
    }
}
