//! The page on a terminal: keys, and a new page after each interval. The terminal is restored however the program ends,
//! except by SIGKILL.

use crate::page::{Controls, draw};
use crate::samples::Samples;
use crate::view::{Sort, View};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use sanderling_config::diagnostic::error_text;
use sanderling_os::poll_set::PollSet;
use sanderling_os::signals::{SIGHUP, SIGINT, SIGTERM, Signals};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The places of descriptors that are waited for.
const SIGNALS: usize = 0;
const INPUT: usize = 1;
/// Maximum wait for a key, if the terminal is not the standard input.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// A key's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Quit,
    Pause,
    Sort,
    Nothing,
}

/// Shows pages until the user quits.
///
/// # Errors
/// Returns an error if the server or the terminal is missing.
pub(crate) fn show(interval: Duration, fetch: &mut impl FnMut() -> Result<Samples, String>) -> Result<(), String> {
    let on_terminal = |error: io::Error| format!("cannot use the terminal: {}; try --once", error_text(&error));
    let first = fetch()?;
    let signals = Signals::register(&[SIGINT, SIGTERM, SIGHUP]).map_err(on_terminal)?;
    // The call also restores the terminal after a panic.
    let mut terminal = ratatui::try_init().map_err(on_terminal)?;
    let result = run(&mut terminal, &signals, interval, first, fetch);
    if ratatui::try_restore().and_then(|()| terminal.show_cursor()).is_err() {
        // The terminal was closed, and the destructor would panic because it cannot write a message there.
        std::mem::forget(terminal);
    }
    result.map_err(on_terminal)
}

fn run(
    terminal: &mut DefaultTerminal,
    signals: &Signals,
    interval: Duration,
    first: Samples,
    fetch: &mut impl FnMut() -> Result<Samples, String>,
) -> io::Result<()> {
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut controls = Controls { has_colour, ..Controls::default() };
    let (mut before, mut now, mut sort) = (None, first, Sort::Rate);
    let mut next_fetch = Instant::now() + interval;
    let input = io::stdin();
    let is_terminal = input.is_terminal();
    let mut waiting = PollSet::new([signals.as_fd()].into_iter().chain(is_terminal.then(|| input.as_fd())));
    loop {
        let view = View::new(before.as_ref(), &now, sort);
        terminal.draw(|frame| draw(&view, Some(&controls), frame))?;
        let rest = next_fetch.saturating_duration_since(Instant::now());
        waiting.wait(Some(if is_terminal { rest } else { rest.min(WAIT_MAX) }))?;
        // crossterm reads from a terminal that was closed without an end.
        if waiting.is_ready(SIGNALS) || is_terminal && waiting.has_hung_up(INPUT) {
            return Ok(());
        }
        while event::poll(Duration::ZERO)? {
            match request_of(&event::read()?) {
                Request::Quit => return Ok(()),
                Request::Pause => controls.is_paused = !controls.is_paused,
                Request::Sort => sort = sort.next(),
                Request::Nothing => {}
            }
        }
        if Instant::now() < next_fetch {
            continue;
        }
        next_fetch = Instant::now() + interval;
        if !controls.is_paused {
            match fetch() {
                Ok(samples) => {
                    before = Some(std::mem::replace(&mut now, samples));
                    controls.problem = None;
                }
                Err(problem) => controls.problem = Some(problem),
            }
        }
    }
}

fn request_of(event: &Event) -> Request {
    let Event::Key(key) = event else { return Request::Nothing };
    match key.code {
        _ if key.kind == KeyEventKind::Release => Request::Nothing,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Request::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Request::Quit,
        KeyCode::Char('p' | ' ') => Request::Pause,
        KeyCode::Char('s') => Request::Sort,
        _ => Request::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn keys_are_those_of_the_last_line() {
        let check = |code: KeyCode, modifiers: KeyModifiers, expected: Request| {
            assert_eq!(request_of(&Event::Key(KeyEvent::new(code, modifiers))), expected, "{code:?}");
        };
        check(KeyCode::Char('q'), KeyModifiers::NONE, Request::Quit);
        check(KeyCode::Char('c'), KeyModifiers::CONTROL, Request::Quit);
        check(KeyCode::Char('c'), KeyModifiers::NONE, Request::Nothing);
        check(KeyCode::Char('p'), KeyModifiers::NONE, Request::Pause);
        check(KeyCode::Char('s'), KeyModifiers::NONE, Request::Sort);
        assert_eq!(request_of(&Event::Resize(80, 24)), Request::Nothing);
    }
}
