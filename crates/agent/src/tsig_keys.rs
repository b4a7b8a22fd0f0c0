//! The keys that sign messages to other DNS servers. The supervisor passes their secrets on.

use sanderling_config::log::log_error;
use sanderling_config::{DomainName, TsigAlgorithm as Algorithm, TsigKeyFile};
use sanderling_dns::{TsigAlgorithm, TsigKey};
use sanderling_ipc::secrets::tsig_secrets_from_memfd;
use sanderling_zone_files::wire_name;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

/// The last good version of each key.
#[derive(Debug, Default)]
pub(crate) struct TsigSecrets {
    keys: HashMap<DomainName, TsigKey>,
}

impl TsigSecrets {
    /// Takes the secrets of the keys in `files`. The previous secret stays if the new one cannot be read; the server
    /// process logs the reason.
    ///
    /// # Errors
    /// Returns an error if the secrets belong to another configuration or are malformed. Nothing has changed then.
    pub(crate) fn update(&mut self, files: &[TsigKeyFile], secrets: OwnedFd) -> io::Result<()> {
        let secrets = tsig_secrets_from_memfd(secrets)?;
        if secrets.len() != files.len() {
            return Err(io::Error::other("the TSIG secrets belong to another configuration"));
        }
        for (file, secret) in files.iter().zip(secrets) {
            if let Ok(secret) = secret {
                let algorithm = match file.algorithm {
                    Algorithm::HmacSha256 => TsigAlgorithm::HmacSha256,
                    Algorithm::HmacSha384 => TsigAlgorithm::HmacSha384,
                    Algorithm::HmacSha512 => TsigAlgorithm::HmacSha512,
                };
                let key = TsigKey::new(wire_name(&file.name).as_name(), algorithm, &secret);
                self.keys.insert(file.name.clone(), key);
            }
        }
        Ok(())
    }

    /// [`TsigSecrets::update`]; an error is logged.
    pub(crate) fn update_or_log(&mut self, files: &[TsigKeyFile], secrets: OwnedFd) {
        if let Err(error) = self.update(files, secrets) {
            log_error(&format!("cannot take new TSIG secrets: {error}"));
        }
    }

    /// The key `name`, if one is needed.
    ///
    /// # Errors
    /// Returns an error if the key has no secret.
    pub(crate) fn find(&self, name: Option<&DomainName>) -> Result<Option<TsigKey>, String> {
        let Some(name) = name else { return Ok(None) };
        let missing = || format!("the key {name} has no secret; correct its `secret_file`");
        self.keys.get(name).cloned().map(Some).ok_or_else(missing)
    }
}
