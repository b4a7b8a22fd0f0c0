//! The rotation of the keys of one certificate, whose public keys are pinned by TLSA records (RFC 7671 §8.1): every key
//! is in all caches before it is in service, and out of service before its record is removed.
//!
//! The records always pin two keys: the key in service, and the next certificate's key. So a renewal needs no wait,
//! unless the previous one was very recent.
//!
//! ```text
//! Publishing ── all name servers answer with the keys ──→ Caching ── old records have left all caches ──→ an order may be made
//!      ↑                                                                                                          │
//!      └── Overlapping: handshakes with the old key end; then a new next key ←── the next key is in service ──────┘
//! ```
//!
//! This module only decides. Its state is stored before any action that follows from it, and every such action can be
//! repeated: a crash at any moment does no harm.

use serde::{Deserialize, Serialize};

/// The SHA-256 of a public key, in hexadecimal digits.
pub(crate) type KeyDigest = String;

/// Seconds added to a wait for a TTL, for an answer in transit and clocks with whole seconds, in addition to a tenth of
/// the TTL.
const MARGIN_S: u64 = 2;

/// A certificate's keys and their progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rotation {
    /// The key in service.
    current: KeyDigest,
    /// The next certificate's key.
    next: KeyDigest,
    phase: Phase,
    /// The longest TTL that records with these two keys have had.
    ttl_s: u32,
    /// The time for which caches may hold records without the next key after the last name server has stopped serving
    /// them.
    wait_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Not all name servers have answered with both keys yet.
    Publishing,
    /// All name servers answer with both keys since this time.
    Caching { since_unix_s: u64 },
    /// The next key is in service since this time.
    Overlapping { since_unix_s: u64 },
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask all name servers until each answers with both keys.
    AskNameServers,
    /// Nothing, until this time.
    WaitUntil(u64),
    /// An order for a certificate with the next key may be made.
    Order,
    /// Make a key, and call [`Rotation::on_key_made`].
    MakeKey,
}

impl Rotation {
    /// The rotation of a certificate that is in service with the key `current`; nothing was published. `next` is a new
    /// key.
    pub(crate) fn new(current: KeyDigest, next: KeyDigest, ttl_s: u32) -> Rotation {
        Rotation { current, next, phase: Phase::Publishing, ttl_s, wait_s: wait_s(ttl_s) }
    }

    /// The keys that the records pin.
    pub(crate) fn pinned(&self) -> [&KeyDigest; 2] {
        [&self.current, &self.next]
    }

    /// The action to take. Handshakes take at most `handshake_s`.
    pub(crate) fn step(&self, now_unix_s: u64, handshake_s: u64) -> Step {
        let until = |at: u64, then| if now_unix_s < at { Step::WaitUntil(at) } else { then };
        match self.phase {
            Phase::Publishing => Step::AskNameServers,
            Phase::Caching { since_unix_s } => until(since_unix_s + self.wait_s, Step::Order),
            Phase::Overlapping { since_unix_s } => until(since_unix_s + handshake_s + MARGIN_S, Step::MakeKey),
        }
    }

    /// Waits that began later than now come from a clock that was ahead. Such waits begin again.
    pub(crate) fn on_time(&mut self, now_unix_s: u64) {
        if let Phase::Caching { since_unix_s } | Phase::Overlapping { since_unix_s } = &mut self.phase {
            *since_unix_s = now_unix_s.min(*since_unix_s);
        }
    }

    /// The records have this TTL from now on.
    pub(crate) fn on_ttl(&mut self, ttl_s: u32) {
        self.ttl_s = self.ttl_s.max(ttl_s);
    }

    /// Each name server has answered with both keys, after they were asked in this phase.
    pub(crate) fn on_answered(&mut self, now_unix_s: u64) {
        if self.phase == Phase::Publishing {
            self.phase = Phase::Caching { since_unix_s: now_unix_s };
        }
    }

    /// New handshakes are made with this key. If the key is a third one, the records are wrong until records with it
    /// are published.
    pub(crate) fn on_served(&mut self, key: &KeyDigest, now_unix_s: u64) {
        let is_overlapping = matches!(self.phase, Phase::Overlapping { .. });
        if *key == self.next && !is_overlapping {
            self.phase = Phase::Overlapping { since_unix_s: now_unix_s };
        } else if *key == self.current && is_overlapping {
            // The certificate before is in service again.
            self.phase = Phase::Publishing;
        } else if *key != self.current && *key != self.next {
            self.current.clone_from(key);
            self.phase = Phase::Publishing;
            self.wait_s = self.wait_s.max(wait_s(self.ttl_s));
        }
    }

    /// `key` belongs to the certificate after the one in service, whose key was the next key. Records have this TTL
    /// from now on.
    pub(crate) fn on_key_made(&mut self, key: KeyDigest, ttl_s: u32) {
        self.current = std::mem::replace(&mut self.next, key);
        self.wait_s = wait_s(self.ttl_s.max(ttl_s));
        self.ttl_s = ttl_s;
        self.phase = Phase::Publishing;
    }
}

/// The time for which caches may hold records with this TTL.
fn wait_s(ttl_s: u32) -> u64 {
    let ttl_s = u64::from(ttl_s);
    ttl_s + ttl_s / 10 + MARGIN_S
}

#[cfg(test)]
mod tests;
