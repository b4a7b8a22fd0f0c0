//! Reloads a site with another release, without the rest of the configuration.

use super::{Loader, Report, Watched};
use crate::load_status::SiteState;
use crate::site_watcher::WatchedSite;
use sanderling_config::Config;
use sanderling_config::diagnostic::Diagnostic;
use sanderling_server::{Root, Site, Sites};
use sanderling_zone_files::Denial;

/// A site that was loaded again.
pub(crate) struct OneSite {
    index: usize,
    site: Site,
    pub(crate) state: SiteState,
    watched: Option<Watched>,
    pub(crate) warnings: Vec<Diagnostic>,
    pub(crate) errors: Vec<Diagnostic>,
    pub(crate) denial: Denial,
}

impl Loader {
    /// Loads the site at `index` in `config` again.
    pub(crate) fn load_one_site(&mut self, config: &Config, index: usize) -> OneSite {
        let mut report = Report::default();
        let site = self.load_site(&config.sites[index], &config.limits, &mut report);
        self.report_left_out(&mut report);
        let state = report.load_status.sites.pop().expect("that of this site");
        let watched = report.watched.pop().map(|(_, watched)| watched);
        let Report { warnings, errors, denial, .. } = report;
        OneSite { index, site, state, watched, warnings, errors, denial }
    }
}

impl OneSite {
    /// The index of the site in its configuration.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// `sites` with this one.
    pub(crate) fn apply(&self, sites: &Sites) -> Sites {
        sites.with_site(self.index, self.site.clone())
    }

    /// The site's watched paths, after it became one of `sites`.
    pub(crate) fn watched(self, sites: &Sites) -> Option<WatchedSite> {
        Some(self.watched?.of_site(self.index, &sites.all()[self.index]))
    }

    /// The release that is served now.
    pub(crate) fn text(&self) -> String {
        let root = self.state.root_text();
        match &self.site.root {
            Root::Directory(directory) => format!("site {root}: serving {}\n", directory.real_path().display()),
            Root::Builtin(_) | Root::Unavailable => format!("site {root}: unavailable\n"),
        }
    }
}
