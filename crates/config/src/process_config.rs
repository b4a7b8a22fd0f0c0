//! The part of the configuration that each process reads, which decides the processes that a reload replaces.

use crate::config::Config;
use crate::keys::{Key, Section, all_keys};
use crate::limits::Process;
use std::ops::Deref;

/// The part of the configuration that the agent reads. The agent has nothing else of it: the rest is as in
/// [`Config::default`]. So fields that are not compared have no effect on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig(Config);

/// The part of the configuration that the keeper reads, which has nothing else of it, as with [`AgentConfig`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperConfig(Config);

impl From<&Config> for AgentConfig {
    fn from(config: &Config) -> AgentConfig {
        let mut part = Config { limits: config.limits.of(Process::Agent), ..Config::default() };
        all_keys().filter_map(|(_, key)| key.agent).for_each(|give| give(config, &mut part));
        AgentConfig(part)
    }
}

impl From<&Config> for KeeperConfig {
    fn from(config: &Config) -> KeeperConfig {
        let mut part = Config { limits: config.limits.of(Process::Keeper), ..Config::default() };
        all_keys().filter_map(|(_, key)| key.keeper).for_each(|give| give(config, &mut part));
        KeeperConfig(part)
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
    /// `None` if it can.
    pub fn needs_new_process(&self, running: &Config) -> Option<String> {
        let of_key = |(section, key): (Section, &Key)| key.reason_for_new_process(section, self, running);
        all_keys().find_map(of_key).or_else(|| {
            let limits = self.limits.changed_keys(&running.limits);
            let verb = if limits.len() == 1 { "has" } else { "have" };
            (!limits.is_empty()).then(|| format!("`{}` {verb} changed", limits.join("`, `")))
        })
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
            // The part that only the server process applies, in place.
            ("site = \"c\"", "site = \"other\"", ""),
            ("site = \"c\"", "site = \"c\"\nindex = [\"a.html\"]", ""),
            ("types = [\"A\"]", "types = [\"AAAA\"]", ""),
            ("zone = \"c.zone\"", "zone = \"other.zone\"", ""),
            ("control = \"c.sock\"", "control = \"other.sock\"", ""),
            ("[dns]", "[dns]\nnsid = \"a\"", ""),
            ("[tsig", "[log]\naccess = \"access.log\"\n[tsig", ""),
            // The part with which the server process is started.
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
            // The part that the agent applies.
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
            // The part that the keeper also needs.
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
