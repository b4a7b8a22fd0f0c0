//! Lines of a log, or dnstap messages, on their way from the threads that serve to a thread that writes them.
//!
//! A thread that serves never waits. It gathers lines separately and passes them on after an iteration, unless the
//! writer takes earlier ones at this moment; then it keeps them until the next iteration. If the target takes nothing,
//! lines beyond a limit are dropped and counted.

use crate::log::frame_stream::{FrameStream, write_all};
use sanderling_log_format::LogKind;
use sanderling_log_format::frame_streams::frame_count;
use sanderling_os::panics;
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
/// The prefix of a line in a datagram to syslog: facility `local0`, severity `info` (RFC 5424 §6.2.1), and the program.
const SYSLOG_PREFIX: &[u8] = b"<134>sanderling: ";

/// Where the lines of a log go.
#[derive(Debug)]
pub enum LogTarget {
    /// A file that is open for appending, a pipe or a terminal.
    Stream(File),
    /// A socket that is connected to a syslog daemon, such as that of journald, which takes one line in a datagram.
    Syslog(UnixDatagram),
    /// A connection to a program that reads dnstap.
    Dnstap(FrameStream),
}

impl LogTarget {
    /// Does what precedes the first line.
    fn begin(&mut self, is_over: &impl Fn() -> bool) -> io::Result<()> {
        match self {
            LogTarget::Stream(_) | LogTarget::Syslog(_) => Ok(()),
            LogTarget::Dnstap(stream) => stream.begin(is_over),
        }
    }

    /// Whether nothing can be written after an error: the reader of a stream would not find the next frame.
    fn ends_with_error(&self) -> bool {
        matches!(self, LogTarget::Dnstap(_))
    }

    /// Writes whole lines; the lines that were not written, and the last error. `is_over` says that a full target is
    /// not waited for any longer.
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
            LogTarget::Dnstap(stream) => match write_all(lines, |rest| stream.write(rest), is_over) {
                Ok(()) => (0, None),
                Err((written_bytes, error)) => {
                    stream.abort();
                    (frame_count(lines) - frame_count(&lines[..written_bytes]), Some(error))
                }
            },
        }
    }
}

fn line_count(lines: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', lines).count()
}

/// The state of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Lines or messages that were dropped: the target took nothing, or writing failed.
    pub dropped_count: u64,
    /// Those that were written.
    pub written_count: u64,
    /// Why the last lines could not be written; `None` if they were.
    pub error: Option<String>,
}

/// The queue of a log, with a slot for each thread that serves.
#[derive(Debug)]
pub(crate) struct LogQueue {
    kind: LogKind,
    /// Bytes that wait in one slot.
    slot_bytes_max: usize,
    slots: Mutex<Vec<Arc<LogSlot>>>,
    /// A target that replaces the writer's.
    next_target: Mutex<Option<LogTarget>>,
    writer: OnceLock<Thread>,
    dropped_count: AtomicU64,
    written_count: AtomicU64,
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
    pub(crate) fn new(kind: LogKind, slot_bytes_max: usize) -> LogQueue {
        LogQueue {
            kind,
            slot_bytes_max,
            slots: Mutex::default(),
            next_target: Mutex::default(),
            writer: OnceLock::new(),
            dropped_count: AtomicU64::new(0),
            written_count: AtomicU64::new(0),
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

    /// Writes later lines to `target`. The first call starts the writer: it is not joined, because a target may block
    /// it forever.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(crate) fn set_target(self: &Arc<Self>, target: LogTarget) -> io::Result<()> {
        *lock(&self.next_target) = Some(target);
        if self.writer.get().is_none() {
            let queue = Arc::clone(self);
            let name = match self.kind {
                LogKind::Access => "access-log",
                LogKind::Queries => "query-log",
                LogKind::Dnstap => "dnstap",
            };
            let handle = thread::Builder::new().name(name.into()).spawn(move || queue.run_writer())?;
            let _ = self.writer.set(handle.thread().clone());
        }
        self.wake_writer();
        Ok(())
    }

    /// The state; `None` before there is a target.
    pub(crate) fn status(&self) -> Option<LogStatus> {
        self.writer.get()?;
        Some(LogStatus {
            dropped_count: self.dropped_count.load(Ordering::Relaxed),
            written_count: self.written_count.load(Ordering::Relaxed),
            error: lock(&self.error).clone(),
        })
    }

    /// Writes the lines that were passed on, and ends the writer; waits at most for `limit`.
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
        self.dropped_count.fetch_add(self.record_count(lines) as u64, Ordering::Relaxed);
        lines.clear();
    }

    fn record_count(&self, records: &[u8]) -> usize {
        match self.kind {
            LogKind::Access | LogKind::Queries => line_count(records),
            LogKind::Dnstap => frame_count(records),
        }
    }

    fn wake_writer(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    fn run_writer(&self) {
        panics::end_process(panics::Scope::Thread);
        let (mut target, mut lines) = ((None, false), Vec::new());
        while !self.is_closing.load(Ordering::Relaxed) {
            thread::park();
            self.is_gathering.store(true, Ordering::Relaxed);
            thread::park_timeout(GATHER_TIME);
            // A thread that passes lines on after its slot was emptied sees this, because of the lock of the slot.
            self.is_gathering.store(false, Ordering::Relaxed);
            self.write_waiting(&mut target, &mut lines);
        }
        // The lines that were passed on before the end of the last serving thread.
        self.write_waiting(&mut target, &mut lines);
        *lock(&self.has_ended.0) = true;
        self.has_ended.1.notify_all();
    }

    /// `target` comes with whether part of a line was written to it.
    fn write_waiting(&self, target: &mut (Option<LogTarget>, bool), lines: &mut Vec<u8>) {
        let is_over = || self.is_closing.load(Ordering::Relaxed) || lock(&self.next_target).is_some();
        let next = lock(&self.next_target).take();
        if let Some(mut next) = next {
            // The same file may have been opened again: an empty line does no harm.
            let begun = next.begin(&is_over);
            target.0 = begun.is_ok().then_some(next);
            *lock(&self.error) = begun.err().map(|error| error.to_string());
        }
        for slot in lock(&self.slots).clone() {
            lines.clear();
            std::mem::swap(&mut *lock(&slot.lines), lines);
            if lines.is_empty() {
                continue;
            }
            let count = self.record_count(lines);
            let lost_count = match target {
                (Some(open), is_line_open) => {
                    let (lost_count, error) = open.write(lines, is_line_open, &is_over);
                    if error.is_some() && open.ends_with_error() {
                        target.0 = None;
                    }
                    *lock(&self.error) = error.map(|error| error.to_string());
                    lost_count
                }
                (None, _) => count,
            };
            self.dropped_count.fetch_add(lost_count as u64, Ordering::Relaxed);
            self.written_count.fetch_add((count - lost_count) as u64, Ordering::Relaxed);
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
    use sanderling_log_format::frame_streams;
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

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
        let queue = Arc::new(LogQueue::new(LogKind::Access, 1024));
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
        assert_eq!(queue.status(), Some(LogStatus { written_count: 3, ..LogStatus::default() }));
    }

    #[test]
    fn lines_are_written_before_the_end_and_to_the_newest_target() {
        let queue = Arc::new(LogQueue::new(LogKind::Access, 1024));
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
        let queue = Arc::new(LogQueue::new(LogKind::Access, 4096));
        let (mut reader, target) = pipe();
        queue.set_target(target).expect("a thread");
        let slot = queue.add_slot();
        let text = [b"x".repeat(99), b"\n".to_vec()].concat();
        let mut passed_on = 0;
        while queue.status().expect("a target").dropped_count == 0 {
            queue.pass_on(&slot, &mut text.clone());
            passed_on += 1;
        }
        // Without a reader, lines beyond the capacity of pipe and slot were dropped.
        queue.close(Duration::ZERO);
        assert!(passed_on > 40, "the slot holds 40 lines");
        assert_eq!(read_line(&mut reader).len(), 100);
    }

    #[test]
    fn failure_to_write_is_reported() {
        let queue = Arc::new(LogQueue::new(LogKind::Access, 4096));
        let full = File::options().write(true).open("/dev/full").expect("the device");
        queue.set_target(LogTarget::Stream(full)).expect("a thread");
        let slot = queue.add_slot();
        queue.pass_on(&slot, &mut b"a\nb\n".to_vec());
        queue.close(LIMIT);
        let status = queue.status().expect("a target");
        assert_eq!((status.dropped_count, status.written_count), (2, 0));
        assert!(status.error.expect("an error").contains("No space left"));
    }

    #[test]
    fn line_that_was_cut_off_does_not_become_part_of_the_next_one() {
        let queue = Arc::new(LogQueue::new(LogKind::Access, 1024 * 1024));
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
        let queue = Arc::new(LogQueue::new(LogKind::Access, 16 * 1024 * 1024));
        queue.set_target(LogTarget::Syslog(socket)).expect("a thread");
        let long = vec![b'x'; 8 * 1024 * 1024];
        queue.pass_on(&queue.add_slot(), &mut [b"a\n", &long[..], b"\n", b"b\n"].concat());
        queue.close(LIMIT);
        for expected in ["<134>sanderling: a", "<134>sanderling: b"] {
            let mut room = [0; 64];
            let length = daemon.recv(&mut room).expect("a datagram");
            assert_eq!(str::from_utf8(&room[..length]), Ok(expected));
        }
        assert_eq!(queue.status().expect("a target").dropped_count, 1);
    }

    #[test]
    fn full_pipe_that_does_not_block_is_given_up_for_another_target() {
        let queue = Arc::new(LogQueue::new(LogKind::Access, 1024 * 1024));
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
            // The writer has taken both together.
            line = read_line(&mut new);
        }
        assert_eq!(line, "later\n");
        drop(reader);
        queue.close(LIMIT);
    }

    /// A connection without blocking, as the supervisor makes it.
    fn dnstap_target() -> (UnixStream, LogTarget) {
        let (reader, writer) = UnixStream::pair().expect("sockets");
        writer.set_nonblocking(true).expect("set");
        reader.set_read_timeout(Some(LIMIT)).expect("set");
        (reader, LogTarget::Dnstap(FrameStream::new(writer.into())))
    }

    const ACCEPT: &[u8] = b"\0\0\0\0\0\0\0\x04\0\0\0\x01";

    fn read_bytes(reader: &mut UnixStream, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        io::Read::read_exact(reader, &mut bytes).expect("as many bytes");
        bytes
    }

    #[test]
    fn frames_follow_the_handshake_and_the_end_is_announced() {
        let queue = Arc::new(LogQueue::new(LogKind::Dnstap, 4096));
        let (mut reader, target) = dnstap_target();
        queue.set_target(target).expect("a thread");
        queue.pass_on(&queue.add_slot(), &mut b"\0\0\0\x01a\0\0\0\x02bc".to_vec());
        assert_eq!(read_bytes(&mut reader, frame_streams::ready().len()), frame_streams::ready());
        reader.write_all(&ACCEPT[..5]).and_then(|()| reader.write_all(&ACCEPT[5..])).expect("written");
        assert_eq!(read_bytes(&mut reader, frame_streams::start().len()), frame_streams::start());
        assert_eq!(read_bytes(&mut reader, 11), b"\0\0\0\x01a\0\0\0\x02bc");
        queue.close(LIMIT);
        assert_eq!(read_bytes(&mut reader, frame_streams::stop().len()), frame_streams::stop());
        assert_eq!(queue.status(), Some(LogStatus { written_count: 2, ..LogStatus::default() }));
    }

    #[test]
    fn reader_that_does_not_accept_gets_no_frame_and_another_one_does() {
        let queue = Arc::new(LogQueue::new(LogKind::Dnstap, 4096));
        let slot = queue.add_slot();
        for (answer, expected) in [(&b"SSH-2.0"[..], "does not speak Frame Streams"), (b"", "closed the connection")] {
            let (mut reader, target) = dnstap_target();
            reader.write_all(answer).expect("written");
            reader.shutdown(std::net::Shutdown::Write).expect("shut down");
            queue.set_target(target).expect("a thread");
            while !queue.status().and_then(|status| status.error).is_some_and(|error| error.contains(expected)) {
                thread::yield_now();
            }
            let mut rest = Vec::new();
            io::Read::read_to_end(&mut reader, &mut rest).expect("the end");
            assert_eq!(rest, frame_streams::ready());
        }
        // Without a reader, messages are dropped, and the error stays.
        queue.pass_on(&slot, &mut b"\0\0\0\x01a".to_vec());
        while queue.status().expect("a thread").dropped_count == 0 {
            thread::yield_now();
        }
        assert!(queue.status().expect("a thread").error.is_some());
        let (mut reader, target) = dnstap_target();
        reader.write_all(ACCEPT).expect("written");
        queue.set_target(target).expect("the same thread");
        queue.pass_on(&slot, &mut b"\0\0\0\x01b".to_vec());
        queue.close(LIMIT);
        assert_eq!(queue.status(), Some(LogStatus { written_count: 1, dropped_count: 1, error: None }));
    }

    #[test]
    fn frames_that_a_full_connection_does_not_take_are_counted() {
        let queue = Arc::new(LogQueue::new(LogKind::Dnstap, 4 * 1024 * 1024));
        let (mut reader, target) = dnstap_target();
        reader.write_all(ACCEPT).expect("written");
        queue.set_target(target).expect("a thread");
        let frame = [&1_000_u32.to_be_bytes(), &[7; 1_000][..]].concat();
        queue.pass_on(&queue.add_slot(), &mut frame.repeat(2_000));
        queue.close(LIMIT);
        let status = queue.status().expect("a thread");
        assert_eq!(status.written_count + status.dropped_count, 2_000);
        let mut read = Vec::new();
        io::Read::read_to_end(&mut reader, &mut read).expect("the end");
        let (handshake, frames) = read.split_at(frame_streams::ready().len() + frame_streams::start().len());
        assert_eq!(handshake, [frame_streams::ready(), frame_streams::start()].concat());
        assert_eq!(frame_count(frames) as u64, status.written_count);
    }

    #[test]
    fn syslog_gets_one_datagram_for_each_line() {
        let (socket, daemon) = UnixDatagram::pair().expect("sockets");
        let queue = Arc::new(LogQueue::new(LogKind::Access, 4096));
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
