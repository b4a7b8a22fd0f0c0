//! The progress of the measurement, on a terminal.

use std::io::{IsTerminal, Write, stderr};

const BAR_CHARS: usize = 24;

/// One line of standard error that is rewritten; nothing if that is not a terminal.
pub(crate) struct Progress {
    is_shown: bool,
    percent: usize,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { is_shown: stderr().is_terminal(), percent: usize::MAX }
    }

    /// `done` is a share of 1.
    pub(crate) fn show(&mut self, done: f64, job: &str) {
        let percent = (done.clamp(0.0, 1.0) * 100.0) as usize;
        if self.is_shown && percent != self.percent {
            self.percent = percent;
            let full = "#".repeat(BAR_CHARS * percent / 100);
            let _ = write!(stderr(), "\r[{full:-<BAR_CHARS$}] {percent:3} %  {job:<16}");
        }
    }

    pub(crate) fn clear(&mut self) {
        if self.is_shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
