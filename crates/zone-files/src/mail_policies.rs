//! Policies for mail servers (MTA-STS, RFC 8461): their mail servers come from the zone, unless the configuration lists
//! them. The served policy and the record of the zone are made from the same text.

use crate::wire_name::wire_name;
use data_encoding::HEXLOWER;
use sanderling_config::{Config, DerivedKind, MailPolicy, complete_mail_policy};
use sanderling_dns::{Name, Rtype, ZoneEntry, ZoneMap};
use sha2::{Digest, Sha256};

/// Bytes of the digest that names a version of a policy. RFC 8461 §3.1 allows 32 letters and digits.
const ID_BYTES: usize = 16;
/// Bytes of the preference of an MX record (RFC 1035 §3.3.9).
const PREFERENCE_BYTES: usize = 2;

/// The policies of the domains of `config`, each with its host. Policies without mail servers in `zones` are left out.
pub fn served_mail_policies(config: &Config, zones: &ZoneMap) -> Vec<(String, String)> {
    let rrsets = config.derived_rrsets();
    let hosts = rrsets.iter().flat_map(|(apex, rrsets)| rrsets.iter().map(move |rrset| (*apex, rrset)));
    let with_policy = hosts.filter(|(_, rrset)| rrset.kind == DerivedKind::MtaSts).filter_map(|(apex, rrset)| {
        let of_domain = config.derived.iter().find(|derived| derived.names.first() == Some(&rrset.host))?;
        let policy = of_domain.mail_policy.as_ref()?;
        let mut mail_servers = Vec::new();
        if let Some(ZoneEntry::Served(zone)) = zones.get(wire_name(apex).as_name()) {
            zone.each_rdata_of(wire_name(&rrset.host).as_name(), Rtype::MX, |rdata| {
                mail_servers.extend(mail_server(rdata));
            });
        }
        Some((MailPolicy::host(&rrset.host), policy_text(&policy.head(), mail_servers)?))
    });
    with_policy.collect()
}

/// The data of the TXT record of the policy with this head (RFC 8461 §3.1); `None` if the policy has no mail server.
pub(crate) fn mail_policy_record(head: &str, mail_servers: Vec<String>) -> Option<String> {
    let digest = Sha256::digest(policy_text(head, mail_servers)?);
    Some(format!("\"v=STSv1; id={};\"", HEXLOWER.encode(&digest[..ID_BYTES])))
}

/// The policy, which does not depend on the order of the mail servers.
fn policy_text(head: &str, mut mail_servers: Vec<String>) -> Option<String> {
    mail_servers.sort_unstable();
    mail_servers.dedup();
    complete_mail_policy(head, &mail_servers)
}

/// The mail server of an MX record with this data; `None` for a server that no policy can name, such as the root (RFC
/// 7505).
pub(crate) fn mail_server(rdata: &[u8]) -> Option<String> {
    let name = Name::parse(rdata.get(PREFERENCE_BYTES..)?).ok()?.to_lowercase().as_name().to_string();
    let name = name.trim_end_matches('.');
    let is_host = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_host.then(|| name.to_owned())
}
