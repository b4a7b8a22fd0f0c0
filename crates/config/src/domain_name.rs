//! The name of a domain as an operator writes it, checked and in one spelling.

use crate::diagnostic::Fault;
use std::fmt;

/// Octets of the longest name without its last dot (RFC 1035 §2.3.4 counts 255 with the lengths of the labels).
const TEXT_BYTES_MAX: usize = 253;
/// Octets of the longest label (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// A domain name: lower case, at least one label, no dot at the end, no escapes. Names that are equal as names are
/// equal by `==`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

impl DomainName {
    /// Reads a name as written, with or without its last dot.
    ///
    /// Labels are of letters, digits, hyphens and underscores, and of slashes, which the zones of RFC 2317 §4 have.
    ///
    /// # Errors
    ///
    /// What keeps `text` from being a name.
    pub fn parse(text: &str) -> Result<DomainName, Fault> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let fault = |what: &str, remedy: &str| Err(Fault::new(format!("`{text}` is no domain name: {what}"), remedy));
        if name.is_empty() {
            return fault("it is empty", "write one such as example.com");
        }
        if text.parse::<std::net::IpAddr>().is_ok() {
            return fault(
                "it is an address",
                "requests for an address go to the site that `default` in [http] names, or else to the first site",
            );
        }
        if name.starts_with("*.") {
            return fault("it has a wildcard", "write each name out; in a zone file wildcards are fine");
        }
        if !name.is_ascii() {
            return fault("it has letters beyond ASCII", "write its ASCII form, which starts with xn--");
        }
        let is_allowed = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'/');
        if let Some(other) = name.bytes().find(|&octet| octet != b'.' && !is_allowed(octet)) {
            let other = char::from(other).escape_default();
            return fault(&format!("it has the character `{other}`"), "write a bare name such as example.com");
        }
        if name.split('.').any(str::is_empty) {
            return fault("a part between two dots is empty", "remove the dot that is too many");
        }
        if let Some(label) = name.split('.').find(|label| label.len() > LABEL_BYTES_MAX) {
            return fault(&format!("a part of it has {} letters", label.len()), "63 is the most");
        }
        if name.len() > TEXT_BYTES_MAX {
            return fault(&format!("it has {} letters", name.len()), "253 is the most");
        }
        Ok(DomainName(name.to_ascii_lowercase()))
    }

    /// The name in lower case, without a dot at the end: `www.example.com`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels from the leaf; none is empty or longer than 63 octets.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }

    /// Whether a browser can ask for it: a slash belongs to the names of zones only.
    pub(super) fn can_be_host(&self) -> bool {
        !self.0.contains('/')
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
