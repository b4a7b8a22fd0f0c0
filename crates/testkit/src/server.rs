//! A running program under test.

use crate::command::{CONTROL_DIRECTORY, Ended, Errors, lines_of, sanderling};
use crate::processes::{children_of, send_signal, server_pids};
use crate::{DEADLINE, wait_until};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

/// The numbers of listeners that a program must announce before a test continues.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenerCounts {
    /// The number of HTTP listeners.
    pub http: usize,
    /// The number of DNS listeners.
    pub dns: usize,
}

/// A running program with its process group. Dropping the value stops the program; a program that does not exit in time
/// fails the test.
///
/// The program has ended when no process has its standard output open.
pub struct TestServer {
    child: Child,
    lines: Receiver<String>,
    errors: Errors,
    http: Vec<SocketAddr>,
    dns: Vec<SocketAddr>,
    /// Other listeners, by the name of their service.
    others: Vec<(String, SocketAddr)>,
    other_lines: Vec<String>,
    /// The arguments and the variable that name the control socket.
    control: (Vec<OsString>, Option<OsString>),
    has_ended: bool,
}

impl TestServer {
    /// Starts `sanderling` with these arguments, and waits for its listeners.
    #[track_caller]
    pub fn start(arguments: &[&str], counts: ListenerCounts) -> TestServer {
        let mut command = sanderling();
        command.args(arguments);
        TestServer::start_command(command, counts)
    }

    /// Starts a command, and waits for its listeners.
    #[track_caller]
    pub fn start_command(mut command: Command, counts: ListenerCounts) -> TestServer {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let errors = Errors::collect(child.stderr.take().expect("a pipe"));
        let lines = lines_of(child.stdout.take().expect("a pipe"));
        let directory = command.get_envs().find(|(name, _)| *name == CONTROL_DIRECTORY).and_then(|(_, value)| value);
        let arguments = command.get_args().skip_while(|argument| *argument != "--control").take(2);
        let control = (arguments.map(OsString::from).collect(), directory.map(OsString::from));
        let (http, dns, others, other_lines) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut server = TestServer { child, lines, errors, http, dns, others, other_lines, control, has_ended: false };
        server.wait_for(counts);
        server
    }

    /// The address of the first HTTP listener.
    #[track_caller]
    pub fn http(&self) -> SocketAddr {
        *self.http.first().expect("the program has announced an HTTP listener")
    }

    /// The address of the first DNS listener.
    #[track_caller]
    pub fn dns(&self) -> SocketAddr {
        *self.dns.first().expect("the program has announced a DNS listener")
    }

    /// The address of the first listener of `service`, `https` or `dot`, when it has been announced.
    #[track_caller]
    pub fn encrypted(&mut self, service: &str) -> SocketAddr {
        self.listener(service)
    }

    /// The address of the first listener for metrics.
    #[track_caller]
    pub fn metrics(&mut self) -> SocketAddr {
        self.listener("metrics")
    }

    #[track_caller]
    fn listener(&mut self, service: &str) -> SocketAddr {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some((_, address)) = self.others.iter().find(|(name, _)| name == service) {
                return *address;
            }
            let line = self.line_before(deadline);
            if !self.store_announced(&line) {
                self.other_lines.push(line);
            }
        }
    }

    /// The addresses of all HTTP listeners, in the order of their announcement.
    pub fn http_all(&self) -> &[SocketAddr] {
        &self.http
    }

    /// The addresses of all DNS listeners, in the order of their announcement.
    pub fn dns_all(&self) -> &[SocketAddr] {
        &self.dns
    }

    /// Standard output has had only listeners so far.
    #[track_caller]
    pub fn check_announcement_is_exact(&self) {
        assert!(self.other_lines.is_empty(), "standard output has further lines: {:?}", self.other_lines);
    }

    /// The ID of the started process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The server process's ID, when it is the only one.
    #[track_caller]
    pub fn server_process_id(&self) -> u32 {
        let mut pids = Vec::new();
        wait_until("one server process", || {
            pids = server_pids(self.process_id());
            pids.len() == 1
        });
        pids[0]
    }

    /// Standard error so far.
    pub fn errors(&self) -> String {
        self.errors.text()
    }

    /// Waits for `text` on standard error.
    #[track_caller]
    pub fn wait_for_error(&self, text: &str) {
        if !self.errors.wait_for(text) {
            panic!("no {text:?} on standard error within {DEADLINE:?}{}", self.stderr());
        }
    }

    /// The next line of standard output that announces no listener; the others are stored.
    #[track_caller]
    pub fn next_line(&mut self) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let line = self.line_before(deadline);
            if !self.store_announced(&line) {
                return line;
            }
        }
    }

    /// Sends a signal by its name without SIG: `HUP`, `TERM`, `USR2`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        assert!(!self.has_ended, "the program has ended; another process may have its ID");
        assert!(send_signal(name, &self.child.id().to_string()), "cannot send SIG{name}{}", self.stderr());
    }

    /// Kills all processes but the supervisor, which starts others. A process may end by itself before its turn.
    #[track_caller]
    pub fn kill_children(&self) {
        for child in children_of(self.process_id()).expect("the list of processes") {
            send_signal("KILL", &child.to_string());
        }
    }

    /// Kills all processes, and waits for their end.
    #[track_caller]
    pub fn kill_all(mut self) -> Ended {
        let children = children_of(self.process_id()).expect("the list of processes");
        self.signal("KILL");
        for child in children {
            send_signal("KILL", &child.to_string());
        }
        self.wait_for_end()
    }

    /// Ends the program with SIGTERM, and waits for the end of all its processes.
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

    /// Waits until so many listeners have been announced.
    #[track_caller]
    pub fn wait_for(&mut self, counts: ListenerCounts) {
        let deadline = Instant::now() + DEADLINE;
        while self.http.len() < counts.http || self.dns.len() < counts.dns {
            let line = self.line_before(deadline);
            if !self.store_announced(&line) {
                self.other_lines.push(line);
            }
        }
    }

    #[track_caller]
    fn line_before(&mut self, deadline: Instant) -> String {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("no line on standard output within {DEADLINE:?}{}", self.stderr()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait_for_end().status;
                panic!("the program ended before the awaited line: {status}{}", self.stderr())
            }
        }
    }

    /// Stores the address of a line such as `http ADDR:PORT`; false for any other line.
    fn store_announced(&mut self, line: &str) -> bool {
        match announced(line) {
            Some(("http", address)) => self.http.push(address),
            Some(("dns", address)) => self.dns.push(address),
            Some((service, address)) => self.others.push((service.to_owned(), address)),
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
                    panic!("the program did not end within {DEADLINE:?} and was killed{}", self.stderr());
                }
            }
        }
        let status = self.child.wait().expect("a child of this process");
        self.has_ended = true;
        Ended { status, output: output.into_bytes(), errors: self.errors.text_at_end() }
    }

    /// Kills the process group. The process group ID is still ours: the child has not been waited for.
    fn kill(&mut self) {
        send_signal("KILL", &format!("-{}", self.child.id()));
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.has_ended = true;
    }

    fn status(&self) -> String {
        let mut command = sanderling();
        command.args(["status", "--verbose", "--timeout", "5"]).stdin(Stdio::null());
        let (arguments, directory) = &self.control;
        command.args(arguments).envs(directory.iter().map(|directory| (CONTROL_DIRECTORY, directory)));
        let output = command.output().expect("the program can be started");
        let [text, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        format!("; its status:\n{text}{errors}")
    }

    fn stderr(&self) -> String {
        match self.errors.text() {
            text if text.is_empty() => "; its standard error is empty".to_owned(),
            text => format!("; its standard error:\n{text}"),
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if thread::panicking() {
            eprintln!("ending the program under test{}{}", self.stderr(), self.status());
            self.kill();
            return;
        }
        self.signal("TERM");
        self.wait_for_end();
    }
}

/// The service and the address of a line such as `http ADDR:PORT`.
fn announced(line: &str) -> Option<(&str, SocketAddr)> {
    let (service, address) = line.split_once(' ')?;
    if !matches!(service, "http" | "https" | "dns" | "dot" | "metrics") {
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

    #[test]
    #[should_panic(expected = "no zone")]
    fn early_end_is_reported_with_standard_error() {
        let script = "echo http 127.0.0.1:8; echo no zone >&2; exit 78";
        TestServer::start_command(shell(script), ListenerCounts { http: 1, dns: 1 });
    }

    #[test]
    fn drop_ends_all_processes_of_the_program() {
        let script = "tail -f /dev/null & trap 'kill $!; wait; exit' TERM; echo http 127.0.0.1:8; wait";
        let server = TestServer::start_command(shell(script), ListenerCounts { http: 1, dns: 0 });
        let group = format!("-{}", server.process_id());
        assert!(send_signal("CONT", &group), "the group exists");
        drop(server);
        assert!(!send_signal("CONT", &group), "the group is empty");
    }
}
