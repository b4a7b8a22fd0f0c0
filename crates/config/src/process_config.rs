//! The part of the configuration that each process reads, which decides the processes that a reload replaces.

use crate::config::Config;
use crate::keys::{Key, Section, all_keys};
use crate::limits::Process;
use std::ops::Deref;

/// The part of the configuration that the agent reads. The agent does not get other fields: they are as in
/// [`Config::default`]. So fields that are not compared have no effect on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig(Config);

/// The part of the configuration that the keeper reads; as with [`AgentConfig`], it does not get other fields.
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
    /// The reason why a server process that runs with `running` cannot apply this configuration and a new process is
    /// needed; `None` if it can.
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
    use crate::keys::Value;
    use crate::limits::{self, LIMITS};
    use sanderling_testkit::{KeyChange, key_changes};

    const PROCESSES: [&str; 3] = ["server", "agent", "keeper"];

    fn config(text: &str) -> Config {
        let parsed = ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes());
        parsed.unwrap_or_else(|problems| {
            let problems: Vec<_> = problems.iter().map(Diagnostic::to_string).collect();
            panic!("{problems:#?}");
        })
    }

    /// Whether a reload of `after` replaces each of `PROCESSES`.
    fn replaced(before: &Config, after: &Config) -> [bool; 3] {
        [
            after.needs_new_process(before).is_some(),
            AgentConfig::from(before) != AgentConfig::from(after),
            KeeperConfig::from(before) != KeeperConfig::from(after),
        ]
    }

    /// Whether the row of `key` affects each of `PROCESSES`.
    fn effects(key: &Key) -> [bool; 3] {
        [key.server.is_some(), key.agent.is_some(), key.keeper.is_some()]
    }

    /// The keys whose values are tables of `section`.
    fn keys_with(section: Section) -> &'static [(Section, &'static str)] {
        match section {
            Section::Authority => &[(Section::Certificates, "authorities")],
            Section::ExternalAccount => &[(Section::Certificates, "authorities")],
            Section::Certificate => &[(Section::Domain, "certificate")],
            Section::Dnssec => &[(Section::Domain, "dnssec")],
            Section::MtaSts => &[(Section::Domain, "mta_sts")],
            Section::UpdateRule => &[(Section::Domain, "update")],
            Section::Primary => &[(Section::Domain, "primaries"), (Section::Catalog, "primaries")],
            Section::Secondary => &[(Section::Domain, "secondaries"), (Section::Catalog, "secondaries")],
            Section::Route => &[(Section::Domain, "route")],
            Section::RouteServer => &[(Section::Domain, "route")],
            Section::Transfer => &[(Section::Domain, "transfer_allow")],
            _ => &[],
        }
    }

    /// Whether a change of `key` may replace each of `PROCESSES`, according to the rows of the key, of the keys that
    /// contain it, and of the keys that it contains.
    fn allowed(section: Section, key: &Key) -> [bool; 3] {
        let above = keys_with(section).iter().filter_map(|(section, name)| section.key(name));
        let is_below = |section: Section| {
            matches!(key.value, Value::Section) && format!("{section:?}").eq_ignore_ascii_case(key.name)
        };
        let below = all_keys().filter(|(section, _)| is_below(*section)).map(|(_, key)| key);
        let rows = std::iter::once(key).chain(above).chain(below).map(effects);
        rows.fold([false; 3], |all, one| std::array::from_fn(|index| all[index] || one[index]))
    }

    /// The name of a key of `changes`.
    fn name(section: Section, key: &str) -> String {
        format!("{section:?} {key}")
    }

    /// What a reload replaces for each change, and for its opposite. Errors of the table are added to `wrong`.
    fn found(wrong: &mut Vec<String>) -> Vec<(String, [[bool; 3]; 2])> {
        let mut names: Vec<_> = all_keys().map(|(section, key)| name(section, key.name)).collect();
        names.extend(limits::keys().into_iter().map(|key| name(Section::Limits, key)));
        let of_change = |change: &KeyChange| {
            let name = format!("{} {}", change.section, change.key);
            let (before, after) = (config(change.before), config(&change.after));
            let found = [replaced(&before, &after), replaced(&after, &before)];
            if !names.contains(&name) {
                wrong.push(format!("{name}: no such key"));
            }
            if found[0] != PROCESSES.map(|process| change.replaced.split(' ').any(|name| name == process)) {
                wrong.push(format!("{name}: {:?} instead of {:?}: {}", found[0], change.replaced, change.new));
            }
            (name, found)
        };
        key_changes().iter().map(of_change).collect()
    }

    #[test]
    fn each_key_replaces_the_processes_of_its_row() {
        let mut wrong = Vec::new();
        let found = found(&mut wrong);
        for (section, key) in all_keys() {
            let (name, effects, allowed) = (name(section, key.name), effects(key), allowed(section, key));
            let changes: Vec<_> = found.iter().filter(|(other, _)| *other == name).map(|(_, found)| found).collect();
            // The keys of a section are its changes.
            if changes.is_empty() && !(matches!(key.value, Value::Section) && effects == [false; 3]) {
                wrong.push(format!("{name}: no change"));
            }
            for (index, process) in PROCESSES.iter().enumerate() {
                if effects[index] && !changes.iter().any(|found| found[0][index]) {
                    wrong.push(format!("{name}: no change replaces the {process}"));
                }
                if !allowed[index] && changes.iter().any(|[there, back]| there[index] || back[index]) {
                    wrong.push(format!("{name}: the row of the key does not say that it replaces the {process}"));
                }
            }
        }
        let replaced = |index: usize| found.iter().filter(|(_, found)| found[0][index]).count();
        let counts: [_; 3] = std::array::from_fn(replaced);
        println!("{} changes of {} keys replace {PROCESSES:?} {counts:?} times", found.len(), all_keys().count());
        assert!(wrong.is_empty(), "crates/testkit/src/key_changes: {wrong:#?}");
    }

    #[test]
    fn each_limit_replaces_the_processes_that_apply_it() {
        let before = Config::default();
        for limit in LIMITS {
            for value in [limit.min, limit.max].into_iter().filter(|value| *value != limit.default) {
                let mut next = before.clone();
                limit.set(&mut next.limits, value);
                let applied_by = |process| limit.applied_by.contains(&process);
                let expected = [true, applied_by(Process::Agent), applied_by(Process::Keeper)];
                assert_eq!([replaced(&before, &next), replaced(&next, &before)], [expected; 2], "{}", limit.key);
            }
        }
    }

    #[test]
    fn text_without_a_meaning_replaces_nothing() {
        let changes = key_changes();
        let text = changes[0].before;
        let other = text.replace("\n[", "\n\n# Ours.\n\n[").replace(" = ", "   =  ");
        assert_eq!(replaced(&config(text), &config(&other)), [false; 3]);
        for KeyChange { after, .. } in &changes {
            let config = config(after);
            let of_parts = (
                Config::from(AgentConfig::from(&config)).needs_agent(),
                !KeeperConfig::from(&config).signed_zones.is_empty(),
            );
            assert_eq!((config.needs_agent(), !config.signed_zones.is_empty()), of_parts, "{after}");
            assert_eq!(replaced(&config, &config), [false; 3], "{after}");
        }
    }

    #[test]
    fn agent_is_needed_for_what_it_does() {
        let site = "[domain.\"a.test\"]\nsite = \"a\"\n";
        for (text, expected) in [
            (site.to_owned(), false),
            (format!("[certificates]\nagree_to_terms = true\n{site}"), true),
            (format!("[certificates]\nagree_to_terms = true\n{site}certificate = \"none\"\n"), false),
            ("[domain.\"a.test\"]\nzone = \"a.zone\"\nsecondaries = [{ address = \"192.0.2.1\" }]\n".to_owned(), true),
        ] {
            assert_eq!(config(&text).needs_agent(), expected, "{text}");
        }
    }
}
