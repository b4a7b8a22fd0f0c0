//! The commands that ask the server that runs: its status, a reload, an upgrade, its end.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use sanderling_config::SearchPaths;
use sanderling_ipc::control_message::Request;
use sanderling_ipc::control_path::{Surroundings, of_client};
use std::path::PathBuf;
use std::time::Duration;

/// Nothing has to be waited for.
pub(super) const STATUS_TIMEOUT_S: u64 = 5;
/// Zones may be large, and a new process may have to start.
pub(super) const CHANGE_TIMEOUT_S: u64 = 60;
/// The limit `drain_timeout_ms`, if it was left as it is, and 5 s for ending.
pub(super) const STOP_TIMEOUT_S: u64 = 35;
/// A day.
const TIMEOUT_S_MAX: u64 = 86_400;

/// What to ask, where, and how long to wait for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// What.
    pub(crate) request: Request,
    /// The control socket.
    pub(crate) socket: PathBuf,
    /// For the whole answer.
    pub(crate) timeout: Duration,
}

/// Which server is asked.
#[derive(Debug, Args)]
pub(super) struct ServerLine {
    /// The control socket of the server [default: what the configuration file says, else the usual place]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// The configuration file whose key `control` names the socket
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,
}

impl ServerLine {
    /// # Errors
    ///
    /// A message: it is not known where to ask.
    fn question(
        self,
        request: Request,
        timeout_s: u64,
        places: &SearchPaths,
        surroundings: &Surroundings,
    ) -> Result<Question, String> {
        let socket = of_client(self.control, self.config, places, surroundings)?;
        Ok(Question { request, socket, timeout: Duration::from_secs(timeout_s) })
    }
}

fn seconds() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=TIMEOUT_S_MAX)
}

/// Tell how the server that runs stands: what it serves, since when, and how much it has done.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling status
  sanderling status --json                                  for programs
  sanderling status --control /run/sanderling/control.sock

Exit status: 0 if the server answers, 1 if none does, 2 for a wrong command line.")]
pub(super) struct StatusLine {
    /// Write JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerLine,

    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = STATUS_TIMEOUT_S, value_parser = seconds())]
    timeout: u64,
}

impl StatusLine {
    pub(super) fn question(self, places: &SearchPaths, surroundings: &Surroundings) -> Result<Question, String> {
        let request = if self.json { Request::StatusJson } else { Request::Status };
        self.server.question(request, self.timeout, places, surroundings)
    }
}

/// Have the server that runs take up its configuration file and its zones anew.
///
/// What is wrong is refused as a whole: its errors are printed, and the server goes on with what it has. What is right
/// takes effect without closing a connection wherever that can be done. SIGHUP to the server's process does the same,
/// and puts the errors into its log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling check && sanderling reload
  sanderling reload --config /etc/sanderling/sanderling.toml

Exit status: 0 if the new configuration is in force, 1 if it was refused or no server answers, 2 for
a wrong command line.")]
pub(super) struct ReloadLine {
    #[command(flatten)]
    server: ServerLine,

    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = CHANGE_TIMEOUT_S, value_parser = seconds())]
    timeout: u64,
}

impl ReloadLine {
    pub(super) fn question(self, places: &SearchPaths, surroundings: &Surroundings) -> Result<Question, String> {
        self.server.question(Request::Reload, self.timeout, places, surroundings)
    }
}

/// End the server that runs, after it has finished what it was asked before.
///
/// It answers what has come and what comes within 200 ms more, as far as `http_connections_max` lets it in, takes no new
/// connections then, and ends when all is done or the limit `drain_timeout_ms` is reached. SIGTERM to the server's process
/// does the same; a second one ends it at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling stop
  sanderling stop --timeout 600         where drain_timeout_ms is long

Exit status: 0 if it has ended, 1 if it has not or no server answers, 2 for a wrong command line.")]
pub(super) struct StopLine {
    #[command(flatten)]
    server: ServerLine,

    /// How long to wait for its end; more than the limit `drain_timeout_ms`
    #[arg(long, value_name = "SECONDS", default_value_t = STOP_TIMEOUT_S, value_parser = seconds())]
    timeout: u64,
}

impl StopLine {
    pub(super) fn question(self, places: &SearchPaths, surroundings: &Surroundings) -> Result<Question, String> {
        self.server.question(Request::Stop, self.timeout, places, surroundings)
    }
}

/// Have the server that runs go on as the program that was installed in its place, on the same sockets.
///
/// Nobody is refused meanwhile, and its process keeps its number. If the new program can't serve, the old one goes on.
/// SIGUSR2 to the server's process does the same, and puts the errors into its log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling upgrade                    after a new version was installed

Exit status: 0 if the new program serves, 1 if the old one still does or no server answers, 2 for a
wrong command line.")]
pub(super) struct UpgradeLine {
    #[command(flatten)]
    server: ServerLine,

    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = CHANGE_TIMEOUT_S, value_parser = seconds())]
    timeout: u64,
}

impl UpgradeLine {
    pub(super) fn question(self, places: &SearchPaths, surroundings: &Surroundings) -> Result<Question, String> {
        self.server.question(Request::Upgrade, self.timeout, places, surroundings)
    }
}
