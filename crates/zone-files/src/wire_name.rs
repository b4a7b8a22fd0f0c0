//! Names of the configuration in the form of the DNS.

use sanderling_config::DomainName;
use sanderling_dns::{Name, NameBuf};

/// `name` in the form of the DNS.
pub fn wire_name(name: &DomainName) -> NameBuf {
    let labels: Vec<&[u8]> = name.labels().map(str::as_bytes).collect();
    NameBuf::joined(&labels, Name::ROOT).expect("a domain name has the lengths that the wire allows")
}

/// `name`, which is in lower case and has no escapes, in the form of the DNS; `None` if it is too long.
pub(crate) fn wire_name_of(name: &str) -> Option<NameBuf> {
    let labels: Vec<&[u8]> = name.split('.').filter(|label| !label.is_empty()).map(str::as_bytes).collect();
    NameBuf::joined(&labels, Name::ROOT).ok()
}
