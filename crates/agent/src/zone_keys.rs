//! The public keys of a zone that is signed, as they are stored. A zone keeps its keys.

use sanderling_config::{Signing, SigningAlgorithm, ZoneKeyLayout};
use sanderling_dns::Name;
use sanderling_dnssec::sign::{KeyInUse, KeysInUse};
use sanderling_dnssec::{Algorithm, Ds, KeyId, KeyRole, PublicKey};
use serde::{Deserialize, Serialize};

/// The keys, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ZoneKeys {
    keys: Vec<ZoneKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ZoneKey {
    algorithm: Algorithm,
    role: KeyRole,
    public_key: Vec<u8>,
}

impl ZoneKey {
    fn public(&self) -> PublicKey {
        PublicKey { algorithm: self.algorithm, role: self.role, bytes: self.public_key.clone() }
    }
}

/// A key that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRequest {
    pub(crate) algorithm: Algorithm,
    pub(crate) role: KeyRole,
}

impl ZoneKeys {
    /// The next key that a zone which is signed so needs; `None` if it has all.
    pub(crate) fn next_needed(&self, signing: &Signing) -> Option<KeyRequest> {
        let (algorithm, roles) = wanted(signing);
        let role = roles.get(self.keys.len())?;
        let is_begun = self.keys.iter().zip(roles).all(|(key, role)| key.role == *role && key.algorithm == algorithm);
        is_begun.then_some(KeyRequest { algorithm, role: *role })
    }

    /// Why the zone has other keys than it is to have.
    pub(crate) fn problem(&self, signing: &Signing) -> Option<String> {
        let (algorithm, roles) = wanted(signing);
        let is_wanted = self.keys.iter().zip(roles).all(|(key, role)| key.role == *role && key.algorithm == algorithm);
        (!is_wanted || self.keys.len() > roles.len()).then(|| {
            "the zone keeps the keys that it has: `algorithm` and `keys` are those of new zones; write the former ones".to_owned()
        })
    }

    pub(crate) fn add_key(&mut self, request: KeyRequest, public_key: Vec<u8>) {
        let KeyRequest { algorithm, role } = request;
        self.keys.push(ZoneKey { algorithm, role, public_key });
    }

    pub(crate) fn ids(&self) -> Vec<KeyId> {
        self.keys.iter().map(|key| key.public().id()).collect()
    }

    /// What the zone is signed with.
    pub(crate) fn in_use(&self, apex: Name<'_>) -> KeysInUse {
        let in_use = |key: &ZoneKey| KeyInUse {
            key: key.public(),
            is_published: true,
            signs_keys: key.role.signs_keys(),
            signs_zone: key.role.signs_zone(),
        };
        KeysInUse {
            keys: self.keys.iter().map(in_use).collect(),
            cds: self.ds_wanted(apex).iter().map(Ds::rdata).collect(),
            cdnskey: self.entry_points().map(|key| key.rdata()).collect(),
        }
    }

    /// The DS records that the parent zone is to have.
    pub(crate) fn ds_wanted(&self, apex: Name<'_>) -> Vec<Ds> {
        self.entry_points().map(|key| key.ds(apex)).collect()
    }

    /// The keys that the parent zone refers to.
    pub(crate) fn entry_points(&self) -> impl Iterator<Item = PublicKey> {
        self.keys.iter().filter(|key| key.role.signs_keys()).map(ZoneKey::public)
    }
}

fn wanted(signing: &Signing) -> (Algorithm, &'static [KeyRole]) {
    let algorithm = match signing.algorithm {
        SigningAlgorithm::EcdsaP256Sha256 => Algorithm::EcdsaP256,
        SigningAlgorithm::Ed25519 => Algorithm::Ed25519,
        SigningAlgorithm::RsaSha256 => Algorithm::RsaSha256,
    };
    let roles: &[KeyRole] = match signing.keys {
        ZoneKeyLayout::Csk => &[KeyRole::Csk],
        ZoneKeyLayout::KskZsk => &[KeyRole::Ksk, KeyRole::Zsk],
    };
    (algorithm, roles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_stay() {
        let split = Signing { keys: ZoneKeyLayout::KskZsk, ..Signing::default() };
        let mut keys = ZoneKeys::default();
        for role in [KeyRole::Ksk, KeyRole::Zsk] {
            let request = KeyRequest { algorithm: Algorithm::EcdsaP256, role };
            assert_eq!((keys.next_needed(&split), keys.problem(&split)), (Some(request), None));
            keys.add_key(request, vec![role as u8; 64]);
        }
        assert_eq!((keys.next_needed(&split), keys.problem(&split)), (None, None));
        let in_use = keys.in_use(Name::ROOT);
        assert_eq!(
            in_use.keys.iter().map(|key| (key.signs_keys, key.signs_zone)).collect::<Vec<_>>(),
            [(true, false), (false, true)]
        );
        assert_eq!((in_use.cds.len(), in_use.cdnskey.len(), keys.ds_wanted(Name::ROOT).len()), (1, 1, 1));
        let stored = serde_json::to_vec(&keys).expect("written");
        assert_eq!(serde_json::from_slice::<ZoneKeys>(&stored).expect("read"), keys);
        for other in [Signing::default(), Signing { algorithm: SigningAlgorithm::Ed25519, ..split }] {
            assert_eq!(keys.next_needed(&other), None);
            assert!(keys.problem(&other).is_some());
        }
    }
}
