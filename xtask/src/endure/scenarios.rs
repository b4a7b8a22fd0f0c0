//! The list of all scenarios, and the choice among them.

use super::options::Extent;
use super::outcome::Outcome;
use super::programs::Programs;
use super::{broken, crashes, fairness, nginx, reloads, storm, upgrades};

/// Something that happens to a server under load, and what it promises then.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// What must hold, without the full stop.
    pub(super) promise: &'static str,
    /// An error says that it could not be run, or broke off.
    pub(super) run: fn(&Programs, Extent, &mut Outcome) -> Result<(), String>,
}

/// All of them in the order in which they run. A new one is a line here.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "reload-workers",
        promise: "Reloads that change the number of workers start new server processes, and lose no request",
        run: reloads::reload_workers,
    },
    Scenario {
        name: "reload-in-place",
        promise: "Reloads that change records, sites and aliases lose no request and close no connection",
        run: reloads::reload_in_place,
    },
    Scenario {
        name: "upgrade",
        promise: "Upgrades of the program, to failing ones too, lose no request, and the operator is told in a second",
        run: upgrades::upgrade,
    },
    Scenario {
        name: "storm",
        promise: "Reloads and upgrades asked for faster than they can be done lose no request, and the last word counts",
        run: storm::storm,
    },
    Scenario {
        name: "kill",
        promise: "New connections wait for the replacement of a server process that was killed, which serves within 100 ms",
        run: crashes::kill,
    },
    Scenario {
        name: "broken",
        promise: "Reloads of broken configurations are refused, disturb no answer and keep no descriptor",
        run: broken::broken,
    },
    Scenario {
        name: "fairness",
        promise: "Every worker has its share of short connections, with one listener and with a sibling for each",
        run: fairness::fairness,
    },
    Scenario {
        name: "supervisor-death",
        promise: "The death of the supervisor loses no request, and the next one takes over what it has left",
        run: crashes::supervisor_death,
    },
    Scenario {
        name: "hang",
        promise: "A server process that does nothing any more is replaced, and who waited for it is served",
        run: crashes::hang,
    },
    Scenario {
        name: "nginx",
        promise: "What reloads of nginx cost under the same load, with one listener and with a sibling for each worker",
        run: nginx::reload,
    },
];

/// The scenarios of these names in the order of the list; all when there are none.
///
/// # Errors
/// A name that no scenario has.
pub(super) fn select(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    if let Some(unknown) = names.iter().find(|name| !SCENARIOS.iter().any(|scenario| scenario.name == **name)) {
        let known: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        return Err(format!("there is no scenario `{unknown}`, but {}", known.join(", ")));
    }
    let is_chosen = |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(SCENARIOS.iter().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_chosen_by_name_and_keep_their_order() {
        let names = |chosen: &[&str]| {
            let chosen: Vec<String> = chosen.iter().map(|name| (*name).to_owned()).collect();
            select(&chosen).map(|scenarios| scenarios.iter().map(|scenario| scenario.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["kill", "upgrade"]), Ok(vec!["upgrade", "kill"]));
        assert_eq!(names(&[]).map(|all| all.len()), Ok(SCENARIOS.len()));
        assert!(
            names(&["kil"]).is_err_and(|error| error.starts_with("there is no scenario `kil`, but reload-workers, "))
        );
    }
}
