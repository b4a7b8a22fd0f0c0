//! After a reload that changes a key, the server behaves as if started with the changed configuration.

mod files;
mod fingerprint;
mod instance;

use self::files::write_primary;
use self::fingerprint::Fingerprint;
use self::instance::{Effect, Instance, NOBODY, PRIMARY, PROCESSES, effect_between, free_ports};
use sanderling_config::{ConfigSource, limits_help};
use sanderling_testkit::{KeyChange, ListenerCounts, TestDirectory, TestServer, key_changes, seed};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time in which two servers become alike, unless the machine is so slow that they are asked less often than
/// `ROUNDS_MIN` times.
const ALIKE_WITHIN: Duration = Duration::from_secs(10);
const ROUNDS_MIN: usize = 10;
/// Times in a row that they must be.
const ALIKE_ROUNDS: usize = 2;
/// Time in which an agent that has been started signs zones, asks primaries, and so on.
const AGENT_TIME: Duration = Duration::from_secs(2);
/// Changes in a sample.
const SAMPLE_COUNT: usize = 4;
/// Keys whose changes a reload does not take back: sockets are not closed, since clients may be in their queues, and a
/// certificate stays in service until there is the next one.
const WITHOUT_WAY_BACK: &[&str] = &["listeners", "certificate"];
/// The address of the programs that are started with a change.
const FRESH: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The observations of the test.
#[derive(Default)]
struct Seen {
    change_count: usize,
    /// Changes after which the server looks as before.
    unobservable: Vec<String>,
    /// The number of times that each of `PROCESSES` was expected to be replaced, and so on.
    effects: [BTreeMap<Effect, usize>; 3],
    differences: Vec<String>,
}

/// A change of each limit that has none of its own.
fn limit_changes(known: &[KeyChange]) -> Vec<KeyChange> {
    let before = known[0].before;
    let is_accepted = |text: &str| ConfigSource::File(PathBuf::from("sanderling.toml")).parse(text.as_bytes()).is_ok();
    let help = limits_help();
    let mut changes = Vec::new();
    for line in help.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once(" = ") else { continue };
        let key: &'static str = key.to_owned().leak();
        let digits: String = value.chars().filter(char::is_ascii_digit).collect();
        let number: u64 = digits.parse().expect("a number");
        // The files do not exist here: only the limit is read.
        let with = |number: u64| format!("{key} = {}", value.replace(&digits, &number.to_string()));
        let small = |number| format!("[domain.\"a.test\"]\nzone = \"sanderling.toml\"\n[limits]\n{}\n", with(number));
        let other = [number + 1, number.saturating_sub(1)]
            .into_iter()
            .find(|other| is_accepted(&small(*other)))
            .expect("a value");
        let new = with(other);
        let after = before.replacen("[log]", &format!("[limits]\n{new}\n[log]"), 1);
        if !known.iter().any(|change| change.section == "Limits" && change.key == key) {
            changes.push(KeyChange { before, after, section: "Limits", key, new, replaced: "" });
        }
    }
    changes
}

/// The lines of the one that the other does not have, by question.
fn differences(reloaded: &Fingerprint, fresh: &Fingerprint) -> Vec<String> {
    let keys: BTreeSet<&String> = reloaded.keys().chain(fresh.keys()).collect();
    let mut found = Vec::new();
    for key in keys {
        let [of_reloaded, of_fresh] = [reloaded.get(key), fresh.get(key)];
        if of_reloaded == of_fresh {
            continue;
        }
        let lines = |text: Option<&String>| {
            text.map_or(vec!["(nothing)".to_owned()], |text| text.lines().map(str::to_owned).collect())
        };
        let [of_reloaded, of_fresh] = [lines(of_reloaded), lines(of_fresh)];
        let without = |some: &[String], others: &[String]| -> Vec<String> {
            some.iter().filter(|line| !others.contains(line)).cloned().collect()
        };
        let [of_reloaded, of_fresh] = [without(&of_reloaded, &of_fresh), without(&of_fresh, &of_reloaded)];
        found.push(format!("{key}\n  reloaded: {of_reloaded:#?}\n  fresh: {of_fresh:#?}"));
    }
    found
}

/// Waits until `running` is as `wanted` says, from the start to the end of `time`; how it differs at the end, and its
/// last fingerprint.
fn compare(
    running: &Instance,
    wanted: impl Fn() -> Fingerprint + Sync,
    marker: &str,
    time: Range<Duration>,
) -> (Vec<String>, Fingerprint) {
    let (start, place, mut rounds) = (Instant::now(), &running.place, 0);
    for round in 1.. {
        let (found, wanted) = thread::scope(|scope| {
            let wanted = scope.spawn(&wanted);
            (place.fingerprint(marker), wanted.join().expect("seen"))
        });
        let differences = differences(&found, &wanted);
        rounds = if differences.is_empty() { rounds + 1 } else { 0 };
        let is_alike = rounds >= ALIKE_ROUNDS && start.elapsed() >= time.start;
        if is_alike || rounds == 0 && round >= ROUNDS_MIN && start.elapsed() >= time.end {
            return (differences, found);
        }
    }
    unreachable!("the rounds have no end")
}

/// Compares `running` with a program that is started with `text`, its files and its state.
fn compare_with_start(running: &Instance, fresh: &Instance, marker: &str) -> (Vec<String>, Fingerprint) {
    let place = &fresh.place;
    compare(running, || place.fingerprint(marker), marker, AGENT_TIME..ALIKE_WITHIN)
}

/// Waits until the processes are as `expected`; how they differ.
fn check_processes(instance: &Instance, before: [Option<u32>; 3], expected: [Effect; 3]) -> Option<String> {
    let found = || {
        let after = instance.processes();
        [0, 1, 2].map(|index| effect_between(before[index], after[index]))
    };
    let start = Instant::now();
    while found() != expected && start.elapsed() < ALIKE_WITHIN {
        thread::yield_now();
    }
    (found() != expected).then(|| {
        let after = instance.processes();
        format!("{PROCESSES:?}: {:?} instead of {expected:?}: {before:?} and then {after:?}", found())
    })
}

impl Seen {
    /// Reloads `change` and its opposite. `base` is the fingerprint before.
    fn check(&mut self, mut running: Instance, change: &KeyChange, base: &mut Fingerprint) -> Instance {
        let name = format!("{} {}: {}", change.section, change.key, change.new.escape_debug());
        let (start, marker) = (Instant::now(), format!("marker-{}", self.change_count));
        let fresh = running.fresh(FRESH, &change.after);
        let there = |running: &Instance| compare_with_start(running, &fresh, &format!("{marker}-there"));
        let changed = self.reload(&mut running, &change.after, &format!("{name}, there"), there);
        fresh.server.kill_all();
        self.change_count += 1;
        let is_seen = changed != *base;
        if !is_seen {
            self.unobservable.push(name.clone());
        }
        if WITHOUT_WAY_BACK.contains(&change.key) {
            running = running.restarted(change.before);
        }
        let marker = format!("{marker}-back");
        *base = self.reload(&mut running, change.before, &format!("{name}, back"), |running| {
            let before = compare(running, || base.clone(), &marker, Duration::ZERO..ALIKE_WITHIN / 2);
            if before.0.is_empty() {
                return before;
            }
            // The change has left something in the state.
            let fresh = running.fresh(FRESH, change.before);
            let result = compare_with_start(running, &fresh, &marker);
            fresh.server.kill_all();
            result
        });
        println!("{name}: {} in {:?}", if is_seen { "seen" } else { "not seen" }, start.elapsed());
        running
    }

    /// Reloads `text`, checks the processes, and `compare`s; the fingerprint.
    fn reload(
        &mut self,
        running: &mut Instance,
        text: &str,
        name: &str,
        compare: impl FnOnce(&Instance) -> (Vec<String>, Fingerprint),
    ) -> Fingerprint {
        let before = running.processes();
        let (ended, expected) = running.reload(text);
        let mut wrong: Vec<String> = check_processes(running, before, expected).into_iter().collect();
        let (found, last) = compare(running);
        wrong.extend(found);
        wrong.extend(check_processes(running, before, expected));
        if !wrong.is_empty() {
            let text = format!("{name}:\n{}\n{ended}\n{}\n", wrong.join("\n"), running.server.errors());
            println!("DIFFERENCE {text}");
            self.differences.push(text);
        }
        for (counts, effect) in self.effects.iter_mut().zip(expected) {
            *counts.entry(effect).or_default() += 1;
        }
        last
    }
}

/// The changes to check: all keys with `SANDERLING_RELOAD_KEYS=all`, some keys, such as `Dns`, or a sample.
fn chosen_changes() -> Vec<KeyChange> {
    let mut changes = key_changes();
    changes.extend(limit_changes(&changes));
    let is_root = sanderling_os::process::effective_uid() == 0;
    // Only root can switch to another user.
    changes.retain(|change| is_root || !["user", "group"].contains(&change.key));
    match std::env::var("SANDERLING_RELOAD_KEYS") {
        Ok(all) if all == "all" => {}
        Ok(some) => changes.retain(|change| format!("{} {}", change.section, change.key).contains(&some)),
        Err(_) => {
            fastrand::Rng::with_seed(seed()).shuffle(&mut changes);
            changes.truncate(SAMPLE_COUNT);
        }
    }
    changes
}

/// A program with files and a state of its own, and what is seen of it.
fn started(ports: &Arc<HashMap<u16, u16>>, text: &str) -> (Instance, Fingerprint) {
    let running = Instance::start(Ipv4Addr::LOCALHOST, ports, text);
    let fresh = running.fresh(FRESH, text);
    let (found, base) = compare_with_start(&running, &fresh, "marker-first");
    assert!(found.is_empty(), "{}", found.join("\n"));
    fresh.server.kill_all();
    (running, base)
}

#[test]
fn reload_of_each_key_is_as_a_start() {
    let (start, ports, changes) = (Instant::now(), free_ports(), chosen_changes());
    let primary_directory = TestDirectory::new();
    let [address, secondary] = [PRIMARY, NOBODY[1]].map(|port| format!("127.0.0.1:{}", ports[&port]));
    write_primary(&primary_directory, &address, &secondary);
    let _primary = TestServer::start_command(primary_directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    let mut seen = Seen::default();
    let bases: BTreeSet<&str> = changes.iter().map(|change| change.before).collect();
    for text in bases {
        let (mut running, mut base) = started(&ports, text);
        for change in changes.iter().filter(|change| change.before == text) {
            let before = base.clone();
            running = seen.check(running, change, &mut base);
            if base != before {
                // The change's effects on the state would hide later changes.
                running.server.stop();
                (running, base) = started(&ports, text);
            }
        }
        running.server.stop();
    }
    println!("{} changes, there and back, in {:?}", changes.len(), start.elapsed());
    for (process, counts) in PROCESSES.iter().zip(&seen.effects) {
        println!("{process}: {counts:?}");
    }
    println!("{} changes are not seen: {:#?}", seen.unobservable.len(), seen.unobservable);
    println!("{} differences", seen.differences.len());
    assert!(seen.differences.is_empty(), "{}", seen.differences.join("\n"));
}
