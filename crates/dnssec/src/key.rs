//! Public keys of zones, and their DS records (RFC 4034 §2 and §5).

use data_encoding::{BASE64, HEXLOWER};
use sanderling_dns::Name;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256, Sha384};
use std::fmt;

/// Flags of DNSKEY records (RFC 4034 §2.1.1, RFC 5011 §3).
const ZONE_KEY: u16 = 0x0100;
const SEP: u16 = 0x0001;
/// The only protocol of DNSKEY records (RFC 4034 §2.1.2).
const PROTOCOL: u8 = 3;
/// The digest algorithms of DS records: SHA-256 (RFC 4509) and SHA-384 (RFC 6605).
const DIGEST_SHA256: u8 = 2;
const DIGEST_SHA384: u8 = 4;

/// An algorithm that zones are signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// RSA with SHA-256, 8 (RFC 5702).
    RsaSha256,
    /// ECDSA with P-256 and SHA-256, 13 (RFC 6605).
    EcdsaP256,
    /// Ed25519, 15 (RFC 8080).
    Ed25519,
}

impl Algorithm {
    /// The number in the registry of DNSSEC algorithms.
    pub fn number(self) -> u8 {
        match self {
            Algorithm::RsaSha256 => 8,
            Algorithm::EcdsaP256 => 13,
            Algorithm::Ed25519 => 15,
        }
    }
}

/// A key's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyRole {
    /// Everything (combined signing key).
    Csk,
    /// The DNSKEY, CDS and CDNSKEY records (key signing key).
    Ksk,
    /// All other records (zone signing key).
    Zsk,
}

impl fmt::Display for KeyRole {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            KeyRole::Csk => "CSK",
            KeyRole::Ksk => "KSK",
            KeyRole::Zsk => "ZSK",
        })
    }
}

impl KeyRole {
    /// Whether the key signs the DNSKEY records, so that the parent zone has its DS record.
    pub fn signs_keys(self) -> bool {
        self != KeyRole::Zsk
    }

    /// Whether the key signs the records other than keys.
    pub fn signs_zone(self) -> bool {
        self != KeyRole::Ksk
    }
}

/// The name of a key between processes: the SHA-256 of the public key in the form of the DNSKEY record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyId(pub [u8; 32]);

impl From<KeyId> for String {
    fn from(id: KeyId) -> String {
        HEXLOWER.encode(&id.0)
    }
}

impl TryFrom<String> for KeyId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<KeyId, &'static str> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(KeyId).ok_or("a key ID has 64 hexadecimal digits")
    }
}

/// A public key in the form of its DNSKEY record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKey {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The key's role. A CSK or KSK has the flag SEP.
    pub role: KeyRole,
    /// The public key field (RFC 3110 §2, RFC 6605 §4, RFC 8080 §3).
    #[serde(rename = "public-key", serialize_with = "write_base64", deserialize_with = "read_base64")]
    pub bytes: Vec<u8>,
}

fn write_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

fn read_base64<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text.as_bytes()).map_err(D::Error::custom)
}

impl PublicKey {
    /// The key's name.
    pub fn id(&self) -> KeyId {
        KeyId(Sha256::digest(&self.bytes).into())
    }

    /// The RDATA of the DNSKEY record, and of the CDNSKEY record.
    pub fn rdata(&self) -> Vec<u8> {
        let flags = if self.role.signs_keys() { ZONE_KEY | SEP } else { ZONE_KEY };
        [&flags.to_be_bytes()[..], &[PROTOCOL, self.algorithm.number()], &self.bytes].concat()
    }

    /// The key tag.
    pub fn tag(&self) -> u16 {
        key_tag(&self.rdata())
    }

    /// The DS record with SHA-256 for the zone `apex`.
    pub fn ds(&self, apex: Name<'_>) -> Ds {
        let (algorithm, digest) = (self.algorithm.number(), self.digest::<Sha256>(apex));
        Ds { key_tag: self.tag(), algorithm, digest_type: DIGEST_SHA256, digest }
    }

    /// The DS record with SHA-384, which some registrars ask for.
    pub fn ds_sha384(&self, apex: Name<'_>) -> Ds {
        Ds { digest_type: DIGEST_SHA384, digest: self.digest::<Sha384>(apex), ..self.ds(apex) }
    }

    /// Whether `ds` is a DS record of this key for the zone `apex`. A DS record with another digest than SHA-256 or
    /// SHA-384 counts as this key's: the key must not go while it exists.
    pub fn has_ds(&self, ds: &Ds, apex: Name<'_>) -> bool {
        ds.is_of(&self.rdata(), apex)
    }

    fn digest<D: Digest>(&self, apex: Name<'_>) -> Vec<u8> {
        digest::<D>(&self.rdata(), apex)
    }
}

/// The digest of a DNSKEY record in a DS record (RFC 4034 §5.1.4).
fn digest<D: Digest>(dnskey_rdata: &[u8], apex: Name<'_>) -> Vec<u8> {
    let apex = apex.to_lowercase();
    D::new().chain_update(apex.as_name().as_bytes()).chain_update(dnskey_rdata).finalize().to_vec()
}

/// The key tag of a DNSKEY record (RFC 4034 appendix B).
pub fn key_tag(dnskey_rdata: &[u8]) -> u16 {
    let sum: u32 =
        dnskey_rdata.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low))).sum();
    (sum + (sum >> 16 & 0xffff)) as u16
}

/// A DS record (RFC 4034 §5.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ds {
    /// The key tag of the DNSKEY record.
    pub key_tag: u16,
    /// The key's algorithm.
    pub algorithm: u8,
    /// The digest algorithm.
    pub digest_type: u8,
    /// The digest.
    pub digest: Vec<u8>,
}

impl Ds {
    /// The DS record with this RDATA; `None` if it is malformed.
    pub fn from_rdata(rdata: &[u8]) -> Option<Ds> {
        let (&[tag_high, tag_low, algorithm, digest_type], digest) = rdata.split_first_chunk()?;
        let key_tag = u16::from_be_bytes([tag_high, tag_low]);
        (!digest.is_empty()).then(|| Ds { key_tag, algorithm, digest_type, digest: digest.to_vec() })
    }

    /// Whether this is a DS record of the key with this DNSKEY record, of the zone `apex`. A DS record with another
    /// digest than SHA-256 or SHA-384 counts as this key's.
    pub fn is_of(&self, dnskey_rdata: &[u8], apex: Name<'_>) -> bool {
        let is_digest = match self.digest_type {
            DIGEST_SHA256 => self.digest == digest::<Sha256>(dnskey_rdata, apex),
            DIGEST_SHA384 => self.digest == digest::<Sha384>(dnskey_rdata, apex),
            _ => true,
        };
        is_digest && self.key_tag == key_tag(dnskey_rdata) && dnskey_rdata.get(3) == Some(&self.algorithm)
    }

    /// The RDATA of the DS record, and of the CDS record.
    pub fn rdata(&self) -> Vec<u8> {
        [&self.key_tag.to_be_bytes()[..], &[self.algorithm, self.digest_type], &self.digest].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APEX: &[u8] = b"\x07example\x03net\0";

    /// RFC 6605 §6.1 and RFC 8080 §6.1: the tag and the digest of a key.
    #[test]
    fn tag_and_ds_are_those_of_the_rfcs() {
        let check = |apex: &[u8], algorithm, key: &str, tag, digest: &str| {
            let bytes = BASE64.decode(key.as_bytes()).expect("base 64");
            let key = PublicKey { algorithm, role: KeyRole::Ksk, bytes };
            assert_eq!(key.tag(), tag);
            let ds = key.ds(Name::parse(apex).expect("a name"));
            assert_eq!((ds.key_tag, ds.algorithm, ds.digest_type), (tag, algorithm.number(), 2));
            assert_eq!(HEXLOWER.encode(&ds.digest), digest);
            assert!(key.has_ds(&ds, Name::parse(apex).expect("a name")) && !key.has_ds(&ds, Name::ROOT));
            assert!(key.has_ds(&Ds { digest_type: 1, ..ds.clone() }, Name::ROOT));
            assert_eq!(Ds::from_rdata(&ds.rdata()), Some(ds));
        };
        check(
            APEX,
            Algorithm::EcdsaP256,
            "GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA==",
            55648,
            "b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17",
        );
        check(
            b"\x07example\x03com\0",
            Algorithm::Ed25519,
            "l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4=",
            3613,
            "3aa5ab37efce57f737fc1627013fee07bdf241bd10f3b1964ab55c78e79a304b",
        );
    }
}
