//! A signed zone's keys: makes the keeper create and erase them, stores their state, and names the pending checks.
//!
//! A key is made before the state contains it, and the state is stored before any action that follows from it, so the
//! next agent can continue from any point.

use crate::blocking::{DISK, KEEPER};
use crate::clock::unix_s;
use crate::keeper_client::KeeperClient;
use crate::zone_observer::{AwaitedVersion, Questions};
use sanderling_config::log::log;
use sanderling_config::{DomainName, SignedZone, SigningAlgorithm, ZoneKeyLayout, zone_file_name};
use sanderling_dns::NameBuf;
use sanderling_dnssec::sign::{KeysInUse, ZoneTtls};
use sanderling_dnssec::zone_keys::{Advanced, KeyRequest, Observations, Rollover};
use sanderling_dnssec::{Algorithm, Ds, KeyId, KeyLayout, KeyPolicy, KeyRole, PublicKey, SigningState, ZoneKeys};
use sanderling_state::StateFolder;
use sanderling_zone_files::wire_name;
use std::sync::Arc;

/// The folder with the states, below the state folder.
const SIGNING: &str = "signing";

/// The keys of one zone.
pub(crate) struct SigningKeys {
    zone: DomainName,
    apex: NameBuf,
    policy: KeyPolicy,
    folder: Arc<StateFolder>,
    keeper: Arc<KeeperClient>,
    state: SigningState,
    /// Whether `state` is on the disk.
    is_stored: bool,
    /// Whether the zone must be signed with other keys than the last version.
    has_changed: bool,
    advanced: Advanced,
    /// A key on the disk to use as the next key, if possible.
    preferred: Option<KeyId>,
}

impl SigningKeys {
    /// A value without keys, until [`restore`](SigningKeys::restore) has read them.
    pub(crate) fn new(zone: &SignedZone, folder: Arc<StateFolder>, keeper: Arc<KeeperClient>) -> SigningKeys {
        SigningKeys {
            zone: zone.apex.clone(),
            apex: wire_name(&zone.apex),
            policy: policy(zone),
            folder,
            keeper,
            state: SigningState::default(),
            is_stored: true,
            has_changed: false,
            advanced: Advanced::default(),
            preferred: None,
        }
    }

    /// Reads the state.
    ///
    /// # Errors
    /// Returns an error if the state exists but cannot be read.
    pub(crate) async fn restore(&mut self) -> Result<(), String> {
        let (folder, file) = (Arc::clone(&self.folder), self.file());
        let read = move || match folder.read(&file).map_err(|error| error.to_string())? {
            Some(text) => {
                let remedy = "restore it from a backup of the state folder, and do not change `dnssec`";
                serde_json::from_slice(&text).map_err(|error| format!("cannot read {file}: {error}; {remedy}"))
            }
            None => Ok(SigningState::default()),
        };
        self.state = DISK.run(read).await?;
        Ok(())
    }

    /// Applies the observations and the passed time, and creates the needed keys.
    ///
    /// # Errors
    /// Returns the reason why the keys cannot advance. The observations are not lost.
    pub(crate) async fn advance(&mut self, observed: &Observations) -> Result<(), String> {
        let mut observed = observed.clone();
        loop {
            self.advanced = self.state.keys.advance(self.apex.as_name(), &self.policy, &observed, unix_s());
            self.state.keys_to_erase.append(&mut self.advanced.keys_to_erase);
            self.has_changed |= self.advanced.is_changed;
            self.is_stored &= !self.advanced.is_changed;
            observed = Observations::default();
            for request in std::mem::take(&mut self.advanced.keys_needed) {
                self.make_key(request).await?;
            }
            // New keys change the next steps, and a removed key may be followed by a new one immediately.
            if !self.advanced.is_changed {
                break;
            }
        }
        self.store().await
    }

    async fn make_key(&mut self, request: KeyRequest) -> Result<(), String> {
        let (keeper, zone, algorithm) = (Arc::clone(&self.keeper), self.zone.clone(), request.algorithm.number());
        let of_zone = self.state.keys.public_keys().map(PublicKey::id);
        let known: Vec<KeyId> = of_zone.chain(self.state.keys_to_erase.iter().copied()).collect();
        let preferred = self.preferred;
        let make = move || keeper.make_key(&zone, algorithm, &known, preferred);
        let key = KEEPER.run(make).await?;
        let id = KeyId(key.id);
        // The key may have been made before a crash.
        let public = PublicKey { algorithm: request.algorithm, role: request.role, bytes: key.public_key.clone() };
        match self.state.keys.add_key(request, key.public_key, unix_s()) {
            Ok(()) => log(&format!("zone {}: introducing the {} {}", self.zone, request.role, public.tag())),
            // The next round requests another key.
            Err(_) => self.state.keys_to_erase.push(id),
        }
        (self.is_stored, self.has_changed, self.advanced.is_changed) = (false, true, true);
        Ok(())
    }

    /// Whether the zone should be signed, and has no key yet.
    pub(crate) fn needs_first_key(&self) -> bool {
        self.state.keys.is_empty() && self.policy.layout != KeyLayout::Unsigned
    }

    /// Whether the first key can be made although the parent zone has `ds`: these must belong to a key on the disk,
    /// which then becomes the first, or all to keys in `others`, the DNSKEY records of other signers.
    ///
    /// # Errors
    /// Returns an error if the keeper does not answer.
    pub(crate) async fn can_follow(&mut self, ds: &[Ds], others: &[Vec<u8>]) -> Result<bool, String> {
        let (keeper, zone) = (Arc::clone(&self.keeper), self.zone.clone());
        let keys = KEEPER.run(move || keeper.list_keys(&zone)).await?;
        let (apex, algorithm) = (self.apex.as_name(), self.policy.algorithm);
        let has_ds = |bytes: Vec<u8>| {
            let key = PublicKey { algorithm, role: KeyRole::Ksk, bytes };
            ds.iter().any(|ds| key.has_ds(ds, apex)).then(|| key.id())
        };
        let of_algorithm = keys.into_iter().filter(|key| key.algorithm == algorithm.number());
        self.preferred = of_algorithm.filter_map(|key| has_ds(key.public_key)).next();
        let is_of_others = |ds: &Ds| others.iter().any(|dnskey| ds.is_of(dnskey, apex));
        Ok(self.preferred.is_some() || ds.iter().all(is_of_others))
    }

    /// Makes the keeper search for the private keys; the problem of the first one with which it cannot sign.
    ///
    /// # Errors
    /// Returns an error if the keeper does not answer.
    pub(crate) async fn look_for_all(&self) -> Result<Option<String>, String> {
        let (keeper, zone) = (Arc::clone(&self.keeper), self.zone.clone());
        let ids: Vec<KeyId> = self.state.keys.public_keys().map(PublicKey::id).collect();
        let look = move || {
            for id in ids {
                if let Some(problem) = keeper.look_for_key(&zone, id)? {
                    return Ok(Some(problem));
                }
            }
            Ok(None)
        };
        KEEPER.run(look).await
    }

    /// The zone was signed with [`in_use`](SigningKeys::in_use), and this version is stored.
    ///
    /// # Errors
    /// Returns an error if the state cannot be stored.
    pub(crate) async fn on_signed(&mut self, serial: u32, ttls: ZoneTtls) -> Result<(), String> {
        let before = self.state.clone();
        self.state.keys.on_signed(serial, ttls, unix_s());
        self.state.serial = Some(serial);
        self.is_stored &= self.state == before;
        self.has_changed = false;
        self.store().await
    }

    /// Erases the private keys that are no longer needed. Call this when a version without them is stored.
    ///
    /// # Errors
    /// Returns an error if the keeper does not erase a key, or the state cannot be stored.
    pub(crate) async fn erase_unneeded(&mut self) -> Result<(), String> {
        while let Some(&id) = self.state.keys_to_erase.last() {
            let (keeper, zone) = (Arc::clone(&self.keeper), self.zone.clone());
            KEEPER.run(move || keeper.erase_key(&zone, id)).await?;
            self.state.keys_to_erase.pop();
            self.is_stored = false;
        }
        self.store().await
    }

    /// Starts to replace keys; [`advance`](SigningKeys::advance) continues with it.
    ///
    /// # Errors
    /// Returns the reason why the rollover cannot start.
    pub(crate) fn start(&mut self, rollover: Rollover) -> Result<(), String> {
        if self.policy.layout == KeyLayout::Unsigned {
            return Err("the zone is becoming unsigned".to_owned());
        }
        self.state.keys.start(rollover).map_err(|error| error.to_string())?;
        self.is_stored = false;
        Ok(())
    }

    async fn store(&mut self) -> Result<(), String> {
        if !self.is_stored {
            let (folder, file) = (Arc::clone(&self.folder), self.file());
            let text = serde_json::to_vec_pretty(&self.state).expect("the keys of its maps are strings");
            let write = move || folder.write(&file, &text).map_err(|error| error.to_string());
            DISK.run(write).await?;
            self.is_stored = true;
        }
        Ok(())
    }

    /// The keys that sign the zone.
    pub(crate) fn in_use(&self) -> KeysInUse {
        self.state.keys.keys_in_use(self.apex.as_name())
    }

    /// Whether the zone must be signed with other keys than the last version.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// The keys and their state.
    pub(crate) fn keys(&self) -> &ZoneKeys {
        &self.state.keys
    }

    /// The serial of the last version that was signed.
    pub(crate) fn last_serial(&self) -> Option<u32> {
        self.state.serial
    }

    /// The pending checks.
    pub(crate) fn questions(&self) -> Questions {
        let awaited = |serial| AwaitedVersion { serial, dnskeys: self.state.keys.dnskeys() };
        let served = self.state.serial.filter(|_| self.advanced.asks_name_servers).map(awaited);
        Questions { served, parent: self.advanced.asks_parent, before_first_key: self.needs_first_key() }
    }

    /// The next time when the passage of time has an effect.
    pub(crate) fn next_at_unix_s(&self) -> Option<u64> {
        self.advanced.next_at_unix_s
    }

    fn file(&self) -> String {
        format!("{SIGNING}/{}.json", zone_file_name(&self.zone))
    }
}

fn policy(zone: &SignedZone) -> KeyPolicy {
    let signing = &zone.signing;
    KeyPolicy {
        algorithm: match signing.algorithm {
            SigningAlgorithm::EcdsaP256Sha256 => Algorithm::EcdsaP256,
            SigningAlgorithm::Ed25519 => Algorithm::Ed25519,
            SigningAlgorithm::RsaSha256 => Algorithm::RsaSha256,
        },
        layout: match signing.keys {
            _ if zone.is_leaving => KeyLayout::Unsigned,
            ZoneKeyLayout::Csk => KeyLayout::Single,
            ZoneKeyLayout::KskZsk => KeyLayout::Split,
        },
        ksk_lifetime_s: signing.ksk_lifetime_s,
        zsk_lifetime_s: signing.zsk_lifetime_s,
        safety_s: signing.rollover_safety_s,
    }
}
