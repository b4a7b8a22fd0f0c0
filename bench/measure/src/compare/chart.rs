//! Charts, drawn by gnuplot.

use crate::compare::growth::Growth;
use crate::compare::rounds::{Outcome, Row, cells, names};
use anyhow::{Context, ensure};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const STYLE: &str = "set grid ytics; set key outside top center horizontal; set border 3; set tics nomirror; set rmargin 6\n\
     set datafile separator \"\\t\"\n";
const LINES: &str =
    "set style data linespoints; set logscale x; set logscale y 2; set mxtics 1; set format x \"%.0s%c\"\n";
/// The floor, Sanderling, the others; distinguishable without seeing red and green (Okabe and Ito).
const COLORS: [&str; 7] = ["#999999", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Bars: the cost of each workload and server as a multiple of Sanderling's.
pub(crate) fn bars(path: &Path, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let style = "set style data histogram; set style histogram cluster gap 1; set style fill solid noborder\n\
                 set logscale y 2; set yrange [0.5:*]; set xtics rotate by -25; set boxwidth 0.95\n\
                 set ylabel \"processor time per request, × sanderling\"\n";
    let ratio = |outcome: &Outcome, row: &Row| Some(outcome.ratio_to_ours(row)?.median.to_string());
    draw(path, 420, &plot(style, outcomes, ratio, "COLUMN:xtic(1)"))
}

/// Lines: the cost of each server against the size, a plot for each.
pub(crate) fn lines(path: &Path, all: &[Growth]) -> anyhow::Result<()> {
    let mut script = String::new();
    // Two sizes are no curve.
    let all: Vec<&Growth> = all.iter().filter(|growth| growth.sizes.len() > 2).collect();
    for growth in &all {
        let style = format!("set title \"{}\"\n{LINES}", growth.name);
        script += &plot(&style, &growth.sizes, |_, row| Some(row.cost_us()?.median.to_string()), "1:COLUMN");
    }
    draw(path, 700, &format!("set multiplot layout {},2\n{script}unset multiplot\n", all.len().div_ceil(2)))
}

/// The commands that plot a column of each server.
fn plot(style: &str, outcomes: &[Outcome], cell: impl Fn(&Outcome, &Row) -> Option<String>, using: &str) -> String {
    let names = names(outcomes);
    let lines = cells(outcomes, cell).into_iter().map(|line| line.join("\t").replace('–', "NaN") + "\n");
    let data = format!("title\t{}\n{}", names.join("\t"), lines.collect::<String>());
    let column = |index: usize| {
        let (column, color) = (index + 2, COLORS[index % COLORS.len()]);
        let using = using.replace("COLUMN", &column.to_string());
        format!("$data using {using} title columnheader({column}) lc rgb \"{color}\" lw 2")
    };
    let columns: Vec<String> = (0..names.len()).map(column).collect();
    format!("{STYLE}{style}$data << EOD\n{data}EOD\nplot {}\n", columns.join(", "))
}

fn draw(path: &Path, height: u32, script: &str) -> anyhow::Result<()> {
    let path = path.display();
    let terminal = format!("set terminal svg size 900,{height} font \"sans-serif,12\" background \"white\"");
    let mut gnuplot = Command::new("gnuplot").stdin(Stdio::piped()).spawn().context("gnuplot")?;
    let input = format!("{terminal}; set output \"{path}\"\n{script}");
    gnuplot.stdin.take().context("no pipe")?.write_all(input.as_bytes())?;
    ensure!(gnuplot.wait()?.success(), "gnuplot failed to draw {path}");
    Ok(())
}
