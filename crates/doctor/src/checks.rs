//! The checks: a table of rows, each of which judges a part of the facts.

mod machine;
mod hosts;
mod zones;
#[cfg(test)]
mod tests;

use crate::facts::Facts;
use sanderling_config::log::printable_in_line;

/// Characters of a text of a finding.
const TEXT_CHARS_MAX: usize = 2_000;

/// A row of the table.
struct Check {
    name: &'static str,
    judge: fn(&Facts) -> Vec<Judgement>,
}

/// All checks, in the order of the report.
const ROWS: &[Check] = &[
    Check { name: "configuration", judge: machine::configuration },
    Check { name: "server", judge: machine::server },
    Check { name: "ports", judge: machine::ports },
    Check { name: "open files", judge: machine::open_files },
    Check { name: "clock", judge: machine::clock },
    Check { name: "delegation", judge: zones::delegation },
    Check { name: "glue", judge: zones::glue },
    Check { name: "name servers", judge: zones::name_servers },
    Check { name: "signatures", judge: zones::signatures },
    Check { name: "DS", judge: zones::ds },
    Check { name: "CAA", judge: zones::caa },
    Check { name: "addresses", judge: hosts::addresses },
    Check { name: "connections", judge: hosts::connections },
    Check { name: "certificates", judge: hosts::certificates },
];

/// A verdict, and its subject: a domain, a server, a file.
type Judgement = (String, Verdict);

/// The judgement of a check about one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is right.
    Good(String),
    /// It is wrong.
    Wrong { what: String, remedy: String },
    /// It cannot be known from here.
    Unknown { why: String },
}

/// A verdict of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) subject: String,
    pub(crate) verdict: Verdict,
}

impl Verdict {
    fn good(text: impl Into<String>) -> Verdict {
        Verdict::Good(text.into())
    }

    fn wrong(what: impl Into<String>, remedy: impl Into<String>) -> Verdict {
        Verdict::Wrong { what: what.into(), remedy: remedy.into() }
    }

    fn unknown(why: impl Into<String>) -> Verdict {
        Verdict::Unknown { why: why.into() }
    }

    pub(crate) fn is_wrong(&self) -> bool {
        matches!(self, Verdict::Wrong { .. })
    }
}

/// The verdicts of all checks. Their texts have parts that other programs and machines have chosen, so each is made
/// printable and short.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let of_check = |check: &Check| {
        let finding = |(subject, verdict): Judgement| {
            let verdict = match verdict {
                Verdict::Good(text) => Verdict::Good(shown(&text)),
                Verdict::Wrong { what, remedy } => Verdict::Wrong { what: shown(&what), remedy: shown(&remedy) },
                Verdict::Unknown { why } => Verdict::Unknown { why: shown(&why) },
            };
            Finding { check: check.name, subject: shown(&subject), verdict }
        };
        (check.judge)(facts).into_iter().map(finding).collect::<Vec<_>>()
    };
    ROWS.iter().flat_map(of_check).collect()
}

/// The text in a report.
fn shown(text: &str) -> String {
    let printable = printable_in_line(text);
    match printable.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &printable[..end]),
        None => printable.into_owned(),
    }
}

/// The questions that only a machine elsewhere can answer, as commands to run there.
pub(crate) fn only_from_elsewhere(facts: &Facts) -> Vec<String> {
    let Some(seen) = facts.seen() else { return Vec::new() };
    let mut commands = Vec::new();
    for zone in &seen.zones {
        let servers = zone.servers.iter().filter(|server| facts.interfaces.contains(&server.address.ip()));
        for server in servers {
            for transport in ["+notcp", "+tcp"] {
                commands.push(format!("dig +norec {transport} @{} {} SOA", server.address.ip(), zone.apex));
            }
        }
    }
    for host in seen.hosts.iter().filter(|host| !host.connections.is_empty()) {
        let is_encrypted = host.connections.iter().any(|connection| connection.service.is_encrypted());
        commands.push(format!("curl -I http{}://{}/", if is_encrypted { "s" } else { "" }, host.host));
    }
    commands
}
