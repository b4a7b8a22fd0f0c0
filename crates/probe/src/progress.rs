//! Shows on a terminal how far a long measurement is; where there is no terminal, nothing.

use std::io::{IsTerminal, Write, stderr};

const BAR_CHARS: usize = 24;

/// One line of standard error that is written again and again.
pub(crate) struct Progress {
    is_shown: bool,
    shown_per_cent: usize,
}

impl Progress {
    /// Shown if standard error is a terminal.
    pub(crate) fn new() -> Progress {
        Progress { is_shown: stderr().is_terminal(), shown_per_cent: usize::MAX }
    }

    /// `done` of 1 is done; `doing` is what comes now.
    pub(crate) fn show(&mut self, done: f64, doing: &str) {
        let per_cent = (done.clamp(0.0, 1.0) * 100.0) as usize;
        if self.is_shown && per_cent != self.shown_per_cent {
            self.shown_per_cent = per_cent;
            // Who cannot be told is not told.
            let _ = write!(stderr(), "\r{}", line(per_cent, doing));
        }
    }

    /// Leaves an empty line to write on.
    pub(crate) fn clear(&mut self) {
        if self.is_shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn line(per_cent: usize, doing: &str) -> String {
    let full = BAR_CHARS * per_cent / 100;
    format!("[{}{}] {per_cent:3} %  {doing:<16}", "#".repeat(full), "-".repeat(BAR_CHARS - full))
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn the_bar_fills_from_the_left() {
        assert_eq!(line(0, "facts"), "[------------------------]   0 %  facts           ");
        assert_eq!(line(50, "datagrams"), "[############------------]  50 %  datagrams       ");
        assert_eq!(line(100, ""), "[########################] 100 %                  ");
    }
}
