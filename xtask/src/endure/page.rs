//! What came of the scenarios, as tables on the terminal and a page of Markdown.

use std::fs;

use super::counts::Counts;
use super::network;
use super::outcome::Outcome;
use crate::program::Program;

const HEAD: &[&str] = &["kind", "sent", "lost", "why", "closed", "p50 ms", "p99 ms", "max ms", "silence ms", "late ms"];

/// What the reader must know of where it was made.
pub(super) fn circumstances(command: &str) -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let processor_count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let migrates = match network::migrates() {
        Some(true) => "1: closed listeners give their connections to their siblings, which makes it easier",
        Some(false) => "0: what waits in a listener that is closed is lost",
        None => "not known to this kernel: what waits in a listener that is closed is lost",
    };
    let revision = Program::new("git").args("rev-parse --short HEAD").output();
    let is_changed =
        Program::new("git").args("status --porcelain crates").output().is_some_and(|text| !text.is_empty());
    let revision = revision.map_or("of an unknown revision".to_owned(), |revision| revision.trim().to_owned());
    vec![
        format!("- Command: `{command}`"),
        format!("- Sanderling: {revision}{}", if is_changed { " with changes" } else { "" }),
        format!("- Machine: {processor_count} × {}", model.trim_start_matches([' ', '\t', ':'])),
        format!("- Kernel: Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        format!("- `net.ipv4.tcp_migrate_req`: {migrates}"),
        format!("- Load average before: {}", read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")),
    ]
}

/// An outcome as it is shown while the others are still to come.
pub(super) fn table_for_terminal(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (title, counts) in &outcome.loads {
        if !title.is_empty() {
            text += &format!("{title}\n");
        }
        let rows: Vec<Vec<String>> = counts.iter().map(cells).collect();
        text += &aligned(HEAD, &rows);
    }
    for fact in &outcome.facts {
        text += &format!("- {fact}\n");
    }
    text + &outcome.verdict()
}

/// One line a scenario.
pub(super) fn summary(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().map(|outcome| format!("{:<17} {}\n", outcome.name, outcome.verdict()));
    format!("== summary ==\n{}", lines.collect::<String>())
}

/// The page.
pub(super) fn markdown(circumstances: &[String], outcomes: &[Outcome]) -> String {
    let mut text = String::from("# Reloads, upgrades and crashes under load\n\n");
    text += &format!("{}\n\n", circumstances.join("\n"));
    text += INTRODUCTION;
    let rows: Vec<Vec<String>> = outcomes.iter().map(summary_cells).collect();
    text += &markdown_table(&["scenario", "requests", "lost", "cut off", "verdict"], &rows);
    for outcome in outcomes {
        text += &format!("\n## {}\n\n{}.\n\n**{}**\n", outcome.name, outcome.promise, outcome.verdict());
        for (title, counts) in &outcome.loads {
            let rows: Vec<Vec<String>> = counts.iter().map(cells).collect();
            let title = if title.is_empty() { String::new() } else { format!("{title}:\n\n") };
            text += &format!("\n{title}{}", markdown_table(HEAD, &rows));
        }
        if !outcome.facts.is_empty() {
            text += &outcome.facts.iter().fold(String::from("\n"), |list, fact| format!("{list}- {fact}\n"));
        }
    }
    text
}

/// What the columns mean.
const INTRODUCTION: &str = "\
Requests go out when they are due, however the server fares, and none is sent again: each is answered rightly, or it is
lost. A page must be one of the two that there are, octet by octet; a reply must hold the records that the server gave
before the load. `cut off` counts requests that a process had taken when it was killed, and datagrams that it had
received. `closed` counts kept connections that the server ended without a loss, having said so before or while nothing
was outstanding. A request over HTTP is sent on a kept connection also when the server has closed it meanwhile, as from
far away, unless a process was killed. Latencies count from the moment when a request was due; `silence` is the longest
time without a right answer, `late` the longest delay of the load's own sending: where it is long, the machine was busy
with something else.

";

fn summary_cells(outcome: &Outcome) -> Vec<String> {
    let (sent_count, unanswered_count) = outcome.sent_and_lost();
    vec![
        outcome.name.to_owned(),
        sent_count.to_string(),
        (unanswered_count - outcome.cut_off_count).to_string(),
        outcome.cut_off_count.to_string(),
        outcome.word().to_owned(),
    ]
}

fn cells(counts: &Counts) -> Vec<String> {
    let ms = |ms: f64| format!("{ms:.1}");
    vec![
        counts.kind.clone(),
        counts.sent_count.to_string(),
        counts.lost_count.to_string(),
        if counts.lost_count == 0 { "–".to_owned() } else { counts.causes() },
        counts.closed_by_server_count.to_string(),
        ms(counts.latency_p50_ms),
        ms(counts.latency_p99_ms),
        ms(counts.latency_max_ms),
        ms(counts.silence_max_ms),
        ms(counts.late_max_ms),
    ]
}

fn aligned(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let lines = || std::iter::once(&head).chain(rows);
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in lines() {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, width))| {
                    if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        text += &format!("{}\n", cells.join("  "));
    }
    text
}

fn markdown_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|---|{}\n", head.join(" | "), "--:|".repeat(head.len() - 1));
    for row in rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let mut outcome = Outcome::new("kill", "New connections wait for the next process");
        let counts = Counts { kind: "http-new".into(), sent_count: 50, latency_p50_ms: 0.25, ..Counts::default() };
        outcome.take_strict(vec![counts]);
        outcome.tell("20 kills");
        outcome
    }

    #[test]
    fn a_page_is_written_like_this() {
        let page = markdown(&["- Command: `cargo xtask endure`".into()], &[outcome()]);
        let expected = "\
| scenario | requests | lost | cut off | verdict |
|---|--:|--:|--:|--:|
| kill | 50 | 0 | 0 | holds |

## kill

New connections wait for the next process.

**holds: 0 lost of 50**

| kind | sent | lost | why | closed | p50 ms | p99 ms | max ms | silence ms | late ms |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
| http-new | 50 | 0 | – | 0 | 0.2 | 0.0 | 0.0 | 0.0 | 0.0 |

- 20 kills
";
        assert!(page.starts_with("# Reloads, upgrades and crashes under load\n\n- Command: `cargo xtask endure`\n\n"));
        assert!(page.ends_with(expected), "{page}");
    }

    #[test]
    fn the_terminal_has_columns_and_the_verdict_last() {
        let text = table_for_terminal(&outcome());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0].chars().count(), lines[1].chars().count());
        assert_eq!((lines[2], lines[3]), ("- 20 kills", "holds: 0 lost of 50"));
    }
}
