//! The clients that may transfer zones, and the keys that sign the transfers.

use crate::diagnostic::{Diagnostic, Problem, ValueLocation};
use crate::domain_name::DomainName;
use crate::paths::{check_key_mode, read_secret_file};
use data_encoding::BASE64;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Bytes of a secret that cannot be guessed: 128 bits.
const SAFE_SECRET_BYTES_MIN: usize = 16;

/// The algorithm of a key (RFC 8945 §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TsigAlgorithm {
    /// HMAC-SHA-256.
    #[default]
    HmacSha256,
    /// HMAC-SHA-384.
    HmacSha384,
    /// HMAC-SHA-512.
    HmacSha512,
}

impl TsigAlgorithm {
    /// The algorithm of a name such as `hmac-sha256`.
    pub(super) fn parse(name: &str) -> Option<TsigAlgorithm> {
        match name {
            "hmac-sha256" => Some(TsigAlgorithm::HmacSha256),
            "hmac-sha384" => Some(TsigAlgorithm::HmacSha384),
            "hmac-sha512" => Some(TsigAlgorithm::HmacSha512),
            _ => None,
        }
    }
}

/// A key that this server shares with others (RFC 8945), and the file with its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TsigKeyFile {
    /// The key's name.
    pub name: DomainName,
    /// The key's algorithm.
    pub algorithm: TsigAlgorithm,
    /// The file, relative to the working directory or absolute.
    pub path: PathBuf,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

impl TsigKeyFile {
    /// Reads the secret.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is malformed.
    pub fn read(&self) -> Result<Zeroizing<Vec<u8>>, Diagnostic> {
        let content = read_secret_file("TSIG secret file", "text", &self.path);
        let secret = content.and_then(|content| {
            decode(content.trim_ascii()).filter(|secret| !secret.is_empty()).ok_or_else(|| {
                let message = format!("the TSIG secret file `{}` is not a single line of base64", self.path.display());
                Problem::new(message, "write only the secret, as printed by `openssl rand -base64 32`")
            })
        });
        secret.map_err(|problem| Diagnostic::error(self.location.clone(), problem))
    }

    /// The reason why the secret cannot be used or, as a warning, why it is not secret.
    pub fn problems(&self) -> Vec<Diagnostic> {
        let secret = match self.read() {
            Ok(secret) => secret,
            Err(error) => return vec![error],
        };
        let is_short = secret.len() < SAFE_SECRET_BYTES_MIN;
        let of_length = is_short.then(|| {
            let message = format!(
                "the TSIG secret in `{}` has only {} bytes, so it can be guessed",
                self.path.display(),
                secret.len()
            );
            Problem::new(message, "generate a longer one with `openssl rand -base64 32` for both servers")
        });
        let of_mode = check_key_mode("TSIG secret file", &self.path).err();
        let warning = |problem| Diagnostic::warning(self.location.clone(), problem);
        of_mode.into_iter().chain(of_length).map(warning).collect()
    }
}

/// The bytes of `text`, which is base64.
fn decode(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; BASE64.decode_len(text.len()).ok()?]);
    let length = BASE64.decode_mut(text, &mut bytes).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

/// The clients that may transfer a zone: none, unless a rule allows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneTransfers {
    /// The secondary servers.
    pub secondaries: Vec<Secondary>,
    /// Other clients.
    pub allow: Vec<TransferRule>,
}

/// A secondary server, which may transfer the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secondary {
    /// The server's address and port.
    pub address: SocketAddr,
    /// The key that signs its queries; `None` if it needs none.
    pub key: Option<DomainName>,
}

/// A primary server, which a zone is transferred from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// The server's address and port.
    pub address: SocketAddr,
    /// The key that signs queries and replies; `None` if there is none.
    pub key: Option<DomainName>,
}

/// Clients that may transfer a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferRule {
    /// The clients' network, an address and the bits of its prefix; `None` for any address.
    pub network: Option<(IpAddr, u8)>,
    /// The key that signs their queries; `None` if they need none.
    pub key: Option<DomainName>,
}

impl TransferRule {
    /// Whether the rule applies to this server.
    pub(super) fn is_for(&self, server: &Secondary) -> bool {
        let has_address = |(network, bits): (IpAddr, u8)| match (network, server.address.ip()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(bits)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(bits)
            }
            _ => false,
        };
        self.network.is_none_or(has_address) && (self.key.is_none() || self.key == server.key)
    }
}

/// Each zone's transfers.
#[derive(Debug)]
pub struct TransfersByZone<'c> {
    default: &'c ZoneTransfers,
    own: HashMap<&'c DomainName, &'c ZoneTransfers>,
}

impl<'c> TransfersByZone<'c> {
    /// The rules for zones without their own, and the rules of the other zones.
    pub(super) fn new(default: &'c ZoneTransfers, own: &'c [(DomainName, ZoneTransfers)]) -> TransfersByZone<'c> {
        TransfersByZone { default, own: own.iter().map(|(apex, own)| (apex, own)).collect() }
    }

    /// The rules of the zone at `apex`.
    pub fn of(&self, apex: &DomainName) -> &'c ZoneTransfers {
        self.own.get(apex).copied().unwrap_or(self.default)
    }
}

impl ZoneTransfers {
    /// All rules, including the secondaries.
    pub fn rules(&self) -> impl Iterator<Item = TransferRule> {
        let of_secondary = |secondary: &Secondary| {
            let address = secondary.address.ip();
            let bits = if address.is_ipv4() { 32 } else { 128 };
            TransferRule { network: Some((address, bits)), key: secondary.key.clone() }
        };
        self.secondaries.iter().map(of_secondary).chain(self.allow.iter().cloned())
    }
}
