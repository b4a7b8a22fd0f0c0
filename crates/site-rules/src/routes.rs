//! Routes of a site: the requests that an application answers, or a fixed response.

use crate::distribution::Distribution;
use crate::pattern::{Pattern, RequestPath};
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The routes of a site, those with the longest pattern first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    routes: Vec<Arc<Route>>,
    /// One of them has a FastCGI application.
    run_scripts: bool,
}

/// The requests of a pattern, and the answer to them. Of the routes that match a path, a regular expression answers
/// first, then the pattern with the most text without `*` and placeholders; of equal ones the one with the most
/// conditions, then the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The pattern as in the configuration, for messages: `/api/`.
    pub name: String,
    /// The paths.
    pub pattern: Pattern,
    /// The other properties of its requests.
    pub conditions: RouteConditions,
    /// A file at the path of a GET or HEAD request takes precedence.
    pub files_first: bool,
    /// The authenticator that is asked before anything is answered.
    pub forward_auth: Option<Box<ForwardAuth>>,
    /// The requests that each client may make; `None` for any number.
    pub rate: Option<RouteRate>,
    /// The answer.
    pub action: RouteAction,
}

/// An authenticator: an application that decides whether a request goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// How it is reached: a route with [`RouteAction::Pass`], which no request has.
    pub route: Arc<Route>,
    /// The path at which it is asked, perhaps with a query.
    pub target: String,
    /// Fields of its response that the request to the backend gets, in place of those of the client.
    pub fields: Vec<String>,
}

/// The requests to a route that each client may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteRate {
    /// In a second; at least 1.
    pub per_second_max: u32,
    /// After a pause; at least 1.
    pub at_once_max: u32,
}

/// The properties of a request, other than its path, that a route requires. All must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RouteConditions {
    /// One of these methods; any, if there is none.
    pub methods: Vec<String>,
    /// These header fields, with this value, or any if that is `None`. Names in lower case.
    pub fields: Vec<(String, Option<String>)>,
    /// The same for cookies.
    pub cookies: Vec<(String, Option<String>)>,
}

/// The answer to the requests of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteAction {
    /// This status, with a text unless the status has no content.
    Respond {
        /// From 200 to 599.
        status: u16,
        /// Sent as `text/plain; charset=utf-8`.
        text: String,
    },
    /// The response of a backend.
    Pass(Box<BackendRoute>),
    /// The answer without the route: a file, or the outcome of a rule.
    File,
}

/// How requests are passed on to a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRoute {
    /// The backend, which several routes may share.
    pub backend: Arc<Backend>,
    /// The fixed part of the pattern is removed from the path that the backend gets.
    pub strip_prefix: bool,
    /// The Host field that the backend gets; `None` for that of the client.
    pub host: Option<String>,
    /// Fields of the request to the backend: `None` removes one. Names as in the configuration.
    pub request_fields: Vec<(String, Option<String>)>,
    /// The same of the response of the backend.
    pub response_fields: Vec<(String, Option<String>)>,
    /// Whether texts are compressed for clients that accept it.
    pub compresses: bool,
    /// Whether clients of HTTP/1.1 get 103 (Early Hints), too.
    pub sends_hints_by_http1: bool,
    /// Bytes of the content of a request; longer ones get 413.
    pub body_bytes_max: u64,
    /// Time in which the backend begins its response, and within which it sends a further part or takes one.
    pub timeout: Duration,
}

/// An application: one or several servers that answer alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backend {
    /// Its servers, at least one.
    pub servers: Vec<BackendServer>,
    /// The protocol of all of them.
    pub protocol: BackendProtocol,
    /// How connections to them are encrypted; `None` if they are not.
    pub tls: Option<Arc<BackendTls>>,
    /// Time for a connection to be made.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// Connections of each worker to each server.
    pub connections_max: usize,
    /// Which of its servers gets a request.
    pub distribution: Distribution,
}

/// A server of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendServer {
    /// Its address.
    pub address: BackendAddress,
    /// Its share of the requests, relative to those of the others; at least 1.
    pub weight: u32,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A UNIX socket.
    Unix(PathBuf),
    /// TCP, to each address of a host.
    Host {
        /// Its name.
        name: String,
        /// The port.
        port: u16,
    },
}

/// The encryption of connections to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendTls {
    /// The name in its certificates, which is also sent to it; `None` for the address of each server.
    pub name: Option<String>,
    /// Its files.
    pub files: TlsFiles,
}

/// The files of the encryption.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsFiles {
    /// Which certificates are accepted.
    pub trust: TlsTrust,
    /// The files of chain and private key of the certificate for servers that ask for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// All of them, without those of the system.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let roots = match &self.trust {
            TlsTrust::Roots(path) => Some(path),
            TlsTrust::System | TlsTrust::Anything => None,
        };
        let certificate = self.certificate.iter().flat_map(|(chain, key)| [chain, key]);
        roots.into_iter().chain(certificate).map(PathBuf::as_path)
    }
}

/// The certificates of servers that are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TlsTrust {
    /// Those of the authorities that the system trusts.
    System,
    /// Those of the authorities in this file.
    Roots(PathBuf),
    /// All.
    Anything,
}

/// The protocol of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, of which gRPC is an application; without encryption from the first byte on (RFC 9113 §3.3).
    Http2,
    /// FastCGI.
    FastCgi(FastCgiOptions),
}

/// How a FastCGI application finds its scripts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FastCgiOptions {
    /// The document root that the application gets, absolute and without symbolic links. Empty in a configuration: it
    /// is known when the site is loaded.
    pub root: PathBuf,
    /// The script that answers for paths without a script, relative to `root`: `index.php`. `None`: they get 404.
    pub front_controller: Option<String>,
}

/// A request, for [`Routes::find`].
pub trait RouteRequest {
    /// Its method, as it was received.
    fn method(&self) -> &[u8];
    /// The value of the first field line with this name, in lower case.
    fn field(&self, name: &str) -> Option<&[u8]>;
    /// The value of a cookie (RFC 6265 §5.4).
    fn cookie(&self, name: &str) -> Option<&[u8]>;
}

impl Route {
    /// All requests for these paths get this answer.
    pub fn new(name: &str, pattern: Pattern, action: RouteAction) -> Route {
        Route {
            name: name.to_owned(),
            pattern,
            conditions: RouteConditions::default(),
            files_first: false,
            forward_auth: None,
            rate: None,
            action,
        }
    }

    /// Whether `later`, a route after this one, never answers: this one has the same paths, as many conditions, and
    /// they hold whenever those of `later` do.
    pub fn hides(&self, later: &Route) -> bool {
        self.pattern == later.pattern
            && self.conditions.count() == later.conditions.count()
            && self.conditions.follow_from(&later.conditions)
    }
}

impl Routes {
    /// These routes, in the order in which they are tried.
    pub fn new(routes: impl IntoIterator<Item = Route>) -> Routes {
        let mut routes: Vec<Arc<Route>> = routes.into_iter().map(Arc::new).collect();
        routes.sort_by_cached_key(|route| Reverse((route.pattern.precedence(), route.conditions.count())));
        Routes { run_scripts: routes.iter().any(|route| route.runs_scripts()), routes }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Whether a FastCGI application answers for one of them, which runs files of the site.
    pub fn run_scripts(&self) -> bool {
        self.run_scripts
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter()
    }

    /// The route for a request.
    pub fn find(&self, path: &RequestPath<'_>, request: &impl RouteRequest) -> Option<&Arc<Route>> {
        self.routes.iter().find(|route| route.pattern.is_match(path) && route.conditions.hold_for(request))
    }
}

impl Route {
    /// Whether a FastCGI application answers, which runs files of the site.
    fn runs_scripts(&self) -> bool {
        matches!(&self.action, RouteAction::Pass(pass) if matches!(pass.backend.protocol, BackendProtocol::FastCgi(_)))
    }

    /// The applications that its requests may reach.
    pub fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        let of_auth = self.forward_auth.iter().filter_map(|auth| auth.route.action.backend());
        self.action.backend().into_iter().chain(of_auth)
    }

    /// The path that all paths of the route begin with, without a slash at its end; empty for the root.
    pub fn fixed_prefix(&self) -> &str {
        let end = self.name.find(['*', ':']).unwrap_or(self.name.len());
        let fixed = &self.name[..end];
        fixed.rfind('/').filter(|_| end < self.name.len()).map_or(fixed.trim_end_matches('/'), |slash| &fixed[..slash])
    }
}

impl BackendRoute {
    /// Requests without content are passed on to this backend, unchanged except for what proxies add.
    pub fn new(backend: Arc<Backend>, timeout: Duration) -> BackendRoute {
        BackendRoute {
            backend,
            strip_prefix: false,
            host: None,
            request_fields: Vec::new(),
            response_fields: Vec::new(),
            compresses: false,
            sends_hints_by_http1: false,
            body_bytes_max: 0,
            timeout,
        }
    }
}

impl RouteAction {
    fn backend(&self) -> Option<&Arc<Backend>> {
        match self {
            RouteAction::Pass(pass) => Some(&pass.backend),
            RouteAction::Respond { .. } | RouteAction::File => None,
        }
    }
}

impl std::fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BackendAddress::Tcp(address) => address.fmt(f),
            BackendAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            BackendAddress::Host { name, port } => write!(f, "{name}:{port}"),
        }
    }
}

impl RouteConditions {
    /// Whether one is about cookies.
    pub fn have_cookies(&self) -> bool {
        !self.cookies.is_empty() || self.fields.iter().any(|(name, _)| name == "cookie")
    }

    fn count(&self) -> usize {
        usize::from(!self.methods.is_empty()) + self.fields.len() + self.cookies.len()
    }

    fn follow_from(&self, others: &RouteConditions) -> bool {
        let has_method = |method: &String| self.methods.is_empty() || self.methods.contains(method);
        let follows = |(name, value): &(String, Option<String>), others: &[(String, Option<String>)]| {
            others.iter().any(|(other, its)| other == name && (value.is_none() || its == value))
        };
        (self.methods.is_empty() || !others.methods.is_empty() && others.methods.iter().all(has_method))
            && self.fields.iter().all(|field| follows(field, &others.fields))
            && self.cookies.iter().all(|cookie| follows(cookie, &others.cookies))
    }

    fn hold_for(&self, request: &impl RouteRequest) -> bool {
        let is = |found: Option<&[u8]>, value: &Option<String>| {
            found.is_some_and(|found| value.as_ref().is_none_or(|value| value.as_bytes() == found))
        };
        (self.methods.is_empty() || self.methods.iter().any(|method| method.as_bytes() == request.method()))
            && self.fields.iter().all(|(name, value)| is(request.field(name), value))
            && self.cookies.iter().all(|(name, value)| is(request.cookie(name), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Asked<'a> {
        method: &'a str,
        cookie: Option<&'a str>,
    }

    impl RouteRequest for Asked<'_> {
        fn method(&self) -> &[u8] {
            self.method.as_bytes()
        }

        fn field(&self, _name: &str) -> Option<&[u8]> {
            None
        }

        fn cookie(&self, name: &str) -> Option<&[u8]> {
            self.cookie.filter(|_| name == "version").map(str::as_bytes)
        }
    }

    fn route(name: &str, conditions: RouteConditions) -> Route {
        let pattern = Pattern::parse(name, &[]).expect("a pattern");
        Route { conditions, ..Route::new(name, pattern, RouteAction::Respond { status: 204, text: String::new() }) }
    }

    #[test]
    fn route_with_the_longest_pattern_and_the_most_conditions_answers() {
        let posts = RouteConditions { methods: vec!["POST".to_owned()], ..RouteConditions::default() };
        let canary = RouteConditions {
            cookies: vec![("version".to_owned(), Some("2".to_owned()))],
            ..RouteConditions::default()
        };
        let routes = Routes::new([
            route("/*", RouteConditions::default()),
            route("/api/*", RouteConditions::default()),
            route("/api/*", posts),
            route("/api/v1/*", canary),
            route("/*.php", RouteConditions::default()),
        ]);
        let check = |path: &str, method, cookie, expected: Option<usize>| {
            let request =
                RequestPath { is_https: false, host: None, path: path.as_bytes(), ends_with_slash: false, query: None };
            let found = routes.find(&request, &Asked { method, cookie });
            let found = found.and_then(|found| routes.iter().position(|route| Arc::ptr_eq(route, found)));
            assert_eq!(found, expected, "{path} {method} {cookie:?}");
        };
        check("api/v1/x", "GET", Some("2"), Some(0));
        check("api/v1/x", "GET", Some("1"), Some(3));
        check("api/v1/x", "POST", None, Some(2));
        check("api", "GET", None, Some(3));
        check("apis", "GET", None, Some(4));
        check("a/b.php", "GET", None, Some(1));
    }

    #[test]
    fn exact_path_is_longer_than_all_below_it() {
        let check = |text: &str, expected: usize| {
            assert_eq!(Pattern::parse(text, &[]).expect("a pattern").precedence(), expected, "{text}");
        };
        check("/*", 0);
        check("/", 1);
        check("/api/*", 4);
        check("/api", 5);
        check("/api*", 4);
        check("/*.php", 5);
        check("/users/:id/*", 7);
        check("/users/:id.json/x", 15);
        check("/a/*/b/:c", 6);
        check("/%61", 3);
    }

    #[test]
    fn route_that_never_answers_is_found() {
        let with = |methods: &[&str], fields: &[(&str, Option<&str>)]| RouteConditions {
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            fields: fields.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect(),
            cookies: Vec::new(),
        };
        let check = |first: (&str, RouteConditions), later: (&str, RouteConditions), expected: bool| {
            let [first, later] = [first, later].map(|(name, conditions)| route(name, conditions));
            assert_eq!(first.hides(&later), expected, "{first:?} {later:?}");
        };
        check(("/a/*", with(&[], &[])), ("/a/*", with(&[], &[])), true);
        check(("/a/*", with(&[], &[])), ("/a", with(&[], &[])), false);
        // It has more conditions, and is tried first.
        check(("/a", with(&[], &[])), ("/a", with(&["GET"], &[])), false);
        check(("/a", with(&["GET", "PUT"], &[])), ("/a", with(&["PUT"], &[])), true);
        check(("/a", with(&["GET"], &[])), ("/a", with(&["GET", "PUT"], &[])), false);
        check(("/a", with(&["GET"], &[])), ("/a", with(&[], &[("x", None)])), false);
        check(("/a", with(&[], &[("x", None)])), ("/a", with(&[], &[("x", Some("1"))])), true);
        check(("/a", with(&[], &[("x", Some("1"))])), ("/a", with(&[], &[("x", None)])), false);
        check(("/a", with(&[], &[("x", Some("1"))])), ("/a", with(&[], &[("y", Some("1"))])), false);
    }
}
