//! The load generators wrk, h2load, dnsperf and `handshakes`: how they are started, and how their output is read.

use crate::compare::server::{pinned, send_signal};
use crate::compare::tls_client::Tickets;
use anyhow::{Context, ensure};
use rustix::process::Signal;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Maximum time that a load may run longer than requested.
pub(crate) const OVERTIME: Duration = Duration::from_secs(20);
/// Stands for the length in the arguments.
const SECONDS: &str = "{seconds}";

#[derive(Clone, Debug)]
pub(crate) struct Load {
    program: PathBuf,
    arguments: Vec<String>,
    /// The OpenSSL configuration of the load; `None` for the system's.
    openssl_config: Option<PathBuf>,
    /// Returns the responses and the errors in the output.
    parse: fn(&str) -> Option<(u64, u64)>,
    pub(crate) length: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) response_count: u64,
    /// Lost or unexpected responses.
    pub(crate) error_count: u64,
}

/// wrk with persistent connections; `more` are further arguments.
pub(crate) fn wrk(server: SocketAddr, path: &str, connection_count: usize, more: &[&str], length: Duration) -> Load {
    let mut arguments: Vec<String> = vec!["-t1".into(), format!("-c{connection_count}"), format!("-d{SECONDS}s")];
    // A load is stopped during the turns of the others, which must not count as a timeout.
    arguments.extend(["--timeout".into(), "60s".into()]);
    arguments.extend(more.iter().map(|word| (*word).to_owned()));
    arguments.push(format!("http://{server}{path}"));
    Load::new("wrk", arguments, parse_wrk, length)
}

/// A load for a path that does not exist: any response except an error is an error.
pub(crate) fn wrk_missing(server: SocketAddr, path: &str, connection_count: usize, length: Duration) -> Load {
    let parse = |output: &str| {
        let (response_count, error_count) = parse_wrk(output)?;
        Some((response_count, response_count.abs_diff(error_count)))
    };
    Load { parse, ..wrk(server, path, connection_count, &[], length) }
}

/// h2load with persistent connections; `more` are further arguments.
pub(crate) fn h2load(server: SocketAddr, path: &str, connection_count: usize, more: &[&str], length: Duration) -> Load {
    let (connections, url) = (format!("-c{connection_count}"), format!("http://{server}{path}"));
    let mut arguments: Vec<String> = vec!["-t1".into(), connections, "-D".into(), SECONDS.into()];
    arguments.extend(more.iter().map(|word| (*word).to_owned()));
    arguments.push(url);
    Load::new("h2load", arguments, parse_h2load, length)
}

/// dnsperf with 8 sockets and 200 outstanding queries; `mode` is `udp`, `tcp` or `dot`.
pub(crate) fn dnsperf(server: SocketAddr, queries: &Path, mode: &str, length: Duration) -> Load {
    let (ip, port, file) = (server.ip().to_string(), server.port().to_string(), queries.display().to_string());
    let words = ["-m", mode, "-s", &ip, "-p", &port, "-d", &file, "-l", SECONDS, "-c", "8", "-q", "200", "-T", "1"];
    let arguments = words.into_iter().map(str::to_owned).collect();
    Load::new("dnsperf", arguments, parse_dnsperf, length)
}

/// The command `handshakes` of this program: a connection for each request.
pub(crate) fn handshakes(
    server: SocketAddr,
    path: &str,
    content_bytes: usize,
    tickets: Tickets,
    length: Duration,
) -> anyhow::Result<Load> {
    let (server, content_bytes) = (server.to_string(), content_bytes.to_string());
    let words = ["handshakes", &server, path, &content_bytes, tickets.name(), SECONDS];
    let arguments = words.into_iter().map(str::to_owned).collect();
    Ok(Load::new(std::env::current_exe()?, arguments, parse_handshakes, length))
}

impl Load {
    fn new(
        program: impl Into<PathBuf>,
        arguments: Vec<String>,
        parse: fn(&str) -> Option<(u64, u64)>,
        length: Duration,
    ) -> Load {
        Load { program: program.into(), arguments, openssl_config: None, parse, length }
    }

    /// This load over TLS, with an OpenSSL configuration file.
    pub(crate) fn over_tls(mut self, openssl_config: &Path) -> Load {
        for argument in &mut self.arguments {
            *argument = argument.replacen("http://", "https://", 1);
        }
        self.openssl_config = Some(openssl_config.to_owned());
        self
    }

    /// This load with further arguments.
    pub(crate) fn with_arguments(mut self, arguments: &[&str]) -> Load {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// This load for another duration.
    pub(crate) fn for_time(&self, length: Duration) -> Load {
        Load { length, ..self.clone() }
    }

    pub(crate) fn run(&self, cpus: &str) -> anyhow::Result<Counted> {
        let mut running = self.start(cpus)?;
        running.wait(self.length + OVERTIME);
        running.counted()
    }

    pub(crate) fn start(&self, cpus: &str) -> anyhow::Result<Running<'_>> {
        let seconds = self.length.as_secs_f64().to_string();
        let mut command = pinned(self.program.as_os_str(), cpus);
        command.args(self.arguments.iter().map(|argument| argument.replace(SECONDS, &seconds)));
        command.envs(self.openssl_config.as_ref().map(|config| ("OPENSSL_CONF", config)));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("setpriv")?;
        Ok(Running { load: self, child, has_ended: false })
    }
}

/// A load that runs. The load is killed when it is dropped.
pub(crate) struct Running<'l> {
    load: &'l Load,
    child: Child,
    has_ended: bool,
}

impl Running<'_> {
    pub(crate) fn pause(&self) {
        send_signal(self.child.id() as i32, Signal::STOP);
    }

    /// Continues the load, and stops it again after some time; returns whether it has ended.
    pub(crate) fn run_for(&mut self, time: Duration) -> bool {
        if self.has_ended {
            return true;
        }
        send_signal(self.child.id() as i32, Signal::CONT);
        self.wait(time);
        if !self.has_ended {
            self.pause();
        }
        self.has_ended
    }

    fn wait(&mut self, timeout: Duration) {
        let limit = Instant::now() + timeout;
        while !self.has_ended {
            match self.child.try_wait() {
                Ok(None) if Instant::now() > limit => return,
                // The output is short enough for the pipe.
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Ok(Some(_)) | Err(_) => self.has_ended = true,
            }
        }
    }

    pub(crate) fn counted(mut self) -> anyhow::Result<Counted> {
        let program = self.load.program.display();
        ensure!(self.has_ended, "{program} did not end {OVERTIME:?} after its time");
        let status = self.child.wait()?;
        let (mut output, mut errors) = (String::new(), String::new());
        self.child.stdout.take().context("no pipe")?.read_to_string(&mut output)?;
        self.child.stderr.take().context("no pipe")?.read_to_string(&mut errors)?;
        ensure!(status.success(), "{program} ended ({status}): {output}{errors}");
        let counts = (self.load.parse)(&output);
        let (response_count, error_count) = counts.with_context(|| format!("unknown output of {program}: {output}"))?;
        ensure!(response_count > 0, "no response: {output}");
        Ok(Counted { response_count, error_count })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            // An error means that the process has ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Numbers in a line, at the beginning of words.
fn sum_of_numbers(text: &str) -> u64 {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok()).sum()
}

fn parse_wrk(output: &str) -> Option<(u64, u64)> {
    let lines = || output.lines().map(str::trim);
    let responses = lines().find(|line| line.contains(" requests in ")).and_then(first_number)?;
    let errors = lines().filter_map(|line| {
        line.strip_prefix("Non-2xx or 3xx responses: ").or_else(|| line.strip_prefix("Socket errors: "))
    });
    // "Non-2xx or 3xx responses: 7" and "Socket errors: connect 0, read 3, write 0, timeout 1".
    Some((responses, errors.map(sum_of_numbers).sum()))
}

/// `requests: 100 total, 100 started, 100 done, 97 succeeded, 2 failed, 1 errored, 0 timeout`.
fn parse_h2load(output: &str) -> Option<(u64, u64)> {
    let line = output.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count = |name: &str| line.split(", ").find(|part| part.ends_with(name)).and_then(first_number);
    Some((count("succeeded")?, count("failed")? + count("errored")? + count("timeout")?))
}

/// `Queries completed: 99 (99%)`, `Queries lost: 1 (1%)` and `Response codes: NOERROR 90 (90%), SERVFAIL 9 (9%)`. Each
/// workload has one response code, which is checked before; others are errors.
fn parse_dnsperf(output: &str) -> Option<(u64, u64)> {
    let after = |label: &str| output.lines().find_map(|line| line.trim().strip_prefix(label));
    let completed_count = first_number(after("Queries completed:")?)?;
    let codes = after("Response codes:").unwrap_or_default().split(", ");
    let code_counts = codes.filter_map(|code| first_number(code.trim().split_once(' ')?.1));
    let most = code_counts.max().unwrap_or(0);
    Some((completed_count, first_number(after("Queries lost:")?)? + completed_count.saturating_sub(most)))
}

/// `99 responses, 1 errors`.
fn parse_handshakes(output: &str) -> Option<(u64, u64)> {
    let (responses, errors) = output.split_once(" responses, ")?;
    Some((first_number(responses)?, first_number(errors)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_parsed() {
        let wrk = "  1 threads and 64 connections\n  109876 requests in 2.00s, 80.10MB read\n  \
                   Socket errors: connect 0, read 3, write 0, timeout 1\n  Non-2xx or 3xx responses: 10\n";
        assert_eq!(parse_wrk(wrk), Some((109_876, 14)));
        assert_eq!(parse_wrk("unable to connect"), None);
        let h2load = "requests: 100 total, 100 started, 100 done, 97 succeeded, 2 failed, 1 errored, 0 timeout\n";
        assert_eq!(parse_h2load(h2load), Some((97, 3)));
        let dnsperf = "  Queries sent:         100\n  Queries completed:    99 (99.00%)\n  Queries lost:         1 (1.00%)\n\n  \
                       Response codes:       NOERROR 90 (90.91%), NXDOMAIN 9 (9.09%)\n";
        assert_eq!(parse_dnsperf(dnsperf), Some((99, 10)));
        assert_eq!(parse_handshakes("99 responses, 1 errors\n"), Some((99, 1)));
    }
}
