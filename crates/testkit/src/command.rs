//! Commands that run to their end, and the output of programs that do not.

use crate::DEADLINE;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The environment variable with the control socket's directory.
pub(crate) const CONTROL_DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The program's exit status.
    pub status: ExitStatus,
    /// Standard output that the test has not read before.
    pub output: Vec<u8>,
    /// Standard error.
    pub errors: String,
}

impl Ended {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// The exit status; `None` after a signal.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n--- output\n{}\n--- errors\n{}", self.status, self.text(), self.errors)
    }
}

/// The built program, without the environment variables of the tester that it reads.
pub fn sanderling() -> Command {
    let mut command = Command::new(program());
    for name in ["SANDERLING_CONFIG", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env(CONTROL_DIRECTORY, control_directory());
    command
}

/// The path of the built program. Cargo sets it for the integration tests of its package; other tests are in a
/// directory below it.
fn program() -> PathBuf {
    let from_cargo = std::env::var_os("CARGO_BIN_EXE_sanderling").map(PathBuf::from);
    from_cargo.unwrap_or_else(|| {
        let own = std::env::current_exe().expect("the kernel knows the running program");
        own.ancestors().nth(2).expect("a test is in the directory `deps` of a profile").join("sanderling")
    })
}

/// A directory that is not the control directory of another test. The server creates it.
fn control_directory() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // A socket's path has at most 107 bytes (unix(7)).
    const PATH_BYTES_MAX: usize = 80;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("run-{}-{number}", std::process::id());
    let target = program().ancestors().nth(2).map(Path::to_owned).unwrap_or_default();
    let directory = target.join("tmp").join(&name);
    if directory.as_os_str().len() <= PATH_BYTES_MAX { directory } else { std::env::temp_dir().join(name) }
}

/// Copies the built program to `path`. Another process does it: a descriptor for writing would be inherited by the
/// programs of other tests, and the kernel does not execute a file that is open for writing.
#[track_caller]
pub fn copy_program_to(path: &Path) {
    let copied = Command::new("cp").arg(program()).arg(path).status().expect("cp can be run");
    assert!(copied.success(), "cannot copy the program to {}", path.display());
}

/// Runs `sanderling` with these arguments to its end.
#[track_caller]
pub fn run(arguments: &[&str]) -> Ended {
    let mut command = sanderling();
    command.args(arguments);
    run_to_end(command, DEADLINE)
}

/// Runs a command to its end; one that has not ended within `deadline` is killed and fails the test.
#[track_caller]
pub fn run_to_end(mut command: Command, deadline: Duration) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let errors = Errors::collect(child.stderr.take().expect("a pipe"));
    let mut pipe = child.stdout.take().expect("a pipe");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut output = Vec::new();
        let _ = pipe.read_to_end(&mut output);
        let _ = sender.send(output);
    });
    let Ok(output) = receiver.recv_timeout(deadline) else {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{command:?} has not ended within {deadline:?}; its standard error:\n{}", errors.text());
    };
    let status = child.wait().expect("a child of this process");
    Ended { status, output, errors: errors.text_at_end() }
}

/// A program's standard error: its lines, and the text of those received so far.
pub(crate) struct Errors(Mutex<(Receiver<String>, String)>);

impl Errors {
    pub(crate) fn collect(pipe: impl Read + Send + 'static) -> Errors {
        Errors(Mutex::new((lines_of(pipe), String::new())))
    }

    pub(crate) fn text(&self) -> String {
        self.read_until(Duration::ZERO, |_| false)
    }

    /// Whether `text` was written before the end and the deadline.
    pub(crate) fn wait_for(&self, text: &str) -> bool {
        self.read_until(DEADLINE, |written| written.contains(text)).contains(text)
    }

    /// All of it, or what was written until the deadline.
    pub(crate) fn text_at_end(&self) -> String {
        self.read_until(DEADLINE, |_| false)
    }

    fn read_until(&self, limit: Duration, is_enough: impl Fn(&str) -> bool) -> String {
        let (lines, text) = &mut *self.0.lock().expect("no holder of this lock panics");
        let end = Instant::now() + limit;
        while !is_enough(text)
            && let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            *text += &(line + "\n");
        }
        text.clone()
    }
}

/// The lines of a pipe. The channel closes when no process has the other end of the pipe open.
pub(crate) fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    // Lines that no test reads are received as well: the pipe must not fill up.
    let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
    thread::spawn(move || lines.for_each(|line| drop(sender.send(String::from_utf8_lossy(&line).into_owned()))));
    receiver
}
