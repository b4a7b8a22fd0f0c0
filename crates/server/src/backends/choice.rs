//! Which of several servers gets a request.

use crate::backend_servers::SHARE_MAX;
use std::cmp::Ordering;

/// Of loads that are divided by weights, which are multiplied by [`SHARE_MAX`].
pub(super) const SCALE: u64 = (1 << 16) * SHARE_MAX;

/// A server that can get a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) index: usize,
    /// Its place in the configuration.
    pub(super) place: u32,
    /// Of its address.
    pub(super) hash: u64,
    /// At least 1.
    pub(super) weight: u64,
    /// Requests in progress.
    pub(super) busy_count: u64,
    /// Requests that it was given, each divided by its weight.
    pub(super) used: u64,
}

/// The one with the least requests in progress, relative to its weight, and then the one that has had the least.
pub(super) fn least_loaded(candidates: impl Iterator<Item = Candidate>) -> Option<Candidate> {
    candidates.min_by_key(|candidate| (candidate.busy_count * SCALE / candidate.weight, candidate.used))
}

/// The same one for the same client, as long as it is there: each server gets a score for the client, and the highest
/// one counts (rendezvous hashing). So a server that comes or goes moves only its own clients.
pub(super) fn for_client(candidates: impl Iterator<Item = Candidate>, client: u64) -> Option<Candidate> {
    let score = |candidate: &Candidate| {
        // Above 0 and below 1, so that the logarithm is negative.
        let uniform = ((mix(client ^ candidate.hash) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        candidate.weight as f64 / -uniform.ln()
    };
    candidates.max_by(|a, b| score(a).partial_cmp(&score(b)).unwrap_or(Ordering::Equal))
}

/// The one at this place of the configuration; without it the least loaded one.
pub(super) fn at_place(candidates: impl Iterator<Item = Candidate> + Clone, place: u32) -> Option<Candidate> {
    let mut at_place = candidates.clone().filter(|candidate| candidate.place == place);
    at_place.next().or_else(|| least_loaded(candidates))
}

/// FNV-1a: the same in every process and on every machine.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The last step of SplitMix64: each bit of the input changes half of the bits of the output.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(count: usize) -> Vec<Candidate> {
        let candidate = |index: usize| Candidate {
            index,
            place: index as u32,
            hash: hash(format!("192.0.2.{index}:80").as_bytes()),
            weight: SHARE_MAX,
            busy_count: 0,
            used: 0,
        };
        (0..count).map(candidate).collect()
    }

    fn client(number: u32) -> u64 {
        hash(&number.to_be_bytes())
    }

    fn of_client(candidates: &[Candidate], number: u32) -> usize {
        for_client(candidates.iter().copied(), client(number)).expect("a server").index
    }

    #[test]
    fn least_loaded_server_has_the_fewest_requests_for_its_weight() {
        let check = |loads: &[(u64, u64, u64)], expected: usize| {
            let mut all = candidates(loads.len());
            for (candidate, (weight, busy_count, used)) in all.iter_mut().zip(loads) {
                (candidate.weight, candidate.busy_count, candidate.used) = (weight * SHARE_MAX, *busy_count, *used);
            }
            assert_eq!(least_loaded(all.into_iter()).map(|chosen| chosen.index), Some(expected), "{loads:?}");
        };
        check(&[(1, 1, 0), (1, 0, 9)], 1);
        check(&[(1, 1, 9), (1, 1, 8)], 1);
        check(&[(3, 2, 9), (1, 1, 0)], 0);
        check(&[(1, 0, 5), (1, 0, 5)], 0);
    }

    #[test]
    fn clients_are_spread_and_few_move_when_a_server_goes() {
        const CLIENTS: u32 = 10_000;
        let all = candidates(5);
        let mut counts = [0; 5];
        let mut moved = 0;
        for number in 0..CLIENTS {
            let before = of_client(&all, number);
            counts[before] += 1;
            let after = of_client(&all[..4], number);
            assert!(before == 4 || before == after, "only the clients of the removed server move");
            moved += u32::from(before != after);
        }
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
        assert_eq!(moved, counts[4]);
    }

    #[test]
    fn share_of_clients_follows_the_weights() {
        let mut all = candidates(2);
        all[1].weight *= 3;
        let count = (0..10_000).filter(|&number| of_client(&all, number) == 1).count();
        assert!((7_300..7_700).contains(&count), "{count}");
    }

    #[test]
    fn place_without_a_server_means_a_free_choice() {
        let all = candidates(3);
        let at = |place| at_place(all.iter().copied(), place).expect("a server").index;
        assert_eq!([0, 1, 2, 3, u32::MAX].map(at), [0, 1, 2, 0, 0]);
        assert_eq!(at_place([].into_iter(), 0), None);
    }
}
