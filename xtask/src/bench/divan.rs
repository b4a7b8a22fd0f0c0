//! The tree that divan 0.1 prints into the time of each way; it has no form for programs.

/// How long a run of a way took.
#[derive(Debug, PartialEq)]
pub(super) struct Timed {
    pub(super) job: String,
    pub(super) way: String,
    pub(super) median_ns: f64,
    pub(super) fastest_ns: f64,
}

/// Ends the lines that lead to a name.
const BRANCH: &str = "─ ";
const COLUMN: char = '│';
/// Letters before the branch of a way, which stands below its job: `│  ├` or `   ╰`.
const LETTERS_BEFORE_WAY: usize = 4;
/// Columns in their order: fastest, slowest, median.
const MEDIAN_COLUMN: usize = 2;

/// The ways in their order; lines that are none of the tree's are passed over.
pub(super) fn parse(lines: &[String]) -> Vec<Timed> {
    let mut timed = Vec::new();
    let mut job = "";
    for line in lines {
        let Some((before, row)) = line.split_once(BRANCH) else { continue };
        let columns: Vec<&str> = row.split(COLUMN).map(str::trim).collect();
        if before.chars().count() < LETTERS_BEFORE_WAY {
            job = columns[0];
        } else if let Some((way, fastest_ns)) = name_and_ns(columns[0])
            && let Some((_, median_ns)) = columns.get(MEDIAN_COLUMN).and_then(|column| name_and_ns(column))
        {
            timed.push(Timed { job: job.to_owned(), way: way.to_owned(), median_ns, fastest_ns });
        }
    }
    timed
}

/// `open, close   138.6 µs` as its name, which may be empty, and its nanoseconds.
fn name_and_ns(text: &str) -> Option<(&str, f64)> {
    let (rest, unit) = text.rsplit_once(' ')?;
    let (name, number) = rest.rsplit_once(' ').unwrap_or(("", rest));
    let ns = match unit {
        "ps" => 1e-3,
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some((name.trim_end(), number.parse::<f64>().ok()? * ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_read() {
        let text = "\
Timer precision: 32 ns
time                     fastest       │ slowest       │ median        │ mean          │ samples │ iters
├─ facts                               │               │               │               │         │
│  ├─ newfstatat(fd, \"\") 25.82 µs      │ 47.89 µs      │ 27.3 µs       │ 29.32 µs      │ 10      │ 10
│  ╰─ statx                  24.98 µs  │ 43.44 µs      │ 26.34 µs      │ 28.2 µs       │ 10      │ 10
╰─ serving                             │               │               │               │         │
   ╰─ kept in memory: copy   576 ns    │ 684 ns        │ 615.5 ns      │ 621.8 ns      │ 10      │ 80
";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let timed = |job: &str, way: &str, fastest_ns: f64, median_ns: f64| Timed {
            job: job.to_owned(),
            way: way.to_owned(),
            median_ns,
            fastest_ns,
        };
        assert_eq!(
            parse(&lines),
            [
                timed("facts", "newfstatat(fd, \"\")", 25_820.0, 27_300.0),
                timed("facts", "statx", 24_980.0, 26_340.0),
                timed("serving", "kept in memory: copy", 576.0, 615.5),
            ]
        );
    }

    #[test]
    fn every_unit_is_a_number_of_nanoseconds() {
        for (text, ns) in [("1.5 ps", 0.0015), ("2 ns", 2.0), ("3 µs", 3e3), ("4 ms", 4e6), ("5 s", 5e9)] {
            assert_eq!(name_and_ns(text), Some(("", ns)), "{text}");
        }
        assert_eq!(name_and_ns("6 parsecs"), None);
    }
}
