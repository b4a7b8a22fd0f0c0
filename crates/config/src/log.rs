//! Output for the operator: lines on standard output, messages and diagnostics on standard error.
//!
//! A process that serves calls [`hold`] and [`start_writer`]: from then on, a separate thread writes, so that an output
//! without a reader blocks no other thread. Messages that do not fit into its queue are dropped and counted. A reader
//! that has disconnected is not an error: the server continues. Without such a thread, the thread that panics, or ends
//! the process, writes the queued messages.
//!
//! After the message about a fatal panic ([`panics`]), the process exits.

use crate::diagnostic::{Diagnostic, Format, write_report};
use sanderling_os::panics;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::panic;
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that wait to be written, before a configuration says otherwise; a message beyond them is dropped.
const QUEUE_BYTES_MAX: usize = 256 * 1024;
/// The pause before another attempt to write to a blocked output.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The name of the thread that the standard library starts `main` in.
const MAIN_THREAD: &str = "main";
/// Time to write the message about a panic before the process exits without it.
const PANIC_FLUSH_MAX: Duration = Duration::from_secs(1);
/// The exit status of a process whose main thread has panicked.
const PANIC_STATUS: i32 = 101;

/// The thread that writes, if there is one.
static WRITER: OnceLock<Writer> = OnceLock::new();

/// How serious a message is, with the number of the priority (RFC 5424 §6.2.1).
#[derive(Clone, Copy, Debug)]
enum Level {
    Error = 3,
    Warning = 4,
    Info = 6,
}

impl Level {
    fn prefix(self) -> &'static str {
        match self {
            Level::Error => "error: ",
            Level::Warning => "warning: ",
            Level::Info => "",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Output {
    Stdout,
    Stderr,
}

/// A queue of text, and the thread that writes it.
#[derive(Debug, Default)]
struct Writer {
    queue: Mutex<Queue>,
    /// Signalled when text was added, and when the queue has become empty.
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    texts: VecDeque<(Output, Vec<u8>)>,
    bytes: usize,
    bytes_max: usize,
    /// Messages dropped since the writer has reported them.
    dropped_count: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No thread writes yet.
    Held,
    /// No thread writes, since none could be started.
    NoThread,
    Writing,
    Idle,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { texts: VecDeque::new(), bytes: 0, bytes_max: QUEUE_BYTES_MAX, dropped_count: 0, state: State::Held }
    }
}

/// Writes to standard output.
pub fn print(text: &str) {
    write(Output::Stdout, text.as_bytes().to_vec());
}

/// Writes diagnostics to standard error.
pub fn report(diagnostics: &[Diagnostic]) {
    let mut text = Vec::new();
    let format = if is_to_journal() { Format::Journal } else { Format::for_output(&io::stderr()) };
    let _ = write_report(diagnostics, format, &mut text);
    write(Output::Stderr, text);
}

/// Writes a message to standard error, each line with the program's name.
pub fn log(message: &str) {
    write_message(Level::Info, message);
}

/// Writes a warning to standard error, about a problem that does not stop the server.
pub fn log_warning(message: &str) {
    write_message(Level::Warning, message);
}

/// Writes an error to standard error, about a task that was not done.
pub fn log_error(message: &str) {
    write_message(Level::Error, message);
}

fn write_message(level: Level, message: &str) {
    write(Output::Stderr, lines_of(level, message, is_to_journal()).into_bytes());
}

/// Whether journald reads standard error.
fn is_to_journal() -> bool {
    static TO_JOURNAL: OnceLock<bool> = OnceLock::new();
    *TO_JOURNAL.get_or_init(|| is_journal(&io::stderr()))
}

/// Whether a character changes the order of others on a line (UAX #9, explicit directional formatting).
fn is_bidirectional(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` as a part of one line: as [`printable`], and without ends of lines and tabs.
pub fn printable_in_line(text: &str) -> Cow<'_, str> {
    let has_effect = |character: char| character.is_control() || is_bidirectional(character);
    if !text.contains(has_effect) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len().saturating_mul(2));
    for character in text.chars() {
        if has_effect(character) { escaped.extend(character.escape_debug()) } else { escaped.push(character) }
    }
    Cow::Owned(escaped)
}

/// `text` with an escape sequence in place of each control character that could have an effect on a terminal, or on a
/// program that reads a log: all but the end of a line and a tab.
pub fn printable(text: &str) -> Cow<'_, str> {
    let has_effect =
        |character: char| character.is_control() && !matches!(character, '\n' | '\t') || is_bidirectional(character);
    let without_line_ends = || text.replace("\r\n", "\n").chars().any(has_effect);
    if !text.chars().any(has_effect) || !without_line_ends() {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len().saturating_mul(2));
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let ends_line = character == '\r' && characters.peek() == Some(&'\n');
        if has_effect(character) && !ends_line {
            escaped.extend(character.escape_debug());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

fn lines_of(level: Level, message: &str, to_journal: bool) -> String {
    let priority = if to_journal { format!("<{}>", level as u8) } else { String::new() };
    printable(message).lines().map(|line| format!("{priority}sanderling: {}{line}\n", level.prefix())).collect()
}

/// Whether journald reads `output` (systemd.exec(5), `JOURNAL_STREAM`). journald accepts a priority before each line
/// (sd-daemon(3)).
fn is_journal(output: &impl AsFd) -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else { return false };
    let device_and_inode = |file: File| file.metadata().map(|it| format!("{}:{}", it.dev(), it.ino()));
    let output = output.as_fd().try_clone_to_owned().map(File::from).and_then(device_and_inode);
    output.is_ok_and(|output| output == stream)
}

/// From now on, all output waits in a queue until [`start_writer`] is called, or a thread panics.
pub fn hold() {
    let writer = WRITER.get_or_init(Writer::default);
    // Called before the process enters the sandbox.
    is_to_journal();
    panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        log_error(&format!("thread {} panicked: {panic}", thread.name().unwrap_or("without a name")));
        let is_last = panics::ends_process();
        // The process also ends with the thread of `main`.
        if !writer.write_without_thread() && (is_last || thread.name() == Some(MAIN_THREAD)) {
            flush(PANIC_FLUSH_MAX);
        }
        if is_last {
            process::exit(PANIC_STATUS);
        }
    }));
}

/// Starts the thread that writes the queued messages from now on. A sandbox that is entered later does not hold for it.
///
/// # Errors
/// Returns an error if the system cannot start the thread. Each thread then writes its messages itself.
pub fn start_writer() -> io::Result<()> {
    hold();
    WRITER.get_or_init(Writer::default).start_thread()
}

/// The reason why a thread cannot be started.
fn thread_error(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let message = format!(
        "clone3(2) failed: {error}; the sandbox of the container denies clone3, which threads need: update the \
         program that runs the container (Docker 20.10.10, libseccomp 2.5), or give it another seccomp profile"
    );
    io::Error::new(error.kind(), message)
}

/// Limits the bytes that wait to be written.
pub fn set_queue_limit(bytes_max: usize) {
    if let Some(writer) = WRITER.get() {
        writer.lock().bytes_max = bytes_max;
    }
}

/// Waits until everything is written, at most for `limit`. Called before the process exits or becomes another program.
pub fn flush(limit: Duration) {
    let Some(writer) = WRITER.get() else { return };
    // Not `start_writer`: a thread that panics cannot set the hook.
    if writer.start_thread().is_err() {
        // All is written.
        return;
    }
    let deadline = Instant::now() + limit;
    let mut queue = writer.lock();
    while queue.state != State::Idle || !queue.texts.is_empty() {
        let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
        queue = writer.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn write(output: Output, text: Vec<u8>) {
    match WRITER.get() {
        Some(writer) => writer.push(output, text),
        None => output.write(&text),
    }
}

impl Output {
    /// Writes all of `text`. Blocks as long as no process reads it.
    fn write(self, mut text: &[u8]) {
        while !text.is_empty() {
            let written = match self {
                Output::Stdout => io::stdout().write(text),
                Output::Stderr => io::stderr().write(text),
            };
            match written {
                Ok(0) => return,
                Ok(written) => text = &text[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The output is not blocking, and full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(RETRY_INTERVAL),
                Err(_) => return,
            }
        }
        if matches!(self, Output::Stdout) {
            let _ = io::stdout().flush();
        }
    }
}

impl Writer {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread(&'static self) -> io::Result<()> {
        self.start(|| thread::Builder::new().name("log".to_owned()).spawn(|| self.run()).map(drop))
    }

    /// Has `spawn` start the thread, unless it runs.
    fn start(&self, spawn: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut queue = self.lock();
        if !matches!(queue.state, State::Held | State::NoThread) {
            return Ok(());
        }
        let started = spawn().map_err(thread_error);
        queue.state = if started.is_ok() { State::Writing } else { State::NoThread };
        drop(queue);
        self.write_without_thread();
        started
    }

    /// Writes the queued messages if no thread does; whether none does.
    fn write_without_thread(&self) -> bool {
        loop {
            let mut queue = self.lock();
            if !matches!(queue.state, State::Held | State::NoThread) {
                return false;
            }
            let Some((output, text)) = queue.texts.pop_front() else { return true };
            queue.bytes = queue.bytes.saturating_sub(text.len());
            // The lock is free during the write, in case of a panic.
            drop(queue);
            output.write(&text);
        }
    }

    fn push(&self, output: Output, text: Vec<u8>) {
        let mut queue = self.lock();
        if queue.state == State::NoThread {
            drop(queue);
            return output.write(&text);
        }
        if queue.bytes + text.len() > queue.bytes_max {
            queue.dropped_count += 1;
        } else {
            queue.bytes += text.len();
            queue.texts.push_back((output, text));
        }
        self.changed.notify_all();
    }

    fn run(&self) {
        panics::end_process(panics::Scope::Thread);
        loop {
            let (output, text) = self.next();
            output.write(&text);
        }
    }

    /// Waits for the next text.
    fn next(&self) -> (Output, Vec<u8>) {
        let mut queue = self.lock();
        queue.state = State::Idle;
        loop {
            if let Some((output, text)) = queue.texts.pop_front() {
                queue.bytes -= text.len();
                queue.state = State::Writing;
                return (output, text);
            }
            let dropped_count = std::mem::take(&mut queue.dropped_count);
            if dropped_count > 0 {
                queue.state = State::Writing;
                let message = format!("{dropped_count} messages were dropped, because the log was not read");
                return (Output::Stderr, lines_of(Level::Warning, &message, is_to_journal()).into_bytes());
            }
            self.changed.notify_all();
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_level() {
        for (level, to_journal, expected) in [
            (Level::Info, false, "sanderling: a\nsanderling: b\n"),
            (Level::Warning, false, "sanderling: warning: a\nsanderling: warning: b\n"),
            (Level::Error, true, "<3>sanderling: error: a\n<3>sanderling: error: b\n"),
            (Level::Info, true, "<6>sanderling: a\n<6>sanderling: b\n"),
        ] {
            assert_eq!(lines_of(level, "a\nb", to_journal), expected);
        }
    }

    #[test]
    fn control_characters_reach_no_terminal_and_no_log() {
        for (text, expected) in [
            ("a line\n\tanother one\r\n", "a line\n\tanother one\r\n"),
            ("\u{1b}]0;owned\u{7}", "\\u{1b}]0;owned\\u{7}"),
            ("good\rbad\r\n", "good\\rbad\r\n"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("\u{9b}31m\u{7f}\0 \u{e9}\"'", "\\u{9b}31m\\u{7f}\\0 \u{e9}\"'"),
        ] {
            assert_eq!(printable(text), expected);
            assert_eq!(printable(expected), expected);
        }
        assert_eq!(printable_in_line("a\r\n\tb\u{1b}\u{9b}\u{200f}\u{e9}"), "a\\r\\n\\tb\\u{1b}\\u{9b}\\u{200f}\u{e9}");
        assert_eq!(lines_of(Level::Info, "a\u{1b}[2J\nb", false), "sanderling: a\\u{1b}[2J\nsanderling: b\n");
    }

    #[test]
    fn message_is_written_without_a_thread_if_there_is_none() {
        let content = |queue: MutexGuard<'_, Queue>| (queue.texts.len(), queue.bytes, queue.state);
        let writer = Writer::default();
        writer.push(Output::Stderr, b"a message of a test\n".to_vec());
        assert_eq!(writer.lock().texts.len(), 1);
        assert!(writer.write_without_thread());
        assert_eq!(content(writer.lock()), (0, 0, State::Held));
        writer.push(Output::Stderr, b"another message of a test\n".to_vec());
        let error = writer.start(|| Err(io::Error::from_raw_os_error(1))).expect_err("no thread");
        assert!(error.to_string().contains("the sandbox of the container denies clone3"), "{error}");
        assert_eq!(content(writer.lock()), (0, 0, State::NoThread));
        writer.push(Output::Stderr, b"a third message of a test\n".to_vec());
        assert_eq!(writer.lock().texts.len(), 0);
        writer.start(|| Ok(())).expect("a thread");
        assert_eq!(writer.lock().state, State::Writing);
        assert!(!writer.write_without_thread());
    }

    #[test]
    fn panic_ends_the_process_with_its_message_and_status() {
        const NAME: &str = "log::tests::panic_ends_the_process_with_its_message_and_status";
        const IS_CHILD: &str = "SANDERLING_TEST_PANIC";
        if env::var_os(IS_CHILD).is_some() {
            start_writer().expect("a thread");
            panics::end_process(panics::Scope::Process);
            let panicking = thread::Builder::new().name("any".to_owned()).spawn(|| panic!("of a test"));
            let _ = panicking.expect("a thread").join();
            process::exit(0);
        }
        let program = env::current_exe().expect("this test");
        let child = process::Command::new(program).args([NAME, "--exact", "--nocapture"]).env(IS_CHILD, "1").output();
        let child = child.expect("it runs");
        let errors = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(PANIC_STATUS), "{}: {errors}", child.status);
        let lines: Vec<&str> = errors.lines().collect();
        assert!(lines[0].starts_with("sanderling: error: thread any panicked: panicked at "), "{errors}");
        assert_eq!(lines[1..], ["sanderling: error: of a test"], "{errors}");
    }

    #[test]
    fn messages_beyond_the_limit_are_dropped_and_counted() {
        let writer = Writer::default();
        let line = vec![b'x'; QUEUE_BYTES_MAX / 4];
        (0..6).for_each(|_| writer.push(Output::Stderr, line.clone()));
        let counts = |queue: MutexGuard<'_, Queue>| (queue.texts.len(), queue.dropped_count);
        assert_eq!(counts(writer.lock()), (4, 2));
        (0..4).for_each(|_| assert_eq!(writer.next().1, line));
        let (_, report) = writer.next();
        assert_eq!(report, b"sanderling: warning: 2 messages were dropped, because the log was not read\n");
        assert_eq!(writer.lock().bytes, 0);
    }
}
