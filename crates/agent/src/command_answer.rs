//! The answer to a command about zones, to which several tasks may contribute.

use sanderling_ipc::{Connection, Event, Message, Text};
use std::cell::RefCell;

/// The client of a command. The client gets its answer when the last task that refers to it has dropped it.
pub(crate) struct CommandAnswer {
    client: RefCell<Option<Connection>>,
    is_success: std::cell::Cell<bool>,
}

impl CommandAnswer {
    /// An answer for `client`, if there is one; `is_success` is the result so far.
    pub(crate) fn new(client: Option<Connection>, is_success: bool) -> CommandAnswer {
        CommandAnswer { client: RefCell::new(client), is_success: std::cell::Cell::new(is_success) }
    }

    /// Adds lines to the answer.
    pub(crate) fn print(&self, text: &str) {
        Text::parts(text).for_each(|part| self.send(Event::Stdout(part)));
    }

    /// Adds an error, after which the command has failed.
    pub(crate) fn fail(&self, text: &str) {
        self.is_success.set(false);
        Text::parts(&format!("{text}\n")).for_each(|part| self.send(Event::Stderr(part)));
    }

    fn send(&self, event: Event) {
        if let Some(client) = self.client.borrow_mut().as_mut() {
            // The client may have disconnected.
            let _ = client.send(&Message::Event(event));
        }
    }
}

impl Drop for CommandAnswer {
    fn drop(&mut self) {
        self.send(Event::Done { is_success: self.is_success.get() });
    }
}
