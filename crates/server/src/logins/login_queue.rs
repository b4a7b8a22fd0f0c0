//! The order in which passwords are checked: one check takes as long as thousands of requests, so a client that guesses
//! could keep others waiting for as long as it likes.
//!
//! Networks that sent a correct password for the same user file come first, while few wrong ones come from them, then
//! those from which fewer wrong ones came. So a flood delays others only as long as it comes from networks that were
//! not seen before. Every fourth check is one of an unknown network, if there is one: users of one site with right
//! passwords cannot keep those of another out. Every other check is chosen by the name instead, so that guesses for one
//! name from many networks do not delay other names. Names that are in no file are treated like all others, so that the
//! waiting time does not reveal which names exist.

use crate::clock::Milliseconds;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

/// Networks and names of which something is known: some MB.
const STANDINGS_MAX: usize = 65_536;
/// Time after which half of the wrong passwords of a network or a name are forgotten.
const HALF_LIFE_MS: Milliseconds = 10 * 60 * 1_000;
/// Time for which a correct password makes a network known.
const KNOWN_MS: Milliseconds = 7 * 24 * 60 * 60 * 1_000;
/// Wrong passwords from a known network, of those that are not forgotten yet: with more, it does not count as known.
const WRONG_FROM_KNOWN_MAX: u32 = 8;
/// Of so many checks, and places in a full queue, one is for unknown networks.
const UNKNOWN_SHARE: usize = 4;
/// Time that a check waits; later its client no longer waits.
const WAIT_MS_MAX: Milliseconds = 10_000;

/// The checks that wait.
#[derive(Debug)]
pub(crate) struct LoginQueue<T> {
    waiting: Vec<Entry<T>>,
    standings: Standings,
    last_number: u64,
    /// Checks that were taken.
    taken_count: usize,
}

#[derive(Debug)]
struct Entry<T> {
    /// Later checks have higher numbers.
    number: u64,
    since_ms: Milliseconds,
    origin: Origin,
    rank: Rank,
    item: T,
}

/// Where a name and a password come from, the name, and the user file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The /16, /24 and address of IPv4, or the /48, /56 and /64 of IPv6.
    networks: [Network; 3],
    /// A hash of the name.
    name: u64,
    /// A hash of the path of the file.
    users_file: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Network {
    Ipv4 { bits: u32, length: u8 },
    Ipv6 { bits: u64, length: u8 },
}

/// The sources for which passwords are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    /// Wrong ones.
    Network(Network),
    /// Wrong ones.
    Name(u64),
    /// Right ones of a user file.
    Users { file: u64, network: Network },
}

impl Origin {
    /// `name` and `users_file`: hashes of them with a key that no client knows.
    pub(crate) fn new(client: IpAddr, name: u64, users_file: u64) -> Origin {
        let networks = match client.to_canonical() {
            IpAddr::V4(address) => [16, 24, 32]
                .map(|length: u8| Network::Ipv4 { bits: address.to_bits() & (u32::MAX << (32 - length)), length }),
            IpAddr::V6(address) => {
                let high = (address.to_bits() >> 64) as u64;
                [48, 56, 64].map(|length: u8| Network::Ipv6 { bits: high & (u64::MAX << (64 - length)), length })
            }
        };
        Origin { networks, name, users_file }
    }

    /// The network that is known to the user file after a correct password: the /24 or /56.
    fn known_as(&self) -> Subject {
        Subject::Users { file: self.users_file, network: self.networks[1] }
    }

    /// Whether both come from the same IPv4 address or IPv6 /64.
    pub(crate) fn has_same_client(&self, other: &Origin) -> bool {
        self.networks[2] == other.networks[2]
    }
}

/// The priority of a check: the lowest is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_unknown: bool,
    /// Wrong passwords from its networks, where those from a narrower one are in the wider ones too, and right ones of
    /// the file from its known network: a network with many users comes after others.
    from_networks: u32,
    wrong_for_name: u32,
}

impl<T> LoginQueue<T> {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.waiting.iter_mut().map(|entry| &mut entry.item)
    }

    /// The waiting logins of the same client.
    pub(crate) fn count_of_client(&self, origin: &Origin) -> usize {
        self.waiting.iter().filter(|entry| entry.origin.has_same_client(origin)).count()
    }

    /// Lets a check wait, of at most `count_max`. At the limit the last one in the order is refused, of equal ones that
    /// which has waited for longest; returns it, or the new one as an error. Those of unknown networks keep their share
    /// of the places.
    pub(crate) fn push(
        &mut self,
        item: T,
        origin: Origin,
        count_max: usize,
        now_ms: Milliseconds,
    ) -> Result<Option<T>, T> {
        let rank = self.standings.rank(&origin, now_ms);
        let mut refused = None;
        if self.waiting.len() >= count_max {
            let unknown_count = self.waiting.iter().filter(|entry| entry.rank.is_unknown).count();
            let has_share = unknown_count + usize::from(rank.is_unknown) > count_max / UNKNOWN_SHARE;
            // Whether it is refused before all others of lower ranks.
            let last = |rank: Rank| (rank.is_unknown == has_share, rank);
            let found = (0..self.waiting.len())
                .max_by_key(|&index| (last(self.waiting[index].rank), Reverse(self.waiting[index].number)));
            match found {
                Some(index) if last(self.waiting[index].rank) >= last(rank) => {
                    refused = Some(self.waiting.swap_remove(index).item);
                }
                _ => return Err(item),
            }
        }
        self.last_number += 1;
        self.waiting.push(Entry { number: self.last_number, since_ms: now_ms, origin, rank, item });
        Ok(refused)
    }

    /// Takes the next check.
    pub(crate) fn take_next(&mut self, now_ms: Milliseconds) -> Option<(T, Origin)> {
        for entry in &mut self.waiting {
            entry.rank = self.standings.rank(&entry.origin, now_ms);
        }
        // One check for unknown networks is chosen by the name, the next one is not.
        let turn = self.taken_count;
        let is_for_unknown = turn % UNKNOWN_SHARE == UNKNOWN_SHARE - 1;
        let is_by_name = (turn + turn / UNKNOWN_SHARE) % 2 == 1;
        let order = |entry: &Entry<T>| {
            let Rank { is_unknown, from_networks, wrong_for_name } = entry.rank;
            let counts = match is_by_name {
                true => [wrong_for_name, from_networks],
                false => [from_networks, wrong_for_name],
            };
            // Of equal ones the newest: its client waits for certain.
            (is_unknown != is_for_unknown, counts, Reverse(entry.number))
        };
        let index = (0..self.waiting.len()).min_by_key(|&index| order(&self.waiting[index]))?;
        self.taken_count = turn.wrapping_add(1);
        let Entry { item, origin, .. } = self.waiting.swap_remove(index);
        Some((item, origin))
    }

    /// Takes a check that has waited for too long.
    pub(crate) fn take_expired(&mut self, now_ms: Milliseconds) -> Option<T> {
        let index = self.waiting.iter().position(|entry| now_ms.saturating_sub(entry.since_ms) >= WAIT_MS_MAX)?;
        Some(self.waiting.swap_remove(index).item)
    }

    /// Takes note of the result of a check.
    pub(crate) fn note(&mut self, origin: &Origin, is_right: bool, now_ms: Milliseconds) {
        if is_right {
            self.standings.change(origin.known_as(), now_ms, |standing| {
                standing.add(now_ms);
                standing.known_until_ms = now_ms + KNOWN_MS;
            });
        } else {
            for subject in origin.networks.map(Subject::Network).into_iter().chain([Subject::Name(origin.name)]) {
                self.standings.change(subject, now_ms, |standing| standing.add(now_ms));
            }
        }
    }
}

impl<T> Default for LoginQueue<T> {
    fn default() -> LoginQueue<T> {
        LoginQueue { waiting: Vec::new(), standings: Standings::default(), last_number: 0, taken_count: 0 }
    }
}

/// The history of networks and names.
#[derive(Debug, Default)]
struct Standings(HashMap<Subject, Standing>);

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// Passwords that are not forgotten yet: right ones of [`Subject::Users`], else wrong ones.
    count: u32,
    /// When it last changed.
    counted_at_ms: Milliseconds,
    /// A correct password makes a network known.
    known_until_ms: Milliseconds,
}

impl Standing {
    fn count(&self, now_ms: Milliseconds) -> u32 {
        let half_lives = now_ms.saturating_sub(self.counted_at_ms) / HALF_LIFE_MS;
        self.count.checked_shr(u32::try_from(half_lives).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    fn add(&mut self, now_ms: Milliseconds) {
        (self.count, self.counted_at_ms) = (self.count(now_ms).saturating_add(1), now_ms);
    }
}

impl Standings {
    fn rank(&self, origin: &Origin, now_ms: Milliseconds) -> Rank {
        let count = |subject| self.0.get(&subject).map_or(0, |standing| standing.count(now_ms));
        let wrong = origin.networks.map(|network| count(Subject::Network(network)));
        let [_, of_known, of_client] = wrong;
        let was_right = self.0.get(&origin.known_as()).is_some_and(|standing| now_ms < standing.known_until_ms);
        Rank {
            is_unknown: !was_right || of_known.max(of_client) > WRONG_FROM_KNOWN_MAX,
            from_networks: wrong.into_iter().fold(count(origin.known_as()), u32::saturating_add),
            wrong_for_name: count(Subject::Name(origin.name)),
        }
    }

    fn change(&mut self, subject: Subject, now_ms: Milliseconds, change: impl FnOnce(&mut Standing)) {
        if self.0.len() >= STANDINGS_MAX && !self.0.contains_key(&subject) {
            self.0.retain(|_, it| it.count(now_ms) > 0 || now_ms < it.known_until_ms);
        }
        if self.0.len() >= STANDINGS_MAX && !self.0.contains_key(&subject) {
            // Guesses of clients must not push out correct passwords.
            self.0.retain(|_, it| now_ms < it.known_until_ms);
        }
        if self.0.len() >= STANDINGS_MAX && !self.0.contains_key(&subject) {
            self.0.clear();
        }
        change(self.0.entry(subject).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_testkit::seed;

    const COUNT_MAX: usize = 128;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// An address in the IPv6 /64 with this number, of `2001:db8::/32`.
    fn in_network(number: u32) -> IpAddr {
        std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number) << 64 | 1).into()
    }

    #[test]
    fn known_networks_are_first_then_those_with_fewer_wrong_passwords_then_the_newest() {
        let mut queue = LoginQueue::default();
        let origin = |text: &str, name: u64| Origin::new(address(text), name, 0);
        queue.note(&origin("192.0.2.1", 1), true, 0);
        queue.note(&origin("2001:db8:1:100::1", 1), true, 0);
        for text in ["198.51.100.1", "2001:db8:2:100::1"] {
            queue.note(&origin(text, 1), false, 0);
        }
        for text in [
            "203.0.113.1",
            "192.0.2.99",
            "198.51.100.1",
            "198.51.100.2",
            "2001:db8:2:1ff::1",
            "2001:db8:2:200::1",
            "2001:db8:1:1ff::1",
            "::ffff:192.0.2.5",
            "203.0.113.2",
        ] {
            assert_eq!(queue.push(text, origin(text, 2), COUNT_MAX, 1), Ok(None));
        }
        let order: Vec<&str> = std::iter::from_fn(|| queue.take_next(2)).map(|(text, _)| text).collect();
        let expected = [
            "::ffff:192.0.2.5",
            "2001:db8:1:1ff::1",
            "192.0.2.99",
            "203.0.113.2",
            "203.0.113.1",
            "2001:db8:2:200::1",
            "2001:db8:2:1ff::1",
            "198.51.100.2",
            "198.51.100.1",
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn full_queue_refuses_the_last_in_the_order() {
        let mut queue = LoginQueue::default();
        let (guessing, other) = (Origin::new(address("192.0.2.1"), 1, 0), Origin::new(address("198.51.100.1"), 2, 0));
        queue.note(&guessing, false, 0);
        assert_eq!(queue.push(1, guessing, 2, 1), Ok(None));
        assert_eq!(queue.push(2, guessing, 2, 1), Ok(None));
        assert_eq!(queue.push(3, other, 2, 1), Ok(Some(1)), "the one that has waited for longest");
        assert_eq!(queue.push(4, other, 2, 1), Ok(Some(2)));
        assert_eq!(queue.push(5, guessing, 2, 1), Err(5));
        assert_eq!(queue.push(6, other, 2, 1), Ok(Some(3)));
        assert_eq!(queue.take_expired(WAIT_MS_MAX), None);
        assert_eq!([(); 3].map(|()| queue.take_expired(WAIT_MS_MAX + 1)), [Some(4), Some(6), None]);
    }

    #[test]
    fn wrong_passwords_are_forgotten_and_right_ones_kept_within_the_bound() {
        let mut queue = LoginQueue::<()>::default();
        let right = Origin::new(address("192.0.2.1"), 0, 0);
        queue.note(&right, true, 0);
        for number in 0..20_000 {
            queue.note(&Origin::new(in_network(number << 16), u64::from(number), 0), false, u64::from(number));
            assert!(queue.standings.0.len() <= STANDINGS_MAX);
        }
        let rank = |origin, now_ms| queue.standings.rank(origin, now_ms);
        assert!(!rank(&right, KNOWN_MS - 1).is_unknown && rank(&right, KNOWN_MS).is_unknown);
        let last = Origin::new(in_network(19_999 << 16), 19_999, 0);
        assert_eq!((rank(&last, 20_000).from_networks, rank(&last, 20_000).wrong_for_name), (3, 1));
        assert_eq!(rank(&last, 20_000 + HALF_LIFE_MS).from_networks, 0);
    }

    /// The history of clients that guess.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Guesser {
        Stranger,
        /// A user of another site, which has given a right password before.
        User,
        /// One with any number of correct passwords of its own site.
        Owner,
    }

    /// Clients that guess, and others.
    struct Attack {
        per_s: u64,
        guesser: Guesser,
        /// The /64 of a guess.
        network: fn(&mut fastrand::Rng) -> u32,
        /// Names that are guessed for.
        name_count: u64,
        /// The others have given a right password before.
        is_known: bool,
    }

    /// Simulates 40 s on two processors, in which a check takes 50 ms. The share of the others, two a second from
    /// separate networks, that were answered within two seconds in the second half.
    fn served_share(attack: &Attack) -> f64 {
        const CHECK_MS: u64 = 50;
        let mut random = fastrand::Rng::with_seed(seed());
        let mut queue = LoginQueue::default();
        let mut running: Vec<(u64, Option<u64>, Origin)> = Vec::new();
        let (mut served, mut due) = (0, 0.0);
        if attack.guesser == Guesser::User {
            let origin = Origin::new(in_network((attack.network)(&mut random)), 0, 1);
            queue.note(&origin, true, 0);
        }
        for now_ms in 0..40_000 {
            due += attack.per_s as f64 / 1_000.0;
            while due >= 1.0 {
                due -= 1.0;
                let network = (attack.network)(&mut random);
                let origin = Origin::new(in_network(network), random.u64(..attack.name_count), 1);
                let _ = queue.push(None, origin, COUNT_MAX, now_ms);
            }
            if now_ms % 500 == 7 {
                let number = (now_ms / 500) as u32;
                let origin = Origin::new(in_network(0xff00_0000 | number << 16), 1 << 40, 0);
                if attack.is_known {
                    queue.note(&origin, true, now_ms);
                }
                let _ = queue.push(Some(now_ms), origin, COUNT_MAX, now_ms);
            }
            while let Some(at) = running.iter().position(|(end_ms, ..)| *end_ms <= now_ms) {
                let (_, honest_since, origin) = running.swap_remove(at);
                queue.note(&origin, honest_since.is_some() || attack.guesser == Guesser::Owner, now_ms);
                let is_in_time = honest_since.is_some_and(|since| since >= 20_000 && now_ms - since <= 2_000);
                served += u32::from(is_in_time);
            }
            while queue.take_expired(now_ms).is_some() {}
            while running.len() < 2
                && let Some((honest_since, origin)) = queue.take_next(now_ms)
            {
                running.push((now_ms + CHECK_MS, honest_since, origin));
            }
        }
        f64::from(served) / 40.0
    }

    #[test]
    fn honest_clients_are_served_during_an_attack() {
        let one_site = |random: &mut fastrand::Rng| random.u32(..160);
        let botnet = |random: &mut fastrand::Rng| random.u32(..500) << 16;
        let unlimited = |random: &mut fastrand::Rng| random.u32(..0xff00) << 16;
        for (per_s, name_count, is_known) in
            [(42, 1, false), (42, 1_000_000, false), (600, 1, false), (600, 1_000_000, false), (600, 1_000_000, true)]
        {
            let guesser = Guesser::Stranger;
            let share = |network| served_share(&Attack { per_s, guesser, network, name_count, is_known });
            // The last ones of the second half end after it.
            assert!(share(one_site) >= 0.9, "{per_s} {name_count} {is_known}");
            assert!(share(botnet) >= 0.9, "{per_s} {name_count} {is_known}");
            // Each guess from another network, for another name.
            if is_known || name_count == 1 {
                assert!(share(unlimited) >= 0.9, "{per_s} {name_count} {is_known}");
            }
        }
    }

    #[test]
    fn users_of_one_site_do_not_keep_others_out() {
        let one_network = |random: &mut fastrand::Rng| random.u32(..160);
        for guesser in [Guesser::User, Guesser::Owner] {
            for (per_s, name_count) in [(42, 1), (600, 1_000_000)] {
                for is_known in [false, true] {
                    let share = served_share(&Attack { per_s, guesser, network: one_network, name_count, is_known });
                    assert!(share >= 0.9, "{guesser:?} {per_s} {name_count} {is_known}: {share}");
                }
            }
        }
    }

    #[test]
    fn network_is_known_to_one_file_of_users_while_few_wrong_passwords_come_from_it() {
        let mut queue = LoginQueue::<()>::default();
        let user = Origin::new(address("192.0.2.1"), 1, 1);
        queue.note(&user, true, 0);
        let is_known = |queue: &LoginQueue<()>, text: &str, users_file, now_ms| {
            !queue.standings.rank(&Origin::new(address(text), 1, users_file), now_ms).is_unknown
        };
        assert!(is_known(&queue, "192.0.2.1", 1, 1) && is_known(&queue, "192.0.2.9", 1, 1));
        assert!(!is_known(&queue, "192.0.2.1", 2, 1), "another file");
        for _ in 0..WRONG_FROM_KNOWN_MAX {
            queue.note(&user, false, 1);
        }
        assert!(is_known(&queue, "192.0.2.1", 1, 1));
        queue.note(&user, false, 1);
        queue.note(&user, true, 1);
        assert!(!is_known(&queue, "192.0.2.1", 1, 1), "a right password does not make up for them");
        assert!(is_known(&queue, "192.0.2.1", 1, 1 + HALF_LIFE_MS));
    }

    #[test]
    fn full_queue_keeps_places_for_unknown_networks() {
        let mut queue = LoginQueue::default();
        let (known, unknown) = (Origin::new(address("192.0.2.1"), 1, 1), Origin::new(address("198.51.100.1"), 2, 1));
        queue.note(&known, true, 0);
        for number in 1..=4 {
            assert_eq!(queue.push(number, known, 4, 1), Ok(None));
        }
        assert_eq!(queue.push(5, unknown, 4, 1), Ok(Some(1)));
        assert_eq!(queue.push(6, known, 4, 1), Ok(Some(2)));
        assert_eq!(queue.push(7, unknown, 4, 1), Ok(Some(5)), "more than the share of them");
        let order: Vec<i32> = std::iter::from_fn(|| queue.take_next(2)).map(|(number, _)| number).collect();
        assert_eq!(order, [6, 4, 3, 7]);
    }
}
