//! Turns a command line into a running program that a test can talk to, and into its end.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process_ids::{children_of, send_signal};

/// How long a program may take to start, to answer or to end. It is for machines under load: a test that passes never
/// waits for it.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The listeners that a program is to announce before a test may go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listeners {
    pub http: usize,
    pub dns: usize,
}

/// A program that serves. Dropping it ends it; a program that does not end within [`DEADLINE`] fails its test.
///
/// What runs is the program with all that it has started: one process group, and one end of its standard output. It
/// has ended when nobody holds that output any more.
pub struct Serving {
    child: Child,
    lines: Receiver<String>,
    errors: Arc<Errors>,
    http: Vec<SocketAddr>,
    dns: Vec<SocketAddr>,
    others: Vec<String>,
    control: ControlPlace,
    has_ended: bool,
}

impl Serving {
    /// Starts `sanderling` with these arguments and waits until it has announced its `listeners`.
    #[track_caller]
    pub fn start(arguments: &[&str], listeners: Listeners) -> Serving {
        let mut command = sanderling();
        command.args(arguments);
        Serving::start_command(command, listeners)
    }

    /// The same for a command that a test has prepared: its folder, its environment.
    #[track_caller]
    pub fn start_command(mut command: Command, listeners: Listeners) -> Serving {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let errors = Errors::collect(child.stderr.take().expect("standard error was asked for as a pipe"));
        let lines = lines_of(child.stdout.take().expect("standard output was asked for as a pipe"));
        let control = ControlPlace::of(&command);
        let mut serving = Serving {
            child,
            lines,
            errors,
            http: Vec::new(),
            dns: Vec::new(),
            others: Vec::new(),
            control,
            has_ended: false,
        };
        serving.wait_for(listeners);
        serving
    }

    /// The address of the first HTTP listener.
    #[track_caller]
    pub fn http(&self) -> SocketAddr {
        *self.http.first().expect("the program announced an HTTP listener")
    }

    /// The address of the first DNS listener.
    #[track_caller]
    pub fn dns(&self) -> SocketAddr {
        *self.dns.first().expect("the program announced a DNS listener")
    }

    /// The addresses of all HTTP listeners in the order in which they were announced.
    pub fn http_all(&self) -> &[SocketAddr] {
        &self.http
    }

    /// The addresses of all DNS listeners in the order in which they were announced.
    pub fn dns_all(&self) -> &[SocketAddr] {
        &self.dns
    }

    /// Everything on standard output so far was an address, once for each listener.
    #[track_caller]
    pub fn check_announcement_is_exact(&self) {
        assert!(self.others.is_empty(), "standard output has more than addresses: {:?}", self.others);
    }

    /// The lines that came before the last of the awaited listeners and announce none.
    pub fn lines_before(&self) -> &[String] {
        &self.others
    }

    /// The process that was started; others may have been started by it.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The process that serves: the only child, which there is once nothing drains any more.
    #[track_caller]
    pub fn server_process_id(&self) -> u32 {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let children = children_of(self.process_id()).expect("it runs");
            if let [child] = children[..] {
                return child;
            }
            assert!(Instant::now() < deadline, "children: {children:?}");
            thread::yield_now();
        }
    }

    /// What it wrote to standard error so far.
    pub fn errors(&self) -> String {
        self.errors.text()
    }

    /// Waits until standard error holds `text`.
    #[track_caller]
    pub fn wait_for_error(&self, text: &str) {
        if !self.errors.wait_for(text) {
            panic!("no {text:?} on standard error within {DEADLINE:?}{}", self.told());
        }
    }

    /// The next line of standard output that announces no listener; the addresses of those that do are kept.
    #[track_caller]
    pub fn next_line(&mut self) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let line = self.line_before(deadline);
            if !self.keep_announced(&line) {
                return line;
            }
        }
    }

    /// Sends a signal by its name without SIG: `HUP`, `TERM`, `USR2`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        assert!(!self.has_ended, "the program has ended; SIG{name} would meet a stranger");
        assert!(send_signal(name, &self.child.id().to_string()), "SIG{name} could not be sent{}", self.told());
    }

    /// Ends the program as its operator would, by SIGTERM, and waits for the end of all its processes.
    #[track_caller]
    pub fn stop(mut self) -> Ended {
        self.signal("TERM");
        self.wait_for_end()
    }

    /// Waits until the program has ended by itself.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        self.wait_for_end()
    }

    #[track_caller]
    pub fn wait_for(&mut self, listeners: Listeners) {
        let deadline = Instant::now() + DEADLINE;
        while self.http.len() < listeners.http || self.dns.len() < listeners.dns {
            let line = self.line_before(deadline);
            if !self.keep_announced(&line) {
                self.others.push(line);
            }
        }
    }

    #[track_caller]
    fn line_before(&mut self, deadline: Instant) -> String {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                panic!("a line was awaited on standard output, none came within {DEADLINE:?}{}", self.told())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait_for_end().status;
                panic!("a line was awaited on standard output, but the program ended: {status}{}", self.told())
            }
        }
    }

    /// Keeps the address of a line `http ADDR:PORT` or `dns ADDR:PORT`; false for any other line.
    fn keep_announced(&mut self, line: &str) -> bool {
        match announced(line) {
            Some(("http", address)) => self.http.push(address),
            Some((_, address)) => self.dns.push(address),
            None => return false,
        }
        true
    }

    #[track_caller]
    fn wait_for_end(&mut self) -> Ended {
        let deadline = Instant::now() + DEADLINE;
        let mut output = String::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => output = output + &line + "\n",
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.kill();
                    panic!("the program did not end within {DEADLINE:?} and was killed{}", self.told());
                }
            }
        }
        // Nobody holds its output any more: the process is gone, or about to be.
        let status = self.child.wait().expect("a child that nobody else waits for");
        self.has_ended = true;
        Ended { status, output: output.into_bytes(), errors: self.errors.text_at_end() }
    }

    /// Ends the whole process group at once. Its number cannot be another's: the child has not been waited for.
    fn kill(&mut self) {
        send_signal("KILL", &format!("-{}", self.child.id()));
        // An error says that it was gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.has_ended = true;
    }

    /// How the program stands when its test has failed: what it says of itself, or that it says nothing any more.
    fn state(&self) -> String {
        let told = self.status_command().output().expect("the built program can be started");
        let [told, errors] = [told.stdout, told.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        format!("; asked how it stands, it says:\n{told}{errors}")
    }

    fn status_command(&self) -> Command {
        let mut command = sanderling();
        command.args(["status", "--timeout", "5"]).stdin(Stdio::null());
        match &self.control {
            ControlPlace::Socket(path) => command.arg("--control").arg(path),
            ControlPlace::Folder(path) => command.env(CONTROL_FOLDER, path),
            ControlPlace::Usual => &mut command,
        };
        command
    }

    /// What to add to the message of a failure.
    fn told(&self) -> String {
        match self.errors.text() {
            text if text.is_empty() => "; its standard error is empty".to_owned(),
            text => format!("; its standard error:\n{text}"),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if thread::panicking() {
            eprintln!("the program that was served from is ended{}{}", self.told(), self.state());
            self.kill();
            return;
        }
        self.signal("TERM");
        self.wait_for_end();
    }
}

/// A program that came to its end.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// All of standard output that no test has read before.
    pub output: Vec<u8>,
    /// All of standard error.
    pub errors: String,
}

impl Ended {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// The exit status; `None` when a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n--- output\n{}\n--- errors\n{}", self.status, self.text(), self.errors)
    }
}

/// Copies the built program to `path`, by another process: a descriptor to write it, of ours, would be in every child of
/// the other tests, which begin meanwhile, and nobody can run what somebody may write.
#[track_caller]
pub fn copy_program_to(path: &Path) {
    let copied = Command::new("cp").arg(sanderling().get_program()).arg(path).status().expect("cp is everywhere");
    assert!(copied.success(), "the folder has no room for the program");
}

/// Where a program that was started has its control socket.
enum ControlPlace {
    Socket(OsString),
    Folder(OsString),
    Usual,
}

impl ControlPlace {
    fn of(command: &Command) -> ControlPlace {
        let folder = command.get_envs().find(|(name, _)| *name == CONTROL_FOLDER).and_then(|(_, value)| value);
        let socket = command.get_args().skip_while(|argument| *argument != "--control").nth(1);
        match (socket, folder) {
            (Some(path), _) => ControlPlace::Socket(path.to_owned()),
            (None, Some(path)) => ControlPlace::Folder(path.to_owned()),
            (None, None) => ControlPlace::Usual,
        }
    }
}

/// What names the folder of the control socket.
const CONTROL_FOLDER: &str = "RUNTIME_DIRECTORY";

/// The built program, with nothing of the tester's environment that it listens to.
pub fn sanderling() -> Command {
    let mut command = Command::new(program());
    for name in ["SANDERLING_CONFIG", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env(CONTROL_FOLDER, folder_of_control_socket());
    command
}

/// The built program. Cargo names it to the integration tests of its package; it lies above the folder of any other test.
fn program() -> PathBuf {
    let named = std::env::var_os("CARGO_BIN_EXE_sanderling").map(PathBuf::from);
    named.unwrap_or_else(|| {
        let own = std::env::current_exe().expect("the kernel names the program that runs");
        own.ancestors().nth(2).expect("a test lies in the folder `deps` of a profile").join("sanderling")
    })
}

/// A folder that no other server of the tests has its control socket in. The server that needs it creates it.
fn folder_of_control_socket() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // A socket's address has room for so many bytes (unix(7)), less the name of the socket.
    const PATH_BYTES_MAX: usize = 80;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("run-{}-{number}", std::process::id());
    let target = program().ancestors().nth(2).map(Path::to_owned).unwrap_or_default();
    let folder = target.join("tmp").join(&name);
    if folder.as_os_str().len() <= PATH_BYTES_MAX { folder } else { std::env::temp_dir().join(name) }
}

/// Runs `sanderling` with these arguments to its end.
#[track_caller]
pub fn run(arguments: &[&str]) -> Ended {
    let mut command = sanderling();
    command.args(arguments);
    run_to_end(command, DEADLINE)
}

/// Runs any command to its end; one that is not done within `deadline` is killed and fails its test.
#[track_caller]
pub fn run_to_end(mut command: Command, deadline: Duration) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let errors = Errors::collect(child.stderr.take().expect("standard error was asked for as a pipe"));
    let mut pipe = child.stdout.take().expect("standard output was asked for as a pipe");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut output = Vec::new();
        // A read that fails leaves what was read before; the test will miss the rest.
        let _ = pipe.read_to_end(&mut output);
        let _ = sender.send(output);
    });
    let Ok(output) = receiver.recv_timeout(deadline) else {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{command:?} was not done within {deadline:?}; its standard error:\n{}", errors.text());
    };
    let status = child.wait().expect("a child that nobody else waits for");
    Ended { status, output, errors: errors.text_at_end() }
}

/// A folder of its own for one test; it goes when this is dropped.
pub struct Folder(TempDir);

impl Folder {
    /// An empty folder.
    pub fn new() -> Folder {
        Folder(TempDir::with_prefix("sanderling-").expect("a folder for temporary files can be written"))
    }

    /// A folder with these files in it; their paths may have folders in them.
    pub fn with(files: &[(&str, &[u8])]) -> Folder {
        let folder = Folder::new();
        for (path, content) in files {
            folder.write(path, content);
        }
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in it, as an argument.
    pub fn argument(&self, path: &str) -> String {
        self.0.path().join(path).to_str().expect("the prefix and the paths of tests are UTF-8").to_owned()
    }

    /// The program as it serves `sanderling.toml` in this folder, with its control socket beside it.
    pub fn serve(&self) -> Command {
        let mut command = sanderling();
        command.args(["serve", "--config", &self.argument("sanderling.toml"), "--control", &self.argument("control")]);
        command
    }

    /// What becomes of a command for the server that was started by [`Folder::serve`].
    #[track_caller]
    pub fn tell(&self, verb: &str) -> Ended {
        let mut command = sanderling();
        command.args([verb, "--control", &self.argument("control")]);
        run_to_end(command, DEADLINE)
    }

    /// Writes a file and the folders above it.
    pub fn write(&self, path: &str, content: &[u8]) -> PathBuf {
        let file = self.0.path().join(path);
        let folder = file.parent().expect("a file stands in a folder");
        fs::create_dir_all(folder).expect("a folder of our own can be made");
        fs::write(&file, content).expect("a file of our own can be written");
        file
    }
}

/// What a program writes to standard error, as far as it has come.
struct Errors {
    state: Mutex<ErrorsState>,
    changed: Condvar,
}

#[derive(Default)]
struct ErrorsState {
    text: String,
    is_at_end: bool,
}

impl Errors {
    fn collect(pipe: impl Read + Send + 'static) -> Arc<Errors> {
        let errors = Arc::new(Errors { state: Mutex::default(), changed: Condvar::new() });
        let shared = Arc::clone(&errors);
        thread::spawn(move || {
            for line in lossy_lines(pipe) {
                shared.change(|state| state.text = std::mem::take(&mut state.text) + &line + "\n");
            }
            shared.change(|state| state.is_at_end = true);
        });
        errors
    }

    fn change(&self, change: impl FnOnce(&mut ErrorsState)) {
        change(&mut self.state.lock().expect("no holder of this lock panics"));
        self.changed.notify_all();
    }

    fn text(&self) -> String {
        self.state.lock().expect("no holder of this lock panics").text.clone()
    }

    /// Whether `text` came before the end and the deadline.
    fn wait_for(&self, text: &str) -> bool {
        self.wait_until(|state| state.is_at_end || state.text.contains(text)).contains(text)
    }

    /// All of it; what came until the deadline, when some process keeps it open.
    fn text_at_end(&self) -> String {
        self.wait_until(|state| state.is_at_end)
    }

    fn wait_until(&self, is_enough: impl Fn(&ErrorsState) -> bool) -> String {
        let state = self.state.lock().expect("no holder of this lock panics");
        let waited = self.changed.wait_timeout_while(state, DEADLINE, |state| !is_enough(state));
        waited.expect("no holder of this lock panics").0.text.clone()
    }
}

/// The lines of a pipe as they come. The channel closes when nobody holds the other end of the pipe any more.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    // Lines that nobody waits for are read all the same, so that a program never blocks on a full pipe.
    thread::spawn(move || lossy_lines(pipe).for_each(|line| drop(sender.send(line))));
    receiver
}

fn lossy_lines(pipe: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// The service and the address of a line `http ADDR:PORT` or `dns ADDR:PORT`.
fn announced(line: &str) -> Option<(&str, SocketAddr)> {
    let (service, address) = line.split_once(' ')?;
    if !matches!(service, "http" | "dns") {
        return None;
    }
    Some((service, address.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[track_caller]
    fn panic_of(action: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let panic = std::panic::catch_unwind(action).expect_err("it panics");
        panic.downcast_ref::<String>().expect("a message with values in it").clone()
    }

    #[test]
    fn announced_listeners_are_read_by_service() {
        assert_eq!(announced("http 127.0.0.1:80"), Some(("http", "127.0.0.1:80".parse().unwrap())));
        assert_eq!(announced("dns [::1]:53"), Some(("dns", "[::1]:53".parse().unwrap())));
        for line in ["", "http", "http soon", "https 127.0.0.1:80", "dns 127.0.0.1"] {
            assert_eq!(announced(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_program_serves_from_its_announcement_to_its_signal() {
        let script = "tail -f /dev/null >/dev/null 2>&1 & trap 'kill $!; echo bye; exit 3' TERM; echo note; \
                      echo http 127.0.0.1:8; echo dns [::1]:9; echo ready; echo warned >&2; wait";
        let mut serving = Serving::start_command(shell(script), Listeners { http: 1, dns: 1 });
        assert_eq!(serving.http(), "127.0.0.1:8".parse().unwrap());
        assert_eq!(serving.dns_all(), ["[::1]:9".parse().unwrap()]);
        assert_eq!(serving.next_line(), "ready");
        serving.wait_for_error("warned");
        let ended = serving.stop();
        assert_eq!((ended.code(), ended.text().as_str(), ended.errors.as_str()), (Some(3), "bye\n", "warned\n"));
    }

    #[test]
    fn a_program_that_ends_too_early_is_told_with_its_errors() {
        let message = panic_of(|| {
            Serving::start_command(
                shell("echo http 127.0.0.1:8; echo no zone >&2; exit 78"),
                Listeners { http: 1, dns: 1 },
            );
        });
        assert!(message.contains("ended: exit status: 78") && message.contains("no zone"), "{message}");
    }

    #[test]
    fn a_command_that_is_not_done_in_time_is_killed() {
        let message = panic_of(|| {
            run_to_end(shell("echo stuck >&2; exec tail -f /dev/null"), Duration::from_millis(300));
        });
        assert!(message.contains("was not done within 300ms"), "{message}");
    }

    #[test]
    fn dropping_it_ends_a_program_with_all_its_processes() {
        let script = "tail -f /dev/null & trap 'kill $!; wait; exit' TERM; echo http 127.0.0.1:8; wait";
        let serving = Serving::start_command(shell(script), Listeners { http: 1, dns: 0 });
        let group = format!("-{}", serving.process_id());
        assert!(send_signal("CONT", &group), "the group is there");
        drop(serving);
        assert!(!send_signal("CONT", &group), "nobody is left in it");
    }

    #[test]
    fn a_command_that_ends_gives_all_it_wrote() {
        let ended = run_to_end(shell("printf 'a\\nb'; printf 'c' >&2; exit 1"), DEADLINE);
        assert_eq!((ended.code(), ended.text().as_str(), ended.errors.as_str()), (Some(1), "a\nb", "c\n"));
    }

    #[test]
    fn a_folder_goes_with_its_files() {
        let folder = Folder::with(&[("a/b.txt", b"content")]);
        let file = PathBuf::from(folder.argument("a/b.txt"));
        assert_eq!(fs::read(&file).unwrap(), b"content");
        drop(folder);
        assert!(!file.exists());
    }
}
