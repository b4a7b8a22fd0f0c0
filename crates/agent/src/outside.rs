//! The domains of this server as other machines see them: the delegations in parent zones, the answers of all name
//! servers, and the connections that the published addresses accept. It only looks, for `sanderling doctor`: it judges
//! nothing, and changes nothing.

mod zone_view;
mod parent_view;
mod host_view;
mod presented_chain;

pub use host_view::{Connection, ConnectionView, HostView};
pub use parent_view::{Delegation, DsView, ParentView};
pub use presented_chain::{Presented, Trust};
pub use zone_view::{CaaView, OwnAnswers, ServerAnswer, ServerView, ZoneView};

use crate::clock::unix_s;
use crate::https_client::HttpsClient;
use crate::name_servers::NameServers;
use crate::parent_servers::ParentServers;
use crate::resolvers::Resolvers;
use host_view::HostLook;
use sanderling_config::{Config, DomainName, Resolver};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use zone_view::ZoneLook;

/// Domains that are looked at unless one is named.
const ZONES_MAX: usize = 32;
const HOSTS_MAX: usize = 64;
/// Servers of parent zones that are asked at the same time, each over a socket.
const PARENT_QUERIES_MAX: usize = 128;

/// Where to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The domain, with the names below it; all of them if there is none.
    pub name: Option<DomainName>,
    /// The resolvers to ask, instead of those of the configuration.
    pub resolvers: Vec<SocketAddr>,
    /// The servers of the parent zone to ask, instead of those of the configuration or those that resolvers find.
    pub parent_servers: Vec<SocketAddr>,
}

/// The answers of other machines, and of this server to them.
#[derive(Debug, Default)]
pub struct OutsideView {
    /// Each zone.
    pub zones: Vec<ZoneView>,
    /// Each host of a site.
    pub hosts: Vec<HostView>,
    /// Zones and hosts that were left out.
    pub left_out_count: usize,
    /// The clock of a certificate authority; `None` without one in the configuration.
    pub clock: Option<Result<ClockView, String>>,
}

/// The time of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockView {
    /// Its URL.
    pub server: String,
    /// Its time, in seconds since 1970.
    pub unix_s: u64,
    /// The time of this machine when its answer arrived.
    pub own_unix_s: u64,
}

/// Looks at the domains of `config`.
///
/// # Errors
/// The event loop cannot be created.
pub fn look(config: &Config, places: &Places) -> io::Result<OutsideView> {
    let mut config = config.clone();
    if !places.resolvers.is_empty() {
        config.resolvers = places.resolvers.iter().copied().map(Resolver::At).collect();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let config = Rc::new(config);
    Ok(LocalSet::new().block_on(&runtime, look_at_all(config, places)))
}

async fn look_at_all(config: Rc<Config>, places: &Places) -> OutsideView {
    let is_wanted = |name: &DomainName| {
        places.name.as_ref().is_none_or(|wanted| {
            name == wanted || name.as_str().strip_suffix(wanted.as_str()).is_some_and(|rest| rest.ends_with('.'))
        })
    };
    let mut apexes: Vec<DomainName> = config.apexes().filter(|apex| is_wanted(apex)).cloned().collect();
    // One of a folder or a catalog, which the configuration does not list.
    let has_no_section = |name: &&DomainName| !config.sites.iter().any(|site| site.hosts.contains(name));
    if apexes.is_empty() && (config.zone_folder.is_some() || config.consumes_catalogs()) {
        apexes.extend(places.name.iter().filter(has_no_section).cloned());
    }
    let hosts = config.sites.iter().flat_map(|site| &site.hosts);
    let hosts: Vec<DomainName> =
        hosts.filter(|host| is_wanted(host) && !host.as_str().starts_with('*')).cloned().collect();
    let left_out_count = apexes.len().saturating_sub(ZONES_MAX) + hosts.len().saturating_sub(HOSTS_MAX);
    apexes.truncate(ZONES_MAX);
    let of_zones = Rc::new(ZoneLook {
        name_servers: NameServers::new(Rc::clone(&config)),
        parent_servers: ParentServers::new(Resolvers::new(&config)),
        parents: places.parent_servers.clone(),
        parent_queries: Rc::new(Semaphore::new(PARENT_QUERIES_MAX)),
        config: Rc::clone(&config),
    });
    let of_hosts = Rc::new(HostLook::new(Rc::clone(&config)));
    let (mut zones, mut seen_hosts) = (JoinSet::new(), JoinSet::new());
    for (index, apex) in apexes.into_iter().enumerate() {
        let look = Rc::clone(&of_zones);
        zones.spawn_local(async move { (index, look.at(apex).await) });
    }
    for (index, host) in hosts.into_iter().take(HOSTS_MAX).enumerate() {
        let look = Rc::clone(&of_hosts);
        seen_hosts.spawn_local(async move { (index, look.at(host).await) });
    }
    let clock = look_at_clock(&config).await;
    OutsideView { zones: in_order(zones).await, hosts: in_order(seen_hosts).await, left_out_count, clock }
}

/// The results of all tasks, by their indexes.
async fn in_order<T: 'static>(tasks: JoinSet<(usize, T)>) -> Vec<T> {
    let mut results = tasks.join_all().await;
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The time of the first authority that says it.
async fn look_at_clock(config: &Config) -> Option<Result<ClockView, String>> {
    let client = HttpsClient::for_dates(Duration::from_millis(config.limits.authority_timeout_ms));
    let mut problem = None;
    for authority in &config.acme.as_ref()?.authorities {
        let server = authority.directory.clone();
        match client.date(&server).await {
            Ok(date) => return Some(Ok(ClockView { server, unix_s: date, own_unix_s: unix_s() })),
            Err(error) => problem = Some(format!("{server}: {error}")),
        }
    }
    problem.map(Err)
}
