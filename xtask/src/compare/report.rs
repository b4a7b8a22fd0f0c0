//! What was measured, as a page of Markdown.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::launch::Launch;
use super::rounds::{Outcome, Row};
use super::spread::{Spread, digits};

/// Lines of a server's settings that are shown; a thousand zones look alike.
const SETTING_LINES_MAX: usize = 70;

/// A page in the making.
pub(super) struct Report {
    title: String,
    /// The command that makes it again, the machine, the versions.
    circumstances: Vec<String>,
    body: String,
    /// Pictures beside it: their file names and their text.
    charts: Vec<(String, String)>,
}

impl Report {
    pub(super) fn new(title: &str) -> Report {
        Report { title: title.into(), circumstances: Vec::new(), body: String::new(), charts: Vec::new() }
    }

    /// Lines about where and how it was measured.
    pub(super) fn set_circumstances(&mut self, lines: &[String]) {
        self.circumstances = lines.to_vec();
    }

    /// A heading with what stands below it.
    pub(super) fn section(&mut self, title: &str, text: &str) {
        write(&mut self.body, &format!("## {title}\n\n"));
        if !text.is_empty() {
            self.text(text);
        }
    }

    /// A paragraph.
    pub(super) fn text(&mut self, text: &str) {
        write(&mut self.body, &format!("{text}\n\n"));
    }

    /// A table with a head; numbers stand on the right.
    pub(super) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        write(&mut self.body, &table(head, rows));
    }

    /// A picture, shown here and written beside the page.
    pub(super) fn chart(&mut self, file: &str, title: &str, svg: String) {
        write(&mut self.body, &format!("![{title}]({file})\n\n"));
        self.charts.push((file.into(), svg));
    }

    /// One workload.
    pub(super) fn outcome(&mut self, outcome: &Outcome) {
        self.section(&outcome.title, &outcome.description);
        let rows: Vec<Vec<String>> = outcome.rows.iter().map(|row| cells(outcome, row)).collect();
        self.table(HEAD, &rows);
        for row in &outcome.rows {
            if let Some((_, names)) = row.calls.as_ref().filter(|(_, names)| !names.is_empty()) {
                write(&mut self.body, &format!("- {}: {names}\n", row.name));
            }
        }
        for (name, trouble) in outcome.rows.iter().filter_map(|row| Some((&row.name, row.trouble.as_ref()?))) {
            write(&mut self.body, &format!("- {name} failed: {}\n", trouble.lines().next().unwrap_or_default()));
        }
        write(&mut self.body, "\n");
    }

    /// The settings of each server, with the folders of this run named instead of spelled out.
    pub(super) fn settings(&mut self, launches: &[Launch], run_folder: &Path) {
        self.section("Settings", "");
        let folder = run_folder.display().to_string();
        for launch in launches {
            let arguments = launch.arguments.join(" ").replace(&folder, "RUN");
            let environment: String =
                launch.environment.iter().map(|(name, value)| format!("{name}={value} ")).collect();
            let program = launch.program.file_name().unwrap_or_default().display();
            let command = format!("{}{program} {arguments}", environment.replace(&folder, "RUN"));
            write(&mut self.body, &format!("**{}**: `{command}`\n\n", launch.name));
            for (name, text) in &launch.files {
                let lines: Vec<&str> = text.lines().take(SETTING_LINES_MAX).collect();
                let text = lines.join("\n").replace(&folder, "RUN");
                write(&mut self.body, &format!("`{name}`:\n\n```\n{text}\n```\n\n"));
            }
        }
    }

    /// The page itself.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        for line in &self.circumstances {
            write(&mut text, &format!("- {line}\n"));
        }
        format!("{}\n", format!("{text}\n{}", self.body).trim_end())
    }

    /// Writes `name.md` and the pictures into `folder`.
    pub(super) fn write(&self, folder: &Path, name: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        fs::write(folder.join(format!("{name}.md")), self.markdown()).map_err(failed)?;
        for (file, svg) in &self.charts {
            fs::write(folder.join(file), svg).map_err(failed)?;
        }
        Ok(())
    }
}

const HEAD: &[&str] = &[
    "server",
    "µs a request: median (range)",
    "× ours",
    "× floor",
    "user %",
    "calls",
    "PSS MiB",
    "load µs",
    "requests",
    "errors",
];

fn cells(outcome: &Outcome, row: &Row) -> Vec<String> {
    let spread = |spread: Option<Spread>| spread.map_or_else(none, |spread| spread.to_string());
    let ratio = |name| spread(outcome.row(name).and_then(|other| row.times(other)).filter(|_| row.name != name));
    vec![
        row.name.clone(),
        spread(row.cost()),
        ratio("sanderling"),
        ratio("floor"),
        row.user_percent().map_or_else(none, |percent| format!("{percent:.0}")),
        row.calls.as_ref().map_or_else(none, |(total, _)| format!("{total:.2}")),
        format!("{:.1}", row.memory_kib as f64 / 1024.0),
        row.load_cost().map_or_else(none, |cost| format!("{:.*}", digits(cost.median), cost.median)),
        row.answered_count().to_string(),
        row.error_count().to_string(),
    ]
}

fn none() -> String {
    "–".into()
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|---|{}\n", head.join(" | "), "--:|".repeat(head.len() - 1));
    for row in rows {
        write(&mut text, &format!("| {} |\n", row.join(" | ")));
    }
    text + "\n"
}

fn write(text: &mut String, more: &str) {
    text.write_str(more).expect("a string takes whatever is written");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::load::Counted;
    use crate::compare::process_tree::ProcessorTime;
    use crate::compare::rounds::Sample;
    use std::path::PathBuf;

    fn row(name: &str, costs_us: &[u64], calls: &str) -> Row {
        let sample = |&cost_us: &u64| {
            Some(Sample {
                counted: Counted { answered_count: 1000, error_count: 0, load_ns: 5_000_000 },
                server: ProcessorTime { total_ns: cost_us * 1_000_000, user_ticks: 1, system_ticks: 3 },
            })
        };
        Row {
            name: name.into(),
            samples: costs_us.iter().map(sample).collect(),
            memory_kib: 2048,
            calls: Some((2.0, calls.into())),
            trouble: None,
        }
    }

    #[test]
    fn a_page_is_written_like_this() {
        let mut report = Report::new("HTTP");
        report.set_circumstances(&["Command: `cargo xtask compare`".into()]);
        let mut broken = row("h2o", &[7], "");
        broken.trouble = Some("wrk did not end\nand more".into());
        let rows =
            vec![row("floor", &[4, 4, 5], "recvfrom 1.00"), row("sanderling", &[5, 6, 5], "recvfrom 1.00"), broken];
        report.outcome(&Outcome { title: "512 B".into(), description: "wrk.".into(), rows });
        report.chart("http.svg", "Cost", "<svg/>".into());
        let launch = Launch {
            name: "h2o",
            program: PathBuf::from("h2o"),
            arguments: vec!["-c".into(), "/tmp/run/h2o.conf".into()],
            environment: vec![("HOME", "/tmp/run".into())],
            files: vec![("h2o.conf", "file.dir: /tmp/run/site\n".into())],
        };
        report.settings(&[launch], Path::new("/tmp/run"));
        let expected = "\
# HTTP

- Command: `cargo xtask compare`

## 512 B

wrk.

| server | µs a request: median (range) | × ours | × floor | user % | calls | PSS MiB | load µs | requests | errors |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
| floor | 4.00 (4.00–5.00) | 0.80 (0.67–1.00) | – | 25 | 2.00 | 2.0 | 5.00 | 3000 | 0 |
| sanderling | 5.00 (5.00–6.00) | – | 1.25 (1.00–1.50) | 25 | 2.00 | 2.0 | 5.00 | 3000 | 0 |
| h2o | 7.00 (7.00–7.00) | 1.40 (1.40–1.40) | 1.75 (1.75–1.75) | 25 | 2.00 | 2.0 | 5.00 | 1000 | 0 |

- floor: recvfrom 1.00
- sanderling: recvfrom 1.00
- h2o failed: wrk did not end

![Cost](http.svg)

## Settings

**h2o**: `HOME=RUN h2o -c RUN/h2o.conf`

`h2o.conf`:

```
file.dir: RUN/site
```
";
        assert_eq!(report.markdown(), expected);
    }
}
