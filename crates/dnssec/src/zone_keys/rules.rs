//! When DNSKEY records, signatures and DS records are added and removed.
//!
//! Caches may have any of the DS records, DNSKEY records and signed RRsets of the last while, each with its age. A
//! resolver that combines them must find, for each algorithm of the DNSKEY and DS records that it has, a chain from a
//! DS record over a key to each signature (RFC 4035 §2.2 and §5, RFC 6840 §5.11).

use super::{Goal, Presence, ZoneKey};
use crate::key::Algorithm;

/// Applies the rules until nothing changes. Each change affects only state for which no wait has begun.
pub(super) fn apply(keys: &mut [ZoneKey]) {
    // Each presence changes at most twice before servers or caches must follow.
    for _ in 0..=6 * keys.len() {
        let before = keys.to_vec();
        for index in 0..keys.len() {
            match keys[index].goal {
                Goal::Active => introduce(keys, index),
                Goal::Replaced => {}
                Goal::Retired => remove(keys, index),
            }
        }
        if keys == before {
            return;
        }
    }
}

/// Whether a resolver may expect that the zone is signed.
fn is_secure(keys: &[ZoneKey]) -> bool {
    keys.iter().any(|key| key.ds != Presence::Absent)
}

fn of_algorithm(keys: &[ZoneKey], algorithm: Algorithm) -> impl Iterator<Item = &ZoneKey> {
    keys.iter().filter(move |key| key.public.algorithm == algorithm)
}

/// Whether each signed RRset in a cache has a signature of this algorithm: by one key, or by either of two that are
/// exchanged. A key that was replaced before its DNSKEY record was published does not count: no resolver can verify its
/// signatures.
fn is_signed_everywhere(keys: &[ZoneKey], algorithm: Algorithm) -> bool {
    let counts = |key: &&ZoneKey| !key.is_retired() || key.dnskey.is_wanted();
    let has = |test: fn(Presence) -> bool| of_algorithm(keys, algorithm).filter(counts).any(|key| test(key.signatures));
    let is_exchanged = has(|it| matches!(it, Presence::Removed(_) | Presence::Fading { .. }))
        && has(|it| matches!(it, Presence::Added(_) | Presence::Spreading { .. }));
    has(|it| it == Presence::Everywhere) || is_exchanged
}

fn introduce(keys: &mut [ZoneKey], index: usize) {
    let (role, algorithm) = (keys[index].public.role, keys[index].public.algorithm);
    let is_secure = is_secure(keys);
    if role.signs_zone() && keys[index].signatures == Presence::Absent {
        let signs = |key: &ZoneKey| key.signatures != Presence::Absent;
        if !is_secure || of_algorithm(keys, algorithm).all(|key| key.dnskey == Presence::Absent) {
            // No resolver expects signatures yet, or a new algorithm signs before any resolver knows it.
            keys[index].signatures = Presence::ADDED;
        } else if keys[index].dnskey == Presence::Everywhere
            && of_algorithm(keys, algorithm).all(|key| !signs(key) || key.signatures == Presence::Everywhere)
        {
            // All servers and caches have the new key. Caches with signatures of the old key have the old key as well.
            for key in keys.iter_mut().filter(|key| key.public.algorithm == algorithm && key.is_retired()) {
                if key.signatures == Presence::Everywhere {
                    key.signatures = Presence::REMOVED;
                }
            }
            keys[index].signatures = Presence::ADDED;
        }
    }
    if keys[index].dnskey == Presence::Absent && (!is_secure || is_signed_everywhere(keys, algorithm)) {
        keys[index].dnskey = Presence::ADDED;
    }
    let is_chain_complete = is_signed_everywhere(keys, algorithm)
        && of_algorithm(keys, algorithm)
            .all(|key| key.signatures == Presence::Absent || key.dnskey == Presence::Everywhere);
    let has_dnskey = keys[index].dnskey == Presence::Everywhere;
    if role.signs_keys() && keys[index].ds == Presence::Absent && has_dnskey && is_chain_complete {
        // The parent replaces the DS records immediately.
        for key in keys.iter_mut().filter(|key| key.is_retired()) {
            key.ds = key.ds.without_ds();
        }
        keys[index].ds = Presence::ADDED;
    }
}

fn remove(keys: &mut [ZoneKey], index: usize) {
    let algorithm = keys[index].public.algorithm;
    if keys.iter().all(ZoneKey::is_retired) {
        // The zone is becoming unsigned.
        keys[index].ds = keys[index].ds.without_ds();
    }
    let is_secure = is_secure(keys);
    let is_algorithm_used = of_algorithm(keys, algorithm).any(|key| !key.is_retired());
    let all = |test: fn(&ZoneKey) -> bool| of_algorithm(keys, algorithm).all(test);
    let may_remove_dnskey = match is_algorithm_used {
        true => keys[index].ds == Presence::Absent && keys[index].signatures == Presence::Absent,
        // All keys of an algorithm are removed together, and their signatures afterwards.
        false => all(|key| key.ds == Presence::Absent),
    };
    // Without the DNSKEY record, no resolver can verify the signatures.
    let may_remove_signatures = keys[index].dnskey == Presence::Absent;
    if keys[index].dnskey.is_wanted() && (!is_secure || may_remove_dnskey) {
        keys[index].dnskey = Presence::REMOVED;
    }
    if keys[index].signatures.is_wanted() && (!is_secure || may_remove_signatures) {
        keys[index].signatures = Presence::REMOVED;
    }
}
