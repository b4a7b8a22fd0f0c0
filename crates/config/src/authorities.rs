//! Certificate authorities from which the server requests certificates (RFC 8555).

use std::path::PathBuf;

/// How certificates are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// Where an authority reaches the operator: `mailto:` URLs.
    pub contacts: Vec<String>,
    /// The authorities, of which the next one is tried when one has failed several times.
    pub authorities: Vec<Authority>,
}

/// A certificate authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Its name in messages: that of the configuration, or the host of its directory.
    pub name: String,
    /// The URL of its directory (RFC 8555 §7.1.1).
    pub directory: String,
    /// The file with the root that signs the certificate of its own server; `None` for those of the system.
    pub root: Option<PathBuf>,
    /// The profile of its certificates; `None` for its default.
    pub profile: Option<String>,
}

/// The authorities that have a name, with their directories.
const KNOWN: [(&str, &str); 2] = [
    ("letsencrypt", "https://acme-v02.api.letsencrypt.org/directory"),
    ("letsencrypt-staging", "https://acme-staging-v02.api.letsencrypt.org/directory"),
];

impl Authority {
    /// The authority of this name.
    pub(super) fn known(name: &str) -> Option<Authority> {
        let (name, directory) = KNOWN.into_iter().find(|(known, _)| *known == name)?;
        Some(Authority { name: name.to_owned(), directory: directory.to_owned(), root: None, profile: None })
    }

    /// Their names.
    pub(super) fn known_names() -> impl Iterator<Item = &'static str> {
        KNOWN.into_iter().map(|(name, _)| name)
    }

    /// The host of a directory's URL, with its port; `None` if it is not such a URL.
    pub(super) fn host_of(directory: &str) -> Option<&str> {
        let host = directory.strip_prefix("https://")?.split('/').next()?;
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        (!host.is_empty() && host.bytes().all(is_host_byte)).then_some(host)
    }
}
