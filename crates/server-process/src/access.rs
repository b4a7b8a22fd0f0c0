//! What this process can read of the sites and zone files that it is to serve.

use sanderling_config::Config;
use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_server::{Root, Snapshot};
use std::io;
use std::path::Path;

/// Sites and zone files that `user`, as which this process runs, cannot read, and sites without a page for `/`. What could
/// not be loaded is left out.
pub(crate) fn problems(config: &Config, snapshot: &Snapshot, user: Option<&str>) -> Vec<Diagnostic> {
    let user = user.map_or_else(|| "the user of this process".to_owned(), |name| format!("the user `{name}`"));
    let cannot_read = |object: &str, path: &Path, effect: &str, mode: &str| {
        let message = format!("{user} cannot read the {object} `{}`; {effect}", path.display());
        Problem::new(message, format!("allow it, for example with chmod {mode} {}", path.display()))
    };
    let sites = config.sites.iter().zip(snapshot.sites.all()).filter_map(|(site, opened)| {
        let Root::Directory(folder) = &opened.root else { return None };
        match folder.open_beneath(b"index.html").map_err(|error| error.kind()) {
            Err(io::ErrorKind::PermissionDenied) => {
                let problem = cannot_read("site", &site.document_root, "requests get status 403", "-R o+rX");
                Some(Diagnostic::error(site.location.clone(), problem))
            }
            Err(io::ErrorKind::NotFound) => {
                let message = format!("the site `{}` has no index.html", site.document_root.display());
                let problem = Problem::new(message, "create it, or requests for / get status 404");
                Some(Diagnostic::warning(site.location.clone(), problem))
            }
            _ => None,
        }
    });
    let zones = config.zones.iter().filter_map(|zone| {
        let error = sanderling_os::file::open_nonblocking(&zone.file).err()?;
        let effect = "a reload of it takes a new server process";
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        let problem = is_denied.then(|| cannot_read("zone file", &zone.file, effect, "o+r"))?;
        Some(Diagnostic::warning(zone.location.clone(), problem))
    });
    sites.chain(zones).collect()
}
