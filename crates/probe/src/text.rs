//! The report as text.

use crate::report::{Group, Report, Row};
use std::fmt::Write;

const LEGEND: &str =
    "times in nanoseconds per operation: CPU (median) and p10 of CPU time, wall-clock time, CPU time of the peer
share of the busiest thread; ratio to the first row or the first of its kind; samples; errors; * in use";

pub(crate) fn table(report: &Report) -> String {
    let machine = &report.machine;
    let mut out = format!(
        "kernel {}, {} processors: {}, load average {}\n",
        machine.kernel, machine.processor_count, machine.processor, machine.load_average
    );
    for unsupported in &machine.unsupported {
        let _ = writeln!(out, "not supported here: {unsupported}");
    }
    let quick = if report.quick { "quick, " } else { "" };
    let _ = writeln!(out, "{quick}measured in {:.1} s, seed {}\n{LEGEND}", report.took_s, report.seed);
    for group in &report.groups {
        let _ = write!(out, "\n{} [{}]\n{}", group.title, group.name, rows(group));
        for note in group.selection_text().into_iter().chain(group.notes.iter().cloned()) {
            let _ = writeln!(out, "  {note}");
        }
    }
    let _ = writeln!(out, "\n{}", report.summary);
    out
}

/// The rows of a group, in aligned columns. A column without values is left out.
fn rows(group: &Group) -> String {
    let head = ["", "CPU", "p10", "wall", "peer", "share", "ratio", "n", "err"].map(str::to_owned);
    let lines: Vec<[String; 9]> = std::iter::once(head).chain(group.rows.iter().map(cells)).collect();
    let width = |column: usize| {
        let is_empty = lines[1..].iter().all(|line| line[column].is_empty());
        if is_empty { 0 } else { lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0) }
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        let mut text = format!("{:<width$}", line[0], width = widths[0]);
        for (cell, &width) in line.iter().zip(&widths).skip(1).filter(|(_, width)| **width > 0) {
            let _ = write!(text, "  {cell:>width$}");
        }
        if let Some(error) = index.checked_sub(1).and_then(|index| group.rows[index].error.as_ref()) {
            text = format!("{}  cannot run here: {error}", text.trim_end());
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

fn cells(row: &Row) -> [String; 9] {
    let name = format!("{} {}", if row.used { "*" } else { " " }, row.name);
    let mut cells = std::array::from_fn(|_| String::new());
    if let Some(measured) = &row.measured {
        cells = [
            String::new(),
            nanoseconds(measured.cpu_ns.median),
            nanoseconds(measured.cpu_ns.p10),
            nanoseconds(measured.wall_ns.median),
            measured.peer_cpu_ns.map(nanoseconds).unwrap_or_default(),
            measured.busiest_share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default(),
            row.ratio.map(|ratio| ratio_text(ratio.median)).unwrap_or_default(),
            measured.samples.to_string(),
            measured.errors.to_string(),
        ];
    }
    cells[0] = name;
    cells
}

/// With the digits that are significant.
fn nanoseconds(ns: f64) -> String {
    if ns < 1_000.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

/// With two significant digits.
fn ratio_text(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Basis, Measured};
    use crate::spread::Spread;

    fn row(name: &str, median: f64) -> Row {
        let cpu_ns = Spread { median, p10: median };
        Row {
            name: name.to_owned(),
            threads: 1,
            variant: None,
            used: name == "fcntl",
            baseline: 0,
            ratio: None,
            measured: Some(Measured { cpu_ns, wall_ns: cpu_ns, samples: 31, ..Measured::default() }),
            error: None,
        }
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let missing = Row { measured: None, error: Some("no such call".to_owned()), ..row("statx", 0.0) };
        let rows_of = vec![row("fcntl", 126.0), row("ioctl(FIOCLEX)", 1_128.6), missing];
        let group = Group::new("cloexec", "Title".to_owned(), "call", Basis::Cpu, rows_of);
        let expected = "                    CPU    p10   wall  ratio   n  err
* fcntl           126.0  126.0  126.0   1.00  31    0
  ioctl(FIOCLEX)   1129   1129   1129   8.96  31    0
  statx  cannot run here: no such call
";
        assert_eq!(rows(&group), expected);
    }
}
