//! Reads of file content that may wait for a disk, done by separate threads, so that no worker waits and no look-up is
//! held up.
//!
//! At most one read of a file is in progress: a file that does not answer occupies one thread, and a file system that
//! does not answer a part of the threads that there may be.

use crate::files::disk_file::{DiskFile, ReadResult};
use crate::files::jobs::JobQueue;
use crate::files::work_queue::{Queue, THREADS_MAX, WorkQueue};
use crate::waiter::{Event, Waiter};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Reads of one file system that are in progress at the same time.
const RUNNING_PER_DEVICE_MAX: usize = THREADS_MAX / 4;
/// Reads of one file that wait for a thread; further ones are refused.
const QUEUED_PER_FILE_MAX: usize = 1_024;

/// Reads of all workers.
#[derive(Debug)]
pub(crate) struct FileReads {
    queue: WorkQueue<Reads>,
    jobs: Arc<JobQueue>,
}

/// One read, shared by the connection that waits and the thread that reads.
#[derive(Debug)]
pub(crate) struct FileRead {
    file: Arc<DiskFile>,
    offset: u64,
    length_bytes: usize,
    is_end: bool,
    waiter: Waiter,
    result: Mutex<Option<io::Result<ReadResult>>>,
}

#[derive(Debug, Default)]
struct Reads {
    files: HashMap<FileId, FileState>,
    /// The files with a read that may begin, in turn.
    ready: VecDeque<FileId>,
    /// The device of each read in progress.
    running: Vec<u64>,
}

/// Device and inode.
type FileId = (u64, u64);

/// The reads of one file.
#[derive(Debug, Default)]
struct FileState {
    queued: VecDeque<Arc<FileRead>>,
    is_in_progress: bool,
}

impl FileReads {
    pub(crate) fn new(jobs: Arc<JobQueue>) -> FileReads {
        FileReads { queue: WorkQueue::default(), jobs }
    }

    /// Queues a read as of [`DiskFile::read`]. The waiter receives an event; it gives the read up by dropping it.
    ///
    /// # Errors
    /// `ResourceBusy` if too many connections wait for this file.
    pub(crate) fn enqueue(
        &self,
        file: &Arc<DiskFile>,
        offset: u64,
        length_bytes: usize,
        is_end: bool,
        waiter: Waiter,
    ) -> io::Result<Arc<FileRead>> {
        let read = FileRead { file: Arc::clone(file), offset, length_bytes, is_end, waiter, result: Mutex::default() };
        let read = Arc::new(read);
        if self.queue.update(|reads| reads.push(&read))? {
            self.queue.notify();
        }
        Ok(read)
    }

    /// Adds a thread by `start`, which runs [`FileReads::run_thread`].
    ///
    /// # Errors
    /// The errors of `start`.
    pub(crate) fn add_thread(&self, start: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.queue.add_thread(start)
    }

    /// Reads as of [`WorkQueue::run_thread`].
    pub(crate) fn run_thread(&self, add: impl Fn() -> io::Result<()>) {
        self.queue.run_thread(|read| self.run(&read), add);
    }

    /// The next read, without a wait.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn try_next(&self) -> Option<Arc<FileRead>> {
        self.queue.update(|reads| reads.take(Instant::now()).ok())
    }

    /// Does a read that was taken from the queue.
    pub(crate) fn run(&self, read: &FileRead) {
        let result = read.file.read(read.offset, read.length_bytes, read.is_end);
        *read.lock_result() = Some(result);
        self.queue.update(|reads| reads.finish(read.file.id()));
        self.jobs.send_event(&[read.waiter], Event::Read);
    }

    /// Ends the threads.
    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

impl Queue for Reads {
    type Work = Arc<FileRead>;

    /// The next read that a connection still waits for.
    fn take(&mut self, _now: Instant) -> Result<Arc<FileRead>, Option<Instant>> {
        while let Some(id) = self.next_ready() {
            let of_file = self.files.get_mut(&id).expect("a ready file has reads");
            while let Some(read) = of_file.queued.pop_front() {
                if !read.is_given_up() {
                    of_file.is_in_progress = true;
                    self.running.push(id.0);
                    return Ok(read);
                }
            }
            self.files.remove(&id);
        }
        Err(None)
    }

    fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }
}

impl Reads {
    /// Queues a read; whether it may begin.
    fn push(&mut self, read: &Arc<FileRead>) -> io::Result<bool> {
        let id = read.file.id();
        let of_file = self.files.entry(id).or_default();
        if of_file.queued.len() >= QUEUED_PER_FILE_MAX {
            of_file.queued.retain(|read| !read.is_given_up());
            if of_file.queued.len() >= QUEUED_PER_FILE_MAX {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
        }
        let is_first = of_file.queued.is_empty() && !of_file.is_in_progress;
        of_file.queued.push_back(Arc::clone(read));
        if is_first {
            self.ready.push_back(id);
        }
        Ok(is_first)
    }

    /// Takes the first ready file whose device has a thread left.
    fn next_ready(&mut self) -> Option<FileId> {
        let running_count = |device: u64| self.running.iter().filter(|running| **running == device).count();
        let index = self.ready.iter().position(|id| running_count(id.0) < RUNNING_PER_DEVICE_MAX)?;
        self.ready.remove(index)
    }

    /// Ends the read of a file in progress.
    fn finish(&mut self, id: FileId) {
        let running = self.running.iter().position(|device| *device == id.0).expect("a read of the device was running");
        self.running.swap_remove(running);
        let of_file = self.files.get_mut(&id).expect("a file with a read in progress");
        of_file.is_in_progress = false;
        if of_file.queued.is_empty() {
            self.files.remove(&id);
        } else {
            self.ready.push_back(id);
        }
    }
}

impl FileRead {
    /// Takes the result; `None` before the event.
    pub(crate) fn take_result(&self) -> Option<io::Result<ReadResult>> {
        self.lock_result().take()
    }

    /// Whether no connection waits for it. Called with its one reference in the queue.
    fn is_given_up(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    fn lock_result(&self) -> MutexGuard<'_, Option<io::Result<ReadResult>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Key;
    use sanderling_os::directory::Directory;

    fn with_files(act: impl FnOnce(&FileReads, [Arc<DiskFile>; 2])) {
        let directory = tempfile::tempdir().expect("made");
        let root = Directory::open(directory.path()).expect("opened");
        let files = ["a", "b"].map(|name| {
            std::fs::write(directory.path().join(name), name).expect("written");
            let file = root.open_beneath(name.as_bytes()).expect("opened");
            let metadata = file.metadata().expect("fstat");
            Arc::new(DiskFile::new(file, metadata))
        });
        act(&FileReads::new(Arc::default()), files);
    }

    #[test]
    fn one_read_of_a_file_is_in_progress_and_other_files_are_read_meanwhile() {
        with_files(|reads, [a, b]| {
            let enqueue = |file| {
                reads
                    .enqueue(file, 0, 1, true, Waiter { worker_index: 0, connection: Key::unpacked(0), stream: 0 })
                    .expect("queued")
            };
            let queued = [enqueue(&a), enqueue(&a), enqueue(&b)];
            let next = || reads.try_next();
            let (first, second) = (next().expect("a read"), next().expect("a read"));
            assert!(Arc::ptr_eq(&first, &queued[0]) && Arc::ptr_eq(&second, &queued[2]));
            assert!(next().is_none(), "both files are being read");
            assert!(queued[0].take_result().is_none());
            reads.run(&first);
            assert!(matches!(queued[0].take_result(), Some(Ok(ReadResult::Cached))));
            assert!(next().is_some_and(|third| Arc::ptr_eq(&third, &queued[1])));
        });
    }

    #[test]
    fn reads_of_one_file_are_limited_and_those_given_up_are_dropped() {
        with_files(|reads, [a, b]| {
            let enqueue = |file| {
                reads.enqueue(file, 0, 1, true, Waiter { worker_index: 0, connection: Key::unpacked(0), stream: 0 })
            };
            let mut queued: Vec<_> = (0..QUEUED_PER_FILE_MAX).map(|_| enqueue(&a).expect("queued")).collect();
            assert_eq!(enqueue(&a).expect_err("full").kind(), io::ErrorKind::ResourceBusy);
            let of_other = enqueue(&b).expect("another file");
            queued.truncate(1);
            let last = enqueue(&a).expect("queued");
            queued.clear();
            for expected in [last, of_other] {
                let read = reads.try_next().expect("a read");
                assert!(Arc::ptr_eq(&read, &expected));
                reads.run(&read);
            }
            assert!(reads.try_next().is_none() && reads.queue.update(|reads| reads.files.is_empty()));
        });
    }
    #[test]
    fn reads_of_one_file_system_leave_threads_for_others() {
        let mut reads = Reads { ready: (0..20).map(|inode| (1, inode)).chain([(2, 7)]).collect(), ..Reads::default() };
        for _ in 0..RUNNING_PER_DEVICE_MAX {
            let (device, _) = reads.next_ready().expect("a file");
            reads.running.push(device);
        }
        assert_eq!(reads.next_ready(), Some((2, 7)));
        assert_eq!(reads.next_ready(), None);
        reads.running.pop();
        assert_eq!(reads.next_ready(), Some((1, RUNNING_PER_DEVICE_MAX as u64)));
    }
}
