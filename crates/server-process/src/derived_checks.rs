//! Warnings of `check` about derived records without effect; `check` has no agent to derive them.

use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_config::{Config, DerivedKind, MailPolicy};
use sanderling_dns::{ZoneEntry, ZoneMap};
use sanderling_zone_files::{served_mail_policies, wire_name};
use std::collections::HashSet;

/// A warning for each domain of `config` whose TLSA records no client uses, or whose policy for mail servers has no
/// mail server in `zones`.
pub(crate) fn warnings(config: &Config, zones: &ZoneMap) -> Vec<Diagnostic> {
    let policies: HashSet<String> = served_mail_policies(config, zones).into_iter().map(|(host, _)| host).collect();
    let mut warnings = Vec::new();
    let by_zone = config.derived_rrsets();
    let mut apexes: Vec<_> = by_zone.keys().collect();
    apexes.sort_unstable();
    for apex in apexes {
        let Some(ZoneEntry::Served(zone)) = zones.get(wire_name(apex).as_name()) else { continue };
        let is_signed = zone.is_signed() || config.signed_zone(apex).is_some();
        let rrsets = &by_zone[*apex];
        if let Some(rrset) = rrsets.iter().find(|rrset| rrset.kind == DerivedKind::Tlsa && !is_signed) {
            let message = format!("the zone {apex} is unsigned: clients ignore TLSA records without DNSSEC");
            let remedy = "write dnssec = true in its domain, or remove \"tlsa\" from `derive`";
            warnings.push(Diagnostic::warning(rrset.location.clone(), Problem::new(message, remedy)));
        }
        let of_policies = rrsets.iter().filter(|rrset| rrset.kind == DerivedKind::MtaSts);
        for rrset in of_policies.filter(|rrset| !policies.contains(&MailPolicy::host(&rrset.host))) {
            let message = format!("cannot derive a policy for mail servers for {}, which has no MX record", rrset.host);
            let remedy = "add one, or list the mail servers: mta_sts = { mx = [\"mail.example.com\"] }";
            warnings.push(Diagnostic::warning(rrset.location.clone(), Problem::new(message, remedy)));
        }
    }
    warnings
}
