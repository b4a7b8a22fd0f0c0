//! Lines of a log on their way from the threads that serve to a thread that writes them.
//!
//! A thread that serves never waits. It gathers lines by itself and passes them on after an iteration, unless the writer takes
//! earlier ones at this moment; then it keeps them until the next iteration. If the target takes nothing, lines beyond a limit
//! are dropped and counted.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::Duration;

/// How long the writer gathers lines after the first one.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// Bytes of one thread that the writer takes earlier.
const GATHERED_BYTES_MAX: usize = 256 * 1024;
/// Attempts to take the lock that the writer holds for the time of an exchange.
const LOCK_ATTEMPTS_MAX: usize = 100;
/// Before a full target is tried again, if it does not block.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// What precedes a line in a datagram to syslog: facility `local0`, severity `info` (RFC 5424 §6.2.1), and the program.
const SYSLOG_PREFIX: &[u8] = b"<134>sanderling: ";

/// Where the lines of a log go.
#[derive(Debug)]
pub enum LogTarget {
    /// A file that is open for appending, a pipe or a terminal.
    Stream(File),
    /// A socket that is connected to a syslog daemon, such as that of journald, which takes one line in a datagram.
    Syslog(UnixDatagram),
}

impl LogTarget {
    /// Writes whole lines; the lines that were not written, and the last error. `is_over` says that a full target is not waited
    /// for any longer.
    fn write(
        &mut self,
        lines: &[u8],
        is_line_open: &mut bool,
        is_over: &impl Fn() -> bool,
    ) -> (usize, Option<io::Error>) {
        if let LogTarget::Stream(file) = self
            && *is_line_open
        {
            *is_line_open = !matches!(file.write(b"\n"), Ok(1));
        }
        match self {
            LogTarget::Stream(file) => match write_all(lines, |rest| file.write(rest), is_over) {
                Ok(()) => (0, None),
                Err((written_bytes, error)) => {
                    // Part of a line may have been written; it does not become part of the next one.
                    if written_bytes > 0 && lines[written_bytes - 1] != b'\n' {
                        *is_line_open = true;
                    }
                    (line_count(&lines[written_bytes..]), Some(error))
                }
            },
            LogTarget::Syslog(socket) => {
                let (mut datagram, mut lost_count, mut last_error) = (Vec::new(), 0, None);
                for line in lines.split_inclusive(|byte| *byte == b'\n') {
                    datagram.clear();
                    datagram.extend_from_slice(SYSLOG_PREFIX);
                    datagram.extend_from_slice(line.trim_ascii_end());
                    if let Err((_, error)) = write_all(&datagram, |rest| socket.send(rest), is_over) {
                        lost_count += 1;
                        last_error = Some(error);
                    }
                }
                (lost_count, last_error)
            }
        }
    }
}

fn line_count(lines: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', lines).count()
}

/// Writes `bytes`; an error comes with the number of those that were written before it.
fn write_all(
    bytes: &[u8],
    mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    is_over: &impl Fn() -> bool,
) -> Result<(), (usize, io::Error)> {
    let mut written_bytes = 0;
    while written_bytes < bytes.len() {
        match write(&bytes[written_bytes..]) {
            Ok(0) => return Err((written_bytes, io::ErrorKind::WriteZero.into())),
            Ok(count) => written_bytes += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another program has made a pipe that it shares non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_over() => thread::sleep(RETRY_PAUSE),
            Err(error) => return Err((written_bytes, error)),
        }
    }
    Ok(())
}

/// The state of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Lines that were dropped: the target took nothing, or writing failed.
    pub dropped_lines: u64,
    /// Lines that were written.
    pub written_lines: u64,
    /// Why the last lines could not be written; `None` if they were.
    pub error: Option<String>,
}

/// The queue of a log, with a slot for each thread that serves.
#[derive(Debug)]
pub(crate) struct LogQueue {
    /// The name of the thread that writes.
    name: &'static str,
    /// Bytes that wait in one slot.
    slot_bytes_max: usize,
    slots: Mutex<Vec<Arc<LogSlot>>>,
    /// A target that replaces the writer's.
    next_target: Mutex<Option<LogTarget>>,
    writer: OnceLock<Thread>,
    dropped_lines: AtomicU64,
    written_lines: AtomicU64,
    error: Mutex<Option<String>>,
    is_closing: AtomicBool,
    /// Whether the writer waits for further lines, and for no wakeup.
    is_gathering: AtomicBool,
    /// Whether the writer has ended.
    has_ended: (Mutex<bool>, Condvar),
}

/// The lines of one thread.
#[derive(Debug, Default)]
pub(crate) struct LogSlot {
    lines: Mutex<Vec<u8>>,
}

impl LogQueue {
    pub(crate) fn new(name: &'static str, slot_bytes_max: usize) -> LogQueue {
        LogQueue {
            name,
            slot_bytes_max,
            slots: Mutex::default(),
            next_target: Mutex::default(),
            writer: OnceLock::new(),
            dropped_lines: AtomicU64::new(0),
            written_lines: AtomicU64::new(0),
            error: Mutex::default(),
            is_closing: AtomicBool::new(false),
            is_gathering: AtomicBool::new(false),
            has_ended: Default::default(),
        }
    }

    /// A slot for the lines of one more thread.
    pub(crate) fn add_slot(&self) -> Arc<LogSlot> {
        let slot = Arc::new(LogSlot::default());
        lock(&self.slots).push(Arc::clone(&slot));
        slot
    }

    /// Writes later lines to `target`. The first call starts the writer: it is not joined, since a target may take nothing for
    /// ever.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(crate) fn set_target(self: &Arc<Self>, target: LogTarget) -> io::Result<()> {
        *lock(&self.next_target) = Some(target);
        if self.writer.get().is_none() {
            let queue = Arc::clone(self);
            let handle = thread::Builder::new().name(self.name.into()).spawn(move || queue.run_writer())?;
            let _ = self.writer.set(handle.thread().clone());
        }
        self.wake_writer();
        Ok(())
    }

    /// The state; `None` before there is a target.
    pub(crate) fn status(&self) -> Option<LogStatus> {
        self.writer.get()?;
        Some(LogStatus {
            dropped_lines: self.dropped_lines.load(Ordering::Relaxed),
            written_lines: self.written_lines.load(Ordering::Relaxed),
            error: lock(&self.error).clone(),
        })
    }

    /// Writes what has been passed on, and ends the writer; waits at most for `limit`.
    pub(crate) fn close(&self, limit: Duration) {
        self.is_closing.store(true, Ordering::Relaxed);
        if self.writer.get().is_some() {
            self.wake_writer();
            let (has_ended, ended) = &self.has_ended;
            drop(ended.wait_timeout_while(lock(has_ended), limit, |has_ended| !*has_ended));
        }
    }

    /// Passes `lines` on through `slot`, and leaves them if the writer takes earlier ones at this moment.
    pub(crate) fn pass_on(&self, slot: &LogSlot, lines: &mut Vec<u8>) {
        let try_lock = |_| match slot.lines.try_lock() {
            Ok(waiting) => Some(waiting),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::hint::spin_loop();
                None
            }
        };
        let mut waiting = match (0..LOCK_ATTEMPTS_MAX).find_map(try_lock) {
            Some(waiting) => waiting,
            // The writer was interrupted: the next iteration tries again.
            None if lines.len() < self.slot_bytes_max => return,
            None => return self.drop_lines(lines),
        };
        let waiting_bytes = waiting.len();
        if waiting_bytes + lines.len() > self.slot_bytes_max {
            return self.drop_lines(lines);
        }
        if waiting_bytes == 0 {
            std::mem::swap(&mut *waiting, lines);
        } else {
            waiting.extend_from_slice(lines);
        }
        lines.clear();
        let is_much = waiting_bytes < GATHERED_BYTES_MAX && waiting.len() >= GATHERED_BYTES_MAX;
        drop(waiting);
        let is_first = waiting_bytes == 0 && !self.is_gathering.load(Ordering::Relaxed);
        if is_first || is_much {
            self.wake_writer();
        }
    }

    fn drop_lines(&self, lines: &mut Vec<u8>) {
        self.dropped_lines.fetch_add(line_count(lines) as u64, Ordering::Relaxed);
        lines.clear();
    }

    fn wake_writer(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    fn run_writer(&self) {
        let (mut target, mut lines) = ((None, false), Vec::new());
        while !self.is_closing.load(Ordering::Relaxed) {
            thread::park();
            self.is_gathering.store(true, Ordering::Relaxed);
            thread::park_timeout(GATHER_TIME);
            // A thread that passes lines on after its slot was emptied sees this, because of the lock of the slot.
            self.is_gathering.store(false, Ordering::Relaxed);
            self.write_waiting(&mut target, &mut lines);
        }
        // What was passed on before the end of the last thread that serves.
        self.write_waiting(&mut target, &mut lines);
        *lock(&self.has_ended.0) = true;
        self.has_ended.1.notify_all();
    }

    /// `target` comes with whether part of a line was written to it.
    fn write_waiting(&self, target: &mut (Option<LogTarget>, bool), lines: &mut Vec<u8>) {
        if let Some(next) = lock(&self.next_target).take() {
            // The same file may have been opened again: an empty line does no harm.
            target.0 = Some(next);
        }
        for slot in lock(&self.slots).clone() {
            lines.clear();
            std::mem::swap(&mut *lock(&slot.lines), lines);
            if lines.is_empty() {
                continue;
            }
            let is_over = || self.is_closing.load(Ordering::Relaxed) || lock(&self.next_target).is_some();
            let (lost_count, error) = match target {
                (Some(target), is_line_open) => target.write(lines, is_line_open, &is_over),
                (None, _) => (line_count(lines), None),
            };
            self.dropped_lines.fetch_add(lost_count as u64, Ordering::Relaxed);
            self.written_lines.fetch_add((line_count(lines) - lost_count) as u64, Ordering::Relaxed);
            *lock(&self.error) = error.map(|error| error.to_string());
        }
        // Threads that have ended, or log no more.
        lock(&self.slots).retain(|slot| Arc::strong_count(slot) > 1 || !lock(&slot.lines).is_empty());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;

    const LIMIT: Duration = Duration::from_secs(10);

    fn pipe() -> (BufReader<impl io::Read>, LogTarget) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (BufReader::new(reader), LogTarget::Stream(File::from(OwnedFd::from(writer))))
    }

    fn read_line(reader: &mut impl BufRead) -> String {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        line
    }

    #[test]
    fn lines_of_each_thread_keep_their_order() {
        let queue = Arc::new(LogQueue::new("log", 1024));
        let (mut reader, target) = pipe();
        queue.set_target(target).expect("a thread");
        let slot = queue.add_slot();
        for line in ["a\n", "b\n", "c\n"] {
            let mut lines = line.as_bytes().to_vec();
            while !lines.is_empty() {
                queue.pass_on(&slot, &mut lines);
            }
        }
        assert_eq!([(); 3].map(|()| read_line(&mut reader)).concat(), "a\nb\nc\n");
        queue.close(LIMIT);
        assert_eq!(queue.status(), Some(LogStatus { written_lines: 3, ..LogStatus::default() }));
    }

    #[test]
    fn lines_are_written_before_the_end_and_to_the_newest_target() {
        let queue = Arc::new(LogQueue::new("log", 1024));
        let (mut old, target) = pipe();
        queue.set_target(target).expect("a thread");
        let (mut new, target) = pipe();
        let slot = queue.add_slot();
        queue.pass_on(&slot, &mut b"first\n".to_vec());
        assert_eq!(read_line(&mut old), "first\n");
        queue.set_target(target).expect("the same thread");
        queue.pass_on(&slot, &mut b"second\n".to_vec());
        queue.close(LIMIT);
        assert_eq!(read_line(&mut new), "second\n");
        assert_eq!(read_line(&mut old), "", "it is closed");
    }

    #[test]
    fn full_target_drops_lines_and_no_thread_waits_for_it() {
        let queue = Arc::new(LogQueue::new("log", 4096));
        let (mut reader, target) = pipe();
        queue.set_target(target).expect("a thread");
        let slot = queue.add_slot();
        let text = [b"x".repeat(99), b"\n".to_vec()].concat();
        let mut passed_on = 0;
        while queue.status().expect("a target").dropped_lines == 0 {
            queue.pass_on(&slot, &mut text.clone());
            passed_on += 1;
        }
        // Nobody reads: more than the pipe and the slot hold was dropped.
        queue.close(Duration::ZERO);
        assert!(passed_on > 40, "the slot holds 40 lines");
        assert_eq!(read_line(&mut reader).len(), 100);
    }

    #[test]
    fn failure_to_write_is_reported() {
        let queue = Arc::new(LogQueue::new("log", 4096));
        let full = File::options().write(true).open("/dev/full").expect("the device");
        queue.set_target(LogTarget::Stream(full)).expect("a thread");
        let slot = queue.add_slot();
        queue.pass_on(&slot, &mut b"a\nb\n".to_vec());
        queue.close(LIMIT);
        let status = queue.status().expect("a target");
        assert_eq!((status.dropped_lines, status.written_lines), (2, 0));
        assert!(status.error.expect("an error").contains("No space left"));
    }

    #[test]
    fn line_that_was_cut_off_does_not_become_part_of_the_next_one() {
        let queue = Arc::new(LogQueue::new("log", 1024 * 1024));
        let (mut reader, writer) = io::pipe().expect("a pipe");
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).expect("set");
        let mut target = LogTarget::Stream(File::from(OwnedFd::from(writer)));
        let (mut is_line_open, lines) = (false, [b"x".repeat(99), b"\n".to_vec()].concat().repeat(1000));
        let (lost_count, error) = target.write(&lines, &mut is_line_open, &|| true);
        assert!(error.is_some() && is_line_open);
        let mut read = vec![0; 100_000 - 100 * lost_count + 36];
        io::Read::read_exact(&mut reader, &mut read).expect("what was written");
        assert!(read.ends_with(&b"x".repeat(36)), "65,536 bytes are 655 lines and 36 bytes");
        assert_eq!(target.write(b"next\n", &mut is_line_open, &|| true).0, 0);
        drop((target, queue));
        let mut rest = Vec::new();
        io::Read::read_to_end(&mut reader, &mut rest).expect("the rest");
        assert_eq!(rest, b"\nnext\n");
    }

    #[test]
    fn line_that_is_too_long_for_a_datagram_costs_no_other() {
        let (socket, daemon) = UnixDatagram::pair().expect("sockets");
        let queue = Arc::new(LogQueue::new("log", 16 * 1024 * 1024));
        queue.set_target(LogTarget::Syslog(socket)).expect("a thread");
        let long = vec![b'x'; 8 * 1024 * 1024];
        queue.pass_on(&queue.add_slot(), &mut [b"a\n", &long[..], b"\n", b"b\n"].concat());
        queue.close(LIMIT);
        for expected in ["<134>sanderling: a", "<134>sanderling: b"] {
            let mut room = [0; 64];
            let length = daemon.recv(&mut room).expect("a datagram");
            assert_eq!(str::from_utf8(&room[..length]), Ok(expected));
        }
        assert_eq!(queue.status().expect("a target").dropped_lines, 1);
    }

    #[test]
    fn full_pipe_that_does_not_block_is_given_up_for_another_target() {
        let queue = Arc::new(LogQueue::new("log", 1024 * 1024));
        let (reader, writer) = io::pipe().expect("a pipe");
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).expect("set");
        queue.set_target(LogTarget::Stream(File::from(OwnedFd::from(writer)))).expect("a thread");
        let slot = queue.add_slot();
        queue.pass_on(&slot, &mut [vec![b'x'; 200_000], b"\n".to_vec()].concat());
        let (mut new, target) = pipe();
        queue.set_target(target).expect("the same thread");
        queue.pass_on(&slot, &mut b"later\n".to_vec());
        let mut line = read_line(&mut new);
        if line.starts_with('x') {
            // The writer has taken both at once.
            line = read_line(&mut new);
        }
        assert_eq!(line, "later\n");
        drop(reader);
        queue.close(LIMIT);
    }

    #[test]
    fn syslog_gets_one_datagram_for_each_line() {
        let (socket, daemon) = UnixDatagram::pair().expect("sockets");
        let queue = Arc::new(LogQueue::new("log", 4096));
        queue.set_target(LogTarget::Syslog(socket)).expect("a thread");
        queue.pass_on(&queue.add_slot(), &mut b"a\nb\n".to_vec());
        for expected in ["<134>sanderling: a", "<134>sanderling: b"] {
            let mut room = [0; 64];
            let length = daemon.recv(&mut room).expect("a datagram");
            assert_eq!(str::from_utf8(&room[..length]), Ok(expected));
        }
        queue.close(LIMIT);
    }
}
