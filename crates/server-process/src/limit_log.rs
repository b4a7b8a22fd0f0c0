//! Log lines about the limits of connections: one when a limit is reached, one when it has not been reached for a
//! while.

use sanderling_server::Counter;
use std::time::{Duration, Instant};

/// Quiet time after which the last line about a limit is logged: a limit that is reached intermittently produces one
/// pair of lines.
const QUIET: Duration = Duration::from_secs(60);

/// A limit, the server's action at the limit, and the counters of that action.
struct Limit {
    key: &'static str,
    kind: Kind,
    effect: &'static str,
    counters: &'static [Counter],
}

#[derive(Clone, Copy)]
enum Kind {
    Maximum,
    Minimum,
}

const LIMITS: [Limit; 10] = [
    Limit {
        key: "http_connections_max",
        kind: Kind::Maximum,
        effect: "new HTTP connections replace idle ones, or wait",
        counters: &[Counter::HttpEvicted, Counter::HttpPartialEvicted, Counter::HttpDelayed],
    },
    Limit {
        key: "http_connections_per_client_max",
        kind: Kind::Maximum,
        effect: "new HTTP connections of the client replace its idle ones, or are closed",
        counters: &[Counter::HttpClientEvicted, Counter::HttpOverClientLimit],
    },
    Limit {
        key: "http_send_rate_min",
        kind: Kind::Minimum,
        effect: "HTTP connections of slower clients are reset",
        counters: &[Counter::HttpSlowResponses],
    },
    Limit {
        key: "http_receive_rate_min",
        kind: Kind::Minimum,
        effect: "HTTP requests that arrive more slowly get status 408",
        counters: &[Counter::HttpSlowRequests],
    },
    Limit {
        key: "tls_handshakes_max",
        kind: Kind::Maximum,
        effect: "new connections replace the connection with the oldest unfinished handshake",
        counters: &[Counter::TlsEvicted],
    },
    Limit {
        key: "connection_buffers_bytes_max",
        kind: Kind::Maximum,
        effect: "further requests of clients that do not read their responses wait",
        counters: &[Counter::BuffersScarce],
    },
    Limit {
        key: "dns_udp_errors_per_second_max",
        kind: Kind::Maximum,
        effect: "further DNS errors to the same network are not sent",
        counters: &[Counter::DnsErrorsLimited],
    },
    Limit {
        key: "dns_udp_replies_per_second_max",
        kind: Kind::Maximum,
        effect: "further similar DNS replies to the same network are truncated or not sent",
        counters: &[Counter::DnsRepliesLimited],
    },
    Limit {
        key: "dns_tcp_connections_max",
        kind: Kind::Maximum,
        effect: "new DNS connections replace idle ones, or wait",
        counters: &[Counter::DnsStreamsEvicted, Counter::DnsStreamsDelayed],
    },
    Limit {
        key: "dns_tcp_connections_per_client_max",
        kind: Kind::Maximum,
        effect: "new DNS connections of a client replace its idle ones, or are closed",
        counters: &[Counter::DnsStreamsClientEvicted, Counter::DnsStreamsOverClientLimit],
    },
];

/// The effect of the limit of DNS replies in a dry run.
const DRY_RUN_EFFECT: &str = "further similar DNS replies are counted but sent, because of `rate_limit_dry_run`";

/// The last log line about each limit.
#[derive(Debug, Default)]
pub(crate) struct LimitLog([LimitState; LIMITS.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct LimitState {
    /// The sum of the counters.
    count: u64,
    reached: Option<Reached>,
}

/// A limit is being reached.
#[derive(Clone, Copy, Debug)]
struct Reached {
    since: Instant,
    last: Instant,
    count_before: u64,
}

impl LimitLog {
    /// The lines that are due, for the sums of the counters now. Called about once a second.
    /// `is_dry_run`: DNS replies beyond their limit are sent.
    pub(crate) fn lines(&mut self, now: Instant, is_dry_run: bool, sum: impl Fn(Counter) -> u64) -> Vec<String> {
        let states = LIMITS.iter().zip(&mut self.0);
        let lines = states.filter_map(|(limit, state)| {
            let count = limit.counters.iter().map(|&counter| sum(counter)).sum();
            let is_counted_only = is_dry_run && limit.counters == [Counter::DnsRepliesLimited];
            let effect = if is_counted_only { DRY_RUN_EFFECT } else { limit.effect };
            state.update(now, count).map(|event| event.line(limit, effect))
        });
        lines.collect()
    }
}

enum Event {
    Begins,
    Ends { count: u64, seconds: u64 },
}

impl Event {
    fn line(self, &Limit { key, kind, .. }: &Limit, effect: &str) -> String {
        let (begins, ends) = match kind {
            Kind::Maximum => ("is reached", "is no longer reached: it was reached for"),
            Kind::Minimum => ("is not reached", "is reached again: it was not reached for"),
        };
        match self {
            Event::Begins => format!("{key} {begins}: {effect}"),
            Event::Ends { count, seconds } => format!("{key} {ends} {seconds} s, {count} times"),
        }
    }
}

impl LimitState {
    fn update(&mut self, now: Instant, count: u64) -> Option<Event> {
        let before = std::mem::replace(&mut self.count, count);
        match &mut self.reached {
            None if count == before => None,
            None => {
                self.reached = Some(Reached { since: now, last: now, count_before: before });
                Some(Event::Begins)
            }
            Some(reached) if count != before => {
                reached.last = now;
                None
            }
            Some(reached) if now.duration_since(reached.last) < QUIET => None,
            Some(reached) => {
                let seconds = reached.last.duration_since(reached.since).as_secs();
                let count = count - reached.count_before;
                self.reached = None;
                Some(Event::Ends { count, seconds })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_logged_when_it_is_first_reached_and_after_it_was_not_for_a_while() {
        let (start, mut log) = (Instant::now(), LimitLog::default());
        let mut check = |after_s: u64, evicted: u64, expected: &[&str]| {
            let sum = |counter| if counter == Counter::HttpEvicted { evicted } else { 0 };
            assert_eq!(log.lines(start + Duration::from_secs(after_s), false, sum), expected, "after {after_s} s");
        };
        check(0, 0, &[]);
        check(1, 5, &["http_connections_max is reached: new HTTP connections replace idle ones, or wait"]);
        check(2, 9, &[]);
        check(31, 10, &[]);
        check(90, 10, &[]);
        check(91, 10, &["http_connections_max is no longer reached: it was reached for 30 s, 10 times"]);
        check(92, 10, &[]);
        check(93, 11, &["http_connections_max is reached: new HTTP connections replace idle ones, or wait"]);
    }

    #[test]
    fn dry_run_says_that_replies_are_sent() {
        let lines = |is_dry_run| {
            let sum = |counter| u64::from(counter == Counter::DnsRepliesLimited);
            LimitLog::default().lines(Instant::now(), is_dry_run, sum).join("\n")
        };
        assert!(
            lines(true)
                .ends_with(": further similar DNS replies are counted but sent, because of `rate_limit_dry_run`")
        );
        assert!(lines(false).ends_with("to the same network are truncated or not sent"));
    }

    #[test]
    fn a_least_rate_is_logged_when_it_is_not_reached() {
        let (start, mut log) = (Instant::now(), LimitLog::default());
        let mut lines = |after_s: u64, slow: u64| {
            let sum = |counter| if counter == Counter::HttpSlowResponses { slow } else { 0 };
            log.lines(start + Duration::from_secs(after_s), false, sum)
        };
        let begins = "http_send_rate_min is not reached: HTTP connections of slower clients are reset";
        assert_eq!(lines(1, 2), [begins]);
        assert_eq!(lines(61, 2), ["http_send_rate_min is reached again: it was not reached for 0 s, 2 times"]);
    }
}
