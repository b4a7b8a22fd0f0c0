//! The cost of an access log, for each server that has one in the format `combined` at little cost.

use crate::compare::http::{CONNECTION_COUNT, SMALL, Site, start_servers};
use crate::compare::loads::wrk;
use crate::compare::peers::AccessLog;
use crate::compare::rounds::{Contestant, Rounds, Spread};
use crate::compare::server::{Bench, Server};
use crate::page;

/// The servers, and their names with a log.
const LOGGED: [(&str, &str); 3] = [("sanderling", "sanderling, log"), ("nginx", "nginx, log"), ("h2o", "h2o, log")];

pub(crate) fn run(rounds: &mut Rounds) -> anyhow::Result<String> {
    let site = Site::create(&rounds.bench.folder.join("logs"), 0)?;
    let with_log = Bench { access_log: AccessLog::On, ..rounds.bench.clone() };
    let mut servers = start_servers(&rounds.bench, &site, "without-log", 1)?;
    servers.retain(|server| LOGGED.iter().any(|(name, _)| *name == server.name));
    for mut server in start_servers(&with_log, &site, "with-log", 1)? {
        if let Some((_, name)) = LOGGED.iter().find(|(name, _)| *name == server.name) {
            server.name = name;
            servers.push(server);
        }
    }
    let contestant = |server| -> Contestant<'_> {
        Contestant { server, load: wrk(Server::address(server), SMALL, CONNECTION_COUNT, &[], rounds.length) }
    };
    let contestants: Vec<Contestant<'_>> = servers.iter().map(contestant).collect();
    let outcome = rounds.compare("512 B", &contestants, true);
    let mut rows = Vec::new();
    for (name, name_with_log) in LOGGED {
        let (Some(without), Some(with)) = (outcome.row(name), outcome.row(name_with_log)) else { continue };
        let text = |value: Option<Spread>| value.map_or("–".to_owned(), |value| value.to_string());
        rows.push(vec![name.to_owned(), text(without.cost_us()), text(with.cost_us()), text(with.ratio_to(without))]);
    }
    let head = ["server", "without µs", "with µs", "with / without"];
    Ok(format!("Processor time per request of 512 B, with and without an access log.\n\n{}", page::table(&head, &rows)))
}
