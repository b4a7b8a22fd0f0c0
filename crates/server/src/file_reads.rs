//! Reads of file content that may wait for a disk, done by threads of their own, so that no worker waits and no look-up is
//! held up.
//!
//! At most one read of a file is in progress: a file that does not answer occupies one thread.

use crate::disk_file::{DiskFile, ReadResult};
use crate::jobs::{JobQueue, Waiter};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that read.
pub(crate) const READ_THREAD_COUNT: usize = 4;
/// Reads of one file that wait for a thread; further ones are refused.
const QUEUED_PER_FILE_MAX: usize = 1_024;

/// Reads of all workers.
#[derive(Debug)]
pub(crate) struct FileReads {
    state: Mutex<State>,
    changed: Condvar,
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
struct State {
    files: HashMap<FileId, FileState>,
    /// The files with a read that may begin, in turn.
    ready: VecDeque<FileId>,
    is_closed: bool,
}

type FileId = (u64, u64);

/// The reads of one file.
#[derive(Debug, Default)]
struct FileState {
    queued: VecDeque<Arc<FileRead>>,
    is_in_progress: bool,
}

impl FileReads {
    pub(crate) fn new(jobs: Arc<JobQueue>) -> FileReads {
        FileReads { state: Mutex::default(), changed: Condvar::new(), jobs }
    }

    /// Queues a read as of [`DiskFile::read`]. The waiter receives a completion; it gives the read up by dropping it.
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
        let mut state = self.lock();
        let of_file = state.files.entry(file.id()).or_default();
        if of_file.queued.len() >= QUEUED_PER_FILE_MAX {
            of_file.queued.retain(|read| !read.is_given_up());
            if of_file.queued.len() >= QUEUED_PER_FILE_MAX {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
        }
        let is_first = of_file.queued.is_empty() && !of_file.is_in_progress;
        of_file.queued.push_back(Arc::clone(&read));
        if is_first {
            state.ready.push_back(file.id());
            self.changed.notify_one();
        }
        Ok(read)
    }

    /// Reads until the queue is closed.
    pub(crate) fn run_thread(&self) {
        while let Some(read) = self.next() {
            self.run(&read);
        }
    }

    fn next(&self) -> Option<Arc<FileRead>> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(read) = state.take_next() {
                return Some(read);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next read, without a wait.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn try_next(&self) -> Option<Arc<FileRead>> {
        self.lock().take_next()
    }

    /// Does a read that was taken from the queue.
    pub(crate) fn run(&self, read: &FileRead) {
        let result = read.file.read(read.offset, read.length_bytes, read.is_end);
        *read.lock_result() = Some(result);
        if self.lock().finish(read.file.id()) {
            self.changed.notify_one();
        }
        self.jobs.complete(&[read.waiter], Ok(()));
    }

    /// Ends the threads that wait in [`FileReads::run_thread`].
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next read that a connection still waits for.
    fn take_next(&mut self) -> Option<Arc<FileRead>> {
        while let Some(id) = self.ready.pop_front() {
            let of_file = self.files.get_mut(&id).expect("a ready file has reads");
            while let Some(read) = of_file.queued.pop_front() {
                if !read.is_given_up() {
                    of_file.is_in_progress = true;
                    return Some(read);
                }
            }
            self.files.remove(&id);
        }
        None
    }

    /// Ends the read of a file in progress; whether another one may begin.
    fn finish(&mut self, id: FileId) -> bool {
        let of_file = self.files.get_mut(&id).expect("a file with a read in progress");
        of_file.is_in_progress = false;
        let has_more = !of_file.queued.is_empty();
        if has_more {
            self.ready.push_back(id);
        } else {
            self.files.remove(&id);
        }
        has_more
    }
}

impl FileRead {
    /// Takes the result; `None` before the completion.
    pub(crate) fn take_result(&self) -> Option<io::Result<ReadResult>> {
        self.lock_result().take()
    }

    /// Whether no connection waits for it any more. Called with its one reference in the queue.
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
            assert!(reads.try_next().is_none() && reads.lock().files.is_empty());
        });
    }
}
