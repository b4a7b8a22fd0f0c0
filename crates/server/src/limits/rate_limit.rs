//! Limits the replies over UDP to the network of a client: its address may be forged, to flood someone else.
//!
//! Each thread counts for itself, in a table of fixed size. Replies are counted by the network and their class
//! ([`ReplyClass`]): a resolver asks for one name seldom, since it keeps the answer.

use crate::limits::rate_limit_policy::RateLimitPolicy;
use crate::metrics::{Counter, ThreadMetrics};
use crate::options::DnsOptions;
use sanderling_dns::{Name, ReplyClass};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

/// Accounts only for errors, which have one per network. Of two that share a slot, each may get more than the limit.
const ERROR_SLOT_COUNT: usize = 4_096;
/// Accounts of all replies, which have one per network and class.
const SLOT_COUNT: usize = 65_536;
/// Seconds that a network gets no replies after a flood, at most: it is charged for the replies that were not sent.
const WINDOW_S: i32 = 15;

/// Source ports that get no answer, each as a bit: 0 cannot be answered, and the services of the others answer every
/// datagram (echo, daytime, quote of the day, character generator, time), so that the two would never end.
const PORTS_NOT_ANSWERED: u64 = 1 | 1 << 7 | 1 << 13 | 1 << 17 | 1 << 19 | 1 << 37;

/// Whether a datagram from `port` may be answered.
#[inline]
pub(crate) fn is_answered(port: u16) -> bool {
    u32::from(port) >= u64::BITS || PORTS_NOT_ANSWERED >> port & 1 == 0
}

/// The treatment of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Send,
    /// It is replaced by one that asks the client to come over TCP, which a forged address does not do.
    Truncate,
    Drop,
}

/// The replies that one thread has sent lately.
#[derive(Debug)]
pub(crate) struct RateLimit {
    errors_per_second_max: u32,
    /// 0 for any number.
    replies_per_second_max: u32,
    slip: u32,
    /// Its keys are random, so that attackers cannot choose networks that share a slot.
    hashes: RandomState,
    slots: Box<[Account]>,
    /// Replies that were not sent unchanged.
    limited_count: u32,
    metrics: Arc<ThreadMetrics>,
}

/// The account of a network and a class. It gets a second's replies each second, and keeps those of one second.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// The hash of both.
    key: u64,
    /// When it was credited last.
    unix_s: u64,
    /// Replies that may be sent; negative after a flood.
    balance: i32,
}

impl RateLimit {
    pub(crate) fn new(options: &DnsOptions, metrics: Arc<ThreadMetrics>) -> RateLimit {
        let slot_count = if options.udp_replies_per_second_max == 0 { ERROR_SLOT_COUNT } else { SLOT_COUNT };
        RateLimit {
            errors_per_second_max: options.udp_errors_per_second_max,
            replies_per_second_max: options.udp_replies_per_second_max,
            slip: options.udp_slip,
            hashes: RandomState::new(),
            slots: vec![Account::default(); slot_count].into(),
            limited_count: 0,
            metrics,
        }
    }

    /// Whether other replies than errors are limited.
    #[inline]
    pub(crate) fn limits_replies(&self) -> bool {
        self.replies_per_second_max != 0
    }

    /// Whether one more reply of `class` may be sent to the client in this second; if not, that is counted.
    pub(crate) fn take(&mut self, policy: &RateLimitPolicy, client: IpAddr, class: ReplyClass, unix_s: u64) -> Verdict {
        if class == ReplyClass::Error {
            let may_send = self.charge(client, class, self.errors_per_second_max, unix_s);
            self.metrics.add(Counter::DnsErrorsLimited, u64::from(!may_send));
            // A client gains nothing by asking again over TCP.
            return if may_send { Verdict::Send } else { Verdict::Drop };
        }
        if !self.limits_replies() || self.charge(client, class, self.replies_per_second_max, unix_s) {
            return Verdict::Send;
        }
        self.metrics.add(Counter::DnsRepliesLimited, 1);
        if policy.is_dry_run {
            return Verdict::Send;
        }
        self.limited_count = self.limited_count.wrapping_add(1);
        if self.limited_count.checked_rem(self.slip) == Some(0) {
            self.metrics.add(Counter::DnsRepliesSlipped, 1);
            return Verdict::Truncate;
        }
        Verdict::Drop
    }

    /// The class of replies about the zone at `apex`.
    pub(crate) fn class_of(&self, apex: Name<'_>) -> ReplyClass {
        ReplyClass::Name(self.hashes.hash_one(apex.as_bytes().to_ascii_lowercase()))
    }

    /// Charges a reply to the account of the network and the class; whether it was in credit.
    fn charge(&mut self, client: IpAddr, class: ReplyClass, per_second_max: u32, unix_s: u64) -> bool {
        let per_second_max = i32::try_from(per_second_max).unwrap_or(i32::MAX);
        let key = self.hashes.hash_one((network_of(client), class));
        let account = &mut self.slots[key as usize % self.slots.len()];
        if account.key != key {
            *account = Account { key, unix_s, balance: per_second_max };
        }
        if account.unix_s != unix_s {
            // One second if the clock was set back.
            let seconds = unix_s.checked_sub(account.unix_s).map_or(1, |s| i32::try_from(s).unwrap_or(i32::MAX));
            let credit = per_second_max.saturating_mul(seconds);
            account.balance = account.balance.saturating_add(credit).min(per_second_max);
            account.unix_s = unix_s;
        }
        let is_in_credit = account.balance > 0;
        account.balance = account.balance.saturating_sub(1).max(per_second_max.saturating_mul(-WINDOW_S));
        is_in_credit
    }
}

/// The /24 of an IPv4 address, which is numbered within ::/32, where no client has its address; the /56 of an IPv6
/// address.
fn network_of(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(client) => u64::from(client.to_bits() >> 8),
        IpAddr::V6(client) => (client.to_bits() >> 72) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::rate_limit_policy::IpNetwork;

    fn rate_limit(errors_per_second_max: u32, replies_per_second_max: u32, slip: u32) -> RateLimit {
        let options = DnsOptions {
            udp_errors_per_second_max: errors_per_second_max,
            udp_replies_per_second_max: replies_per_second_max,
            udp_slip: slip,
            ..DnsOptions::default()
        };
        RateLimit::new(&options, Arc::new(ThreadMetrics::new("datagrams 0".to_owned(), Vec::new(), None)))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// The treatment of `count` replies of `class` to 192.0.2.1 in the second `unix_s`: those sent, truncated and
    /// dropped.
    fn take(limit: &mut RateLimit, class: ReplyClass, count: usize, unix_s: u64) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..count {
            counts[limit.take(&RateLimitPolicy::default(), address("192.0.2.1"), class, unix_s) as usize] += 1;
        }
        counts
    }

    #[test]
    fn a_network_gets_so_many_errors_in_a_second() {
        let check = |first: &str, second: &str, is_same_network: bool| {
            let mut limit = rate_limit(3, 0, 0);
            let mut send = |client: &str, unix_s| {
                let policy = RateLimitPolicy::default();
                limit.take(&policy, address(client), ReplyClass::Error, unix_s) == Verdict::Send
            };
            assert!((0..3).all(|_| send(first, 1)) && !send(first, 1));
            assert_eq!(send(second, 1), !is_same_network, "{first} {second}");
            assert!(send(first, 2), "in the next second");
        };
        check("192.0.2.1", "192.0.2.255", true);
        check("192.0.2.1", "192.0.3.1", false);
        check("2001:db8:0:1::1", "2001:db8:0:ff::2", true);
        check("2001:db8:0:1::1", "2001:db8:0:100::1", false);
    }

    #[test]
    fn no_error_is_sent_at_a_limit_of_zero() {
        assert_eq!(take(&mut rate_limit(0, 0, 1), ReplyClass::Error, 3, 1), [0, 0, 3]);
    }

    #[test]
    fn classes_are_limited_apart() {
        let mut limit = rate_limit(2, 4, 2);
        for class in [
            ReplyClass::Name(1),
            ReplyClass::Name(2),
            ReplyClass::Synthesized(1),
            ReplyClass::Referral(1),
            ReplyClass::NameError(1),
        ] {
            assert_eq!(take(&mut limit, class, 4, 1), [4, 0, 0], "{class:?}");
            assert_eq!(take(&mut limit, class, 6, 1), [0, 3, 3], "{class:?}");
        }
        assert_eq!(take(&mut limit, ReplyClass::Error, 4, 1), [2, 0, 2], "errors have their own limit");
        let counts = limit.metrics.counts();
        assert_eq!(counts[Counter::DnsRepliesLimited as usize], 30);
        assert_eq!(counts[Counter::DnsRepliesSlipped as usize], 15);
        assert_eq!(counts[Counter::DnsErrorsLimited as usize], 2);
    }

    #[test]
    fn without_a_limit_every_reply_is_sent() {
        let mut limit = rate_limit(0, 0, 1);
        assert_eq!(take(&mut limit, ReplyClass::Name(1), 1_000, 1), [1_000, 0, 0]);
        assert_eq!(limit.slots.len(), ERROR_SLOT_COUNT);
    }

    #[test]
    fn slip_is_the_share_of_truncated_replies() {
        for (slip, expected) in [(0, [1, 0, 12]), (1, [1, 12, 0]), (2, [1, 6, 6]), (3, [1, 4, 8])] {
            assert_eq!(take(&mut rate_limit(0, 1, slip), ReplyClass::Name(1), 13, 1), expected, "{slip}");
        }
    }

    #[test]
    fn flood_is_answered_again_after_its_replies_are_paid() {
        let class = ReplyClass::Name(1);
        let mut limit = rate_limit(0, 10, 0);
        assert_eq!(take(&mut limit, class, 30, 100), [10, 0, 20]);
        assert_eq!(take(&mut limit, class, 1, 101), [0, 0, 1], "19 were too many");
        assert_eq!(take(&mut limit, class, 2, 103), [2, 0, 0]);
        // The debt is bounded.
        take(&mut limit, class, 10_000, 200);
        assert_eq!(take(&mut limit, class, 1, 200 + 15), [0, 0, 1]);
        assert_eq!(take(&mut limit, class, 11, 200 + 17), [10, 0, 1], "and so is the credit");
    }

    #[test]
    fn clock_that_is_set_back_does_not_stop_replies() {
        let class = ReplyClass::Name(1);
        let mut limit = rate_limit(0, 10, 0);
        assert_eq!(take(&mut limit, class, 11, 1_000), [10, 0, 1]);
        assert_eq!(take(&mut limit, class, 5, 1), [5, 0, 0]);
        assert_eq!(take(&mut limit, class, 10, 2), [10, 0, 0]);
    }

    #[test]
    fn dry_run_counts_and_sends() {
        let policy = RateLimitPolicy { is_dry_run: true, ..RateLimitPolicy::default() };
        let mut limit = rate_limit(0, 1, 1);
        for _ in 0..3 {
            assert_eq!(limit.take(&policy, address("192.0.2.1"), ReplyClass::Name(1), 1), Verdict::Send);
        }
        assert_eq!(limit.metrics.counts()[Counter::DnsRepliesLimited as usize], 2);
    }

    #[test]
    fn network_has_the_addresses_with_its_prefix() {
        let check = |network: &str, prefix_bits, client: &str, expected| {
            let network = IpNetwork::new(address(network), prefix_bits);
            let policy = RateLimitPolicy { exempt: vec![network], is_dry_run: false };
            assert_eq!(policy.is_exempt(address(client)), expected, "{network:?} {client}");
        };
        check("192.0.2.0", 24, "192.0.2.255", true);
        check("192.0.2.0", 24, "192.0.3.0", false);
        check("192.0.2.1", 32, "192.0.2.1", true);
        check("192.0.2.1", 32, "192.0.2.0", false);
        check("0.0.0.0", 0, "255.255.255.255", true);
        check("0.0.0.0", 0, "::1", false);
        check("2001:db8::", 32, "2001:db8:ffff::1", true);
        check("2001:db8::", 32, "2001:db9::", false);
        check("2001:db8::1", 128, "2001:db8::1", true);
        check("2001:db8::1", 128, "2001:db8::", false);
        check("::", 0, "192.0.2.1", false);
    }

    #[test]
    fn services_that_answer_every_datagram_are_not_answered() {
        let not_answered: Vec<u16> = (0..=u16::MAX).filter(|&port| !is_answered(port)).collect();
        assert_eq!(not_answered, [0, 7, 13, 17, 19, 37]);
    }
}
