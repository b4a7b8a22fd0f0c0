//! The keeper's private keys, for the current certificates, and for good versions that server processes still serve
//! because the current files cannot be used.

use sanderling_ipc::secrets::{CertificateContent, KeptCertificate, NoCertificate, PassedCertificate, SecretContent};
use sanderling_tls::{Certificate, KeyId, PrivateKey};
use std::collections::{HashMap, HashSet};

/// The keys by their names.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    held: HashMap<KeyId, HeldKey>,
    /// The keys of the last set of certificates.
    current: HashSet<KeyId>,
}

#[derive(Debug)]
struct HeldKey {
    key: PrivateKey,
    /// The key as PEM, for the next keeper.
    pem: SecretContent,
}

impl KeySet {
    /// Takes the keys of a set of certificates, and returns the certificates without them. Keys of sets before stay
    /// until [`KeySet::retain`], since they are in use until then.
    pub(crate) fn hold(&mut self, certificates: Vec<PassedCertificate>) -> Vec<PassedCertificate> {
        let mut current = HashSet::new();
        let mut hold = |content| match content {
            CertificateContent::Files { chain, key } => {
                let certificate = Certificate::from_pem(&chain, &key).map_err(|error| NoCertificate::Unusable {
                    problem: error.to_string(),
                    remedy: error.remedy().to_owned(),
                })?;
                current.insert(self.insert(certificate.private_key(), key));
                Ok(CertificateContent::Held(certificate.chain().iter().map(|der| der.to_vec()).collect()))
            }
            held @ CertificateContent::Held(_) => Ok(held),
        };
        let certificates = certificates.into_iter().map(|certificate| certificate.and_then(&mut hold)).collect();
        self.current = current;
        certificates
    }

    /// Takes the previous keeper's keys, until [`KeySet::retain`].
    pub(crate) fn hold_earlier(&mut self, keys: Vec<SecretContent>) {
        for pem in keys {
            // The previous keeper could use it.
            if let Ok(key) = PrivateKey::from_pem(&pem) {
                self.insert(key, pem);
            }
        }
    }

    /// Erases all keys except the keys of the current certificates and of `kept`.
    pub(crate) fn retain(&mut self, kept: &[KeptCertificate]) {
        let kept: HashSet<KeyId> =
            kept.iter().filter_map(|kept| Certificate::key_id_of(kept.content.held()?)).collect();
        self.held.retain(|id, _| self.current.contains(id) || kept.contains(id));
    }

    /// The keys as PEM.
    pub(crate) fn pems(&self) -> impl Iterator<Item = &SecretContent> + Clone {
        self.held.values().map(|held| &held.pem)
    }

    /// The keys.
    pub(crate) fn to_map(&self) -> HashMap<KeyId, PrivateKey> {
        self.held.iter().map(|(id, held)| (*id, held.key.clone())).collect()
    }

    fn insert(&mut self, key: PrivateKey, pem: SecretContent) -> KeyId {
        let id = key.id();
        self.held.insert(id, HeldKey { key, pem });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_testkit::{TestDirectory, run_program};
    use std::path::PathBuf;
    use zeroize::Zeroizing;

    /// A new key with its certificate.
    fn issue() -> (SecretContent, SecretContent) {
        let directory = TestDirectory::with(&[]);
        let [chain, key] = ["chain.pem", "key.pem"].map(|name| directory.argument(name));
        let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout";
        let arguments: Vec<&str> = arguments.split(' ').chain([key.as_str(), "-out", &chain]).collect();
        assert!(run_program("openssl", "openssl", &arguments).status.success());
        let read = |path: &str| Zeroizing::new(std::fs::read(path).expect("written"));
        (read(&chain), read(&key))
    }

    fn files((chain, key): &(SecretContent, SecretContent)) -> PassedCertificate {
        Ok(CertificateContent::Files { chain: chain.clone(), key: key.clone() })
    }

    fn id((_, key): &(SecretContent, SecretContent)) -> KeyId {
        PrivateKey::from_pem(key).expect("a key").id()
    }

    fn check(keys: &KeySet, expected: &[&(SecretContent, SecretContent)]) {
        let found: HashSet<KeyId> = keys.to_map().into_keys().collect();
        assert_eq!(found, expected.iter().map(|certificate| id(certificate)).collect());
        assert_eq!(keys.pems().count(), expected.len());
    }

    fn kept(content: &PassedCertificate) -> KeptCertificate {
        let content = content.clone().expect("a certificate");
        KeptCertificate { domain: String::new(), file: PathBuf::new(), content }
    }

    #[test]
    fn certificates_lose_their_keys_and_keep_their_errors() {
        let (one, two) = (issue(), issue());
        let mut keys = KeySet::default();
        let mismatch = (one.0.clone(), two.1.clone());
        let unreadable = Err(NoCertificate::Unreadable("no such file".to_owned()));
        let passed = keys.hold(vec![files(&one), files(&mismatch), unreadable.clone()]);
        assert!(matches!(&passed[0], Ok(CertificateContent::Held(chain)) if chain.len() == 1), "{passed:?}");
        let Err(NoCertificate::Unusable { problem, .. }) = &passed[1] else { panic!("{passed:?}") };
        assert_eq!(problem, "the private key does not match the certificate");
        assert_eq!(passed[2], unreadable);
        check(&keys, &[&one]);
    }

    #[test]
    fn keys_stay_as_long_as_a_server_process_needs_them() {
        let (one, two, three) = (issue(), issue(), issue());
        let mut keys = KeySet::default();
        let served = keys.hold(vec![files(&one)]);
        keys.hold(vec![files(&two)]);
        check(&keys, &[&one, &two]);
        // The server process cannot use the second one.
        keys.retain(&[kept(&served[0])]);
        check(&keys, &[&one, &two]);
        let served = keys.hold(vec![files(&three)]);
        check(&keys, &[&one, &two, &three]);
        // A process that drains still serves the first one.
        keys.hold(vec![files(&three)]);
        check(&keys, &[&one, &two, &three]);
        keys.retain(&[kept(&served[0])]);
        check(&keys, &[&three]);
    }

    #[test]
    fn keys_of_the_keeper_before_stay_until_it_is_known_which_are_needed() {
        let (one, two) = (issue(), issue());
        let mut keys = KeySet::default();
        keys.hold_earlier(vec![one.1.clone(), Zeroizing::new(b"nonsense".to_vec())]);
        keys.hold(vec![files(&two)]);
        keys.hold(vec![files(&two)]);
        check(&keys, &[&one, &two]);
        keys.retain(&[]);
        check(&keys, &[&two]);
    }
}
