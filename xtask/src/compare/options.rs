//! The words behind `cargo xtask compare`, as what is to be measured and how long.

/// What a run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Http,
    Dns,
    /// Cost against the number of connections, files, names, zones and workers.
    Growth,
    /// Zones read, starts, memory.
    Load,
}

const PARTS: &[(&str, Part)] =
    &[("http", Part::Http), ("dns", Part::Dns), ("growth", Part::Growth), ("load", Part::Load)];

/// Rounds of a full run and of a quick one.
const ROUNDS: usize = 5;
const ROUNDS_QUICK: usize = 3;
/// More would only bring the night on.
const ROUNDS_MAX: usize = 101;

/// What one run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Two minutes: the main workloads, short rounds.
    pub(super) is_quick: bool,
    pub(super) parts: Vec<Part>,
    pub(super) round_count: usize,
}

impl Options {
    /// # Errors
    /// What is wrong with the words.
    pub(crate) fn parse(words: &[String]) -> Result<Options, String> {
        let mut is_quick = false;
        let mut only = Vec::new();
        let mut round_count = None;
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--quick" => is_quick = true,
                "--only" => only.push(part(words.next())?),
                "--rounds" => round_count = Some(rounds(words.next())?),
                other => return Err(format!("compare has no option `{other}`")),
            }
        }
        if only.is_empty() {
            only = vec![Part::Http, Part::Dns];
            if !is_quick {
                only.extend([Part::Growth, Part::Load]);
            }
        }
        let default = if is_quick { ROUNDS_QUICK } else { ROUNDS };
        Ok(Options { is_quick, parts: only, round_count: round_count.unwrap_or(default) })
    }

    /// The command that asks for the same.
    pub(super) fn command(&self) -> String {
        let mut command = String::from("cargo xtask compare");
        if self.is_quick {
            command += " --quick";
        }
        for part in &self.parts {
            command += &format!(" --only {}", name_of(*part));
        }
        command + &format!(" --rounds {}", self.round_count)
    }
}

/// The word for a part.
pub(super) fn name_of(part: Part) -> &'static str {
    PARTS.iter().find(|(_, of)| *of == part).expect("every part has a name").0
}

fn part(word: Option<&str>) -> Result<Part, String> {
    let known = || PARTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|");
    let word = word.ok_or_else(|| format!("--only needs one of {}", known()))?;
    let found = PARTS.iter().find(|(name, _)| *name == word);
    found.map(|(_, part)| *part).ok_or_else(|| format!("compare has no part `{word}`, but {}", known()))
}

fn rounds(word: Option<&str>) -> Result<usize, String> {
    let count = word.and_then(|word| word.parse().ok()).filter(|count| (1..=ROUNDS_MAX).contains(count));
    count.ok_or_else(|| format!("--rounds needs a number from 1 to {ROUNDS_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, expected: Result<&str, &str>) {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let parsed = Options::parse(&words).map(|options| options.command());
        assert_eq!(parsed.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn all_parts_run_unless_told_otherwise() {
        check("", Ok("cargo xtask compare --only http --only dns --only growth --only load --rounds 5"));
        check("--quick", Ok("cargo xtask compare --quick --only http --only dns --rounds 3"));
        check("--only dns --rounds 9", Ok("cargo xtask compare --only dns --rounds 9"));
    }

    #[test]
    fn wrong_words_are_told() {
        check("--fast", Err("compare has no option `--fast`"));
        check("--only", Err("--only needs one of http|dns|growth|load"));
        check("--only tls", Err("compare has no part `tls`, but http|dns|growth|load"));
        check("--rounds 0", Err("--rounds needs a number from 1 to 101"));
    }
}
