//! Threads for work that waits, for a disk or the keeper. All threads are created at start: later the system might lack
//! one for a moment, and the work of a task would be lost.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use tokio::sync::oneshot;

/// Reads and writes files of the state folder.
pub(crate) static DISK: Threads = Threads::new("disk");
/// Reads, builds and signs zones.
pub(crate) static ZONES: Threads = Threads::new("zones");
/// Asks the keeper about keys, which answers one request at a time.
pub(crate) static KEEPER: Threads = Threads::new("keeper");

const DISK_THREADS: usize = 2;
const KEEPER_THREADS: usize = 1;

type Work = Box<dyn FnOnce() + Send>;

/// Some threads, and the work that waits for them: at most one piece for each task.
pub(crate) struct Threads {
    name: &'static str,
    queue: OnceLock<Sender<Work>>,
}

/// Starts all threads, `zone_threads` of them for zones. This process's sandbox must be in force already.
///
/// # Errors
/// Returns an error if the system cannot start a thread.
pub(crate) fn start(zone_threads: usize) -> io::Result<()> {
    let counts = [(&DISK, DISK_THREADS), (&ZONES, zone_threads), (&KEEPER, KEEPER_THREADS)];
    counts.into_iter().try_for_each(|(threads, count)| threads.start(count))
}

impl Threads {
    const fn new(name: &'static str) -> Threads {
        Threads { name, queue: OnceLock::new() }
    }

    fn start(&self, count: usize) -> io::Result<()> {
        let (queue, works) = mpsc::channel::<Work>();
        let works = Arc::new(Mutex::new(works));
        for _ in 0..count {
            let works = Arc::clone(&works);
            let next = move || works.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let run = move || std::iter::from_fn(|| next().ok()).for_each(|work| work());
            thread::Builder::new().name(self.name.to_owned()).spawn(run)?;
        }
        self.queue.set(queue).map_err(|_| io::Error::other("the threads run already"))
    }

    /// Does `work` on the next free thread. The work is done even if no task waits for it. A panic in it ends the
    /// process.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = oneshot::channel();
        // There may be no waiting task left.
        let work = move || drop(sender.send(work()));
        let queue = self.queue.get().expect("the threads are started before any task");
        queue.send(Box::new(work)).expect("a thread that panics ends the process");
        result.await.expect("a thread that panics ends the process")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_one_after_the_other_if_there_are_fewer_threads() {
        static THREADS: Threads = Threads::new("test");
        THREADS.start(2).expect("started");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("built");
        let done = runtime.block_on(async {
            let works: Vec<_> = (0..50).map(|number| THREADS.run(move || number)).collect();
            let mut sum = 0;
            for work in works {
                sum += work.await;
            }
            sum
        });
        assert_eq!(done, 49 * 50 / 2);
        THREADS.start(1).expect_err("they run");
    }
}
