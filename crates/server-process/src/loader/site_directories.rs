//! Opens the directories that a site serves: its document root, earlier releases, and where symbolic links may lead to.

use super::{Loader, Report, ServedRoot, open_directory};
use crate::access;
use crate::load_status::SiteService;
use sanderling_config::ReleaseLink;
use sanderling_config::diagnostic::{Diagnostic, Problem, error_text};
use sanderling_os::directory::Directory;
use std::path::Path;
use std::sync::Arc;

impl Loader {
    /// The releases before that of `link`, and their indexes. A site is served without one that cannot be opened.
    pub(super) fn open_previous(&mut self, link: &ReleaseLink, release: &Path) -> (Vec<usize>, Vec<Arc<Directory>>) {
        let releases = link.previous(release);
        let opened = releases.iter().filter_map(|path| {
            let (directory, id) = open_directory(path).ok()?;
            Some((self.index_of(id, &directory)?, Arc::new(directory)))
        });
        opened.unzip()
    }

    /// The link targets that can be opened, and their indexes. A site is served without one that cannot.
    pub(super) fn open_link_targets(
        &mut self,
        site: &sanderling_config::Site,
        report: &mut Report,
    ) -> (Vec<usize>, Vec<Arc<Directory>>) {
        report.errors.extend(site.link_target_problems());
        let targets = site.options.link_targets.iter().filter_map(|(path, _)| {
            let (directory, id) = open_directory(path).ok()?;
            Some((self.index_or_denial(id, &directory, path, report).ok()?, Arc::new(directory)))
        });
        targets.unzip()
    }

    /// The directory that `site` serves: its document root or, if that cannot be served, the last good one.
    pub(super) fn choose_root(
        &mut self,
        site: &sanderling_config::Site,
        report: &mut Report,
    ) -> (Option<ServedRoot>, SiteService) {
        let domain = site.hosts.first().cloned();
        let (opened, error) = match site.check_document_root().and_then(|()| self.open_root(site, report)) {
            Ok(root) => match access::unreadable(site, &root.directory, self.user.as_deref()) {
                None => {
                    self.roots.insert(domain, root.clone());
                    return (Some(root), SiteService::Current);
                }
                Some(unreadable) => (Some(root), unreadable),
            },
            Err(diagnostic) => (None, diagnostic),
        };
        report.errors.push(error);
        match (opened, self.roots.get(&domain)) {
            // The last good directory is this one, which cannot be read any more.
            (Some(opened), Some(last_good)) if last_good.index == opened.index => {
                (Some(opened), SiteService::Unreadable)
            }
            (_, Some(last_good)) => (Some(last_good.clone()), SiteService::Kept(last_good.path.clone())),
            (Some(opened), None) => (Some(opened), SiteService::Unreadable),
            (None, None) => (None, SiteService::Unavailable),
        }
    }

    /// # Errors
    /// The document root cannot be opened.
    fn open_root(&mut self, site: &sanderling_config::Site, report: &mut Report) -> Result<ServedRoot, Diagnostic> {
        let opened = open_directory(&site.document_root)
            .and_then(|(root, id)| Ok((self.index_or_denial(id, &root, &site.document_root, report)?, root)));
        let (index, root) = opened.map_err(|error| {
            let message = format!("cannot open the site `{}`: {}", site.document_root.display(), error_text(&error));
            let problem = Problem::new(message, "check the path of the directory and its permissions");
            Diagnostic::error(site.location.clone(), problem)
        })?;
        Ok(ServedRoot { path: site.document_root.clone(), index, directory: Arc::new(root) })
    }
}
