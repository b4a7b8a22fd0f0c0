//! Chooses, for each job that the kernel offers several ways for, the first way that works here; any can be forced.
//!
//! A job names its ways in order of preference and tests each for being there. The choice is made once, when it is
//! first asked for, and does not change. The command line's `--force JOB=WAY` and the environment's
//! `SANDERLING_FORCE=JOB=WAY,…` name a way by hand: for tests, which run with every fallback, and for diagnosis.

use std::sync::atomic::{AtomicU8, Ordering};

/// Names the environment variable that forces ways, several of them parted by commas.
pub const FORCE_VARIABLE: &str = "SANDERLING_FORCE";

const NOT_CHOSEN: u8 = u8::MAX;

/// A job, its ways, and the one in use.
#[derive(Debug)]
pub struct Job {
    name: &'static str,
    ways: &'static [Way],
    chosen: AtomicU8,
}

/// One way of doing a job.
#[derive(Debug)]
pub struct Way {
    /// What `--force` calls it.
    pub name: &'static str,
    /// Whether this kernel, in this process, has it.
    pub is_there: fn() -> bool,
}

impl Job {
    /// A job whose `ways` stand in order of preference; the last must be there on every kernel.
    pub(crate) const fn new(name: &'static str, ways: &'static [Way]) -> Job {
        Job { name, ways, chosen: AtomicU8::new(NOT_CHOSEN) }
    }

    /// What `--force` and `probe` call the job.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its ways, in order of preference.
    pub fn ways(&self) -> &'static [Way] {
        self.ways
    }

    /// The index of the way in use.
    #[inline]
    pub fn chosen(&self) -> usize {
        match self.chosen.load(Ordering::Relaxed) {
            NOT_CHOSEN => self.choose(),
            index => usize::from(index),
        }
    }

    /// The name of the way in use.
    pub fn chosen_name(&self) -> &'static str {
        self.ways[self.chosen()].name
    }

    #[cold]
    fn choose(&self) -> usize {
        let forced = std::env::var(FORCE_VARIABLE).ok().and_then(|list| {
            let by_job = list.split(',').filter_map(|item| item.split_once('='));
            let way = by_job.filter(|(job, _)| *job == self.name).map(|(_, way)| way.to_owned()).last()?;
            self.ways.iter().position(|candidate| candidate.name == way)
        });
        let index = forced.or_else(|| self.ways.iter().position(|way| (way.is_there)())).unwrap_or(self.ways.len() - 1);
        self.chosen.store(index as u8, Ordering::Relaxed);
        index
    }

    /// Takes the way of this name from now on.
    ///
    /// # Errors
    /// The names of the ways that there are.
    pub(crate) fn force(&self, way: &str) -> Result<(), Vec<&'static str>> {
        let Some(index) = self.ways.iter().position(|candidate| candidate.name == way) else {
            return Err(self.ways.iter().map(|way| way.name).collect());
        };
        self.chosen.store(index as u8, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_way_that_is_there_is_chosen() {
        static JOB: Job = Job::new(
            "test",
            &[
                Way { name: "missing", is_there: || false },
                Way { name: "good", is_there: || true },
                Way { name: "last", is_there: || true },
            ],
        );
        assert_eq!(JOB.chosen_name(), "good");
        assert_eq!(JOB.force("last"), Ok(()));
        assert_eq!(JOB.chosen_name(), "last");
        assert_eq!(JOB.force("none"), Err(vec!["missing", "good", "last"]));
    }
}
