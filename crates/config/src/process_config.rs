//! What each process reads of the configuration, which decides the processes that a reload replaces.

use crate::config::{CertificateFiles, Config};
use crate::domain_name::DomainName;
use crate::limits::Limits;
use crate::service::Service;
use crate::signing::{SignedZone, Signing};
use crate::site::{Site, SiteOptions};
use crate::zones::Zone;
use std::collections::HashSet;
use std::ops::Deref;
use std::path::PathBuf;

/// The part of the configuration that the agent reads. The agent has nothing else of it: the rest is as in
/// [`Config::default`]. So what is not compared has no effect on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig(Config);

/// The part of the configuration that the keeper reads, which has nothing else of it, as with [`AgentConfig`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperConfig(Config);

impl From<&Config> for AgentConfig {
    fn from(config: &Config) -> AgentConfig {
        let signed: HashSet<&DomainName> = config.signed_zones.iter().map(|zone| &zone.apex).collect();
        // At which names an authority finds a token.
        let site = |site: &Site| Site {
            hosts: site.hosts.clone(),
            document_root: PathBuf::new(),
            location: site.location.clone(),
            options: SiteOptions::default(),
        };
        let zone = |zone: &Zone| {
            // The server process reads the others.
            let file = if signed.contains(&zone.apex) { zone.file.clone() } else { PathBuf::new() };
            Zone { file, ..zone.clone() }
        };
        // The supervisor runs the command.
        let certificate = |files: &CertificateFiles| CertificateFiles { on_renew: Vec::new(), ..files.clone() };
        AgentConfig(Config {
            user_and_group: config.user_and_group.clone(),
            sandbox: config.sandbox,
            state: config.state.clone(),
            http_listen: config.http_listen.clone(),
            https_listen: config.https_listen.clone(),
            dns_listen: config.dns_listen.clone(),
            sites: config.sites.iter().map(site).collect(),
            zones: config.zones.iter().map(zone).collect(),
            secondary_zones: config.secondary_zones.clone(),
            signed_zones: config.signed_zones.clone(),
            catalogs: config.catalogs.clone(),
            zone_folder: config.zone_folder.clone(),
            tsig_keys: config.tsig_keys.clone(),
            transfers: config.transfers.clone(),
            zone_transfers: config.zone_transfers.clone(),
            // The server process checks the rules.
            zone_updates: config.zone_updates.iter().map(|(apex, _)| (apex.clone(), Vec::new())).collect(),
            certificates: config.automatic_certificates().map(certificate).collect(),
            acme: config.acme.clone(),
            derived: config.derived.clone(),
            resolvers: config.resolvers.clone(),
            has_no_resolvers: config.has_no_resolvers,
            limits: agent_limits(&config.limits),
            ..Config::default()
        })
    }
}

/// The limits that the agent applies.
fn agent_limits(limits: &Limits) -> Limits {
    Limits {
        alias_kept_ms: limits.alias_kept_ms,
        alias_targets_max: limits.alias_targets_max,
        alias_ttl_s_max: limits.alias_ttl_s_max,
        alias_ttl_s_min: limits.alias_ttl_s_min,
        authority_timeout_ms: limits.authority_timeout_ms,
        catalog_members_max: limits.catalog_members_max,
        derived_record_ttl_s: limits.derived_record_ttl_s,
        kept_zones_bytes_max: limits.kept_zones_bytes_max,
        log_queue_bytes_max: limits.log_queue_bytes_max,
        name_servers_timeout_ms: limits.name_servers_timeout_ms,
        renewal_interval_ms: limits.renewal_interval_ms,
        tls_handshake_timeout_ms: limits.tls_handshake_timeout_ms,
        transferred_zone_bytes_max: limits.transferred_zone_bytes_max,
        zone_file_bytes_max: limits.zone_file_bytes_max,
        zone_include_depth_max: limits.zone_include_depth_max,
        zone_journal_bytes_max: limits.zone_journal_bytes_max,
        zone_journals_bytes_max: limits.zone_journals_bytes_max,
        zone_records_per_rrset_max: limits.zone_records_per_rrset_max,
        zone_signings_max: limits.zone_signings_max,
        zone_transfer_in_changes_bytes_max: limits.zone_transfer_in_changes_bytes_max,
        zone_transfer_in_empty_messages_max: limits.zone_transfer_in_empty_messages_max,
        zone_transfer_in_idle_timeout_ms: limits.zone_transfer_in_idle_timeout_ms,
        zone_transfer_in_timeout_ms: limits.zone_transfer_in_timeout_ms,
        zone_transfers_in_max: limits.zone_transfers_in_max,
        zone_updates_bytes_max: limits.zone_updates_bytes_max,
        ..Limits::default()
    }
}

impl From<&Config> for KeeperConfig {
    fn from(config: &Config) -> KeeperConfig {
        // It gets the keys of certificates from the supervisor, and reads those of zones.
        let zone = |zone: &SignedZone| SignedZone {
            signing: Signing { other_signers: zone.signing.other_signers.clone(), ..Signing::default() },
            ..zone.clone()
        };
        KeeperConfig(Config {
            user_and_group: config.user_and_group.clone(),
            sandbox: config.sandbox,
            state: config.state.clone(),
            signed_zones: config.signed_zones.iter().map(zone).collect(),
            limits: Limits { log_queue_bytes_max: config.limits.log_queue_bytes_max, ..Limits::default() },
            ..Config::default()
        })
    }
}

impl From<AgentConfig> for Config {
    fn from(config: AgentConfig) -> Config {
        config.0
    }
}

impl Deref for KeeperConfig {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.0
    }
}

impl Config {
    /// Why a server process that runs with `running` cannot apply this configuration and a new process is needed;
    /// `None` if it can. A new field of the configuration does not compile before it is here.
    pub fn needs_new_process(&self, running: &Config) -> Option<String> {
        let Config {
            files: _,
            worker_count,
            sockets_per_address,
            user_and_group,
            sandbox,
            keys,
            control: _,
            control_location: _,
            state,
            state_location: _,
            http_listen,
            http2,
            https_listen,
            dns_listen,
            dot_listen,
            // Applied in place, but for what is asked of `users_directories` and the like below.
            sites: _,
            default_site: _,
            zones: _,
            secondary_zones: _,
            signed_zones,
            catalogs: _,
            zone_folder: _,
            tsig_keys: _,
            transfers: _,
            zone_transfers: _,
            zone_updates: _,
            certificates: _,
            acme: _,
            derived: _,
            refuses_unknown_names: _,
            has_self_signed_certificate: _,
            replies: _,
            resolvers: _,
            has_no_resolvers: _,
            dns_rate_limit: _,
            http_rate_limit: _,
            trusted_proxies: _,
            access_log: _,
            query_log: _,
            dnstap: _,
            metrics,
            limits,
        } = self;
        let changes = [
            (*http_listen != running.http_listen, "`listen` in [http] has changed"),
            (*http2 != running.http2, "`http2` in [http] has changed"),
            (*https_listen != running.https_listen, "`listen` in [https] has changed"),
            (*dns_listen != running.dns_listen, "`listen` in [dns] has changed"),
            (*dot_listen != running.dot_listen, "`tls` in [dns] has changed"),
            (metrics.is_some() != running.metrics.is_some(), "[metrics] was added or removed"),
            (self.listen(Service::Metrics) != running.listen(Service::Metrics), "`listen` in [metrics] has changed"),
            (*worker_count != running.worker_count, "`workers` has changed"),
            (*sockets_per_address != running.sockets_per_address, "`listeners` has changed"),
            (*user_and_group != running.user_and_group, "`user` or `group` has changed"),
            (*sandbox != running.sandbox, "`sandbox` has changed"),
            (*keys != running.keys, "`keys` has changed"),
            // The sandbox does not allow the folder with transferred zones.
            (
                self.has_transferred_zones() && !running.has_transferred_zones(),
                "`primaries` or the first [catalog] was added",
            ),
            (self.uses_state_folder() && *state != running.state, "`state` has changed"),
            (!signed_zones.is_empty() && running.signed_zones.is_empty(), "`dnssec` was added"),
            // The running one was started without the state folder.
            (
                self.has_stored_zones() && !running.has_stored_zones(),
                "`update`, `secondaries` or `resolvers` was added",
            ),
            // The sandbox does not allow the running one to protect its memory.
            (
                self.has_secrets() && !running.has_secrets(),
                "`certificate`, `cookie_secret_file`, `users_file` or [tsig] was added",
            ),
            (
                self.users_directories().any(|directory| running.users_directories().all(|known| known != directory)),
                "a `users_file` is in another directory",
            ),
        ];
        if let Some((_, reason)) = changes.into_iter().find(|(has_changed, _)| *has_changed) {
            return Some(reason.to_owned());
        }
        let limits = limits.changed_keys(&running.limits);
        let verb = if limits.len() == 1 { "has" } else { "have" };
        (!limits.is_empty()).then(|| format!("`{}` {verb} changed", limits.join("`, `")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConfigSource;
    use crate::diagnostic::Diagnostic;
    use std::fs;
    use tempfile::TempDir;

    const BASE: &str = r#"
control = "c.sock"
state = "state"
[http]
listen = ["192.0.2.1:80"]
[https]
listen = ["192.0.2.1:443"]
[dns]
listen = ["192.0.2.1:53"]
[certificates]
agree_to_terms = true
[tsig."k"]
secret_file = "k.key"
[domain."a.test"]
zone = "a.zone"
dnssec = true
update = [{ key = "k", names = ["**"], types = ["A"] }]
[domain."b.test"]
zone = "b.zone"
dnssec = true
[domain."c.test"]
zone = "c.zone"
site = "c"
derive = ["addresses"]
"#;

    fn config(directory: &TempDir, text: &str) -> Config {
        let source = ConfigSource::File(directory.path().join("sanderling.toml"));
        let errors = |diagnostics: Vec<Diagnostic>| diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>();
        source.parse(text.as_bytes()).unwrap_or_else(|diagnostics| panic!("{:#?}\n{text}", errors(diagnostics)))
    }

    fn directory() -> TempDir {
        let directory = tempfile::tempdir().expect("created");
        for site in ["a", "c", "other"] {
            fs::create_dir(directory.path().join(site)).expect("created");
        }
        for file in ["a.zone", "b.zone", "c.zone", "d.zone", "e.zone", "other.zone", "k.key", "other.key"] {
            fs::write(directory.path().join(file), "").expect("written");
        }
        directory
    }

    /// The processes that a reload of `after` replaces.
    fn replaced(before: &Config, after: &Config) -> String {
        let is_replaced = [
            ("server", after.needs_new_process(before).is_some()),
            ("agent", AgentConfig::from(before) != AgentConfig::from(after)),
            ("keeper", KeeperConfig::from(before) != KeeperConfig::from(after)),
        ];
        is_replaced
            .into_iter()
            .filter_map(|(name, is_replaced)| is_replaced.then_some(name))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn each_change_replaces_the_processes_that_it_concerns() {
        let directory = directory();
        let before = config(&directory, BASE);
        for (old, new, expected) in [
            // Lines without a meaning.
            ("[domain.\"a.test\"]", "\n# It is ours.\n\n[domain.\"a.test\"]", ""),
            ("dnssec = true\nupdate", "\n\n   dnssec   = true\nupdate", ""),
            ("[tsig.\"k\"]", "\n[tsig.\"k\"]", ""),
            // What the server process alone applies, in place.
            ("site = \"c\"", "site = \"other\"", ""),
            ("site = \"c\"", "site = \"c\"\nindex = [\"a.html\"]", ""),
            ("types = [\"A\"]", "types = [\"AAAA\"]", ""),
            ("zone = \"c.zone\"", "zone = \"other.zone\"", ""),
            ("control = \"c.sock\"", "control = \"other.sock\"", ""),
            ("[dns]", "[dns]\nnsid = \"a\"", ""),
            ("[tsig", "[log]\naccess = \"access.log\"\n[tsig", ""),
            // What the server process is started with.
            ("control", "workers = 3\ncontrol", "server"),
            ("control", "listeners = 9\ncontrol", "server"),
            ("control", "keys = \"in-process\"\ncontrol", "server"),
            ("192.0.2.1:80", "192.0.2.2:80", "server agent"),
            ("192.0.2.1:443", "192.0.2.2:443", "server agent"),
            ("192.0.2.1:53", "192.0.2.2:53", "server agent"),
            ("[tsig", "[limits]\nhttp_idle_timeout = \"9s\"\n[tsig", "server"),
            ("[tsig", "[limits]\nagent_hang_timeout = \"99s\"\n[tsig", "server"),
            ("[tsig", "[limits]\nrenewal_interval = \"9s\"\n[tsig", "server agent"),
            ("[tsig", "[limits]\nlog_queue_max = \"2MiB\"\n[tsig", "server agent keeper"),
            ("control", "user = \"nobody\"\ncontrol", "server agent keeper"),
            ("control", "sandbox = false\ncontrol", "server agent keeper"),
            ("state = \"state\"", "state = \"other\"", "server agent keeper"),
            // What the agent applies.
            (
                "zone = \"b.zone\"",
                "zone = \"b.zone\"\nupdate = [{ key = \"k\", names = [\"**\"], types = [\"A\"] }]",
                "agent",
            ),
            ("zone = \"b.zone\"", "zone = \"other.zone\"", "agent"),
            ("zone = \"b.zone\"", "zone = \"b.zone\"\nsecondaries = [{ address = \"192.0.2.9\" }]", "agent"),
            ("site = \"c\"", "site = \"c\"\naliases = [\"www.c.test\"]", "agent"),
            ("derive = [\"addresses\"]", "derive = [\"caa\"]", "agent"),
            ("agree_to_terms = true", "agree_to_terms = true\nauthorities = [\"letsencrypt-staging\"]", "agent"),
            ("secret_file = \"k.key\"", "secret_file = \"other.key\"", "agent"),
            ("[domain.\"c.test\"]", "[domain.\"d.test\"]\nzone = \"d.zone\"\n[domain.\"c.test\"]", "agent"),
            // What the keeper has to know as well.
            ("zone = \"c.zone\"", "zone = \"c.zone\"\ndnssec = true", "agent keeper"),
            ("zone = \"b.zone\"\ndnssec = true", "zone = \"b.zone\"\ndnssec = false", "agent keeper"),
        ] {
            assert!(BASE.contains(old), "{old}");
            let after = config(&directory, &BASE.replacen(old, new, 1));
            assert_eq!(replaced(&before, &after), expected, "{old} -> {new}");
            let is_needed = |config: &Config| (config.needs_agent(), config.has_keeper());
            let of_parts = |config: &Config| {
                (
                    Config::from(AgentConfig::from(config)).needs_agent(),
                    !KeeperConfig::from(config).signed_zones.is_empty(),
                )
            };
            assert_eq!((is_needed(&after), replaced(&after, &after)), (of_parts(&after), String::new()), "{new}");
        }
    }

    #[test]
    fn agent_is_needed_for_what_it_does() {
        let directory = directory();
        let site = "[domain.\"a.test\"]\nsite = \"a\"\n";
        for (text, expected) in [
            (site.to_owned(), false),
            (format!("[certificates]\nagree_to_terms = true\n{site}"), true),
            (format!("[certificates]\nagree_to_terms = true\n{site}certificate = \"none\"\n"), false),
            ("[domain.\"a.test\"]\nzone = \"a.zone\"\nsecondaries = [{ address = \"192.0.2.1\" }]\n".to_owned(), true),
        ] {
            assert_eq!(config(&directory, &text).needs_agent(), expected, "{text}");
        }
    }
}
