//! A world with a clock of its own: workers that serve keys, name servers that lag, resolvers that cache, and an agent
//! that crashes between any two things that it does. No cache may ever have records that do not pin the key in service.

use super::*;
use std::collections::VecDeque;

const HANDSHAKE_S: u64 = 3;
/// Seconds of one world.
const LIFETIME_S: u64 = 2_000;

/// A linear congruential generator with a mixed output: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed >> 33) % end
    }

    /// Whether an event happens that occurs once in `mean` times.
    fn one_in(&mut self, mean: u64) -> bool {
        self.below(mean) == 0
    }
}

/// TLSA records, as they are answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Records {
    keys: Vec<KeyDigest>,
    ttl_s: u32,
}

/// An order for a certificate with this key, and when it is issued.
struct Order {
    key: KeyDigest,
    issued_at: u64,
}

/// The rule that the agent breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The agent orders as soon as the name servers answer.
    NoWait,
    /// The agent does not ask the other name servers.
    NotAsked,
    /// The agent removes the old key as soon as the new key is in service.
    NoOverlap,
}

struct World {
    random: Random,
    fault: Fault,
    now: u64,
    /// The time that the agent's clock is ahead.
    ahead_s: u64,
    ttl_s: u32,
    key_count: u64,
    /// In the state folder.
    stored: Rotation,
    /// In the agent's memory; `None` after a crash.
    agent: Option<Rotation>,
    order: Option<Order>,
    /// The key of the certificate in the state folder, and since when.
    certificate: (KeyDigest, u64),
    /// The key that each worker serves, and the time when it starts to serve the key in the state folder.
    workers: Vec<(KeyDigest, u64)>,
    /// The records with which this server answers.
    primary: Records,
    /// The records of the other servers, and the versions that they have yet to transfer, each with its time.
    secondaries: Vec<(Records, VecDeque<(u64, Records)>)>,
    /// The records in resolver caches, with their expiry.
    caches: Vec<(Records, u64)>,
    renewal_count: u32,
}

impl World {
    fn new(seed: u64, fault: Fault) -> World {
        let mut random = Random(seed);
        let ttl_s = 1 + random.below(100) as u32;
        let secondary_count = random.below(4);
        let stored = Rotation::new("key 0".to_owned(), "key 1".to_owned(), ttl_s);
        let key = "key 0".to_owned();
        World {
            fault,
            now: 1_000,
            ahead_s: if random.one_in(2) { 90 * 24 * 3600 } else { 0 },
            ttl_s,
            key_count: 2,
            agent: None,
            order: None,
            certificate: (key.clone(), 0),
            workers: vec![(key.clone(), 0); 3],
            primary: Records::default(),
            secondaries: (0..secondary_count).map(|_| (Records::default(), VecDeque::new())).collect(),
            caches: Vec::new(),
            renewal_count: 0,
            stored,
            random,
        }
    }

    /// The agent's work in one second: some of its steps, before it may crash.
    fn run_agent(&mut self) {
        for _ in 0..3 {
            if self.random.one_in(20) {
                self.agent = None;
                return;
            }
            self.run_agent_once();
        }
    }

    fn run_agent_once(&mut self) {
        let rotation = self.agent.get_or_insert_with(|| self.stored.clone()).clone();
        let mut changed = rotation.clone();
        let agent_now = self.now + self.ahead_s;
        changed.on_time(agent_now);
        changed.on_ttl(self.ttl_s);
        // The certificate that the server process reports to be in service: all workers have received it.
        let (key, stored_at) = &self.certificate;
        if self.now > *stored_at {
            changed.on_served(key, agent_now);
        }
        let mut publishes = true;
        match changed.step(agent_now, HANDSHAKE_S) {
            Step::AskNameServers => {
                let keys: Vec<KeyDigest> = changed.pinned().map(Clone::clone).to_vec();
                let all_answer = self.primary.keys == keys && self.secondaries.iter().all(|(it, _)| it.keys == keys);
                if all_answer || self.fault == Fault::NotAsked {
                    changed.on_answered(agent_now);
                }
            }
            Step::WaitUntil(_) if self.fault == Fault::NoWait => self.begin_order(&changed),
            Step::WaitUntil(_) if self.fault == Fault::NoOverlap => self.rotate(&mut changed),
            Step::WaitUntil(_) => {}
            Step::Order => self.begin_order(&changed),
            Step::MakeKey => self.rotate(&mut changed),
        }
        if changed != rotation {
            self.stored = changed.clone();
            self.agent = Some(changed);
            publishes = !self.random.one_in(10);
        }
        if !publishes {
            // A crash between two steps.
            self.agent = None;
            return;
        }
        self.publish();
    }

    fn rotate(&mut self, rotation: &mut Rotation) {
        if matches!(rotation.phase, Phase::Overlapping { .. }) {
            rotation.on_key_made(format!("key {}", self.key_count), self.ttl_s);
            self.key_count += 1;
        }
    }

    fn begin_order(&mut self, rotation: &Rotation) {
        let is_cached = matches!(rotation.phase, Phase::Caching { .. });
        if is_cached && self.order.is_none() && self.random.one_in(5) {
            let issued_at = self.now + self.random.below(20);
            self.order = Some(Order { key: rotation.pinned()[1].clone(), issued_at });
        }
    }

    fn publish(&mut self) {
        let Some(rotation) = &self.agent else { return };
        let records = Records { keys: rotation.pinned().map(Clone::clone).to_vec(), ttl_s: self.ttl_s };
        if self.primary == records {
            return;
        }
        self.primary = records.clone();
        for (_, transfers) in &mut self.secondaries {
            // A transfer does not overtake an earlier one.
            let after = transfers.back().map_or(self.now, |(at, _)| *at);
            let lag_s = if self.random.one_in(3) { self.random.below(200) } else { self.random.below(3) };
            transfers.push_back((after + lag_s, records.clone()));
        }
    }

    /// The other parties' work in one second.
    fn run_others(&mut self) {
        if self.random.one_in(200) {
            // The clock is set right.
            self.ahead_s = 0;
        }
        if self.random.one_in(300) {
            // Another configuration.
            self.ttl_s = 1 + self.random.below(100) as u32;
            self.agent = None;
        }
        if let Some(order) = self.order.take_if(|order| order.issued_at <= self.now) {
            // The order may fail; the next order has the same key.
            if !self.random.one_in(4) {
                self.certificate = (order.key, self.now);
                let random = &mut self.random;
                self.workers.iter_mut().for_each(|(_, at)| *at = self.now + random.below(HANDSHAKE_S));
                self.renewal_count += 1;
            }
        }
        for (key, at) in &mut self.workers {
            if *at <= self.now {
                key.clone_from(&self.certificate.0);
            }
        }
        for (records, transfers) in &mut self.secondaries {
            while let Some((_, newer)) = transfers.pop_front_if(|(at, _)| *at <= self.now) {
                *records = newer;
            }
        }
        self.caches.retain(|(_, until)| *until > self.now);
        let secondaries = self.secondaries.iter().map(|(records, _)| records);
        let answers: Vec<Records> = [&self.primary].into_iter().chain(secondaries).cloned().collect();
        for records in answers.into_iter().filter(|records| !records.keys.is_empty()) {
            let until = self.now + u64::from(records.ttl_s);
            if !self.caches.contains(&(records.clone(), until)) {
                self.caches.push((records, until));
            }
        }
    }

    /// The first cache that does not pin a worker's key.
    fn mismatch(&self) -> Option<String> {
        let of_worker = |key: &KeyDigest| {
            let cache = self.caches.iter().find(|(records, _)| !records.keys.contains(key))?;
            Some(format!("at {}: {key} is served, and {cache:?} is cached: {:?}", self.now, self.stored))
        };
        self.workers.iter().find_map(|(key, _)| of_worker(key))
    }

    /// The first mismatch, and the number of renewals.
    fn run(seed: u64, fault: Fault) -> (Option<String>, u32) {
        let mut world = World::new(seed, fault);
        let end = world.now + LIFETIME_S;
        while world.now < end {
            world.now += 1;
            world.run_agent();
            world.run_others();
            if let Some(mismatch) = world.mismatch() {
                return (Some(mismatch), world.renewal_count);
            }
        }
        (None, world.renewal_count)
    }
}

/// Seeds of the worlds that a test runs.
const SEEDS: std::ops::Range<u64> = 0..80;

#[test]
fn no_cache_ever_has_records_without_the_key_in_service() {
    let mut renewal_count = 0;
    for seed in SEEDS {
        let (mismatch, count) = World::run(seed, Fault::None);
        assert_eq!(mismatch, None, "seed {seed}");
        renewal_count += count;
    }
    // The worlds are worth something.
    assert!(renewal_count > 400, "{renewal_count}");
}

#[test]
fn without_one_of_the_waits_a_cache_has_records_without_the_key_in_service() {
    for fault in [Fault::NoWait, Fault::NotAsked, Fault::NoOverlap] {
        let mismatch_count = SEEDS.filter(|seed| World::run(*seed, fault).0.is_some()).count();
        assert!(mismatch_count > 20, "{fault:?}: {mismatch_count}");
    }
}

#[test]
fn an_order_may_be_made_when_the_records_have_been_in_all_caches() {
    let digest = |name: &str| name.to_owned();
    let mut rotation = Rotation::new(digest("a"), digest("b"), 100);
    assert_eq!(rotation.step(1_000, 10), Step::AskNameServers);
    rotation.on_answered(1_000);
    assert_eq!(
        [1_000, 1_111, 1_112].map(|now| rotation.step(now, 10)),
        [Step::WaitUntil(1_112), Step::WaitUntil(1_112), Step::Order]
    );
    rotation.on_served(&digest("a"), 2_000);
    assert_eq!(rotation.step(2_000, 10), Step::Order);
    rotation.on_served(&digest("b"), 2_000);
    rotation.on_served(&digest("b"), 2_005);
    assert_eq!([2_005, 2_012].map(|now| rotation.step(now, 10)), [Step::WaitUntil(2_012), Step::MakeKey]);
    assert_eq!(rotation.pinned(), ["a", "b"]);
    // Records with the TTL before may be in caches.
    rotation.on_key_made(digest("c"), 10);
    assert_eq!(rotation.pinned(), ["b", "c"]);
    rotation.on_answered(3_000);
    assert_eq!(rotation.step(3_000, 10), Step::WaitUntil(3_112));
}

#[test]
fn wait_of_a_clock_that_was_ahead_begins_again() {
    let digest = |name: &str| name.to_owned();
    let mut rotation = Rotation::new(digest("a"), digest("b"), 100);
    rotation.on_answered(9_000_000);
    rotation.on_time(9_000_050);
    assert_eq!(rotation.step(9_000_050, 10), Step::WaitUntil(9_000_112));
    rotation.on_time(1_000);
    assert_eq!([1_000, 1_112].map(|now| rotation.step(now, 10)), [Step::WaitUntil(1_112), Step::Order]);
    rotation.on_served(&digest("b"), 9_000_000);
    rotation.on_time(1_200);
    assert_eq!([1_200, 1_212].map(|now| rotation.step(now, 10)), [Step::WaitUntil(1_212), Step::MakeKey]);
}

#[test]
fn key_of_another_certificate_is_published_with_the_next_one() {
    let digest = |name: &str| name.to_owned();
    let mut rotation = Rotation::new(digest("a"), digest("b"), 100);
    rotation.on_answered(1_000);
    rotation.on_served(&digest("other"), 1_500);
    assert_eq!((rotation.pinned(), rotation.step(1_500, 10)), ([&digest("other"), &digest("b")], Step::AskNameServers));
    // The certificate before the last is in service again.
    rotation.on_answered(2_000);
    rotation.on_served(&digest("b"), 2_500);
    rotation.on_served(&digest("other"), 2_501);
    assert_eq!((rotation.pinned(), rotation.step(2_501, 10)), ([&digest("other"), &digest("b")], Step::AskNameServers));
}
