//! The routes of a configuration: the requests that an application answers, and the defaults of their keys.

use crate::backend_address::ServerAddress;
use crate::diagnostic::ValueLocation;
use sanderling_site_rules::{
    Backend, BackendProtocol, BackendRoute, BackendServer, BackendTls, Distribution, Pattern, Route, RouteAction,
    RuleError, TlsFiles, TlsTrust,
};
use std::sync::Arc;
use std::time::Duration;

/// Routes of one site: each request is compared with them in turn.
pub(super) const ROUTES_MAX: usize = 256;
/// Servers of one backend.
pub(super) const SERVERS_MAX: usize = 64;
/// The largest share of a server, relative to one with a weight of 1.
pub(super) const WEIGHT_MAX: u64 = 1_000;
/// Bytes of a response that the configuration has.
pub(super) const RESPONSE_TEXT_BYTES_MAX: usize = 16_384;

/// The largest limits of the requests of a client.
pub(super) const REQUESTS_MAX: u64 = 1_000_000;
/// Requests of a client after a pause, as for the limit of all requests.
pub(super) const REQUESTS_AT_ONCE_DEFAULT: u64 = 100;
/// Fields that an authenticator adds to a request.
pub(super) const FORWARD_AUTH_FIELDS_MAX: usize = 32;
/// Bytes of the path at which an authenticator is asked.
pub(super) const FORWARD_AUTH_TARGET_BYTES_MAX: usize = 2_048;
/// Time in which an authenticator answers: a person waits for the page.
pub(super) const FORWARD_AUTH_TIMEOUT_MS: u64 = 10_000;

/// Time in which an application begins its response, or sends a further part: that of nginx and HAProxy.
pub(super) const TIMEOUT_MS_DEFAULT: u64 = 60_000;
pub(super) const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// An application of this machine or its network is connected at once; a lost packet is sent again after 1 s and 3 s.
pub(super) const CONNECT_TIMEOUT_MS_DEFAULT: u64 = 5_000;
pub(super) const CONNECT_TIMEOUT_MS_MAX: u64 = 600_000;
/// Less than the time after which applications close an unused connection: 5 s in Node. A request that is sent at that
/// moment would be lost.
pub(super) const IDLE_TIMEOUT_MS_DEFAULT: u64 = 4_000;
/// The same for FastCGI: each connection that is kept occupies a process of php-fpm, for which other requests may wait.
pub(super) const FASTCGI_IDLE_TIMEOUT_MS_DEFAULT: u64 = 100;
pub(super) const IDLE_TIMEOUT_MS_MAX: u64 = 3_600_000;
/// Connections of each worker to each server.
pub(super) const CONNECTIONS_DEFAULT: u64 = 512;
pub(super) const CONNECTIONS_MAX: u64 = 65_536;
/// Errors in a row after which a server counts as down, at most.
pub(super) const ERRORS_MAX: u64 = 1_000;
pub(super) const SLOW_START_MS_MAX: u64 = 3_600_000;
/// Time from one check to the next one, in which the server has to answer.
pub(super) const CHECK_INTERVAL_MS_DEFAULT: u64 = 5_000;
pub(super) const CHECK_INTERVAL_MS_MIN: u64 = 100;
pub(super) const CHECK_INTERVAL_MS_MAX: u64 = 3_600_000;
/// No limit: a request is passed on as it is received, so that its size costs the server neither memory nor disk, and
/// only the application knows what it takes.
pub(super) const REQUEST_BODY_BYTES_DEFAULT: u64 = u64::MAX;
pub(super) const REQUEST_BODY_BYTES_MAX: u64 = 1 << 40;

/// A route with its place in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRoute {
    /// The route.
    pub route: Route,
    /// Its position in the configuration.
    pub location: ValueLocation,
}

/// The pattern of a route: `/api/` is all below it, unless it is a regular expression.
///
/// # Errors
/// The problem.
pub(super) fn route_pattern(text: &str) -> Result<Pattern, RuleError> {
    if text.ends_with('/') && !text.starts_with('~') {
        Pattern::parse(&format!("{text}*"), &[])
    } else {
        Pattern::parse(text, &[])
    }
}

/// The route `name` to one server that speaks HTTP, with the default of each other key.
pub(super) fn proxy_route(name: &str, pattern: Pattern, server: ServerAddress, timeout_ms: u64) -> Route {
    let ServerAddress { address, is_encrypted } = server;
    let files = TlsFiles { trust: TlsTrust::System, certificate: None };
    let backend = Backend {
        servers: vec![BackendServer { address, weight: 1 }],
        protocol: BackendProtocol::Http1,
        tls: is_encrypted.then(|| Arc::new(BackendTls { name: None, files })),
        connect_timeout: Duration::from_millis(CONNECT_TIMEOUT_MS_DEFAULT),
        idle_timeout: Duration::from_millis(IDLE_TIMEOUT_MS_DEFAULT),
        connections_max: usize::try_from(CONNECTIONS_DEFAULT).unwrap_or(usize::MAX),
        distribution: Distribution::default(),
    };
    let pass = BackendRoute {
        body_bytes_max: REQUEST_BODY_BYTES_DEFAULT,
        ..BackendRoute::new(Arc::new(backend), Duration::from_millis(timeout_ms))
    };
    Route::new(name, pattern, RouteAction::Pass(Box::new(pass)))
}
