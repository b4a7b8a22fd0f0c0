//! For the tests of this crate: zones from text, and a signer with its own keys.

use crate::key::{Algorithm, KeyId, KeyRole, PublicKey};
use crate::records::{Record, Records, RecordsBuilder};
use crate::sign::{KeyInUse, KeysInUse, SigningInput, ZoneSigner};
use crate::signing_input;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{Name, NameBuf};
use std::collections::HashMap;

/// The name in `text`, which has no escapes.
pub(crate) fn apex(text: &str) -> NameBuf {
    let labels: Vec<&[u8]> = text.trim_end_matches('.').split('.').map(str::as_bytes).collect();
    NameBuf::joined(&labels, Name::ROOT).expect("a name")
}

/// A zone file's records.
pub(crate) fn records(apex: Name<'_>, text: &str) -> Records {
    let mut parser = Parser::new("zone".into(), text.as_bytes().to_vec(), apex, ParserLimits::default());
    let mut builder = RecordsBuilder::default();
    while let Some(entry) = parser.next() {
        match entry.expect("a good zone file") {
            Entry::Record(record) => builder.push(Record {
                owner: record.owner,
                rtype: record.rtype,
                ttl_s: record.ttl_s,
                rdata: record.rdata,
            }),
            Entry::Include { .. } | Entry::Alias(_) => panic!("the zone has more than records"),
        }
    }
    builder.finish()
}

enum PrivateKey {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A signer with the private keys of one zone, which checks its inputs.
pub(crate) struct TestSigner {
    apex: NameBuf,
    keys: HashMap<KeyId, (PublicKey, PrivateKey)>,
    pub(crate) batch_count: usize,
}

impl TestSigner {
    pub(crate) fn new(apex: Name<'_>) -> TestSigner {
        TestSigner { apex: apex.to_owned(), keys: HashMap::new(), batch_count: 0 }
    }

    pub(crate) fn make_key(&mut self, algorithm: Algorithm, role: KeyRole) -> PublicKey {
        let (private, bytes) = match algorithm {
            Algorithm::EcdsaP256 => {
                let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
                // Without the byte that says that the point is uncompressed.
                let bytes = key.public_key().as_ref()[1..].to_vec();
                (PrivateKey::Ecdsa(key), bytes)
            }
            Algorithm::Ed25519 => {
                let key = Ed25519KeyPair::generate().expect("a key");
                let bytes = key.public_key().as_ref().to_vec();
                (PrivateKey::Ed25519(key), bytes)
            }
            Algorithm::RsaSha256 => panic!("tests use algorithms with fast key generation"),
        };
        let key = PublicKey { algorithm, role, bytes };
        self.keys.insert(key.id(), (key.clone(), private));
        key
    }

    /// Keys that sign according to their roles.
    pub(crate) fn keys(&mut self, algorithm: Algorithm, roles: &[KeyRole]) -> KeysInUse {
        let key = |&role: &KeyRole| KeyInUse {
            key: self.make_key(algorithm, role),
            is_published: true,
            signs_keys: role.signs_keys(),
            signs_zone: role.signs_zone(),
        };
        KeysInUse { keys: roles.iter().map(key).collect(), cds: Vec::new(), cdnskey: Vec::new() }
    }
}

impl ZoneSigner for TestSigner {
    fn sign(&mut self, inputs: &[SigningInput<'_>]) -> Result<Vec<Vec<u8>>, String> {
        self.batch_count += 1;
        let sign = |input: &SigningInput<'_>| {
            let (public, private) = self.keys.get(&input.key).ok_or("the key is unknown")?;
            signing_input::check(input.bytes, self.apex.as_name(), public.algorithm, public.tag())
                .map_err(|error| error.to_string())?;
            Ok(match private {
                PrivateKey::Ecdsa(key) => {
                    let signature = key.sign(&SystemRandom::new(), input.bytes).expect("the key can sign");
                    signature.as_ref().to_vec()
                }
                PrivateKey::Ed25519(key) => key.sign(input.bytes).as_ref().to_vec(),
            })
        };
        inputs.iter().map(sign).collect()
    }
}
