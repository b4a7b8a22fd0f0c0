//! All that is known, from files, the kernel, the running server and the network.

use sanderling_agent::outside::OutsideView;
use sanderling_config::Service;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};

/// The facts that the checks judge.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) config_file: String,
    /// The report of `sanderling check`, or why there is none.
    pub(crate) check: Result<CheckReport, String>,
    pub(crate) server: ServerFacts,
    /// The addresses of the configuration.
    pub(crate) ports: Vec<PortFacts>,
    pub(crate) open_files: OpenFileFacts,
    /// The domain that the operator has named.
    pub(crate) name: Option<String>,
    /// The addresses of this machine.
    pub(crate) interfaces: Vec<IpAddr>,
    /// Whether proxies are in front of the server, so that clients connect to other machines.
    pub(crate) has_proxies: bool,
    /// The answers of other machines; `None` if the configuration cannot be read, or why they are not known.
    pub(crate) outside: Option<Result<OutsideView, String>>,
    /// Now, in seconds since 1970.
    pub(crate) now_unix_s: u64,
}

/// The report of `sanderling check --json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct CheckReport {
    pub(crate) problems: Vec<CheckProblem>,
}

/// A problem in it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct CheckProblem {
    /// `error`, `warning` or `note`.
    pub(crate) severity: String,
    /// The file, or the argument.
    pub(crate) place: String,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

/// The running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerFacts {
    Running(Running),
    /// No server has the control socket at this path.
    Absent(String),
    /// It is not known: why.
    Unknown(String),
}

/// Its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Running {
    /// The process ID of the supervisor.
    pub(crate) pid: u32,
    /// The process ID of the server process.
    pub(crate) process_pid: u32,
    /// How it deviates from its configuration.
    pub(crate) problems: Vec<String>,
}

/// An address at which the server should listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortFacts {
    pub(crate) service: Service,
    pub(crate) address: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) holder: Holder,
    /// Whether this machine has the address.
    pub(crate) is_local: bool,
    /// Whether this user may not bind the port.
    pub(crate) needs_root: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// The program that has bound an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    None,
    /// The running server.
    Own,
    /// Another program, at this address.
    Other {
        name: String,
        pid: u32,
        address: SocketAddr,
    },
    /// A program of another user, which only root can find.
    Hidden {
        address: SocketAddr,
    },
}

/// The limit of open files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenFileFacts {
    pub(crate) limit: u64,
    /// Whether it is that of the running server, and not of this process.
    pub(crate) is_of_server: bool,
    /// The parts of the configuration that it does not allow.
    pub(crate) problem: Option<String>,
}

impl Facts {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.server, ServerFacts::Running(_))
    }

    /// The answers of other machines, if there are any.
    pub(crate) fn seen(&self) -> Option<&OutsideView> {
        self.outside.as_ref()?.as_ref().ok()
    }
}
