//! Charts, drawn by gnuplot.

use crate::compare::growth::Growth;
use crate::compare::rounds::Outcome;
use anyhow::{Context, ensure};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const STYLE: &str =
    "set grid ytics; set key outside top center horizontal; set border 3; set tics nomirror; set rmargin 6\n";
const LINES: &str =
    "set style data linespoints; set logscale x; set logscale y 2; set mxtics 1; set format x \"%.0s%c\"\n";
/// The floor, Sanderling, the others; distinguishable without seeing red and green (Okabe and Ito).
const COLORS: [&str; 7] = ["#999999", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Bars: the cost of each workload and server as a multiple of Sanderling's.
pub(crate) fn bars(path: &Path, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let names: Vec<&str> = outcomes.first().map_or(Vec::new(), |it| it.rows.iter().map(|row| row.name).collect());
    let mut data = format!("workload {}\n", names.join(" "));
    for outcome in outcomes {
        write!(data, "\"{}\"", outcome.title)?;
        for name in &names {
            let ours = outcome.row("sanderling");
            let ratio = outcome.row(name).zip(ours).and_then(|(row, ours)| row.ratio_to(ours));
            write!(data, " {}", ratio.map_or_else(|| "NaN".to_owned(), |ratio| ratio.median.to_string()))?;
        }
        data += "\n";
    }
    let script = "set style data histogram; set style histogram cluster gap 1; set style fill solid noborder\n\
                  set logscale y 2; set yrange [0.5:*]; set xtics rotate by -25; set boxwidth 0.95\n\
                  set ylabel \"processor time per request, × sanderling\"\n";
    draw(path, 420, &plot(script, &data, names.len(), "using COLUMN:xtic(1)"))
}

/// Lines: the cost of each server against the size, a plot for each.
pub(crate) fn lines(path: &Path, all: &[Growth]) -> anyhow::Result<()> {
    let mut script = String::new();
    // Two sizes are no curve.
    let all: Vec<&Growth> = all.iter().filter(|growth| growth.sizes.len() > 2).collect();
    for growth in &all {
        let mut data = format!("size {}\n", growth.servers().join(" "));
        for row in growth.cells(|row| Some(row.cost_us()?.median.to_string())) {
            writeln!(data, "{}", row.join(" ").replace('–', "NaN"))?;
        }
        let style = format!("set title \"{}\"\n{LINES}", growth.name);
        script += &plot(&style, &data, growth.servers().len(), "using 1:COLUMN");
    }
    draw(path, 700, &format!("set multiplot layout {},2\n{script}unset multiplot\n", all.len().div_ceil(2)))
}

/// The commands that plot the columns of a table.
fn plot(style: &str, data: &str, count: usize, using: &str) -> String {
    let column = |index: usize| {
        let (column, color) = (index + 2, COLORS[index % COLORS.len()]);
        let using = using.replace("COLUMN", &column.to_string());
        format!("$data {using} title columnheader({column}) lc rgb \"{color}\" lw 2")
    };
    let columns: Vec<String> = (0..count).map(column).collect();
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
