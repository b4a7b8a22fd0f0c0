//! What the program runs by, free of where it was written: a file and the arguments of `serve` both become this.

use super::domain_name::DomainName;
use super::limits::Limits;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread::available_parallelism;

/// Where HTTP is answered if nothing says otherwise.
pub(super) const HTTP_LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// Where DNS is answered if nothing says otherwise.
pub(super) const DNS_LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5353);
/// Threads that one server process may have.
pub(super) const WORKER_COUNT_MAX: u64 = 1024;

/// A whole configuration, checked: names are well-formed, addresses and hosts unique, and the files were there.
///
/// At least one of `sites` and `zones` is not empty; `http_listen` is empty exactly if `sites` is, `dns_listen`
/// exactly if `zones` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Threads that serve, 1 to 1024.
    pub worker_count: usize,
    /// Sockets of each address.
    pub listeners: ListenerCount,
    /// Whom the server process becomes once it has opened what it serves; nobody else if `None`.
    pub account: Option<Account>,
    /// Whether the server process keeps itself from files and calls that serving does not need.
    pub sandbox: bool,
    /// Where the supervisor is asked for its status, a reload or an upgrade, if the file says.
    pub control: Option<PathBuf>,
    /// Where HTTP is answered; port 0 lets the kernel choose.
    pub http_listen: Vec<SocketAddr>,
    /// Where DNS is answered, over UDP and TCP; port 0 lets the kernel choose.
    pub dns_listen: Vec<SocketAddr>,
    /// The web sites, in the order of the file.
    pub sites: Vec<Site>,
    /// Which site answers a Host that no site claims.
    pub default_site: DefaultSite,
    /// The zones, in the order of the file.
    pub zones: Vec<Zone>,
    /// Every bound that an operator may move.
    pub limits: Limits,
}

impl Config {
    /// What keeps a server process that runs by `running` from going on with this one, in words for the operator;
    /// `None` if nothing does.
    pub fn obstacle_for(&self, running: &Config) -> Option<&'static str> {
        let obstacles = [
            (self.http_listen != running.http_listen, "`listen` in [http] has changed"),
            (self.dns_listen != running.dns_listen, "`listen` in [dns] has changed"),
            (self.worker_count != running.worker_count, "the number of workers has changed"),
            (self.listeners != running.listeners, "`listeners` has changed"),
            (self.account != running.account, "the account that serves has changed"),
            (self.sandbox != running.sandbox, "`sandbox` has changed"),
            (self.limits != running.limits, "a limit has changed"),
        ];
        obstacles.into_iter().find_map(|(is_there, words)| is_there.then_some(words))
    }

    /// How many sockets each address has at least.
    pub fn listener_count(&self) -> usize {
        match self.listeners {
            // A worker without a socket of its own would share another's; a processor without a worker costs nothing.
            ListenerCount::Auto => processor_count().max(self.worker_count),
            ListenerCount::Exactly(count) => count,
        }
    }
}

/// How many sockets of each address there are, among which the kernel spreads those who come (`SO_REUSEPORT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerCount {
    /// One for each processor, and for each worker if those are more.
    Auto,
    /// So many, 1 to 1024.
    Exactly(usize),
}

/// A user of the system, and a group if it is not the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name or number.
    pub user: String,
    /// Name or number.
    pub group: Option<String>,
}

/// A folder that is served for some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The hosts that select it, its own domain before the aliases. No host stands in two sites. Empty for
    /// `serve FOLDER`, where [`DefaultSite::EveryHost`] leads here.
    pub hosts: Vec<DomainName>,
    /// The folder, relative to the working folder or absolute.
    pub folder: PathBuf,
}

/// A zone that is answered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The zone's name. No two zones have the same.
    pub apex: DomainName,
    /// Its zone file, relative to the working folder or absolute.
    pub file: PathBuf,
}

/// Which site answers a request whose Host no site claims; the number is an index into [`Config::sites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultSite {
    /// There are no sites.
    None,
    /// It answers if the Host is an IP address or `localhost`: nobody's name is then answered for by accident.
    Addresses(usize),
    /// It answers every Host.
    EveryHost(usize),
}

/// As many workers as this process may use processors; 1 if the kernel doesn't tell.
pub(super) fn processor_count() -> usize {
    // Asked once: a process that has confined itself could not ask anew, and would hear another number.
    static COUNT: OnceLock<usize> = OnceLock::new();
    let most = usize::try_from(WORKER_COUNT_MAX).unwrap_or(usize::MAX);
    *COUNT.get_or_init(|| available_parallelism().map_or(1, NonZeroUsize::get).min(most))
}
