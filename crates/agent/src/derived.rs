//! The records that follow the server. The zones' derived records are collected here and stored in the state folder,
//! from which the supervisor passes them on to the server process.
//!
//! Only served protocols and names are advertised: HTTPS records are derived for a name when a certificate for it is in
//! service, and a policy for mail servers when a certificate for its host is.

use crate::accounts::Accounts;
use crate::alias_targets::AliasTargets;
use crate::json_files::read_json;
use crate::link::Link;
use crate::listener_addresses::{ListenerAddresses, listens_on_all_addresses};
use crate::pinned_keys::PinnedKeys;
use sanderling_config::log::{log_error, log_warning};
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{Config, DerivedKind, DerivedRrset, DomainName, MailPolicy, zone_of};
use sanderling_ipc::agent::Challenge;
use sanderling_ipc::derived::{
    DERIVED_BYTES_MAX, DERIVED_FILE, DerivedRecord, DerivedSet, ServedCertificate, served_certificates_from_memfd,
};
use sanderling_state::StateFolder;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Seconds for which resolvers keep a challenge: the next order has a new challenge.
const CHALLENGE_TTL_S: u32 = 5;

/// The derived records of the configuration's zones.
pub(crate) struct DerivedZones {
    config: Rc<Config>,
    state: Arc<StateFolder>,
    link: Rc<Link>,
    /// The stored form.
    set: DerivedSet,
    /// The certificates in service; `None` until the server process has told.
    served: Option<Vec<ServedCertificate>>,
    listeners: ListenerAddresses,
    /// Whether the machine's addresses are derived.
    needs_machine_addresses: bool,
    /// Something that records are derived from may have changed.
    is_outdated: bool,
    failures: LimitedLog,
}

impl DerivedZones {
    pub(crate) fn load(config: Rc<Config>, state: Arc<StateFolder>, link: Rc<Link>) -> DerivedZones {
        let set = read_json(&state, DERIVED_FILE).unwrap_or_else(|problem| {
            log_error(&format!(
                "{problem}; raise the serials of the zone files, because the count of derived changes restarts at 0"
            ));
            None
        });
        let set = set.unwrap_or_default();
        let has_addresses = config.derived.iter().any(|derived| derived.kinds.contains(&DerivedKind::Addresses));
        let needs_machine_addresses = has_addresses && listens_on_all_addresses(&config);
        let listeners = ListenerAddresses::default();
        let failures = LimitedLog::default();
        DerivedZones {
            config,
            state,
            link,
            set,
            served: None,
            listeners,
            needs_machine_addresses,
            is_outdated: true,
            failures,
        }
    }

    /// Records the certificates in service, and that there are no others.
    pub(crate) fn on_certificates_served(&mut self, file: Option<OwnedFd>) {
        match file.map(served_certificates_from_memfd) {
            Some(Ok(served)) => self.served = Some(served),
            Some(Err(error)) => log_warning(&format!("ignoring a malformed list of certificates: {error}")),
            None => {}
        }
        self.is_outdated = true;
    }

    /// The known certificates in service.
    pub(crate) fn served(&self) -> &[ServedCertificate] {
        self.served.as_deref().unwrap_or_default()
    }

    /// An order has ended, which may have registered an account, other keys are pinned, or the orders in progress have
    /// other challenges.
    pub(crate) fn on_change(&mut self) {
        self.is_outdated = true;
    }

    /// The stored form.
    pub(crate) fn set(&self) -> &DerivedSet {
        &self.set
    }

    /// Derives the records again if they may be others, and stores them; whether they are.
    pub(crate) fn update(&mut self, accounts: &Accounts, pinned: &PinnedKeys, aliases: &AliasTargets) -> bool {
        self.is_outdated |= self.needs_machine_addresses && self.listeners.look();
        // The certificates in service are unknown: the records do not change.
        let Some(served) = self.served.as_ref().filter(|_| self.is_outdated) else { return false };
        self.is_outdated = false;
        let names: HashSet<&str> = served.iter().flat_map(|it| &it.names).map(String::as_str).collect();
        let authorities = authorities(accounts, &self.state);
        let ttl_s = self.config.limits.derived_record_ttl_s;
        let addresses = self.listeners.of(&self.config);
        let mut set = self.set.clone();
        let mut by_zone = self.config.derived_rrsets();
        let mut challenges = challenges_by_zone(&self.config, &self.link.challenges());
        for zone in &self.config.zones {
            let rrsets = by_zone.remove(&zone.apex).unwrap_or_default();
            let records: Vec<DerivedRecord> = rrsets
                .iter()
                .filter(|rrset| is_served(rrset, &names))
                .flat_map(|rrset| records(rrset, ttl_s, &self.config, authorities.as_deref(), &addresses, pinned))
                .chain(challenges.remove(&zone.apex).unwrap_or_default())
                .chain(self.alias_records(&zone.apex, aliases))
                .collect();
            change(&mut set, zone.apex.as_str(), records);
        }
        for apex in self.alias_zones_of_folder(aliases) {
            change(&mut set, apex.as_str(), self.alias_records(&apex, aliases));
        }
        if set == self.set {
            return false;
        }
        let text = serde_json::to_vec_pretty(&set).expect("the keys are strings");
        if text.len() as u64 > DERIVED_BYTES_MAX {
            let problem = format!("{DERIVED_FILE} would have more than {DERIVED_BYTES_MAX} bytes");
            let remedy = "write `derive = []` for some domains";
            self.failures.error("", &format!("the derived records do not change: {problem}; {remedy}"));
            return false;
        }
        match self.state.write(DERIVED_FILE, &text) {
            Ok(()) => {
                self.set = set;
                self.link.derived_stored();
                true
            }
            Err(error) => {
                self.failures.error("", &format!("the derived records do not change: {error}"));
                self.is_outdated = true;
                false
            }
        }
    }
}

impl DerivedZones {
    /// The addresses of the targets of `ALIAS` in the zone. While its targets are unknown, the stored ones are used.
    fn alias_records(&self, apex: &DomainName, aliases: &AliasTargets) -> Vec<DerivedRecord> {
        aliases.records(apex, self.config.signed_zone(apex).is_some()).unwrap_or_else(|| {
            let stored = self.set.zones.get(apex.as_str()).into_iter().flat_map(|zone| &zone.records);
            stored.filter(|record| record.kind == DerivedKind::Alias).cloned().collect()
        })
    }

    /// The zones without their own section that have `ALIAS`, or had it.
    fn alias_zones_of_folder(&self, aliases: &AliasTargets) -> BTreeSet<DomainName> {
        let of_config: HashSet<&DomainName> = self.config.zones.iter().map(|zone| &zone.apex).collect();
        let is_alias = |record: &DerivedRecord| record.kind == DerivedKind::Alias;
        let stored = self.set.zones.iter().filter(|(_, zone)| zone.records.iter().any(is_alias));
        let stored = stored.filter_map(|(name, _)| DomainName::parse(name).ok());
        stored.chain(aliases.zones()).filter(|apex| !of_config.contains(apex)).collect()
    }
}

/// Whether the server supports what the records advertise, with certificates for these `names` in service.
fn is_served(rrset: &DerivedRrset, names: &HashSet<&str>) -> bool {
    match rrset.kind {
        DerivedKind::Https => names.contains(rrset.host.as_str()),
        DerivedKind::MtaSts => names.contains(&*MailPolicy::host(&rrset.host)),
        DerivedKind::Caa
        | DerivedKind::Tlsa
        | DerivedKind::Addresses
        | DerivedKind::MtaStsHost
        | DerivedKind::Alias
        | DerivedKind::Challenge => true,
    }
}

/// The challenges for authorities, by the zones that other name servers transfer, or that are signed.
fn challenges_by_zone<'c>(config: &'c Config, all: &[Challenge]) -> HashMap<&'c DomainName, Vec<DerivedRecord>> {
    let transfers = config.transfers_by_zone();
    let mut by_zone: HashMap<&DomainName, Vec<DerivedRecord>> = HashMap::new();
    for challenge in all {
        let Challenge::Dns { name, text } = challenge else { continue };
        let apex = zone_of(name, config.zones.iter().map(|zone| &zone.apex));
        let Some(apex) =
            apex.filter(|apex| transfers.of(apex).rules().next().is_some() || config.signed_zone(apex).is_some())
        else {
            continue;
        };
        by_zone.entry(apex).or_default().push(DerivedRecord {
            kind: DerivedKind::Challenge,
            owner: name.clone(),
            ttl_s: CHALLENGE_TTL_S,
            data: format!("\"{text}\""),
        });
    }
    by_zone
}

/// Gives the zone other records.
fn change(set: &mut DerivedSet, zone: &str, records: Vec<DerivedRecord>) {
    match set.zones.get_mut(zone) {
        None if records.is_empty() => {}
        Some(known) if known.records == records => {}
        _ => {
            let known = set.zones.entry(zone.to_owned()).or_default();
            known.change_count = known.change_count.wrapping_add(1);
            known.records = records;
        }
    }
}

/// An authority that may issue certificates.
struct CaaAuthority {
    name: String,
    /// The URL of the account there, if there is one.
    account: Option<String>,
}

/// All authorities of the configuration; `None` if one of them has no known name, since it would be forbidden.
fn authorities(accounts: &Accounts, state: &StateFolder) -> Option<Vec<CaaAuthority>> {
    let of_index = |index| {
        let name = accounts.authority(index).caa.clone()?;
        Some(CaaAuthority { name, account: accounts.url(index, state).filter(|url| is_parameter_value(url)) })
    };
    (0..accounts.count()).map(of_index).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
}

/// Whether `text` can be the value of a parameter of a CAA property (RFC 8659 §4.2), and be in quotes in a zone file.
fn is_parameter_value(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b'"' | b'\\'))
}

fn records(
    rrset: &DerivedRrset,
    ttl_s: u32,
    config: &Config,
    authorities: Option<&[CaaAuthority]>,
    addresses: &[IpAddr],
    pinned: &PinnedKeys,
) -> Vec<DerivedRecord> {
    let data = match rrset.kind {
        DerivedKind::Https => vec![https_data(rrset.port)],
        DerivedKind::Caa => {
            let methods = if config.http_listen.is_empty() { "dns-01" } else { "dns-01,http-01" };
            authorities.unwrap_or_default().iter().map(|authority| caa_data(authority, methods)).collect()
        }
        DerivedKind::Tlsa => {
            let keys = pinned.of_host(&rrset.host).into_iter().flatten();
            keys.map(|key| format!("3 1 1 {key}")).collect()
        }
        DerivedKind::Addresses => addresses.iter().map(IpAddr::to_string).collect(),
        DerivedKind::MtaSts => {
            let of_domain = config.derived.iter().find(|derived| derived.names.first() == Some(&rrset.host));
            of_domain.and_then(|derived| derived.mail_policy.as_ref()).map(MailPolicy::head).into_iter().collect()
        }
        // The zone file has the addresses.
        DerivedKind::MtaStsHost => vec![String::new()],
        DerivedKind::Alias | DerivedKind::Challenge => Vec::new(),
    };
    let record = |data| DerivedRecord { kind: rrset.kind, owner: rrset.owner.clone(), ttl_s, data };
    data.into_iter().map(record).collect()
}

/// HTTP/2, in addition to HTTP/1.1, which is implied (RFC 9460 §7.1.2).
fn https_data(port: u16) -> String {
    match port {
        443 => "1 . alpn=h2".to_owned(),
        port => format!("1 . alpn=h2 port={port}"),
    }
}

/// The CAA RDATA that lets the account at the authority get certificates, validated by `methods` (RFC 8657).
fn caa_data(authority: &CaaAuthority, methods: &str) -> String {
    let account = authority.account.as_ref().map_or(String::new(), |url| format!("; accounturi={url}"));
    format!("0 issue \"{}{account}; validationmethods={methods}\"", authority.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::ConfigSource;

    #[test]
    fn each_change_of_a_zone_is_counted_and_no_zone_is_forgotten() {
        let record = |data: &str| DerivedRecord {
            kind: DerivedKind::Https,
            owner: "a.test".to_owned(),
            ttl_s: 300,
            data: data.to_owned(),
        };
        let mut set = DerivedSet::default();
        change(&mut set, "a.test", Vec::new());
        assert!(set.zones.is_empty());
        for (data, expected) in [(Some("1"), 1), (Some("1"), 1), (Some("2"), 2), (None, 3), (None, 3), (Some("2"), 4)] {
            change(&mut set, "a.test", data.map(record).into_iter().collect());
            assert_eq!(set.zones["a.test"].change_count, expected, "{data:?}");
        }
    }

    #[test]
    fn malformed_file_is_an_error_and_a_missing_one_is_not() {
        let folder = tempfile::tempdir().expect("created");
        let state = StateFolder::open(folder.path()).expect("opened");
        assert_eq!(read_json::<DerivedSet>(&state, DERIVED_FILE), Ok(None));
        state.write(DERIVED_FILE, b"{\"a.test\":{\"change_count\":").expect("written");
        let problem = read_json::<DerivedSet>(&state, DERIVED_FILE).expect_err("it is cut");
        assert!(problem.starts_with("cannot read derived/records.json: EOF while parsing"), "{problem}");
    }

    #[test]
    fn challenges_are_derived_for_zones_that_are_transferred() {
        let text = "[dns]\nlisten = [\"127.0.0.1:53\"]\n[domain.\"a.test\"]\nzone = \"a.zone\"\n\
                    secondaries = [{ address = \"192.0.2.1\" }]\n[domain.\"b.test\"]\nzone = \"b.zone\"\n";
        let config = ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes()).expect("a configuration");
        let challenge = |name: &str| Challenge::Dns { name: name.to_owned(), text: "text".to_owned() };
        let all = ["_acme-challenge.a.test", "_acme-challenge.b.test", "_acme-challenge.c.test"].map(challenge);
        let by_zone = challenges_by_zone(&config, &all);
        let found: Vec<_> = by_zone.iter().map(|(apex, records)| (apex.as_str(), &*records[0].owner)).collect();
        assert_eq!(found, [("a.test", "_acme-challenge.a.test")]);
    }

    #[test]
    fn caa_names_the_account_and_the_methods() {
        let authority =
            |account: Option<&str>| CaaAuthority { name: "ca.example".to_owned(), account: account.map(str::to_owned) };
        assert_eq!(
            caa_data(&authority(Some("https://ca.example/acct/1")), "dns-01"),
            "0 issue \"ca.example; accounturi=https://ca.example/acct/1; validationmethods=dns-01\""
        );
        // Before this server has an account, the record allows any account.
        assert_eq!(
            caa_data(&authority(None), "dns-01,http-01"),
            "0 issue \"ca.example; validationmethods=dns-01,http-01\""
        );
        for (text, expected) in [("https://ca.example/1", true), ("a;b", false), ("a\"", false), ("a b", false)] {
            assert_eq!(is_parameter_value(text), expected, "{text}");
        }
    }

    #[test]
    fn https_has_the_port_unless_it_is_the_default_one() {
        assert_eq!([https_data(443), https_data(8443)], ["1 . alpn=h2", "1 . alpn=h2 port=8443"]);
    }
}
