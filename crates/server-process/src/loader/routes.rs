//! The routes of sites. Equal applications are one: their connections are shared by routes, and survive a reload.

use sanderling_config::Site;
use sanderling_site_rules::{
    Backend, BackendProtocol, BackendRoute, FastCgiOptions, ForwardAuth, Route, RouteAction, Routes,
};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// The applications of all sites.
#[derive(Debug, Default)]
pub(super) struct Backends(HashSet<Arc<Backend>>);

impl Backends {
    /// The routes of `site`, whose document root is `root`, a path without symbolic links. Without one, those that need
    /// it are left out.
    pub(super) fn routes(&mut self, site: &Site, root: Option<&Path>) -> Arc<Routes> {
        let routes = site.options.rules.routes.iter();
        Arc::new(Routes::new(routes.filter_map(|route| self.route(&route.route, root))))
    }

    fn route(&mut self, route: &Route, root: Option<&Path>) -> Option<Route> {
        let action = match &route.action {
            RouteAction::Pass(pass) => {
                let protocol = match &pass.backend.protocol {
                    BackendProtocol::FastCgi(options) => {
                        BackendProtocol::FastCgi(FastCgiOptions { root: root?.to_owned(), ..options.clone() })
                    }
                    protocol @ (BackendProtocol::Http1 | BackendProtocol::Http2) => protocol.clone(),
                };
                let backend = self.shared(Backend { protocol, ..Backend::clone(&pass.backend) });
                RouteAction::Pass(Box::new(BackendRoute { backend, ..BackendRoute::clone(pass) }))
            }
            local @ (RouteAction::Respond { .. } | RouteAction::File) => local.clone(),
        };
        let forward_auth = match &route.forward_auth {
            Some(auth) => {
                let route = Arc::new(self.route(&auth.route, root)?);
                Some(Box::new(ForwardAuth { route, ..ForwardAuth::clone(auth) }))
            }
            None => None,
        };
        Some(Route { action, forward_auth, ..route.clone() })
    }

    fn shared(&mut self, backend: Backend) -> Arc<Backend> {
        if let Some(known) = self.0.get(&backend) {
            return Arc::clone(known);
        }
        let backend = Arc::new(backend);
        self.0.insert(Arc::clone(&backend));
        backend
    }

    /// Forgets those that no site has any more.
    pub(super) fn forget_unused(&mut self) {
        self.0.retain(|backend| Arc::strong_count(backend) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::{Loaded, Loader};
    use sanderling_config::ConfigSource;
    use sanderling_server::Root;
    use std::fs;

    const TEXT: &str = "[domain.\"a.test\"]\nsite = \"public\"\n[domain.\"a.test\".route]\n\
        \"/api/\" = { proxy = \"http://127.0.0.1:1\" }\n\"/*.php\" = { fastcgi = \"127.0.0.1:3\" }\n\
        \"/health\" = { respond = { status = 204 } }\n\
        [domain.\"b.test\".route]\n\"/\" = { proxy = \"http://127.0.0.1:1\", strip_prefix = true }\n\
        \"/slow/\" = { proxy = \"http://127.0.0.1:1\", connect_timeout = \"9s\" }\n";

    fn load(loader: &mut Loader, folder: &Path, text: &str) -> Loaded {
        fs::write(folder.join("sanderling.toml"), text).expect("written");
        let config = ConfigSource::File(folder.join("sanderling.toml")).load().expect("a configuration");
        loader.load(&config, &[])
    }

    fn backends(loaded: &Loaded) -> Vec<Arc<Backend>> {
        let rules = loaded.snapshot.sites.all().iter().filter_map(|site| site.options.rules.as_ref());
        let passes = rules.flat_map(|rules| rules.routes.iter()).filter_map(|route| match &route.action {
            RouteAction::Pass(pass) => Some(Arc::clone(&pass.backend)),
            RouteAction::Respond { .. } | RouteAction::File => None,
        });
        passes.collect()
    }

    #[test]
    fn equal_applications_are_one_and_stay_the_same_over_a_reload() {
        let folder = tempfile::tempdir().expect("a directory");
        fs::create_dir(folder.path().join("public")).expect("created");
        let mut loader = Loader::new();
        let first = load(&mut loader, folder.path(), TEXT);
        assert!(first.errors.is_empty(), "{:?}", first.errors);
        let [php, api, slow, all] = &backends(&first)[..] else { panic!("{:?}", first.snapshot.sites) };
        assert!(Arc::ptr_eq(api, all) && !Arc::ptr_eq(api, slow));
        let BackendProtocol::FastCgi(options) = &php.protocol else { panic!("{php:?}") };
        assert_eq!(options.root, fs::canonicalize(folder.path().join("public")).expect("a directory"));
        let second = load(&mut loader, folder.path(), &TEXT.replace("9s", "8s"));
        let later = backends(&second);
        assert!(Arc::ptr_eq(php, &later[0]) && Arc::ptr_eq(api, &later[1]) && !Arc::ptr_eq(slow, &later[2]));
        drop((first, later));
        load(&mut loader, folder.path(), TEXT);
        assert_eq!(loader.backends.0.len(), 4, "the removed one is forgotten with the next load");
        drop(second);
        load(&mut loader, folder.path(), TEXT);
        assert_eq!(loader.backends.0.len(), 3);
    }

    #[test]
    fn site_without_a_document_root_has_no_files_and_no_problem() {
        let folder = tempfile::tempdir().expect("a directory");
        let loaded = load(&mut Loader::new(), folder.path(), TEXT);
        let [a, b] = loaded.snapshot.sites.all() else { panic!("two sites") };
        assert!(matches!(a.root, Root::Unavailable) && matches!(b.root, Root::Builtin(&[])));
        let problems: Vec<bool> = loaded.load_status.sites.iter().map(|site| site.problem.is_some()).collect();
        assert_eq!(problems, [true, false]);
        // Without its folder, a script cannot run.
        assert_eq!(backends(&loaded).len(), 3);
    }
}
