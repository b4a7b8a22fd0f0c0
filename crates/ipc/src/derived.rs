//! The records that the agent derives for zones, and the certificates that it derives them from, as the processes tell
//! each other in sealed memory ([`FdKind::DerivedRecords`](crate::FdKind::DerivedRecords),
//! [`FdKind::ServedCertificates`](crate::FdKind::ServedCertificates)).

use crate::agent::from_memfd;
use sanderling_config::DerivedKind;
use sanderling_os::memfd;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The file in the state folder with the [`DerivedSet`] in service.
pub const DERIVED_FILE: &str = "derived/records.json";
/// Bytes of [`DERIVED_FILE`].
pub const DERIVED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The derived records of all zones, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DerivedSet {
    /// The zones. A zone that once had records stays listed.
    pub zones: BTreeMap<String, DerivedZone>,
}

/// A zone's derived records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DerivedZone {
    /// The number of changes of the records. This number is added to the zone file's serial, so that secondary servers
    /// notice changes.
    pub change_count: u32,
    /// The records.
    pub records: Vec<DerivedRecord>,
}

/// A derived record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DerivedRecord {
    /// The record's kind, by its name in `derive`.
    #[serde(with = "kind_name")]
    pub kind: DerivedKind,
    /// The record's owner, in lower case and without a dot at the end; for `ALIAS` the target, which several names may
    /// share.
    pub owner: String,
    /// The record's TTL in seconds.
    pub ttl_s: u32,
    /// The record's data as in a zone file, without data that the zone file determines: addresses, and the digest of a
    /// mail server policy, in which case this is the policy's head
    /// ([`MailPolicy::head`](sanderling_config::MailPolicy::head)).
    pub data: String,
}

mod kind_name {
    use sanderling_config::DerivedKind;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(kind: &DerivedKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(kind.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DerivedKind, D::Error> {
        let name = String::deserialize(deserializer)?;
        DerivedKind::from_name(&name).ok_or_else(|| Error::custom(format!("unknown kind of records `{name}`")))
    }
}

impl DerivedSet {
    /// Reads the agent's file, which the supervisor has passed on.
    ///
    /// # Errors
    /// Returns an error if the content is malformed.
    pub fn from_memfd(descriptor: impl AsFd) -> io::Result<DerivedSet> {
        from_memfd(descriptor)
    }
}

/// A certificate in service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedCertificate {
    /// The certificate's domain.
    pub domain: String,
    /// The configured names for which the certificate is valid.
    pub names: Vec<String>,
    /// The SHA-256 of its public key as SubjectPublicKeyInfo, in hexadecimal digits.
    pub key: String,
}

/// Writes the certificates in service.
pub fn served_certificates_to_memfd(certificates: &[ServedCertificate]) -> io::Result<OwnedFd> {
    memfd::create("served-certificates", &serde_json::to_vec(certificates)?)
}

/// Reads the output of [`served_certificates_to_memfd`].
///
/// # Errors
/// Returns an error if the content is malformed.
pub fn served_certificates_from_memfd(descriptor: impl AsFd) -> io::Result<Vec<ServedCertificate>> {
    from_memfd(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_certificates_arrive_as_they_were_sent() {
        let record = |kind| DerivedRecord { kind, owner: "a.test".to_owned(), ttl_s: 300, data: "data".to_owned() };
        let zone = DerivedZone { change_count: 7, records: DerivedKind::ALL.map(record).to_vec() };
        let set = DerivedSet { zones: BTreeMap::from([("a.test".to_owned(), zone)]) };
        let text = serde_json::to_vec(&set).expect("written");
        assert_eq!(DerivedSet::from_memfd(memfd::create("test", &text).expect("created")).expect("read"), set);
        let names = vec!["a.test".to_owned()];
        let certificate = ServedCertificate { domain: "a.test".to_owned(), names, key: "00".to_owned() };
        let file = served_certificates_to_memfd(std::slice::from_ref(&certificate)).expect("created");
        assert_eq!(served_certificates_from_memfd(file).expect("read"), [certificate]);
        for content in [&b"[]"[..], b"{\"a\":{\"change_count\":1,\"records\":[{\"kind\":\"new\"}]}}"] {
            DerivedSet::from_memfd(memfd::create("test", content).expect("created")).expect_err("malformed");
        }
    }
}
