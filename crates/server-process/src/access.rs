//! The access of this process to the configured sites.

use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_config::{Config, Site};
use sanderling_os::directory::Directory;
use sanderling_server::{Root, SiteRules, Snapshot};
use sanderling_site_rules::RequestPath;
use std::io;

/// A warning for each site of `config` without a page for `/`. Sites that could not be loaded are left out.
pub(crate) fn missing_pages(config: &Config, snapshot: &Snapshot) -> Vec<Diagnostic> {
    let sites = config.sites.iter().zip(snapshot.sites.all()).filter_map(|(site, opened)| match &opened.root {
        Root::Directory(_) if opened.options.rules.as_deref().is_some_and(answers_root) => None,
        Root::Directory(directory) => missing_page(site, directory),
        Root::Builtin(_) | Root::Unavailable => None,
    });
    sites.collect()
}

fn missing_page(site: &Site, directory: &Directory) -> Option<Diagnostic> {
    let files = &site.options.files;
    // If no index names are configured, the operator has chosen to have no index.
    let needs_no_index = files.index.is_empty() || files.listing || files.fallback.is_some();
    if needs_no_index || !matches!(open_index(site, directory), Index::Missing) {
        return None;
    }
    let message = format!("the site `{}` has no {}", site.root_text(), files.index.join(" or "));
    let problem = Problem::new(message, "create it, or requests for / get status 404");
    Some(Diagnostic::warning(site.location.clone(), problem))
}

/// Whether an application, or a rule, answers requests for `/`.
fn answers_root(rules: &SiteRules) -> bool {
    let root = RequestPath { is_https: false, host: None, path: b"", ends_with_slash: true, query: None };
    rules.routes.iter().any(|route| route.pattern.is_match(&root))
        || [&rules.own_rules, &rules.file_rules].iter().any(|set| set.find(&root).is_some())
}

/// The error of a `site` that `user`, as which this process runs, cannot read in its document root.
pub(crate) fn unreadable(site: &Site, directory: &Directory, user: Option<&str>) -> Option<Diagnostic> {
    let Index::Unreadable(name) = open_index(site, directory) else { return None };
    let user = user.map_or_else(|| "the user of this process".to_owned(), |name| format!("the user `{name}`"));
    // Links are resolved: a link may lead to another release again. A file that can be reached is itself closed.
    let (what, remedy) = match directory.resolve(name.as_bytes()) {
        Ok(file) => (format!("`{}`, the page for /", file.display()), format!("run chmod o+r {}", file.display())),
        Err(_) => {
            let remedy = format!("allow it, for example with chmod -R o+rX {}", directory.real_path().display());
            (format!("the site `{}`", site.root_text()), remedy)
        }
    };
    let problem = Problem::new(format!("{user} cannot read {what}"), remedy);
    Some(Diagnostic::error(site.location.clone(), problem))
}

/// The first index file of a site that exists.
enum Index<'s> {
    Missing,
    /// It can be opened, or not for another reason than its permissions.
    Found,
    Unreadable(&'s str),
}

fn open_index<'s>(site: &'s Site, directory: &Directory) -> Index<'s> {
    for name in &site.options.files.index {
        match directory.open_beneath(name.as_bytes()).map_err(|error| error.kind()) {
            Err(io::ErrorKind::NotFound) => {}
            Err(io::ErrorKind::PermissionDenied) => return Index::Unreadable(name),
            _ => return Index::Found,
        }
    }
    Index::Missing
}
