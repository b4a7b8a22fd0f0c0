//! The actions for a request other than serving a file: redirecting it, refusing it because the connection is not for
//! its host, answering a DNS query, serving another file, and adding fields to the response.

use crate::clock::Clock;
use crate::context::ConnectionInfo;
use crate::file_error::FileError;
use crate::files::file_cache::Lookup;
use crate::files::local_files::LocalFiles;
use crate::http::file_hit::is_missing;
use crate::limits::permits::ClientPrefix;
use crate::limits::request_budget::{RequestBudget, RequestRate};
use crate::logins::authenticator::{Authenticator, CREDENTIALS_BYTES_MAX, Credentials, Verdict};
use crate::metrics::{Counter, ThreadMetrics};
use crate::net::transport::Transport;
use crate::options::Options;
use crate::site::challenges::ACME_CHALLENGES;
use crate::site::protection::{AuthRule, Protection, ProtectionRules};
use crate::site::script_path::names_script;
use crate::site::sites::{Site, SiteRules, is_address};
use crate::snapshot::Snapshot;
use crate::waiter::Waiter;
use sanderling_http::{Host, Method, Request, Response, Scheme, SitePath, Status, Target, put_field_lines};
use sanderling_os::clock::monotonic_ms;
use sanderling_site_rules::{
    ContentOf, FieldEdits, Outcome, PageStatus, RedirectStatus, RequestPath, Route, RouteAction, RouteRequest, RuleSet,
    changes_with_content,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Cache-Control of a file whose name changes with its content, and of other files.
const KEPT: &[u8] = b"public, max-age=31536000, immutable";
const REVALIDATED: &[u8] = b"no-cache";

/// The action for a request.
pub(crate) struct Ruling<'r> {
    pub(crate) action: Action<'r>,
    pub(crate) fields: ResponseFields<'r>,
    /// The route of the request, if it limits or guards it.
    route: Option<Arc<Route>>,
    /// The rules that protect paths of the site; `None` if it has none.
    protection_rules: Option<&'r ProtectionRules>,
    /// The protection of the path of the request, of the path of another file, of the found file, and of a path without
    /// a file. Nothing is answered before it is satisfied.
    protections: [Protection; 4],
    /// The site has a FastCGI application, whose scripts are never sent.
    runs_scripts: bool,
}

/// How a request is answered.
pub(crate) enum Action<'r> {
    /// With the file at its path.
    File,
    /// With the file at its path if there is one, else with this.
    FileOr(Instead),
    /// By this route.
    Route(Arc<Route>),
    /// With the file at this path, perhaps as the page of an error.
    OtherFile(Vec<u8>, Option<Status>),
    /// With the reply to a DNS query.
    DnsQuery,
    /// With this response.
    Respond(Response<'r>),
    /// With a redirect to this URL.
    Redirect(Status, Vec<u8>),
    /// With the page of a status.
    Page(Status),
}

/// The answer to a request if there is no file at its path.
pub(crate) enum Instead {
    Outcome(Outcome),
    Route(Arc<Route>),
}

/// The additional fields of the head of a response.
#[derive(Default)]
pub(crate) struct ResponseFields<'r> {
    /// Field lines of responses over HTTPS.
    https_lines: &'r [u8],
    edits: FieldEdits<'r>,
    /// Field lines that ask for a password.
    challenge: String,
}

impl ResponseFields<'_> {
    /// Whether the content may be compressed.
    pub(crate) fn may_transform(&self) -> bool {
        !self.edits.forbids_transformation()
    }

    /// Changes the head that begins at `start` and ends with `out`.
    #[inline]
    pub(crate) fn apply(&self, start: usize, content_of: ContentOf, out: &mut Vec<u8>) {
        if !self.https_lines.is_empty() {
            put_field_lines(self.https_lines, out);
        }
        if !self.edits.is_empty() {
            self.edits.apply(start, content_of, out);
        }
        if !self.challenge.is_empty() {
            put_field_lines(self.challenge.as_bytes(), out);
        }
    }
}

/// Whether [`Ruling::of`] must be asked: otherwise the file is served.
#[inline]
pub(crate) fn has_rules(request: &Request<'_>, site: Option<&Arc<Site>>, transport: &Transport) -> bool {
    transport.is_encrypted() || request.scheme.is_some() || site.is_some_and(|site| site.options.rules.is_some())
}

impl<'r> Ruling<'r> {
    /// The file is served, and nothing else is done.
    pub(crate) fn of_file() -> Ruling<'r> {
        Ruling {
            action: Action::File,
            fields: ResponseFields::default(),
            route: None,
            protection_rules: None,
            protections: [Protection::default(); 4],
            runs_scripts: false,
        }
    }

    /// For input that is not a request that can be answered. Over HTTPS it counts as one for the host that the client
    /// has asked for in the handshake; otherwise its host is unknown.
    #[cold]
    pub(crate) fn of_refusal(transport: &Transport, snapshot: &'r Snapshot, files: &mut LocalFiles<'_>) -> Ruling<'r> {
        let name = transport.server_name().map(str::as_bytes).filter(|name| transport.has_certificate_for(name));
        let Some(host) = name.and_then(Host::parse) else { return Ruling::of_file() };
        let site = files.site_for(&snapshot.sites, Some(host));
        let rules = site.and_then(|site| site.options.rules.as_deref());
        let (https_lines, edits) = (https_lines(rules, Some(host)), rules.map(edits_without_path).unwrap_or_default());
        Ruling { fields: ResponseFields { https_lines, edits, ..ResponseFields::default() }, ..Ruling::of_file() }
    }

    /// `connection`: of the client or proxy that has sent the request.
    #[inline(never)]
    pub(crate) fn of(
        request: &'r Request<'r>,
        site: Option<&'r Arc<Site>>,
        connection: &ConnectionInfo<'_>,
        snapshot: &'r Snapshot,
        options: &Options,
    ) -> Ruling<'r> {
        let transport = connection.transport;
        let without_fields = |action| Ruling { action, ..Ruling::of_file() };
        let rules = site.and_then(|site| site.options.rules.as_deref());
        let mut fields = ResponseFields::default();
        // RFC 9110 §7.4: only a trusted proxy knows the scheme of the client's connection to it.
        if !request.fits(transport.scheme()) && !connection.is_from_trusted_proxy(&snapshot.http_clients) {
            return without_fields(Action::Respond(Response::misdirected(request)));
        }
        if transport.is_encrypted() {
            if is_misdirected(request, transport, snapshot) {
                return without_fields(Action::Respond(Response::misdirected(request)));
            }
            if let Some(policy) = mail_policy(request, snapshot) {
                return without_fields(Action::Respond(Response::text(request, policy)));
            }
            fields.https_lines = https_lines(rules, request.host);
        } else if rules.is_some_and(|rules| rules.answers_challenges)
            && let Some(content) = challenge(request, snapshot)
        {
            return without_fields(Action::Respond(Response::text(request, content)));
        } else if let Some(port) = options.http.https_port
            && rules.is_some_and(|rules| rules.redirects_to_https)
            && is_redirected(request, snapshot)
            && let Some(response) = Response::https_redirect(request, port)
        {
            return without_fields(Action::Respond(response));
        }
        let (Some(rules), Target::Path { path: raw_path, query }) = (rules, request.target) else {
            return Ruling { fields, ..Ruling::of_file() };
        };
        let parsed = SitePath::parse(raw_path);
        let is_dns_query = parsed.as_ref().is_ok_and(|path| rules.is_doh_path(path));
        let action = if is_dns_query { Action::DnsQuery } else { Action::File };
        let runs_scripts = rules.routes.run_scripts();
        let mut ruling = Ruling { action, fields, runs_scripts, ..Ruling::of_file() };
        let Ok(path) = parsed else {
            ruling.fields.edits = edits_without_path(rules);
            return ruling;
        };
        if !rules.has_path_rules() {
            return ruling;
        }
        let request_path = RequestPath {
            is_https: request.scheme.unwrap_or_else(|| transport.scheme()) == Scheme::Https,
            host: request.host.map(|host| host.name),
            path: path.as_bytes(),
            ends_with_slash: path.ends_with_slash(),
            query,
        };
        if !is_dns_query {
            ruling.fields.edits = edits_of(rules, request, &request_path);
            let action = Action::by_rules(rules, request.method, &request_path);
            ruling.action = action.or_by_route(rules, request, &request_path, &mut ruling.route);
        }
        if !rules.protection.is_empty() {
            ruling.protect(&rules.protection, request, &path);
        }
        ruling
    }

    /// Finds what protects `path`, and the other path whose file may be served for it.
    fn protect(&mut self, rules: &'r ProtectionRules, request: &Request<'_>, path: &SitePath<'_>) {
        self.protection_rules = Some(rules);
        self.protections[0] = rules.of_file(path.as_bytes());
        if let Action::Route(_) | Action::FileOr(Instead::Route(_)) = &self.action {
            self.protections[3] = rules.of_missing(path.as_bytes(), path.ends_with_slash());
        } else if request.is_preflight() {
            // A browser sends it without a password.
            self.protections[0].auth = None;
        }
        if let Some(Ok(other)) = self.action.other_path().map(SitePath::parse) {
            self.protections[1] = rules.of_file(other.as_bytes());
        }
    }
}

/// A request that counts for the limits of its client.
pub(crate) struct Requester<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) site: Option<&'a Arc<Site>>,
    pub(crate) address: IpAddr,
}

impl<'r> Ruling<'r> {
    /// Takes the request from the budget of its client, and from that of its client for its route, and refuses it if it
    /// is one too many.
    #[inline]
    pub(crate) fn limit(
        &mut self,
        budget: &RequestBudget,
        requester: &Requester<'r>,
        (snapshot, clock, metrics): (&Snapshot, &Clock, &ThreadMetrics),
    ) {
        let (policy, rate) = (&snapshot.http_clients.rate_limit, budget.client_rate);
        let route = self.route.as_ref().and_then(|route| Some((route, route.rate?)));
        if (rate.is_none() && route.is_none()) || policy.is_exempt(requester.address) {
            return;
        }
        let (client, now_ms) = (ClientPrefix::of(requester.address), clock.now_ms());
        let of_client = rate.map_or(Ok(()), |rate| budget.take(client, rate, now_ms));
        let taken = of_client.and_then(|()| {
            let Some((route, limit)) = route else { return Ok(()) };
            // The route of the same site and name, also after a reload.
            let site = requester.site.and_then(|site| site.hosts.first());
            let rate = RequestRate::new(limit.per_second_max, limit.at_once_max);
            rate.map_or(Ok(()), |rate| budget.take((client, site, &route.name, &route.conditions), rate, now_ms))
        });
        let Err(retry_after_s) = taken else { return };
        metrics.add(Counter::HttpOverRate, 1);
        if !policy.is_dry_run {
            self.action = Action::Respond(Response::too_many_requests(requester.request, retry_after_s));
            self.protections = [Protection::default(); 4];
        }
    }
}

/// The field lines of responses over HTTPS for `host`, whose site has the `rules`. Their promise for `localhost` would
/// affect other servers, and browsers ignore it for an address.
fn https_lines<'r>(rules: Option<&'r SiteRules>, host: Option<Host<'_>>) -> &'r [u8] {
    match (rules, host) {
        (Some(rules), Some(host)) if !is_address(host.name) => rules.https_field_lines.as_bytes(),
        _ => &[],
    }
}

/// The fields of a response to a request without a path that rules could match: those that the site has on all its
/// responses.
fn edits_without_path(rules: &SiteRules) -> FieldEdits<'_> {
    let mut edits = FieldEdits::default();
    let root = RequestPath { is_https: false, host: None, path: b"", ends_with_slash: true, query: None };
    rules.default_fields.add_fields(&root, &mut edits);
    edits.end_defaults();
    edits
}

/// The fields of all responses to requests for this path.
fn edits_of<'r>(rules: &'r SiteRules, request: &Request<'_>, path: &RequestPath<'_>) -> FieldEdits<'r> {
    let mut edits = FieldEdits::default();
    if rules.caches_fingerprinted {
        let value = if changes_with_content(path.path) { KEPT } else { REVALIDATED };
        edits.set("Cache-Control", value.to_vec());
    }
    if let Some(cors) = &rules.cors {
        cors.add_fields(request.origin(), request.is_preflight(), &mut edits);
    }
    rules.default_fields.add_fields(path, &mut edits);
    edits.end_defaults();
    // The fields of the operator take precedence.
    rules.file_rules.add_fields(path, &mut edits);
    rules.own_rules.add_fields(path, &mut edits);
    edits
}

/// The name and the password of a request (RFC 7617 §2).
fn credentials_of(request: &Request<'_>) -> Option<Credentials> {
    let value = request.authorization()?;
    let (scheme, encoded) = value.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") || encoded.len() > CREDENTIALS_BYTES_MAX {
        return None;
    }
    let decoded = data_encoding::BASE64.decode(encoded.trim_ascii()).ok()?;
    let at = memchr::memchr(b':', &decoded)?;
    Some(Credentials { name: decoded[..at].to_vec(), password: decoded[at + 1..].to_vec() })
}

/// A request whose client has to satisfy rules, and the inputs of that decision.
#[derive(Clone, Copy)]
pub(crate) struct Applicant<'a> {
    pub(crate) request: &'a Request<'a>,
    /// `None` if there is none, or its file cannot be looked up.
    pub(crate) site: Option<&'a Arc<Site>>,
    pub(crate) address: IpAddr,
    pub(crate) authenticator: &'a Arc<Authenticator>,
    /// Receives an event if the request waits; and whether it has received one before.
    pub(crate) waiter: (Waiter, bool),
    pub(crate) may_wait: bool,
}

/// Whether a client satisfies rules.
enum Admission {
    Granted,
    /// The action says so.
    Refused,
    /// The waiter receives an event.
    Pending,
}

impl Ruling<'_> {
    /// Finds out whether the client may see the response, and whether there is a file, if that matters; true if the
    /// request has to wait for it. A request that may not wait is refused.
    pub(crate) fn has_to_wait(&mut self, applicant: &Applicant<'_>, files: &mut LocalFiles<'_>, clock: &Clock) -> bool {
        let is_pending = self.is_pending(applicant, files, clock);
        if is_pending && !applicant.may_wait {
            self.action = Action::Page(Status::ServiceUnavailable);
        }
        is_pending && applicant.may_wait
    }

    fn is_pending(&mut self, applicant: &Applicant<'_>, files: &mut LocalFiles<'_>, clock: &Clock) -> bool {
        let Applicant { request, site, waiter, .. } = *applicant;
        let [of_request, of_other, ..] = self.protections;
        match self.admit(&[of_request, of_other], applicant) {
            Admission::Granted => {}
            Admission::Refused => return false,
            Admission::Pending => return true,
        }
        let mut passed_over = Protection::default();
        if let Action::FileOr(instead) = &self.action {
            self.action = match (site, request.path().map(SitePath::parse)) {
                (Some(site), Some(Ok(path))) => match files.open(site, &path, waiter, clock) {
                    Lookup::Failed(error) if is_missing(error) => {
                        passed_over = self.of_missing(&path);
                        match instead {
                            Instead::Outcome(outcome) => Action::of(outcome.clone()),
                            Instead::Route(route) => Action::Route(Arc::clone(route)),
                        }
                    }
                    Lookup::Pending => return true,
                    _ => Action::File,
                },
                _ => Action::File,
            };
        }
        if self.protection_rules.is_none() {
            return false;
        }
        if let Some(site) = site
            && self.is_look_up_pending(site, applicant, files, clock)
        {
            return true;
        }
        let [.., of_file, of_missing] = self.protections;
        let satisfied = &[of_request, of_other];
        let rest = [of_file, of_missing, passed_over]
            .map(|protection| if protection.is_implied_by(satisfied) { Protection::default() } else { protection });
        matches!(self.admit(&rest, applicant), Admission::Pending)
    }

    /// Finds the protection of the served file, whichever way leads to it, or of the path if there is none; true if
    /// `waiter` receives an event.
    fn is_look_up_pending(
        &mut self,
        site: &Arc<Site>,
        applicant: &Applicant<'_>,
        files: &mut LocalFiles<'_>,
        clock: &Clock,
    ) -> bool {
        let Applicant { request, waiter, .. } = *applicant;
        if !matches!(self.action, Action::File | Action::OtherFile(..)) {
            return false;
        }
        let Some(Ok(path)) = self.action.path(request).map(SitePath::parse) else { return false };
        let (found, is_missing) = match files.open(site, &path, waiter, clock) {
            Lookup::Failed(error) => {
                let is_of_rule = self.action.is_substitute();
                (files.open_instead(error, (site, &path, request), is_of_rule, waiter, clock), error.is_of_path())
            }
            found => (found, false),
        };
        match &found {
            Lookup::Pending => return true,
            // Without it, the built-in page says the same.
            Lookup::NotFoundPage(_) => {}
            found => self.protections[2] = found.file().map(|file| file.protection).unwrap_or_default(),
        }
        // The page is opened at another path than its URL.
        if is_missing && !matches!(found, Lookup::Opened(_)) {
            self.protections[3] = self.of_missing(&path);
        }
        false
    }

    /// The client has satisfied the rules of the path in an earlier iteration.
    pub(crate) fn note_admission(&mut self) {
        let is_guarded = self.route.as_ref().is_some_and(|route| route.forward_auth.is_some());
        if is_guarded || self.protections != [Protection::default(); 4] {
            self.set_private();
        }
    }

    /// The response, that of an application or an authenticator, is for this client only.
    pub(crate) fn set_private(&mut self) {
        self.fields.edits.set_all_private();
    }

    /// The route whose authenticator has to admit the request before its answer; `None` if there is none, or if the
    /// answer is a refusal.
    pub(crate) fn guarding_route(&self) -> Option<&Arc<Route>> {
        let is_refused = matches!(self.action, Action::Page(_) | Action::Respond(_) | Action::DnsQuery);
        self.route.as_ref().filter(|route| !is_refused && route.forward_auth.is_some())
    }

    /// The protection of a missing file at this path.
    fn of_missing(&self, path: &SitePath<'_>) -> Protection {
        self.protection_rules.map(|rules| rules.of_missing(path.as_bytes(), path.ends_with_slash())).unwrap_or_default()
    }

    /// Whether the client satisfies these rules: first those for addresses.
    fn admit(&mut self, protections: &[Protection], applicant: &Applicant<'_>) -> Admission {
        let Some(rules) = self.protection_rules else { return Admission::Granted };
        for position in protections.iter().filter_map(|protection| protection.access) {
            // A shared cache must not answer other clients with what this one gets.
            self.fields.edits.set_private();
            if !rules.access(position).admits(applicant.address) {
                self.action = Action::Page(Status::Forbidden);
                return Admission::Refused;
            }
        }
        for position in protections.iter().filter_map(|protection| protection.auth) {
            let rule = rules.auth(position);
            let Some(credentials) = credentials_of(applicant.request) else {
                self.deny(rule);
                return Admission::Refused;
            };
            let Applicant { address, authenticator, waiter: (waiter, _), .. } = *applicant;
            match authenticator.check(&rule.users, &credentials, address, waiter, monotonic_ms()) {
                Verdict::Granted => self.fields.edits.set_private(),
                Verdict::Denied => {
                    self.deny(rule);
                    return Admission::Refused;
                }
                Verdict::Pending => return Admission::Pending,
                Verdict::Busy => {
                    self.action = Action::Page(Status::ServiceUnavailable);
                    return Admission::Refused;
                }
            }
        }
        Admission::Granted
    }

    /// The file found for the response. The client must have satisfied what protects it: another file may be there
    /// since [`Ruling::has_to_wait`], and a page that other rules protect than the path is left out. Without a ruling
    /// the site has no rules.
    #[inline(always)]
    pub(crate) fn checked<'f, 's>(ruling: Option<&Self>, found: Lookup<'f, 's>) -> Lookup<'f, 's> {
        let Some(ruling) = ruling else { return found };
        let protection = found.file().map(|file| file.protection).unwrap_or_default();
        match found {
            _ if protection.is_script && ruling.runs_scripts => Lookup::Failed(FileError::NotFound),
            found if protection.is_implied_by(&ruling.protections) => found,
            Lookup::NotFoundPage(_) => Lookup::Failed(FileError::NotFound),
            _ => Lookup::Failed(FileError::Busy),
        }
    }

    /// Asks for a name and a password (RFC 7617 §2).
    fn deny(&mut self, rule: &AuthRule) {
        self.action = Action::Page(Status::Unauthorized);
        self.fields.challenge = format!(
            "WWW-Authenticate: Basic realm=\"{}\", charset=\"UTF-8\"\r\nCache-Control: no-store\r\n",
            rule.realm
        );
    }
}

impl Ruling<'_> {
    /// The `response` with a file as the rules want it: as the page of an error, or whole, if its type is not that of
    /// the file.
    pub(crate) fn finish<'p>(&self, response: Response<'p>) -> Response<'p> {
        let response = match self.action {
            Action::OtherFile(_, Some(status)) => response.with_error(status),
            _ => response,
        };
        if self.fields.edits.has("Content-Type") { response.without_parts() } else { response }
    }
}

impl<'r> Action<'r> {
    pub(crate) fn by_rules(rules: &SiteRules, method: Method, path: &RequestPath<'_>) -> Action<'r> {
        let sets: [&RuleSet; 2] = [&rules.own_rules, &rules.file_rules];
        let Some(found) = sets.into_iter().find_map(|set| set.find(path)) else { return Action::File };
        // A rule for the whole site must not prevent the renewal of its certificate.
        let is_forced = found.is_forced() && !is_acme_challenge(path.path);
        match (method, is_forced) {
            (Method::Get | Method::Head, false) => Action::FileOr(Instead::Outcome(found.outcome())),
            (Method::Get | Method::Head, true) => Action::of(found.outcome()),
            // There is no file for other methods; they are redirected.
            (Method::Post | Method::NotAllowed, true) => match found.outcome() {
                outcome @ Outcome::Redirect(..) => Action::of(outcome),
                _ => Action::File,
            },
            _ => Action::File,
        }
    }

    /// The route for the request, unless a rule that takes precedence over files has another answer. A rule for missing
    /// files comes after it. `restricting`: set to the route if it limits or guards its requests.
    fn or_by_route(
        self,
        rules: &SiteRules,
        request: &Request<'_>,
        path: &RequestPath<'_>,
        restricting: &mut Option<Arc<Route>>,
    ) -> Action<'r> {
        if rules.routes.is_empty() || !matches!(self, Action::File | Action::FileOr(_)) || is_acme_challenge(path.path)
        {
            return self;
        }
        // Preflights of a site with `cors` are answered by its rules.
        if rules.cors.is_some() && request.is_preflight() {
            return self;
        }
        let Some(route) = rules.routes.find(path, &RequestOfRoute(request)) else {
            return self;
        };
        if route.forward_auth.is_some() || route.rate.is_some() {
            *restricting = Some(Arc::clone(route));
        }
        if route.action == RouteAction::File {
            return self;
        }
        let is_script = rules.routes.run_scripts() && names_script(path.path);
        let asks_for_file = matches!(request.method, Method::Get | Method::Head) && !is_script;
        match route.files_first && asks_for_file {
            true => Action::FileOr(Instead::Route(Arc::clone(route))),
            false => Action::Route(Arc::clone(route)),
        }
    }

    pub(crate) fn of(outcome: Outcome) -> Action<'r> {
        match outcome {
            Outcome::Redirect(status, location) => Action::Redirect(redirect_status(status), location),
            Outcome::Rewrite(path) => Action::OtherFile(path, None),
            Outcome::Page(status, Some(path)) => Action::OtherFile(path, Some(page_status(status))),
            Outcome::Page(status, None) => Action::Page(page_status(status)),
            Outcome::TooLong => Action::Page(Status::UriTooLong),
            Outcome::OutOfSegment => Action::Page(Status::NotFound),
        }
    }

    /// The path of a file that may be served for another path.
    fn other_path(&self) -> Option<&[u8]> {
        match self {
            Action::OtherFile(path, _) => Some(path),
            Action::FileOr(Instead::Outcome(Outcome::Rewrite(path) | Outcome::Page(_, Some(path)))) => Some(path),
            _ => None,
        }
    }

    /// The path of the served file, as in a request.
    pub(crate) fn path<'p>(&'p self, request: &Request<'p>) -> Option<&'p [u8]> {
        match self {
            Action::OtherFile(path, _) => Some(path),
            _ => request.path(),
        }
    }

    /// Whether the file is not the one at the path of the request.
    pub(crate) fn is_substitute(&self) -> bool {
        matches!(self, Action::OtherFile(..))
    }

    /// The response, if it has no file and is no reply to a DNS query.
    pub(crate) fn response<'p>(&'p self, request: &Request<'p>) -> Option<Response<'p>> {
        match self {
            Action::Respond(response) => Some(*response),
            Action::Redirect(status, location) => Some(Response::redirect(request, *status, location)),
            Action::Page(status) => Some(Response::status_page(request, *status)),
            Action::File | Action::FileOr(_) | Action::OtherFile(..) | Action::DnsQuery | Action::Route(_) => None,
        }
    }
}

/// The properties of a request that the conditions of routes test.
struct RequestOfRoute<'r>(&'r Request<'r>);

impl RouteRequest for RequestOfRoute<'_> {
    fn method(&self) -> &[u8] {
        self.0.method_name()
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.0.field(name.as_bytes())
    }

    fn cookie(&self, name: &str) -> Option<&[u8]> {
        self.0.cookie(name.as_bytes())
    }
}

fn redirect_status(status: RedirectStatus) -> Status {
    match status {
        RedirectStatus::MovedPermanently => Status::MovedPermanently,
        RedirectStatus::Found => Status::Found,
        RedirectStatus::SeeOther => Status::SeeOther,
        RedirectStatus::TemporaryRedirect => Status::TemporaryRedirect,
        RedirectStatus::PermanentRedirect => Status::PermanentRedirect,
    }
}

fn page_status(status: PageStatus) -> Status {
    match status {
        PageStatus::Forbidden => Status::Forbidden,
        PageStatus::NotFound => Status::NotFound,
        PageStatus::Gone => Status::Gone,
        PageStatus::UnavailableForLegalReasons => Status::UnavailableForLegalReasons,
        PageStatus::ServiceUnavailable => Status::ServiceUnavailable,
    }
}

/// Whether the client has got no certificate for the host of `request` (RFC 9110 §7.4, RFC 9113 §9.1.1). A client that
/// asks for an address has got the default certificate, which it cannot verify or which the operator has given to it.
fn is_misdirected(request: &Request<'_>, transport: &Transport, snapshot: &Snapshot) -> bool {
    let Some(host) = request.host.filter(|host| !snapshot.sites.falls_to_default(host.name)) else { return false };
    let is_default = || is_address(host.name) && transport.has_default_certificate();
    !(transport.has_certificate_for(host.name) || is_default())
}

/// Whether HTTPS answers for the host of `request`, and the request need not be answered without encryption. That of a
/// proxy's client with `https` was encrypted up to the proxy.
fn is_redirected(request: &Request<'_>, snapshot: &Snapshot) -> bool {
    let (Some(host), Target::Path { path, .. }, true) = (request.host, request.target, request.fits(Scheme::Http))
    else {
        return false;
    };
    let is_answered_here = match SitePath::parse(path) {
        Ok(path) => is_acme_challenge(path.as_bytes()),
        // It is refused.
        Err(_) => true,
    };
    !is_answered_here
        && !is_address(host.name)
        && snapshot.tls.as_ref().is_some_and(|tls| {
            str::from_utf8(host.name).is_ok_and(|host| tls.https.certificates().has_valid_certificate_for(host))
        })
}

/// The challenge that this request asks for.
fn challenge<'s>(request: &Request<'_>, snapshot: &'s Snapshot) -> Option<&'s [u8]> {
    let challenges = snapshot.challenges.as_ref().filter(|_| matches!(request.method, Method::Get | Method::Head))?;
    challenges.find(request.path()?.strip_prefix(b"/")?)
}

/// The policy for mail servers that this request is for.
fn mail_policy<'s>(request: &Request<'_>, snapshot: &'s Snapshot) -> Option<&'s [u8]> {
    let policies = snapshot.mail_policies.as_ref().filter(|_| matches!(request.method, Method::Get | Method::Head))?;
    policies.find(request.host?, request.path()?)
}

fn is_acme_challenge(path: &[u8]) -> bool {
    let below = path.strip_prefix(ACME_CHALLENGES);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
