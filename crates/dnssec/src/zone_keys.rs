//! A zone's keys, and their records in the zone, in the parent zone and in caches. This determines when keys are
//! introduced and removed, so that no resolver finds a broken chain, whatever it has cached (RFC 6781 §4, RFC 7583).
//!
//! There are no kinds of rollovers here. Each key has three things that spread from servers into caches and fade from
//! there: its DNSKEY record, its signatures in the zone, and its DS record. Rules determine which parts may be added or
//! removed while the others do not change (`rules`). First signing, rollovers of each key, a change of algorithm, one
//! key instead of two, and the return to an unsigned zone follow from the same rules.

mod rules;
mod status;

pub use status::status_of_others;

use crate::key::{Algorithm, Ds, KeyId, KeyRole, PublicKey};
use crate::sign::{KeyInUse, KeysInUse, ZoneTtls};
use sanderling_dns::{Name, Rtype, is_later};
use serde::{Deserialize, Serialize};

const DAY_S: u64 = 24 * 3600;
/// The TTL of DS records while it is unknown.
const DS_TTL_S: u32 = 24 * 3600;
/// The RDATA of the CDS record that asks for the removal of all DS records (RFC 8078 §4).
pub const CDS_DELETE: [u8; 5] = [0; 5];
/// The CDNSKEY record that requests the deletion of the DS records.
pub const CDNSKEY_DELETE: [u8; 5] = [0, 0, 3, 0, 0];

/// A single key, a key for keys and a key for the zone, or no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyLayout {
    /// A CSK.
    Single,
    /// A KSK and a ZSK.
    Split,
    /// None: the zone is becoming unsigned.
    Unsigned,
}

impl KeyLayout {
    fn roles(self) -> &'static [KeyRole] {
        match self {
            KeyLayout::Single => &[KeyRole::Csk],
            KeyLayout::Split => &[KeyRole::Ksk, KeyRole::Zsk],
            KeyLayout::Unsigned => &[],
        }
    }
}

/// The keys that a zone should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPolicy {
    /// The algorithm of new keys.
    pub algorithm: Algorithm,
    /// The kinds of keys.
    pub layout: KeyLayout,
    /// Seconds after which a CSK or KSK is replaced; `None` for never.
    pub ksk_lifetime_s: Option<u64>,
    /// Seconds after which a ZSK is replaced; `None` for never.
    pub zsk_lifetime_s: Option<u64>,
    /// Added to each wait for caches: for name servers that were not asked, and for clocks.
    pub safety_s: u32,
}

/// Where something is: in the servers, and in caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Presence {
    /// Nowhere.
    #[default]
    Absent,
    /// Some servers may have it. For a DS record: the parent is asked to add it.
    Added(Change),
    /// All servers have the record, but some caches may lack it until this time.
    Spreading { until_unix_s: u64 },
    /// All servers and caches have the record.
    Everywhere,
    /// Some servers may have it still. For a DS record: the parent is asked to remove it.
    Removed(Change),
    /// For a DS record: the parent was asked to add it, is no longer asked, and may still add it.
    Withdrawn,
    /// No server has the record, but some caches may have it until this time.
    Fading { until_unix_s: u64 },
}

/// The progress of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    /// The first version of the zone with the change, once it is signed.
    version: Option<Version>,
}

/// A version of the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Version {
    serial: u32,
    signed_at_unix_s: u64,
}

impl Presence {
    const ADDED: Presence = Presence::Added(Change { version: None });
    const REMOVED: Presence = Presence::Removed(Change { version: None });

    /// Whether the next version, or the parent, should have the record.
    fn is_wanted(self) -> bool {
        matches!(self, Presence::Added(_) | Presence::Spreading { .. } | Presence::Everywhere)
    }

    /// The version that all name servers must have before anything else.
    fn awaited_version(self) -> Option<Version> {
        match self {
            Presence::Added(change) | Presence::Removed(change) => change.version,
            _ => None,
        }
    }

    /// Whether the parent must do the next step for a DS record.
    fn waits_for_parent(self, now_unix_s: u64) -> bool {
        match self {
            Presence::Added(_) | Presence::Removed(_) | Presence::Withdrawn => true,
            Presence::Fading { until_unix_s } => until_unix_s <= now_unix_s,
            _ => false,
        }
    }

    fn until_unix_s(self) -> Option<u64> {
        match self {
            Presence::Spreading { until_unix_s } | Presence::Fading { until_unix_s } => Some(until_unix_s),
            _ => None,
        }
    }

    /// The progress at a time.
    fn at(self, now_unix_s: u64) -> Presence {
        match self {
            Presence::Spreading { until_unix_s } if until_unix_s <= now_unix_s => Presence::Everywhere,
            Presence::Fading { until_unix_s } if until_unix_s <= now_unix_s => Presence::Absent,
            other => other,
        }
    }

    /// A version was signed.
    fn on_signed(&mut self, version: Version) {
        if let Presence::Added(change) | Presence::Removed(change) = self {
            change.version.get_or_insert(version);
        }
    }

    /// Records that all name servers have this version, and that caches keep an older version for at most `ttl_s`.
    fn on_served(self, served: ServedSerial, ttl_s: u64) -> Presence {
        let until_unix_s = served.at_unix_s + ttl_s;
        let is_served = |it: Version| !is_later(it.serial, served.serial) && served.at_unix_s >= it.signed_at_unix_s;
        match self {
            Presence::Added(Change { version: Some(version) }) if is_served(version) => {
                Presence::Spreading { until_unix_s }
            }
            Presence::Removed(Change { version: Some(version) }) if is_served(version) => {
                Presence::Fading { until_unix_s }
            }
            other => other,
        }
    }

    /// For a DS record: the parent should no longer have it.
    fn without_ds(self) -> Presence {
        match self {
            Presence::Added(_) => Presence::Withdrawn,
            Presence::Spreading { .. } | Presence::Everywhere => Presence::REMOVED,
            other => other,
        }
    }

    /// The parent has the DS record or not, and caches an older answer for `ttl_s` at most. `is_current`: the parent
    /// has a DS record that it should have, or should have none; it then adds no record that it was asked for earlier.
    fn on_parent(self, has_ds: bool, is_current: bool, at_unix_s: u64, ttl_s: u64, goal: Goal) -> Presence {
        let until_unix_s = at_unix_s + ttl_s;
        match (self, has_ds) {
            (Presence::Withdrawn, true) => Presence::REMOVED,
            (Presence::Withdrawn, false) if is_current => Presence::Fading { until_unix_s },
            (Presence::Fading { .. } | Presence::Absent, true) if goal == Goal::Retired => Presence::REMOVED,
            (Presence::Absent | Presence::Added(_) | Presence::Fading { .. }, true) => {
                Presence::Spreading { until_unix_s }
            }
            (Presence::Spreading { .. } | Presence::Everywhere | Presence::Removed(_), false) => {
                Presence::Fading { until_unix_s }
            }
            // The parent is asked again before any consequence.
            (Presence::Fading { until_unix_s }, false) if until_unix_s <= at_unix_s => Presence::Absent,
            (other, _) => other,
        }
    }
}

/// The goal for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Goal {
    /// The key is introduced and used.
    Active,
    /// The key is used until its replacement is made.
    Replaced,
    /// The key is removed.
    Retired,
}

/// A key of the zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ZoneKey {
    #[serde(flatten)]
    public: PublicKey,
    goal: Goal,
    added_at_unix_s: u64,
    dnskey: Presence,
    signatures: Presence,
    ds: Presence,
}

impl ZoneKey {
    fn new(request: KeyRequest, public_key: Vec<u8>, now_unix_s: u64) -> ZoneKey {
        ZoneKey {
            public: PublicKey { algorithm: request.algorithm, role: request.role, bytes: public_key },
            goal: Goal::Active,
            added_at_unix_s: now_unix_s,
            dnskey: Presence::Absent,
            signatures: Presence::Absent,
            ds: Presence::Absent,
        }
    }

    fn presences(&self) -> [Presence; 3] {
        [self.dnskey, self.signatures, self.ds]
    }

    fn is_retired(&self) -> bool {
        self.goal == Goal::Retired
    }
}

/// The times for which resolvers keep parts of a zone's versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CachedTtls {
    /// The TTLs of the last version.
    current: ZoneTtls,
    /// The longest of earlier versions.
    before: ZoneTtls,
    /// The time when the last version with another TTL was replaced.
    replaced_at_unix_s: u64,
}

impl CachedTtls {
    /// The longest of all versions that caches may have.
    fn longest(&self, now_unix_s: u64) -> ZoneTtls {
        // A name server may have answered from an old version for a while.
        let before_until_unix_s =
            self.replaced_at_unix_s + u64::from(self.before.longest_s.max(self.before.dnskey_s)) + DAY_S;
        if now_unix_s < before_until_unix_s { longer(self.current, self.before) } else { self.current }
    }

    fn on_signed(&mut self, ttls: ZoneTtls, now_unix_s: u64) {
        if ttls != self.current {
            self.before = self.longest(now_unix_s);
            self.replaced_at_unix_s = now_unix_s;
            self.current = ttls;
        }
    }
}

fn longer(left: ZoneTtls, right: ZoneTtls) -> ZoneTtls {
    ZoneTtls { dnskey_s: left.dnskey_s.max(right.dnskey_s), longest_s: left.longest_s.max(right.longest_s) }
}

/// The state of a zone's keys, which must be stored after each change, before any action that follows from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneKeys {
    keys: Vec<ZoneKey>,
    ttls: CachedTtls,
    /// The TTL of the DS records, or of the answer that there are none.
    ds_ttl_s: Option<u32>,
}

/// The observations since the last call. Each part is absent if it is unknown, or if servers disagree.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// The oldest serial that any name server of the zone answers with, when all have answered.
    pub served: Option<ServedSerial>,
    /// The common answer of all servers of the parent zone.
    pub parent: Option<ParentDs>,
}

/// The state that all name servers of a zone have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedSerial {
    /// The oldest serial.
    pub serial: u32,
    /// The time of the last answer, in seconds since 1970.
    pub at_unix_s: u64,
    /// The longest TTL of the DNSKEY records of name servers whose versions other signers sign. These have the DNSKEY
    /// records of this version.
    pub other_dnskey_ttl_s: u32,
}

/// The DS records of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentDs {
    /// The DS records; empty if there are none.
    pub ds: Vec<Ds>,
    /// The TTL of the DS records or, without any, of the negative answer.
    pub ttl_s: u32,
    /// When the last of the servers answered, in seconds since 1970.
    pub at_unix_s: u64,
}

/// The RDATA of DNSKEY records of this signer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnskeyRdatas {
    /// The records that each server of the zone should have.
    pub wanted: Vec<Vec<u8>>,
    /// The records that no server should have, not yet or no longer.
    pub unwanted: Vec<Vec<u8>>,
}

/// A key to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRequest {
    /// The key's algorithm.
    pub algorithm: Algorithm,
    /// The key's role.
    pub role: KeyRole,
}

/// The result of [`ZoneKeys::advance`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advanced {
    /// Whether the state has changed: it must be stored, and the zone signed with [`ZoneKeys::keys_in_use`].
    pub is_changed: bool,
    /// Keys to be made and given to [`ZoneKeys::add_key`]; then `advance` is called again.
    pub keys_needed: Vec<KeyRequest>,
    /// Keys that are no longer needed: their private keys can be erased.
    pub keys_to_erase: Vec<KeyId>,
    /// The time to call `advance` again without another observation.
    pub next_at_unix_s: Option<u64>,
    /// Whether to query the name servers of the zone for its serial.
    pub asks_name_servers: bool,
    /// Whether to query the parent for the DS records.
    pub asks_parent: bool,
}

/// A command to replace keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollover {
    /// The keys to replace.
    pub keys: RolloverKeys,
    /// Whether others may know them: then a rollover in progress does not prevent it, and its new keys are replaced
    /// too.
    pub is_compromised: bool,
}

/// Keys to be replaced by command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloverKeys {
    /// The CSK, or KSK and ZSK.
    All,
    /// The CSK or KSK.
    Ksk,
    /// The CSK or ZSK.
    Zsk,
}

/// The reason why a rollover does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloverError {
    /// Another rollover has not ended.
    #[error(
        "keys are being introduced or removed; wait until this rollover has finished or, if the private keys may have \
            leaked, add `--compromised`"
    )]
    InProgress,
    /// No such key is in use or being introduced.
    #[error("the zone has no key to replace")]
    NoKey,
}

/// Another key of the zone has the same key tag, which costs resolvers more work. The next call of `advance` requests
/// another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another key of the zone has the key tag {0}")]
pub struct KeyTagInUse(pub u16);

impl ZoneKeys {
    /// Applies the observations and the passed time.
    pub fn advance(
        &mut self,
        apex: Name<'_>,
        policy: &KeyPolicy,
        observed: &Observations,
        now_unix_s: u64,
    ) -> Advanced {
        let before = self.clone();
        self.observe(apex, policy, observed, now_unix_s);
        let keys_needed = self.plan(policy, now_unix_s);
        rules::apply(&mut self.keys);
        let mut keys_to_erase = Vec::new();
        self.keys.retain(|key| {
            let is_kept = !key.is_retired() || key.presences().iter().any(|it| *it != Presence::Absent);
            if !is_kept {
                keys_to_erase.push(key.public.id());
            }
            is_kept
        });
        let has = |test: fn(&Presence) -> bool| self.keys.iter().any(|key| key.presences().iter().any(test));
        // New keys are requested when the last old one is removed.
        let is_gone = self.keys.is_empty() && policy.layout != KeyLayout::Unsigned && !keys_to_erase.is_empty();
        let next_at_unix_s = self.next_at_unix_s(policy, now_unix_s).or(is_gone.then_some(now_unix_s));
        Advanced {
            is_changed: *self != before,
            keys_needed,
            keys_to_erase,
            next_at_unix_s,
            asks_name_servers: has(|it| it.awaited_version().is_some()),
            asks_parent: self.keys.iter().any(|key| key.ds.waits_for_parent(now_unix_s)),
        }
    }

    fn observe(&mut self, apex: Name<'_>, policy: &KeyPolicy, observed: &Observations, now_unix_s: u64) {
        let safety_s = u64::from(policy.safety_s);
        let ttls = self.ttls.longest(now_unix_s);
        if let Some(served) = observed.served {
            for key in &mut self.keys {
                let dnskey_ttl_s = u64::from(ttls.dnskey_s.max(served.other_dnskey_ttl_s));
                key.dnskey = key.dnskey.on_served(served, dnskey_ttl_s + safety_s);
                key.signatures = key.signatures.on_served(served, u64::from(ttls.longest_s) + safety_s);
            }
        }
        if let Some(parent) = &observed.parent {
            let ttl_s = parent.ttl_s.max(self.ds_ttl_s.unwrap_or(DS_TTL_S));
            let wait_s = u64::from(ttl_s) + safety_s;
            self.ds_ttl_s = Some(parent.ttl_s);
            let has_ds = |key: &PublicKey| parent.ds.iter().any(|ds| key.has_ds(ds, apex));
            let is_current = self.keys_of_ds().next().is_none() || self.keys_of_ds().any(has_ds);
            for key in self.keys.iter_mut().filter(|key| key.public.role.signs_keys()) {
                key.ds = key.ds.on_parent(has_ds(&key.public), is_current, parent.at_unix_s, wait_s, key.goal);
            }
        }
        for key in &mut self.keys {
            key.dnskey = key.dnskey.at(now_unix_s);
            key.signatures = key.signatures.at(now_unix_s);
            if key.ds.is_wanted() {
                key.ds = key.ds.at(now_unix_s);
            }
        }
    }

    /// Decides which keys are replaced, and returns those to create.
    fn plan(&mut self, policy: &KeyPolicy, now_unix_s: u64) -> Vec<KeyRequest> {
        if policy.layout == KeyLayout::Unsigned {
            self.keys.iter_mut().for_each(|key| key.goal = Goal::Retired);
            return Vec::new();
        }
        let is_wanted = |key: &ZoneKey| {
            policy.layout.roles().contains(&key.public.role) && key.public.algorithm == policy.algorithm
        };
        if self.keys.iter().all(ZoneKey::is_retired) {
            // The zone is becoming unsigned, but is still signed.
            for key in self.keys.iter_mut().filter(|key| is_wanted(key) && key.dnskey.is_wanted()) {
                key.goal = Goal::Active;
                if matches!(key.ds, Presence::Removed(_) | Presence::Withdrawn) {
                    key.ds = Presence::ADDED;
                }
            }
        }
        // A rollover ends before keys of another kind are made, unless one of its keys must already be replaced.
        let (is_changing, is_begun) = (self.is_changing(), self.keys.iter().any(|key| key.goal == Goal::Replaced));
        for key in self.keys.iter_mut().filter(|key| !key.is_retired()) {
            let lifetime_s = lifetime_s(policy, key.public.role);
            let is_old = lifetime_s.is_some_and(|lifetime_s| now_unix_s >= key.added_at_unix_s + lifetime_s);
            if !is_changing && is_old || (!is_changing || is_begun) && !is_wanted(key) {
                key.goal = Goal::Replaced;
            }
        }
        let has = |role: &KeyRole| {
            self.keys.iter().any(|key| key.goal == Goal::Active && key.public.role == *role && is_wanted(key))
        };
        // One of a rollover's keys may already exist.
        let is_free = !is_changing || is_begun || self.keys.iter().all(|key| !key.is_retired() && is_wanted(key));
        let needed: Vec<KeyRequest> = policy
            .layout
            .roles()
            .iter()
            .filter(|role| is_free && !has(role))
            .map(|&role| KeyRequest { algorithm: policy.algorithm, role })
            .collect();
        if needed.is_empty() {
            let replaced = self.keys.iter_mut().filter(|key| key.goal == Goal::Replaced);
            replaced.for_each(|key| key.goal = Goal::Retired);
        }
        needed
    }

    /// Whether keys are being introduced or removed. A DS record that the parent does not add yet does not count.
    fn is_changing(&self) -> bool {
        self.keys.iter().any(|key| {
            let (dnskey, signatures) = (key.dnskey, key.signatures);
            let is_settled = |it: Presence| it == Presence::Everywhere;
            key.goal != Goal::Active || !is_settled(dnskey) || key.public.role.signs_zone() && !is_settled(signatures)
        })
    }

    fn next_at_unix_s(&self, policy: &KeyPolicy, now_unix_s: u64) -> Option<u64> {
        let untils = self.keys.iter().flat_map(|key| key.presences()).filter_map(Presence::until_unix_s);
        let end = |key: &ZoneKey| Some(key.added_at_unix_s + lifetime_s(policy, key.public.role)?);
        let ends = self.keys.iter().filter(|_| !self.is_changing()).filter_map(end);
        // Ended keys that still exist wait for the parent.
        untils.filter(|&until_unix_s| until_unix_s > now_unix_s).chain(ends).min()
    }

    /// Adds a requested key.
    ///
    /// # Errors
    /// Returns an error if the key tag is in use. The private key can be erased.
    pub fn add_key(&mut self, request: KeyRequest, public_key: Vec<u8>, now_unix_s: u64) -> Result<(), KeyTagInUse> {
        let key = ZoneKey::new(request, public_key, now_unix_s);
        let tag = key.public.tag();
        if self.keys.iter().any(|other| other.public.tag() == tag) {
            return Err(KeyTagInUse(tag));
        }
        self.keys.push(key);
        Ok(())
    }

    /// Adds a key that the zone was signed with before elsewhere: its DNSKEY record and signatures are taken to be in
    /// the zone and in caches.
    ///
    /// # Errors
    /// Returns an error if the key tag is in use.
    pub fn import_key(&mut self, request: KeyRequest, public_key: Vec<u8>, now_unix_s: u64) -> Result<(), KeyTagInUse> {
        self.add_key(request, public_key, now_unix_s)?;
        let key = self.keys.last_mut().expect("it was added");
        key.dnskey = Presence::Everywhere;
        if request.role.signs_zone() {
            key.signatures = Presence::Everywhere;
        }
        if request.role.signs_keys() {
            key.ds = Presence::ADDED;
        }
        Ok(())
    }

    /// Starts to replace keys; `advance` then requests new ones. A key that others may know is replaced in the same
    /// way: a quicker way would break the zone for resolvers with older records.
    ///
    /// # Errors
    /// Returns the reason why the rollover cannot start.
    pub fn start(&mut self, rollover: Rollover) -> Result<(), RolloverError> {
        if self.is_changing() && !rollover.is_compromised {
            return Err(RolloverError::InProgress);
        }
        let is_meant = |key: &ZoneKey| match rollover.keys {
            RolloverKeys::All => !key.is_retired(),
            RolloverKeys::Ksk => !key.is_retired() && key.public.role.signs_keys(),
            RolloverKeys::Zsk => !key.is_retired() && key.public.role.signs_zone(),
        };
        if !self.keys.iter().any(is_meant) {
            return Err(RolloverError::NoKey);
        }
        let meant = self.keys.iter_mut().filter(|key| is_meant(key));
        meant.for_each(|key| key.goal = Goal::Replaced);
        Ok(())
    }

    /// The keys that sign the zone now.
    pub fn keys_in_use(&self, apex: Name<'_>) -> KeysInUse {
        let key = |key: &ZoneKey| {
            let (role, is_published) = (key.public.role, key.dnskey.is_wanted());
            let signs_zone = role.signs_zone() && key.signatures.is_wanted();
            let signs_keys = role.signs_keys() && is_published;
            (is_published || signs_zone).then(|| KeyInUse {
                key: key.public.clone(),
                is_published,
                signs_keys,
                signs_zone,
            })
        };
        let keys: Vec<KeyInUse> = self.keys.iter().filter_map(key).collect();
        let is_leaving = !keys.is_empty() && self.keys.iter().all(ZoneKey::is_retired);
        if is_leaving {
            return KeysInUse { keys, cds: vec![CDS_DELETE.to_vec()], cdnskey: vec![CDNSKEY_DELETE.to_vec()] };
        }
        let cds = self.keys_of_ds().map(|key| key.ds(apex).rdata()).collect();
        KeysInUse { keys, cds, cdnskey: self.keys_of_ds().map(PublicKey::rdata).collect() }
    }

    /// Records that the zone was signed with the current [`ZoneKeys::keys_in_use`]. Call this for each version.
    pub fn on_signed(&mut self, serial: u32, ttls: ZoneTtls, now_unix_s: u64) {
        self.ttls.on_signed(ttls, now_unix_s);
        let version = Version { serial, signed_at_unix_s: now_unix_s };
        for key in &mut self.keys {
            key.dnskey.on_signed(version);
            key.signatures.on_signed(version);
        }
    }

    /// Whether the zone has no keys, so that it is unsigned and there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a record of the apex comes with a key of this signer, or asks the parent zone to remove all DS records,
    /// and so does not belong to another signer.
    pub fn has_made(&self, apex: Name<'_>, rtype: Rtype, rdata: &[u8]) -> bool {
        let has = |test: &dyn Fn(&PublicKey) -> bool| self.keys.iter().any(|key| test(&key.public));
        match rtype {
            Rtype::DNSKEY => has(&|key| key.rdata() == rdata),
            Rtype::CDNSKEY => rdata == CDNSKEY_DELETE || has(&|key| key.rdata() == rdata),
            Rtype::CDS => rdata == CDS_DELETE || has(&|key| key.ds(apex).rdata() == rdata),
            _ => false,
        }
    }

    /// The RDATA of the DNSKEY records that each server of the zone should have, and that no server should have.
    pub fn dnskeys(&self) -> DnskeyRdatas {
        let of = |is_wanted| {
            let keys = self.keys.iter().filter(move |key| key.dnskey.is_wanted() == is_wanted);
            keys.map(|key| key.public.rdata()).collect()
        };
        DnskeyRdatas { wanted: of(true), unwanted: of(false) }
    }

    /// The public keys.
    pub fn public_keys(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.iter().map(|key| &key.public)
    }

    /// The DS records that the parent zone should have now.
    pub fn ds_wanted(&self, apex: Name<'_>) -> Vec<Ds> {
        self.keys_of_ds().map(|key| key.ds(apex)).collect()
    }

    /// The keys whose DS records the operator must submit: not keys that are replaced before the parent zone has them.
    pub fn keys_for_registrar(&self) -> impl Iterator<Item = &PublicKey> {
        let is_late = |key: &ZoneKey| key.is_retired() && matches!(key.ds, Presence::Added(_));
        self.keys.iter().filter(move |key| key.ds.is_wanted() && !is_late(key)).map(|key| &key.public)
    }

    /// The keys whose DS records the parent zone should have now.
    pub fn keys_of_ds(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.iter().filter(|key| key.ds.is_wanted()).map(|key| &key.public)
    }
}

fn lifetime_s(policy: &KeyPolicy, role: KeyRole) -> Option<u64> {
    if role.signs_keys() { policy.ksk_lifetime_s } else { policy.zsk_lifetime_s }
}

#[cfg(test)]
mod tests;
