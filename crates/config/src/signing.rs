//! Zones that are signed (DNSSEC), and how.

use crate::diagnostic::{Diagnostic, Problem, ValueLocation};
use crate::domain_name::DomainName;
use crate::zones::{Zone, zone_file_name};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The folder with signed versions of zones, below the state folder.
pub const SIGNED_ZONES: &str = "signed";

/// The folder with the private keys of zones, below the state folder. Only the keeper may read it.
pub const ZONE_KEYS: &str = "keys";

/// A signed zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedZone {
    /// The zone's name.
    pub apex: DomainName,
    /// How it is signed.
    pub signing: Signing,
    /// Whether it should be unsigned (`dnssec = false`): if it was signed, its signatures are removed when no resolver
    /// still expects them.
    pub is_leaving: bool,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

impl SignedZone {
    /// The file that has the signed version, below the state folder.
    pub fn file(&self) -> PathBuf {
        Path::new(SIGNED_ZONES).join(format!("{}.zone", zone_file_name(&self.apex)))
    }

    /// The file with the changes since that version, below the state folder.
    pub fn changes_file(&self) -> PathBuf {
        changes_file(&self.file())
    }

    /// The folder that has its private keys, below the state folder.
    pub fn keys_folder(&self) -> PathBuf {
        Path::new(ZONE_KEYS).join(zone_file_name(&self.apex))
    }
}

/// The file with the changes since the version in the file `zone`, which the agent has written.
pub fn changes_file(zone: &Path) -> PathBuf {
    zone.with_extension("changes")
}

impl SignedZone {
    /// A warning if the zone has secondaries.
    pub fn risk_with_secondaries(&self) -> Option<Diagnostic> {
        let is_risk = self.signing.serial == SignedSerial::Keep && !self.is_leaving;
        is_risk.then(|| {
            let message = format!(
                "{} has secondaries and `serial = \"keep\"`: they would not notice new signatures, and answer with \
                    expired ones",
                self.apex
            );
            let remedy = "raise the serial in the zone file each week, or write serial = \"increment\"";
            Diagnostic::warning(self.location.clone(), Problem::new(message, remedy))
        })
    }
}

/// A warning about a zone that is served from its file, although the state folder `state` has keys and a signed version
/// of it: `dnssec` was removed from a signed zone.
pub(crate) fn abandoned_signatures(zone: &Zone, state: &Path) -> Option<Diagnostic> {
    let name = zone_file_name(&zone.apex);
    let has_version = state.join(SIGNED_ZONES).join(format!("{name}.zone")).exists();
    let mut keys = std::fs::read_dir(state.join(ZONE_KEYS).join(&name)).into_iter().flatten();
    let is_abandoned = has_version && keys.next().is_some();
    is_abandoned.then(|| {
        let message = format!(
            "{0} was signed by this server, and has no `dnssec`: without signatures, resolvers reject its answers as long as \
             the parent zone has a DS record",
            zone.apex
        );
        let remedy = format!(
            "write dnssec = false until `sanderling dnssec status {}` says that it has no keys; or, if another server \
                signs it now, remove its folder in {}",
            zone.apex,
            state.join(ZONE_KEYS).display()
        );
        Diagnostic::warning(zone.location.clone(), Problem::new(message, remedy))
    })
}

/// How a zone is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signing {
    /// The algorithm of new keys.
    pub algorithm: SigningAlgorithm,
    /// The key layout: a CSK, or a KSK and a ZSK.
    pub keys: ZoneKeyLayout,
    /// Whether NSEC3 records, instead of NSEC records, prove that a name does not exist.
    pub nsec3: bool,
    /// The serial of a signed version.
    pub serial: SignedSerial,
    /// Whether the zone has a digest of itself (ZONEMD).
    pub zonemd: bool,
    /// Seconds after which a CSK or KSK is replaced; `None` for never.
    pub ksk_lifetime_s: Option<u64>,
    /// Seconds after which a ZSK is replaced; `None` for never.
    pub zsk_lifetime_s: Option<u64>,
    /// The TTL of DNSKEY, CDS and CDNSKEY records.
    pub dnskey_ttl_s: u32,
    /// Seconds that are added to each wait for caches.
    pub rollover_safety_s: u32,
    /// The parent zone's servers; if empty, the system resolver finds them.
    pub parent_servers: Vec<SocketAddr>,
    /// The zone's name servers whose versions other signers sign (RFC 8901). If there are any, the keys of these
    /// signers are kept in the zone.
    pub other_signers: Vec<DomainName>,
}

impl Default for Signing {
    fn default() -> Signing {
        const HOUR_S: u32 = 3600;
        Signing {
            algorithm: SigningAlgorithm::default(),
            keys: ZoneKeyLayout::default(),
            nsec3: false,
            serial: SignedSerial::default(),
            zonemd: false,
            ksk_lifetime_s: None,
            zsk_lifetime_s: None,
            dnskey_ttl_s: HOUR_S,
            rollover_safety_s: HOUR_S,
            parent_servers: Vec::new(),
            other_signers: Vec::new(),
        }
    }
}

/// An algorithm of DNSSEC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// ECDSA with P-256 and SHA-256.
    #[default]
    EcdsaP256Sha256,
    /// Ed25519.
    Ed25519,
    /// RSA with 2048 bits and SHA-256.
    RsaSha256,
}

/// A zone's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneKeyLayout {
    /// A single key signs everything (CSK).
    #[default]
    Csk,
    /// A KSK signs the keys, and a ZSK signs the other records.
    KskZsk,
}

/// The serial of a signed version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignedSerial {
    /// The zone file's serial.
    Keep,
    /// The zone file's serial if it is later than the last one, otherwise the last one plus one.
    #[default]
    Increment,
    /// The date, followed by two digits.
    Date,
    /// Seconds since 1970.
    UnixTime,
}
