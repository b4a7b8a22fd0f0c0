//! Loads what a configuration names: opens the folders of the sites, and reads the zones.

use crate::zone_loader;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, reason};
use sanderling_config::{Config, DefaultSite};
use sanderling_dns::{HashSeed, Zone, ZoneEntry, ZoneMap};
use sanderling_os::directory::Directory;
use sanderling_server::{Root, Site, Sites, Snapshot};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Loads one configuration after the other for the same server.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    /// The folders of all sites so far; the index is the ID of the site. A folder keeps its ID, and with it its entries in
    /// the open-file cache.
    folders: Vec<FolderIdentity>,
    /// The sandbox of this process allows only these folders.
    forbids_new_folders: bool,
}

/// The path, device and inode of a folder.
type FolderIdentity = (PathBuf, u64, u64);

/// What was loaded, in the order of the configuration. One bad site or zone does not hide the others.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) sites: Vec<Result<Site, Diagnostic>>,
    pub(crate) zones: Vec<Result<Arc<Zone>, Vec<Diagnostic>>>,
    pub(crate) warnings: Vec<Diagnostic>,
    seed: HashSeed,
}

impl Loader {
    /// Opens the sites and reads the zones of `config`.
    pub(crate) fn load(&mut self, config: &Config) -> Loaded {
        let mut warnings = Vec::new();
        let sites = config.sites.iter().map(|site| self.open_site(site)).collect();
        let seed = hash_seed();
        let zones =
            config.zones.iter().map(|zone| zone_loader::load(zone, &config.limits, seed, &mut warnings).map(Arc::new));
        Loaded { sites, zones: zones.collect(), warnings, seed }
    }

    fn open_site(&mut self, site: &sanderling_config::Site) -> Result<Site, Diagnostic> {
        let opened = open_folder(&site.folder).and_then(|(folder, identity)| Ok((folder, self.id_of(identity)?)));
        let (folder, id) = opened.map_err(|error| {
            let problem = Problem::new(reason(&error), "check the path of the folder and its permissions");
            Diagnostic::error(Location::File(site.folder.clone()), problem)
        })?;
        let hosts = site.hosts.iter().map(|host| host.as_str().to_owned()).collect();
        Ok(Site { id, hosts, root: Root::Folder(folder) })
    }

    /// From now on the sandbox of this process allows only the folders loaded so far.
    pub(crate) fn forbid_new_folders(&mut self) {
        self.forbids_new_folders = true;
    }

    /// # Errors
    /// The sandbox allows to open the folder, but nothing in it.
    fn id_of(&mut self, identity: FolderIdentity) -> io::Result<u32> {
        let known = self.folders.iter().position(|known| *known == identity);
        if known.is_none() && self.forbids_new_folders {
            let message = "the sandbox of the server process does not allow this folder";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        let index = known.unwrap_or_else(|| {
            self.folders.push(identity);
            self.folders.len() - 1
        });
        Ok(index as u32)
    }
}

impl Loaded {
    /// The snapshot for the server, and the warnings.
    ///
    /// # Errors
    /// All errors, and the warnings after them.
    pub(crate) fn into_snapshot(self, config: &Config) -> Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
        let Loaded { sites, zones, mut warnings, seed } = self;
        let (mut errors, mut good_sites, mut good_zones) = (Vec::new(), Vec::new(), Vec::new());
        for site in sites {
            match site {
                Ok(site) => good_sites.push(site),
                Err(diagnostic) => errors.push(diagnostic),
            }
        }
        for zone in zones {
            match zone {
                Ok(zone) => good_zones.push(ZoneEntry::Served(zone)),
                Err(mut diagnostics) => errors.append(&mut diagnostics),
            }
        }
        if !errors.is_empty() {
            errors.append(&mut warnings);
            return Err(errors);
        }
        let zones = ZoneMap::new(seed, good_zones).with_cname_chain_max(config.limits.dns_cname_chain_max);
        let default_site = match config.default_site {
            DefaultSite::None => sanderling_server::DefaultSite::None,
            DefaultSite::Addresses(index) => sanderling_server::DefaultSite::Addresses(index),
            DefaultSite::EveryHost(index) => sanderling_server::DefaultSite::EveryHost(index),
        };
        Ok((Snapshot::new(Sites::new(good_sites, default_site), zones), warnings))
    }
}

fn open_folder(path: &Path) -> io::Result<(Directory, FolderIdentity)> {
    let folder = Directory::open(path)?;
    let metadata = folder.metadata()?;
    let identity = (folder.real_path().to_owned(), metadata.device, metadata.inode);
    Ok((folder, identity))
}

/// A seed that a client cannot predict, from the keys of the standard library's hash tables.
pub(crate) fn hash_seed() -> HashSeed {
    HashSeed(RandomState::new().build_hasher().finish())
}
