//! What this process can read of the sites that it is to serve.

use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_config::{Config, Site};
use sanderling_os::directory::Directory;
use sanderling_server::{Root, Snapshot};
use std::io;

/// Sites that `user`, as which this process runs, cannot read, and sites without a page for `/`. What could not be loaded is
/// left out.
pub(crate) fn problems(config: &Config, snapshot: &Snapshot, user: Option<&str>) -> Vec<Diagnostic> {
    let sites = config.sites.iter().zip(snapshot.sites.all()).filter_map(|(site, opened)| match &opened.root {
        Root::Directory(directory) => problem(site, directory, user),
        Root::Builtin(_) | Root::Unavailable => None,
    });
    sites.collect()
}

/// What `user` cannot read, or what lacks, in the document root of `site`.
pub(crate) fn problem(site: &Site, directory: &Directory, user: Option<&str>) -> Option<Diagnostic> {
    let shown = site.document_root.display();
    let files = &site.options.files;
    let has_other_page = files.listing || files.fallback.is_some();
    let mut indexes = files.index.iter().map(|name| directory.open_beneath(name.as_bytes()));
    match indexes.find(|opened| !is_missing(opened)).unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let user = user.map_or_else(|| "the user of this process".to_owned(), |name| format!("the user `{name}`"));
            let message = format!("{user} cannot read the site `{shown}`; requests get status 403");
            let remedy = format!("allow it, for example with chmod -R o+rX {shown}");
            Some(Diagnostic::error(site.location.clone(), Problem::new(message, remedy)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !has_other_page => {
            let message = format!("the site `{shown}` has no {}", files.index.join(" or "));
            let problem = Problem::new(message, "create it, or requests for / get status 404");
            Some(Diagnostic::warning(site.location.clone(), problem))
        }
        _ => None,
    }
}

fn is_missing<T>(opened: &io::Result<T>) -> bool {
    opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
