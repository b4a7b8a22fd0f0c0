//! Charts, drawn by gnuplot.

use crate::compare::growth::Growth;
use crate::compare::rounds::Outcome;
use anyhow::{Context, ensure};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const STYLE: &str = "set grid ytics; set key outside top center horizontal; set border 3; set tics nomirror\n";
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
    draw(path, script, &data, names.len(), "using COLUMN:xtic(1)")
}

/// Lines: the cost of each server against the size.
pub(crate) fn lines(path: &Path, growth: &Growth) -> anyhow::Result<()> {
    let names = growth.servers();
    let mut data = format!("size {}\n", names.join(" "));
    for row in growth.cells(|row| Some(row.cost_us()?.median.to_string())) {
        writeln!(data, "{}", row.join(" ").replace('–', "NaN"))?;
    }
    let script = format!(
        "set style data linespoints; set logscale x; set yrange [0:*]\n\
         set xlabel \"{}\"; set ylabel \"processor time per request, µs\"\n",
        growth.name
    );
    draw(path, &script, &data, names.len(), "using 1:COLUMN")
}

fn draw(path: &Path, script: &str, data: &str, count: usize, using: &str) -> anyhow::Result<()> {
    let plot = |index: usize| {
        let using = using.replace("COLUMN", &(index + 2).to_string());
        format!("$data {using} title columnheader({}) lc rgb \"{}\" lw 2", index + 2, COLORS[index % COLORS.len()])
    };
    let plots: Vec<String> = (0..count).map(plot).collect();
    let path = path.display();
    let input = format!(
        "set terminal svg size 900,420 font \"sans-serif,12\" background \"white\"; set output \"{path}\"\n\
         {STYLE}{script}$data << EOD\n{data}EOD\nplot {}\n",
        plots.join(", ")
    );
    let mut gnuplot = Command::new("gnuplot").stdin(Stdio::piped()).spawn().context("gnuplot")?;
    gnuplot.stdin.take().context("no pipe")?.write_all(input.as_bytes())?;
    ensure!(gnuplot.wait()?.success(), "gnuplot failed to draw {path}");
    Ok(())
}
