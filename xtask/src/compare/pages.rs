//! The pages of a report: what came of each part, laid out as tables and pictures.

use std::path::Path;

use super::chart::{self, Group, grouped};
use super::growth::Growth;
use super::launch::Launch;
use super::reload::{Reload, Reloads, ms};
use super::report::Report;
use super::rounds::{Outcome, Row};
use super::spread::Spread;
use super::standing::{Standing, Started};

/// Workloads side by side.
pub(super) fn comparison(
    service: &str,
    chart_file: &str,
    outcomes: &[Outcome],
    launches: &[Launch],
    run_folder: &Path,
) -> Report {
    let mut report = Report::new(&format!("{service} beside its peers"));
    let groups: Vec<Group> = outcomes.iter().map(group).collect();
    let title = format!("{service}: server time for each request in µs");
    report.chart(chart_file, &title, chart::bars(&title, &groups));
    for outcome in outcomes {
        report.outcome(outcome);
    }
    report.settings(launches, run_folder);
    report
}

fn group(outcome: &Outcome) -> Group {
    let bars = outcome.rows.iter().filter_map(|row| Some((row.name.clone(), row.cost()?))).collect();
    Group { title: outcome.title.clone(), bars }
}

/// What grows, each with its picture and its tables.
pub(super) fn growth(all: &[Growth]) -> Report {
    let mut report = Report::new("Cost against size");
    for growth in all {
        report.section(growth.title, &growth.description);
        let title = format!("Server time for each request in µs, against {}", growth.axis);
        report.chart(growth.file, &title, chart::lines(&title, growth.axis, "µs", &growth.series()));
        let mut head = vec![growth.axis.to_owned()];
        head.extend(growth.names());
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        report.text("Server time for each request in µs, median and range:");
        report.table(&head, &growth.table(|row| row.cost().map(|cost| cost.to_string())));
        if growth.in_same_rounds {
            report.text("As a multiple of what the smallest size costs the same server in the same round:");
            report.table(&head, &growth.times_smallest());
        }
        report.text("Memory of the process tree in MiB, and errors:");
        let memory = |row: &Row| format!("{:.1}, {}", row.memory_kib as f64 / 1024.0, row.error_count());
        report.table(&head, &growth.table(|row| Some(memory(row))));
    }
    report
}

/// Starts, the large zone and its reload, idle connections.
pub(super) fn standing(standing: &Standing) -> Report {
    let mut report = Report::new("Starts, zones and idle connections");
    let records = grouped(standing.large_record_count as u64);
    report.section(
        &format!("A zone of {records} records"),
        "From the start of the process to the first answer; octets a record are those beyond the same server with a \
         zone of 4 records. The floor reads no zone: it shows what starting any process costs.",
    );
    let rows: Vec<Vec<String>> = standing.large.iter().map(|started| large_cells(started, standing)).collect();
    report.table(&["server", "first answer ms", "processor ms", "PSS MiB", "octets a record"], &rows);
    reloads(&mut report, &standing.reloads, &records);
    for (title, all) in [("Start, HTTP", &standing.http), ("Start, DNS with a zone of 4 records", &standing.dns)] {
        report.section(
            title,
            "From the start of the process to the first answer, what pins it to its processor included.",
        );
        let rows: Vec<Vec<String>> = all.iter().map(start_cells).collect();
        report.table(&["server", "first answer ms", "processor ms", "PSS MiB"], &rows);
    }
    let count = grouped(standing.idle_count as u64);
    report.section(
        "Idle connections",
        &format!("Memory of the process tree for each of {count} HTTP connections that had one answer and stay open."),
    );
    let rows: Vec<Vec<String>> =
        standing.idle_bytes.iter().map(|(name, bytes)| vec![(*name).to_owned(), format!("{bytes:.0}")]).collect();
    report.table(&["server", "octets a connection"], &rows);
    report
}

fn reloads(report: &mut Report, all: &[Reloads], records: &str) {
    report.section(
        &format!("Reload of {records} records, one of them changed"),
        "A query goes out each millisecond, whether or not the last one was answered. After a second of this the zone \
         file is replaced and the server is told: ours by `sanderling reload`, the others by SIGHUP. The reload lasts \
         until a second after the first reply from the new data, memory is looked at every 20 ms. Waits are the \
         longest of one query, from its sending to its reply; `sent late` is the longest delay of our own sending: \
         where it is long, the machine was busy with something else. The server, its loading included, has one \
         processor. Each reload is of a server that was just started; losses are those of all reloads.",
    );
    let head = [
        "server",
        "wait before ms",
        "wait in reload ms",
        "sent late ms",
        "lost",
        "new data after ms",
        "PSS MiB before",
        "at its peak",
        "after",
        "peak / before",
    ];
    let rows: Vec<Vec<String>> = all.iter().map(reload_cells).collect();
    report.table(&head, &rows);
    for (name, trouble) in all.iter().filter_map(|reloads| Some((reloads.name, reloads.trouble.as_ref()?))) {
        report.text(&format!("{name} failed: {}", trouble.lines().next().unwrap_or_default()));
    }
}

fn reload_cells(reloads: &Reloads) -> Vec<String> {
    let cell = |figure: fn(&Reload) -> f64| reloads.spread(figure).map_or_else(|| "–".into(), |it| it.to_string());
    vec![
        reloads.name.to_owned(),
        cell(|reload| ms(reload.before.longest)),
        cell(|reload| ms(reload.during.longest)),
        cell(|reload| ms(reload.during.delay)),
        reloads.lost_count().to_string(),
        cell(|reload| ms(reload.new_data)),
        cell(|reload| reload.memory.before_kib as f64 / 1024.0),
        cell(|reload| reload.memory.peak_kib as f64 / 1024.0),
        cell(|reload| reload.memory.after_kib as f64 / 1024.0),
        cell(|reload| reload.memory.peak_kib as f64 / reload.memory.before_kib as f64),
    ]
}

fn start_cells(started: &Started) -> Vec<String> {
    let cell = |spread: Option<Spread>| match (spread, &started.trouble) {
        (Some(spread), _) => spread.to_string(),
        (None, Some(_)) => "failed".into(),
        (None, None) => "–".into(),
    };
    vec![
        started.name.to_owned(),
        cell(started.first_answer_ms()),
        cell(started.processor_ms()),
        cell(started.memory_mib()),
    ]
}

fn large_cells(large: &Started, standing: &Standing) -> Vec<String> {
    let small = standing.dns.iter().find(|small| small.name == large.name);
    let record_bytes = || {
        let beyond_mib = large.memory_mib()?.median - small?.memory_mib()?.median;
        Some(format!("{:.0}", beyond_mib * 1024.0 * 1024.0 / standing.large_record_count as f64))
    };
    let mut cells = start_cells(large);
    cells.push(record_bytes().unwrap_or_else(|| "–".into()));
    cells
}
