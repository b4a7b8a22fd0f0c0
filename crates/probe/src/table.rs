//! Turns a report into text that fits a terminal of 80 columns.

use super::report::{Basis, Group, Measured, Outcome, Report, Row};
use std::fmt::{self, Write};

/// Columns of the narrowest terminal that is thought of.
const WIDTH: usize = 80;

/// What the heads of the columns mean.
const COLUMNS: &str = "nanoseconds for one; CPU: processor time, its median and p10; wall: time on the wall; peer: \
                       processor time of the other side; ratio: to the first row, or the first of its kind; claim: \
                       that ratio in the founding document; n: samples; err: errors; *: in use";

/// The whole report.
pub(crate) fn write(out: &mut String, report: &Report) -> fmt::Result {
    write_machine(out, report)?;
    for group in &report.groups {
        writeln!(out)?;
        write_group(out, group)?;
    }
    writeln!(out, "\nThe founding claims, each with its figure, and what is left of them here")?;
    for answer in &report.answers {
        writeln!(out)?;
        write_wrapped(out, &format!("{:>3}. ", answer.idea), "     ", answer.claim)?;
        let finding = format!("{}: {}", answer.verdict.words().to_uppercase(), answer.finding);
        write_wrapped(out, "     ", "     ", &finding)?;
    }
    writeln!(out)?;
    write_wrapped(out, "", "", &super::claims::summary(&report.groups, &report.answers))
}

fn write_machine(out: &mut String, report: &Report) -> fmt::Result {
    let machine = &report.machine;
    let mut line = |name: &str, value: &str| write_wrapped(out, &format!("{name:<15}"), &" ".repeat(15), value);
    line("kernel", &machine.kernel)?;
    let surroundings =
        if machine.surroundings.is_empty() { String::new() } else { format!(" ({})", machine.surroundings.join(", ")) };
    line("processors", &format!("{} of {}{surroundings}", machine.processor_count, machine.processor))?;
    for (name, text) in &machine.mitigations {
        line(name, text)?;
    }
    line("load average", &machine.load_average)?;
    let missing: Vec<_> = report.features.iter().filter(|feature| feature.missing.is_some()).collect();
    let there = report.features.len() - missing.len();
    line(
        "features",
        &format!("{there} of {} are there, tested in {:.2} ms", report.features.len(), report.features_cpu_us / 1e3),
    )?;
    for feature in missing {
        line("", &format!("missing: {} ({})", feature.name, feature.missing.as_deref().unwrap_or_default()))?;
    }
    let effort = if report.is_quick { "quick, " } else { "" };
    line("measured", &format!("{effort}in {:.1} s, seed {}", report.took_s, report.seed))?;
    line("columns", COLUMNS)
}

/// A heading and the cells below it, the first of them aligned to the left.
struct Column {
    head: &'static str,
    cells: Vec<String>,
}

fn write_group(out: &mut String, group: &Group) -> fmt::Result {
    let head = format!("{} [{}]", group.title, group.job);
    write_wrapped(out, "", "  ", &head)?;
    let columns = columns(group);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            column.cells.iter().map(|cell| cell.chars().count()).chain([column.head.len()]).max().unwrap_or(0)
        })
        .collect();
    let write_line = |out: &mut String, cell: &dyn Fn(&Column) -> String| {
        let mut line = String::new();
        for (index, (column, &width)) in columns.iter().zip(&widths).enumerate() {
            let cell = cell(column);
            let _ = if index == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        writeln!(out, "{}", line.trim_end())
    };
    if columns.len() > 1 {
        write_line(out, &|column| column.head.to_owned())?;
    }
    for (index, row) in group.rows.iter().enumerate() {
        match &row.outcome {
            Outcome::Measured(_) => write_line(out, &|column| column.cells[index].clone())?,
            Outcome::CannotRun(why) => {
                let name = format!("{:<width$}  ", columns[0].cells[index], width = widths[0]);
                write_wrapped(out, &name, "    ", &format!("cannot run here: {why}"))?;
            }
        }
    }
    if let Some(choice) = &group.choice {
        write_wrapped(out, "  ", "  ", &choice.words())?;
    }
    group.notes.iter().try_for_each(|note| write_wrapped(out, "  ", "  ", note))
}

/// The columns that this group has something to say in.
fn columns(group: &Group) -> Vec<Column> {
    let name = |row: &Row| format!("{} {}", if row.is_used { "*" } else { " " }, row.name);
    let mut columns = vec![Column { head: "", cells: group.rows.iter().map(name).collect() }];
    let mut add = |head: &'static str, cell: &dyn Fn(&Row, &Measured) -> Option<String>| {
        let cells: Vec<Option<String>> =
            group.rows.iter().map(|row| row.measured().and_then(|measured| cell(row, measured))).collect();
        if cells.iter().any(Option::is_some) {
            columns.push(Column { head, cells: cells.into_iter().map(Option::unwrap_or_default).collect() });
        }
    };
    add("CPU", &|_, measured| Some(nanoseconds(measured.cpu_ns.median)));
    add("p10", &|_, measured| Some(nanoseconds(measured.cpu_ns.p10)));
    add("wall", &|_, measured| (group.basis == Basis::Cpu).then(|| nanoseconds(measured.wall_ns.median)));
    add("per s", &|_, measured| (group.basis == Basis::BothSides).then(|| rate(measured.wall_ns.median)));
    add("peer", &|_, measured| measured.peer_cpu_ns.map(nanoseconds));
    add("most", &|_, measured| measured.busiest_share.map(|share| format!("{:.0} %", share * 100.0)));
    add("ratio", &|row, _| group.ratio(row).map(|ratio| ratio_text(ratio.median)));
    add("claim", &|row, _| row.claimed_ratio.map(|ratio| format!("{ratio:.2}")));
    add("n", &|_, measured| Some(measured.sample_count.to_string()));
    add("err", &|_, measured| Some(measured.error_count.to_string()));
    columns
}

/// With as many digits as mean something.
fn nanoseconds(ns: f64) -> String {
    if ns < 1_000.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

/// With two digits that mean something.
fn ratio_text(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

fn rate(wall_ns: f64) -> String {
    format!("{:.1}k", 1e6 / wall_ns)
}

/// Words until the line is full; further lines begin with `indent`.
fn write_wrapped(out: &mut String, begin: &str, indent: &str, text: &str) -> fmt::Result {
    let mut line = begin.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{}", line.trim_end())?;
            line = indent.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(out, "{}", line.trim_end())
}

#[cfg(test)]
mod tests;
