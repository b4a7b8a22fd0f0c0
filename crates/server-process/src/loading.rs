//! Turns a configuration into what a server serves: opens the folders of its sites, loads its zones.

use crate::zones;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::{Config, DefaultSite, Limits};
use sanderling_dns::{HashSeed, ZoneEntry, ZoneMap};
use sanderling_os::directory::Directory;
use sanderling_server::{DnsOptions, HttpOptions, OpenFilesOptions, Options, Root, Site, Sites, Snapshot};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Loads one configuration after the other for the same server.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    /// Numbers for the roots of sites: a folder that stays the same keeps its number, and what the open-file cache has
    /// of it stays good.
    known_roots: Vec<RootIdentity>,
    /// This process has been confined to them.
    reads_no_others: bool,
}

/// What tells one folder from another: where it is, and which it is.
type RootIdentity = (PathBuf, u64, u64);

/// What was loaded, and what is to be said about it.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// To be served.
    pub(crate) snapshot: Snapshot,
    /// What is odd, but no error.
    pub(crate) warnings: Vec<Diagnostic>,
}

impl Loader {
    /// Opens the sites and loads the zones of `config`.
    ///
    /// # Errors
    /// Everything that is wrong with any of them.
    pub(crate) fn load(&mut self, config: &Config) -> Result<Loaded, Vec<Diagnostic>> {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let mut sites = Vec::new();
        for site in &config.sites {
            match open_root(&site.folder).and_then(|(folder, identity)| Ok((folder, self.id_of(identity)?))) {
                Ok((folder, id)) => sites.push(Site {
                    id,
                    hosts: site.hosts.iter().map(|host| host.as_str().to_owned()).collect(),
                    root: Root::Folder(folder),
                }),
                Err(error) => {
                    let fault = Problem::new(error.to_string(), "check the folder's path and its permissions");
                    errors.push(Diagnostic::error(Location::File(site.folder.clone()), fault));
                }
            }
        }
        let seed = hash_seed();
        let mut zones = Vec::new();
        for zone in &config.zones {
            match zones::load(zone, &config.limits, seed, &mut warnings) {
                Ok(zone) => zones.push(ZoneEntry::Served(Arc::new(zone))),
                Err(mut diagnostics) => errors.append(&mut diagnostics),
            }
        }
        if !errors.is_empty() {
            errors.append(&mut warnings);
            return Err(errors);
        }
        let zones = ZoneMap::new(seed, zones).with_cname_chain_max(config.limits.dns_cname_chain_max);
        let default_site = match config.default_site {
            DefaultSite::None => sanderling_server::DefaultSite::None,
            DefaultSite::Addresses(index) => sanderling_server::DefaultSite::Addresses(index),
            DefaultSite::EveryHost(index) => sanderling_server::DefaultSite::EveryHost(index),
        };
        Ok(Loaded { snapshot: Snapshot::new(Sites::new(sites, default_site), zones), warnings })
    }

    /// From now on this process can read no folders but those that were loaded.
    pub(crate) fn end_reading_others(&mut self) {
        self.reads_no_others = true;
    }

    /// # Errors
    /// The folder can be opened, as any can, and nothing in it can.
    fn id_of(&mut self, identity: RootIdentity) -> io::Result<u32> {
        let known = self.known_roots.iter().position(|known| *known == identity);
        if known.is_none() && self.reads_no_others {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "this process was confined to other folders"));
        }
        let index = known.unwrap_or_else(|| {
            self.known_roots.push(identity);
            self.known_roots.len() - 1
        });
        Ok(index as u32)
    }
}

fn open_root(folder: &Path) -> io::Result<(Directory, RootIdentity)> {
    let root = Directory::open(folder)?;
    let facts = root.metadata()?;
    let identity = (root.real_path().to_owned(), facts.device, facts.inode);
    Ok((root, identity))
}

/// A seed that nobody outside can foresee, from the keys that the standard library draws for its own hash tables.
pub(crate) fn hash_seed() -> HashSeed {
    HashSeed(RandomState::new().build_hasher().finish())
}

/// What `limits` mean for a server.
pub(crate) fn options_of(limits: &Limits) -> Options {
    let ms = Duration::from_millis;
    Options {
        http: HttpOptions {
            request: sanderling_http::RequestLimits {
                head_bytes_max: limits.http_head_bytes_max,
                field_count_max: limits.http_field_count_max,
                target_bytes_max: limits.http_target_bytes_max,
                body_bytes_max: limits.http_request_content_bytes_max,
            },
            connections_max: limits.http_connections_max,
            requests_per_connection_max: limits.http_requests_per_connection_max,
            header_deadline: ms(limits.http_header_deadline_ms),
            idle_timeout: ms(limits.http_idle_timeout_ms),
            send_timeout: ms(limits.http_send_timeout_ms),
        },
        dns: DnsOptions {
            udp_reply_bytes_max: limits.dns_udp_answer_bytes_max,
            tcp_connections_max: limits.dns_tcp_connections_max,
            tcp_idle_timeout: ms(limits.dns_tcp_idle_timeout_ms),
            tcp_queries_in_flight_max: limits.dns_tcp_queries_in_flight_max,
        },
        open_files: OpenFilesOptions {
            files_max: limits.open_files_max,
            descriptors_max: limits.open_file_descriptors_max,
            content_bytes_max: limits.open_file_content_bytes_max,
            small_file_bytes_max: limits.small_file_bytes_max,
            negative_entries_max: limits.missing_files_max,
            watched_dirs_max: limits.watched_folders_max,
            fresh_for: ms(limits.open_file_fresh_ms),
            watched_fresh_for: ms(limits.watched_file_fresh_ms),
            idle_timeout: ms(limits.open_file_idle_timeout_ms),
            ..OpenFilesOptions::default()
        },
        drain_grace: ms(limits.drain_grace_ms),
        hang_limit: ms(limits.hang_timeout_ms),
    }
}

/// Descriptors for everything else: listeners, pollers, folders, standard streams, and look-ups that are under way. Of a
/// low limit it is half.
const DESCRIPTORS_RESERVED: usize = 128;

/// Lowers the numbers of connections and files to what this process may have descriptors for; a remark if it had to.
///
/// # Errors
/// The limit cannot be asked for.
pub(crate) fn bound_by_descriptors(options: &mut Options) -> io::Result<Option<String>> {
    let limit = usize::try_from(sanderling_os::rlimit::raise_nofile_limit()?).unwrap_or(usize::MAX);
    let wanted = [options.http.connections_max, options.dns.tcp_connections_max, options.open_files.descriptors_max];
    let available = (limit - DESCRIPTORS_RESERVED.min(limit / 2)).max(wanted.len());
    let sum = wanted.iter().fold(0_usize, |sum, count| sum.saturating_add(*count));
    if sum <= available {
        return Ok(None);
    }
    // Each gets its part, so that neither protocol takes what the other one needs.
    let part = |count: usize| ((count as u128 * available as u128 / sum as u128) as usize).max(1);
    options.http.connections_max = part(options.http.connections_max);
    options.dns.tcp_connections_max = part(options.dns.tcp_connections_max);
    options.open_files.descriptors_max = part(options.open_files.descriptors_max);
    Ok(Some(format!(
        "this process may have {limit} descriptors: {} HTTP connections, {} DNS streams and {} descriptors of files are \
         open at most; raise its limit (ulimit -n, LimitNOFILE) for more",
        options.http.connections_max, options.dns.tcp_connections_max, options.open_files.descriptors_max
    )))
}
