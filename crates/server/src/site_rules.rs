//! What is done with a request besides serving a file: redirecting it to HTTPS, refusing it because the connection is not for
//! its host, answering a DNS query, and adding fields to the response.

use crate::options::Options;
use crate::sites::{Site, is_address};
use crate::snapshot::Snapshot;
use crate::transport::Transport;
use sanderling_http::{Request, Response, SitePath, SitePathError, Target};
use std::sync::Arc;

/// The directory in which a certificate authority looks for a token, without encryption (RFC 8555 §8.3).
const ACME_CHALLENGES: &[u8] = b".well-known/acme-challenge";

/// What is done with a request.
pub(crate) enum Ruling<'r> {
    /// The file is served. The head of the response gets these field lines.
    File(&'r [u8]),
    /// The DNS query is answered, with these field lines.
    DnsQuery(&'r [u8]),
    /// This response is sent.
    Respond(Response<'r>),
}

/// Whether [`Ruling::of`] must be asked: otherwise the file is served.
#[inline]
pub(crate) fn has_rules(site: Option<&Arc<Site>>, transport: &Transport) -> bool {
    transport.is_encrypted() || site.is_some_and(|site| site.options.rules.is_some())
}

impl<'r> Ruling<'r> {
    /// What the head of the response gets besides.
    pub(crate) fn field_lines(&self) -> &'r [u8] {
        match self {
            Ruling::File(lines) | Ruling::DnsQuery(lines) => lines,
            Ruling::Respond(_) => &[],
        }
    }

    /// As [`Ruling::of`], which is asked only where it matters.
    #[inline]
    pub(crate) fn find(
        request: &'r Request<'r>,
        site: Option<&'r Arc<Site>>,
        transport: &Transport,
        snapshot: &Snapshot,
        options: &Options,
    ) -> Ruling<'r> {
        if has_rules(site, transport) {
            Ruling::of(request, site, transport, snapshot, options)
        } else {
            Ruling::File(&[])
        }
    }

    #[inline(never)]
    pub(crate) fn of(
        request: &'r Request<'r>,
        site: Option<&'r Arc<Site>>,
        transport: &Transport,
        snapshot: &Snapshot,
        options: &Options,
    ) -> Ruling<'r> {
        let rules = site.and_then(|site| site.options.rules.as_deref());
        let mut field_lines: &[u8] = &[];
        if transport.is_encrypted() {
            if is_misdirected(request, transport, snapshot) {
                return Ruling::Respond(Response::misdirected(request));
            }
            let lines = rules.map_or(&[][..], |rules| rules.https_field_lines.as_bytes());
            // What they promise for `localhost` would concern other servers, and for an address browsers ignore it.
            if !lines.is_empty() && request.host.is_some_and(|host| !is_address(host.name)) {
                field_lines = lines;
            }
        } else if let Some(port) = options.http.https_port
            && rules.is_some_and(|rules| rules.redirects_to_https)
            && is_redirected(request, snapshot)
            && let Some(response) = Response::https_redirect(request, port)
        {
            return Ruling::Respond(response);
        }
        let doh_path = rules.and_then(|rules| rules.doh_path.as_deref());
        match (doh_path, request.target) {
            (Some(doh_path), Target::Path { path, .. }) if path == doh_path.as_bytes() => Ruling::DnsQuery(field_lines),
            _ => Ruling::File(field_lines),
        }
    }
}

/// Whether the client has got no certificate for the host of `request` (RFC 9110 §7.4, RFC 9113 §9.1.1). A client that asks for
/// an address has got the default certificate, which it cannot verify or which the operator has given to it.
fn is_misdirected(request: &Request<'_>, transport: &Transport, snapshot: &Snapshot) -> bool {
    let Some(host) = request.host.filter(|_| !snapshot.sites.answers_every_host()) else { return false };
    let is_default = || is_address(host.name) && transport.has_default_certificate();
    !(transport.has_certificate_for(host.name) || is_default())
}

/// Whether HTTPS answers for the host of `request`, and the request need not be answered without encryption.
fn is_redirected(request: &Request<'_>, snapshot: &Snapshot) -> bool {
    let (Some(host), Target::Path { path, .. }) = (request.host, request.target) else { return false };
    let is_answered_here = match SitePath::parse(path) {
        Ok(path) => {
            let below = path.as_bytes().strip_prefix(ACME_CHALLENGES);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        }
        // It is refused.
        Err(SitePathError::Malformed) => true,
        Err(SitePathError::TooLong) => false,
    };
    !is_answered_here
        && !is_address(host.name)
        && snapshot.tls.as_ref().is_some_and(|tls| {
            str::from_utf8(host.name).is_ok_and(|host| tls.https.certificates().has_valid_certificate_for(host))
        })
}
