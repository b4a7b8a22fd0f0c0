//! The addresses of the targets of `ALIAS`: asks the resolvers for them at intervals.

use crate::alias_names::AliasNames;
use crate::clock::unix_s;
use crate::resolvers::{Records, Resolvers};
use sanderling_config::log::{log, log_warning};
use sanderling_config::{DerivedKind, DomainName, Limits};
use sanderling_dns::Rtype;
use sanderling_ipc::agent::AliasReport;
use sanderling_ipc::derived::{DerivedRecord, DerivedSet};
use sanderling_zone_files::wire_name;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use tokio::task::JoinSet;

/// Targets that are queried concurrently.
const ASKING_MAX: usize = 32;
/// Seconds until resolvers that have not answered are asked again.
const RETRY_INTERVAL_S: u64 = 10;
/// Seconds for which the absence of addresses is cached, if the answer has no TTL.
const NO_ADDRESS_TTL_S: u32 = 300;
/// Number of successive answers with a lower TTL until that TTL is used.
const LOWER_TTL_COUNT: u8 = 3;
/// Addresses of one type that are used: the first ones in their order.
const ADDRESSES_MAX: usize = 64;

/// The targets of all zones.
pub(crate) struct AliasTargets {
    names: Rc<AliasNames>,
    resolvers: Rc<Resolvers>,
    limits: Limits,
    /// Targets whose addresses are asked for, by their names in lower case.
    targets: BTreeMap<String, Target>,
    /// The addresses that were stored when the agent was started, for targets that are not known yet.
    stored: BTreeMap<String, [Addresses; 2]>,
    asking: JoinSet<(String, Answer)>,
}

/// The records A and AAAA, or why they are not known.
type Answer = Result<[Records; 2], String>;

struct Target {
    /// IPv4 and IPv6.
    addresses: [Addresses; 2],
    /// The time of the last answer from resolvers, or of the agent's start.
    answered_at_unix_s: u64,
    next_at_unix_s: u64,
    is_asked: bool,
    problem: Option<String>,
}

/// The addresses of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Addresses {
    /// Sorted.
    list: Vec<IpAddr>,
    ttl_s: u32,
    /// The answers since then with a lower TTL: their number, and the highest TTL that they had.
    lower: (u8, u32),
}

impl Addresses {
    /// Takes over an answer. A resolver answers from its cache with the rest of the TTL, so a lower one counts only
    /// after some.
    fn update(&mut self, list: Vec<IpAddr>, ttl_s: u32) {
        let lower = (self.lower.0 + 1, self.lower.1.max(ttl_s));
        if list != self.list {
            *self = Addresses { list, ttl_s, lower: (0, 0) };
        } else if ttl_s >= self.ttl_s {
            (self.ttl_s, self.lower) = (ttl_s, (0, 0));
        } else if lower.0 >= LOWER_TTL_COUNT {
            (self.ttl_s, self.lower) = (lower.1, (0, 0));
        } else {
            self.lower = lower;
        }
    }

    /// The served form.
    fn served(&self) -> (&[IpAddr], u32) {
        (&self.list, self.ttl_s)
    }
}

impl AliasTargets {
    /// For the zones of `names`. Until resolvers have answered, the addresses come from `derived`.
    pub(crate) fn new(
        names: Rc<AliasNames>,
        resolvers: Rc<Resolvers>,
        limits: Limits,
        derived: &DerivedSet,
    ) -> AliasTargets {
        let mut stored: BTreeMap<String, [Addresses; 2]> = BTreeMap::new();
        let records = derived.zones.values().flat_map(|zone| &zone.records);
        for record in records.filter(|record| record.kind == DerivedKind::Alias) {
            let Ok(address) = record.data.parse::<IpAddr>() else { continue };
            let of_type = &mut stored.entry(record.owner.clone()).or_default()[usize::from(address.is_ipv6())];
            of_type.ttl_s = record.ttl_s;
            if let Err(at) = of_type.list.binary_search(&address) {
                of_type.list.insert(at, address);
            }
        }
        AliasTargets { names, resolvers, limits, targets: BTreeMap::new(), stored, asking: JoinSet::new() }
    }

    /// Takes over the targets that zones have now.
    pub(crate) fn update_names(&mut self) {
        let names = self.names.state();
        let wanted: BTreeSet<&String> = names.zones().flat_map(|(_, targets)| targets).collect();
        if wanted.len() > self.limits.alias_targets_max {
            log_warning(&format!(
                "the zones have {} ALIAS targets; those beyond {} (`alias_targets_max`) have no addresses",
                wanted.len(),
                self.limits.alias_targets_max
            ));
        }
        let wanted: BTreeSet<&String> = wanted.into_iter().take(self.limits.alias_targets_max).collect();
        self.targets.retain(|name, _| wanted.contains(name));
        let now_unix_s = unix_s();
        for name in wanted {
            if !self.targets.contains_key(name) {
                let target = Target {
                    addresses: self.stored.remove(name).unwrap_or_default(),
                    answered_at_unix_s: now_unix_s,
                    next_at_unix_s: now_unix_s,
                    is_asked: false,
                    problem: Some("no resolver has answered yet".to_owned()),
                };
                self.targets.insert(name.clone(), target);
            }
        }
    }

    /// The clock was set: all targets are queried again.
    pub(crate) fn on_clock_set_back(&mut self) {
        let now_unix_s = unix_s();
        for target in self.targets.values_mut() {
            target.next_at_unix_s = now_unix_s;
            target.answered_at_unix_s = target.answered_at_unix_s.min(now_unix_s);
        }
    }

    /// When to call [`AliasTargets::start_due`] again.
    pub(crate) fn next_at(&self) -> Option<u64> {
        let has_room = self.asking.len() < ASKING_MAX;
        let waiting = self.targets.values().filter(|target| has_room && !target.is_asked);
        waiting.map(|target| target.next_at_unix_s).min()
    }

    /// Begins to ask for the targets that are due. Call this in a [`tokio::task::LocalSet`].
    pub(crate) fn start_due(&mut self) {
        let now_unix_s = unix_s();
        for (name, target) in &mut self.targets {
            if self.asking.len() >= ASKING_MAX {
                return;
            }
            if target.is_asked || target.next_at_unix_s > now_unix_s {
                continue;
            }
            target.is_asked = true;
            let (name, resolvers) = (name.clone(), Rc::clone(&self.resolvers));
            self.asking.spawn_local(async move {
                let answer = ask(&resolvers, &name).await;
                (name, answer)
            });
        }
    }

    /// Waits for the next answer; `None` if no query is pending.
    pub(crate) async fn answered(&mut self) -> Option<(String, Answer)> {
        let answered = self.asking.join_next().await?;
        Some(answered.expect("a task that panics ends the agent, which is restarted"))
    }

    /// Takes over an answer.
    pub(crate) fn on_answer(&mut self, name: &str, answer: Answer) {
        let Some(target) = self.targets.get_mut(name) else { return };
        target.is_asked = false;
        target.on_answer(name, answer, unix_s(), &self.limits);
    }

    /// The records for the names of `zone`; `None` if its targets are unknown.
    pub(crate) fn records(&self, zone: &DomainName, is_signed: bool) -> Option<Vec<DerivedRecord>> {
        let names = self.names.state();
        let targets = names.of(zone, is_signed)?.iter().filter_map(|name| Some((name, self.targets.get(name)?)));
        let records = targets.flat_map(|(name, target)| {
            let of_types = target.addresses.iter().map(Addresses::served);
            let addresses = of_types.flat_map(|(list, ttl_s)| list.iter().map(move |address| (address, ttl_s)));
            addresses.map(|(address, ttl_s)| DerivedRecord {
                kind: DerivedKind::Alias,
                owner: name.clone(),
                ttl_s,
                data: address.to_string(),
            })
        });
        Some(records.collect())
    }

    /// The zones that have targets.
    pub(crate) fn zones(&self) -> Vec<DomainName> {
        self.names.state().zones().map(|(zone, _)| zone.clone()).collect()
    }

    /// The known targets of each zone that has some.
    pub(crate) fn reports(&self) -> Vec<(String, Vec<AliasReport>)> {
        let report = |name: &String| match self.targets.get(name) {
            Some(target) => AliasReport {
                target: name.clone(),
                addresses: target.addresses.iter().flat_map(|of_type| of_type.list.clone()).collect(),
                next_at_unix_s: target.next_at_unix_s,
                problem: target.problem.clone(),
            },
            None => AliasReport {
                target: name.clone(),
                problem: Some("there are more targets than `alias_targets_max`".to_owned()),
                ..AliasReport::default()
            },
        };
        let names = self.names.state();
        names.zones().map(|(zone, targets)| (zone.to_string(), targets.iter().map(report).collect())).collect()
    }
}

impl Target {
    fn on_answer(&mut self, name: &str, answer: Answer, now_unix_s: u64, limits: &Limits) {
        let before = self.problem.take();
        match answer {
            Ok(records) => {
                let mut wait_s = limits.alias_ttl_s_max;
                for (of_type, records) in self.addresses.iter_mut().zip(records) {
                    let ttl_s = records.ttl_s.unwrap_or(NO_ADDRESS_TTL_S);
                    let ttl_s = ttl_s.clamp(limits.alias_ttl_s_min, limits.alias_ttl_s_max.max(limits.alias_ttl_s_min));
                    let mut list: Vec<IpAddr> = records.addresses().collect();
                    list.sort_unstable();
                    list.dedup();
                    list.truncate(ADDRESSES_MAX);
                    of_type.update(list, ttl_s);
                    wait_s = wait_s.min(ttl_s);
                }
                self.answered_at_unix_s = now_unix_s;
                // By then the resolver's cache has dropped the records, and its answer has the whole TTL.
                self.next_at_unix_s = now_unix_s + u64::from(wait_s) + 1;
                let is_empty = self.addresses.iter().all(|of_type| of_type.list.is_empty());
                self.problem = is_empty.then(|| "it does not exist, or has no addresses".to_owned());
            }
            Err(problem) => {
                self.next_at_unix_s = now_unix_s + RETRY_INTERVAL_S;
                if now_unix_s.saturating_sub(self.answered_at_unix_s) >= limits.alias_kept_ms / 1_000 {
                    self.addresses = Default::default();
                }
                self.problem = Some(problem);
            }
        }
        match (&before, &self.problem) {
            (Some(_), None) => log(&format!("ALIAS {name}: its addresses are known")),
            (before, Some(problem)) if before.as_ref() != Some(problem) => {
                log_warning(&format!("ALIAS {name}: {problem}"));
            }
            _ => {}
        }
    }
}

async fn ask(resolvers: &Resolvers, name: &str) -> Answer {
    let name = wire_name(&DomainName::parse(name).map_err(|problem| problem.message)?);
    let v4 = resolvers.resolve(name.as_name(), Rtype::A).await?;
    let v6 = resolvers.resolve(name.as_name(), Rtype::AAAA).await?;
    Ok([v4, v6])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(addresses: &[&str], ttl_s: Option<u32>) -> Records {
        let rdata = |text: &&str| match text.parse().expect("an address") {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        Records { rdatas: addresses.iter().map(rdata).collect(), ttl_s }
    }

    fn target(derived: &DerivedSet) -> AliasTargets {
        let names = Rc::new(AliasNames::default());
        names.set(&DomainName::parse("a.test").expect("a name"), &["www.b.test".to_owned()], false);
        let limits = Limits { alias_kept_ms: 100_000, ..Limits::default() };
        let mut targets = AliasTargets::new(names, Rc::new(Resolvers::at(Vec::new())), limits, derived);
        targets.update_names();
        targets
    }

    /// The addresses with their TTLs.
    fn shown(targets: &AliasTargets) -> String {
        let records = targets.records(&DomainName::parse("a.test").expect("a name"), false).expect("known");
        records.iter().map(|record| format!("{}/{} ", record.data, record.ttl_s)).collect()
    }

    #[test]
    fn addresses_follow_the_answers_and_a_lower_ttl_counts_after_some() {
        let mut targets = target(&DerivedSet::default());
        let limits = targets.limits.clone();
        assert_eq!(shown(&targets), "");
        let steps: [(Answer, &str, u64, bool); 11] = [
            (Err("no answer".to_owned()), "", 10, true),
            // The resolver has them for 17 s more, and only then for the whole TTL.
            (
                Ok([records(&["192.0.2.2", "192.0.2.1"], Some(77)), records(&[], Some(900))]),
                "192.0.2.1/77 192.0.2.2/77 ",
                78,
                false,
            ),
            (
                Ok([records(&["192.0.2.1", "192.0.2.2"], Some(300)), records(&[], None)]),
                "192.0.2.1/300 192.0.2.2/300 ",
                301,
                false,
            ),
            (
                Ok([records(&["192.0.2.1", "192.0.2.2"], Some(120)), records(&[], None)]),
                "192.0.2.1/300 192.0.2.2/300 ",
                121,
                false,
            ),
            (
                Ok([records(&["192.0.2.1", "192.0.2.2"], Some(100)), records(&[], None)]),
                "192.0.2.1/300 192.0.2.2/300 ",
                101,
                false,
            ),
            (
                Ok([records(&["192.0.2.1", "192.0.2.2"], Some(90)), records(&[], None)]),
                "192.0.2.1/120 192.0.2.2/120 ",
                91,
                false,
            ),
            // Bounds.
            (
                Ok([records(&["192.0.2.3"], Some(0)), records(&["2001:db8::1"], Some(u32::MAX))]),
                "192.0.2.3/60 2001:db8::1/86400 ",
                61,
                false,
            ),
            // No resolver answers for 50 s, and 100 s.
            (Err("no answer".to_owned()), "192.0.2.3/60 2001:db8::1/86400 ", 10, true),
            (Err("no answer".to_owned()), "", 10, true),
            (Ok([records(&["192.0.2.3"], Some(60)), records(&[], None)]), "192.0.2.3/60 ", 61, false),
            (Ok([records(&[], None), records(&[], None)]), "", 301, true),
        ];
        let mut now_unix_s = 1_000;
        for (answer, expected, wait_s, has_problem) in steps {
            let (is_error, target) = (answer.is_err(), targets.targets.get_mut("www.b.test").expect("it is wanted"));
            now_unix_s += 50;
            if !is_error {
                target.answered_at_unix_s = now_unix_s;
            }
            target.on_answer("www.b.test", answer, now_unix_s, &limits);
            assert_eq!(target.next_at_unix_s - now_unix_s, wait_s, "{expected}");
            assert_eq!(target.problem.is_some(), has_problem, "{expected}");
            assert_eq!(shown(&targets), expected);
        }
    }

    #[test]
    fn stored_addresses_are_served_until_there_is_an_answer_and_unknown_zones_stay() {
        let record = DerivedRecord {
            kind: DerivedKind::Alias,
            owner: "www.b.test".to_owned(),
            ttl_s: 70,
            data: "192.0.2.1".to_owned(),
        };
        let mut derived = DerivedSet::default();
        derived.zones.entry("a.test".to_owned()).or_default().records.push(record);
        let mut targets = target(&derived);
        assert_eq!(shown(&targets), "192.0.2.1/70 ");
        let other = DomainName::parse("other.test").expect("a name");
        assert_eq!(targets.records(&other, false), None);
        targets
            .names
            .set_served(&sanderling_ipc::agent::ServedZones { zones: Vec::new(), is_complete: true }, |_| false);
        targets.update_names();
        assert_eq!((targets.records(&other, false), targets.records(&other, true)), (Some(Vec::new()), None));
        assert!(targets.targets.is_empty());
    }

    #[test]
    fn targets_beyond_the_limit_are_reported() {
        let mut targets = target(&DerivedSet::default());
        targets.limits.alias_targets_max = 1;
        targets.names.set(&DomainName::parse("b.test").expect("a name"), &["z.test".to_owned()], false);
        targets.update_names();
        let problems: Vec<_> = targets.reports().into_iter().map(|(_, reports)| reports[0].problem.clone()).collect();
        let expected = ["no resolver has answered yet", "there are more targets than `alias_targets_max`"];
        assert_eq!(problems, expected.map(|problem| Some(problem.to_owned())));
    }
}
