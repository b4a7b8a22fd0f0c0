//! Warnings of `check` about zones that this server signs.

use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_config::{Config, SignedZone};
use sanderling_dns::rdata::SOA_NUMBERS_BYTES;
use sanderling_dns::{RecordSource, Rtype, Zone, ZoneEntry};
use sanderling_server::Snapshot;
use sanderling_zone_files::wire_name;
use std::collections::BTreeSet;

/// Minimum remaining validity of a signature in seconds, since it is replaced before that.
const VALID_S_MIN: u32 = 7 * 24 * 3600;
/// The position of the expire time in the numbers of an SOA.
const EXPIRE_AT: usize = 12;

/// The warnings for all signed zones of `config` that could be loaded.
pub(crate) fn risks(config: &Config, snapshot: &Snapshot) -> Vec<Diagnostic> {
    let of_zone = |signed: &SignedZone| match snapshot.zones.get(wire_name(&signed.apex).as_name()) {
        Some(ZoneEntry::Served(zone)) if !signed.is_leaving => risks_of(signed, zone),
        _ => Vec::new(),
    };
    config.signed_zones.iter().flat_map(of_zone).collect()
}

fn risks_of(signed: &SignedZone, zone: &Zone) -> Vec<Diagnostic> {
    let count = |rtype| {
        let mut count = 0;
        zone.each_rdata_of(zone.apex(), rtype, |_| count += 1);
        count
    };
    let mut expire_s = 0;
    zone.each_rdata_of(zone.apex(), Rtype::SOA, |rdata| {
        let numbers = rdata.len().checked_sub(SOA_NUMBERS_BYTES).map(|at| &rdata[at..]);
        let expire = numbers.and_then(|numbers| numbers[EXPIRE_AT..].first_chunk());
        expire_s = expire.map_or(0, |bytes| u32::from_be_bytes(*bytes));
    });
    let (apex, mut risks) = (&signed.apex, Vec::new());
    // A zone with one name server has no secondaries.
    if expire_s > VALID_S_MIN && count(Rtype::NS) > 1 {
        let message = format!(
            "the SOA record of {apex} lets secondaries answer for {expire_s} s without a transfer, but signatures may \
                expire in {VALID_S_MIN} s"
        );
        let remedy = format!("write {VALID_S_MIN} or less as the expire time (RFC 6781 section 4.4.2.2)");
        risks.push(Problem::new(message, remedy));
    }
    // Each signed version has its own.
    let mut left_out: BTreeSet<Rtype> = BTreeSet::new();
    zone.each_record(|owner, rtype, _, _| {
        if RecordSource::of(rtype, owner.eq_ignore_case(zone.apex())) == RecordSource::Version {
            left_out.insert(rtype);
        }
    });
    if !left_out.is_empty() {
        let types: Vec<String> = left_out.iter().map(Rtype::to_string).collect();
        let message = format!("the {} records of {apex} are ignored: this server creates its own", types.join(", "));
        let remedy = "provide the unsigned zone; to keep its keys, use `sanderling dnssec import`";
        risks.push(Problem::new(message, remedy));
    }
    let of_keys = [Rtype::DNSKEY, Rtype::CDS, Rtype::CDNSKEY].into_iter().find(|&rtype| count(rtype) > 0);
    match of_keys {
        Some(rtype) if signed.signing.other_signers.is_empty() => {
            let message =
                format!("{apex} has {rtype} records: it will not be signed unless all are for keys of this server");
            let remedy = "remove them, or add the servers of the other signer to `other_signers`";
            risks.push(Problem::new(message, remedy));
        }
        None if !signed.signing.other_signers.is_empty() => {
            let message = format!("{apex} has `other_signers`, but no DNSKEY records of them");
            let remedy = "add their DNSKEY, CDS and CDNSKEY records before resolvers query their servers";
            risks.push(Problem::new(message, remedy));
        }
        _ => {}
    }
    risks.into_iter().map(|problem| Diagnostic::warning(signed.location.clone(), problem)).collect()
}
