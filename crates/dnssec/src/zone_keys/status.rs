//! The state of a zone's keys, in words.

use super::{Goal, Presence, ZoneKey, ZoneKeys};
use crate::key::{Algorithm, key_tag};
use sanderling_calendar::DateTime;
use sanderling_dns::rdata::PresentationFormat;
use sanderling_dns::{Name, Rtype};

impl ZoneKeys {
    /// The keys and the pending steps, with their reasons and times: a sentence each.
    pub fn status(&self, apex: Name<'_>) -> Vec<String> {
        let has_new_ds = self.keys.iter().any(|key| matches!(key.ds, Presence::Added(_)));
        let mut out: Vec<String> = self.keys.iter().flat_map(|key| of_key(key, apex, has_new_ds)).collect();
        if self.keys.is_empty() {
            out.push("the zone has no keys: it is not signed".into());
        }
        if self.keys.iter().any(|key| matches!(key.ds, Presence::Removed(_))) && self.ds_wanted(apex).is_empty() {
            out.push("the zone stays signed until the parent zone has no DS records".into());
        }
        out
    }
}

/// The keys of other signers, by the DNSKEY records that are not of `keys`: a sentence each.
pub fn status_of_others<'r>(keys: &ZoneKeys, apex: Name<'_>, dnskeys: impl Iterator<Item = &'r [u8]>) -> Vec<String> {
    let others = dnskeys.filter(|rdata| !keys.has_made(apex, Rtype::DNSKEY, rdata));
    let is_ours = |number| keys.keys.iter().any(|key| key.public.algorithm.number() == number);
    let of_other = |rdata: &[u8]| {
        let (tag, number) = (key_tag(rdata), *rdata.get(3)?);
        let advice = "some resolvers reject answers that are not signed with each key's algorithm: use the same \
            algorithm on all signers";
        Some(match is_ours(number) {
            true => format!("another signer has the key {tag}, with the algorithm {number}"),
            false => format!("another signer has the key {tag}, with another algorithm, {number}; {advice}"),
        })
    };
    others.filter_map(of_other).collect()
}

/// `has_new_ds`: the parent zone must add a DS record, since without any the zone would be insecure.
fn of_key(key: &ZoneKey, apex: Name<'_>, has_new_ds: bool) -> Vec<String> {
    let role = key.public.role;
    let algorithm = match key.public.algorithm {
        Algorithm::RsaSha256 => "RSA with SHA-256",
        Algorithm::EcdsaP256 => "ECDSA P-256",
        Algorithm::Ed25519 => "Ed25519",
    };
    let is_settled = |it: Presence| matches!(it, Presence::Everywhere | Presence::Absent);
    let goal = match key.goal {
        Goal::Active if key.presences().into_iter().all(is_settled) => "is in use",
        Goal::Active => "is being introduced",
        Goal::Replaced => "is in use until a new key is made",
        Goal::Retired => "is being removed",
    };
    let tag = key.public.tag();
    let mut out = vec![format!("the {role} {tag} ({algorithm}) {goal}")];
    out.extend(of_zone(key.dnskey, &format!("the DNSKEY record of the {role} {tag}")));
    out.extend(of_zone(key.signatures, &format!("the signatures of the {role} {tag}")));
    let ds = format!("the DS record of the {role} {tag}");
    out.extend(match key.ds {
        Presence::Added(_) if key.is_retired() => Some(format!(
            "the parent zone does not have {ds} yet: wait for the DS record of the next key, which replaces it"
        )),
        Presence::Added(_) => {
            let rdata = key.public.ds(apex).rdata();
            let rdata = PresentationFormat::new(Rtype::DS, &rdata);
            Some(format!("the parent zone does not have {ds} yet: submit \"{apex} DS {rdata}\" to the registrar"))
        }
        Presence::Withdrawn => Some(format!(
            "the parent zone does not have {ds}, and no longer needs it: do not submit it to the registrar"
        )),
        Presence::Removed(_) if has_new_ds => {
            Some(format!("the parent zone still has {ds}: have the registrar remove it once the new one is published"))
        }
        Presence::Removed(_) => Some(format!("the parent zone still has {ds}: have the registrar remove it")),
        other => of_caches(other, &ds),
    });
    out
}

/// The reason why a record of the zone waits.
fn of_zone(presence: Presence, subject: &str) -> Option<String> {
    let version = presence.awaited_version().map(|version| version.serial);
    match (presence, version) {
        (Presence::Added(_), None) => Some(format!("{subject} will be in the next version of the zone")),
        (Presence::Removed(_), None) => Some(format!("{subject} will not be in the next version of the zone")),
        (Presence::Added(_), Some(serial)) => {
            Some(format!("{subject} must reach all name servers, with the serial {serial}"))
        }
        (Presence::Removed(_), Some(serial)) => {
            Some(format!("{subject} must be gone from all name servers, with the serial {serial}"))
        }
        _ => of_caches(presence, subject),
    }
}

fn of_caches(presence: Presence, subject: &str) -> Option<String> {
    match presence {
        Presence::Spreading { until_unix_s } => Some(format!("caches may lack {subject} until {}", utc(until_unix_s))),
        Presence::Fading { until_unix_s } => Some(format!("caches may have {subject} until {}", utc(until_unix_s))),
        _ => None,
    }
}

/// `2026-11-23 16:00:00 UTC`
fn utc(unix_s: u64) -> String {
    let DateTime { year, month, day, hour, minute, second } = DateTime::from_unix_s(unix_s);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(utc(1_795_449_601), "2026-11-23 16:00:01 UTC");
    }
}
