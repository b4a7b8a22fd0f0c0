//! Certificate authorities from which the server requests certificates (RFC 8555).

use crate::diagnostic::{Diagnostic, Problem, ValueLocation};
use crate::paths::{check_key_mode, has_certificate, read_secret_file};
use data_encoding::BASE64URL_NOPAD;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// How certificates are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// Where an authority reaches the operator: `mailto:` URLs.
    pub contacts: Vec<String>,
    /// The authorities; after several failures of one, the next is tried.
    pub authorities: Vec<Authority>,
}

/// A certificate authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Its name in messages: the configured name, or the host of its directory.
    pub name: String,
    /// The URL of its directory (RFC 8555 §7.1.1).
    pub directory: String,
    /// The file with the root that signs the certificate of the authority's own server; `None` for the system's roots.
    pub root: Option<PathBuf>,
    /// The profile of the certificates; `None` for the authority's default.
    pub profile: Option<String>,
    /// The authority's name in CAA records (RFC 8659 §4.2), if known.
    pub caa: Option<String>,
    /// The operator's account at the authority, which this server's account is bound to (RFC 8555 §7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

/// An account that an operator has with an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The key's identifier, as the authority gives it.
    pub id: String,
    /// The file with the key, relative to the working directory or absolute.
    pub key_file: PathBuf,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

impl ExternalAccount {
    /// Reads the key.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is malformed.
    pub fn read_key(&self) -> Result<Zeroizing<Vec<u8>>, Diagnostic> {
        let read = read_secret_file("key of the external account", "text", &self.key_file).and_then(|content| {
            let text = content.trim_ascii().strip_suffix(b"=").unwrap_or(content.trim_ascii());
            let text = text.strip_suffix(b"=").unwrap_or(text);
            let key = BASE64URL_NOPAD.decode(text).ok().filter(|key| !key.is_empty());
            key.map(Zeroizing::new).ok_or_else(|| {
                let message = format!("`{}` does not have a key of an external account", self.key_file.display());
                Problem::new(message, "write only the HMAC key, in base64url, as the authority provides it")
            })
        });
        read.map_err(|problem| Diagnostic::error(self.location.clone(), problem))
    }

    /// The reason why the key is not secret.
    pub fn mode_problem(&self) -> Option<Diagnostic> {
        let problem = check_key_mode("key of the external account", &self.key_file).err()?;
        Some(Diagnostic::warning(self.location.clone(), problem))
    }
}

/// An authority that has a name.
struct Known {
    name: &'static str,
    directory: &'static str,
    caa: &'static str,
    needs_external_account: bool,
}

const KNOWN: [Known; 6] = [
    Known {
        name: "letsencrypt",
        directory: "https://acme-v02.api.letsencrypt.org/directory",
        caa: "letsencrypt.org",
        needs_external_account: false,
    },
    Known {
        name: "letsencrypt-staging",
        directory: "https://acme-staging-v02.api.letsencrypt.org/directory",
        caa: "letsencrypt.org",
        needs_external_account: false,
    },
    Known {
        name: "google",
        directory: "https://dv.acme-v02.api.pki.goog/directory",
        caa: "pki.goog",
        needs_external_account: true,
    },
    Known {
        name: "google-staging",
        directory: "https://dv.acme-v02.test-api.pki.goog/directory",
        caa: "pki.goog",
        needs_external_account: true,
    },
    Known {
        name: "sslcom",
        directory: "https://acme.ssl.com/sslcom-dv-ecc",
        caa: "ssl.com",
        needs_external_account: true,
    },
    Known {
        name: "zerossl",
        directory: "https://acme.zerossl.com/v2/DV90",
        caa: "sectigo.com",
        needs_external_account: true,
    },
];

impl Authority {
    /// The authority of this name.
    pub(super) fn known(name: &str, location: ValueLocation) -> Option<Authority> {
        let known = KNOWN.iter().find(|known| known.name == name)?;
        Some(Authority {
            name: name.to_owned(),
            directory: known.directory.to_owned(),
            root: None,
            profile: None,
            caa: Some(known.caa.to_owned()),
            external_account: None,
            location,
        })
    }

    /// The reason why the file with the root cannot be used.
    pub fn root_problem(&self) -> Option<Diagnostic> {
        let path = self.root.as_ref()?;
        let problem = match read_secret_file("root certificate", "PEM", path) {
            Ok(content) if has_certificate(&content) => return None,
            Ok(_) => Problem::new(
                format!("the root `{}` of the authority {} has no certificate", path.display(), self.name),
                "write the root certificate of the authority in PEM, which begins with -----BEGIN CERTIFICATE-----",
            ),
            Err(problem) => problem,
        };
        Some(Diagnostic::error(self.location.clone(), problem))
    }

    /// Whether the authority is known to require an account of the operator.
    pub(super) fn needs_external_account(&self) -> bool {
        KNOWN.iter().any(|known| known.directory == self.directory && known.needs_external_account)
    }

    /// The names of the known authorities.
    pub(super) fn known_names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|known| known.name)
    }

    /// The host of a directory's URL, with its port; `None` if it is not such a URL.
    pub(super) fn host_of(directory: &str) -> Option<&str> {
        let host = directory.strip_prefix("https://")?.split('/').next()?;
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        // A colon in brackets belongs to an IPv6 address.
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, Some(port)),
            _ => (host, None),
        };
        let is_port = |port: &str| {
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0)
        };
        (!name.is_empty() && host.bytes().all(is_host_byte) && port.is_none_or(is_port)).then_some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_a_directory_has_a_port_that_exists() {
        for (directory, expected) in [
            ("https://ca.example/dir", Some("ca.example")),
            ("https://ca.example:14000/dir", Some("ca.example:14000")),
            ("https://[2001:db8::1]/dir", Some("[2001:db8::1]")),
            ("https://[2001:db8::1]:443", Some("[2001:db8::1]:443")),
            ("https://ca.example:99999/dir", None),
            ("https://ca.example:0/dir", None),
            ("https://ca.example:/dir", None),
            ("https://:443/dir", None),
            ("http://ca.example/dir", None),
        ] {
            assert_eq!(Authority::host_of(directory), expected, "{directory}");
        }
    }

    #[test]
    fn key_of_an_external_account_is_read_as_authorities_print_it() {
        let directory = tempfile::tempdir().expect("created");
        let path = directory.path().join("account.key");
        let location = crate::diagnostic::Location::Argument("test".to_owned()).into();
        let account = ExternalAccount { id: "id".to_owned(), key_file: path.clone(), location };
        account.read_key().expect_err("there is no file");
        for (content, expected) in [("-_8", Some(&[0xfb, 0xff][..])), ("AQ==\n", Some(&[1])), ("", None), ("a b", None)]
        {
            std::fs::write(&path, content).expect("written");
            assert_eq!(account.read_key().ok().as_deref().map(Vec::as_slice), expected, "{content:?}");
        }
    }
}
