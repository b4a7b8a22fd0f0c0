//! Runs the two sides of a conversation on threads of their own, and tells what each cost.

use super::stopwatch::Stopwatch;
use sanderling_os::candidates::processors;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What one side did and what it cost.
#[derive(Debug)]
pub(crate) struct Side<R> {
    pub(crate) result: R,
    pub(crate) cpu_ns: f64,
    pub(crate) wall_ns: f64,
}

/// Runs `server` and `client` at once, each on a processor of its own where there are two. `server` is told by the flag
/// that the client has ended.
pub(crate) fn run_both<S: Send, C: Send>(
    server: impl FnOnce(&AtomicBool) -> io::Result<S> + Send,
    client: impl FnOnce() -> io::Result<C> + Send,
) -> io::Result<(Side<S>, Side<C>)> {
    let allowed = processors::allowed().unwrap_or_default();
    let is_over = AtomicBool::new(false);
    let (served, asked) = thread::scope(|scope| {
        let server = scope.spawn(|| on_processor(allowed.first(), || server(&is_over)));
        let asked = scope.spawn(|| on_processor(allowed.get(1), client)).join();
        is_over.store(true, Ordering::Relaxed);
        (server.join(), asked)
    });
    Ok((unwound(served)?, unwound(asked)?))
}

fn on_processor<R>(number: Option<&usize>, work: impl FnOnce() -> io::Result<R>) -> io::Result<Side<R>> {
    if let Some(&number) = number {
        // Without it the figures are noisier, no more.
        let _ = processors::stay_on(number);
    }
    let mut stopwatch = Stopwatch::default();
    let result = stopwatch.time(work)?;
    Ok(Side { result, cpu_ns: stopwatch.cpu_ns(), wall_ns: stopwatch.wall_ns() })
}

/// A panic of a measuring thread goes on in the one that waits for it.
pub(crate) fn unwound<R>(joined: thread::Result<R>) -> R {
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_learns_of_the_end_and_errors_of_both_come_back() {
        let server = |is_over: &AtomicBool| {
            while !is_over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            Ok("served")
        };
        let (served, asked) = run_both(server, || Ok("asked")).expect("both ended well");
        assert_eq!((served.result, asked.result), ("served", "asked"));
        let failed = run_both(server, || Err::<(), _>(io::Error::other("nobody there")));
        assert_eq!(failed.expect_err("the client failed").to_string(), "nobody there");
    }
}
