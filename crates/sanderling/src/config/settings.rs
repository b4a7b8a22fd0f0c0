//! What the program runs by, free of where it was written: a file and the arguments of `serve` both become this.

use super::domain_name::DomainName;
use super::limits::Limits;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
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
pub(crate) struct Config {
    /// Threads that serve, 1 to 1024.
    pub(crate) worker_count: usize,
    /// Where HTTP is answered; port 0 lets the kernel choose.
    pub(crate) http_listen: Vec<SocketAddr>,
    /// Where DNS is answered, over UDP and TCP; port 0 lets the kernel choose.
    pub(crate) dns_listen: Vec<SocketAddr>,
    /// The web sites, in the order of the file.
    pub(crate) sites: Vec<Site>,
    /// Which site answers a Host that no site claims.
    pub(crate) default_site: DefaultSite,
    /// The zones, in the order of the file.
    pub(crate) zones: Vec<Zone>,
    /// Every bound that an operator may move.
    pub(crate) limits: Limits,
}

impl Config {
    /// Whether a server that runs by `running` can go on with this one without other sockets, threads or bounds.
    pub(crate) fn can_be_taken_up_by(&self, running: &Config) -> bool {
        self.worker_count == running.worker_count
            && self.http_listen == running.http_listen
            && self.dns_listen == running.dns_listen
            && self.limits == running.limits
    }
}

/// A folder that is served for some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// The hosts that select it, its own domain before the aliases. No host stands in two sites. Empty for
    /// `serve FOLDER`, where [`DefaultSite::EveryHost`] leads here.
    pub(crate) hosts: Vec<DomainName>,
    /// The folder, relative to the working folder or absolute.
    pub(crate) folder: PathBuf,
}

/// A zone that is answered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    /// The zone's name. No two zones have the same.
    pub(crate) apex: DomainName,
    /// Its zone file, relative to the working folder or absolute.
    pub(crate) file: PathBuf,
}

/// Which site answers a request whose Host no site claims; the number is an index into [`Config::sites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultSite {
    /// There are no sites.
    None,
    /// It answers if the Host is an IP address or `localhost`: nobody's name is then answered for by accident.
    Addresses(usize),
    /// It answers every Host.
    EveryHost(usize),
}

/// As many workers as this process may use processors; 1 if the kernel doesn't tell.
pub(super) fn processor_count() -> usize {
    let most = usize::try_from(WORKER_COUNT_MAX).unwrap_or(usize::MAX);
    available_parallelism().map_or(1, NonZeroUsize::get).min(most)
}
