//! The rotations of the certificates whose keys are pinned by TLSA records. Each rotation is in the state folder with
//! its next key, before any action that follows from it.

use crate::clock::unix_s;
use crate::json_files::read_json;
use crate::name_servers::{Answer, Expectation, NameServers, Unanswered};
use crate::rotation::{KeyDigest, Rotation, Step};
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sanderling_config::log::{log, log_error, log_warning};
use sanderling_config::{Config, DerivedKind, DomainName};
use sanderling_dns::Rtype;
use sanderling_ipc::derived::ServedCertificate;
use sanderling_state::StateFolder;
use sanderling_tls::{Certificate, KeyId};
use sanderling_zone_files::wire_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time for the name servers to answer before the log names a server that does not; they are then asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two questions to this server.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause after the state folder could not be written.
const WRITE_RETRY: Duration = Duration::from_secs(10);
/// Usage, selector and matching type: the certificate of the service, its public key, SHA-256 (RFC 7671 §5.1).
const TLSA_FIELDS: [u8; 3] = [3, 1, 1];

/// The rotations, by their certificates' names.
pub(crate) struct PinnedKeys {
    config: Rc<Config>,
    state: Arc<StateFolder>,
    entries: BTreeMap<String, Entry>,
}

struct Entry {
    /// The certificate's names.
    names: Vec<DomainName>,
    /// The records that pin its keys: zone and owner. Without TLSA records, no key is pinned.
    records: Vec<(DomainName, DomainName)>,
    stored: Option<StoredRotation>,
    /// The name servers are being asked.
    is_asked: bool,
    /// The time of the last failed write to the state folder.
    failed_at: Option<Instant>,
}

/// A rotation in the state folder.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct StoredRotation {
    rotation: Rotation,
    /// The next private key, as PEM.
    next_key: String,
}

/// The records that all name servers must answer.
pub(crate) struct Question {
    /// The certificate's name.
    pub(crate) name: String,
    keys: [KeyDigest; 2],
    records: Vec<(DomainName, DomainName)>,
}

impl PinnedKeys {
    pub(crate) fn load(config: Rc<Config>, state: Arc<StateFolder>) -> PinnedKeys {
        let mut records: Vec<(DomainName, DomainName, DomainName)> = Vec::new();
        for (zone, rrsets) in config.derived_rrsets() {
            let pinning = rrsets.into_iter().filter(|rrset| rrset.kind == DerivedKind::Tlsa);
            records.extend(
                pinning.filter_map(|rrset| Some((rrset.host, zone.clone(), DomainName::parse(&rrset.owner).ok()?))),
            );
        }
        let entry = |names: &Vec<DomainName>| {
            let name = names.first()?.as_str().to_owned();
            let of_names = records.iter().filter(|(host, ..)| names.contains(host));
            let records = of_names.map(|(_, zone, owner)| (zone.clone(), owner.clone())).collect();
            let stored = read_json(&state, &rotation_file(&name)).unwrap_or_else(|problem| {
                log_error(&format!(
                    "certificate {name}: {problem}; generating another next key, which is pinned if `derive` has \
                     \"tlsa\""
                ));
                None
            });
            Some((name, Entry { names: names.clone(), records, stored, is_asked: false, failed_at: None }))
        };
        let entries = config.automatic_certificates().filter_map(|certificate| entry(&certificate.names)).collect();
        PinnedKeys { config, state, entries }
    }

    /// The keys that the records of `host` pin; `None` if there are none yet.
    pub(crate) fn of_host(&self, host: &DomainName) -> Option<[&KeyDigest; 2]> {
        let entry = self.entries.values().find(|entry| entry.names.contains(host))?;
        Some(entry.stored.as_ref()?.rotation.pinned())
    }

    /// The key of the next order of a certificate; `None` for any new one.
    pub(crate) fn next_key(&self, name: &str) -> Option<String> {
        Some(self.entries.get(name)?.stored.as_ref()?.next_key.clone())
    }

    /// The time when a certificate may be ordered, if not now. The time may not be known yet.
    pub(crate) fn order_at(&self, name: &str) -> Option<Option<u64>> {
        let entry = self.entries.get(name).filter(|entry| !entry.records.is_empty())?;
        let rotation = &entry.stored.as_ref()?.rotation;
        match rotation.step(unix_s(), self.handshake_s()) {
            // The next certificate is stored, and will be in service.
            Step::Order if stored_key(&self.state, name).as_ref() == Some(rotation.pinned()[1]) => Some(None),
            Step::Order => None,
            Step::WaitUntil(at) => Some(Some(at)),
            Step::AskNameServers | Step::MakeKey => Some(None),
        }
    }

    /// The latest time of the next action.
    pub(crate) fn next_at(&self) -> Option<u64> {
        let stored = self.entries.values().filter_map(|entry| entry.stored.as_ref());
        let wait = |stored: &StoredRotation| match stored.rotation.step(unix_s(), self.handshake_s()) {
            Step::WaitUntil(at) => Some(at),
            _ => None,
        };
        stored.filter_map(wait).min()
    }

    /// Handles the server process's report of the certificates in service. The report counts only if it is plausible:
    /// each key is pinned, or belongs to the certificate in the state folder. Returns the names of the certificates
    /// whose rotations have changed.
    pub(crate) fn on_served(&mut self, served: &[ServedCertificate]) -> Vec<String> {
        let state = Arc::clone(&self.state);
        self.change_all(|name, entry, config| {
            let certificate = served.iter().find(|certificate| certificate.domain == name)?;
            let is_pinned = |stored: &StoredRotation| stored.rotation.pinned().contains(&&certificate.key);
            let is_expected = match &entry.stored {
                None if entry.records.is_empty() => return None,
                stored => stored.as_ref().is_some_and(is_pinned) || stored_key(&state, name)? == certificate.key,
            };
            if !is_expected {
                return None;
            }
            let ttl_s = config.limits.derived_record_ttl_s;
            match &entry.stored {
                None => {
                    let (digest, next_key) = new_key()?;
                    Some(StoredRotation { rotation: Rotation::new(certificate.key.clone(), digest, ttl_s), next_key })
                }
                Some(stored) => {
                    let mut stored = stored.clone();
                    stored.rotation.on_ttl(ttl_s);
                    stored.rotation.on_served(&certificate.key, unix_s());
                    Some(stored)
                }
            }
        })
    }

    /// Makes the keys that are due, and corrects times that come from a clock that was ahead. The names of the
    /// certificates whose rotations have changed.
    pub(crate) fn make_keys(&mut self) -> Vec<String> {
        let handshake_s = self.handshake_s();
        self.change_all(|_, entry, config| {
            let mut stored = entry.stored.clone()?;
            stored.rotation.on_time(unix_s());
            if stored.rotation.step(unix_s(), handshake_s) != Step::MakeKey {
                return Some(stored);
            }
            let (digest, next_key) = new_key()?;
            stored.rotation.on_key_made(digest, config.limits.derived_record_ttl_s);
            stored.next_key = next_key;
            Some(stored)
        })
    }

    /// The pending question to the name servers.
    pub(crate) fn questions(&mut self) -> Vec<Question> {
        let handshake_s = self.config.limits.tls_handshake_timeout_ms.div_ceil(1_000);
        let question = |(name, entry): (&String, &mut Entry)| {
            let rotation = &entry.stored.as_ref()?.rotation;
            let is_needed = rotation.step(unix_s(), handshake_s) == Step::AskNameServers;
            if !is_needed || entry.is_asked || entry.records.is_empty() {
                return None;
            }
            let keys = rotation.pinned().map(Clone::clone);
            entry.is_asked = true;
            Some(Question { name: name.clone(), keys, records: entry.records.clone() })
        };
        self.entries.iter_mut().filter_map(question).collect()
    }

    /// Handles the result of asking the name servers.
    pub(crate) fn on_asked(&mut self, question: &Question, is_answered: bool) -> Vec<String> {
        if let Some(entry) = self.entries.get_mut(&question.name) {
            entry.is_asked = false;
        }
        self.change_all(|name, entry, _| {
            let mut stored = entry.stored.clone()?;
            if name == question.name && is_answered && stored.rotation.pinned() == question.keys.each_ref() {
                stored.rotation.on_answered(unix_s());
            }
            Some(stored)
        })
    }

    /// Handshakes that began before another certificate was in service end within this time.
    fn handshake_s(&self) -> u64 {
        self.config.limits.tls_handshake_timeout_ms.div_ceil(1_000)
    }

    /// Stores the rotations after `change`, and puts them into effect. The names of those that have changed.
    fn change_all(&mut self, change: impl Fn(&str, &Entry, &Config) -> Option<StoredRotation>) -> Vec<String> {
        let mut changed = Vec::new();
        for (name, entry) in &mut self.entries {
            if entry.failed_at.is_some_and(|at| at.elapsed() < WRITE_RETRY) {
                continue;
            }
            let Some(stored) = change(name, entry, &self.config).filter(|new| entry.stored.as_ref() != Some(new))
            else {
                continue;
            };
            let text = serde_json::to_vec_pretty(&stored).expect("a rotation has no map");
            match self.state.write(&rotation_file(name), &text) {
                Ok(()) => {
                    let had_next = entry.stored.as_ref().map(|stored| &stored.next_key);
                    if had_next != Some(&stored.next_key) {
                        log(&format!("certificate {name}: the current key and the next one are pinned (TLSA)"));
                    }
                    (entry.stored, entry.failed_at) = (Some(stored), None);
                    changed.push(name.clone());
                }
                Err(error) => {
                    log_error(&format!("certificate {name}: {error}"));
                    entry.failed_at = Some(Instant::now());
                }
            }
        }
        changed
    }
}

impl Question {
    /// Asks this server and all other name servers of the zones, for some time; returns whether each answers with both
    /// keys.
    pub(crate) async fn ask(&self, name_servers: &NameServers) -> bool {
        let rdatas: Vec<Vec<u8>> = self.keys.iter().map(tlsa_rdata).collect();
        let has_all = Rc::new(move |records: &[Vec<u8>]| rdatas.iter().all(|rdata| records.contains(rdata)));
        let wait = async {
            for (apex, owner) in &self.records {
                let (apex, owner) = (wire_name(apex), wire_name(owner));
                let ask = || name_servers.ask_self(owner.as_name(), Rtype::TLSA, apex.as_name());
                while !matches!(ask().await, Ok(Answer::Records(records)) if has_all(&records)) {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        let name = &self.name;
        if tokio::time::timeout(ANSWER_TIMEOUT, wait).await.is_err() {
            log_warning(&format!(
                "certificate {name}: this server does not serve the TLSA records of its keys; correct the zone, or \
                    the TLSA records in its file, or write `derive` without \"tlsa\""
            ));
            return false;
        }
        let expectation = |(apex, owner): &(DomainName, DomainName)| Expectation {
            apex: apex.clone(),
            name: owner.clone(),
            rtype: Rtype::TLSA,
            is_met: has_all.clone(),
        };
        let expectations: Vec<Expectation> = self.records.iter().map(expectation).collect();
        let again_at = Instant::now() + ANSWER_TIMEOUT;
        // A server that cannot be found may have the previous records.
        let Unanswered { lags, not_found } = name_servers.wait_until_answered(&expectations, ANSWER_TIMEOUT).await;
        let problems: Vec<String> = lags.iter().map(ToString::to_string).chain(not_found).collect();
        for problem in &problems {
            log_warning(&format!("certificate {name}: {problem}; it will not be renewed before that"));
        }
        if !problems.is_empty() {
            tokio::time::sleep_until(again_at).await;
        }
        problems.is_empty()
    }
}

/// The key of the certificate in the state folder.
fn stored_key(state: &StateFolder, name: &str) -> Option<KeyDigest> {
    let chain = state.chain(name).ok().flatten()?;
    let first = CertificateDer::pem_slice_iter(&chain).next()?.ok()?;
    Certificate::key_id_of(&first).map(|key| key.to_string())
}

/// A new key: the digest of its public key, and the private key as PEM.
fn new_key() -> Option<(KeyDigest, String)> {
    let key =
        KeyPair::generate().inspect_err(|error| log_error(&format!("cannot generate a private key: {error}"))).ok()?;
    let digest = KeyId::of(&key.subject_public_key_info());
    Some((digest.to_string(), key.serialize_pem()))
}

/// The data of the record that pins a key.
fn tlsa_rdata(key: &KeyDigest) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&key[at..at + 2], 16).unwrap_or_default();
    TLSA_FIELDS.into_iter().chain((0..key.len() / 2).map(|byte| digit(2 * byte))).collect()
}

fn rotation_file(name: &str) -> String {
    format!("rotations/{name}.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::ConfigSource;

    #[test]
    fn only_keys_that_can_be_in_service_are_believed() {
        let directory = tempfile::tempdir().expect("created");
        let state = Arc::new(StateFolder::open(directory.path()).expect("opened"));
        std::fs::write(directory.path().join("a.zone"), "@ 60 SOA a a 1 1 1 1 1\n@ 60 NS a\n").expect("written");
        let text = format!(
            "[dns]\nlisten = [\"127.0.0.1:53\"]\n[https]\nlisten = [\"127.0.0.1:443\"]\n[certificates]\n\
             agree_to_terms = true\n[domain.\"example.com\"]\nzone = \"{}\"\ncertificate = \"auto\"\n\
             derive = [\"tlsa\"]\n",
            directory.path().join("a.zone").display()
        );
        let config = ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes()).expect("a configuration");
        let mut pinned = PinnedKeys::load(Rc::new(config), Arc::clone(&state));
        let host = DomainName::parse("example.com").expect("a name");
        let served = |key: &str| {
            let domain = "example.com".to_owned();
            vec![ServedCertificate { domain, names: Vec::new(), key: key.to_owned() }]
        };
        let issue = || {
            let key = KeyPair::generate().expect("a key");
            let parameters = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).expect("parameters");
            let chain = parameters.self_signed(&key).expect("signed").pem();
            state.store_certificate("example.com", chain.as_bytes(), key.serialize_pem().as_bytes()).expect("stored");
            KeyId::of(&key.subject_public_key_info()).to_string()
        };
        let foreign = "a\u{e9}b".to_owned();
        assert!(pinned.on_served(&served(&foreign)).is_empty());
        let first = issue();
        assert!(pinned.on_served(&served(&foreign)).is_empty() && pinned.of_host(&host).is_none());
        assert_eq!(pinned.on_served(&served(&first)), ["example.com"]);
        assert_eq!(pinned.of_host(&host).expect("pinned")[0], &first);
        let third = "0".repeat(64);
        assert!(pinned.on_served(&served(&third)).is_empty());
        assert_eq!(pinned.of_host(&host).expect("pinned")[0], &first);
        // A certificate that was issued without this rotation.
        let other = issue();
        pinned.on_served(&served(&other));
        assert_eq!(pinned.of_host(&host).expect("pinned")[0], &other);
    }
}
