//! The words behind `cargo xtask endure`, as which scenarios are to be run and for how long.

use std::path::PathBuf;

/// How long the scenarios take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// As many events and requests as a promise is made for.
    Full,
    /// A few events each: to see that all works.
    Short,
}

impl Extent {
    /// One of two numbers.
    pub(super) fn choose<T>(self, full: T, short: T) -> T {
        match self {
            Extent::Full => full,
            Extent::Short => short,
        }
    }
}

/// What one run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(super) extent: Extent,
    /// Names of scenarios; all when there are none.
    pub(super) only: Vec<String>,
    /// The server, when it is not to be built from the tree.
    pub(super) program: Option<PathBuf>,
}

impl Options {
    /// # Errors
    /// What is wrong with the words.
    pub(crate) fn parse(words: &[String]) -> Result<Options, String> {
        let mut options = Options { extent: Extent::Full, only: Vec::new(), program: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--short" => options.extent = Extent::Short,
                "--only" => options.only.push(words.next().ok_or("--only needs the name of a scenario")?.clone()),
                "--program" => options.program = Some(words.next().ok_or("--program needs a file")?.into()),
                other => return Err(format!("endure has no option `{other}`")),
            }
        }
        Ok(options)
    }

    /// The command that asks for the same.
    pub(super) fn command(&self) -> String {
        let only: String = self.only.iter().map(|name| format!(" --only {name}")).collect();
        let program = self.program.as_ref().map(|program| format!(" --program {}", program.display()));
        format!("cargo xtask endure{}{only}{}", self.extent.choose("", " --short"), program.unwrap_or_default())
    }
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
    fn words_are_read_and_told_again() {
        check("", Ok("cargo xtask endure"));
        check("--only kill --short --only broken", Ok("cargo xtask endure --short --only kill --only broken"));
        check("--program old/sanderling", Ok("cargo xtask endure --program old/sanderling"));
    }

    #[test]
    fn wrong_words_are_told() {
        check("--fast", Err("endure has no option `--fast`"));
        check("--only", Err("--only needs the name of a scenario"));
    }
}
