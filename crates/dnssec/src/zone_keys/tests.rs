//! Rollovers in simulated time: resolvers with caches as old as TTLs allow never find a broken chain, and find one if a
//! wait is left out.

mod resolvers;

use super::*;
use crate::testing::{TestSigner, apex};
use fastrand::Rng;
use sanderling_testkit::seed;
use std::cell::Cell;
use std::collections::HashSet;

const START: u64 = 1_800_000_000;
const DNSKEY_TTL_S: u64 = 1800;
const ZONE_TTL_S: u64 = 3600;
const DS_TTL_S: u64 = 2400;
/// Of another signer.
const OTHER_DNSKEY_TTL_S: u64 = 3000;
const NAME_SERVER_COUNT: usize = 3;
const PARENT_SERVER_COUNT: usize = 2;
/// Random courses of each rollover.
const ROUND_COUNT: u64 = 5;
/// Steps of a rollover at most: each has up to a minute, or a wait.
const STEP_COUNT_MAX: usize = 6000;

const CSK: KeyPolicy = KeyPolicy {
    algorithm: Algorithm::EcdsaP256,
    layout: KeyLayout::Single,
    ksk_lifetime_s: None,
    zsk_lifetime_s: None,
    safety_s: 0,
};
const SPLIT: KeyPolicy = KeyPolicy { layout: KeyLayout::Split, ..CSK };

const ROUTINE: Rollover = Rollover { keys: RolloverKeys::All, is_compromised: false };

/// A wait that is left out, after the zone was signed for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// For caches with older DNSKEY records.
    DnskeyTtl,
    /// For caches with older signatures.
    ZoneTtl,
    /// For caches with older DS records.
    DsTtl,
    /// For name servers that do not have the version yet.
    NameServers,
    /// For the parent.
    Parent,
    /// For name servers of another signer that do not have the DNSKEY records yet.
    OtherSigner,
}

/// Servers that answer from the same content, each a while after it has changed.
struct Servers<T> {
    versions: Vec<Served<T>>,
    /// Each server's version.
    current: Vec<usize>,
}

struct Served<T> {
    content: T,
    was_served: bool,
    last_served_at: u64,
}

impl<T> Servers<T> {
    fn new(count: usize, content: T) -> Servers<T> {
        let first = Served { content, was_served: true, last_served_at: START };
        Servers { versions: vec![first], current: vec![0; count] }
    }

    fn publish(&mut self, content: T) {
        self.versions.push(Served { content, was_served: false, last_served_at: 0 });
    }

    fn step(&mut self, random: &mut Rng, now: u64) {
        let newest = self.versions.len() - 1;
        for current in &mut self.current {
            self.versions[*current].last_served_at = now;
            if random.u8(0..10) == 0 {
                *current = newest;
            }
            let version = &mut self.versions[*current];
            (version.was_served, version.last_served_at) = (true, now);
        }
    }

    fn oldest(&self) -> usize {
        *self.current.iter().min().expect("there are servers")
    }

    fn newest(&self) -> &T {
        &self.versions.last().expect("there is a version").content
    }

    /// The values that caches may hold.
    fn cached(&self, ttl_s: u64, now: u64) -> impl Iterator<Item = &T> + Clone {
        let is_cached = move |it: &&Served<T>| it.was_served && it.last_served_at + ttl_s > now;
        self.versions.iter().filter(is_cached).map(|it| &it.content)
    }
}

type Key = (KeyId, Algorithm);

/// The relevant parts of a version of the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    dnskeys: Vec<Key>,
    dnskey_signers: Vec<Key>,
    zone_signers: Vec<Key>,
    cds: Vec<Vec<u8>>,
}

struct World {
    random: Rng,
    now: u64,
    apex: sanderling_dns::NameBuf,
    keys: ZoneKeys,
    policy: KeyPolicy,
    fault: Fault,
    /// Makes keys that can sign. Without it, they are random numbers.
    signer: Option<TestSigner>,
    zone: Servers<Version>,
    parent: Servers<Vec<Ds>>,
    /// Another one that signs the zone too (RFC 8901).
    other: Option<OtherSigner>,
    /// All keys that there were.
    public: Vec<PublicKey>,
    erased: HashSet<KeyId>,
    must_sign: bool,
    /// The version whose CDS records the parent has seen last.
    cds_version: usize,
}

/// A signer with one key, which takes over the DNSKEY records of this one after a while.
struct OtherSigner {
    key: Key,
    zone: Servers<Version>,
}

impl OtherSigner {
    fn new(dnskeys: Vec<Key>) -> OtherSigner {
        let public = PublicKey { algorithm: Algorithm::EcdsaP256, role: KeyRole::Csk, bytes: vec![1; 64] };
        let key = (public.id(), public.algorithm);
        OtherSigner { key, zone: Servers::new(NAME_SERVER_COUNT, OtherSigner::version(key, dnskeys)) }
    }

    fn version(key: Key, mut dnskeys: Vec<Key>) -> Version {
        dnskeys.retain(|it| *it != key);
        dnskeys.push(key);
        Version { dnskeys, dnskey_signers: vec![key], zone_signers: vec![key], cds: vec![] }
    }

    fn step(&mut self, dnskeys: &[Key], random: &mut Rng, now: u64) {
        let version = OtherSigner::version(self.key, dnskeys.to_vec());
        if random.u8(0..30) == 0 && *self.zone.newest() != version {
            self.zone.publish(version);
        }
        self.zone.step(random, now);
    }
}

impl World {
    fn new(policy: KeyPolicy, fault: Fault, seed: u64) -> World {
        let unsigned = Version { dnskeys: vec![], dnskey_signers: vec![], zone_signers: vec![], cds: vec![] };
        World {
            random: Rng::with_seed(seed),
            now: START,
            apex: apex("example."),
            keys: ZoneKeys::default(),
            policy,
            fault,
            signer: None,
            zone: Servers::new(NAME_SERVER_COUNT, unsigned),
            parent: Servers::new(PARENT_SERVER_COUNT, Vec::new()),
            other: None,
            public: Vec::new(),
            erased: HashSet::new(),
            must_sign: false,
            cds_version: 0,
        }
    }

    fn observe(&mut self) -> Observations {
        let mut observed = Observations::default();
        if self.random.u8(0..4) == 0 && (self.fault == Fault::OtherSigner || self.other_has_dnskeys()) {
            let oldest =
                if self.fault == Fault::NameServers { self.zone.versions.len() - 1 } else { self.zone.oldest() };
            let has_ttl = self.other.is_some() && self.fault != Fault::DnskeyTtl;
            let other_dnskey_ttl_s = if has_ttl { OTHER_DNSKEY_TTL_S as u32 } else { 0 };
            observed.served = Some(ServedSerial { serial: oldest as u32, at_unix_s: self.now, other_dnskey_ttl_s });
        }
        let (first, second) = (self.parent.current[0], self.parent.current[1]);
        if first == second && self.random.u8(0..4) == 0 {
            let ds = if self.fault == Fault::Parent {
                self.keys.ds_wanted(self.apex.as_name())
            } else {
                self.parent.versions[first].content.clone()
            };
            let ttl_s = if self.fault == Fault::DsTtl { 0 } else { DS_TTL_S as u32 };
            observed.parent = Some(ParentDs { ds, ttl_s, at_unix_s: self.now });
        }
        observed
    }

    /// Whether all servers of the other signer have the DNSKEY records of this one.
    fn other_has_dnskeys(&self) -> bool {
        let DnskeyRdatas { wanted, unwanted } = self.keys.dnskeys();
        let is_right = |version: &Version| {
            self.public.iter().all(|key| {
                let rdata = key.rdata();
                if version.dnskeys.contains(&(key.id(), key.algorithm)) {
                    !unwanted.contains(&rdata)
                } else {
                    !wanted.contains(&rdata)
                }
            })
        };
        let zone = self.other.as_ref().map(|other| &other.zone);
        zone.is_none_or(|zone| zone.current.iter().all(|&index| is_right(&zone.versions[index].content)))
    }

    /// Another signer signs the zone too, and has prepared that.
    fn join_other(&mut self) {
        let other = OtherSigner::new(self.zone.newest().dnskeys.clone());
        let key = other.key;
        self.other = Some(other);
        self.sign();
        assert!(self.zone.newest().dnskeys.contains(&key));
        let newest = self.zone.versions.len() - 1;
        while self.zone.oldest() < newest {
            self.zone.step(&mut self.random, self.now);
        }
        self.now += DNSKEY_TTL_S + ZONE_TTL_S;
    }

    /// The agent's work at one time.
    fn run_agent(&mut self) -> Advanced {
        let observed = self.observe();
        let mut advanced = self.keys.advance(self.apex.as_name(), &self.policy, &observed, self.now);
        while !advanced.keys_needed.is_empty() {
            for request in advanced.keys_needed.clone() {
                let bytes = match &mut self.signer {
                    Some(signer) => signer.make_key(request.algorithm, request.role).bytes,
                    None => (0..32).map(|_| self.random.u8(..)).collect(),
                };
                if self.keys.add_key(request, bytes, self.now).is_ok() {
                    self.public.push(self.keys.keys.last().expect("it was added").public.clone());
                }
                // The agent is killed.
                if self.random.u8(0..4) == 0 {
                    break;
                }
            }
            let none = Observations::default();
            let next = self.keys.advance(self.apex.as_name(), &self.policy, &none, self.now);
            advanced = Advanced { is_changed: true, ..next };
        }
        self.erased.extend(&advanced.keys_to_erase);
        let text = serde_json::to_string(&self.keys).expect("it can be stored");
        self.keys = serde_json::from_str(&text).expect("it can be read");
        self.must_sign |= advanced.is_changed;
        if self.must_sign {
            self.sign();
        }
        advanced
    }

    fn sign(&mut self) {
        let in_use = self.keys.keys_in_use(self.apex.as_name());
        let of = |test: fn(&KeyInUse) -> bool| {
            in_use.keys.iter().filter(|it| test(it)).map(|it| (it.key.id(), it.key.algorithm)).collect::<Vec<Key>>()
        };
        let other = self.other.as_ref().map(|other| other.key);
        let version = Version {
            dnskeys: of(|it| it.is_published).into_iter().chain(other).collect(),
            dnskey_signers: of(|it| it.signs_keys),
            zone_signers: of(|it| it.signs_zone),
            cds: in_use.cds.clone(),
        };
        assert!(in_use.keys.iter().all(|it| !self.erased.contains(&it.key.id())), "a key in use is not erased");
        if *self.zone.newest() != version {
            self.zone.publish(version);
        }
        // The agent is killed after the zone was stored.
        if self.random.u8(0..8) == 0 {
            return;
        }
        let fault = |fault, ttl_s: u64| if self.fault == fault { 0 } else { ttl_s as u32 };
        let ttls =
            ZoneTtls { dnskey_s: fault(Fault::DnskeyTtl, DNSKEY_TTL_S), longest_s: fault(Fault::ZoneTtl, ZONE_TTL_S) };
        self.keys.on_signed(self.zone.versions.len() as u32 - 1, ttls, self.now);
        self.must_sign = false;
    }

    /// The parent takes over what a name server has as CDS records.
    fn run_parent(&mut self) {
        if self.random.u8(0..30) != 0 {
            return;
        }
        let version = self.zone.current[self.random.usize(0..NAME_SERVER_COUNT)];
        // RFC 7344 §6.2: an old CDS RRset does not take the place of a newer one.
        if version < self.cds_version {
            return;
        }
        self.cds_version = version;
        let cds = &self.zone.versions[version].content.cds;
        let ds: Vec<Ds> = match cds.iter().any(|rdata| *rdata == CDS_DELETE) {
            true => Vec::new(),
            false => cds.iter().filter_map(|rdata| Ds::from_rdata(rdata)).collect(),
        };
        if !cds.is_empty() && ds != *self.parent.newest() {
            self.parent.publish(ds);
        }
    }

    /// A resolver with any combination of what caches may have, from servers of either signer, finds a chain.
    fn check_with_other(&self, other: &OtherSigner) -> Result<(), String> {
        for ds in self.parent.cached(DS_TTL_S, self.now) {
            let is_trusted = |key: &&Key| {
                let is_of = |public: &PublicKey| (public.id(), public.algorithm) == **key;
                let ours = self.public.iter().find(|public| is_of(public));
                **key == other.key
                    || ours.is_some_and(|public| ds.iter().any(|ds| public.has_ds(ds, self.apex.as_name())))
            };
            let of_other = other.zone.cached(OTHER_DNSKEY_TTL_S, self.now);
            for keys in self.zone.cached(DNSKEY_TTL_S, self.now).chain(of_other) {
                if !keys.dnskey_signers.iter().filter(is_trusted).any(|key| keys.dnskeys.contains(key)) {
                    return Err(format!("no DNSKEY record for a DS record: {ds:?}, {keys:?}"));
                }
                let of_other = other.zone.cached(ZONE_TTL_S, self.now);
                for data in self.zone.cached(ZONE_TTL_S, self.now).chain(of_other) {
                    if !data.zone_signers.iter().any(|key| keys.dnskeys.contains(key)) {
                        return Err(format!("records without a signature of a key: {keys:?}, {data:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// A resolver with any combination of what caches may have finds a chain for each algorithm.
    fn check(&self) -> Result<(), String> {
        if let Some(other) = &self.other {
            return self.check_with_other(other);
        }
        for ds in self.parent.cached(DS_TTL_S, self.now).filter(|ds| !ds.is_empty()) {
            let trusted: Vec<Key> = self
                .public
                .iter()
                .filter(|key| ds.iter().any(|ds| key.has_ds(ds, self.apex.as_name())))
                .map(|key| (key.id(), key.algorithm))
                .collect();
            for keys in self.zone.cached(DNSKEY_TTL_S, self.now) {
                let fail = |problem: &str| Err(format!("{problem}: {ds:?}, {keys:?}"));
                for (_, algorithm) in &trusted {
                    let is_anchor = |key: &&Key| keys.dnskeys.contains(key) && keys.dnskey_signers.contains(key);
                    if !trusted.iter().filter(|key| key.1 == *algorithm).any(|key| is_anchor(&key)) {
                        return fail("no DNSKEY record for a DS record");
                    }
                }
                let algorithms = || keys.dnskeys.iter().chain(&trusted).map(|key| key.1);
                if !algorithms().all(|algorithm| keys.dnskey_signers.iter().any(|key| key.1 == algorithm)) {
                    return fail("DNSKEY records without a signature of an algorithm");
                }
                for data in self.zone.cached(ZONE_TTL_S, self.now) {
                    let is_signed = |algorithm| {
                        data.zone_signers.iter().any(|key| key.1 == algorithm && keys.dnskeys.contains(key))
                    };
                    if !algorithms().all(is_signed) {
                        return fail(&format!("records without a signature of an algorithm ({data:?})"));
                    }
                }
            }
        }
        Ok(())
    }

    /// One step of the simulation. Returns when something happens next.
    fn step(&mut self) -> u64 {
        let advanced = self.run_agent();
        self.zone.step(&mut self.random, self.now);
        if let Some(other) = &mut self.other {
            other.step(&self.zone.newest().dnskeys, &mut self.random, self.now);
        }
        self.parent.step(&mut self.random, self.now);
        self.run_parent();
        let waits = advanced.asks_name_servers || advanced.asks_parent || self.must_sign;
        let next = advanced.next_at_unix_s.filter(|_| !waits).unwrap_or(self.now);
        next.max(self.now + self.random.u64(1..60))
    }

    /// Runs until `is_done`; the error is a broken chain.
    fn run(&mut self, is_done: impl Fn(&World) -> bool) -> Result<(), String> {
        for _ in 0..STEP_COUNT_MAX {
            let next = self.step();
            self.check()?;
            if is_done(self) {
                return Ok(());
            }
            self.now = next;
            // Caches are also looked at just before and after a wait ends.
            self.check()?;
        }
        panic!("it does not end: {:#?}", self.keys.status(self.apex.as_name()));
    }

    /// Signs the zone for the first time, and waits until all servers and caches have what follows. A wait that is left
    /// out breaks nothing here.
    fn settle(&mut self) {
        while !self.is_settled() {
            self.now = self.step();
        }
        while !self.is_everywhere() {
            self.now = self.step();
        }
        self.now += ZONE_TTL_S;
    }

    /// Whether all servers have the newest version, and the DS records.
    fn is_everywhere(&self) -> bool {
        let is_newest = self.zone.oldest() + 1 == self.zone.versions.len();
        is_newest && self.parent.oldest() + 1 == self.parent.versions.len() && !self.parent.newest().is_empty()
    }

    fn is_settled(&self) -> bool {
        let policy = self.policy;
        let has = |role: &KeyRole| self.keys.keys.iter().any(|key| key.public.role == *role);
        let is_right = policy.layout.roles().iter().all(has) && self.keys.keys.len() == policy.layout.roles().len();
        let is_wanted = |key: &ZoneKey| {
            let ds = if key.public.role.signs_keys() { Presence::Everywhere } else { Presence::Absent };
            key.public.algorithm == policy.algorithm && key.ds == ds
        };
        is_right && !self.keys.is_changing() && self.keys.keys.iter().all(is_wanted)
    }
}

/// The event that a signed zone goes through.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    Command(RolloverKeys),
    /// A rollover of keys that others may know, at any moment of other rollovers.
    Compromised(RolloverKeys),
    Policy(KeyPolicy),
    /// To be unsigned, and signed again after a while.
    Unsigned,
    /// To be unsigned, and no more after some steps.
    NearlyUnsigned(usize),
    /// By the keys' ages.
    Lifetime,
}

fn other_policies(policy: KeyPolicy) -> [KeyPolicy; 4] {
    let layout = if policy.layout == KeyLayout::Single { KeyLayout::Split } else { KeyLayout::Single };
    [
        policy,
        KeyPolicy { algorithm: Algorithm::Ed25519, ..policy },
        KeyPolicy { layout, ..policy },
        KeyPolicy { layout, algorithm: Algorithm::RsaSha256, ..policy },
    ]
}

fn scenarios(policy: KeyPolicy) -> Vec<Scenario> {
    let [_, algorithm, layout, both] = other_policies(policy);
    vec![
        Scenario::Command(RolloverKeys::All),
        Scenario::Command(RolloverKeys::Ksk),
        Scenario::Command(RolloverKeys::Zsk),
        Scenario::Compromised(RolloverKeys::All),
        Scenario::Compromised(RolloverKeys::Ksk),
        Scenario::Compromised(RolloverKeys::Zsk),
        Scenario::Policy(algorithm),
        Scenario::Policy(layout),
        Scenario::Policy(both),
        Scenario::Unsigned,
        Scenario::NearlyUnsigned(5),
        Scenario::NearlyUnsigned(60),
        Scenario::Lifetime,
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signers {
    One,
    Two,
}

fn simulate(policy: KeyPolicy, scenario: Scenario, signers: Signers, fault: Fault, seed: u64) -> Result<(), String> {
    let mut world = World::new(policy, fault, seed);
    match fault {
        Fault::None => world.run(World::is_settled)?,
        _ => world.settle(),
    }
    if signers == Signers::Two {
        world.join_other();
    }
    let before: Vec<KeyId> = world.keys.keys.iter().map(|key| key.public.id()).collect();
    let is_new = |world: &World| {
        let ids: HashSet<KeyId> = world.keys.keys.iter().map(|key| key.public.id()).collect();
        world.is_settled() && before.iter().any(|id| !ids.contains(id))
    };
    match scenario {
        Scenario::Command(keys) => {
            let rollover = Rollover { keys, is_compromised: false };
            world.keys.start(rollover).expect("nothing is changing");
            assert_eq!(world.keys.start(rollover), Err(RolloverError::InProgress));
            world.run(is_new)
        }
        Scenario::Compromised(keys) => {
            let mut known = HashSet::new();
            for _ in 0..world.random.u8(1..4) {
                let policies = other_policies(policy);
                world.policy = policies[world.random.usize(0..policies.len())];
                let steps = Cell::new(world.random.usize(1..100));
                world.run(|_| steps.replace(steps.get() - 1) == 1)?;
                let is_meant = |key: &&ZoneKey| match keys {
                    RolloverKeys::All => true,
                    RolloverKeys::Ksk => key.public.role.signs_keys(),
                    RolloverKeys::Zsk => key.public.role.signs_zone(),
                };
                known.extend(world.keys.keys.iter().filter(is_meant).map(|key| key.public.id()));
                world.keys.start(Rollover { keys, is_compromised: true }).expect("one is in use");
                let replaced = world.keys.keys.iter().filter(is_meant).all(|key| key.goal != Goal::Active);
                assert!(replaced, "seed {seed}");
            }
            world.run(|world| world.is_settled() && world.keys.keys.iter().all(|key| !known.contains(&key.public.id())))
        }
        Scenario::Policy(policy) => {
            world.policy = policy;
            world.run(is_new)
        }
        Scenario::Unsigned => {
            world.policy = KeyPolicy { layout: KeyLayout::Unsigned, ..policy };
            world.run(|world| world.keys.is_empty() && !world.must_sign)?;
            assert!(world.zone.newest().dnskeys.is_empty());
            world.policy = policy;
            world.run(World::is_settled)
        }
        Scenario::NearlyUnsigned(step_count) => {
            world.policy = KeyPolicy { layout: KeyLayout::Unsigned, ..policy };
            let left = Cell::new(step_count);
            world.run(|world| left.replace(left.get().saturating_sub(1)) == 0 || world.keys.is_empty())?;
            world.policy = policy;
            world.run(World::is_settled)
        }
        Scenario::Lifetime => {
            let lifetime_s = Some(world.now - START + 100_000);
            world.policy = KeyPolicy { ksk_lifetime_s: lifetime_s, zsk_lifetime_s: lifetime_s, ..policy };
            world.run(is_new)
        }
    }
}

#[test]
fn no_resolver_finds_a_broken_chain_during_any_rollover() {
    let seed = seed();
    for policy in [CSK, SPLIT] {
        for scenario in scenarios(policy) {
            for round in 0..ROUND_COUNT {
                let result = simulate(policy, scenario, Signers::One, Fault::None, seed.wrapping_add(round));
                assert_eq!(result, Ok(()), "seed {seed}, round {round}, {:?}, {scenario:?}", policy.layout);
            }
        }
    }
}

#[test]
fn no_resolver_finds_a_broken_chain_while_another_signer_signs_too() {
    let seed = seed();
    for policy in [CSK, SPLIT] {
        // With another signer, the zone cannot become unsigned.
        let is_possible = |it: &Scenario| !matches!(it, Scenario::Unsigned | Scenario::NearlyUnsigned(_));
        for scenario in scenarios(policy).into_iter().filter(is_possible) {
            for round in 0..ROUND_COUNT {
                let result = simulate(policy, scenario, Signers::Two, Fault::None, seed.wrapping_add(round));
                assert_eq!(result, Ok(()), "seed {seed}, round {round}, {:?}, {scenario:?}", policy.layout);
            }
        }
    }
}

/// Each wait of each rollover is needed: a resolver finds a broken chain without it.
#[test]
fn resolvers_find_a_broken_chain_if_a_wait_is_left_out() {
    use Fault::{DnskeyTtl, DsTtl, NameServers, OtherSigner, Parent, ZoneTtl};
    let all = &[DnskeyTtl, ZoneTtl, DsTtl, NameServers, Parent][..];
    // With the first keys, caches lack signatures for longer than DNSKEY records.
    let first = &[ZoneTtl, DsTtl, NameServers, Parent];
    let ed25519 = |policy| Scenario::Policy(KeyPolicy { algorithm: Algorithm::Ed25519, ..policy });
    let seed = seed();
    for (policy, scenario, signers, faults) in [
        (CSK, Scenario::Command(RolloverKeys::All), Signers::One, all),
        (SPLIT, Scenario::Command(RolloverKeys::Ksk), Signers::One, &[DnskeyTtl, DsTtl, NameServers, Parent]),
        (SPLIT, Scenario::Command(RolloverKeys::Zsk), Signers::One, &[DnskeyTtl, ZoneTtl, NameServers]),
        (SPLIT, Scenario::Command(RolloverKeys::All), Signers::One, all),
        (CSK, ed25519(CSK), Signers::One, all),
        (SPLIT, ed25519(SPLIT), Signers::One, all),
        (CSK, Scenario::Policy(SPLIT), Signers::One, all),
        (SPLIT, Scenario::Policy(CSK), Signers::One, all),
        (CSK, Scenario::Unsigned, Signers::One, first),
        (SPLIT, Scenario::Unsigned, Signers::One, first),
        (CSK, Scenario::Command(RolloverKeys::All), Signers::Two, &[OtherSigner]),
        (SPLIT, Scenario::Command(RolloverKeys::Zsk), Signers::Two, &[OtherSigner]),
    ] {
        for &fault in faults {
            let is_found = |round| simulate(policy, scenario, signers, fault, seed.wrapping_add(round)).is_err();
            let layout = policy.layout;
            assert!((0..40).any(is_found), "seed {seed}: nobody notices {fault:?} in {layout:?}, {scenario:?}");
        }
    }
}

/// A zone with a key that is in use, without random delays.
fn settled(policy: &KeyPolicy) -> (ZoneKeys, sanderling_dns::NameBuf) {
    let apex = apex("example.");
    let mut keys = ZoneKeys::default();
    let none = Observations::default();
    for request in keys.advance(apex.as_name(), policy, &none, START).keys_needed {
        let tag_base = if request.role == KeyRole::Zsk { 7 } else { 9 };
        keys.add_key(request, vec![tag_base; 64], START).expect("a new tag");
    }
    (keys, apex)
}

fn advance(keys: &mut ZoneKeys, apex: Name<'_>, served: Option<u32>, ds: Option<Vec<Ds>>, now_unix_s: u64) -> Advanced {
    let served = served.map(|serial| ServedSerial { serial, at_unix_s: now_unix_s, other_dnskey_ttl_s: 0 });
    let parent = ds.map(|ds| ParentDs { ds, ttl_s: 600, at_unix_s: now_unix_s });
    keys.advance(apex, &CSK, &Observations { served, parent }, now_unix_s)
}

#[test]
fn first_signing_waits_for_name_servers_caches_and_parent_and_says_so() {
    let (mut keys, apex) = settled(&CSK);
    let apex = apex.as_name();
    let check = |keys: &ZoneKeys, expected: &[&str]| assert_eq!(keys.status(apex), expected);
    assert!(advance(&mut keys, apex, None, None, START).is_changed);
    check(
        &keys,
        &[
            "the CSK 9519 (ECDSA P-256) is being introduced",
            "the DNSKEY record of the CSK 9519 will be in the next version of the zone",
            "the signatures of the CSK 9519 will be in the next version of the zone",
        ],
    );
    assert!(keys.keys_in_use(apex).cds.is_empty());
    keys.on_signed(5, ZoneTtls { dnskey_s: 3600, longest_s: 7200 }, START);
    // Neither an older version nor what was asked before the version was signed counts.
    assert!(advance(&mut keys, apex, Some(4), None, START + 10).asks_name_servers);
    let early = Observations {
        served: Some(ServedSerial { serial: 5, at_unix_s: START - 1, other_dnskey_ttl_s: 0 }),
        parent: None,
    };
    assert!(!keys.advance(apex, &CSK, &early, START + 10).is_changed);
    let advanced = advance(&mut keys, apex, Some(5), None, START + 100);
    assert_eq!((advanced.asks_name_servers, advanced.next_at_unix_s), (false, Some(START + 100 + 3600)));
    check(
        &keys,
        &[
            "the CSK 9519 (ECDSA P-256) is being introduced",
            "caches may lack the DNSKEY record of the CSK 9519 until 2027-01-15 09:01:40 UTC",
            "caches may lack the signatures of the CSK 9519 until 2027-01-15 10:01:40 UTC",
        ],
    );
    assert!(keys.ds_wanted(apex).is_empty());
    assert!(advance(&mut keys, apex, None, None, START + 100 + 7200).asks_parent);
    let wanted = keys.ds_wanted(apex);
    assert_eq!(keys.keys_in_use(apex).cds, [wanted[0].rdata()]);
    let status = keys.status(apex);
    assert!(status[1].starts_with(
        "the parent zone does not have the DS record of the CSK 9519 yet: submit \"example. DS 9519 13 2 "
    ));
    let advanced = advance(&mut keys, apex, None, Some(wanted.clone()), START + 10_000);
    // The TTL of the answer before is unknown.
    assert_eq!((advanced.asks_parent, advanced.next_at_unix_s), (false, Some(START + 10_000 + 86_400)));
    assert_eq!(advance(&mut keys, apex, None, Some(wanted), START + 100_000).next_at_unix_s, None);
    check(&keys, &["the CSK 9519 (ECDSA P-256) is in use"]);
    // The parent has lost the DS record: it is asked for again.
    advance(&mut keys, apex, None, Some(Vec::new()), START + 200_000);
    let advanced = advance(&mut keys, apex, None, Some(Vec::new()), START + 300_000);
    assert!(advanced.asks_parent && keys.ds_wanted(apex).len() == 1);
}

#[test]
fn a_key_with_the_tag_of_another_is_not_added() {
    let (mut keys, _) = settled(&SPLIT);
    assert_eq!(keys.public_keys().count(), 2);
    let request = KeyRequest { algorithm: Algorithm::EcdsaP256, role: KeyRole::Zsk };
    assert!(matches!(keys.add_key(request, vec![7; 64], START), Err(KeyTagInUse(_))));
    assert_eq!(keys.public_keys().count(), 2);
    assert_eq!(ZoneKeys::default().start(ROUTINE), Err(RolloverError::NoKey));
}

#[test]
fn an_imported_key_is_in_use_at_once() {
    let apex = apex("example.");
    let apex = apex.as_name();
    let mut keys = ZoneKeys::default();
    let request = KeyRequest { algorithm: Algorithm::EcdsaP256, role: KeyRole::Csk };
    keys.import_key(request, vec![9; 64], START).expect("a new tag");
    assert!(advance(&mut keys, apex, None, None, START).keys_needed.is_empty());
    let in_use = keys.keys_in_use(apex);
    assert!(in_use.keys[0].is_published && in_use.keys[0].signs_zone && in_use.cds.len() == 1);
    assert_eq!(keys.start(ROUTINE), Ok(()));
}

#[test]
fn the_old_ds_record_is_removed_after_the_new_one_is_there() {
    let apex = apex("example.");
    let apex = apex.as_name();
    let mut keys = ZoneKeys::default();
    let request = KeyRequest { algorithm: Algorithm::EcdsaP256, role: KeyRole::Csk };
    keys.import_key(request, vec![9; 64], START).expect("a new tag");
    let old = keys.ds_wanted(apex);
    advance(&mut keys, apex, None, Some(old.clone()), START);
    keys.start(ROUTINE).expect("it starts");
    let status_after = |step: u32| {
        let now = START + u64::from(step) * 200_000;
        for request in advance(&mut keys, apex, Some(step), Some(old.clone()), now).keys_needed {
            keys.add_key(request, vec![7; 64], now).expect("a new tag");
        }
        keys.on_signed(step + 1, ZoneTtls { dnskey_s: 60, longest_s: 60 }, now);
        keys.status(apex).join("\n")
    };
    let status = (1..10).map(status_after).find(|status| status.contains("have the registrar remove it"));
    let status = status.expect("the old one is to go");
    assert!(status.contains("remove it once the new one is published"), "{status}");
}

#[test]
fn the_way_to_an_unsigned_zone_has_the_same_safety_as_a_rollover() {
    let apex = apex("example.");
    let apex = apex.as_name();
    let mut keys = ZoneKeys::default();
    let request = KeyRequest { algorithm: Algorithm::EcdsaP256, role: KeyRole::Csk };
    keys.import_key(request, vec![9; 64], START).expect("a new tag");
    let parent =
        |ds: Vec<Ds>, at_unix_s| Observations { served: None, parent: Some(ParentDs { ds, ttl_s: 600, at_unix_s }) };
    let wanted = keys.ds_wanted(apex);
    keys.advance(apex, &CSK, &parent(wanted, START), START);
    keys.advance(apex, &CSK, &Observations::default(), START + 100_000);
    let leaving = KeyPolicy { layout: KeyLayout::Unsigned, safety_s: 500, ..CSK };
    let now = START + 200_000;
    assert!(keys.advance(apex, &leaving, &Observations::default(), now).asks_parent);
    let advanced = keys.advance(apex, &leaving, &parent(Vec::new(), now), now);
    assert_eq!((advanced.next_at_unix_s, keys.is_empty()), (Some(now + 600 + 500), false));
}

#[test]
fn ds_record_of_a_compromised_key_that_the_parent_does_not_have_yet_is_not_asked_for() {
    let apex = apex("example.");
    let apex = apex.as_name();
    let mut keys = ZoneKeys::default();
    let request = KeyRequest { algorithm: Algorithm::EcdsaP256, role: KeyRole::Csk };
    keys.import_key(request, vec![9; 64], START).expect("a new tag");
    let of_parent = keys.ds_wanted(apex);
    advance(&mut keys, apex, None, Some(of_parent.clone()), START);
    let (mut step, mut next_key) = (0, 6);
    let mut run_until = |keys: &mut ZoneKeys, words: &str| loop {
        step += 1;
        let now = START + u64::from(step) * 200_000;
        for request in advance(keys, apex, Some(step), Some(of_parent.clone()), now).keys_needed {
            next_key += 1;
            keys.add_key(request, vec![next_key; 64], now).expect("a new tag");
        }
        keys.on_signed(step + 1, ZoneTtls { dnskey_s: 60, longest_s: 60 }, now);
        let status = keys.status(apex).join("\n");
        assert!(step < 20, "{words}: {status}");
        if status.contains(words) {
            return status;
        }
    };
    keys.start(ROUTINE).expect("it starts");
    run_until(&mut keys, " yet: submit ");
    keys.start(Rollover { keys: RolloverKeys::All, is_compromised: true }).expect("it starts");
    let status = run_until(&mut keys, "wait for the DS record of the next key");
    assert!(!status.contains(" yet: submit ") && keys.keys_for_registrar().count() == 0, "{status}");
    let status = run_until(&mut keys, "do not submit it to the registrar");
    assert!(status.contains(" yet: submit ") && keys.keys_for_registrar().count() == 1, "{status}");
}

/// A version with longer TTLs than the last one is in caches for as long as these.
#[test]
fn waits_are_as_long_as_the_ttls_of_versions_before() {
    let ttls = |longest_s| ZoneTtls { dnskey_s: 60, longest_s };
    let mut cached = CachedTtls::default();
    cached.on_signed(ttls(100_000), START);
    cached.on_signed(ttls(300), START + 50);
    assert_eq!(cached.longest(START + 60), ttls(100_000));
    cached.on_signed(ttls(600), START + 70);
    assert_eq!(cached.longest(START + 80), ttls(100_000));
    assert_eq!(cached.longest(START + 70 + 100_000 + DAY_S), ttls(600));
}
