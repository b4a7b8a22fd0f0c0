//! Opens the directories that a site serves: its document root, earlier releases, and the link targets. No such
//! directory contains the state folder or is inside it.

use super::{Loader, Report, ServedRoot, open_directory};
use crate::access;
use crate::load_status::SiteService;
use sanderling_config::ReleaseLink;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_os::directory::Directory;
use std::path::Path;
use std::sync::Arc;

/// Site directories that lack a descriptor.
#[derive(Default)]
pub(super) struct LeftOut {
    pub(super) count: usize,
    /// The number of document roots among them; their sites are not served.
    pub(super) root_count: usize,
    /// The location of the first site with such a directory, if possible of a site that is not served.
    pub(super) location: Option<Location>,
}

/// Whether a directory is a site's document root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsRoot {
    No,
    Yes,
}

impl Loader {
    /// The releases before the current release of `link`, and their indexes. A site is served without a release that
    /// cannot be opened.
    pub(super) fn open_previous(
        &mut self,
        site: &sanderling_config::Site,
        (link, release): (&ReleaseLink, &Path),
        report: &mut Report,
    ) -> (Vec<usize>, Vec<Arc<Directory>>) {
        let releases = link.previous(release);
        let opened = releases.iter().filter_map(|path| {
            let (directory, id) = open_directory(path).ok()?;
            self.check_apart("release", path, &directory, &Location::File(path.clone())).ok()?;
            let index = self.index_of(id, &directory)?;
            Some((index, self.keep_open(index, directory, (site, IsRoot::No), report)?))
        });
        opened.unzip()
    }

    /// Reports the directories that were left out.
    pub(super) fn report_left_out(&self, report: &mut Report) {
        let LeftOut { count, root_count, location } = std::mem::take(&mut report.left_out);
        report.errors.extend(location.map(|location| self.directories.problem((count, root_count), location)));
    }

    /// The opened directory, unless it must be left out for lack of a descriptor.
    fn keep_open(
        &mut self,
        index: usize,
        opened: Directory,
        (site, is_root): (&sanderling_config::Site, IsRoot),
        report: &mut Report,
    ) -> Option<Arc<Directory>> {
        let kept = self.directories.keep_open(index, opened);
        if kept.is_err() {
            let left_out = &mut report.left_out;
            left_out.count += 1;
            if is_root == IsRoot::Yes {
                left_out.root_count += 1;
            }
            if left_out.location.is_none() || (is_root == IsRoot::Yes && left_out.root_count == 1) {
                left_out.location = Some(site.location.clone().into());
            }
        }
        kept.ok()
    }

    /// The link targets that can be opened, and their indexes. A site is served without a link target that cannot be
    /// opened.
    pub(super) fn open_link_targets(
        &mut self,
        site: &sanderling_config::Site,
        report: &mut Report,
    ) -> (Vec<usize>, Vec<Arc<Directory>>) {
        report.errors.extend(site.link_target_problems());
        let targets = site.options.link_targets.iter().filter_map(|(path, location)| {
            let (directory, id) = open_directory(path).ok()?;
            if let Err(diagnostic) = self.check_apart("link target", path, &directory, location) {
                report.errors.push(diagnostic);
                return None;
            }
            let index = self.index_or_denial(id, &directory, path, report).ok()?;
            Some((index, self.keep_open(index, directory, (site, IsRoot::No), report)?))
        });
        targets.unzip()
    }

    /// The directory that `site` serves: its document root or, if that cannot be served, the last good one. `None` also
    /// if it has no document root.
    pub(super) fn choose_root(
        &mut self,
        site: &sanderling_config::Site,
        report: &mut Report,
    ) -> (Option<ServedRoot>, SiteService) {
        let Some(path) = &site.document_root else { return (None, SiteService::Current) };
        let domain = site.hosts.first().cloned();
        let (opened, error) = match site.check_document_root().and_then(|()| self.open_root(site, path, report)) {
            Ok(None) => {
                let last_good = self.roots.get(&domain).cloned();
                let service = last_good.as_ref().map_or(SiteService::LeftOut, |it| SiteService::Kept(it.path.clone()));
                return (last_good, service);
            }
            Ok(Some(root)) => match access::unreadable(site, &root.directory, self.user.as_deref()) {
                None => {
                    self.roots.insert(domain, root.clone());
                    return (Some(root), SiteService::Current);
                }
                Some(unreadable) => (Some(root), unreadable),
            },
            Err(diagnostic) => (None, diagnostic),
        };
        report.errors.push(error);
        let last_good = self.roots.get(&domain);
        let is_apart =
            |root: &&ServedRoot| self.check_apart("site", &root.path, &root.directory, &site.location).is_ok();
        match (opened, last_good.filter(is_apart)) {
            // The last good directory is this one, which can no longer be read.
            (Some(opened), Some(last_good)) if last_good.index == opened.index => {
                (Some(opened), SiteService::Unreadable)
            }
            (_, Some(last_good)) => (Some(last_good.clone()), SiteService::Kept(last_good.path.clone())),
            (Some(opened), None) => (Some(opened), SiteService::Unreadable),
            (None, None) => (None, SiteService::Unavailable),
        }
    }

    /// # Errors
    /// Returns an error if the directory that was opened at `path` is within the state folder, or around it.
    fn check_apart(
        &self,
        kind: &str,
        path: &Path,
        directory: &Directory,
        location: &Location,
    ) -> Result<(), Diagnostic> {
        self.private_states.iter().try_for_each(|state| state.check(kind, path, directory.real_path(), location))
    }

    /// The document root of `site`, at `path`; `None` if there is no descriptor for it.
    ///
    /// # Errors
    /// Returns an error if the document root cannot be opened, or must not be served.
    fn open_root(
        &mut self,
        site: &sanderling_config::Site,
        path: &Path,
        report: &mut Report,
    ) -> Result<Option<ServedRoot>, Diagnostic> {
        let failed = |error| {
            let message = format!("cannot open the site `{}`: {}", path.display(), error_text(&error));
            let problem = Problem::new(message, "check the path of the directory and its permissions");
            Diagnostic::error(site.location.clone(), problem)
        };
        let (root, id) = open_directory(path).map_err(failed)?;
        self.check_apart("site", path, &root, &site.location)?;
        let index = self.index_or_denial(id, &root, path, report).map_err(failed)?;
        let kept = self.keep_open(index, root, (site, IsRoot::Yes), report);
        Ok(kept.map(|directory| ServedRoot { path: path.to_owned(), index, directory }))
    }
}
