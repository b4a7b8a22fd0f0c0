//! The threads whose panics end the process. A thread that has panicked no longer does its work, which would go
//! unnoticed: a new process resumes it immediately.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

static OF_PROCESS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OF_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The source of a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The thread that calls.
    Thread,
    /// Any thread of the process.
    Process,
}

/// From now on a panic in this scope ends the process, after the hook has written its message.
pub fn end_process(scope: Scope) {
    match scope {
        Scope::Thread => OF_THREAD.set(true),
        Scope::Process => OF_PROCESS.store(true, Ordering::Relaxed),
    }
}

/// Whether a panic of this thread ends the process. The panic hook calls this, and ends the process.
pub fn ends_process() -> bool {
    OF_PROCESS.load(Ordering::Relaxed) || OF_THREAD.try_with(Cell::get).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_another_thread_ends_nothing() {
        std::thread::spawn(|| {
            end_process(Scope::Thread);
            assert!(ends_process());
        })
        .join()
        .expect("no panic");
        assert!(!ends_process());
    }
}
