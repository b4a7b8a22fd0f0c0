//! Loads one site again, which has another release.

use super::{ControlLoop, Finished, log_watch_error};
use crate::load_status::SiteService;
use crate::loader::{Loader, OneSite};
use sanderling_config::Site;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{log_error, report};
use sanderling_ipc::{Command, Event, Text};
use sanderling_zone_files::Denial;
use std::sync::Arc;

/// A site that was loaded again.
pub(super) struct SiteResult {
    loader: Loader,
    /// `None` if loading it panicked.
    site: Option<OneSite>,
}

impl ControlLoop<'_> {
    /// Handles that the site with this index in the configuration leads to another release. The supervisor decides when
    /// it is loaded.
    pub(super) fn on_release_switched(&mut self, index: usize) {
        let Some(site) = self.state.config.sites.get(index) else { return };
        let name = name_of(site);
        match self.state.supervisor {
            Some(_) => self.send(Event::ReleaseSwitched { name }),
            None => self.reload_site(name),
        }
    }

    /// Loads the site of the domain `name` on a new thread, when the loader exists.
    pub(super) fn reload_site(&mut self, name: Option<String>) {
        let Some(index) = self.state.config.sites.iter().position(|site| name_of(site) == name) else {
            let name = name.unwrap_or_default();
            return self.refuse_site(&format!("the running server has no site {name}; run `sanderling reload`"));
        };
        let Some(loader) = self.state.loader.take() else {
            return self.waiting.push_back((Command::ReloadSite { name }, Vec::new()));
        };
        let config = Arc::clone(&self.state.config);
        let load = move |loader: &mut Loader| loader.load_one_site(&config, index);
        let started =
            self.start_load(loader, load, |loader, site| Finished::Site(Box::new(SiteResult { loader, site })));
        self.loads_one = started.is_ok();
        if let Err((error, _)) = started {
            self.refuse_site(&format!("cannot start a thread to load a site: {}", error_text(&error)));
        }
    }

    /// Applies a site that was loaded again.
    pub(super) fn apply_site(&mut self, result: SiteResult) {
        self.state.loader = Some(result.loader);
        self.loads_one = false;
        let Some(one) = result.site else {
            return self.refuse_site("loading the site panicked; this is a bug in sanderling: report it with the site");
        };
        if let Denial::Sandbox(path) = &one.denial {
            return self.send_new_process_needed(&format!("its sandbox does not allow {}", path.display()));
        }
        for diagnostics in [&one.errors, &one.warnings] {
            report(diagnostics);
            self.send_diagnostics(diagnostics);
        }
        if one.state.service != SiteService::Current {
            return self.send(Event::ReloadRefused);
        }
        let text = one.text();
        self.state.load_status.sites[one.index()] = one.state.clone();
        let mut sites = None;
        self.server.update_snapshot(|snapshot| {
            snapshot.sites = Arc::new(one.apply(&snapshot.sites));
            sites = Some(Arc::clone(&snapshot.sites));
        });
        if let Some(watched) = sites.and_then(|sites| one.watched(&sites)) {
            log_watch_error(self.site_watcher.update(watched));
        }
        self.send(Event::Reloaded { changes: Text::new(&text), problem_count: 0 });
    }

    fn refuse_site(&mut self, problem: &str) {
        log_error(problem);
        self.send(Event::Stderr(Text::new(&format!("{problem}\n"))));
        self.send(Event::ReloadRefused);
    }
}

/// The name of a site in messages: its domain, unless it is the site of `serve FOLDER`.
fn name_of(site: &Site) -> Option<String> {
    site.hosts.first().map(|host| host.as_str().to_owned())
}
