//! An order's inputs, as a digest that is stored with its failures. If the operator has corrected one of them, earlier
//! failures are forgotten, and the next order is made immediately.

use data_encoding::HEXLOWER;
use sanderling_config::{CertificateFiles, Config, NameValidation};
use sha2::{Digest, Sha256};
use std::fs;

/// A digest of parts of any length.
#[derive(Clone)]
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    fn add_text(&mut self, part: Option<&String>) {
        self.add(part.map_or(b"", String::as_bytes));
    }
}

/// The inputs of all orders: the authorities with their files, and the contact of the operator.
pub(crate) struct OrderBasis<'c> {
    authorities: Parts,
    validation: NameValidation<'c>,
}

impl<'c> OrderBasis<'c> {
    /// Reads the files of the authorities: call this before the sandbox.
    pub(crate) fn new(config: &'c Config) -> OrderBasis<'c> {
        let mut parts = Parts(Sha256::new());
        let acme = config.acme.as_ref();
        for contact in acme.iter().flat_map(|acme| &acme.contacts) {
            parts.add_text(Some(contact));
        }
        for authority in acme.iter().flat_map(|acme| &acme.authorities) {
            parts.add_text(Some(&authority.directory));
            parts.add_text(authority.profile.as_ref());
            parts.add_text(authority.caa.as_ref());
            let root = authority.root.as_ref();
            parts.add(&root.and_then(|root| fs::read(root).ok()).unwrap_or_default());
            let account = authority.external_account.as_ref();
            parts.add_text(account.map(|account| &account.id));
            parts.add(&account.and_then(|account| account.read_key().ok()).unwrap_or_default());
        }
        OrderBasis { authorities: parts, validation: NameValidation::new(config) }
    }

    /// The inputs of this certificate's orders, including its names and their validation methods.
    pub(crate) fn of(&self, certificate: &CertificateFiles) -> String {
        let mut parts = self.authorities.clone();
        for name in &certificate.names {
            parts.add(name.as_str().as_bytes());
            for prefers_http in [false, true] {
                parts.add(format!("{:?}", self.validation.of(name.as_str(), prefers_http).ok()).as_bytes());
            }
        }
        HEXLOWER.encode(&parts.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::ConfigSource;

    #[test]
    fn basis_changes_with_all_that_an_order_depends_on() {
        let directory = tempfile::tempdir().expect("created");
        let root = directory.path().join("root.pem");
        let text = format!(
            "[http]\nlisten = [\"127.0.0.1:0\"]\n[certificates]\nagree_to_terms = true\ncontact = \"mailto:a@example.com\"\n\
             authorities = [{{ directory = \"https://ca.example/dir\", root = \"{}\" }}]\n\
             [domain.\"example.com\"]\nsite = \"public\"\n",
            root.display()
        );
        let basis = |text: &str| {
            let config = ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes()).expect("correct");
            let certificate = config.automatic_certificates().next().expect("one").clone();
            OrderBasis::new(&config).of(&certificate)
        };
        let before = basis(&text);
        assert_eq!(basis(&text.replace("public", "other")), before);
        for (from, to) in [
            ("mailto:a@", "mailto:b@"),
            ("ca.example/dir", "ca.example/directory"),
            (" }]", ", profile = \"short\" }]"),
            (" }]", ", caa = \"ca.example\" }]"),
            (" }]", ", external_account = { id = \"id\", key_file = \"key\" } }]"),
            (" }]", " }, \"letsencrypt\"]"),
            ("\"public\"", "\"public\"\naliases = [\"www.example.com\"]"),
            ("\"public\"", "\"public\"\nzone = \"example.com.zone\""),
        ] {
            assert_ne!(basis(&text.replace(from, to)), before, "{to}");
        }
        std::fs::write(&root, "another root").expect("written");
        assert_ne!(basis(&text), before);
    }
}
