//! The keys that sign zone transfers, and the rules for clients that may transfer a zone or send NOTIFY for it.

use crate::tsig_key_state::{SecretInService, TsigKeyState};
use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{
    Catalog, Config, DomainName, Primary, SecondaryZone, TsigAlgorithm as Algorithm, TsigKeyFile, ZoneTransfers,
};
use sanderling_dns::{NameBuf, TsigAlgorithm, TsigKey, TsigKeys};
use sanderling_ipc::secrets::tsig_secrets_from_memfd;
use sanderling_server::{
    IpNetwork, NotifyInbox, NotifyPolicy, OutgoingTransfers, RefusedTransfer, TransferPolicy, TransferRule,
};
use sanderling_zone_files::wire_name;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The keys in service.
#[derive(Debug, Default)]
pub(crate) struct TsigSecrets {
    /// The last good version of each key.
    last_good: Vec<(DomainName, TsigKey)>,
    states: Vec<TsigKeyState>,
}

impl TsigSecrets {
    /// The keys of `config`, whose secrets the supervisor has passed on. A key whose file cannot be used keeps its last
    /// good secret; without one, it is unknown to clients.
    ///
    /// # Errors
    /// Returns an error if the secrets belong to another configuration, or are malformed.
    pub(crate) fn load(
        &mut self,
        config: &Config,
        secrets: Option<OwnedFd>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> io::Result<TsigKeys> {
        let secrets = secrets.map_or(Ok(Vec::new()), tsig_secrets_from_memfd)?;
        if secrets.len() != config.tsig_keys.len() {
            return Err(io::Error::other("the TSIG secrets belong to another configuration"));
        }
        let mut loaded = Vec::with_capacity(secrets.len());
        self.states.clear();
        for (file, secret) in config.tsig_keys.iter().zip(secrets) {
            let last_good = self.last_good.iter().find(|(name, _)| *name == file.name).map(|(_, key)| key.clone());
            let (key, secret) = match secret {
                Ok(secret) => (Some(key_of(file, &secret)), SecretInService::Current),
                Err(problem) => {
                    let (effect, secret) = match last_good {
                        Some(_) => (
                            "its last good secret stays in service",
                            SecretInService::LastGood { problem: problem.clone() },
                        ),
                        None => {
                            ("queries signed with it are refused", SecretInService::None { problem: problem.clone() })
                        }
                    };
                    let place = Location::Argument(format!("key {}", file.name));
                    diagnostics.push(Diagnostic::error(place, Problem::new(format!("{problem}; {effect}"), "")));
                    (last_good, secret)
                }
            };
            self.states.push(TsigKeyState { name: file.name.to_string(), secret });
            loaded.extend(key.map(|key| (file.name.clone(), key)));
        }
        self.last_good = loaded;
        Ok(self.last_good.iter().map(|(_, key)| key.clone()).collect())
    }

    /// Each key's state, in the order of the configuration.
    pub(crate) fn states(&self) -> &[TsigKeyState] {
        &self.states
    }
}

fn key_of(file: &TsigKeyFile, secret: &[u8]) -> TsigKey {
    let algorithm = match file.algorithm {
        Algorithm::HmacSha256 => TsigAlgorithm::HmacSha256,
        Algorithm::HmacSha384 => TsigAlgorithm::HmacSha384,
        Algorithm::HmacSha512 => TsigAlgorithm::HmacSha512,
    };
    TsigKey::new(wire_name(&file.name).as_name(), algorithm, secret)
}

/// The zones that each client may transfer; `outgoing` has the transfers of the process.
pub(crate) fn transfer_policy(config: &Config, outgoing: &Arc<OutgoingTransfers>) -> Arc<TransferPolicy> {
    let rules = |transfers: &ZoneTransfers| {
        let rule = |rule: sanderling_config::TransferRule| TransferRule {
            network: rule.network.map(|(address, prefix_bits)| IpNetwork::new(address, prefix_bits)),
            key: rule.key.as_ref().map(wire_name),
        };
        transfers.rules().map(rule).collect::<Vec<_>>()
    };
    let zones = config.zone_transfers.iter().map(|(apex, own)| (wire_name(apex), rules(own)));
    Arc::new(TransferPolicy::new(rules(&config.transfers), zones, Arc::clone(outgoing)))
}

/// Logs the transfers that no rule allows, once a minute for each client and zone.
pub(crate) fn log_refused(refused: &[RefusedTransfer], log: &mut LimitedLog) {
    let text = |name: &NameBuf| name.as_name().to_string().trim_end_matches('.').to_owned();
    for RefusedTransfer { apex, client, key } in refused {
        let apex = text(apex);
        let key = key.as_ref().map_or("without a key".to_owned(), |key| format!("with the key {}", text(key)));
        let message = format!(
            "zone {apex}: a transfer to {client} {key} gets REFUSED: no rule in `transfer_allow` or `secondaries` allows it"
        );
        log.warning(&format!("{apex} {client}"), &message);
    }
}

/// The primaries that may send NOTIFY for each zone; `None` if no zone has primaries.
pub(crate) fn notify_policy(config: &Config, inbox: &Arc<NotifyInbox>) -> Option<Arc<NotifyPolicy>> {
    let rule = |primary: &Primary| {
        let address = primary.address.ip();
        let prefix_bits = if address.is_ipv4() { 32 } else { 128 };
        TransferRule { network: Some(IpNetwork::new(address, prefix_bits)), key: primary.key.as_ref().map(wire_name) }
    };
    let rules = |zone: &SecondaryZone| zone.primaries.iter().map(rule).collect();
    let catalogs: Vec<SecondaryZone> = config.catalogs.iter().filter_map(Catalog::secondary_zone).collect();
    let zones = config.secondary_zones.iter().chain(&catalogs).map(|zone| (wire_name(&zone.apex), rules(zone)));
    let members = config.catalogs.iter().flat_map(Catalog::member_primaries).map(rule).collect();
    let has_primaries = !config.secondary_zones.is_empty() || !catalogs.is_empty();
    has_primaries.then(|| Arc::new(NotifyPolicy::new(zones, members, Arc::clone(inbox))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_ipc::secrets::{TsigSecret, tsig_secrets_to_memfd};

    #[test]
    fn broken_key_keeps_its_last_good_secret() {
        let key = |name: &str| TsigKeyFile {
            name: DomainName::parse(name).unwrap(),
            algorithm: Algorithm::HmacSha256,
            path: "key".into(),
            location: Location::Argument("test".to_owned()).into(),
        };
        let config = Config { tsig_keys: vec![key("a"), key("b")], ..Config::default() };
        let secret = || -> TsigSecret { Ok(b"secret".to_vec().into()) };
        let broken = || -> TsigSecret { Err("no such file".to_owned()) };
        let mut secrets = TsigSecrets::default();
        let problem = "no such file".to_owned();
        let current = || SecretInService::Current;
        let last_good = || SecretInService::LastGood { problem: problem.clone() };
        let none = SecretInService::None { problem: problem.clone() };
        for (passed_on, key_count, error_count, states) in [
            ([secret(), broken()], 1, 1, [current(), none]),
            ([broken(), secret()], 2, 1, [last_good(), current()]),
            ([broken(), broken()], 2, 2, [last_good(), last_good()]),
        ] {
            let file = tsig_secrets_to_memfd(&passed_on).unwrap();
            let mut diagnostics = Vec::new();
            let keys = secrets.load(&config, Some(file), &mut diagnostics).expect("loaded");
            assert_eq!((keys.len(), diagnostics.len()), (key_count, error_count));
            let found: Vec<_> = secrets.states().iter().map(|key| key.secret.clone()).collect();
            assert_eq!(found, states);
        }
        assert!(secrets.load(&config, None, &mut Vec::new()).is_err(), "those of another configuration");
        assert_eq!(secrets.load(&Config::default(), None, &mut Vec::new()).expect("no keys").len(), 0);
    }
}
