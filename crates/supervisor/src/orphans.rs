//! Ended processes that others have left to process 1 of a container, and that would remain as zombies (wait(2)):
//! those that a command `on_renew` has started, or that the entry point of an image has.

use sanderling_os::process::{ended_child, forget_child};

/// Children of process 1 that it has not started.
#[derive(Debug)]
pub(crate) struct Orphans {
    is_process_one: bool,
    /// The ended child that was seen last.
    seen: Option<i32>,
}

impl Orphans {
    pub(crate) fn new() -> Orphans {
        Orphans { is_process_one: std::process::id() == 1, seen: None }
    }

    /// Waits for a process that was seen in the previous call too: between two calls, the supervisor waits for all of
    /// its own children that have ended.
    pub(crate) fn reap(&mut self) {
        if !self.is_process_one {
            return;
        }
        // Without an answer there is nothing to wait for now.
        let ended = ended_child().ok().flatten();
        if let Some(pid) = ended.filter(|_| ended == self.seen) {
            let _ = forget_child(pid);
        }
        self.seen = ended;
    }
}
