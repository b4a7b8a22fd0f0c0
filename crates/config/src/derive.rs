//! Records that follow the server, and are added to the zones for each domain's names.

use crate::diagnostic::ValueLocation;
use crate::domain_name::DomainName;
use crate::mail_policy::MailPolicy;
use crate::zones::Zone;
use std::collections::HashMap;
use std::net::SocketAddr;

/// The port of `https://` URLs without a port.
const HTTPS_PORT: u16 = 443;

/// A kind of records that are derived from the rest of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DerivedKind {
    /// The protocols and ports of HTTPS (RFC 9460).
    Https,
    /// The authorities that may issue certificates (RFC 8659).
    Caa,
    /// The keys of the certificate in service and of the next one (RFC 6698, RFC 7671).
    Tlsa,
    /// The addresses of the listeners of HTTP and HTTPS.
    Addresses,
    /// The record that announces a policy for mail servers and its version (RFC 8461 §3.1).
    MtaSts,
    /// The addresses of the host that serves the policy. This kind comes with `MtaSts`, and cannot be chosen.
    MtaStsHost,
    /// The addresses of the target of an `ALIAS` of the zone file, at the names that have it. This kind cannot be
    /// chosen.
    Alias,
    /// The challenges while a certificate is requested (RFC 8555 §8.4), in zones that are transferred. This kind cannot
    /// be chosen.
    Challenge,
}

impl DerivedKind {
    /// All kinds that are chosen by `derive`.
    pub const ALL: [DerivedKind; 5] =
        [DerivedKind::Https, DerivedKind::Caa, DerivedKind::Tlsa, DerivedKind::Addresses, DerivedKind::MtaSts];

    /// The name of the kind in `derive`.
    pub fn name(self) -> &'static str {
        match self {
            DerivedKind::Https => "https",
            DerivedKind::Caa => "caa",
            DerivedKind::Tlsa => "tlsa",
            DerivedKind::Addresses => "addresses",
            DerivedKind::MtaSts => "mta-sts",
            DerivedKind::MtaStsHost => "mta-sts-host",
            DerivedKind::Alias => "alias",
            DerivedKind::Challenge => "challenge",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<DerivedKind> {
        let not_chosen = [DerivedKind::MtaStsHost, DerivedKind::Alias, DerivedKind::Challenge];
        DerivedKind::ALL.into_iter().chain(not_chosen).find(|kind| kind.name() == name)
    }

    /// The record types of the kind.
    pub fn record_types(self) -> &'static [&'static str] {
        match self {
            DerivedKind::Https => &["HTTPS"],
            DerivedKind::Caa => &["CAA"],
            DerivedKind::Tlsa => &["TLSA"],
            DerivedKind::Addresses | DerivedKind::MtaStsHost | DerivedKind::Alias => &["A", "AAAA"],
            DerivedKind::MtaSts | DerivedKind::Challenge => &["TXT"],
        }
    }
}

/// A domain's derived records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedRecords {
    /// The domain and its aliases.
    pub names: Vec<DomainName>,
    /// The kinds, each once.
    pub kinds: Vec<DerivedKind>,
    /// The policy for mail servers of the domain, if it is one of the kinds.
    pub mail_policy: Option<MailPolicy>,
    /// Whether the configuration has `derive`; otherwise these are the defaults.
    pub is_explicit: bool,
    /// The position of `derive`, or of the domain, in the configuration.
    pub location: ValueLocation,
}

/// Records of one name and type that are derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedRrset {
    /// The kind.
    pub kind: DerivedKind,
    /// The records' owner, in lower case and without a dot at the end.
    pub owner: String,
    /// The name that the records describe, whose addresses are in the zone.
    pub host: DomainName,
    /// The port, of HTTPS and TLSA.
    pub port: u16,
    /// Whether the configuration has `derive`.
    pub is_explicit: bool,
    /// The position of `derive`, or of the domain, in the configuration.
    pub location: ValueLocation,
}

/// The derived records of each of `zones`, those with their own files.
pub(super) fn derived_rrsets<'z>(
    derived: &[DerivedRecords],
    zones: &'z [Zone],
    https_listen: &[SocketAddr],
) -> HashMap<&'z DomainName, Vec<DerivedRrset>> {
    let mut by_zone: HashMap<&DomainName, Vec<DerivedRrset>> = HashMap::new();
    if derived.is_empty() {
        return by_zone;
    }
    let mut ports: Vec<u16> = https_listen.iter().map(SocketAddr::port).filter(|port| *port != 0).collect();
    ports.sort_unstable();
    ports.dedup();
    let apexes: HashMap<&str, &DomainName> = zones.iter().map(|zone| (zone.apex.as_str(), &zone.apex)).collect();
    for DerivedRecords { names, kinds, is_explicit, location, .. } in derived {
        for (host, apex) in names.iter().filter_map(|name| Some((name, zone_of(name, &apexes)?))) {
            let rrsets = by_zone.entry(apex).or_default();
            for (kind, (owner, port)) in
                kinds.iter().flat_map(|kind| owners(*kind, host, &ports).map(|owner| (*kind, owner)))
            {
                // The policy is that of the domain itself, the first name, and not of its aliases.
                if matches!(kind, DerivedKind::MtaSts | DerivedKind::MtaStsHost) && names.first() != Some(host) {
                    continue;
                }
                if rrsets.iter().any(|rrset| rrset.kind == kind && rrset.owner == owner) {
                    continue;
                }
                let (host, location) = (host.clone(), location.clone());
                rrsets.push(DerivedRrset { kind, owner, host, port, is_explicit: *is_explicit, location });
            }
        }
    }
    by_zone
}

/// The owners of the records of `kind` for `host`, with the ports that they are for.
fn owners(kind: DerivedKind, host: &DomainName, ports: &[u16]) -> impl Iterator<Item = (String, u16)> {
    let owners: Vec<(String, u16)> = match kind {
        DerivedKind::Https => {
            let owner = |port| match port {
                HTTPS_PORT => host.as_str().to_owned(),
                // RFC 9460 §9.1.
                port => format!("_{port}._https.{host}"),
            };
            ports.iter().map(|port| (owner(*port), *port)).collect()
        }
        // The name of a TLSA record cannot have a wildcard in the middle (RFC 4592 §2.1.1).
        DerivedKind::Tlsa if host.as_str().starts_with('*') => Vec::new(),
        DerivedKind::Tlsa => ports.iter().map(|port| (format!("_{port}._tcp.{host}"), *port)).collect(),
        // RFC 8659 §3: a wildcard is looked up at the name above.
        DerivedKind::Caa => vec![(host.as_str().strip_prefix("*.").unwrap_or(host.as_str()).to_owned(), 0)],
        DerivedKind::Addresses => vec![(host.as_str().to_owned(), 0)],
        DerivedKind::MtaSts => vec![(format!("_mta-sts.{host}"), 0)],
        DerivedKind::MtaStsHost => vec![(MailPolicy::host(host), 0)],
        DerivedKind::Alias | DerivedKind::Challenge => Vec::new(),
    };
    owners.into_iter()
}

/// The zone of `name`: the zone with the longest matching apex.
fn zone_of<'z>(name: &DomainName, apexes: &HashMap<&str, &'z DomainName>) -> Option<&'z DomainName> {
    let mut rest = name.as_str();
    loop {
        if let Some(apex) = apexes.get(rest) {
            return Some(apex);
        }
        rest = match rest.split_once('.') {
            Some((_, above)) if !above.is_empty() => above,
            _ => return apexes.get(".").copied(),
        };
    }
}
