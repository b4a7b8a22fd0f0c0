//! Runs a server and a client on separate threads, and measures the cost of each.

use crate::machine::{allowed_processors, pin_to_processor};
use crate::stopwatch::Stopwatch;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[derive(Debug)]
pub(crate) struct Side<R> {
    pub(crate) result: R,
    pub(crate) cpu_ns: f64,
    pub(crate) wall_ns: f64,
}

/// Runs `server` and `client` at the same time, on different processors if possible. The flag tells the server that the
/// client has ended.
pub(crate) fn run_both<S: Send, C: Send>(
    server: impl FnOnce(&AtomicBool) -> io::Result<S> + Send,
    client: impl FnOnce() -> io::Result<C> + Send,
) -> io::Result<(Side<S>, Side<C>)> {
    let allowed = allowed_processors().unwrap_or_default();
    let is_over = AtomicBool::new(false);
    let (served, asked) = thread::scope(|scope| {
        let server = scope.spawn(|| on_processor(allowed.first(), || server(&is_over)));
        let asked = scope.spawn(|| on_processor(allowed.get(1), client)).join();
        is_over.store(true, Ordering::Relaxed);
        (server.join(), asked)
    });
    Ok((joined(served)?, joined(asked)?))
}

fn on_processor<R>(number: Option<&usize>, work: impl FnOnce() -> io::Result<R>) -> io::Result<Side<R>> {
    if let Some(&number) = number {
        // Without it there is only more noise.
        let _ = pin_to_processor(number);
    }
    let mut stopwatch = Stopwatch::default();
    let result = stopwatch.time(work)?;
    Ok(Side { result, cpu_ns: stopwatch.cpu_ns(), wall_ns: stopwatch.wall_ns() })
}

/// The result of a thread; its panic continues here.
pub(crate) fn joined<R>(result: thread::Result<R>) -> R {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_sees_the_end_of_the_client_and_errors_are_returned() {
        let server = |is_over: &AtomicBool| {
            while !is_over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            Ok("served")
        };
        let (served, asked) = run_both(server, || Ok("asked")).expect("no error");
        assert_eq!((served.result, asked.result), ("served", "asked"));
        let failed = run_both(server, || Err::<(), _>(io::Error::other("refused")));
        assert_eq!(failed.expect_err("the client failed").to_string(), "refused");
    }
}
