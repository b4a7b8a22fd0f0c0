//! Adds the records that follow the server to a zone: after its file was read, and before it is built. The added
//! records come from the agent, except for addresses, which come from the file.
//!
//! A record of the file has precedence: where the file has the type at the name, or a CNAME, nothing is added. Where
//! the file has an `ALIAS`, the addresses of its target are added.

use crate::mail_policies::{mail_policy_record, mail_server};
use crate::record_sink::RecordSink;
use crate::wire_name::wire_name_of;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::log::log_error;
use sanderling_config::{
    ChallengeNames, Config, DerivedKind, DerivedRrset, DomainName, Zone as ZoneConfig, ZoneOrigin, is_challenge_token,
};
use sanderling_dns::zonefile::{AliasRecord, Entry, Parser, ParserLimits, Position, Record};
use sanderling_dns::{Name, NameBuf, Rtype, raised_serial};
use sanderling_ipc::derived::{DerivedRecord, DerivedSet};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Bytes of a SOA after its serial (RFC 1035 §3.3.13).
const SOA_BYTES_AFTER_SERIAL: usize = 16;

/// The derived records of one zone.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ZoneDerivation {
    /// The part from the configuration.
    rrsets: Vec<DerivedRrset>,
    /// The agent's records for it.
    records: Vec<DerivedRecord>,
    /// This count is added to the file's serial.
    change_count: u32,
    /// Whether the agent resolves the targets of `ALIAS`.
    resolves_aliases: bool,
}

impl ZoneDerivation {
    fn new(
        rrsets: Vec<DerivedRrset>,
        zone: &DomainName,
        set: &DerivedSet,
        challenge_names: &ChallengeNames<'_>,
        resolves_aliases: bool,
    ) -> ZoneDerivation {
        let mut zone = set.zones.get(zone.as_str()).cloned().unwrap_or_default();
        // The configuration does not list them: the agent must not be able to add records at other names.
        zone.records.retain(|record| record.kind != DerivedKind::Challenge || is_challenge(record, challenge_names));
        ZoneDerivation { rrsets, records: zone.records, change_count: zone.change_count, resolves_aliases }
    }

    /// Whether a zone may have `ALIAS`.
    pub(crate) fn resolves_aliases(&self) -> bool {
        self.resolves_aliases
    }

    fn is_empty(&self) -> bool {
        self.rrsets.is_empty() && self.change_count == 0
    }

    /// The challenges for authorities.
    fn challenges(&self) -> impl Iterator<Item = &DerivedRecord> {
        self.records.iter().filter(|record| record.kind == DerivedKind::Challenge)
    }
}

/// Whether an authority looks for this record, for a certificate of the configuration.
fn is_challenge(record: &DerivedRecord, names: &ChallengeNames<'_>) -> bool {
    let text = record.data.strip_prefix('"').and_then(|data| data.strip_suffix('"'));
    names.has(&record.owner) && text.is_some_and(is_challenge_token)
}

/// The derived records of a server process's zones.
pub struct Derivations<'c> {
    config: &'c Config,
    set: &'c DerivedSet,
    by_zone: HashMap<&'c DomainName, Vec<DerivedRrset>>,
    challenge_names: ChallengeNames<'c>,
}

impl<'c> Derivations<'c> {
    /// The derivations for the zones of `config` and of its folder, for which the agent has made `set`.
    pub fn new(config: &'c Config, set: &'c DerivedSet) -> Derivations<'c> {
        Derivations { config, set, by_zone: config.derived_rrsets(), challenge_names: ChallengeNames::new(config) }
    }

    /// The derived records of `zone`. A signed zone gets none here: its signed version already has the records. No
    /// records are derived for zones that the agent writes.
    pub fn of(&self, zone: &ZoneConfig) -> Arc<ZoneDerivation> {
        let resolves_aliases = self.config.resolves_aliases();
        if zone.origin != ZoneOrigin::Operator {
            return Arc::default();
        }
        if self.config.signed_zone(&zone.apex).is_some() {
            return Arc::new(ZoneDerivation { resolves_aliases, ..ZoneDerivation::default() });
        }
        let rrsets = self.by_zone.get(&zone.apex).cloned().unwrap_or_default();
        Arc::new(ZoneDerivation::new(rrsets, &zone.apex, self.set, &self.challenge_names, resolves_aliases))
    }
}

/// The derived records of the signed zones of `config`, from the agent's `set`.
pub fn signed_derivations(config: &Config, set: &DerivedSet) -> HashMap<DomainName, Arc<ZoneDerivation>> {
    let (mut by_zone, challenge_names) = (config.derived_rrsets(), ChallengeNames::new(config));
    let of_zone = |zone: &ZoneConfig| {
        let rrsets = by_zone.remove(&zone.apex).unwrap_or_default();
        let resolves_aliases = config.resolves_aliases();
        let derivation = ZoneDerivation::new(rrsets, &zone.apex, set, &challenge_names, resolves_aliases);
        (zone.apex.clone(), Arc::new(derivation))
    };
    config.zones.iter().filter(|zone| config.signed_zone(&zone.apex).is_some()).map(of_zone).collect()
}

/// An `ALIAS` of a zone file.
#[derive(Clone, Debug)]
pub struct Alias {
    pub(crate) position: Position,
    /// The owner of the record, in lower case.
    pub owner: NameBuf,
    /// The name that has the addresses, in lower case.
    pub target: NameBuf,
}

impl Alias {
    pub(crate) fn new(record: &AliasRecord<'_>) -> Alias {
        let AliasRecord { position, owner, target } = *record;
        Alias { position, owner: owner.to_lowercase(), target: target.to_lowercase() }
    }

    /// The target without a dot at its end, as in [`DerivedRecord::owner`].
    pub fn target_text(&self) -> String {
        self.target.to_string().trim_end_matches('.').to_owned()
    }
}

/// The records added to a zone.
#[derive(Debug, Default)]
pub struct AddedRecords {
    /// The file's serial, if the zone has a higher one.
    pub file_serial: Option<u32>,
    /// The `ALIAS` of the file, which are not records of the zone.
    pub aliases: Vec<Alias>,
    rrsets: Vec<AddedRrset>,
}

#[derive(Debug)]
struct AddedRrset {
    owner: NameBuf,
    rtype: Rtype,
    origin: String,
}

impl AddedRecords {
    /// The source of the records of this name and type, unless it is the file.
    pub fn origin(&self, owner: Name<'_>, rtype: Rtype) -> Option<&str> {
        let added = self.rrsets.iter().find(|added| added.rtype == rtype && added.owner.as_name() == owner)?;
        Some(&added.origin)
    }

    /// The targets of `ALIAS`, each once, as [`Alias::target_text`].
    pub fn alias_targets(&self) -> Vec<String> {
        let mut targets: Vec<String> = self.aliases.iter().map(Alias::target_text).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    fn add(&mut self, owner: Name<'_>, rtype: Rtype, origin: String) {
        if self.origin(owner, rtype).is_none() {
            self.rrsets.push(AddedRrset { owner: owner.to_lowercase(), rtype, origin });
        }
    }
}

/// Examines a file's records, and then adds to them.
pub(crate) struct RecordMerge<'d> {
    derivation: &'d ZoneDerivation,
    apex: NameBuf,
    /// The records of the file at the relevant names, which are in lower case.
    names: HashMap<Vec<u8>, NameInFile>,
    /// The SOA, whose serial will be raised: its position, TTL and data.
    soa: Option<(Position, u32, Vec<u8>)>,
}

/// A name in the file.
#[derive(Default)]
struct NameInFile {
    types: Vec<(Rtype, Position)>,
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
    mail_servers: Vec<String>,
}

impl NameInFile {
    fn position_of(&self, rtype: Rtype) -> Option<Position> {
        self.types.iter().find(|(known, _)| *known == rtype).map(|(_, position)| *position)
    }
}

impl<'d> RecordMerge<'d> {
    /// `None` if nothing is derived for the zone.
    pub(crate) fn new(apex: &DomainName, derivation: &'d ZoneDerivation) -> Option<RecordMerge<'d>> {
        if derivation.is_empty() {
            return None;
        }
        let apex = wire_name_of(apex.as_str())?;
        let mut names = HashMap::new();
        let of_rrsets =
            derivation.rrsets.iter().flat_map(|rrset| [wire_name_of(&rrset.owner), wire_name_of(rrset.host.as_str())]);
        for name in of_rrsets.chain(derivation.challenges().map(|record| wire_name_of(&record.owner))) {
            let Some(name) = name else { continue };
            let mut ancestor = Some(name.as_name());
            while let Some(name) = ancestor.filter(|name| name.is_at_or_below(apex.as_name())) {
                names.insert(name.as_bytes().to_vec(), NameInFile::default());
                ancestor = name.parent();
            }
        }
        names.insert(apex.as_name().as_bytes().to_vec(), NameInFile::default());
        Some(RecordMerge { derivation, apex, names, soa: None })
    }

    /// Sees a record of the file; whether it must be left out for now.
    pub(crate) fn holds_back(&mut self, record: &Record<'_>) -> bool {
        let owner = record.owner.to_lowercase();
        let Some(name) = self.names.get_mut(owner.as_name().as_bytes()) else { return false };
        name.types.push((record.rtype, record.position));
        match record.rtype {
            Rtype::A => name.v4.extend(<[u8; 4]>::try_from(record.rdata).map(Ipv4Addr::from)),
            Rtype::AAAA => name.v6.extend(<[u8; 16]>::try_from(record.rdata).map(Ipv6Addr::from)),
            Rtype::MX => name.mail_servers.extend(mail_server(record.rdata)),
            Rtype::SOA if self.soa.is_none() && owner.as_name() == self.apex.as_name() => {
                self.soa = Some((record.position, record.ttl_s, record.rdata.to_vec()));
                return true;
            }
            _ => {}
        }
        false
    }

    /// Adds the addresses of `aliases`, the derived records, and the SOA. `location` converts a position in the file,
    /// and `notes` receives notes for the operator.
    pub(crate) fn finish(
        mut self,
        sink: &mut RecordSink<'_>,
        aliases: &[Alias],
        location: impl Fn(Position) -> Location,
        notes: &mut Vec<Diagnostic>,
    ) -> AddedRecords {
        let mut added = AddedRecords::default();
        let signed_at = self.names.get(self.apex.as_name().as_bytes()).and_then(|apex| apex.position_of(Rtype::DNSKEY));
        let steps = if signed_at.is_none() { self.derivation.change_count } else { 0 };
        if let Some((position, ttl_s, mut rdata)) = self.soa.clone() {
            let serial = rdata.len() - SOA_BYTES_AFTER_SERIAL - 4..rdata.len() - SOA_BYTES_AFTER_SERIAL;
            let of_file = u32::from_be_bytes(rdata[serial.clone()].try_into().expect("four bytes"));
            rdata[serial].copy_from_slice(&raised_serial(of_file, steps).to_be_bytes());
            let owner = self.apex.as_name();
            sink.add(&Record { position, owner, rtype: Rtype::SOA, ttl_s, rdata: &rdata });
            if steps > 0 {
                added.file_serial = Some(of_file);
                added.add(owner, Rtype::SOA, format!("derived: the file's serial is {of_file}"));
            }
        }
        let Some(signed_at) = signed_at else {
            self.add_aliases(aliases, sink, &mut added);
            let derivation = self.derivation;
            let (of_listeners, others): (Vec<_>, Vec<_>) =
                derivation.rrsets.iter().partition(|rrset| rrset.kind == DerivedKind::Addresses);
            for rrset in of_listeners {
                self.add_rrset(rrset, sink, &mut added, &location, notes);
                self.count_addresses(rrset, &added);
            }
            for rrset in others {
                self.add_rrset(rrset, sink, &mut added, &location, notes);
            }
            for record in self.derivation.challenges() {
                self.add_challenge(record, sink, &mut added);
            }
            return added;
        };
        if let Some(rrset) = self.derivation.rrsets.iter().max_by_key(|rrset| rrset.is_explicit) {
            let message = format!(
                "the zone {} is signed (DNSSEC), so no records are derived for it: they would have no signatures",
                self.apex.as_name().to_string().trim_end_matches('.')
            );
            let remedy = "write derive = [] in its domain, and the records into the zone file before it is signed";
            let problem = Problem::new(message, remedy);
            notes.push(match rrset.is_explicit {
                true => Diagnostic::warning(rrset.location.clone(), problem),
                false => Diagnostic::note(location(signed_at), problem),
            });
        }
        added
    }

    /// Adds the targets' addresses, which then count as addresses in the file.
    fn add_aliases(&mut self, aliases: &[Alias], sink: &mut RecordSink<'_>, added: &mut AddedRecords) {
        let mut by_target: HashMap<&str, Vec<(IpAddr, u32)>> = HashMap::new();
        for record in self.derivation.records.iter().filter(|record| record.kind == DerivedKind::Alias) {
            let Ok(address) = record.data.parse() else {
                log_error(&format!("cannot add an address of {}: malformed data", record.owner));
                continue;
            };
            by_target.entry(&record.owner).or_default().push((address, record.ttl_s));
        }
        for alias in aliases {
            let owner = alias.owner.as_name();
            let target = alias.target_text();
            if let Some(name) = self.names.get_mut(owner.as_bytes()) {
                name.types.extend([Rtype::A, Rtype::AAAA].map(|rtype| (rtype, alias.position)));
            }
            for &(address, ttl_s) in by_target.get(&*target).into_iter().flatten() {
                let mut in_file = self.names.get_mut(owner.as_bytes());
                let (rtype, rdata) = match address {
                    IpAddr::V4(address) => {
                        in_file.iter_mut().for_each(|name| name.v4.push(address));
                        (Rtype::A, address.octets().to_vec())
                    }
                    IpAddr::V6(address) => {
                        in_file.iter_mut().for_each(|name| name.v6.push(address));
                        (Rtype::AAAA, address.octets().to_vec())
                    }
                };
                sink.add(&Record { position: alias.position, owner, rtype, ttl_s, rdata: &rdata });
                added.add(owner, rtype, format!("derived: alias of {target}"));
            }
        }
    }

    /// Counts the listeners' addresses, if they were added, as addresses in the file: other records contain them as
    /// well.
    fn count_addresses(&mut self, rrset: &DerivedRrset, added: &AddedRecords) {
        let Some(owner) = wire_name_of(&rrset.owner) else { return };
        let Some(name) = self.names.get_mut(owner.as_name().as_bytes()) else { return };
        let origin = format!("derived: {}", rrset.kind.name());
        let is_added = |rtype| added.origin(owner.as_name(), rtype) == Some(&origin);
        let records = self.derivation.records.iter();
        for record in records.filter(|record| record.kind == rrset.kind && record.owner == rrset.owner) {
            match record.data.parse() {
                Ok(IpAddr::V4(address)) if is_added(Rtype::A) => name.v4.push(address),
                Ok(IpAddr::V6(address)) if is_added(Rtype::AAAA) => name.v6.push(address),
                _ => {}
            }
        }
    }

    fn add_rrset(
        &self,
        rrset: &DerivedRrset,
        sink: &mut RecordSink<'_>,
        added: &mut AddedRecords,
        location: &impl Fn(Position) -> Location,
        notes: &mut Vec<Diagnostic>,
    ) {
        let Some((owner, host)) = wire_name_of(&rrset.owner).zip(wire_name_of(rrset.host.as_str())) else { return };
        if self.is_elsewhere(owner.as_name()) || self.is_elsewhere(host.as_name()) {
            return;
        }
        let types = rrset.kind.record_types();
        let rtypes = types.iter().map(|rtype| Rtype::from_text(rtype.as_bytes()).expect("a known type"));
        let in_file = self.names.get(owner.as_name().as_bytes());
        let of_file = in_file.and_then(|name| rtypes.chain([Rtype::CNAME]).find_map(|rtype| name.position_of(rtype)));
        if let Some(position) = of_file {
            if rrset.kind == DerivedKind::MtaStsHost {
                // The operator configured this on purpose.
                return;
            }
            let message = format!("the file has precedence: no {} record is derived for {}", types[0], rrset.owner);
            let remedy = format!(
                "remove the record to have it derived; \"{}\" in `derive` has no effect here",
                rrset.kind.name()
            );
            notes.push(Diagnostic::note(location(position), Problem::new(message, remedy)));
            return;
        }
        let host = self.names.get(host.as_name().as_bytes());
        let records = self.derivation.records.iter();
        for record in records.filter(|record| record.kind == rrset.kind && record.owner == rrset.owner) {
            let Some(data) = complete_data(record, host) else {
                if rrset.kind == DerivedKind::MtaSts {
                    let message =
                        format!("cannot derive a policy for mail servers for {}, which has no MX record", rrset.host);
                    let remedy = "add one, or list the mail servers: mta_sts = { mx = [\"mail.example.com\"] }";
                    notes.push(Diagnostic::warning(rrset.location.clone(), Problem::new(message, remedy)));
                }
                continue;
            };
            for (rtype, data) in data {
                let text = format!("{}. {} IN {rtype} {data}\n", record.owner, record.ttl_s);
                if add_text(text, self.apex.as_name(), sink) {
                    added.add(owner.as_name(), rtype, format!("derived: {}", rrset.kind.name()));
                } else {
                    log_error(&format!("cannot derive the {rtype} record of {}: malformed data", rrset.owner));
                }
            }
        }
    }

    /// Adds the challenge for an authority to the other records of the name, unless the name is an alias or other
    /// servers have it.
    fn add_challenge(&self, record: &DerivedRecord, sink: &mut RecordSink<'_>, added: &mut AddedRecords) {
        let Some(owner) = wire_name_of(&record.owner).filter(|owner| !self.is_elsewhere(owner.as_name())) else {
            return;
        };
        let in_file = self.names.get(owner.as_name().as_bytes());
        if in_file.is_some_and(|name| name.position_of(Rtype::CNAME).is_some()) {
            return;
        }
        let text = format!("{}. {} IN TXT {}\n", record.owner, record.ttl_s, record.data);
        if add_text(text, self.apex.as_name(), sink) {
            added.add(owner.as_name(), Rtype::TXT, format!("derived: {}", record.kind.name()));
        }
    }

    /// Whether another zone has the name, or a DNAME is above it: the answer for it is not in this zone.
    fn is_elsewhere(&self, name: Name<'_>) -> bool {
        let apex = self.apex.as_name();
        let mut current = Some(name);
        while let Some(name_here) = current.filter(|name| *name != apex) {
            let has = |name: Name<'_>, rtype| {
                self.names.get(name.as_bytes()).is_some_and(|found| found.position_of(rtype).is_some())
            };
            let parent = name_here.parent();
            if has(name_here, Rtype::NS) || parent.is_some_and(|parent| has(parent, Rtype::DNAME)) {
                return true;
            }
            current = parent;
        }
        !name.is_at_or_below(apex)
    }
}

/// The types and the data of the records for `record`, with the records of the file for its `host`; `None` if that
/// lacks the needed data.
fn complete_data(record: &DerivedRecord, host: Option<&NameInFile>) -> Option<Vec<(Rtype, String)>> {
    let host_with_address = host.filter(|host| !host.v4.is_empty() || !host.v6.is_empty());
    Some(match record.kind {
        DerivedKind::Https => vec![(Rtype::HTTPS, format!("{}{}", record.data, hints(host_with_address?)))],
        DerivedKind::Caa => vec![(Rtype::CAA, record.data.clone())],
        DerivedKind::Tlsa => vec![(Rtype::TLSA, record.data.clone())],
        DerivedKind::Addresses => {
            let rtype = if record.data.contains(':') { Rtype::AAAA } else { Rtype::A };
            vec![(rtype, record.data.clone())]
        }
        DerivedKind::MtaSts => {
            let mail_servers = host.map_or(&[][..], |host| &host.mail_servers);
            vec![(Rtype::TXT, mail_policy_record(&record.data, mail_servers.to_vec())?)]
        }
        DerivedKind::MtaStsHost => {
            let host = host_with_address?;
            let v4 = host.v4.iter().map(|address| (Rtype::A, address.to_string()));
            v4.chain(host.v6.iter().map(|address| (Rtype::AAAA, address.to_string()))).collect()
        }
        DerivedKind::Challenge => vec![(Rtype::TXT, record.data.clone())],
        // `add_aliases` adds them.
        DerivedKind::Alias => Vec::new(),
    })
}

/// The addresses of a name as parameters of an HTTPS record (RFC 9460 §7.3).
fn hints(host: &NameInFile) -> String {
    let list = |key: &str, addresses: Vec<String>| match addresses.is_empty() {
        true => String::new(),
        false => format!(" {key}={}", addresses.join(",")),
    };
    let v4 = host.v4.iter().map(Ipv4Addr::to_string).collect();
    let v6 = host.v6.iter().map(Ipv6Addr::to_string).collect();
    list("ipv4hint", v4) + &list("ipv6hint", v6)
}

/// Adds the record in a line of a zone file; returns whether the line has one.
fn add_text(text: String, apex: Name<'_>, sink: &mut RecordSink<'_>) -> bool {
    let mut parser = Parser::new("derived".to_owned(), text.into_bytes(), apex, ParserLimits::default());
    match parser.next() {
        Some(Ok(Entry::Record(record))) => {
            sink.add(&record);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
