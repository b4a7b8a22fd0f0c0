//! `sanderling top`: a live view of a running server in the terminal, from its metrics.
//!
//! The caller fetches the metrics; here they are parsed, compared with the previous ones, and drawn.
#![forbid(unsafe_code)]

// Modules are in import order: a module uses only modules below it.
mod terminal;
mod page;
mod view;
mod quantities;
mod samples;

use page::{draw, lines_of};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use samples::Samples;
use sanderling_config::Exit;
use sanderling_config::log::{log, print};
use std::thread;
use std::time::{Duration, Instant};
use view::{Sort, View};

/// Columns of the page that `--once` prints.
const PLAIN_COLUMNS: u16 = 100;
/// Maximum lines of a printed page.
const PLAIN_LINES_MAX: u16 = 60;

/// The options of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether one page is printed as text; otherwise the page is shown until the user quits.
    pub is_once: bool,
    /// Between two pages.
    pub interval: Duration,
}

/// Shows the metrics that `fetch` returns as text.
pub fn run(options: Options, mut fetch: impl FnMut() -> Result<String, String>) -> Exit {
    let mut fetch = || fetch().map(|text| Samples::parse(&text, Instant::now()));
    let shown = match options.is_once {
        true => print_once(options.interval, &mut fetch),
        false => terminal::show(options.interval, &mut fetch),
    };
    match shown {
        Ok(()) => Exit::Success,
        Err(problem) => {
            log(&problem);
            Exit::Failure
        }
    }
}

/// Prints one page without colours, of the time between two fetches.
fn print_once(interval: Duration, fetch: &mut impl FnMut() -> Result<Samples, String>) -> Result<(), String> {
    let before = fetch()?;
    thread::sleep(interval);
    let view = View::new(Some(&before), &fetch()?, Sort::Rate);
    print(&plain_text(&view, PLAIN_COLUMNS, lines_of(&view).min(PLAIN_LINES_MAX)));
    Ok(())
}

/// The page as text, without empty lines at its end.
fn plain_text(view: &View, columns: u16, lines: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).expect("memory cannot fail");
    terminal.draw(|frame| draw(view, None, frame)).expect("memory cannot fail");
    let buffer = terminal.backend().buffer();
    let cells = |line: u16| (0..columns).map(move |column| buffer[(column, line)].symbol()).collect::<String>();
    let text: String = (0..lines).map(|line| cells(line).trim_end().to_owned() + "\n").collect();
    text.trim_end().to_owned() + "\n"
}
