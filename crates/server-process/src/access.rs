//! What this process can read of the sites that it is to serve.

use sanderling_config::Config;
use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_server::{Root, Snapshot};
use std::io;

/// Sites that `user`, as which this process runs, cannot read, and sites without a page for `/`. What could not be loaded is
/// left out.
pub(crate) fn problems(config: &Config, snapshot: &Snapshot, user: Option<&str>) -> Vec<Diagnostic> {
    let user = user.map_or_else(|| "the user of this process".to_owned(), |name| format!("the user `{name}`"));
    let sites = config.sites.iter().zip(snapshot.sites.all()).filter_map(|(site, opened)| {
        let Root::Directory(directory) = &opened.root else { return None };
        let shown = site.document_root.display();
        match directory.open_beneath(b"index.html").map_err(|error| error.kind()) {
            Err(io::ErrorKind::PermissionDenied) => {
                let message = format!("{user} cannot read the site `{shown}`; requests get status 403");
                let problem = Problem::new(message, format!("allow it, for example with chmod -R o+rX {shown}"));
                Some(Diagnostic::error(site.location.clone(), problem))
            }
            Err(io::ErrorKind::NotFound) => {
                let message = format!("the site `{shown}` has no index.html");
                let problem = Problem::new(message, "create it, or requests for / get status 404");
                Some(Diagnostic::warning(site.location.clone(), problem))
            }
            _ => None,
        }
    });
    sites.collect()
}
