//! The applications of a configuration: where a server process connects, and the routes that never reach theirs.

use crate::config::{Config, SecretContent};
use crate::diagnostic::{Diagnostic, Problem, ValueLocation};
use crate::paths::read_secret_file;
use crate::routes::SiteRoute;
use sanderling_site_rules::{Backend, BackendAddress, TlsFiles, TlsTrust};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Reads a file of roots.
///
/// # Errors
/// The problem.
pub fn read_backend_roots(path: &Path) -> Result<SecretContent, Problem> {
    read_secret_file("file of root certificates", "PEM", path)
}

/// Reads the chain and the private key of a certificate for applications.
///
/// # Errors
/// The problem.
pub fn read_backend_certificate((chain, key): &(PathBuf, PathBuf)) -> Result<(SecretContent, SecretContent), Problem> {
    let chain = read_secret_file("certificate chain", "PEM", chain)?;
    Ok((chain, read_secret_file("private key", "PEM", key)?))
}

impl Config {
    /// The applications of all routes. Several routes may have the same.
    pub fn backends(&self) -> impl Iterator<Item = &Backend> {
        self.routes().flat_map(|route| route.route.backends()).map(|backend| &**backend)
    }

    fn backend_addresses(&self) -> impl Iterator<Item = &BackendAddress> {
        self.backends().flat_map(|backend| &backend.servers).map(|server| &server.address)
    }

    /// Whether requests need their cookies: a route has an application, or a condition on them.
    pub fn needs_cookies(&self) -> bool {
        let mut routes = self.sites.iter().flat_map(|site| &site.options.rules.routes);
        routes.any(|route| route.route.backends().next().is_some() || route.route.conditions.have_cookies())
    }

    /// The TCP ports to which a server process connects.
    pub fn backend_ports(&self) -> BTreeSet<u16> {
        let port = |address: &BackendAddress| match address {
            BackendAddress::Tcp(address) => Some(address.port()),
            BackendAddress::Host { port, .. } => Some(*port),
            BackendAddress::Unix(_) => None,
        };
        self.backend_addresses().filter_map(port).collect()
    }

    /// The UNIX sockets to which a server process is connected.
    pub fn backend_sockets(&self) -> BTreeSet<&Path> {
        let paths = self.backend_addresses().filter_map(|address| match address {
            BackendAddress::Tcp(_) | BackendAddress::Host { .. } => None,
            BackendAddress::Unix(path) => Some(path.as_path()),
        });
        paths.collect()
    }

    /// The names of hosts with applications, which the agent looks up.
    pub(crate) fn names_of_backends(&self) -> BTreeSet<String> {
        let names = self.backend_addresses().filter_map(|address| match address {
            BackendAddress::Host { name, .. } => Some(name.clone()),
            BackendAddress::Tcp(_) | BackendAddress::Unix(_) => None,
        });
        names.collect()
    }

    /// The files for encrypted connections to applications, each set once, with the place of the first route that has
    /// it.
    pub fn backend_tls_files(&self) -> Vec<(&TlsFiles, &ValueLocation)> {
        let mut all: Vec<(&TlsFiles, &ValueLocation)> = Vec::new();
        for route in self.routes() {
            for tls in route.route.backends().filter_map(|backend| backend.tls.as_deref()) {
                if !all.iter().any(|(known, _)| *known == &tls.files) {
                    all.push((&tls.files, &route.location));
                }
            }
        }
        all
    }

    /// A warning for each route that accepts every certificate of its application.
    pub fn unverified_backends(&self) -> impl Iterator<Item = Diagnostic> {
        let is_unverified = |route: &&SiteRoute| {
            let mut tls = route.route.backends().filter_map(|backend| backend.tls.as_deref());
            tls.any(|tls| tls.files.trust == TlsTrust::Anything)
        };
        self.routes().filter(is_unverified).map(|route| {
            let name = &route.route.name;
            let message = format!(
                "the route `{name}` accepts every certificate, so that a machine in between can read all of it"
            );
            let remedy = "write tls_roots = \"FILE\", the certificate of the authority, or of the application itself";
            Diagnostic::warning(route.location.clone(), Problem::new(message, remedy))
        })
    }

    fn routes(&self) -> impl Iterator<Item = &SiteRoute> {
        self.sites.iter().flat_map(|site| &site.options.rules.routes)
    }

    /// A warning for each route that never answers, because another one answers all of its requests.
    pub fn hidden_routes(&self) -> impl Iterator<Item = Diagnostic> {
        self.sites.iter().flat_map(|site| {
            let routes = &site.options.rules.routes;
            routes.iter().enumerate().filter_map(|(index, later)| {
                let first = routes[..index].iter().find(|first| first.route.hides(&later.route))?;
                let message = format!(
                    "the route `{}` never answers: `{}` at {} answers all of its requests",
                    later.route.name, first.route.name, first.location
                );
                let remedy = "remove one of the two, or give this one another condition";
                Some(Diagnostic::warning(later.location.clone(), Problem::new(message, remedy)))
            })
        })
    }
}
