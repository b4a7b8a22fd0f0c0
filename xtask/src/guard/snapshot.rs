//! The text of a snapshot of instructions into numbers and back, and two snapshots into what has changed between them.

use std::fmt;

/// Per cent by which a kind may become dearer unremarked: what a compiler's choice in one place may do to another.
const RISE_PERCENT_MAX: u64 = 3;
/// Per cent by which it may become cheaper: a gain that is not written down would be room for a loss.
const FALL_PERCENT_MAX: u64 = 10;

const TITLE: &str =
    "# Instructions of one request in user space, by callgrind; written by `cargo xtask guard --update`.\n";
const COMPILER: &str = "# compiler: ";
const TOOLS: &str = "# tools: ";

/// What was counted, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Only counts of the same one can be compared.
    pub(super) compiler: String,
    pub(super) tools: String,
    pub(super) counts: Vec<Count>,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) name: String,
    pub(super) instructions: u64,
}

impl Snapshot {
    /// # Errors
    /// The line that cannot be read.
    pub(super) fn parse(text: &str) -> Result<Snapshot, String> {
        let mut snapshot = Snapshot { compiler: String::new(), tools: String::new(), counts: Vec::new() };
        for (index, line) in text.lines().enumerate() {
            if let Some(compiler) = line.strip_prefix(COMPILER) {
                snapshot.compiler = compiler.to_owned();
            } else if let Some(tools) = line.strip_prefix(TOOLS) {
                snapshot.tools = tools.to_owned();
            } else if !line.starts_with('#') {
                let words: Vec<&str> = line.split_whitespace().collect();
                let count = match words[..] {
                    [name, number] => number.parse().ok().filter(|&number| number != 0).map(|number| (name, number)),
                    _ => None,
                };
                let (name, instructions) =
                    count.ok_or_else(|| format!("line {}: `{line}` is no name and number", index + 1))?;
                snapshot.counts.push(Count { name: name.to_owned(), instructions });
            }
        }
        Ok(snapshot)
    }

    /// One sentence for each kind that has changed by more than it may, or is in one of the two only.
    pub(super) fn complaints(&self, counted: &Snapshot) -> Vec<String> {
        let changed = counted.counts.iter().filter_map(|now| match self.of(&now.name) {
            Some(before) => complaint(now, before),
            None => Some(format!("{} is not in the snapshot", now.name)),
        });
        let gone = self.counts.iter().filter(|before| counted.of(&before.name).is_none());
        changed
            .chain(gone.map(|before| format!("{} is in the snapshot, but is counted no more", before.name)))
            .collect()
    }

    /// A table of what is kept here and what was counted now.
    pub(super) fn beside(&self, counted: &Snapshot) -> String {
        let mut table = format!("{:<20} {:>8} {:>8} {:>9}\n", "instructions", "snapshot", "now", "change");
        for Count { name, instructions } in &counted.counts {
            table += &match self.of(name) {
                Some(before) => {
                    let change = (*instructions as f64 / before as f64 - 1.0) * 100.0;
                    format!("{name:<20} {before:>8} {instructions:>8} {change:>+7.2} %\n")
                }
                None => format!("{name:<20} {:>8} {instructions:>8} {:>9}\n", "-", "-"),
            };
        }
        table
    }

    fn of(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|count| count.name == name).map(|count| count.instructions)
    }
}

fn complaint(now: &Count, before: u64) -> Option<String> {
    let Count { name, instructions } = now;
    let percent = instructions.abs_diff(before) as f64 * 100.0 / before as f64;
    if instructions * 100 > before * (100 + RISE_PERCENT_MAX) {
        Some(format!("{name} takes {instructions} instructions, {percent:.1} % more than the {before} of the snapshot"))
    } else if instructions * 100 < before * (100 - FALL_PERCENT_MAX) {
        Some(format!(
            "{name} takes {instructions} instructions, {percent:.1} % fewer than the {before} of the snapshot, \
             which is to be renewed so that the gain is kept"
        ))
    } else {
        None
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{TITLE}{COMPILER}{}\n{TOOLS}{}\n", self.compiler, self.tools)?;
        self.counts.iter().try_for_each(|count| writeln!(out, "{:<20} {:>6}", count.name, count.instructions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(counts: &[(&str, u64)]) -> Snapshot {
        let count = |&(name, instructions): &(&str, u64)| Count { name: name.to_owned(), instructions };
        Snapshot { compiler: "rustc 1".into(), tools: "valgrind-3".into(), counts: counts.iter().map(count).collect() }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = snapshot(&[("http-512", 2110), ("a-name-that-is-longer-than-most", 1)]);
        assert_eq!(Snapshot::parse(&written.to_string()), Ok(written));
    }

    #[test]
    fn a_line_that_is_no_count_is_told_by_its_number() {
        for line in ["http-512", "http-512 many", "http-512 0", "http-512 1 2", ""] {
            let error = Snapshot::parse(&format!("# title\n{line}\n")).expect_err(line);
            assert_eq!(error, format!("line 2: `{line}` is no name and number"));
        }
    }

    #[test]
    fn a_change_is_remarked_beyond_its_bound_only() {
        let check = |now: u64, expected: &str| {
            assert_eq!(snapshot(&[("hit", 1000)]).complaints(&snapshot(&[("hit", now)])).join("; "), expected);
        };
        check(1000, "");
        check(1030, "");
        check(1031, "hit takes 1031 instructions, 3.1 % more than the 1000 of the snapshot");
        check(900, "");
        check(
            899,
            "hit takes 899 instructions, 10.1 % fewer than the 1000 of the snapshot, which is to be renewed so that the \
             gain is kept",
        );
    }

    #[test]
    fn a_kind_that_came_or_went_is_remarked() {
        assert_eq!(
            snapshot(&[("old", 1), ("both", 1)]).complaints(&snapshot(&[("both", 1), ("new", 1)])),
            ["new is not in the snapshot", "old is in the snapshot, but is counted no more"]
        );
    }
}
